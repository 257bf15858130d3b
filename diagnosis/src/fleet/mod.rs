//! What only all members' reports tell together: quorum, split clusters, partitions, failure domains.
//!
//! A node that is heard stands by its last report: nodes report by change, so an old reading of a node that is still
//! heard is a reading that has not changed. A node that is silent says nothing, however fresh its last report looks, for
//! its clock may be ahead. Where reports contradict each other about a member, the newest reading of the member itself
//! counts, and while a loss is too young to be confirmed by silence the member is unknown: suspicion first, certainty
//! later.

mod join;
mod topology;

use std::time::Duration;

use outrider_protocol::{
    Check, ConditionType, EtcdFacts, Fact, MemberList, NotApplicable, ReasonCode as R, Severity, Status,
    Timestamp,
};

use crate::finding::{Finding, Judgement};
use crate::rules::etcd::{membership, quorum};
use crate::wording::{Count, names};

/// A reading this old is stale even from a node that is heard: whole states are sent again more often than that.
const STALE_AFTER: Duration = Duration::from_secs(3600);

const MEMBERSHIP_RAISE: Duration = Duration::from_secs(30);
const MEMBERSHIP_CLEAR: Duration = Duration::from_secs(10);
const NAMED: usize = 7;

/// One node of a cluster, as the coordinator knows it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Whether it is heard: `True` while it reports in time.
    pub ready: Status,
    /// Zone; empty when unknown.
    pub zone: &'a str,
    /// Region; empty when unknown.
    pub region: &'a str,
    /// Its last report's view of etcd; `None` for a node that has none.
    pub etcd: Option<&'a Fact<EtcdFacts>>,
}

/// One report that counts.
pub(crate) struct View<'a> {
    node: &'a str,
    etcd: &'a EtcdFacts,
    at: Timestamp,
    /// Member on this node; empty when it could not be told.
    local_id: &'a str,
    /// Cluster id; empty when it could not be told.
    cluster_id: &'a str,
}

impl<'a> View<'a> {
    fn of(node: &'a str, etcd: &'a EtcdFacts, at: Timestamp) -> Self {
        let local: Vec<_> = etcd.endpoints.iter().filter(|e| e.local).collect();
        let status = local.iter().find_map(|e| e.status.value());
        let matched = local.iter().map(|e| e.member_id.as_str()).find(|id| !id.is_empty());
        Self {
            node,
            etcd,
            at,
            local_id: status.map(|s| s.member_id.as_str()).or(matched).unwrap_or_default(),
            // The local member's own word first: a list asked from elsewhere may be another cluster's.
            cluster_id: status
                .map(|s| s.cluster_id.as_str())
                .or(etcd.members.value().map(|l| l.cluster_id.as_str()))
                .unwrap_or_default(),
        }
    }

    fn list(&self) -> Option<&'a MemberList> {
        self.etcd.members.value().filter(|l| self.cluster_id.is_empty() || l.cluster_id == self.cluster_id)
    }
}

/// The conditions over the whole cluster `cluster`, whose name is their subject: `EtcdQuorum` and `EtcdMembership`.
///
/// Nothing applies to a cluster none of whose nodes has etcd. `now` is the coordinator's clock.
pub fn judge_cluster(cluster: &str, members: &[Member<'_>], now: Timestamp) -> Judgement {
    let mut out = Judgement::default();
    let mut views = Vec::new();
    let mut quiet = Vec::new();
    for m in members {
        match m.etcd {
            None | Some(Fact::NotApplicable { .. } | Fact::Absent { .. }) => {}
            Some(Fact::Known { value, at, .. })
                if m.ready == Status::True && now.since(*at) <= STALE_AFTER =>
            {
                views.push(View::of(m.name, value, *at));
            }
            Some(Fact::Known { .. }) if m.ready == Status::True => quiet.push(format!("{} (stale)", m.name)),
            Some(Fact::Unknown { cause, .. }) if m.ready == Status::True => {
                quiet.push(format!("{} ({cause})", m.name));
            }
            Some(_) => quiet.push(format!("{} (silent)", m.name)),
        }
    }
    if views.is_empty() && quiet.is_empty() {
        out.not_applicable.push(NotApplicable {
            check: Check::Etcd,
            reason: format!("none of {} runs etcd that Outrider can see", Count(members.len(), "node")),
        });
        return out;
    }
    let findings =
        if views.is_empty() { no_views(&quiet, now) } else { judge_views(members, views, &quiet, now) };
    out.findings.extend(findings.into_iter().map(|f| f.subject(cluster)));
    out.sorted()
}

/// Nobody knows: both conditions stay in sight as unknown.
fn unknown(severity: Severity, reason: R, at: Timestamp, message: &str, advice: &str) -> Vec<Finding> {
    let types = [ConditionType::EtcdQuorum, ConditionType::EtcdMembership];
    let finding = |t| Finding::new(t, Status::Unknown, severity, reason.clone(), at, message).advice(advice);
    types.into_iter().map(finding).collect()
}

fn no_views(quiet: &[String], now: Timestamp) -> Vec<Finding> {
    let message = format!(
        "What the cluster is like cannot be told: none of {} with etcd has reported lately: {}.",
        Count(quiet.len(), "node"),
        names(quiet, NAMED)
    );
    let advice =
        "See whether the nodes or only their agents are away: ask a server itself, then its outrider-agent.";
    unknown(Severity::Error, R::EtcdViewsStale, now, &message, advice)
}

fn judge_views(
    members: &[Member<'_>],
    views: Vec<View<'_>>,
    quiet: &[String],
    now: Timestamp,
) -> Vec<Finding> {
    let at = views.iter().map(|v| v.at).max().unwrap_or(now);
    let (group, others) = by_cluster(views);
    let mut grave = Vec::new();
    grave.extend(split(&group, &others, at));

    let Some(list) = newest_list(&group) else {
        let message = format!("{} and no member list among them.", Count(group.len(), "report"));
        let unknown = unknown(Severity::Warn, R::EtcdNoMembers, at, &message, quorum::NO_MEMBERS_ADVICE);
        return unknown
            .into_iter()
            .filter(|f| grave.iter().all(|g| g.condition_type != f.condition_type))
            .chain(grave.clone())
            .collect();
    };
    let nodes = group.iter().find_map(|v| membership::kubernetes_nodes(v.etcd));
    let mut tally = join::tally(&group, list, nodes, now);
    tally.seen_from = seen_from(&group, quiet);

    grave.extend(topology::partition(&group, list, at));
    grave.extend(membership::ghosts(&tally, at));
    grave.extend(topology::failure_domain(members, &group, &tally, at));
    let membership = membership::worst_of(grave).unwrap_or_else(|| {
        let message = format!(
            "{} of cluster {}, one cluster id in {}.",
            Count(list.members.len(), "member"),
            list.cluster_id,
            Count(group.len(), "report")
        );
        Finding::new(
            ConditionType::EtcdMembership,
            Status::True,
            Severity::Ok,
            R::EtcdMembersExpected,
            at,
            message,
        )
    });
    vec![quorum::judge(&tally, at), membership.waits(MEMBERSHIP_RAISE, MEMBERSHIP_CLEAR)]
}

/// The reports of the cluster that most nodes belong to, and those of others. A report without an id goes with the
/// majority; of groups of one size the one whose id sorts first, so that the answer does not change from turn to turn.
fn by_cluster(views: Vec<View<'_>>) -> (Vec<View<'_>>, Vec<View<'_>>) {
    let mut ids: Vec<(&str, usize)> = Vec::new();
    for v in views.iter().filter(|v| !v.cluster_id.is_empty()) {
        match ids.iter_mut().find(|(id, _)| *id == v.cluster_id) {
            Some((_, n)) => *n += 1,
            None => ids.push((v.cluster_id, 1)),
        }
    }
    let main = ids.iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(a.0))).map_or("", |(id, _)| *id);
    views.into_iter().partition(|v| v.cluster_id.is_empty() || v.cluster_id == main)
}

fn split(group: &[View<'_>], others: &[View<'_>], at: Timestamp) -> Option<Finding> {
    if others.is_empty() {
        return None;
    }
    let list =
        |views: &[View<'_>]| names(views.iter().map(|v| format!("{} ({})", v.node, v.cluster_id)), NAMED);
    let known = group.iter().filter(|v| !v.cluster_id.is_empty()).count();
    let verdict = if known > others.len() {
        format!("{} of {} are in the minority: {}", others.len(), known + others.len(), list(others))
    } else {
        format!("no cluster has more than half of the nodes: {} and {}", list(group), list(others))
    };
    let message = format!("The nodes belong to different etcd clusters; {verdict}.");
    Some(
        Finding::new(
            ConditionType::EtcdMembership,
            Status::False,
            Severity::Error,
            R::EtcdClusterIdMismatch,
            at,
            message,
        )
        .advice(membership::CLUSTER_ID_ADVICE),
    )
}

/// The newest list that a quorum vouched for, else the newest of any.
fn newest_list<'a>(group: &[View<'a>]) -> Option<&'a MemberList> {
    let lists = group.iter().filter_map(|v| v.list().map(|l| (l.linearizable, v.at, l)));
    lists
        .filter(|(_, _, l)| !l.members.is_empty())
        .max_by_key(|(vouched, at, _)| (*vouched, *at))
        .map(|(_, _, l)| l)
}

fn seen_from(group: &[View<'_>], quiet: &[String]) -> String {
    let mut out = format!("; by the reports of {}", names(group.iter().map(|v| v.node), NAMED));
    if !quiet.is_empty() {
        out.push_str("; no report counts of ");
        out.push_str(&names(quiet, NAMED));
    }
    out
}
