//! Every open connection, so that it can be closed from elsewhere: at shutdown, at a revocation, for a newer one.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::peer::Peer;
use crate::api::HeldAnswer;

/// Who is at the other end.
pub(crate) enum Caller {
    /// Nobody that a certificate names: an operator, a tool, a machine that enrols.
    Stranger,
    /// The node whose certificate it showed.
    Node(Peer),
    /// It showed a certificate of ours for a node that is not known.
    Unknown(Box<str>),
}

/// One connection, as its requests see it.
pub(crate) struct Connection {
    id: u64,
    /// The address of the other end.
    pub(crate) remote: SocketAddr,
    /// Who it is.
    pub(crate) caller: Caller,
    /// Generation of the desired configuration last sent over it: an agent that cannot take it over is not sent it in
    /// a loop.
    pub(crate) sent_generation: AtomicU64,
    /// A resync was asked over it and has not been answered yet.
    pub(crate) asked_resync: AtomicBool,
    close: Notify,
    /// Rung for bodies that never end by themselves.
    end: Notify,
    must_close: AtomicBool,
    /// A heartbeat whose answer is to be held, on its way from the request to the task of the connection.
    parking: Mutex<Option<HeldAnswer>>,
    parks: Notify,
}

impl Connection {
    /// Has the connection parked until `held` is answered. The request that calls it gets no other answer.
    pub(crate) fn park(&self, held: HeldAnswer) {
        *self.parking.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        self.parks.notify_one();
    }

    /// Returns what [`Connection::park`] was called with. Cancel-safe.
    pub(crate) async fn parked(&self) -> HeldAnswer {
        loop {
            self.parks.notified().await;
            if let Some(held) = self.parking.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return held;
            }
        }
    }

    /// Asks the connection to end: after the answer it is at, or now when it rests.
    pub(crate) fn close(&self) {
        self.must_close.store(true, Ordering::Release);
        self.close.notify_one();
        self.end.notify_one();
        if let Caller::Node(peer) = &self.caller {
            peer.node.wake.notify_waiters();
        }
    }

    /// Whether it is to end.
    pub(crate) fn must_close(&self) -> bool {
        self.must_close.load(Ordering::Acquire)
    }

    /// Returns when [`Connection::close`] was called: for the one body that is streamed at a time.
    pub(crate) async fn ending(&self) {
        if !self.must_close() {
            self.end.notified().await;
        }
    }

    /// Returns when [`Connection::close`] was called: for the task that serves the connection.
    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }
}

/// The open connections.
#[derive(Default)]
pub(crate) struct Connections {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    /// Rung when the last one ends.
    empty: Notify,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection; when its node has more than `per_node`, its oldest is asked to end. An agent behind a network
    /// that drops connections silently must not be locked out by those it cannot know to be dead.
    pub(crate) fn open(self: &Arc<Self>, remote: SocketAddr, caller: Caller, per_node: u32) -> Registered {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            id,
            remote,
            caller,
            sent_generation: AtomicU64::new(u64::MAX),
            asked_resync: AtomicBool::new(false),
            close: Notify::new(),
            end: Notify::new(),
            must_close: AtomicBool::new(false),
            parking: Mutex::new(None),
            parks: Notify::new(),
        });
        self.lock().insert(id, connection.clone());
        if let Caller::Node(peer) = &connection.caller {
            let oldest = {
                let mut ids = peer.node.connections.lock().unwrap_or_else(PoisonError::into_inner);
                ids.push(id);
                (ids.len() > per_node.max(1) as usize).then(|| ids.remove(0))
            };
            if let Some(oldest) = oldest.and_then(|id| self.lock().get(&id).cloned()) {
                oldest.close();
            }
        }
        Registered { all: self.clone(), connection }
    }

    /// Ends every connection of a node.
    pub(crate) fn close_node(&self, node: &crate::fleet::Node) {
        let ids = node.connections.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let connections: Vec<_> = {
            let open = self.lock();
            ids.iter().filter_map(|id| open.get(id).cloned()).collect()
        };
        connections.iter().for_each(|c| c.close());
    }

    /// Ends every connection.
    pub(crate) fn close_all(&self) {
        let all: Vec<_> = self.lock().values().cloned().collect();
        all.iter().for_each(|c| c.close());
    }

    /// Returns when none is open.
    pub(crate) async fn drained(&self) {
        loop {
            let emptied = self.empty.notified();
            if self.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }
}

/// A connection in the list; leaves it when dropped.
pub(crate) struct Registered {
    all: Arc<Connections>,
    pub(crate) connection: Arc<Connection>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let id = self.connection.id;
        if let Caller::Node(peer) = &self.connection.caller {
            peer.node.connections.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| *other != id);
        }
        let mut open = self.all.lock();
        open.remove(&id);
        if open.is_empty() {
            self.all.empty.notify_waiters();
        }
    }
}
