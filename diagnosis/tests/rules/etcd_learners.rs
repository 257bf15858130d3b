//! Learners by what they wait for, those that are left over, voters that never started, and ghosts that still answer
//! (D6, D8, D17): one advice, by whether there is a quorum.

use outrider_diagnosis::judge;
use outrider_protocol::*;
use proptest::prelude::*;

use crate::etcd_verdict::{etcd_node, found, local, membership};
use crate::fleet_world::World;
use crate::world::{self, Change, ago, etcd, kill, known, list_mut, orphan, status_mut, unknown};
use crate::{expect, only};

/// Three voters and the learner n4 at `index` of 120000, seen for `age` seconds.
fn learner(age: u64, index: u64) -> EtcdFacts {
    etcd(4).with(|e| {
        list_mut(e).members[3].is_learner = true;
        let s = status_mut(e, 4);
        (s.is_learner, s.raft_index) = (true, index);
        e.endpoints[3].linearizable_read = unknown(UnknownCause::Unsupported);
        e.learners_since.insert(world::member(4).id, ago(age));
    })
}

/// The same, seen by n4 itself.
fn here(age: u64, index: u64) -> EtcdFacts {
    learner(age, index).with(|e| {
        for (i, endpoint) in e.endpoints.iter_mut().enumerate() {
            endpoint.local = i == 3;
        }
    })
}

fn looks(e: &mut EtcdFacts, points: &[(u64, u64)]) {
    let look =
        |(seconds, index): &(u64, u64)| LearnerProgress { at: ago(*seconds), index: *index, front: 120_000 };
    e.learner_progress.insert(world::member(4).id, points.iter().map(look).collect());
}

#[test]
fn without_a_leader_the_quorum_comes_first() {
    let leaderless = |e: &mut EtcdFacts| {
        (1..=2).for_each(|n| kill(e, n, 60));
        orphan(e, 3);
        let s = status_mut(e, 4);
        s.leader.clear();
        s.errors = vec!["etcdserver: no leader".into()];
    };
    for (age, index) in [(40, 9_000), (40, 120_000), (3600, 9_000), (3600, 119_000)] {
        let f = membership(here(age, index).with(leaderless));
        assert!(f.advice.contains("Quorum first") && !f.advice.contains("Wait"), "{f:#?}");
        assert!(f.message.contains("waits for a leader"), "{f:#?}");
        let f = local(here(age, index).with(leaderless));
        expect(
            &f,
            Status::False,
            Severity::Error,
            ReasonCode::EtcdNoLeader,
            &["n4", "learner", "Quorum first"],
        );
        assert!(!f.advice.contains("Wait"), "{f:#?}");
    }
    // The list could not be read at all.
    let f = local(here(40, 9_000).with(|e| {
        leaderless(e);
        e.members = unknown(UnknownCause::TimedOut);
    }));
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoLeader, &["Quorum first"]);
    assert!(!f.advice.contains("Wait"), "{f:#?}");
    // Only the learner sees none: it is cut off.
    let cut = |age| here(age, 9_000).with(|e| status_mut(e, 4).leader.clear());
    for age in [40, 3600] {
        for f in [membership(cut(age)), local(cut(age))] {
            assert!(f.advice.contains("Check port 2380 between n4 and n1"), "{f:#?}");
            assert!(!f.advice.contains("Wait"), "{f:#?}");
        }
    }
}

#[test]
fn a_stopped_learner_is_to_be_started_by_how_it_is_silent() {
    let silent = |cause: UnknownCause, detail: &str| {
        learner(100, 9_000).with(|e| {
            kill(e, 4, 60);
            e.endpoints[3].status = Fact::unknown(cause, detail, "t", world::now());
        })
    };
    for (cause, detail, words) in [
        (UnknownCause::ConnectionRefused, "x", "Nothing listens at https://10.0.0.4:2379: bring rke2-server"),
        (
            UnknownCause::TimedOut,
            "Maintenance/Status: no answer within 1 s",
            "n4 hangs: at https://10.0.0.4:2379",
        ),
        (
            UnknownCause::TimedOut,
            "connecting to https://10.0.0.4:2379: no answer within 1 s",
            "Nothing came back from",
        ),
        (UnknownCause::Unreachable, "no route", "cannot be reached: see whether the machine of n4 is on"),
        (UnknownCause::Unavailable, "x", "says that it cannot serve"),
    ] {
        let f = membership(silent(cause, detail));
        expect(&f, Status::True, Severity::Info, ReasonCode::EtcdLearnerJoining, &[words, "60 s"]);
        assert!(!f.advice.contains("Wait"), "{f:#?}");
    }
    let f = membership(learner(20, 0).with(|e| {
        list_mut(e).members[3].name.clear();
        list_mut(e).members[3].client_urls.clear();
        e.endpoints.pop();
    }));
    expect(
        &f,
        Status::True,
        Severity::Info,
        ReasonCode::EtcdLearnerJoining,
        &["has never started", "https://10.0.0.4:2380"],
    );
    // On its own machine: down, and no loss for the voters.
    let f = local(here(100, 9_000).with(|e| kill(e, 4, 60)));
    let words = ["Nothing listens at https://10.0.0.4:2379", "n4 is a learner: the voters go on without it"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdMemberDown, &words);
}

#[test]
fn a_member_that_hangs_is_told_from_one_that_nobody_runs() {
    let silent = |cause: UnknownCause, detail: &str| {
        local(etcd(3).with(|e| {
            kill(e, 1, 60);
            e.endpoints[0].status = Fact::unknown(cause, detail, "t", world::now());
        }))
    };
    let at = "https://10.0.0.1:2379";
    for (cause, detail, word) in [
        (UnknownCause::ConnectionRefused, "x", "Nothing listens at"),
        (UnknownCause::TimedOut, "Maintenance/Status: no answer within 1 s", "etcd hangs:"),
        // What takes no connection on this very machine hangs as well.
        (UnknownCause::TimedOut, "connecting to https://10.0.0.1:2379: no answer within 1 s", "etcd hangs:"),
        (UnknownCause::Unreachable, "no route", "on this machine itself is cut"),
        (UnknownCause::Unavailable, "x", "cannot serve now"),
    ] {
        let f = silent(cause, detail);
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdMemberDown, &[word, at]);
    }
    let f = found(
        etcd(3).with(|e| {
            kill(e, 3, 60);
            e.endpoints[2].status =
                Fact::unknown(UnknownCause::TimedOut, "Maintenance/Status: no answer", "t", world::now());
        }),
        ConditionType::EtcdQuorum,
    );
    assert!(f.message.contains("though it takes the connection"), "{f:#?}");
}

#[test]
fn a_learner_that_has_caught_up_is_not_told_to_catch_up() {
    // Young and there: the next look of the leader's server promotes it.
    for index in [108_000, 119_000, 120_000] {
        for f in [membership(learner(40, index)), membership(here(40, index)), local(here(40, index))] {
            assert_eq!(f.severity, Severity::Info, "{f:#?}");
            assert!(f.advice.contains("RKE2 on the leader's server (n1) promotes n4 by itself"), "{f:#?}");
            assert!(!f.advice.contains("once it has") && !f.advice.contains("from 90 %"), "{f:#?}");
        }
    }
    // Old, and there only since a moment ago: that is no stuck promotion.
    let f = membership(
        learner(3600, 119_000)
            .with(|e| looks(e, &[(120, 60_000), (60, 100_000), (20, 110_000), (0, 119_000)])),
    );
    expect(
        &f,
        Status::True,
        Severity::Info,
        ReasonCode::EtcdLearnerJoining,
        &["has caught up and waits for its promotion"],
    );
    // There for minutes.
    let stuck = |distribution: Distribution| {
        membership(learner(3600, 119_000).with(|e| {
            looks(e, &[(180, 100_000), (120, 115_000), (60, 118_000), (0, 119_000)]);
            e.distribution = distribution;
        }))
    };
    for (distribution, words) in [
        (Distribution::Rke2, "rke2-server on the server of n1"),
        (Distribution::K3s, "k3s on the server of n1"),
        (Distribution::Kubeadm, "kubeadm join does so while it runs"),
        (Distribution::Configured, "etcd does not do so by itself"),
    ] {
        let f = stuck(distribution);
        let words = ["caught up and is not promoted", words, "etcdctl member promote 0000000000000004"];
        expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdLearnerLagging, &words);
    }
}

#[test]
fn who_promotes_hangs_on_who_runs_the_cluster() {
    for (distribution, words) in [
        (Distribution::Kubeadm, "kubeadm join on n4's machine promotes it"),
        (Distribution::Configured, "whoever added n4 promotes it (etcdctl member promote 0000000000000004)"),
        (Distribution::K3s, "K3s on the leader's server (n1)"),
    ] {
        let f = membership(learner(40, 9_000).with(|e| e.distribution = distribution));
        expect(
            &f,
            Status::True,
            Severity::Info,
            ReasonCode::EtcdLearnerJoining,
            &[words, "Wait, it is not broken"],
        );
    }
}

#[test]
fn a_learner_that_refuses_the_question_is_a_learner_and_no_old_version() {
    let f = local(here(40, 9_000).with(|e| {
        e.endpoints[3].status = Fact::unknown(
            UnknownCause::Unsupported,
            "etcdserver: rpc not supported for learner",
            "t",
            world::now(),
        );
    }));
    expect(
        &f,
        Status::True,
        Severity::Info,
        ReasonCode::EtcdMemberIsLearner,
        &["n4", "Wait, it is not broken"],
    );
    assert!(!f.advice.contains("version"), "{f:#?}");
    for (cause, word) in [
        (UnknownCause::TlsFailed, "https://10.0.0.1:2379"),
        (UnknownCause::Unauthenticated, "https://10.0.0.1:2379 does not take"),
        (UnknownCause::Forbidden, "https://10.0.0.1:2379 knows who asks and refuses (403)"),
        (UnknownCause::Unsupported, "https://10.0.0.1:2379"),
        (UnknownCause::InvalidAnswer, "https://10.0.0.1:2379"),
    ] {
        let f = local(etcd(3).with(|e| e.endpoints[0].status = unknown(cause.clone())));
        assert!(f.status == Status::Unknown && f.advice.contains(word), "{cause:?}: {f:#?}");
    }
}

// ---- left over ----

/// n3 was built anew: its living member is a voter, and `old` (member 4 and on) are what the machines before it left.
fn rebuilt(old: usize, learners: bool) -> EtcdFacts {
    etcd(3 + old).with(|e| {
        let members = &mut list_mut(e).members;
        (1..=3).for_each(|n| members[n - 1].name = format!("n{n}-0a1b2c3d"));
        for i in 4..=3 + old {
            members[i - 1].name = format!("n3-{i:08x}");
            members[i - 1].is_learner = learners;
        }
        (4..=3 + old).for_each(|n| kill(e, n, 90_000));
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n3".into()]);
    })
}

#[test]
fn a_learner_of_the_machine_before_is_left_over_and_removed_with_a_quorum_only() {
    let f = membership(rebuilt(1, true));
    let words = [
        "Learner n3-00000004 with id 0000000000000004 is left over",
        "node n3, which was built anew, runs n3-0a1b2c3d with id 0000000000000003 now",
        "has no vote",
        "removes this learner, n3-00000004 with id 0000000000000004",
        "a person removes",
    ];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdGhostMember, &words);
    assert!(!f.advice.contains("Bring") && !f.advice.contains("Wait"), "{f:#?}");
    // Another name at the address of a living one.
    let at_address = |e: &mut EtcdFacts| {
        list_mut(e).members[3].name = "other-99887766".into();
        list_mut(e).members[3].peer_urls = vec!["http://10.0.0.3:2380/".into()];
    };
    let f = membership(rebuilt(1, true).with(at_address));
    let told =
        f.message.contains("n3-0a1b2c3d with id 0000000000000003 answers as the member at its address");
    assert!(told && f.advice.contains("removes this learner, other-99887766 with id"), "{f:#?}");
    // Without a quorum nothing is removed.
    let f = membership(rebuilt(1, true).with(|e| {
        (1..=2).for_each(|n| kill(e, n, 60));
        orphan(e, 3);
    }));
    assert!(f.message.contains("left over"), "{f:#?}");
    assert!(
        f.advice.contains("a removal needs a quorum, and none holds now, so first see EtcdQuorum"),
        "{f:#?}"
    );
    // A silent learner of a node without another member may still be joining.
    let f = membership(rebuilt(1, true).with(|e| list_mut(e).members[2].name = "n9-0a1b2c3d".into()));
    assert_ne!(f.reason, ReasonCode::EtcdGhostMember, "{f:#?}");
    let w = World::of(4).every(|i, e| {
        *e = rebuilt(1, true)
            .with(|e| e.endpoints.iter_mut().enumerate().for_each(|(n, at)| at.local = n + 1 == i));
    });
    let mut w = w;
    w.nodes.pop();
    expect(
        &w.membership(),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdGhostMember,
        &["is left over", "a person removes"],
    );
}

#[test]
fn a_node_that_was_built_anew_twice_has_two_ghosts_and_one_living_member() {
    let f = membership(rebuilt(2, false));
    let words = [
        "n3-00000004 with id 0000000000000004 (does not answer)",
        "n3-00000005 with id 0000000000000005 (does not answer)",
        "the cluster of 3 counts as 5, quorum 3 of 5, tolerates 0 more",
        "after removal of the ghosts: 3 voters, quorum 2, tolerates 1",
        "one at a time",
        "and not n3-0a1b2c3d with id 0000000000000003, while",
    ];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdGhostMember, &words);
    // One left a voter, the other a learner.
    let f = membership(rebuilt(2, false).with(|e| list_mut(e).members[4].is_learner = true));
    for word in [
        "Ghost member: n3-00000004",
        "Learner n3-00000005",
        "removes this learner, n3-00000005 with id 0000000000000005",
    ] {
        assert!(f.message.contains(word) || f.advice.contains(word), "{word}: {f:#?}");
    }
}

#[test]
fn a_ghost_that_still_answers_is_not_to_be_removed_while_it_does() {
    let f =
        membership(etcd(4).with(|e| e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n3".into()])));
    let words = [
        "(still answers)",
        "Do not remove n4 with id 0000000000000004 while it answers: a machine runs there and votes",
        "stopped first",
        "quorum stays 3 of 4 until it is removed, and with it stopped 3 of 4 live",
    ];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdGhostMember, &words);
    assert!(!f.advice.contains("then removes"), "{f:#?}");
    // The quorum hangs on it.
    let f = membership(etcd(3).with(|e| {
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into()]);
        kill(e, 2, 600);
    }));
    let words = [
        "after removal of the ghost: 2 voters, quorum 2, of which only 1 live, so no quorum",
        "with it stopped only 1 of 3 would be known to live: the cluster stops, and nothing can be removed any more",
        "so first have n2 back",
    ];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdGhostMember, &words);
    // Who was not asked is neither.
    let f = membership(etcd(4).with(|e| {
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n3".into()]);
        e.endpoints[3].status = unknown(UnknownCause::TlsFailed);
    }));
    let words = ["(not asked)", "Whether n4 with id 0000000000000004 lives is not known"];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdGhostMember, &words);
    assert!(!f.advice.contains("then removes"), "{f:#?}");
    // One of each: each has its own advice.
    let f = membership(etcd(5).with(|e| {
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n3".into()]);
        kill(e, 5, 600);
    }));
    assert!(
        f.advice.contains("machine of n5 with id") && f.advice.contains("Do not remove n4 with id"),
        "{f:#?}"
    );
}

// ---- never started ----

fn unstarted(e: &mut EtcdFacts, n: usize) {
    let member = &mut list_mut(e).members[n - 1];
    member.name.clear();
    member.client_urls.clear();
    e.endpoints.remove(n - 1);
}

#[test]
fn a_voter_that_never_started_is_one_matter_by_the_state_of_the_quorum() {
    let f = membership(etcd(3).with(|e| unstarted(e, 3)));
    let words = [
        "added and never started, and counted in the quorum (2 of 3): 0000000000000003 (https://10.0.0.3:2380)",
        "Start etcd on the machine that is to listen at https://10.0.0.3:2380",
        "a person removes 0000000000000003 while quorum holds (2 healthy of 2 needed)",
    ];
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdMemberUnstarted, &words);
    // A second voter added to one: the quorum is gone with it, and so is every removal.
    let e = etcd(2).with(|e| {
        orphan(e, 1);
        unstarted(e, 2);
    });
    let f = membership(e.clone());
    let words = [
        "Start etcd on the machine",
        "cannot be removed: a removal needs a quorum too",
        "0 healthy of 2 needed",
    ];
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdMemberUnstarted, &words);
    assert!(!f.advice.contains("a person removes"), "{f:#?}");
    let quorum = found(e, ConditionType::EtcdQuorum);
    assert!(quorum.status == Status::False && !quorum.advice.contains("remove"), "{quorum:#?}");
    // It cannot be told.
    let f = membership(etcd(3).with(|e| {
        unstarted(e, 3);
        e.endpoints[1].status = unknown(UnknownCause::TlsFailed);
        e.endpoints[0].linearizable_read = Fact::not_applicable("x", world::now());
    }));
    assert!(f.advice.contains("Whether 0000000000000003 could be removed is not known"), "{f:#?}");
    // Nobody recorded where it is to listen.
    let f = membership(etcd(3).with(|e| {
        unstarted(e, 3);
        list_mut(e).members[2].peer_urls.clear();
    }));
    assert!(!f.message.contains("()") && !f.advice.contains("at ."), "{f:#?}");
}

#[test]
fn a_voter_that_answers_without_a_name_has_only_just_started() {
    let f = membership(etcd(3).with(|e| list_mut(e).members[2].name.clear()));
    expect(
        &f,
        Status::True,
        Severity::Info,
        ReasonCode::EtcdMemberUnstarted,
        &["answering without a name", "Wait"],
    );
    assert!(!f.message.contains("never started") && !f.advice.contains("remove"), "{f:#?}");
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn no_advice_removes_anything_while_no_quorum_holds(
        down in prop::collection::btree_set(1usize..7, 0..6),
        learners in prop::collection::btree_set(1usize..7, 0..2),
        nameless in prop::collection::btree_set(1usize..7, 0..2),
        nodes in prop::collection::btree_set(1usize..7, 0..7),
        lost in any::<bool>(),
    ) {
        let e = etcd(6).with(|e| {
            for n in 1..=6 {
                let member = &mut list_mut(e).members[n - 1];
                member.is_learner = learners.contains(&n);
                if nameless.contains(&n) {
                    member.name.clear();
                }
                if learners.contains(&n) {
                    status_mut(e, n).is_learner = true;
                    e.learners_since.insert(world::member(n).id, ago(4000));
                }
                if lost {
                    orphan(e, n);
                }
                if down.contains(&n) {
                    kill(e, n, 4000);
                }
            }
            e.kubernetes_nodes = known(nodes.iter().map(|n| format!("n{n}")).collect());
        });
        let judgement = judge(&etcd_node(e));
        let quorum = only(&judgement, ConditionType::EtcdQuorum);
        let members = only(&judgement, ConditionType::EtcdMembership);
        if quorum.status == Status::False {
            // Where a removal is named at all, what it lacks is named with it.
            let names_removal = members.advice.contains("removes");
            let names_need = ["needs a quorum", "a removal needs one"].iter().any(|word| members.advice.contains(word));
            prop_assert!(!names_removal || names_need, "{members:#?}");
            prop_assert!(!members.advice.contains("Wait, it is not broken"), "{members:#?}");
        }
        if members.advice.contains("Bring") {
            prop_assert!(quorum.status != Status::True || quorum.severity > Severity::Ok || !learners.is_empty(), "{quorum:#?}");
        }
    }
}

#[test]
fn a_learner_that_is_silent_since_nobody_knows_when_is_as_old_as_it_is() {
    let silent = |age: u64| {
        membership(learner(age, 60_000).with(|e| {
            kill(e, 4, 0);
            e.endpoints[3].down_since = None;
        }))
    };
    let f = silent(3600);
    let words = ["does not answer, nobody knows since when", "a learner for 60 min"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdLearnerLagging, &words);
    assert!(!f.message.contains("for 0 s"), "{f:#?}");
    expect(&silent(40), Status::True, Severity::Info, ReasonCode::EtcdLearnerJoining, &words[..1]);
}
