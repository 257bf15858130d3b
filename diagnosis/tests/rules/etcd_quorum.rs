//! Case TC05 and TC06: quorum with learners, even sizes, ghosts and empty answers.

use outrider_diagnosis::Finding;
use outrider_protocol::*;

use crate::etcd_verdict::found;
use crate::expect;
use crate::world::{self, Change, ago, etcd, kill, known, list_mut, orphan, status_mut, unknown};

fn quorum(e: EtcdFacts) -> Finding {
    found(e, ConditionType::EtcdQuorum)
}

/// TC05: three voters of which m3 has been away for ten minutes, and a young learner.
fn tc05() -> EtcdFacts {
    etcd(4).with(|e| {
        kill(e, 3, 600);
        list_mut(e).members[3].is_learner = true;
        let s = status_mut(e, 4);
        s.is_learner = true;
        s.raft_index = 9_000;
        e.endpoints[3].linearizable_read = unknown(UnknownCause::Unsupported);
        e.learners_since.insert(world::member(4).id, ago(40));
    })
}

#[test]
fn tc05_a_learner_counts_neither_in_quorum_nor_as_failed() {
    let f = quorum(tc05());
    expect(
        &f,
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
            "10 min",
            "1 learner",
        ],
    );
    assert!(!f.message.contains("n4"), "{}", f.message);
    assert!(f.raise_after >= std::time::Duration::from_secs(10), "a rolling upgrade pages nobody");
}

#[test]
fn tc05_a_learner_that_refuses_status_too_is_not_failed() {
    let e = tc05().with(|e| e.endpoints[3].status = unknown(UnknownCause::Unsupported));
    expect(
        &quorum(e),
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &["3 voters", "2 healthy"],
    );
}

#[test]
fn learners_never_change_the_numbers_of_the_voters() {
    for learners in 1..=3usize {
        for dead in [false, true] {
            let e = etcd(3 + learners).with(|e| {
                for n in 4..4 + learners {
                    list_mut(e).members[n - 1].is_learner = true;
                    if dead {
                        kill(e, n, 900);
                    }
                }
            });
            expect(
                &quorum(e),
                Status::True,
                Severity::Ok,
                ReasonCode::EtcdQuorumMet,
                &["3 voters", "tolerates 1"],
            );
        }
    }
}

#[test]
fn tc06_a_two_voters_are_no_better_than_one() {
    expect(
        &quorum(etcd(2)),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdEvenVoters,
        &["2 voters", "quorum 2", "tolerates 0", "no more than 1", "Add one"],
    );
}

#[test]
fn tc06_b_even_sizes_tolerate_what_one_less_does() {
    for (n, quorum_size, tolerated) in [(4, 3, 1), (6, 4, 2), (8, 5, 3)] {
        let text = [
            format!("quorum {quorum_size}"),
            format!("tolerates {tolerated}"),
            format!("no more than {}", n - 1),
        ];
        let words: Vec<&str> = text.iter().map(String::as_str).collect();
        expect(&quorum(etcd(n)), Status::True, Severity::Warn, ReasonCode::EtcdEvenVoters, &words);
    }
}

#[test]
fn tc06_c_half_of_an_even_number_is_no_quorum() {
    for n in [2usize, 4, 6] {
        let e = etcd(n).with(|e| {
            (n / 2 + 1..=n).for_each(|i| kill(e, i, 60));
            (1..=n / 2).for_each(|i| orphan(e, i));
        });
        let f = quorum(e);
        let words = format!("quorum {}", n / 2 + 1);
        expect(
            &f,
            Status::False,
            Severity::Error,
            ReasonCode::EtcdQuorumLost,
            &[&words, "0 healthy", "does not answer"],
        );
        assert_eq!(f.suspect, Some(ReasonCode::EtcdQuorumSuspected));
        assert_eq!(f.raise_after, std::time::Duration::from_millis(5000));
    }
}

#[test]
fn tc06_c_six_voters_three_of_them_still_claiming_a_leader() {
    let e = etcd(6).with(|e| {
        (4..=6).for_each(|i| kill(e, i, 2));
        e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
    });
    expect(
        &quorum(e),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdQuorumLost,
        &["6 voters", "quorum 4", "3 healthy", "n4", "n5", "n6"],
    );
}

#[test]
fn tc06_d_a_dead_ghost_is_named_and_warned_about() {
    let e = etcd(4).with(|e| {
        kill(e, 4, 90_000);
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n3".into()]);
    });
    expect(
        &quorum(e),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdNoTolerance,
        &["4 voters", "quorum 3", "tolerates 0", "n4"],
    );
}

#[test]
fn tc06_e_one_voter_is_fine_and_tolerates_nothing() {
    expect(
        &quorum(etcd(1)),
        Status::True,
        Severity::Info,
        ReasonCode::EtcdSingleVoter,
        &["1 voter,", "tolerates 0"],
    );
}

#[test]
fn tc06_f_an_empty_or_missing_list_is_unknown() {
    let empty = etcd(3).with(|e| list_mut(e).members.clear());
    expect(&quorum(empty), Status::Unknown, Severity::Warn, ReasonCode::EtcdNoMembers, &[]);
    let timed_out = etcd(3).with(|e| e.members = unknown(UnknownCause::TimedOut));
    expect(&quorum(timed_out), Status::Unknown, Severity::Warn, ReasonCode::TimedOut, &["3 of 3 endpoints"]);
    let refused = etcd(3).with(|e| {
        e.members = unknown(UnknownCause::ConnectionRefused);
        (1..=3).for_each(|n| kill(e, n, 60));
    });
    expect(
        &quorum(refused),
        Status::Unknown,
        Severity::Error,
        ReasonCode::ConnectionRefused,
        &["0 of 3 endpoints"],
    );
    let missing = etcd(3).with(|e| e.members = world::absent("member list"));
    assert_eq!(quorum(missing).status, Status::Unknown);
    let only_learners = etcd(2).with(|e| list_mut(e).members.iter_mut().for_each(|m| m.is_learner = true));
    assert_eq!(quorum(only_learners).status, Status::Unknown);
}

#[test]
fn three_up_then_two_then_one_then_three() {
    expect(
        &quorum(etcd(3)),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdQuorumMet,
        &["3 voters", "quorum 2", "tolerates 1"],
    );
    let two = etcd(3).with(|e| kill(e, 2, 3));
    expect(
        &quorum(two),
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &["tolerates 0", "n2", "ConnectionRefused"],
    );
    // etcd 3.4 still answers the member list, 3.5 only serialisably; both end up here.
    for linearizable in [true, false] {
        let one = etcd(3).with(|e| {
            kill(e, 2, 30);
            kill(e, 3, 3);
            orphan(e, 1);
            list_mut(e).linearizable = linearizable;
        });
        let f = quorum(one);
        expect(
            &f,
            Status::False,
            Severity::Error,
            ReasonCode::EtcdQuorumLost,
            &["n1 answers and sees no leader", "n2", "n3"],
        );
        assert_eq!(f.message.contains("stale"), !linearizable);
    }
}

#[test]
fn an_election_is_suspected_and_not_yet_certain() {
    let e = etcd(3).with(|e| {
        kill(e, 3, 1);
        orphan(e, 1);
        orphan(e, 2);
    });
    let f = quorum(e);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoLeader,
        &["3 voters", "no leader", "Do not restart"],
    );
    assert_eq!(f.suspect, Some(ReasonCode::EtcdQuorumSuspected));
}

#[test]
fn a_member_cut_off_by_itself_does_not_take_the_cluster_with_it() {
    let e = etcd(3).with(|e| orphan(e, 1));
    expect(
        &quorum(e),
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &["n1 answers and sees no leader"],
    );
}

#[test]
fn reads_that_fail_under_a_leader_are_suspicious() {
    let e = etcd(3).with(|e| e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut));
    expect(
        &quorum(e),
        Status::Unknown,
        Severity::Error,
        ReasonCode::EtcdQuorumSuspected,
        &["TimedOut", "3 healthy"],
    );
}

#[test]
fn who_is_down_is_named_while_reads_fail() {
    for (voters, down) in [(3usize, 1usize), (5, 1), (5, 2), (7, 3)] {
        let e = etcd(voters).with(|e| {
            (0..down).for_each(|i| kill(e, voters - i, 600));
            e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
        });
        let f = quorum(e);
        assert_eq!(f.reason, ReasonCode::EtcdQuorumSuspected);
        for i in 0..down {
            let name = format!("n{}", voters - i);
            assert!(
                f.message.contains(&format!("{name} does not answer")) && f.advice.contains(&name),
                "{f:?}"
            );
        }
        let spare = voters - down - (voters / 2 + 1);
        let slow = if spare == 0 {
            "none may be slow".to_owned()
        } else {
            format!("no more than {spare} may be slow")
        };
        assert!(f.advice.contains(&slow), "{f:?}");
    }
    // Who could not be asked is named apart from who is down.
    let e = etcd(5).with(|e| {
        kill(e, 5, 600);
        kill(e, 4, 600);
        e.endpoints[2].status = unknown(UnknownCause::Forbidden);
        e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
    });
    let f = quorum(e);
    assert_eq!(f.status, Status::Unknown);
    assert!(
        f.advice.contains("Let n3 be asked") && f.advice.contains("needed back in any case: n4, n5"),
        "{f:?}"
    );
}

#[test]
fn a_read_that_ended_proves_quorum_though_others_do_not_answer_here() {
    let e =
        etcd(5).with(|e| (3..=5).for_each(|n| e.endpoints[n - 1].status = unknown(UnknownCause::TimedOut)));
    expect(&quorum(e), Status::True, Severity::Error, ReasonCode::EtcdVotersUnseen, &["5 voters", "2379"]);
}

#[test]
fn who_is_away_is_named_in_the_right_number_and_no_dead_ghost_is_waited_for() {
    for (n, away, words) in [
        (3, 1, "Do not remove n3 while it may come back as it is,"),
        (5, 2, "Do not remove n4, n5 while they may come back as they are,"),
        (7, 3, "Do not remove n5, n6, n7 while they may come back as they are,"),
    ] {
        let f = quorum(etcd(n).with(|e| (0..away).for_each(|i| kill(e, n - i, 600))));
        assert!(f.advice.contains(words), "{f:#?}");
    }
    // A read was answered, so somebody is only out of our reach; the ghost is not.
    for n in [4, 5] {
        let f = quorum(etcd(n).with(|e| {
            e.kubernetes_nodes = known((1..n).map(|n| format!("n{n}")).collect());
            kill(e, n, 6000);
            (3..n).for_each(|n| kill(e, n, 600));
        }));
        let unseen = (3..n).map(|n| format!("n{n}")).collect::<Vec<_>>().join(", ");
        let asked = format!("Let this node reach the client port (2379) of {unseen} with");
        let ghosts = format!("Ghosts: n{n}; see EtcdMembership");
        expect(&f, Status::True, Severity::Error, ReasonCode::EtcdVotersUnseen, &[&asked, &ghosts]);
    }
}

#[test]
fn our_own_failures_are_not_the_members() {
    for cause in [
        UnknownCause::TlsFailed,
        UnknownCause::PermissionDenied,
        UnknownCause::Unauthenticated,
        UnknownCause::Forbidden,
    ] {
        let e = etcd(3).with(|e| {
            for n in 1..=3 {
                e.endpoints[n - 1].status = unknown(cause.clone());
                e.endpoints[n - 1].linearizable_read = unknown(cause.clone());
            }
        });
        expect(
            &quorum(e),
            Status::Unknown,
            Severity::Error,
            ReasonCode::EtcdVotersUnknown,
            &[cause.as_str()],
        );
        let one = etcd(3).with(|e| e.endpoints[2].status = unknown(cause.clone()));
        expect(
            &quorum(one),
            Status::True,
            Severity::Warn,
            ReasonCode::EtcdVotersUnseen,
            &["at least 0", "n3"],
        );
    }
}

#[test]
fn alarms_among_the_errors_do_not_make_a_member_unhealthy() {
    let e = etcd(3).with(|e| {
        for n in 1..=3 {
            status_mut(e, n).errors =
                vec!["memberID:1 alarm:NOSPACE ".into(), "etcdserver: mvcc: database space exceeded".into()];
        }
    });
    expect(&quorum(e), Status::True, Severity::Ok, ReasonCode::EtcdQuorumMet, &[]);
}

#[test]
fn loopback_and_node_address_are_one_member() {
    let e = etcd(3).with(|e| {
        let mut loopback = world::endpoint(1, true);
        loopback.endpoint = "https://127.0.0.1:2379".into();
        loopback.member_id = String::new();
        e.endpoints.push(loopback);
        e.endpoints[0].status = unknown(UnknownCause::TimedOut);
        e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
    });
    expect(&quorum(e), Status::True, Severity::Ok, ReasonCode::EtcdQuorumMet, &["3 healthy"]);
}

#[test]
fn endpoints_are_matched_by_url_when_nobody_answered() {
    let e = etcd(3).with(|e| {
        kill(e, 3, 60);
        e.endpoints[2].member_id = String::new();
        e.endpoints[2].endpoint.push('/');
    });
    expect(&quorum(e), Status::True, Severity::Error, ReasonCode::EtcdNoTolerance, &["n3 does not answer"]);
}

#[test]
fn a_voter_that_never_started_counts_and_is_down() {
    let e = etcd(4).with(|e| {
        let m = &mut list_mut(e).members[3];
        m.name.clear();
        m.client_urls.clear();
        e.endpoints.pop();
    });
    expect(
        &quorum(e),
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &["4 voters", "quorum 3", "never started"],
    );
}

#[test]
fn an_election_timeout_that_was_not_told_makes_nothing_certain_at_once() {
    let lost = |distribution, ms| {
        quorum(etcd(3).with(|e| {
            (e.distribution, e.election_timeout_ms) = (distribution, ms);
            orphan(e, 1);
            (2..=3).for_each(|n| kill(e, n, 60));
        }))
    };
    for (distribution, ms, seconds) in [
        (Distribution::Rke2, 0, 5),
        (Distribution::K3s, 0, 5),
        (Distribution::Kubeadm, 0, 1),
        (Distribution::Kubeadm, 3_000, 3),
        (Distribution::Kubeadm, u32::MAX, 50),
    ] {
        let f = lost(distribution, ms);
        assert_eq!(f.raise_after, std::time::Duration::from_secs(seconds), "{ms}: {f:#?}");
        assert!(f.suspect.is_some() && !f.advice.contains(" 0 ms"), "{f:#?}");
    }
}

#[test]
fn a_voter_that_was_not_asked_is_unknown() {
    let e = etcd(3).with(|e| {
        e.endpoints.truncate(1);
        e.endpoints[0].linearizable_read = Fact::not_applicable("not tried", world::now());
    });
    expect(&quorum(e), Status::Unknown, Severity::Warn, ReasonCode::EtcdVotersUnknown, &["was not asked"]);
}
