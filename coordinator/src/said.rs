//! Warnings that callers can provoke, said once a while each: a flood of connections must not be a flood of lines.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::fleet::Clock;

/// Time between two lines of one kind.
const EVERY: Duration = Duration::from_secs(10);

/// When each kind was last said, and how often it was kept quiet since.
#[derive(Default)]
pub(crate) struct Said(Mutex<HashMap<&'static str, (Duration, u64)>>);

impl Said {
    /// Says `message`, unless this kind was said a short while ago.
    pub(crate) fn warn(&self, clock: &Clock, kind: &'static str, message: impl FnOnce() -> String) {
        let now = clock.elapsed();
        let quiet = {
            let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match said.get_mut(kind) {
                Some((at, quiet)) if now.saturating_sub(*at) < EVERY => {
                    *quiet += 1;
                    return;
                }
                _ => said.insert(kind, (now, 0)).map_or(0, |(_, quiet)| quiet),
            }
        };
        let message = message();
        match quiet {
            0 => log::warn!("{message}"),
            n => log::warn!("{message} ({n} more of this kind since the last line)"),
        }
    }
}
