//! The state folder behind a small trait, so that faults can be put under what must survive them.
//!
//! Two facts shape it. What is not synced may be lost, torn or reordered by a crash. And after a sync has failed, the
//! kernel may have dropped the data and a later sync may still succeed: a file whose sync failed is never trusted
//! again, but written anew under another name.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A folder of files; names have no slash.
pub trait Disk: Send + Sync {
    /// The whole file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// The file, emptied or made, readable by the owner alone.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// The file as it is, to append to.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;
    /// Renames, replacing what is there; durable after [`Disk::sync_folder`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes names durable.
    fn sync_folder(&self) -> io::Result<()>;
    /// Whether calls may take long, so that they belong on a thread that may block.
    fn blocks(&self) -> bool {
        true
    }
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send {
    /// Appends all of `bytes`, or fails having appended any part of them.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes the content durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// Replaces a file so that after a crash either the old or the new one is there, whole.
pub fn replace(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let partial = format!("{name}.new");
    let mut file = disk.create(&partial)?;
    file.append(bytes)?;
    file.sync()?;
    drop(file);
    disk.rename(&partial, name)?;
    disk.sync_folder()
}

/// Moves a file that cannot be used out of the way, for people to look at; gives its new name.
pub fn set_aside(disk: &dyn Disk, name: &str, at_ms: i64) -> io::Result<String> {
    let aside = format!("{}.corrupt-{at_ms}", name.strip_suffix(".log").unwrap_or(name));
    disk.rename(name, &aside)?;
    disk.sync_folder()?;
    Ok(aside)
}

/// A folder of the operating system.
#[derive(Clone, Debug)]
pub struct StdDisk {
    folder: PathBuf,
}

impl StdDisk {
    /// Uses `folder`, made with mode 0700 when it is not there. That it is there says nothing of whether it can be
    /// written: what is in it can be used even so.
    pub fn open(folder: &Path) -> io::Result<Self> {
        if !folder.is_dir() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        fs::read_dir(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }
}

impl Disk for StdDisk {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.folder.join(name))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let path = self.folder.join(name);
        // A leftover of another mode would keep it.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        Ok(Box::new(StdFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(StdFile(OpenOptions::new().append(true).open(self.folder.join(name))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.folder.join(from), self.folder.join(to))
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }
}

struct StdFile(File);

impl DiskFile for StdFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()?;
        // What is synced into a file without a name is gone with the process.
        if self.0.metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its file was deleted while in use"));
        }
        Ok(())
    }
}

/// A folder in memory: for simulated nodes, and for a daemon whose state folder cannot be used.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    files: Arc<Mutex<BTreeMap<String, Content>>>,
}

type Content = Arc<Mutex<Vec<u8>>>;

impl MemoryDisk {
    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Content>) -> T) -> T {
        work(&mut self.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

impl Disk for MemoryDisk {
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let content = self.with(|files| files.get(name).cloned()).ok_or(io::ErrorKind::NotFound)?;
        Ok(content.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let content = Content::default();
        self.with(|files| files.insert(name.to_owned(), content.clone()));
        Ok(Box::new(MemoryFile(content)))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let content = self.with(|files| files.get(name).cloned()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(MemoryFile(content)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.with(|files| {
            let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
            files.insert(to.to_owned(), content);
            Ok(())
        })
    }

    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }

    fn blocks(&self) -> bool {
        false
    }
}

struct MemoryFile(Content);

impl DiskFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn behaves(disk: &dyn Disk) {
        assert_eq!(disk.read("a").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(disk.open("a").err().unwrap().kind(), io::ErrorKind::NotFound);
        replace(disk, "a", b"one").unwrap();
        disk.open("a").unwrap().append(b" two").unwrap();
        assert_eq!(disk.read("a").unwrap(), b"one two");
        let aside = set_aside(disk, "a", 7).unwrap();
        assert_eq!((aside.as_str(), disk.read(&aside).unwrap()), ("a.corrupt-7", b"one two".to_vec()));
        assert!(disk.read("a").is_err());
    }

    #[test]
    fn both_disks_behave_alike() {
        let folder = tempfile::tempdir().unwrap();
        behaves(&StdDisk::open(&folder.path().join("state")).unwrap());
        behaves(&MemoryDisk::default());
    }

    #[test]
    fn a_file_deleted_under_us_keeps_no_promise() {
        let folder = tempfile::tempdir().unwrap();
        let disk = StdDisk::open(folder.path()).unwrap();
        replace(&disk, "a", b"one").unwrap();
        let mut file = disk.open("a").unwrap();
        file.sync().unwrap();
        fs::remove_file(folder.path().join("a")).unwrap();
        file.append(b" two").unwrap();
        assert_eq!(file.sync().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn files_are_the_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let disk = StdDisk::open(&state).unwrap();
        replace(&disk, "identity.key", b"key").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join("identity.key"))), (0o700, 0o600));
    }
}
