//! No alarm is set: how much room is left, and for how long.

use std::time::Duration;

use outrider_protocol::{ReasonCode as R, Severity, Status, Thresholds, Timestamp};

use super::TYPE;
use super::figures::{DEFAULT_QUOTA, Quota, SIZE_NEAR_PERCENT, Space};
use super::weighed::{Cure, Takes};
use crate::candidate::badness;
use crate::finding::Finding;
use crate::wording::{Bytes, Short, Span, names, percent};

/// Above this size a snapshot and a defragmentation take long enough to be felt (D20, rancher/rke2#6385).
pub(in crate::rules::etcd) const LARGE: u64 = 1_000_000_000;
/// K3s and RKE2 defragment at their start and give it this long (k3s-io/k3s:pkg/etcd/etcd.go, k3s-io/k3s#11122).
const DEFRAG_LIMIT: Duration = Duration::from_secs(30);
/// What etcd's guide suggests as the largest quota for normal environments (etcd.io, "System limits").
const LARGEST_SUGGESTED: u64 = 8 * 1024 * 1024 * 1024;
const NAMED: usize = 7;
/// etcd looks at the size before every write, and sets the alarm where there is no room for it
/// (etcd-io/etcd:server/storage/quota.go).
const OVER: &str =
    "No alarm is set yet, but the file is not below its quota: the next write sets the alarm and is refused";

/// The gravest that is to be said of a member, and behind it what cannot be told of others; `None` when none told a size.
pub(super) fn judge(spaces: &[Space<'_>], at: Timestamp, limits: &Thresholds) -> Option<Cure> {
    let nothing = |finding| Cure { finding, takes: Takes::Nothing };
    let unknown_quota = quota_unknown(spaces, at);
    let known = spaces.iter().filter(|s| s.disproved().is_none());
    let found = known.map(|s| (one(s, spaces.len() == 1, at, limits), s.fullness()));
    let fullest = found.max_by(|(f, full), (g, fuller)| {
        let (f, g) = (&f.finding, &g.finding);
        f.severity.cmp(&g.severity).then(full.total_cmp(fuller)).then(rank(f).cmp(&rank(g)))
    });
    match (fullest.map(|(cure, _)| cure), unknown_quota) {
        // A full file of one is worse than a doubt about another; to know that one has room does not end the doubt.
        (Some(mut known), Some(unknown)) if known.finding.severity >= Severity::Warn => {
            known.finding.message.push_str(&format!(" Also: {}", unknown.message));
            Some(known)
        }
        (_, Some(unknown)) => Some(nothing(unknown)),
        (Some(cure), None) => {
            let largest = spaces.iter().max_by_key(|s| (s.free.is_some_and(|free| free < s.size), s.size));
            let large = largest.and_then(|s| large(s, at)).filter(|_| cure.finding.severity == Severity::Ok);
            Some(large.map_or(cure, nothing))
        }
        (None, None) => None,
    }
}

fn rank(finding: &Finding) -> (Severity, u8) {
    badness(finding.status, finding.severity)
}

/// Members whose file is larger than the quota that would be assumed, though no alarm is set: what theirs is nobody told.
fn quota_unknown(spaces: &[Space<'_>], at: Timestamp) -> Option<Finding> {
    let unknown: Vec<(&Space<'_>, u64)> =
        spaces.iter().filter_map(|s| s.disproved().map(|assumed| (s, assumed))).collect();
    let (largest, assumed) = unknown.iter().max_by_key(|(s, _)| s.size)?;
    // Just above: either the next write sets the alarm, or another quota is in force.
    let overshoot = largest.size <= *assumed + assumed / 20;
    let severity = if overshoot { Severity::Warn } else { Severity::Info };
    let whose = match largest.quota {
        Quota::AsOn(other, _) => format!("the quota of {other}"),
        _ => "the default quota".to_owned(),
    };
    let which = if overshoot {
        "so either the next write sets the alarm, or another quota is in force that this etcd does not report"
    } else {
        "so another quota is in force that this etcd does not report"
    };
    let in_use = match largest.in_use {
        Some(used) => format!(", in use {}", Bytes(used)),
        None => "; in-use size not reported".to_owned(),
    };
    let others = match names(unknown.iter().filter(|(s, _)| s.id != largest.id).map(|(s, _)| s.name), NAMED) {
        none if none.is_empty() => String::new(),
        others => format!(" The same holds for {others}."),
    };
    let message = format!(
        "No alarm is set. {} has {}{in_use}: more than {whose}, {}, {which}.{others}",
        largest.name,
        Bytes(largest.size),
        Bytes(*assumed)
    );
    let finding = Finding::new(TYPE, Status::Unknown, severity, R::EtcdQuotaUnknown, at, message);
    Some(finding.advice(format!(
        "Look up --quota-backend-bytes of {} (metric etcd_server_quota_backend_bytes) and hold {} against it: from 80 % on \
         objects are to be removed and compacted, or the quota made larger.",
        names(unknown.iter().map(|(s, _)| s.name), NAMED),
        Short(largest.size)
    )))
}

/// `alone` is whether nobody else told a size.
fn one(space: &Space<'_>, alone: bool, at: Timestamp, limits: &Thresholds) -> Cure {
    // No write is left to be warned of.
    let (status, severity) =
        if space.is_over() { (Status::False, Severity::Error) } else { (Status::True, Severity::Warn) };
    let low = |takes, message: String, advice: String| {
        let finding = Finding::new(TYPE, status, severity, R::EtcdSpaceLow, at, message);
        Cure { finding: finding.advice(advice), takes }
    };
    let numbers = space.numbers();
    let Some(limit) = space.limit() else { return without_quota(space, at) };
    if space.in_use.is_some() && space.is_used_up(limits.etcd_space_warn_percent) {
        let message = match space.is_over() {
            true => format!("{OVER}, and most of it is in use. {numbers}."),
            false => format!("No alarm is set, but the quota is nearly used up. {numbers}."),
        };
        let advice = format!(
            "Defragmentation will not help: it frees {}. Find what fills {} (events, secrets, custom resources), remove \
             objects and compact, or raise the quota of {}, before the alarm stops all writes of the cluster.",
            space.freeable().map_or("nothing".to_owned(), |n| format!("about {}", Short(n))),
            space.name,
            Short(limit)
        );
        return low(Takes::AtLast, message, advice);
    }
    if space.is_near() {
        let frees = space
            .freeable()
            .map(|n| format!("; defragmentation frees about {}", Bytes(n)))
            .unwrap_or_default();
        let message = match space.is_over() {
            true => format!("{OVER}. {numbers}{frees}."),
            false => format!("No alarm is set, but the file is near its quota. {numbers}{frees}."),
        };
        let takes = if space.freeable().is_some() { Takes::AtOnce } else { Takes::AtLast };
        let advice = match space.freeable() {
            Some(_) if alone => format!("A person defragments {}{}.", space.name, defrag_needs(space, false)),
            Some(_) => format!(
                "A person defragments one member after the other, {} first{}.",
                space.name,
                defrag_needs(space, true)
            ),
            None => format!(
                "Find out how much of the {} of {} is in use (metric etcd_mvcc_db_total_size_in_use_in_bytes) before \
                 choosing between defragmentation and a quota above {}.",
                Short(space.size),
                space.name,
                Short(limit)
            ),
        };
        return low(takes, message, advice);
    }
    let message = format!("No alarm is set. {numbers}.");
    let finding = Finding::new(TYPE, Status::True, Severity::Ok, R::EtcdSpaceFree, at, message);
    Cure { finding, takes: Takes::Nothing }
}

/// etcd has no quota there: nothing stops the file before the file system is full, and etcd ends at a write that fails.
fn without_quota(space: &Space<'_>, at: Timestamp) -> Cure {
    let cramped = space.free.is_some_and(|free| free < space.size);
    let severity = if cramped { Severity::Warn } else { Severity::Info };
    let room = match space.free {
        Some(free) => format!(": {} has {} free", space.folder, Bytes(free)),
        None => ", whose room was not read from here".to_owned(),
    };
    let message = format!(
        "No alarm is set, and none would come. {}: the file grows until its file system is full{room}.",
        space.numbers()
    );
    let make_room = match space.free {
        Some(free) if cramped => format!(
            "Make room at {} now: {} is less than the {} that a snapshot or a defragmentation needs. ",
            space.folder,
            Short(free),
            Short(space.size)
        ),
        _ => String::new(),
    };
    // A quota that the file has nearly reached would set the alarm at once.
    let shrink = if percent(space.size, LARGEST_SUGGESTED) > SIZE_NEAR_PERCENT {
        format!(
            "first make the file of {} much smaller than {}: remove objects and compact, then defragment{}. Then ",
            space.name,
            Short(LARGEST_SUGGESTED),
            defrag_needs(space, false)
        )
    } else {
        String::new()
    };
    let finding = Finding::new(TYPE, Status::True, severity, R::EtcdQuotaOff, at, message).advice(format!(
        "{make_room}If that is not meant, {shrink}set --quota-backend-bytes of {} well above {} (default {}, at most {} \
         suggested): then etcd refuses writes, which can be cured, before the disk is full, at which it ends.",
        space.name,
        if shrink.is_empty() { Short(space.size).to_string() } else { "what is left".to_owned() },
        Short(DEFAULT_QUOTA),
        Short(LARGEST_SUGGESTED)
    ));
    // Room on the disk is made at once, whatever the quorum.
    Cure { finding, takes: if cramped { Takes::Nothing } else { Takes::AtLast } }
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

/// What a defragmentation needs, to follow the word; of several members each.
pub(super) fn defrag_needs(space: &Space<'_>, several: bool) -> String {
    let each = if several { "each needs" } else { "it needs" };
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
    format!(" ({each} up to {} of free disk{room}{long})", Short(space.size))
}
