//! What the verdict over a cluster says beyond quorum: cases TC05 and TC06 by all reports, learners, peer URLs, versions,
//! regions, leaders, ghosts.

use outrider_protocol::*;

use crate::expect;
use crate::fleet_world::{Node, World, id};
use crate::world::{self, ago, etcd_from, kill, known, list_mut, status_mut, unknown};

// ---- TC05 and TC06 by all reports ----

/// TC05: m3 away for ten minutes, m4 a learner of 40 s.
fn tc05() -> World {
    let mut w = World::of(4).every(|i, e| {
        if i != 3 {
            kill(e, 3, 600);
        }
        list_mut(e).members[3].is_learner = true;
        let s = status_mut(e, 4);
        (s.is_learner, s.raft_index) = (true, 9_000);
        e.endpoints[3].linearizable_read = unknown(UnknownCause::Unsupported);
        e.learners_since.insert(id(4), ago(40));
    });
    w.nodes[2].ready = Status::Unknown;
    w
}

#[test]
fn tc05_by_all_reports() {
    let w = tc05();
    expect(
        &w.quorum(),
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &[
            "next loss stops the cluster",
            "3 voters",
            "quorum 2",
            "2 healthy",
            "tolerates 0",
            "n3",
            "none of n1, n2",
        ],
    );
    expect(
        &w.membership(),
        Status::True,
        Severity::Info,
        ReasonCode::EtcdLearnerJoining,
        &["n4 is joining, catching up", "9000 of 120000", "40 s", "not counted"],
    );
    let p = w.picture();
    assert_eq!((p.voters, p.quorum, p.healthy, p.tolerated, p.learners), (3, 2, 2, 0, 1));
    let m4 = &p.members[3];
    assert_eq!((&m4.role, &m4.health), (&MemberRole::Learner, &MemberHealth::Healthy));
    assert_eq!(m4.status.as_ref().map(|s| s.raft_lag), Some(111_000));
    let m3 = &p.members[2];
    assert_eq!((&m3.health, m3.down_since), (&MemberHealth::Down, Some(ago(600))));
}

#[test]
fn tc05_variant_the_blocker_and_whom_it_blocks() {
    let mut w = tc05().every(|_, e| {
        kill(e, 4, 1800);
        e.learners_since.insert(id(4), ago(2000));
    });
    // m4's machine is away; n5 runs a server that may not join.
    w.nodes[3].ready = Status::Unknown;
    let mut n5 = w.nodes[0].clone();
    n5.name = "n5".into();
    n5.etcd = Some(known(etcd_from(1, 1)));
    w.nodes.push(n5);
    w.view(5, |e| {
        e.members = unknown(UnknownCause::ConnectionRefused);
        e.endpoints[0].endpoint = "https://127.0.0.1:2379".into();
        e.endpoints[0].member_id = String::new();
        e.endpoints[0].status = unknown(UnknownCause::ConnectionRefused);
        e.endpoints[0].linearizable_read = unknown(UnknownCause::ConnectionRefused);
    });
    expect(
        &w.membership(),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdLearnerBlocking,
        &[
            "n4 has not answered for 30 min",
            "blocks the join of n5",
            "a person removes this learner",
            "n5 joins by itself",
        ],
    );
    // Somebody reaches it: it blocks nobody.
    let mut reached = w.clone();
    reached.view(2, |e| {
        let mut s = world::status(4);
        (s.is_learner, s.raft_index) = (true, 80_000);
        e.endpoints[3].status = known(s);
        e.endpoints[3].down_since = None;
    });
    assert_ne!(reached.membership().reason, ReasonCode::EtcdLearnerBlocking);
}

#[test]
fn tc06_sizes_by_all_reports() {
    for (n, reason, severity) in [
        (1, ReasonCode::EtcdSingleVoter, Severity::Info),
        (2, ReasonCode::EtcdEvenVoters, Severity::Warn),
        (3, ReasonCode::EtcdQuorumMet, Severity::Ok),
        (4, ReasonCode::EtcdEvenVoters, Severity::Warn),
        (5, ReasonCode::EtcdQuorumMet, Severity::Ok),
        (6, ReasonCode::EtcdEvenVoters, Severity::Warn),
        (7, ReasonCode::EtcdQuorumMet, Severity::Ok),
    ] {
        let w = World::of(n);
        let (quorum, tolerated) = (n / 2 + 1, n - (n / 2 + 1));
        let words = [format!("quorum {quorum}"), format!("tolerates {tolerated} more")];
        expect(&w.quorum(), Status::True, severity, reason, &[&words[0], &words[1]]);
        let p = w.picture();
        assert_eq!((p.voters as usize, p.quorum as usize, p.tolerated as usize), (n, quorum, tolerated));
    }
}

#[test]
fn tc06_d_a_ghost_by_all_reports_and_what_its_removal_gives() {
    let ghost = |nodes: Fact<Vec<String>>| {
        let mut w = World::of(4).every(|i, e| {
            if i != 4 {
                kill(e, 4, 90_000);
            }
            e.kubernetes_nodes = nodes.clone();
        });
        w.nodes.pop();
        w
    };
    let w = ghost(known(vec!["n1".into(), "n2".into(), "n3".into()]));
    expect(
        &w.membership(),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdGhostMember,
        &["n4", "cluster of 3 counts as 4", "quorum 3 of 4", "tolerates 0", "after removal", "tolerates 1"],
    );
    let p = w.picture();
    assert_eq!((p.tolerated, p.tolerated_without_ghosts), (0, Some(1)));
    assert_eq!(p.members[3].kubernetes_node, Status::False);
    // Nobody may list the nodes: unknown, no ghost.
    let w = ghost(unknown(UnknownCause::Forbidden));
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember);
    let p = w.picture();
    assert_eq!((p.tolerated_without_ghosts, p.members[3].kubernetes_node), (None, Status::Unknown));
    let f = World::of(3).membership();
    assert!(f.message.contains("whether each has a Kubernetes node is unknown"), "{}", f.message);
}

#[test]
fn a_list_that_is_older_than_a_member_makes_it_no_ghost() {
    let mut w = World::of(3);
    // n1 knows the nodes of before n3 joined, and a list of before too.
    w.view(1, |e| {
        list_mut(e).members.pop();
        list_mut(e).linearizable = false;
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into()]);
    });
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember);
}

// ---- learners, peers, leaders, versions, regions ----

#[test]
fn d8_both_ways_of_port_2380_are_told() {
    let link = |e: &mut EtcdFacts, to: usize, active: bool| {
        if let Fact::Known { value, .. } = &mut e.metrics {
            let peer = PeerScrape { active: Some(active), ..PeerScrape::default() };
            value.latest.peers.insert(id(to), peer);
        }
    };
    let mut w = World::of(4).every(|_, e| {
        list_mut(e).members[3].is_learner = true;
        let s = status_mut(e, 4);
        (s.is_learner, s.raft_index) = (true, 9_000);
        e.learners_since.insert(id(4), ago(900));
    });
    // n1 leads.
    w.view(1, |e| link(e, 4, true));
    w.view(4, |e| link(e, 1, false));
    expect(
        &w.membership(),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdLearnerLagging,
        &["port 2380: n1 -> n4 open, n4 -> n1 closed", "111000 behind", "open both ways"],
    );
    w.nodes.remove(3);
    assert!(w.membership().message.contains("n4 -> n1 not known"), "{}", w.membership().message);
}

#[test]
fn d11_the_node_whose_url_differs_is_named() {
    let mut w = World::of(3);
    w.view(2, |e| {
        e.expected = Some(known(ExpectedMember {
            name: "n2".into(),
            peer_urls: vec!["https://[fd00::2]:2380".into()],
            ..ExpectedMember::default()
        }));
    });
    expect(
        &w.membership(),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdPeerUrlMismatch,
        &["Member n2", "https://10.0.0.2:2380", "https://[fd00::2]:2380", "address family", "node-ip"],
    );
}

#[test]
fn leaders_that_differ_in_one_look() {
    let two = |looks: &[usize]| {
        let mut w = World::of(5);
        for look in looks {
            w.view(*look, |e| {
                let s = status_mut(e, 5);
                (s.leader, s.raft_term) = (id(4), 6);
            });
        }
        w
    };
    expect(
        &two(&[1, 2, 3, 4, 5]).membership(),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdLeadersDisagree,
        &[
            "n1 in term 7 (followed by n1, n2, n3, n4)",
            "n4 in term 6 (followed by n5)",
            "An election ends that within",
        ],
    );
    // Two looks in five at others, taken during an election, are no news: the members' own nodes know better.
    assert_eq!(two(&[1, 2]).membership().reason, ReasonCode::EtcdMembersExpected);
    let leaders: Vec<String> = two(&[1, 2, 3, 4, 5])
        .picture()
        .members
        .iter()
        .filter_map(|m| Some(m.status.as_ref()?.leader.clone()))
        .collect();
    assert_eq!(leaders, ["n1", "n1", "n1", "n1", "n4"], "each as it sees it");
}

#[test]
fn versions_apart() {
    let versions = |of: &[&str]| {
        let w = World::of(of.len()).every(|_, e| {
            for (i, v) in of.iter().enumerate() {
                status_mut(e, i + 1).version = (*v).to_owned();
            }
        });
        w.found(ConditionType::EtcdVersions)
    };
    expect(
        &versions(&["3.5.16", "3.5.16", "v3.5.16-k3s1"]),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdVersionsEqual,
        &["etcd 3.5.16 on 3 of 3 members"],
    );
    for of in [["3.5.16", "3.5.16", "3.6.1"], ["3.5.9", "3.5.16", "3.5.16"]] {
        let f = versions(&of);
        expect(&f, Status::True, Severity::Info, ReasonCode::EtcdVersionSkew, &["2 versions", "upgrade"]);
        assert_eq!(f.escalates, Some((std::time::Duration::from_secs(3600), Severity::Warn)));
    }
    expect(
        &versions(&["3.4.27", "3.5.16", "3.6.1"]),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdVersionSkew,
        &["3.4.27 on n1", "3.6.1 on n3", "one minor version at a time"],
    );
    assert_eq!(versions(&["2.3.8", "3.5.16"]).severity, Severity::Error);
    // What cannot be read is shown as it was told, and is no version 3.5.0.
    let f = versions(&["3.5.16", "3.5.x", "3.5"]);
    let words = ["etcd 3.5.16 on 1 of 3 members", "\"3.5.x\" of n2, \"3.5\" of n3"];
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::InvalidAnswer, &words);
    let f = versions(&["3.5.x", "3.x.5", "3.5.16.1"]);
    assert!(f.status == Status::Unknown && f.message.contains("\"3.5.16.1\" of n3"), "{f:#?}");
    let f = versions(&["not a version", ""]);
    assert_eq!((f.status, f.severity), (Status::Unknown, Severity::Info));
}

#[test]
fn regions_apart_are_against_ranchers_rule() {
    let mut w = World::of(3);
    w.nodes[2].region = "r2".into();
    expect(
        &w.membership(),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdRegionsDiffer,
        &["2 regions: r1 (n1, n2), r2 (n3)", "Rancher", "one region", "members of n3"],
    );
    w.nodes[2].region.clear();
    assert_eq!(w.membership().reason, ReasonCode::EtcdMembersExpected, "an unknown region is no region");
    // A worker elsewhere is no member.
    w.nodes.push(Node {
        name: "w".into(),
        ready: Status::True,
        zone: "z".into(),
        region: "r9".into(),
        etcd: None,
        network: None,
        received: None,
        heard: None,
        retired: None,
    });
    assert_eq!(w.membership().reason, ReasonCode::EtcdMembersExpected);
}

#[test]
fn all_voters_in_one_zone() {
    let mut w = World::of(3);
    w.nodes.iter_mut().for_each(|n| n.zone = "a".into());
    expect(
        &w.membership(),
        Status::True,
        Severity::Info,
        ReasonCode::EtcdFailureDomain,
        &["Zone a holds 3 of 3 voters (n1, n2, n3)", "quorum is lost with the zone", "leaves 0 of the 2"],
    );
}

#[test]
fn d10_the_minority_and_what_its_return_needs() {
    let mut w = World::of(5);
    for n in [2, 4] {
        w.view(n, |e| {
            status_mut(e, n).cluster_id = "c9".into();
            list_mut(e).cluster_id = "c9".into();
        });
    }
    expect(
        &w.membership(),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdClusterIdMismatch,
        &[
            "2 of 5 are in the minority: n2 (c9), n4 (c9)",
            "n2, n4: rebuilt",
            "join cluster c1 again",
            "old member removed",
        ],
    );
    let p = w.picture();
    assert_eq!(p.cluster_id, "c1");
    let unheard: Vec<(&str, &str)> = p.unheard.iter().map(|u| (u.node.as_str(), u.why.as_str())).collect();
    assert_eq!(unheard, [("n2", "other-cluster"), ("n4", "other-cluster")]);
}

#[test]
fn d18_a_server_whose_member_was_removed_is_named_to_all() {
    let mut world = World::of(4).every(|_, e| {
        list_mut(e).members.truncate(3);
        if e.local_endpoint != "https://10.0.0.4:2379" {
            e.endpoints.truncate(3);
        }
    });
    let words =
        ["The member of n4 was removed from cluster c1, which has n1, n2, n3", "EtcdMemberHealthy of n4"];
    expect(&world.membership(), Status::False, Severity::Error, ReasonCode::EtcdMemberRemoved, &words);
    // A list that nobody vouched for raises no certainty.
    world.view(4, |e| list_mut(e).linearizable = false);
    assert_eq!(world.membership().reason, ReasonCode::EtcdMembersExpected);
}
