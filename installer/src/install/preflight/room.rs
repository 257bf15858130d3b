//! Room at the places that are written, and whether they can be written at all.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, Statvfs, statvfs};
use outrider_protocol::Severity;

use super::{Finding, Preflight, tell};
use crate::install::FOLDER;
use crate::install::step::{Bytes, Step};

/// Left free on every file system that is written.
const SPARE: u64 = 16 << 20;

/// What one file system has to take.
struct Need {
    at: PathBuf,
    stats: nix::Result<Statvfs>,
    bytes: u64,
    files: u64,
    /// The first thing that goes there.
    first: String,
}

/// Looks at every file system that the plan writes to.
pub(super) fn places(looked: &Preflight<'_>, findings: &mut Vec<Finding>) {
    let machine = looked.machine;
    // One file system may be mounted twice, and read-only in one place.
    let mut needs: BTreeMap<(u64, bool), Need> = BTreeMap::new();
    let mut need =
        |path: &str, bytes: u64| {
            let at = machine.nearest(path);
            let Ok(device) = fs::metadata(&at).map(|metadata| metadata.dev()) else { return };
            let stats = statvfs(&at);
            let need = needs
                .entry((device, stats.as_ref().is_ok_and(is_read_only)))
                .or_insert_with(|| Need { at, stats, bytes: 0, files: 0, first: path.to_owned() });
            need.bytes += bytes;
            need.files += 1;
        };
    for planned in &looked.plan.steps {
        match &planned.step {
            Step::Folder(path) => need(path, 4096),
            Step::Enable { link, .. } => need(link, 4096),
            Step::Users(_) => need("/etc/passwd", 64 << 10),
            Step::File { file, replaced } => {
                need(&file.path, file.size);
                if file.bytes == Bytes::Release && looked.release.is_some_and(|r| r.source().is_file()) {
                    need(FOLDER, file.size);
                }
                if let Some(lying) = replaced {
                    need(FOLDER, lying.size);
                }
            }
            _ => {}
        }
    }
    if !looked.plan.steps.is_empty() {
        need(FOLDER, 1 << 20);
    }
    let before = findings.len();
    for need in needs.values() {
        match &need.stats {
            Ok(stats) => of_one(need, stats, findings),
            Err(errno) => tell(
                findings,
                "room",
                Severity::Warn,
                format!("{}: its room cannot be read: {errno}", need.at.display()),
                "",
            ),
        }
    }
    if findings.len() == before && !needs.is_empty() {
        let bytes: u64 = needs.values().map(|need| need.bytes).sum();
        tell(
            findings,
            "room",
            Severity::Ok,
            format!("{} MiB are to be written, and there is room", bytes.div_ceil(1 << 20)),
            "",
        );
    }
}

fn is_read_only(stats: &Statvfs) -> bool {
    stats.flags().contains(FsFlags::ST_RDONLY)
}

fn of_one(need: &Need, stats: &Statvfs, findings: &mut Vec<Finding>) {
    let at = need.at.display();
    if is_read_only(stats) {
        tell(
            findings,
            "read-only",
            Severity::Error,
            format!("{at} is read-only, and {} is to go there", need.first),
            advice(&need.at),
        );
        return;
    }
    #[allow(clippy::useless_conversion, reason = "these are 32 bits wide on some systems")]
    let (free, inodes, has_inodes) = (
        u64::from(stats.blocks_available()).saturating_mul(u64::from(stats.fragment_size())),
        u64::from(stats.files_available()),
        u64::from(stats.files()) > 0,
    );
    if free < need.bytes + SPARE {
        let message = format!(
            "{at} has {} MiB free; {} MiB are to be written there and {} MiB left",
            free >> 20,
            need.bytes.div_ceil(1 << 20),
            SPARE >> 20
        );
        tell(findings, "room", Severity::Error, message, "Make room; nothing was changed.");
    } else if has_inodes && inodes < need.files {
        let message = format!("{at} has {inodes} inodes free; {} files are to be written there", need.files);
        tell(findings, "room", Severity::Error, message, "Remove files there; nothing was changed.");
    }
}

/// What to do where a place is read-only on purpose.
fn advice(at: &Path) -> String {
    if at.starts_with("/etc") {
        return "The system's configuration is made elsewhere (as on NixOS): put the agent, its drop-in and its units there."
            .to_owned();
    }
    if crate::install::programs::find("transactional-update").is_some() {
        return "Install the package with `transactional-update pkg install outrider-agent`, reboot, and run `outrider install` \
                again: it then sets up configuration, token and service."
            .to_owned();
    }
    "Have the programs in the image (the package, or packaging/install.sh into its tree) and run `outrider install` on the \
     machine: it then sets up configuration, token and service. A policy of SELinux or a unit of systemd would not run them \
     from just anywhere."
        .to_owned()
}
