//! Who may connect, and how many: so that one slow or hostile caller harms no other.
//!
//! A connection is a *stranger* until its client certificate has named a node. Strangers share a quarter of all
//! places, and one address at most half of that, so that a flood leaves the agents' places alone. A named node has a
//! few places of its own. IPv6 addresses count by /64, which is what one caller usually owns.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::pace::{Pace, Rate};

/// What the server allows. Shapes: counts, seconds, bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections in all; 0 derives it from the limit of open files.
    pub connections: usize,
    /// Connections without a node's certificate; 0 for a quarter of `connections`.
    pub strangers: usize,
    /// Connections of one node.
    pub connections_per_node: u32,
    /// Time for the TLS handshake, and for each request's header on a connection without a certificate.
    pub handshake: Duration,
    /// Time a node's connection may rest between requests.
    pub idle: Duration,
    /// Time for a request's body.
    pub body_time: Duration,
    /// Bytes of a request's header, at least 8192.
    pub header_bytes: usize,
    /// Bytes of a report.
    pub report_bytes: usize,
    /// Bytes of any other body.
    pub body_bytes: usize,
    /// Requests of one node.
    pub node_rate: Rate,
    /// Requests of one address without a certificate.
    pub stranger_rate: Rate,
    /// Watchers of `/v1/watch` at once.
    pub watchers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 0,
            strangers: 0,
            connections_per_node: 8,
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(90),
            body_time: Duration::from_secs(20),
            header_bytes: 16 << 10,
            report_bytes: 1 << 20,
            body_bytes: 64 << 10,
            node_rate: Rate { per_second: 50, burst: 200 },
            stranger_rate: Rate { per_second: 500, burst: 5000 },
            watchers: 256,
        }
    }
}

/// Open files kept back for the store, the listeners and the rest.
const FILES_KEPT_BACK: usize = 256;

impl Limits {
    /// The limits with every 0 replaced by what `open_files` allows.
    pub(crate) fn resolve(mut self, open_files: usize) -> Self {
        if self.connections == 0 {
            self.connections = open_files.saturating_sub(FILES_KEPT_BACK).max(16);
        }
        if self.strangers == 0 {
            self.strangers = (self.connections / 4).max(8);
        }
        self
    }
}

/// Why a connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("all {0} connections are taken")]
    Full(usize),
    #[error("all {0} connections for callers without a node certificate are taken")]
    Strangers(usize),
    #[error("this address already has {0} connections without a node certificate")]
    Address(usize),
}

#[derive(Default)]
struct Stranger {
    open: usize,
    pace: Pace,
}

/// Counts connections and refuses what is too many.
pub(crate) struct Gate {
    limits: Limits,
    open: AtomicUsize,
    strangers: Mutex<Strangers>,
}

#[derive(Default)]
struct Strangers {
    open: usize,
    by_address: HashMap<IpAddr, Stranger>,
}

impl Gate {
    /// A gate with resolved `limits`.
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, open: AtomicUsize::new(0), strangers: Mutex::default() })
    }

    /// Connections open now.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// A place for a new connection from `remote`, given back when the pass is dropped.
    pub(crate) fn admit(self: &Arc<Self>, remote: IpAddr) -> Result<Pass, Refused> {
        let address = network_of(remote);
        if self.open.load(Ordering::Relaxed) >= self.limits.connections {
            return Err(Refused::Full(self.limits.connections));
        }
        let mut strangers = self.strangers();
        if strangers.open >= self.limits.strangers {
            return Err(Refused::Strangers(self.limits.strangers));
        }
        let per_address = (self.limits.strangers / 2).max(4);
        let entry = strangers.by_address.entry(address).or_default();
        if entry.open >= per_address {
            return Err(Refused::Address(per_address));
        }
        entry.open += 1;
        strangers.open += 1;
        self.open.fetch_add(1, Ordering::Relaxed);
        drop(strangers);
        Ok(Pass { gate: self.clone(), address, stranger: true })
    }

    /// Takes one request of a caller without a certificate, or says how long to wait.
    pub(crate) fn stranger_asks(&self, remote: IpAddr, now: Duration) -> Result<(), Duration> {
        let mut strangers = self.strangers();
        let entry = strangers.by_address.entry(network_of(remote)).or_default();
        entry.pace.take(now, self.limits.stranger_rate)
    }

    /// Forgets addresses that have no connection and no debt.
    pub(crate) fn sweep(&self, now: Duration) {
        self.strangers().by_address.retain(|_, s| s.open > 0 || !s.pace.is_rested(now));
    }

    fn strangers(&self) -> std::sync::MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn network_of(remote: IpAddr) -> IpAddr {
    match remote.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 => v4,
    }
}

/// A connection's place.
pub(crate) struct Pass {
    gate: Arc<Gate>,
    address: IpAddr,
    stranger: bool,
}

impl Pass {
    /// The connection showed a node's certificate: its place among strangers is free again.
    pub(crate) fn named(&mut self) {
        if std::mem::take(&mut self.stranger) {
            self.leave_strangers();
        }
    }

    fn leave_strangers(&self) {
        let mut strangers = self.gate.strangers();
        strangers.open = strangers.open.saturating_sub(1);
        if let Some(entry) = strangers.by_address.get_mut(&self.address) {
            entry.open = entry.open.saturating_sub(1);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.stranger {
            self.leave_strangers();
        }
        self.gate.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(connections: usize) -> Arc<Gate> {
        Gate::new(Limits { connections, ..Limits::default() }.resolve(0))
    }

    #[test]
    fn one_address_cannot_take_every_place() {
        let gate = gate(80); // 20 strangers, 10 an address
        let flood: Vec<_> = (0..20).map(|_| gate.admit([192, 0, 2, 1].into())).collect();
        assert_eq!(flood.iter().filter(|r| r.is_ok()).count(), 10);
        assert_eq!(flood[10].as_ref().err(), Some(&Refused::Address(10)));
        assert!(gate.admit([192, 0, 2, 2].into()).is_ok());
        drop(flood);
        assert_eq!(gate.open(), 0);
        assert!(gate.admit([192, 0, 2, 1].into()).is_ok());
    }

    #[test]
    fn named_nodes_leave_the_strangers_places() {
        let gate = gate(80);
        let nodes: Vec<_> = (0..60)
            .map(|_| {
                let mut pass = gate.admit([192, 0, 2, 1].into()).unwrap();
                pass.named();
                pass
            })
            .collect();
        assert_eq!(gate.open(), 60);
        assert!(gate.admit([192, 0, 2, 1].into()).is_ok());
        drop(nodes);
        assert_eq!(gate.open(), 0);
    }

    #[test]
    fn all_is_all() {
        let gate = gate(16);
        let mut held = Vec::new();
        for _ in 0..16 {
            let mut pass = gate.admit([192, 0, 2, 1].into()).unwrap();
            pass.named();
            held.push(pass);
        }
        assert_eq!(gate.admit([192, 0, 2, 9].into()).err(), Some(Refused::Full(16)));
    }

    #[test]
    fn a_network_of_ipv6_is_one_caller_and_mapped_v4_is_v4() {
        let a = network_of("2001:db8::1".parse().unwrap());
        assert_eq!(a, network_of("2001:db8::ffff:2".parse().unwrap()));
        assert_ne!(a, network_of("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(network_of("::ffff:192.0.2.1".parse().unwrap()), IpAddr::from([192, 0, 2, 1]));
    }

    #[test]
    fn rested_addresses_are_forgotten() {
        let gate = gate(80);
        let t = Duration::from_secs(10);
        gate.stranger_asks([192, 0, 2, 1].into(), t).unwrap();
        gate.sweep(t);
        assert_eq!(gate.strangers().by_address.len(), 1);
        gate.sweep(t + Duration::from_secs(1));
        assert_eq!(gate.strangers().by_address.len(), 0);
    }
}
