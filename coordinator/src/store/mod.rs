//! Where the coordinator keeps what it must not lose.
//!
//! Two traits, because two kinds of data have two kinds of home. [`Store`] holds documents (nodes, tokens, node
//! states): compare-and-swap by key, paged lists, a watch from a revision, no transaction across keys, which is all
//! that a Kubernetes API server offers, so that one can stand behind the same trait. [`History`] holds transitions:
//! appended exactly once, never rewritten, pruned by age; it never goes to etcd.
//!
//! [`sqlite::SqliteStore`] implements both for one machine, [`memory::MemoryStore`] for tests; [`conformance`] is the
//! one suite that every implementation passes. Heartbeats touch neither: a fleet's cost lies in what changes.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use outrider_protocol::{SequencedTransition, Timestamp, Transition};
use uuid::Uuid;

#[cfg(test)]
pub mod conformance;
mod error;
mod feed;
pub mod memory;
mod order;
pub mod sqlite;

pub use error::{HistoryError, StoreError};
pub use feed::{Change, Watch};

/// Largest value a key may hold, in bytes: what an etcd behind a Kubernetes API server would still take.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// Events held for a subscriber that is slow, before it lags.
const SUBSCRIBER_BUFFER: usize = 4096;

/// Result of a call to a [`Store`].
pub type StoreResult<T> = Result<T, StoreError>;

/// A document under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Key, such as `nodes/<uid>`; parts are divided by `/`.
    pub key: String,
    /// The document.
    pub value: Bytes,
    /// Revision of the write that made it; what [`Expect::Revision`] is compared with.
    pub revision: u64,
}

/// What must hold for a write to take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing: the last writer wins.
    Any,
    /// The key does not exist.
    Absent,
    /// The key exists and was last written at this revision.
    Revision(u64),
}

impl Expect {
    /// Whether it holds for a key at `current`.
    fn check(self, key: &str, current: Option<u64>) -> StoreResult<()> {
        let holds = match self {
            Expect::Any => true,
            Expect::Absent => current.is_none(),
            Expect::Revision(revision) => current == Some(revision),
        };
        if holds { Ok(()) } else { Err(StoreError::Conflict { key: key.to_owned(), current }) }
    }
}

fn check_key(key: &str) -> StoreResult<()> {
    let problem = match key.len() {
        0 => "a key must not be empty".to_owned(),
        n if n > MAX_KEY_BYTES => {
            format!("the key has {n} bytes; at most {MAX_KEY_BYTES} are kept")
        }
        _ if key.chars().any(char::is_control) => "a key must not hold control characters".to_owned(),
        _ => return Ok(()),
    };
    Err(StoreError::Invalid { key: key.chars().take(64).collect(), problem })
}

fn check_value(key: &str, value: &Bytes) -> StoreResult<()> {
    if value.len() <= MAX_VALUE_BYTES {
        return Ok(());
    }
    let problem = format!("the value has {} bytes; at most {MAX_VALUE_BYTES} are kept", value.len());
    Err(StoreError::Invalid { key: key.chars().take(64).collect(), problem })
}

/// A part of a list, in the order of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The entries.
    pub items: Vec<Entry>,
    /// Revision of the store at which this page was read. A watch begins at that of the *first* page.
    pub revision: u64,
    /// What to give as `after` for the next page; opaque; `None` at the last page.
    pub next: Option<String>,
}

/// Documents by key. Writes are answered after they are durable; a reader sees every write answered before its call.
pub trait Store: Send + Sync + 'static {
    /// The document under `key`; `None` when there is none.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, StoreResult<Option<Entry>>>;

    /// Writes `value` under `key` if `expect` holds ([`StoreError::Conflict`] otherwise); the revision it got.
    fn put<'a>(&'a self, key: &'a str, value: Bytes, expect: Expect) -> BoxFuture<'a, StoreResult<u64>>;

    /// Removes `key` if `expect` holds. With [`Expect::Any`], removing what is not there is no error.
    fn delete<'a>(&'a self, key: &'a str, expect: Expect) -> BoxFuture<'a, StoreResult<()>>;

    /// At most `limit` (at least 1) entries whose key starts with `prefix`; `after` is "" or the last page's `next`.
    fn list<'a>(&'a self, prefix: &'a str, after: &'a str, limit: usize) -> BoxFuture<'a, StoreResult<Page>>;

    /// Every change of keys under `prefix` after revision `from`, in order. [`StoreError::Compacted`] when the changes
    /// since `from` are no longer known, now or later when the watcher falls behind: list again, watch from there.
    fn watch<'a>(&'a self, prefix: &'a str, from: u64) -> BoxFuture<'a, StoreResult<Watch>>;
}

impl std::fmt::Debug for dyn Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("dyn Store")
    }
}

/// Every entry under `prefix`, and the revision a watch may begin at.
pub async fn list_all(store: &dyn Store, prefix: &str) -> StoreResult<(Vec<Entry>, u64)> {
    let mut page = store.list(prefix, "", 500).await?;
    let revision = page.revision;
    let mut items = std::mem::take(&mut page.items);
    while let Some(after) = page.next.take() {
        page = store.list(prefix, &after, 500).await?;
        items.append(&mut page.items);
    }
    Ok((items, revision))
}

/// Whose transitions are appended: a node, or the coordinator itself speaking of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Uid of the node; `cluster/<name>` for fleet conditions.
    pub uid: String,
    /// Name people know it by, kept with each event so that history still reads when the node is gone.
    pub name: String,
}

/// One stored transition.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Position in the history; grows with every event, may have gaps.
    pub id: u64,
    /// Whose it is.
    pub origin: Origin,
    /// The spool epoch it came with.
    pub epoch: Uuid,
    /// Its place in the epoch.
    pub sequence: u64,
    /// When it was stored.
    pub received_at: Timestamp,
    /// The transition.
    pub transition: Transition,
}

/// What an append did; given only after it is durable.
#[derive(Clone, Debug, PartialEq)]
pub struct Appended {
    /// Every transition of the epoch up to this sequence is stored: the highest one stored.
    pub acknowledged: u64,
    /// The events that were new, in order; those stored before are not among them.
    pub stored: Vec<Arc<Event>>,
}

/// Which events to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only this uid.
    pub uid: Option<String>,
    /// Only this name (also events of an earlier node of the name).
    pub name: Option<String>,
}

/// Transitions: appended exactly once, never rewritten.
pub trait History: Send + Sync + 'static {
    /// Stores what is new of `transitions`, all or nothing.
    ///
    /// Sequences must grow by at least one (gaps are allowed: a full spool merges). A sequence that is stored with the
    /// same content is acknowledged again. One stored with another content, or one at or below the highest stored that
    /// was never stored, is a [`HistoryError::Mismatch`]: a disk or memory snapshot was restored at the node, which
    /// must begin a new epoch.
    fn append<'a>(
        &'a self,
        origin: &'a Origin,
        epoch: Uuid,
        transitions: &'a [SequencedTransition],
        received_at: Timestamp,
    ) -> BoxFuture<'a, Result<Appended, HistoryError>>;

    /// Highest sequence stored for this uid and epoch; 0 when there is none.
    fn acknowledged<'a>(&'a self, uid: &'a str, epoch: Uuid) -> BoxFuture<'a, Result<u64, HistoryError>>;

    /// At most `limit` events after position `after`, oldest first.
    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, HistoryError>>;

    /// The newest `limit` events, oldest of them first.
    fn latest<'a>(
        &'a self,
        filter: &'a EventFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, HistoryError>>;

    /// Position of the newest event; 0 when the history is empty.
    fn position<'a>(&'a self) -> BoxFuture<'a, Result<u64, HistoryError>>;

    /// Removes events received before `before`; how many went. What was acknowledged stays acknowledged.
    fn prune<'a>(&'a self, before: Timestamp) -> BoxFuture<'a, Result<u64, HistoryError>>;

    /// Events as they are stored, in the order of their positions, from now on. A receiver that lags reads
    /// [`History::events`] from the last position it saw.
    fn subscribe(&self) -> tokio::sync::broadcast::Receiver<Arc<Event>>;
}
