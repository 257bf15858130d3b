//! The fleet's budget of probes at one load balancer, shared out over the nodes that try it: a hundred nodes must not look
//! like an attack to what a handful may try often.
//!
//! A node's share goes out with its desired configuration, as `loadBalancer.probesPerMinute`, unless an operator desires
//! another number. It is not stored: it follows from who reports, and is the same again after a restart.

use std::collections::HashMap;

use outrider_protocol::{LoadBalancerConfig, NodeConfig};

use super::Fleet;

/// Connections a minute that all nodes together may make to one balancer and its backends.
const BUDGET: u32 = 600;
/// Shares that are given out: few, so that a node more or less changes nothing for the others. Above the last, nodes keep
/// their own number.
const SHARES: [u32; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48];

/// The share of each of so many nodes; none while they may keep their own number.
fn share(nodes: u32) -> Option<u32> {
    let each = BUDGET / nodes.max(1);
    let most = SHARES.last().copied().unwrap_or(1);
    let fitting = SHARES.iter().rev().find(|share| **share <= each).copied();
    (each < most + most / 4).then(|| fitting.unwrap_or(1))
}

/// What is desired of a node with its share in it, under a generation of its own: agents compare it with the one in force
/// and take what differs.
pub(super) fn with_share(mut desired: NodeConfig, share: u32) -> NodeConfig {
    desired.generation = generation(desired.generation, share);
    if share > 0 {
        let balancer = desired.spec.load_balancer.get_or_insert_with(LoadBalancerConfig::default);
        balancer.probes_per_minute.get_or_insert(share);
    }
    desired
}

/// The generation that goes out: an operator's in the lower bits, the share above; exact also where JSON numbers are not.
pub(super) fn generation(stored: u64, share: u32) -> u64 {
    stored | u64::from(share) << 40
}

impl Fleet {
    /// Gives each node that tries a balancer its share; the least, where it tries several.
    pub(super) fn share_probes(&self) {
        let nodes = self.nodes();
        let mut tried: HashMap<(String, u16), u32> = HashMap::new();
        for node in &nodes {
            let inner = node.inner();
            for paths in inner.state().map_or(&[][..], |state| &state.paths) {
                *tried.entry((paths.host.clone(), paths.port)).or_default() += 1;
            }
        }
        for node in &nodes {
            let least = {
                let inner = node.inner();
                let paths = inner.state().map_or(&[][..], |state| &state.paths);
                let nodes_at =
                    |p: &outrider_protocol::BalancerPaths| tried.get(&(p.host.clone(), p.port)).copied();
                paths.iter().filter_map(|p| share(nodes_at(p)?)).min()
            };
            node.share_probes(least.unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_handful_keeps_its_own_number_and_many_share() {
        let shares: Vec<Option<u32>> = [1, 3, 10, 11, 30, 100, 600, 20_000].into_iter().map(share).collect();
        assert_eq!(shares, [None, None, None, Some(48), Some(16), Some(6), Some(1), Some(1)]);
    }

    #[test]
    fn an_operators_number_stays_and_the_generation_tells_one_share_from_another() {
        let desired = |json| serde_json::from_value::<NodeConfig>(json).unwrap();
        let none = desired(
            serde_json::json!({"apiVersion": "v", "kind": "NodeConfig", "generation": 3, "spec": {}}),
        );
        let shared = with_share(none.clone(), 6);
        assert_eq!(shared.spec.load_balancer.unwrap().probes_per_minute, Some(6));
        assert_ne!(shared.generation, with_share(none.clone(), 8).generation);
        assert_eq!(with_share(none.clone(), 0), none);
        let mut own = none;
        own.spec.load_balancer = Some(LoadBalancerConfig { probes_per_minute: Some(2) });
        assert_eq!(with_share(own, 6).spec.load_balancer.unwrap().probes_per_minute, Some(2));
        // Half of JSON's readers hold numbers as 64-bit floats.
        assert!(generation(1 << 30, 600) < 1 << 53);
    }

    proptest! {
        #[test]
        fn together_they_keep_to_the_budget(nodes in 11u32..100_000) {
            let each = share(nodes).unwrap();
            prop_assert!(each == 1 || each * nodes <= BUDGET);
            prop_assert!(share(nodes + 1).unwrap() <= each);
        }
    }
}
