//! Configuration in three stages: as [`written`] -> [`merged`] -> [`typed`] settings.
//!
//! Files are `agent.toml` and the drop-ins `agent.toml.d/*.toml` of `/usr/lib/outrider`, `/run/outrider` and
//! `/etc/outrider`. A file in a later folder shadows the one of the same name in an earlier; what remains is merged in
//! this order: `agent.toml`, then the drop-ins by name. Tables merge by key, scalars and arrays are replaced;
//! `[[load_balancer]]` entries with the same `name` (or, without one, the same `url`) merge by key, others are added.
//!
//! Nothing is ignored in silence: every unknown key, wrong type and bad value becomes a [`Problem`] with file and line,
//! all of them at once, and the settings carry the default in its place. What to do with problems is the caller's
//! choice: `validate` refuses, the running daemon keeps its last good settings.

mod merged;
mod reader;
mod settings;
mod typed;
mod written;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

pub use settings::*;

/// Folders of the configuration, the later wins.
pub const FOLDERS: [&str; 3] = ["/usr/lib/outrider", "/run/outrider", "/etc/outrider"];

/// Where configuration is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// `agent.toml` and `agent.toml.d/*.toml` in each of these, the later wins.
    Folders(Vec<PathBuf>),
    /// This one file and nothing else (`--config FILE`).
    File(PathBuf),
}

impl Default for ConfigSource {
    fn default() -> Self {
        Self::below(Path::new("/"))
    }
}

impl ConfigSource {
    /// The three standard folders below `root`.
    pub fn below(root: &Path) -> Self {
        Self::Folders(FOLDERS.iter().map(|folder| root.join(folder.trim_start_matches('/'))).collect())
    }
}

/// Something wrong, or worth knowing, in the configuration as written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Line, from 1; 0 when it is about the file as a whole.
    pub line: usize,
    /// The key, such as `checks.etcd.interval`; empty when it is about the file as a whole.
    pub path: String,
    /// What is wrong and what to write instead; never the value of a secret.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// What [`load`] made of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// What is valid, and defaults for the rest.
    pub settings: Settings,
    /// Everything that is wrong; empty when the configuration is valid.
    pub problems: Vec<Problem>,
    /// What is valid and has no effect yet.
    pub notes: Vec<Problem>,
    /// The files that were read, in the order they were merged.
    pub files: Vec<PathBuf>,
}

/// Reads, merges and types the configuration. Never fails: a file that cannot be read is a problem, no file at all is
/// the default configuration.
pub fn load(source: &ConfigSource) -> Loaded {
    let mut problems = Vec::new();
    let documents = written::read(source, &mut problems);
    let files = documents.iter().map(|d| d.file.to_path_buf()).collect();
    let merged = merged::merge(documents);
    let mut notes = Vec::new();
    // What stands in for a value with a syntax error is no problem of its own.
    let broken: BTreeSet<_> = problems.iter().map(|p| (p.file.clone(), p.line)).collect();
    let mut untyped = Vec::new();
    let settings = typed::settings(&merged, &mut untyped, &mut notes);
    problems.extend(untyped.into_iter().filter(|p| !broken.contains(&(p.file.clone(), p.line))));
    problems.sort();
    notes.sort();
    Loaded { settings, problems, notes, files }
}

#[cfg(test)]
mod tests;
