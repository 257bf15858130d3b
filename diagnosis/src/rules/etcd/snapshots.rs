//! `EtcdSnapshots`: how old the newest snapshot is and where it lies.
//!
//! RKE2 and K3s take one at 00:00 and 12:00 and keep five, each server on its own disk (docs.rke2.io, "Backup and
//! Restore"); RKE1 takes one in twelve hours too. So a newest one older than two rounds is one that was missed.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EtcdFacts, Fact, ReasonCode as R, Severity, SnapshotFile, Snapshots, Status, Timestamp,
    UnknownCause,
};

use crate::finding::Finding;
use crate::rules::unread;
use crate::wording::{Count, Moment, Short, Span};

pub(crate) const TYPE: ConditionType = ConditionType::EtcdSnapshots;
/// Two rounds of the default schedule, and an hour for the taking.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(25 * 3600);
/// Clocks of two machines may differ by this much.
pub(crate) const CLOCKS_APART: Duration = Duration::from_secs(300);
/// A round may end while it is looked at.
pub(crate) const RAISE: Duration = Duration::from_secs(300);
pub(crate) const CLEAR: Duration = Duration::ZERO;

pub(super) fn judge(etcd: &EtcdFacts, at: Timestamp, now: Timestamp) -> Option<Finding> {
    let fact = etcd.snapshots.as_ref()?;
    match fact {
        Fact::Known { value, .. } => Some(one_node(value, at, now).waits(RAISE, CLEAR)),
        Fact::Absent { source, .. } => Some(missing(source, at).waits(RAISE, CLEAR)),
        Fact::NotApplicable { .. } => None,
        Fact::Unknown { .. } => unread(TYPE, "The folder of etcd snapshots", fact, Severity::Warn),
    }
}

/// "NAME (12.0 MB) of 2026-11-29 12:00 UTC, in FOLDER": the time and no age, so that nothing is news while nothing happens.
pub(crate) fn newest_words(snapshots: &Snapshots) -> Option<String> {
    let newest = snapshots.newest.as_ref()?;
    let (at, size) = (Moment(newest.at), Short(newest.size_bytes));
    Some(format!("{} ({size}) of {at}, in {}", newest.name, snapshots.folder))
}

/// The newest one, unless nothing can be restored from it.
fn usable(snapshots: &Snapshots) -> Option<&SnapshotFile> {
    snapshots.newest.as_ref().filter(|newest| newest.size_bytes > 0)
}

/// The newest file that has a snapshot's name and is none.
fn broken(snapshots: &Snapshots) -> Option<&SnapshotFile> {
    snapshots.too_small.as_ref().or(snapshots.newest.as_ref().filter(|newest| newest.size_bytes == 0))
}

/// What is known of the newest one where a person has to know it: also that others may lie where nobody looked. One from
/// which nothing can be restored is not offered.
pub(crate) fn known_words(snapshots: &Snapshots) -> Option<String> {
    let folder = &snapshots.folder;
    if usable(snapshots).is_some() {
        return newest_words(snapshots);
    }
    let unseen = match snapshots.object_storage {
        true => "; object storage, where they go as well, was not looked at",
        false => "",
    };
    match broken(snapshots) {
        Some(broken) => {
            Some(format!("none that can be used is known in {folder}: {}{unseen}", is_none(broken)))
        }
        None if snapshots.object_storage => Some(format!("none in {folder}{unseen}")),
        None => None,
    }
}

/// Why a file is no snapshot, in words that follow a colon.
fn is_none(file: &SnapshotFile) -> String {
    match file.size_bytes {
        0 => format!("{} is empty", file.name),
        size => format!("{} has only {}", file.name, Short(size)),
    }
}

fn one_node(snapshots: &Snapshots, at: Timestamp, now: Timestamp) -> Finding {
    let folder = &snapshots.folder;
    let elsewhere = if snapshots.object_storage {
        "; the configuration sends them to object storage as well, which was not looked at"
    } else {
        ""
    };
    let new =
        |status, severity, reason, message: String| Finding::new(TYPE, status, severity, reason, at, message);
    if let Some(broken) = broken(snapshots) {
        let other = match (usable(snapshots), newest_words(snapshots)) {
            (Some(_), Some(words)) => format!("the newest that can be used is {words}"),
            _ => "no other was seen".to_owned(),
        };
        let message = format!(
            "The newest etcd snapshot is none from which anything can be restored: {} ({}); {other}{elsewhere}.",
            is_none(broken),
            Moment(broken.at)
        );
        return new(Status::False, Severity::Warn, R::EtcdSnapshotsMissing, message).advice(format!(
            "See whether {folder} has room (df {folder}) and the server's log for \"snapshot\" at {}; keep the older ones until \
             a whole one was taken.",
            broken.at
        ));
    }
    let (Some(newest), Some(words)) = (&snapshots.newest, newest_words(snapshots)) else {
        if snapshots.schedule_disabled {
            let message = format!(
                "No etcd snapshot lies in {folder}: scheduled snapshots are switched off on this node{elsewhere}."
            );
            return new(Status::True, Severity::Info, R::EtcdSnapshotsDisabled, message).advice(
                "Fine where another server of the cluster takes them; the verdict over the cluster says whether one does.",
            );
        }
        return if snapshots.object_storage { unseen(folder, at) } else { missing(folder, at) };
    };
    if newest.at > now.after(CLOCKS_APART) {
        return of_the_future(&words, newest.at.since(now), at);
    }
    let age = now.since(newest.at);
    let kept = Count(usize::try_from(snapshots.count).unwrap_or(usize::MAX), "snapshot");
    if age > STALE_AFTER {
        let message = format!(
            "The newest etcd snapshot is {} old: {words}; limit {}; {kept} kept{elsewhere}.",
            Span(age),
            Span(STALE_AFTER)
        );
        if snapshots.schedule_disabled {
            return new(Status::True, Severity::Info, R::EtcdSnapshotsDisabled, message).advice(
                "Scheduled snapshots are switched off on this node. Fine where another server of the cluster takes them; \
                 the verdict over the cluster says whether one does.",
            );
        }
        return new(Status::False, Severity::Warn, R::EtcdSnapshotsStale, message).advice(format!(
            "See the server's log for \"snapshot\" since {}, and whether {folder} has room and the schedule \
             (etcd-snapshot-schedule-cron) is the one you want.",
            newest.at
        ));
    }
    let message = format!("The newest etcd snapshot is {words}; {kept} kept{elsewhere}.");
    new(Status::True, Severity::Ok, R::EtcdSnapshotsFresh, message)
}

/// A date that is still to come tells no age.
pub(crate) fn of_the_future(words: &str, ahead: Duration, at: Timestamp) -> Finding {
    let message = format!(
        "How old the newest etcd snapshot is cannot be told: {words}, {} ahead of the clock here.",
        Span(ahead)
    );
    Finding::unknown(TYPE, &UnknownCause::InvalidInput, Severity::Warn, at, message)
        .advice("Compare the clocks of the machines (ClockSynchronized); the next snapshot is dated rightly once they agree.")
}

/// Nothing lies on the node, and whether anything lies in object storage nobody looked: unknown, not missing.
fn unseen(folder: &str, at: Timestamp) -> Finding {
    let message = format!(
        "Whether there is an etcd snapshot is not known: none lies in {folder}, and the configuration sends them to object \
         storage, which was not looked at."
    );
    Finding::new(TYPE, Status::Unknown, Severity::Warn, R::EtcdSnapshotsUnseen, at, message).advice(format!(
        "List what lies there (etcd-snapshot list of rke2 or k3s on this node, or the bucket itself): the newest should be \
         younger than {}. A copy is kept in {folder} as well unless etcd-snapshot-retention or a clean-up took it: if the server \
         is older than 12 h, see its log for \"snapshot\".",
        Span(STALE_AFTER)
    ))
}

fn missing(folder: &str, at: Timestamp) -> Finding {
    let message = format!("There is no etcd snapshot at {folder}.");
    Finding::new(TYPE, Status::False, Severity::Warn, R::EtcdSnapshotsMissing, at, message).advice(format!(
        "A server younger than 12 h has none yet. An older one should: see its log for \"snapshot\", whether {folder} has \
         room, and whether etcd-snapshot-dir points elsewhere."
    ))
}
