//! A prepared machine for the tests of sensors: a folder that stands for `/`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outrider_protocol::Timestamp;
use tempfile::TempDir;

use super::SenseContext;
use crate::privileged::DirectOpener;

/// A folder with the files a test put there.
pub(crate) struct Machine {
    dir: TempDir,
}

impl Machine {
    /// A machine without a single file.
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// A machine booted with systemd whose `systemctl` is the shell `script`.
    pub(crate) fn with_systemctl(script: &str) -> Self {
        let machine = Self::new();
        machine.systemctl(script);
        machine
    }

    /// Replaces `systemctl`.
    pub(crate) fn systemctl(&self, script: &str) {
        std::fs::create_dir_all(self.path("/run/systemd/system")).unwrap();
        self.write("/usr/bin/systemctl", &format!("#!/bin/sh\n{script}\n"));
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path("/usr/bin/systemctl"), mode).unwrap();
    }

    /// What the sensors are given; the clock stands still.
    pub(crate) fn cx(&self) -> SenseContext {
        SenseContext {
            root: self.dir.path().to_owned(),
            clock: Arc::new(|| Timestamp::from_seconds(1_800_000_000)),
            opener: Arc::new(DirectOpener::below(self.dir.path())),
        }
    }

    /// The file of the folder that stands for `path`.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    /// Writes a text file and the folders above it.
    pub(crate) fn write(&self, path: &str, text: &str) {
        self.write_bytes(path, text.as_bytes());
    }

    /// Writes a file of any bytes.
    pub(crate) fn write_bytes(&self, path: &str, bytes: &[u8]) {
        let file = self.path(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    /// Makes a symbolic link.
    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        let file = self.path(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        symlink(target, file).unwrap();
    }
}
