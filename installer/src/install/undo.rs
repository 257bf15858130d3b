//! The way back: from a receipt to steps, and doing them.
//!
//! Only what we made goes. A file that is not as we left it is another's by now and stays, said with its reason; so does
//! what a package or a coordinator on this machine needs. `--purge` takes settings, token, identity and users too.

mod act;
mod seen;

pub(crate) use act::act;
pub(crate) use seen::{Lies, look};

use super::files::{Lying, There};
use super::receipt::{Class, Made};
use super::step::{Held, Planned};
use super::{
    AGENT, AGENT_UNIT, COORDINATOR_STATE, FOLDER, GUEST_AGENT_STATE, Machine, Receipt, STATE, UNITS,
    programs, wants,
};

/// Settings of a node.
const SETTINGS: &str = "/etc/outrider";
/// Sockets and the last verdict.
const RUNTIME: &str = "/run/outrider";
/// What became of the guest agent's set-up.
const GUEST_AGENT_RUNTIME: &str = "/run/outrider-guest-agent";
/// The user of a coordinator.
const COORDINATOR: &str = "outrider-coordinator";

/// One step back. Each looks before it does something, so that it may be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// Stop units, and wait for it: one that does not stop would run on without its files.
    Stop(Vec<String>),
    /// Remove a link of ours.
    Unlink(String),
    /// Remove a file.
    Remove(String),
    /// Put back what lay there before us.
    Restore {
        /// Its path.
        path: String,
        /// Its sum, the name of the copy.
        sha256: String,
        /// Permission bits.
        mode: u32,
        /// Owner and group.
        owner: (u32, u32),
    },
    /// Remove a folder with all in it.
    RemoveTree(String),
    /// Remove a user and its group.
    RemoveUser(String),
    /// Remove a folder when nothing is in it.
    RemoveFolder(String),
    /// Have systemd read the units.
    Reload,
    /// Start a unit anew with what was put back.
    Restart(String),
}

impl Back {
    /// The name of the kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Back::Stop(_) => "StopUnits",
            Back::Unlink(_) => "DisableUnit",
            Back::Remove(_) => "RemoveFile",
            Back::Restore { .. } => "RestoreFile",
            Back::RemoveTree(_) => "RemoveTree",
            Back::RemoveUser(_) => "RemoveUser",
            Back::RemoveFolder(_) => "RemoveFolder",
            Back::Reload => "ReloadSystemd",
            Back::Restart(_) => "RestartUnit",
        }
    }

    /// On what.
    pub(crate) fn target(&self) -> String {
        match self {
            Back::Stop(units) => units.join(", "),
            Back::Unlink(path)
            | Back::Remove(path)
            | Back::Restore { path, .. }
            | Back::RemoveTree(path)
            | Back::RemoveFolder(path) => path.clone(),
            Back::RemoveUser(name) | Back::Restart(name) => name.clone(),
            Back::Reload => "systemd".to_owned(),
        }
    }
}

/// The steps back, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Undo {
    /// What is to be done.
    pub(crate) steps: Vec<Planned<Back>>,
    /// What stays.
    pub(crate) held: Vec<Held>,
    /// What the receipt says afterwards; `None`: it goes.
    pub(crate) remaining: Option<Receipt>,
}

impl Undo {
    fn add(&mut self, step: Back, reason: impl Into<String>) {
        self.steps.push(Planned { step, reason: reason.into() });
    }

    fn hold(&mut self, target: impl Into<String>, reason: impl Into<String>) {
        self.held.push(Held { target: target.into(), reason: reason.into() });
    }
}

/// The steps back from what `receipt` says, on a machine where that `lies`.
pub(crate) fn undo(receipt: &Receipt, lies: &Lies, purge: bool) -> Undo {
    let mut undo = Undo::default();
    if let Some(package) = &lies.package {
        undo.hold(
            "programs, units, manual",
            format!("the package {} laid them out; {} takes them away", package.name, package.removal),
        );
    }
    stop(receipt, lies, purge, &mut undo);
    let mut stays = Vec::new();
    for made in &receipt.made {
        if let Made::Link { path, target } = made
            && lies.links.get(path).is_some_and(|to| to == target)
        {
            undo.add(Back::Unlink(path.clone()), "it is not to start at boot");
        }
    }
    for made in receipt.made.iter().rev() {
        let Made::File { path, .. } = made else { continue };
        if !of_file(made, lies, purge, &mut undo) {
            stays.push(path.as_str());
        }
    }
    for draft in &lies.drafts {
        undo.add(Back::Remove(draft.clone()), "a run that ended in between left it");
    }
    let of_ours = |wanted: &str| {
        receipt.made.iter().any(|made| matches!(made, Made::Folder { path } if path == wanted))
    };
    let settings_go = of_ours(SETTINGS) && !lies.coordinator && !lies.coordinator_settings;
    for (tree, reason) in [
        (RUNTIME, "sockets and the last verdict"),
        (GUEST_AGENT_RUNTIME, "what became of the guest agent's set-up"),
    ] {
        if lies.trees.contains(tree) && lies.package.is_none() {
            undo.add(Back::RemoveTree(tree.to_owned()), reason);
        }
    }
    if purge {
        if lies.trees.contains(GUEST_AGENT_STATE) {
            undo.add(
                Back::RemoveTree(GUEST_AGENT_STATE.to_owned()),
                "what the guest agent's set-up remembers; the guest agent itself stays",
            );
        }
        if lies.trees.contains(STATE) {
            undo.add(
                Back::RemoveTree(STATE.to_owned()),
                "the identity of the node; to be one again, it needs a new token",
            );
        }
        if settings_go && lies.trees.contains(SETTINGS) {
            undo.add(Back::RemoveTree(SETTINGS.to_owned()), "settings and secrets, made for this node");
        } else if lies.trees.contains(SETTINGS) && of_ours(SETTINGS) {
            undo.hold(SETTINGS, "a coordinator's settings lie there; what we put into it goes");
        } else if lies.trees.contains(SETTINGS) {
            undo.hold(
                SETTINGS,
                "it was there before the installation; what we put into it goes, the rest is not ours",
            );
        }
        users(receipt, lies, &mut undo);
    } else {
        let kept: Vec<&str> =
            [SETTINGS, STATE].into_iter().filter(|path| lies.trees.contains(*path)).collect();
        if !kept.is_empty() {
            let why = "settings, token and identity stay, so that the same node comes back after another installation; \
                       --purge takes them";
            undo.hold(kept.join(", "), why);
        }
    }
    let mut folders: Vec<&String> = receipt
        .made
        .iter()
        .filter_map(|made| match made {
            Made::Folder { path } => Some(path),
            _ => None,
        })
        .filter(|path| lies.trees.contains(*path) && (purge || !path.starts_with(SETTINGS)))
        .filter(|path| !(purge && settings_go && path.starts_with(SETTINGS)))
        .collect();
    folders.sort_by_key(|path| std::cmp::Reverse(path.matches('/').count()));
    for folder in folders {
        undo.add(Back::RemoveFolder(folder.clone()), "if nothing is in it");
    }
    if lies.live && undo.steps.iter().any(|planned| touches_units(&planned.step)) {
        undo.add(Back::Reload, "units are gone");
    }
    let restored =
        |planned: &Planned<Back>| matches!(&planned.step, Back::Restore { path, .. } if path == AGENT);
    let stopped = undo.steps.iter().any(|planned| matches!(&planned.step, Back::Stop(_)));
    if lies.running.contains(AGENT_UNIT) && !stopped && undo.steps.iter().any(restored) {
        undo.add(Back::Restart(AGENT_UNIT.to_owned()), "the program it ran before is back");
    }
    undo.remaining = remaining(receipt, lies, purge, &stays);
    if undo.remaining.is_none() {
        undo.add(Back::RemoveTree(FOLDER.to_owned()), "the receipt, last of all");
    }
    undo
}

/// What there is to do where no receipt lies: nothing, but for a folder that a crash left before its first word.
pub(crate) async fn nothing(machine: &Machine) -> anyhow::Result<Undo> {
    let mut undo = Undo::default();
    let replaced = format!("{FOLDER}/replaced");
    if std::fs::read_dir(machine.at(&replaced)).is_ok_and(|mut files| files.next().is_some()) {
        undo.hold(
            replaced,
            "what an installation replaced lies here, named by SHA-256, and no receipt says where it belongs: put back what is \
             yours, then remove it",
        );
    } else if machine.is_dir(FOLDER) {
        undo.add(Back::RemoveTree(FOLDER.to_owned()), "a run that ended in between left it");
    }
    let package = if machine.has(AGENT) { programs::package_of(machine, AGENT).await? } else { None };
    match package {
        Some(package) => undo.hold(
            "programs, units, manual",
            format!("the package {} laid them out; {} takes them away", package.name, package.removal),
        ),
        None => {
            let links = UNITS.iter().map(|(unit, target)| wants(unit, target).0);
            let there: Vec<String> = [AGENT, SETTINGS, STATE, GUEST_AGENT_STATE]
                .into_iter()
                .map(str::to_owned)
                .chain(links)
                .filter(|path| machine.has(path))
                .collect();
            if !there.is_empty() {
                undo.hold(
                    there.join(", "),
                    "no receipt says that `outrider install` made it (an image, or a tree that was unpacked); docs/install.md \
                     says how to remove it",
                );
            }
        }
    }
    Ok(undo)
}

fn stop(receipt: &Receipt, lies: &Lies, purge: bool, undo: &mut Undo) {
    // Started by us, or by systemd because of our link, as after an image's first boot.
    let ours = |wanted: &str| {
        receipt.made.iter().any(|made| match made {
            Made::Started { unit } => unit == wanted,
            Made::Link { path, .. } => path.ends_with(&format!("/{wanted}")),
            _ => false,
        })
    };
    // The daemon before the socket it asks through.
    let units: Vec<String> = UNITS
        .iter()
        .rev()
        .map(|(unit, _)| *unit)
        .filter(|unit| lies.running.contains(*unit) && (purge || ours(unit)))
        .map(str::to_owned)
        .collect();
    if let Some(unit) = UNITS.iter().map(|(unit, _)| *unit).find(|u| lies.running.contains(*u) && !ours(u)) {
        let why = if purge {
            "it ran before the installation; it is stopped, for its identity goes, and starts at the next boot if it is enabled"
        } else {
            "it ran before the installation, and goes on"
        };
        undo.hold(unit, why);
    }
    if !units.is_empty() {
        undo.add(Back::Stop(units), "one that ran on would miss its files");
    }
}

/// Plans for a file of ours; `false`: it stays, and so does its entry.
fn of_file(made: &Made, lies: &Lies, purge: bool, undo: &mut Undo) -> bool {
    let Made::File { path, class, ours, before } = made else { return true };
    let there = match lies.files.get(path) {
        None | Some(There::Nothing) => {
            let kept = before.as_ref().filter(|before| lies.copies.contains(&before.sha256));
            let goes = match class {
                Class::Configuration => purge,
                Class::Program => lies.package.is_none(),
            };
            return match kept {
                Some(before) if goes => {
                    undo.add(restore(path, before), "it lay there before the installation");
                    true
                }
                Some(_) => false,
                None => true,
            };
        }
        Some(There::File(there)) => there,
        Some(There::Other | There::Unreadable(_)) => {
            undo.hold(path, "it is no file that we wrote");
            return false;
        }
    };
    if before.as_ref().is_some_and(|before| before.sha256 == there.sha256) {
        return true;
    }
    let changed = !ours.contains(&there.sha256);
    match class {
        Class::Configuration if !purge => {
            if changed {
                undo.hold(path, "it was changed since it was written");
            }
            return false;
        }
        Class::Program if lies.package.is_some() => return false,
        Class::Program if lies.coordinator && path.contains(COORDINATOR) => {
            undo.hold(path, "the coordinator on this machine needs it; stop and disable outrider-coordinator.service first");
            return false;
        }
        Class::Program if changed => {
            undo.hold(path, "it was changed since it was written; remove it yourself if nobody needs it");
            return false;
        }
        _ => {}
    }
    match before {
        Some(before) => undo.add(restore(path, before), "it lay there before the installation"),
        None => undo.add(Back::Remove(path.clone()), "it was not there before the installation"),
    }
    true
}

fn restore(path: &str, before: &Lying) -> Back {
    Back::Restore {
        path: path.to_owned(),
        sha256: before.sha256.clone(),
        mode: before.mode,
        owner: (before.uid, before.gid),
    }
}

fn users(receipt: &Receipt, lies: &Lies, undo: &mut Undo) {
    for made in &receipt.made {
        let Made::User { name } = made else { continue };
        if !lies.users.contains(name) {
            continue;
        }
        if lies.package.is_some() {
            undo.hold(name, "the units of the package run as this user");
        } else if name == COORDINATOR && (lies.coordinator || lies.trees.contains(COORDINATOR_STATE)) {
            undo.hold(name, format!("{COORDINATOR_STATE}, a coordinator's data, belongs to this user"));
        } else {
            undo.add(Back::RemoveUser(name.clone()), "it was made for the units");
        }
    }
}

fn touches_units(step: &Back) -> bool {
    match step {
        Back::Remove(path) | Back::Restore { path, .. } | Back::Unlink(path) => {
            path.contains("/systemd/system/")
        }
        _ => false,
    }
}

fn remaining(receipt: &Receipt, lies: &Lies, purge: bool, stays: &[&str]) -> Option<Receipt> {
    let mut left = receipt.clone();
    left.complete = false;
    left.made.retain(|made| match made {
        Made::File { path, .. } => stays.contains(&path.as_str()),
        Made::Folder { path } => lies.trees.contains(path) && !purge,
        Made::User { name } => !purge && lies.users.contains(name),
        Made::Link { .. } | Made::Started { .. } => false,
    });
    let something =
        left.made.iter().any(|made| !matches!(made, Made::Folder { path } if !path.starts_with(SETTINGS)));
    something.then_some(left)
}
