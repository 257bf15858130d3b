//! `NodePortsReachable`: the ports that nodes of one cluster need of each other (inbound rules of RKE2's and K3s'
//! `requirements.md`), as this node finds them at its neighbours' own addresses. etcd's ports are left to the check
//! `etcd`.
//!
//! One failed try is no news: a port counts as failed from the second in a row on ([`PortTry::is_failed`]).

use std::time::Duration;

use outrider_protocol::{
    ConditionType, NeighbourFacts, NodeNetwork, PortTry, Reach, ReasonCode as R, Severity, Status, Timestamp,
    TriedPort,
};

use crate::finding::Finding;
use crate::wording::{Count, names};

pub(crate) const TYPE: ConditionType = ConditionType::NodePortsReachable;

/// Two failed tries have passed already when this is found; one that answers again must stay for a while.
pub(crate) const CLEAR: Duration = Duration::from_secs(30);
pub(crate) const NAMED: usize = 5;

/// How a neighbour's own address answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Nothing was tried, or only once in vain.
    Untold,
    /// Every port answers.
    Answers,
    /// None answers, and nothing says that the machine is there.
    Away,
    /// It takes connections, and large packets do not come through.
    BlackHole,
    /// Some ports fail.
    Closed,
}

/// Tries at the node's own address.
pub(crate) fn own(neighbour: &NeighbourFacts) -> impl Iterator<Item = &PortTry> {
    neighbour.tries.iter().filter(|t| t.port != TriedPort::Overlay && t.reach != Reach::Untried)
}

pub(crate) fn standing(neighbour: &NeighbourFacts) -> Own {
    let tries: Vec<&PortTry> = own(neighbour).collect();
    let failed: Vec<&&PortTry> = tries.iter().filter(|t| t.is_failed()).collect();
    if failed.is_empty() {
        let all_answer = !tries.is_empty() && tries.iter().all(|t| t.reach == Reach::Answered);
        return if all_answer { Own::Answers } else { Own::Untold };
    }
    let all = failed.len() == tries.len();
    let is_mute = |t: &&&PortTry| matches!(t.reach, Reach::Silent | Reach::Prohibited);
    if all && failed.iter().all(is_mute) {
        return Own::Away;
    }
    // One process that hangs stalls its own port; a path that drops large packets stalls every port it connects.
    let connects: Vec<&&PortTry> =
        tries.iter().filter(|t| !is_mute(t) && t.reach != Reach::Refused).collect();
    if connects.len() > 1 && connects.iter().all(|t| t.reach == Reach::Stalled && t.is_failed()) {
        return Own::BlackHole;
    }
    Own::Closed
}

pub(super) fn judge(network: &NodeNetwork, at: Timestamp) -> Option<Finding> {
    if network.neighbours.is_empty() {
        return None;
    }
    let finding = |status, severity, reason, message: String| {
        Finding::new(TYPE, status, severity, reason, at, message).waits(Duration::ZERO, CLEAR)
    };
    let of = |wanted: Own| network.neighbours.iter().filter(move |n| standing(n) == wanted);
    let list = |wanted: Own| names(of(wanted).map(failures), NAMED);
    if of(Own::BlackHole).next().is_some() {
        let message = format!(
            "Connections stand and large packets do not come through, on the machines' own network: {}.",
            list(Own::BlackHole)
        );
        return Some(
            finding(Status::False, Severity::Error, R::PathBlackHole, message).advice(BLACK_HOLE_ADVICE),
        );
    }
    if of(Own::Closed).next().is_some() {
        let message = format!("Ports that this node needs do not answer: {}.", list(Own::Closed));
        return Some(finding(Status::False, Severity::Warn, R::NeighbourPortsClosed, message).advice(
            "Refused: see whether the service runs at the neighbour. Silent or prohibited: a firewall there, here or between \
             drops the packets; 6443, 10250 and on RKE2 9345 must be open between all nodes. Stalled: the process there hangs.",
        ));
    }
    let away = of(Own::Away).count();
    if away > 0 {
        // Of one alone it cannot be told whether it is down or out of reach; that all are down is less likely than that
        // we are alone.
        let alone = away == network.neighbours.len() && away > 1;
        let (severity, what) = match alone {
            true => (
                Severity::Warn,
                "None of the neighbours answers on any port, so look at this node's network first",
            ),
            false => (Severity::Info, "No port answers, so the node is down or out of reach from here"),
        };
        let message = format!("{what}: {}.", list(Own::Away));
        return Some(finding(Status::Unknown, severity, R::NeighbourAway, message).advice(
            "See whether the neighbour runs and reports. If it does, the way between is closed: route, security group, firewall \
             of either side; the coordinator's verdict on the cluster says who else does not reach it.",
        ));
    }
    let answers = of(Own::Answers).count();
    if answers == 0 {
        let message = format!(
            "{} named to try, and no try has told anything yet.",
            Count(network.neighbours.len(), "neighbour")
        );
        return Some(finding(Status::Unknown, Severity::Info, R::NeighboursUntested, message));
    }
    let slowest = network.neighbours.iter().flat_map(own).map(|t| t.ms).max().unwrap_or(0);
    let again = of(Own::Untold).count();
    let again =
        if again > 0 { format!("; {} tried again", Count(again, "neighbour")) } else { String::new() };
    let message = format!(
        "{} of {} answer on every port, the slowest after {slowest} ms{again}.",
        answers,
        Count(network.neighbours.len(), "neighbour")
    );
    Some(finding(Status::True, Severity::Ok, R::NeighboursReached, message))
}

pub(crate) const BLACK_HOLE_ADVICE: &str = "Something on the way has a smaller MTU and its \"fragmentation needed\" (ICMP) does not come back. Find it with ping -M do \
     -s 1472 at the neighbour's own address and smaller sizes; then set that MTU on the machines' interfaces, or let the ICMP \
     through. The overlay's MTU must be smaller still by its header.";

/// A neighbour with what failed of it.
pub(crate) fn failures(neighbour: &NeighbourFacts) -> String {
    let failed = neighbour.tries.iter().filter(|t| t.is_failed() && t.port != TriedPort::Overlay);
    let words: Vec<String> = failed.map(port_and_reach).collect();
    if words.is_empty() {
        neighbour.name.clone()
    } else {
        format!("{} ({})", neighbour.name, words.join(", "))
    }
}

/// Such as `kubelet 192.0.2.2:10250 silent, 3 tries`.
pub(crate) fn port_and_reach(t: &PortTry) -> String {
    format!("{} {} {}, {} tries", t.port, t.peer, t.reach, t.failures)
}
