//! What only all members' reports tell together: quorum, split clusters, partitions, placement, versions, snapshots.
//!
//! A node that is heard stands by its last report: nodes report by change, so an old reading of a node that is still
//! heard is a reading that has not changed. A node that is silent says nothing, however fresh its last report looks, for
//! its clock may be ahead. Where reports contradict each other about a member, the newest reading of the member itself
//! counts, and while a loss is too young to be confirmed by silence the member is unknown: suspicion first, certainty
//! later.
//!
//! [`judge_cluster`] yields the verdict, [`picture`] the same as data: members, numbers, and who sees whom. Both begin
//! with one [`Joined`], in which everything is in the order of names, so that the order of reports changes nothing.

mod join;
mod learners;
mod membership;
mod neighbours;
mod paths;
mod picture;
mod reports;
mod snapshots;
mod topology;
mod trim;
mod versions;

use std::time::Duration;

use outrider_protocol::{Check, ConditionType, NotApplicable, ReasonCode as R, Severity, Status, Timestamp};

pub use paths::{matrices, paths_of};
pub use picture::picture;
use reports::{Joined, View};
pub use reports::{Member, Received};
pub use trim::trim;

use crate::finding::{Finding, Judgement};
use crate::rules::etcd::quorum;
use crate::wording::{Count, names};

const NAMED: usize = 7;
/// A voter less is shown without alarm as soon as it has held for so long; as grave as it is once it has lasted.
const REDUCED_SHOWN: Duration = Duration::from_secs(3);

/// The conditions over the whole cluster `cluster`, whose name is their subject: `EtcdQuorum`, `EtcdMembership`,
/// `EtcdVersions`, `NodePortsReachable` and, where anybody looks for them, `EtcdSnapshots`; and `LoadBalancerReachable`,
/// whose subject is the balancer.
///
/// Nothing applies to a cluster none of whose nodes has etcd. `now` is the coordinator's clock.
pub fn judge_cluster(cluster: &str, members: &[Member<'_>], now: Timestamp) -> Judgement {
    let mut out = judge_etcd(cluster, members, now);
    neighbours::add(&mut out, cluster, members, now);
    paths::add(&mut out, members, now);
    out.sorted()
}

/// Nodes whose word is in doubt: their members were lost by two other nodes at least, after what they said last.
pub fn unreached<'a>(members: &'a [Member<'a>], now: Timestamp) -> Vec<&'a str> {
    join::unreached(&Joined::of(members, now))
}

fn judge_etcd(cluster: &str, members: &[Member<'_>], now: Timestamp) -> Judgement {
    let mut out = Judgement::default();
    let joined = Joined::of(members, now);
    if joined.is_empty() {
        out.not_applicable.push(NotApplicable {
            check: Check::Etcd,
            reason: format!("none of {} runs etcd that Outrider can see", Count(members.len(), "node")),
        });
        return out;
    }
    let findings = if joined.group.is_empty() { no_views(&joined) } else { judge_views(&joined) };
    out.findings.extend(findings.into_iter().map(|f| f.subject(cluster)));
    out.sorted()
}

/// Nobody knows: both conditions stay in sight as unknown.
fn unknown(severity: Severity, reason: R, at: Timestamp, message: &str, advice: &str) -> Vec<Finding> {
    let types = [ConditionType::EtcdQuorum, ConditionType::EtcdMembership];
    let finding = |t| Finding::new(t, Status::Unknown, severity, reason.clone(), at, message).advice(advice);
    types.into_iter().map(finding).collect()
}

fn no_views(joined: &Joined<'_>) -> Vec<Finding> {
    let quiet = names(joined.quiet.iter().map(|q| format!("{} ({})", q.node, q.why)), NAMED);
    let message = format!(
        "What the cluster is like cannot be told: none of {} with etcd has reported lately: {quiet}.",
        Count(joined.quiet.len(), "node"),
    );
    let advice = format!(
        "See whether the nodes or only their agents are away: ask one of {} itself, then its outrider-agent.",
        names(joined.quiet.iter().map(|q| q.node), NAMED)
    );
    unknown(Severity::Error, R::EtcdViewsStale, joined.now, &message, &advice)
}

fn judge_views(joined: &Joined<'_>) -> Vec<Finding> {
    let mut findings = Vec::with_capacity(4);
    let split = membership::split(joined);
    if let Some(list) = joined.list.as_deref() {
        let tally = joined.tally(list);
        let quorum = quorum::judge(&tally, joined.at);
        let is_reduced = matches!(quorum.reason, R::EtcdToleranceReduced | R::EtcdNoTolerance);
        findings.push(if is_reduced { quorum.early(REDUCED_SHOWN, Severity::Info) } else { quorum });
        findings.push(membership::judge(joined, list, &tally, split));
        findings.push(versions::judge(joined, list));
    } else {
        let message = format!("{} and no member list among them.", Count(joined.group.len(), "report"));
        let unknown =
            unknown(Severity::Warn, R::EtcdNoMembers, joined.at, &message, quorum::NO_MEMBERS_ADVICE);
        findings.extend(
            unknown
                .into_iter()
                .filter(|f| split.as_ref().is_none_or(|split| split.condition_type != f.condition_type)),
        );
        findings.extend(split);
    }
    findings.extend(snapshots::judge(joined));
    findings
}
