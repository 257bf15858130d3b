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
mod picture;
mod snapshots;
mod topology;
mod trim;
mod versions;

use std::borrow::Cow;
use std::time::Duration;

use outrider_protocol::{
    Check, ConditionType, EtcdFacts, Fact, MemberList, NodeNetwork, NotApplicable, ReasonCode as R, Severity,
    Status, Timestamp,
};

pub use picture::picture;
pub use trim::trim;

use crate::finding::{Finding, Judgement};
use crate::rules::etcd::quorum::{self, Tally};
use crate::wording::{Count, names};

/// A reading this old is stale even from a node that is heard: whole states are sent again more often than that.
const STALE_AFTER: Duration = Duration::from_secs(3600);
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
    /// Its last report of where it stands on the network and whom it reaches; `None` for a node without Kubernetes.
    pub network: Option<&'a NodeNetwork>,
}

/// One report that counts.
pub(crate) struct View<'a> {
    node: &'a str,
    etcd: &'a EtcdFacts,
    /// When it was read, and no later than now.
    at: Timestamp,
    /// How far its clock is ahead of ours at least; its other times are read with this taken off.
    ahead: Duration,
    /// Member on this node; empty when it could not be told.
    local_id: &'a str,
    /// Cluster id; empty when it could not be told.
    cluster_id: &'a str,
}

impl<'a> View<'a> {
    fn of(node: &'a str, etcd: &'a EtcdFacts, read: Timestamp, now: Timestamp) -> Self {
        let local = || etcd.endpoints.iter().filter(|e| e.local);
        let status = local().find_map(|e| e.status.value());
        let matched = local().map(|e| e.member_id.as_str()).find(|id| !id.is_empty());
        Self {
            node,
            etcd,
            at: read.min(now),
            ahead: read.since(now),
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

    /// A time that this report tells, by our clock as far as it can be told: one clock that is ahead must not make a loss
    /// newer than every answer.
    fn by_our_clock(&self, told: Timestamp) -> Timestamp {
        told.before(self.ahead)
    }

    /// Whether the member on this node answered its own agent.
    fn lives(&self) -> bool {
        self.etcd.endpoints.iter().any(|e| e.local && e.status.value().is_some())
    }
}

/// A node with etcd whose report does not count.
struct Quiet<'a> {
    node: &'a str,
    why: Cow<'a, str>,
}

/// All reports of one cluster, sorted and sorted out.
pub(crate) struct Joined<'a> {
    /// Every node, by name.
    members: Vec<&'a Member<'a>>,
    /// Reports of the cluster that most nodes belong to.
    group: Vec<View<'a>>,
    /// Reports of nodes that belong to other clusters.
    others: Vec<View<'a>>,
    quiet: Vec<Quiet<'a>>,
    /// When the newest report was read.
    at: Timestamp,
    now: Timestamp,
}

impl<'a> Joined<'a> {
    fn of(members: &'a [Member<'a>], now: Timestamp) -> Self {
        let mut sorted: Vec<&Member<'a>> = members.iter().collect();
        sorted.sort_by_key(|m| m.name);
        let (mut views, mut quiet) = (Vec::with_capacity(sorted.len()), Vec::new());
        for m in &sorted {
            let mut not_counted = |why: Cow<'a, str>| quiet.push(Quiet { node: m.name, why });
            match m.etcd {
                None | Some(Fact::NotApplicable { .. } | Fact::Absent { .. }) => {}
                Some(_) if m.ready != Status::True => not_counted("silent".into()),
                Some(Fact::Known { value, at, .. }) if now.since(*at) <= STALE_AFTER => {
                    views.push(View::of(m.name, value, *at, now));
                }
                Some(Fact::Known { .. }) => not_counted("stale".into()),
                Some(Fact::Unknown { cause, .. }) => not_counted(Cow::Borrowed(cause.as_str())),
            }
        }
        let at = views.iter().map(|v| v.at).max().unwrap_or(now);
        let (group, others) = by_cluster(views);
        Self { members: sorted, group, others, quiet, at, now }
    }

    fn is_empty(&self) -> bool {
        self.group.is_empty() && self.others.is_empty() && self.quiet.is_empty()
    }

    /// The node of this name.
    fn node(&self, name: &str) -> Option<&'a Member<'a>> {
        self.members.binary_search_by(|m| m.name.cmp(name)).ok().map(|i| self.members[i])
    }

    /// The newest list that a quorum vouched for, else the newest of any.
    fn list(&self) -> Option<&'a MemberList> {
        let lists = self.group.iter().filter_map(|v| v.list().map(|l| (l.linearizable, v.at, l)));
        lists
            .filter(|(_, _, l)| !l.members.is_empty())
            .max_by_key(|(vouched, at, _)| (*vouched, *at))
            .map(|(_, _, l)| l)
    }

    fn tally(&self, list: &'a MemberList) -> Tally<'a> {
        let mut tally = join::tally(&self.group, list, self.now);
        tally.seen_from = self.seen_from();
        tally.snapshot = snapshots::newest(self).map(|newest| newest.words());
        tally
    }

    fn seen_from(&self) -> String {
        let mut out = format!("; by the reports of {}", names(self.group.iter().map(|v| v.node), NAMED));
        if !self.quiet.is_empty() {
            out.push_str("; no report counts of ");
            out.push_str(&names(self.quiet.iter().map(|q| format!("{} ({})", q.node, q.why)), NAMED));
        }
        out
    }
}

/// The conditions over the whole cluster `cluster`, whose name is their subject: `EtcdQuorum`, `EtcdMembership`,
/// `EtcdVersions`, `NodePortsReachable` and, where anybody looks for them, `EtcdSnapshots`.
///
/// Nothing applies to a cluster none of whose nodes has etcd. `now` is the coordinator's clock.
pub fn judge_cluster(cluster: &str, members: &[Member<'_>], now: Timestamp) -> Judgement {
    let mut out = judge_etcd(cluster, members, now);
    neighbours::add(&mut out, cluster, members, now);
    out.sorted()
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
    if let Some(list) = joined.list() {
        let tally = joined.tally(list);
        findings.push(quorum::judge(&tally, joined.at));
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
