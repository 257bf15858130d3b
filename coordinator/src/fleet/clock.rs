//! Two clocks: one that only goes forward, to judge by, and the wall's, to show.

use std::time::{Duration, SystemTime};

use outrider_protocol::Timestamp;
use tokio::time::Instant;

/// Time since the coordinator started, and now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Time since the start; never goes back.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The wall clock.
    pub(crate) fn now(&self) -> Timestamp {
        SystemTime::now().into()
    }

    /// The wall-clock time of an instant `at` after the start, by what the wall clock says now.
    pub(crate) fn wall_of(&self, at: Duration) -> Timestamp {
        self.now().before(self.elapsed().saturating_sub(at))
    }
}
