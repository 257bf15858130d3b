//! Opening: folder, lock, integrity, migrations; and what to do when the file is damaged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use outrider_protocol::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::broadcast;

use super::reader::Reader;
use super::salvage::{Salvaged, salvage};
use super::schema::{self, SCHEMA_VERSION};
use super::writer::Writer;
use super::{FILE_NAME, SqliteOptions, SqliteStore};
use crate::store::feed::Feed;

/// How long a reader waits for a lock; the writer is alone.
const BUSY: Duration = Duration::from_secs(5);

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The state folder cannot be made or written.
    #[error("cannot {verb} {}; the coordinator's user must own the state folder and have room on its disk", path.display())]
    Folder {
        /// `create`, `write`, `set aside`.
        verb: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another coordinator has the folder.
    #[error("another coordinator{} runs on {}; stop it, or give this one another --state-dir", holder(.pid), path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Its process id, if it could be read.
        pid: Option<u32>,
    },
    /// The file was written by a later version.
    #[error(
        "{} has schema {found}, this version knows up to {SCHEMA_VERSION}; run the later version again, or restore a \
         backup made before the upgrade", path.display()
    )]
    NewerSchema {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// No space left.
    #[error("no space left for {}; free some and start again, nothing was lost", path.display())]
    DiskFull {
        /// The database.
        path: PathBuf,
    },
    /// SQLite failed otherwise.
    #[error("cannot open {}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// Its words.
        source: rusqlite::Error,
    },
}

fn holder(pid: &Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// A damaged file that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Where it lies now.
    pub path: PathBuf,
    /// What was wrong with it.
    pub problem: String,
    /// Documents that could still be read and were carried over.
    pub documents: u64,
    /// Events that could still be read and were carried over.
    pub events: u64,
}

/// An open store, and what had to be done to open it.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: SqliteStore,
    /// Set when the file found was damaged.
    pub set_aside: Option<SetAside>,
}

pub(super) fn open(folder: &Path, options: &SqliteOptions) -> Result<Opened, OpenError> {
    let io = |verb, path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Folder { verb, path, source }
    };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io("create", folder))?;
    let lock = lock(folder)?;
    let path = folder.join(FILE_NAME);
    // Made by us, so that it and what SQLite puts beside it are for the owner only.
    OpenOptions::new().append(true).create(true).mode(0o600).open(&path).map_err(io("write", &path))?;

    let (mut db, set_aside) = match try_open(&path, options) {
        Ok(db) => (db, None),
        Err(Trouble::Damaged(problem)) => {
            let aside = set_aside(&path).map_err(io("set aside", &path))?;
            OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&path)
                .map_err(io("write", &path))?;
            let mut db = match try_open(&path, options) {
                Ok(db) => db,
                Err(Trouble::Damaged(problem)) => {
                    let source = io::Error::new(io::ErrorKind::InvalidData, problem);
                    return Err(OpenError::Folder { verb: "write", path, source });
                }
                Err(Trouble::Other(e)) => return Err(e),
            };
            let Salvaged { documents, events } = salvage(&aside, &mut db).unwrap_or_else(|e| {
                log::error!("nothing could be carried over from {}: {e}", aside.display());
                Salvaged::default()
            });
            log::error!(
                "{} was damaged ({problem}); it is set aside as {}; {documents} documents and {events} events were \
                 carried over, the rest must be restored from a backup or will be reported anew",
                path.display(),
                aside.display()
            );
            (db, Some(SetAside { path: aside, problem, documents, events }))
        }
        Err(Trouble::Other(e)) => return Err(e),
    };
    let failed = |source| database(&path, source);
    schema::migrate(&mut db).map_err(failed)?;
    let revision = super::reader::revision(&db).map_err(failed)?;
    let feed = Feed::new(revision);
    let events = broadcast::Sender::new(crate::store::SUBSCRIBER_BUFFER);
    let reader = |name: &str| {
        let db = connect(&path, options).map_err(failed)?;
        db.pragma_update(None, "query_only", true).map_err(failed)?;
        Reader::start(name, db, &path).map_err(io("start a reader of", &path))
    };
    let (documents, history) = (reader("store-read")?, reader("store-history")?);
    let writer = Writer::start(db, lock, path.clone(), revision, feed.clone(), events.clone())
        .map_err(io("start the writer of", &path))?;
    Ok(Opened { store: SqliteStore { path, writer, documents, history, feed, events }, set_aside })
}

enum Trouble {
    Damaged(String),
    Other(OpenError),
}

/// A damaged file is told from every other trouble: only it may be set aside.
fn trouble(path: &Path, error: rusqlite::Error) -> Trouble {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Trouble::Damaged(error.to_string()),
        _ => Trouble::Other(database(path, error)),
    }
}

fn database(path: &Path, source: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => OpenError::DiskFull { path },
        _ => OpenError::Database { path, source },
    }
}

fn connect(path: &Path, options: &SqliteOptions) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = match &options.vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs.as_str())?,
        None => Connection::open_with_flags(path, flags)?,
    };
    db.busy_timeout(BUSY)?;
    db.pragma_update(None, "cache_size", -4096)?;
    db.pragma_update(None, "temp_store", "memory")?;
    db.set_prepared_statement_cache_capacity(32);
    Ok(db)
}

/// Connects, checks, and leaves the database ready to be migrated.
fn try_open(path: &Path, options: &SqliteOptions) -> Result<Connection, Trouble> {
    let trouble = |e| trouble(path, e);
    let db = connect(path, options).map_err(trouble)?;
    let found = schema::version(&db).map_err(trouble)?;
    if found > SCHEMA_VERSION {
        return Err(Trouble::Other(OpenError::NewerSchema { path: path.to_owned(), found }));
    }
    let verdict: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(trouble)?;
    if verdict != "ok" {
        return Err(Trouble::Damaged(verdict));
    }
    // The answer is the mode in force; a VFS without shared memory keeps another, which is as safe and slower.
    let _: String = db.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).map_err(trouble)?;
    db.pragma_update(None, "synchronous", "FULL").map_err(trouble)?;
    db.pragma_update(None, "foreign_keys", false).map_err(trouble)?;
    db.pragma_update(None, "journal_size_limit", 16 * 1024 * 1024).map_err(trouble)?;
    Ok(db)
}

/// Moves the file, and what SQLite keeps beside it, to a name with the time; the name of the file itself.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let time = Timestamp::from(SystemTime::now()).to_string();
    let time: String = time.chars().filter(char::is_ascii_alphanumeric).collect();
    let aside = PathBuf::from(format!("{}.corrupt-{time}", path.display()));
    for suffix in ["-wal", "-shm", ""] {
        let from = PathBuf::from(format!("{}{suffix}", path.display()));
        match fs::rename(&from, format!("{}{suffix}", aside.display())) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(aside)
}

/// The lock on the folder, held as long as the writer lives.
pub(super) type FolderLock = Flock<File>;

fn lock(folder: &Path) -> Result<FolderLock, OpenError> {
    let path = folder.join("coordinator.lock");
    let failed = |source: io::Error| OpenError::Folder { verb: "write", path: path.clone(), source };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(mut file) => {
            // Only for the message of the next one; the lock itself is what counts.
            let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(file)
        }
        Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            Err(OpenError::InUse { path: folder.to_owned(), pid: pid.trim().parse().ok() })
        }
        Err((_, errno)) => Err(failed(errno.into())),
    }
}
