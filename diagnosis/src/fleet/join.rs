//! One health a voter, and one word on the quorum, from what every report says.

use std::time::Duration;

use outrider_protocol::{EndpointFacts, EndpointStatus, Fact, Member, MemberList, Timestamp};

use super::NAMED;
use super::reports::{Joined, Said, View, counted};
use crate::rules::etcd::alarms;
use crate::rules::etcd::quorum::{Ghost, Health, Proof, Tally, Voter, label};
use crate::rules::etcd::rebuilt::{Rebuilt, is_of_node};
use crate::rules::etcd::rivals::{self, Camp};
use crate::rules::etcd::spoilt;
use crate::rules::etcd::view::{self, Seen};
use crate::wording::{Span, names};

/// A node is known to be silent after this long at the latest; until then a member that somebody lost and whose own
/// node has not spoken since is unknown, afterwards the word of its own node, which is still heard, stands.
const UNCONFIRMED: Duration = Duration::from_secs(120);

/// What is reported happened this long ago at most: a node whose clock is behind must not make its word certain at once.
const ON_ITS_WAY: Duration = Duration::from_secs(3);

/// A read that failed was given half a second, and clocks agree as well as a report is quick: an answer that came this long
/// after that read began came when a quorum was there, whoever could not reach it.
const OVERLAP: Duration = Duration::from_millis(750);

pub(super) fn tally<'s>(joined: &'s Joined<'_>, list: &'s MemberList) -> Tally<'s> {
    let seen: Vec<Seen> = list.members.iter().map(|m| health(joined, list, m)).collect();
    let rebuilt = Rebuilt::among(list, |i| seen[i].health, joined.node_names());
    let voters = list.members.iter().zip(seen).enumerate().filter(|(_, (m, _))| !m.is_learner);
    let voters = voters.map(|(i, (member, seen))| {
        let without = joined.kubernetes_node(member) == outrider_protocol::Status::False;
        let other = if without { Some(Ghost::WithoutNode) } else { rebuilt.ghost(i) };
        // One that answers has a machine, whatever was deleted.
        let is_gone = matches!(seen.health, Health::Down | Health::Unknown);
        let retired =
            joined.retired_of(member).filter(|_| is_gone && !matches!(other, Some(Ghost::Rebuilt { .. })));
        let ghost = retired.map(|machine| Ghost::Retired {
            machine: machine.to_owned(),
            peers: names(&member.peer_urls, NAMED),
        });
        let ghost = ghost.or(other);
        Voter::new(member, seen, ghost)
    });
    let mut voters: Vec<Voter<'_>> = voters.collect();
    label(&mut voters);
    joined.group.iter().for_each(|v| spoilt::mark(&mut voters, v.etcd, list));
    let camps = camps(joined, list);
    rivals::mark(&mut voters, &camps, list);
    let timeout = joined.group.iter().map(|v| view::election_timeout(v.etcd)).max();
    Tally {
        leader: leader(&camps, list),
        voters,
        cluster_id: &list.cluster_id,
        elsewhere: Vec::new(),
        learners: list.members.iter().filter(|m| m.is_learner).count(),
        proof: proof(&joined.group, list),
        election_timeout: timeout.unwrap_or_default(),
        no_read_since: no_read_since(counted(&joined.group), joined.now),
        list_may_be_stale: !list.linearizable,
        looks: joined.group.len(),
        seen_from: String::new(),
        alarmed: joined.group.iter().any(|v| alarms::stop_writes(v.etcd)),
        reset_on: joined.group.iter().filter(|v| spoilt::is_reset(v.etcd)).map(|v| v.node).collect(),
        snapshot: None,
    }
}

/// The moment at which the last of those that report lost its reads; `None` while one still has an answer.
fn no_read_since<'v, 'a: 'v>(group: impl Iterator<Item = &'v View<'a>>, now: Timestamp) -> Option<Timestamp> {
    let all: Option<Vec<Timestamp>> =
        group.map(|v| v.etcd.no_read_since.map(|t| v.by_our_clock(t))).collect();
    all?.into_iter().max().map(|at| if now.since(at) > ON_ITS_WAY { now.before(ON_ITS_WAY) } else { at })
}

/// Whom the voters follow, by the newest answer of each in any report.
pub(super) fn camps<'v>(joined: &'v Joined<'_>, list: &'v MemberList) -> Vec<Camp<'v>> {
    let voters = list.members.iter().filter(|m| !m.is_learner);
    let answers = voters.filter_map(|m| answer(joined, m)).map(|(_, status)| status);
    rivals::camps(answers, &list.cluster_id)
}

/// Who leads, and how many of the voters that follow anybody follow it.
fn leader(camps: &[Camp<'_>], list: &MemberList) -> String {
    let Some(first) = camps.first() else { return String::new() };
    let all: usize = camps.iter().map(|camp| camp.followers.len()).sum();
    let name = view::name_of(Some(list), first.leader);
    format!("; {name} leads, by {} of {all} that answer", first.followers.len())
}

/// What the linearizable reads of all reports prove together.
///
/// A node that is heard and whose last word is an answered read stands by it: it reads every second or so and tells at once
/// when that fails. Who gets no answer meanwhile proves only that it is cut off itself, as the side without a majority is,
/// if the other's answer came later than its loss began. An answer from before proves nothing any more. What a learner
/// answers or not proves nothing either (D7).
fn proof(group: &[View<'_>], list: &MemberList) -> Proof {
    let learners: Vec<&str> = list.members.iter().filter(|m| m.is_learner).map(|m| m.id.as_str()).collect();
    let reads = || counted(group).filter_map(|v| Some((v, reads(v, &learners)?)));
    let answered = reads().filter_map(|(v, read)| match read {
        Reads::Answered { at, ms } => Some((at, v, ms)),
        Reads::Failed { .. } => None,
    });
    let failed = || {
        reads().filter_map(|(v, read)| match read {
            Reads::Failed { refuted_from } => Some((refuted_from, v)),
            Reads::Answered { .. } => None,
        })
    };
    let answered = answered.max_by_key(|(at, v, _)| (*at, std::cmp::Reverse(v.node)));
    let newest_failure = failed().max_by_key(|(_, v)| (v.at, std::cmp::Reverse(v.node)));
    match (answered, newest_failure) {
        (None, None) => Proof::None,
        (Some((_, _, ms)), None) => Proof::Read { ms, against: None },
        (Some((at, by, ms)), Some(_)) if failed().all(|(refuted_from, _)| at >= refuted_from) => {
            let without = names(failed().map(|(_, v)| v.node), NAMED);
            Proof::Read { ms, against: Some((by.node.to_owned(), without)) }
        }
        (_, Some((_, v))) => view::proof(v.etcd),
    }
}

/// What the linearizable reads of one node came to.
enum Reads {
    /// The last answer, by our clock.
    Answered { at: Timestamp, ms: f64 },
    /// None was answered that was tried; an answer from this time on proves a quorum nevertheless.
    Failed { refuted_from: Timestamp },
}

/// `None` for a node that tried none at a voter.
fn reads(v: &View<'_>, learners: &[&str]) -> Option<Reads> {
    let votes = |e: &&EndpointFacts| view::member_of(e).is_none_or(|id| !learners.contains(&id));
    let mut answered: Option<(Timestamp, f64)> = None;
    let mut failed: Option<Timestamp> = None;
    // A read that another cluster answered at a member's address proves nothing of this one.
    let this_cluster = |e: &&EndpointFacts| !view::is_foreign(e, v.cluster_id);
    for e in v.etcd.endpoints.iter().filter(votes).filter(this_cluster) {
        match &e.linearizable_read {
            Fact::Known { value, at, .. } if view::read_ms(e).is_some() => {
                let at = v.by_our_clock(*at).min(v.at);
                if answered.is_none_or(|(last, _)| at > last) {
                    answered = Some((at, *value));
                }
            }
            // A read at a member that is away says no more than that it is away, unless it is the node's own.
            Fact::Unknown { cause, at, .. }
                if view::is_down(cause) && (e.local || e.status.value().is_some()) =>
            {
                failed = failed.max(Some(v.by_our_clock(*at).min(v.at)));
            }
            _ => {}
        }
    }
    match (answered, failed) {
        (Some((at, ms)), _) => Some(Reads::Answered { at, ms }),
        (None, Some(at)) => {
            let began = v.etcd.no_read_since.map(|t| v.by_our_clock(t).after(OVERLAP));
            Some(Reads::Failed { refuted_from: began.unwrap_or(at) })
        }
        (None, None) => None,
    }
}

/// What is said of `member`, a report at a time.
pub(super) fn by_report<'v, 's, 'a>(
    joined: &'v Joined<'a>,
    said: &'s [Said<'a>],
) -> impl Iterator<Item = (&'v View<'a>, &'s [Said<'a>])> {
    let reports = said.chunk_by(|(a, _), (b, _)| a == b);
    reports.filter_map(|report| Some((&joined.group[report.first()?.0], report)))
}

/// When the member answered in this report, by our clock. Its own node looks at it all the time, others now and then.
fn answered_at(v: &View<'_>, report: &[Said<'_>], member: &Member) -> Option<Timestamp> {
    let told = report.iter().filter(|(_, e)| e.status.value().is_some()).map(|(_, e)| e.status.at()).max()?;
    Some(if v.local_id == member.id { v.at } else { v.by_our_clock(told).min(v.at) })
}

/// The newest answer of `member` in any report; of answers of one age that of its own node.
pub(super) fn answer<'v>(
    joined: &'v Joined<'_>,
    member: &Member,
) -> Option<(&'v View<'v>, &'v EndpointStatus)> {
    let said = joined.said_of(member);
    let answers = by_report(joined, &said).filter_map(|(v, report)| {
        let at = answered_at(v, report, member)?;
        let itself = report.iter().find(|(_, e)| view::answers_itself(e, member));
        let status = itself.and_then(|(_, e)| e.status.value())?;
        Some(((at, v.local_id == member.id), report.first()?.0, status))
    });
    answers.max_by_key(|(rank, ..)| *rank).map(|(_, place, status)| (&joined.group[place], status))
}

/// Since when the node behind `v` has not reached the member of `report`; `None` when it reached it or did not ask.
pub(super) fn lost_in(v: &View<'_>, report: &[Said<'_>]) -> Option<Timestamp> {
    let mut onset: Option<Timestamp> = None;
    for (_, e) in report {
        match &e.status {
            Fact::Unknown { cause, .. } if view::is_down(cause) => {}
            Fact::Absent { .. } => {}
            _ => return None,
        }
        let since = e.down_since.map_or(v.at, |t| v.by_our_clock(t));
        onset = Some(onset.map_or(since, |o| o.min(since)));
    }
    onset
}

/// Who has not reached `member`, by the place of the report, and since when.
pub(super) fn losses(joined: &Joined<'_>, member: &Member) -> Vec<(usize, Timestamp)> {
    let said = joined.said_of(member);
    let lost =
        by_report(joined, &said).filter_map(|(v, report)| Some((report.first()?.0, lost_in(v, report)?)));
    lost.collect()
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

/// To follow a sentence: that the node of `member` is silent as well, which makes it one fault and not two.
fn silence_of(joined: &Joined<'_>, member: &Member) -> String {
    let node = joined.quiet.iter().find(|q| q.is_silent && is_of_node(&member.name, q.node));
    let Some(node) = node.and_then(|q| joined.node(q.node)) else { return String::new() };
    let since = node.heard.map(|at| format!(" since {at}")).unwrap_or_default();
    format!(" and its node {} is silent{since}, so it is the machine or its network", node.name)
}

/// Nodes that are heard no more, by two witnesses: at least so many others lost a member
const WITNESSES: usize = 2;
/// after its own node's last word, on its client port and, as far as they tell, on the port of peers. That word is to be
/// asked for: an agent that lives answers at once, and a machine that is off does not.
pub(super) fn unreached<'a>(joined: &Joined<'a>) -> Vec<&'a str> {
    let members = joined.list.as_deref().map_or(&[][..], |list| &list.members);
    let own = members.iter().filter_map(|m| Some((m, joined.own_view(&m.id)?)));
    let lost = own.filter(|(member, own)| {
        let said = joined.said_of(member);
        let by = by_report(joined, &said).filter(|(v, report)| {
            let lost = lost_in(v, report).is_some_and(|since| since > own.at);
            v.node != own.node && lost && !view::only_client_port_is_closed(v.etcd, member)
        });
        own.lives() && by.count() >= WITNESSES
    });
    lost.map(|(_, own)| own.node).collect()
}

/// What all reports together say of `member`.
pub(super) fn health(joined: &Joined<'_>, list: &MemberList, member: &Member) -> Seen {
    let now = joined.now;
    let said = joined.said_of(member);
    // The newest reading that the member itself answered, and the newest loss of it.
    let mut answered: Option<(Timestamp, &View<'_>, Seen)> = None;
    let mut lost: Option<(Timestamp, &View<'_>, Seen)> = None;
    let mut unknown: Option<Seen> = None;
    for (v, report) in by_report(joined, &said) {
        let direct = answered_at(v, report, member);
        // Of readings of one age, its own node's word counts.
        let own = |v: &View<'_>| v.local_id == member.id;
        if let (Some(at), Some((newest, w, _))) = (direct, &answered)
            && (at, own(v)) <= (*newest, own(w))
        {
            continue;
        }
        let endpoints = report.iter().map(|(_, e)| *e);
        let mut seen = view::health(endpoints, &list.cluster_id, member, v.by_its_clock(now));
        if seen.health == Health::Healthy
            && let Some(cannot) = cannot_read(v, member)
        {
            seen = Seen::new(Health::NoLeader, cannot);
        }
        if let Some(closed) = view::behind_a_closed_port(v.etcd, member, &seen) {
            unknown.get_or_insert(closed);
        } else if let Some(at) = direct {
            answered = Some((at, v, seen));
        } else if seen.health == Health::Down {
            let onset = report.iter().filter_map(|(_, e)| e.down_since).min();
            let onset = onset.map_or(v.at, |t| v.by_our_clock(t));
            if lost.as_ref().is_none_or(|(at, ..)| onset > *at) {
                lost = Some((onset, v, seen));
            }
        } else {
            unknown.get_or_insert(seen);
        }
    }
    match (answered, lost) {
        (Some((at, by, seen)), Some((onset, loser, _)))
            if seen.health == Health::Healthy && onset > at && now.since(onset) <= UNCONFIRMED =>
        {
            Seen::new(
                Health::Unknown,
                format!(
                    "was healthy by the report of {}, but {} has not reached it for {}",
                    by.node,
                    loser.node,
                    Span(now.since(onset))
                ),
            )
        }
        (Some((_, _, seen)), _) => seen,
        (None, Some((_, loser, seen))) => {
            let silence = silence_of(joined, member);
            Seen { why: format!("{} (seen from {}){silence}", seen.why, loser.node), ..seen }
        }
        (None, None) => {
            unknown.unwrap_or_else(|| view::health(std::iter::empty(), &list.cluster_id, member, now))
        }
    }
}
