//! A CORRUPT alarm: whose data differs, whether that member can be replaced, and when the alarm is cleared at last.

use outrider_protocol::{EtcdFacts, ReasonCode as R, Severity, Status, Timestamp};

use super::super::alarms::Alarmed;
use super::super::quorum::{Health, Tally, Voter, quorum_of};
use super::super::view::name_of;
use super::weighed::{Cure, Takes};
use super::{NAMED, TYPE};
use crate::finding::Finding;
use crate::wording::{lower, names};

/// `space` is whom a NOSPACE alarm is set on besides, and what is said of it.
pub(super) fn judge(
    etcd: &EtcdFacts,
    corrupt: &Alarmed,
    space: Option<(String, Finding)>,
    tally: Option<&Tally<'_>>,
    at: Timestamp,
) -> Finding {
    let members = etcd.members.value().map_or(0, |l| l.members.len());
    let gone = gone(etcd, corrupt);
    let named: Vec<&String> = corrupt.named().filter(|id| !gone.contains(id)).collect();
    let who = match named.as_slice() {
        [] => corrupt.who(etcd),
        named => names(named.iter().map(|id| name_of(etcd.members.value(), id)), NAMED),
    };
    let on = match named.len() {
        0 if !gone.is_empty() => {
            format!(" on {who}, which the member list does not have any more: only its alarm is left")
        }
        0 => ", and which member differs from the others is not known".to_owned(),
        1 if members == 1 => {
            format!(" on {who}, the only member: its data is not what etcd expects it to be")
        }
        1 => format!(" on {who}: its data differs from that of the others"),
        all if all == members => format!(" on {who}: no member is known whose data is sound"),
        _ => format!(" on {who}: their data differs from that of the others"),
    };
    let of_gone = match names(&gone, NAMED) {
        nobody if nobody.is_empty() || named.is_empty() => String::new(),
        gone => format!(" It is set on {gone} too, which the member list does not have any more."),
    };
    let also = match &space {
        Some((who, _)) => {
            format!(" A NOSPACE alarm is set too, on {who}: writes are refused for the whole cluster.")
        }
        None => String::new(),
    };
    let message = format!(
        "A CORRUPT alarm is set{on}. Writes are refused for the whole cluster while it is set.{of_gone}{also}"
    );
    let only_left = named.is_empty() && !gone.is_empty();
    let mut cure = if only_left { left(&who, members) } else { advice(&named, &who, tally) };
    if let Some((_, space)) = space {
        cure.push_str(&format!(" Only after that the other alarm: {}", lower(&space.advice)));
    }
    let finding =
        Finding::new(TYPE, Status::False, Severity::Error, R::EtcdCorrupt, at, message).advice(cure);
    // What takes no member still needs a quorum.
    if only_left { Cure { finding, takes: Takes::Nothing }.weighed(tally, &[], at) } else { finding }
}

/// Members with the alarm that a list without them says are members no more: an alarm stays when its member is removed.
fn gone<'a>(etcd: &EtcdFacts, corrupt: &'a Alarmed) -> Vec<&'a String> {
    let Some(list) = etcd.members.value().filter(|list| !list.members.is_empty()) else { return Vec::new() };
    corrupt.named().filter(|id| !list.members.iter().any(|m| m.id == **id)).collect()
}

/// What to do where the alarm has outlived its member (D4): whether the others agree decides.
fn left(who: &str, members: usize) -> String {
    let find = format!(
        "Do not restart etcd. Find out who {who} is (etcdctl alarm list, etcdctl member list): an alarm stays when its member is \
         removed, and nothing is to be replaced for it."
    );
    match members {
        1 => format!(
            "{find} The only member that is left has nobody to be compared with: take an etcd snapshot, look at the disk and memory \
             here for errors; where its data is trusted, a person clears the alarm (etcdctl alarm disarm)."
        ),
        _ => format!(
            "{find} Compare the members that are left (etcdctl endpoint hashkv --cluster): where all show one hash at one revision, \
             a person clears the alarm (etcdctl alarm disarm); where one differs, do not clear it, and keep a copy of every member's \
             data folder first."
        ),
    }
}

/// A person replaces one named member where the others are a quorum without it; everywhere else nothing is removed.
fn advice(named: &[&String], who: &str, tally: Option<&Tally<'_>>) -> String {
    let keep = "Do not clear the alarm, do not restart, and remove no member";
    let copy = "Keep a copy of every member's data folder and the newest etcd snapshot from before the alarm";
    let last = "The alarm stays set after that and writes stay refused: last, once etcdctl endpoint hashkv shows one hash at one \
                revision on every member, a person clears it (etcdctl alarm disarm).";
    let Some(tally) = tally else {
        return format!("{keep}: who the members are is not known. {copy}.");
    };
    let is_sound = |v: &&Voter<'_>| v.health == Health::Healthy && !named.iter().any(|id| *id == v.id);
    let sound = tally.voters.iter().filter(is_sound).count();
    let (voters, quorum) = (tally.voters.len(), quorum_of(tally.voters.len()));
    let is_ghost = tally.voters.iter().any(|v| v.ghost.is_some() && named.iter().any(|id| **id == v.id));
    let mut first = match names(tally.missing().map(|v| &*v.name), NAMED) {
        nobody if nobody.is_empty() => String::new(),
        away => format!(" Bring {away} back first."),
    };
    // To remove a ghost takes nothing away that holds data, and lowers the quorum.
    if tally.voters.iter().any(Voter::is_dead_ghost) {
        first.push_str(" Of ghosts, which hold no data, EtcdMembership tells.");
    }
    match named.len() {
        0 => format!(
            "{keep} before it is known which one differs: compare the members (etcdctl endpoint hashkv at one revision) and \
             look at disk and memory of each for errors. {copy}."
        ),
        1 if is_ghost => format!(
            "Do not clear the alarm and do not restart. Take an etcd snapshot from a member other than {who}, which is a ghost: \
             whether and how it is removed EtcdMembership tells, and nothing joins in its place. {last}"
        ),
        1 if sound >= quorum => format!(
            "Do not clear the alarm and do not restart. Take an etcd snapshot from a member other than {who}, look at the disk \
             and memory of {who} for errors; a person replaces it (removed, data folder empty, joined again) while the {sound} \
             other healthy voters hold the quorum of {quorum}. {last}"
        ),
        _ if voters == 1 => format!(
            "{keep}: {who} is the only voter. {copy}. If its data cannot be trusted, a person restores a snapshot from before the \
             alarm."
        ),
        _ => format!(
            "{keep} that holds data: only {sound} of {voters} voters are healthy and not named, and a quorum is {quorum}. {copy}.{first} \
             If no member is sound, a person restores a snapshot from before the alarm."
        ),
    }
}
