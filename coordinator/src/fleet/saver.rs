//! Writing behind: the last known state of nodes and clusters, so that a restart shows it with its age.
//!
//! Only transitions are acknowledged to agents, and those are in the history before the answer. What is written here
//! may be a second old when the process dies; the agent's next heartbeat then carries another digest, and the state is
//! asked for again.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use outrider_protocol::Latch;
use serde::{Deserialize, Serialize};

use super::{Cluster, Fleet, LastReport, Node, report};
use crate::store::{Entry, Expect, Store, StoreError};

/// Where states of nodes lie.
pub(crate) const STATES: &str = "states/";
/// Where latches of clusters lie.
pub(crate) const CLUSTERS: &str = "clusters/";
/// Writes under way at once; the store commits them together.
const AT_ONCE: usize = 64;

/// What is kept of a node besides its enrolment.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SavedNode {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<LastReport>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) silence: Option<Latch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<Latch>,
}

impl SavedNode {
    /// Reads a stored document; one that cannot be read is left out, said, and asked for again from the node.
    pub(crate) fn read(entry: &Entry) -> Option<Self> {
        serde_json::from_slice(&entry.value)
            .inspect_err(|e| {
                log::warn!("the stored state {} cannot be read and is asked for again: {e}", entry.key);
            })
            .ok()
    }
}

enum Unsaved {
    Node(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Fleet {
    /// Writes everything newer than the store; what fails waits again. The first failure is returned.
    pub(crate) async fn save(&self, store: &dyn Store) -> Result<usize, StoreError> {
        let nodes = self.unsaved_nodes.take().into_iter().map(Unsaved::Node);
        let unsaved: Vec<_> =
            nodes.chain(self.unsaved_clusters.take().into_iter().map(Unsaved::Cluster)).collect();
        let count = unsaved.len();
        let failures: Vec<StoreError> = stream::iter(unsaved)
            .map(|item| self.save_one(store, item))
            .buffer_unordered(AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await;
        failures.into_iter().next().map_or(Ok(count), Err)
    }

    async fn save_one(&self, store: &dyn Store, item: Unsaved) -> Option<StoreError> {
        let (key, document) = self.document(&item);
        let error = store.put(&key, document, Expect::Any).await.err()?;
        if let StoreError::Invalid { .. } = error {
            log::error!("the state under {key} cannot be kept: {error}");
            return None;
        }
        match &item {
            Unsaved::Node(node) => self.unsaved_nodes.add(&node.uid, node),
            Unsaved::Cluster(cluster) => self.unsaved_clusters.add(&cluster.name, cluster),
        }
        Some(error)
    }

    fn document(&self, item: &Unsaved) -> (String, Bytes) {
        match item {
            Unsaved::Cluster(cluster) => (format!("{CLUSTERS}{}", cluster.name), encode(&cluster.latches())),
            Unsaved::Node(node) => {
                let last_seen = report::last_seen(self, node);
                let saved = {
                    let mut inner = node.inner();
                    if let (Some(report), Some(at)) = (inner.report.as_mut(), last_seen) {
                        report.last_seen = at;
                        report.interval_seconds = node.interval_seconds();
                    }
                    SavedNode {
                        report: inner.report.as_deref().cloned(),
                        silence: inner.silence.as_deref().cloned(),
                        identity: inner.identity.as_deref().cloned(),
                    }
                };
                (format!("{STATES}{}", node.uid), encode(&saved))
            }
        }
    }
}

/// A document without room to grow: the store keeps recent ones in memory for its watchers.
fn encode(document: &impl Serialize) -> Bytes {
    serde_json::to_vec(document).unwrap_or_default().into_boxed_slice().into()
}
