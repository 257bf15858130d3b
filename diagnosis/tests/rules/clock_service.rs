//! What a time service says of its sources: who keeps the clock, and what to do where nobody does.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::world::{self, Change, ago, clock, known, now};
use crate::{expect, only};

use ReasonCode as R;
use Severity as S;
use Status as T;

fn one(address: &str, state: NtpState, answered: u32) -> NtpSource {
    NtpSource {
        address: address.into(),
        state,
        stratum: 2,
        answered,
        seconds_ago: Some(20),
        offset_ms: Some(0.4),
    }
}

fn source(selected: &str, sources: Vec<NtpSource>) -> TimeSource {
    TimeSource {
        service: "chronyd".into(),
        selected: selected.into(),
        stratum: 3,
        updated_at: Some(ago(30)),
        offset_ms: Some(-0.4),
        uncertainty_ms: Some(2.0),
        sources,
    }
}

impl Change for TimeSource {}

fn facts(synchronized: bool, source: Option<TimeSource>) -> NodeFacts {
    let kernel = KernelClock { synchronized, estimated_error_us: 10, maximum_error_us: 16_000_000 };
    world::node_facts(CheckFacts {
        clock: Some(known(clock().with(|c| {
            c.kernel = known(kernel);
            c.source = source.map(known);
            c.coordinator = Fact::not_applicable("none", now());
        }))),
        ..CheckFacts::default()
    })
}

fn judged(facts: &NodeFacts) -> Finding {
    only(&judge(facts), ConditionType::ClockSynchronized)
}

fn silent() -> TimeSource {
    source("", vec![one("192.0.2.1", NtpState::Unusable, 0), one("192.0.2.2", NtpState::Unusable, 0)])
}

#[test]
fn who_keeps_the_clock_is_told() {
    let good = source("192.0.2.1", vec![one("192.0.2.1", NtpState::Selected, 8)]);
    expect(
        &judged(&facts(true, Some(good))),
        T::True,
        S::Ok,
        R::ClockInSync,
        &["chronyd from 192.0.2.1", "stratum 3", "0.4 ms"],
    );
}

#[test]
fn sources_that_fell_silent_are_told_before_the_clock_drifts() {
    let lost = judged(&facts(true, Some(silent().with(|s| s.updated_at = Some(ago(600))))));
    expect(
        &lost,
        T::True,
        S::Warn,
        R::ClockSourceLost,
        &["hears nothing from its 2 sources (192.0.2.1, 192.0.2.2)", "10 min ago", "UDP port 123"],
    );
    let stale = source("192.0.2.1", vec![one("192.0.2.1", NtpState::Selected, 1)])
        .with(|s| s.updated_at = Some(ago(3 * 3600)));
    assert_eq!(judged(&facts(true, Some(stale))).reason, R::ClockSourceLost);
    // Between two questions of the slowest service nothing is heard either.
    let slow = source("192.0.2.1", vec![one("192.0.2.1", NtpState::Selected, 1)])
        .with(|s| s.updated_at = Some(ago(3600)));
    assert_eq!(judged(&facts(true, Some(slow))).reason, R::ClockInSync);
}

#[test]
fn where_nobody_keeps_it_the_advice_is_for_what_the_service_says() {
    for (sources, words) in [
        (vec![], ["has no source at all", "Name a time server"]),
        (vec![one("", NtpState::Unusable, 0)], ["could not resolve the 1 name", "check dns"]),
        (silent().sources, ["hears nothing", "UDP port 123"]),
        (
            vec![one("192.0.2.1", NtpState::FalseTicker, 8), one("192.0.2.2", NtpState::FalseTicker, 8)],
            ["at odds", "at least three"],
        ),
        (vec![one("192.0.2.1", NtpState::Candidate, 3)], ["has chosen none", "within minutes"]),
    ] {
        expect(
            &judged(&facts(false, Some(source("", sources)))),
            T::False,
            S::Warn,
            R::ClockUnsynchronized,
            &words,
        );
    }
    let none = facts(false, None).with(|f| {
        if let Some(Fact::Known { value, .. }) = &mut f.checks.clock {
            value.service = world::absent("/proc");
        }
    });
    expect(
        &judged(&none),
        T::False,
        S::Warn,
        R::ClockUnsynchronized,
        &["no time service found", "Enable one time service"],
    );
}

#[test]
fn a_service_that_is_about_to_set_the_clock_right_says_how_far_it_is_off() {
    let of = |ms: f64| {
        source("192.0.2.1", vec![one("192.0.2.1", NtpState::Selected, 8)]).with(|s| s.offset_ms = Some(ms))
    };
    expect(
        &judged(&facts(true, Some(of(-3000.0)))),
        T::False,
        S::Warn,
        R::ClockSkewed,
        &["3000 ms behind", "makestep"],
    );
    expect(&judged(&facts(true, Some(of(90_000.0)))), T::False, S::Error, R::ClockSkewed, &["90 s ahead"]);
    // No truer than its uncertainty.
    let vague = of(-3000.0).with(|s| s.uncertainty_ms = Some(2500.0));
    assert_eq!(judged(&facts(true, Some(vague))).reason, R::ClockInSync);
}

#[test]
fn the_first_word_of_a_coordinator_is_waited_for_without_alarm() {
    let waiting = |untried: bool, coordinator: &str| {
        let mut facts = facts(false, None);
        let agent = AgentFacts { untried, coordinator: coordinator.into(), ..AgentFacts::default() };
        facts.checks.agent = Some(known(agent));
        judged(&facts)
    };
    expect(
        &waiting(true, "https://c.example"),
        T::False,
        S::Info,
        R::ClockUnsynchronized,
        &["has not been heard yet"],
    );
    assert_eq!(waiting(false, "https://c.example").severity, S::Warn, "it was asked and did not answer");
    assert_eq!(waiting(true, "").severity, S::Warn, "there is nobody to ask");
}

#[test]
fn other_machines_that_agree_vouch_for_a_clock_that_nobody_keeps() {
    let mut facts = facts(false, None);
    let http = HttpAnswer { date_offset_ms: Some(200), ms: 5.0, ..world::http(200, "", "pong") };
    let probe = Probe {
        kind: ProbeKind::Ping,
        target: ProbeTarget::Backend,
        peer: "10.0.0.1:443".into(),
        at: now(),
        tcp: known(1.0),
        tls: Fact::not_applicable("plain", now()),
        http: known(http),
        raw: String::new(),
    };
    facts.checks.load_balancer = Some(known(vec![world::balancer(vec![probe])]));
    expect(&judged(&facts), T::False, S::Info, R::ClockUnsynchronized, &["agrees with 10.0.0.1"]);
}
