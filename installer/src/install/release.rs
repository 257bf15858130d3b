//! Where the programs come from: a tree `usr/…` as `packaging/install.sh` lays it out, in a folder or a `.tar.gz`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;

use super::files;
use super::{FOLDER, Machine};

/// Without these there is no node.
const NEEDED: [&str; 12] = [
    "/usr/bin/outrider",
    "/usr/bin/outrider-agent",
    "/usr/libexec/outrider/outrider-helper",
    "/usr/libexec/outrider/outrider-guest-agent",
    "/usr/lib/systemd/system/outrider-agent.service",
    "/usr/lib/systemd/system/outrider-helper.service",
    "/usr/lib/systemd/system/outrider-helper.socket",
    "/usr/lib/systemd/system/outrider-guest-agent.service",
    "/usr/lib/systemd/system/outrider-guest-agent.path",
    "/usr/lib/systemd/system/outrider-guest-agent.timer",
    "/usr/lib/sysusers.d/outrider.conf",
    "/usr/lib/tmpfiles.d/outrider.conf",
];
/// Who the units run as; the second only where the release has a coordinator.
pub(crate) const SYSUSERS: [&str; 2] =
    ["/usr/lib/sysusers.d/outrider.conf", "/usr/lib/sysusers.d/outrider-coordinator.conf"];
/// More than any release has: what is larger is no release.
const MAX_FILES: usize = 1_000;
const MAX_BYTES: u64 = 2 << 30;

/// A file of the release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shipped {
    /// Where it goes on the machine.
    pub(crate) path: String,
    /// 0755 or 0644.
    pub(crate) mode: u32,
    /// SHA-256, hex.
    pub(crate) sha256: String,
    /// Bytes.
    pub(crate) size: u64,
}

/// The files of a release, and where to read them.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// A folder or an archive.
    source: PathBuf,
    archive: bool,
    /// By path.
    pub(crate) files: Vec<Shipped>,
    /// Names of the system users it wants.
    pub(crate) users: Vec<String>,
    /// `e_machine` of the daemon's ELF header; 0 when it has none.
    pub(crate) elf_machine: u16,
}

impl Release {
    /// Reads what `from` holds, a folder with `usr` in it or a `.tar.gz` of such a one. Nothing is written.
    pub(crate) fn read(from: &Path) -> anyhow::Result<Self> {
        let metadata = fs::metadata(from).with_context(|| format!("cannot read {}", from.display()))?;
        let mut release = Self {
            source: from.to_owned(),
            archive: !metadata.is_dir(),
            files: Vec::new(),
            users: Vec::new(),
            elf_machine: 0,
        };
        let mut take = |path: String, mode: u32, size: u64, content: &mut dyn Read| {
            release.take(path, mode, size, content)
        };
        let read = if metadata.is_dir() && !from.join("usr").is_dir() {
            bail!("{} is no release: there is no usr in it", from.display());
        } else if metadata.is_dir() {
            walk(from, &from.join("usr"), &mut take)
        } else {
            unpack(from, &mut take)
        };
        read.with_context(|| format!("{} is no release", from.display()))?;
        release.files.sort_by(|a, b| a.path.cmp(&b.path));
        let missing: Vec<&str> = NEEDED
            .into_iter()
            .filter(|needed| !release.files.iter().any(|file| file.path == *needed))
            .collect();
        if !missing.is_empty() {
            bail!(
                "{} is no release: it lacks {}. Give the folder that holds usr, or the .tar.gz of one",
                from.display(),
                missing.join(", ")
            );
        }
        Ok(release)
    }

    /// The release that the running program lies in, if it does and that is not `machine` itself.
    pub(crate) fn beside_the_program(machine: &Machine) -> anyhow::Result<Option<Self>> {
        let program = std::env::current_exe().and_then(fs::canonicalize);
        let Some(tree) = program.ok().and_then(|p| p.parent()?.parent()?.parent().map(Path::to_owned)) else {
            return Ok(None);
        };
        let is_one = NEEDED.iter().all(|needed| tree.join(&needed[1..]).is_file());
        let itself = fs::canonicalize(machine.root()).is_ok_and(|root| root == tree);
        if is_one && !itself && tree != Path::new("/") { Self::read(&tree).map(Some) } else { Ok(None) }
    }

    /// Where it comes from.
    pub(crate) fn source(&self) -> &Path {
        &self.source
    }

    /// The release as a folder that its files can be copied from: an archive is unpacked below our own folder, where
    /// [`sweep`] finds it again.
    pub(crate) fn open(&self, machine: &Machine) -> anyhow::Result<PathBuf> {
        if !self.archive {
            return Ok(self.source.clone());
        }
        sweep(machine)?;
        let folder = unpacked(machine);
        let mut write = |path: String, _mode: u32, size: u64, content: &mut dyn Read| {
            let to = folder.join(&path[1..]);
            let parent = to.parent().unwrap_or(&folder);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            let copied = io::copy(content, &mut File::create_new(&to)?)?;
            if copied != size { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
        };
        unpack(&self.source, &mut write)
            .with_context(|| format!("cannot unpack {} into {}", self.source.display(), folder.display()))?;
        Ok(folder)
    }

    fn take(&mut self, path: String, mode: u32, size: u64, content: &mut dyn Read) -> io::Result<()> {
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        if self.files.iter().any(|file| file.path == path) {
            return refuse(format!("{path} is in it twice"));
        }
        let total: u64 = self.files.iter().map(|file| file.size).sum();
        if self.files.len() >= MAX_FILES || total.saturating_add(size) > MAX_BYTES {
            return refuse(format!("it has more than {MAX_FILES} files or {} GiB", MAX_BYTES >> 30));
        }
        let mut head = Vec::new();
        content.take(if SYSUSERS.contains(&path.as_str()) { 64 << 10 } else { 20 }).read_to_end(&mut head)?;
        match path.as_str() {
            super::AGENT => self.elf_machine = elf_machine(&head),
            path if SYSUSERS.contains(&path) => self.users.extend(users(&String::from_utf8_lossy(&head))),
            _ => {}
        }
        let sha256 = files::sum(head.chain(content))?;
        let mode = if mode & 0o100 == 0 { 0o644 } else { 0o755 };
        self.files.push(Shipped { path, mode, sha256, size });
        Ok(())
    }
}

/// `path` on the machine, permission bits, bytes, content.
type Take<'a> = dyn FnMut(String, u32, u64, &mut dyn Read) -> io::Result<()> + 'a;

/// The names in the `u` lines of a file for systemd-sysusers.
pub(crate) fn users(text: &str) -> Vec<String> {
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| words.first() == Some(&"u"))
        .filter_map(|w| w.get(1).map(|name| (*name).to_owned()))
        .collect()
}

/// `e_machine` of a little-endian ELF header.
fn elf_machine(head: &[u8]) -> u16 {
    match head {
        [0x7f, b'E', b'L', b'F', _, 1, ..] if head.len() >= 20 => u16::from_le_bytes([head[18], head[19]]),
        _ => 0,
    }
}

fn unpacked(machine: &Machine) -> PathBuf {
    machine.at(FOLDER).join("unpacked")
}

/// Removes what an archive was unpacked into.
pub(crate) fn sweep(machine: &Machine) -> anyhow::Result<()> {
    let folder = unpacked(machine);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn walk(tree: &Path, folder: &Path, take: &mut Take<'_>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            walk(tree, &path, take)?;
        } else if metadata.is_file() {
            let below = path.strip_prefix(tree).ok().and_then(Path::to_str);
            let below =
                below.ok_or_else(|| invalid(format!("{} is no name that a release has", path.display())))?;
            take(
                format!("/{below}"),
                metadata.permissions().mode(),
                metadata.len(),
                &mut File::open(&path)?,
            )?;
        } else {
            return Err(invalid(format!("{} is neither file nor folder", path.display())));
        }
    }
    Ok(())
}

fn unpack(archive: &Path, take: &mut Take<'_>) -> io::Result<()> {
    let mut archive = tar::Archive::new(MultiGzDecoder::new(io::BufReader::new(File::open(archive)?)));
    for entry in archive.entries()? {
        let mut entry = entry.map_err(|e| invalid(format!("{e}; it is to be a .tar.gz")))?;
        let kind = entry.header().entry_type();
        if kind.is_dir() {
            continue;
        }
        let path = entry.path()?.into_owned();
        // What is not below usr is for people who look into the archive, such as a licence.
        let Some(path) = below_usr(&path)? else { continue };
        if !kind.is_file() {
            return Err(invalid(format!("{path} is neither file nor folder")));
        }
        let (mode, size) = (entry.header().mode()?, entry.size());
        take(path, mode, size, &mut entry)?;
    }
    Ok(())
}

/// Where `usr/…`, `./usr/…` or `NAME/usr/…` goes on the machine; `None` for what is not below `usr`.
fn below_usr(path: &Path) -> io::Result<Option<String>> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                let name = name
                    .to_str()
                    .ok_or_else(|| invalid(format!("{} is no name that a release has", path.display())))?;
                parts.push(name);
            }
            _ => return Err(invalid(format!("{} leads out of it", path.display()))),
        }
    }
    let at = parts.iter().take(2).position(|part| *part == "usr");
    Ok(at.map(|at| format!("/{}", parts[at..].join("/"))))
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_below_usr_is_taken() {
        let at = |path: &str| below_usr(Path::new(path)).map_err(|e| e.to_string());
        assert_eq!(at("usr/bin/outrider"), Ok(Some("/usr/bin/outrider".to_owned())));
        assert_eq!(at("./outrider-1/usr/bin/outrider"), Ok(Some("/usr/bin/outrider".to_owned())));
        assert_eq!(at("outrider-1/LICENSE"), Ok(None));
        assert!(at("usr/../etc/passwd").unwrap_err().contains("leads out"));
        assert!(at("/usr/bin/outrider").unwrap_err().contains("leads out"));
    }

    #[test]
    fn the_users_are_those_of_sysusers() {
        let text = "# ours\nu outrider - \"Outrider node agent\" /var/lib/outrider\ng other -\n";
        assert_eq!(users(text), ["outrider"]);
    }
}
