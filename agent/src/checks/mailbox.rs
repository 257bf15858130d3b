//! The coalescing channel from the passes to the loop: the newest reading a check, however slow the loop is.

use std::sync::Mutex;

use tokio::sync::Notify;

use super::Reading;

/// Holds at most one reading a check.
#[derive(Debug, Default)]
pub struct Mailbox {
    readings: Mutex<Vec<Reading>>,
    arrived: Notify,
}

impl Mailbox {
    /// Puts a reading in, in place of an earlier one of the same check that nobody has taken.
    pub fn put(&self, reading: Reading) {
        let mut readings = self.readings.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        readings.retain(|earlier| earlier.check() != reading.check());
        readings.push(reading);
        self.arrived.notify_one();
    }

    /// Waits for readings and takes them all. Dropping the future loses none.
    pub async fn take(&self) -> Vec<Reading> {
        loop {
            self.arrived.notified().await;
            let mut readings = self.readings.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if !readings.is_empty() {
                return std::mem::take(&mut readings);
            }
        }
    }
}
