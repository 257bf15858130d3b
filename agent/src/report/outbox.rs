//! What the loop hands to delivery: coalesced, so that a slow network or disk never holds the loop back.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use outrider_protocol::{Latch, NodeRef, NodeState, Transition};
use tokio::sync::Notify;

use super::Token;
use crate::net::Url;

/// Where reports go, and as whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Addresses of the coordinator, the preferred first; none: verdicts stay on this machine.
    pub urls: Vec<Url>,
    /// SHA-256 (hex) of the root certificate's DER, where it is configured.
    pub ca_checksum: Option<String>,
    /// Where the enrolment token comes from.
    pub token: TokenSource,
    /// Time between heartbeats.
    pub heartbeat: Duration,
    /// Time after which the whole state is sent though its digest has not changed, and neighbours are asked for.
    pub refresh: Duration,
    /// This node; its uid is filled in from the identity.
    pub node: NodeRef,
}

/// Where the enrolment token comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenSource {
    /// There is none: only an identity that is already there can report.
    None,
    /// A file, read at every enrolment.
    File(PathBuf),
    /// This one.
    Given(Token),
}

/// What waits for delivery to take it.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) transitions: Vec<Transition>,
    /// Latches after the last of the transitions.
    pub(super) latches: Vec<Latch>,
    pub(super) state: Option<NodeState>,
    pub(super) target: Option<Target>,
    pub(super) generation: Option<u64>,
    pub(super) woken: bool,
    pub(super) stopping: bool,
}

/// The loop's side of delivery.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pending: Mutex<Pending>,
    pub(super) changed: Notify,
}

impl Outbox {
    pub(super) fn with(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        self.changed.notify_one();
    }

    /// Takes what waits; `stopping` stays.
    pub(super) fn take(&self) -> Pending {
        let mut pending = self.pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let stopping = pending.stopping;
        std::mem::replace(&mut *pending, Pending { stopping, ..Pending::default() })
    }
}
