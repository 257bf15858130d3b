//! Members, learners and ghosts: TC05's variant, TC06 d, and the local member.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::etcd_verdict::{etcd_node, local, membership};
use crate::world::{self, Change, ago, etcd, kill, known, list_mut, orphan, status_mut, unknown};
use crate::{expect, only};

fn quorum(e: EtcdFacts) -> Finding {
    only(&judge(&etcd_node(e)), ConditionType::EtcdQuorum)
}

fn learner(age: u64, change: impl FnOnce(&mut EtcdFacts)) -> EtcdFacts {
    etcd(4).with(|e| {
        list_mut(e).members[3].is_learner = true;
        let s = status_mut(e, 4);
        s.is_learner = true;
        s.raft_index = 9_000;
        e.learners_since.insert(world::member(4).id, ago(age));
        change(e);
    })
}

#[test]
fn tc05_a_young_learner_is_joining_not_broken() {
    let f = membership(learner(40, |_| {}));
    expect(
        &f,
        Status::True,
        Severity::Info,
        ReasonCode::EtcdLearnerJoining,
        &["n4", "joining, catching up", "9000 of 120000", "111000 behind", "40 s", "Wait, it is not broken"],
    );
    assert!(!f.advice.contains("remove"), "{}", f.advice);
}

#[test]
fn tc05_variant_a_dead_learner_blocks_the_next_one() {
    for seconds in [300, 1800, 90_000] {
        let f = membership(learner(seconds + 60, |e| kill(e, 4, seconds)));
        expect(
            &f,
            Status::False,
            Severity::Warn,
            ReasonCode::EtcdLearnerBlocking,
            &["n4", "too many learner members", "a person removes"],
        );
    }
    // Younger than the limit it is a pause.
    let f = membership(learner(299, |e| kill(e, 4, 200)));
    expect(&f, Status::True, Severity::Info, ReasonCode::EtcdLearnerJoining, &["has not answered for 3 min"]);
    // Never started and never published an address: as old as it has been seen.
    let unstarted = |age| {
        learner(age, |e| {
            let m = &mut list_mut(e).members[3];
            m.name.clear();
            m.client_urls.clear();
            e.endpoints.pop();
        })
    };
    expect(&membership(unstarted(20)), Status::True, Severity::Info, ReasonCode::EtcdLearnerJoining, &[]);
    expect(
        &membership(unstarted(1800)),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdLearnerBlocking,
        &["0000000000000004"],
    );
}

#[test]
fn a_learner_whose_age_is_unknown_is_not_a_blocker() {
    let e = learner(0, |e| {
        e.learners_since.clear();
        e.endpoints[3].status = unknown(UnknownCause::TimedOut);
    });
    expect(&membership(e), Status::True, Severity::Info, ReasonCode::EtcdLearnerJoining, &[]);
}

#[test]
fn a_learner_that_never_gets_in_sync_is_warned_about_with_its_lag() {
    let f = membership(learner(3600, |_| {}));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdLearnerLagging,
        &["111000 behind", "60 min", "2380"],
    );
}

#[test]
fn tc06_d_numbers_of_a_ghost_before_and_after() {
    let ghost = |dead: bool| {
        etcd(4).with(|e| {
            if dead {
                kill(e, 4, 90_000);
            }
            e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n3".into()]);
        })
    };
    let f = membership(ghost(true));
    expect(
        &f,
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdGhostMember,
        &[
            "n4 with id 0000000000000004 (does not answer), without a Kubernetes node",
            "the cluster of 3 counts as 4",
            "quorum 3 of 4",
            "tolerates 0",
            "after removal of the ghost: 3 voters, quorum 2, tolerates 1",
            "Outrider does not remove",
        ],
    );
    expect(
        &membership(ghost(false)),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdGhostMember,
        &["n4 with id 0000000000000004 (still answers)"],
    );
}

#[test]
fn member_names_of_every_distribution_find_their_node() {
    let named = |member: &str, nodes: &[&str]| {
        etcd(3).with(|e| {
            list_mut(e).members[2].name = member.into();
            e.kubernetes_nodes = known(nodes.iter().map(|n| (*n).to_owned()).collect());
        })
    };
    for (member, node) in [
        ("srv-3-1a2b3c4d", "srv-3"),
        ("etcd-srv-3", "srv-3"),
        ("srv-3", "srv-3"),
        ("SRV-3-1A2B3C4D", "srv-3"),
    ] {
        let f = membership(named(member, &["n1", "n2", node]));
        assert_eq!(f.reason, ReasonCode::EtcdMembersExpected, "{member}: {f:#?}");
    }
    for member in ["srv-33", "srv-3-1a2b3c4", "srv-3-nothexxx", "srv-3\u{e9}1a2b3c4d", "srv-4-1a2b3c4d"] {
        let f = membership(named(member, &["n1", "n2", "srv-3"]));
        assert_eq!(f.reason, ReasonCode::EtcdGhostMember, "{member}: {f:#?}");
    }
}

#[test]
fn nodes_that_do_not_match_at_all_make_no_ghosts() {
    for nodes in [vec![], vec!["other".to_owned(), String::new()]] {
        let f = membership(etcd(3).with(|e| e.kubernetes_nodes = known(nodes)));
        expect(&f, Status::True, Severity::Ok, ReasonCode::EtcdMembersExpected, &["not compared"]);
    }
    let f = membership(etcd(3).with(|e| e.kubernetes_nodes = unknown(UnknownCause::Forbidden)));
    expect(
        &f,
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdMembersExpected,
        &["not compared with Kubernetes nodes (Forbidden)"],
    );
}

#[test]
fn a_member_of_another_cluster_is_named() {
    let f = membership(etcd(3).with(|e| status_mut(e, 2).cluster_id = "c9".into()));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdClusterIdMismatch,
        &["10.0.0.2", "c9", "c1", "data folder empty"],
    );
}

#[test]
fn several_findings_are_all_told_the_gravest_first() {
    let e = learner(40, |e| {
        status_mut(e, 2).cluster_id = "c9".into();
    });
    let f = membership(e);
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdClusterIdMismatch, &["Also: Learner n4"]);
}

#[test]
fn the_local_member() {
    expect(
        &local(etcd(3)),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdMemberAnswers,
        &["n1", "1.2 ms", "3.5.16"],
    );
    let dead = local(etcd(3).with(|e| kill(e, 1, 90)));
    expect(
        &dead,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdMemberDown,
        &["10.0.0.1", "90 s", "ConnectionRefused"],
    );
    expect(
        &local(etcd(3).with(|e| orphan(e, 1))),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoLeader,
        &["Do not restart"],
    );
    let read = local(etcd(3).with(|e| e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut)));
    expect(&read, Status::False, Severity::Warn, ReasonCode::EtcdReadFailed, &["TimedOut"]);
    let tls = local(etcd(3).with(|e| e.endpoints[0].status = unknown(UnknownCause::TlsFailed)));
    expect(&tls, Status::Unknown, Severity::Warn, ReasonCode::TlsFailed, &["10.0.0.1"]);
    assert!(tls.advice.starts_with("Compare the certificate that https://10.0.0.1:2379 shows"), "{tls:#?}");
    // As the sensor tells an end; where nobody looks at certificates, the person is not sent to a condition that is not there.
    let detail = "TLS with 10.0.0.1:2379: the certificate expired 29 days ago by this clock (is a clock wrong? compare first)";
    let ended = Fact::unknown(UnknownCause::TlsFailed, detail, "test", world::now());
    let mut facts = etcd_node(etcd(3).with(|e| e.endpoints[0].status = ended));
    for (certificates, looks) in [
        (None, "openssl s_client -connect 10.0.0.1:2379 -showcerts shows it"),
        (Some(Fact::not_applicable("none here", world::now())), "openssl s_client -connect 10.0.0.1:2379"),
        (Some(known(world::certificates("", 265))), "CertificatesValid says what is served there"),
    ] {
        facts.checks.certificates = certificates;
        let f = only(&judge(&facts), ConditionType::EtcdMemberHealthy);
        let words = [
            "Compare this clock with another first",
            "has ended",
            "is to be renewed by whoever issues it",
            looks,
        ];
        expect(&f, Status::Unknown, Severity::Warn, ReasonCode::TlsFailed, &words);
        assert_eq!(f.advice.contains("CertificatesValid"), looks.starts_with("Cert"), "{f:#?}");
    }
    let none = local(etcd(3).with(|e| e.endpoints.iter_mut().for_each(|e| e.local = false)));
    expect(&none, Status::Unknown, Severity::Warn, ReasonCode::InvalidInput, &[]);
    let learner = local(etcd(3).with(|e| {
        status_mut(e, 1).is_learner = true;
        e.endpoints[0].linearizable_read = unknown(UnknownCause::Unsupported);
    }));
    expect(
        &learner,
        Status::True,
        Severity::Info,
        ReasonCode::EtcdMemberIsLearner,
        &["Wait, it is not broken"],
    );
}

#[test]
fn a_lagging_local_learner_is_told_one_thing_by_both_conditions() {
    let here = |age: u64, index: u64| {
        learner(age, |e| {
            for (i, endpoint) in e.endpoints.iter_mut().enumerate() {
                endpoint.local = i == 3;
            }
            status_mut(e, 4).raft_index = index;
            e.endpoints[3].linearizable_read = unknown(UnknownCause::Unsupported);
        })
    };
    for (age, index, waits) in [(40, 9_000, true), (3600, 9_000, false), (3600, 119_000, false)] {
        let (own, list) = (local(here(age, index)), membership(here(age, index)));
        assert_eq!(own.reason, ReasonCode::EtcdMemberIsLearner);
        assert_eq!(own.advice.contains("Wait, it is not broken"), waits, "{own:#?}");
        assert!(own.advice.contains(&list.advice), "{own:#?} {list:#?}");
        assert_eq!(own.advice.contains("see EtcdMembership"), !waits, "{own:#?}");
    }
}

#[test]
fn a_member_id_that_stands_twice_counts_once() {
    let e = etcd(3).with(|e| {
        let again = list_mut(e).members[0].clone();
        list_mut(e).members.push(again);
    });
    expect(&quorum(e.clone()), Status::True, Severity::Ok, ReasonCode::EtcdQuorumMet, &["3 voters"]);
    let words = ["0000000000000001 2 times, as n1"];
    expect(&membership(e), Status::Unknown, Severity::Warn, ReasonCode::InvalidAnswer, &words);
}

#[test]
fn advice_on_quorum_and_on_members_is_one() {
    // One of three belongs to another cluster: no "bring back", no "do not remove".
    let f = quorum(etcd(3).with(|e| status_mut(e, 3).cluster_id = "other".into()));
    expect(
        &f,
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &["c1 has n1, n2, other has n3; the minority is n3 (1 of 3)", "EtcdMembership says what follows"],
    );
    assert!(!f.advice.contains("bring") && !f.advice.contains("remove"), "{}", f.advice);
    // Four voters, a ghost and one more away: quorum is lost, and only the real one is to be brought back.
    let e = etcd(4).with(|e| {
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n3".into()]);
        (1..=2).for_each(|n| orphan(e, n));
        (3..=4).for_each(|n| kill(e, n, 60));
    });
    let f = quorum(e.clone());
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdQuorumLost,
        &["Bring n3 back", "Ghosts: n4; see EtcdMembership"],
    );
    let f = only(&judge(&etcd_node(e)), ConditionType::EtcdMembership);
    let words = ["No quorum holds now", "first bring back n3.", "3 voters, quorum 2, tolerates 0"];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdGhostMember, &words);
}

#[test]
fn words_for_small_numbers() {
    let f = quorum(etcd(2));
    assert!(f.advice.contains("2 voters are no better than 1: neither may fail."), "{}", f.advice);
}

#[test]
fn a_member_that_the_quorum_does_not_count_is_not_healthy() {
    for (change, reason) in [
        (
            (|s: &mut EndpointStatus| s.errors = vec!["disk failure".into()]) as fn(&mut EndpointStatus),
            ReasonCode::EtcdReadFailed,
        ),
        (|s| s.cluster_id = "other".into(), ReasonCode::EtcdClusterIdMismatch),
    ] {
        let f = only(
            &judge(&etcd_node(etcd(3).with(|e| change(status_mut(e, 1))))),
            ConditionType::EtcdMemberHealthy,
        );
        assert_eq!((f.status, &f.reason), (Status::False, &reason), "{f:#?}");
    }
}

#[test]
fn d17_a_node_rebuilt_under_its_old_name_leaves_a_ghost() {
    let e = etcd(4).with(|e| {
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n3".into()]);
        list_mut(e).members[3].name = "n3".into();
        kill(e, 3, 600);
    });
    let f = only(&judge(&etcd_node(e)), ConditionType::EtcdMembership);
    let words = ["n3 with id 0000000000000003 (does not answer)", "cluster of 3 counts as 4"];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdGhostMember, &words);
}
