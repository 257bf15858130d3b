//! The programs under test as processes, found beside the test's own binary, and stopped whatever happens.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Path of a program of the workspace (`outrider`, `outrider-agent`, …), built with the same profile as this test.
pub fn program(name: &str) -> io::Result<PathBuf> {
    let given = std::env::var_os("OUTRIDER_BIN").map(PathBuf::from);
    let own = std::env::current_exe()?;
    // A test lies in target/PROFILE/deps, a program in target/PROFILE.
    let beside = own.ancestors().skip(1).take(2).map(Path::to_owned);
    let found = given.into_iter().chain(beside).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        io::Error::other(format!("{name} is not built; run: cargo build --workspace --bins (tests/run does)"))
    })
}

/// True when `name` is on the PATH or in the sbin folders.
pub fn has_command(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').any(|folder| Path::new(folder).join(name).is_file())
}

/// A process that ends with this value: SIGKILL and wait, so that none is left behind by a test that fails.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts `command`.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|e| io::Error::other(format!("{name}: {e}")))?;
        Ok(Self { child, name })
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends `signal`.
    pub fn signal(&self, signal: nix::sys::signal::Signal) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).map_err(io::Error::other)?;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).map_err(io::Error::from)
    }

    /// SIGKILL, and wait until it is gone.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// SIGTERM, and wait for at most `limit`.
    pub fn terminate(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        self.signal(nix::sys::signal::Signal::SIGTERM)?;
        self.wait(limit)
    }

    /// Waits for its end for at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if start.elapsed() > limit {
                return Err(io::Error::other(format!("{} did not end within {limit:?}", self.name)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks `probe` every 20 ms until it gives an answer; after `limit` fails with what was waited for.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return Ok(found);
        }
        if start.elapsed() > limit {
            return Err(io::Error::other(format!("{what}: not within {limit:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
