//! etcd as one node sees it: `EtcdMemberHealthy`, `EtcdQuorum`, `EtcdMembership`, `EtcdSpace`, `EtcdDisk`,
//! `EtcdSnapshots` (`facts/etcd.md`). Everything here only reads; removing, resetting, clearing and restarting is a
//! person's work.

mod alarms;
mod disk;
mod histogram;
pub(crate) mod learners;
pub(crate) mod links;
mod member;
pub(crate) mod membership;
pub(crate) mod peers;
pub(crate) mod quorum;
pub(crate) mod snapshots;
mod space;
pub(crate) mod view;

use outrider_protocol::{ConditionType, EtcdFacts, Fact, NodeFacts, ReasonCode, Severity, Status, Timestamp};

use super::unread;
use crate::finding::{Finding, Judgement};

pub(crate) fn judge(out: &mut Judgement, etcd: &EtcdFacts, at: Timestamp, facts: &NodeFacts) {
    out.findings.push(member::judge(etcd, at, facts.now, &facts.thresholds));
    match &etcd.members {
        Fact::Known { value: list, .. } => {
            let (list, repeated) = view::distinct(list);
            let nodes = membership::kubernetes_nodes(etcd);
            let tally = view::tally(etcd, &list, nodes, facts.now);
            out.findings.push(quorum::judge(&tally, at));
            out.findings.push(membership::judge(etcd, &list, &repeated, &tally, at, facts));
        }
        other => {
            out.findings.push(no_list(ConditionType::EtcdQuorum, etcd, other, at));
            out.findings.push(no_list(ConditionType::EtcdMembership, etcd, other, at));
        }
    }
    out.findings.push(space::judge(etcd, at, &facts.thresholds));
    out.findings.push(disk::judge(etcd, at, facts.now, &facts.thresholds));
    out.findings.extend(snapshots::judge(etcd, at, facts.now));
}

/// Without a member list nobody knows how many voters there are: unknown, and an outage if no endpoint answers.
fn no_list(
    condition_type: ConditionType,
    etcd: &EtcdFacts,
    list: &Fact<outrider_protocol::MemberList>,
    at: Timestamp,
) -> Finding {
    let answering = etcd.endpoints.iter().filter(|e| e.status.value().is_some()).count();
    let severity = if answering == 0 { Severity::Error } else { Severity::Warn };
    let answers = if etcd.endpoints.is_empty() {
        "No endpoint is known".to_owned()
    } else {
        format!("{answering} of {} endpoints answer", etcd.endpoints.len())
    };
    let what = format!("{answers}; the member list");
    unread(condition_type.clone(), &what, list, severity).unwrap_or_else(|| {
        let message = format!("{answers}; there is no member list.");
        Finding::new(condition_type, Status::Unknown, Severity::Warn, ReasonCode::EtcdNoMembers, at, message)
            .advice(quorum::NO_MEMBERS_ADVICE)
    })
}
