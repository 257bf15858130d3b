//! `EtcdDisk`: fsync latency over the last minutes (`facts/etcd.md`, section 5).
//!
//! Histograms count since the process started; only the difference of two scrapes shows what the disk does now.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EtcdFacts, EtcdMetrics, EtcdScrape, Fact, Histogram, ReasonCode as R, Severity, Status,
    Thresholds, Timestamp,
};

use crate::finding::Finding;
use crate::rules::unread;
use crate::wording::{Percent, Span, percent};

const TYPE: ConditionType = ConditionType::EtcdDisk;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(120);

/// Fewer writes give no 99th percentile worth a word.
const ENOUGH_WRITES: u64 = 20;

pub(super) fn judge(etcd: &EtcdFacts, at: Timestamp, limits: &Thresholds) -> Finding {
    match &etcd.metrics {
        Fact::Known { value, at, .. } => match &value.earlier {
            Some(earlier) => compare(earlier, value, limits, *at),
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

fn compare(earlier: &EtcdScrape, metrics: &EtcdMetrics, limits: &Thresholds, at: Timestamp) -> Finding {
    let latest = &metrics.latest;
    let span = latest.at.since(earlier.at);
    if span.is_zero() {
        return unmeasured(at, "the two scrapes were made at one instant");
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
    let message = format!("The disk is slow now: {numbers}; limits {warn} ms and {error} ms.");
    Finding::new(TYPE, status, severity, R::EtcdDiskSlow, at, message).waits(RAISE, CLEAR).advice(
        "This is the disk, not the network: give etcd's data folder a disk of its own (SSD, no shared or thin-provisioned \
         pool) and see what else writes there. Do not restart etcd because it is slow.",
    )
}

/// Observations between two scrapes, by upper bound in seconds, cumulative.
struct Difference {
    buckets: Vec<(f64, u64)>,
    total: u64,
}

/// A quantile; beyond the last finite bucket it is known only to be more.
#[derive(Clone, Copy)]
struct Quantile {
    seconds: f64,
    or_more: bool,
}

impl std::fmt::Display for Quantile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = self.seconds * 1000.0;
        let more = if self.or_more { "more than " } else { "" };
        if ms < 100.0 { write!(f, "{more}{ms:.1} ms") } else { write!(f, "{more}{ms:.0} ms") }
    }
}

impl Difference {
    /// `None` when a counter went back: the process is another one.
    fn new(earlier: &Histogram, latest: &Histogram) -> Option<Self> {
        let total = latest.count.checked_sub(earlier.count)?;
        // The last bucket stands for infinity and holds the total, whatever its bound is written as.
        let infinite = latest.buckets.last().is_some_and(|(_, n)| *n == latest.count);
        let finite = latest.buckets.len().saturating_sub(usize::from(infinite));
        let mut buckets = Vec::with_capacity(finite);
        for (bound, count) in &latest.buckets[..finite] {
            // A bound that the earlier scrape lacks cannot be compared.
            if let Some((_, before)) = earlier.buckets.iter().find(|(b, _)| b == bound) {
                buckets.push((*bound, count.checked_sub(*before)?));
            }
        }
        Some(Self { buckets, total })
    }

    /// The `q` quantile, linear within its bucket.
    fn quantile(&self, q: f64) -> Quantile {
        let rank = q * self.total as f64;
        let (mut lower, mut below) = (0.0, 0u64);
        for (bound, count) in &self.buckets {
            if *count as f64 >= rank {
                let inside = count.saturating_sub(below).max(1) as f64;
                let share = ((rank - below as f64) / inside).clamp(0.0, 1.0);
                return Quantile { seconds: lower + (bound - lower) * share, or_more: false };
            }
            (lower, below) = (*bound, *count);
        }
        Quantile { seconds: lower, or_more: true }
    }

    /// How many observations took longer than the first bound at or above `seconds`, and that bound.
    fn over(&self, seconds: f64) -> (u64, f64) {
        let bucket = self.buckets.iter().find(|(bound, _)| *bound >= seconds).or(self.buckets.last());
        bucket.map_or((0, seconds), |(bound, count)| (self.total.saturating_sub(*count), *bound))
    }
}
