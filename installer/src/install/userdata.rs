//! What userdata wrote before the installation (`cloud-init/templates`): it becomes part of it, so that the way back takes
//! it too.

use std::fs;

use super::files::{self, Lying};
use super::plan::FOLDERS;
use super::{Machine, Receipt, TOKEN};

/// Where this lies, userdata made the machine a node.
const SETTINGS: &str = "/etc/outrider/agent.toml.d/50-userdata.toml";
/// All that it writes.
const FILES: [&str; 5] = [
    SETTINGS,
    "/etc/outrider/install.sh",
    "/etc/outrider/outrider.asc",
    "/etc/systemd/system/outrider-install.service",
    TOKEN,
];
/// Where its script works, and removes when it ends.
const WORK: &str = "/etc/outrider/w";

/// What userdata wrote and no receipt knows of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Userdata {
    /// Its files, by path.
    pub(crate) files: Vec<(&'static str, Lying)>,
    /// The folders of configuration, where nobody else has put something into them.
    pub(crate) folders: Vec<&'static str>,
}

/// Looks at what userdata writes; nothing where it wrote no settings.
pub(super) fn look(machine: &Machine, receipt: Option<&Receipt>) -> Userdata {
    let lying = |path: &'static str| Some((path, files::look_at(&machine.at(path)).file()?.clone()));
    if lying(SETTINGS).is_none() {
        return Userdata::default();
    }
    let is_known = |path: &str, lying: &Lying| {
        let known = receipt.and_then(|receipt| receipt.file(path));
        known.is_some_and(|(ours, _)| ours.contains(&lying.sha256))
    };
    let files = FILES.into_iter().filter_map(lying).filter(|(path, lying)| !is_known(path, lying));
    let folders = if receipt.is_none() && is_alone(machine) {
        FOLDERS.into_iter().filter(|folder| machine.is_dir(folder)).collect()
    } else {
        Vec::new()
    };
    Userdata { files: files.collect(), folders }
}

/// Nothing of others lies among the configuration.
fn is_alone(machine: &Machine) -> bool {
    let ours = |path: &str| FILES.contains(&path) || FOLDERS.contains(&path) || path == WORK;
    FOLDERS.iter().all(|folder| {
        let Ok(entries) = fs::read_dir(machine.at(folder)) else { return !machine.has(folder) };
        let names = entries.flatten().map(|entry| entry.file_name());
        names.map(|name| format!("{folder}/{}", name.to_string_lossy())).all(|path| ours(&path))
    })
}
