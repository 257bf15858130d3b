//! What the set-up looks at before it decides.

use std::path::{Path, PathBuf};

use outrider_protocol::{Fact, GuestAgentFacts};
use rustix::fs::StatVfsMountFlags;

use super::packages::{Manager, Source, program};
use super::{BOOT_ID, INSTALLING, SNAPSHOT};
use crate::config::{self, ConfigSource};
use crate::privileged::Trust;
use crate::sense::{SenseContext, file, guest_agent};

/// Folders whose configuration counts here. `/run/outrider` is the daemon's own, and so does not.
const FOLDERS: [&str; 2] = ["/usr/lib/outrider", "/etc/outrider"];
/// Largest configuration file.
const LARGEST: u64 = 1024 * 1024;

/// Everything a decision rests on.
#[derive(Debug)]
pub(super) struct Situation {
    /// What root allows; the error says what is wrong with the configuration.
    pub(super) policy: Result<Policy, String>,
    /// The guest agent, as the check reads it.
    pub(super) guest: Fact<GuestAgentFacts>,
    /// What installs packages; none where nothing known does.
    pub(super) manager: Option<Manager>,
    /// An installation of ours was cut short.
    pub(super) interrupted: bool,
    /// The package lies in the next snapshot since this boot.
    pub(super) in_next_snapshot: bool,
    /// cloud-init is at work and may install packages yet.
    pub(super) cloud_init_installs: bool,
}

/// What root allows.
#[derive(Debug)]
pub(super) struct Policy {
    /// `guest_agent.manage`.
    pub(super) manage: bool,
    /// Where the package is to come from; the error says what is wrong with `guest_agent.package_file`.
    pub(super) source: Result<Source, String>,
}

impl Situation {
    /// Looks. `owner` is whose configuration counts: 0.
    pub(super) fn read(cx: &SenseContext, owner: u32) -> Self {
        let read_only = rustix::fs::statvfs(cx.path("/usr"))
            .is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY));
        let manager = Manager::detect(|name| program(cx, name).is_some(), read_only);
        let this_boot = boot_id(cx);
        let snapshot = file::read_text(&cx.path(SNAPSHOT), file::SMALL).ok();
        Self {
            policy: policy(cx, owner, manager),
            guest: guest_agent::read(cx, &mut guest_agent::Memory::default()),
            manager,
            interrupted: cx.path(INSTALLING).exists(),
            in_next_snapshot: snapshot.is_some_and(|boot| boot.trim() == this_boot),
            cloud_init_installs: cloud_init_installs(cx),
        }
    }
}

/// The id of this boot; empty when it cannot be read.
pub(super) fn boot_id(cx: &SenseContext) -> String {
    file::read_text(&cx.path(BOOT_ID), file::SMALL).unwrap_or_default().trim().to_owned()
}

/// Whether cloud-init is at work and has not come to what follows its packages. Its stages hold several modules; that of the
/// user's scripts, which runs after the packages, leaves a mark when it begins (cloud-init, `cloudinit/helpers.py`, `FileSemaphores`).
pub(super) fn cloud_init_installs(cx: &SenseContext) -> bool {
    let run = |name: &str| cx.path("/run/cloud-init").join(name).exists();
    let begun = |name: &str| cx.path("/var/lib/cloud/instance/sem").join(name).exists();
    run("status.json") && !run("result.json") && !run("disabled") && !begun("config_scripts_user")
}

fn policy(cx: &SenseContext, owner: u32, manager: Option<Manager>) -> Result<Policy, String> {
    let trust = Trust { root: cx.root.clone(), owner };
    let mut unusable = Vec::new();
    for folder in FOLDERS {
        let drop_ins = format!("{folder}/agent.toml.d");
        let mut files = vec![format!("{folder}/agent.toml")];
        // Who may add files decides as well as who may change them.
        for folder in [folder, drop_ins.as_str()] {
            unusable.extend(trusted(trust.resolve(Path::new(folder)).map(drop)));
        }
        let entries = std::fs::read_dir(cx.path(&drop_ins)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        files.extend(names.filter(|name| name.ends_with(".toml")).map(|name| format!("{drop_ins}/{name}")));
        for file in files {
            unusable.extend(trusted(trust.read(Path::new(&file), LARGEST).map(drop)));
        }
    }
    if let Some(why) = unusable.into_iter().next() {
        return Err(format!("the configuration is not used: {why}"));
    }
    let folders = FOLDERS.iter().map(|folder| cx.path(folder)).collect();
    let loaded = config::load(&ConfigSource::Folders(folders));
    // A mistake elsewhere changes nothing here; a file that is no TOML may have said anything.
    let matters = |path: &str| path.is_empty() || path.starts_with("guest_agent") || path.starts_with("node");
    if let Some(problem) = loaded.problems.iter().find(|problem| matters(&problem.path)) {
        return Err(format!("the configuration has an error: {problem}"));
    }
    let settings = loaded.settings.guest_agent;
    let source = settings.package_file.map_or(Ok(Source::Repositories), |path| local(&trust, &path, manager));
    Ok(Policy { manage: settings.manage, source })
}

/// Why something is not to be trusted; what is not there needs no trust.
fn trusted(looked: std::io::Result<()>) -> Option<String> {
    looked.err().filter(|e| e.kind() != std::io::ErrorKind::NotFound).map(|e| e.to_string())
}

/// The packages of `package_file`: one, or those of a folder. Their scripts run as root, so nobody else may have put them there.
fn local(trust: &Trust, path: &Path, manager: Option<Manager>) -> Result<Source, String> {
    let wrong = |why: String| format!("guest_agent.package_file {} cannot be used: {why}", path.display());
    let real = trust.vouched(path).map_err(|e| wrong(e.to_string()))?;
    let Some(manager) = manager else { return Ok(Source::Files(vec![real])) };
    let fits = |file: &Path| file.extension().is_some_and(|end| end == manager.suffix());
    let on_disk = trust.root.join(real.strip_prefix("/").unwrap_or(&real));
    if !on_disk.is_dir() {
        let package = format!("a .{} file is what {} installs", manager.suffix(), manager.name());
        return if fits(&real) { Ok(Source::Files(vec![real])) } else { Err(wrong(package)) };
    }
    let entries = std::fs::read_dir(&on_disk).map_err(|e| wrong(e.to_string()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| real.join(entry.file_name())).collect();
    files.retain(|file| fits(file));
    files.sort();
    if files.is_empty() {
        return Err(wrong(format!("no .{} file lies in it", manager.suffix())));
    }
    for file in &files {
        trust.vouched(file).map_err(|e| wrong(e.to_string()))?;
    }
    Ok(Source::Files(files))
}
