//! The coordinator of a state folder: the one that runs on it, or the folder itself.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use outrider_coordinator::enrol::{Registrar, Settings};
use outrider_coordinator::pki::{Authority, Lifetimes};
use outrider_coordinator::store::sqlite::{OpenError, SqliteStore};
use outrider_protocol::Timestamp;

use super::api_client::ApiClient;

/// How to get at it.
pub(super) enum Reach {
    /// A coordinator runs: it is asked.
    Running(ApiClient),
    /// None runs: the folder is ours for as long as this lives.
    Stopped(Box<Offline>),
}

/// The parts of a coordinator that does not run.
pub(super) struct Offline {
    pub(super) authority: Arc<Authority>,
    pub(super) registrar: Registrar,
    store: Arc<SqliteStore>,
}

/// A coordinator runs on the folder and cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("a coordinator runs on {folder} and cannot be asked; is this its state folder, and may you read it?")]
pub(super) struct NotReachable {
    folder: String,
}

impl Reach {
    /// The coordinator of `state_dir`.
    pub(super) async fn find(state_dir: &Path) -> anyhow::Result<Self> {
        outrider_coordinator::refuse_lost_database(state_dir)?;
        // Opening makes what is not there: right for `serve`, and a mistyped folder elsewhere.
        if !state_dir.join(outrider_coordinator::store::sqlite::FILE_NAME).exists() {
            anyhow::bail!(
                "{} holds no coordinator; give --state-dir, or start one there first",
                state_dir.display()
            );
        }
        match SqliteStore::open(state_dir) {
            Ok(opened) => {
                Offline::open(state_dir, Arc::new(opened.store)).await.map(|o| Reach::Stopped(Box::new(o)))
            }
            Err(OpenError::InUse { .. }) => {
                let unreachable = || NotReachable { folder: state_dir.display().to_string() };
                Ok(Reach::Running(ApiClient::of(state_dir).with_context(unreachable)?))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Offline {
    async fn open(state_dir: &Path, store: Arc<SqliteStore>) -> anyhow::Result<Self> {
        let authority = Authority::open(&state_dir.join("ca"), &[], Lifetimes::default(), now())?;
        let registrar = Registrar::open(store.clone(), authority.clone(), Settings::default(), now()).await?;
        Ok(Self { authority, registrar, store })
    }

    /// Writes what is not yet written and lets the folder go.
    pub(super) async fn close(self) {
        self.store.close().await;
    }
}

/// The wall clock.
pub(super) fn now() -> Timestamp {
    SystemTime::now().into()
}
