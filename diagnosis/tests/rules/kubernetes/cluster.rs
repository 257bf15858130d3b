//! Whose fault it is that nodes do not reach each other, and properties of both.

use super::*;

fn cluster(nodes: &[(usize, Status, Option<NodeNetwork>)]) -> Option<Finding> {
    let names: Vec<String> = nodes.iter().map(|(n, ..)| format!("n{n}")).collect();
    let members: Vec<fleet::Member<'_>> = nodes
        .iter()
        .zip(&names)
        .map(|((_, ready, network), name)| fleet::Member {
            name,
            ready: *ready,
            zone: "",
            region: "",
            etcd: None,
            network: network.as_ref(),
            received: None,
            heard: None,
            retired: None,
            addresses: &[],
            paths: &[],
        })
        .collect();
    let j = fleet::judge_cluster("c", &members, world::now());
    find(&j, ConditionType::NodePortsReachable, "c")
}

fn heard(networks: Vec<NodeNetwork>) -> Option<Finding> {
    let all: Vec<_> = networks.into_iter().enumerate().map(|(i, n)| (i + 1, Status::True, Some(n))).collect();
    cluster(&all)
}

#[test]
fn a_cluster_is_judged_from_two_nodes_on() {
    assert!(heard(vec![world::network(1, vec![])]).is_none());
    let f = heard(vec![world::network(1, vec![]), world::network(2, vec![])]).unwrap();
    assert_eq!(f.reason, ReasonCode::NeighboursUntested);
    let f = heard(vec![
        world::network(1, vec![world::neighbour(2)]),
        world::network(2, vec![world::neighbour(1)]),
    ])
    .unwrap();
    expect(&f, Status::True, Severity::Ok, ReasonCode::NeighboursReached, &["2 neighbours of 2 nodes"]);
}

#[test]
fn a_port_nobody_reaches_is_the_nodes_own() {
    let mut third = world::network(3, vec![world::neighbour(1)]);
    third.firewalls = vec!["firewalld".into()];
    let shut = with(3, &[(TriedPort::Supervisor, Reach::Prohibited, 2)]);
    let f = heard(vec![world::network(1, vec![shut.clone()]), world::network(2, vec![shut]), third]).unwrap();
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::NeighbourPortsClosed,
        &["n3 answers none of n1, n2 on supervisor", "active there: firewalld"],
    );
}

#[test]
fn one_way_one_direction_and_too_few_tries_are_told_apart() {
    let shut = with(3, &[(TriedPort::Kubelet, Reach::Silent, 2)]);
    let f = heard(vec![
        world::network(1, vec![shut.clone()]),
        world::network(2, vec![world::neighbour(3)]),
        world::network(3, vec![world::neighbour(1)]),
    ]);
    expect(
        &f.unwrap(),
        Status::False,
        Severity::Warn,
        ReasonCode::NeighbourPortsClosed,
        &["n1 does not reach n3 on kubelet", "one direction"],
    );
    let f = heard(vec![
        world::network(1, vec![shut.clone()]),
        world::network(2, vec![world::neighbour(3)]),
        world::network(3, vec![]),
    ]);
    expect(
        &f.unwrap(),
        Status::False,
        Severity::Warn,
        ReasonCode::NeighbourPortsClosed,
        &["the way between"],
    );
    let f = heard(vec![
        world::network(1, vec![shut]),
        world::network(3, vec![]).with(|n| n.addresses = vec!["192.0.2.3".into()]),
    ]);
    // The second node here is n2: n3 is not heard.
    assert_eq!(f.unwrap().reason, ReasonCode::NeighboursUntested);
}

#[test]
fn too_few_tries_are_said_to_be_that() {
    let shut = with(2, &[(TriedPort::Kubelet, Reach::Silent, 2)]);
    let f = heard(vec![world::network(1, vec![shut]), world::network(2, vec![])]).unwrap();
    expect(
        &f,
        Status::False,
        Severity::Warn,
        ReasonCode::NeighbourPortsClosed,
        &["too few tries to say whose fault"],
    );
}

#[test]
fn a_node_that_is_not_heard_is_no_question_of_the_network() {
    let shut = with(3, &[(TriedPort::Kubelet, Reach::Silent, 5), (TriedPort::Overlay, Reach::Silent, 5)]);
    let f = cluster(&[
        (1, Status::True, Some(world::network(1, vec![shut.clone(), world::neighbour(2)]))),
        (2, Status::True, Some(world::network(2, vec![shut]))),
        (3, Status::Unknown, Some(world::network(3, vec![]))),
    ])
    .unwrap();
    assert_eq!(f.reason, ReasonCode::NeighboursReached, "{f:#?}");
}

#[test]
fn a_closed_udp_port_is_laid_to_the_node_all_pairs_share() {
    let silent = |n| with(n, &[(TriedPort::Overlay, Reach::Silent, 2)]);
    let f = heard(vec![
        world::network(1, vec![silent(3), world::neighbour(2)]),
        world::network(2, vec![silent(3), world::neighbour(1)]),
        world::network(3, vec![silent(1), silent(2)]).with(|n| n.firewalls = vec!["ufw".into()]),
    ])
    .unwrap();
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::OverlayBlocked,
        &["UDP 8472", "n3 is one end of every such pair", "ufw active there"],
    );
}

#[test]
fn a_black_hole_and_mixed_mtu_are_named() {
    let stalled = with(2, &[(TriedPort::Overlay, Reach::Stalled, 2)]);
    let f =
        heard(vec![world::network(1, vec![stalled]), world::network(2, vec![world::neighbour(1)])]).unwrap();
    expect(&f, Status::False, Severity::Error, ReasonCode::PathBlackHole, &["n1 to n2", "flannel.1"]);
    let mut odd = world::network(3, vec![]);
    odd.overlays[0].mtu = Some(1400);
    let f =
        heard(vec![world::network(1, vec![world::neighbour(2)]), world::network(2, vec![]), odd]).unwrap();
    expect(&f, Status::True, Severity::Warn, ReasonCode::OverlayMtuDiffers, &["1450 on n1, n2; 1400 on n3"]);
}

fn any_neighbour() -> impl Strategy<Value = NeighbourFacts> {
    let one = (prop::sample::select(TriedPort::ALL), prop::sample::select(Reach::ALL), 0u32..4);
    (1usize..5, prop::collection::vec(one, 0..6)).prop_map(|(n, tries)| {
        let tries = tries.into_iter().map(|(port, reach, failures)| {
            let failures = if reach == Reach::Answered { 0 } else { failures };
            world::port_try(port, &format!("192.0.2.{n}:1"), reach, failures)
        });
        NeighbourFacts { name: format!("n{n}"), role: KubernetesRole::Server, tries: tries.collect() }
    })
}

pub(crate) fn any_network() -> impl Strategy<Value = NodeNetwork> {
    let overlay = (prop::sample::select(Encapsulation::ALL), prop::option::of(0u32..10_000), any::<u16>());
    (
        prop::collection::vec(any_neighbour(), 0..5),
        prop::option::of(overlay),
        prop::option::of(0u32..10_000),
        any::<bool>(),
    )
        .prop_map(|(neighbours, overlay, mtu, filtered)| {
            let mut network = world::network(1, neighbours);
            network.mtu = mtu;
            match overlay {
                Some((encapsulation, mtu, port)) => {
                    let o = &mut network.overlays[0];
                    (o.encapsulation, o.mtu, o.port) = (encapsulation, mtu, port);
                }
                None => network.overlays.clear(),
            }
            if filtered {
                network.firewalls = vec!["ufw".into()];
            }
            network
        })
}

proptest! {
    #![proptest_config(crate::properties())]

    /// Whatever else was found: a port that answers is never said to be closed, and nothing is false before two failures.
    #[test]
    fn nothing_is_false_without_two_failures_in_a_row(mut network in any_network()) {
        for n in &mut network.neighbours {
            for t in &mut n.tries {
                t.failures = t.failures.min(1);
            }
        }
        let k = world::kubernetes().with(|k| k.network = known(network));
        for f in judged(k, Profile::Generic).findings {
            prop_assert!(f.condition_type != ConditionType::NodePortsReachable || f.status != Status::False, "{:?}", f);
        }
    }

    /// Over a cluster there is one finding, about it, and of bounded length.
    #[test]
    fn the_verdict_over_a_cluster_names_its_subject(networks in prop::collection::vec(any_network(), 2..5)) {
        let f = heard(networks).unwrap();
        prop_assert_eq!(&f.subject, "c");
        prop_assert!(f.message.len() < 4000, "{}", f.message.len());
    }
}
