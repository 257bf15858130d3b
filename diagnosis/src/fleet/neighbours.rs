//! `NodePortsReachable` over a cluster: whose fault it is that nodes do not reach each other.
//!
//! Every node tries a few others and reports what came of it. Together that tells one node's own firewall (nobody
//! reaches the port) from one way (somebody does) and one direction (the way back works); a node that is not heard is
//! down and no question of the network; what a single node saw of another is told as that and no more.

use std::time::Duration;

use outrider_protocol::{
    Check, NeighbourFacts, NodeNetwork, NotApplicable, PortTry, Reach, ReasonCode as R, Severity, Status,
    Timestamp, TriedPort,
};

use super::Member;
use crate::finding::{Finding, Judgement};
use crate::rules::kubernetes::neighbours::{BLACK_HOLE_ADVICE, CLEAR, NAMED, Own, TYPE, standing};
use crate::rules::kubernetes::overlay::{Carries, carries, describe};
use crate::wording::{Count, names};

/// Reports of one pair arrive one after another: what two nodes said together must be said for so long.
const RAISE: Duration = Duration::from_secs(10);

/// One node that is heard and on the network.
struct Node<'a> {
    name: &'a str,
    network: &'a NodeNetwork,
}

/// One thing that is wrong.
struct Fault {
    severity: Severity,
    reason: R,
    what: String,
    advice: &'static str,
}

/// Adds the finding over the cluster, or why there is none.
pub(super) fn add(out: &mut Judgement, cluster: &str, members: &[Member<'_>], now: Timestamp) {
    match judge(members, now) {
        Some(finding) => out.findings.push(finding.subject(cluster)),
        None => out.not_applicable.push(NotApplicable {
            check: Check::Kubernetes,
            reason: "fewer than two nodes that are heard say where they stand on the network".to_owned(),
        }),
    }
}

/// The finding over the cluster; none while fewer than two nodes are on its network.
fn judge(members: &[Member<'_>], now: Timestamp) -> Option<Finding> {
    let heard = members.iter().filter(|m| m.ready == Status::True);
    let nodes: Vec<Node<'_>> =
        heard.filter_map(|m| Some(Node { name: m.name, network: m.network? })).collect();
    if nodes.len() < 2 {
        return None;
    }
    let mut faults = black_holes(&nodes);
    faults.extend(blocked_overlays(&nodes));
    faults.extend(closed_ports(&nodes));
    faults.extend(different_mtu(&nodes));
    faults.sort_by_key(|f| std::cmp::Reverse(f.severity));
    let finding = |status, severity, reason, message: String| {
        Finding::new(TYPE, status, severity, reason, now, message).waits(RAISE, CLEAR)
    };
    if let Some(first) = faults.first() {
        let status = if first.reason == R::OverlayMtuDiffers { Status::True } else { Status::False };
        let all: Vec<&str> = faults.iter().take(3).map(|f| f.what.as_str()).collect();
        let more = faults.len().saturating_sub(3);
        let more = if more > 0 { format!(" And {more} more.") } else { String::new() };
        let message = format!("{}.{more}", all.join(". "));
        return Some(finding(status, first.severity, first.reason.clone(), message).advice(first.advice));
    }
    let pairs =
        nodes.iter().flat_map(|n| &n.network.neighbours).filter(|n| standing(n) == Own::Answers).count();
    if pairs == 0 {
        let message = format!(
            "{} of the cluster report, and no try between two of them has told anything yet.",
            Count(nodes.len(), "node")
        );
        return Some(finding(Status::Unknown, Severity::Info, R::NeighboursUntested, message));
    }
    let message = format!(
        "{} of {} answer; every try that told anything did.",
        Count(pairs, "neighbour"),
        Count(nodes.len(), "node")
    );
    Some(finding(Status::True, Severity::Ok, R::NeighboursReached, message))
}

/// What nodes said of `target`, with their names.
fn of<'a>(nodes: &'a [Node<'a>], target: &str) -> Vec<(&'a str, &'a NeighbourFacts)> {
    let said = nodes.iter().flat_map(|n| n.network.neighbours.iter().map(|seen| (n.name, seen)));
    said.filter(|(_, seen)| seen.name == target).collect()
}

/// What `from` said of `to`.
fn said<'a>(nodes: &'a [Node<'a>], from: &str, to: &str) -> Option<&'a NeighbourFacts> {
    nodes.iter().find(|n| n.name == from)?.network.neighbours.iter().find(|n| n.name == to)
}

/// Ports at nodes' own addresses, of nodes that are heard.
fn closed_ports(nodes: &[Node<'_>]) -> Vec<Fault> {
    const PORTS: [TriedPort; 3] = [TriedPort::Apiserver, TriedPort::Supervisor, TriedPort::Kubelet];
    let mut faults = Vec::new();
    for node in nodes {
        let views = of(nodes, node.name);
        let try_of = |seen: &NeighbourFacts, port: &TriedPort| -> Option<PortTry> {
            seen.tries.iter().find(|t| t.port == *port && t.reach != Reach::Untried).cloned()
        };
        let mut all_sides = Vec::new();
        let mut some_sides = Vec::new();
        for port in PORTS {
            let tries: Vec<(&str, PortTry)> =
                views.iter().filter_map(|(by, seen)| Some((*by, try_of(seen, &port)?))).collect();
            let failed: Vec<&(&str, PortTry)> = tries.iter().filter(|(_, t)| t.is_failed()).collect();
            let answered = tries.iter().any(|(_, t)| t.reach == Reach::Answered);
            if failed.is_empty() {
                continue;
            }
            let by: Vec<&str> = failed.iter().map(|(by, _)| *by).collect();
            let how = failed.first().map_or_else(String::new, |(_, t)| t.reach.to_string());
            match answered {
                false if by.len() > 1 => all_sides.push((port, by, how)),
                _ => some_sides.push((port, by, how, answered)),
            }
        }
        if let Some((_, by, how)) = all_sides.first() {
            let ports = names(all_sides.iter().map(|(port, ..)| port.to_string()), NAMED);
            let filter = match node.network.firewalls.as_slice() {
                [] => "no host firewall is known there".to_owned(),
                some => format!("active there: {}", some.join(", ")),
            };
            faults.push(Fault {
                severity: Severity::Error,
                reason: R::NeighbourPortsClosed,
                what: format!(
                    "{} answers none of {} on {ports} ({how}), and reports itself: its own service or firewall ({filter})",
                    node.name,
                    names(by, NAMED)
                ),
                advice: "Look at the node that is named: does the service listen, and what do its host firewall and security \
                         group let in? 6443, 10250 and on RKE2 9345 must be open between all nodes.",
            });
        }
        for (port, by, how, answered) in some_sides {
            let back = by.first().and_then(|from| said(nodes, node.name, from)).map(standing);
            let what = match (answered, back) {
                (true, Some(Own::Answers)) => {
                    "only from there, and the way back works, so it is one direction".to_owned()
                }
                (true, _) => "only from there: others reach it, so it is the way between".to_owned(),
                (false, Some(Own::Answers)) => {
                    "seen by one node alone; the way back works, so it is this direction or the port itself"
                        .to_owned()
                }
                (false, _) => "seen by one node alone: too few tries to say whose fault".to_owned(),
            };
            faults.push(Fault {
                severity: Severity::Warn,
                reason: R::NeighbourPortsClosed,
                what: format!("{} does not reach {} on {port} ({how}), {what}", names(by, NAMED), node.name),
                advice: "Compare routes, security groups and host firewalls of the two nodes that are named, in the direction \
                         that fails.",
            });
        }
    }
    faults
}

/// Pairs whose overlay stands in one way: `(from, to)`.
fn pairs<'a>(nodes: &'a [Node<'a>], wanted: Carries) -> Vec<(&'a Node<'a>, &'a str, &'a PortTry)> {
    let heard = |name: &str| nodes.iter().any(|n| n.name == name);
    let all = nodes.iter().flat_map(|n| n.network.neighbours.iter().map(move |seen| (n, seen)));
    all.filter(|(_, seen)| heard(&seen.name))
        .filter_map(|(n, seen)| {
            let (carries, tried) = carries(seen);
            (carries == wanted).then_some((n, seen.name.as_str(), tried?))
        })
        .collect()
}

/// A node that every pair has in common, when there are several pairs of different partners.
fn common(pairs: &[(&Node<'_>, &str, &PortTry)]) -> Option<String> {
    let (from, to, _) = pairs.first()?;
    [from.name, *to].into_iter().find_map(|name| {
        let all = pairs.iter().all(|(a, b, _)| a.name == name || *b == name);
        let mut partners: Vec<&str> =
            pairs.iter().map(|(a, b, _)| if a.name == name { *b } else { a.name }).collect();
        partners.sort_unstable();
        partners.dedup();
        (all && partners.len() > 1).then(|| name.to_owned())
    })
}

fn way(pair: &(&Node<'_>, &str, &PortTry)) -> String {
    let (from, _, tried) = pair;
    let overlay = from.network.overlays.iter().find(|o| o.interface == tried.interface);
    overlay.map_or_else(|| tried.interface.clone(), describe)
}

fn list(pairs: &[(&Node<'_>, &str, &PortTry)]) -> String {
    names(pairs.iter().map(|(from, to, _)| format!("{} to {to}", from.name)), NAMED)
}

fn blocked_overlays(nodes: &[Node<'_>]) -> Option<Fault> {
    let pairs = pairs(nodes, Carries::Blocked);
    let first = pairs.first()?;
    let whose = match common(&pairs) {
        Some(name) => {
            let firewalls =
                nodes.iter().find(|n| n.name == name).map_or(&[][..], |n| n.network.firewalls.as_slice());
            let active = if firewalls.is_empty() {
                String::new()
            } else {
                format!(", {} active there", firewalls.join(", "))
            };
            format!("; {name} is one end of every such pair, so it is its firewall or CNI{active}")
        }
        None => String::new(),
    };
    Some(Fault {
        severity: Severity::Error,
        reason: R::OverlayBlocked,
        what: format!(
            "The overlay ({}) carries nothing from {}, whose own addresses answer{whose}",
            way(first),
            list(&pairs)
        ),
        advice: "Open the CNI's port that is named between all nodes, both ways, in host firewalls and security groups; then see \
                 whether the CNI's pod runs on the node that the pairs have in common.",
    })
}

fn black_holes(nodes: &[Node<'_>]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let overlay = pairs(nodes, Carries::SmallOnly);
    if let Some(first) = overlay.first() {
        let whose = common(&overlay)
            .map_or_else(String::new, |name| format!("; {name} is one end of every such pair"));
        faults.push(Fault {
            severity: Severity::Error,
            reason: R::PathBlackHole,
            what: format!(
                "Only small packets pass the overlay ({}) from {}{whose}",
                way(first),
                list(&overlay)
            ),
            advice: BLACK_HOLE_ADVICE,
        });
    }
    let own: Vec<String> = nodes
        .iter()
        .flat_map(|n| n.network.neighbours.iter().map(move |seen| (n.name, seen)))
        .filter(|(_, seen)| standing(seen) == Own::BlackHole)
        .map(|(from, seen)| format!("{from} to {}", seen.name))
        .collect();
    if !own.is_empty() {
        faults.push(Fault {
            severity: Severity::Error,
            reason: R::PathBlackHole,
            what: format!("Only small packets pass the machines' own network from {}", names(own, NAMED)),
            advice: BLACK_HOLE_ADVICE,
        });
    }
    faults
}

/// Overlay interfaces of one name must have one MTU.
fn different_mtu(nodes: &[Node<'_>]) -> Option<Fault> {
    let mut seen: Vec<(&str, u32, Vec<&str>)> = Vec::new();
    for node in nodes {
        for o in &node.network.overlays {
            let Some(mtu) = o.mtu else { continue };
            match seen.iter_mut().find(|(name, m, _)| *name == o.interface && *m == mtu) {
                Some((.., by)) => by.push(node.name),
                None => seen.push((&o.interface, mtu, vec![node.name])),
            }
        }
    }
    let interface = seen.iter().find(|(name, mtu, _)| seen.iter().any(|(n, m, _)| n == name && m != mtu))?.0;
    let mut of_it: Vec<&(&str, u32, Vec<&str>)> =
        seen.iter().filter(|(name, ..)| *name == interface).collect();
    of_it.sort_by_key(|(_, mtu, by)| (std::cmp::Reverse(by.len()), *mtu));
    let words: Vec<String> =
        of_it.iter().map(|(_, mtu, by)| format!("{mtu} on {}", names(by, NAMED))).collect();
    Some(Fault {
        severity: Severity::Warn,
        reason: R::OverlayMtuDiffers,
        what: format!("{interface} has different MTU: {}", words.join("; ")),
        advice: "Set one MTU for the whole cluster in the CNI's configuration: the smallest that every path carries.",
    })
}
