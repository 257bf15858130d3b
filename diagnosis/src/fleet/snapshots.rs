//! `EtcdSnapshots` over the whole cluster: one recent snapshot anywhere will do, but not on one disk alone.

use outrider_protocol::{Fact, NewestSnapshot, ReasonCode as R, Severity, Snapshots, Status, Timestamp};

use super::{Joined, NAMED, View};
use crate::finding::Finding;
use crate::rules::etcd::snapshots::{
    CLEAR, CLOCKS_APART, RAISE, STALE_AFTER, TYPE, newest_words, of_the_future,
};
use crate::wording::{Count, Span, names};

/// The newest snapshot and whose it is.
pub(super) struct Newest<'a> {
    pub(super) node: &'a str,
    pub(super) snapshots: &'a Snapshots,
    pub(super) at: Timestamp,
}

impl Newest<'_> {
    pub(super) fn words(&self) -> String {
        format!("{} of {}", newest_words(self.snapshots).unwrap_or_default(), self.node)
    }
}

fn told<'v, 'a>(joined: &'v Joined<'a>) -> impl Iterator<Item = (&'v View<'a>, &'a Snapshots)> {
    joined.group.iter().filter_map(|v| Some((v, v.etcd.snapshots.as_ref()?.value()?)))
}

/// What is known of the newest one, in words; also that others may lie where nobody looked.
pub(super) fn known_words(joined: &Joined<'_>) -> Option<String> {
    let unseen = || {
        let (view, _) = told(joined).find(|(_, s)| s.object_storage)?;
        Some(format!(
            "none on the nodes; object storage, where {} sends them as well, was not looked at",
            view.node
        ))
    };
    newest(joined).map(|newest| newest.words()).or_else(unseen)
}

pub(super) fn newest<'a>(joined: &Joined<'a>) -> Option<Newest<'a>> {
    // By our clock, for a machine dates its files by its own: what is still to come then was dated by a clock before this.
    let all = told(joined).filter_map(|(v, s)| {
        let at = s.newest.as_ref()?.at;
        Some(Newest { node: v.node, snapshots: s, at: v.dated(at) })
    });
    // From an empty file nothing can be restored: any other is better.
    all.max_by_key(|n| (!is_empty(n.snapshots), n.at))
}

/// Whether the newest of a node is an empty file.
fn is_empty(snapshots: &Snapshots) -> bool {
    snapshots.newest.as_ref().is_some_and(|newest| newest.size_bytes == 0)
}

/// The newest snapshot as data.
pub(super) fn as_data(joined: &Joined<'_>) -> Option<NewestSnapshot> {
    let newest = newest(joined)?;
    let file = newest.snapshots.newest.as_ref()?;
    Some(NewestSnapshot {
        node: newest.node.to_owned(),
        folder: newest.snapshots.folder.clone(),
        name: file.name.clone(),
        at: file.at,
        size_bytes: file.size_bytes,
        nodes: u32::try_from(told(joined).filter(|(_, s)| s.newest.is_some()).count()).unwrap_or(u32::MAX),
        object_storage: told(joined).any(|(_, s)| s.object_storage),
    })
}

pub(super) fn judge(joined: &Joined<'_>) -> Option<Finding> {
    let looks: Vec<(&str, &Fact<Snapshots>)> = joined
        .group
        .iter()
        .filter_map(|v| Some((v.node, v.etcd.snapshots.as_ref()?)))
        .filter(|(_, fact)| !matches!(fact, Fact::NotApplicable { .. }))
        .collect();
    // Where no agent looks, or none has a place to look at, there is nothing to judge.
    (!looks.is_empty()).then(|| found(joined, &looks).waits(RAISE, CLEAR))
}

fn found(joined: &Joined<'_>, looks: &[(&str, &Fact<Snapshots>)]) -> Finding {
    let (at, now) = (joined.at, joined.now);
    let new =
        |status, severity, reason, message: String| Finding::new(TYPE, status, severity, reason, at, message);
    let known = || looks.iter().filter_map(|(node, fact)| Some((*node, fact.value()?)));
    let unread: Vec<String> = looks
        .iter()
        .filter_map(|(node, fact)| match fact {
            Fact::Unknown { cause, .. } => Some(format!("{node} ({cause})")),
            _ => None,
        })
        .collect();
    let empty = known().filter(|(_, s)| is_empty(s));
    let empty: Vec<&str> = empty.map(|(node, _)| node).collect();
    let mut also = String::new();
    if !unread.is_empty() {
        also.push_str(&format!("; not read on {}", names(&unread, NAMED)));
    }
    if !empty.is_empty() {
        also.push_str(&format!("; the newest of {} is an empty file", names(&empty, NAMED)));
    }
    let Some(newest) = newest(joined) else {
        return without(joined, looks, &unread);
    };
    let words = newest.words();
    let holders: Vec<&str> = known().filter(|(_, s)| s.newest.is_some()).map(|(node, _)| node).collect();
    let off_node = known().any(|(_, s)| s.object_storage);
    let kept = format!(
        "{} hold{} any: {}",
        Count(holders.len(), "node"),
        if holders.len() == 1 { "s" } else { "" },
        names(&holders, NAMED)
    );
    let storage = if off_node {
        "; the configuration sends them to object storage as well, which was not looked at"
    } else {
        ""
    };
    if newest.at > now.after(CLOCKS_APART) {
        return of_the_future(&words, newest.at.since(now), at);
    }
    if is_empty(newest.snapshots) {
        let message = format!(
            "The newest etcd snapshot of every node that has one is an empty file, from which nothing can be restored: {words}; \
             {kept}{storage}{also}."
        );
        return new(Status::False, Severity::Warn, R::EtcdSnapshotsMissing, message).advice(format!(
            "See whether {} has room and the log of {} for \"snapshot\"; keep the older ones until a whole one was taken.",
            newest.snapshots.folder,
            names(&holders, NAMED)
        ));
    }
    if now.since(newest.at) > STALE_AFTER {
        let message = format!(
            "The newest etcd snapshot of the cluster is {} old: {words}; limit {}; {kept}{storage}{also}.",
            Span(now.since(newest.at)),
            Span(STALE_AFTER)
        );
        let takers: Vec<&str> = known().filter(|(_, s)| !s.schedule_disabled).map(|(node, _)| node).collect();
        let advice = if takers.is_empty() {
            "Scheduled snapshots are switched off on every node that was looked at: let one server at least take them."
                .to_owned()
        } else {
            format!(
                "See the log of {} for \"snapshot\" since {}, and whether {} has room.",
                names(&takers, NAMED),
                newest.at,
                newest.snapshots.folder
            )
        };
        return new(Status::False, Severity::Warn, R::EtcdSnapshotsStale, message).advice(advice);
    }
    let message = format!("The newest etcd snapshot is {words}; {kept}{storage}{also}.");
    if let ([only], false) = (holders.as_slice(), off_node) {
        return new(Status::True, Severity::Info, R::EtcdSnapshotsOnOneNode, message).advice(format!(
            "Every known snapshot is lost with the disk of {only}, on which its member lies too: send them to object storage \
             (etcd-s3), copy them away, or let another server take them as well."
        ));
    }
    new(Status::True, Severity::Ok, R::EtcdSnapshotsFresh, message)
}

/// No snapshot is known: none is there, all are switched off, or nobody could look.
fn without(joined: &Joined<'_>, looks: &[(&str, &Fact<Snapshots>)], unread: &[String]) -> Finding {
    let at = joined.at;
    if !unread.is_empty() {
        let cause = looks.iter().find_map(|(_, fact)| match fact {
            Fact::Unknown { cause, .. } => Some(cause.clone()),
            _ => None,
        });
        let message =
            format!("Whether there is an etcd snapshot is unknown: not read on {}.", names(unread, NAMED));
        let cause = cause.unwrap_or(outrider_protocol::UnknownCause::IoError);
        return Finding::unknown(TYPE, &cause, Severity::Warn, at, message);
    }
    let nodes = names(looks.iter().map(|(node, _)| *node), NAMED);
    let disabled = looks.iter().all(|(_, fact)| fact.value().is_some_and(|s| s.schedule_disabled));
    let sends = |(node, fact): &(&'_ str, &Fact<Snapshots>)| {
        fact.value().is_some_and(|s| s.object_storage).then(|| (*node).to_owned())
    };
    let senders: Vec<String> = looks.iter().filter_map(sends).collect();
    if disabled {
        let message = if senders.is_empty() {
            format!("There is no etcd snapshot, and scheduled snapshots are switched off on {nodes}.")
        } else {
            format!(
                "No etcd snapshot lies on any of {nodes}, and scheduled snapshots are switched off there; object storage, which \
                 the configuration of {} names, was not looked at.",
                names(&senders, NAMED)
            )
        };
        return Finding::new(TYPE, Status::False, Severity::Warn, R::EtcdSnapshotsDisabled, at, message).advice(format!(
            "Switch scheduled snapshots on (etcd-disable-snapshots) on one of {nodes} at least: without a snapshot nothing \
             brings the cluster back once its quorum is gone for good."
        ));
    }
    if !senders.is_empty() {
        let senders = names(&senders, NAMED);
        let message = format!(
            "Whether there is an etcd snapshot is not known: none lies on any of {nodes}, and the configuration of {senders} sends \
             them to object storage, which was not looked at."
        );
        return Finding::new(TYPE, Status::Unknown, Severity::Warn, R::EtcdSnapshotsUnseen, at, message).advice(format!(
            "List what lies there (etcd-snapshot list of rke2 or k3s on {senders}, or the bucket itself): the newest should be \
             younger than {}.",
            Span(STALE_AFTER)
        ));
    }
    let message = format!("There is no etcd snapshot on any of {nodes}.");
    Finding::new(TYPE, Status::False, Severity::Warn, R::EtcdSnapshotsMissing, at, message).advice(format!(
        "A cluster younger than 12 h has none yet. An older one should: see the log of {nodes} for \"snapshot\", whether the \
         folder has room, and whether etcd-snapshot-dir points elsewhere."
    ))
}
