//! What a disk holds after the power went: replays the log of `faultfs/shim.c`.
//!
//! A change is *certain* once its file was synced after it; a name (create, rename, remove) once its folder was. What
//! is not certain may be there, gone, or torn, each change by itself, as a seed decides:
//!
//! * names are kept in order, as a journal keeps them: some first part of those not synced survives;
//! * a write of a file may survive without an earlier one of the same file; what it leaves open is zeros;
//! * a torn write keeps some of its 512-byte sectors, and the very last one ends at any byte;
//! * after an fsync that failed, the changes before it stay uncertain for ever, whatever a later fsync says: the kernel
//!   has marked their pages clean.
//!
//! This is harsher than any one file system, and no harsher than what POSIX promises.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const SECTOR: usize = 512;

/// One record of the shim's log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Record {
    Create { path: PathBuf, inode: u64 },
    Write { inode: u64, offset: u64, data: Vec<u8> },
    Truncate { inode: u64, length: u64 },
    Sync { path: PathBuf, inode: u64 },
    Rename { from: PathBuf, to: PathBuf },
    Unlink { path: PathBuf },
    SyncFailed { inode: u64 },
    MakeFolder { path: PathBuf },
    RemoveFolder { path: PathBuf },
    Link { from: PathBuf, to: PathBuf },
}

/// Splits the shim's log into records; a record the process was killed in the middle of is left out.
fn parse(log: &[u8]) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut rest = log;
    while rest.len() >= 32 {
        let word = |i: usize| u32::from_le_bytes([rest[i], rest[i + 1], rest[i + 2], rest[i + 3]]) as usize;
        let long = |i: usize| (word(i) as u64) | ((word(i + 4) as u64) << 32);
        let (op, first, second, length) = (word(0), word(4), word(8), word(12));
        let (inode, offset) = (long(16), long(24));
        let Some(body) = rest.get(32..32 + first + second + length) else { break };
        let text = |bytes: &[u8]| PathBuf::from(String::from_utf8_lossy(bytes).into_owned());
        let (path, to) = (text(&body[..first]), text(&body[first..first + second]));
        let data = body[first + second..].to_vec();
        records.push(match op {
            1 => Record::Create { path, inode },
            2 => Record::Write { inode, offset, data },
            3 => Record::Truncate { inode, length: offset },
            4 => Record::Sync { path, inode },
            5 => Record::Rename { from: path, to },
            6 => Record::Unlink { path },
            7 => Record::SyncFailed { inode },
            8 => Record::MakeFolder { path },
            9 => Record::RemoveFolder { path },
            10 => Record::Link { from: path, to },
            other => return Err(io::Error::other(format!("record {} has operation {other}", records.len()))),
        });
        rest = &rest[32 + first + second + length..];
    }
    Ok(records)
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    Truncate(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Not synced yet.
    Pending,
    /// Synced: certain.
    Certain,
    /// Caught by a failed sync: uncertain for ever.
    Lost,
}

/// Content of one file: what is certain, and the changes on top of it in order.
#[derive(Clone, Debug, Default)]
struct Content {
    base: Vec<u8>,
    changes: Vec<(Change, Fate)>,
}

impl Content {
    fn push(&mut self, change: Change) {
        self.changes.push((change, Fate::Pending));
    }

    fn sync(&mut self) {
        for (_, fate) in &mut self.changes {
            if *fate == Fate::Pending {
                *fate = Fate::Certain;
            }
        }
        if self.changes.iter().all(|(_, fate)| *fate == Fate::Certain) {
            for (change, _) in std::mem::take(&mut self.changes) {
                apply(&mut self.base, &change);
            }
        }
    }

    fn sync_failed(&mut self) {
        for (_, fate) in &mut self.changes {
            if *fate == Fate::Pending {
                *fate = Fate::Lost;
            }
        }
    }

    /// What the disk holds after the cut; `last` when the file saw the very last write before it.
    fn after_cut(&self, rng: &mut StdRng, last: bool) -> Vec<u8> {
        let mut out = self.base.clone();
        let count = self.changes.len();
        for (i, (change, fate)) in self.changes.iter().enumerate() {
            match (fate, change) {
                (Fate::Certain, change) => apply(&mut out, change),
                (_, Change::Truncate(_)) if rng.random_bool(0.5) => apply(&mut out, change),
                (_, Change::Truncate(_)) => {}
                (_, Change::Write { offset, data }) => match rng.random_range(0..10) {
                    0..=4 => apply(&mut out, change),
                    5..=7 => {}
                    _ if last && i + 1 == count => {
                        let end = rng.random_range(0..=data.len());
                        apply(&mut out, &Change::Write { offset: *offset, data: data[..end].to_vec() });
                    }
                    _ => tear(&mut out, *offset, data, rng),
                },
            }
        }
        out
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Truncate(length) => content.resize(*length as usize, 0),
        Change::Write { offset, data } => {
            let (start, end) = (*offset as usize, *offset as usize + data.len());
            if content.len() < end {
                content.resize(end, 0);
            }
            content[start..end].copy_from_slice(data);
        }
    }
}

/// Applies some sectors of a write and leaves out others.
fn tear(content: &mut Vec<u8>, offset: u64, data: &[u8], rng: &mut StdRng) {
    let mut at = 0;
    while at < data.len() {
        let place = offset as usize + at;
        let end = (at + SECTOR - place % SECTOR).min(data.len());
        if rng.random_bool(0.5) {
            apply(content, &Change::Write { offset: place as u64, data: data[at..end].to_vec() });
        }
        at = end;
    }
}

type FileId = usize;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    File(FileId),
    Folder,
}

/// The names on a disk.
type Names = BTreeMap<PathBuf, Entry>;

#[derive(Clone, Debug)]
enum NameChange {
    Put(PathBuf, Entry),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Put(path, entry) => {
                names.insert(path.clone(), entry.clone());
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to) => {
                let moved: Vec<PathBuf> = names.keys().filter(|p| p.starts_with(from)).cloned().collect();
                for path in moved {
                    if let (Some(entry), Ok(rest)) = (names.remove(&path), path.strip_prefix(from)) {
                        let target = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                        names.insert(target, entry);
                    }
                }
            }
        }
    }

    fn touches(&self, folder: &Path) -> bool {
        let within = |path: &Path| path.parent() == Some(folder);
        match self {
            NameChange::Put(path, _) | NameChange::Remove(path) => within(path),
            NameChange::Rename(from, to) => within(from) || within(to),
        }
    }
}

/// A disk as it was before a program ran, and all that the program did to it.
#[derive(Clone, Debug)]
pub struct Disk {
    root: PathBuf,
    files: Vec<Content>,
    /// As the running program sees them.
    now: Names,
    /// As the disk has them for certain.
    certain: Names,
    pending: Vec<NameChange>,
    inodes: HashMap<u64, FileId>,
    last_write: Option<FileId>,
}

impl Disk {
    /// The folder `root` as it lies there now, all of it certain. Taken before the program starts.
    pub fn scan(root: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt;
        let mut disk = Self {
            root: root.to_owned(),
            files: Vec::new(),
            now: Names::new(),
            certain: Names::new(),
            pending: Vec::new(),
            inodes: HashMap::new(),
            last_write: None,
        };
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                let meta = fs::symlink_metadata(&path)?;
                if meta.is_dir() {
                    disk.now.insert(path.clone(), Entry::Folder);
                    folders.push(path);
                } else if meta.is_file() {
                    disk.files.push(Content { base: fs::read(&path)?, changes: Vec::new() });
                    disk.inodes.insert(meta.ino(), disk.files.len() - 1);
                    disk.now.insert(path, Entry::File(disk.files.len() - 1));
                }
            }
        }
        disk.certain = disk.now.clone();
        Ok(disk)
    }

    /// Plays the shim's log; returns the number of changes.
    pub fn replay(&mut self, log: &[u8]) -> io::Result<usize> {
        let records = parse(log)?;
        for record in &records {
            self.play(record)?;
        }
        Ok(records.len())
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    fn file(&mut self, inode: u64) -> io::Result<(FileId, &mut Content)> {
        let id = self.inodes.get(&inode).copied();
        let id = id.ok_or_else(|| io::Error::other(format!("inode {inode} was never seen")))?;
        Ok((id, &mut self.files[id]))
    }

    fn play(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Create { path, inode } => {
                self.files.push(Content::default());
                let id = self.files.len() - 1;
                self.inodes.insert(*inode, id);
                self.change_names(NameChange::Put(path.clone(), Entry::File(id)));
            }
            Record::Write { inode, offset, data } => {
                let (id, content) = self.file(*inode)?;
                content.push(Change::Write { offset: *offset, data: data.clone() });
                self.last_write = Some(id);
            }
            Record::Truncate { inode, length } => self.file(*inode)?.1.push(Change::Truncate(*length)),
            Record::Sync { path, inode } => {
                if *path == self.root || self.now.get(path) == Some(&Entry::Folder) {
                    // The journal is written in order: what came before goes with it.
                    let last = self.pending.iter().rposition(|change| change.touches(path));
                    for change in self.pending.drain(..last.map_or(0, |i| i + 1)) {
                        change.apply(&mut self.certain);
                    }
                } else {
                    self.file(*inode)?.1.sync();
                }
            }
            Record::SyncFailed { inode } => {
                if let Ok((_, content)) = self.file(*inode) {
                    content.sync_failed();
                }
            }
            Record::Rename { from, to } => self.change_names(NameChange::Rename(from.clone(), to.clone())),
            Record::Unlink { path } | Record::RemoveFolder { path } => {
                self.change_names(NameChange::Remove(path.clone()));
            }
            Record::MakeFolder { path } => self.change_names(NameChange::Put(path.clone(), Entry::Folder)),
            Record::Link { from, to } => {
                if let Some(entry) = self.now.get(from).cloned() {
                    self.change_names(NameChange::Put(to.clone(), entry));
                }
            }
        }
        Ok(())
    }

    /// Writes into the (empty) folder `target` what the disk holds after the power went, as `seed` decides. Modes are
    /// those of the files the program left, or 0600 and 0700.
    pub fn cut(&self, seed: u64, target: &Path) -> io::Result<()> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut names = self.certain.clone();
        let kept = rng.random_range(0..=self.pending.len());
        for change in &self.pending[..kept] {
            change.apply(&mut names);
        }
        let mut written = HashSet::new();
        for (path, entry) in &names {
            let inside = path.strip_prefix(&self.root).map_err(io::Error::other)?;
            let place = target.join(inside);
            match entry {
                Entry::Folder => fs::create_dir_all(&place)?,
                Entry::File(id) => {
                    let last = self.last_write == Some(*id) && written.insert(*id);
                    fs::write(&place, self.files[*id].after_cut(&mut rng, last))?;
                }
            }
            let mode = fs::metadata(path).map(|m| m.permissions());
            fs::set_permissions(&place, mode.unwrap_or_else(|_| default_mode(entry)))?;
        }
        Ok(())
    }
}

fn default_mode(entry: &Entry) -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(if *entry == Entry::Folder { 0o700 } else { 0o600 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        let folder = tempfile::tempdir().expect("a folder");
        Disk::scan(folder.path()).expect("an empty disk")
    }

    fn outcomes(disk: &Disk, name: &str) -> HashSet<Option<Vec<u8>>> {
        let seen = (0..200).map(|seed| {
            let target = tempfile::tempdir().expect("a folder");
            disk.cut(seed, target.path()).expect("a cut");
            fs::read(target.path().join(name)).ok()
        });
        seen.collect()
    }

    fn play(disk: &mut Disk, records: impl IntoIterator<Item = Record>) {
        for record in records {
            disk.play(&record).expect("a known inode");
        }
    }

    #[test]
    fn nothing_is_certain_before_a_sync_of_file_and_folder() {
        let mut d = disk();
        let path = d.root.join("a");
        let root = d.root.clone();
        play(
            &mut d,
            [
                Record::Create { path: path.clone(), inode: 1 },
                Record::Write { inode: 1, offset: 0, data: b"hello".to_vec() },
            ],
        );
        let seen = outcomes(&d, "a");
        assert!(
            seen.contains(&None) && seen.contains(&Some(vec![])) && seen.contains(&Some(b"hello".to_vec()))
        );
        assert!(seen.contains(&Some(b"he".to_vec())), "the last write is torn at any byte: {seen:?}");

        play(&mut d, [Record::Sync { path, inode: 1 }]);
        assert_eq!(
            outcomes(&d, "a"),
            HashSet::from([None, Some(b"hello".to_vec())]),
            "the name is still uncertain"
        );
        play(&mut d, [Record::Sync { path: root, inode: 0 }]);
        assert_eq!(outcomes(&d, "a"), HashSet::from([Some(b"hello".to_vec())]));
    }

    #[test]
    fn a_failed_sync_makes_the_changes_before_it_uncertain_for_ever() {
        let mut d = disk();
        let (root, path) = (d.root.clone(), d.root.join("a"));
        play(
            &mut d,
            [
                Record::Create { path: path.clone(), inode: 1 },
                Record::Sync { path: root, inode: 0 },
                Record::Write { inode: 1, offset: 0, data: b"one".to_vec() },
                Record::SyncFailed { inode: 1 },
                Record::Write { inode: 1, offset: 3, data: b"two".to_vec() },
                Record::Sync { path, inode: 1 },
            ],
        );
        let seen = outcomes(&d, "a");
        assert!(seen.contains(&Some(b"\0\0\0two".to_vec())), "{seen:?}");
        assert!(
            seen.iter().flatten().all(|content| content.ends_with(b"two")),
            "the second was synced: {seen:?}"
        );
    }

    #[test]
    fn a_rename_is_certain_only_with_its_folder() {
        let mut d = disk();
        let (root, old, new) = (d.root.clone(), d.root.join("new.tmp"), d.root.join("kept"));
        play(
            &mut d,
            [
                Record::Create { path: old.clone(), inode: 1 },
                Record::Write { inode: 1, offset: 0, data: b"x".to_vec() },
                Record::Sync { path: old.clone(), inode: 1 },
                Record::Rename { from: old, to: new },
            ],
        );
        assert_eq!(outcomes(&d, "kept"), HashSet::from([None, Some(b"x".to_vec())]));
        play(&mut d, [Record::Sync { path: root, inode: 0 }]);
        assert_eq!(outcomes(&d, "kept"), HashSet::from([Some(b"x".to_vec())]));
    }
}
