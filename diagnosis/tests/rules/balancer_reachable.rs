//! The way to the balancer: name, addresses, TCP, TLS.

use outrider_diagnosis::judge;
use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::{Backend, Balancer};
use outrider_protocol::*;

use crate::balancer::{LB, findings, reachable};
use crate::world::{self, Change, absent, balancer, dead, http, known, probe, unknown};
use crate::{expect, only};

#[test]
fn an_unreachable_balancer_is_told_by_reachable_and_unknown_behind() {
    let (r, f) = findings(balancer(vec![
        dead(K::Connect, Balancer, LB, UnknownCause::ConnectionRefused),
        dead(K::Root, Balancer, LB, UnknownCause::TimedOut),
    ]));
    expect(
        &r,
        Status::False,
        Severity::Error,
        ReasonCode::BalancerDown,
        &["192.0.2.10", "2 of 2 tries", "ConnectionRefused", "443"],
    );
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::Unreachable, &["LoadBalancerReachable"]);
}

#[test]
fn every_address_is_judged_by_itself() {
    let f = reachable(balancer(vec![
        probe(K::Connect, Balancer, LB, None),
        dead(K::Connect, Balancer, "[2001:db8::10]:443", UnknownCause::TimedOut),
    ]));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::BalancerPartlyDown,
        &["1 of 2 addresses", "2001:db8::10", "TimedOut"],
    );
    // One try in four at one address: the look of a hairpin.
    let mut probes = vec![probe(K::Root, Balancer, LB, Some(http(200, "", ""))); 3];
    probes.push(dead(K::Root, Balancer, LB, UnknownCause::TimedOut));
    let f = reachable(balancer(probes));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::BalancerPartlyDown,
        &["1 of 1 addresses", "only now and then", "1 of 4 tries", "hairpin"],
    );
}

/// A node that is itself a backend, at 10.0.0.1: tries that come back to it time out where the client's address is kept.
#[test]
fn a_hairpin_is_suspected_on_backends_only() {
    let seen = |backend: &str, cause: UnknownCause| {
        let mut probes = vec![probe(K::Root, Balancer, LB, Some(http(200, "", ""))); 2];
        probes.push(dead(K::Root, Balancer, LB, cause));
        let mut host = world::host();
        if let Fact::Known { value, .. } = &mut host.interfaces {
            value[0].addresses = vec!["10.0.0.1/24".into()];
        }
        let checks = CheckFacts {
            host: Some(known(host)),
            load_balancer: Some(known(vec![
                balancer(probes).with(|b| b.backends = Some(known(vec![backend.to_owned()]))),
            ])),
            ..CheckFacts::default()
        };
        only(&judge(&world::node_facts(checks)), ConditionType::LoadBalancerReachable)
    };
    let f = seen("10.0.0.1:443", UnknownCause::TimedOut);
    let words = ["This node (10.0.0.1) is itself a backend", "1 of 3 tries", "targets by IP"];
    expect(&f, Status::False, Severity::Error, ReasonCode::BalancerPartlyDown, &words);
    for other in
        [seen("10.0.0.2:443", UnknownCause::TimedOut), seen("10.0.0.1:443", UnknownCause::ConnectionRefused)]
    {
        assert_eq!(other.reason, ReasonCode::BalancerPartlyDown);
        assert!(!other.message.contains("itself a backend"), "{other:#?}");
    }
}

#[test]
fn a_try_with_a_proxy_header_is_none_of_the_way_to_the_balancer() {
    let f = reachable(balancer(vec![
        probe(K::Connect, Balancer, LB, None),
        probe(K::ProxyPing, Balancer, LB, None).with(|p| p.tls = unknown(UnknownCause::TlsFailed)),
    ]));
    assert_eq!(f.reason, ReasonCode::BalancerAnswers, "{f:#?}");
}

#[test]
fn names_that_do_not_resolve() {
    for b in [
        balancer(vec![]).with(|b| b.addresses = absent("DNS")),
        balancer(vec![]).with(|b| b.addresses = known(vec![])),
    ] {
        expect(&reachable(b), Status::False, Severity::Error, ReasonCode::NameNotResolved, &["rancher.x"]);
    }
    let b = balancer(vec![]).with(|b| b.addresses = unknown(UnknownCause::TimedOut));
    assert_eq!(reachable(b).status, Status::Unknown);
}

#[test]
fn tries_that_failed_here_say_nothing_about_the_balancer() {
    let f = reachable(balancer(vec![dead(K::Connect, Balancer, LB, UnknownCause::PermissionDenied)]));
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::PermissionDenied, &[]);
    let f = reachable(balancer(vec![]));
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::NotYetRead, &[]);
}

#[test]
fn no_tls_on_the_https_port() {
    let mut p = probe(K::Connect, Balancer, LB, None);
    p.tls = unknown(UnknownCause::TlsFailed);
    expect(&reachable(balancer(vec![p])), Status::False, Severity::Error, ReasonCode::TlsFailed, &[LB]);
}

/// What is behind a door that nobody opens is not known, whatever another door of the same host does.
#[test]
fn an_https_port_that_is_closed_tells_nothing_of_what_is_behind() {
    let plain = |status: u16| {
        let to = if status == 301 { "https://rancher.x/" } else { "" };
        probe(K::Redirect, Balancer, "192.0.2.10:80", Some(http(status, to, "")))
    };
    let behind =
        |n: usize| probe(K::ForwardedRoot, Backend, &format!("10.0.0.{n}:80"), Some(http(200, "", "")));
    for cause in [UnknownCause::ConnectionRefused, UnknownCause::TimedOut, UnknownCause::Unreachable] {
        for open in [plain(301), plain(200), plain(502)] {
            let closed = [K::Connect, K::Root, K::Root, K::WebSocketOrigin];
            let closed = closed.map(|kind| dead(kind, Balancer, LB, cause.clone()));
            let probes = closed.into_iter().chain([open, behind(1), behind(2)]).collect();
            let facts = world::node_facts(CheckFacts {
                load_balancer: Some(known(vec![balancer(probes)])),
                ..CheckFacts::default()
            });
            let judgement = judge(&facts);
            let down = only(&judgement, ConditionType::LoadBalancerReachable);
            assert_eq!((down.status, down.reason), (Status::False, ReasonCode::BalancerDown));
            let f = only(&judgement, ConditionType::LoadBalancerForwarding);
            let words = ["cannot be told", "see LoadBalancerReachable"];
            expect(&f, Status::Unknown, Severity::Warn, ReasonCode::Unreachable, &words);
            let f = only(&judgement, ConditionType::LoadBalancerWebSocket);
            expect(&f, Status::Unknown, Severity::Info, ReasonCode::Unreachable, &["LoadBalancerReachable"]);
        }
    }
}
