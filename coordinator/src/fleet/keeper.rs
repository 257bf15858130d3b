//! The loop that judges: silence every second, clusters when a member changed and, for what only time changes, every
//! few seconds. Each turn costs time in proportion to the nodes, and none of it waits for the store.

use std::sync::Arc;
use std::time::Duration;

use outrider_diagnosis::{Judgement, latch};
use outrider_protocol::{Condition, Latch, ReasonCode, Severity, Status, Timestamp, Transition};
use tokio::time::MissedTickBehavior;

use super::node::own_ready;
use super::{Cluster, Fleet, Node, hearing};
use crate::enrol::Registrar;
use crate::store::Origin;

/// Time between looks at who is silent.
const TURN: Duration = Duration::from_secs(1);
/// A turn that comes this late tells of a process that did not run: stopped, or on a machine that was paused.
const STOOD_STILL: Duration = Duration::from_secs(5);
/// Reports that arrive within this time are judged together.
const COALESCE: Duration = Duration::from_millis(100);
/// Turns between judgements of clusters in which nothing was reported and nothing waits to be shown.
const TURNS_PER_REVIEW: u32 = 3;

/// Turns between two sharings of the probes at load balancers.
const TURNS_PER_SHARING: u32 = 30;

/// Judges until it is dropped. `progress` is called every turn: the watchdog lives on it.
pub(crate) async fn keep(fleet: Arc<Fleet>, registrar: Arc<Registrar>, progress: impl Fn()) {
    let mut turn = tokio::time::interval(TURN);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut turns = 0_u32;
    let mut last = fleet.clock.elapsed();
    loop {
        tokio::select! {
            _ = turn.tick() => {
                let elapsed = fleet.clock.elapsed();
                let late = elapsed.saturating_sub(last);
                if late >= STOOD_STILL {
                    log::warn!("this process stood still for {}; silence is counted anew", hearing::words(late));
                    fleet.stood_still(elapsed);
                }
                last = elapsed;
                fleet.judge_silence();
                for cluster in fleet.doubtful.take() {
                    fleet.to_judge.add(&cluster.name, &cluster);
                }
                turns = turns.wrapping_add(1);
                fleet.review_clusters(|cluster| cluster.is_pending());
                if turns.is_multiple_of(TURNS_PER_REVIEW) {
                    fleet.review_clusters(|cluster| cluster.has_etcd());
                    fleet.review_identities(&registrar);
                }
                if turns.is_multiple_of(TURNS_PER_SHARING) {
                    fleet.share_probes();
                }
                progress();
            }
            () = fleet.to_judge.rung() => {
                tokio::time::sleep(COALESCE).await;
                fleet.judge_clusters();
            }
        }
    }
}

impl Fleet {
    /// Looks at every node that may be silent.
    pub(crate) fn judge_silence(&self) {
        let (elapsed, now) = (self.clock.elapsed(), self.clock.now());
        let doubtful: Vec<Arc<Node>> = {
            let index = self.read();
            let speaking = index.by_uid.values().filter(|n| n.may_speak());
            let deaf_until = self.deaf_until();
            speaking.filter(|n| !n.is_surely_heard(elapsed, deaf_until, self.silent_after)).cloned().collect()
        };
        for node in doubtful {
            self.judge_silence_of(&node, elapsed, now);
        }
    }

    pub(super) fn judge_silence_of(&self, node: &Arc<Node>, elapsed: Duration, now: Timestamp) {
        let deaf_until = self.deaf_until();
        let heard = node.hearing(elapsed, now, deaf_until);
        let Some(finding) = hearing::judge(&heard, self.silent_after, now) else { return };
        let judgement = Judgement { findings: vec![finding], ..Judgement::default() };
        let transitions = {
            let mut inner = node.inner();
            // Marked before the last look: a word that comes in between either is seen here or sees the mark.
            node.set_silent(true);
            if node.is_surely_heard(self.clock.elapsed(), deaf_until, self.silent_after) {
                node.set_silent(inner.silence.is_some());
                return;
            }
            let previous: Vec<Latch> = match (&inner.silence, inner.state().and_then(|s| own_ready(s))) {
                (Some(latch), _) => vec![(**latch).clone()],
                (None, Some(own)) => vec![Latch { condition: own.clone(), pending: None }],
                (None, None) => Vec::new(),
            };
            let mut latched = latch(&previous, &judgement, now);
            inner.silence = latched.latches.pop().map(Box::new);
            latched.transitions
        };
        for transition in transitions {
            self.node_changed(node);
            self.member_changed(node);
            self.unsaved_nodes.add(&node.uid, node);
            // That a node has yet to report is shown at once, but is no news until it has taken too long.
            let is_news = transition.condition.reason != ReasonCode::NodeNeverReported
                || transition.condition.severity >= Severity::Warn;
            if is_news {
                self.announce_node(node, transition);
            }
        }
    }

    /// Takes over what the registrar says of a node's identity.
    pub(crate) fn judge_identity(&self, node: &Arc<Node>, registrar: &Registrar) {
        let now = self.clock.now();
        let mut condition = registrar.identity_condition(&node.uid, now);
        let transition = {
            let mut inner = node.inner();
            let before = inner.identity.as_ref().map(|latch| latch.condition.clone());
            let is_same = |b: &Condition| b.status == condition.status && b.reason == condition.reason;
            match &before {
                None if condition.status == Status::True => return,
                Some(b) if is_same(b) => {
                    condition.last_transition_time = b.last_transition_time;
                    inner.identity = Some(Box::new(Latch { condition, pending: None }));
                    return;
                }
                _ => {}
            }
            inner.identity = Some(Box::new(Latch { condition: condition.clone(), pending: None }));
            Transition {
                at: now,
                condition,
                previous_status: before.as_ref().map(|b| b.status),
                previous_reason: before.map(|b| b.reason),
                removed: false,
                merged: 0,
            }
        };
        self.node_changed(node);
        self.unsaved_nodes.add(&node.uid, node);
        self.announce_node(node, transition);
    }

    /// Looks again at every node whose identity was in doubt: it clears when the twin is gone.
    fn review_identities(&self, registrar: &Registrar) {
        let doubted: Vec<Arc<Node>> = {
            let index = self.read();
            let doubted = |n: &&Arc<Node>| {
                n.inner().identity.as_ref().is_some_and(|latch| latch.condition.status != Status::True)
            };
            index.by_uid.values().filter(doubted).cloned().collect()
        };
        for node in doubted {
            self.judge_identity(&node, registrar);
        }
    }

    /// Queues every cluster whose verdict may change by time alone, as `due` tells.
    fn review_clusters(&self, due: impl Fn(&Cluster) -> bool) {
        for cluster in self.clusters() {
            if due(&cluster) {
                self.to_judge.add(&cluster.name, &cluster);
            }
        }
    }

    /// Judges the clusters that wait for it.
    pub(crate) fn judge_clusters(&self) {
        for cluster in self.to_judge.take() {
            let elapsed = self.clock.elapsed();
            let verdict = cluster.judge(self.clock.now(), elapsed, self.deaf_until());
            if let Some(doubt) = verdict.doubt {
                // A machine that is off cannot say so; that it does not answer says it long before its silence does.
                cluster.ask(elapsed, doubt);
            }
            if verdict.doubt.is_some() || verdict.is_waiting {
                self.doubtful.add(&cluster.name, &cluster);
            }
            if verdict.is_new {
                cluster.mark_changed(self.position());
                self.changed_clusters.add(&cluster.name, &cluster);
            }
            if !verdict.transitions.is_empty() {
                self.unsaved_clusters.add(&cluster.name, &cluster);
            }
            for transition in verdict.transitions {
                let name = cluster.name.to_string();
                self.announcements.add(Origin { uid: format!("cluster/{name}"), name }, transition);
            }
        }
    }
}
