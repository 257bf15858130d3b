//! `MachineReporting`: a machine that runs is heard as a node, or it is said since when it is not and what keeps it.

use std::time::Duration;

use outrider_protocol::{ConditionType, ReasonCode as R, Severity, Status, Timestamp};
use outrider_sync::harvester::{AgentConnected, Instance, Vm};

use super::{Machine, Node, Standing, running};
use crate::finding::Finding;
use crate::wording::{Moment, Span, names};

const TYPE: ConditionType = ConditionType::MachineReporting;
/// A first boot with updates and packages takes minutes.
const FIRST_BOOT: Duration = Duration::from_secs(300);
/// No first boot takes so long.
const TOO_LONG: Duration = Duration::from_secs(900);
/// Rancher's driver waits so long for a machine to run (`facts/guest-agent.md`, section 3).
const TO_RUN: Duration = Duration::from_secs(600);

pub(super) fn judge(machine: &Machine<'_>, now: Timestamp) -> Finding {
    match running(machine.vm) {
        Some(instance) => judge_running(machine, instance, now),
        None => idle(machine, now),
    }
}

fn new(status: Status, severity: Severity, reason: R, now: Timestamp, message: String) -> Finding {
    Finding::new(TYPE, status, severity, reason, now, message)
}

/// One that does not run: stopped, going, or on its way.
fn idle(machine: &Machine<'_>, now: Timestamp) -> Finding {
    let vm = machine.vm;
    let stale = match &machine.node {
        Standing::Is(node, _) => match node.last_seen {
            Some(at) => format!("; what node {} last reported is of {} and stale", node.name, Moment(at)),
            None => format!("; node {} never reported", node.name),
        },
        _ => String::new(),
    };
    let stopped = |message| new(Status::Unknown, Severity::Info, R::MachineStopped, now, message);
    if let Some(at) = vm.deleted_at.or(vm.instance.as_ref().and_then(|instance| instance.deleted_at)) {
        let what = if vm.deleted_at.is_some() { "deleted" } else { "stopped" };
        return stopped(format!("The machine has been being {what} for {}{stale}.", Span(now.since(at))));
    }
    // One that is a node has run.
    let limit = if stale.is_empty() { until_it_runs(vm, now) } else { String::new() };
    let Some(instance) = vm.instance.as_deref() else {
        return stopped(format!("The machine exists and does not run{stale}{limit}. Its labels are kept."));
    };
    if matches!(&*instance.phase, "Succeeded" | "Failed") {
        return stopped(format!("The machine has ended ({}){stale}. Its labels are kept.", instance.phase));
    }
    let waited = now.since(instance.created_at.unwrap_or(machine.watched_since));
    let is_late = waited >= TO_RUN;
    let severity = if is_late { Severity::Warn } else { Severity::Info };
    let phase = if instance.phase.is_empty() { "not scheduled" } else { &instance.phase };
    let message = format!("Being started for {}: {phase}{limit}.", Span(waited));
    let starting = new(Status::Unknown, severity, R::MachineStarting, now, message);
    match is_late {
        true => starting.advice(
            "See the events of the VirtualMachineInstance at Harvester: no host with room, a volume that does not attach and an \
             image that is still copied are the usual causes.",
        ),
        false => starting,
    }
}

/// What is left of the time in which Rancher's driver waits for a machine that it made to run. It counts from when the VM was
/// made; long after, nobody waits.
fn until_it_runs(vm: &Vm, now: Timestamp) -> String {
    let Some(made) = vm.created_at.filter(|_| vm.by_node_driver) else { return String::new() };
    let waited = now.since(made);
    match TO_RUN.checked_sub(waited) {
        Some(left) => format!("; Rancher waits {} more for it to run", Span(left)),
        None if waited < TO_RUN * 2 => {
            format!("; Rancher waits no longer than {} for it to run", Span(TO_RUN))
        }
        None => String::new(),
    }
}

fn judge_running(machine: &Machine<'_>, instance: &Instance, now: Timestamp) -> Finding {
    match &machine.node {
        Standing::Is(node, _) if node.is_pending => {
            let message = format!("Node {} asked to enrol and waits for approval.", node.name);
            new(Status::Unknown, Severity::Warn, R::EnrolmentPending, now, message)
                .advice(format!("If it is the machine it says it is: outrider approve {}", node.name))
        }
        Standing::Is(node, _) if node.last_seen.is_some() => heard(machine, node, instance, now),
        Standing::Is(node, _) => {
            never(machine, instance, now, &format!("node {} enrolled and has not reported", node.name))
        }
        Standing::Contradicted { node, by, .. } => never(
            machine,
            instance,
            now,
            &format!("node {node} has its {} and is another machine", by.as_str()),
        ),
        Standing::Several { .. } => {
            never(machine, instance, now, "which node it is cannot be told (MachineIdentified)")
        }
        Standing::Nobody => never(machine, instance, now, ""),
    }
}

fn heard(machine: &Machine<'_>, node: &Node<'_>, instance: &Instance, now: Timestamp) -> Finding {
    if node.heard == Status::True {
        let message = format!("The machine runs on host {} and node {} reports.", host(instance), node.name);
        return new(Status::True, Severity::Ok, R::MachineReports, now, message);
    }
    let began = machine.running_since(instance);
    let up = now.since(began);
    // Its silence while it was off is no news, and a boot takes its time.
    if up < FIRST_BOOT && node.last_seen.is_none_or(|at| at <= began) {
        let message = format!("VM up {}, node {} not heard since it was started.", Span(up), node.name);
        return new(Status::Unknown, Severity::Info, R::MachineStarting, now, message);
    }
    let ago = node.last_seen.map_or(Duration::ZERO, |at| now.since(at));
    let message = format!(
        "The machine runs on host {} by Harvester's word, and node {} has not been heard for {}.",
        host(instance),
        node.name,
        Span(ago)
    );
    new(Status::Unknown, Severity::Warn, R::NodeSilent, now, message).advice(
        "The machine itself is on: look at its console at Harvester for a guest that hangs, then at its network and at \
         journalctl -u outrider-agent on it.",
    )
}

fn host(instance: &Instance) -> &str {
    if instance.host.is_empty() { "(unknown)" } else { &instance.host }
}

/// One that runs and of which nothing was ever heard.
fn never(machine: &Machine<'_>, instance: &Instance, now: Timestamp, aside: &str) -> Finding {
    let up = now.since(machine.running_since(instance));
    let aside = if aside.is_empty() { String::new() } else { format!("; {aside}") };
    let (seen, causes) = suspects(instance);
    if up < FIRST_BOOT {
        let message = format!("VM up {}, no first contact yet{aside}. {seen}", Span(up));
        return new(Status::Unknown, Severity::Info, R::MachineStarting, now, message);
    }
    let severity = if up < TOO_LONG { Severity::Warn } else { Severity::Error };
    let message = format!("VM up {}, no first contact{aside}. {seen}", Span(up));
    new(Status::False, severity, R::MachineNeverReported, now, message).advice(causes)
}

/// What Harvester sees of the guest, and what that leaves as causes.
fn suspects(instance: &Instance) -> (String, &'static str) {
    let addresses = names(instance.addresses(), 3);
    let connected = matches!(instance.agent, AgentConnected::True(_));
    let agent = if connected { "Its guest agent is connected" } else { "Its guest agent is not connected" };
    let shown = match addresses.as_str() {
        "" => "no address is shown".to_owned(),
        addresses => format!("it shows {addresses}"),
    };
    let causes = match (connected, addresses.is_empty()) {
        (true, false) => {
            "The guest runs and has a network. Is outrider-agent installed and started there (systemctl status outrider-agent)? \
             Does its userdata install it, with a token that still opens? Is the coordinator reached from its network?"
        }
        (true, true) => {
            "The guest runs and has no network yet: see DHCP, the VM network and its VLAN, and the guest's network \
             configuration, at its console."
        }
        (false, false) => {
            "The guest has a network. Either its userdata did not run (cloud-init status --long at its console; an image without \
             cloud-init, or one installed from an ISO, runs none), or it installs neither qemu-guest-agent nor outrider-agent, \
             or the coordinator is not reached from its network."
        }
        (false, true) => {
            "Nothing inside has shown itself. In this order: does the guest boot (its console at Harvester)? An image without \
             cloud-init, or one installed from an ISO, runs no userdata, so that neither the guest agent nor outrider-agent was \
             installed. No guest agent: no address is shown, though there may be one. No network: see DHCP and the VM network."
        }
    };
    (format!("{agent} and {shown}."), causes)
}
