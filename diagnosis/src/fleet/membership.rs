//! `EtcdMembership` over the whole cluster: whether its nodes belong to one cluster, see each other and the same leader,
//! and whether the list holds what it should.

use std::time::Duration;

use outrider_protocol::{ConditionType, Fact, MemberList, ReasonCode as R, Severity, Status, Timestamp};

use super::{Joined, NAMED, View, join, learners, topology};
use crate::finding::Finding;
use crate::rules::etcd::quorum::Tally;
use crate::rules::etcd::view::name_of;
use crate::rules::etcd::{membership, peers};
use crate::wording::{Count, names};

const TYPE: ConditionType = ConditionType::EtcdMembership;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(10);

pub(super) fn judge(
    joined: &Joined<'_>,
    list: &MemberList,
    tally: &Tally<'_>,
    split: Option<Finding>,
) -> Finding {
    let at = joined.at;
    let mut found: Vec<Finding> = split.into_iter().collect();
    found.extend(topology::partition(&joined.group, list, at));
    found.extend(peer_urls(joined, list));
    found.extend(leaders(joined, list));
    found.extend(learners::judge(joined, list));
    found.extend(membership::ghosts(tally, at));
    found.extend(membership::unstarted(list, at));
    found.extend(topology::regions(joined, list));
    found.extend(topology::failure_domain(joined, tally, at));
    membership::worst_of(found).unwrap_or_else(|| expected(joined, list)).waits(RAISE, CLEAR)
}

fn expected(joined: &Joined<'_>, list: &MemberList) -> Finding {
    let told =
        list.members.iter().filter(|m| join::kubernetes_node(&joined.group, m) == Status::True).count();
    let ghosts = if told == list.members.len() {
        "each has its Kubernetes node".to_owned()
    } else {
        let cause = joined.group.iter().find_map(|v| match &v.etcd.kubernetes_nodes {
            Fact::Unknown { cause, .. } => Some(format!(" ({cause})")),
            _ => None,
        });
        format!("whether each has a Kubernetes node is unknown{}", cause.unwrap_or_default())
    };
    let message = format!(
        "{} of cluster {}, one cluster id in {}; {ghosts}.",
        Count(list.members.len(), "member"),
        list.cluster_id,
        Count(joined.group.len(), "report")
    );
    Finding::new(TYPE, Status::True, Severity::Ok, R::EtcdMembersExpected, joined.at, message)
}

/// Nodes that belong to different clusters, the minority named (D10).
pub(super) fn split(joined: &Joined<'_>) -> Option<Finding> {
    let (group, others) = (&joined.group, &joined.others);
    if others.is_empty() {
        return None;
    }
    let list =
        |views: &[View<'_>]| names(views.iter().map(|v| format!("{} ({})", v.node, v.cluster_id)), NAMED);
    let known = group.iter().filter(|v| !v.cluster_id.is_empty()).count();
    let has_majority = known > others.len();
    let verdict = if has_majority {
        format!("{} of {} are in the minority: {}", others.len(), known + others.len(), list(others))
    } else {
        format!("no cluster has more than half of the nodes: {} and {}", list(group), list(others))
    };
    let message = format!("The nodes belong to different etcd clusters; {verdict}.");
    let id = group.iter().map(|v| v.cluster_id).find(|id| !id.is_empty()).unwrap_or_default();
    let sides =
        if has_majority { others.iter().collect() } else { group.iter().chain(others).collect::<Vec<_>>() };
    let who = names(sides.iter().map(|v| v.node), NAMED);
    Some(
        Finding::new(TYPE, Status::False, Severity::Error, R::EtcdClusterIdMismatch, joined.at, message)
            .advice(membership::cluster_id_advice(&who, id)),
    )
}

/// Recorded peer URLs against what each node's own configuration expects, and what is wrong in the list itself.
fn peer_urls(joined: &Joined<'_>, list: &MemberList) -> Vec<Finding> {
    let mut found = peers::listed(list, joined.at);
    found.extend(joined.group.iter().filter_map(|v| peers::local(v.etcd, list, joined.at)));
    found
}

/// What one look shows of leaders: each with the members that follow it and their term.
struct Leaders<'a>(Vec<(&'a str, u64, Vec<&'a str>)>);

impl<'a> Leaders<'a> {
    /// As the node behind `v` found it, all members asked in one pass.
    fn seen_by(v: &View<'a>, list: &'a MemberList) -> Self {
        let mut out: Vec<(&str, u64, Vec<&str>)> = Vec::new();
        for e in &v.etcd.endpoints {
            let Some(s) = e.status.value() else { continue };
            let voter = list.members.iter().any(|m| m.id == s.member_id && !m.is_learner);
            if !voter || s.leader.is_empty() || s.leader == "0" {
                continue;
            }
            let name = name_of(Some(list), &s.member_id);
            match out.iter_mut().find(|(leader, ..)| *leader == s.leader) {
                Some((_, term, followers)) => {
                    *term = (*term).max(s.raft_term);
                    if !followers.contains(&name) {
                        followers.push(name);
                    }
                }
                None => out.push((&s.leader, s.raft_term, vec![name])),
            }
        }
        // The newest term first: its leader is the one that counts.
        out.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        Self(out)
    }

    fn answers(&self) -> usize {
        self.0.iter().map(|(_, _, followers)| followers.len()).sum()
    }
}

/// Members that follow different leaders. A look in the middle of an election shows that too, so most of those that
/// could tell have to.
fn leaders(joined: &Joined<'_>, list: &MemberList) -> Option<Finding> {
    let looks = joined.group.iter().map(|v| (v.at, v.node, Leaders::seen_by(v, list)));
    let mut looks: Vec<(Timestamp, &str, Leaders<'_>)> = looks.filter(|(_, _, l)| l.answers() > 1).collect();
    let disagree = looks.iter().filter(|(_, _, l)| l.0.len() > 1).count();
    if disagree == 0 || disagree * 2 <= looks.len() {
        return None;
    }
    looks.retain(|(_, _, l)| l.0.len() > 1);
    let (_, node, newest) = looks.iter().max_by_key(|(at, ..)| *at)?;
    let sides = newest.0.iter().map(|(leader, term, followers)| {
        format!("{} in term {term} (followed by {})", name_of(Some(list), leader), names(followers, NAMED))
    });
    let (newest_leader, newest_term, _) = newest.0.first()?;
    let behind = names(newest.0.iter().skip(1).flat_map(|(_, _, followers)| followers.iter()), NAMED);
    let message = format!(
        "Members see different leaders at the same time, by the look of {node}: {}.",
        names(sides, NAMED)
    );
    Some(Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdLeadersDisagree, joined.at, message).advice(format!(
        "Only {} in term {newest_term} can write; {behind} has not heard of it. Check port 2380 between {behind} and {}, both \
         ways. It settles by itself once they reach each other: do not restart etcd and do not reset the cluster.",
        name_of(Some(list), newest_leader),
        name_of(Some(list), newest_leader),
    )))
}
