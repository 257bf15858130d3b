//! Advice to restart against what `EtcdQuorum` says of this server's member.

use super::*;
use crate::world::{etcd_from, kill, list_mut, orphan};

/// Server `own` with these certificates and this etcd.
fn node(c: CertificatesFacts, etcd: EtcdFacts) -> NodeFacts {
    world::node_facts(CheckFacts {
        certificates: Some(known(c)),
        etcd: Some(known(etcd)),
        ..CheckFacts::default()
    })
}

/// What is said of the etcd port and of the quorum.
fn both(c: CertificatesFacts, etcd: EtcdFacts) -> (String, Finding) {
    let j = judge(&node(c, etcd));
    (about(&j, "etcd:2379").advice, crate::only(&j, ConditionType::EtcdQuorum))
}

#[test]
fn while_all_are_well_a_restart_is_borne_with_the_numbers() {
    let (advice, _) = both(certificates(NEW, 20), etcd_from(1, 3));
    assert!(advice.starts_with("A restart of rke2-server renews it"), "{advice}");
    assert!(
        advice.contains("etcd bears it now (3 voters, quorum 2, 3 healthy, tolerates 1 more)")
            && advice.contains("before the next"),
        "{advice}"
    );
}

#[test]
fn without_tolerance_the_tolerance_comes_first() {
    for (voters, down) in [(3usize, 1usize), (4, 1), (5, 2), (6, 2)] {
        let etcd = etcd_from(1, voters).with(|e| (0..down).for_each(|i| kill(e, voters - i, 600)));
        for days in [20, 5, -1] {
            let (advice, quorum) = both(certificates(NEW, days), etcd.clone());
            assert!(quorum.advice.contains("restart, drain or upgrade none of n1"), "{quorum:?}");
            let first =
                format!("Not yet: without n1 of this server etcd has no quorum ({voters} voters, quorum");
            assert!(advice.starts_with(&first), "{advice}");
            assert!(
                advice.contains(&format!("n{voters}")) && advice.contains("one server at a time"),
                "{advice}"
            );
        }
    }
    // Rotated, not restarted.
    let stale = certificates(NEW, 365).with(|c| c.served[0].chain = known(vec![leaf("old", 200)]));
    let (advice, _) = both(stale, etcd_from(1, 3).with(|e| kill(e, 3, 600)));
    assert!(advice.starts_with("Not yet:") && advice.contains("Restart needed"), "{advice}");
}

#[test]
fn one_or_two_voters_are_away_while_they_restart() {
    let (advice, _) = both(certificates(NEW, 20), etcd_from(1, 1));
    assert!(advice.contains("n1 is the only voter"), "{advice}");
    let (advice, _) = both(certificates(NEW, 20), etcd_from(1, 2));
    assert!(advice.contains("With 2 voters etcd has no quorum while n1 restarts"), "{advice}");
}

#[test]
fn the_server_whose_own_certificate_keeps_its_member_out_is_the_one_to_restart() {
    // The others hold the quorum.
    let out = etcd_from(1, 3).with(|e| kill(e, 1, 600));
    let (advice, quorum) = both(certificates(NEW, -1), out);
    assert!(
        advice.starts_with("A restart of rke2-server")
            && advice.contains("2 other healthy voters hold the quorum of 2 without n1")
            && advice.contains("the restart of exactly this server is its way back"),
        "{advice}"
    );
    assert!(
        quorum.advice.contains("none of n2, n3") && quorum.advice.contains("exactly n1's server"),
        "{quorum:?}"
    );
    // All three ended on one day, and nobody lets anybody in.
    let lost = etcd_from(1, 3).with(|e| {
        orphan(e, 1);
        kill(e, 2, 600);
        kill(e, 3, 600);
    });
    let (advice, quorum) = both(certificates(NEW, -1), lost.clone());
    assert_eq!(quorum.reason, R::EtcdQuorumLost);
    assert!(
        quorum.advice.contains("Do not restart n1")
            && quorum.advice.contains("the one exception is the restart of exactly n1's server")
            && quorum.advice.contains("brings none back by itself"),
        "{quorum:?}"
    );
    assert!(
        advice.contains("quorum is lost already (3 voters, quorum 2, 0 healthy")
            && advice.contains("joins no quorum before the restart of exactly this server")
            && advice.contains("By itself that brings no quorum back: n2, n3 answered nothing")
            && !advice.contains("its way back"),
        "{advice}"
    );
    // Where no certificate is why, no exception is made.
    let (_, quorum) = both(certificates(NEW, 200), lost);
    assert!(!quorum.advice.contains("exactly"), "{quorum:?}");
}

#[test]
fn what_is_not_known_of_the_quorum_is_asked_first() {
    let unread = etcd_from(1, 3).with(|e| e.members = unknown(UnknownCause::TimedOut));
    let unseen = etcd_from(1, 3)
        .with(|e| e.endpoints[1..].iter_mut().for_each(|e| e.status = unknown(UnknownCause::TlsFailed)));
    let failing =
        etcd_from(1, 3).with(|e| e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut));
    for (etcd, why) in [
        (unread, "member list could not be read"),
        (unseen, "n2, n3 could not be asked"),
        (failing, "linearizable read fails"),
    ] {
        let (advice, _) = both(certificates(NEW, 20), etcd);
        assert!(
            advice.starts_with("First see that etcd tolerates a restart") && advice.contains(why),
            "{advice}"
        );
    }
}

#[test]
fn where_all_has_ended_the_restart_is_the_cure_and_no_advice_leads_in_a_circle() {
    let refused = |n: usize| {
        etcd_from(1, n).with(|e| {
            e.members = unknown(UnknownCause::TlsFailed);
            e.alarms = unknown(UnknownCause::TlsFailed);
            for e in &mut e.endpoints {
                (e.status, e.linearizable_read) =
                    (unknown(UnknownCause::TlsFailed), unknown(UnknownCause::TlsFailed));
            }
        })
    };
    for n in [1, 3] {
        let j = judge(&node(certificates(NEW, -1), refused(n)));
        let advice = about(&j, "etcd:2379").advice;
        assert!(
            advice.starts_with("A restart of rke2-server renews it")
                && advice.contains("the restart of exactly this server is the cure")
                && advice.contains("needs no member list")
                && advice.contains("One server after the other; where those of the others have ended too"),
            "{advice}"
        );
        use ConditionType as C;
        for of in [C::EtcdQuorum, C::EtcdMembership, C::EtcdMemberHealthy, C::EtcdSpace] {
            let f = crate::only(&j, of);
            assert!(
                f.advice.starts_with("The certificate of etcd at 127.0.0.1:2379 ended on")
                    && f.advice.contains("exactly this server is the cure (CertificatesValid says how)"),
                "{f:?}"
            );
        }
    }
    // Another read fault, and certificates that are good: the quorum first, as ever.
    let hung = refused(3).with(|e| e.members = unknown(UnknownCause::TimedOut));
    let advice = both(certificates(NEW, -1), hung).0;
    assert!(advice.starts_with("First see that etcd tolerates a restart"), "{advice}");
    let (advice, quorum) = both(certificates(NEW, 20), refused(3));
    assert!(advice.starts_with("First see that etcd tolerates a restart"), "{advice}");
    assert!(quorum.advice.starts_with("See EtcdMemberHealthy first"), "{quorum:?}");
}

#[test]
fn where_no_quorum_hangs_on_it_nothing_is_said_of_one() {
    let external = |c| {
        let mut facts = node(c, etcd_from(1, 3));
        facts.checks.etcd = Some(Fact::not_applicable("external datastore", world::now()));
        about(&judge(&facts), "supervisor:9345").advice
    };
    let advice = external(certificates(NEW, 20));
    assert!(!advice.is_empty() && !advice.contains("etcd"), "{advice}");
    let learner = etcd_from(1, 4).with(|e| {
        list_mut(e).members[0].is_learner = true;
        world::status_mut(e, 1).is_learner = true;
    });
    let (advice, _) = both(certificates(NEW, 20), learner);
    assert!(advice.starts_with("A restart of rke2-server") && !advice.contains("quorum"), "{advice}");
}

proptest! {
    #![proptest_config(crate::properties())]

    /// Whom `EtcdQuorum` tells not to restart nobody is told to restart outright.
    #[test]
    fn the_two_never_contradict_each_other(
        states in prop::collection::vec(0u8..4, 1..7),
        days in -10i64..60,
        served_days in prop::option::of(-10i64..60),
    ) {
        let etcd = etcd_from(1, states.len()).with(|e| {
            for (i, state) in states.iter().enumerate() {
                match state {
                    0 => kill(e, i + 1, 600),
                    1 => orphan(e, i + 1),
                    _ => {}
                }
            }
        });
        let c = certificates(NEW, days).with(|c| {
            if let Some(days) = served_days {
                c.served[0].chain = known(vec![leaf("old", days)]);
            }
        });
        let (advice, quorum) = both(c, etcd);
        let told_not_to = ["none of n1", "Do not restart n1"].iter().any(|words| quorum.advice.contains(words));
        let excepted = quorum.advice.contains("exactly n1's server");
        let restarts = advice.starts_with("A restart") || advice.starts_with("Restart needed");
        if told_not_to && !excepted && restarts && states.len() > 2 {
            // Only where the member is out already, and that is said.
            prop_assert!(advice.contains("takes nothing from etcd"), "{advice}\n{quorum:?}");
        }
        if told_not_to && states[0] > 1 && states.len() > 2 && restarts {
            prop_assert!(false, "{advice}\n{quorum:?}");
        }
    }
}
