//! Sensors: they read the world and yield facts; they judge nothing and change nothing.
//!
//! One file or folder a check, each with one entry `read(…) -> Fact<…>`. What a sensor must remember between passes
//! (the earlier scrape, since when an endpoint is down) lives in its own `Memory` struct, never in a global.

pub mod certificates;
pub mod clock;
pub mod cloud_init;
mod cluster;
pub mod credentials;
pub mod dns;
pub(crate) mod environment_file;
pub mod etcd;
pub(crate) mod file;
mod folder;
pub mod guest_agent;
pub mod host;
pub mod kubernetes;
pub mod load_balancer;
#[cfg(test)]
pub(crate) mod prepared;
mod process;
pub mod rancher;
pub mod rancher_agent;
mod systemd;
pub mod topology;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outrider_protocol::Timestamp;

pub(crate) use folder::describe;
pub use folder::{Entry, Folder};

/// Opens files the daemon may not open itself. The production implementation asks the root helper, which passes
/// descriptors of an allow-list (see `privileged`); a root caller and tests open directly.
pub trait OpenFile: Send + Sync {
    /// A read-only descriptor of `path`, an absolute path of the machine.
    fn open(&self, path: &Path) -> io::Result<File>;
    /// Names in the folder `path`.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// What lies in the folder `path`, with sizes and times, none of it opened.
    fn describe(&self, path: &Path) -> io::Result<Folder>;
}

/// What every sensor is given.
#[derive(Clone)]
pub struct SenseContext {
    /// Root of the file system that is read: `/`, or a prepared folder in tests.
    pub root: PathBuf,
    /// The clock; a sensor takes the time of a reading from here.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// For root-only files.
    pub opener: Arc<dyn OpenFile>,
}

impl SenseContext {
    /// The time now.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// `path` (absolute on the machine) below the root that is read.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}
