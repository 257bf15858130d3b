//! Which neighbours a node is to try: a few of its own cluster, another few after a while, so that in time every node
//! tries every other and none is tried by many at once.
//!
//! Addresses of other nodes are told to nobody but nodes of the same cluster, and membership must mean the same for
//! both: a node whose token binds it to its cluster hears only of nodes that are bound to it as well, for whoever merely
//! names a cluster could name any. Simulated nodes are nowhere and are left out.

use std::sync::Arc;

use outrider_protocol::{NodeNetwork, Peer, Peers, Timestamp, TypeMeta};

use super::{Fleet, Node};

/// Neighbours that one node tries at a time.
const SHARE: usize = 4;
/// Neighbours that stay because they did not answer, beside the share.
const KEPT: usize = 4;
/// Seconds after which the share changes: twice an agent's own cadence, so that each is tried twice.
const ROTATION: i64 = 600;

impl Fleet {
    /// The neighbours that `node` is to try at `now`; those named in `keep` stay while they are neighbours at all.
    pub(crate) fn peers_of(&self, node: &Arc<Node>, keep: &[&str], now: Timestamp) -> Peers {
        let home = node.inner().home.clone();
        let none = |cluster: &str| Peers {
            meta: TypeMeta::new("Peers"),
            cluster: cluster.to_owned(),
            others: 0,
            peers: Vec::new(),
        };
        let Some(cluster) = home else { return none("") };
        let is_bound = |node: &Node| node.inner().record.cluster_bound;
        let bound = is_bound(node);
        // In the order of uids, which the members are kept in: the same for every node that asks.
        let ring: Vec<Arc<Node>> =
            cluster.nodes().into_iter().filter(|n| has_network(n) && is_bound(n) == bound).collect();
        let Some(own) = ring.iter().position(|n| n.uid == node.uid) else { return none(&cluster.name) };
        let round = now.as_millis().div_euclid(1000 * ROTATION).unsigned_abs() as usize;
        let mut wanted: Vec<usize> = share(ring.len(), own, round);
        for (i, other) in ring.iter().enumerate() {
            let is_kept = keep.iter().take(KEPT).any(|name| *name == other.inner().record.name);
            if is_kept && i != own && !wanted.contains(&i) {
                wanted.push(i);
            }
        }
        wanted.sort_unstable();
        let peers = wanted.iter().filter_map(|i| peer(ring.get(*i)?)).collect();
        let others = u32::try_from(ring.len() - 1).unwrap_or(u32::MAX);
        Peers { others, peers, ..none(&cluster.name) }
    }
}

fn has_network(node: &Node) -> bool {
    let inner = node.inner();
    let network = inner.state().and_then(|state| state.network.as_ref());
    !inner.is_simulated() && inner.retired_as().is_none() && network.is_some_and(|n| !n.addresses.is_empty())
}

fn peer(node: &Node) -> Option<Peer> {
    let inner = node.inner();
    let NodeNetwork { distribution, role, addresses, overlays, .. } = inner.state()?.network.clone()?;
    Some(Peer { node: inner.record.reference(), distribution, role, addresses, overlays })
}

/// The places in a ring of `n` that the one at `own` tries in a round. In each round everybody tries as many and is
/// tried by as many, and after so many rounds as the others make shares everybody has tried everybody.
fn share(n: usize, own: usize, round: usize) -> Vec<usize> {
    let others = n.saturating_sub(1);
    let many = SHARE.min(others);
    let first = round.wrapping_mul(SHARE);
    (0..many).map(|j| (own + 1 + (first.wrapping_add(j)) % others) % n).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn everybody_tries_everybody_in_time_and_nobody_is_crowded(n in 1usize..60, start in 0usize..1_000_000) {
            let rounds = (n.saturating_sub(1)).div_ceil(SHARE);
            let mut tried: BTreeSet<(usize, usize)> = BTreeSet::new();
            for round in start..start + rounds {
                let mut by = vec![0; n];
                for own in 0..n {
                    let now = share(n, own, round);
                    prop_assert!(now.len() <= SHARE && !now.contains(&own), "{:?}", now);
                    prop_assert_eq!(now.iter().collect::<BTreeSet<_>>().len(), now.len());
                    for other in now {
                        by[other] += 1;
                        tried.insert((own, other));
                    }
                }
                prop_assert!(by.iter().all(|b| *b <= SHARE), "{:?}", by);
            }
            prop_assert_eq!(tried.len(), n * (n - 1));
        }
    }
}
