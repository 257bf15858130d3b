//! Nodes that were built anew and left a member behind, members of one name, recorded addresses, and very long lists.

use outrider_protocol::*;
use proptest::prelude::*;

use crate::expect;
use crate::fleet_world::{World, id};
use crate::world::{self, Change, kill, known, list_mut, status_mut, unknown};

/// Member names as RKE2 gives them.
fn rke2_name(node: usize, suffix: &str) -> String {
    format!("n{node}-{suffix}")
}

/// Three servers, of which n3 was built anew: member 4 is its old one, at `url`, and does not answer.
fn rebuilt(url: &str) -> World {
    let mut w = World::of(4).every(|_, e| {
        let members = &mut list_mut(e).members;
        (1..=3).for_each(|n| members[n - 1].name = rke2_name(n, "0a1b2c3d"));
        members[3].name = rke2_name(3, "99887766");
        members[3].peer_urls = vec![url.into()];
        kill(e, 4, 90_000);
    });
    w.nodes.pop();
    for (i, node) in w.nodes.iter_mut().enumerate() {
        let network = world::network(i + 1, vec![]);
        node.network = Some(network.with(|n| n.addresses = vec![format!("10.0.0.{}", i + 1)]));
    }
    w
}

#[test]
fn d17_the_ghost_of_a_rebuilt_node_is_told_from_its_living_member() {
    for (url, how) in [
        ("https://10.0.0.13:2380", "another address than the node's 10.0.0.3"),
        ("https://[fd00::3]:2380", "another address family than the node's 10.0.0.3"),
    ] {
        let w = rebuilt(url);
        expect(
            &w.membership(),
            Status::False,
            Severity::Warn,
            ReasonCode::EtcdGhostMember,
            &[
                "n3-99887766 with id 0000000000000004 (does not answer)",
                "living member is n3-0a1b2c3d with id 0000000000000003",
                "cluster of 3 counts as 4, quorum 3 of 4, tolerates 0 more",
                "after removal of the ghost: 3 voters, quorum 2, tolerates 1",
                how,
                "and not n3-0a1b2c3d with id 0000000000000003",
                "Outrider does not remove members",
            ],
        );
        expect(
            &w.quorum(),
            Status::True,
            Severity::Warn,
            ReasonCode::EtcdNoTolerance,
            &["4 voters", "n3-99887766", "as EtcdMembership tells"],
        );
        let p = w.picture();
        assert_eq!((p.tolerated, p.tolerated_without_ghosts), (0, Some(1)));
        assert_eq!((p.members[3].node.as_str(), p.members[2].node.as_str()), ("", "n3"), "{:#?}", p.members);
    }
    // At the old address: a duplicate, of which the living one is told.
    expect(
        &rebuilt("https://10.0.0.3:2380").membership(),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdPeerUrlMismatch,
        &[
            "duplicate",
            "n3-0a1b2c3d with id 0000000000000003 answers, n3-99887766 with id 0000000000000004 does not",
            "Also: Ghost member",
            "the node's own address (duplicate)",
        ],
    );
}

#[test]
fn lists_of_nodes_that_disagree_make_no_ghost() {
    let names = |n: usize| known((1..=n).map(|n| format!("n{n}")).collect());
    // Which of the reports know the nodes, and how many of them; all were asked at one instant, or one after the other.
    let world = |lists: &[usize; 3], seconds: &[u64; 3]| {
        let mut w = World::of(4).every(|i, e| {
            kill(e, 4, 6000);
            if let Some(n) = lists.get(i - 1).filter(|n| **n > 0) {
                e.kubernetes_nodes = names(*n);
            }
        });
        w.nodes.pop();
        for (node, seconds) in w.nodes.iter_mut().zip(seconds) {
            if let Some(Fact::Known { at, .. }) = &mut node.etcd {
                *at = world::ago(*seconds);
            }
        }
        w
    };
    for seconds in [[0, 0, 0], [0, 30, 60], [60, 30, 0], [1800, 0, 900]] {
        for lists in [[3, 4, 0], [4, 3, 0], [0, 4, 3], [3, 3, 4], [4, 4, 3]] {
            let w = world(&lists, &seconds);
            let f = w.membership();
            assert_ne!(f.reason, ReasonCode::EtcdGhostMember, "{lists:?} {f:#?}");
            assert!(f.message.contains("has a node of n4, that of n"), "{lists:?} {f:#?}");
            assert!(!f.advice.contains("removes"), "{f:#?}");
            let f = w.quorum();
            let words = ["bring n4 back first", "Do not remove n4"];
            expect(&f, Status::True, Severity::Error, ReasonCode::EtcdNoTolerance, &words);
            assert_eq!(w.picture().members[3].kubernetes_node, Status::Unknown);
        }
        // Those that know agree.
        for lists in [[3, 3, 3], [3, 0, 0], [0, 3, 3]] {
            let f = world(&lists, &seconds).membership();
            assert_eq!(f.reason, ReasonCode::EtcdGhostMember, "{lists:?} {f:#?}");
            assert!(!f.advice.contains("on another"), "{f:#?}");
        }
    }
    // One node alone has one list, and says that it is one.
    let one = world::etcd(4).with(|e| {
        kill(e, 4, 6000);
        e.kubernetes_nodes = names(3);
    });
    let f = crate::etcd_verdict::membership(one);
    assert!(f.advice.contains("one server's list may be behind: see kubectl get nodes on another"), "{f:#?}");
}

#[test]
fn the_living_member_may_still_be_a_learner() {
    let w = rebuilt("https://10.0.0.13:2380").every(|_, e| {
        list_mut(e).members[2].is_learner = true;
        let s = status_mut(e, 3);
        (s.is_learner, s.raft_index) = (true, 9_000);
        e.endpoints[2].linearizable_read = unknown(UnknownCause::Unsupported);
    });
    let f = w.membership();
    let words = ["n3-99887766 with id", "cluster of 2 counts as 3", "Also: Learner n3-0a1b2c3d"];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdGhostMember, &words);
}

#[test]
fn two_members_of_one_name_that_both_answer_are_no_ghosts() {
    let mut w = World::of(4).every(|_, e| {
        list_mut(e).members[2].name = rke2_name(3, "0a1b2c3d");
        list_mut(e).members[3].name = rke2_name(3, "99887766");
    });
    w.nodes.pop();
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember);
    // Nor is the only one of its node, however long it is away.
    let w = World::of(3).every(|i, e| {
        if i != 3 {
            kill(e, 3, 90_000);
        }
    });
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember);
    // Nodes that happen to be called as members are elsewhere: a machine is not another's ghost.
    let mut w = World::of(3).every(|i, e| {
        list_mut(e).members[1].name = "pool-0a1b2c3d".into();
        list_mut(e).members[2].name = "pool-99887766".into();
        if i != 3 {
            kill(e, 3, 600);
        }
    });
    (w.nodes[1].name, w.nodes[2].name) = ("pool-0a1b2c3d".into(), "pool-99887766".into());
    w.nodes[2].ready = Status::Unknown;
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember);
    w.nodes.pop();
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember, "{:#?}", w.membership());
}

#[test]
fn members_of_one_name_are_told_apart_in_every_sentence() {
    let with_ids = |ids: [&str; 2]| {
        let mut w = World::of(4).every(|_, e| {
            for (n, new) in [3, 4].into_iter().zip(ids) {
                let old = std::mem::replace(&mut list_mut(e).members[n - 1].id, new.into());
                list_mut(e).members[n - 1].name = "n3".into();
                for endpoint in e.endpoints.iter_mut().filter(|e| e.member_id == old) {
                    endpoint.member_id = new.into();
                    if let Fact::Known { value, .. } = &mut endpoint.status {
                        value.member_id = new.into();
                    }
                }
            }
            kill(e, 4, 600);
        });
        w.nodes.pop();
        w.quorum().message
    };
    let message = with_ids(["8e9e05c52164694d", "91bc3c398fb3c146"]);
    assert!(message.contains("n3 (id 91bc3c39) does not answer"), "{message}");
    let message = with_ids(["8e9e05c52164694d", "8e9e05c5ffffffff"]);
    assert!(message.contains("n3 (id 8e9e05c5ffffffff) does not answer"), "{message}");
}

#[test]
fn a_member_is_recorded_where_its_node_is() {
    let at = |addresses: &[&str], recorded: &str, change: fn(&mut EtcdFacts)| {
        let mut w = World::of(3).every(|_, e| {
            list_mut(e).members[1].peer_urls = vec![recorded.into()];
            change(e);
        });
        let addresses = addresses.iter().map(|a| (*a).to_owned()).collect();
        w.nodes[1].network = Some(world::network(2, vec![]).with(|n| n.addresses = addresses));
        w.membership()
    };
    for (addresses, recorded, kind) in [
        (&["10.0.0.2"][..], "https://10.0.0.22:2380", "differs: address;"),
        (&["fd00::2"], "https://10.0.0.2:2380", "differs: address family;"),
        (&["10.0.0.2"], "http://10.0.0.2:2380", "differs: scheme;"),
        (&["10.0.0.2"], "https://10.0.0.2:2390", "differs: port;"),
        (&["fd00::2"], "https://fd00::2:2380", "without brackets"),
    ] {
        let f = at(addresses, recorded, |_| {});
        let words = [recorded, kind, "n2"];
        assert_eq!((f.status, &f.reason), (Status::False, &ReasonCode::EtcdPeerUrlMismatch), "{f:#?}");
        words.iter().for_each(|word| assert!(f.message.contains(word), "{word}: {f:#?}"));
    }
    for (addresses, recorded) in [
        (&["10.0.0.2"][..], "https://10.0.0.2:2380"),
        // An address of either family will do, and a name tells nothing.
        (&["fd00::2", "10.0.0.2"], "https://10.0.0.2:2380"),
        (&["10.0.0.2"], "https://n2.example:2380"),
        (&[], "https://10.0.0.22:2380"),
        (&["not an address"], "https://10.0.0.22:2380"),
    ] {
        assert_eq!(at(addresses, recorded, |_| {}).reason, ReasonCode::EtcdMembersExpected, "{recorded}");
    }
    // kubeadm and others may have etcd elsewhere.
    let f = at(&["10.0.0.2"], "https://10.0.0.22:2380", |e| e.distribution = Distribution::Kubeadm);
    assert_eq!(f.reason, ReasonCode::EtcdMembersExpected);
}

#[test]
fn a_member_id_that_stands_twice_counts_once_and_is_told() {
    let w = World::of(3).every(|_, e| {
        let again = list_mut(e).members[2].clone();
        list_mut(e).members.push(Member { name: "other".into(), is_learner: true, ..again });
    });
    let f = w.quorum();
    expect(&f, Status::True, Severity::Ok, ReasonCode::EtcdQuorumMet, &["3 voters", "quorum 2"]);
    let f = w.membership();
    let words = ["0000000000000003 2 times, as n3, other", "counted once"];
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::InvalidAnswer, &words);
    let p = w.picture();
    assert_eq!((p.voters, p.learners, p.members.len()), (3, 0, 3));
}

#[test]
fn one_report_given_twice_counts_once() {
    let mut w = World::of(4);
    for n in [3, 4] {
        w.view(n, |e| {
            status_mut(e, n).cluster_id = "c9".into();
            list_mut(e).cluster_id = "c9".into();
        });
    }
    // Two and two, and one of them given again: still no majority.
    w.nodes.push(w.nodes[0].clone());
    let f = w.membership();
    let words = [
        "no cluster has more than half",
        "none is called the minority",
        "cluster c1 has n1, n2",
        "cluster c9 has n3, n4",
    ];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdClusterIdMismatch, &words);
    assert!(!f.message.contains("n1, n1") && !f.advice.contains("join cluster c1"), "{f:#?}");
    assert_eq!(w.picture().matrix.len(), 2);
}

#[test]
fn two_thousand_members_are_judged_without_a_square() {
    const MANY: usize = 2_000;
    let base = world::etcd_from(1, MANY);
    // Each agent asks a few members; the list and the names of the nodes are long.
    let nodes: Vec<String> = (1..=MANY).map(|i| format!("n{i}")).collect();
    let mut w = World::of(1);
    w.nodes = (1..=60)
        .map(|i| {
            let mut node = w.nodes[0].clone();
            node.name = format!("n{i}");
            let mut e = base.clone();
            e.endpoints = (0..16).map(|k| world::endpoint((i * 16 + k) % MANY + 1, k == 0)).collect();
            e.kubernetes_nodes = known(nodes.clone());
            node.etcd = Some(known(e));
            node
        })
        .collect();
    let began = on_processor();
    let f = w.quorum();
    let p = w.picture();
    assert_eq!((p.voters, p.members.len()), (2_000, 2_000));
    assert!(f.message.contains("2000 voters"), "{}", f.message);
    // The same at one node, and every member at the same place.
    let same = base.with(|e| {
        list_mut(e).members.iter_mut().for_each(|m| m.peer_urls = vec!["https://10.0.0.1:2380".into()])
    });
    let j = outrider_diagnosis::judge(&crate::etcd_verdict::etcd_node(same));
    assert!(j.findings.iter().all(|f| f.message.len() < 10_000 && f.advice.len() < 10_000));
    // A square of calls would take minutes of a processor; this takes seconds, however busy the machine is.
    let took = on_processor() - began;
    assert!(took.as_secs() < 60, "{took:?}");
}

/// Time that this thread has run on a processor (proc(5), `schedstat`: the first number, in nanoseconds).
fn on_processor() -> std::time::Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel that counts");
    let first = text.split_whitespace().next().expect("a number");
    std::time::Duration::from_nanos(first.parse().expect("a number"))
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn a_living_member_is_never_a_ghost_of_its_own_node(
        nodes in prop::collection::vec(0usize..4, 1..7),
        dead in prop::collection::btree_set(1usize..7, 0..6),
    ) {
        let n = nodes.len();
        let w = World::of(n).every(|_, e| {
            for (i, node) in nodes.iter().enumerate() {
                list_mut(e).members[i].name = format!("n{node}-{:08x}", i + 1);
            }
            dead.iter().filter(|d| **d <= n).for_each(|d| kill(e, *d, 600));
        });
        let f = w.membership();
        let living = (1..=n).filter(|i| !dead.contains(i));
        for i in living {
            let called = format!("n{}-{:08x} with id {} (", nodes[i - 1], i, id(i));
            prop_assert!(!f.message.contains(&called), "{called}: {f:#?}");
        }
        let p = w.picture();
        prop_assert_eq!(p.voters as usize, n);
        prop_assert!(p.tolerated_without_ghosts.is_none_or(|t| t >= p.tolerated), "{p:#?}");
    }
}
