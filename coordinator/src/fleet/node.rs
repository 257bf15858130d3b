//! One node as the coordinator holds it in memory.
//!
//! What a heartbeat touches is atomic and lies outside the lock; the rest is behind one short lock. A fleet is many of
//! these, so that every field is here because a question needs it: the state of a node is a few KiB.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outrider_diagnosis::fleet::Received;
use outrider_protocol::{
    Condition, ConditionType, Latch, NodeConfig, NodeState, NodeView, Profile, Status, Timestamp, TypeMeta,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use uuid::Uuid;

use super::hearing::{self, Hearing, Retired};
use super::saver::SavedNode;
use super::{Cluster, probes};
use crate::enrol::{Enrolment, NodeRecord};
use crate::server::pace::Pace;

/// A living agent answers within this time; it sends its state over a connection that stands.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// After so long without an answer a node that its peers do not reach either is silent for good: an agent that is started
/// anew just then has long been back.
const UNANSWERED: Duration = Duration::from_secs(10);

/// A heartbeat whose answer is held.
pub(crate) struct Holding(Arc<Node>);

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.holding.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The last report, as it is kept in memory and, under `states/<uid>`, in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LastReport {
    pub(crate) epoch: Uuid,
    /// Highest sequence of the epoch known to be stored.
    pub(crate) acknowledged: u64,
    /// Generation of the desired configuration in force at the node.
    pub(crate) generation: u64,
    pub(crate) agent_version: Box<str>,
    pub(crate) cluster: Box<str>,
    pub(crate) profile: Profile,
    pub(crate) simulated: bool,
    /// The node's clock.
    pub(crate) sent_at: Timestamp,
    /// When the node was last heard, as of the last write.
    pub(crate) last_seen: Timestamp,
    /// Seconds between heartbeats, as announced.
    pub(crate) interval_seconds: u32,
    /// When the state was taken in.
    pub(crate) last_state_at: Timestamp,
    /// The node's clock when it sent the state; absent from what an earlier version stored.
    #[serde(default)]
    pub(crate) state_sent_at: Option<Timestamp>,
    /// When the state was taken in, as time since the start; `None` after a restart.
    #[serde(skip)]
    pub(crate) state_heard: Option<Duration>,
    pub(crate) state: Option<Arc<NodeState>>,
}

impl LastReport {
    /// When the state came in, by our wall clock as it is `now`, `elapsed` after the start, and by the node's: ages are
    /// judged by these, whatever either clock did meanwhile.
    pub(crate) fn received(&self, now: Timestamp, elapsed: Duration) -> Option<Received> {
        let sent_at = self.state_sent_at?;
        let at =
            self.state_heard.map_or(self.last_state_at, |heard| now.before(elapsed.saturating_sub(heard)));
        Some(Received { at, sent_at })
    }
}

/// A node.
pub(crate) struct Node {
    pub(crate) uid: Arc<str>,
    /// Wakes held heartbeats: something is desired, or the answer must not wait.
    pub(crate) wake: Notify,
    /// Its requests' rate.
    pub(crate) pace: Pace,
    /// One report at a time, so that acknowledgement and state go forward together.
    pub(crate) reporting: tokio::sync::Mutex<()>,
    /// Ids of its connections, oldest first.
    pub(crate) connections: Mutex<Vec<u64>>,
    /// Since when the coordinator listens for it, in milliseconds since the start.
    listening_since: u64,
    /// Milliseconds since the start, plus one; 0 when not heard in this run.
    heard_at: AtomicU64,
    /// When its word was last asked for, as `heard_at`; 0 when never.
    asked_at: AtomicU64,
    /// Since when its peers do not reach it and no heartbeat of it is held, as `heard_at`; 0 while neither.
    missed_at: AtomicU64,
    /// Its peers do not reach it.
    is_unreached: AtomicBool,
    /// Its heartbeats whose answer is held right now.
    holding: AtomicU32,
    interval_seconds: AtomicU32,
    /// Generation of the desired configuration.
    desired_generation: AtomicU64,
    /// Its share of the fleet's probes a minute; 0 when it keeps its own number.
    probe_share: AtomicU32,
    may_speak: AtomicBool,
    is_silent: AtomicBool,
    /// Position of the feed at its last change.
    changed_at: AtomicU64,
    inner: Mutex<Inner>,
}

/// What lies behind the lock.
pub(crate) struct Inner {
    pub(crate) record: Arc<NodeRecord>,
    /// The cluster it is counted in.
    pub(super) home: Option<Arc<Cluster>>,
    pub(crate) report: Option<Box<LastReport>>,
    /// `Ready` as the coordinator judges it, while the node is not heard.
    pub(crate) silence: Option<Box<Latch>>,
    /// `IdentityUnique` as the coordinator judges it, once there was doubt.
    pub(crate) identity: Option<Box<Latch>>,
    /// Its virtual machine was deleted, and it has not been heard since.
    pub(crate) retired: Option<Arc<Retired>>,
}

impl Node {
    /// A node that is listened for from `now` (time since the start) on.
    pub(crate) fn new(record: Arc<NodeRecord>, saved: SavedNode, now: Duration) -> Arc<Self> {
        let interval = saved.report.as_ref().map_or(0, |r| r.interval_seconds);
        Arc::new(Self {
            uid: record.uid.as_str().into(),
            wake: Notify::new(),
            pace: Pace::default(),
            reporting: tokio::sync::Mutex::const_new(()),
            connections: Mutex::default(),
            listening_since: millis(now),
            heard_at: AtomicU64::new(0),
            asked_at: AtomicU64::new(0),
            missed_at: AtomicU64::new(0),
            is_unreached: AtomicBool::new(false),
            holding: AtomicU32::new(0),
            interval_seconds: AtomicU32::new(interval),
            desired_generation: AtomicU64::new(record.desired.generation),
            probe_share: AtomicU32::new(0),
            may_speak: AtomicBool::new(record.enrolment == Enrolment::Approved),
            is_silent: AtomicBool::new(saved.silence.is_some()),
            changed_at: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                record,
                home: None,
                report: saved.report.map(Box::new),
                silence: saved.silence.map(Box::new),
                identity: saved.identity.map(Box::new),
                retired: None,
            }),
        })
    }

    /// The part behind the lock. Hold it briefly and never over an await.
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its certificate still opens anything.
    pub(crate) fn may_speak(&self) -> bool {
        self.may_speak.load(Ordering::Acquire)
    }

    /// Takes over what enrolment says now, and wakes held heartbeats when that is something for the node.
    pub(super) fn enrolled(&self, record: Arc<NodeRecord>) {
        let generation = record.desired.generation;
        let may_speak = record.enrolment == Enrolment::Approved;
        self.inner().record = record;
        let was_desired = self.desired_generation.swap(generation, Ordering::AcqRel);
        let might_speak = self.may_speak.swap(may_speak, Ordering::AcqRel);
        if was_desired != generation || might_speak != may_speak {
            self.wake.notify_waiters();
        }
    }

    /// The node was heard at `now` (time since the start).
    pub(crate) fn hear(&self, now: Duration) {
        self.heard_at.store(millis(now) + 1, Ordering::SeqCst);
    }

    /// Asks for its word at `now` (time since the start), by the heartbeat whose answer it waits for: the answer goes out
    /// at once and asks for the state. Without a held heartbeat, or sooner than `again` after the last question, nothing is
    /// asked.
    pub(crate) fn ask(&self, now: Duration, again: Duration) {
        let last = self.asked_at.load(Ordering::SeqCst);
        let soon = last > 0 && millis(now).saturating_sub(last) < millis(again);
        if soon || self.holding.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.asked_at.store(millis(now) + 1, Ordering::SeqCst);
        self.wake.notify_waiters();
    }

    /// Whether it was asked and has not spoken since.
    pub(crate) fn owes_word(&self) -> bool {
        self.asked_at.load(Ordering::SeqCst) > self.heard_at.load(Ordering::SeqCst)
    }

    /// Whether a question of this run is still open at `elapsed` although a living agent would have answered.
    pub(crate) fn has_not_answered(&self, elapsed: Duration, deaf_until: Duration) -> bool {
        self.is_unanswered(ANSWERED_WITHIN, elapsed, deaf_until)
    }

    fn is_unanswered(&self, within: Duration, elapsed: Duration, deaf_until: Duration) -> bool {
        let open = |at: &AtomicU64, within: Duration| {
            let at = at.load(Ordering::SeqCst);
            at > self.heard_at.load(Ordering::SeqCst)
                && at > millis(deaf_until)
                && millis(elapsed).saturating_sub(at) >= millis(within)
        };
        open(&self.asked_at, within) || open(&self.missed_at, UNANSWERED)
    }

    /// Whether its peers do not reach it, by the last judgement of its cluster.
    fn is_unreached(&self) -> bool {
        self.is_unreached.load(Ordering::SeqCst)
    }

    /// Its peers do not reach it at `now` (time since the start): its word is asked for. One that holds no heartbeat cannot
    /// be asked; a living one comes back by itself.
    pub(super) fn miss(&self, now: Duration, again: Duration) {
        self.is_unreached.store(true, Ordering::SeqCst);
        self.ask(now, again);
        if !self.owes_word() && self.missed_at.load(Ordering::SeqCst) <= self.heard_at.load(Ordering::SeqCst)
        {
            self.missed_at.store(millis(now) + 1, Ordering::SeqCst);
        }
    }

    /// Its peers are not known to miss it.
    pub(super) fn reached(&self) {
        // One that was missed and has not spoken since is no longer counted among those that could be.
        let heard_at = self.heard_at.load(Ordering::SeqCst);
        if !self.owes_word() && self.missed_at.load(Ordering::SeqCst) <= heard_at {
            self.is_unreached.store(false, Ordering::SeqCst);
        }
    }

    /// Whether nobody hears it: neither its peers, nor we when we asked.
    fn is_lost(&self, elapsed: Duration, deaf_until: Duration) -> bool {
        self.is_unreached() && self.is_unanswered(UNANSWERED, elapsed, deaf_until)
    }

    /// Counts a held heartbeat for as long as the guard lives.
    pub(crate) fn hold(self: &Arc<Self>) -> Holding {
        self.holding.fetch_add(1, Ordering::SeqCst);
        Holding(self.clone())
    }

    /// Whether `Ready` is judged here because the node is not heard.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::SeqCst)
    }

    /// Set together with [`Inner::silence`], under its lock.
    pub(super) fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// The node announced a heartbeat every so many seconds; 0 says nothing.
    pub(crate) fn announce_interval(&self, seconds: u32) {
        if seconds > 0 {
            self.interval_seconds.store(seconds, Ordering::Relaxed);
        }
    }

    /// When it was last heard in this run, as time since the start.
    pub(crate) fn heard_at(&self) -> Option<Duration> {
        self.heard_at.load(Ordering::SeqCst).checked_sub(1).map(Duration::from_millis)
    }

    /// Announced seconds between heartbeats; 0 when it has not said.
    pub(crate) fn interval_seconds(&self) -> u32 {
        self.interval_seconds.load(Ordering::Relaxed)
    }

    /// Time between heartbeats, by its own word or the default.
    pub(crate) fn interval(&self) -> Duration {
        match self.interval_seconds() {
            0 => hearing::DEFAULT_INTERVAL,
            seconds => Duration::from_secs(seconds.into()),
        }
    }

    /// Generation of the desired configuration, its share of probes included; 0 when nothing is desired.
    pub(crate) fn desired_generation(&self) -> u64 {
        let stored = self.desired_generation.load(Ordering::Acquire);
        probes::generation(stored, self.probe_share.load(Ordering::Acquire))
    }

    /// What is desired of it, its share of probes included.
    pub(crate) fn desired(&self) -> NodeConfig {
        let share = self.probe_share.load(Ordering::Acquire);
        probes::with_share(self.inner().record.desired.clone(), share)
    }

    /// Gives it a share of the fleet's probes, and wakes held heartbeats when that is another than before.
    pub(super) fn share_probes(&self, share: u32) {
        if self.probe_share.swap(share, Ordering::AcqRel) != share {
            self.wake.notify_waiters();
        }
    }

    /// Position of the feed at its last change.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at.load(Ordering::Relaxed)
    }

    /// The node changed while the feed stood at `position`.
    pub(crate) fn mark_changed(&self, position: u64) {
        self.changed_at.fetch_max(position, Ordering::Relaxed);
    }

    /// What is known of its voice at `elapsed` since the start, which is `now` by the wall clock. Before `deaf_until`
    /// this process could not have heard it ([`Fleet::stood_still`](super::Fleet::stood_still)).
    pub(crate) fn hearing(&self, elapsed: Duration, now: Timestamp, deaf_until: Duration) -> Hearing {
        let heard_at = self.heard_at();
        let since = heard_at.map_or(Duration::from_millis(self.listening_since), |at| at.max(deaf_until));
        let quiet = elapsed.saturating_sub(since);
        let inner = self.inner();
        let before = inner.report.as_ref().map(|r| r.last_seen);
        Hearing {
            quiet,
            heard_in_this_run: heard_at.is_some(),
            last_seen: heard_at.map_or(before, |at| Some(now.before(elapsed.saturating_sub(at)))),
            interval: self.interval(),
            is_lost: self.is_lost(elapsed, deaf_until),
            enrolled_at: inner.record.enrolled_at,
            clock_skew_ms: inner.record.clock_skew_ms,
            retired: inner.retired.clone(),
        }
    }

    /// True while nothing suggests that the node is not heard: the cheap question of every second.
    pub(crate) fn is_surely_heard(&self, elapsed: Duration, deaf_until: Duration, silent_after: u32) -> bool {
        let limit = hearing::limit(self.interval(), silent_after, self.is_lost(elapsed, deaf_until));
        self.heard_at().is_some_and(|at| elapsed.saturating_sub(at.max(deaf_until)) <= limit)
    }

    /// The node as it is shown.
    pub(crate) fn view(&self, elapsed: Duration, now: Timestamp) -> NodeView {
        let last_seen = self.hearing(elapsed, now, Duration::ZERO).last_seen;
        let inner = self.inner();
        let record = &inner.record;
        let report = inner.report.as_deref();
        let state = report.and_then(|r| r.state.as_deref());
        let conditions = inner.conditions();
        NodeView {
            meta: TypeMeta::new("Node"),
            name: record.name.clone(),
            uid: record.uid.clone(),
            cluster: inner.cluster().to_owned(),
            reported_cluster: inner.reported_cluster().to_owned(),
            profile: report.map_or_else(|| record.profile.clone(), |r| r.profile.clone()),
            simulated: inner.is_simulated(),
            ready: inner.ready(),
            last_seen,
            enrolled_at: record.enrolled_at,
            agent_version: report.map_or_else(String::new, |r| r.agent_version.to_string()),
            zone: state.map_or_else(String::new, |s| s.zone.clone()),
            region: state.map_or_else(String::new, |s| s.region.clone()),
            labels: record.labels.clone(),
            identity: state.map_or_else(|| record.identity.clone(), |s| s.identity.clone()),
            enrolment: record.enrolment.as_str().to_owned(),
            conditions,
        }
    }
}

pub(super) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX - 1)
}

impl Inner {
    /// Cluster it is counted in and shown under: the one an operator desires, else the one it was admitted with. What a
    /// node says later moves it nowhere: a member's word counts in the verdict over its cluster, so that choosing the
    /// cluster would be speaking for others.
    pub(crate) fn cluster(&self) -> &str {
        self.record.desired.spec.cluster.as_deref().unwrap_or(&self.record.cluster)
    }

    /// The cluster the node itself names, where it is another; empty otherwise.
    pub(crate) fn reported_cluster(&self) -> &str {
        let said = self.report.as_deref().map_or("", |report| &report.cluster);
        if said == self.cluster() { "" } else { said }
    }

    /// Whether it is a simulated node; once said, it stays said.
    pub(crate) fn is_simulated(&self) -> bool {
        self.record.simulated || self.report.as_ref().is_some_and(|r| r.simulated)
    }

    /// The state last reported.
    pub(crate) fn state(&self) -> Option<&Arc<NodeState>> {
        self.report.as_ref()?.state.as_ref()
    }

    /// Whether it is heard, whatever it says of itself.
    pub(crate) fn heard(&self) -> Status {
        if self.silence.is_some() { Status::Unknown } else { Status::True }
    }

    /// Its deleted machine, while it is silent: nothing waits for it then.
    pub(crate) fn retired_as(&self) -> Option<&Arc<Retired>> {
        self.retired.as_ref().filter(|_| self.silence.is_some())
    }

    /// `Ready` in force: the coordinator's while the node is not heard, else the node's own. Of a node that may not
    /// speak nothing is known.
    pub(crate) fn ready(&self) -> Status {
        if self.record.enrolment != Enrolment::Approved {
            return Status::Unknown;
        }
        if let Some(latch) = &self.silence {
            return latch.condition.status;
        }
        let own = self.state().and_then(|s| own_ready(s));
        own.map_or(Status::Unknown, |c| c.status)
    }

    /// Calls `f` with every condition in force, in no order: the node's own, but for those judged here.
    pub(crate) fn each_condition(&self, mut f: impl FnMut(&Condition)) {
        let judged = || [&self.silence, &self.identity].into_iter().flatten().map(|latch| &latch.condition);
        let own = self.state().map_or(&[][..], |s| &s.conditions);
        own.iter().filter(|c| judged().all(|j| j.key() != c.key())).for_each(&mut f);
        judged().for_each(f);
    }

    /// Every condition in force, in the order of types, then subjects.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let mut all = Vec::new();
        self.each_condition(|c| all.push(c.clone()));
        all.sort_by(|a, b| a.key().cmp(&b.key()));
        all
    }
}

/// The node's own `Ready`.
pub(crate) fn own_ready(state: &NodeState) -> Option<&Condition> {
    state.conditions.iter().find(|c| c.condition_type == ConditionType::Ready && c.subject.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_node() -> Arc<Node> {
        let record = serde_json::json!({
            "uid": "u", "name": "n", "profile": "generic", "identity": {}, "enrolment": "approved",
            "enrolledAt": "2026-01-01T00:00:00Z", "tokenId": "t", "keyHash": "k",
            "desired": {"apiVersion": "v", "kind": "NodeConfig", "generation": 0, "spec": {}},
        });
        Node::new(Arc::new(serde_json::from_value(record).unwrap()), SavedNode::default(), Duration::ZERO)
    }

    #[test]
    fn a_question_that_could_not_be_put_is_no_silence() {
        let s = Duration::from_secs;
        let node = a_node();
        node.hear(s(10));
        node.ask(s(20), s(15));
        assert!(!node.owes_word(), "no heartbeat was held");
        let held = node.hold();
        node.ask(s(20), s(15));
        assert!(
            node.owes_word() && !node.has_not_answered(s(21), s(0)) && node.has_not_answered(s(23), s(0))
        );
        assert!(!node.has_not_answered(s(23), s(21)), "this process stood still meanwhile");
        node.hear(s(24));
        assert!(!node.owes_word() && !node.has_not_answered(s(60), s(0)));
        node.ask(s(30), s(15));
        assert!(!node.owes_word(), "asked too soon after the last time");
        node.ask(s(40), s(15));
        assert!(node.owes_word());
        drop(held);
        node.hear(s(41));
        node.ask(s(90), s(15));
        assert!(!node.owes_word(), "the guard is gone");
    }

    #[test]
    fn silence_is_not_counted_while_this_process_stood_still() {
        let s = Duration::from_secs;
        let node = a_node();
        node.announce_interval(10);
        node.hear(s(100));
        let now = Timestamp::from_seconds(1_796_000_000);
        assert!(node.is_surely_heard(s(130), s(0), 3) && !node.is_surely_heard(s(140), s(0), 3));
        // It was stopped from 101 to 1000.
        assert!(node.is_surely_heard(s(1030), s(1000), 3) && !node.is_surely_heard(s(1031), s(1000), 3));
        let hearing = node.hearing(s(1030), now, s(1000));
        assert_eq!((hearing.quiet, hearing.last_seen), (s(30), Some(now.before(s(930)))));
    }
}
