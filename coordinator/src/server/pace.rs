//! How many requests a caller may make: the generic cell rate algorithm in one atomic word.
//!
//! The word is the instant at which the caller's credit is whole again. A request moves it on by one interval; when it
//! lies further ahead than the burst allows, the request comes too soon. No timer, no list, eight bytes a caller.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A rate with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second in the long run; at least 1.
    pub per_second: u32,
    /// Requests at once after a rest.
    pub burst: u32,
}

impl Rate {
    fn interval(self) -> u64 {
        1_000_000 / u64::from(self.per_second.max(1))
    }
}

/// One caller's credit.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicU64);

impl Pace {
    /// Takes one request at `now` (time since start), or says how long to wait for the next.
    pub(crate) fn take(&self, now: Duration, rate: Rate) -> Result<(), Duration> {
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let reach = rate.interval().saturating_mul(u64::from(rate.burst.max(1)));
        let mut whole_at = self.0.load(Ordering::Relaxed);
        loop {
            let next = whole_at.max(now).saturating_add(rate.interval());
            if next > now.saturating_add(reach) {
                return Err(Duration::from_micros(next - now - reach));
            }
            match self.0.compare_exchange_weak(whole_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(seen) => whole_at = seen,
            }
        }
    }

    /// True when the whole burst is available again, so that nothing is lost by forgetting this caller.
    pub(crate) fn is_rested(&self, now: Duration) -> bool {
        u128::from(self.0.load(Ordering::Relaxed)) <= now.as_micros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 10, burst: 5 };

    #[test]
    fn a_burst_passes_and_then_the_rate_holds() {
        let pace = Pace::default();
        let start = Duration::from_secs(100);
        let passed = (0..20).filter(|_| pace.take(start, RATE).is_ok()).count();
        assert_eq!(passed, 5);
        let wait = pace.take(start, RATE).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert!(pace.take(start + wait, RATE).is_ok());
        assert!(pace.take(start + wait, RATE).is_err());
    }

    #[test]
    fn a_rest_restores_the_burst_and_no_more() {
        let pace = Pace::default();
        (0..5).for_each(|_| assert!(pace.take(Duration::ZERO, RATE).is_ok()));
        assert!(!pace.is_rested(Duration::ZERO));
        let later = Duration::from_secs(3600);
        assert!(pace.is_rested(later));
        assert_eq!((0..20).filter(|_| pace.take(later, RATE).is_ok()).count(), 5);
    }
}
