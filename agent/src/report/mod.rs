//! Report: enrolment, the spool of transitions, delivery to the coordinator.
//!
//! [`Reporter`] is the whole of it for a caller: hand it transitions and the state, watch its [`DeliveryStatus`]. It
//! needs no daemon, so that a simulated node or a load generator reports by the very code that a real one does, with a
//! [`MemoryDisk`](disk::MemoryDisk) in the place of the state folder.
//!
//! Inside: [`spool`] (what must survive), [`identity`] (key, certificate, roots), `delivery` (the one task that decides
//! what is done next), `errands` (each exchange and each piece of work on the disk, a task of its own), [`disk`] (the
//! state folder, where faults can be put under it).

mod backoff;
mod client;
mod delivery;
pub mod disk;
mod errands;
#[cfg(test)]
pub(crate) mod fake;
mod frame;
pub mod identity;
mod outbox;
mod refused;
pub mod spool;
mod token;
mod transport;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outrider_protocol::{
    ClockOffset, ConditionType, Fact, Latch, NodeConfig, NodeState, Peers, ReasonCode, Timestamp, Transition,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use client::ExchangeError;
pub use outbox::{Target, TokenSource};
pub use spool::{Spool, SpoolError, SpoolLimits};
pub use token::{Token, TokenError};
pub use transport::{Network, Opening, Transport};

use delivery::{Delivery, Parts};
use disk::{Disk, MemoryDisk};
use outbox::Outbox;

/// Bytes of a message or advice.
const TEXT_LIMIT: usize = 8 << 10;

/// The clock, as sensors have it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How enrolment and delivery stand; what the loop judges the agent by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeliveryStatus {
    /// URL in use; empty when no coordinator is configured.
    pub coordinator: String,
    /// `enrolled`, `pending`, `refused`, `token-unusable` or `none`.
    pub enrolment: String,
    /// Uid the coordinator gave; empty before.
    pub node_uid: String,
    /// The last failure, in words; empty when the last try worked.
    pub error: String,
    /// Since when tries fail.
    pub failing_since: Option<Timestamp>,
    /// Transitions in the spool.
    pub spooled: u64,
    /// Transitions a full spool merged away since the last acknowledgement.
    pub merged: u64,
    /// What is wrong with the spool; empty when it works.
    pub spool_problem: String,
    /// End of our client certificate.
    pub certificate_not_after: Option<Timestamp>,
    /// Our clock against the coordinator's.
    pub clock_offset: Option<Fact<ClockOffset>>,
    /// Desired configuration last received.
    pub desired: Option<NodeConfig>,
    /// Whether an exchange with this coordinator has ended since the start, well or not.
    pub tried: bool,
    /// Neighbours to try, as the coordinator last named them.
    pub peers: Option<Arc<Peers>>,
    /// Whether the coordinator has everything that was handed over.
    pub reported: bool,
}

/// What a [`Reporter`] is made of.
pub struct ReporterOptions {
    /// The state folder; an error says why it cannot be used. Transitions then live in memory, and nothing is enrolled,
    /// for an identity that is lost at the next start would burn a token.
    pub disk: Result<Arc<dyn Disk>, String>,
    /// Bounds of the spool.
    pub limits: SpoolLimits,
    /// The clock.
    pub clock: Clock,
    /// How connections are opened.
    pub transport: Arc<dyn Transport>,
    /// Where reports go, and as whom.
    pub target: Target,
}

/// Takes transitions and the state, brings them to the coordinator, and says how that goes.
pub struct Reporter {
    outbox: Arc<Outbox>,
    status: watch::Receiver<DeliveryStatus>,
    task: JoinHandle<()>,
    latches: Vec<Latch>,
}

impl Reporter {
    /// Opens spool and desired configuration, which reads files, and starts delivering. Needs a tokio runtime.
    pub fn start(options: ReporterOptions) -> Self {
        let (disk, unusable) = match options.disk {
            Ok(disk) => (Some(disk), String::new()),
            Err(why) => (None, why),
        };
        let under: Arc<dyn Disk> = disk.clone().unwrap_or_else(|| Arc::new(MemoryDisk::default()));
        let mut spool = Spool::open(under, options.limits, (options.clock)());
        let latches = spool.latches().to_vec();
        let desired = disk.as_ref().and_then(|disk| read_desired(&**disk));
        let view = errands::view(&mut spool, !options.target.urls.is_empty());
        if !view.problem.is_empty() {
            log::error!("spool: {}", view.problem);
        }
        // The preferred address, as delivery has it before its first exchange: empty would read as "none configured".
        let coordinator = options.target.urls.first().map(ToString::to_string).unwrap_or_default();
        let mut status =
            DeliveryStatus { coordinator, desired, error: unusable, ..DeliveryStatus::default() };
        if status.error.is_empty() && !options.target.urls.is_empty() {
            remember(&mut status, &latches);
            if let Some(ledger) = disk.as_ref().and_then(|disk| identity::peek(&**disk)) {
                status.certificate_not_after = Some(ledger.not_after);
                status.node_uid = ledger.node_uid;
            }
        }
        let (sender, receiver) = watch::channel(status);
        let outbox = Arc::new(Outbox::default());
        let parts = Parts {
            outbox: outbox.clone(),
            status: sender,
            disk,
            spool: Arc::new(Mutex::new(spool)),
            clock: options.clock,
            transport: options.transport,
        };
        let delivery = Delivery::new(parts, options.target, view);
        Self { outbox, status: receiver, task: tokio::spawn(delivery.run()), latches }
    }

    /// Latches as the process before left them.
    pub fn latches(&self) -> &[Latch] {
        &self.latches
    }

    /// How enrolment and delivery stand, now and at every change.
    pub fn status(&self) -> watch::Receiver<DeliveryStatus> {
        self.status.clone()
    }

    /// Hands over what a turn brought: transitions with the latches after them, and the state. Never waits.
    pub fn put(&self, transitions: Vec<Transition>, latches: &[Latch], state: Option<NodeState>) {
        self.outbox.with(|pending| {
            if !transitions.is_empty() {
                pending.transitions.extend(transitions.into_iter().map(bounded));
                pending.latches = latches.to_vec();
            }
            pending.state = state.or(pending.state.take());
        });
    }

    /// Changes where reports go.
    pub fn configure(&self, target: Target) {
        self.outbox.with(|pending| pending.target = Some(target));
    }

    /// Says which generation of the desired configuration is in force.
    pub fn in_force(&self, generation: u64) {
        self.outbox.with(|pending| pending.generation = Some(generation));
    }

    /// Tries at once whatever waits for its time: after a reload, or when the machine woke up.
    pub fn wake(&self) {
        self.outbox.with(|pending| pending.woken = true);
    }

    /// Writes what waits to the spool and tries to send it, for at most `limit`.
    pub async fn stop(mut self, limit: Duration) {
        self.outbox.with(|pending| pending.stopping = true);
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            log::warn!(
                "not everything could be delivered within {} s; it waits in the spool",
                limit.as_secs()
            );
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A delivery that failed before a restart has not begun to work by it: what was shown stands until the first exchange.
fn remember(status: &mut DeliveryStatus, latches: &[Latch]) {
    let shown = latches.iter().map(|latch| &latch.condition);
    for condition in shown.filter(|c| c.condition_type == ConditionType::ReportsDelivered) {
        let enrolment = match condition.reason {
            ReasonCode::EnrolmentPending => "pending",
            ReasonCode::EnrolmentRefused => "refused",
            ReasonCode::EnrolmentTokenUnusable => "token-unusable",
            ReasonCode::CoordinatorUnreachable => "none",
            _ => continue,
        };
        enrolment.clone_into(&mut status.enrolment);
        "no exchange since the restart of the agent".clone_into(&mut status.error);
        status.failing_since = Some(condition.last_transition_time);
    }
}

/// The transition with texts of bounded length: the coordinator takes no more, and one that it does not take would stand
/// in the way of all behind it.
fn bounded(mut transition: Transition) -> Transition {
    let condition = &mut transition.condition;
    for text in [&mut condition.message, &mut condition.advice] {
        if text.len() > TEXT_LIMIT {
            let end = (0..=TEXT_LIMIT).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
    }
    transition
}

fn read_desired(disk: &dyn Disk) -> Option<NodeConfig> {
    let bytes = disk.read(errands::DESIRED).ok()?;
    match serde_json::from_slice(&bytes) {
        Ok(config) => Some(config),
        Err(error) => {
            log::warn!("the desired configuration on disk is damaged and is asked for anew: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests;
