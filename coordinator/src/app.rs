//! Everything that requests and background tasks share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outrider_protocol::Timestamp;

use crate::enrol::{EnrolError, Registrar, Sighting};
use crate::feed::Feed;
use crate::fleet::saver::SavedNode;
use crate::fleet::{Clock, Fleet, Node};
use crate::harvester::Harvester;
use crate::install::Catalogue;
use crate::latches::Latches;
use crate::metrics::Metrics;
use crate::pki::Authority;
use crate::said::Said;
use crate::server::connections::Connections;
use crate::server::peer::Peer;
use crate::server::{Gate, Limits};
use crate::store::{History, Store};

/// The parts of a running coordinator.
pub(crate) struct App {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) history: Arc<dyn History>,
    pub(crate) authority: Arc<Authority>,
    pub(crate) registrar: Arc<Registrar>,
    pub(crate) tls: Arc<rustls::ServerConfig>,
    pub(crate) limits: Limits,
    pub(crate) gate: Arc<Gate>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) latches: Arc<Latches>,
    pub(crate) said: Said,
    /// What new machines install.
    pub(crate) install: Catalogue,
    /// Virtual machines, where a Harvester is read.
    pub(crate) harvester: Option<Arc<Harvester>>,
    /// URL it is reached at.
    pub(crate) url: String,
    pub(crate) started_at: Timestamp,
    /// When this database took the place of a lost one; those whom it does not know are told so.
    pub(crate) begun_anew: Option<Timestamp>,
    pub(crate) stopping: AtomicBool,
    pub(crate) following: Mutex<()>,
}

impl App {
    /// The clocks.
    pub(crate) fn clock(&self) -> Clock {
        self.fleet.clock
    }

    /// Takes over what enrolment now says of a node; the node, if there is one.
    pub(crate) fn follow(&self, uid: &str) -> Option<Arc<Node>> {
        // Read and taken over under one lock, so that of two that follow, the later one reads the newer record.
        let _one_at_a_time = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.registrar.node(uid)?;
        Some(self.fleet.enrol(record, SavedNode::default))
    }

    /// Notes a sign of life with the registrar; the twin of a living node is stopped here, and shown.
    pub(crate) fn sight(&self, peer: &Peer, sighting: &Sighting<'_>) -> Result<(), EnrolError> {
        let noted = self.registrar.observe(&peer.node.uid, sighting);
        if let Err(EnrolError::IdentityCloned { .. }) = &noted {
            self.fleet.judge_identity(&peer.node, &self.registrar);
        }
        noted
    }

    /// True once the coordinator has begun to end: held answers are given now.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
