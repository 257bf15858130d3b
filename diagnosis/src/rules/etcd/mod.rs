//! etcd as one node sees it: `EtcdMemberHealthy`, `EtcdQuorum`, `EtcdMembership`, `EtcdSpace`, `EtcdDisk`,
//! `EtcdSnapshots` (`facts/etcd.md`). Everything here only reads; removing, resetting, clearing and restarting is a
//! person's work.

pub(crate) mod alarms;
mod disk;
mod folder;
mod full_disk;
pub(crate) mod ghosts;
mod histogram;
mod lagging;
mod leader;
pub(crate) mod learners;
pub(crate) mod links;
mod lost;
pub(crate) mod member;
pub(crate) mod membership;
pub(crate) mod peers;
pub(crate) mod quorum;
pub(crate) mod rebuilt;
mod removal;
pub(crate) mod restart;
pub(crate) mod rivals;
pub(crate) mod snapshots;
mod space;
pub(crate) mod split;
pub(crate) mod spoilt;
mod tally;
pub(crate) mod urls;
pub(crate) mod versions;
pub(crate) mod view;

use std::borrow::Cow;

use outrider_protocol::{
    ConditionType, EndpointFacts, EtcdFacts, Fact, MemberList, NodeFacts, ReasonCode, Severity, Status,
    Timestamp,
};

use super::{certificates, unread};
use crate::finding::{Finding, Judgement};
use crate::wording::names;

/// The facts without a member list that no etcd gives: every rule that looks at one shall find it unread.
pub(super) fn sound(facts: &NodeFacts) -> Cow<'_, NodeFacts> {
    let Some(Fact::Known { value, source, at }) = &facts.checks.etcd else { return Cow::Borrowed(facts) };
    let Some(etcd) = view::without_bad_list(value) else { return Cow::Borrowed(facts) };
    let mut facts = facts.clone();
    facts.checks.etcd = Some(Fact::known(etcd, source.clone(), *at));
    Cow::Owned(facts)
}

pub(crate) fn judge(out: &mut Judgement, etcd: &EtcdFacts, at: Timestamp, facts: &NodeFacts) {
    let mut standing = Status::Unknown;
    match &etcd.members {
        Fact::Known { value: list, .. } => {
            let (list, repeated) = view::distinct(list);
            let tally = view::tally(etcd, &list, facts.now);
            let quorum = quorum::judge(&tally, at);
            standing = quorum.status;
            out.findings.push(certificates::beside(quorum, facts));
            out.findings.push(membership::judge(etcd, &list, &repeated, &tally, at, facts));
        }
        other => {
            let quorum = no_list(ConditionType::EtcdQuorum, etcd, other, at);
            out.findings.push(certificates::beside(quorum, facts));
            let other_cluster = membership::other_cluster(etcd, at);
            out.findings.push(other_cluster.unwrap_or_else(|| {
                certificates::beside(no_list(ConditionType::EtcdMembership, etcd, other, at), facts)
            }));
        }
    }
    let disk = disk::judge(etcd, at, facts.now, &facts.thresholds);
    let member = member::judge(etcd, standing, &disk, at, facts);
    out.findings.push(certificates::beside(member, facts));
    let space = full_disk::beside(space::judge(etcd, at, facts.now, &facts.thresholds), etcd, at);
    let is_refused = space.reason == ReasonCode::TlsFailed;
    out.findings.push(if is_refused { certificates::beside(space, facts) } else { space });
    out.findings.push(disk);
    out.findings.extend(snapshots::judge(etcd, at, facts.now));
}

/// Without a member list nobody knows how many voters there are: unknown, and an outage if no endpoint answers.
fn no_list(
    condition_type: ConditionType,
    etcd: &EtcdFacts,
    list: &Fact<MemberList>,
    at: Timestamp,
) -> Finding {
    // Who answers for another cluster is no member of this one.
    let answering = view::ours(etcd).filter(|e| e.status.value().is_some()).count();
    let severity = if answering == 0 { Severity::Error } else { Severity::Warn };
    let answers = if etcd.endpoints.is_empty() {
        "No endpoint is known".to_owned()
    } else {
        format!("{answering} of {} endpoints answer", etcd.endpoints.len())
    };
    let what = format!("{answers}; the member list");
    let all_silent = !etcd.endpoints.is_empty() && etcd.endpoints.iter().all(view::is_silent);
    let unanswered = unanswered(condition_type.clone(), &what, list, severity, etcd).map(|mut finding| {
        // That a list did not come in time is a small thing; that nobody answers is not.
        if all_silent && finding.severity < Severity::Error {
            (finding.reason, finding.severity) = (ReasonCode::EtcdNoMembers, Severity::Error);
        }
        if answering > 0 || etcd.endpoints.is_empty() || view::refused_by_learner(list) {
            return finding;
        }
        // One member that is down is told once.
        finding.advice(format!(
            "See EtcdMemberHealthy first: until {} answers, nobody here can tell who votes. Any other server can (outrider check \
             --only etcd there).",
            names(etcd.endpoints.iter().map(|e| &e.endpoint), 3)
        ))
    });
    unanswered.unwrap_or_else(|| {
        let message = format!("{answers}; there is no member list.");
        Finding::new(condition_type, Status::Unknown, Severity::Warn, ReasonCode::EtcdNoMembers, at, message)
            .advice(ask_a_member(etcd))
    })
}

/// An empty answer is no healthy one: whom a person asks, and with what.
fn ask_a_member(etcd: &EtcdFacts) -> String {
    match names(etcd.endpoints.iter().map(|e| &e.endpoint), 3) {
        nobody if nobody.is_empty() => format!(
            "An empty answer is no healthy one, and no endpoint is known to ask ({}): see whether etcd runs here.",
            etcd.found_by
        ),
        urls => format!(
            "An empty answer is no healthy one: ask at {urls} by hand (etcdctl member list) with the client certificate of \
             this node."
        ),
    }
}

/// [`unread`] for a question to etcd. A learner refuses most of them ("rpc not supported for learner"): no fault (D7), and
/// no matter of its version.
fn unanswered<T>(
    condition_type: ConditionType,
    what: &str,
    fact: &Fact<T>,
    severity: Severity,
    etcd: &EtcdFacts,
) -> Option<Finding> {
    let finding = unread(condition_type, what, fact, severity)?;
    if !view::refused_by_learner(fact) {
        return Some(finding);
    }
    let learner =
        etcd.endpoints.iter().find(|e| e.local).map_or("This node's member", |e| e.endpoint.as_str());
    let is_voter = |e: &&EndpointFacts| !e.local && !e.status.value().is_some_and(|s| s.is_learner);
    let voters: Vec<&EndpointFacts> = etcd.endpoints.iter().filter(is_voter).collect();
    let urls = names(voters.iter().map(|e| &e.endpoint), 3);
    let rest = if voters.is_empty() {
        "Nothing is broken by that: the verdict of a server whose member votes knows it.".to_owned()
    } else if voters.iter().any(|e| e.status.value().is_some()) {
        format!("Nothing is broken by that: the verdict of the servers whose members vote ({urls}) knows it.")
    } else {
        format!("That is no fault; that none of the voters answers ({urls}) is one: look there first.")
    };
    Some(finding.advice(format!(
        "{learner} is a learner, and a learner answers no such question before it is promoted. {rest}"
    )))
}
