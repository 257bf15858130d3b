//! Recent changes, kept in memory for watchers.
//!
//! One bounded ring serves every watcher: each keeps its own position, and one that falls out of the ring is told so
//! (`Compacted`) instead of being sent a gap. Changes before the start of the process are not known either: after a
//! restart a watcher lists again, which it must be able to do anyway.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use super::{StoreError, StoreResult};

/// Changes kept for watchers.
const MAX_CHANGES: usize = 16_384;
/// Bytes of values kept for watchers.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// A key that was written or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Revision of the change.
    pub revision: u64,
    /// The key.
    pub key: Arc<str>,
    /// The document; `None` when the key was removed.
    pub value: Option<Bytes>,
}

#[derive(Debug)]
struct Ring {
    changes: VecDeque<Change>,
    bytes: usize,
    /// Every change after this revision is in the ring.
    floor: u64,
}

/// The ring and its bell.
#[derive(Debug)]
pub(super) struct Feed {
    ring: Mutex<Ring>,
    bell: watch::Sender<u64>,
}

impl Feed {
    /// A feed of the changes after `revision`.
    pub(super) fn new(revision: u64) -> Arc<Self> {
        let ring = Ring { changes: VecDeque::new(), bytes: 0, floor: revision };
        Arc::new(Self { ring: Mutex::new(ring), bell: watch::Sender::new(revision) })
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds changes (in order of revision) and wakes the watchers.
    pub(super) fn publish(&self, changes: impl IntoIterator<Item = Change>) {
        let mut ring = self.ring();
        let mut last = None;
        for change in changes {
            ring.bytes += change.value.as_ref().map_or(0, Bytes::len);
            last = Some(change.revision);
            ring.changes.push_back(change);
            while ring.changes.len() > MAX_CHANGES || (ring.bytes > MAX_BYTES && ring.changes.len() > 1) {
                if let Some(gone) = ring.changes.pop_front() {
                    ring.bytes -= gone.value.as_ref().map_or(0, Bytes::len);
                    ring.floor = gone.revision;
                }
            }
        }
        drop(ring);
        if let Some(last) = last {
            self.bell.send_replace(last);
        }
    }

    /// A watch of `prefix` after revision `from`.
    pub(super) fn watch(self: &Arc<Self>, prefix: &str, from: u64) -> StoreResult<Watch> {
        let oldest = self.ring().floor;
        if from < oldest {
            return Err(StoreError::Compacted { from, oldest });
        }
        let bell = self.bell.subscribe();
        Ok(Watch { feed: Arc::downgrade(self), bell, prefix: prefix.into(), position: from })
    }
}

/// Changes under a prefix, one after another.
#[derive(Debug)]
pub struct Watch {
    // Weak, so that a store that was closed ends its watches instead of being held open by them.
    feed: std::sync::Weak<Feed>,
    bell: watch::Receiver<u64>,
    prefix: Box<str>,
    position: u64,
}

impl Watch {
    /// The next change. Cancel-safe. [`StoreError::Compacted`] when this watcher fell behind, [`StoreError::Closed`]
    /// when the store was closed.
    pub async fn next(&mut self) -> StoreResult<Change> {
        loop {
            let seen = *self.bell.borrow_and_update();
            if let Some(change) = self.take()? {
                return Ok(change);
            }
            self.position = self.position.max(seen);
            if self.bell.changed().await.is_err() {
                return Err(StoreError::Closed);
            }
        }
    }

    fn take(&mut self) -> StoreResult<Option<Change>> {
        let feed = self.feed.upgrade().ok_or(StoreError::Closed)?;
        let ring = feed.ring();
        if self.position < ring.floor {
            return Err(StoreError::Compacted { from: self.position, oldest: ring.floor });
        }
        let start = ring.changes.partition_point(|c| c.revision <= self.position);
        let found = ring.changes.range(start..).find(|c| c.key.starts_with(&*self.prefix)).cloned();
        if let Some(change) = &found {
            self.position = change.revision;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(revision: u64) -> Change {
        Change { revision, key: format!("k/{revision}").into(), value: Some(Bytes::from_static(b"v")) }
    }

    #[tokio::test]
    async fn a_watcher_that_falls_behind_is_told() {
        let feed = Feed::new(0);
        let mut watch = feed.watch("k/", 0).unwrap();
        feed.publish((1..=MAX_CHANGES as u64 + 1).map(change));
        assert_eq!(watch.next().await, Err(StoreError::Compacted { from: 0, oldest: 1 }));
        assert_eq!(feed.watch("k/", 0).unwrap_err(), StoreError::Compacted { from: 0, oldest: 1 });
        assert_eq!(feed.watch("k/", 1).unwrap().next().await.unwrap().revision, 2);
    }

    #[tokio::test]
    async fn large_values_are_bounded_by_bytes() {
        let feed = Feed::new(0);
        let big = |revision| Change { value: Some(Bytes::from(vec![0; MAX_BYTES / 2])), ..change(revision) };
        feed.publish([big(1), big(2), big(3)]);
        assert_eq!(feed.watch("", 1).unwrap().next().await.unwrap().revision, 2);
        assert!(feed.watch("", 0).is_err());
    }

    #[tokio::test]
    async fn a_closed_store_ends_its_watches() {
        let feed = Feed::new(0);
        let mut watch = feed.watch("", 0).unwrap();
        drop(feed);
        assert_eq!(watch.next().await, Err(StoreError::Closed));
    }
}
