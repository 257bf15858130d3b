//! What happened between two scrapes of a cumulative histogram.

use std::time::Duration;

use outrider_protocol::Histogram;

/// What lies between two scrapes shows how it is now only while they are no further apart, and the later no older.
pub(super) const LAST_MINUTES: Duration = Duration::from_secs(1800);

/// Observations between two scrapes, by upper bound in seconds, cumulative.
pub(super) struct Difference {
    buckets: Vec<(f64, u64)>,
    pub(super) total: u64,
}

/// A quantile; beyond the last finite bucket it is known only to be more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantile {
    pub(super) seconds: f64,
    pub(super) or_more: bool,
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
    pub(super) fn new(earlier: &Histogram, latest: &Histogram) -> Option<Self> {
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
    pub(super) fn quantile(&self, q: f64) -> Quantile {
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
    pub(super) fn over(&self, seconds: f64) -> (u64, f64) {
        let bucket = self.buckets.iter().find(|(bound, _)| *bound >= seconds).or(self.buckets.last());
        bucket.map_or((0, seconds), |(bound, count)| (self.total.saturating_sub(*count), *bound))
    }
}
