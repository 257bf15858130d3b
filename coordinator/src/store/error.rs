//! What can go wrong in a store, in words that say what, where and what to do.

use std::path::PathBuf;

/// A call to a [`Store`](super::Store) that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// What the write expected does not hold.
    #[error("{key} is at {}, not as expected", found(*.current))]
    Conflict {
        /// The key.
        key: String,
        /// Its revision; `None` when it does not exist.
        current: Option<u64>,
    },
    /// The changes asked for are no longer known.
    #[error("changes after revision {from} are no longer known (oldest: {oldest}); list again")]
    Compacted {
        /// What was asked for.
        from: u64,
        /// The oldest revision a watch may begin at.
        oldest: u64,
    },
    /// A key or value that no store would take.
    #[error("{key}: {problem}")]
    Invalid {
        /// The key, cut to a readable length.
        key: String,
        /// What is wrong and what the limit is.
        problem: String,
    },
    /// The file system is full.
    #[error("no space left for {}; free some, writing goes on by itself", path.display())]
    DiskFull {
        /// The database.
        path: PathBuf,
    },
    /// The store cannot do it now.
    #[error("the store at {} failed: {detail}", path.display())]
    Failed {
        /// The database.
        path: PathBuf,
        /// The failure in words.
        detail: String,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

fn found(revision: Option<u64>) -> String {
    revision.map_or_else(|| "no revision (absent)".to_owned(), |r| format!("revision {r}"))
}

/// A call to a [`History`](super::History) that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The epoch does not continue what is stored: the node must begin a new one. Nothing was stored.
    #[error("sequence {sequence} is not what is stored (highest: {highest})")]
    Mismatch {
        /// The first sequence that differs.
        sequence: u64,
        /// The highest sequence stored for the epoch.
        highest: u64,
    },
    /// The sequences of one call do not grow. Nothing was stored.
    #[error(
        "sequence {sequence} follows {previous}; each must be greater than the one before, at least 1 and at most 2^63 - 1"
    )]
    OutOfOrder {
        /// The sequence before; 0 when it is the first.
        previous: u64,
        /// The one that does not follow.
        sequence: u64,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
