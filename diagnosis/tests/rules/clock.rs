//! Whose clock is wrong (F7 of `facts/credentials.md`): this one, the coordinator's or a balancer's, by majority.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::world::{self, Change, DAY, ahead, clock, known, now};
use crate::{expect, only};

use ReasonCode as R;
use Severity as S;
use Status as T;

/// A backend or balancer that answered with a `Date` by which our clock is so many milliseconds ahead.
fn answer(target: ProbeTarget, peer: &str, offset_ms: i64) -> Probe {
    let http = world::http(200, "", "pong");
    let http = HttpAnswer { date_offset_ms: Some(offset_ms), ms: 5.0, ..http };
    Probe {
        kind: ProbeKind::Ping,
        target,
        peer: peer.into(),
        at: now(),
        tcp: known(1.0),
        tls: Fact::not_applicable("plain", now()),
        http: known(http),
        raw: String::new(),
    }
}

fn backend(n: u8, offset_ms: i64) -> Probe {
    answer(ProbeTarget::Backend, &format!("10.0.0.{n}:443"), offset_ms)
}

fn offset(offset_ms: i64) -> Fact<ClockOffset> {
    known(ClockOffset { offset_ms, uncertainty_ms: 500, peer: "c.example".into() })
}

fn facts(coordinator: Fact<ClockOffset>, synchronized: bool, probes: Vec<Probe>) -> NodeFacts {
    let kernel = KernelClock { synchronized, estimated_error_us: 1, maximum_error_us: 1 };
    let balancer = LoadBalancerFacts { mode: BalancerMode::L4, ..world::balancer(probes) };
    world::node_facts(CheckFacts {
        clock: Some(known(clock().with(|c| (c.kernel, c.coordinator) = (known(kernel), coordinator)))),
        load_balancer: Some(known(vec![balancer])),
        ..CheckFacts::default()
    })
}

fn judged(coordinator: Fact<ClockOffset>, synchronized: bool, probes: Vec<Probe>) -> Finding {
    only(&judge(&facts(coordinator, synchronized, probes)), ConditionType::ClockSynchronized)
}

fn none() -> Fact<ClockOffset> {
    Fact::not_applicable("no coordinator", now())
}

const HOUR: i64 = 3_600_000;

#[test]
fn two_against_one_tell_who_is_wrong() {
    let ours = judged(offset(HOUR), true, vec![backend(1, HOUR + 300), backend(2, HOUR - 200)]);
    expect(
        &ours,
        T::False,
        S::Error,
        R::ClockSkewed,
        &["it is this clock that is wrong", "10.0.0.1, 10.0.0.2"],
    );
    let theirs = judged(offset(HOUR), true, vec![backend(1, 100), backend(2, -300)]);
    expect(&theirs, T::True, S::Warn, R::ClockOfPeerWrong, &["the coordinator's that is wrong", "10.0.0.1"]);
    let torn = judged(offset(HOUR), true, vec![backend(1, HOUR), backend(2, 0)]);
    expect(&torn, T::False, S::Error, R::ClockSkewed, &["do not tell which"]);
    let alone = judged(offset(HOUR), true, vec![]);
    expect(&alone, T::False, S::Error, R::ClockSkewed, &["Find out which"]);
}

#[test]
fn a_backend_whose_clock_is_off_is_named() {
    let off = judged(offset(10), true, vec![backend(1, 10), backend(2, -2 * HOUR)]);
    expect(&off, T::True, S::Warn, R::ClockOfPeerWrong, &["10.0.0.2", "agrees with the coordinator"]);
    let kept = judged(none(), true, vec![backend(2, HOUR)]);
    expect(&kept, T::True, S::Warn, R::ClockOfPeerWrong, &["10.0.0.2", "is kept"]);
    let good = judged(offset(10), true, vec![backend(1, 900), backend(2, -900)]);
    expect(&good, T::True, S::Ok, R::ClockInSync, &[]);
}

#[test]
fn without_a_coordinator_two_that_agree_are_believed() {
    let ours = judged(none(), false, vec![backend(1, -HOUR), backend(2, -HOUR + 400)]);
    expect(&ours, T::False, S::Error, R::ClockSkewed, &["behind", "agree with each other"]);
    // Two that differ from each other as well tell nothing of this one.
    let all_differ = judged(none(), false, vec![backend(1, -HOUR), backend(2, HOUR)]);
    assert_eq!(all_differ.reason, R::ClockUnsynchronized);
    let one = judged(none(), false, vec![backend(1, -HOUR)]);
    assert_eq!(one.reason, R::ClockUnsynchronized, "one against one");
}

#[test]
fn an_unkept_clock_that_differs_from_others_says_by_how_many_seconds() {
    let days = 3 * 24 * HOUR;
    for (probes, words) in [
        (vec![backend(1, days)], vec!["259200 s (3 days) ahead of 10.0.0.1"]),
        (
            vec![backend(1, -days), backend(2, 40_000)],
            vec!["259200 s (3 days) behind 10.0.0.1", "40 s ahead of 10.0.0.2"],
        ),
        (vec![backend(1, days), backend(2, 100)], vec!["259200 s (3 days) ahead of 10.0.0.1"]),
        (
            vec![answer(ProbeTarget::Balancer, "192.0.2.10:443", days)],
            vec!["259200 s (3 days) ahead of 192.0.2.10"],
        ),
    ] {
        let found = judged(none(), false, probes.clone());
        expect(&found, T::False, S::Warn, R::ClockUnsynchronized, &words);
        expect(
            &found,
            T::False,
            S::Warn,
            R::ClockUnsynchronized,
            &["nothing tells which is right", "date -u"],
        );
        let young = facts(none(), false, probes.clone())
            .with(|f| f.checks.host = Some(known(world::host().with(|h| h.uptime_seconds = known(60)))));
        assert_eq!(only(&judge(&young), ConditionType::ClockSynchronized).severity, S::Warn);
        let mut unread = facts(none(), false, probes);
        if let Some(Fact::Known { value, .. }) = &mut unread.checks.clock {
            value.kernel = world::unknown(UnknownCause::PermissionDenied);
        }
        let found = only(&judge(&unread), ConditionType::ClockSynchronized);
        expect(&found, T::Unknown, S::Warn, R::PermissionDenied, &words);
    }
}

#[test]
fn who_is_proven_wrong_is_told_to_repair_its_own_clock() {
    let ours = judged(offset(HOUR), true, vec![backend(1, HOUR)]);
    assert!(ours.advice.starts_with("Repair this machine's time service"), "{ours:#?}");
    let unclear = judged(offset(HOUR), true, vec![]);
    assert!(unclear.advice.starts_with("Find out which"), "{unclear:#?}");
}

#[test]
fn what_answers_through_a_balancer_is_no_second_clock() {
    // TLS is handed on: it is backend 1 that answers.
    let through = answer(ProbeTarget::Balancer, "192.0.2.10:443", HOUR);
    let f = judged(none(), false, vec![backend(1, HOUR), through.clone()]);
    assert_eq!(f.reason, R::ClockUnsynchronized);
    let f = judged(offset(HOUR), true, vec![through]);
    expect(&f, T::False, S::Error, R::ClockSkewed, &["192.0.2.10 agree"]);
}

#[test]
fn certificates_that_begin_in_the_future_speak_against_a_clock_that_nobody_keeps() {
    let mut facts = facts(none(), false, vec![]);
    facts.checks.host = Some(known(world::host().with(|h| h.uptime_seconds = known(60))));
    let calm = only(&judge(&facts), ConditionType::ClockSynchronized);
    assert_eq!(calm.severity, S::Info, "just booted");
    let mut certificates = world::certificates("v1.33.1-rke2r1", 265);
    for file in &mut certificates.files {
        if let Fact::Known { value, .. } = &mut file.certificates {
            value.iter_mut().for_each(|c| c.not_before = ahead(3 * DAY));
        }
    }
    facts.checks.certificates = Some(known(certificates));
    let found = only(&judge(&facts), ConditionType::ClockSynchronized);
    expect(&found, T::False, S::Warn, R::ClockUnsynchronized, &["begins only in 3 days", "behind"]);
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn any_clocks_get_a_verdict_with_words(ours in prop::option::of(any::<i64>()), kept in any::<bool>(), others in prop::collection::vec(any::<i64>(), 0..5)) {
        let probes = others.iter().enumerate().map(|(i, ms)| backend(i as u8, *ms)).collect();
        let f = judged(ours.map_or_else(none, offset), kept, probes);
        let (low, high) = f.reason.info().unwrap().severities;
        prop_assert!(f.severity >= low && f.severity <= high && f.message.ends_with('.'), "{:?}", f);
    }

    #[test]
    fn the_order_of_answers_changes_nothing(ms in prop::collection::vec(-5000i64..5000, 0..5)) {
        let probes: Vec<Probe> = ms.iter().enumerate().map(|(i, ms)| backend(i as u8, *ms)).collect();
        let mut reversed = probes.clone();
        reversed.reverse();
        prop_assert_eq!(judged(offset(3000), true, probes), judged(offset(3000), true, reversed));
    }
}
