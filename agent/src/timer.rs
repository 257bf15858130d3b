//! A timer of the kernel's for what is asked time and again and answered within a limit.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

/// To wait by one of the runtime's costs two system calls, for the runtime wakes itself to look at its new timer; by one of the
/// kernel's it costs the call that sets it.
#[derive(Debug, Default)]
pub struct KernelTimer(Option<AsyncFd<OwnedFd>>);

impl KernelTimer {
    /// Waits until `at`, at once when that has gone by. Where the kernel gives no timer, the runtime's serves.
    pub async fn until(&mut self, at: Instant) {
        if self.0.is_none() {
            self.0 = made().ok();
        }
        let waited = match &self.0 {
            Some(timer) => wait(timer, at).await,
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        if waited.is_err() {
            tokio::time::sleep_until(at).await;
        }
    }

    /// What `work` comes to within `limit`; `None` when it takes longer.
    pub async fn within<T>(&mut self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.until(Instant::now() + limit) => None,
        }
    }
}

#[allow(unsafe_code)] // Waiting for a descriptor is unsafe in tokio because it could be one that somebody closes.
fn made() -> io::Result<AsyncFd<OwnedFd>> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is owned by what waits for it, which nobody takes out of there.
    Ok(unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE)? })
}

/// The timer is never read: setting it anew makes it unreadable, and what an earlier setting left to be told is known by the
/// clock.
async fn wait(timer: &AsyncFd<OwnedFd>, at: Instant) -> io::Result<()> {
    let left = at.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(());
    }
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(left).map_err(io::Error::other)?,
    };
    // The kernel's time goes on where the runtime's is paused.
    let end = std::time::Instant::now() + left;
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    while std::time::Instant::now() < end {
        timer.readable().await?.clear_ready();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_wait_ends_in_its_own_time() {
        let mut timer = KernelTimer::default();
        for ms in [5, 1, 9, 0] {
            let began = Instant::now();
            timer.until(began + Duration::from_millis(ms)).await;
            assert!(began.elapsed() >= Duration::from_millis(ms), "{ms} ms: {:?}", began.elapsed());
        }
        assert!(timer.0.is_some(), "by the kernel's timer");
    }

    #[tokio::test]
    async fn a_limit_that_was_not_reached_does_not_end_what_comes_after_it() {
        let mut timer = KernelTimer::default();
        let limit = Duration::from_millis(5);
        let work = async { tokio::task::yield_now().await };
        assert_eq!(timer.within(limit, work).await, Some(()));
        // It is reached while nobody waits for it.
        std::thread::sleep(limit * 2);
        let began = Instant::now();
        timer.until(began + limit * 4).await;
        assert!(began.elapsed() >= limit * 4, "{:?}", began.elapsed());
        assert_eq!(timer.within(limit, std::future::pending::<()>()).await, None);
    }
}
