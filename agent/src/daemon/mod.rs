//! The daemon. One loop owns the state; everything else is a task that only sends it something.
//!
//! A turn: facts -> [judge](outrider_diagnosis::judge) -> latch -> transitions -> plan -> act -> report. The loop waits
//! for whatever comes first: readings, a question, news of delivery, a signal, a check that is due.

mod desired;
mod once;
mod paths;
mod schedule;
mod start;
mod state;
mod time;
mod turn;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use crate::checks::{Ended, Sensors};
use crate::config::ConfigSource;
use crate::local::{self, SocketError};
use crate::notify::Notifier;
use crate::report::{DeliveryStatus, Token};
use crate::sense::SenseContext;
pub use once::{Turn, once};
use turn::Daemon;

/// How the daemon is run.
pub struct RunOptions {
    /// Where the configuration lies.
    pub config: ConfigSource,
    /// Identity, spool, latches (`/var/lib/outrider`).
    pub state_dir: PathBuf,
    /// Socket and status file (`/run/outrider`).
    pub runtime_dir: PathBuf,
    /// What the sensors are given.
    pub sense: SenseContext,
    /// Other sensors than this machine's.
    pub sensors: Option<Arc<dyn Sensors>>,
    /// What a program that embeds the daemon decides in place of the configuration.
    pub embedding: Option<Embedding>,
    /// Tells the service manager; [`Notifier::silent`] when the daemon is part of another program.
    pub notifier: Notifier,
}

/// What a program that embeds the daemon (`outrider up`) decides in place of `[coordinator]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Addresses of the coordinator.
    pub urls: Vec<String>,
    /// The enrolment token, which pins its CA.
    pub token: Option<Token>,
}

/// The daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The local socket could not be opened.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Another daemon uses the state folder.
    #[error("another agent uses the state folder {0}; stop it first (`systemctl stop outrider-agent`)")]
    StateInUse(PathBuf),
    /// The folder for the socket and the status file cannot be made.
    #[error("the folder {0} cannot be made")]
    RuntimeDir(PathBuf, #[source] std::io::Error),
    /// Signals cannot be received.
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
}

/// What wakes the loop.
enum Event {
    Passes(Vec<Ended>),
    Question(local::Question),
    Delivery(Box<DeliveryStatus>),
    DeliveryEnded,
    Reload,
    Due,
}

/// Runs the daemon until `shutdown` resolves, then drains for at most five seconds.
pub async fn run(options: RunOptions, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
    let runtime_dir = options.runtime_dir.clone();
    std::fs::create_dir_all(&runtime_dir).map_err(|e| RunError::RuntimeDir(runtime_dir.clone(), e))?;
    let socket = local::open(&runtime_dir.join("agent.sock"))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(RunError::Signals)?;
    let (ask, mut questions) = mpsc::channel(local::CLIENTS);
    let mut daemon = Daemon::start(options, ask.clone())?;
    let (mut delivery, mut delivers) = (daemon.delivery(), true);
    let clients = tokio::spawn(socket.serve(ask));
    tokio::pin!(shutdown);
    daemon.ready();
    loop {
        let event = tokio::select! {
            () = &mut shutdown => break,
            Some(()) = hangup.recv() => Event::Reload,
            Some(question) = questions.recv() => Event::Question(question),
            changed = delivery.changed(), if delivers => {
                delivers = changed.is_ok();
                if delivers { Event::Delivery(Box::new(delivery.borrow_and_update().clone())) } else { Event::DeliveryEnded }
            }
            passes = daemon.mailbox.take() => Event::Passes(passes),
            () = sleep_until(daemon.next_due()) => Event::Due,
        };
        daemon.turn(event);
    }
    // Nobody may ask a daemon that no longer turns, and the socket's file goes before the process does.
    clients.abort();
    let _ = clients.await;
    daemon.drain().await;
    Ok(())
}

/// Resolves at SIGTERM or SIGINT.
pub async fn termination() {
    let mut signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let [Ok(terminate), Ok(interrupt)] = &mut signals else {
        log::error!("signals cannot be received; only SIGKILL ends this process");
        return std::future::pending().await;
    };
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
}

#[cfg(test)]
mod tests;
