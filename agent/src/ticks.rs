//! A timer of the kernel's for what is asked every second.

use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// It goes on by itself. A timer of the runtime's, set anew for every second, costs a system call each time and wakes the
/// process twice.
#[derive(Debug)]
pub struct Ticks(AsyncFd<OwnedFd>);

impl Ticks {
    #[allow(unsafe_code)] // Waiting for a descriptor is unsafe in tokio because it could be one that somebody closes.
    fn new(every: Duration) -> std::io::Result<Self> {
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        timer.set(Expiration::Interval(TimeSpec::from(every)), TimerSetTimeFlags::empty())?;
        // SAFETY: the descriptor is owned by what waits for it, which nobody takes out of there.
        Ok(Self(unsafe { AsyncFd::register_with_interest(timer.into(), Interest::READABLE)? }))
    }

    /// The next tick of `ticks`, which are made when there are none. Where the kernel gives no timer, the runtime's serves.
    pub async fn next(ticks: &mut Option<Self>, every: Duration) {
        if ticks.is_none() {
            *ticks = Self::new(every).ok();
        }
        let ticked = match ticks {
            Some(ticks) => ticks.tick().await,
            None => Err(std::io::ErrorKind::Unsupported.into()),
        };
        if ticked.is_err() {
            tokio::time::sleep(every).await;
        }
    }

    async fn tick(&self) -> std::io::Result<()> {
        let mut ticked = [0; 8];
        self.0.async_io(Interest::READABLE, |timer| Ok(rustix::io::read(timer, &mut ticked)?)).await.map(drop)
    }
}
