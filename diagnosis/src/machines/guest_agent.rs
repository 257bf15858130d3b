//! `GuestAgentConnected`: the guest agent as the host sees it, beside what the node says of it, and how long Rancher still
//! waits for an address (`facts/guest-agent.md`, sections 3, 8 and 9: A2, A10, A11).

use std::time::Duration;

use outrider_protocol::{ConditionType, ReasonCode as R, Severity, Status, Timestamp};
use outrider_sync::harvester::{AgentConnected, Instance};

use super::{Machine, Standing};
use crate::finding::Finding;
use crate::wording::{Span, names, upper};

const TYPE: ConditionType = ConditionType::GuestAgentConnected;
/// The host may notice an agent that runs as late as this.
const POLLED_WITHIN: Duration = Duration::from_secs(360);
/// Rancher's driver asks 120 times, every 5 s, for a running machine's address.
const FOR_ADDRESS: Duration = Duration::from_secs(600);
/// The driver is no longer taken to wait so long after its limit: a machine that is still there was not made by it, or got
/// its address and lost it.
const AFTER_LIMIT: Duration = Duration::from_secs(600);
/// A machine that first ran so long after it was made was stopped meanwhile, and nobody waits for it.
const FIRST_START: Duration = Duration::from_secs(1200);
/// With so little time left it is to be looked at now.
const HURRY: Duration = Duration::from_secs(240);
/// A connection or an address that is lost for a shorter time is a known flap of the host.
const FLAP: Duration = Duration::from_secs(600);

/// A flap is not told before it has lasted so long.
const FLAP_SHOWN: Duration = Duration::from_secs(120);

const NOTICE: &str = "Nothing is to be done in the guest, and restarting the guest agent does not help. If Harvester does not notice it by \
                      itself, a live migration of the machine makes it look again.";

pub(super) fn judge(machine: &Machine<'_>, instance: &Instance, now: Timestamp) -> Finding {
    match instance.agent {
        AgentConnected::True(since) => connected(machine, instance, since, now),
        AgentConnected::False(_) | AgentConnected::Unsaid => match machine.agent_lost {
            Some(at) => disconnected(machine, instance, at, now),
            None => not_connected(machine, instance, now),
        },
    }
}

fn new(status: Status, severity: Severity, reason: R, now: Timestamp, message: String) -> Finding {
    Finding::new(TYPE, status, severity, reason, now, message)
}

/// What is left of the time in which Rancher's driver waits for the address of a machine it is making.
enum Wait {
    /// It does not wait.
    No,
    /// So long still.
    Left(Duration),
    /// It gave up so long ago.
    Over(Duration),
}

impl Wait {
    fn of(machine: &Machine<'_>, instance: &Instance, now: Timestamp) -> Self {
        let began = machine.running_since(instance);
        let first = machine.vm.created_at.is_some_and(|made| began.since(made) <= FIRST_START);
        if !machine.vm.by_node_driver || !first || instance.satisfies_driver() || machine.had_first_ipv4 {
            return Wait::No;
        }
        let waited = now.since(began);
        match FOR_ADDRESS.checked_sub(waited) {
            Some(left) => Wait::Left(left),
            None if waited < FOR_ADDRESS + AFTER_LIMIT => Wait::Over(waited - FOR_ADDRESS),
            None => Wait::No,
        }
    }

    /// How grave it is to have nothing yet, where it is no more than a warning otherwise.
    fn severity(&self, otherwise: Severity) -> Severity {
        match self {
            Wait::Left(left) if *left <= HURRY => Severity::Error,
            Wait::Over(_) => Severity::Error,
            _ => otherwise,
        }
    }

    fn words(&self) -> String {
        match self {
            Wait::No => String::new(),
            Wait::Left(left) => {
                format!(
                    " {} left before Rancher takes the machine for failed, deletes it and makes another.",
                    Span(*left)
                )
            }
            Wait::Over(ago) => format!(
                " Rancher's limit of {} passed {} ago: it deletes this machine and makes another, again and again.",
                Span(FOR_ADDRESS),
                Span(*ago)
            ),
        }
    }
}

fn connected(
    machine: &Machine<'_>,
    instance: &Instance,
    since: Option<Timestamp>,
    now: Timestamp,
) -> Finding {
    let usable = names(instance.addresses(), 3);
    let wait = Wait::of(machine, instance, now);
    // While Rancher counts down nothing is well, whatever other interfaces show.
    if matches!(wait, Wait::No) {
        if !usable.is_empty() {
            let message = format!("The guest agent is connected; Harvester shows {usable}.");
            return new(Status::True, Severity::Ok, R::GuestAgentConnectedAtHost, now, message);
        }
        if let Some((last, at)) = machine.last_addresses.filter(|(_, at)| now.since(*at) < FLAP) {
            let message = format!(
                "The guest agent is connected and Harvester has shown no address for {}; {} stays shown. This is a known flap \
                 of the host.",
                Span(now.since(at)),
                names(last.iter().map(|a| &**a), 3)
            );
            return new(Status::True, Severity::Info, R::GuestAgentNoAddress, now, message)
                .waits(FLAP_SHOWN, Duration::ZERO);
        }
    }
    let since = since.unwrap_or(machine.running_since(instance));
    let seen = match (&*instance.first_address, usable.as_str()) {
        ("", "") => "no address".to_owned(),
        ("", others) => {
            format!("{others}, and nothing at the first interface: Rancher's driver looks at no other")
        }
        (first, _) => format!(
            "{first} at the first interface: Rancher's driver looks at no other and takes none but IPv4"
        ),
    };
    let advice = if usable.is_empty() { NO_ADDRESS } else { NO_FIRST_IPV4 };
    let message = format!(
        "The guest agent has been connected for {}, and Harvester shows {seen}.{}",
        Span(now.since(since)),
        wait.words()
    );
    if now.since(since) < POLLED_WITHIN {
        let severity = wait.severity(Severity::Info);
        let status = if severity == Severity::Error { Status::False } else { Status::Unknown };
        return new(status, severity, R::GuestAgentNoAddress, now, message).advice(advice);
    }
    new(Status::False, wait.severity(Severity::Warn), R::GuestAgentNoAddress, now, message).advice(advice)
}

const NO_ADDRESS: &str = "See at the machine's console whether the guest has an address (ip address). If it has, the guest agent may be told not \
                          to answer guest-network-get-interfaces (GuestAgentReady of the node says so); if it has not, see DHCP and \
                          the VM network. A first interface with nothing but fe80:: has no IPv4 yet.";

const NO_FIRST_IPV4: &str = "Make the network that gives IPv4 addresses the first of the machine's networks (Rancher's machine pool), or see at the \
                             machine's console and at DHCP why the first one gives none.";

/// It was connected in this run of the machine.
fn disconnected(machine: &Machine<'_>, instance: &Instance, at: Timestamp, now: Timestamp) -> Finding {
    let ago = now.since(at);
    let node = node_says(machine);
    let wait = Wait::of(machine, instance, now);
    if ago < FLAP && matches!(wait, Wait::No) {
        let message = format!(
            "The guest agent has not been connected for {}; the last good addresses stay shown. This is a known flap of the \
             host.{node}",
            Span(ago)
        );
        return new(Status::True, Severity::Info, R::GuestAgentDisconnected, now, message)
            .waits(FLAP_SHOWN, Duration::ZERO);
    }
    let message =
        format!("Harvester has not reached the guest agent for {}.{node}{}", Span(ago), wait.words());
    let advice = match own_word(machine) {
        Some((Status::True, _)) => NOTICE,
        _ => "See GuestAgentReady of the node, or systemctl status qemu-guest-agent on the machine.",
    };
    new(Status::False, Severity::Warn, R::GuestAgentDisconnected, now, message).advice(advice)
}

/// It has not been seen connected in this run of the machine.
fn not_connected(machine: &Machine<'_>, instance: &Instance, now: Timestamp) -> Finding {
    let began = machine.running_since(instance);
    let up = now.since(began);
    // Before it was watched it may have been connected.
    let never =
        if machine.watched_since.since(began) <= POLLED_WITHIN { "never connected" } else { "not connected" };
    let wait = Wait::of(machine, instance, now);
    match own_word(machine) {
        Some((Status::True, told)) => {
            let waited = now.since(told.max(began));
            let message = format!(
                "Agent up, host has not polled yet: node {} says for {} that the guest agent runs, and Harvester has not noticed \
                 it (up to {} is usual).{}",
                node_name(machine),
                Span(waited),
                Span(POLLED_WITHIN),
                wait.words()
            );
            let is_late = waited >= POLLED_WITHIN;
            let (status, severity) =
                if is_late { (Status::False, Severity::Warn) } else { (Status::Unknown, Severity::Info) };
            new(status, severity, R::GuestAgentNotPolled, now, message).advice(NOTICE)
        }
        Some(_) => {
            let message = format!(
                "VM running for {}, guest agent {never}.{}{}",
                Span(up),
                node_says(machine),
                wait.words()
            );
            let severity = wait.severity(if up < POLLED_WITHIN { Severity::Info } else { Severity::Warn });
            let status = if severity == Severity::Info { Status::Unknown } else { Status::False };
            new(status, severity, R::GuestAgentNeverConnected, now, message)
                .advice(format!("Do what GuestAgentReady of node {} says.", node_name(machine)))
        }
        None => {
            let message = format!(
                "VM running for {}, guest agent {never}; without it no address is shown, whatever DHCP gave.{}",
                Span(up),
                wait.words()
            );
            let severity = wait.severity(if up < POLLED_WITHIN { Severity::Info } else { Severity::Warn });
            let status = if severity == Severity::Info { Status::Unknown } else { Status::False };
            new(status, severity, R::GuestAgentNeverConnected, now, message).advice(
                "Install qemu-guest-agent in the guest: packages: [qemu-guest-agent] in its userdata, before Rancher's script \
                 (Rancher's driver has not added it since v0.6.3, and userdata that is edited later does not run again). An image \
                 without cloud-init, or one installed from an ISO, needs it installed by hand.",
            )
        }
    }
}

/// The node's own word on its guest agent, and since when it stands by it.
fn own_word(machine: &Machine<'_>) -> Option<(Status, Timestamp)> {
    let Standing::Is(node, _) = &machine.node else { return None };
    node.guest_agent.map(|c| (c.status, c.last_transition_time))
}

fn node_name<'a>(machine: &Machine<'a>) -> &'a str {
    match &machine.node {
        Standing::Is(node, _) => node.name,
        _ => "",
    }
}

/// The node's own word as a sentence; empty without one.
fn node_says(machine: &Machine<'_>) -> String {
    let Standing::Is(node, _) = &machine.node else { return String::new() };
    match node.guest_agent {
        Some(c) if c.status == Status::True => format!(" Node {} says that it runs.", node.name),
        Some(c) => format!(" Node {} says ({}): {}", node.name, c.reason.as_str(), upper(&c.message)),
        None => String::new(),
    }
}
