//! `LoadBalancerReachable`: the name, each of its addresses, TLS and the certificate.

use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{
    ConditionType, Fact, LoadBalancerFacts, NodeFacts, ProbeKind, ProbeTarget, ReasonCode as R, Severity,
    Status, Timestamp, UnknownCause,
};

use super::answer::{host_of, is_at_port, is_of_peer};
use super::{certificate, moved};
use crate::finding::Finding;
use crate::wording::names;

pub(super) const TYPE: ConditionType = ConditionType::LoadBalancerReachable;
const RAISE: Duration = Duration::from_secs(15);
const CLEAR: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Tries<'a> {
    good: usize,
    failed: usize,
    why: Option<(&'a UnknownCause, &'a str)>,
}

pub(super) fn judge(b: &LoadBalancerFacts, at: Timestamp, facts: &NodeFacts) -> Finding {
    finding(b, at, facts).waits(RAISE, CLEAR)
}

fn finding(b: &LoadBalancerFacts, at: Timestamp, facts: &NodeFacts) -> Finding {
    let new =
        |status, severity, reason, message: String| Finding::new(TYPE, status, severity, reason, at, message);
    let not_resolved = "Check the record and this machine's resolver; an entry in /etc/hosts would hide the fault here and \
                        leave it to the pods.";
    match &b.addresses {
        Fact::Unknown { cause, detail, .. } => {
            let message = format!("The addresses of {} could not be looked up: {detail}.", b.host);
            return Finding::unknown(TYPE, cause, Severity::Error, at, message);
        }
        Fact::Absent { source, .. } => {
            let message = format!("{} has no address ({source}).", b.host);
            return new(Status::False, Severity::Error, R::NameNotResolved, message).advice(not_resolved);
        }
        Fact::Known { value, source, .. } if value.is_empty() => {
            let message = format!("{} has no address ({source}).", b.host);
            return new(Status::False, Severity::Error, R::NameNotResolved, message).advice(not_resolved);
        }
        _ => {}
    }

    let mut ours = None;
    let mut by_address: BTreeMap<&str, Tries<'_>> = BTreeMap::new();
    let mut fastest = f64::INFINITY;
    let mut no_tls = None;
    let probes = b.probes.iter().filter(|p| {
        // A try with a PROXY header in front is refused where all is well.
        p.target == ProbeTarget::Balancer && is_at_port(&p.peer, b.port) && p.kind != ProbeKind::ProxyPing
    });
    for p in probes {
        match &p.tcp {
            Fact::Known { value, .. } => {
                fastest = fastest.min(*value);
                by_address.entry(host_of(&p.peer)).or_default().good += 1;
                if let Fact::Unknown { cause: UnknownCause::TlsFailed, detail, .. } = &p.tls {
                    no_tls.get_or_insert((p.peer.as_str(), detail.as_str()));
                }
            }
            Fact::Unknown { cause, detail, .. } if is_of_peer(cause) => {
                let tries = by_address.entry(host_of(&p.peer)).or_default();
                tries.failed += 1;
                tries.why.get_or_insert((cause, detail));
            }
            Fact::Unknown { cause, detail, .. } => {
                ours.get_or_insert((cause, detail));
            }
            Fact::Absent { .. } | Fact::NotApplicable { .. } => {}
        }
    }
    if by_address.is_empty() {
        return match ours {
            Some((cause, detail)) => {
                let message = format!("{} port {} could not be tried: {detail}.", b.host, b.port);
                Finding::unknown(TYPE, cause, Severity::Warn, at, message)
            }
            None => {
                let message = format!("{} port {} has not been tried yet.", b.host, b.port);
                Finding::unknown(TYPE, &UnknownCause::NotYetRead, Severity::Info, at, message)
            }
        };
    }

    let (addresses, port) = (by_address.len(), b.port);
    let bad: Vec<(&str, &Tries<'_>)> =
        by_address.iter().filter(|(_, t)| t.failed > 0).map(|(a, t)| (*a, t)).collect();
    let list = names(
        bad.iter().map(|(address, t)| {
            let why = t.why.map(|(cause, _)| format!(", {cause}")).unwrap_or_default();
            format!("{address} ({} of {} tries failed{why})", t.failed, t.failed + t.good)
        }),
        6,
    );
    if by_address.values().all(|t| t.good == 0) {
        let known = b.addresses.value().map_or(addresses, Vec::len);
        let who = match known > addresses {
            true => format!("None of {addresses} tried of {known} addresses"),
            false => "No address".to_owned(),
        };
        let message = format!("{who} of {} accepts connections on port {port}: {list}.", b.host);
        return new(Status::False, Severity::Error, R::BalancerDown, message).advice(
            "See whether the balancer runs and where its virtual address is; check firewall and route from this node. If \
             it answers from elsewhere, this node's way to it is the fault.",
        );
    }
    if !bad.is_empty() {
        let down = by_address.values().filter(|t| t.good == 0).count();
        let (affected, what) = match down {
            0 => (bad.len(), "accept connections only now and then"),
            _ => (down, "accept no connection"),
        };
        let message =
            format!("{affected} of {addresses} addresses of {} {what} on port {port}: {list}.", b.host);
        let now_and_then = bad
            .iter()
            .all(|(_, t)| t.good > 0 && t.why.is_some_and(|(cause, _)| *cause == UnknownCause::TimedOut));
        if let (true, Some(own)) = (now_and_then, own_backend(b, facts)) {
            let message = format!(
                "{message} This node ({own}) is itself a backend: connections that come back to it are lost where the \
                 balancer keeps the client's address (hairpin)."
            );
            return new(Status::False, Severity::Error, R::BalancerPartlyDown, message).advice(
                "See whether it is so on every backend and on no other node. Then use targets by IP, or let the balancer not \
                 keep the client's address. If other nodes see it too, the balancer drops connections.",
            );
        }
        return new(Status::False, Severity::Error, R::BalancerPartlyDown, message).advice(
            "Clients meet the dead address by chance and wait: repair it or take it out of the name. Tries that time out \
             now and then only on nodes behind the balancer are a hairpin (client address preserved): use IP targets, \
             or do not preserve it.",
        );
    }
    if let Some((peer, detail)) = no_tls {
        let message = format!("{peer} accepts connections, but the TLS handshake fails: {detail}.");
        if detail.contains("certificate") {
            return new(Status::False, Severity::Error, R::TlsFailed, message).advice(
                "Issue another certificate (X.509 version 3, an RSA key of 2048 bits or more or an ECDSA one) and give it to \
                 whoever ends TLS: the balancer in L7, Rancher's ingress in L4.",
            );
        }
        return new(Status::False, Severity::Error, R::TlsFailed, message).advice(
            "See what listens there: plain http on the https port, PROXY protocol on one side only, or a TLS version too \
             old for both.",
        );
    }
    if let Some(certificate) = certificate::judge(b, at, facts) {
        return certificate;
    }
    if let Some(moved) = moved::judge(b, facts.now) {
        return Finding { observed_at: at, ..moved };
    }
    let tries: usize = by_address.values().map(|t| t.good).sum();
    let message = format!(
        "{} accepts connections on port {port}: {tries} of {tries} tries at {addresses} of {addresses} addresses, the \
         fastest in {fastest:.1} ms.",
        b.host
    );
    new(Status::True, Severity::Ok, R::BalancerAnswers, message)
}

/// This node's address among the backends, where it is one.
fn own_backend(b: &LoadBalancerFacts, facts: &NodeFacts) -> Option<String> {
    let Some(Fact::Known { value: backends, .. }) = &b.backends else { return None };
    let interfaces = facts.checks.host.as_ref()?.value()?.interfaces.value()?;
    let mut own = interfaces.iter().flat_map(|i| &i.addresses).map(|a| a.split('/').next().unwrap_or(a));
    own.find(|own| backends.iter().any(|backend| host_of(backend) == *own)).map(str::to_owned)
}
