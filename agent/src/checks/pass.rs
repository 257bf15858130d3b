//! One pass of one check, held apart from everything else.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outrider_protocol::{Check, Timestamp, UnknownCause};
use tokio::time::timeout;

use super::Reading;

/// Remembers whether the work of a check is still under way. A blocking call cannot be cancelled: when its pass has
/// timed out it goes on, and no second one may be begun beside it.
#[derive(Clone, Debug, Default)]
pub struct Slot(Arc<AtomicBool>);

impl Slot {
    /// Enters, unless earlier work has not ended.
    pub fn enter(&self) -> Option<SlotGuard> {
        let entered = self.0.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok();
        entered.then(|| SlotGuard(self.0.clone()))
    }
}

/// Held by the work itself for as long as it runs; a blocking call takes it to its thread.
#[derive(Debug)]
pub struct SlotGuard(Arc<AtomicBool>);

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Runs `work` in a task of its own for at most `limit`. Whatever happens inside, a reading comes out; `None` when the
/// sensor says that everything is as its last one says, and for a check that no sensor serves.
pub async fn pass<W, F>(
    check: &Check,
    limit: Duration,
    slot: &Slot,
    now: impl Fn() -> Timestamp,
    work: W,
) -> Option<Reading>
where
    W: FnOnce(SlotGuard) -> F,
    F: Future<Output = Option<Reading>> + Send + 'static,
{
    let Some(guard) = slot.enter() else {
        let detail = "the earlier read has not ended; no second one is begun beside it";
        return Reading::unknown(check, UnknownCause::TimedOut, detail, now());
    };
    let mut task = tokio::spawn(work(guard));
    match timeout(limit, &mut task).await {
        Ok(Ok(reading)) => reading,
        Ok(Err(error)) => {
            let detail = match error.try_into_panic() {
                Ok(panic) => format!("the sensor panicked: {}", panic_text(&*panic)),
                Err(error) => format!("the sensor was stopped: {error}"),
            };
            Reading::unknown(check, UnknownCause::Panicked, &detail, now())
        }
        Err(_) => {
            task.abort();
            let detail = format!("no reading within {} ms", limit.as_millis());
            Reading::unknown(check, UnknownCause::TimedOut, &detail, now())
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{Fact, HostFacts};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn now() -> Timestamp {
        Timestamp::from_seconds(1_800_000_000)
    }

    fn absent() -> Option<Reading> {
        Some(Reading::Host(Fact::<HostFacts>::absent("nowhere", now())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_sensor_that_hangs_is_timed_out_and_may_run_again() {
        let slot = Slot::default();
        let started = tokio::time::Instant::now();
        let hang = |guard| async move {
            let _guard = guard;
            std::future::pending().await
        };
        let reading = pass(&Check::Host, LIMIT, &slot, now, hang).await.unwrap();
        assert_eq!(reading.failure(), Some(&UnknownCause::TimedOut));
        assert_eq!(started.elapsed(), LIMIT);
        // The aborted task gives its slot back once the runtime has dropped it.
        tokio::task::yield_now().await;
        let reading = pass(&Check::Host, LIMIT, &slot, now, |_guard| async { absent() }).await.unwrap();
        assert_eq!(reading.failure(), None);
    }

    #[tokio::test]
    async fn a_sensor_that_panics_is_unknown_with_its_message() {
        let slot = Slot::default();
        let panic = |_guard| async { panic!("index out of bounds") };
        let reading = pass(&Check::Clock, LIMIT, &slot, now, panic).await.unwrap();
        assert_eq!(reading.failure(), Some(&UnknownCause::Panicked));
        let Reading::Clock(Fact::Unknown { detail, .. }) = reading else { panic!("{reading:?}") };
        assert!(detail.contains("index out of bounds"), "{detail}");
    }

    #[tokio::test]
    async fn a_blocking_call_that_hangs_is_not_begun_twice() {
        let slot = Slot::default();
        let (release, hold) = std::sync::mpsc::channel::<()>();
        let (ended, end) = tokio::sync::oneshot::channel();
        let hang = move |guard: SlotGuard| async move {
            let blocking = tokio::task::spawn_blocking(move || {
                let _ = hold.recv();
                drop(guard);
                let _ = ended.send(());
                absent()
            });
            blocking.await.unwrap()
        };
        let short = Duration::from_millis(1);
        let first = pass(&Check::Host, short, &slot, now, hang).await.unwrap();
        assert_eq!(first.failure(), Some(&UnknownCause::TimedOut));
        let second =
            pass(&Check::Host, LIMIT, &slot, now, |_| async { panic!("begun twice") }).await.unwrap();
        assert_eq!(second.failure(), Some(&UnknownCause::TimedOut));
        release.send(()).unwrap();
        end.await.unwrap();
        let third = pass(&Check::Host, LIMIT, &slot, now, |_guard| async { absent() }).await.unwrap();
        assert_eq!(third.failure(), None);
    }
}
