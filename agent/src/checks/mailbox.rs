//! The coalescing channel from the passes to the loop: the newest reading a check, however slow the loop is.

use std::sync::Mutex;

use tokio::sync::Notify;

use outrider_protocol::Check;

use super::Reading;

/// A pass that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// The check.
    pub check: Check,
    /// What it read; `None` when everything is as its last reading says.
    pub reading: Option<Reading>,
}

/// Holds the newest reading of each check.
#[derive(Debug, Default)]
pub struct Mailbox {
    ended: Mutex<Vec<Ended>>,
    arrived: Notify,
}

impl Mailbox {
    /// Puts a pass in, in place of an earlier one of the same check that nobody has taken; what that read stays when
    /// everything is as it says.
    pub fn put(&self, mut pass: Ended) {
        let mut ended = self.ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(at) = ended.iter().position(|earlier| earlier.check == pass.check) {
            let earlier = ended.swap_remove(at);
            pass.reading = pass.reading.or(earlier.reading);
        }
        ended.push(pass);
        self.arrived.notify_one();
    }

    /// Waits for passes that have ended and takes them all. Dropping the future loses none.
    pub async fn take(&self) -> Vec<Ended> {
        loop {
            self.arrived.notified().await;
            let mut ended = self.ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if !ended.is_empty() {
                return std::mem::take(&mut ended);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{Fact, HostFacts, Timestamp};

    use super::*;

    #[tokio::test]
    async fn the_newest_reading_is_kept_and_no_news_replaces_none() {
        let reading =
            |source: &str| Some(Reading::Host(Fact::<HostFacts>::absent(source, Timestamp::default())));
        let mailbox = Mailbox::default();
        for reading in [reading("first"), reading("second"), None] {
            mailbox.put(Ended { check: Check::Host, reading });
        }
        mailbox.put(Ended { check: Check::Clock, reading: None });
        let ended = mailbox.take().await;
        assert_eq!(
            ended,
            [
                Ended { check: Check::Host, reading: reading("second") },
                Ended { check: Check::Clock, reading: None }
            ]
        );
    }
}
