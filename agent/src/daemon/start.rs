//! What the daemon opens before its first turn: the state folder, and delivery on top of it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::{Embedding, RunError};
use crate::capture::node_ref;
use crate::config::Settings;
use crate::net::{ProxySettings, Url};
use crate::report::disk::{Disk, StdDisk};
use crate::report::{Network, Reporter, ReporterOptions, SpoolLimits, Target, TokenSource};
use crate::sense::SenseContext;

/// The state folder, held by this daemon alone; or why it cannot be used.
pub(super) struct StateFolder {
    disk: Result<Arc<dyn Disk>, String>,
    /// Given back when the process ends, however it ends.
    _lock: Option<Flock<File>>,
}

impl StateFolder {
    /// Opens and locks the folder. A folder that cannot be used is no reason not to run; one that another daemon uses is.
    pub(super) fn open(folder: &Path) -> Result<Self, RunError> {
        let unusable = |error: std::io::Error| {
            let why = format!("the state folder {} cannot be used: {error}", folder.display());
            log::error!("{why}; transitions are kept in memory");
            Ok(Self { disk: Err(why), _lock: None })
        };
        let disk = match StdDisk::open(folder) {
            Ok(disk) => disk,
            Err(error) => return unusable(error),
        };
        // The folder itself is locked: a lock file could not be made on a full or read-only disk.
        let file = match File::open(folder) {
            Ok(file) => file,
            Err(error) => return unusable(error),
        };
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { disk: Ok(Arc::new(disk)), _lock: Some(lock) }),
            Err((_, Errno::EWOULDBLOCK)) => Err(RunError::StateInUse(folder.to_owned())),
            Err((_, errno)) => unusable(errno.into()),
        }
    }

    /// Why it cannot be used; empty when it can.
    pub(super) fn problem(&self) -> String {
        self.disk.as_ref().err().cloned().unwrap_or_default()
    }
}

/// Delivery over the state folder.
pub(super) fn reporter(folder: &StateFolder, sense: &SenseContext, target: Target) -> Reporter {
    let proxy = ProxySettings::from_env();
    proxy.problems.iter().for_each(|problem| log::warn!("proxy: {problem}"));
    Reporter::start(ReporterOptions {
        disk: folder.disk.clone(),
        limits: SpoolLimits::default(),
        clock: sense.clock.clone(),
        transport: Arc::new(Network { proxy }),
        target,
    })
}

/// How often the whole state is sent though its digest has not changed: messages carry numbers.
const REFRESH: Duration = Duration::from_secs(300);

/// Where reports go by these settings, or by the program that embeds the daemon.
pub(super) fn target(settings: &Settings, embedding: Option<&Embedding>) -> Target {
    let coordinator = &settings.coordinator;
    let urls = embedding.map_or(&coordinator.urls, |embedding| &embedding.urls);
    let token = match (embedding, &coordinator.token_file) {
        (Some(embedding), _) => embedding.token.clone().map_or(TokenSource::None, TokenSource::Given),
        (None, Some(file)) => TokenSource::File(file.clone()),
        (None, None) => TokenSource::None,
    };
    Target {
        urls: urls.iter().filter_map(|url| Url::parse(url).ok()).collect(),
        ca_checksum: if embedding.is_some() { None } else { coordinator.ca_checksum.clone() },
        token,
        heartbeat: settings.report.heartbeat,
        refresh: settings.neighbour_interval.min(REFRESH),
        node: node_ref(settings),
    }
}
