//! Raising and clearing: what holds for every sequence of findings, and the cases that matter by name.

use std::time::Duration;

use outrider_diagnosis::{Blind, Finding, Judgement, Latched, diagnose, judge, latch};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::world::{self, Change, kill, known, now, orphan, unknown};

const RAISE: u64 = 30;
const CLEAR: u64 = 60;

fn at(seconds: u64) -> Timestamp {
    now().after(Duration::from_secs(seconds))
}

fn finding(status: Status, severity: Severity, reason: ReasonCode, seconds: u64) -> Finding {
    Finding::new(ConditionType::EtcdQuorum, status, severity, reason, at(seconds), format!("at {seconds}"))
        .waits(Duration::from_secs(RAISE), Duration::from_secs(CLEAR))
}

fn good(seconds: u64) -> Finding {
    finding(Status::True, Severity::Ok, ReasonCode::EtcdQuorumMet, seconds)
}

fn bad(seconds: u64) -> Finding {
    finding(Status::False, Severity::Error, ReasonCode::EtcdQuorumLost, seconds)
}

fn of(findings: Vec<Finding>) -> Judgement {
    Judgement { findings, ..Judgement::default() }
}

fn blind(cause: UnknownCause, seconds: u64) -> Judgement {
    let blind = Blind { check: Check::Etcd, cause, detail: "it failed".into(), at: at(seconds) };
    Judgement { blind: vec![blind], ..Judgement::default() }
}

/// Latches the judgement of each second given, one after the other; the last result.
fn run(start: Vec<Latch>, turns: impl IntoIterator<Item = (u64, Judgement)>) -> Latched {
    let mut last = Latched { latches: start, ..Latched::default() };
    for (second, judgement) in turns {
        last = latch(&last.latches, &judgement, at(second));
    }
    last
}

fn shown(l: &Latched) -> (Status, Severity, &str) {
    let c = &l.conditions[0];
    (c.status, c.severity, c.reason.as_str())
}

#[test]
fn the_first_finding_is_shown_at_once() {
    let l = run(vec![], [(0, of(vec![bad(0)]))]);
    assert_eq!(shown(&l), (Status::False, Severity::Error, "EtcdQuorumLost"));
    assert_eq!((l.transitions.len(), l.transitions[0].previous_status), (1, None));
}

#[test]
fn a_worse_finding_waits_and_is_dropped_when_facts_flip_back() {
    let l = run(vec![], [(0, of(vec![good(0)])), (1, of(vec![bad(1)])), (30, of(vec![bad(30)]))]);
    assert_eq!(shown(&l).0, Status::True);
    assert!(l.transitions.is_empty() && l.latches[0].pending.is_some());
    let back =
        run(l.latches.clone(), [(31, of(vec![good(31)])), (32, of(vec![bad(32)])), (61, of(vec![bad(61)]))]);
    assert_eq!(shown(&back).0, Status::True, "the wait began anew");
    let raised = run(l.latches, [(31, of(vec![bad(31)]))]);
    assert_eq!(shown(&raised).0, Status::False);
    assert_eq!(raised.transitions[0].previous_reason, Some(ReasonCode::EtcdQuorumMet));
    assert_eq!(raised.conditions[0].last_transition_time, at(31));
}

#[test]
fn a_better_finding_waits_to_clear() {
    let raised = run(vec![], [(0, of(vec![bad(0)]))]).latches;
    let l = run(raised, [(1, of(vec![good(1)])), (60, of(vec![good(60)]))]);
    assert_eq!(shown(&l).0, Status::False);
    let l = run(l.latches, [(61, of(vec![good(61)]))]);
    assert_eq!(shown(&l), (Status::True, Severity::Ok, "EtcdQuorumMet"));
}

#[test]
fn suspicion_at_once_and_certainty_later() {
    let lost = |s| of(vec![bad(s).suspected_as(ReasonCode::EtcdQuorumSuspected)]);
    let l = run(vec![], [(0, of(vec![good(0)])), (1, lost(1))]);
    assert_eq!(shown(&l), (Status::Unknown, Severity::Warn, "EtcdQuorumSuspected"));
    assert_eq!(l.transitions.len(), 1);
    assert!(l.conditions[0].message.starts_with("Not yet certain (it must hold for 30 s): at 1"));
    let l = run(l.latches, [(2, lost(2)), (30, lost(30))]);
    assert!(l.transitions.is_empty() && l.conditions[0].message.ends_with("at 30"));
    assert_eq!(l.conditions[0].last_transition_time, at(1));
    let certain = run(l.latches.clone(), [(31, lost(31))]);
    assert_eq!(shown(&certain), (Status::False, Severity::Error, "EtcdQuorumLost"));
    assert_eq!(certain.transitions[0].previous_reason, Some(ReasonCode::EtcdQuorumSuspected));
    // An election that ended: suspicion clears, nothing was ever False.
    let cleared = run(l.latches, [(31, of(vec![good(31)])), (91, of(vec![good(91)]))]);
    assert_eq!(shown(&cleared).0, Status::True);
    // A condition that is False is not softened to a suspicion for another reason.
    let down =
        run(vec![], [(0, of(vec![finding(Status::False, Severity::Error, ReasonCode::EtcdNoLeader, 0)]))])
            .latches;
    assert_eq!(shown(&run(down, [(1, lost(1))])).0, Status::False);
}

#[test]
fn what_was_seen_late_is_certain_no_later() {
    let lost = |s, since| {
        of(vec![bad(s).suspected_as(ReasonCode::EtcdQuorumSuspected).holds_since(Some(at(since)))])
    };
    let l = run(vec![], [(0, of(vec![good(0)])), (20, lost(20, 5))]);
    assert_eq!(shown(&l).0, Status::Unknown, "suspected at once");
    // Another report tells of an earlier onset, a later one changes nothing.
    let l = run(l.latches, [(21, lost(21, 3)), (22, lost(22, 9)), (32, lost(32, 9))]);
    assert_eq!(shown(&l).0, Status::Unknown, "30 s after 3");
    assert_eq!(shown(&run(l.latches, [(33, lost(33, 9))])).0, Status::False);
    // A clock that is ahead tells nothing; what clears waits as ever.
    let l = run(vec![], [(0, of(vec![good(0)])), (1, lost(1, 500)), (30, lost(30, 500))]);
    assert_eq!(shown(&l).0, Status::Unknown);
    let l = run(l.latches, [(31, lost(31, 500)), (32, of(vec![good(32).holds_since(Some(at(0)))]))]);
    assert_eq!(shown(&l).0, Status::False);
}

#[test]
fn numbers_are_refreshed_without_a_transition() {
    let l = run(vec![], [(0, of(vec![good(0)])), (9, of(vec![good(9)]))]);
    assert!(l.transitions.is_empty());
    let c = &l.conditions[0];
    assert_eq!((c.message.as_str(), c.observed_at, c.last_transition_time), ("at 9", at(9), at(0)));
}

#[test]
fn a_change_of_severity_is_told_and_keeps_the_time() {
    let warn = |s| of(vec![finding(Status::True, Severity::Warn, ReasonCode::EtcdNoTolerance, s)]);
    let error = |s| of(vec![finding(Status::True, Severity::Error, ReasonCode::EtcdNoTolerance, s)]);
    let l = run(vec![], [(0, warn(0)), (1, error(1))]);
    assert_eq!((shown(&l).1, l.conditions[0].message.as_str()), (Severity::Warn, "at 1"));
    let l = run(l.latches, [(31, error(31))]);
    assert_eq!(shown(&l).1, Severity::Error);
    assert_eq!((l.transitions.len(), l.conditions[0].last_transition_time), (1, at(0)));
    // Back down it clears slowly, and a better severity's wait is not the worse one's.
    let l = run(l.latches, [(32, warn(32)), (62, warn(62))]);
    assert_eq!(shown(&l).1, Severity::Error);
    assert_eq!(shown(&run(l.latches, [(92, warn(92))])).1, Severity::Warn);
}

#[test]
fn two_causes_that_take_turns_still_raise() {
    let turns = (1..=31).map(|s| {
        let reason = if s % 2 == 0 { ReasonCode::EtcdQuorumLost } else { ReasonCode::EtcdNoLeader };
        (s, of(vec![finding(Status::False, Severity::Error, reason, s)]))
    });
    let start = run(vec![], [(0, of(vec![good(0)]))]).latches;
    assert_eq!(shown(&run(start, turns)).0, Status::False);
}

#[test]
fn the_wait_of_an_improvement_is_not_that_of_a_worsening() {
    let start =
        run(vec![], [(0, of(vec![finding(Status::True, Severity::Warn, ReasonCode::EtcdEvenVoters, 0)]))])
            .latches;
    let l = run(start, [(1, of(vec![good(1)])), (40, of(vec![good(40)]))]);
    // One bad finding after forty seconds of better ones: its own wait begins now.
    let l = run(
        l.latches,
        [(41, of(vec![finding(Status::True, Severity::Error, ReasonCode::EtcdNoTolerance, 41)]))],
    );
    assert_eq!(shown(&l), (Status::True, Severity::Warn, "EtcdEvenVoters"));
}

#[test]
fn a_clock_that_steps_back_freezes_nothing() {
    let l = run(vec![], [(10_000, of(vec![good(0)])), (10_001, of(vec![bad(0)]))]);
    assert!(l.latches[0].pending.as_ref().is_some_and(|p| p.since == at(10_001)));
    // Two hours back: the wait begins anew and ends after its time.
    let l = run(l.latches, [(100, of(vec![bad(100)])), (129, of(vec![bad(129)]))]);
    assert_eq!(shown(&l).0, Status::True);
    assert_eq!(shown(&run(l.latches, [(130, of(vec![bad(130)]))])).0, Status::False);
}

#[test]
fn subjects_that_vanish_are_removed_and_unread_checks_stay() {
    let disk = |subject: &str| {
        Finding::new(
            ConditionType::HostHealthy,
            Status::True,
            Severity::Ok,
            ReasonCode::HostHasRoom,
            at(0),
            "room",
        )
        .subject(subject)
    };
    let start = run(vec![], [(0, of(vec![disk("/"), disk("/mnt"), good(0)]))]);
    assert_eq!(start.conditions.len(), 3);
    let l = run(start.latches.clone(), [(1, of(vec![disk("/")]))]);
    assert_eq!(l.conditions.len(), 2, "etcd was not read and stays");
    let gone = &l.transitions[0];
    assert_eq!(
        (gone.removed, gone.condition.subject.as_str(), gone.previous_status),
        (true, "/mnt", Some(Status::True))
    );
    // Not applicable is a reading too.
    let na = Judgement {
        not_applicable: vec![NotApplicable { check: Check::Etcd, reason: "no etcd".into() }],
        ..Judgement::default()
    };
    let l = run(start.latches, [(1, na)]);
    assert!(l.transitions.len() == 1 && l.transitions[0].removed && l.conditions.len() == 2);
}

#[test]
fn one_failed_read_is_no_news_two_are() {
    let start = run(vec![], [(0, of(vec![good(0)]))]).latches;
    // Evaluated again and again on the same failed read: still one read.
    let l = run(start, [(1, blind(UnknownCause::TimedOut, 1)), (8, blind(UnknownCause::TimedOut, 1))]);
    assert_eq!(shown(&l).0, Status::True);
    let second = run(l.latches.clone(), [(9, blind(UnknownCause::ConnectionRefused, 9))]);
    assert_eq!(shown(&second), (Status::Unknown, Severity::Warn, "ConnectionRefused"));
    // A slow check: after a minute one failed read counts.
    assert_eq!(shown(&run(l.latches.clone(), [(61, blind(UnknownCause::TimedOut, 1))])).0, Status::Unknown);
    // And a blip leaves no trace.
    let l = run(l.latches, [(9, of(vec![good(9)]))]);
    assert!(l.transitions.is_empty() && l.latches[0].pending.is_none());
}

#[test]
fn a_check_that_was_blind_from_the_start_shows_one_condition() {
    let l = run(vec![], [(0, blind(UnknownCause::PermissionDenied, 0))]);
    assert_eq!((l.conditions.len(), shown(&l)), (1, (Status::Unknown, Severity::Warn, "PermissionDenied")));
    assert_eq!(l.conditions[0].condition_type, ConditionType::EtcdQuorum);
    assert!(l.conditions[0].message.contains("etcd") && !l.conditions[0].advice.is_empty());
    let again = run(l.latches, [(1, blind(UnknownCause::PermissionDenied, 1))]);
    assert!(again.transitions.is_empty());
}

#[test]
fn a_key_that_is_found_twice_shows_the_worse() {
    for order in [vec![good(0), bad(0)], vec![bad(0), good(0)]] {
        let l = run(vec![], [(0, of(order))]);
        assert_eq!((l.conditions.len(), shown(&l).0), (1, Status::False));
    }
}

#[test]
fn quorum_lost_is_suspected_then_certain_after_one_election_timeout() {
    let mut facts = world::server(3);
    let turn = |facts: &mut NodeFacts, second: u64| {
        facts.now = at(second);
        let l = latch(&facts.latches, &judge(facts), facts.now);
        assert_eq!(l.conditions, diagnose(facts).conditions);
        facts.latches = l.latches;
        let c = l.conditions.iter().find(|c| c.condition_type == ConditionType::EtcdQuorum).unwrap().clone();
        (c.status, c.reason)
    };
    assert_eq!(turn(&mut facts, 0), (Status::True, ReasonCode::EtcdQuorumMet));
    facts.checks.etcd = Some(known(world::etcd(3).with(|e| {
        kill(e, 2, 1);
        kill(e, 3, 1);
        orphan(e, 1);
    })));
    assert_eq!(turn(&mut facts, 1), (Status::Unknown, ReasonCode::EtcdQuorumSuspected));
    assert_eq!(turn(&mut facts, 5), (Status::Unknown, ReasonCode::EtcdQuorumSuspected));
    assert_eq!(turn(&mut facts, 6), (Status::False, ReasonCode::EtcdQuorumLost));
    facts.checks.etcd = Some(known(world::etcd(3)));
    turn(&mut facts, 7);
    assert_eq!(turn(&mut facts, 12), (Status::True, ReasonCode::EtcdQuorumMet));
}

#[test]
fn a_rolling_restart_of_every_member_pages_nobody() {
    let mut facts = world::server(3);
    let mut worst = (Status::True, Severity::Ok);
    for second in 0..90u64 {
        let e = world::etcd(3).with(|e| {
            // Members 2, 3 and 1 are away for ten seconds each; the leader's absence costs two seconds of election.
            match second {
                10..20 => kill(e, 2, second - 10),
                40..50 => kill(e, 3, second - 40),
                70..72 => {
                    kill(e, 1, second - 70);
                    orphan(e, 2);
                    orphan(e, 3);
                }
                72..80 => kill(e, 1, second - 70),
                _ => {}
            }
        });
        facts.checks.etcd = Some(known(e));
        facts.now = at(second);
        let l = latch(&facts.latches, &judge(&facts), facts.now);
        let c = l.conditions.iter().find(|c| c.condition_type == ConditionType::EtcdQuorum).unwrap();
        worst = worst.max((if c.status == Status::False { Status::False } else { Status::True }, c.severity));
        facts.latches = l.latches;
    }
    assert_eq!(worst, (Status::True, Severity::Warn), "suspected once, never an error");
}

fn any_finding() -> impl Strategy<Value = Finding> {
    let verdict = prop_oneof![
        Just((Status::True, Severity::Ok, ReasonCode::EtcdQuorumMet)),
        Just((Status::True, Severity::Warn, ReasonCode::EtcdEvenVoters)),
        Just((Status::True, Severity::Error, ReasonCode::EtcdNoTolerance)),
        Just((Status::Unknown, Severity::Warn, ReasonCode::EtcdVotersUnknown)),
        Just((Status::False, Severity::Error, ReasonCode::EtcdQuorumLost)),
        Just((Status::False, Severity::Error, ReasonCode::EtcdNoLeader)),
    ];
    (verdict, any::<bool>(), 0u64..40, 0u64..40, prop::sample::select(vec!["", "a", "b"])).prop_map(
        |((status, severity, reason), suspect, raise, clear, subject)| {
            let f = Finding::new(ConditionType::EtcdQuorum, status, severity, reason, now(), "m")
                .subject(subject)
                .waits(Duration::from_secs(raise), Duration::from_secs(clear));
            if suspect && status == Status::False {
                f.suspected_as(ReasonCode::EtcdQuorumSuspected)
            } else {
                f
            }
        },
    )
}

fn any_judgement() -> impl Strategy<Value = Judgement> {
    prop_oneof![
        8 => prop::collection::vec(any_finding(), 0..4).prop_map(of),
        1 => prop::sample::select(vec![UnknownCause::TimedOut, UnknownCause::Forbidden]).prop_map(|c| blind(c, 0)),
        1 => Just(Judgement::default()),
    ]
}

/// Judgements with the seconds passed before each; time may step back.
fn any_history() -> impl Strategy<Value = Vec<(i64, Judgement)>> {
    prop::collection::vec((prop_oneof![9 => 0i64..30, 1 => -500i64..0], any_judgement()), 1..25)
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn latching_twice_changes_nothing(history in any_history()) {
        let (mut latches, mut t) = (Vec::new(), 0);
        for (step, judgement) in history {
            t += step;
            let now = Timestamp::from_millis(now().as_millis() + t * 1000);
            let once = latch(&latches, &judgement, now);
            let twice = latch(&once.latches, &judgement, now);
            prop_assert!(twice.transitions.is_empty(), "{:?}", twice.transitions);
            prop_assert_eq!(&twice.latches, &once.latches);
            latches = once.latches;
        }
    }

    #[test]
    fn good_findings_always_clear_in_time(history in any_history(), clear in 0u64..90, step in 1u64..20) {
        let (mut latches, mut t) = (Vec::new(), 0);
        for (by, judgement) in &history {
            t += by;
            latches = latch(&latches, judgement, Timestamp::from_millis(now().as_millis() + t * 1000)).latches;
        }
        let start = Timestamp::from_millis(now().as_millis() + t * 1000 + 1);
        let good = Finding::new(ConditionType::EtcdQuorum, Status::True, Severity::Ok, ReasonCode::EtcdQuorumMet, start, "m")
            .waits(Duration::from_secs(90), Duration::from_secs(clear));
        let judgement = of(vec![good]);
        let mut now = start;
        while now.since(start) < Duration::from_secs(clear + step) {
            latches = latch(&latches, &judgement, now).latches;
            now = now.after(Duration::from_secs(step));
        }
        latches = latch(&latches, &judgement, now).latches;
        prop_assert_eq!(latches.len(), 1);
        prop_assert_eq!(latches[0].condition.reason.clone(), ReasonCode::EtcdQuorumMet);
    }

    #[test]
    fn bad_findings_always_raise_in_time(history in any_history(), raise in 0u64..90) {
        let (mut latches, mut t) = (Vec::new(), 0);
        for (by, judgement) in &history {
            t += by;
            latches = latch(&latches, judgement, Timestamp::from_millis(now().as_millis() + t * 1000)).latches;
        }
        let start = Timestamp::from_millis(now().as_millis() + t * 1000 + 1);
        let bad = |turn: u64| {
            let reason = if turn.is_multiple_of(2) { ReasonCode::EtcdQuorumLost } else { ReasonCode::EtcdNoLeader };
            of(vec![Finding::new(ConditionType::EtcdQuorum, Status::False, Severity::Error, reason, start, "m")
                .waits(Duration::from_secs(raise), Duration::from_secs(raise))])
        };
        for s in 0..=raise {
            latches = latch(&latches, &bad(s), start.after(Duration::from_secs(s))).latches;
        }
        prop_assert_eq!(latches[0].condition.status, Status::False);
    }

    #[test]
    fn nothing_changes_before_it_is_due_and_something_does_then(history in any_history(), part in 0.0f64..1.0) {
        let (mut latches, mut t) = (Vec::<Latch>::new(), 0);
        for (step, judgement) in history {
            t += step;
            let now = Timestamp::from_millis(now().as_millis() + t * 1000);
            let next = latch(&latches, &judgement, now);
            let rest = next.due.map_or(Duration::from_secs(1000), |due| due.since(now));
            let before = latch(&next.latches, &judgement, now.after(rest.mul_f64(part)));
            prop_assert!(before.transitions.is_empty(), "{:?} before {:?}", before.transitions, next.due);
            if let Some(due) = next.due {
                prop_assert!(due > now);
                prop_assert!(!latch(&next.latches, &judgement, due).transitions.is_empty());
            }
            latches = next.latches;
        }
    }

    #[test]
    fn nothing_turns_true_without_a_finding_that_says_so(history in any_history()) {
        let (mut latches, mut t) = (Vec::<Latch>::new(), 0);
        for (step, judgement) in history {
            t += step;
            let next = latch(&latches, &judgement, Timestamp::from_millis(now().as_millis() + t * 1000));
            for tr in next.transitions.iter().filter(|tr| tr.condition.status == Status::True && !tr.removed) {
                let said = judgement.findings.iter().any(|f| f.key() == tr.condition.key() && f.status == Status::True);
                prop_assert!(said, "{:?}", tr);
            }
            latches = next.latches;
        }
    }

    #[test]
    fn output_is_in_order_whatever_the_input(history in any_history(), seed in any::<u64>()) {
        let mut latches = Vec::new();
        for (i, (_, judgement)) in history.into_iter().enumerate() {
            let mut shuffled = judgement.clone();
            let turn = usize::try_from(seed % 7).unwrap() % shuffled.findings.len().max(1);
            shuffled.findings.rotate_left(turn);
            let mut before = latches.clone();
            before.reverse();
            let now = at(i as u64 * 10);
            let (a, b) = (latch(&latches, &judgement, now), latch(&before, &shuffled, now));
            let keys: Vec<_> = a.conditions.iter().map(Condition::key).collect();
            prop_assert!(keys.is_sorted_by(|x, y| x < y), "{:?}", keys);
            prop_assert_eq!(keys, b.conditions.iter().map(Condition::key).collect::<Vec<_>>());
            // Equal verdicts of one key may differ in how long they wait; without such twins all is equal.
            let mut twins: Vec<_> = judgement.findings.iter().map(Finding::key).collect();
            twins.sort();
            if twins.windows(2).all(|w| w[0] != w[1]) {
                prop_assert_eq!(&a, &b);
            }
            latches = a.latches;
        }
    }
}

#[test]
fn a_blind_check_keeps_every_subject_in_sight() {
    let mut facts = world::server(3);
    facts.latches = latch(&[], &judge(&facts), facts.now).latches;
    let before = facts.latches.len();
    facts.checks.host = Some(unknown(UnknownCause::TimedOut));
    facts.now = at(120);
    let l = latch(&facts.latches, &judge(&facts), facts.now);
    facts.latches = l.latches;
    facts.checks.host = Some(Fact::unknown(UnknownCause::TimedOut, "it failed", "test", at(130)));
    facts.now = at(130);
    let l = latch(&facts.latches, &judge(&facts), facts.now);
    assert_eq!(l.conditions.len(), before);
    let disks = l.conditions.iter().filter(|c| c.condition_type == ConditionType::HostHealthy);
    assert!(disks.clone().count() == 4 && disks.clone().all(|c| c.status == Status::Unknown));
}
