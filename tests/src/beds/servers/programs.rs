//! Which etcd runs: the installed one, or the one of a later Debian release unpacked beside it.

use std::path::PathBuf;
use std::process::Command;

/// Folder of a later etcd's programs, given by `tests/suites/quorum.sh` (from `tests/beds/etcd/unpack`).
const NEWER: &str = "OUTRIDER_ETCD_NEWER";

/// One version's programs.
#[derive(Clone, Debug)]
pub struct Etcd {
    /// Such as `3.5.16`.
    pub version: String,
    pub(super) etcd: PathBuf,
    pub(super) etcdctl: PathBuf,
}

impl Etcd {
    /// The one on the PATH, or why there is none.
    pub fn installed() -> Result<Self, String> {
        Self::at("etcd".into(), "etcdctl".into())
    }

    /// The one unpacked beside it, or why there is none.
    pub fn newer() -> Result<Self, String> {
        let folder = std::env::var_os(NEWER).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let folder = folder.ok_or_else(|| "no later etcd was unpacked".to_owned())?;
        Self::at(folder.join("etcd"), folder.join("etcdctl"))
    }

    fn at(etcd: PathBuf, etcdctl: PathBuf) -> Result<Self, String> {
        let output = Command::new(&etcd).arg("--version").output();
        let output = output.map_err(|e| format!("{} does not run ({e})", etcd.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: "));
        match version {
            Some(version) => Ok(Self { version: version.trim().to_owned(), etcd, etcdctl }),
            None => Err(format!("{} does not tell its version", etcd.display())),
        }
    }
}
