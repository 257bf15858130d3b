//! Learners by all reports together: who blocks whom, and port 2380 both ways (D6, D8).

use std::time::Duration;

use outrider_protocol::{EndpointFacts, Member, MemberList, Status, Timestamp};

use super::{Joined, View, join};
use crate::finding::Finding;
use crate::rules::etcd::ghosts::standing;
use crate::rules::etcd::learners::{self, Learner};
use crate::rules::etcd::links::link;
use crate::rules::etcd::quorum::Tally;
use crate::rules::etcd::rebuilt::{Leftovers, is_of_node};
use crate::rules::etcd::view::{display_name, name_of, with_id};

/// `facts/etcd.md`, section 3; the coordinator has no thresholds of its own.
const STALLED: Duration = Duration::from_secs(300);

pub(super) fn judge(joined: &Joined<'_>, list: &MemberList, tally: &Tally<'_>) -> Vec<Finding> {
    if tally.learners == 0 {
        return Vec::new();
    }
    let health = list.members.iter().map(|m| join::health(joined, list, m).health).collect();
    let leftovers = Leftovers::among(list, health, joined.node_names());
    let quorum = standing(tally, joined.at);
    let learners = list.members.iter().enumerate().filter(|(_, m)| m.is_learner);
    let found = learners.map(|(i, m)| {
        let learner = Learner { leftover: leftovers.words(i), quorum, ..joined_learner(joined, list, m) };
        learners::finding(&learner, STALLED, joined.at)
    });
    found.collect()
}

fn joined_learner<'a>(joined: &Joined<'a>, list: &'a MemberList, member: &'a Member) -> Learner<'a> {
    let mut all: Vec<(&View<'a>, Learner<'a>)> = joined
        .group
        .iter()
        .filter(|v| v.list().is_some_and(|l| l.members.iter().any(|m| m.id == member.id)))
        .map(|v| (v, learners::seen_by(v.etcd, member, v.by_its_clock(joined.now))))
        .collect();
    // The newest look first.
    all.sort_by(|(a, _), (b, _)| b.at.cmp(&a.at).then(a.node.cmp(b.node)));
    let reached = all.iter().filter(|(_, l)| !l.is_silent).map(|(v, _)| v.at).max();
    let onset = join::losses(joined, member).into_iter().map(|(_, since)| since).max();
    let is_silent = match (reached, onset) {
        // Somebody reached it after the last of those who lost it did.
        (Some(reached), Some(onset)) => reached < onset,
        (Some(_), None) => false,
        (None, _) => all.iter().any(|(_, l)| l.is_silent),
    };
    let told = || all.iter().filter_map(|(_, l)| l.silent_for);
    let silent_for = match onset {
        // Nobody who lost it knows since when.
        Some(_) if told().next().is_none() => None,
        Some(onset) => Some(joined.now.since(onset)),
        // Nobody asked it: it has not come up since it was added, or nothing is known.
        None => told().min(),
    };
    let silent_for = silent_for.filter(|_| is_silent);
    let leaders = || all.iter().filter_map(|(_, l)| l.leader);
    Learner {
        name: display_name(member),
        with_id: with_id(member),
        ready_for: all.iter().filter_map(|(_, l)| l.ready_for).max(),
        silence: all.iter().find_map(|(_, l)| l.silence).filter(|_| is_silent),
        unstarted_at: all.iter().find_map(|(_, l)| l.unstarted_at.clone()).filter(|_| reached.is_none()),
        distribution: all.iter().find_map(|(_, l)| l.distribution),
        // Whoever sees one is right: the others may be cut off.
        leader: leaders().find(|l| !l.is_empty()).or(leaders().next()),
        // Its own word counts, as long as it is heard.
        sees_none: joined
            .own_view(&member.id)
            .is_some_and(|own| all.iter().any(|(v, l)| std::ptr::eq(*v, own) && l.sees_none)),
        quorum: Status::Unknown,
        leftover: None,
        age: all.iter().filter_map(|(_, l)| l.age).max(),
        index: all.iter().find_map(|(_, l)| l.index),
        front: all.iter().filter_map(|(_, l)| l.front).max(),
        trend: all.iter().find_map(|(_, l)| l.trend),
        is_silent,
        silent_for,
        links: links(joined, list, member),
        waiting: waiting(joined, list),
    }
}

/// The peer connection to the leader, as each end counts it.
fn links(joined: &Joined<'_>, list: &MemberList, member: &Member) -> Vec<String> {
    let statuses = joined.group.iter().flat_map(|v| v.etcd.endpoints.iter().map(move |e| (v.at, e)));
    let newest = statuses
        .filter_map(|(at, e): (Timestamp, &EndpointFacts)| Some((at, e.status.value()?)))
        .filter(|(_, s)| !s.leader.is_empty() && s.leader != "0")
        .max_by_key(|(at, s)| (s.raft_term, *at));
    let Some(leader) = newest.map(|(_, s)| s.leader.as_str()) else { return Vec::new() };
    [(leader, member.id.as_str()), (member.id.as_str(), leader)]
        .into_iter()
        .map(|(from, to)| {
            let metrics = joined.own_view(from).and_then(|v| v.etcd.metrics.value());
            let word = match metrics.map_or(Status::Unknown, |m| link(m, to)) {
                Status::True => "open",
                Status::False => "closed",
                Status::Unknown => "not known",
            };
            format!("{} -> {} {word}", name_of(Some(list), from), name_of(Some(list), to))
        })
        .collect()
}

/// Nodes that run etcd, are in no list and whose own member does not answer: they wait to be let in.
fn waiting<'a>(joined: &Joined<'a>, list: &MemberList) -> Vec<&'a str> {
    let is_in = |v: &View<'_>| list.members.iter().any(|m| m.id == v.local_id || is_of_node(&m.name, v.node));
    joined.group.iter().filter(|v| !v.lives() && !is_in(v)).map(|v| v.node).collect()
}
