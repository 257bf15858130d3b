//! The rules about proxy variables.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::DirectKind::{Network, Node, Server, Service};
use outrider_protocol::*;

use crate::expect;
use crate::world::{self, Change, known, proxy_reading as reading, proxy_variable as variable, unknown};

fn found(environment: ProxyEnvironment, dns: Option<DnsFacts>) -> Vec<Finding> {
    let rancher = world::rancher_agent()
        .with(|r| r.proxies = vec![world::proxies("outrider", vec![], vec![]), environment]);
    let checks =
        CheckFacts { rancher_agent: Some(known(rancher)), dns: dns.map(known), ..CheckFacts::default() };
    let all = judge(&world::node_facts(checks)).findings;
    all.into_iter().filter(|f| f.condition_type == ConditionType::ProxySettingsValid).collect()
}

#[track_caller]
fn only(environment: ProxyEnvironment) -> Finding {
    let mut all = found(environment, None);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

fn rke2(no_proxy: &str, readings: Vec<ProxyReading>) -> ProxyEnvironment {
    let variables =
        vec![variable("HTTPS_PROXY", "http://proxy.example:3128"), variable("NO_PROXY", no_proxy)];
    world::proxies("rke2-server", variables, readings)
}

#[test]
fn without_a_proxy_there_is_one_row() {
    let f = only(world::proxies("rke2-server", vec![], vec![]));
    expect(&f, Status::True, Severity::Ok, ReasonCode::ProxyFits, &["No proxy is set for rke2-server"]);
}

#[test]
fn a_proxy_that_leads_around_everything_is_well() {
    let f = only(rke2(
        ".svc",
        vec![reading(".svc", Service, true, true), reading("r.example", Server, true, true)],
    ));
    let words = ["HTTPS_PROXY http://proxy.example:3128", "2 of 2", "both readings"];
    expect(&f, Status::True, Severity::Ok, ReasonCode::ProxyFits, &words);
}

#[test]
fn networks_services_and_addresses_that_are_left_out_are_named() {
    let readings = vec![
        reading("10.42.0.0/16", Network, false, false),
        reading(".svc", Service, false, false),
        reading(".cluster.local", Service, true, true),
        reading("10.0.0.1", Node, false, false),
    ];
    let f = only(rke2(".cluster.local", readings));
    let words = ["10.42.0.0/16", ".svc", "10.0.0.1", "Add to NO_PROXY"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::NoProxyIncomplete, &words);
    assert!(!f.message.contains(".cluster.local"), "{f:?}");
}

#[test]
fn readings_that_differ_for_a_server_say_who_goes_where() {
    let f = only(rke2("*.example", vec![reading("rancher.example", Server, true, false)]));
    let words = ["rancher.example", "Go's programs (Rancher, Kubernetes) go straight", "*.name"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::NoProxyAmbiguous, &words);
    let f = only(rke2(".rancher.example", vec![reading("rancher.example", Server, false, true)]));
    expect(&f, Status::True, Severity::Warn, ReasonCode::NoProxyAmbiguous, &["older curl go straight"]);
}

#[test]
fn a_server_behind_the_proxy_is_a_word_and_a_warning_if_it_is_inside() {
    let environment = || rke2("10.0.0.0/8", vec![reading("rancher.example", Server, false, false)]);
    let f = only(environment());
    expect(&f, Status::True, Severity::Info, ReasonCode::NoProxyIncomplete, &["through the proxy", "CIDR"]);
    let inside = world::dns().with(|d| {
        d.names[0].host = known(HostAnswer { addresses: vec!["10.1.2.3".into()], ms: 1 });
    });
    let f = found(environment(), Some(inside)).remove(0);
    expect(&f, Status::True, Severity::Warn, ReasonCode::NoProxyIncomplete, &["private"]);
    let f = only(rke2("", vec![reading("192.168.1.1", Server, false, false)]));
    assert_eq!(f.severity, Severity::Warn);
}

#[test]
fn values_that_cannot_be_used() {
    let bad = ProxyVariable {
        problem: "ftp proxies are not supported".into(),
        ..variable("HTTPS_PROXY", "ftp://p:1")
    };
    let f = only(world::proxies("k3s", vec![bad], vec![]));
    expect(&f, Status::False, Severity::Error, ReasonCode::ProxyUnusable, &["HTTPS_PROXY of k3s", "ftp"]);
    let spaced =
        ProxyVariable { problem: "\"a b\" is set apart by spaces".into(), ..variable("NO_PROXY", "a b") };
    let f = only(world::proxies("k3s", vec![spaced], vec![]));
    expect(&f, Status::True, Severity::Warn, ReasonCode::NoProxyAmbiguous, &["commas"]);
}

#[test]
fn two_spellings_that_differ() {
    let variables = vec![variable("HTTPS_PROXY", "http://a:1"), variable("https_proxy", "http://b:1")];
    let f = only(world::proxies("k3s", variables, vec![]));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::NoProxyAmbiguous,
        &["HTTPS_PROXY and https_proxy", "capitals"],
    );
    let variables = vec![variable("HTTPS_PROXY", "http://a:1"), variable("https_proxy", "http://a:1")];
    assert_eq!(only(world::proxies("k3s", variables, vec![])).severity, Severity::Ok);
}

#[test]
fn what_is_written_and_not_in_effect() {
    let mut e = rke2("", vec![]);
    e.newer_files = vec!["/etc/systemd/system/rancher-system-agent.env".into()];
    let words = ["started before", "rancher-system-agent.env", "drop-in"];
    expect(&only(e), Status::True, Severity::Warn, ReasonCode::ProxyNotInEffect, &words);
    let mut e = world::proxies("rke2-server", vec![], vec![]);
    e.ignored = vec!["/etc/default/rke2-server line 2: export HTTPS_PROXY=…".into()];
    expect(
        &only(e),
        Status::True,
        Severity::Warn,
        ReasonCode::ProxyNotInEffect,
        &["line 2", "without `export`"],
    );
}

#[test]
fn an_environment_that_could_not_be_read_is_unknown() {
    let mut e = rke2("", vec![]);
    e.variables = unknown(UnknownCause::PermissionDenied);
    expect(
        &only(e),
        Status::Unknown,
        Severity::Info,
        ReasonCode::PermissionDenied,
        &["rke2-server", "root helper"],
    );
}
