//! What simulated nodes are between two plays, identities and latches, in one file: a folder and two fsyncs for each of a
//! thousand would cost more than they are worth.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use outrider_agent::report::disk::{self, Disk, MemoryDisk};
use outrider_protocol::Latch;

/// Name of the file in the state folder.
pub(super) const FILE: &str = "simulated.json";

/// What makes a node itself: its key, what it got for it, and what was found of it so far.
const KEPT: [&str; 3] = ["identity.key", "identity.json", LATCHES];
/// The latches: a node that comes back has been as it was for as long as it says.
const LATCHES: &str = "latches.json";

type Files = BTreeMap<String, String>;

/// The latches that lie on a disk; none when they cannot be read: everything is then found anew.
pub(super) fn latches(disk: &dyn Disk) -> Vec<Latch> {
    let bytes = disk.read(LATCHES).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Puts latches on a disk.
pub(super) fn keep_latches(on: &dyn Disk, latches: &[Latch]) {
    // Memory refuses nothing.
    let _ = serde_json::to_vec(latches).map(|bytes| disk::replace(on, LATCHES, &bytes));
}

/// The disks of those that played before, by name; none when there is no file or it cannot be read: they are then new.
pub(super) fn open(path: &Path) -> BTreeMap<String, MemoryDisk> {
    let Ok(text) = fs::read(path) else { return BTreeMap::new() };
    let nodes: BTreeMap<String, Files> = match serde_json::from_slice(&text) {
        Ok(nodes) => nodes,
        Err(error) => {
            log::warn!("{} is damaged; simulated nodes begin anew: {error}", path.display());
            return BTreeMap::new();
        }
    };
    nodes
        .into_iter()
        .map(|(name, files)| {
            let memory = MemoryDisk::default();
            for (file, text) in files {
                // Memory refuses nothing.
                let _ = disk::replace(&memory, &file, text.as_bytes());
            }
            (name, memory)
        })
        .collect()
}

/// Writes them, mode 0600, in one step.
pub(super) fn close(path: &Path, disks: &[(String, Arc<MemoryDisk>)]) -> io::Result<()> {
    let nodes: BTreeMap<&str, Files> = disks
        .iter()
        .map(|(name, memory)| {
            let text = |file: &&str| String::from_utf8(memory.read(file).ok()?).ok();
            let files = KEPT.iter().filter_map(|file| Some(((*file).to_owned(), text(file)?)));
            (name.as_str(), files.collect())
        })
        .collect();
    let draft = path.with_extension("json.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&serde_json::to_vec(&nodes)?)?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_comes_back_as_itself_and_damage_is_no_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("simulated.json");
        assert!(open(&path).is_empty());
        let memory = Arc::new(MemoryDisk::default());
        disk::replace(&*memory, "identity.key", b"key").unwrap();
        disk::replace(&*memory, "spool", b"not kept").unwrap();
        close(&path, &[("sim-vm-1".to_owned(), memory)]).unwrap();
        let kept = open(&path);
        assert_eq!(kept["sim-vm-1"].read("identity.key").unwrap(), b"key");
        assert!(kept["sim-vm-1"].read("spool").is_err());
        std::fs::write(&path, "{").unwrap();
        assert!(open(&path).is_empty());
    }
}
