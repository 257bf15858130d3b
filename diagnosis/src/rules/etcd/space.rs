//! `EtcdSpace`: alarms, size, in-use size and quota, and the cure that helps (`facts/etcd.md`, section 4).
//!
//! Alarms are read apart from health: a member with NOSPACE answers health checks and yet the whole cluster refuses
//! writes. Which cure helps hangs on how much of the file is in use, so each member's numbers are looked at.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EndpointStatus, EtcdFacts, Fact, ReasonCode as R, Severity, Status, Thresholds, Timestamp,
    UnknownCause,
};

use super::alarms::{self, Alarmed, CORRUPT, NO_SPACE};
use super::quorum::Health;
use super::view::{name_of, ours, tally};
use crate::finding::Finding;
use crate::rules::unread;
use crate::wording::{Bytes, Percent, Short, Span, names, percent};

const TYPE: ConditionType = ConditionType::EtcdSpace;
const RAISE: Duration = Duration::from_secs(60);
const CLEAR: Duration = Duration::from_secs(30);

/// etcd's default quota, 2 GiB; a quota of 0 means this one.
const DEFAULT_QUOTA: u64 = 2_147_483_648;
/// etcd refuses writes by the size of the file, not by what is in use: this near to its quota a file is nearly there.
const SIZE_NEAR_PERCENT: f64 = 90.0;
/// A file this far above the default quota proves that the quota is another one (small overshoot is normal).
const PROOF_OF_OTHER_QUOTA_PERCENT: f64 = 105.0;
/// Above this size a snapshot and a defragmentation take long enough to be felt (D20, rancher/rke2#6385).
const LARGE: u64 = 1_000_000_000;
/// 8 GB were reported to take 30 to 40 s on dedicated machines (k3s-io/k3s#11122): 5 s a GB, more on a slow disk.
const SECONDS_A_GB: u64 = 5;
/// K3s and RKE2 defragment at their start and give it this long (k3s-io/k3s:pkg/etcd/etcd.go, k3s-io/k3s#11122).
const DEFRAG_LIMIT: Duration = Duration::from_secs(30);

struct Space<'a> {
    name: &'a str,
    id: &'a str,
    size: u64,
    /// `None` where the version does not say.
    in_use: Option<u64>,
    quota: u64,
    /// The member does not report its quota, and no other one told it either: the default is assumed.
    quota_is_default: bool,
    /// The member does not report its quota; this other one's is taken for it.
    quota_as_on: Option<&'a str>,
    /// Free bytes beside the file, where the member is the local one and they could be read.
    free: Option<u64>,
    folder: &'a str,
}

impl<'a> Space<'a> {
    fn of(etcd: &'a EtcdFacts, status: &'a EndpointStatus) -> Self {
        let bytes = |n: i64| u64::try_from(n).unwrap_or(0);
        let size = bytes(status.db_size_bytes);
        let in_use = bytes(status.db_in_use_bytes);
        // A negative one switches etcd's quota off (etcd-io/etcd:server/storage/quota.go) or is no number at all.
        let quota = bytes(status.quota_bytes);
        let local = etcd
            .endpoints
            .iter()
            .any(|e| e.local && e.status.value().is_some_and(|own| own.member_id == status.member_id));
        let folder = etcd.data_folder.as_ref().and_then(Fact::value).filter(|_| local);
        Self {
            free: folder.and_then(|f| f.free_bytes),
            folder: folder.map_or("", |f| &f.path),
            name: name_of(etcd.members.value(), &status.member_id),
            id: &status.member_id,
            size,
            in_use: (in_use > 0).then_some(in_use.min(size)),
            quota: if quota == 0 { DEFAULT_QUOTA } else { quota },
            quota_is_default: quota == 0,
            quota_as_on: None,
        }
    }

    /// Most versions tell a member's quota in its own metrics only: members whose quota is not told are taken to have
    /// that of one which told it, for a cluster is set up alike.
    fn all(etcd: &'a EtcdFacts) -> Vec<Self> {
        let statuses = ours(etcd).filter_map(|e| e.status.value());
        let mut all: Vec<Self> =
            statuses.filter(|s| has_size(s)).map(|status| Self::of(etcd, status)).collect();
        let told = all.iter().find(|s| !s.quota_is_default).map(|s| (s.name, s.quota));
        if let Some((name, quota)) = told {
            for space in all.iter_mut().filter(|s| s.quota_is_default) {
                (space.quota, space.quota_is_default, space.quota_as_on) = (quota, false, Some(name));
            }
        }
        all
    }

    /// Whether the member did not tell its quota itself.
    fn quota_is_assumed(&self) -> bool {
        self.quota_is_default || self.quota_as_on.is_some()
    }

    /// Share of the quota in use, in percent; by size where the version does not say what is in use.
    fn used_percent(&self) -> f64 {
        percent(self.in_use.unwrap_or(self.size), self.quota)
    }

    fn size_percent(&self) -> f64 {
        percent(self.size, self.quota)
    }

    /// How long a defragmentation or a snapshot takes, roughly.
    fn duration(&self) -> Duration {
        Duration::from_secs((self.size.div_ceil(1_000_000_000) * SECONDS_A_GB).max(1))
    }

    fn freeable(&self) -> Option<u64> {
        self.in_use.map(|used| self.size - used)
    }

    fn numbers(&self) -> String {
        let quota = match self.quota_as_on {
            Some(other) => format!(", taken to be that of {other}"),
            None if self.quota_is_default => ", the default".to_owned(),
            None => String::new(),
        };
        match self.in_use {
            Some(used) => format!(
                "{}: size {}, in use {}, {} of the quota {}{quota}",
                self.name,
                Bytes(self.size),
                Bytes(used),
                Percent(self.used_percent()),
                Bytes(self.quota)
            ),
            None => format!(
                "{}: size {}, {} of the quota {}{quota}; in-use size not reported",
                self.name,
                Bytes(self.size),
                Percent(self.size_percent()),
                Bytes(self.quota)
            ),
        }
    }
}

/// A database file is never empty: etcd lays out its first pages when it makes it.
fn has_size(status: &EndpointStatus) -> bool {
    status.db_size_bytes > 0
}

/// Sizes and quotas that no member can have, in words.
fn nonsense(etcd: &EtcdFacts) -> Vec<String> {
    let statuses = ours(etcd).filter_map(|e| e.status.value());
    let mut out: Vec<String> = statuses
        .flat_map(|s| {
            let name = name_of(etcd.members.value(), &s.member_id);
            let size =
                (!has_size(s)).then(|| format!("{name} told a database size of {} bytes", s.db_size_bytes));
            let quota =
                (s.quota_bytes < 0).then(|| format!("{name} told a quota of {} bytes", s.quota_bytes));
            size.into_iter().chain(quota)
        })
        .collect();
    out.dedup();
    out
}

pub(super) fn judge(etcd: &EtcdFacts, at: Timestamp, limits: &Thresholds) -> Finding {
    let finding = judged(etcd, at, limits);
    let nonsense = nonsense(etcd);
    // What was told of the others stands when it is worse; fine it is not while a number is none.
    if nonsense.is_empty() || (finding.status != Status::Unknown && finding.severity > Severity::Info) {
        return finding;
    }
    let message = format!(
        "Whether there is space cannot be told: {}, which is no number to go by. Of what else was told: {}",
        names(&nonsense, 7),
        finding.message
    );
    Finding::unknown(TYPE, &UnknownCause::InvalidAnswer, Severity::Warn, at, message).advice(
        "Ask the member itself (etcdctl endpoint status -w json: dbSize, dbSizeInUse; metric \
         etcd_server_quota_backend_bytes, where below 0 means that the quota is switched off). What answers there may be no \
         etcd, or a proxy.",
    )
}

/// A person replaces one named member where the others are a quorum without it; everywhere else nothing is removed.
fn corrupt_advice(etcd: &EtcdFacts, corrupt: &Alarmed, at: Timestamp) -> String {
    let keep = "Do not clear the alarm, do not restart, and remove no member";
    let copy = "Keep a copy of every member's data folder and the newest etcd snapshot from before the alarm";
    let Some(list) = etcd.members.value() else {
        return format!("{keep}: who the members are is not known. {copy}.");
    };
    let tally = tally(etcd, list, None, at);
    let named: Vec<&String> = corrupt.named().collect();
    let sound =
        tally.voters.iter().filter(|v| v.health == Health::Healthy && !named.iter().any(|id| *id == v.id));
    let (sound, quorum) = (sound.count(), tally.voters.len() / 2 + 1);
    match named.len() {
        0 => format!(
            "{keep} before it is known which one differs: compare the members (etcdctl endpoint hashkv at one revision) and \
             look at disk and memory of each for errors. {copy}."
        ),
        1 if sound >= quorum => format!(
            "Do not clear the alarm and do not restart. Take an etcd snapshot from a member that is not named, look at the \
             named one's disk and memory for errors; a person replaces it (removed, data folder empty, joined again) while \
             the {sound} other healthy voters hold the quorum of {quorum}."
        ),
        _ => format!(
            "{keep}: only {sound} of {} voters are healthy and not named, and a quorum is {quorum}. {copy}; bring missing \
             members back first. If no member is sound, a person restores a snapshot from before the alarm.",
            tally.voters.len()
        ),
    }
}

fn judged(etcd: &EtcdFacts, at: Timestamp, limits: &Thresholds) -> Finding {
    let spaces = Space::all(etcd);
    let (corrupt, no_space) = (Alarmed::of(etcd, CORRUPT), Alarmed::of(etcd, NO_SPACE));
    let others = alarms::others(etcd);

    if corrupt.is_set() {
        let also = match no_space.is_set() {
            true => format!(
                " A NOSPACE alarm is set too, on {}: writes are refused for the whole cluster.",
                no_space.who(etcd)
            ),
            false => String::new(),
        };
        let on = match corrupt.named().count() {
            0 => ", and which member differs from the others is not known".to_owned(),
            _ => format!(" on {}: its data differs from that of the others", corrupt.who(etcd)),
        };
        let message = format!(
            "A CORRUPT alarm is set{on}. Writes are refused for the whole cluster while it is set.{also}{}",
            of_other_kinds(&others)
        );
        return Finding::new(TYPE, Status::False, Severity::Error, R::EtcdCorrupt, at, message)
            .waits(Duration::ZERO, CLEAR)
            .advice(corrupt_advice(etcd, &corrupt, at));
    }
    if no_space.is_set() {
        let mut finding = no_space_alarm(etcd, &no_space, &spaces, at, limits);
        finding.message.push_str(&of_other_kinds(&others));
        return finding.waits(Duration::ZERO, CLEAR);
    }
    if !others.is_empty() {
        let message =
            format!("{} No NOSPACE and no CORRUPT alarm is known.", of_other_kinds(&others).trim_start());
        return Finding::unknown(TYPE, &UnknownCause::Unsupported, Severity::Warn, at, message).advice(
            "Look the kind of alarm up in the documentation of this etcd version and see its log (etcdctl alarm list names \
             the member). Do not clear the alarm and do not restart before its cause is known.",
        );
    }
    // Nothing alarmed in what was read; an alarm list that was not read could still hold one.
    if let Some(unknown) = unread(TYPE, "The list of alarms", &etcd.alarms, Severity::Warn) {
        return unknown;
    }
    let worst = spaces.iter().max_by(|a, b| {
        let rank = |s: &Space<'_>| s.used_percent().max(s.size_percent());
        rank(a).total_cmp(&rank(b))
    });
    match worst {
        Some(worst) => {
            let finding = without_alarm(worst, at, limits);
            let largest = spaces.iter().max_by_key(|s| (s.free.is_some_and(|free| free < s.size), s.size));
            let finding = match (&finding.severity, largest.and_then(|s| large(s, at))) {
                (Severity::Ok, Some(large)) => large,
                _ => finding,
            };
            finding.waits(RAISE, CLEAR)
        }
        None => {
            let cause = etcd.endpoints.iter().find_map(|e| match &e.status {
                Fact::Unknown { cause, .. } => Some(cause.clone()),
                _ => None,
            });
            let message = match etcd.endpoints.len() {
                0 => "No alarm is known; no endpoint is known that could tell its size.".to_owned(),
                n => format!("No alarm is known; none of {n} endpoints told its size."),
            };
            Finding::unknown(TYPE, &cause.unwrap_or(UnknownCause::Unavailable), Severity::Warn, at, message)
        }
    }
}

/// To follow a sentence: alarms of kinds that a newer etcd may have.
fn of_other_kinds(kinds: &[&str]) -> String {
    if kinds.is_empty() {
        return String::new();
    }
    format!(" An alarm of a kind that is not known here is set: {}.", names(kinds, 7))
}

fn no_space_alarm(
    etcd: &EtcdFacts,
    alarmed: &Alarmed,
    spaces: &[Space<'_>],
    at: Timestamp,
    limits: &Thresholds,
) -> Finding {
    let (ids, who) = (&alarmed.ids, alarmed.who(etcd));
    let of_members = match etcd.members.value().map_or(0, |l| l.members.len()) {
        members if members == 0 || ids.is_empty() => String::new(),
        members => format!(" ({} of {members} members)", ids.len()),
    };
    let set = format!("A NOSPACE alarm is set on {who}{of_members}");
    let new =
        |reason, message: String| Finding::new(TYPE, Status::False, Severity::Error, reason, at, message);

    // The fullest of the alarmed members tells the cure; when none of them answers, the fullest of all.
    let fullest = |of_alarmed: bool| {
        let candidates = spaces.iter().filter(|s| !of_alarmed || ids.iter().any(|id| id == s.id));
        candidates.max_by(|a, b| a.size_percent().total_cmp(&b.size_percent()))
    };
    let Some(space) = fullest(true).or_else(|| fullest(false)) else {
        let message = format!("{set}: writes are refused for the whole cluster. No member told its size.");
        return new(R::EtcdNoSpace, message).advice(
            "Do not restart etcd. Read size and in-use size of each member (etcdctl endpoint status) before choosing a \
             cure.",
        );
    };
    let numbers = space.numbers();
    let used_up = space.used_percent() > limits.etcd_space_warn_percent;
    let has_room = |s: &Space<'_>| s.size_percent() < SIZE_NEAR_PERCENT;
    let all_told = !ids.is_empty() && ids.iter().all(|id| spaces.iter().any(|s| s.id == id));

    let refused = "writes are refused for the whole cluster although health checks may pass";

    // The alarm is the one sign that the quota may be smaller than one that the alarmed member did not tell itself, be it
    // the default or another member's, by which there would be room.
    let assumed = spaces
        .iter()
        .filter(|s| s.quota_is_assumed())
        .filter(|s| ids.is_empty() || ids.iter().any(|id| id == s.id));
    let assumed = names(assumed.map(|s| s.name), 7);
    // One of the alarmed that told its own is enough to say that there it is left over; the others are named.
    let told_itself = spaces.iter().any(|s| !s.quota_is_assumed() && ids.iter().any(|id| id == s.id));
    if !assumed.is_empty() && !told_itself && spaces.iter().all(has_room) && !used_up {
        let by = match space.quota_as_on {
            Some(other) => format!("that of {other}"),
            None => "the default".to_owned(),
        };
        let message = format!(
            "{set}: {refused}; the quota of {assumed} is not known here, and by {by} there is room. {numbers}."
        );
        return new(R::EtcdNoSpace, message).advice(format!(
            "Do not restart etcd. First look up the quota of {assumed} (--quota-backend-bytes, metric \
             etcd_server_quota_backend_bytes). Where the file is near it and little of \
             it is in use, a person defragments one member after the other{}, then clears the alarm; where most is in use, \
             objects are removed and compacted or the quota made larger before that. Where there is room by it, only the \
             alarm is left over.",
            defrag_needs(space)
        ));
    }
    if all_told && spaces.iter().all(has_room) && !used_up {
        let message =
            format!("{set} although space is back ({numbers}): writes stay refused for the whole cluster.");
        let first = if assumed.is_empty() {
            String::new()
        } else {
            format!(
                " First look up the quota of {assumed}, which is not known here (metric etcd_server_quota_backend_bytes): where it \
                 is smaller, space is not back there."
            )
        };
        return new(R::EtcdAlarmLeftOver, message).advice(format!(
            "The alarm is still set on {who}; a person clears it (etcdctl alarm disarm). Outrider does not, and a restart \
             does not help.{first}"
        ));
    }
    match space.freeable() {
        Some(freed) if !used_up => new(
            R::EtcdNoSpace,
            format!("{set}: {refused}. {numbers}; defragmentation frees about {}.", Bytes(freed)),
        )
        .advice(format!(
            "Do not restart etcd. A person defragments one member after the other{}, then clears the alarm.",
            defrag_needs(space)
        )),
        Some(freed) => new(
            R::EtcdNoSpace,
            format!("{set}: {refused}. {numbers}; defragmentation frees only about {}.", Bytes(freed)),
        )
        .advice(format!(
            "Do not restart etcd; defragmentation alone does not help. A person removes objects and compacts, or raises \
             the quota; then defragments{}; then clears the alarm, in this order.",
            defrag_needs(space)
        )),
        None => new(R::EtcdNoSpace, format!("{set}: {refused}. {numbers}.")).advice(
            "Do not restart etcd. Find out how much of the file is in use (metric \
             etcd_mvcc_db_total_size_in_use_in_bytes): near the quota, remove objects and compact or raise the quota \
             first; else defragment; then clear the alarm.",
        ),
    }
}

fn without_alarm(space: &Space<'_>, at: Timestamp, limits: &Thresholds) -> Finding {
    let new =
        |status, severity, reason, message: String| Finding::new(TYPE, status, severity, reason, at, message);
    let numbers = space.numbers();
    if space.quota_is_default && space.size_percent() > PROOF_OF_OTHER_QUOTA_PERCENT {
        let message = format!(
            "No alarm is set. {} has {}, more than the default quota of {}, so another quota is in force that this etcd \
             does not report.",
            space.name,
            Bytes(space.size),
            Bytes(DEFAULT_QUOTA)
        );
        return new(Status::Unknown, Severity::Info, R::EtcdQuotaUnknown, message).advice(format!(
            "Look up --quota-backend-bytes of {} and hold {} against it.",
            space.name,
            Short(space.size)
        ));
    }
    if space.in_use.is_some() && space.used_percent() > limits.etcd_space_warn_percent {
        let message = format!("No alarm is set, but the quota is nearly used up. {numbers}.");
        return new(Status::True, Severity::Warn, R::EtcdSpaceLow, message).advice(format!(
            "Defragmentation will not help: it frees {}. Find what fills {} (events, secrets, custom resources), remove \
             objects and compact, or raise the quota of {}, before the alarm stops all writes of the cluster.",
            space.freeable().map_or("nothing".to_owned(), |n| format!("about {}", Short(n))),
            space.name,
            Short(space.quota)
        ));
    }
    if space.size_percent() > SIZE_NEAR_PERCENT {
        let frees = space
            .freeable()
            .map(|n| format!("; defragmentation frees about {}", Bytes(n)))
            .unwrap_or_default();
        let message = format!("No alarm is set, but the file is near its quota. {numbers}{frees}.");
        return new(Status::True, Severity::Warn, R::EtcdSpaceLow, message).advice(match space.freeable() {
            Some(_) => format!("A person defragments one member after the other{}.", defrag_needs(space)),
            None => "Find out how much of the file is in use before choosing between defragmentation and a higher quota."
                .to_owned(),
        });
    }
    new(Status::True, Severity::Ok, R::EtcdSpaceFree, format!("No alarm is set. {numbers}."))
}

/// A file so large that its copies take long, or for whose copy there is no room (D20).
fn large(space: &Space<'_>, at: Timestamp) -> Option<Finding> {
    if space.size <= LARGE {
        return None;
    }
    let cramped = space.free.is_some_and(|free| free < space.size);
    let severity = if cramped { Severity::Warn } else { Severity::Info };
    let room = match space.free {
        Some(free) => format!("; {} has {} free", space.folder, Short(free)),
        None => String::new(),
    };
    let long = if space.duration() > DEFRAG_LIMIT {
        format!(", more than the {} that K3s and RKE2 give it at their start", Span(DEFRAG_LIMIT))
    } else {
        String::new()
    };
    let message = format!(
        "No alarm is set. {}: above 1 GB a snapshot and the defragmentation at the server's start take long, about {}{long}, \
         and need about {} of free disk{room}.",
        space.numbers(),
        Span(space.duration()),
        Short(space.size)
    );
    let advice = if cramped {
        format!(
            "Make room at {} before {}'s server is started again or a snapshot is taken: a copy of the database needs {}.",
            space.folder,
            space.name,
            Short(space.size)
        )
    } else {
        format!(
            "Start servers one at a time and wait for each, for {} is away for about {} then. Find what fills the database; \
             remove objects and compact.",
            space.name,
            Span(space.duration())
        )
    };
    let finding = Finding::new(TYPE, Status::True, severity, R::EtcdDatabaseLarge, at, message);
    Some(finding.advice(advice))
}

/// What a defragmentation needs, to follow the word.
fn defrag_needs(space: &Space<'_>) -> String {
    let room = match space.free {
        Some(free) if free < space.size => {
            format!("; {} has only {} free, so make room first", space.folder, Short(free))
        }
        Some(free) => format!("; {} has {} free", space.folder, Short(free)),
        None => String::new(),
    };
    let long = if space.size > LARGE {
        format!(
            "; about {} at this size, longer on a slow disk, in which that member does not answer",
            Span(space.duration())
        )
    } else {
        String::new()
    };
    format!(" (each needs up to {} of free disk{room}{long})", Short(space.size))
}
