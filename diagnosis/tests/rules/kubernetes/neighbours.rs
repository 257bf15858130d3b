//! What a node says of its neighbours' ports and of the overlay.

use super::*;

#[test]
fn one_failed_try_is_no_news_and_two_are() {
    let once = with(2, &[(TriedPort::Supervisor, Reach::Refused, 1)]);
    let f = ports(world::network(1, vec![once, world::neighbour(3)]), "");
    expect(
        &f,
        Status::True,
        Severity::Ok,
        ReasonCode::NeighboursReached,
        &["1 of 2 neighbours", "1 neighbour tried again"],
    );
    let twice = with(2, &[(TriedPort::Supervisor, Reach::Refused, 2)]);
    let f = ports(world::network(1, vec![twice, world::neighbour(3)]), "");
    expect(
        &f,
        Status::False,
        Severity::Warn,
        ReasonCode::NeighbourPortsClosed,
        &["n2 (supervisor 192.0.2.2:9345 refused, 2 tries)"],
    );
}

const OWN: [TriedPort; 3] = [TriedPort::Apiserver, TriedPort::Supervisor, TriedPort::Kubelet];

fn all(n: usize, reach: Reach, failures: u32) -> NeighbourFacts {
    let changes: Vec<_> = OWN.iter().map(|p| (p.clone(), reach.clone(), failures)).collect();
    with(n, &[&changes[..], &[(TriedPort::Overlay, Reach::Silent, failures)]].concat())
}

#[test]
fn a_neighbour_that_is_gone_is_not_called_firewalled() {
    let f = ports(world::network(1, vec![all(2, Reach::Silent, 3), world::neighbour(3)]), "");
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::NeighbourAway, &["n2", "down or out of reach"]);
    // Nothing is said of the overlay to a node that does not answer at all.
    let f = ports(world::network(1, vec![all(2, Reach::Silent, 3), world::neighbour(3)]), "overlay");
    assert_eq!(f.reason, ReasonCode::OverlayWorks);
    let f = ports(world::network(1, vec![all(2, Reach::Silent, 3), all(3, Reach::Prohibited, 3)]), "");
    expect(
        &f,
        Status::Unknown,
        Severity::Warn,
        ReasonCode::NeighbourAway,
        &["look at this node's network first"],
    );
}

#[test]
fn stalled_everywhere_is_a_black_hole_and_stalled_at_one_port_a_process() {
    let f = ports(world::network(1, vec![all(2, Reach::Stalled, 2)]), "");
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::PathBlackHole,
        &["machines' own network", "ping -M do"],
    );
    let f = ports(world::network(1, vec![with(2, &[(TriedPort::Kubelet, Reach::Stalled, 2)])]), "");
    expect(
        &f,
        Status::False,
        Severity::Warn,
        ReasonCode::NeighbourPortsClosed,
        &["kubelet 192.0.2.2:10250 stalled"],
    );
}

#[test]
fn the_overlay_is_judged_by_what_the_nodes_own_address_does() {
    let of = |reach: Reach, failures| {
        ports(world::network(1, vec![with(2, &[(TriedPort::Overlay, reach, failures)])]), "overlay")
    };
    let f = of(Reach::Silent, 2);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::OverlayBlocked,
        &["n2 (10.42.2.0:10250 silent, 2 tries)", "UDP 8472", "flannel.1"],
    );
    let f = of(Reach::Stalled, 2);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::PathBlackHole,
        &["MTU 1450", "MTU 1500", "stalls"],
    );
    assert_eq!(
        of(Reach::Refused, 4).reason,
        ReasonCode::OverlayWorks,
        "a refusal came back through the overlay"
    );
    let f = of(Reach::Silent, 1);
    assert_eq!((f.status, f.reason), (Status::Unknown, ReasonCode::NeighboursUntested));
    let k = with(2, &[(TriedPort::Overlay, Reach::Silent, 2), (TriedPort::Kubelet, Reach::Refused, 2)]);
    assert_eq!(ports(world::network(1, vec![k]), "overlay").reason, ReasonCode::NeighboursUntested);
}

#[test]
fn an_overlay_must_leave_room_for_its_headers() {
    let of = |encapsulation: Encapsulation, mtu, below, address: &str| {
        let mut network = world::network(1, vec![world::neighbour(2)]);
        (network.overlays[0].encapsulation, network.overlays[0].mtu, network.mtu) =
            (encapsulation, Some(mtu), Some(below));
        network.addresses = vec![address.into()];
        ports(network, "overlay").reason == ReasonCode::OverlayMtuTooLarge
    };
    use Encapsulation as E;
    let (v4, v6) = ("192.0.2.1", "2001:db8::1");
    assert!(!of(E::Vxlan, 1450, 1500, v4) && of(E::Vxlan, 1451, 1500, v4));
    assert!(!of(E::Vxlan, 1430, 1500, v6) && of(E::Vxlan, 1450, 1500, v6));
    assert!(
        !of(E::Wireguard, 1440, 1500, v4)
            && of(E::Wireguard, 1441, 1500, v4)
            && of(E::Wireguard, 1421, 1500, v6)
    );
    assert!(!of(E::Ipip, 1480, 1500, v4) && of(E::Ipip, 1481, 1500, v4));
    assert!(!of(E::None, 1500, 1500, v4));
}

#[test]
fn a_node_alone_has_no_ports_to_reach() {
    let k = world::kubernetes().with(|k| k.network = known(world::network(1, vec![])));
    let j = judged(k, Profile::Generic);
    assert!(j.findings.iter().all(|f| f.condition_type != ConditionType::NodePortsReachable), "{j:#?}");
}

#[test]
fn after_a_restart_what_was_shown_of_neighbours_stands_until_the_coordinator_names_some() {
    let network = world::network(1, vec![with(2, &[(TriedPort::Kubelet, Reach::Silent, 2)])]);
    let facts = |network: NodeNetwork, latches| {
        let k = world::kubernetes().with(|k| k.network = known(network));
        let checks = CheckFacts { kubernetes: Some(known(k)), ..CheckFacts::default() };
        world::node_facts(checks).with(|f| f.latches = latches)
    };
    let shown = latch(&[], &judge(&facts(network, vec![])), world::now());
    let closed =
        |latches: &[Latch]| latches.iter().any(|l| l.condition.reason == ReasonCode::NeighbourPortsClosed);
    assert!(closed(&shown.latches));
    let untold = facts(world::network(1, vec![]).with(|n| n.others = None), shown.latches.clone());
    let after = latch(&untold.latches, &judge(&untold), world::ahead(60));
    assert!(closed(&after.latches) && after.transitions.is_empty(), "{:#?}", after.transitions);
    let alone = facts(world::network(1, vec![]), shown.latches);
    let after = latch(&alone.latches, &judge(&alone), world::ahead(60));
    assert!(!closed(&after.latches) && after.transitions.iter().all(|t| t.removed));
}
