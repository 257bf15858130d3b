//! The schema and its migrations: `user_version` counts them.

use rusqlite::{Connection, TransactionBehavior};

/// One entry a version; entry `n` leads from version `n` to `n + 1`. Never edited once released, only added to.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE documents (
        key TEXT PRIMARY KEY NOT NULL,
        value BLOB NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE counters (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    INSERT INTO counters VALUES ('revision', 0);

    -- Who an event is of. Name and uid are written once, not with every event.
    CREATE TABLE origins (
        id INTEGER PRIMARY KEY,
        uid TEXT NOT NULL,
        name TEXT NOT NULL,
        UNIQUE (uid, name)
    ) STRICT;
    CREATE INDEX origins_by_name ON origins (name);

    -- One spool epoch: the highest sequence ever stored, and the highest that was removed by age.
    CREATE TABLE streams (
        id INTEGER PRIMARY KEY,
        uid TEXT NOT NULL,
        epoch BLOB NOT NULL,
        highest INTEGER NOT NULL,
        pruned INTEGER NOT NULL,
        UNIQUE (uid, epoch)
    ) STRICT;

    -- AUTOINCREMENT: a position is never given twice, not even after the newest events were removed.
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        origin INTEGER NOT NULL REFERENCES origins (id),
        stream INTEGER NOT NULL REFERENCES streams (id),
        sequence INTEGER NOT NULL,
        hash TEXT NOT NULL,
        received_at INTEGER NOT NULL,
        transition TEXT NOT NULL,
        UNIQUE (stream, sequence)
    ) STRICT;
    CREATE INDEX events_by_origin ON events (origin, id);
    CREATE INDEX events_by_age ON events (received_at);
"];

/// The version this program writes.
pub const SCHEMA_VERSION: u32 = MIGRATIONS.len() as u32;

/// Version of an open database.
pub(super) fn version(db: &Connection) -> rusqlite::Result<u32> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Brings a database from its version to ours, each step whole or not at all.
pub(super) fn migrate(db: &mut Connection) -> rusqlite::Result<()> {
    let from = version(db)? as usize;
    for (n, step) in MIGRATIONS.iter().enumerate().skip(from) {
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(step)?;
        tx.pragma_update(None, "user_version", n as u32 + 1)?;
        tx.commit()?;
    }
    Ok(())
}
