//! Transitions the coordinator itself found (a silent node, a cluster's quorum), on their way to the history.
//!
//! They wait in memory while the store is away, so that an alarm never waits for it. The queue is bounded; what it had
//! to drop is counted and said.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use futures_util::{StreamExt, stream};
use log::Level;
use outrider_protocol::{SequencedTransition, Severity, Timestamp, Transition};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::store::{History, HistoryError, Origin};

/// More than twice the largest fleet: all nodes silent at once still fit.
const MAX_WAITING: usize = 100_000;
/// Appends under way at once; the store commits them together.
const AT_ONCE: usize = 64;

/// The queue.
pub(crate) struct Announcements {
    /// One run of the coordinator is one epoch.
    epoch: Uuid,
    waiting: Mutex<Waiting>,
    bell: Notify,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<(Origin, SequencedTransition)>,
    sequence: u64,
    dropped: u64,
}

impl Default for Announcements {
    fn default() -> Self {
        Self { epoch: Uuid::new_v4(), waiting: Mutex::default(), bell: Notify::new() }
    }
}

impl Announcements {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a transition and says it in the log; the oldest goes when the queue is full.
    pub(crate) fn add(&self, origin: Origin, transition: Transition) {
        say(&origin, &transition);
        let mut waiting = self.lock();
        waiting.sequence += 1;
        let sequence = waiting.sequence;
        waiting.queue.push_back((origin, SequencedTransition { sequence, transition }));
        if waiting.queue.len() > MAX_WAITING {
            waiting.queue.pop_front();
            waiting.dropped += 1;
        }
        drop(waiting);
        self.bell.notify_one();
    }

    /// Transitions dropped because the store was away for too long.
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Returns when something was added.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Appends everything that waits; what could not be stored waits again, in its order.
    pub(crate) async fn deliver(&self, history: &dyn History, now: Timestamp) -> Result<(), HistoryError> {
        let taken = std::mem::take(&mut self.lock().queue);
        let mut batches: Vec<(Origin, Vec<SequencedTransition>)> = Vec::new();
        let mut place = std::collections::HashMap::new();
        for (origin, transition) in taken {
            let at = *place.entry(origin.uid.clone()).or_insert_with(|| {
                batches.push((origin.clone(), Vec::new()));
                batches.len() - 1
            });
            if let Some((_, batch)) = batches.get_mut(at) {
                batch.push(transition);
            }
        }
        let results: Vec<_> = stream::iter(batches)
            .map(|(origin, batch)| async move {
                let result = history.append(&origin, self.epoch, &batch, now).await;
                (origin, batch, result)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut failure = None;
        let mut left: Vec<(Origin, SequencedTransition)> = Vec::new();
        for (origin, batch, result) in results {
            match result {
                Ok(_) => {}
                // The store is there and will never take these: keeping them would hold up all that follow.
                Err(error @ (HistoryError::Mismatch { .. } | HistoryError::OutOfOrder { .. })) => {
                    log::error!("{} transitions of {} are not stored: {error}", batch.len(), origin.name);
                }
                Err(error) => {
                    left.extend(batch.into_iter().map(|t| (origin.clone(), t)));
                    failure = Some(error);
                }
            }
        }
        left.sort_by_key(|(_, t)| t.sequence);
        let mut waiting = self.lock();
        for item in left.into_iter().rev() {
            waiting.queue.push_front(item);
        }
        failure.map_or(Ok(()), Err)
    }
}

/// One line a transition, with the `MESSAGE_ID` of its reason.
fn say(origin: &Origin, transition: &Transition) {
    let condition = &transition.condition;
    let level = match condition.severity {
        Severity::Ok | Severity::Info => Level::Info,
        Severity::Warn => Level::Warn,
        Severity::Error => Level::Error,
    };
    let (name, reason) = (origin.name.as_str(), condition.reason.as_str());
    let before = transition.previous_status.map_or("", |status| status.as_str());
    log::log!(level,
        MESSAGE_ID = condition.reason.info().map_or("", |info| info.message_id),
        OUTRIDER_ORIGIN = origin.uid.as_str(), OUTRIDER_NAME = name,
        OUTRIDER_TYPE = condition.condition_type.as_str(), OUTRIDER_SUBJECT = condition.subject.as_str(),
        OUTRIDER_STATUS = condition.status.as_str(), OUTRIDER_SEVERITY = condition.severity.as_str(),
        OUTRIDER_REASON = reason, OUTRIDER_PREVIOUS_STATUS = before,
        OUTRIDER_ADVICE = condition.advice.as_str();
        "{name}: {} is {} ({reason}): {}", condition.condition_type, condition.status, condition.message);
}
