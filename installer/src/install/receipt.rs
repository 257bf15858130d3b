//! What was made here, each thing written down before it is made, so that it can be unmade.
//!
//! One JSON document, replaced as a whole and synced. What stands in it may not have been done yet when a crash came in
//! between; so each entry says what was there before, and whoever goes back looks first.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use outrider_protocol::{Timestamp, TypeMeta, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files::{self, Lying, Put};
use super::wishes::Wishes;
use super::{FOLDER, Machine};

const VERSION: u32 = 1;

/// What a file is there for, which decides when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Class {
    /// Part of the release: goes with `uninstall`.
    Program,
    /// Settings and the token: go with `uninstall --purge`.
    Configuration,
}

/// One thing that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "made", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum Made {
    /// A folder that was not there.
    Folder {
        /// Its path on the machine.
        path: String,
    },
    /// A file, new or in place of another.
    File {
        /// Its path on the machine.
        path: String,
        /// What it is for.
        class: Class,
        /// SHA-256 of what we put there, the newest last: a crash may have left the one before.
        ours: Vec<String>,
        /// What lay there before the first time; a copy of it is in `replaced/`, named by its sum.
        before: Option<Lying>,
    },
    /// A system user, with the group of its name.
    User {
        /// Its name.
        name: String,
    },
    /// A link that has a unit started.
    Link {
        /// Its path on the machine.
        path: String,
        /// Where it leads.
        target: String,
    },
    /// A unit that did not run.
    Started {
        /// Its name.
        unit: String,
    },
}

impl Made {
    /// What tells two entries apart: the kind, and on what.
    fn key(&self) -> (u8, &str) {
        match self {
            Made::Folder { path } => (0, path),
            Made::File { path, .. } => (1, path),
            Made::User { name } => (2, name),
            Made::Link { path, .. } => (3, path),
            Made::Started { unit } => (4, unit),
        }
    }
}

/// `kind: InstallReceipt`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Receipt {
    #[serde(flatten)]
    meta: TypeMeta,
    /// Version of this file.
    version: u32,
    /// Version of the program that wrote it.
    program: String,
    /// When it was last written.
    at: Timestamp,
    /// Every step was done; else a run ended in between.
    pub(crate) complete: bool,
    /// What was asked for; never the token.
    pub(crate) wishes: Wishes,
    /// What was made, in order.
    pub(crate) made: Vec<Made>,
}

impl Receipt {
    /// One that says nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            meta: TypeMeta::new("InstallReceipt"),
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            at: Timestamp::default(),
            complete: false,
            wishes: Wishes::default(),
            made: Vec::new(),
        }
    }

    /// The receipt on `machine`; `None` where nothing was installed by us.
    pub(crate) fn read(machine: &Machine) -> anyhow::Result<Option<Self>> {
        let path = path(machine);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let damaged = || {
            format!(
                "the receipt {} is damaged; what was installed is not known. Restore it from a backup. Without one, copy the \
                 folder replaced beside it, which holds what lay there before, then remove the receipt and what docs/install.md \
                 lists by hand",
                path.display()
            )
        };
        let document: serde_json::Value = serde_json::from_slice(&bytes).with_context(damaged)?;
        let meta: TypeMeta = serde_json::from_value(document.clone()).with_context(damaged)?;
        let version = document["version"].as_u64();
        let is_ours = meta.expect("InstallReceipt");
        if meta.kind == "InstallReceipt" && (is_ours.is_err() || version != Some(u64::from(VERSION))) {
            bail!(
                "the receipt {} has format {} of {}; this version knows {VERSION}: use the program that wrote it",
                path.display(),
                version.map_or_else(|| "unknown".to_owned(), |v| v.to_string()),
                meta.api_version
            );
        }
        is_ours.map_err(anyhow::Error::msg).with_context(damaged)?;
        let program = document["program"].as_str().unwrap_or_default().to_owned();
        serde_json::from_value(document).map(Some).with_context(|| {
            if program == env!("CARGO_PKG_VERSION") || program.is_empty() {
                return damaged();
            }
            format!("the receipt {} was written by outrider {program}: use that program", path.display())
        })
    }

    /// Puts it on disk, whole, before what it says is done.
    pub(crate) fn write(&mut self, machine: &Machine) -> anyhow::Result<()> {
        self.at = Timestamp::from(std::time::SystemTime::now());
        self.program = env!("CARGO_PKG_VERSION").to_owned();
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        let sha256 = hex(&Sha256::digest(&bytes));
        let how = Put { mode: 0o600, owner: None, sha256: &sha256 };
        let path = path(machine);
        files::put(&path, &bytes[..], how).with_context(|| {
            format!("cannot write the receipt {}; nothing was done without it", path.display())
        })
    }

    /// Adds what will be made. Made before, it keeps what it knows of the time before that.
    pub(crate) fn add(&mut self, new: Made) {
        let Some(old) = self.made.iter_mut().find(|old| old.key() == new.key()) else {
            self.made.push(new);
            return;
        };
        match (old, new) {
            (Made::File { ours, before, .. }, Made::File { ours: newer, before: earlier, .. }) => {
                for sum in newer {
                    ours.retain(|known| *known != sum);
                    ours.push(sum);
                }
                // What a person put in the place of ours comes back like what lay there first.
                if earlier.is_some() {
                    *before = earlier;
                }
            }
            (old, new) => *old = new,
        }
    }

    /// The entry of a file.
    pub(crate) fn file(&self, wanted: &str) -> Option<(&[String], Option<&Lying>)> {
        self.made.iter().find_map(|made| match made {
            Made::File { path, ours, before, .. } if path == wanted => Some((&ours[..], before.as_ref())),
            _ => None,
        })
    }
}

fn path(machine: &Machine) -> PathBuf {
    machine.at(FOLDER).join("receipt.json")
}

/// Where the copy of a replaced file lies.
pub(crate) fn replaced(machine: &Machine, sha256: &str) -> PathBuf {
    machine.at(FOLDER).join("replaced").join(sha256)
}

/// Makes our folder where it is missing and holds it until dropped: two at a time would not know of each other.
pub(crate) fn hold(machine: &Machine) -> anyhow::Result<Flock<File>> {
    let folder = machine.at(FOLDER);
    let make = |path: &std::path::Path| {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        File::open(path)
    };
    let file = make(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    files::sync_folder_of(&folder)
        .with_context(|| format!("cannot sync the folder of {}", folder.display()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| {
        anyhow::anyhow!("another `outrider install` or `uninstall` works here ({errno}); wait for its end")
    })
}
