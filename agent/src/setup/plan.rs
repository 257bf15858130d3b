//! What is to be done about the guest agent: a pure function of what was looked at.
//!
//! Inaction has a reason too. What the check `guest-agent` sees by itself (no channel, a masked unit) is left to its rules to
//! name; a reason code is given for what only the set-up knows.

use outrider_protocol::{Fact, GuestAgentFacts, Plan, ReasonCode, StepKind, UnitFacts};

use super::packages::{Manager, PACKAGE, Source};
use super::plan_document;
use super::situation::Situation;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait until cloud-init has installed its packages.
    WaitForCloudInit,
    /// Wait until nobody holds the package manager's lock.
    WaitForLock,
    /// Finish what an interrupted installation of ours left.
    Repair,
    /// Install the package.
    Install(Source),
    /// Start the unit that exists.
    Start,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// Nothing is left to do.
    Done(String),
    /// Things stay as they are, because of this.
    Held { reason: Option<ReasonCode>, message: String },
    /// These steps, in order.
    Go(Vec<Step>),
}

/// Which setting of a VM makes the channel.
pub(super) const CHANNEL: &str = "the VM lacks the virtio channel org.qemu.guest_agent.0: SUSE Virtualization and KubeVirt give it to \
     every VM at its start (stop and start the VM), libvirt by <channel type=\"unix\"> with <target type=\"virtio\" \
     name=\"org.qemu.guest_agent.0\"/>, Proxmox VE by the option QEMU Guest Agent";

/// Decides.
pub(super) fn plan(situation: &Situation) -> Verdict {
    let held = |reason, message: String| Verdict::Held { reason, message };
    let policy = match &situation.policy {
        Ok(policy) => policy,
        Err(why) => return held(Some(ReasonCode::GuestAgentSetupHeld), why.clone()),
    };
    if !policy.manage {
        return held(None, "guest_agent.manage is not true, so nothing is installed or started".to_owned());
    }
    let guest = match &situation.guest {
        Fact::Known { value, .. } => value,
        Fact::NotApplicable { reason, .. } => {
            return held(None, format!("no guest agent is expected here: {reason}"));
        }
        Fact::Absent { source, .. } => return held(None, format!("nothing found at {source}")),
        Fact::Unknown { detail, .. } => {
            return held(None, format!("the guest agent's state could not be read: {detail}"));
        }
    };
    match &guest.port {
        Fact::Known { .. } => {}
        Fact::Absent { .. } => return held(None, CHANNEL.to_owned()),
        _ => return held(None, "whether the VM has the guest agent's channel could not be read".to_owned()),
    }
    if let Some(process) = guest.process.value() {
        return Verdict::Done(format!("{} runs as process {}", process.name, process.pid));
    }
    let units = guest.units.value().map_or(&[][..], Vec::as_slice);
    if let Some(unit) = units.iter().find(|u| u.active_state == "active") {
        return Verdict::Done(format!("{} is active", unit.name));
    }
    // A mask on either name is somebody's decision about the agent.
    if let Some(unit) = units.iter().find(|u| is_masked(u)) {
        return held(None, format!("{} is masked, and is not unmasked", unit.name));
    }
    if matches!(guest.process, Fact::Unknown { .. }) {
        return held(None, "whether the guest agent runs could not be read".to_owned());
    }
    installed(situation, guest, &policy.source)
}

/// The channel is there and nothing runs.
fn installed(situation: &Situation, guest: &GuestAgentFacts, source: &Result<Source, String>) -> Verdict {
    let held = |reason, message: String| Verdict::Held { reason, message };
    let mut steps = Vec::new();
    // Only dpkg leaves work behind that nothing but an own call finishes.
    let repairs = situation.interrupted && situation.manager == Some(Manager::Apt);
    match &guest.binary {
        Fact::Known { .. } if repairs => steps.extend([Step::WaitForLock, Step::Repair]),
        Fact::Known { .. } => {
            let known = guest.units.value();
            if known.is_some_and(|units| !units.iter().any(is_loaded)) {
                let message = "the guest agent is installed and systemd knows no unit for it; units are the distribution's to ship";
                return held(None, message.to_owned());
            }
        }
        Fact::Absent { .. } => {
            let Some(manager) = situation.manager else {
                let message = "no apt, zypper, transactional-update or dnf is here to install the guest agent with; put it into the image";
                return held(Some(ReasonCode::GuestAgentInstallFailed), message.to_owned());
            };
            if situation.in_next_snapshot {
                let message = format!("{PACKAGE} is installed in the next snapshot; a reboot activates it");
                return held(Some(ReasonCode::GuestAgentRebootNeeded), message);
            }
            let source = match source {
                Ok(source) => source.clone(),
                Err(why) => return held(Some(ReasonCode::GuestAgentSetupHeld), why.clone()),
            };
            if situation.cloud_init_installs {
                steps.push(Step::WaitForCloudInit);
            }
            steps.push(Step::WaitForLock);
            if repairs {
                steps.push(Step::Repair);
            }
            steps.push(Step::Install(source));
            if manager == Manager::Transactional {
                return Verdict::Go(steps);
            }
        }
        _ => return held(None, "whether the guest agent is installed could not be read".to_owned()),
    }
    steps.push(Step::Start);
    Verdict::Go(steps)
}

/// Whether somebody masked it.
fn is_masked(unit: &UnitFacts) -> bool {
    unit.load_state == "masked" || unit.unit_file_state.starts_with("masked")
}

/// Whether it can be started.
pub(super) fn is_loaded(unit: &UnitFacts) -> bool {
    unit.load_state == "loaded" && !is_masked(unit)
}

/// The verdict as a document.
pub(super) fn describe(verdict: &Verdict, manager: Option<Manager>) -> Plan {
    let manager = manager.map_or("no package manager", Manager::name);
    let step = |kind, target: &str, reason: &str| outrider_protocol::Step {
        kind,
        target: target.to_owned(),
        reason: reason.to_owned(),
    };
    match verdict {
        Verdict::Go(steps) => {
            let steps = steps.iter().map(|s| match s {
                Step::WaitForCloudInit => {
                    step(StepKind::WaitForCloudInit, "cloud-init", "its own packages come first")
                }
                Step::WaitForLock => step(StepKind::WaitForLock, manager, "who holds it is never ended"),
                Step::Repair => {
                    step(StepKind::RepairPackages, manager, "our own installation was interrupted")
                }
                Step::Install(Source::Repositories) => {
                    step(StepKind::InstallPackage, PACKAGE, "the guest agent is not installed")
                }
                Step::Install(Source::Files(files)) => {
                    let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
                    step(StepKind::InstallPackage, &names.join(", "), "guest_agent.package_file names it")
                }
                Step::Start => {
                    step(StepKind::StartUnit, "the unit that exists", "the guest agent does not run")
                }
            });
            plan_document(steps.collect(), Vec::new())
        }
        Verdict::Done(message) => plan_document(
            Vec::new(),
            vec![step(StepKind::InstallPackage, PACKAGE, &format!("nothing to do: {message}"))],
        ),
        Verdict::Held { message, .. } => {
            plan_document(Vec::new(), vec![step(StepKind::InstallPackage, PACKAGE, message)])
        }
    }
}
