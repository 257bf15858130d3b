//! What lies on this node's disk beside the TLS files: who the member means to be, the marks in its data folder, and
//! its snapshots. Nothing here is opened but configuration; of folders only names, sizes and times are read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outrider_protocol::{DataFolder, ExpectedMember, Fact, SnapshotFile, Snapshots, Timestamp, UnknownCause};
use tokio::time::Instant;

use super::discover::Found;
use super::expected::{self, Configured};
use super::process::Process;
use crate::net::Failure;
use crate::sense::folder::Entry;
use crate::sense::{Folder, SenseContext};

/// Configuration and folders are read again after this long; a pass for another reason takes what the last look saw.
const FRESH: Duration = Duration::from_secs(60);

/// Where RKE2 and K3s keep their snapshots, and whether they make any.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SnapshotSettings {
    pub(super) folder: PathBuf,
    pub(super) object_storage: bool,
    pub(super) schedule_disabled: bool,
    /// The configuration could not be read in full: it may name another folder.
    pub(super) problem: Option<Failure>,
}

/// What one look at the disk saw.
#[derive(Clone, Debug)]
pub(super) struct DiskFacts {
    looked: Instant,
    pub(super) expected: Fact<ExpectedMember>,
    pub(super) data_folder: Fact<DataFolder>,
    pub(super) snapshots: Fact<Snapshots>,
    /// The member's own election timeout, where its configuration says.
    pub(super) election_timeout: Option<Duration>,
    process: Option<Process>,
    /// The data folder, where it is known.
    data: Option<PathBuf>,
    /// What it was looked at for.
    found: Found,
}

/// The data folder read again for a member that has not answered: what made it end (no room, a removal) happened after the
/// last look. Blocking.
pub(super) fn look_for_cause(cx: &SenseContext, mut last: DiskFacts) -> DiskFacts {
    last.data_folder = data_folder(cx, last.data.as_deref(), cx.now());
    last
}

/// Looks, or takes the last look while it is fresh. Blocking.
pub(super) fn look(cx: &SenseContext, found: &Found, last: Option<DiskFacts>) -> DiskFacts {
    match last {
        Some(last) if last.found == *found && last.looked.elapsed() < FRESH => last,
        last => look_again(cx, found, last),
    }
}

fn look_again(cx: &SenseContext, found: &Found, last: Option<DiskFacts>) -> DiskFacts {
    let now = cx.now();
    let Some(local) = found.endpoints.first() else {
        let failure = Failure::new(UnknownCause::InvalidInput, "no endpoint of the local member is known");
        return DiskFacts {
            looked: Instant::now(),
            expected: failure.clone().into_fact("configuration of the local member", now),
            data_folder: failure.clone().into_fact("data folder", now),
            snapshots: failure.into_fact("snapshots", now),
            election_timeout: None,
            process: None,
            data: None,
            found: found.clone(),
        };
    };
    let before = last.as_ref().and_then(|last| last.process.as_ref());
    let (configured, process) = expected::read(cx, &found.configuration, local, before);
    let configured_data = || {
        let path = PathBuf::from(configured.as_ref().ok()?.config.data_dir.as_ref()?);
        path.is_absolute().then_some(path)
    };
    // A process that has ended tells its folder no more, and the folder may tell why it ended.
    let earlier = || last.filter(|last| last.found == *found)?.data;
    let data = found.data.clone().or_else(configured_data).or_else(earlier);
    DiskFacts {
        looked: Instant::now(),
        data_folder: data_folder(cx, data.as_deref(), now),
        snapshots: snapshots(cx, found.snapshots.as_ref(), now),
        election_timeout: configured.as_ref().ok().and_then(|c| c.config.election_timeout),
        expected: match configured {
            Ok(Configured { config, source }) => Fact::known(config.expected(), source, now),
            Err(failure) => failure.into_fact("configuration of the local member", now),
        },
        process,
        data,
        found: found.clone(),
    }
}

fn data_folder(cx: &SenseContext, path: Option<&Path>, now: Timestamp) -> Fact<DataFolder> {
    let Some(path) = path else {
        return Failure::new(UnknownCause::Unsupported, "nothing tells where the member keeps its data")
            .into_fact("data folder", now);
    };
    let source = path.display().to_string();
    let folder = match cx.opener.describe(path) {
        Ok(folder) => folder,
        Err(e) => return Fact::from_io(&e, source, now),
    };
    // RKE2 and K3s put the flag of a reset beside the folder; other etcds have neither mark (`facts/etcd.md`, section 7).
    let reset_flag = match path.parent().filter(|_| path.ends_with("server/db/etcd")) {
        None => false,
        Some(parent) => match cx.opener.list(parent) {
            Ok(names) => names.iter().any(|name| name == "reset-flag"),
            Err(e) => return Fact::from_io(&e, parent.display().to_string(), now),
        },
    };
    let value = DataFolder {
        path: source.clone(),
        tombstone: folder.file("tombstone").is_some(),
        reset_flag,
        free_bytes: folder.free_bytes,
    };
    Fact::known(value, source, now)
}

fn snapshots(cx: &SenseContext, settings: Option<&SnapshotSettings>, now: Timestamp) -> Fact<Snapshots> {
    let Some(settings) = settings else {
        return Fact::not_applicable("only RKE2 and K3s keep etcd snapshots in a known folder", now);
    };
    let source = settings.folder.display().to_string();
    if let Some(problem) = &settings.problem {
        return problem.clone().into_fact(source, now);
    }
    let folder = match cx.opener.describe(&settings.folder) {
        Ok(folder) => folder,
        // Made with the first snapshot: a folder that is not there holds none.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Folder::default(),
        Err(e) => return Fact::from_io(&e, source, now),
    };
    let named = folder.entries.iter().filter(|entry| entry.file && is_named_so(&entry.name));
    let (usable, small): (Vec<&Entry>, Vec<&Entry>) =
        named.partition(|entry| entry.size >= least_size(&entry.name));
    let newest_of = |entries: &[&Entry]| {
        let newest = entries.iter().max_by_key(|entry| entry.modified_ms)?;
        Some(SnapshotFile {
            name: newest.name.clone(),
            at: Timestamp::from_millis(newest.modified_ms),
            size_bytes: newest.size,
        })
    };
    let newest = newest_of(&usable);
    let too_small =
        newest_of(&small).filter(|small| newest.as_ref().is_none_or(|newest| small.at > newest.at));
    let value = Snapshots {
        folder: source.clone(),
        count: u32::try_from(usable.len()).unwrap_or(u32::MAX),
        newest,
        too_small,
        object_storage: settings.object_storage,
        schedule_disabled: settings.schedule_disabled,
    };
    Fact::known(value, source, now)
}

/// Whether a file is named as a snapshot: `NAME-NODE-SECONDS`, packed `.zip` behind it (k3s-io/k3s, `pkg/etcd/snapshot.go`), or
/// `.db` by a person with etcdctl. While it is being written etcd calls it `NAME.part` (etcd-io/etcd,
/// `client/v3/snapshot/v3_snapshot.go`).
fn is_named_so(name: &str) -> bool {
    let stem = name.strip_suffix(".zip").unwrap_or(name);
    let seconds = stem.rsplit_once('-').map_or("", |(_, seconds)| seconds);
    let by_time = !seconds.is_empty() && seconds.bytes().all(|b| b.is_ascii_digit());
    !name.starts_with('.') && (by_time || stem.ends_with(".db"))
}

/// The smallest size of one: a bbolt file is four pages (etcd-io/bbolt, `db.go`); packed, the records around one file and the
/// digest that etcd puts behind it.
fn least_size(name: &str) -> u64 {
    if name.ends_with(".zip") { 128 } else { 4 * 4096 }
}
