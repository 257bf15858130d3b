//! The rules of one node, a file or folder a check.
//!
//! Two conventions run through all of them. A status is `False` when what the type names no longer holds; a warning
//! about something that still holds (a quota at 86 %) stays `True` and carries its severity. And a reading that failed
//! yields `Unknown` with the cause of the failure, never a verdict.

mod agent;
mod certificates;
mod clock;
mod cloud_init;
mod credentials;
mod dns;
pub(crate) mod etcd;
mod guest_agent;
mod host;
pub(crate) mod kubernetes;
pub(crate) mod load_balancer;
mod proxy;
mod rancher_agent;
mod topology;

use std::time::Duration;

use outrider_protocol::{Check, Fact, NodeFacts, NotApplicable, Timestamp, UnknownCause};

use crate::finding::{Blind, Finding, Judgement};
use crate::wording::Span;

pub(crate) fn judge(facts: &NodeFacts) -> Judgement {
    let facts = &*etcd::sound(facts);
    let mut out = Judgement::default();
    let checks = &facts.checks;
    if let Some((host, _)) = open(&mut out, Check::Host, &checks.host, facts.now) {
        host::judge(&mut out, host, facts);
    }
    if let Some((clock, at)) = open(&mut out, Check::Clock, &checks.clock, facts.now) {
        out.findings.push(clock::judge(clock, at, facts));
    }
    // An absent cloud-init is a finding of its own, so this rule opens its fact itself.
    cloud_init::judge(&mut out, facts);
    if let Some((guest_agent, at)) = open(&mut out, Check::GuestAgent, &checks.guest_agent, facts.now) {
        guest_agent::judge(&mut out, guest_agent, at, facts);
    }
    if let Some((etcd, at)) = open(&mut out, Check::Etcd, &checks.etcd, facts.now) {
        etcd::judge(&mut out, etcd, at, facts);
    }
    if let Some((balancers, _)) = open(&mut out, Check::LoadBalancer, &checks.load_balancer, facts.now) {
        load_balancer::judge(&mut out, balancers, facts);
    }
    if let Some((certificates, at)) = open(&mut out, Check::Certificates, &checks.certificates, facts.now) {
        certificates::judge(&mut out, certificates, at, facts);
    }
    if let Some((credentials, at)) = open(&mut out, Check::Credentials, &checks.credentials, facts.now) {
        credentials::judge(&mut out, credentials, at, facts);
    }
    if let Some((kubernetes, at)) = open(&mut out, Check::Kubernetes, &checks.kubernetes, facts.now) {
        kubernetes::judge(&mut out, kubernetes, at, facts);
    }
    if let Some((dns, at)) = open(&mut out, Check::Dns, &checks.dns, facts.now) {
        dns::judge(&mut out, dns, at, facts);
    }
    if let Some((rancher, at)) = open(&mut out, Check::RancherAgent, &checks.rancher_agent, facts.now) {
        rancher_agent::judge(&mut out, rancher, at, facts);
        proxy::judge(&mut out, rancher, at, facts);
    }
    if let Some((topology, at)) = open(&mut out, Check::Topology, &checks.topology, facts.now) {
        topology::judge(&mut out, topology, at, facts);
    }
    if let Some((agent, at)) = open(&mut out, Check::Agent, &checks.agent, facts.now) {
        agent::judge(&mut out, agent, at, facts);
    }
    out.sorted()
}

pub(crate) use clock::{keeps_time, offset as clock_offset};

/// How old a check's last reading may be and still tell how things are. etcd is asked every few seconds, and every hour at the
/// least (`[checks.etcd] poll`), as the coordinator has it (`fleet::reports`); no other check runs less often than once a day.
fn stale_after(check: &Check) -> Duration {
    Duration::from_secs(match check {
        Check::Etcd => 3600,
        _ => 25 * 3600,
    })
}

/// How far ahead of the judgement a reading may be dated: a clock that is set right between the two moves by seconds, and what
/// is dated further ahead tells no age.
const AHEAD: Duration = Duration::from_secs(300);

/// The value of a check's fact and when it was read; a failed read, and one that is too old, becomes a blind check, an
/// absent thing a check that is not applicable.
fn open<'a, T>(
    out: &mut Judgement,
    check: Check,
    fact: &'a Option<Fact<T>>,
    now: Timestamp,
) -> Option<(&'a T, Timestamp)> {
    match fact.as_ref()? {
        Fact::Known { at, .. } if now.since(*at) > stale_after(&check) => {
            // The read before this one ended then, and none has since.
            let detail = format!("what was read last is {} old", Span(now.since(*at)));
            out.blind.push(Blind { check, cause: UnknownCause::TimedOut, detail, at: *at });
        }
        Fact::Known { at, .. } if *at > now.after(AHEAD) => {
            let ahead = Span(at.since(now));
            let detail = format!("what was read last is dated {ahead} ahead of the clock it is judged by");
            out.blind.push(Blind { check, cause: UnknownCause::InvalidInput, detail, at: now });
        }
        Fact::Known { value, at, .. } => return Some((value, *at)),
        Fact::Unknown { cause, detail, source, at } => {
            let detail = if source.is_empty() { detail.clone() } else { format!("{detail} ({source})") };
            out.blind.push(Blind { check, cause: cause.clone(), detail, at: *at });
        }
        Fact::Absent { source, .. } => {
            out.not_applicable.push(NotApplicable { check, reason: format!("nothing found at {source}") });
        }
        Fact::NotApplicable { reason, .. } => {
            out.not_applicable.push(NotApplicable { check, reason: reason.clone() });
        }
    }
    None
}

/// The severity of an unread reading that only dims the picture.
fn unread<T>(
    condition_type: outrider_protocol::ConditionType,
    what: &str,
    fact: &Fact<T>,
    severity: outrider_protocol::Severity,
) -> Option<Finding> {
    match fact {
        Fact::Unknown { cause, detail, at, .. } => Some(Finding::unknown(
            condition_type,
            cause,
            severity,
            *at,
            format!("{what} could not be read: {}.", detail.trim_end_matches('.')),
        )),
        _ => None,
    }
}
