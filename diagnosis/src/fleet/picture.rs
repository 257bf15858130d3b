//! The verdict as data: numbers, a row a member, and who sees whom.

use std::collections::HashMap;

use outrider_protocol::{
    AlarmFacts, ClusterEtcd, ClusterMember, Fact, MatrixCell, MatrixRow, Member as EtcdMember, MemberHealth,
    MemberList, MemberRole, MemberStatus, Status, Timestamp, UnheardNode,
};

use super::reports::Said;
use super::{Joined, Member, View, join, snapshots, topology};
use crate::rules::etcd::links::{brings_news, link};
use crate::rules::etcd::quorum::{Health, Tally, Voter, quorum_of, tolerated};
use crate::rules::etcd::view::{answers_itself, display_name, is_down, name_of};

/// More members than any sound cluster has.
const MATRIX_ROWS: usize = 64;

/// The etcd of a cluster by the reports of `members` at `now`; `None` when no node has one.
pub fn picture(members: &[Member<'_>], now: Timestamp) -> Option<ClusterEtcd> {
    let joined = Joined::of(members, now);
    if joined.is_empty() {
        return None;
    }
    let list = joined.list.as_deref();
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
            (Some(list), Some(tally)) => rows(&joined, list, tally, &shown),
            _ => Vec::new(),
        },
        matrix: matrix(&joined, &shown),
        unheard: unheard(&joined),
        newest_snapshot: snapshots::as_data(&joined),
    })
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn without_ghosts(tally: &Tally<'_>) -> Option<usize> {
    let ghosts = tally.voters.iter().filter(|v| v.ghost.is_some());
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

fn rows(
    joined: &Joined<'_>,
    list: &MemberList,
    tally: &Tally<'_>,
    shown: &[&EtcdMember],
) -> Vec<ClusterMember> {
    let voters: HashMap<&str, &Voter<'_>> = tally.voters.iter().map(|v| (v.id, v)).collect();
    let newest = joined.group.iter().max_by_key(|v| (v.etcd.alarms.value().is_some(), v.at));
    let alarms = newest.and_then(|v| v.etcd.alarms.value()).map_or(&[][..], Vec::as_slice);
    let row = |member: &&EtcdMember| match voters.get(member.id.as_str()) {
        Some(voter) => row(joined, list, (voter.health, voter.why.clone()), alarms, member),
        None => {
            let seen = join::health(joined, list, member);
            row(joined, list, (seen.health, seen.why), alarms, member)
        }
    };
    shown.iter().map(row).collect()
}

fn row(
    joined: &Joined<'_>,
    list: &MemberList,
    (health, why): (Health, String),
    alarms: &[AlarmFacts],
    member: &EtcdMember,
) -> ClusterMember {
    let name = display_name(member);
    let node = topology::node_of(joined, &member.id, name);
    let answer = join::answer(joined, member);
    let down = matches!(health, Health::Down | Health::Unknown);
    let mut alarms: Vec<String> =
        alarms.iter().filter(|a| a.member_id == member.id).map(|a| a.kind.clone()).collect();
    alarms.sort();
    let lost = || join::losses(joined, member).into_iter().map(|(_, since)| since).max();
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
        down_since: if down { lost() } else { None },
        kubernetes_node: joined.kubernetes_node(member),
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

/// A row a report, a cell a member. Of very many reports the first: a picture that nobody can look at tells nothing.
fn matrix(joined: &Joined<'_>, members: &[&EtcdMember]) -> Vec<MatrixRow> {
    let row = |v: &View<'_>| MatrixRow {
        node: v.node.to_owned(),
        at: v.at,
        cells: Vec::with_capacity(members.len()),
    };
    let mut rows: Vec<MatrixRow> = joined.group.iter().take(MATRIX_ROWS).map(row).collect();
    for member in members {
        let said = joined.said_of(member);
        let mut said = said.chunk_by(|(a, _), (b, _)| a == b).peekable();
        for (place, row) in rows.iter_mut().enumerate() {
            let report = said.next_if(|report| report[0].0 == place).unwrap_or_default();
            row.cells.push(cell(&joined.group[place], report, member));
        }
    }
    rows
}

fn cell(v: &View<'_>, report: &[Said<'_>], member: &EtcdMember) -> MatrixCell {
    let (mut reached, mut cause) = (Status::Unknown, String::new());
    for (_, e) in report {
        match &e.status {
            Fact::Known { value, .. } if !answers_itself(e, member) => {
                (reached, cause) = (Status::False, format!("member {} answers there", value.member_id));
            }
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
        Some(metrics) if !own && brings_news(metrics, &member.id) => Status::True,
        Some(metrics) if !own => link(metrics, &member.id),
        _ => Status::Unknown,
    };
    let since = if reached == Status::False { join::lost_in(v, report) } else { None };
    MatrixCell { member_id: member.id.clone(), reached, peer, own, since, cause }
}
