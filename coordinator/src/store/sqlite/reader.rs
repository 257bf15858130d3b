//! Reads, on a thread and connection of their own.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use outrider_protocol::{Timestamp, Transition};
use rusqlite::{Connection, OptionalExtension, ToSql, params};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::failure;
use crate::store::{Entry, Event, EventFilter, Origin, Page, StoreError, StoreResult};

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// One reading thread.
#[derive(Debug)]
pub(super) struct Reader {
    jobs: mpsc::Sender<Job>,
    path: PathBuf,
}

impl Reader {
    pub(super) fn start(name: &str, mut db: Connection, path: &Path) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Ok(job) = queue.recv() {
                job(&mut db);
            }
        })?;
        Ok(Self { jobs, path: path.to_owned() })
    }

    /// Runs `read` in one transaction, so that all it sees is of one instant.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |db| {
            let result = db.transaction().and_then(|tx| read(&tx));
            // The caller may have gone; then nobody misses the answer.
            let _ = answer.send(result);
        });
        self.jobs.send(job).map_err(|_| StoreError::Closed)?;
        let result = answered.await.map_err(|_| StoreError::Closed)?;
        result.map_err(|e| failure(&self.path, &e))
    }
}

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

pub(super) fn revision(db: &Connection) -> rusqlite::Result<u64> {
    let value =
        db.prepare_cached("SELECT value FROM counters WHERE name = 'revision'")?.query_row([], |r| r.get(0));
    value.map(unsigned)
}

pub(super) fn get(db: &Connection, key: String) -> rusqlite::Result<Option<Entry>> {
    let mut statement = db.prepare_cached("SELECT value, revision FROM documents WHERE key = ?1")?;
    let found = statement.query_row([&key], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get(1)?))).optional()?;
    Ok(found.map(|(value, revision)| Entry { key, value: Bytes::from(value), revision: unsigned(revision) }))
}

pub(super) fn list(db: &Connection, prefix: &str, after: &str, limit: usize) -> rusqlite::Result<Page> {
    // SQLite compares text as bytes, so the keys of a prefix are one range, below the prefix and the last character.
    let end = format!("{prefix}{}", char::MAX);
    let mut statement = db.prepare_cached(
        "SELECT key, value, revision FROM documents
         WHERE key >= ?1 AND key < ?2 AND key > ?3 ORDER BY key LIMIT ?4",
    )?;
    let wanted = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![prefix, end, after, wanted], |row| {
        let value: Vec<u8> = row.get(1)?;
        Ok(Entry { key: row.get(0)?, value: Bytes::from(value), revision: unsigned(row.get(2)?) })
    })?;
    let mut items: Vec<Entry> = rows.collect::<rusqlite::Result<_>>()?;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|entry| entry.key.clone());
    Ok(Page { items, revision: revision(db)?, next })
}

pub(super) fn acknowledged(db: &Connection, uid: &str, epoch: Uuid) -> rusqlite::Result<u64> {
    let mut statement = db.prepare_cached("SELECT highest FROM streams WHERE uid = ?1 AND epoch = ?2")?;
    let highest = statement.query_row(params![uid, epoch.as_bytes()], |row| row.get(0)).optional()?;
    Ok(highest.map_or(0, unsigned))
}

pub(super) fn position(db: &Connection) -> rusqlite::Result<u64> {
    // Not max(id): the newest events may have been pruned, and positions are never given twice.
    let mut statement = db.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?.map_or(0, unsigned))
}

pub(super) fn events(
    db: &Connection,
    filter: &EventFilter,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<Event>> {
    select(db, filter, "AND e.id > ?1 ORDER BY e.id", after, limit)
}

pub(super) fn latest(db: &Connection, filter: &EventFilter, limit: usize) -> rusqlite::Result<Vec<Event>> {
    let mut events = select(db, filter, "AND e.id > ?1 ORDER BY e.id DESC", 0, limit)?;
    events.reverse();
    Ok(events)
}

fn select(
    db: &Connection,
    filter: &EventFilter,
    order: &str,
    after: u64,
    limit: usize,
) -> rusqlite::Result<Vec<Event>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut values: Vec<&dyn ToSql> = vec![&after, &limit];
    let mut origins = Vec::new();
    if let Some(uid) = &filter.uid {
        values.push(uid);
        origins.push(format!("uid = ?{}", values.len()));
    }
    if let Some(name) = &filter.name {
        values.push(name);
        origins.push(format!("name = ?{}", values.len()));
    }
    let filter = match origins.is_empty() {
        true => String::new(),
        false => format!("AND e.origin IN (SELECT id FROM origins WHERE {})", origins.join(" AND ")),
    };
    let sql = format!(
        "SELECT e.id, o.uid, o.name, s.epoch, e.sequence, e.received_at, e.transition
         FROM events e JOIN origins o ON o.id = e.origin JOIN streams s ON s.id = e.stream
         WHERE true {filter} {order} LIMIT ?2"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map(&*values, |row| {
        let (id, text): (i64, String) = (row.get(0)?, row.get(6)?);
        let epoch: [u8; 16] = row.get(3)?;
        let transition: Transition = match serde_json::from_str(&text) {
            Ok(transition) => transition,
            Err(e) => {
                // One event that was damaged must not hide all others.
                log::error!("event {id} cannot be read and is left out: {e}");
                return Ok(None);
            }
        };
        Ok(Some(Event {
            id: unsigned(id),
            origin: Origin { uid: row.get(1)?, name: row.get(2)? },
            epoch: Uuid::from_bytes(epoch),
            sequence: unsigned(row.get(4)?),
            received_at: Timestamp::from_millis(row.get(5)?),
            transition,
        }))
    })?;
    rows.filter_map(Result::transpose).collect()
}
