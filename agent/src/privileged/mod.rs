//! Root-only files for a daemon without privileges.
//!
//! The daemon runs as its own user without capabilities. What only root may read (an etcd client key, the system
//! UUID) comes through a tiny helper that systemd starts on demand: it opens files of a fixed list read-only and
//! passes the descriptors. The list is `allow`, what it tells of files that are half secret `excerpt`, the words on the socket are `wire`, the way from a name to a file
//! that nobody but root could have put there is `trusted`; `serve` is the helper and `client` the daemon's side.
//!
//! What the list lets out, it lets out to the whole daemon: an etcd client key is worth the cluster
//! (`docs/threat-model.md`).

mod allow;
mod client;
mod excerpt;
mod serve;
mod trusted;
mod wire;

use std::path::Path;
use std::sync::Arc;

use crate::sense::OpenFile;

pub use allow::AllowList;
pub use client::{DirectOpener, HelperOpener};
pub use excerpt::Document;
pub use serve::{Helper, Limits, ServeError, serve};
pub use wire::{Refusal, Reply, Request};

pub(crate) use trusted::Trust;

/// The opener for a machine whose file system lies at `root`: the root helper's for this machine, a direct one for a
/// prepared folder.
pub fn opener(root: &Path) -> Arc<dyn OpenFile> {
    if root == Path::new("/") { Arc::new(HelperOpener::new()) } else { Arc::new(DirectOpener::below(root)) }
}

/// Where systemd listens for the helper.
pub const SOCKET: &str = "/run/outrider/helper.sock";

/// The system user that may ask besides root.
pub const USER: &str = "outrider";
