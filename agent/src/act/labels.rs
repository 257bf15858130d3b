//! Writes labels of the own Node: one server-side apply as our own field manager.
//!
//! What is written was planned by [`outrider_sync::topology`]; here nothing is decided but that one write is under way at a
//! time, and that one that failed is not repeated at once. The request carries the uid that it was planned for, so that a Node of
//! the same name that was made meanwhile is left alone. It is not forced unless the plan takes over from a manager that the
//! configuration names.

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

use crate::config::TopologySettings;
use crate::sense::SenseContext;
use crate::sense::topology::node::{NODES, way};
use crate::sense::topology::session::Session;

/// Pause after a write that failed, the first time and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));
/// How long a write that succeeded is waited for in the reading.
const SEEN: Duration = Duration::from_secs(10);
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
    /// The last value that we wrote of each label, until it was seen to be changed.
    last: BTreeMap<String, Written>,
    #[serde(skip)]
    under_way: bool,
    #[serde(skip)]
    not_before: Option<Timestamp>,
    #[serde(skip)]
    failures: u32,
    /// Version of the Node that our last write made.
    #[serde(skip)]
    made: String,
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
    fn begin(&self, apply: &Apply, now: Timestamp) -> bool {
        let mut kept = self.kept();
        let is_older = version(&apply.resource_version) < version(&kept.made);
        let waits = kept.not_before.is_some_and(|at| now < at);
        if kept.under_way || waits || (is_older && kept.failures == 0) {
            return false;
        }
        kept.under_way = true;
        true
    }

    fn end(&self, apply: &Apply, outcome: Result<String, WriteFailure>, now: Timestamp) {
        {
            let mut kept = self.kept();
            kept.under_way = false;
            match outcome {
                Ok(made) => {
                    kept.record.written += 1;
                    kept.record.failed = None;
                    kept.failures = 0;
                    // Until it is seen, what is read is older than what was written.
                    kept.not_before = Some(now.after(SEEN)).filter(|_| made.is_empty());
                    for (key, value) in &apply.labels {
                        let written = Written { value: value.clone(), version: made.clone() };
                        if kept.record.reverted.get(key).is_some_and(|r| r.value != *value) {
                            kept.record.reverted.remove(key);
                        }
                        kept.last.insert(key.clone(), written);
                    }
                    kept.last.retain(|key, _| apply.labels.contains_key(key));
                    kept.made = made;
                }
                Err(failure) => {
                    let wait = PAUSE.0 * 2u32.saturating_pow(kept.failures.min(10));
                    kept.failures += 1;
                    kept.not_before = Some(now.after(wait.min(PAUSE.1)));
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
        let mut changed = false;
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

/// Versions of one object grow (kubernetes/enhancements, KEP-5504); what is no number is older than any.
fn version(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// Begins the write in a task of its own, unless one is under way or the last one has to be waited for.
pub fn write(ledger: &Arc<Ledger>, cx: &SenseContext, settings: &TopologySettings, apply: &Apply) {
    if !ledger.begin(apply, cx.now()) {
        return;
    }
    let (ledger, cx, settings, apply) = (ledger.clone(), cx.clone(), settings.clone(), apply.clone());
    tokio::spawn(async move {
        let outcome = send(&cx, &settings, &apply).await;
        match &outcome {
            Ok(_) => log::info!("node {}: {}", apply.node, apply.changes.join(", ")),
            Err(failure) => log::warn!("node {}: labels were not written: {}", apply.node, failure.detail),
        }
        ledger.end(&apply, outcome, cx.now());
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
    let object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": apply.node, "uid": apply.uid, "labels": apply.labels},
    });
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
