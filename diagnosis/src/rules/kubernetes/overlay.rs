//! The overlay network, `NodePortsReachable` with subject `overlay`: whether the CNI's encapsulation carries packets to
//! the neighbours, full ones too, and whether its MTU leaves room for its own headers.
//!
//! A TLS handshake with a neighbour's kubelet at its overlay address goes through the encapsulation. Where the node's
//! own address answers and the overlay's does not, the UDP port is closed between them; where the connection stands and
//! the handshake stalls, full packets are lost.

use std::time::Duration;

use outrider_protocol::{
    Encapsulation, NeighbourFacts, NodeNetwork, OverlayFacts, PortTry, Reach, ReasonCode as R, Severity,
    Status, Timestamp, TriedPort,
};

use super::neighbours::{BLACK_HOLE_ADVICE, CLEAR, NAMED, TYPE};
use crate::finding::Finding;
use crate::wording::{Count, names};

/// How the overlay to one neighbour stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carries {
    /// Not tried, or the neighbour's own address does not answer either.
    Untold,
    /// Full packets come through.
    Works,
    /// Nothing comes through.
    Blocked,
    /// Small packets come through and full ones do not.
    SmallOnly,
}

/// What the newest tries of a neighbour say of the overlay, with the try that says it.
pub(crate) fn carries(neighbour: &NeighbourFacts) -> (Carries, Option<&PortTry>) {
    let kubelet = neighbour.tries.iter().find(|t| t.port == TriedPort::Kubelet);
    let is_there = kubelet.is_some_and(|t| t.reach == Reach::Answered);
    let tried: Vec<&PortTry> = neighbour
        .tries
        .iter()
        .filter(|t| t.port == TriedPort::Overlay && t.reach != Reach::Untried)
        .collect();
    let verdict = |t: &&PortTry| match t.reach {
        // A refusal has come all the way back through the overlay.
        Reach::Answered | Reach::Refused => Carries::Works,
        _ if !t.is_failed() || !is_there => Carries::Untold,
        Reach::Stalled => Carries::SmallOnly,
        _ => Carries::Blocked,
    };
    let rank = |c: &Carries| match c {
        Carries::Blocked => 3,
        Carries::SmallOnly => 2,
        Carries::Works => 1,
        Carries::Untold => 0,
    };
    let all = tried.into_iter().map(|t| (verdict(&t), Some(t)));
    all.max_by_key(|(c, _)| rank(c)).unwrap_or((Carries::Untold, None))
}

pub(super) fn judge(network: &NodeNetwork, at: Timestamp) -> Option<Finding> {
    if network.overlays.is_empty() {
        return None;
    }
    let finding = |status, severity, reason, message: String| {
        Finding::new(TYPE, status, severity, reason, at, message)
            .subject("overlay")
            .waits(Duration::ZERO, CLEAR)
    };
    let of = |wanted: Carries| network.neighbours.iter().filter(move |n| carries(n).0 == wanted);
    let list = |wanted: Carries| {
        names(of(wanted).map(|n| carries(n).1.map_or_else(|| n.name.clone(), |t| named(n, t))), NAMED)
    };
    if let Some(first) = of(Carries::Blocked).next() {
        let message = format!(
            "The overlay does not carry packets to {}, though the kubelet answers at the node's own address; this overlay is {}.",
            list(Carries::Blocked),
            way(network, first)
        );
        return Some(finding(Status::False, Severity::Error, R::OverlayBlocked, message).advice(
            "Open the CNI's port named above between all nodes, in host firewalls and security groups of both sides. If it is \
             open: see whether the CNI's pod runs on both nodes, and on VMware or with checksum offloading whether UDP checksums \
             of the overlay are broken.",
        ));
    }
    if let Some(first) = of(Carries::SmallOnly).next() {
        let message = format!(
            "Small packets reach {} through the overlay and full ones do not: the connection stands and the TLS handshake \
             stalls, while it ends well at the node's own address; this overlay is {}, MTU {}, over an interface of MTU {}.",
            list(Carries::SmallOnly),
            way(network, first),
            overlay_of(network, first).and_then(|o| o.mtu).map_or("unknown".to_owned(), |m| m.to_string()),
            network.mtu.map_or("unknown".to_owned(), |m| m.to_string())
        );
        return Some(
            finding(Status::False, Severity::Error, R::PathBlackHole, message).advice(BLACK_HOLE_ADVICE),
        );
    }
    if let Some((o, room)) = too_large(network) {
        let message = format!(
            "{} has MTU {} and the interface below it {}: {} takes {} bytes, so at most {room} is left.",
            o.interface,
            o.mtu.unwrap_or_default(),
            network.mtu.unwrap_or_default(),
            o.encapsulation,
            overhead(o, network),
        );
        return Some(finding(Status::True, Severity::Warn, R::OverlayMtuTooLarge, message).advice(
            "Set the CNI's MTU to the value named above or less on all nodes (flannel takes it from the interface it is bound to \
             when its pod starts; Canal, Calico and Cilium have a setting), or raise that of the machines' interfaces.",
        ));
    }
    let works = of(Carries::Works).count();
    if works == 0 {
        // A node alone has nobody to try: nothing applies.
        return (!network.neighbours.is_empty()).then(|| {
            let message = format!(
                "The overlay to {} has not been told yet.",
                Count(network.neighbours.len(), "neighbour")
            );
            finding(Status::Unknown, Severity::Info, R::NeighboursUntested, message)
        });
    }
    let ways: Vec<String> = network.overlays.iter().map(describe).collect();
    let message = format!(
        "The overlay carries full packets to {} of {} ({}).",
        works,
        Count(network.neighbours.len(), "neighbour"),
        ways.join(", ")
    );
    Some(finding(Status::True, Severity::Ok, R::OverlayWorks, message))
}

fn named(neighbour: &NeighbourFacts, t: &PortTry) -> String {
    format!("{} ({} {}, {} tries)", neighbour.name, t.peer, t.reach, t.failures)
}

fn overlay_of<'a>(network: &'a NodeNetwork, neighbour: &NeighbourFacts) -> Option<&'a OverlayFacts> {
    let (_, tried) = carries(neighbour);
    network.overlays.iter().find(|o| tried.is_some_and(|t| t.interface == o.interface))
}

fn way(network: &NodeNetwork, neighbour: &NeighbourFacts) -> String {
    overlay_of(network, neighbour).map_or_else(|| "unknown".to_owned(), describe)
}

/// Such as `flannel.1, VXLAN of canal or flannel over UDP 8472`.
pub(crate) fn describe(o: &OverlayFacts) -> String {
    let (name, cni) = (&o.interface, &o.cni);
    match o.encapsulation {
        Encapsulation::Vxlan => format!("{name}, VXLAN of {cni} over UDP {}", o.port),
        Encapsulation::Geneve => format!("{name}, Geneve of {cni} over UDP {}", o.port),
        Encapsulation::Wireguard => format!("{name}, WireGuard of {cni} over UDP {}", o.port),
        Encapsulation::Ipip => format!("{name}, IP in IP of {cni} (IP protocol 4)"),
        Encapsulation::None => format!("{name} of {cni}, routed without encapsulation"),
        Encapsulation::Other(ref word) => format!("{name}, {word} of {cni}"),
    }
}

/// Bytes that an encapsulation adds to a packet: outer IP header (20, IPv6 40), UDP 8, and VXLAN 8 with the inner
/// Ethernet header 14 (RFC 7348, section 5), or WireGuard 32 (its protocol's data message); IP in IP 20 (RFC 2003).
pub(crate) fn overhead(o: &OverlayFacts, network: &NodeNetwork) -> u32 {
    let over_ipv6 = network.addresses.first().is_some_and(|a| a.contains(':')) || o.interface.contains("v6");
    let outer = if over_ipv6 { 40 } else { 20 };
    match o.encapsulation {
        Encapsulation::Vxlan | Encapsulation::Geneve => outer + 8 + 8 + 14,
        Encapsulation::Wireguard => outer + 8 + 32,
        Encapsulation::Ipip => 20,
        Encapsulation::None | Encapsulation::Other(_) => 0,
    }
}

/// An overlay whose packets do not fit the interface below, and what would.
fn too_large(network: &NodeNetwork) -> Option<(&OverlayFacts, u32)> {
    let below = network.mtu?;
    network.overlays.iter().find_map(|o| {
        let room = below.saturating_sub(overhead(o, network));
        (o.mtu? > room).then_some((o, room))
    })
}
