//! The steps: what can be done to a machine, as data.

use serde::Serialize;

use super::files::Lying;
use super::receipt::Class;

/// Whose a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Root alone.
    Root,
    /// Root, readable by the agent's group.
    Agent,
}

/// Where a file's bytes are.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// In the release.
    Release,
    /// Here.
    Text(String),
}

impl std::fmt::Debug for Bytes {
    /// Without the text: one of them is a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Bytes::Release { "Release" } else { "Text(…)" })
    }
}

/// A file as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Where it goes on the machine.
    pub(crate) path: String,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Whose it is.
    pub(crate) owner: Owner,
    /// What it is for.
    pub(crate) class: Class,
    /// SHA-256, hex.
    pub(crate) sha256: String,
    /// Bytes.
    pub(crate) size: u64,
    /// Where they are.
    pub(crate) bytes: Bytes,
}

/// One step. Doing it twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make a folder.
    Folder(String),
    /// Put a file there; `replaced` is what lies there and is not ours, to be kept.
    File {
        /// The file.
        file: Wanted,
        /// What is kept.
        replaced: Option<Lying>,
    },
    /// Note a file that userdata wrote as part of the installation, with the owner and the mode that it needs.
    Adopt {
        /// Its path.
        path: String,
        /// SHA-256, hex.
        sha256: String,
        /// Whose it is to be.
        owner: Owner,
    },
    /// Make the system users that are missing.
    Users(Vec<String>),
    /// Make the folders in `/run`.
    Runtime,
    /// Give what was put there the labels of SELinux' policy.
    Relabel(Vec<String>),
    /// See whether the program runs here.
    Try(String),
    /// Have systemd read the units.
    Reload,
    /// Have a unit started at boot.
    Enable {
        /// Its name.
        unit: String,
        /// The link.
        link: String,
        /// Where it leads.
        target: String,
    },
    /// Start units that do not run, without waiting.
    Start(Vec<String>),
    /// Start a unit anew that runs with what was there before, without waiting.
    Restart(String),
    /// Have a unit that runs read its configuration, without waiting.
    Reread(String),
}

impl Step {
    /// The name of the kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Step::Folder(_) => "MakeFolder",
            Step::File { replaced: None, .. } => "WriteFile",
            Step::File { .. } => "ReplaceFile",
            Step::Adopt { .. } => "AdoptFile",
            Step::Users(_) => "MakeUsers",
            Step::Runtime => "MakeRuntimeFolders",
            Step::Relabel(_) => "RestoreLabels",
            Step::Try(_) => "TryProgram",
            Step::Reload => "ReloadSystemd",
            Step::Enable { .. } => "EnableUnit",
            Step::Start(_) => "StartUnits",
            Step::Restart(_) => "RestartUnit",
            Step::Reread(_) => "ReloadUnit",
        }
    }

    /// On what.
    pub(crate) fn target(&self) -> String {
        match self {
            Step::Folder(path) | Step::Try(path) | Step::Adopt { path, .. } => path.clone(),
            Step::File { file, .. } => file.path.clone(),
            Step::Users(names) | Step::Start(names) => names.join(", "),
            Step::Runtime => "/run/outrider".to_owned(),
            Step::Relabel(paths) => format!("{} files", paths.len()),
            Step::Reload => "systemd".to_owned(),
            Step::Enable { unit, .. } | Step::Restart(unit) | Step::Reread(unit) => unit.clone(),
        }
    }
}

/// A step and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned<S> {
    /// What.
    pub(crate) step: S,
    /// Why.
    pub(crate) reason: String,
}

/// What is left alone, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Held {
    /// What.
    pub(crate) target: String,
    /// Why.
    pub(crate) reason: String,
}
