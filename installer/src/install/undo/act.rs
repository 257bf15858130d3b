//! Doing the steps back.

use std::fs::{self, File};
use std::io;

use anyhow::Context;

use super::{Back, Undo};
use crate::install::files::{self, Put};
use crate::install::receipt::{self, Made};
use crate::install::step::{Held, Planned};
use crate::install::{FOLDER, Machine, programs, release};

/// Does the steps of `undo`, and says what stayed that was to go. Killed, it is run again: what is gone is passed over.
pub(crate) async fn act(machine: &Machine, undo: Undo) -> anyhow::Result<Vec<Held>> {
    let held = receipt::hold(machine)?;
    release::sweep(machine)?;
    let mut stayed = Vec::new();
    for Planned { step, .. } in &undo.steps {
        one(machine, step, &undo, &mut stayed)
            .await
            .with_context(|| format!("{} {}", step.kind(), step.target()))?;
    }
    if machine.live {
        // A unit that is gone may still be remembered as failed. It may never have been: no matter.
        let _ = programs::ask(
            "systemctl",
            &["reset-failed", "outrider-agent.service", "outrider-helper.*", "outrider-guest-agent.*"],
        )
        .await;
    }
    if let Some(mut receipt) = undo.remaining {
        receipt.made.retain(|made| !matches!(made, Made::Folder { path } if !machine.is_dir(path)));
        receipt.write(machine)?;
    }
    drop(held);
    Ok(stayed)
}

async fn one(machine: &Machine, step: &Back, undo: &Undo, stayed: &mut Vec<Held>) -> anyhow::Result<()> {
    match step {
        Back::Stop(units) => {
            let words: Vec<&str> = ["stop"].into_iter().chain(units.iter().map(String::as_str)).collect();
            programs::run("systemctl", &words).await?;
        }
        Back::Unlink(path) | Back::Remove(path) => {
            let at = machine.at(path);
            files::remove(&at)?;
            if at.parent().is_some_and(std::path::Path::is_dir) {
                files::sync_folder_of(&at)?;
            }
        }
        Back::Restore { path, sha256, mode, owner } => {
            let copy = receipt::replaced(machine, sha256);
            let from =
                File::open(&copy).with_context(|| format!("the copy {} is missing", copy.display()))?;
            let how = Put { mode: *mode, owner: machine.is_root.then_some(*owner), sha256 };
            files::put(&machine.at(path), from, how)?;
        }
        Back::RemoveTree(path) => {
            if path == FOLDER {
                // Before the receipt: copies without one are taken for somebody's.
                remove_tree(machine, &format!("{FOLDER}/replaced"))?;
            }
            remove_tree(machine, path)?;
        }
        Back::RemoveUser(name) => remove_user(machine, name).await?,
        Back::RemoveFolder(path) => match fs::remove_dir(machine.at(path)) {
            // Those above one that stays need no words of their own.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                let inner = format!("{path}/");
                if !undo.held.iter().chain(&*stayed).any(|held| held.target.starts_with(&inner)) {
                    let reason = "others have put something there".to_owned();
                    stayed.push(Held { target: path.clone(), reason });
                }
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error)?,
            _ => {}
        },
        Back::Reload => programs::run("systemctl", &["daemon-reload"]).await?,
        Back::Restart(unit) => programs::run("systemctl", &["--no-block", "restart", unit]).await?,
    }
    Ok(())
}

fn remove_tree(machine: &Machine, path: &str) -> io::Result<()> {
    match fs::remove_dir_all(machine.at(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Removes a user and the group of its name, on the machine that is worked on.
async fn remove_user(machine: &Machine, name: &str) -> anyhow::Result<()> {
    let root = machine.root().to_string_lossy().into_owned();
    let words = |name| if machine.is_ours() { vec![name] } else { vec!["--prefix", &root, name] };
    if machine.has_user(name) {
        programs::run("userdel", &words(name)).await?;
    }
    // Gone with its user where login.defs says so.
    if machine.id_of("/etc/group", name).is_some() {
        programs::run("groupdel", &words(name)).await?;
    }
    Ok(())
}
