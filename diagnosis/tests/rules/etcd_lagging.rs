//! Voters that are far behind the others, and learners that stand for the server that would be added.

use outrider_protocol::*;
use proptest::prelude::*;

use crate::etcd_verdict::{found, local, membership};
use crate::expect;
use crate::world::{self, Change, ago, etcd, kill, list_mut, status_mut, unknown};

/// Voter `n` of `voters` at these indexes, where the others are at 120000.
fn at(voters: usize, n: usize, index: u64, applied: u64) -> EtcdFacts {
    etcd(voters).with(|e| {
        let s = status_mut(e, n);
        (s.raft_index, s.applied_index) = (index, applied);
    })
}

#[test]
fn a_voter_that_is_far_behind_is_told_as_grave_as_it_is_needed() {
    for (voters, severity) in
        [(2, Severity::Warn), (3, Severity::Warn), (4, Severity::Warn), (5, Severity::Info)]
    {
        for n in [1, voters] {
            let f = membership(at(voters, n, 10, 10));
            let who = format!("n{n} is at raft index 10 of 120000, 119990 entries behind");
            let abreast = format!("{} of {voters} voters are abreast", voters - 1);
            let words = [who.as_str(), &abreast, "Do not remove it while it comes closer"];
            expect(&f, Status::True, severity, ReasonCode::EtcdVoterLagging, &words);
            let held = f.advice.contains("restart, drain or upgrade none of");
            assert_eq!(held, severity == Severity::Warn, "{f:#?}");
            let f = membership(at(voters, n, 120_000, 10));
            let who = format!("n{n} has applied 10 of the 120000 entries");
            expect(&f, Status::True, severity, ReasonCode::EtcdVoterLagging, &[&who, "refuses requests"]);
        }
    }
    // One that is away besides leaves the one that is behind as the next to be needed.
    let f = membership(at(5, 2, 10, 10).with(|e| kill(e, 5, 600)));
    assert_eq!((f.severity, &f.reason), (Severity::Warn, &ReasonCode::EtcdVoterLagging), "{f:#?}");
}

#[test]
fn what_lies_between_two_answers_is_no_lag() {
    // Small gaps, a version that does not tell what it applied, a learner, and answers of different passes.
    let apart = at(3, 2, 10, 10).with(|e| {
        if let Fact::Known { at, .. } = &mut e.endpoints[1].status {
            *at = ago(60);
        }
    });
    let learner = at(4, 4, 10, 10).with(|e| {
        list_mut(e).members[3].is_learner = true;
        status_mut(e, 4).is_learner = true;
    });
    for e in [at(3, 2, 119_000, 119_000), at(3, 2, 120_000, 116_000), at(3, 2, 120_000, 0), apart, learner] {
        let f = membership(e);
        assert_ne!(f.reason, ReasonCode::EtcdVoterLagging, "{f:#?}");
    }
    // The index of another cluster is on another scale.
    let f = membership(at(3, 2, 10, 10).with(|e| status_mut(e, 2).cluster_id = "c9".into()));
    assert!(!f.message.contains("behind the others"), "{f:#?}");
}

/// `voters` and so many learners behind them.
fn with_learners(voters: usize, learners: usize) -> EtcdFacts {
    etcd(voters + learners).with(|e| {
        for n in voters + 1..=voters + learners {
            list_mut(e).members[n - 1].is_learner = true;
            let s = status_mut(e, n);
            (s.is_learner, s.raft_index) = (true, 60_000);
            e.endpoints[n - 1].linearizable_read = unknown(UnknownCause::Unsupported);
            e.learners_since.insert(world::member(n).id, ago(30));
        }
    })
}

#[test]
fn d6_a_learner_on_its_way_is_the_server_that_would_be_added() {
    for (voters, learners, words) in [
        (1, 1, "makes 2 voters that tolerate 0"),
        (2, 1, "makes 3 voters that tolerate 1"),
        (1, 2, "makes 3 voters that tolerate 1"),
        (4, 1, "makes 5 voters that tolerate 2"),
    ] {
        let f = found(with_learners(voters, learners), ConditionType::EtcdQuorum);
        assert!(f.advice.contains("Wait for the learner"), "{f:#?}");
        assert!(f.advice.contains("add or take away no other server before"), "{f:#?}");
        assert!(f.advice.contains(words), "{f:#?}");
        for against in ["Add one server", "add two servers", "take one away on purpose"] {
            assert!(!f.advice.contains(against), "{against}: {f:#?}");
        }
        let even_then = (voters + learners).is_multiple_of(2);
        assert_eq!(f.advice.contains("After that one more server makes"), even_then, "{f:#?}");
    }
    let f = found(etcd(2), ConditionType::EtcdQuorum);
    assert!(f.advice.contains("Add one server to make 3 voters"), "{f:#?}");
}

/// n4 is a learner on this node and answers; the list is read or not.
fn here(listed: bool) -> EtcdFacts {
    with_learners(3, 1).with(|e| {
        for (i, endpoint) in e.endpoints.iter_mut().enumerate() {
            endpoint.local = i == 3;
        }
        if !listed {
            e.members = unknown(UnknownCause::Unsupported);
            e.endpoints.retain(|endpoint| endpoint.local);
        }
    })
}

fn links(e: &mut EtcdFacts, active: [bool; 3]) {
    let Fact::Known { value, .. } = &mut e.metrics else { panic!("metrics are known") };
    value.latest.peers = (1..=3)
        .map(|n| (world::member(n).id, PeerScrape { active: Some(active[n - 1]), ..PeerScrape::default() }))
        .collect();
}

#[test]
fn a_learner_that_hears_nobody_is_not_told_to_wait() {
    for listed in [true, false] {
        let f = local(here(listed).with(|e| links(e, [false; 3])));
        let words =
            ["hears nobody", "are all down", "as its leader is old", "First see EtcdQuorum", "port 2380"];
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoLeader, &words);
        assert!(!f.advice.contains("Wait"), "{f:#?}");
        // One connection is enough for the leader's word.
        let f = local(here(listed).with(|e| links(e, [true, false, false])));
        assert!(f.advice.contains("Wait") && f.reason == ReasonCode::EtcdMemberIsLearner, "{f:#?}");
        // A log that grows comes from somewhere, whatever the gauges say.
        let grows = here(listed).with(|e| {
            links(e, [false; 3]);
            let look = |seconds, index| LearnerProgress { at: ago(seconds), index, front: 120_000 };
            e.learner_progress.insert(world::member(4).id, vec![look(30, 1), look(0, 60_000)]);
        });
        assert!(local(grows).advice.contains("Wait"));
    }
    let f = membership(here(true).with(|e| links(e, [false; 3])));
    let words = ["n4", "are all down, so nobody sends it the log", "First see EtcdQuorum"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdLearnerLagging, &words);
}

#[test]
fn a_list_without_a_voter_is_none() {
    for n in [1, 3] {
        let e = with_learners(0, n);
        for of in [ConditionType::EtcdQuorum, ConditionType::EtcdMembership] {
            let f = found(e.clone(), of);
            assert_eq!((f.status, &f.reason), (Status::Unknown, &ReasonCode::InvalidAnswer), "{f:#?}");
            assert!(f.message.contains("no voter, only") && !f.advice.contains("romote"), "{f:#?}");
        }
        let f = local(e);
        assert!(f.advice.contains("none that an etcd gives") && !f.advice.contains("Wait"), "{f:#?}");
    }
}

#[test]
fn one_look_tells_no_duration() {
    let once = etcd(3).with(|e| {
        kill(e, 2, 5);
        // Asked five seconds ago, and not again since.
        if let Fact::Unknown { at, .. } = &mut e.endpoints[1].status {
            *at = ago(5);
        }
    });
    let f = found(once, ConditionType::EtcdQuorum);
    assert!(f.message.contains("n2 does not answer at https://10.0.0.2:2379: "), "{f:#?}");
    let f = found(etcd(3).with(|e| kill(e, 2, 5)), ConditionType::EtcdQuorum);
    assert!(f.message.contains("n2 does not answer at https://10.0.0.2:2379 for 5 s"), "{f:#?}");
}

proptest! {
    #[test]
    fn further_behind_is_never_better(voters in 1usize..7, n in 0usize..7, index in 0u64..120_000, less in 0u64..120_000) {
        let n = n % voters + 1;
        let behind = index.saturating_sub(less);
        let of = |index| membership(at(voters, n, index, index)).severity;
        prop_assert!(of(behind) >= of(index));
    }
}
