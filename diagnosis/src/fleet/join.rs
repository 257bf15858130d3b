//! One health a voter, from what every report says of it.

use std::time::Duration;

use outrider_protocol::{EndpointFacts, EndpointStatus, Fact, Member, MemberList, Status, Timestamp};

use super::View;
use crate::rules::etcd::membership::{has_node, kubernetes_nodes};
use crate::rules::etcd::quorum::{Health, Proof, Tally, Voter};
use crate::rules::etcd::view;
use crate::wording::Span;

/// A node is known to be silent after this long at the latest; until then a member that somebody lost and whose own
/// node has not spoken since is unknown, afterwards the word of its own node, which is still heard, stands.
const UNCONFIRMED: Duration = Duration::from_secs(120);

/// What is reported happened this long ago at most: a node whose clock is behind must not make its word certain at once.
const ON_ITS_WAY: Duration = Duration::from_secs(3);

pub(super) fn tally<'a>(group: &[View<'a>], list: &'a MemberList, now: Timestamp) -> Tally<'a> {
    let voters = list.members.iter().filter(|m| !m.is_learner).map(|member| {
        let (health, why) = health(group, list, member, now);
        let ghost = kubernetes_node(group, member) == Status::False;
        Voter { id: &member.id, name: view::display_name(member), health, why, ghost }
    });
    let timeout = group.iter().map(|v| v.etcd.election_timeout_ms).max().unwrap_or(0);
    Tally {
        voters: voters.collect(),
        learners: list.members.iter().filter(|m| m.is_learner).count(),
        proof: proof(group, list),
        election_timeout: Duration::from_millis(u64::from(timeout)),
        no_read_since: no_read_since(group, now),
        list_may_be_stale: !list.linearizable,
        seen_from: String::new(),
        snapshot: None,
    }
}

/// The moment at which the last of those that report lost its reads; `None` while one still has an answer.
fn no_read_since(group: &[View<'_>], now: Timestamp) -> Option<Timestamp> {
    let all: Option<Vec<Timestamp>> =
        group.iter().map(|v| v.etcd.no_read_since.map(|t| v.by_our_clock(t))).collect();
    all?.into_iter().max().map(|at| if now.since(at) > ON_ITS_WAY { now.before(ON_ITS_WAY) } else { at })
}

/// The newest report that tried a linearizable read: an older one that worked proves nothing any more.
/// What a learner answers or not proves nothing (D7).
fn proof(group: &[View<'_>], list: &MemberList) -> Proof {
    let votes = |e: &EndpointFacts| !list.members.iter().any(|m| m.is_learner && m.id == e.member_id);
    let tried = |e: &&EndpointFacts| match &e.linearizable_read {
        Fact::Known { .. } => true,
        // A read at a member that is away says no more than that it is away, unless it is the node's own.
        Fact::Unknown { cause, .. } => view::is_down(cause) && (e.local || e.status.value().is_some()),
        _ => false,
    };
    let newest =
        group.iter().filter(|v| v.etcd.endpoints.iter().filter(tried).any(votes)).max_by_key(|v| v.at);
    newest.map_or(Proof::None, |v| view::proof(v.etcd))
}

/// Whether Kubernetes has the member's node: by the newest report that knows the nodes and lists the member. A member
/// without a name has never started, so no node can be told by it.
pub(super) fn kubernetes_node(group: &[View<'_>], member: &Member) -> Status {
    if member.name.is_empty() {
        return Status::Unknown;
    }
    let knows = |v: &&View<'_>| {
        v.list().is_some_and(|l| l.members.iter().any(|m| m.id == member.id))
            && kubernetes_nodes(v.etcd).is_some()
    };
    let newest = group.iter().filter(|v| v.etcd.kubernetes_nodes.value().is_some()).filter(knows);
    match newest.max_by_key(|v| v.at).and_then(|v| kubernetes_nodes(v.etcd)) {
        Some(nodes) if has_node(&member.name, nodes) => Status::True,
        Some(_) => Status::False,
        None => Status::Unknown,
    }
}

/// The newest answer of `member` in any report; of answers of one age that of its own node.
pub(super) fn answer<'a, 'v>(
    group: &'v [View<'a>],
    member: &'a Member,
) -> Option<(&'v View<'a>, &'a EndpointStatus)> {
    let answers = group.iter().filter_map(|v| {
        let status = view::endpoints_of(v.etcd, member).find_map(|e| e.status.value())?;
        Some((v, status))
    });
    answers.max_by_key(|(v, _)| (v.at, v.local_id == member.id))
}

/// Since when the node behind `v` has not reached `member`; `None` when it reached it or did not ask.
pub(super) fn lost_since(v: &View<'_>, member: &Member) -> Option<Timestamp> {
    let mut onset: Option<Timestamp> = None;
    let mut asked = false;
    for e in view::endpoints_of(v.etcd, member) {
        match &e.status {
            Fact::Unknown { cause, .. } if view::is_down(cause) => {}
            Fact::Absent { .. } => {}
            _ => return None,
        }
        asked = true;
        let since = e.down_since.map_or(v.at, |t| v.by_our_clock(t));
        onset = Some(onset.map_or(since, |o| o.min(since)));
    }
    onset.filter(|_| asked)
}

/// A member whose own node gets no linearizable read, from it or from anybody, is in no working quorum, whatever leader it
/// still believes in: it gives that up only after an election timeout or two.
fn cannot_read(v: &View<'_>, member: &Member) -> Option<String> {
    let is_own = v.local_id == member.id && v.etcd.no_read_since.is_some();
    let local = v.etcd.endpoints.iter().find(|e| e.local).filter(|_| is_own)?;
    match &local.linearizable_read {
        Fact::Unknown { cause, detail, .. } if view::is_down(cause) => {
            Some(format!("answers, but no linearizable read: {cause}, {detail}"))
        }
        _ => None,
    }
}

pub(super) fn health(
    group: &[View<'_>],
    list: &MemberList,
    member: &Member,
    now: Timestamp,
) -> (Health, String) {
    // The newest reading that the member itself answered, and the newest loss of it.
    let mut answered: Option<(Timestamp, &View<'_>, Health, String)> = None;
    let mut lost: Option<(Timestamp, &View<'_>, String)> = None;
    let mut unknown: Option<String> = None;
    for v in group {
        let direct = view::endpoints_of(v.etcd, member).any(|e| e.status.value().is_some());
        // Of readings of one age, its own node's word counts.
        let own = |v: &View<'_>| v.local_id == member.id;
        if direct && answered.as_ref().is_some_and(|(at, w, ..)| (v.at, own(v)) <= (*at, own(w))) {
            continue;
        }
        let (health, why) = view::health(v.etcd, list, member, now.after(v.ahead));
        let (health, why) = match cannot_read(v, member) {
            Some(cannot) if health == Health::Healthy => (Health::NoLeader, cannot),
            _ => (health, why),
        };
        if direct {
            answered = Some((v.at, v, health, why));
        } else if health == Health::Down {
            let onset = view::endpoints_of(v.etcd, member).filter_map(|e| e.down_since).min();
            let onset = onset.map_or(v.at, |t| v.by_our_clock(t));
            if lost.as_ref().is_none_or(|(at, ..)| onset > *at) {
                lost = Some((onset, v, why));
            }
        } else {
            unknown.get_or_insert(why);
        }
    }
    match (answered, lost) {
        (Some((at, by, Health::Healthy, _)), Some((onset, loser, _)))
            if onset > at && now.since(onset) <= UNCONFIRMED =>
        {
            let why = format!(
                "was healthy by the report of {}, but {} has not reached it for {}",
                by.node,
                loser.node,
                Span(now.since(onset))
            );
            (Health::Unknown, why)
        }
        (Some((_, _, health, why)), _) => (health, why),
        (None, Some((_, loser, why))) => (Health::Down, format!("{why} (seen from {})", loser.node)),
        (None, None) => (Health::Unknown, unknown.unwrap_or_else(|| "is in no report".to_owned())),
    }
}
