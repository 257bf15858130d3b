//! The store is away: what is in memory is still shown, judged and alarmed of, and what was missed is stored afterwards.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail loudly

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use outrider_coordinator::store::memory::MemoryStore;
use outrider_coordinator::store::*;
use outrider_coordinator::{Options, start_on};
use outrider_protocol::*;
use serde_json::json;
use support::*;

/// A store that fails every write while it is told to.
struct Flaky {
    inner: MemoryStore,
    away: Arc<AtomicBool>,
}

impl Flaky {
    fn unless_away<'a, T: Send + 'a>(
        &self,
        call: BoxFuture<'a, StoreResult<T>>,
    ) -> BoxFuture<'a, StoreResult<T>> {
        if self.away.load(Ordering::SeqCst) { ready(Err(failed())).boxed() } else { call }
    }
}

fn failed() -> StoreError {
    StoreError::Failed { path: PathBuf::from("flaky"), detail: "told to fail".to_owned() }
}

impl Store for Flaky {
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, StoreResult<Option<Entry>>> {
        self.unless_away(self.inner.get(key))
    }
    fn put<'a>(&'a self, key: &'a str, value: Bytes, expect: Expect) -> BoxFuture<'a, StoreResult<u64>> {
        self.unless_away(self.inner.put(key, value, expect))
    }
    fn delete<'a>(&'a self, key: &'a str, expect: Expect) -> BoxFuture<'a, StoreResult<()>> {
        self.unless_away(self.inner.delete(key, expect))
    }
    fn list<'a>(&'a self, prefix: &'a str, after: &'a str, limit: usize) -> BoxFuture<'a, StoreResult<Page>> {
        self.unless_away(self.inner.list(prefix, after, limit))
    }
    fn watch<'a>(&'a self, prefix: &'a str, from: u64) -> BoxFuture<'a, StoreResult<Watch>> {
        self.inner.watch(prefix, from)
    }
}

type Told<'a, T> = BoxFuture<'a, Result<T, HistoryError>>;

impl History for Flaky {
    fn append<'a>(
        &'a self,
        origin: &'a Origin,
        epoch: uuid::Uuid,
        transitions: &'a [SequencedTransition],
        received_at: Timestamp,
    ) -> Told<'a, Appended> {
        if self.away.load(Ordering::SeqCst) {
            return ready(Err(failed().into())).boxed();
        }
        self.inner.append(origin, epoch, transitions, received_at)
    }
    fn acknowledged<'a>(&'a self, uid: &'a str, epoch: uuid::Uuid) -> Told<'a, u64> {
        if self.away.load(Ordering::SeqCst) {
            return ready(Err(failed().into())).boxed();
        }
        self.inner.acknowledged(uid, epoch)
    }
    fn events<'a>(&'a self, filter: &'a EventFilter, after: u64, limit: usize) -> Told<'a, Vec<Event>> {
        self.inner.events(filter, after, limit)
    }
    fn latest<'a>(&'a self, filter: &'a EventFilter, limit: usize) -> Told<'a, Vec<Event>> {
        self.inner.latest(filter, limit)
    }
    fn position<'a>(&'a self) -> Told<'a, u64> {
        self.inner.position()
    }
    fn prune<'a>(&'a self, before: Timestamp) -> Told<'a, u64> {
        self.inner.prune(before)
    }
    fn subscribe(&self) -> tokio::sync::broadcast::Receiver<Arc<Event>> {
        self.inner.subscribe()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_goes_on_while_the_store_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let away = Arc::new(AtomicBool::new(false));
    let store = Arc::new(Flaky { inner: MemoryStore::new(), away: away.clone() });
    let coordinator = start_on(Options::on_loopback(folder.path()), store).await.unwrap();
    let bed = Bed { coordinator, folder };
    let agent = bed.enrol("n1", "").await;
    let state = agent.state(vec![ready_condition()]);
    let report = agent.report(vec![transition(1, ready_condition())], Some(state.clone()));
    assert_eq!(agent.client.post("/v1/reports", &report).await.0, 200);

    away.store(true, Ordering::SeqCst);
    let operator = bed.operator();
    let (_, text) =
        until("not ready", async || operator.get_text("/readyz").await, |(status, _)| *status == 503).await;
    assert!(text.contains("[-]store:") && text.contains("told to fail"), "{text}");

    // Nothing is acknowledged, and the alarm is seen all the same.
    let full = condition(ConditionType::HostHealthy, Status::False, ReasonCode::DiskSpaceLow);
    let alarm =
        agent.report(vec![transition(2, full.clone())], Some(agent.state(vec![ready_condition(), full])));
    let (status, body) = agent.client.post("/v1/reports", &alarm).await;
    assert_eq!((status, &body["reason"]), (503, &json!("StoreUnavailable")), "{body}");
    let (_, node) = operator.get("/v1/nodes/n1").await;
    assert_eq!(node["conditions"][1]["reason"], "DiskSpaceLow", "{node}");
    let mut connection = agent.client.open().await;
    let digest = alarm.state.as_ref().unwrap().digest.clone();
    let (status, ack) = connection.post("/v1/heartbeat", &agent.heartbeat(&digest, 1)).await;
    assert_eq!((status, &ack["acknowledged"]), (200, &json!(1)), "{ack}");
    drop(connection);
    // Silence is judged without it, too.
    until("silent", async || operator.get("/v1/nodes/n1").await.1, |n| n["ready"] == "Unknown").await;

    away.store(false, Ordering::SeqCst);
    until("ready", async || operator.get_text("/readyz").await.0, |status| *status == 200).await;
    let (status, ack) = agent.client.post("/v1/reports", &alarm).await;
    assert_eq!((status, &ack["acknowledged"]), (200, &json!(2)), "{ack}");
    let reasons = until(
        "the coordinator's own transitions",
        async || {
            let (_, events) = operator.get("/v1/events").await;
            let of =
                |e: &serde_json::Value| e["transition"]["condition"]["reason"].as_str().unwrap().to_owned();
            events["items"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
        },
        |reasons| reasons.iter().any(|r| r == "NodeSilent"),
    )
    .await;
    assert!(reasons.contains(&"DiskSpaceLow".to_owned()), "{reasons:?}");
    bed.coordinator.shutdown().await;
}

fn ready_condition() -> Condition {
    support::ready()
}
