//! `GuestAgentReady`: channel, binary, unit, process, in that order (`facts/guest-agent.md`, sections 4 and 8); then what keeps
//! one that runs from being of use (`hindered`), and what the set-up said of one that does not (`setup`).

mod hindered;
mod setup;

use std::time::Duration;

use outrider_protocol::{
    Check, ConditionType, Fact, GuestAgentFacts, NodeFacts, NotApplicable, Profile, ReasonCode as R,
    Severity, Status, Timestamp, UnitFacts, UnknownCause,
};

use super::unread;
use crate::finding::{Finding, Judgement};
use crate::wording::{Span, names};

const TYPE: ConditionType = ConditionType::GuestAgentReady;
/// A package upgrade restarts the unit.
const RAISE: Duration = Duration::from_secs(60);

/// Hypervisors that may have the channel; elsewhere its absence means nothing.
const WITH_CHANNEL: [&str; 2] = ["kvm", "qemu"];

pub(super) fn judge(out: &mut Judgement, guest: &GuestAgentFacts, at: Timestamp, facts: &NodeFacts) {
    match not_applicable(guest, facts) {
        Some(reason) => out.not_applicable.push(NotApplicable { check: Check::GuestAgent, reason }),
        None => {
            let found = finding(guest, at, facts);
            out.findings.push(setup::told(found, guest, at, facts));
        }
    }
}

/// Why this machine needs no guest agent; `None` when it does, or may.
fn not_applicable(guest: &GuestAgentFacts, facts: &NodeFacts) -> Option<String> {
    let no_channel = matches!(guest.port, Fact::Absent { .. } | Fact::NotApplicable { .. });
    if !no_channel || facts.node.profile == Profile::HarvesterVm {
        return None;
    }
    let host = facts.checks.host.as_ref().and_then(Fact::value);
    if let Some(kind) = host.and_then(|h| h.virtualization.value())
        && !WITH_CHANNEL.contains(&kind.as_str())
    {
        return Some(match kind.as_str() {
            "none" => "this is no virtual machine".to_owned(),
            other => format!("virtualization is {other}, which has no QEMU guest-agent channel"),
        });
    }
    // Many clouds run KVM without the channel; only an owner who meant it (profile, package) is told of a fault.
    let unwanted = !matches!(guest.binary, Fact::Known { .. } | Fact::Unknown { .. })
        && !matches!(guest.process, Fact::Known { .. });
    unwanted.then(|| {
        "this VM has neither a guest-agent channel nor the agent; set profile = \"harvester-vm\" if it runs on SUSE \
         Virtualization"
            .to_owned()
    })
}

fn finding(guest: &GuestAgentFacts, at: Timestamp, facts: &NodeFacts) -> Finding {
    let new = |status, severity, reason, message: String| {
        Finding::new(TYPE, status, severity, reason, at, message).waits(RAISE, Duration::ZERO)
    };
    let uptime = guest.uptime_seconds.value().copied();
    let grace = facts.thresholds.guest_agent_grace_seconds;
    let in_grace = uptime.is_some_and(|s| s < grace);
    let age = match uptime {
        Some(s) => format!("{} after boot (grace {})", seconds(s), seconds(grace)),
        None => "at an unknown time after boot".to_owned(),
    };

    // The channel before anything else: without it no unit can help.
    match &guest.port {
        Fact::Known { .. } => {}
        Fact::Absent { source, .. } => {
            let wanted = facts.node.profile == Profile::HarvesterVm;
            let severity = if wanted { Severity::Error } else { Severity::Warn };
            let package = match &guest.binary {
                Fact::Known { value, .. } => format!("the agent is installed ({value})"),
                Fact::Absent { .. } => "the agent is not installed either".to_owned(),
                _ => "whether the agent is installed could not be read".to_owned(),
            };
            // By another channel (a serial port, vsock) it may run all the same, where no KubeVirt looks for it.
            let runs = guest.process.value().map_or(String::new(), |p| {
                format!(
                    "; {} runs as process {} all the same, by something else than the channel",
                    p.name, p.pid
                )
            });
            let own = own_addresses(facts);
            let message =
                format!("This VM has no guest-agent channel ({source} is not there); {package}{runs}{own}.");
            return new(Status::False, severity, R::GuestAgentPortMissing, message).advice(
                "The channel org.qemu.guest_agent.0 must be added to the VM on the host and the VM restarted (a stop and \
                 start, not a reboot from within): SUSE Virtualization and KubeVirt give it to every VM at its start, \
                 libvirt by a channel of type unix with that name on a virtio target, Proxmox VE by the option QEMU Guest \
                 Agent. Restarting the service inside does not help.",
            );
        }
        Fact::NotApplicable { reason, .. } => {
            let message = format!("The guest-agent channel was not looked for: {reason}.");
            return Finding::unknown(TYPE, &UnknownCause::NotYetRead, Severity::Info, at, message);
        }
        Fact::Unknown { cause, detail, at, .. } => {
            let message = format!("The guest-agent channel could not be read: {detail}.");
            return Finding::unknown(TYPE, cause, Severity::Warn, *at, message);
        }
    }

    let unit = best_unit(guest);
    let masked = unit.is_some_and(is_masked);
    let unit_words = match unit {
        Some(u) => format!(
            "{} is {}, {}{}",
            u.name,
            or_dash(&u.load_state),
            or_dash(&u.active_state),
            if u.unit_file_state.is_empty() { String::new() } else { format!(", {}", u.unit_file_state) }
        ),
        None => match &guest.units {
            Fact::Unknown { detail, .. } => format!("its unit could not be read ({detail})"),
            _ => "systemd knows no unit for it".to_owned(),
        },
    };
    let process = guest.process.value();
    let active = unit.is_some_and(|u| u.active_state == "active");
    // A process list that was read beats a unit that says active; one that was not read leaves the unit's word.
    let running = process.is_some() || (active && !matches!(guest.process, Fact::Absent { .. }));

    if running {
        let who = match process {
            Some(p) => format!("{} runs as process {} for {}", p.name, p.pid, seconds(p.seconds)),
            None => "its unit is active".to_owned(),
        };
        if let Some(hindered) = hindered::running(guest, at, &who, &own_addresses(facts)) {
            return hindered.waits(RAISE, Duration::ZERO);
        }
        if masked {
            let message = format!("The guest agent runs ({who}) but its unit is masked: {unit_words}.");
            return new(Status::True, Severity::Warn, R::GuestAgentMasked, message).advice(MASKED_ADVICE);
        }
        let message = format!("The guest agent has its channel and {who}; {unit_words}.");
        return new(Status::True, Severity::Ok, R::GuestAgentRunning, message);
    }
    if masked {
        let message = format!("Somebody masked the guest agent's unit: {unit_words}; {age}.");
        return new(Status::False, Severity::Error, R::GuestAgentMasked, message).advice(MASKED_ADVICE);
    }

    let own = own_addresses(facts);
    if matches!(guest.binary, Fact::Absent { .. }) && unit.is_none_or(|u| u.load_state == "not-found") {
        let severity = if in_grace { Severity::Warn } else { Severity::Error };
        let message = format!("No qemu-ga is installed, {age}; the host cannot see this VM's address{own}.");
        return new(Status::False, severity, R::GuestAgentNotInstalled, message).advice(
            "Install the package qemu-guest-agent (with guest_agent.manage = true Outrider does it). Userdata that is edited \
             now does not run again on this VM. Addresses come from DHCP all the same: this is no DHCP failure.",
        );
    }

    // Nothing says it runs. If nothing could be read either, that is no verdict.
    let could_not_tell = unread(TYPE, "The process list", &guest.process, Severity::Warn)
        .filter(|_| unit.is_none() || matches!(guest.units, Fact::Unknown { .. }));
    if let Some(unknown) = could_not_tell {
        return unknown;
    }
    let denials = hindered::denials(guest, at);
    if let (false, Some(quoted)) = (denials.is_empty(), hindered::quote(&denials)) {
        let message =
            format!("The guest agent does not run, {age}: {unit_words}; SELinux denied it: {quoted}{own}.");
        return new(
            Status::False,
            if in_grace { Severity::Warn } else { Severity::Error },
            R::GuestAgentDenied,
            message,
        )
        .advice(hindered::DENIED_ADVICE);
    }
    let no_unit = matches!(&guest.units, Fact::Known { value, .. } if value.iter().all(|u| u.load_state == "not-found"));
    if no_unit && matches!(guest.binary, Fact::Known { .. }) && matches!(guest.process, Fact::Absent { .. }) {
        let severity = if in_grace { Severity::Warn } else { Severity::Error };
        let binary = guest.binary.value().map_or("qemu-ga", String::as_str);
        let message = format!(
            "The guest agent is installed ({binary}) and systemd knows neither qemu-guest-agent.service nor \
             qemu-ga.service, {age}; the host cannot see this VM's address{own}."
        );
        return new(Status::False, severity, R::GuestAgentUnitMissing, message).advice(
            "The unit comes with the package qemu-guest-agent: install it, or ask systemctl daemon-reload where it was \
             installed a moment ago. Another package may bring the binary alone.",
        );
    }
    if in_grace {
        let message = format!("The guest agent does not run yet, {age}: {unit_words}.");
        return new(Status::Unknown, Severity::Info, R::GuestAgentStarting, message)
            .advice("Wait until the grace has passed; packages may still be installed.");
    }
    let message = format!(
        "The guest agent does not run, {age}: {unit_words}; the host cannot see this VM's address{own}."
    );
    new(Status::False, Severity::Error, R::GuestAgentStopped, message).advice(
        "Start the unit that exists and read its journal (systemctl start, journalctl -u). A static unit without an \
         Install section is normal: a udev rule starts it with the channel.",
    )
}

const MASKED_ADVICE: &str = "Find out who masked it and why; only then unmask it (systemctl unmask) and start it. \
                             Outrider does not unmask, and reinstalling the package does not help.";

/// The unit that counts: one that exists, running before stopped. Both names are in use (A5).
fn best_unit(guest: &GuestAgentFacts) -> Option<&UnitFacts> {
    let units = guest.units.value()?;
    units
        .iter()
        .filter(|u| u.load_state != "not-found")
        .max_by_key(|u| (u.active_state == "active", !is_masked(u), u.load_state == "loaded"))
}

fn is_masked(unit: &UnitFacts) -> bool {
    unit.load_state == "masked" || unit.unit_file_state.starts_with("masked")
}

fn or_dash(word: &str) -> &str {
    if word.is_empty() { "-" } else { word }
}

fn seconds(s: u64) -> Span {
    Span(Duration::from_secs(s))
}

/// What the guest itself sees, for people who look at an empty address column.
fn own_addresses(facts: &NodeFacts) -> String {
    let interfaces = facts.checks.host.as_ref().and_then(Fact::value).and_then(|h| h.interfaces.value());
    let real = interfaces.into_iter().flatten().filter(|i| i.up && !i.is_virtual);
    let addresses: Vec<&str> =
        real.flat_map(|i| &i.addresses).map(String::as_str).filter(|a| !a.starts_with("fe80:")).collect();
    if addresses.is_empty() {
        String::new()
    } else {
        format!("; the guest itself has {}", names(addresses, 4))
    }
}
