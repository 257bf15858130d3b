//! A store that forgets when the process ends: for tests, and the plainest statement of what a store means.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, ready};
use outrider_protocol::{SequencedTransition, Timestamp};
use tokio::sync::broadcast;
use uuid::Uuid;

use super::feed::{Change, Feed, Watch};
use super::{
    Appended, Entry, Event, EventFilter, Expect, History, HistoryError, Origin, Page, Store, StoreResult,
    check_key, check_value, order,
};

#[derive(Debug, Default)]
struct Documents {
    entries: BTreeMap<String, (Bytes, u64)>,
    revision: u64,
}

/// One (uid, epoch): highest sequence, the part of it that was pruned, and hashes of what is kept.
#[derive(Debug, Default)]
struct Stream {
    highest: u64,
    pruned: u64,
    hashes: BTreeMap<u64, String>,
}

#[derive(Debug, Default)]
struct Past {
    events: Vec<Arc<Event>>,
    last_id: u64,
    streams: BTreeMap<(String, Uuid), Stream>,
}

/// [`Store`] and [`History`] in memory.
#[derive(Debug)]
pub struct MemoryStore {
    documents: Mutex<Documents>,
    past: Mutex<Past>,
    feed: Arc<Feed>,
    events: broadcast::Sender<Arc<Event>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self {
            documents: Mutex::default(),
            past: Mutex::default(),
            feed: Feed::new(0),
            events: broadcast::Sender::new(super::SUBSCRIBER_BUFFER),
        }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn documents(&self) -> MutexGuard<'_, Documents> {
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, key: &str, value: Option<Bytes>, expect: Expect) -> StoreResult<u64> {
        check_key(key)?;
        let mut documents = self.documents();
        let current = documents.entries.get(key).map(|(_, revision)| *revision);
        expect.check(key, current)?;
        if value.is_none() && current.is_none() {
            return Ok(documents.revision);
        }
        documents.revision += 1;
        let revision = documents.revision;
        match &value {
            Some(value) => drop(documents.entries.insert(key.to_owned(), (value.clone(), revision))),
            None => drop(documents.entries.remove(key)),
        }
        // Published under the lock: watchers must see revisions in order.
        self.feed.publish([Change { revision, key: key.into(), value }]);
        Ok(revision)
    }

    fn page(&self, prefix: &str, after: &str, limit: usize) -> Page {
        let documents = self.documents();
        let from = if after < prefix { Bound::Included(prefix) } else { Bound::Excluded(after) };
        let mut range = documents
            .entries
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix));
        let items: Vec<Entry> = range
            .by_ref()
            .take(limit.max(1))
            .map(|(key, (value, revision))| Entry {
                key: key.clone(),
                value: value.clone(),
                revision: *revision,
            })
            .collect();
        let next = range.next().and_then(|_| items.last().map(|e| e.key.clone()));
        Page { items, revision: documents.revision, next }
    }

    fn append_now(
        &self,
        origin: &Origin,
        epoch: Uuid,
        transitions: &[SequencedTransition],
        received_at: Timestamp,
    ) -> Result<Appended, HistoryError> {
        order::check(transitions)?;
        let mut past = self.past();
        let Past { events, last_id, streams } = &mut *past;
        let stream = streams.entry((origin.uid.clone(), epoch)).or_default();
        let mut fresh = Vec::new();
        for t in transitions {
            let stored = stream.hashes.get(&t.sequence).map(String::as_str);
            if order::is_new(t.sequence, &t.content_hash(), stored, stream.highest, stream.pruned)? {
                fresh.push(t);
            }
        }
        let mut stored = Vec::with_capacity(fresh.len());
        for t in fresh {
            *last_id += 1;
            stream.highest = t.sequence;
            stream.hashes.insert(t.sequence, t.content_hash());
            let event = Arc::new(Event {
                id: *last_id,
                origin: origin.clone(),
                epoch,
                sequence: t.sequence,
                received_at,
                transition: t.transition.clone(),
            });
            events.push(event.clone());
            stored.push(event);
        }
        for event in &stored {
            // Nobody listening is no failure.
            let _ = self.events.send(event.clone());
        }
        Ok(Appended { acknowledged: stream.highest, stored })
    }

    fn prune_now(&self, before: Timestamp) -> u64 {
        let mut past = self.past();
        let Past { events, streams, .. } = &mut *past;
        let count = events.len();
        events.retain(|e| {
            let keep = e.received_at >= before;
            if !keep && let Some(stream) = streams.get_mut(&(e.origin.uid.clone(), e.epoch)) {
                stream.pruned = stream.pruned.max(e.sequence);
                stream.hashes.remove(&e.sequence);
            }
            keep
        });
        (count - events.len()) as u64
    }
}

impl EventFilter {
    fn takes(&self, event: &Event) -> bool {
        self.uid.as_ref().is_none_or(|uid| *uid == event.origin.uid)
            && self.name.as_ref().is_none_or(|name| *name == event.origin.name)
    }
}

impl Store for MemoryStore {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, StoreResult<Option<Entry>>> {
        let found = self.documents().entries.get(key).cloned();
        let entry = found.map(|(value, revision)| Entry { key: key.to_owned(), value, revision });
        ready(Ok(entry)).boxed()
    }

    fn put<'a>(&'a self, key: &'a str, value: Bytes, expect: Expect) -> BoxFuture<'a, StoreResult<u64>> {
        ready(check_value(key, &value).and_then(|()| self.write(key, Some(value), expect))).boxed()
    }

    fn delete<'a>(&'a self, key: &'a str, expect: Expect) -> BoxFuture<'a, StoreResult<()>> {
        ready(self.write(key, None, expect).map(drop)).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str, after: &'a str, limit: usize) -> BoxFuture<'a, StoreResult<Page>> {
        ready(Ok(self.page(prefix, after, limit))).boxed()
    }

    fn watch<'a>(&'a self, prefix: &'a str, from: u64) -> BoxFuture<'a, StoreResult<Watch>> {
        ready(self.feed.watch(prefix, from)).boxed()
    }
}

impl History for MemoryStore {
    fn append<'a>(
        &'a self,
        origin: &'a Origin,
        epoch: Uuid,
        transitions: &'a [SequencedTransition],
        received_at: Timestamp,
    ) -> BoxFuture<'a, Result<Appended, HistoryError>> {
        ready(self.append_now(origin, epoch, transitions, received_at)).boxed()
    }

    fn acknowledged<'a>(&'a self, uid: &'a str, epoch: Uuid) -> BoxFuture<'a, Result<u64, HistoryError>> {
        let highest = self.past().streams.get(&(uid.to_owned(), epoch)).map_or(0, |s| s.highest);
        ready(Ok(highest)).boxed()
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, HistoryError>> {
        let past = self.past();
        let found = past.events.iter().filter(|e| e.id > after && filter.takes(e)).take(limit);
        let found: Vec<Event> = found.map(|e| Event::clone(e)).collect();
        ready(Ok(found)).boxed()
    }

    fn latest<'a>(
        &'a self,
        filter: &'a EventFilter,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, HistoryError>> {
        let past = self.past();
        let found = past.events.iter().rev().filter(|e| filter.takes(e)).take(limit);
        let mut found: Vec<Event> = found.map(|e| Event::clone(e)).collect();
        found.reverse();
        ready(Ok(found)).boxed()
    }

    fn position<'a>(&'a self) -> BoxFuture<'a, Result<u64, HistoryError>> {
        ready(Ok(self.past().last_id)).boxed()
    }

    fn prune<'a>(&'a self, before: Timestamp) -> BoxFuture<'a, Result<u64, HistoryError>> {
        ready(Ok(self.prune_now(before))).boxed()
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::conformance;

    async fn new() -> Arc<MemoryStore> {
        Arc::new(MemoryStore::new())
    }

    #[tokio::test]
    async fn is_a_store() {
        conformance::store(new).await;
    }

    #[tokio::test]
    async fn is_a_history() {
        conformance::history(new).await;
    }
}
