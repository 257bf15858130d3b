//! What the service manager is told: READY once, STATUS at every change, WATCHDOG as long as the loop turns.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;

/// Talks to the service manager when there is one and this process is its service.
#[derive(Debug)]
pub struct Notifier {
    enabled: bool,
    status: String,
    /// How often the watchdog wants to be fed: half its limit.
    pub watchdog: Option<Duration>,
    fed: Option<Instant>,
}

impl Notifier {
    /// For the daemon under systemd. Outside of it every call does nothing.
    pub fn from_environment() -> Self {
        Self {
            enabled: true,
            status: String::new(),
            watchdog: sd_notify::watchdog_enabled().map(|limit| limit / 2),
            fed: None,
        }
    }

    /// For a process that is no service of its own (`outrider up`).
    pub fn silent() -> Self {
        Self { enabled: false, status: String::new(), watchdog: None, fed: None }
    }

    /// Everything the daemon needs is there.
    pub fn ready(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// The configuration is being read anew; answered by [`Notifier::ready`].
    pub fn reloading(&self) {
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            self.send(&[NotifyState::Reloading, now]);
        }
    }

    /// The daemon drains and ends.
    pub fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// One line for `systemctl status`; sent when it differs from the last.
    pub fn status(&mut self, line: String) {
        if line != self.status {
            self.send(&[NotifyState::Status(&line)]);
            self.status = line;
        }
    }

    /// The loop has turned. The watchdog is fed by the first turn after a quarter of that time, so that a loop that turns
    /// as often as it wants comes nowhere near its limit.
    pub fn alive(&mut self, now: Instant) {
        let Some(often) = self.watchdog else { return };
        if self.fed.is_none_or(|fed| now.duration_since(fed) >= often / 4) {
            self.send(&[NotifyState::Watchdog]);
            self.fed = Some(now);
        }
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if self.enabled
            && let Err(error) = sd_notify::notify(states)
        {
            log::debug!("the service manager does not listen: {error}");
        }
    }
}
