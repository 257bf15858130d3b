//! Taking a report into memory, after its transitions were stored.

use std::sync::Arc;
use std::time::Duration;

use outrider_diagnosis::fleet::trim;
use outrider_protocol::{Fact, NodeReport, NodeState, Timestamp, Transition};

use super::node::{LastReport, own_ready};
use super::{Fleet, Node, hearing};

/// Two connections may deliver two states in the wrong order within this time; beyond it, an older clock was set back.
const REORDERED_WITHIN: Duration = Duration::from_secs(60);

impl Fleet {
    /// Takes over what a report says. `acknowledged` is the highest sequence of its epoch that is stored.
    pub(crate) fn take(&self, node: &Arc<Node>, report: NodeReport, acknowledged: u64) {
        let (now, elapsed) = (self.clock.now(), self.clock.elapsed());
        let changed = {
            let mut inner = node.inner();
            let before = inner.report.take();
            let state = newer_state(before.as_deref(), &report).then(|| report.state.map(pack));
            let (state, changed) = match (state, before.as_deref()) {
                (Some(Some(state)), before) => {
                    let told = before.and_then(|b| b.state.as_ref());
                    let is_new =
                        told.is_none_or(|t| t.digest != state.digest || t.conditions != state.conditions);
                    (Some(state), Changed { shown: is_new, member: true })
                }
                (_, before) => {
                    (before.and_then(|b| b.state.clone()), Changed { shown: false, member: false })
                }
            };
            // When the state was sent belongs to it, and not to a report without one that came after it.
            let (last_state_at, state_sent_at, state_heard) = match before.as_deref() {
                Some(b) if !changed.member => (b.last_state_at, b.state_sent_at, b.state_heard),
                _ => (now, Some(report.sent_at), Some(elapsed)),
            };
            let next = LastReport {
                epoch: report.epoch,
                acknowledged,
                generation: report.generation,
                agent_version: report.agent_version.into(),
                cluster: report.node.cluster.into(),
                profile: report.node.profile,
                simulated: report.node.simulated || before.as_ref().is_some_and(|b| b.simulated),
                sent_at: report.sent_at,
                last_seen: now,
                last_state_at,
                state_sent_at,
                state_heard,
                interval_seconds: node.interval_seconds(),
                state,
            };
            let moved = before.as_ref().is_none_or(|b| {
                b.cluster != next.cluster
                    || b.profile != next.profile
                    || b.simulated != next.simulated
                    || b.agent_version != next.agent_version
            });
            let spoke = before.as_ref().is_none_or(|b| b.cluster != next.cluster);
            inner.report = Some(Box::new(next));
            if spoke && !inner.reported_cluster().is_empty() {
                log::warn!(
                    "node {} says it is of cluster {:?} and stays in {:?}: only an operator moves a node, with \
                     spec.cluster of its configuration",
                    inner.record.name,
                    inner.reported_cluster(),
                    inner.cluster()
                );
            }
            Changed { shown: changed.shown || moved, ..changed }
        };
        self.settle(node);
        if changed.shown {
            self.node_changed(node);
        }
        if changed.member {
            self.member_changed(node);
        }
        self.unsaved_nodes.add(&node.uid, node);
    }

    /// The node was heard just now: ends its silence if it was silent.
    pub(crate) fn hear(&self, node: &Arc<Node>) {
        node.hear(self.clock.elapsed());
        if node.is_silent() {
            self.end_silence(node);
        }
    }

    fn end_silence(&self, node: &Arc<Node>) {
        let now = self.clock.now();
        let transition = {
            let mut inner = node.inner();
            let Some(was) = inner.silence.take() else { return };
            node.set_silent(false);
            let own = inner.state().and_then(|s| own_ready(s)).cloned();
            let before = &was.condition;
            // A first word is no news: the node's own transitions tell it.
            let was_told = before.reason == outrider_protocol::ReasonCode::NodeSilent;
            was_told.then(|| Transition {
                at: now,
                condition: own.unwrap_or_else(|| hearing::heard(now)),
                previous_status: Some(before.status),
                previous_reason: Some(before.reason.clone()),
                removed: false,
                merged: 0,
            })
        };
        if let Some(transition) = transition {
            self.announce_node(node, transition);
        }
        self.node_changed(node);
        self.member_changed(node);
        self.unsaved_nodes.add(&node.uid, node);
    }

    /// A fact that the verdict over the node's cluster rests on changed.
    pub(super) fn member_changed(&self, node: &Node) {
        let home = node.inner().home.clone();
        if let Some(home) = home {
            self.to_judge.add(&home.name, &home);
        }
    }
}

struct Changed {
    /// What people see changed.
    shown: bool,
    /// What the cluster is judged by may have changed.
    member: bool,
}

/// False for a state that a newer one of the same spool has overtaken.
fn newer_state(before: Option<&LastReport>, report: &NodeReport) -> bool {
    let Some(before) = before.filter(|b| b.epoch == report.epoch && b.state.is_some()) else { return true };
    let behind = before.sent_at.since(report.sent_at);
    behind.is_zero() || behind > REORDERED_WITHIN
}

/// The state without what no verdict here reads and without the room its vectors grew into: it stays for long, and there
/// are many.
fn pack(mut state: NodeState) -> Arc<NodeState> {
    if let Some(Fact::Known { value, .. }) = &mut state.etcd {
        trim(value);
    }
    state.conditions.shrink_to_fit();
    state.identity.macs.shrink_to_fit();
    state.identity.addresses.shrink_to_fit();
    Arc::new(state)
}

/// When a node was last seen, for the store.
pub(super) fn last_seen(fleet: &Fleet, node: &Node) -> Option<Timestamp> {
    node.heard_at().map(|at| fleet.clock.wall_of(at))
}
