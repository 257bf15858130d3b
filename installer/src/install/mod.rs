//! Making this machine a managed node, and unmaking it.
//!
//! The tour: [`Machine`] is the root that is worked on, running or an image; [`Wishes`] are what was asked for, as the
//! agent's configuration; [`Release`] is where the programs come from. [`preflight`] looks, changes nothing and tells
//! what stands in the way; [`plan()`] is a pure function from what is wanted and what was seen to the steps; [`apply()`]
//! does them, each written into the [`Receipt`] before; [`undo`] makes of a receipt the steps back.
//!
//! Killed anywhere, both directions are run again: what a step needs to be undone is on disk before it is done, every
//! step and every step back looks at the machine first, and a file is replaced as a whole or not at all.

mod apply;
mod files;
mod look;
mod machine;
mod plan;
mod preflight;
mod programs;
mod receipt;
mod release;
mod step;
#[cfg(test)]
mod tests;
pub(crate) mod undo;
mod userdata;
mod wishes;

pub(crate) use apply::apply;
pub(crate) use look::look;
pub(crate) use machine::Machine;
pub(crate) use plan::{Plan, plan, wanted};
pub(crate) use preflight::{Finding, Preflight};
pub(crate) use receipt::Receipt;
pub(crate) use release::Release;
pub(crate) use step::{Held, Planned};
pub(crate) use undo::Undo;
pub(crate) use wishes::{Given, Wishes};

/// Where receipt, replaced files and a release that is being unpacked lie; root's alone.
pub(crate) const FOLDER: &str = "/var/lib/outrider-install";
/// Our drop-in. After what userdata wrote (`50-userdata.toml`), for an installation is the later word.
pub(crate) const DROP_IN: &str = "/etc/outrider/agent.toml.d/60-install.toml";
/// The enrolment token.
pub(crate) const TOKEN: &str = "/etc/outrider/token";
/// The agent's identity and spool; systemd makes it (`StateDirectory=`).
pub(crate) const STATE: &str = "/var/lib/outrider";
/// What the guest agent's set-up has to remember over a boot.
pub(crate) const GUEST_AGENT_STATE: &str = "/var/lib/outrider-guest-agent";
/// A coordinator's data, never touched here.
pub(crate) const COORDINATOR_STATE: &str = "/var/lib/outrider-coordinator";
/// The units of a node and the target that wants each, as their `[Install]` says.
pub(crate) const UNITS: [(&str, &str); 4] = [
    ("outrider-helper.socket", "sockets.target"),
    ("outrider-guest-agent.path", "paths.target"),
    ("outrider-guest-agent.timer", "timers.target"),
    ("outrider-agent.service", "multi-user.target"),
];
/// The daemon's unit.
pub(crate) const AGENT_UNIT: &str = "outrider-agent.service";
/// The daemon's program.
pub(crate) const AGENT: &str = "/usr/bin/outrider-agent";

/// The link that has `unit` started by `target`, and where it leads.
pub(crate) fn wants(unit: &str, target: &str) -> (String, String) {
    (format!("/etc/systemd/system/{target}.wants/{unit}"), format!("/usr/lib/systemd/system/{unit}"))
}
