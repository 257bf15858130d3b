//! `EtcdSpace`: alarms, size, in-use size and quota, and the cure that helps (`facts/etcd.md`, section 4).
//!
//! Alarms are read apart from health: a member with NOSPACE answers health checks and yet the whole cluster refuses
//! writes. Which cure helps hangs on how much of the file is in use, so each member's numbers are looked at.

mod corrupt;
mod figures;
mod no_space;
mod room;
mod weighed;

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EndpointFacts, EtcdFacts, Fact, Severity, Status, Thresholds, Timestamp, UnknownCause,
};

use super::alarms::{self, Alarmed, CORRUPT, NO_SPACE};
use super::unanswered;
use super::view::{distinct, member_of, name_of, ours, tally};
use crate::finding::Finding;
use crate::wording::names;
use figures::{Space, has_size};
pub(super) use room::LARGE;
use weighed::Takes;

const TYPE: ConditionType = ConditionType::EtcdSpace;
const RAISE: Duration = Duration::from_secs(60);
const CLEAR: Duration = Duration::from_secs(30);
const NAMED: usize = 7;

/// Who told a size that no member can have: endpoint, and the words.
fn nonsense(etcd: &EtcdFacts) -> Vec<(&str, String)> {
    let told = ours(etcd).filter_map(|e| Some((e, e.status.value()?)));
    let told = told.filter(|(_, s)| !has_size(s));
    let words = |e: &EndpointFacts, size: i64, in_use: i64| {
        let name = member_of(e).map_or(e.endpoint.as_str(), |id| name_of(etcd.members.value(), id));
        let used = if size > 0 { format!(" with {in_use} in use") } else { String::new() };
        format!("{name} told a database size of {size} bytes{used}")
    };
    let told = told.map(|(e, s)| (e.endpoint.as_str(), words(e, s.db_size_bytes, s.db_in_use_bytes)));
    let mut out: Vec<(&str, String)> = told.collect();
    out.dedup_by(|a, b| a.1 == b.1);
    out
}

pub(super) fn judge(etcd: &EtcdFacts, at: Timestamp, now: Timestamp, limits: &Thresholds) -> Finding {
    let finding = judged(etcd, at, now, limits);
    let nonsense = nonsense(etcd);
    // What was told of the others stands when it is worse; fine it is not while a number is none.
    if nonsense.is_empty() || (finding.status != Status::Unknown && finding.severity > Severity::Info) {
        return finding;
    }
    let message = format!(
        "Whether there is space cannot be told: {}, which is no number to go by. Of what else was told: {}",
        names(nonsense.iter().map(|(_, words)| words), NAMED),
        finding.message
    );
    Finding::unknown(TYPE, &UnknownCause::InvalidAnswer, Severity::Warn, at, message).advice(format!(
        "Ask at {} by hand (etcdctl endpoint status -w json: dbSize, dbSizeInUse). What answers there may be no etcd, or a \
         proxy.",
        names(nonsense.iter().map(|(endpoint, _)| endpoint), NAMED)
    ))
}

fn judged(etcd: &EtcdFacts, at: Timestamp, now: Timestamp, limits: &Thresholds) -> Finding {
    let (corrupt, no_space) = (Alarmed::of(etcd, CORRUPT), Alarmed::of(etcd, NO_SPACE));
    let alarmed: Vec<&str> = no_space.named().map(String::as_str).collect();
    let spaces = Space::all(etcd, &alarmed);
    let others = alarms::others(etcd);
    let list = etcd.members.value().map(|list| distinct(list).0);
    let tally = list.as_deref().map(|list| tally(etcd, list, now));
    let tally = tally.as_ref();

    if corrupt.is_set() {
        let space = no_space.is_set();
        let space =
            space.then(|| no_space::judge(etcd, &no_space, &spaces, tally, (at, now), limits).finding);
        let mut finding = corrupt::judge(etcd, &corrupt, space.map(|f| (no_space.who(etcd), f)), tally, at);
        finding.message.push_str(&of_other_kinds(&others));
        return finding.waits(Duration::ZERO, CLEAR);
    }
    if no_space.is_set() {
        let cure = no_space::judge(etcd, &no_space, &spaces, tally, (at, now), limits);
        let mut finding = cure.weighed(tally, &spaces, at);
        finding.message.push_str(&of_other_kinds(&others));
        return finding.waits(Duration::ZERO, CLEAR);
    }
    if !others.is_empty() {
        let message =
            format!("{} No NOSPACE and no CORRUPT alarm is known.", of_other_kinds(&others).trim_start());
        let versions: Vec<&str> =
            ours(etcd).filter_map(|e| Some(e.status.value()?.version.as_str())).collect();
        return Finding::unknown(TYPE, &UnknownCause::Unsupported, Severity::Warn, at, message).advice(format!(
            "Look the alarm {} up in the documentation of etcd {} and see the log of the member that etcdctl alarm list names. \
             Do not clear the alarm and do not restart before its cause is known.",
            names(&others, NAMED),
            versions.first().copied().unwrap_or("of this cluster")
        ));
    }
    let room = room::judge(&spaces, at, limits).map(|cure| match cure.takes {
        Takes::Nothing => cure.finding,
        _ => cure.weighed(tally, &spaces, at),
    });
    let room = room.map(|finding| finding.waits(RAISE, CLEAR));
    // Nothing alarmed in what was read; an alarm list that was not read could still hold one.
    if let Some(mut unknown) = unanswered(TYPE, "The list of alarms", &etcd.alarms, Severity::Warn, etcd) {
        let tight = |s: &&Space<'_>| s.is_near() || s.is_used_up(limits.etcd_space_warn_percent);
        let tight = names(spaces.iter().filter(tight).map(Space::numbers), NAMED);
        if let (Some(room), false) = (room, tight.is_empty()) {
            unknown.message.push_str(&format!(" Little room is left: {tight}."));
            unknown.advice = format!("{} {}", unknown.advice, room.advice);
        }
        return unknown;
    }
    room.unwrap_or_else(|| untold(etcd, at))
}

/// No alarm, and nobody told a size.
fn untold(etcd: &EtcdFacts, at: Timestamp) -> Finding {
    let cause = etcd.endpoints.iter().find_map(|e| match &e.status {
        Fact::Unknown { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    let (message, advice) = match etcd.endpoints.len() {
        0 => (
            "No alarm is known; no endpoint is known that could tell its size.".to_owned(),
            format!(
                "See whether etcd runs here ({}); an etcd elsewhere is named in the agent's configuration, [etcd] endpoints.",
                etcd.found_by
            ),
        ),
        n => (
            format!("No alarm is known; none of {n} endpoints told its size."),
            format!(
                "See EtcdMemberHealthy and EtcdQuorum for why; sizes are read again as soon as one of {} answers.",
                names(etcd.endpoints.iter().map(|e| &e.endpoint), NAMED)
            ),
        ),
    };
    let finding =
        Finding::unknown(TYPE, &cause.unwrap_or(UnknownCause::Unavailable), Severity::Warn, at, message);
    finding.advice(advice)
}

/// To follow a sentence: alarms of kinds that a newer etcd may have.
fn of_other_kinds(kinds: &[&str]) -> String {
    if kinds.is_empty() {
        return String::new();
    }
    format!(" An alarm of a kind that is not known here is set: {}.", names(kinds, NAMED))
}
