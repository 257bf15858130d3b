//! The embedded store: one SQLite file in the state folder.
//!
//! - **One writer thread, group commit.** Requests queue; what has queued is one transaction, and each is answered only
//!   after the commit is on disk (WAL, `synchronous=FULL`). Many small writes cost one fsync.
//! - **Readers of their own**, one for documents and one for history, so that a long history query holds up nobody.
//! - **A damaged file is never the end and never silently lost**: it is set aside under a name with the time, what can
//!   still be read of it is carried over, and both are said ([`Opened`]).
//! - **One process**: a lock on the folder; a second coordinator is told who holds it.

mod backup;
mod open;
mod reader;
mod salvage;
mod schema;
mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use outrider_protocol::{SequencedTransition, Timestamp};
use tokio::sync::broadcast;
use uuid::Uuid;

pub use backup::{BackupError, backup};
pub use open::{OpenError, Opened, SetAside};
pub use schema::SCHEMA_VERSION;

use super::feed::{Feed, Watch};
use super::{
    Appended, Entry, Event, EventFilter, Expect, History, HistoryError, Origin, Page, Store, StoreError,
    StoreResult, check_key, check_value, order,
};
use reader::Reader;
use writer::{Row, Writer};

/// Name of the database in the state folder.
pub const FILE_NAME: &str = "coordinator.db";

/// How to open it.
#[derive(Clone, Debug, Default)]
pub struct SqliteOptions {
    /// A registered SQLite VFS to use instead of the system's: where a test injects faults.
    pub vfs: Option<String>,
}

/// [`Store`] and [`History`] in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    writer: Writer,
    documents: Reader,
    history: Reader,
    feed: Arc<Feed>,
    events: broadcast::Sender<Arc<Event>>,
}

impl SqliteStore {
    /// Opens `folder/coordinator.db`, making folder and file when they are not there. Reads the whole file once
    /// (integrity check), so call it where blocking is allowed.
    pub fn open(folder: &Path) -> Result<Opened, OpenError> {
        Self::open_with(folder, &SqliteOptions::default())
    }

    /// [`SqliteStore::open`] with options.
    pub fn open_with(folder: &Path, options: &SqliteOptions) -> Result<Opened, OpenError> {
        open::open(folder, options)
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Commits what is queued and gives the folder free; writes after it fail with [`StoreError::Closed`].
    pub async fn close(&self) {
        self.writer.close().await;
    }

    /// A consistent copy of the database at `to`, made while the store runs; see [`backup`].
    pub async fn backup(&self, to: &Path) -> Result<(), BackupError> {
        let (from, to) = (self.path.clone(), to.to_owned());
        let joined = tokio::task::spawn_blocking(move || backup(&from, &to)).await;
        joined.unwrap_or_else(|e| Err(BackupError::Interrupted { detail: e.to_string() }))
    }
}

impl Store for SqliteStore {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, StoreResult<Option<Entry>>> {
        let key = key.to_owned();
        self.documents.read(move |db| reader::get(db, key)).boxed()
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, expect: Expect) -> BoxFuture<'a, StoreResult<u64>> {
        if let Err(e) = check_key(key).and_then(|()| check_value(key, &value)) {
            return ready(Err(e)).boxed();
        }
        self.writer.write(key.into(), Some(value), expect).boxed()
    }

    fn delete<'a>(&'a self, key: &'a str, expect: Expect) -> BoxFuture<'a, StoreResult<()>> {
        if let Err(e) = check_key(key) {
            return ready(Err(e)).boxed();
        }
        self.writer.write(key.into(), None, expect).map(|done| done.map(drop)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str, after: &'a str, limit: usize) -> BoxFuture<'a, StoreResult<Page>> {
        let (prefix, after) = (prefix.to_owned(), after.to_owned());
        self.documents.read(move |db| reader::list(db, &prefix, &after, limit.max(1))).boxed()
    }

    fn watch<'a>(&'a self, prefix: &'a str, from: u64) -> BoxFuture<'a, StoreResult<Watch>> {
        ready(self.feed.watch(prefix, from)).boxed()
    }
}

impl History for SqliteStore {
    fn append<'a>(
        &'a self,
        origin: &'a Origin,
        epoch: Uuid,
        transitions: &'a [SequencedTransition],
        received_at: Timestamp,
    ) -> BoxFuture<'a, Result<Appended, HistoryError>> {
        if let Err(e) = order::check(transitions) {
            return ready(Err(e)).boxed();
        }
        // Hashed and encoded here, on the caller's time: the writer thread is one for all.
        let rows: Vec<Row> = transitions.iter().map(Row::new).collect();
        self.writer.append(origin.clone(), epoch, rows, received_at).boxed()
    }

    fn acknowledged<'a>(&'a self, uid: &'a str, epoch: Uuid) -> BoxFuture<'a, Result<u64, HistoryError>> {
        let uid = uid.to_owned();
        self.history.read(move |db| reader::acknowledged(db, &uid, epoch)).map(|r| Ok(r?)).boxed()
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, HistoryError>> {
        let filter = filter.clone();
        self.history.read(move |db| reader::events(db, &filter, after, limit)).map(|r| Ok(r?)).boxed()
    }

    fn latest<'a>(
        &'a self,
        filter: &'a EventFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, HistoryError>> {
        let filter = filter.clone();
        self.history.read(move |db| reader::latest(db, &filter, limit)).map(|r| Ok(r?)).boxed()
    }

    fn position<'a>(&'a self) -> BoxFuture<'a, Result<u64, HistoryError>> {
        self.history.read(reader::position).map(|r| Ok(r?)).boxed()
    }

    fn prune<'a>(&'a self, before: Timestamp) -> BoxFuture<'a, Result<u64, HistoryError>> {
        async move {
            // In portions, so that writers get their turn between them.
            let mut pruned = 0;
            loop {
                let portion = self.writer.prune(before).await?;
                pruned += portion;
                if portion < writer::PRUNE_PORTION {
                    return Ok(pruned);
                }
            }
        }
        .boxed()
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }
}

/// A failure of SQLite in the words of the store.
fn failure(path: &Path, error: &rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode as C;
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(C::DiskFull) => StoreError::DiskFull { path },
        Some(C::DatabaseCorrupt | C::NotADatabase) => StoreError::Failed {
            path,
            detail: format!("{error}; restart the coordinator: it sets the damaged file aside and goes on"),
        },
        Some(C::ReadOnly | C::PermissionDenied | C::CannotOpen) => StoreError::Failed {
            path,
            detail: format!("{error}; give the coordinator's user write access to file and folder"),
        },
        _ => StoreError::Failed { path, detail: error.to_string() },
    }
}
