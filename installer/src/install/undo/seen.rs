//! What lies there of all that a receipt names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{COORDINATOR, COORDINATOR_STATE, GUEST_AGENT_RUNTIME, RUNTIME, SETTINGS, STATE};
use crate::install::files::{self, There};
use crate::install::programs::{self, Package};
use crate::install::receipt::{self, Made};
use crate::install::{AGENT, GUEST_AGENT_STATE, Machine, Receipt, UNITS};

/// The machine as it is, before the way back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lies {
    /// Each file of the receipt.
    pub(crate) files: BTreeMap<String, There>,
    /// Drafts that a crash left.
    pub(crate) drafts: Vec<String>,
    /// Where links of the receipt lead.
    pub(crate) links: BTreeMap<String, String>,
    /// Folders that are there.
    pub(crate) trees: BTreeSet<String>,
    /// Users that are there.
    pub(crate) users: BTreeSet<String>,
    /// Units of a node that run.
    pub(crate) running: BTreeSet<String>,
    /// SHA-256 of what was replaced and lies there as a copy.
    pub(crate) copies: BTreeSet<String>,
    /// The package that owns the programs now.
    pub(crate) package: Option<Package>,
    /// A coordinator runs here, or will.
    pub(crate) coordinator: bool,
    /// A coordinator's settings lie among those of the node.
    pub(crate) coordinator_settings: bool,
    /// systemd runs and can be told.
    pub(crate) live: bool,
}

/// Looks at what `receipt` names, and changes nothing.
pub(crate) async fn look(machine: &Machine, receipt: &Receipt) -> anyhow::Result<Lies> {
    let mut lies = Lies { live: machine.live, ..Lies::default() };
    for made in &receipt.made {
        match made {
            Made::File { path, before, .. } => {
                let copy = before.as_ref().map(|before| &before.sha256);
                lies.copies.extend(copy.filter(|sum| receipt::replaced(machine, sum).is_file()).cloned());
                let at = machine.at(path);
                lies.files.insert(path.clone(), files::look_at(&at));
                let draft = files::draft_of(std::path::Path::new(path)).to_string_lossy().into_owned();
                if machine.has(&draft) {
                    lies.drafts.push(draft);
                }
            }
            Made::Link { path, .. } => {
                if let Ok(target) = fs::read_link(machine.at(path)) {
                    lies.links.insert(path.clone(), target.to_string_lossy().into_owned());
                }
            }
            Made::Folder { path } if machine.is_dir(path) => {
                lies.trees.insert(path.clone());
            }
            Made::User { name } if machine.has_user(name) => {
                lies.users.insert(name.clone());
            }
            _ => {}
        }
    }
    for tree in [RUNTIME, GUEST_AGENT_RUNTIME, STATE, GUEST_AGENT_STATE, SETTINGS, COORDINATOR_STATE] {
        if machine.is_dir(tree) {
            lies.trees.insert(tree.to_owned());
        }
    }
    if machine.live {
        for (unit, _) in UNITS {
            if runs(unit).await {
                lies.running.insert(unit.to_owned());
            }
        }
    }
    let unit = format!("{COORDINATOR}.service");
    let enabled = machine.has(&format!("/etc/systemd/system/multi-user.target.wants/{unit}"));
    lies.coordinator = enabled || (machine.live && runs(&unit).await);
    lies.coordinator_settings = machine.has("/etc/outrider/coordinator.env");
    if machine.has(AGENT) {
        lies.package = programs::package_of(machine, AGENT).await?;
    }
    Ok(lies)
}

async fn runs(unit: &str) -> bool {
    !matches!(programs::active_state(unit).await.as_str(), "" | "inactive" | "failed")
}
