//! What lies in a folder, without opening any of it: names, sizes, times, owners, and the room that is left.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, fstatvfs, statat};
use serde::{Deserialize, Serialize};

use super::file;

/// Most entries that are described; a folder of snapshots has a few dozen.
const MAX_ENTRIES: usize = 2000;

/// A folder as it was at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Folder {
    /// What lies in it, by name; names that are no text are left out.
    pub entries: Vec<Entry>,
    /// Bytes of its file system that a user without privileges may still fill; absent when they could not be read.
    pub free_bytes: Option<u64>,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// A regular file; anything else is a folder, a link or something special.
    pub file: bool,
    /// Size in bytes.
    pub size: u64,
    /// Last written, in milliseconds since 1970.
    pub modified_ms: i64,
    /// Permission bits.
    #[serde(default)]
    pub mode: u32,
    /// Owner.
    #[serde(default)]
    pub uid: u32,
    /// Group.
    #[serde(default)]
    pub gid: u32,
}

impl Folder {
    /// The regular file of this name.
    pub fn file(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.file && entry.name == name)
    }
}

/// Describes the open folder. Links are described and not followed.
pub(crate) fn describe(folder: OwnedFd) -> io::Result<Folder> {
    let free = fstatvfs(&folder).ok().map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let mut entries = Vec::new();
    for entry in Dir::read_from(folder.as_fd())? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") {
            continue;
        }
        if entries.len() >= MAX_ENTRIES {
            return Err(file::invalid(format!("more than {MAX_ENTRIES} entries in the folder")));
        }
        // An entry that went meanwhile is no entry.
        let Ok(stat) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        entries.push(Entry {
            name: name.to_owned(),
            file: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified_ms: milliseconds(stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or_default()),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Folder { entries, free_bytes: free })
}

fn milliseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;

    use super::*;

    fn described(path: &std::path::Path) -> io::Result<Folder> {
        describe(File::open(path).unwrap().into())
    }

    #[test]
    fn sizes_and_times_of_files_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("snapshot"), "12345").unwrap();
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        symlink("/etc/passwd", dir.path().join("link")).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_250);
        File::open(dir.path().join("snapshot")).unwrap().set_modified(time).unwrap();
        let folder = described(dir.path()).unwrap();
        let names: Vec<(&str, bool)> = folder.entries.iter().map(|e| (e.name.as_str(), e.file)).collect();
        assert_eq!(names, [("folder", false), ("link", false), ("snapshot", true)]);
        let file = folder.file("snapshot").unwrap();
        assert_eq!((file.size, file.modified_ms), (5, 1_700_000_000_250));
        assert!(folder.file("link").is_none() && folder.free_bytes.is_some());
    }

    #[test]
    fn a_folder_without_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..=MAX_ENTRIES {
            File::create(dir.path().join(i.to_string())).unwrap();
        }
        assert!(described(dir.path()).unwrap_err().to_string().contains("more than"));
    }

    #[test]
    fn a_file_is_no_folder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(described(file.path()).is_err());
    }
}
