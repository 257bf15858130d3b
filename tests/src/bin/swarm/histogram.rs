//! Latencies counted in buckets of 50 µs up to 10 s, so that millions cost no memory.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const WIDTH: u128 = 50;
const BUCKETS: usize = 200_000;

/// Counts a bucket; shared by every task.
#[derive(Debug)]
pub(crate) struct Histogram(Vec<AtomicU32>);

impl Histogram {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU32::new(0)).collect())
    }

    /// Counts one latency.
    pub(crate) fn add(&self, latency: Duration) {
        let bucket = usize::try_from(latency.as_micros() / WIDTH).unwrap_or(BUCKETS).min(BUCKETS - 1);
        self.0[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// How many were counted.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|n| u64::from(n.load(Ordering::Relaxed))).sum()
    }

    /// The latency that a share of all stays below: the upper bound of its bucket.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (i, n) in self.0.iter().enumerate() {
            seen += u64::from(n.load(Ordering::Relaxed));
            if seen >= rank {
                return Duration::from_micros((i as u64 + 1) * WIDTH as u64);
            }
        }
        Duration::ZERO
    }
}
