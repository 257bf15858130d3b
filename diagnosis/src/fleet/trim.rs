//! What the coordinator keeps of a report.

use outrider_protocol::{EtcdFacts, EtcdScrape, Fact, Histogram};

use crate::rules::etcd::rebuilt::is_of_node;

/// More Kubernetes nodes than this are kept only as far as they are a member's.
const NODES_KEPT: usize = 64;

/// Drops from `etcd` what no verdict over a cluster reads: histograms, which are most of its size and judged at the node,
/// paths, and the names of nodes that run no member of a large cluster.
pub fn trim(etcd: &mut EtcdFacts) {
    etcd.paths = Vec::new();
    if let Fact::Known { value, .. } = &mut etcd.metrics {
        let scrapes = value.earlier.iter_mut().chain([&mut value.latest]);
        scrapes.for_each(without_histograms);
    }
    if let (Fact::Known { value: nodes, .. }, Some(list)) = (&mut etcd.kubernetes_nodes, etcd.members.value())
        && nodes.len() > NODES_KEPT
    {
        let is_members = |node: &String| list.members.iter().any(|m| is_of_node(&m.name, node));
        if nodes.iter().any(is_members) {
            nodes.retain(is_members);
        } else {
            // None of them is a member's: that the names do not tell must stay to be seen.
            nodes.truncate(NODES_KEPT);
        }
        nodes.shrink_to_fit();
    }
}

fn without_histograms(scrape: &mut EtcdScrape) {
    scrape.wal_fsync = Histogram::default();
    scrape.backend_commit = Histogram::default();
    for peer in scrape.peers.values_mut() {
        peer.round_trip = Histogram::default();
    }
}
