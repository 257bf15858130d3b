//! Files with secrets: written whole or not at all, for the owner only.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::PkiError;

/// No file of ours is larger.
const MAX_BYTES: u64 = 256 * 1024;

fn io(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PkiError {
    let path = path.to_owned();
    move |source| PkiError::Io { verb, path, source }
}

/// Makes a folder (and those above it) that only its owner may enter.
pub fn private_folder(path: &Path) -> Result<(), PkiError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io("create", path))
}

/// Writes `path` with `mode` so that a crash leaves the old content or the new, never a part; replaces what is there.
///
/// The bytes are in a new file of the same folder (made with `O_EXCL`, so nobody else's is followed), fsynced, before it
/// takes the name; then the folder is fsynced.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> Result<(), PkiError> {
    let beside = PathBuf::from(format!("{}.new-{:08x}", path.display(), rand::random::<u32>()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if let Err(e) = written {
        // Best effort: the error that counts is the first.
        let _ = fs::remove_file(&beside);
        return Err(io("write", path)(e));
    }
    sync_folder(path)
}

/// Makes a rename or removal in the folder of `path` durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), PkiError> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|f| f.sync_all()).map_err(io("write", folder))
}

/// Reads a file with a private key; refuses one that others may read. `None` when it is not there.
pub fn read_secret(path: &Path) -> Result<Option<String>, PkiError> {
    let Some((file, mode)) = open(path)? else { return Ok(None) };
    if mode & OTHERS != 0 {
        return Err(PkiError::Permissions { path: path.to_owned(), mode });
    }
    whole(file, path).map(Some)
}

/// Reads a file with a secret and says what to do when others may read it; `None` when it is not there.
///
/// For a secret that can be replaced, unlike a private key: what it opens stays open whether the file is read or not.
pub fn read_own(path: &Path) -> Result<Option<String>, PkiError> {
    let Some((file, mode)) = open(path)? else { return Ok(None) };
    if mode & OTHERS != 0 {
        let path = path.display();
        log::warn!(
            "{path} has mode {mode:04o}: every user it lets read it owns the fleet. Run `chmod 600 {path}`. If somebody \
             may have read it, stop the coordinator, remove the file and start again: a new token is written there and \
             the old one opens nothing"
        );
    }
    whole(file, path).map(Some)
}

/// The bits of a mode that let others than the owner in.
const OTHERS: u32 = 0o077;

/// The file and its mode; `None` when it is not there.
fn open(path: &Path) -> Result<Option<(File, u32)>, PkiError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io("read", path)(e)),
    };
    let mode = file.metadata().map_err(io("read", path))?.mode() & 0o7777;
    Ok(Some((file, mode)))
}

fn whole(file: File, path: &Path) -> Result<String, PkiError> {
    let mut content = String::new();
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut content).map_err(io("read", path))?;
    if read as u64 > MAX_BYTES {
        let problem = format!("has more than {MAX_BYTES} bytes");
        return Err(PkiError::Damaged { path: path.to_owned(), problem });
    }
    Ok(content)
}
