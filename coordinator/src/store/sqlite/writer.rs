//! The one writer: a queue, a transaction over what has queued, an answer to each after the commit.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use bytes::Bytes;
use outrider_protocol::{SequencedTransition, Timestamp};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::{broadcast, mpsc, oneshot};
use uuid::Uuid;

use super::failure;
use super::open::FolderLock;
use crate::store::feed::{Change, Feed};
use crate::store::{Appended, Event, Expect, HistoryError, Origin, StoreError, StoreResult, order};

/// Requests that may queue; who comes then waits.
const QUEUE: usize = 4096;
/// Requests in one transaction: bounds how long the first of them waits.
const GROUP: usize = 512;
/// Events one prune removes in one transaction.
pub(super) const PRUNE_PORTION: u64 = 2000;

/// A transition as it is stored.
#[derive(Debug)]
pub(super) struct Row {
    transition: SequencedTransition,
    hash: String,
    text: String,
}

impl Row {
    pub(super) fn new(transition: &SequencedTransition) -> Self {
        let text = serde_json::to_string(&transition.transition).unwrap_or_default();
        Self { transition: transition.clone(), hash: transition.content_hash(), text }
    }
}

enum Request {
    Write {
        key: Arc<str>,
        value: Option<Bytes>,
        expect: Expect,
        answer: oneshot::Sender<StoreResult<u64>>,
    },
    Append {
        origin: Origin,
        epoch: Uuid,
        rows: Vec<Row>,
        received_at: Timestamp,
        answer: oneshot::Sender<Result<Appended, HistoryError>>,
    },
    Prune {
        before: Timestamp,
        answer: oneshot::Sender<StoreResult<u64>>,
    },
    Close {
        answer: oneshot::Sender<()>,
    },
    /// As a full disk would: no more pages than this.
    #[cfg(test)]
    LimitPages {
        pages: u32,
        answer: oneshot::Sender<()>,
    },
}

/// What a request did, until the commit makes it true.
enum Done {
    Write(StoreResult<u64>),
    Append(Result<Appended, HistoryError>),
    Prune(u64),
    Close,
}

/// The way to the writer's thread.
#[derive(Debug)]
pub(super) struct Writer {
    requests: mpsc::Sender<Request>,
}

impl Writer {
    pub(super) fn start(
        db: Connection,
        lock: FolderLock,
        path: PathBuf,
        revision: u64,
        feed: Arc<Feed>,
        events: broadcast::Sender<Arc<Event>>,
    ) -> std::io::Result<Self> {
        let (requests, queue) = mpsc::channel(QUEUE);
        let turn = Turn { path, revision, feed: Arc::downgrade(&feed), events, failing: None };
        thread::Builder::new().name("store-write".to_owned()).spawn(move || turn.run(db, queue, lock))?;
        Ok(Self { requests })
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> StoreResult<T> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)
    }

    pub(super) async fn write(
        &self,
        key: Arc<str>,
        value: Option<Bytes>,
        expect: Expect,
    ) -> StoreResult<u64> {
        self.ask(|answer| Request::Write { key, value, expect, answer }).await?
    }

    pub(super) async fn append(
        &self,
        origin: Origin,
        epoch: Uuid,
        rows: Vec<Row>,
        received_at: Timestamp,
    ) -> Result<Appended, HistoryError> {
        self.ask(|answer| Request::Append { origin, epoch, rows, received_at, answer }).await?
    }

    /// Removes one portion of events received before `before`.
    pub(super) async fn prune(&self, before: Timestamp) -> StoreResult<u64> {
        self.ask(|answer| Request::Prune { before, answer }).await?
    }

    #[cfg(test)]
    pub(super) async fn limit_pages(&self, pages: u32) {
        self.ask(|answer| Request::LimitPages { pages, answer }).await.expect("the writer");
    }

    pub(super) async fn close(&self) {
        // An error means that it is closed already.
        let _ = self.ask(|answer| Request::Close { answer }).await;
    }
}

struct Turn {
    path: PathBuf,
    revision: u64,
    feed: std::sync::Weak<Feed>,
    events: broadcast::Sender<Arc<Event>>,
    /// Why the last group failed: said when it begins, changes and ends, not with every group.
    failing: Option<StoreError>,
}

impl Turn {
    fn run(mut self, mut db: Connection, mut queue: mpsc::Receiver<Request>, lock: FolderLock) {
        let mut group = Vec::with_capacity(GROUP);
        let mut closing = None;
        while closing.is_none() && queue.blocking_recv_many(&mut group, GROUP) > 0 {
            closing = self.commit(&mut db, std::mem::take(&mut group));
        }
        // Refuse what comes from here on; what came before is answered by its dropped sender.
        queue.close();
        drop(db);
        drop(lock);
        if let Some(answer) = closing {
            let _ = answer.send(());
        }
    }

    /// One group: all in one transaction, or, if one of them makes SQLite fail, each in its own, so that it harms no
    /// other.
    fn commit(&mut self, db: &mut Connection, group: Vec<Request>) -> Option<oneshot::Sender<()>> {
        match self.transact(db, &group) {
            Ok(done) => {
                if self.failing.take().is_some() {
                    log::info!("{} takes writes again", self.path.display());
                }
                self.answer(group, done)
            }
            Err(e) if group.len() > 1 && !of_the_disk(&e) => {
                let mut closing = None;
                for request in group {
                    closing = self.commit(db, vec![request]).or(closing);
                }
                closing
            }
            Err(e) => {
                let error = failure(&self.path, &e);
                if self.failing.as_ref() != Some(&error) {
                    log::error!("writes fail, the first of them {} at once: {error}", group.len());
                    self.failing = Some(error.clone());
                }
                refuse(group, &error)
            }
        }
    }

    fn transact(&mut self, db: &mut Connection, group: &[Request]) -> rusqlite::Result<Vec<Done>> {
        let before = self.revision;
        let result = (|| {
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = group.iter().map(|r| self.perform(&tx, r)).collect::<rusqlite::Result<Vec<_>>>()?;
            if self.revision != before {
                let mut counter =
                    tx.prepare_cached("UPDATE counters SET value = ?1 WHERE name = 'revision'")?;
                counter.execute([signed(self.revision)])?;
            }
            tx.commit()?;
            Ok(done)
        })();
        if result.is_err() {
            self.revision = before;
        }
        result
    }

    fn perform(&mut self, tx: &Transaction<'_>, request: &Request) -> rusqlite::Result<Done> {
        match request {
            Request::Write { key, value, expect, .. } => {
                self.write(tx, key, value.as_ref(), *expect).map(Done::Write)
            }
            Request::Append { origin, epoch, rows, received_at, .. } => {
                append(tx, origin, *epoch, rows, *received_at).map(Done::Append)
            }
            Request::Prune { before, .. } => prune(tx, *before).map(Done::Prune),
            Request::Close { .. } => Ok(Done::Close),
            #[cfg(test)]
            Request::LimitPages { pages, .. } => {
                tx.pragma_update_and_check(None, "max_page_count", *pages, |_| Ok(()))?;
                Ok(Done::Close)
            }
        }
    }

    fn write(
        &mut self,
        tx: &Transaction<'_>,
        key: &str,
        value: Option<&Bytes>,
        expect: Expect,
    ) -> rusqlite::Result<StoreResult<u64>> {
        let mut current = tx.prepare_cached("SELECT revision FROM documents WHERE key = ?1")?;
        let current = current.query_row([key], |row| row.get::<_, i64>(0)).optional()?;
        let current = current.map(|n| u64::try_from(n).unwrap_or(0));
        if let Err(conflict) = expect.check(key, current) {
            return Ok(Err(conflict));
        }
        match (value, current) {
            (Some(value), _) => {
                let mut put = tx.prepare_cached(
                    "INSERT INTO documents VALUES (?1, ?2, ?3)
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value, revision = excluded.revision",
                )?;
                put.execute(params![key, &value[..], signed(self.revision + 1)])?;
            }
            (None, Some(_)) => {
                tx.prepare_cached("DELETE FROM documents WHERE key = ?1")?.execute([key])?;
            }
            (None, None) => return Ok(Ok(self.revision)),
        }
        self.revision += 1;
        Ok(Ok(self.revision))
    }

    /// Tells watchers and callers, in that order, what the commit made true.
    fn answer(&self, group: Vec<Request>, done: Vec<Done>) -> Option<oneshot::Sender<()>> {
        let mut closing = None;
        let changes = group.iter().zip(&done).filter_map(|(request, done)| match (request, done) {
            (Request::Write { key, value, .. }, Done::Write(Ok(revision))) => {
                Some(Change { revision: *revision, key: key.clone(), value: value.clone() })
            }
            _ => None,
        });
        if let Some(feed) = self.feed.upgrade() {
            feed.publish(changes);
        }
        for (request, done) in group.into_iter().zip(done) {
            // A caller who went away missed its answer; what was committed stands.
            match (request, done) {
                (Request::Write { answer, .. }, Done::Write(result)) => drop(answer.send(result)),
                (Request::Append { answer, .. }, Done::Append(result)) => {
                    for event in result.iter().flat_map(|appended| &appended.stored) {
                        let _ = self.events.send(event.clone());
                    }
                    drop(answer.send(result));
                }
                (Request::Prune { answer, .. }, Done::Prune(count)) => drop(answer.send(Ok(count))),
                (Request::Close { answer }, _) => closing = Some(answer),
                #[cfg(test)]
                (Request::LimitPages { answer, .. }, _) => drop(answer.send(())),
                _ => {}
            }
        }
        closing
    }
}

/// Failures that each request by itself would meet again.
fn of_the_disk(error: &rusqlite::Error) -> bool {
    use ErrorCode as C;
    matches!(
        error.sqlite_error_code(),
        Some(
            C::DiskFull
                | C::SystemIoFailure
                | C::ReadOnly
                | C::DatabaseCorrupt
                | C::NotADatabase
                | C::CannotOpen
        )
    )
}

fn refuse(group: Vec<Request>, error: &StoreError) -> Option<oneshot::Sender<()>> {
    let mut closing = None;
    for request in group {
        match request {
            Request::Write { answer, .. } | Request::Prune { answer, .. } => {
                drop(answer.send(Err(error.clone())))
            }
            Request::Append { answer, .. } => drop(answer.send(Err(error.clone().into()))),
            Request::Close { answer } => closing = Some(answer),
            #[cfg(test)]
            Request::LimitPages { answer, .. } => drop(answer.send(())),
        }
    }
    closing
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn append(
    tx: &Transaction<'_>,
    origin: &Origin,
    epoch: Uuid,
    rows: &[Row],
    received_at: Timestamp,
) -> rusqlite::Result<Result<Appended, HistoryError>> {
    let mut stream =
        tx.prepare_cached("SELECT id, highest, pruned FROM streams WHERE uid = ?1 AND epoch = ?2")?;
    let found = stream
        .query_row(params![origin.uid, epoch.as_bytes()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        })
        .optional()?;
    let (stream, highest, pruned) = found.map_or((None, 0, 0), |(id, highest, pruned)| {
        (Some(id), u64::try_from(highest).unwrap_or(0), u64::try_from(pruned).unwrap_or(0))
    });
    let mut fresh = Vec::with_capacity(rows.len());
    for row in rows {
        let sequence = row.transition.sequence;
        let stored: Option<String> = match stream.filter(|_| sequence <= highest) {
            Some(stream) => tx
                .prepare_cached("SELECT hash FROM events WHERE stream = ?1 AND sequence = ?2")?
                .query_row(params![stream, signed(sequence)], |row| row.get(0))
                .optional()?,
            None => None,
        };
        match order::is_new(sequence, &row.hash, stored.as_deref(), highest, pruned) {
            Ok(true) => fresh.push(row),
            Ok(false) => {}
            Err(mismatch) => return Ok(Err(mismatch)),
        }
    }
    let Some(last) = fresh.last() else {
        return Ok(Ok(Appended { acknowledged: highest, stored: Vec::new() }));
    };
    let acknowledged = last.transition.sequence;
    let stream: i64 = tx
        .prepare_cached(
            "INSERT INTO streams (uid, epoch, highest, pruned) VALUES (?1, ?2, ?3, 0)
             ON CONFLICT (uid, epoch) DO UPDATE SET highest = excluded.highest RETURNING id",
        )?
        .query_row(params![origin.uid, epoch.as_bytes(), signed(acknowledged)], |row| row.get(0))?;
    let known = tx
        .prepare_cached("SELECT id FROM origins WHERE uid = ?1 AND name = ?2")?
        .query_row(params![origin.uid, origin.name], |row| row.get(0))
        .optional()?;
    let origin_id: i64 = match known {
        Some(id) => id,
        None => {
            tx.prepare_cached("INSERT INTO origins (uid, name) VALUES (?1, ?2)")?
                .execute(params![origin.uid, origin.name])?;
            tx.last_insert_rowid()
        }
    };
    let mut insert = tx.prepare_cached(
        "INSERT INTO events (origin, stream, sequence, hash, received_at, transition) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut stored = Vec::with_capacity(fresh.len());
    for row in fresh {
        let SequencedTransition { sequence, transition } = &row.transition;
        let at = received_at.as_millis();
        insert.execute(params![origin_id, stream, signed(*sequence), row.hash, at, row.text])?;
        stored.push(Arc::new(Event {
            id: u64::try_from(tx.last_insert_rowid()).unwrap_or(0),
            origin: origin.clone(),
            epoch,
            sequence: *sequence,
            received_at,
            transition: transition.clone(),
        }));
    }
    Ok(Ok(Appended { acknowledged, stored }))
}

fn prune(tx: &Transaction<'_>, before: Timestamp) -> rusqlite::Result<u64> {
    let before = before.as_millis();
    let portion = "SELECT id FROM events WHERE received_at < ?1 ORDER BY received_at, id LIMIT ?2";
    let limit = signed(PRUNE_PORTION);
    tx.prepare_cached(&format!(
        "UPDATE streams SET pruned = max(pruned, gone.sequence) FROM
         (SELECT stream, max(sequence) AS sequence FROM events WHERE id IN ({portion}) GROUP BY stream) AS gone
         WHERE streams.id = gone.stream"
    ))?
    .execute(params![before, limit])?;
    let gone = tx
        .prepare_cached(&format!("DELETE FROM events WHERE id IN ({portion})"))?
        .execute(params![before, limit])?;
    if (gone as u64) < PRUNE_PORTION {
        // Epochs long over and names long gone go with their last event.
        tx.execute(
            "DELETE FROM streams WHERE highest = pruned
             AND NOT EXISTS (SELECT 1 FROM events WHERE stream = streams.id)
             AND EXISTS (SELECT 1 FROM streams AS later WHERE later.uid = streams.uid AND later.id > streams.id)",
            [],
        )?;
        tx.execute(
            "DELETE FROM origins WHERE NOT EXISTS (SELECT 1 FROM events WHERE origin = origins.id)",
            [],
        )?;
    }
    Ok(gone as u64)
}
