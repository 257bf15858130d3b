//! A program run over a disk that can fail: `faultfs/shim.c` before it, [`Disk`] after it.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::power_cut::Disk;
use crate::programs::Process;

/// Fails until it is set back.
pub const ALWAYS: u32 = u32::MAX;

/// Which call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// fsync and fdatasync, with EIO; what was not synced before is uncertain for ever.
    Sync = 0,
    /// Writes, with ENOSPC.
    Full = 1,
    /// Writes, with EIO.
    Write = 2,
    /// Writes half, then the next one with ENOSPC.
    Half = 3,
}

/// Compiles the shim into `folder`.
pub fn build(folder: &Path) -> io::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faultfs/shim.c");
    let shim = folder.join("faultfs.so");
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&shim).arg(source);
    let status = command.args(["-ldl", "-lpthread"]).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("cc failed: {status}")));
    }
    Ok(shim)
}

/// A folder that is watched, with the log and the switches of the shim beside it.
#[derive(Debug)]
pub struct FaultDisk {
    shim: PathBuf,
    folder: tempfile::TempDir,
    before: Disk,
}

/// What a program said before it ended.
#[derive(Debug)]
pub struct Run {
    /// Lines of its standard output.
    pub lines: Vec<String>,
    /// How it ended.
    pub status: ExitStatus,
}

impl FaultDisk {
    /// With the content that `fill` puts into it, all of it certain.
    pub fn new(shim: &Path, fill: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().join("disk");
        fs::create_dir(&root)?;
        fill(&root)?;
        fs::write(folder.path().join("control"), [0; 16])?;
        let before = Disk::scan(&root)?;
        Ok(Self { shim: shim.to_owned(), folder, before })
    }

    /// The watched folder.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// Lets the next `count` calls fail; [`ALWAYS`] until it is set to 0.
    pub fn fail(&self, fault: Fault, count: u32) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let file = fs::File::options().write(true).open(self.folder.path().join("control"))?;
        file.write_all_at(&count.to_ne_bytes(), 4 * fault as u64)
    }

    /// The environment that puts the shim before a program; it ends itself by SIGKILL after `kill_at` changes (0: never).
    pub fn environment(&self, kill_at: u64) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![
            ("LD_PRELOAD".to_owned(), text(&self.shim)),
            ("FAULTFS_ROOT".to_owned(), text(&self.root())),
            ("FAULTFS_LOG".to_owned(), text(&self.folder.path().join("log"))),
            ("FAULTFS_CONTROL".to_owned(), text(&self.folder.path().join("control"))),
            ("FAULTFS_KILL_AT".to_owned(), kill_at.to_string()),
        ]
    }

    /// `command` with the shim before it.
    pub fn arm<'a>(&self, command: &'a mut Command, kill_at: u64) -> &'a mut Command {
        command.envs(self.environment(kill_at))
    }

    /// Runs `command` to its end, whichever it is, and keeps what it said.
    pub fn run(&self, command: &mut Command, kill_at: u64) -> io::Result<Run> {
        self.arm(command, kill_at).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::spawn(command)?;
        let out = process.child().stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
        let lines = BufReader::new(out).lines().collect::<Result<_, _>>()?;
        Ok(Run { lines, status: process.wait(Duration::from_secs(60))? })
    }

    /// The disk as it was before and all that was done to it so far.
    pub fn history(&self) -> io::Result<(Disk, usize)> {
        let mut disk = self.before.clone();
        let log = fs::read(self.folder.path().join("log")).or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => Ok(Vec::new()),
            _ => Err(e),
        })?;
        let changes = disk.replay(&log)?;
        Ok((disk, changes))
    }

    /// What lies on the disk after the power went now, in a new folder.
    pub fn cut(&self, seed: u64) -> io::Result<tempfile::TempDir> {
        let target = tempfile::tempdir()?;
        self.history()?.0.cut(seed, target.path())?;
        Ok(target)
    }
}
