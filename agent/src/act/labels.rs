//! Writes labels of the own Node: one server-side apply as our own field manager.
//!
//! What is written was planned by [`outrider_sync::topology`]; here nothing is decided but that one write is under way at a
//! time, and that one that failed is not repeated at once. The request carries the uid that it was planned for, so that a Node of
//! the same name that was made meanwhile is left alone. It is not forced unless the plan takes over from a manager that the
//! configuration names; then it carries the version too, and where that has passed, the next reading is planned for.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::Request;
use outrider_protocol::{FIELD_MANAGER, NodeTopology, Reverted, Timestamp, WriteFailure, WriteRecord};
use outrider_sync::topology::{Apply, is_ours};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::TopologySettings;
use crate::sense::SenseContext;
use crate::sense::topology::node::{NODES, way};
use crate::sense::topology::session::Session;

/// Pause after a write that failed, the first time and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));
/// How long a write that succeeded is waited for in the reading.
const SEEN: Duration = Duration::from_secs(10);
/// For so long a reading with a smaller version than our last write made is one from before it. Later it is of a cluster
/// whose etcd was restored, where versions begin lower.
const LAGS: Duration = Duration::from_secs(120);
/// So often in a row a write that takes over is planned anew because the Node had changed meanwhile; then it has failed.
const ANEW: u32 = 3;
/// A value that has stayed for so long is no longer fought about.
const SETTLED: Duration = Duration::from_secs(600);

/// What our writes came to; kept over a restart, so that a restart is no new round of a fight.
#[derive(Default)]
pub struct Ledger {
    kept: Mutex<Kept>,
    news: watch::Sender<()>,
    path: Option<PathBuf>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Kept {
    #[serde(flatten)]
    record: WriteRecord,
    /// Uid of the Node that all of this is about; empty before one was seen.
    uid: String,
    /// The last value that we wrote of each label, until it was seen to be changed.
    last: BTreeMap<String, Written>,
    #[serde(skip)]
    under_way: bool,
    #[serde(skip)]
    not_before: Option<Instant>,
    #[serde(skip)]
    failures: u32,
    /// Version of the Node that our last write made.
    #[serde(skip)]
    made: String,
    /// When that was.
    #[serde(skip)]
    made_at: Option<Instant>,
    /// Version that had passed when a write was planned for it, and how often in a row one had.
    #[serde(skip)]
    passed: (String, u32),
}

impl Kept {
    /// Forgets what was about another Node; whether anything changed. A failed write of that one says nothing of this one.
    fn meet(&mut self, uid: &str) -> bool {
        if uid.is_empty() || self.uid == uid {
            return false;
        }
        if !self.uid.is_empty() {
            let (written, under_way) = (self.record.written, self.under_way);
            let record = WriteRecord { written, ..WriteRecord::default() };
            *self = Self { record, under_way, ..Self::default() };
        }
        uid.clone_into(&mut self.uid);
        true
    }

    fn is_about(&self, uid: &str) -> bool {
        self.uid.is_empty() || self.uid == uid
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    value: String,
    version: String,
}

impl Ledger {
    /// The ledger in the file `path`; one that cannot be read begins anew.
    pub fn open(path: PathBuf) -> Self {
        let read = || -> io::Result<Kept> { Ok(serde_json::from_slice(&std::fs::read(&path)?)?) };
        let kept = match read() {
            Ok(kept) => kept,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(e) => {
                log::warn!("{} cannot be used and is begun anew: {e}", path.display());
                Kept::default()
            }
        };
        Self { kept: Mutex::new(kept), path: Some(path), ..Self::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to report.
    pub fn record(&self) -> WriteRecord {
        self.kept().record.clone()
    }

    /// Tells when a write has ended.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Wakes whoever waits for news, as when settings have changed.
    pub fn wake(&self) {
        self.news.send_replace(());
    }

    /// Whether this write may be begun now; it is under way then.
    fn begin(&self, apply: &Apply, now: Instant) -> bool {
        let mut kept = self.kept();
        let lags = kept.made_at.is_some_and(|at| now.duration_since(at) < LAGS);
        let is_older = lags && version(&apply.resource_version) < version(&kept.made);
        let waits = kept.not_before.is_some_and(|at| now < at);
        let has_passed = apply.force && kept.passed.0 == apply.resource_version;
        let is_early = waits || has_passed || (is_older && kept.failures == 0);
        if kept.under_way || is_early || !kept.is_about(&apply.uid) {
            return false;
        }
        kept.under_way = true;
        true
    }

    fn end(&self, apply: &Apply, outcome: Result<String, WriteFailure>, now: Instant) {
        {
            let mut kept = self.kept();
            kept.under_way = false;
            match outcome {
                // What was about a Node that is gone says nothing of the new one.
                _ if !kept.is_about(&apply.uid) => {}
                Ok(made) => {
                    kept.record.written += 1;
                    kept.record.failed = None;
                    kept.failures = 0;
                    // Until it is seen, what is read is older than what was written.
                    kept.not_before = Some(now + SEEN).filter(|_| made.is_empty());
                    for (key, value) in &apply.labels {
                        let written = Written { value: value.clone(), version: made.clone() };
                        if kept.record.reverted.get(key).is_some_and(|r| r.value != *value) {
                            kept.record.reverted.remove(key);
                        }
                        kept.last.insert(key.clone(), written);
                    }
                    kept.last.retain(|key, _| apply.labels.contains_key(key));
                    kept.made = made;
                    kept.made_at = Some(now);
                    kept.passed = (String::new(), 0);
                }
                Err(failure) if apply.force && has_passed(&failure) && kept.passed.1 < ANEW => {
                    kept.passed = (apply.resource_version.clone(), kept.passed.1 + 1);
                }
                Err(failure) => {
                    kept.passed = (String::new(), 0);
                    let wait = PAUSE.0 * 2u32.saturating_pow(kept.failures.min(10));
                    kept.failures += 1;
                    kept.not_before = Some(now + wait.min(PAUSE.1));
                    kept.record.failed = Some(failure);
                }
            }
            self.keep(&kept);
        }
        self.wake();
    }

    /// Compares what is read with what we wrote.
    pub fn observe(&self, node: &NodeTopology, now: Timestamp) {
        let mut kept = self.kept();
        let mut changed = kept.meet(&node.uid);
        let last = std::mem::take(&mut kept.last);
        for (key, written) in last {
            let have = node.labels.get(&key);
            if version(&node.resource_version) < version(&written.version) || have == Some(&written.value) {
                kept.last.insert(key, written);
                continue;
            }
            changed = true;
            let owners = node.owners.get(&key).map_or(&[][..], Vec::as_slice);
            let by = owners.iter().find(|owner| !is_ours(owner)).map(|owner| owner.manager.clone());
            let before =
                kept.record.reverted.get(&key).filter(|r| r.value == written.value).map_or(0, |r| r.times);
            let reverted = Reverted {
                value: written.value,
                times: before + 1,
                to: have.cloned().unwrap_or_default(),
                by: by.unwrap_or_default(),
                at: now,
            };
            kept.record.reverted.insert(key, reverted);
        }
        let count = kept.record.reverted.len();
        kept.record.reverted.retain(|key, reverted| {
            node.labels.get(key) != Some(&reverted.value) || now.since(reverted.at) < SETTLED
        });
        if changed || count != kept.record.reverted.len() {
            self.keep(&kept);
        }
    }

    fn keep(&self, kept: &Kept) {
        let Some(path) = &self.path else { return };
        let text = serde_json::to_vec(kept).map_err(io::Error::from);
        if let Err(e) = text.and_then(|text| super::replace_file(path, &text, 0o600)) {
            log::warn!("{} cannot be written: {e}", path.display());
        }
    }
}

/// Whether the Node was no longer the version that the write was planned for: a 409 that names no other manager.
fn has_passed(failure: &WriteFailure) -> bool {
    failure.status == 409 && failure.conflicts.is_empty()
}

/// Versions of one object grow (kubernetes/enhancements, KEP-5504); what is no number is older than any.
fn version(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// Begins the write in a task of its own, unless one is under way or the last one has to be waited for.
pub fn write(ledger: &Arc<Ledger>, cx: &SenseContext, settings: &TopologySettings, apply: &Apply) {
    if !ledger.begin(apply, Instant::now()) {
        return;
    }
    let (ledger, cx, settings, apply) = (ledger.clone(), cx.clone(), settings.clone(), apply.clone());
    tokio::spawn(async move {
        let outcome = send(&cx, &settings, &apply).await;
        match &outcome {
            Ok(_) => log::info!("node {}: {}", apply.node, apply.changes.join(", ")),
            Err(failure) => log::warn!("node {}: labels were not written: {}", apply.node, failure.detail),
        }
        ledger.end(&apply, outcome, Instant::now());
    });
}

/// The version that the write made.
async fn send(cx: &SenseContext, settings: &TopologySettings, apply: &Apply) -> Result<String, WriteFailure> {
    let failed = |status: u16, detail: String, conflicts: Vec<String>| WriteFailure {
        status,
        detail,
        conflicts,
        resource_version: apply.resource_version.clone(),
        at: cx.now(),
    };
    let found = {
        let (cx, settings) = (cx.clone(), settings.clone());
        tokio::task::spawn_blocking(move || way(&cx, &settings)).await
    };
    let way = match found {
        Ok(Ok(way)) => way,
        _ => return Err(failed(0, "the kubeconfig can no longer be used".to_owned(), Vec::new())),
    };
    let mut metadata = json!({"name": apply.node, "uid": apply.uid, "labels": apply.labels});
    if apply.force {
        // Without it, what another manager wrote since would be overruled unseen, whoever that is.
        metadata["resourceVersion"] = apply.resource_version.as_str().into();
    }
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
    let mut how = PatchParams::apply(FIELD_MANAGER);
    how.force = apply.force;
    let request = Request::new(NODES).patch(&apply.node, &how, &Patch::Apply(&object));
    let mut session = Session::new(way.access);
    let answered = session.send(request).await.map_err(|f| failed(0, f.detail, Vec::new()))?;
    let status = answered.status.as_u16();
    let body: Value = serde_json::from_slice(&answered.body).unwrap_or_default();
    if answered.status.is_success() {
        let made = body.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        return Ok(made.unwrap_or_default().to_owned());
    }
    let detail = format!("{status}: {}", answered.said());
    Err(failed(status, detail, conflicts(&body)))
}

/// The managers that a 409 names (kubernetes/apimachinery, `FieldManagerConflict`: `conflict with "NAME" using v1`).
fn conflicts(status: &Value) -> Vec<String> {
    let causes = status.pointer("/details/causes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let named = causes.iter().filter_map(|cause| {
        let name = cause.get("message")?.as_str()?.split('"').nth(1)?;
        Some(name.chars().take(128).filter(|c| !c.is_control()).collect::<String>())
    });
    let mut all: Vec<String> = named.take(16).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use outrider_protocol::ZONE;

    use super::*;

    fn apply(uid: &str, version: &str, force: bool) -> Apply {
        Apply {
            node: "n1".into(),
            uid: uid.into(),
            resource_version: version.into(),
            labels: BTreeMap::from([(ZONE.to_owned(), "z1".to_owned())]),
            force,
            changes: Vec::new(),
        }
    }

    fn node(uid: &str, version: &str, zone: &str) -> NodeTopology {
        NodeTopology {
            name: "n1".into(),
            uid: uid.into(),
            resource_version: version.into(),
            labels: BTreeMap::from([(ZONE.to_owned(), zone.to_owned())]),
            ..NodeTopology::default()
        }
    }

    fn failure(status: u16) -> WriteFailure {
        WriteFailure {
            status,
            detail: String::new(),
            conflicts: Vec::new(),
            resource_version: "7".into(),
            at: Timestamp::default(),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_reading_from_before_the_write_is_waited_out_and_a_restored_cluster_is_written_to() {
        let (ledger, now) = (Ledger::default(), Instant::now());
        let first = apply("u", "70", false);
        assert!(ledger.begin(&first, now) && !ledger.begin(&first, now), "one at a time");
        ledger.end(&first, Ok("71".into()), now);
        assert!(!ledger.begin(&first, now + seconds(60)));
        assert!(ledger.begin(&first, now + LAGS));
    }

    #[test]
    fn a_node_that_was_made_anew_has_no_past() {
        let (ledger, now, at) = (Ledger::default(), Instant::now(), Timestamp::default());
        ledger.observe(&node("u", "70", "a"), at);
        let first = apply("u", "70", false);
        assert!(ledger.begin(&first, now));
        ledger.end(&first, Ok("71".into()), now);
        ledger.observe(&node("u", "72", "a"), at);
        assert_eq!(ledger.record().reverted[ZONE].times, 1);
        assert!(ledger.begin(&apply("u", "72", false), now));
        ledger.observe(&node("v", "80", "b"), at);
        ledger.end(&apply("u", "72", false), Ok("73".into()), now);
        ledger.observe(&node("v", "81", "b"), at);
        assert_eq!(ledger.record(), WriteRecord { written: 1, ..WriteRecord::default() });
        assert!(!ledger.begin(&apply("u", "72", false), now), "planned for the old one");
        assert!(ledger.begin(&apply("v", "5", false), now));
    }

    #[test]
    fn a_failure_is_waited_for_and_longer_each_time() {
        let (ledger, now) = (Ledger::default(), Instant::now());
        let apply = apply("u", "7", false);
        for (at, wait) in [(0, 30), (100, 60), (1_000, 120)] {
            let at = now + seconds(at);
            assert!(ledger.begin(&apply, at));
            ledger.end(&apply, Err(failure(409)), at);
            assert!(ledger.record().failed.is_some());
            assert!(!ledger.begin(&apply, at + seconds(wait - 1)));
        }
    }

    #[test]
    fn what_takes_over_is_planned_anew_for_the_next_version_and_not_for_ever() {
        let (ledger, now) = (Ledger::default(), Instant::now());
        for version in 1..=ANEW {
            let apply = apply("u", &version.to_string(), true);
            assert!(ledger.begin(&apply, now));
            ledger.end(&apply, Err(failure(409)), now);
            assert!(!ledger.begin(&apply, now), "the same version again");
            assert_eq!(ledger.record().failed, None);
        }
        let last = apply("u", "9", true);
        assert!(ledger.begin(&last, now));
        ledger.end(&last, Err(failure(409)), now);
        assert!(ledger.record().failed.is_some() && !ledger.begin(&apply("u", "10", true), now));
        assert!(ledger.begin(&apply("u", "10", true), now + seconds(30)));
    }
}
