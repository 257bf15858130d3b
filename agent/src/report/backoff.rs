//! How long to wait after a failure: exponential with full jitter, so that a fleet whose coordinator comes back does not
//! return as one wave.

use std::time::Duration;

/// Counts failures in a row.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// Waits between zero and `base` after the first failure, and at most `cap` after many.
    pub(super) fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, failures: 0 }
    }

    /// It worked.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// It failed; how long to wait. `random` lies in 0..1.
    pub(super) fn failed(&mut self, random: f64) -> Duration {
        let most =
            self.base.saturating_mul(1u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(self.cap);
        self.failures = self.failures.saturating_add(1).min(31);
        most.mul_f64(random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_its_cap_with_full_jitter() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let most: Vec<u64> = (0..9).map(|_| backoff.failed(1.0).as_secs()).collect();
        assert_eq!(most, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(backoff.failed(0.0), Duration::ZERO);
        for _ in 0..100 {
            assert!(backoff.failed(1.0) <= Duration::from_secs(60));
        }
        backoff.reset();
        assert_eq!(backoff.failed(1.0), Duration::from_secs(1));
    }
}
