//! The agent about itself.

use std::time::Duration;

use outrider_diagnosis::{Finding, Judgement, diagnose, judge, latch};
use outrider_protocol::*;

use crate::world::{self, Change, DAY, agent, ago, ahead, known};
use crate::{expect, only};

fn judged(a: AgentFacts) -> Judgement {
    judge(&world::node_facts(CheckFacts { agent: Some(known(a)), ..CheckFacts::default() }))
}

fn delivered(change: impl FnOnce(&mut AgentFacts)) -> Finding {
    only(&judged(agent().with(change)), ConditionType::ReportsDelivered)
}

#[test]
fn ready_once_something_was_read() {
    let starting = only(&judged(agent()), ConditionType::Ready);
    expect(&starting, Status::Unknown, Severity::Info, ReasonCode::AgentStarting, &["0.1.0"]);
    let running = only(&judge(&world::server(3)), ConditionType::Ready);
    expect(&running, Status::True, Severity::Ok, ReasonCode::AgentRunning, &["8 checks"]);
    let failing = world::server(3).with(|f| {
        f.checks.agent = Some(known(agent().with(|a| a.failing_checks = vec![Check::Etcd])));
    });
    expect(
        &only(&judge(&failing), ConditionType::Ready),
        Status::True,
        Severity::Ok,
        ReasonCode::AgentRunning,
        &["etcd"],
    );
}

#[test]
fn configuration_problems_are_all_shown() {
    let f = only(&judged(agent()), ConditionType::ConfigValid);
    assert_eq!((f.status, f.reason), (Status::True, ReasonCode::ConfigAccepted));
    let problems = ["a.toml:3: unknown key nmae", "b.toml:1: checks.etcd.interval is no duration"];
    let f = only(
        &judged(agent().with(|a| a.config_problems = problems.map(str::to_owned).to_vec())),
        ConditionType::ConfigValid,
    );
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::ConfigRejected,
        &["2 problems", problems[0], problems[1], "validate"],
    );
}

#[test]
fn delivery_in_all_its_states() {
    expect(&delivered(|_| {}), Status::True, Severity::Ok, ReasonCode::ReportsFlow, &["https://c.example"]);
    let none = delivered(|a| (a.coordinator, a.enrolment) = (String::new(), "none".into()));
    expect(&none, Status::True, Severity::Ok, ReasonCode::NoCoordinator, &[]);
    let failing = |seconds| {
        delivered(move |a| {
            a.delivery_error = "connection refused.".into();
            a.delivery_failing_since = Some(ago(seconds));
            a.spooled = 7;
        })
    };
    expect(
        &failing(60),
        Status::False,
        Severity::Warn,
        ReasonCode::CoordinatorUnreachable,
        &["60 s", "connection refused", "7 transitions"],
    );
    expect(&failing(600), Status::False, Severity::Error, ReasonCode::CoordinatorUnreachable, &["10 min"]);
    expect(
        &delivered(|a| a.enrolment = "pending".into()),
        Status::False,
        Severity::Warn,
        ReasonCode::EnrolmentPending,
        &["outrider approve"],
    );
    expect(
        &delivered(|a| a.enrolment = "refused".into()),
        Status::False,
        Severity::Error,
        ReasonCode::EnrolmentRefused,
        &["token"],
    );
    let token = delivered(|a| {
        (a.enrolment, a.delivery_error) = ("token-unusable".into(), "/etc/outrider/token: no OR1".into());
    });
    expect(
        &token,
        Status::False,
        Severity::Error,
        ReasonCode::EnrolmentTokenUnusable,
        &["/etc/outrider/token", "outrider token create"],
    );
    assert!(token.raise_after.is_zero(), "what lies on this machine is certain at once");
    expect(
        &delivered(|a| a.merged = 40),
        Status::False,
        Severity::Warn,
        ReasonCode::SpoolOverflowed,
        &["40 older"],
    );
    let spool = delivered(|a| (a.spool_problem, a.merged) = ("disk full".into(), 4));
    expect(&spool, Status::False, Severity::Error, ReasonCode::SpoolFailing, &["disk full"]);
}

#[test]
fn before_the_first_exchange_nothing_is_claimed() {
    let untried =
        |error: &'static str| delivered(move |a| (a.untried, a.delivery_error) = (true, error.into()));
    let f = untried("");
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::NotYetRead, &["https://c.example", "not known"]);
    // A failure that is remembered from before a restart stands.
    assert_eq!(untried("no exchange since the restart").reason, ReasonCode::CoordinatorUnreachable);
    let alone = delivered(|a| (a.untried, a.coordinator) = (true, String::new()));
    assert_eq!(alone.reason, ReasonCode::NoCoordinator);

    // A restart is no news: what was shown stands until the first exchange, or until it takes too long.
    let turn = |latches: &[Latch], untried, at: Timestamp| {
        let facts =
            CheckFacts { agent: Some(known(agent().with(|a| a.untried = untried))), ..CheckFacts::default() };
        latch(latches, &judge(&world::node_facts(facts)), at)
    };
    let before = turn(&[], false, world::now()).latches;
    let soon = turn(&before, true, world::now().after(Duration::from_secs(1)));
    assert_eq!(soon.transitions, []);
    let late = turn(&soon.latches, true, world::now().after(Duration::from_secs(40)));
    let [told] = late.transitions.as_slice() else { panic!("{:?}", late.transitions) };
    assert_eq!((told.condition.status, &told.condition.reason), (Status::Unknown, &ReasonCode::NotYetRead));
    let cleared = turn(&late.latches, false, world::now().after(Duration::from_secs(41)));
    assert_eq!(cleared.transitions[0].condition.reason, ReasonCode::ReportsFlow);
}

#[test]
fn the_own_certificate_matters_once_renewal_fails() {
    let certificate = |change: fn(&mut AgentFacts)| {
        let found = judged(agent().with(change)).findings;
        found.into_iter().find(|f| f.condition_type == ConditionType::CertificatesValid)
    };
    assert!(certificate(|a| a.certificate_not_after = None).is_none());
    // A certificate of an hour is renewed in good time; only a failing coordinator makes its end news.
    let f = certificate(|a| a.certificate_not_after = Some(ahead(1200))).unwrap();
    assert_eq!((f.severity, f.reason), (Severity::Ok, ReasonCode::CertificatesInDate));
    let f = certificate(|a| {
        a.certificate_not_after = Some(ahead(1200));
        a.delivery_error = "timed out".into();
        a.delivery_failing_since = Some(ago(60));
    });
    assert_eq!(f.unwrap().severity, Severity::Ok, "a coordinator that restarts");
    let f = certificate(|a| {
        a.certificate_not_after = Some(ahead(2 * DAY));
        a.delivery_error = "timed out".into();
        a.delivery_failing_since = Some(ago(7_200));
    });
    expect(
        &f.unwrap(),
        Status::True,
        Severity::Warn,
        ReasonCode::CertificateEnding,
        &["2 days", "renewal fails"],
    );
    let f = certificate(|a| a.certificate_not_after = Some(ago(DAY)));
    expect(&f.unwrap(), Status::False, Severity::Error, ReasonCode::CertificateExpired, &["ended 24 h ago"]);
}

#[test]
fn the_own_certificate_is_judged_by_the_clock_that_gave_it() {
    let mut clock = world::clock();
    clock.coordinator =
        known(ClockOffset { offset_ms: 3 * 86_400_000, uncertainty_ms: 20, peer: "c.example".into() });
    let judged = judge(&world::node_facts(CheckFacts {
        agent: Some(known(agent().with(|a| a.certificate_not_after = Some(ago(2 * DAY))))),
        clock: Some(known(clock)),
        ..CheckFacts::default()
    }));
    let f = only(&judged, ConditionType::CertificatesValid);
    expect(&f, Status::True, Severity::Ok, ReasonCode::CertificatesInDate, &["24 h more"]);
}

#[test]
fn a_healthy_server_has_nothing_to_report() {
    let conditions = diagnose(&world::server(3)).conditions;
    let loud: Vec<_> = conditions.iter().filter(|c| c.severity != Severity::Ok).collect();
    assert!(loud.is_empty(), "{loud:#?}");
    let order: Vec<_> = conditions.iter().map(Condition::key).collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn captured_facts_give_the_same_bytes_after_a_round_trip() {
    let mut facts = world::server(3);
    // JSON has no infinity; the stand-in bound of the histogram has to survive the trip.
    let first = serde_json::to_string(&diagnose(&facts)).unwrap();
    let read: NodeFacts = serde_json::from_str(&serde_json::to_string(&facts).unwrap()).unwrap();
    assert_eq!(serde_json::to_string(&diagnose(&read)).unwrap(), first);
    facts.latches = outrider_diagnosis::latch(&[], &judge(&facts), facts.now).latches;
    let read: NodeFacts = serde_json::from_str(&serde_json::to_string(&facts).unwrap()).unwrap();
    assert_eq!(diagnose(&read), diagnose(&facts));
}
