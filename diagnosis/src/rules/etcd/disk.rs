//! `EtcdDisk`: fsync latency over the last minutes (`facts/etcd.md`, section 5).
//!
//! Histograms count since the process started; only the difference of two scrapes shows what the disk does now.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EtcdFacts, EtcdMetrics, EtcdScrape, Fact, ReasonCode as R, Severity, Status, Thresholds,
    Timestamp,
};

use super::histogram::{Difference, LAST_MINUTES};
use super::links::{self, Network};
use super::view::election_timeout;
use crate::finding::Finding;
use crate::rules::unread;
use crate::wording::{Percent, Span, percent};

const TYPE: ConditionType = ConditionType::EtcdDisk;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(120);

/// Fewer writes give no 99th percentile worth a word.
const ENOUGH_WRITES: u64 = 20;

pub(super) fn judge(etcd: &EtcdFacts, at: Timestamp, now: Timestamp, limits: &Thresholds) -> Finding {
    match &etcd.metrics {
        Fact::Known { value, at, .. } if now.since(value.latest.at) > LAST_MINUTES => {
            let age = now.since(value.latest.at);
            unmeasured(
                *at,
                &format!("the last scrape is {} old, more than {}", Span(age), Span(LAST_MINUTES)),
            )
        }
        Fact::Known { value, at, .. } => match &value.earlier {
            Some(earlier) => compare(etcd, earlier, value, limits, *at),
            None => unmeasured(*at, "only one scrape has been made; the next one shows a rate"),
        },
        other => unread(TYPE, "etcd's metrics", other, Severity::Info).unwrap_or_else(|| {
            unmeasured(
                at,
                match other {
                    Fact::NotApplicable { reason, .. } => reason,
                    _ => "this member serves no metrics",
                },
            )
        }),
    }
}

fn unmeasured(at: Timestamp, why: &str) -> Finding {
    Finding::new(
        TYPE,
        Status::Unknown,
        Severity::Info,
        R::EtcdDiskUnmeasured,
        at,
        format!("Disk latency is not measured: {why}."),
    )
    .waits(RAISE, Duration::ZERO)
}

fn compare(
    etcd: &EtcdFacts,
    earlier: &EtcdScrape,
    metrics: &EtcdMetrics,
    limits: &Thresholds,
    at: Timestamp,
) -> Finding {
    let latest = &metrics.latest;
    let span = latest.at.since(earlier.at);
    if span.is_zero() {
        return unmeasured(at, "the two scrapes were made at one instant");
    }
    if span > LAST_MINUTES {
        let apart = format!(
            "the two scrapes are {} apart, more than {}, so a burst would hide between them",
            Span(span),
            Span(LAST_MINUTES)
        );
        return unmeasured(at, &apart);
    }
    let Some(fsync) = Difference::new(&earlier.wal_fsync, &latest.wal_fsync) else {
        return unmeasured(at, "etcd was restarted between the two scrapes");
    };
    if fsync.total < ENOUGH_WRITES {
        return unmeasured(
            at,
            &format!("only {} writes in {}, {ENOUGH_WRITES} are needed", fsync.total, Span(span)),
        );
    }
    let p99 = fsync.quantile(0.99);
    if p99.or_more && p99.seconds * 1000.0 <= limits.etcd_fsync_error_ms {
        return unmeasured(at, "its histogram has no bucket above the limits");
    }
    let (over, bound) = fsync.over(limits.etcd_fsync_error_ms / 1000.0);
    let commit = match Difference::new(&earlier.backend_commit, &latest.backend_commit) {
        Some(d) if d.total >= ENOUGH_WRITES => format!(", commit p99 {}", d.quantile(0.99)),
        _ => String::new(),
    };
    let elections = (latest.leader_changes - earlier.leader_changes).max(0.0);
    let numbers = format!(
        "over the last {} fsync p99 is {p99}{commit}; {over} of {} writes ({}) took more than {:.0} ms; {elections:.0} \
         leader changes",
        Span(span),
        fsync.total,
        Percent(percent(over, fsync.total)),
        bound * 1000.0
    );
    let (warn, error) = (limits.etcd_fsync_warn_ms, limits.etcd_fsync_error_ms);
    let ms = p99.seconds * 1000.0;
    let (status, severity) = if ms > error {
        (Status::False, Severity::Error)
    } else if ms > warn {
        (Status::True, Severity::Warn)
    } else {
        let message = format!("The disk is fast enough: {numbers}.");
        return Finding::new(TYPE, Status::True, Severity::Ok, R::EtcdDiskFast, at, message)
            .waits(RAISE, CLEAR);
    };
    let network = links::network(metrics, etcd.members.value(), election_timeout(etcd));
    let (trips, cause) = match network {
        Network::Fine(trips) => (
            format!("; peer round trip p99 {trips}"),
            "This is the disk, not the network: peers answer in time.",
        ),
        Network::Slow(slow) => (
            format!("; peer round trip p99 is slow too: {slow}"),
            "The disk is slow by itself, for fsync waits for no peer; the way to the named peers is slow as well and needs \
             a look of its own.",
        ),
        Network::Unmeasured => (
            "; peer round trips were not measured".to_owned(),
            "fsync waits for the disk alone, so this is the disk, not the network, whatever the peers do.",
        ),
    };
    let place = match etcd.data_folder.as_ref().and_then(Fact::value) {
        Some(folder) => format!(" ({})", folder.path),
        None => String::new(),
    };
    let message = format!("The disk is slow now: {numbers}; limits {warn} ms and {error} ms{trips}.");
    Finding::new(TYPE, status, severity, R::EtcdDiskSlow, at, message).waits(RAISE, CLEAR).advice(format!(
        "{cause} Bring p99 from {p99} below {warn} ms: give etcd's data folder{place} a disk of its own (SSD, no shared or \
         thin-provisioned pool) and see what else writes there. Do not restart etcd because it is slow.",
    ))
}
