//! The rules of the check `kubernetes`, on one node and over a cluster.

mod cluster;
mod neighbours;
mod node;

use outrider_diagnosis::{Finding, Judgement, fleet, judge, latch};
use outrider_protocol::*;
use proptest::prelude::*;

pub(crate) use self::cluster::any_network;
use crate::expect;
use crate::world::{self, Change, known, unknown};

fn judged(k: KubernetesFacts, profile: Profile) -> Judgement {
    let checks = CheckFacts { kubernetes: Some(known(k)), ..CheckFacts::default() };
    judge(&world::node_facts(checks).with(|f| f.node.profile = profile))
}

fn find(j: &Judgement, of: ConditionType, subject: &str) -> Option<Finding> {
    j.findings.iter().find(|f| f.condition_type == of && f.subject == subject).cloned()
}

#[track_caller]
fn ready(k: KubernetesFacts, subject: &str) -> Finding {
    find(&judged(k, Profile::Generic), ConditionType::KubernetesReady, subject).expect("a finding")
}

#[track_caller]
fn ports(network: NodeNetwork, subject: &str) -> Finding {
    let k = world::kubernetes().with(|k| k.network = known(network));
    find(&judged(k, Profile::Generic), ConditionType::NodePortsReachable, subject).expect("a finding")
}

/// Neighbour `n` with one of its tries as told.
fn with(n: usize, changes: &[(TriedPort, Reach, u32)]) -> NeighbourFacts {
    world::neighbour(n).with(|seen| {
        for (port, reach, failures) in changes {
            for t in seen.tries.iter_mut().filter(|t| t.port == *port) {
                (t.reach, t.failures) = (reach.clone(), *failures);
            }
        }
    })
}

#[test]
fn a_healthy_node_is_well_and_says_in_few_rows() {
    let j = judged(world::kubernetes(), Profile::Generic);
    let rows: Vec<_> =
        j.findings.iter().map(|f| (f.condition_type.as_str(), f.subject.as_str(), f.severity)).collect();
    assert_eq!(
        rows,
        [
            ("KubernetesReady", "", Severity::Ok),
            ("KubernetesReady", "firewall", Severity::Ok),
            ("KubernetesReady", "requirements", Severity::Ok),
            ("NodePortsReachable", "", Severity::Ok),
            ("NodePortsReachable", "overlay", Severity::Ok),
        ]
    );
}
