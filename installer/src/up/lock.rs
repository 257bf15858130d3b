//! One `outrider up` a state folder, and how other commands find the one that runs.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

/// What the lock file says about its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Running {
    /// Its process.
    pub(crate) pid: u32,
    /// Its coordinator; empty while it starts.
    #[serde(default)]
    pub(crate) url: String,
}

/// Held for as long as `up` runs; the kernel lets go when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock(Flock<File>);

impl Lock {
    /// Takes the lock of `state_dir`, or says who holds it.
    pub(crate) fn take(state_dir: &Path) -> anyhow::Result<Self> {
        let path = state_dir.join("up.lock");
        let file = open(&path, true).with_context(|| format!("cannot open {}", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => {
                let mut lock = Self(file);
                lock.say(&Running { pid: std::process::id(), url: String::new() })?;
                Ok(lock)
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let holder =
                    read(&mut file).map_or("another process".to_owned(), |r| format!("process {}", r.pid));
                bail!(
                    "{holder} runs `outrider up` with the state folder {}; end it first, or choose another folder with \
                     --state-dir",
                    state_dir.display()
                )
            }
            Err((_, errno)) => Err(errno).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Tells other commands where the coordinator is.
    pub(crate) fn say(&mut self, running: &Running) -> anyhow::Result<()> {
        let text = serde_json::to_vec(running)?;
        let file = &mut *self.0;
        let mut write = || -> std::io::Result<()> {
            file.rewind()?;
            file.set_len(0)?;
            file.write_all(&text)
        };
        write().context("cannot write the lock file")
    }
}

/// The `up` that runs with this state folder, if any does.
pub(crate) fn running(state_dir: &Path) -> anyhow::Result<Option<Running>> {
    let path = state_dir.join("up.lock");
    let file = match open(&path, false) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| format!("cannot open {}", path.display())),
    };
    match Flock::lock(file, FlockArg::LockSharedNonblock) {
        // Nobody held it: what the file says is old.
        Ok(_) => Ok(None),
        Err((mut file, _)) => Ok(read(&mut file).filter(|running| !running.url.is_empty())),
    }
}

fn open(path: &Path, create: bool) -> std::io::Result<File> {
    if let (true, Some(folder)) = (create, path.parent()) {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().read(true).write(create).create(create).truncate(false).mode(0o600).open(path)
}

fn read(file: &mut File) -> Option<Running> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(4096).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(running(folder.path()).unwrap(), None);
        let mut lock = Lock::take(folder.path()).unwrap();
        assert_eq!(running(folder.path()).unwrap(), None, "it has no address yet");
        let me = Running { pid: std::process::id(), url: "https://127.0.0.1:1".to_owned() };
        lock.say(&me).unwrap();
        assert_eq!(running(folder.path()).unwrap(), Some(me));
        let error = Lock::take(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
        drop(lock);
        assert_eq!(running(folder.path()).unwrap(), None);
        Lock::take(folder.path()).unwrap();
    }
}
