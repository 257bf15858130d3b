//! A copy while the store runs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

/// A backup that was not made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is something already.
    #[error("{} exists; give a path where nothing is, a backup replaces nothing", path.display())]
    Exists {
        /// The path asked for.
        path: PathBuf,
    },
    /// The copy cannot be written.
    #[error("cannot write {}", path.display())]
    Io {
        /// The path asked for.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The database cannot be read, or the copy not written.
    #[error("cannot copy {} to {}", from.display(), to.display())]
    Database {
        /// The database.
        from: PathBuf,
        /// The path asked for.
        to: PathBuf,
        /// SQLite's words.
        source: rusqlite::Error,
    },
    /// The task ended early.
    #[error("the backup was interrupted: {detail}")]
    Interrupted {
        /// Why.
        detail: String,
    },
}

/// Copies the database `from` to `to` (0600), where nothing may be yet. One read transaction: the copy is the state at
/// one instant, and writers go on. Works from another process too. The file takes its name when it is whole and on disk.
///
/// It holds no secret but hashes; the CA's folder is not in it and must be copied beside it.
pub fn backup(from: &Path, to: &Path) -> Result<(), BackupError> {
    if to.symlink_metadata().is_ok() {
        return Err(BackupError::Exists { path: to.to_owned() });
    }
    let partial = PathBuf::from(format!("{}.partial-{:08x}", to.display(), rand::random::<u32>()));
    let copied = copy(from, to, &partial);
    if copied.is_err() {
        // Best effort: the error that counts is the first.
        let _ = fs::remove_file(&partial);
    }
    copied
}

fn copy(from: &Path, to: &Path, partial: &Path) -> Result<(), BackupError> {
    let io = |source| BackupError::Io { path: to.to_owned(), source };
    let database = |source| BackupError::Database { from: from.to_owned(), to: to.to_owned(), source };
    // An empty file of ours first: SQLite takes it, and the copy is never readable by others.
    let file = File::create_new(partial).map_err(io)?;
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(io)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(from, flags).map_err(database)?;
    db.busy_timeout(Duration::from_secs(5)).map_err(database)?;
    db.execute("VACUUM INTO ?1", [partial.to_string_lossy()]).map_err(database)?;
    file.sync_all().map_err(io)?;
    fs::rename(partial, to).map_err(io)?;
    let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|f| f.sync_all()).map_err(io)
}
