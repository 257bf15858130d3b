//! The one suite every implementation of [`Store`] and [`History`] passes.
//!
//! Each check gets a store of its own, empty. An implementation calls [`store`] and [`history`] from its tests.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outrider_protocol::{
    Condition, ConditionType, ReasonCode, SequencedTransition, Severity, Status, Timestamp, Transition,
};
use uuid::Uuid;

use super::*;

/// Long enough for any machine, short enough for a person.
const PATIENCE: Duration = Duration::from_secs(60);

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// Runs every check of [`Store`] on a store of its own.
pub(super) async fn store<S: Store, F: AsyncFn() -> Arc<S>>(new: F) {
    compare_and_swap(&*new().await).await;
    deleting(&*new().await).await;
    paged_lists(&*new().await).await;
    prefixes_are_exact(&*new().await).await;
    bad_input(&*new().await).await;
    watching(&*new().await).await;
    watching_from_the_past(&*new().await).await;
    racing_writers(new().await).await;
}

async fn compare_and_swap(s: &dyn Store) {
    assert_eq!(s.get("a/1").await, Ok(None));
    let first = s.put("a/1", bytes("one"), Expect::Absent).await.unwrap();
    let entry = Entry { key: "a/1".into(), value: bytes("one"), revision: first };
    assert_eq!(s.get("a/1").await, Ok(Some(entry)));
    let conflict = Err(StoreError::Conflict { key: "a/1".into(), current: Some(first) });
    assert_eq!(s.put("a/1", bytes("x"), Expect::Absent).await, conflict);
    assert_eq!(s.put("a/1", bytes("x"), Expect::Revision(first + 1)).await, conflict);
    let absent = Err(StoreError::Conflict { key: "a/2".into(), current: None });
    assert_eq!(s.put("a/2", bytes("x"), Expect::Revision(first)).await, absent);
    let second = s.put("a/1", bytes("two"), Expect::Revision(first)).await.unwrap();
    assert!(second > first, "revisions grow");
    let third = s.put("a/1", bytes("three"), Expect::Any).await.unwrap();
    let found = s.get("a/1").await.unwrap().unwrap();
    assert_eq!((found.value, found.revision), (bytes("three"), third));
    // Empty is not absent.
    s.put("a/empty", Bytes::new(), Expect::Absent).await.unwrap();
    assert_eq!(s.get("a/empty").await.unwrap().unwrap().value, Bytes::new());
}

async fn deleting(s: &dyn Store) {
    assert_eq!(s.delete("gone", Expect::Any).await, Ok(()));
    let revision = s.put("k", bytes("v"), Expect::Any).await.unwrap();
    assert!(matches!(s.delete("k", Expect::Revision(revision + 9)).await, Err(StoreError::Conflict { .. })));
    assert!(matches!(s.delete("k", Expect::Absent).await, Err(StoreError::Conflict { .. })));
    assert_eq!(s.delete("k", Expect::Revision(revision)).await, Ok(()));
    assert_eq!(s.get("k").await, Ok(None));
    assert!(matches!(s.delete("k", Expect::Revision(revision)).await, Err(StoreError::Conflict { .. })));
    let again = s.put("k", bytes("v"), Expect::Absent).await.unwrap();
    assert!(again > revision, "a revision is never given twice");
}

async fn paged_lists(s: &dyn Store) {
    let mut last = 0;
    for n in 0..25 {
        last = s.put(&format!("nodes/{n:02}"), bytes("v"), Expect::Absent).await.unwrap();
        s.put(&format!("other/{n:02}"), bytes("v"), Expect::Absent).await.unwrap();
    }
    let mut after = String::new();
    let mut seen = Vec::new();
    loop {
        let page = s.list("nodes/", &after, 10).await.unwrap();
        assert!(page.items.len() <= 10);
        assert!(page.revision >= last);
        seen.extend(page.items.into_iter().map(|e| e.key));
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    let expected: Vec<String> = (0..25).map(|n| format!("nodes/{n:02}")).collect();
    assert_eq!(seen, expected);
    let exact = s.list("nodes/", "", 25).await.unwrap();
    assert_eq!((exact.items.len(), exact.next), (25, None), "a page that ends the list says so");
    assert!(s.list("nothing/", "", 10).await.unwrap().items.is_empty());
    let (all, revision) = list_all(s, "").await.unwrap();
    assert_eq!(all.len(), 50);
    assert!(revision >= last);
}

async fn prefixes_are_exact(s: &dyn Store) {
    for key in ["a", "a/b", "a/é", "a/\u{1F600}", "a0", "A/b", "a_b", "a%b"] {
        s.put(key, bytes(key), Expect::Absent).await.unwrap();
    }
    let keys = async |prefix: &str| -> Vec<String> {
        list_all(s, prefix).await.unwrap().0.into_iter().map(|e| e.key).collect()
    };
    assert_eq!(keys("a/").await, ["a/b", "a/é", "a/\u{1F600}"]);
    assert_eq!(keys("a_").await, ["a_b"]);
    assert_eq!(keys("a%").await, ["a%b"]);
    assert_eq!(keys("A").await, ["A/b"]);
}

async fn bad_input(s: &dyn Store) {
    let long = "k".repeat(MAX_KEY_BYTES + 1);
    for key in ["", "a\nb", "a\0b", long.as_str()] {
        assert!(
            matches!(s.put(key, bytes("v"), Expect::Any).await, Err(StoreError::Invalid { .. })),
            "{key:?}"
        );
    }
    let big = Bytes::from(vec![0; MAX_VALUE_BYTES + 1]);
    assert!(matches!(s.put("big", big, Expect::Any).await, Err(StoreError::Invalid { .. })));
    s.put("big", Bytes::from(vec![7; MAX_VALUE_BYTES]), Expect::Any).await.unwrap();
    assert_eq!(s.get("big").await.unwrap().unwrap().value.len(), MAX_VALUE_BYTES);
}

async fn watching(s: &dyn Store) {
    s.put("nodes/before", bytes("v"), Expect::Any).await.unwrap();
    let (_, revision) = list_all(s, "nodes/").await.unwrap();
    let mut watch = s.watch("nodes/", revision).await.unwrap();
    let one = s.put("nodes/1", bytes("one"), Expect::Any).await.unwrap();
    s.put("tokens/1", bytes("unseen"), Expect::Any).await.unwrap();
    s.delete("nodes/1", Expect::Any).await.unwrap();
    let change = within("the first change", watch.next()).await.unwrap();
    assert_eq!(change, Change { revision: one, key: "nodes/1".into(), value: Some(bytes("one")) });
    let change = within("the removal", watch.next()).await.unwrap();
    assert_eq!((&*change.key, change.value), ("nodes/1", None));
    assert!(change.revision > one);
    // A refused write is no change, and a watcher that waits is woken by the next one.
    assert!(s.put("nodes/2", bytes("x"), Expect::Revision(1 << 40)).await.is_err());
    let (change, two) = tokio::join!(within("the change", watch.next()), async {
        tokio::task::yield_now().await;
        s.put("nodes/2", bytes("two"), Expect::Any).await
    });
    assert_eq!(change.unwrap().revision, two.unwrap());
}

async fn watching_from_the_past(s: &dyn Store) {
    let (_, revision) = list_all(s, "").await.unwrap();
    for n in 0..10 {
        s.put("k", bytes(&n.to_string()), Expect::Any).await.unwrap();
    }
    let mut watch = s.watch("k", revision).await.unwrap();
    for n in 0..10 {
        let change = within("a change of the past", watch.next()).await.unwrap();
        assert_eq!(change.value, Some(bytes(&n.to_string())), "every change, in order");
    }
}

/// Many writers of one counter by compare-and-swap: none of their steps is lost.
async fn racing_writers<S: Store>(s: Arc<S>) {
    s.put("counter", bytes("0"), Expect::Absent).await.unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let s = s.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    loop {
                        let entry = s.get("counter").await.unwrap().unwrap();
                        let n: u32 = std::str::from_utf8(&entry.value).unwrap().parse().unwrap();
                        let next = bytes(&(n + 1).to_string());
                        match s.put("counter", next, Expect::Revision(entry.revision)).await {
                            Ok(_) => break,
                            Err(StoreError::Conflict { .. }) => {}
                            Err(e) => panic!("{e}"),
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        within("a writer", task).await.unwrap();
    }
    assert_eq!(s.get("counter").await.unwrap().unwrap().value, bytes("160"));
}

/// A transition for tests, told from others by `message`.
pub(super) fn transition(sequence: u64, message: &str) -> SequencedTransition {
    let at = Timestamp::from_seconds(1_000);
    let condition = Condition {
        condition_type: ConditionType::HostHealthy,
        status: Status::False,
        severity: Severity::Warn,
        reason: ReasonCode::DiskSpaceLow,
        message: message.to_owned(),
        advice: String::new(),
        subject: "/".to_owned(),
        last_transition_time: at,
        observed_at: at,
    };
    let transition =
        Transition { at, condition, previous_status: None, previous_reason: None, removed: false, merged: 0 };
    SequencedTransition { sequence, transition }
}

fn batch(sequences: &[u64]) -> Vec<SequencedTransition> {
    sequences.iter().map(|n| transition(*n, &format!("event {n}"))).collect()
}

fn origin(name: &str) -> Origin {
    Origin { uid: format!("uid-{name}"), name: name.to_owned() }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

/// Runs every check of [`History`] on a history of its own.
pub(super) async fn history<H: History, F: AsyncFn() -> Arc<H>>(new: F) {
    exactly_once(&*new().await).await;
    mismatches_store_nothing(&*new().await).await;
    sequences_must_grow(&*new().await).await;
    epochs_and_nodes_are_apart(&*new().await).await;
    reading_events(&*new().await).await;
    pruning(&*new().await).await;
    subscribing(&*new().await).await;
    racing_repeats(new().await).await;
}

async fn sequences(h: &dyn History, name: &str) -> Vec<u64> {
    let filter = EventFilter { uid: Some(format!("uid-{name}")), name: None };
    h.events(&filter, 0, 1000).await.unwrap().iter().map(|e| e.sequence).collect()
}

async fn exactly_once(h: &dyn History) {
    let (a, epoch) = (origin("a"), Uuid::from_u128(1));
    assert_eq!(h.acknowledged(&a.uid, epoch).await, Ok(0));
    assert_eq!(h.append(&a, epoch, &[], at(1)).await.unwrap(), Appended { acknowledged: 0, stored: vec![] });
    let done = h.append(&a, epoch, &batch(&[1, 2]), at(1)).await.unwrap();
    assert_eq!((done.acknowledged, done.stored.len()), (2, 2));
    let again = h.append(&a, epoch, &batch(&[1, 2]), at(2)).await.unwrap();
    assert_eq!((again.acknowledged, again.stored.len()), (2, 0), "a repeat is acknowledged and not stored");
    // The answer was lost, the node repeats and goes on; a full spool has merged 4 to 6 into 7.
    let more = h.append(&a, epoch, &batch(&[2, 3, 7]), at(3)).await.unwrap();
    assert_eq!((more.acknowledged, more.stored.len()), (7, 2));
    let late = h.append(&a, epoch, &batch(&[1, 2]), at(4)).await.unwrap();
    assert_eq!((late.acknowledged, late.stored.len()), (7, 0), "a late duplicate takes nothing back");
    assert_eq!(h.append(&a, epoch, &[], at(5)).await.unwrap().acknowledged, 7);
    assert_eq!(h.acknowledged(&a.uid, epoch).await, Ok(7));
    assert_eq!(sequences(h, "a").await, [1, 2, 3, 7]);
}

async fn mismatches_store_nothing(h: &dyn History) {
    let (a, epoch) = (origin("a"), Uuid::from_u128(1));
    h.append(&a, epoch, &batch(&[1, 2, 5]), at(1)).await.unwrap();
    let other = [transition(5, "something else"), transition(6, "event 6")];
    let mismatch = |sequence| Err(HistoryError::Mismatch { sequence, highest: 5 });
    assert_eq!(h.append(&a, epoch, &other, at(2)).await, mismatch(5), "another content under a sequence");
    assert_eq!(
        h.append(&a, epoch, &batch(&[4, 6]), at(2)).await,
        mismatch(4),
        "a sequence passed over before"
    );
    assert_eq!(sequences(h, "a").await, [1, 2, 5]);
    assert_eq!(h.acknowledged(&a.uid, epoch).await, Ok(5));
    // What the node does then: a new epoch.
    let anew = h.append(&a, Uuid::from_u128(2), &other, at(3)).await.unwrap();
    assert_eq!((anew.acknowledged, anew.stored.len()), (6, 2));
}

async fn sequences_must_grow(h: &dyn History) {
    let (a, epoch) = (origin("a"), Uuid::from_u128(1));
    let cases: [(&[u64], u64, u64); 4] =
        [(&[0], 0, 0), (&[1, 1], 1, 1), (&[3, 2], 3, 2), (&[u64::MAX], 0, u64::MAX)];
    for (given, previous, sequence) in cases {
        let refused = h.append(&a, epoch, &batch(given), at(1)).await;
        assert_eq!(refused, Err(HistoryError::OutOfOrder { previous, sequence }));
    }
    assert_eq!(sequences(h, "a").await, [0; 0]);
}

async fn epochs_and_nodes_are_apart(h: &dyn History) {
    let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
    for (name, epoch) in [("a", one), ("b", one), ("a", two)] {
        let done = h.append(&origin(name), epoch, &batch(&[1]), at(1)).await.unwrap();
        assert_eq!(done.stored.len(), 1, "{name} {epoch}");
    }
    assert_eq!(sequences(h, "a").await, [1, 1]);
    assert_eq!(h.acknowledged("uid-a", Uuid::from_u128(3)).await, Ok(0));
}

async fn reading_events(h: &dyn History) {
    let epoch = Uuid::from_u128(1);
    assert_eq!(h.position().await, Ok(0));
    for n in 1..=6 {
        let name = if n % 2 == 0 { "even" } else { "odd" };
        h.append(&origin(name), epoch, &batch(&[n]), at(n as i64)).await.unwrap();
    }
    let all = h.events(&EventFilter::default(), 0, 100).await.unwrap();
    assert_eq!(all.iter().map(|e| e.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let ids: Vec<u64> = all.iter().map(|e| e.id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    assert_eq!(h.position().await.unwrap(), ids[5]);
    let first = &all[0];
    assert_eq!((&first.origin, first.epoch, first.received_at), (&origin("odd"), epoch, at(1)));
    assert_eq!(first.transition, transition(1, "event 1").transition);

    let even = EventFilter { uid: None, name: Some("even".to_owned()) };
    let picked = async |filter: &EventFilter, after, limit| -> Vec<u64> {
        h.events(filter, after, limit).await.unwrap().iter().map(|e| e.sequence).collect()
    };
    assert_eq!(picked(&even, 0, 100).await, [2, 4, 6]);
    assert_eq!(picked(&even, ids[1], 1).await, [4]);
    assert_eq!(picked(&EventFilter::default(), ids[3], 100).await, [5, 6]);
    assert_eq!(
        picked(&EventFilter { uid: Some("uid-odd".into()), name: Some("even".into()) }, 0, 9).await,
        [0; 0]
    );
    let latest = h.latest(&even, 2).await.unwrap();
    assert_eq!(latest.iter().map(|e| e.sequence).collect::<Vec<_>>(), [4, 6]);
    assert!(h.events(&EventFilter::default(), u64::MAX, 10).await.unwrap().is_empty());
}

async fn pruning(h: &dyn History) {
    let (a, epoch) = (origin("a"), Uuid::from_u128(1));
    for n in 1..=5 {
        h.append(&a, epoch, &batch(&[n]), at(n as i64 * 10)).await.unwrap();
    }
    let position = h.position().await.unwrap();
    assert_eq!(h.prune(at(30)).await, Ok(2), "what was received before, not at");
    assert_eq!(h.prune(at(30)).await, Ok(0));
    assert_eq!(sequences(h, "a").await, [3, 4, 5]);
    let old = h.append(&a, epoch, &batch(&[1, 2, 3]), at(60)).await.unwrap();
    assert_eq!((old.acknowledged, old.stored.len()), (5, 0), "what was acknowledged stays acknowledged");
    assert_eq!(h.prune(at(1000)).await, Ok(3));
    assert_eq!(h.acknowledged(&a.uid, epoch).await, Ok(5));
    assert_eq!(h.position().await.unwrap(), position, "a position is never given twice");
    let next = h.append(&a, epoch, &batch(&[6]), at(61)).await.unwrap();
    assert!(next.stored[0].id > position);
}

async fn subscribing(h: &dyn History) {
    let (a, epoch) = (origin("a"), Uuid::from_u128(1));
    h.append(&a, epoch, &batch(&[1]), at(1)).await.unwrap();
    let mut events = h.subscribe();
    h.append(&a, epoch, &batch(&[1, 2]), at(1)).await.unwrap();
    let refused = h.append(&a, epoch, &[transition(2, "else")], at(1)).await;
    assert!(refused.is_err());
    h.append(&a, epoch, &batch(&[3]), at(1)).await.unwrap();
    for sequence in [2, 3] {
        let event = within("an event", events.recv()).await.unwrap();
        assert_eq!(event.sequence, sequence, "new events only, in order");
    }
}

/// The same report on several connections at once: stored once, acknowledged everywhere.
async fn racing_repeats<H: History>(h: Arc<H>) {
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let h = h.clone();
            tokio::spawn(async move {
                for end in 1..=10 {
                    let all: Vec<u64> = (1..=end).collect();
                    let done = h.append(&origin("a"), Uuid::from_u128(1), &batch(&all), at(1)).await.unwrap();
                    assert!(done.acknowledged >= end);
                }
            })
        })
        .collect();
    for task in tasks {
        within("a sender", task).await.unwrap();
    }
    let stored = sequences(&*h, "a").await;
    assert_eq!(stored, (1..=10).collect::<Vec<u64>>());
    assert_eq!(stored.iter().collect::<BTreeSet<_>>().len(), 10);
}
