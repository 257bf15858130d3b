//! The machine that is worked on: this one, or a tree that will be one.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// More links on one way are a circle; the kernel's own limit.
const MOST_LINKS: usize = 40;

/// A root folder, and what of a running machine is there.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    root: PathBuf,
    /// systemd runs and can be asked; not so in an image build or below `--root`.
    pub(crate) live: bool,
    /// Files may be given to their owners.
    pub(crate) is_root: bool,
}

impl Machine {
    /// The machine whose `/` is `root`.
    pub(crate) fn new(root: &Path) -> Self {
        let of_this = root == Path::new("/");
        Self {
            root: root.to_owned(),
            live: of_this && Path::new("/run/systemd/system").is_dir(),
            is_root: nix::unistd::geteuid().is_root(),
        }
    }

    /// Where the machine's absolute `path` is from here. Links above its last name are followed as the machine will follow
    /// them: an absolute one of an image leads to a place in the image, not in the system that builds it.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        if self.is_ours() {
            return self.root.join(path.trim_start_matches('/'));
        }
        let path = Path::new(path);
        match (path.parent(), path.file_name()) {
            (Some(above), Some(name)) => self.followed(above).join(name),
            _ => self.root.clone(),
        }
    }

    /// The same with a link that `path` itself is.
    fn followed(&self, path: &Path) -> PathBuf {
        let mut at = self.root.clone();
        let mut ahead: Vec<OsString> = names(path);
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                if at != self.root {
                    at.pop();
                }
                continue;
            }
            let next = at.join(&name);
            match fs::read_link(&next) {
                Ok(target) if links < MOST_LINKS => {
                    links += 1;
                    if target.is_absolute() {
                        at = self.root.clone();
                    }
                    ahead.extend(names(&target));
                }
                _ => at = next,
            }
        }
        at
    }

    /// Whether a folder is there, or a link to one.
    pub(crate) fn is_dir(&self, path: &str) -> bool {
        self.followed(Path::new(path)).is_dir()
    }

    /// `/` as seen from here.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether `/` is `/`, also in a chroot: its programs can be run.
    pub(crate) fn is_ours(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The name that this machine gives itself; empty when it has none.
    pub(crate) fn host_name(&self) -> String {
        let running = if self.is_ours() { nix::unistd::gethostname().ok() } else { None };
        let running = running.and_then(|name| name.into_string().ok());
        running
            .or_else(|| fs::read_to_string(self.at("/etc/hostname")).ok())
            .map(|name| name.trim().to_owned())
            .unwrap_or_default()
    }

    /// The numeric id that column 3 of `file` (`/etc/passwd`, `/etc/group`) has for `name`. The files are read and not the
    /// name service asked: an image is not the machine that builds it, and system users lie in files.
    pub(crate) fn id_of(&self, file: &str, name: &str) -> Option<u32> {
        let text = fs::read_to_string(self.at(file)).ok()?;
        let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
        line.split(':').nth(2)?.parse().ok()
    }

    /// Whether a user of this name is there.
    pub(crate) fn has_user(&self, name: &str) -> bool {
        self.id_of("/etc/passwd", name).is_some()
    }

    /// Whether something lies at `path`, also a link that leads nowhere.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.at(path).symlink_metadata().is_ok()
    }

    /// The nearest folder at or above `path` that is there.
    pub(crate) fn nearest(&self, path: &str) -> PathBuf {
        let mut at = self.followed(Path::new(path));
        while !at.is_dir() && at.pop() {}
        at
    }
}

/// Its names, the last first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}
