//! From a name to a file that nobody but its owner could have put there.
//!
//! Two ways, for two kinds of paths. A *base* (a data folder, a configuration file) may be reached through symbolic
//! links, since operators do move `/var/lib/rancher/rke2` to another disk; every folder on the way must then belong to
//! the trusted owner and be writable by nobody else, so that only the owner can have made the link. What lies *below*
//! a base is opened without following any link.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat, openat2};

use crate::sense::file;

/// Most symbolic links on the way to a base, as the kernel has it.
const MAX_LINKS: usize = 40;

/// Whom we trust, and where `/` is.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    /// Root of the file system: `/`, or a prepared folder in tests.
    pub(crate) root: PathBuf,
    /// The trusted owner: 0, or the test's user.
    pub(crate) owner: u32,
}

impl Trust {
    /// The real path of `path`, through links that only the owner can have made. The result has no link in it and
    /// is absolute on the machine (not below `root`).
    pub(crate) fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut pending: VecDeque<OsString> = parts(path).collect();
        let mut real = PathBuf::from("/");
        let mut links = 0;
        self.check_folder(&real)?;
        while let Some(part) = pending.pop_front() {
            if part == ".." {
                real.pop();
                continue;
            }
            let next = real.join(&part);
            let meta = std::fs::symlink_metadata(self.on_disk(&next))?;
            if meta.is_symlink() {
                links += 1;
                if links > MAX_LINKS {
                    return Err(file::invalid(format!("too many symbolic links at {}", next.display())));
                }
                let target = std::fs::read_link(self.on_disk(&next))?;
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                    pending.push_front(part);
                }
                continue;
            }
            real = next;
            if meta.is_dir() {
                self.check_folder(&real)?;
            }
        }
        Ok(real)
    }

    /// The text of a configuration file that only the owner can have written.
    pub(crate) fn read(&self, path: &Path, limit: u64) -> io::Result<String> {
        let real = self.resolve(path)?;
        let file = file::open_regular(&self.on_disk(&real))?;
        self.check(&file.metadata()?, path)?;
        file::text(file::read_bounded(file, limit)?)
    }

    /// The real path of a file or folder that only the owner can have put there and may change.
    pub(crate) fn vouched(&self, path: &Path) -> io::Result<PathBuf> {
        let real = self.resolve(path)?;
        self.check(&std::fs::symlink_metadata(self.on_disk(&real))?, &real)?;
        Ok(real)
    }

    /// Opens the regular file `below` a resolved base, following no link.
    pub(super) fn open_file(&self, base: &Path, below: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.open_below(base, below, flags)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(file::invalid("not a regular file")) }
    }

    /// Opens the folder `below` a resolved base, following no link.
    pub(super) fn open_folder(&self, base: &Path, below: &Path) -> io::Result<OwnedFd> {
        self.open_below(base, below, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECTORY)
    }

    fn open_below(&self, base: &Path, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let root = open(&self.root, FOLDER, Mode::empty())?;
        let base = open_strictly(root, base.strip_prefix("/").unwrap_or(base), FOLDER)?;
        open_strictly(base, below, flags)
    }

    fn on_disk(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn check_folder(&self, path: &Path) -> io::Result<()> {
        self.check(&std::fs::symlink_metadata(self.on_disk(path))?, path)
    }

    /// Owned by the trusted owner and writable by nobody else.
    fn check(&self, meta: &std::fs::Metadata, path: &Path) -> io::Result<()> {
        let why = if meta.uid() != self.owner {
            format!("belongs to uid {}", meta.uid())
        } else if meta.mode() & 0o022 != 0 {
            format!("may be written by others (mode {:04o})", meta.mode() & 0o7777)
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", path.display())))
    }
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens `below` the folder, without following links and without leaving it.
fn open_strictly(folder: OwnedFd, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    if below.as_os_str().is_empty() {
        return Ok(openat(&folder, ".", flags, Mode::empty())?);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match openat2(folder.as_fd(), below, flags, Mode::empty(), resolve) {
        // Kernels before 5.6 (RHEL 8, SLE 15 SP3) lack the call; some sandboxes refuse what they do not know.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => walk(folder, below, flags),
        other => Ok(other?),
    }
}

/// The same by hand, one folder after the other.
fn walk(folder: OwnedFd, below: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mut folder = folder;
    let mut names = below.components().peekable();
    while let Some(Component::Normal(name)) = names.next() {
        if names.peek().is_none() {
            return Ok(openat(&folder, name, flags, Mode::empty())?);
        }
        folder = match openat(&folder, name, FOLDER, Mode::empty()) {
            // A link is no folder: tell it apart from a file in the way.
            Err(rustix::io::Errno::NOTDIR) if is_link(&folder, name.as_ref()) => {
                return Err(rustix::io::Errno::LOOP.into());
            }
            next => next?,
        };
    }
    Err(file::invalid("not a plain relative path"))
}

fn is_link(folder: &OwnedFd, name: &Path) -> bool {
    rustix::fs::statat(folder, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|s| rustix::fs::FileType::from_raw_mode(s.st_mode) == rustix::fs::FileType::Symlink)
}

/// Names of a path, `..` kept.
fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|c| match c {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Tree {
        dir: tempfile::TempDir,
    }

    impl Tree {
        fn new() -> Self {
            let tree = Self { dir: tempfile::tempdir().unwrap() };
            tree.mode("/", 0o755);
            tree
        }
        fn path(&self, path: &str) -> PathBuf {
            self.dir.path().join(path.trim_start_matches('/'))
        }
        fn file(&self, path: &str) {
            let path = self.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "secret").unwrap();
        }
        fn mode(&self, path: &str, mode: u32) {
            std::fs::set_permissions(self.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        fn trust(&self) -> Trust {
            Trust { root: self.dir.path().to_owned(), owner: nix::unistd::geteuid().as_raw() }
        }
    }

    #[test]
    fn a_base_moved_by_its_owner_is_followed() {
        let tree = Tree::new();
        tree.file("/disk2/rke2/server/key");
        std::fs::create_dir_all(tree.path("/var/lib/rancher")).unwrap();
        symlink("../../../disk2/rke2", tree.path("/var/lib/rancher/rke2")).unwrap();
        let trust = tree.trust();
        let base = trust.resolve(Path::new("/var/lib/rancher/rke2")).unwrap();
        assert_eq!(base, Path::new("/disk2/rke2"));
        assert!(trust.open_file(&base, Path::new("server/key")).is_ok());
        std::fs::remove_file(tree.path("/var/lib/rancher/rke2")).unwrap();
        symlink("/disk2/rke2", tree.path("/var/lib/rancher/rke2")).unwrap();
        assert_eq!(trust.resolve(Path::new("/var/lib/rancher/rke2")).unwrap(), Path::new("/disk2/rke2"));
    }

    #[test]
    fn a_folder_that_others_may_write_makes_nothing_trusted() {
        let tree = Tree::new();
        tree.file("/srv/shared/conf");
        tree.mode("/srv/shared", 0o1777);
        let error = tree.trust().resolve(Path::new("/srv/shared/conf")).unwrap_err();
        assert!(error.to_string().contains("/srv/shared may be written by others"), "{error}");
        tree.mode("/srv/shared", 0o755);
        tree.mode("/srv/shared/conf", 0o664);
        assert!(tree.trust().resolve(Path::new("/srv/shared/conf")).is_ok());
        assert!(tree.trust().read(Path::new("/srv/shared/conf"), 100).is_err());
    }

    #[test]
    fn another_owner_is_not_trusted() {
        let tree = Tree::new();
        tree.file("/etc/outrider/x");
        let trust = Trust { owner: nix::unistd::geteuid().as_raw() + 1, ..tree.trust() };
        let error = trust.resolve(Path::new("/etc/outrider/x")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn links_in_a_circle_end() {
        let tree = Tree::new();
        symlink("b", tree.path("/a")).unwrap();
        symlink("a", tree.path("/b")).unwrap();
        assert_eq!(tree.trust().resolve(Path::new("/a")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn below_a_base_no_link_is_followed() {
        let tree = Tree::new();
        tree.file("/etc/shadow");
        tree.file("/data/server/key");
        symlink("/etc/shadow", tree.path("/data/server/stolen")).unwrap();
        symlink("../etc", tree.path("/data/etc")).unwrap();
        symlink("key", tree.path("/data/server/same-folder")).unwrap();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = || rustix::fs::open(tree.path("/data"), FOLDER, Mode::empty()).unwrap();
        for below in ["server/stolen", "etc/shadow", "server/same-folder"] {
            for error in [
                open_strictly(folder(), Path::new(below), flags).unwrap_err(),
                walk(folder(), Path::new(below), flags).unwrap_err(),
            ] {
                assert_eq!(error.raw_os_error(), Some(libc::ELOOP), "{below}: {error}");
            }
        }
        assert!(open_strictly(folder(), Path::new("server/key"), flags).is_ok());
        assert!(walk(folder(), Path::new("server/key"), flags).is_ok());
        assert!(open_strictly(folder(), Path::new("../etc/shadow"), flags).is_err());
        assert!(walk(folder(), Path::new("../etc/shadow"), flags).is_err());
    }

    #[test]
    fn only_regular_files_are_opened() {
        let tree = Tree::new();
        tree.file("/data/x");
        nix::unistd::mkfifo(&tree.path("/data/fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let trust = tree.trust();
        for name in ["fifo", ""] {
            assert!(trust.open_file(Path::new("/data"), Path::new(name)).is_err(), "{name:?}");
        }
    }
}
