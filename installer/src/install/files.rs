//! Files that are replaced as a whole, and stay so through a crash.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use outrider_protocol::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A regular file as it lies there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lying {
    /// SHA-256 of its bytes, hex.
    pub(crate) sha256: String,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Bytes.
    pub(crate) size: u64,
}

/// What lies at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum There {
    /// Nothing.
    Nothing,
    /// A regular file.
    File(Lying),
    /// A link, a folder, a device.
    Other,
    /// It cannot be read: why.
    Unreadable(String),
}

impl There {
    /// The file that lies there.
    pub(crate) fn file(&self) -> Option<&Lying> {
        if let There::File(file) = self { Some(file) } else { None }
    }
}

/// Looks at `path`, and through no link.
pub(crate) fn look_at(path: &Path) -> There {
    let lying = || -> io::Result<There> {
        let metadata = fs::symlink_metadata(path)?;
        if !metadata.is_file() {
            return Ok(There::Other);
        }
        let sha256 = sum(File::open(path)?)?;
        Ok(There::File(Lying {
            sha256,
            mode: metadata.permissions().mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            size: metadata.len(),
        }))
    };
    match lying() {
        Ok(there) => there,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            There::Nothing
        }
        Err(error) => There::Unreadable(error.to_string()),
    }
}

/// SHA-256 of all that comes, hex.
pub(crate) fn sum(mut from: impl Read) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(hex(&digest.finalize())),
            n => digest.update(&buffer[..n]),
        }
    }
}

/// How a file is to lie there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put<'a> {
    /// Permission bits.
    pub(crate) mode: u32,
    /// Owner and group; `None` leaves them to the system.
    pub(crate) owner: Option<(u32, u32)>,
    /// What its bytes must sum up to.
    pub(crate) sha256: &'a str,
}

/// The file that `path` is written as until it is whole. Its name is always the same, so that one left by a crash is found.
/// It lies in the folder of `path`: a file moved from elsewhere would keep the label that SELinux gave it there.
pub(crate) fn draft_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".outrider-install");
    path.with_file_name(name)
}

/// Replaces `path` by what `from` yields; a crash leaves the old file or the new one. Bytes that are not those that were
/// planned for replace nothing.
pub(crate) fn put(path: &Path, mut from: impl Read, how: Put<'_>) -> io::Result<()> {
    let draft = draft_of(path);
    let mut write = || {
        remove(&draft)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let n = from.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            digest.update(&buffer[..n]);
            file.write_all(&buffer[..n])?;
        }
        if hex(&digest.finalize()) != how.sha256 {
            let what = "its source is not what it was a moment ago; run the command again";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        if let Some((uid, gid)) = how.owner {
            fchown(&file, Some(uid), Some(gid))?;
        }
        file.set_permissions(fs::Permissions::from_mode(how.mode))?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        sync_folder_of(path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// Gives a regular file, and nothing that a link leads to, this owner and mode.
pub(crate) fn open_to(path: &Path, (uid, gid): (u32, u32), mode: u32) -> io::Result<()> {
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(path)?;
    fchown(&file, Some(uid), Some(gid))?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.sync_all()
}

/// Removes a file; one that is not there is gone already.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(())
        }
        done => done,
    }
}

/// Makes the names in the folder of `path` durable.
pub(crate) fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
