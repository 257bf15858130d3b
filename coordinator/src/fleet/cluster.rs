//! One cluster: its members and the verdict over all their reports together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outrider_diagnosis::fleet::{Member, Received, judge_cluster, matrices, picture, unreached};
use outrider_diagnosis::latch;
use outrider_protocol::{
    ClusterView, Condition, ConditionType, Fact, Latch, NodeState, ReasonCode, Status, Timestamp, Transition,
    TypeMeta,
};

use super::{Node, Retired};
use crate::enrol::NodeRecord;

/// A cluster.
pub(crate) struct Cluster {
    pub(crate) name: Arc<str>,
    /// Members by uid.
    members: Mutex<BTreeMap<Arc<str>, Arc<Node>>>,
    judged: Mutex<Judged>,
    changed_at: AtomicU64,
}

#[derive(Default)]
struct Judged {
    latches: Vec<Latch>,
    conditions: Vec<Condition>,
}

/// Why the members' word is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Quorum may be lost.
    Suspected,
    /// Quorum holds by the word of some, and others get no answer.
    Contested,
}

impl Doubt {
    /// A question is not put again sooner. A suspicion may need an answer that is newer than the first one; a cluster that
    /// stays split is watched more calmly, and yet more closely than silence would tell.
    fn asked_again(self) -> Duration {
        match self {
            Doubt::Suspected => Duration::from_secs(1),
            Doubt::Contested => Duration::from_secs(5),
        }
    }
}

/// What a judgement changed.
pub(crate) struct Verdict {
    pub(crate) transitions: Vec<Transition>,
    /// Something that is shown changed, if only a number in a message.
    pub(crate) is_new: bool,
    /// Whether quorum is lost cannot be told from what was reported, or hangs on the word of those who are heard: some node
    /// gets no answer while others did.
    pub(crate) doubt: Option<Doubt>,
    /// The word of some nodes is waited for because others do not reach them.
    pub(crate) is_waiting: bool,
}

impl Cluster {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, members: Mutex::default(), judged: Mutex::default(), changed_at: AtomicU64::new(0) }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Node>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judged(&self) -> MutexGuard<'_, Judged> {
        self.judged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a member; true when it was none before.
    pub(super) fn join(&self, node: &Arc<Node>) -> bool {
        self.members().insert(node.uid.clone(), node.clone()).is_none()
    }

    /// Removes a member; true when it was one.
    pub(super) fn leave(&self, uid: &str) -> bool {
        self.members().remove(uid).is_some()
    }

    /// Its members by uid.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.members().values().cloned().collect()
    }

    /// Whether any living node belongs to it.
    pub(crate) fn is_inhabited(&self) -> bool {
        !self.members().is_empty()
    }

    /// Position of the feed at its last change.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at.load(Ordering::Relaxed)
    }

    /// The cluster changed while the feed stood at `position`.
    pub(crate) fn mark_changed(&self, position: u64) {
        self.changed_at.fetch_max(position, Ordering::Relaxed);
    }

    /// Latches, as they are stored.
    pub(crate) fn latches(&self) -> Vec<Latch> {
        self.judged().latches.clone()
    }

    /// Takes over latches of an earlier run, unless this one has judged already.
    pub(crate) fn restore(&self, latches: Vec<Latch>) {
        let mut judged = self.judged();
        if judged.latches.is_empty() {
            judged.conditions = latches.iter().map(|l| l.condition.clone()).collect();
            judged.latches = latches;
        }
    }

    /// True when a member reports etcd, its network or its tries at a balancer, so that silence and time can change the
    /// verdict.
    pub(crate) fn has_etcd(&self) -> bool {
        let members: Vec<_> = self.members().values().cloned().collect();
        let tells = |s: &NodeState| s.etcd.is_some() || s.network.is_some() || !s.paths.is_empty();
        members.iter().any(|n| n.inner().state().is_some_and(|s| tells(s)))
            || !self.judged().latches.is_empty()
    }

    /// True while a verdict waits to be shown.
    pub(crate) fn is_pending(&self) -> bool {
        self.judged().latches.iter().any(|latch| latch.pending.is_some())
    }

    /// What is known of each member, by name. Copied out: no lock of a member is held while the rules run.
    /// A node that was asked for its word and owes it counts as not heard (`elapsed` is the time since the start).
    fn known(&self, now: Timestamp, elapsed: Duration, deaf_until: Duration) -> Vec<Known> {
        let mut known: Vec<Known> = self
            .members()
            .values()
            .map(|node| {
                let owes = node.has_not_answered(elapsed, deaf_until);
                let inner = node.inner();
                let ready = if owes { Status::Unknown } else { inner.heard() };
                let received = inner.report.as_ref().and_then(|r| r.received(now, elapsed));
                let heard = node.heard_at().map(|at| now.before(elapsed.saturating_sub(at)));
                let retired = inner.retired_as().cloned();
                Known {
                    record: inner.record.clone(),
                    ready,
                    state: inner.state().cloned(),
                    received,
                    heard,
                    retired,
                }
            })
            .collect();
        known.sort_by(|a, b| a.record.name.cmp(&b.record.name));
        known
    }

    /// Asks every member with etcd for its word: whether quorum holds hangs on who is still there.
    pub(crate) fn ask(&self, elapsed: Duration, doubt: Doubt) {
        let members: Vec<_> = self.members().values().cloned().collect();
        let with_etcd = |n: &&Arc<Node>| n.inner().state().is_some_and(|s| s.etcd.is_some());
        members.iter().filter(with_etcd).for_each(|node| node.ask(elapsed, doubt.asked_again()));
    }

    /// Asks nodes whose members others do not reach: a machine that is off cannot say so. True while there is one.
    fn ask_unreached(&self, unreached: &[&str], elapsed: Duration) -> bool {
        for node in self.nodes() {
            let is_unreached = unreached.contains(&node.inner().record.name.as_str());
            if is_unreached {
                node.miss(elapsed, Doubt::Contested.asked_again());
            } else {
                node.reached();
            }
        }
        !unreached.is_empty()
    }

    /// Judges the members' reports at `now`, which is `elapsed` since the start, and latches the verdict.
    pub(crate) fn judge(&self, now: Timestamp, elapsed: Duration, deaf_until: Duration) -> Verdict {
        let known = self.known(now, elapsed, deaf_until);
        let views: Vec<Member<'_>> = known.iter().map(Known::as_member).collect();
        let judgement = judge_cluster(&self.name, &views, now);
        let is_waiting = self.ask_unreached(&unreached(&views, now), elapsed);
        let quorum = judgement.findings.iter().find(|f| f.condition_type == ConditionType::EtcdQuorum);
        let doubt = quorum.and_then(|f| match f.status {
            Status::Unknown if f.reason == ReasonCode::EtcdQuorumSuspected => Some(Doubt::Suspected),
            Status::True if known.iter().any(Known::has_no_read) => Some(Doubt::Contested),
            _ => None,
        });
        let mut judged = self.judged();
        let latched = latch(&judged.latches, &judgement, now);
        let is_new = !same_but_for_time(&latched.conditions, &judged.conditions);
        judged.latches = latched.latches;
        judged.conditions = latched.conditions;
        let is_new = is_new || !latched.transitions.is_empty();
        Verdict { is_new, doubt, is_waiting, transitions: latched.transitions }
    }

    /// Calls `f` with every condition over the cluster.
    pub(crate) fn each_condition(&self, f: impl FnMut(&Condition)) {
        self.judged().conditions.iter().for_each(f);
    }

    /// The cluster as it is shown.
    pub(crate) fn view(&self, now: Timestamp, elapsed: Duration, deaf_until: Duration) -> ClusterView {
        let known = self.known(now, elapsed, deaf_until);
        let views: Vec<Member<'_>> = known.iter().map(Known::as_member).collect();
        ClusterView {
            meta: TypeMeta::new("Cluster"),
            name: self.name.to_string(),
            nodes: known.iter().filter(|k| k.retired.is_none()).map(|k| k.record.name.clone()).collect(),
            conditions: self.judged().conditions.clone(),
            etcd: picture(&views, now),
            paths: matrices(&views),
        }
    }
}

/// A member as the rules are told of it.
struct Known {
    record: Arc<NodeRecord>,
    ready: Status,
    state: Option<Arc<NodeState>>,
    received: Option<Received>,
    heard: Option<Timestamp>,
    retired: Option<Arc<Retired>>,
}

impl Known {
    /// Whether the node is heard and says that nobody answers its linearizable reads.
    fn has_no_read(&self) -> bool {
        let etcd = self.state.as_ref().and_then(|s| s.etcd.as_ref()).and_then(Fact::value);
        self.ready == Status::True && etcd.is_some_and(|e| e.no_read_since.is_some())
    }

    fn as_member(&self) -> Member<'_> {
        let state = self.state.as_deref();
        Member {
            name: &self.record.name,
            ready: self.ready,
            zone: state.map_or("", |s| &s.zone),
            region: state.map_or("", |s| &s.region),
            etcd: state.and_then(|s| s.etcd.as_ref()),
            network: state.and_then(|s| s.network.as_ref()),
            received: self.received,
            heard: self.heard,
            retired: self.retired.as_deref().map(|retired| retired.machine.as_str()),
            addresses: state.map_or(&[], |s| s.identity.addresses.as_slice()),
            paths: state.map_or(&[], |s| s.paths.as_slice()),
        }
    }
}

fn same_but_for_time(a: &[Condition], b: &[Condition]) -> bool {
    let told = |c: &Condition| {
        (
            c.condition_type.clone(),
            c.subject.clone(),
            c.status,
            c.severity,
            c.reason.clone(),
            c.message.clone(),
        )
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| told(a) == told(b))
}
