//! Who gets linearizable reads and who does not: a side without a majority, real losses, and what is shown while a voter
//! less has not lasted yet.

use std::time::Duration;

use outrider_diagnosis::{Finding, latch};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::expect;
use crate::fleet_world::World;
use crate::world::{self, ahead, kill, known, now, unknown};

fn before(ms: u64) -> Timestamp {
    now().before(Duration::from_millis(ms))
}

/// Node `n` reported `ms` ago that its reads are answered.
fn answered(w: &mut World, n: usize, ms: u64) {
    w.view(n, |e| {
        e.no_read_since = None;
        e.endpoints[n - 1].linearizable_read = Fact::known(1.2, "test", before(ms));
    });
    if let Some(Fact::Known { at, .. }) = &mut w.nodes[n - 1].etcd {
        *at = before(ms);
    }
}

/// Node `n` lost its reads `ms` ago and reaches only the members of `side`.
fn lost(w: &mut World, n: usize, ms: u64, side: &[usize]) {
    let all = w.nodes.len();
    w.view(n, |e| {
        for other in (1..=all).filter(|other| !side.contains(other)) {
            kill(e, other, 0);
            e.endpoints[other - 1].down_since = Some(before(ms));
        }
        e.endpoints[n - 1].linearizable_read = unknown(UnknownCause::TimedOut);
        e.no_read_since = Some(before(ms));
    });
}

/// `minority` of `n` was cut off `cut` milliseconds ago; the others' last answer is `answer` milliseconds old.
fn partition(n: usize, minority: &[usize], cut: u64, answer: u64) -> World {
    let mut w = World::of(n);
    for i in 1..=n {
        if minority.contains(&i) {
            lost(&mut w, i, cut, minority);
        } else {
            answered(&mut w, i, answer);
        }
    }
    w
}

fn is_suspected(f: &Finding) -> bool {
    f.status == Status::Unknown && f.reason == ReasonCode::EtcdQuorumSuspected
}

#[test]
fn the_majoritys_answer_ends_the_doubt_of_the_minority() {
    for (n, minority, words) in [
        (3, &[3][..], ["3 voters, quorum 2, 2 healthy", "after n3 had lost theirs"]),
        (5, &[4, 5], ["5 voters, quorum 3, 3 healthy", "after n4, n5 had lost theirs"]),
    ] {
        // What it told before the loss proves nothing: it may be gone.
        let f = partition(n, minority, 2_000, 60_000).quorum();
        assert!(is_suspected(&f) && f.suspect.is_some(), "{f:#?}");
        // Nor what was under way while the loss began.
        assert!(is_suspected(&partition(n, minority, 2_000, 1_500).quorum()));
        let f = partition(n, minority, 2_000, 300).quorum();
        expect(&f, Status::True, Severity::Error, ReasonCode::EtcdNoTolerance, &words);
        assert_eq!(f.clear_after, Duration::ZERO, "nothing has to settle");
        assert!(f.message.contains("no linearizable read: TimedOut"), "{}", f.message);
    }
}

#[test]
fn one_of_the_majority_suffices_while_it_is_heard() {
    let mut w = partition(5, &[4, 5], 3_000, 60_000);
    answered(&mut w, 2, 100);
    let f = w.quorum();
    assert_eq!((f.status, f.clear_after), (Status::True, Duration::ZERO), "{f:#?}");
    // It falls silent: the others' word is from before.
    w.nodes[1].ready = Status::Unknown;
    assert!(is_suspected(&w.quorum()));
}

#[test]
fn a_loss_after_the_answer_is_a_loss() {
    // Cut off ten seconds ago, answered five seconds ago; then one of the three says that it lost its reads.
    let mut w = partition(5, &[4, 5], 10_000, 5_000);
    assert_eq!(w.quorum().status, Status::True);
    lost(&mut w, 1, 2_000, &[1, 2, 3]);
    let f = w.quorum();
    assert!(f.status == Status::False && f.suspect.is_some(), "suspected at once, certain later: {f:#?}");
    // All say so: certain, and since the last of them lost it.
    for n in [2, 3] {
        lost(&mut w, n, 1_900, &[1, 2, 3]);
    }
    let f = w.quorum();
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoLeader, &["0 healthy"]);
    assert_eq!((f.since, f.suspect), (Some(before(1_900)), Some(ReasonCode::EtcdQuorumSuspected)));
}

#[test]
fn reads_that_fail_at_one_node_alone_are_its_own_trouble() {
    // A slow disk under one member: it answers, sees a leader, and its reads time out; the others' do not.
    let mut w = World::of(3);
    answered(&mut w, 1, 200);
    answered(&mut w, 2, 200);
    w.view(3, |e| {
        e.endpoints[2].linearizable_read = unknown(UnknownCause::TimedOut);
        e.no_read_since = Some(before(9_000));
    });
    let f = w.quorum();
    expect(
        &f,
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &["2 healthy", "n3 answers, but no linearizable read", "a linearizable read of n1 took 1.2 ms"],
    );
}

#[test]
fn a_split_is_told_with_the_side_that_goes_on() {
    let w = partition(5, &[4, 5], 20_000, 300).every(|i, e| {
        if i <= 3 {
            (4..=5).for_each(|n| kill(e, n, 20));
        }
    });
    let words = ["n1, n2, n3 | n4, n5", "n1, n2, n3 go on with a quorum of 3 of 5 voters"];
    expect(&w.membership(), Status::False, Severity::Error, ReasonCode::EtcdPartitioned, &words);
    let alone = World::of(4).every(|i, e| {
        (1..=4).filter(|n| (*n <= 2) != (i <= 2)).for_each(|n| kill(e, n, 20));
    });
    let f = alone.membership();
    assert!(f.advice.contains("No side is known to have the 3 of 4 voters"), "{}", f.advice);
}

/// What is shown of quorum.
fn shown(latched: &outrider_diagnosis::Latched) -> (Status, Severity, ReasonCode, String) {
    let of = |c: &&Condition| c.condition_type == ConditionType::EtcdQuorum;
    let c = latched.conditions.iter().find(of).unwrap();
    (c.status, c.severity, c.reason.clone(), c.message.clone())
}

#[test]
fn a_voter_less_is_shown_without_alarm_first_and_clears_as_surely() {
    let gone = World::of(3).every(|i, e| {
        if i != 3 {
            kill(e, 3, 1);
        }
    });
    let gone = {
        let mut gone = gone;
        gone.nodes[2].ready = Status::Unknown;
        gone
    };
    let well = latch(&[], &World::of(3).judged(), now());
    let at = |before: &outrider_diagnosis::Latched, seconds| {
        latch(&before.latches, &gone.judged(), ahead(seconds))
    };
    let one = at(&well, 0);
    assert_eq!(shown(&one).2, ReasonCode::EtcdQuorumMet, "a blink is nothing");
    let early = at(&one, 3);
    let (status, severity, reason, message) = shown(&early);
    assert_eq!((status, severity, reason), (Status::True, Severity::Info, ReasonCode::EtcdNoTolerance));
    assert!(
        message.contains("2 healthy") && message.contains("becomes error once it has held for 30 s"),
        "{message}"
    );
    let still = at(&early, 20);
    let quiet = |l: &outrider_diagnosis::Latched| {
        l.transitions.iter().all(|t| t.condition.condition_type != ConditionType::EtcdQuorum)
    };
    assert!(quiet(&still) && shown(&still).1 == Severity::Info, "told once");
    let lasting = at(&still, 30);
    let (_, severity, _, message) = shown(&lasting);
    assert!(severity == Severity::Error && !message.contains("For now"), "{message}");
    // A restart that is over in time alarms nobody.
    let back = latch(&still.latches, &World::of(3).judged(), ahead(21));
    let back = latch(&back.latches, &World::of(3).judged(), ahead(26));
    assert_eq!((shown(&back).1, shown(&back).2), (Severity::Ok, ReasonCode::EtcdQuorumMet));
    // Nothing to look back at: as grave as it is, at once.
    assert_eq!(shown(&latch(&[], &gone.judged(), now())).1, Severity::Error);
}

#[test]
fn a_doubt_ends_at_once_and_what_is_left_of_it_alarms_only_once_it_lasts() {
    let well = latch(&[], &World::of(3).judged(), now());
    let doubt = latch(&well.latches, &partition(3, &[3], 2_000, 60_000).judged(), now());
    assert_eq!(shown(&doubt).2, ReasonCode::EtcdQuorumSuspected);
    let proven = partition(3, &[3], 2_300, 100);
    let ended = latch(&doubt.latches, &proven.judged(), now().after(Duration::from_millis(300)));
    let (status, severity, reason, _) = shown(&ended);
    assert_eq!((status, severity, reason), (Status::True, Severity::Info, ReasonCode::EtcdNoTolerance));
    let lasting = latch(&ended.latches, &proven.judged(), ahead(31));
    assert_eq!(shown(&lasting).1, Severity::Error);
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn only_a_newer_answer_ends_a_doubt_and_no_minority_makes_a_loss(
        n in 3usize..8,
        cut in 0u64..20_000,
        answer in 0u64..20_000,
    ) {
        let minority: Vec<usize> = (n / 2 + 2..=n).collect();
        let f = partition(n, &minority, cut, answer).quorum();
        prop_assert_ne!(f.status, Status::False, "{:#?}", f);
        if !minority.is_empty() {
            prop_assert_eq!(f.status == Status::True, answer + 750 <= cut, "cut {} answer {} {:#?}", cut, answer, f);
        }
    }

    #[test]
    fn a_loss_that_all_tell_is_never_hidden_by_an_older_answer(n in 1usize..8, times in prop::collection::vec(0u64..20_000, 8)) {
        let mut w = World::of(n);
        for i in 1..=n {
            lost(&mut w, i, times[i - 1], &[i]);
            w.view(i, |e| world::orphan(e, i));
        }
        let f = w.quorum();
        prop_assert_eq!(f.status, Status::False, "{:#?}", f);
        // An old answer that one of them still carries from a look at another changes nothing.
        w.view(1, |e| e.endpoints[0].linearizable_read = known(1.0));
        w.nodes[0].ready = Status::Unknown;
        prop_assert_ne!(w.quorum().status, Status::True);
    }
}
