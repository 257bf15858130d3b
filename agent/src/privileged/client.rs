//! The daemon's side: openers of root-only files.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::sense::{OpenFile, file};

/// Opens with the caller's own rights: enough for root and for tests.
#[derive(Clone, Debug)]
pub struct DirectOpener {
    root: PathBuf,
}

impl DirectOpener {
    /// Files of this machine.
    pub fn new() -> Self {
        Self::below("/")
    }

    /// Files below `root`, which stands for `/`.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

impl Default for DirectOpener {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenFile for DirectOpener {
    fn open(&self, path: &Path) -> io::Result<File> {
        file::open_regular(&self.path(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.path(path))?;
        let mut names: Vec<String> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }
}
