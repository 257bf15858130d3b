//! Doing the steps: no decisions, only what the plan says, each written down before.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;

use anyhow::Context;

use super::files::{self, Lying, Put};
use super::plan::TOKEN_MODE;
use super::receipt::{self, Class, Made};
use super::step::{Bytes, Owner, Planned, Step, Wanted};
use super::wishes::Wishes;
use super::{Machine, Plan, Receipt, Release, programs, release};

/// The group that may read the token.
const AGENT_GROUP: &str = "outrider";

/// Does the steps of `plan`. What was done before an error is in the receipt; the same command goes on from there.
pub(crate) async fn apply(
    machine: &Machine,
    plan: &Plan,
    release: Option<&Release>,
    wishes: &Wishes,
    receipt: Option<Receipt>,
) -> anyhow::Result<()> {
    let _held = receipt::hold(machine)?;
    let from_release = plan.files().any(|file| file.bytes == Bytes::Release);
    let mut receipt = receipt.unwrap_or_else(Receipt::new);
    receipt.complete = false;
    receipt.wishes = wishes.clone();
    receipt.write(machine)?;
    let tree = match release.filter(|_| from_release) {
        Some(release) => Some(release.open(machine)?),
        None => None,
    };
    for Planned { step, .. } in &plan.steps {
        let done = one(machine, step, tree.as_deref(), &mut receipt).await;
        done.with_context(|| format!("{} {}", step.kind(), step.target()))?;
    }
    release::sweep(machine)?;
    receipt.complete = true;
    receipt.write(machine)
}

async fn one(
    machine: &Machine,
    step: &Step,
    tree: Option<&Path>,
    receipt: &mut Receipt,
) -> anyhow::Result<()> {
    let mut note = |made: Made| {
        receipt.add(made);
        receipt.write(machine)
    };
    match step {
        Step::Folder(path) => {
            note(Made::Folder { path: path.clone() })?;
            folder(machine, path)?;
        }
        Step::File { file, replaced } => {
            note(Made::File {
                path: file.path.clone(),
                class: file.class,
                ours: vec![file.sha256.clone()],
                before: replaced.clone(),
            })?;
            if let Some(lying) = replaced {
                keep(machine, &file.path, lying)?;
            }
            write(machine, file, tree)?;
        }
        Step::Adopt { path, sha256, owner } => {
            note(Made::File {
                path: path.clone(),
                class: Class::Configuration,
                ours: vec![sha256.clone()],
                before: None,
            })?;
            if *owner == Owner::Agent && machine.is_root {
                files::open_to(&machine.at(path), owner_of(machine, *owner), TOKEN_MODE)?;
            }
        }
        Step::Users(names) => {
            for name in names {
                note(Made::User { name: name.clone() })?;
            }
            users(machine, names).await?;
        }
        Step::Runtime => {
            programs::run("systemd-tmpfiles", &["--create", "outrider.conf"]).await?;
        }
        Step::Relabel(paths) => {
            if programs::find("restorecon").is_some() {
                let paths: Vec<&str> = ["-F"].into_iter().chain(paths.iter().map(String::as_str)).collect();
                programs::run("restorecon", &paths).await?;
            }
        }
        Step::Try(program) => {
            programs::run(program, &["--version"]).await.context(
                "the program does not run here; is the release for this system, and may programs run from there?",
            )?;
        }
        Step::Reload => programs::run("systemctl", &["daemon-reload"]).await?,
        Step::Enable { link, target, .. } => {
            note(Made::Link { path: link.clone(), target: target.clone() })?;
            enable(&machine.at(link), target)?;
        }
        Step::Start(units) => {
            for unit in units {
                note(Made::Started { unit: unit.clone() })?;
            }
            let words: Vec<&str> =
                ["--no-block", "start"].into_iter().chain(units.iter().map(String::as_str)).collect();
            programs::run("systemctl", &words).await?;
        }
        Step::Restart(unit) => programs::run("systemctl", &["--no-block", "restart", unit]).await?,
        Step::Reread(unit) => programs::run("systemctl", &["--no-block", "reload-or-restart", unit]).await?,
    }
    Ok(())
}

fn folder(machine: &Machine, path: &str) -> io::Result<()> {
    let at = machine.at(path);
    match DirBuilder::new().mode(0o755).create(&at) {
        // A link to a folder is as good as one.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && machine.is_dir(path) => {
            if at.is_symlink() {
                return Ok(());
            }
        }
        done => done?,
    }
    // Whatever the caller's umask is.
    fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    files::sync_folder_of(&at)
}

/// Copies what lies at `path` to where uninstall finds it.
fn keep(machine: &Machine, path: &str, lying: &Lying) -> io::Result<()> {
    let copy = receipt::replaced(machine, &lying.sha256);
    if files::look_at(&copy).file().is_some_and(|there| there.sha256 == lying.sha256) {
        return Ok(());
    }
    let folder = copy.parent().unwrap_or(machine.root());
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    files::sync_folder_of(folder)?;
    let how = Put { mode: 0o600, owner: None, sha256: &lying.sha256 };
    files::put(&copy, File::open(machine.at(path))?, how)
}

fn write(machine: &Machine, file: &Wanted, tree: Option<&Path>) -> io::Result<()> {
    let owner = machine.is_root.then(|| owner_of(machine, file.owner));
    let how = Put { mode: file.mode, owner, sha256: &file.sha256 };
    let to = machine.at(&file.path);
    match (&file.bytes, tree) {
        (Bytes::Text(text), _) => files::put(&to, text.as_bytes(), how),
        (Bytes::Release, Some(tree)) => files::put(&to, File::open(tree.join(&file.path[1..]))?, how),
        (Bytes::Release, None) => Err(io::Error::new(io::ErrorKind::NotFound, "no release was given")),
    }
}

/// User and group of `owner`.
fn owner_of(machine: &Machine, owner: Owner) -> (u32, u32) {
    let group = match owner {
        Owner::Root => Some(0),
        // Not there in an image whose users are made at the first boot: the plan says so.
        Owner::Agent => machine.id_of("/etc/group", AGENT_GROUP),
    };
    (0, group.unwrap_or(0))
}

async fn users(machine: &Machine, names: &[String]) -> anyhow::Result<()> {
    if programs::find("systemd-sysusers").is_some() {
        let root = format!("--root={}", machine.root().display());
        let lists = release::SYSUSERS.iter().filter(|path| machine.has(path));
        let names = lists.filter_map(|path| path.rsplit('/').next());
        let words: Vec<&str> = [root.as_str()].into_iter().chain(names).collect();
        return programs::run("systemd-sysusers", &words).await;
    }
    for name in names {
        let home = format!("/var/lib/{name}");
        let words = [
            "--system",
            "--user-group",
            "--home-dir",
            &home,
            "--no-create-home",
            "--shell",
            "/usr/sbin/nologin",
            name,
        ];
        programs::run("useradd", &words).await?;
    }
    Ok(())
}

fn enable(link: &Path, target: &str) -> io::Result<()> {
    match symlink(target, link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        Ok(()) => files::sync_folder_of(link),
    }
}
