//! What can still be read of a damaged database is carried over: a registry lost is a fleet that must enrol again.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row, TransactionBehavior, params};

use super::schema;

/// How much was carried over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Salvaged {
    pub(super) documents: u64,
    pub(super) events: u64,
}

/// Copies the readable rows of `damaged` into the new, empty database `db`.
///
/// Tables are read in the order of their rows, from the front up to the first damaged page and from the back down to the
/// last; indexes are not used, for they may be what is damaged.
pub(super) fn salvage(damaged: &Path, db: &mut Connection) -> rusqlite::Result<Salvaged> {
    schema::migrate(db)?;
    let old = Connection::open_with_flags(damaged, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut salvaged = Salvaged::default();
    {
        let mut document = tx.prepare("INSERT OR IGNORE INTO documents VALUES (?1, ?2, ?3)")?;
        let mut highest = 0;
        salvaged.documents = rows(&old, "key, value, revision", "documents", |row| {
            let (key, value, revision): (String, Vec<u8>, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            highest = highest.max(revision);
            document.execute(params![key, value, revision])
        });
        tx.execute("UPDATE counters SET value = max(value, ?1)", [highest])?;

        let mut stream = tx.prepare("INSERT OR IGNORE INTO streams VALUES (?1, ?2, ?3, ?4, ?5)")?;
        rows(&old, "id, uid, epoch, highest, pruned", "streams", |row| {
            let (id, uid, epoch): (i64, String, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (highest, pruned): (i64, i64) = (row.get(3)?, row.get(4)?);
            stream.execute(params![id, uid, epoch, highest, pruned])
        });
        let mut origin = tx.prepare("INSERT OR IGNORE INTO origins VALUES (?1, ?2, ?3)")?;
        rows(&old, "id, uid, name", "origins", |row| {
            let (id, uid, name): (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            origin.execute(params![id, uid, name])
        });
        // An event whose stream or origin is gone says nothing any more.
        let mut event = tx.prepare(
            "INSERT OR IGNORE INTO events SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
             WHERE EXISTS (SELECT 1 FROM origins WHERE id = ?2) AND EXISTS (SELECT 1 FROM streams WHERE id = ?3)",
        )?;
        let columns = "id, origin, stream, sequence, hash, received_at, transition";
        salvaged.events = rows(&old, columns, "events", |row| {
            let (id, origin, stream): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (sequence, hash): (i64, String) = (row.get(3)?, row.get(4)?);
            let (received_at, transition): (i64, String) = (row.get(5)?, row.get(6)?);
            event.execute(params![id, origin, stream, sequence, hash, received_at, transition])
        });
    }
    tx.commit()?;
    Ok(salvaged)
}

/// Feeds each readable row of a table to `take`, once; how many it took. A row that does not fit is left out.
fn rows(
    old: &Connection,
    columns: &str,
    table: &str,
    mut take: impl FnMut(&Row<'_>) -> rusqlite::Result<usize>,
) -> u64 {
    let mut taken = 0;
    for direction in ["ASC", "DESC"] {
        let sql = format!("SELECT {columns} FROM {table} NOT INDEXED ORDER BY rowid {direction}");
        let whole = old.prepare(&sql).and_then(|mut statement| {
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                taken += take(row).unwrap_or(0) as u64;
            }
            Ok(())
        });
        if whole.is_ok() {
            break;
        }
    }
    taken
}
