//! The verdict as data: numbers, a row a member, and who sees whom.

use outrider_protocol::{
    ClusterEtcd, ClusterMember, Fact, MatrixCell, MatrixRow, Member as EtcdMember, MemberHealth, MemberList,
    MemberRole, MemberStatus, Status, Timestamp, UnheardNode,
};

use super::{Joined, Member, View, join, snapshots, topology};
use crate::rules::etcd::links::link;
use crate::rules::etcd::quorum::{Health, Tally, quorum_of, tolerated};
use crate::rules::etcd::view::{display_name, endpoints_of, is_down, name_of};

/// The etcd of a cluster by the reports of `members` at `now`; `None` when no node has one.
pub fn picture(members: &[Member<'_>], now: Timestamp) -> Option<ClusterEtcd> {
    let joined = Joined::of(members, now);
    if joined.is_empty() {
        return None;
    }
    let list = joined.list();
    let tally = list.map(|l| joined.tally(l));
    let mut shown: Vec<&EtcdMember> = list.map(|l| l.members.iter().collect()).unwrap_or_default();
    shown.sort_by_key(|m| (display_name(m), m.id.as_str()));
    let count = |health| tally.as_ref().map_or(0, |t| t.count(health));
    let voters = tally.as_ref().map_or(0, |t| t.voters.len());
    let healthy = count(Health::Healthy);
    Some(ClusterEtcd {
        cluster_id: list.map(|l| l.cluster_id.clone()).unwrap_or_default(),
        observed_at: joined.at,
        voters: number(voters),
        quorum: if voters == 0 { 0 } else { number(quorum_of(voters)) },
        healthy: number(healthy),
        unknown: number(count(Health::Unknown)),
        tolerated: number(if voters == 0 { 0 } else { tolerated(voters, healthy) }),
        tolerated_without_ghosts: tally.as_ref().and_then(without_ghosts).map(number),
        learners: number(tally.as_ref().map_or(0, |t| t.learners)),
        members: match (list, &tally) {
            (Some(list), Some(tally)) => shown.iter().map(|m| row(&joined, list, tally, m)).collect(),
            _ => Vec::new(),
        },
        matrix: joined.group.iter().map(|v| matrix_row(v, &shown)).collect(),
        unheard: unheard(&joined),
        newest_snapshot: snapshots::as_data(&joined),
    })
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn without_ghosts(tally: &Tally<'_>) -> Option<usize> {
    let ghosts = tally.voters.iter().filter(|v| v.ghost);
    let (ghosts, of_them) =
        ghosts.fold((0, 0), |(n, h), v| (n + 1, h + usize::from(v.health == Health::Healthy)));
    let left = tally.voters.len() - ghosts;
    (ghosts > 0).then(|| if left == 0 { 0 } else { tolerated(left, tally.count(Health::Healthy) - of_them) })
}

fn unheard(joined: &Joined<'_>) -> Vec<UnheardNode> {
    let of = |node: &str, why: &str| UnheardNode { node: node.to_owned(), why: why.to_owned() };
    let quiet = joined.quiet.iter().map(|q| of(q.node, &q.why));
    let mut all: Vec<_> = quiet.chain(joined.others.iter().map(|v| of(v.node, "other-cluster"))).collect();
    all.sort_by(|a, b| a.node.cmp(&b.node));
    all
}

fn row(joined: &Joined<'_>, list: &MemberList, tally: &Tally<'_>, member: &EtcdMember) -> ClusterMember {
    let (health, why) = match tally.voters.iter().find(|v| v.id == member.id) {
        Some(voter) => (voter.health, voter.why.clone()),
        None => join::health(&joined.group, list, member, joined.now),
    };
    let name = display_name(member);
    let node = topology::node_of(joined, &member.id, name);
    let answer = join::answer(&joined.group, member);
    let down = matches!(health, Health::Down | Health::Unknown);
    let alarms = joined.group.iter().max_by_key(|v| (v.etcd.alarms.value().is_some(), v.at));
    let mut alarms: Vec<String> = alarms
        .and_then(|v| v.etcd.alarms.value())
        .into_iter()
        .flatten()
        .filter(|a| a.member_id == member.id)
        .map(|a| a.kind.clone())
        .collect();
    alarms.sort();
    ClusterMember {
        id: member.id.clone(),
        name: name.to_owned(),
        node: node.map(|n| n.name.to_owned()).unwrap_or_default(),
        zone: node.map(|n| n.zone.to_owned()).unwrap_or_default(),
        region: node.map(|n| n.region.to_owned()).unwrap_or_default(),
        role: if member.is_learner { MemberRole::Learner } else { MemberRole::Voter },
        health: match health {
            Health::Healthy => MemberHealth::Healthy,
            Health::NoLeader => MemberHealth::NoLeader,
            Health::Down => MemberHealth::Down,
            Health::Unknown => MemberHealth::Unknown,
        },
        why,
        down_since: joined.group.iter().filter_map(|v| join::lost_since(v, member)).max().filter(|_| down),
        kubernetes_node: join::kubernetes_node(&joined.group, member),
        peer_urls: member.peer_urls.clone(),
        alarms,
        status: answer.map(|(v, status)| MemberStatus {
            at: v.at,
            version: status.version.clone(),
            db_size_bytes: status.db_size_bytes,
            db_in_use_bytes: status.db_in_use_bytes,
            raft_term: status.raft_term,
            raft_index: status.raft_index,
            raft_lag: front(v).saturating_sub(status.raft_index),
            leader: if status.leader == "0" {
                String::new()
            } else {
                name_of(Some(list), &status.leader).to_owned()
            },
        }),
    }
}

/// The furthest raft index in one look: indexes of different looks cannot be compared.
fn front(v: &View<'_>) -> u64 {
    v.etcd.endpoints.iter().filter_map(|e| e.status.value()).map(|s| s.raft_index).max().unwrap_or(0)
}

fn matrix_row(v: &View<'_>, members: &[&EtcdMember]) -> MatrixRow {
    MatrixRow {
        node: v.node.to_owned(),
        at: v.at,
        cells: members.iter().map(|member| cell(v, member)).collect(),
    }
}

fn cell(v: &View<'_>, member: &EtcdMember) -> MatrixCell {
    let (mut reached, mut cause) = (Status::Unknown, String::new());
    for e in endpoints_of(v.etcd, member) {
        match &e.status {
            Fact::Known { .. } => {
                (reached, cause) = (Status::True, String::new());
                break;
            }
            Fact::Unknown { cause: why, detail, .. } => {
                if is_down(why) && reached == Status::Unknown {
                    reached = Status::False;
                }
                cause = format!("{why}: {detail}");
            }
            Fact::Absent { .. } => reached = Status::False,
            Fact::NotApplicable { reason, .. } => cause.clone_from(reason),
        }
    }
    let own = v.local_id == member.id;
    let peer = match v.etcd.metrics.value() {
        Some(metrics) if !own => link(metrics, &member.id),
        _ => Status::Unknown,
    };
    let since = join::lost_since(v, member).filter(|_| reached == Status::False);
    MatrixCell { member_id: member.id.clone(), reached, peer, own, since, cause }
}
