//! The rules of the check `kubernetes`, on one node and over a cluster.

use outrider_diagnosis::{Finding, Judgement, fleet, judge, latch};
use outrider_protocol::*;
use proptest::prelude::*;

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

#[test]
fn rke1_is_a_warning_with_its_dates_and_signs() {
    let k = world::kubernetes().with(|k| {
        (k.distribution, k.role) = (Distribution::Rke1, KubernetesRole::Server);
        k.rke1.running =
            vec!["process kubelet (pid 9) with /etc/kubernetes/ssl/kubecfg-kube-node.yaml".into()];
        k.rke1.on_disk = vec!["folder /opt/rke".into()];
    });
    let f = ready(k, "rke1");
    let words = [
        "2025-07-31",
        "process kubelet (pid 9)",
        "folder /opt/rke",
        "2.12",
        "Replatform",
        "RKE2",
        "days ago",
    ];
    expect(&f, Status::True, Severity::Warn, ReasonCode::Rke1EndOfLife, &words);
    let days: i64 =
        f.message.split("2025-07-31, ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(days, (world::now().as_millis() / 1000 - 1_753_920_000) / 86_400);
}

#[test]
fn what_an_rke1_left_behind_is_another_thing() {
    let k = world::kubernetes().with(|k| k.rke1.on_disk = vec!["folder /opt/rke".into()]);
    expect(
        &ready(k.clone(), "rke1"),
        Status::True,
        Severity::Info,
        ReasonCode::Rke1Remains,
        &["rke2", "/opt/rke"],
    );
    let both = k.with(|k| k.rke1.running = vec!["process etcd (pid 3)".into()]);
    assert_eq!(ready(both, "rke1").reason, ReasonCode::Rke1EndOfLife);
    assert!(
        find(&judged(world::kubernetes(), Profile::Generic), ConditionType::KubernetesReady, "rke1")
            .is_none()
    );
}

#[test]
fn an_rke1_that_is_not_seen_running_is_said_to_be_so() {
    let k = world::kubernetes().with(|k| {
        k.distribution = Distribution::Rke1;
        k.rke1.on_disk = vec!["/etc/kubernetes/ssl: kube-ca.pem".into()];
    });
    expect(
        &ready(k, "rke1"),
        Status::True,
        Severity::Warn,
        ReasonCode::Rke1EndOfLife,
        &["none of its processes is seen"],
    );
}

#[test]
fn minimums_are_those_of_the_documents_by_profile_and_role() {
    let gb = 1_000_000_000u64;
    let case = |distribution: Distribution, role: KubernetesRole, profile: Profile, cpus: u32, bytes: u64| {
        let k = world::kubernetes().with(|k| {
            (k.distribution, k.role) = (distribution, role);
            (k.machine.cpus, k.machine.memory_bytes) = (known(cpus), known(bytes));
        });
        find(&judged(k, profile), ConditionType::KubernetesReady, "requirements").unwrap()
    };
    use Distribution as D;
    use KubernetesRole as Role;
    // A machine sold with 4 GiB shows 3.8 of them.
    let four = 3_900_000_000;
    assert_eq!(case(D::Rke2, Role::Server, Profile::Generic, 2, four).severity, Severity::Ok);
    let small = case(D::Rke2, Role::Server, Profile::RancherHaServer, 2, four);
    expect(
        &small,
        Status::True,
        Severity::Warn,
        ReasonCode::RequirementsNotMet,
        &["2 of 4 processors", "3.9 GB of the 16.0 GB", "Rancher"],
    );
    assert_eq!(
        case(D::Rke2, Role::Agent, Profile::Generic, 1, 8 * gb).reason,
        ReasonCode::RequirementsNotMet
    );
    assert_eq!(case(D::K3s, Role::Server, Profile::Generic, 2, 2 * gb).severity, Severity::Ok);
    assert_eq!(case(D::K3s, Role::Server, Profile::Generic, 1, 2 * gb).severity, Severity::Warn);
    assert_eq!(case(D::K3s, Role::Agent, Profile::Generic, 1, 500_000_000).severity, Severity::Ok);
    assert_eq!(case(D::K3s, Role::Agent, Profile::Generic, 1, 400_000_000).severity, Severity::Warn);
    // Nobody says anything of kubeadm here.
    assert_eq!(case(D::Kubeadm, Role::Agent, Profile::Generic, 1, gb).severity, Severity::Ok);
}

#[test]
fn an_unknown_system_is_not_failed_and_unread_hardware_is_not_small() {
    let k = world::kubernetes().with(|k| {
        k.machine.os = known("Some Linux 1".into());
        (k.machine.cpus, k.machine.memory_bytes) =
            (unknown(UnknownCause::IoError), unknown(UnknownCause::IoError));
    });
    let f = ready(k, "requirements");
    expect(
        &f,
        Status::True,
        Severity::Ok,
        ReasonCode::RequirementsMet,
        &["Some Linux 1", "processors and memory could not be read"],
    );
}

#[test]
fn forwarding_counts_once_kubernetes_runs_and_cgroup_v1_is_told_before_it_bites() {
    let k = world::kubernetes().with(|k| k.machine.forwarding = known(false));
    expect(
        &ready(k.clone(), "requirements"),
        Status::True,
        Severity::Warn,
        ReasonCode::RequirementsNotMet,
        &["forwarding is 0"],
    );
    let before = k.with(|k| k.kubelet = Some(unknown(UnknownCause::ConnectionRefused)));
    assert_eq!(ready(before, "requirements").severity, Severity::Ok);
    let old = world::kubernetes().with(|k| k.machine.cgroup_v2 = known(false));
    expect(
        &ready(old, "requirements"),
        Status::True,
        Severity::Info,
        ReasonCode::RequirementsNotMet,
        &["1.35"],
    );
}

#[test]
fn network_manager_is_to_leave_the_cni_alone() {
    let manager = |active, manages: &[&str], cloud: &[&str]| {
        known(NetworkManagerFacts {
            active,
            manages: manages.iter().map(|s| (*s).to_owned()).collect(),
            cloud_setup: cloud.iter().map(|s| (*s).to_owned()).collect(),
        })
    };
    let k = world::kubernetes();
    let of = |k: KubernetesFacts, m| ready(k.with(|k| k.network_manager = m), "requirements");
    let f = of(k.clone(), manager(true, &["cali", "flannel"], &[]));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::NetworkManagerInterferes,
        &["cali* and flannel*", "unmanaged-devices"],
    );
    assert_eq!(of(k.clone(), manager(false, &["cali"], &[])).severity, Severity::Ok);
    assert_eq!(of(k.clone(), manager(true, &[], &[])).severity, Severity::Ok);
    let f = of(k.clone(), manager(true, &[], &["nm-cloud-setup.timer"]));
    expect(&f, Status::True, Severity::Warn, ReasonCode::NetworkManagerInterferes, &["nm-cloud-setup.timer"]);
    let k3s = k.clone().with(|k| k.distribution = Distribution::K3s);
    assert_eq!(
        of(k3s.clone(), manager(true, &["cali", "flannel"], &[])).severity,
        Severity::Ok,
        "K3s does not ask for it"
    );
    assert_eq!(of(k3s, manager(true, &[], &["nm-cloud-setup.timer"])).severity, Severity::Info);
    let cilium = k.with(|k| {
        let mut network = world::network(1, vec![]);
        network.overlays[0].cni = "cilium".into();
        k.network = known(network);
    });
    assert_eq!(of(cilium, manager(true, &["cali", "flannel"], &[])).severity, Severity::Ok);
}

fn firewall(name: &str, active: bool) -> FirewallFacts {
    FirewallFacts {
        name: name.into(),
        active,
        evidence: format!("{name}.service is {}", if active { "active" } else { "inactive" }),
    }
}

#[test]
fn a_firewall_warns_only_where_a_document_or_a_try_says_so() {
    let k = |name: &str, distribution: Distribution| {
        world::kubernetes().with(|k| {
            k.firewalls = known(vec![firewall(name, true)]);
            k.distribution = distribution;
        })
    };
    let of = |k: KubernetesFacts, profile| {
        find(&judged(k, profile), ConditionType::KubernetesReady, "firewall").unwrap()
    };
    let f = of(k("firewalld", Distribution::Rke2), Profile::Generic);
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::FirewallConflicts,
        &["firewalld.service is active", "RKE2's known issues"],
    );
    let f = of(k("firewalld", Distribution::K3s), Profile::Generic);
    expect(&f, Status::True, Severity::Info, ReasonCode::FirewallActive, &["not known"]);
    let f = of(k("firewalld", Distribution::K3s), Profile::RancherHaServer);
    expect(&f, Status::True, Severity::Warn, ReasonCode::FirewallConflicts, &["Rancher's requirements"]);
    let f = of(k("nftables", Distribution::Rke2), Profile::RancherHaServer);
    assert_eq!((f.severity, f.reason), (Severity::Info, ReasonCode::FirewallActive));
    let joined = k("nftables", Distribution::Rke2).with(|k| {
        k.network = known(world::network(1, vec![with(2, &[(TriedPort::Overlay, Reach::Silent, 2)])]))
    });
    expect(
        &of(joined, Profile::Generic),
        Status::True,
        Severity::Warn,
        ReasonCode::FirewallActive,
        &["tries of n2 fail"],
    );
}

#[test]
fn what_could_not_be_read_of_the_firewall_is_unknown_and_not_off() {
    let k = world::kubernetes().with(|k| k.firewalls = unknown(UnknownCause::TimedOut));
    let f = ready(k, "firewall");
    assert_eq!((f.status, f.reason), (Status::Unknown, ReasonCode::TimedOut));
    let none = world::kubernetes().with(|k| k.firewalls = world::absent("systemd"));
    assert!(find(&judged(none, Profile::Generic), ConditionType::KubernetesReady, "firewall").is_none());
    let off = world::kubernetes().with(|k| k.firewalls = known(vec![firewall("ufw", false)]));
    expect(
        &ready(off, "firewall"),
        Status::True,
        Severity::Ok,
        ReasonCode::FirewallClear,
        &["ufw.service is inactive"],
    );
}

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

#[test]
fn kubelet_and_api_server_answer_or_not() {
    let down = world::kubernetes().with(|k| k.kubelet = Some(unknown(UnknownCause::ConnectionRefused)));
    expect(
        &ready(down.clone(), ""),
        Status::False,
        Severity::Error,
        ReasonCode::KubeletDown,
        &["rke2-server.service is active"],
    );
    let starting = down.with(|k| {
        k.machine.units = known(vec![world::unit("rke2-server.service", "loaded", "activating", "enabled")])
    });
    assert_eq!(ready(starting, "").severity, Severity::Warn);
    let sick = world::kubernetes()
        .with(|k| k.apiserver = Some(known(ComponentAnswer { status: 500, said: "[-]etcd failed".into() })));
    expect(
        &ready(sick, ""),
        Status::False,
        Severity::Error,
        ReasonCode::ApiserverDown,
        &["500", "[-]etcd failed"],
    );
    let blind = world::kubernetes().with(|k| k.kubelet = Some(unknown(UnknownCause::InvalidAnswer)));
    assert_eq!(ready(blind, "").reason, ReasonCode::InvalidAnswer);
}

// ---- over a cluster ----

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
