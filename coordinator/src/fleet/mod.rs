//! The fleet in memory: every node, every cluster, and what is judged of them.
//!
//! Reads and alarms come from here, so that they go on while the store is away. [`node`] holds one node, [`cluster`]
//! the verdict over its members, [`hearing`] the rule of silence; [`report`] takes reports in, [`keeper`] is the loop
//! that judges, [`saver`] writes behind.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use outrider_protocol::{ClusterView, NodeView, Transition};

mod announce;
mod clock;
mod cluster;
mod coalesced;
mod hearing;
pub(crate) mod keeper;
pub(crate) mod node;
mod peers;
mod probes;
mod report;
pub(crate) mod saver;

pub(crate) use announce::Announcements;
pub(crate) use clock::Clock;
pub(crate) use cluster::Cluster;
pub(crate) use coalesced::Coalesced;
pub(crate) use hearing::Retired;
pub(crate) use node::{LastReport, Node};

use crate::enrol::{Enrolment, NodeRecord};
use crate::store::Origin;
use saver::SavedNode;

/// Every node and cluster by name.
#[derive(Default)]
struct Index {
    by_uid: HashMap<Arc<str>, Arc<Node>>,
    by_name: BTreeMap<Arc<str>, Arc<Node>>,
    clusters: BTreeMap<Arc<str>, Arc<Cluster>>,
}

/// The fleet.
pub(crate) struct Fleet {
    pub(crate) clock: Clock,
    /// Intervals without a word after which a node is silent.
    pub(crate) silent_after: u32,
    /// Nodes that changed since the feed last looked.
    pub(crate) changed_nodes: Coalesced<Node>,
    /// Clusters that changed since the feed last looked.
    pub(crate) changed_clusters: Coalesced<Cluster>,
    /// Clusters of which a member changed.
    pub(crate) to_judge: Coalesced<Cluster>,
    /// Clusters whose quorum is in doubt: the next turn looks again.
    pub(crate) doubtful: Coalesced<Cluster>,
    /// Nodes whose state is newer than the store's.
    pub(crate) unsaved_nodes: Coalesced<Node>,
    /// Clusters whose latches are newer than the store's.
    pub(crate) unsaved_clusters: Coalesced<Cluster>,
    /// Transitions the coordinator itself found, on their way to the history.
    pub(crate) announcements: Announcements,
    /// Position of the newest event of the history.
    position: AtomicU64,
    /// Milliseconds from the start to when this process last went on after it had stood still.
    deaf_until: AtomicU64,
    index: RwLock<Index>,
    /// One node at a time changes its cluster.
    settling: Mutex<()>,
}

impl Fleet {
    /// An empty fleet.
    pub(crate) fn new(clock: Clock, silent_after: u32) -> Arc<Self> {
        Arc::new(Self {
            clock,
            silent_after: silent_after.max(1),
            changed_nodes: Coalesced::default(),
            changed_clusters: Coalesced::default(),
            to_judge: Coalesced::default(),
            doubtful: Coalesced::default(),
            unsaved_nodes: Coalesced::default(),
            unsaved_clusters: Coalesced::default(),
            announcements: Announcements::default(),
            position: AtomicU64::new(0),
            deaf_until: AtomicU64::new(0),
            index: RwLock::default(),
            settling: Mutex::default(),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Position of the newest event known; where a watch may start from.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    /// The history reached `position`.
    pub(crate) fn advance(&self, position: u64) {
        self.position.fetch_max(position, Ordering::AcqRel);
    }

    /// This process stood still and goes on at `elapsed` after its start. As after a restart, the silence of those that
    /// were heard is counted from here: whoever is deaf cannot call others silent.
    pub(crate) fn stood_still(&self, elapsed: Duration) {
        self.deaf_until.fetch_max(node::millis(elapsed), Ordering::AcqRel);
    }

    /// Time from the start before which silence says nothing.
    pub(crate) fn deaf_until(&self) -> Duration {
        Duration::from_millis(self.deaf_until.load(Ordering::Acquire))
    }

    /// The node of this uid.
    pub(crate) fn by_uid(&self, uid: &str) -> Option<Arc<Node>> {
        self.read().by_uid.get(uid).cloned()
    }

    /// The node of this name: the living one, where a machine was rebuilt.
    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Node>> {
        self.read().by_name.get(name).cloned()
    }

    /// The cluster of this name.
    pub(crate) fn cluster(&self, name: &str) -> Option<Arc<Cluster>> {
        self.read().clusters.get(name).cloned().filter(|c| c.is_inhabited())
    }

    /// At most `limit` nodes whose name comes after `after`, by name.
    pub(crate) fn nodes_after(&self, after: &str, limit: usize) -> Vec<Arc<Node>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let index = self.read();
        let range = index.by_name.range::<str, _>((Excluded(after), Unbounded));
        range.take(limit).map(|(_, node)| node.clone()).collect()
    }

    /// Every node by name.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.read().by_name.values().cloned().collect()
    }

    /// Uid of every node, also of those that are not shown any more.
    pub(crate) fn uids(&self) -> Vec<Arc<str>> {
        self.read().by_uid.keys().cloned().collect()
    }

    /// Every cluster that has members, by name.
    pub(crate) fn clusters(&self) -> Vec<Arc<Cluster>> {
        self.read().clusters.values().filter(|c| c.is_inhabited()).cloned().collect()
    }

    /// Takes over what enrolment says of a node, known before or not.
    pub(crate) fn enrol(&self, record: Arc<NodeRecord>, saved: impl FnOnce() -> SavedNode) -> Arc<Node> {
        let mut index = self.write();
        let node = match index.by_uid.get(record.uid.as_str()) {
            Some(node) => {
                let node = node.clone();
                let before = node.inner().record.clone();
                let held = index.by_name.get(before.name.as_str()).is_some_and(|n| n.uid == node.uid);
                if before.name != record.name && held {
                    index.by_name.remove(before.name.as_str());
                }
                node.enrolled(record.clone());
                node
            }
            None => {
                let node = Node::new(record.clone(), saved(), self.clock.elapsed());
                index.by_uid.insert(node.uid.clone(), node.clone());
                node
            }
        };
        let rank = |r: &NodeRecord| {
            let standing = match r.enrolment {
                Enrolment::Approved => 2,
                Enrolment::Pending => 1,
                Enrolment::Revoked | Enrolment::Superseded => 0,
            };
            (standing, r.enrolled_at)
        };
        let holder = index.by_name.get(record.name.as_str()).cloned();
        if record.enrolment == Enrolment::Superseded {
            // Another record took its machine's place; it is kept by uid only, to tell the old certificate so.
            if holder.is_some_and(|holder| holder.uid == node.uid) {
                index.by_name.remove(record.name.as_str());
            }
        } else if holder.is_none_or(|h| h.uid == node.uid || rank(&record) >= rank(&h.inner().record)) {
            index.by_name.insert(record.name.as_str().into(), node.clone());
        }
        drop(index);
        self.settle(&node);
        self.node_changed(&node);
        // Until its first word it is shown as what it is, from the first moment on.
        if node.may_speak() && node.heard_at().is_none() {
            self.judge_silence_of(&node, self.clock.elapsed(), self.clock.now());
        }
        node
    }

    /// Takes over whether a node's virtual machine is deleted.
    pub(crate) fn retire(&self, uid: &str, retired: Option<Arc<Retired>>) {
        let Some(node) = self.by_uid(uid) else { return };
        node.inner().retired = retired;
        // It says so, or no longer, from the next look at who is silent on.
        if let Some(home) = node.inner().home.clone() {
            self.cluster_changed(&home);
        }
    }

    /// Forgets a node that the store no longer has.
    pub(crate) fn forget(&self, uid: &str) {
        let mut index = self.write();
        let Some(node) = index.by_uid.remove(uid) else { return };
        let name = node.inner().record.name.clone();
        if index.by_name.get(name.as_str()).is_some_and(|n| n.uid == node.uid) {
            index.by_name.remove(name.as_str());
        }
        drop(index);
        let home = node.inner().home.take();
        if let Some(left) = home.filter(|c| c.leave(&node.uid)) {
            self.cluster_changed(&left);
        }
    }

    /// Puts a node into the cluster it belongs to and takes it out of the one it was in.
    fn settle(&self, node: &Arc<Node>) {
        let move_of = |node: &Node| {
            let inner = node.inner();
            let is_living = inner.record.enrolment == Enrolment::Approved;
            let wanted = if is_living { inner.cluster() } else { "" };
            let is_home = inner.home.as_ref().map_or("", |c| &c.name) == wanted;
            (!is_home).then(|| (wanted.to_owned(), inner.home.clone()))
        };
        if move_of(node).is_none() {
            return;
        }
        let _one_at_a_time = self.settling.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((wanted, before)) = move_of(node) else { return };
        let home = if wanted.is_empty() { None } else { Some(self.found(&wanted)) };
        node.inner().home = home.clone();
        if let Some(left) = before.filter(|c| c.leave(&node.uid)) {
            self.cluster_changed(&left);
        }
        if let Some(home) = home.filter(|c| c.join(node)) {
            self.cluster_changed(&home);
        }
    }

    /// The cluster of this name, made when there is none.
    pub(crate) fn found(&self, name: &str) -> Arc<Cluster> {
        if let Some(cluster) = self.read().clusters.get(name) {
            return cluster.clone();
        }
        let name: Arc<str> = name.into();
        self.write().clusters.entry(name.clone()).or_insert_with(|| Arc::new(Cluster::new(name))).clone()
    }

    /// The view of a node changed: watchers hear of it.
    pub(crate) fn node_changed(&self, node: &Arc<Node>) {
        node.mark_changed(self.position());
        self.changed_nodes.add(&node.uid, node);
    }

    /// A member of the cluster changed: it is judged again, and watchers hear of it.
    pub(crate) fn cluster_changed(&self, cluster: &Arc<Cluster>) {
        cluster.mark_changed(self.position());
        self.to_judge.add(&cluster.name, cluster);
        self.changed_clusters.add(&cluster.name, cluster);
    }

    /// Puts a transition the coordinator found about a node on its way to the history.
    pub(crate) fn announce_node(&self, node: &Node, transition: Transition) {
        let name = node.inner().record.name.clone();
        self.announcements.add(Origin { uid: node.uid.to_string(), name }, transition);
    }

    /// A node as it is shown now.
    pub(crate) fn view(&self, node: &Node) -> NodeView {
        node.view(self.clock.elapsed(), self.clock.now())
    }

    /// A cluster as it is shown now.
    pub(crate) fn cluster_view(&self, cluster: &Cluster) -> ClusterView {
        cluster.view(self.clock.now(), self.clock.elapsed(), self.deaf_until())
    }
}
