//! Notices when the machine was suspended or its wall clock was set.
//!
//! Timers run on the monotonic clock, which stands still in suspend and ignores the wall clock: neither can stall the
//! loop, but both make what was read before worth reading again.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// What is worth a new look: gaps above this.
const NOTABLE: Duration = Duration::from_secs(5);

/// The three clocks of the kernel at one moment, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clocks {
    /// Since the epoch; set by people and time services.
    pub(super) wall: i128,
    /// Since boot without suspend.
    pub(super) monotonic: i128,
    /// Since boot with suspend.
    pub(super) boot: i128,
}

impl Clocks {
    /// Reads them; all zero where the kernel has none, which shows no jump.
    pub(super) fn read() -> Self {
        let read = |id| {
            clock_gettime(id).map_or(0, |t| i128::from(t.tv_sec()) * 1_000_000_000 + i128::from(t.tv_nsec()))
        };
        Self {
            wall: read(ClockId::CLOCK_REALTIME),
            monotonic: read(ClockId::CLOCK_MONOTONIC),
            boot: read(ClockId::CLOCK_BOOTTIME),
        }
    }
}

/// What happened between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Jump {
    /// The machine was suspended for so long.
    Suspended(Duration),
    /// The wall clock was set, by so many milliseconds (positive: forward).
    ClockSet(i64),
}

/// Compares the clocks from look to look.
#[derive(Debug)]
pub(super) struct Timekeeper(Clocks);

impl Timekeeper {
    pub(super) fn new(clocks: Clocks) -> Self {
        Self(clocks)
    }

    /// What happened since the last look.
    pub(super) fn look(&mut self, now: Clocks) -> Vec<Jump> {
        let before = std::mem::replace(&mut self.0, now);
        let suspended = (now.boot - now.monotonic) - (before.boot - before.monotonic);
        let set = (now.wall - now.boot) - (before.wall - before.boot);
        let notable = NOTABLE.as_nanos() as i128;
        let mut jumps = Vec::new();
        if suspended > notable {
            jumps.push(Jump::Suspended(Duration::from_nanos(u64::try_from(suspended).unwrap_or(u64::MAX))));
        }
        if set.abs() > notable {
            jumps.push(Jump::ClockSet(i64::try_from(set / 1_000_000).unwrap_or(i64::MAX)));
        }
        jumps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i128 = 1_000_000_000;

    #[test]
    fn tells_suspend_from_a_clock_that_was_set() {
        let mut keeper = Timekeeper::new(Clocks { wall: 1_000 * S, monotonic: 10 * S, boot: 10 * S });
        assert_eq!(keeper.look(Clocks { wall: 1_010 * S, monotonic: 20 * S, boot: 20 * S }), []);
        // An hour of suspend: wall and boot clock go on, the monotonic one stands.
        let woken = keeper.look(Clocks { wall: 4_620 * S, monotonic: 30 * S, boot: 3_630 * S });
        assert_eq!(woken, [Jump::Suspended(Duration::from_secs(3_600))]);
        let set = keeper.look(Clocks { wall: 4_630 * S - 86_400 * S, monotonic: 40 * S, boot: 3_640 * S });
        assert_eq!(set, [Jump::ClockSet(-86_400_000)]);
    }

    #[test]
    fn the_kernel_has_these_clocks() {
        let clocks = Clocks::read();
        assert!(clocks.boot > 0 && clocks.monotonic > 0 && clocks.wall > clocks.boot);
    }
}
