//! One kind of exchange and how it fares. Kinds fail apart: a report that is refused must not be hidden by heartbeats
//! that pass, nor hold them back.

use std::time::Duration;

use outrider_protocol::Timestamp;
use tokio::time::Instant;

use super::super::backoff::Backoff;
use super::super::client::ExchangeError;

/// Backoff of exchanges that fail.
const BASE: Duration = Duration::from_secs(2);
const CAP: Duration = Duration::from_secs(60);
/// Backoff after a refusal: a person has to act first.
const REFUSED_BASE: Duration = Duration::from_secs(30);
const REFUSED_CAP: Duration = Duration::from_secs(300);
/// A coordinator may ask for patience, but not for ever.
const PATIENCE: Duration = Duration::from_secs(600);

/// See the [module](self).
pub(super) struct Lane {
    /// Nothing is tried before.
    pub(super) retry_at: Instant,
    /// The failure in words; empty while it works.
    pub(super) error: String,
    /// Since when it fails.
    pub(super) since: Option<Timestamp>,
    /// The coordinator could not be reached, so that anything that reaches it is good news here too.
    unreached: bool,
    backoff: Backoff,
    refused: Backoff,
}

impl Lane {
    pub(super) fn new() -> Self {
        Self {
            retry_at: Instant::now(),
            error: String::new(),
            since: None,
            unreached: false,
            backoff: Backoff::new(BASE, CAP),
            refused: Backoff::new(REFUSED_BASE, REFUSED_CAP),
        }
    }

    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.retry_at <= now
    }

    pub(super) fn worked(&mut self) {
        self.error.clear();
        self.since = None;
        self.unreached = false;
        self.start_over();
    }

    /// The coordinator was reached by another exchange.
    pub(super) fn reached(&mut self) {
        if self.unreached {
            self.worked();
        }
    }

    pub(super) fn start_over(&mut self) {
        self.backoff.reset();
        self.refused.reset();
        self.retry_at = Instant::now();
    }

    pub(super) fn failed(&mut self, error: &ExchangeError, at: Timestamp) {
        let wait = self.backoff.failed(rand::random());
        self.unreached = matches!(error, ExchangeError::Network(_));
        self.say(error, at, wait);
    }

    /// It was refused: asked again seldom, for whatever was decided may be taken back.
    pub(super) fn refused(&mut self, error: &ExchangeError, at: Timestamp) {
        let wait = self.refused.failed(0.5 + 0.5 * rand::random::<f64>());
        self.unreached = false;
        self.say(error, at, wait);
    }

    fn say(&mut self, error: &ExchangeError, at: Timestamp, wait: Duration) {
        self.error = error.to_string();
        self.since.get_or_insert(at);
        self.retry_at = Instant::now() + error.retry_after().unwrap_or_default().min(PATIENCE).max(wait);
    }
}
