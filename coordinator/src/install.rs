//! What new machines install: packages and archives of the agent, of this coordinator's own version.
//!
//! They lie in folders that only root writes, under the names that `packaging/build` gives them. A caller's word never
//! becomes a path: it is looked up among the names that were found. What a SHA-256 was said of is what is sent: both
//! come from one open file, and a sum is kept for as long as size, time and inode stay.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use outrider_protocol::{InstallFile, hex};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

/// The version that is served: this one.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Downloads at once; each holds a buffer and a connection.
const DOWNLOADS: usize = 64;

/// Endings of files with the word for their family.
const FAMILIES: [(&str, &str); 3] = [("tar.gz", "tar"), ("deb", "deb"), ("rpm", "rpm")];
/// Architectures as `uname -m` says them, and as Debian does.
const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "amd64"), ("aarch64", "arm64")];

/// Size, modification time (seconds, nanoseconds), device and inode: while these stay, the bytes do.
type Mark = (u64, i64, i64, u64, u64);

/// The folders, and what is known of their files.
#[derive(Debug)]
pub(crate) struct Catalogue {
    folders: Vec<PathBuf>,
    sums: Mutex<HashMap<Mark, String>>,
    places: Arc<Semaphore>,
}

/// A file that was opened, and what it is.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) about: InstallFile,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    name: String,
    file: String,
    family: &'static str,
    architecture: &'static str,
    release: u32,
}

impl Catalogue {
    /// A catalogue of `folders`; of two with the same file the first one has its way.
    pub(crate) fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders, sums: Mutex::default(), places: Arc::new(Semaphore::new(DOWNLOADS)) }
    }

    /// A place for a download, given back when dropped; `None` when all are taken.
    pub(crate) fn place(&self) -> Option<tokio::sync::OwnedSemaphorePermit> {
        self.places.clone().try_acquire_owned().ok()
    }

    /// Where packages may be put, for an error text.
    pub(crate) fn folders(&self) -> String {
        let folders: Vec<String> = self.folders.iter().map(|f| f.display().to_string()).collect();
        folders.join(" or ")
    }

    /// Every file that is served, and what is wrong with those that cannot be. Reads those whose sum is not known yet;
    /// blocks.
    pub(crate) fn list(&self) -> io::Result<(Vec<InstallFile>, Vec<String>)> {
        let (mut served, mut unreadable) = (Vec::new(), Vec::new());
        for (folder, found) in self.found()?.into_values() {
            match self.open_found(&folder, found) {
                Ok(opened) => served.push(opened.about),
                Err(error) => unreadable.push(error.to_string()),
            }
        }
        Ok((served, unreadable))
    }

    /// The file of this name, with or without version. Reads it when its sum is not known yet; blocks.
    pub(crate) fn open(&self, name: &str) -> io::Result<Option<Opened>> {
        let found = self.found()?.into_values().find(|(_, f)| f.name == name || f.file == name);
        found.map(|(folder, found)| self.open_found(&folder, found)).transpose()
    }

    /// By their names without version.
    fn found(&self) -> io::Result<BTreeMap<String, (PathBuf, Found)>> {
        let mut all: BTreeMap<String, (PathBuf, Found)> = BTreeMap::new();
        for folder in &self.folders {
            let entries = match std::fs::read_dir(folder) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", folder.display()))),
            };
            for entry in entries {
                let entry = entry?;
                let Some(found) = entry.file_name().to_str().and_then(parse) else { continue };
                let newer = |known: &(PathBuf, Found)| known.0 != *folder || known.1.release >= found.release;
                if !all.get(&found.name).is_some_and(newer) {
                    all.insert(found.name.clone(), (folder.clone(), found));
                }
            }
        }
        Ok(all)
    }

    fn open_found(&self, folder: &std::path::Path, found: Found) -> io::Result<Opened> {
        let path = folder.join(&found.file);
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        // Neither a link to elsewhere nor a pipe that would never end.
        let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC;
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(&path).map_err(named)?;
        let metadata = file.metadata().map_err(named)?;
        if !metadata.is_file() {
            return Err(named(io::Error::other("it is no file")));
        }
        let mark = (metadata.size(), metadata.mtime(), metadata.mtime_nsec(), metadata.dev(), metadata.ino());
        let known = self.sums.lock().unwrap_or_else(PoisonError::into_inner).get(&mark).cloned();
        let sha256 = match known {
            Some(sum) => sum,
            None => {
                let sum = sum_of(&mut file).map_err(named)?;
                let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
                // Files come and go over the years that a coordinator runs.
                if sums.len() >= 64 {
                    sums.clear();
                }
                sums.insert(mark, sum.clone());
                sum
            }
        };
        let about = InstallFile {
            name: found.name,
            file: found.file,
            family: found.family.to_owned(),
            architecture: found.architecture.to_owned(),
            size: metadata.size(),
            sha256,
        };
        Ok(Opened { file, about })
    }
}

/// SHA-256 of all its bytes, hex; at its beginning again afterwards.
fn sum_of(file: &mut File) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => digest.update(&buffer[..n]),
        }
    }
    file.rewind()?;
    Ok(hex(&digest.finalize()))
}

/// What a file of the agent's own version is, by its name as `packaging/build` gives it.
fn parse(file: &str) -> Option<Found> {
    let rest = file.strip_prefix("outrider-agent")?;
    let (ending, family) = FAMILIES.into_iter().find(|(ending, _)| rest.ends_with(&format!(".{ending}")))?;
    let rest = rest.strip_suffix(ending)?.strip_suffix('.')?;
    // outrider-agent-0.1.0-x86_64.tar.gz, outrider-agent_0.1.0-1_amd64.deb, outrider-agent-0.1.0-1.x86_64.rpm
    let (before, after, debian) = match family {
        "tar" => ('-', '-', false),
        "deb" => ('_', '_', true),
        _ => ('-', '.', false),
    };
    let rest = rest.strip_prefix(before)?.strip_prefix(VERSION)?;
    let (release, architecture) = rest.rsplit_once(after)?;
    let release = match (family, release) {
        ("tar", "") => 0,
        ("tar", _) => return None,
        (_, release) => release.strip_prefix('-')?.parse().ok()?,
    };
    let (architecture, _) = ARCHITECTURES
        .into_iter()
        .find(|(uname, name)| architecture == if debian { *name } else { *uname })?;
    Some(Found {
        name: format!("outrider-agent-{architecture}.{ending}"),
        file: file.to_owned(),
        family,
        architecture,
        release,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_the_packages_have_them() {
        let of = |file: &str| parse(file).map(|f| (f.name, f.release));
        let named = |name: &str, release| Some((format!("outrider-agent-{name}"), release));
        assert_eq!(of(&format!("outrider-agent-{VERSION}-x86_64.tar.gz")), named("x86_64.tar.gz", 0));
        assert_eq!(of(&format!("outrider-agent_{VERSION}-1_amd64.deb")), named("x86_64.deb", 1));
        assert_eq!(of(&format!("outrider-agent_{VERSION}-12_arm64.deb")), named("aarch64.deb", 12));
        assert_eq!(of(&format!("outrider-agent-{VERSION}-1.aarch64.rpm")), named("aarch64.rpm", 1));
        for other in [
            "outrider-agent-99.0.0-x86_64.tar.gz".to_owned(),
            format!("outrider-agent-{VERSION}-sparc.tar.gz"),
            format!("outrider-agent-{VERSION}0-x86_64.tar.gz"),
            format!("outrider-agent_{VERSION}-1_x86_64.deb"),
            format!("outrider-agent_{VERSION}-x_amd64.deb"),
            format!("outrider-coordinator_{VERSION}-1_amd64.deb"),
            "outrider-agent.deb".to_owned(),
            ".deb".to_owned(),
            "outrider-agent-ü.rpm".to_owned(),
        ] {
            assert_eq!(of(&other), None, "{other}");
        }
    }

    #[test]
    fn the_first_folder_and_the_newest_release_are_served_and_links_are_not() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let put = |folder: &std::path::Path, name: String, text: &str| {
            std::fs::write(folder.join(name), text).unwrap();
        };
        put(first.path(), format!("outrider-agent_{VERSION}-2_amd64.deb"), "two");
        put(first.path(), format!("outrider-agent_{VERSION}-10_amd64.deb"), "ten");
        put(second.path(), format!("outrider-agent_{VERSION}-11_amd64.deb"), "eleven");
        put(second.path(), format!("outrider-agent-{VERSION}-1.x86_64.rpm"), "rpm");
        put(second.path(), "outrider-agent-0.0.0-1.x86_64.rpm".to_owned(), "of another version");
        let missing = first.path().join("missing");
        let folders = vec![missing, first.path().to_owned(), second.path().to_owned()];
        let catalogue = Catalogue::new(folders);
        let (files, unreadable) = catalogue.list().unwrap();
        let files: Vec<String> = files.into_iter().map(|f| f.file).collect();
        assert!(unreadable.is_empty(), "{unreadable:?}");
        let deb = format!("outrider-agent_{VERSION}-10_amd64.deb");
        assert_eq!(files, [deb.clone(), format!("outrider-agent-{VERSION}-1.x86_64.rpm")]);

        let opened = catalogue.open("outrider-agent-x86_64.deb").unwrap().unwrap();
        assert_eq!((opened.about.size, &opened.about.file), (3, &deb));
        assert_eq!(opened.about.sha256, hex(&Sha256::digest("ten")));
        // Another text of the same length is another file.
        std::fs::remove_file(first.path().join(&deb)).unwrap();
        put(first.path(), deb.clone(), "TEN");
        assert_eq!(catalogue.open(&deb).unwrap().unwrap().about.sha256, hex(&Sha256::digest("TEN")));
        for name in ["", "..", "../ca/ca.key", "outrider-agent_0.0.0-1_amd64.deb"] {
            assert!(catalogue.open(name).unwrap().is_none(), "{name}");
        }
        let link = second.path().join(format!("outrider-agent-{VERSION}-x86_64.tar.gz"));
        std::os::unix::fs::symlink("/etc/shadow", link).unwrap();
        assert!(catalogue.open("outrider-agent-x86_64.tar.gz").is_err());
        // The others are served all the same.
        let (files, unreadable) = catalogue.list().unwrap();
        assert_eq!((files.len(), unreadable.len()), (2, 1));
        assert!(unreadable[0].contains("x86_64.tar.gz"), "{unreadable:?}");
    }
}
