//! The rules about rancher-system-agent.

use outrider_diagnosis::{Finding, Judgement, judge};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::expect;
use crate::registry::{fact, word};
use crate::world::{self, Change, DAY, absent, ago, known, unknown};

fn judged(agent: Fact<SystemAgent>) -> Judgement {
    let rancher = world::rancher_agent().with(|r| r.agent = agent);
    judge(&world::node_facts(CheckFacts { rancher_agent: Some(known(rancher)), ..CheckFacts::default() }))
}

#[track_caller]
fn about(subject: &str, change: impl FnOnce(&mut SystemAgent)) -> Finding {
    let found = judged(known(world::system_agent().with(change))).findings;
    let is_it = |f: &&Finding| f.condition_type == ConditionType::RancherAgentReady && f.subject == subject;
    found.iter().find(is_it).expect("a finding").clone()
}

fn connection(agent: &mut SystemAgent) -> &mut RancherConnection {
    match &mut agent.connection {
        Fact::Known { value, .. } => value,
        _ => panic!("the connection is known"),
    }
}

#[test]
fn a_healthy_agent_has_two_rows() {
    let f = about("", |_| {});
    expect(&f, Status::True, Severity::Ok, ReasonCode::RancherAgentRunning, &["process 812", "25 h"]);
    let f = about("connection", |_| {});
    let words = ["https://rancher.example", "rke2-server-ca", "strictly", "3 plans begun"];
    expect(&f, Status::True, Severity::Ok, ReasonCode::RancherAgentConnected, &words);
}

/// What the balancer of the agent's server shows, beside the agent.
fn beside(change: impl FnOnce(&mut SystemAgent), issuer: &str, trusted: Option<bool>) -> Finding {
    let mut agent = world::system_agent();
    change(&mut agent);
    let mut p = world::probe(ProbeKind::Connect, ProbeTarget::Balancer, "192.0.2.10:443", None);
    if let Fact::Known { value, .. } = &mut p.tls {
        value.chain[0].issuer = issuer.into();
    }
    let balancer = world::balancer(vec![p]).with(|b| {
        b.host = "rancher.example".into();
        b.ca = trusted.map(|trusted| {
            let why = if trusted { "" } else { "unknown issuer" };
            known(world::published().with(|ca| ca.system_trusts_chain = known(why.into())))
        });
    });
    let checks = CheckFacts {
        rancher_agent: Some(known(world::rancher_agent().with(|r| r.agent = known(agent)))),
        load_balancer: Some(known(vec![balancer])),
        ..CheckFacts::default()
    };
    let found = judge(&world::node_facts(checks)).findings;
    let is_it =
        |f: &&Finding| f.condition_type == ConditionType::RancherAgentReady && f.subject == "connection";
    found.iter().find(is_it).expect("a finding").clone()
}

/// A process that holds its connection goes on, and the next one does not come up.
#[test]
fn an_authority_that_is_pinned_and_no_longer_served() {
    let (strict, lax) = (|_: &mut SystemAgent| {}, |a: &mut SystemAgent| a.strict_verify = known(false));
    let unread = |a: &mut SystemAgent| a.strict_verify = unknown(UnknownCause::PermissionDenied);
    let reason = ReasonCode::RancherAgentCaUnfit;
    let f = beside(strict, "CN=new root", None);
    let words = [
        "pins CN=rke2-server-ca",
        "leads to CN=new root",
        "192.0.2.10:443",
        "restarted for ever",
        "registration command",
    ];
    expect(&f, Status::False, Severity::Error, reason.clone(), &words);
    let f = beside(lax, "CN=R11", Some(true));
    expect(&f, Status::True, Severity::Info, reason.clone(), &["the system's store trusts what is served"]);
    let f = beside(lax, "CN=new root", Some(false));
    expect(&f, Status::False, Severity::Error, reason.clone(), &["does not trust that either"]);
    assert_eq!(beside(lax, "CN=new root", None).severity, Severity::Warn);
    assert_eq!(beside(unread, "CN=new root", Some(true)).severity, Severity::Warn);
    for right in ["", "https://rancher.example:8443", "https://other.example"] {
        let issuer = if right.is_empty() { "CN=rke2-server-ca" } else { "CN=new root" };
        let f = beside(
            |a| {
                if !right.is_empty() {
                    connection(a).server = right.into();
                }
            },
            issuer,
            None,
        );
        assert_eq!(f.reason, ReasonCode::RancherAgentConnected, "{right}: {f:#?}");
    }
}

#[test]
fn not_installed_is_not_applicable_and_unread_is_unknown() {
    let j = judged(absent("rancher-system-agent.service"));
    assert!(j.not_applicable.iter().any(|n| n.check == Check::RancherAgent), "{j:?}");
    assert!(j.findings.iter().all(|f| f.condition_type != ConditionType::RancherAgentReady));
    let j = judged(unknown(UnknownCause::TimedOut));
    assert!(j.blind.iter().any(|b| b.check == Check::RancherAgent), "{j:?}");
}

#[test]
fn a_restart_loop_is_told_by_two_looks_or_by_one_that_meets_it() {
    let f = about("", |a| {
        a.unit.restarts = 40;
        (a.unit.result, a.unit.exit_status, a.unit.started_seconds_ago) = ("exit-code".into(), 1, Some(4));
        a.earlier = Some(RestartCount { restarts: 4, at: ago(240) });
    });
    let words = ["36 restarts within 4 min", "exit code 1", "showing this node as running", "x509"];
    expect(&f, Status::False, Severity::Error, ReasonCode::RancherAgentRestarting, &words);
    let f = about("", |a| {
        (a.unit.restarts, a.unit.active_state, a.unit.sub_state) =
            (812, "activating".into(), "auto-restart".into());
        a.earlier = None;
    });
    expect(&f, Status::False, Severity::Error, ReasonCode::RancherAgentRestarting, &["812 restarts so far"]);
    // It ended every six seconds; one that lives for more than a minute has what the others lacked.
    let cured = |seconds| {
        about("", |a| {
            (a.unit.restarts, a.unit.started_seconds_ago) = (40, Some(seconds));
            a.earlier = Some(RestartCount { restarts: 4, at: ago(240) });
        })
    };
    assert_eq!(cured(59).reason, ReasonCode::RancherAgentRestarting);
    assert_eq!(cured(61).reason, ReasonCode::RancherAgentRunning);
    // Many restarts long ago, and a process that lives.
    let f = about("", |a| (a.unit.restarts, a.earlier) = (812, None));
    expect(&f, Status::True, Severity::Ok, ReasonCode::RancherAgentRunning, &["812 restarts so far"]);
    // One restart is an upgrade.
    let f = about("", |a| (a.unit.restarts, a.unit.started_seconds_ago) = (1, Some(3)));
    assert_eq!(f.reason, ReasonCode::RancherAgentRunning);
}

#[test]
fn stopped_disabled_failed_masked_and_starting() {
    for (active, file, status, severity, word) in [
        ("inactive", "enabled", Status::False, Severity::Error, "does not run"),
        ("inactive", "disabled", Status::True, Severity::Warn, "does not run"),
        ("failed", "enabled", Status::False, Severity::Error, "has failed"),
        ("inactive", "masked", Status::False, Severity::Error, "masked"),
        ("activating", "enabled", Status::Unknown, Severity::Warn, "between two states"),
    ] {
        let f = about("", |a| (a.unit.active_state, a.unit.unit_file_state) = (active.into(), file.into()));
        expect(&f, status, severity, ReasonCode::RancherAgentStopped, &[word]);
    }
}

#[test]
fn files_it_refuses() {
    for (mode, uid, words) in
        [(0o640, 0, "0640"), (0o400, 0, "0400"), (0o600, 1000, "1000:0"), (0o777, 0, "0777")]
    {
        let f = about("connection", |a| {
            let file = &mut connection(a).file;
            (file.mode, file.uid) = (mode, uid);
        });
        let words = [words, "at its next start", "chmod 0600", "rancher2_connection_info.json"];
        expect(&f, Status::True, Severity::Warn, ReasonCode::RancherAgentFilesRefused, &words);
    }
    let f = about("connection", |a| {
        connection(a).file.mode = 0o644;
        a.unit.active_state = "activating".into();
    });
    expect(&f, Status::False, Severity::Error, ReasonCode::RancherAgentFilesRefused, &["does not start"]);
}

#[test]
fn nothing_that_says_where_rancher_is() {
    let reason = ReasonCode::RancherAgentUnconnected;
    let f = about("connection", |a| a.connection = absent("/var/lib/rancher/agent/x.json"));
    expect(&f, Status::False, Severity::Error, reason.clone(), &["x.json is not there", "registration"]);
    let f = about("connection", |a| connection(a).server.clear());
    expect(&f, Status::False, Severity::Error, reason.clone(), &["no server"]);
    let f = about("connection", |a| connection(a).secret_name.clear());
    expect(&f, Status::False, Severity::Error, reason.clone(), &["no Secret"]);
    let f = about("connection", |a| a.config = absent("/etc/rancher/agent/config.yaml"));
    expect(&f, Status::False, Severity::Error, reason, &["no configuration"]);
    let f = about("connection", |a| a.connection = unknown(UnknownCause::PermissionDenied));
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::PermissionDenied, &["root helper"]);
    // Plans from a folder need no connection.
    let f = about("connection", |a| {
        a.connection = absent("x");
        if let Fact::Known { value, .. } = &mut a.config {
            (value.remote, value.local) = (false, true);
        }
    });
    assert_eq!(f.severity, Severity::Ok);
}

#[test]
fn whom_it_trusts() {
    let reason = ReasonCode::RancherAgentCaUnfit;
    let with = |days: i64, strict: bool| {
        about("connection", |a| {
            connection(a).authorities = known(vec![world::authority(days)]);
            a.strict_verify = known(strict);
        })
    };
    expect(&with(-1, true), Status::False, Severity::Error, reason.clone(), &["ended on", "rke2-server-ca"]);
    expect(&with(-1, false), Status::True, Severity::Warn, reason.clone(), &["falls back"]);
    expect(&with(10, true), Status::True, Severity::Warn, reason.clone(), &["ends in 10 days"]);
    let f = about("connection", |a| connection(a).authorities = absent("certificate-authority-data"));
    expect(&f, Status::True, Severity::Warn, reason.clone(), &["verifies strictly and pins no authority"]);
    let f = about("connection", |a| {
        connection(a).authorities = absent("certificate-authority-data");
        a.strict_verify = absent("unit");
    });
    expect(&f, Status::True, Severity::Ok, ReasonCode::RancherAgentConnected, &["system's store"]);
    let f = about("connection", |a| connection(a).authorities = unknown(UnknownCause::InvalidInput));
    expect(&f, Status::False, Severity::Error, reason, &["cannot be read"]);
}

#[test]
fn plans_that_are_held_up() {
    let with = |plans: PlanFacts| about("", |a| a.plans = known(plans));
    let reason = ReasonCode::RancherAgentPlanStuck;
    let f = with(PlanFacts { restart_pending_since: Some(ago(1200)), ..PlanFacts::default() });
    expect(&f, Status::True, Severity::Warn, reason.clone(), &["20 min", "restart-pending"]);
    let f = with(PlanFacts { active_since: Some(ago(2 * DAY)), ..PlanFacts::default() });
    expect(
        &f,
        Status::True,
        Severity::Warn,
        reason,
        &["is being applied", "48 h"].map(|w| w.replace("48 h", "2 days")).each_ref().map(String::as_str),
    );
    let f = with(PlanFacts {
        active_since: Some(ago(60)),
        restart_pending_since: Some(ago(60)),
        ..PlanFacts::default()
    });
    assert_eq!(f.severity, Severity::Ok, "a minute is no hold-up");
}

/// Any facts of this check.
pub(crate) fn any_rancher_agent() -> impl Strategy<Value = RancherAgentFacts> {
    let unit = (
        word(&["loaded", "masked", "odd", ""]),
        word(&["active", "inactive", "failed", "activating", ""]),
        word(&["running", "auto-restart", ""]),
        word(&["exit-code", "signal", "watchdog", ""]),
        any::<u32>(),
        prop::option::of(any::<u64>()),
    );
    let agent = (unit, fact(any::<bool>()), 0u32..0o1000, -100i64..100, 0u64..10_000, any::<[bool; 3]>());
    let agent = agent.prop_map(
        |((load, active, sub, result, restarts, age), strict, mode, days, held, [a, b, c])| {
            world::system_agent().with(|s| {
                let unit = &mut s.unit;
                (unit.load_state, unit.active_state, unit.sub_state, unit.result) =
                    (load, active, sub, result);
                (unit.restarts, unit.started_seconds_ago) = (restarts, age);
                s.strict_verify = strict;
                connection(s).file.mode = mode;
                connection(s).authorities = if a { known(vec![world::authority(days)]) } else { absent("x") };
                if b {
                    s.earlier = None;
                }
                if c {
                    s.connection = absent("x");
                }
                let plans = PlanFacts {
                    active_since: Some(ago(held)),
                    restart_pending_since: Some(ago(held)),
                    ..PlanFacts::default()
                };
                s.plans = known(plans);
            })
        },
    );
    let reading = (
        word(&["rancher.example", "10.42.0.0/16", ".svc"]),
        prop::sample::select(DirectKind::ALL),
        any::<[bool; 2]>(),
    );
    let reading = reading.prop_map(|(host, kind, [go, plain])| world::proxy_reading(&host, kind, go, plain));
    let variable = (
        word(&["HTTP_PROXY", "http_proxy", "NO_PROXY", "ALL_PROXY"]),
        word(&["", "http://p:1", "x"]),
        any::<bool>(),
    );
    let variable = variable.prop_map(|(name, value, bad)| {
        let mut variable = world::proxy_variable(&name, &value);
        if bad {
            variable.problem = "it is odd".into();
        }
        variable
    });
    let environment = (
        word(&["outrider", "rke2-server"]),
        fact(prop::collection::vec(variable, 0..4)),
        prop::collection::vec(reading, 0..4),
        any::<bool>(),
    );
    let environment = environment.prop_map(|(program, variables, readings, newer)| {
        let mut e = world::proxies(&program, vec![], readings);
        e.variables = variables;
        if newer {
            (e.newer_files, e.ignored) = (vec!["/x".into()], vec!["/x line 1".into()]);
        }
        e
    });
    // Our own environment is always among them.
    (fact(agent), prop::collection::vec(environment, 1..3))
        .prop_map(|(agent, proxies)| RancherAgentFacts { agent, proxies })
}
