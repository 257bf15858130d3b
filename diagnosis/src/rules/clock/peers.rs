//! Other machines' clocks as this one met them: the `Date` of answers at load balancers and their backends, and dates of
//! certificates. Which clock is wrong is a question of majorities: one against one tells nothing.

use std::collections::BTreeMap;

use outrider_protocol::{
    CertificateFacts, ClockOffset, Fact, LoadBalancerFacts, NodeFacts, ProbeTarget, Timestamp,
};

use crate::rules::load_balancer::host_of;
use crate::wording::{Skew, names};

const NAMED: usize = 4;
/// What a header in whole seconds leaves open, in milliseconds.
const RESOLUTION_MS: i64 = 500;

/// One clock.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Peer {
    pub(super) name: String,
    /// Ours minus its, in milliseconds.
    pub(super) offset_ms: i64,
    uncertainty_ms: i64,
}

impl Peer {
    /// Whether it may be off from `other` (ours minus that one's) by no more than `limit`.
    fn agrees(&self, other: i64, other_uncertainty: i64, limit: i64) -> bool {
        let apart = self.offset_ms.saturating_sub(other).saturating_abs();
        apart <= limit.saturating_add(self.uncertainty_ms).saturating_add(other_uncertainty.max(0))
    }

    /// Off from ours for certain.
    fn is_off(&self, limit: i64) -> bool {
        self.offset_ms.saturating_abs().saturating_sub(self.uncertainty_ms) > limit
    }
}

/// Every other clock, once a machine. Through a balancer that hands TLS on it is a backend that answers, so that one counts
/// only where no backend was asked by itself.
pub(super) fn of(facts: &NodeFacts) -> Vec<Peer> {
    let balancers = facts.checks.load_balancer.as_ref().and_then(Fact::value);
    let mut found: BTreeMap<&str, Peer> = BTreeMap::new();
    for balancer in balancers.into_iter().flatten() {
        let behind = dates(balancer, &ProbeTarget::Backend);
        let seen = if behind.is_empty() { dates(balancer, &ProbeTarget::Balancer) } else { behind };
        for (host, peer) in seen {
            found.entry(host).or_insert(peer);
        }
    }
    found.into_values().collect()
}

fn dates<'a>(balancer: &'a LoadBalancerFacts, target: &ProbeTarget) -> BTreeMap<&'a str, Peer> {
    let mut found: BTreeMap<&str, Peer> = BTreeMap::new();
    for probe in balancer.probes.iter().filter(|probe| probe.target == *target) {
        let Some(answer) = probe.http.value() else { continue };
        let Some(offset_ms) = answer.date_offset_ms else { continue };
        let uncertainty_ms = RESOLUTION_MS.saturating_add(answer.ms.clamp(0.0, 60_000.0) as i64);
        let host = host_of(&probe.peer);
        let peer = Peer { name: host.to_owned(), offset_ms, uncertainty_ms };
        // The quickest answer tells best.
        match found.get(host) {
            Some(known) if known.uncertainty_ms <= peer.uncertainty_ms => {}
            _ => drop(found.insert(host, peer)),
        }
    }
    found
}

/// Whose clock is wrong.
pub(super) enum Whose {
    /// This one; who agrees with the other.
    Ours(String),
    /// The coordinator's; who agrees with ours.
    Coordinators(String),
    /// Too few clocks to say.
    Unclear,
}

/// This clock and the coordinator's differ: who sides with whom.
pub(super) fn whose(coordinator: &ClockOffset, others: &[Peer], limit: i64) -> Whose {
    let named = |side: Vec<&Peer>| names(side.iter().map(|peer| &peer.name), NAMED);
    let with = |offset: i64, uncertainty: i64| -> Vec<&Peer> {
        others.iter().filter(|peer| peer.agrees(offset, uncertainty, limit)).collect()
    };
    let (ours, theirs) = (with(0, 0), with(coordinator.offset_ms, coordinator.uncertainty_ms));
    match ours.len().cmp(&theirs.len()) {
        std::cmp::Ordering::Greater => Whose::Coordinators(named(ours)),
        std::cmp::Ordering::Less => Whose::Ours(named(theirs)),
        std::cmp::Ordering::Equal => Whose::Unclear,
    }
}

/// Clocks that are off from this one for certain.
pub(super) fn off(others: &[Peer], limit: i64) -> Vec<&Peer> {
    others.iter().filter(|peer| peer.is_off(limit)).collect()
}

/// How far this clock is off from each of `off`, as what follows "it is".
pub(super) fn apart(off: &[&Peer]) -> String {
    let one = |peer: &&Peer| {
        let way = if peer.offset_ms < 0 { "behind" } else { "ahead of" };
        format!("{} {way} {}", Skew(peer.offset_ms), peer.name)
    };
    names(off.iter().map(one), NAMED)
}

/// Where at least two clocks agree with each other that ours is off, and none that it is right: how far, and by whom.
pub(super) fn against_us(others: &[Peer], limit: i64) -> Option<(i64, String)> {
    let off = off(others, limit);
    let first = off.first()?;
    let agreed = off.iter().all(|peer| peer.agrees(first.offset_ms, first.uncertainty_ms, limit));
    (off.len() >= 2 && off.len() == others.len() && agreed)
        .then(|| (first.offset_ms, names(off.iter().map(|peer| &peer.name), NAMED)))
}

/// The certificate that begins farthest in this clock's future: one that was just made begins now.
pub(super) fn begins_latest(facts: &NodeFacts) -> Option<Timestamp> {
    let at_ports = facts.checks.load_balancer.as_ref().and_then(Fact::value).into_iter().flatten();
    let at_ports = at_ports.flat_map(|b| &b.probes).filter_map(|p| p.tls.value()).flat_map(|tls| &tls.chain);
    let certificates = facts.checks.certificates.as_ref().and_then(Fact::value);
    let on_disk =
        certificates.into_iter().flat_map(|c| &c.files).filter_map(|f| f.certificates.value()).flatten();
    let served = certificates.into_iter().flat_map(|c| &c.served).filter_map(|s| s.chain.value()).flatten();
    let begins = |c: &CertificateFacts| c.not_before;
    at_ports.chain(on_disk).chain(served).map(begins).filter(|from| *from > facts.now).max()
}
