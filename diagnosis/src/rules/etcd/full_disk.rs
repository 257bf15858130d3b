//! A file system that is full under an etcd that still runs. No alarm comes of it: etcd ends at the first write that fails.

use std::time::Duration;

use outrider_protocol::{ConditionType, EtcdFacts, Fact, ReasonCode as R, Severity, Status, Timestamp};

use super::member::NEXT_SEGMENT;
use crate::finding::Finding;
use crate::wording::{Bytes, Short};

/// Nothing that a wait would heal: a busy etcd fills the piece it has within seconds.
const RAISE: Duration = Duration::from_secs(2);
const CLEAR: Duration = Duration::from_secs(30);

/// `space`, what is said of alarms and quota, with what the file system says while the member on this node answers. Once it
/// does not, `EtcdMemberHealthy` tells it.
pub(super) fn beside(mut space: Finding, etcd: &EtcdFacts, at: Timestamp) -> Finding {
    let folder = etcd.data_folder.as_ref().and_then(Fact::value);
    let Some((folder, free)) = folder.and_then(|f| Some((f, f.free_bytes?))) else { return space };
    if etcd.local_status().is_none() || free >= NEXT_SEGMENT {
        return space;
    }
    let path = &folder.path;
    let message = format!(
        "The file system of etcd's data has {} left ({path}), less than the {} that etcd sets aside for the next piece of its \
         log: it runs, and ends at the first write that fails.",
        Bytes(free),
        Short(NEXT_SEGMENT)
    );
    let advice = format!(
        "Make room on that file system before etcd ends. Move away what is not etcd's (du -xh --max-depth=2 on that file \
         system; old snapshots, images, logs), nothing below {path}."
    );
    if space.severity == Severity::Error {
        space.message = format!("{} Also: {message}", space.message);
        space.advice = format!("{advice} {}", space.advice).trim_end().to_owned();
        return space;
    }
    let disk = "This is the disk and not the quota: compaction frees nothing of it, and a defragmentation needs room itself.";
    let also = if space.severity == Severity::Warn { space.advice.as_str() } else { "" };
    let message = format!("{message} {}", space.message);
    Finding::new(ConditionType::EtcdSpace, Status::True, Severity::Error, R::EtcdSpaceLow, at, message)
        .waits(RAISE, CLEAR)
        .advice(format!("{advice} {disk} {also}").trim_end())
}
