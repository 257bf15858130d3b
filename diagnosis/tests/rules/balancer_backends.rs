//! Backends: which of their ports count, and what is said of those that do not answer.

use outrider_diagnosis::fleet::paths_of;
use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::{Backend, Balancer};
use outrider_protocol::*;

use crate::balancer::{LB, findings};
use crate::expect;
use crate::world::{self, Change, balancer, dead, http, known, probe, unknown};

const OTHER: &str = "192.0.2.11:443";
const SELF: &str = "https://rancher.x/";

fn root(status: u16) -> Probe {
    probe(K::Root, Balancer, LB, Some(http(status, "", "")))
}

fn plain(peer: &str, status: u16) -> Probe {
    probe(K::ForwardedRoot, Backend, peer, Some(http(status, "", "")))
}

fn secure(peer: &str) -> Vec<Probe> {
    vec![
        probe(K::Connect, Backend, peer, None).with(|p| p.tls = known(world::tls("rancher.x"))),
        probe(K::Ping, Backend, peer, Some(http(200, "", "pong"))),
    ]
}

fn refused(kind: K, peer: &str) -> Probe {
    dead(kind, Backend, peer, UnknownCause::ConnectionRefused)
}

/// Both ports of two backends are tried while the mode is being found out; of the second one port is dead.
fn two_ports(mode: BalancerMode, dead: &str, through: &[u16]) -> LoadBalancerFacts {
    let mut probes: Vec<Probe> = through.iter().map(|status| root(*status)).collect();
    for host in ["10.0.0.1", "10.0.0.2"] {
        let (tls, open) = (format!("{host}:443"), format!("{host}:80"));
        match tls == dead {
            true => probes.push(refused(K::Ping, &tls)),
            false => probes.extend(secure(&tls)),
        }
        match open == dead {
            true => probes.push(refused(K::ForwardedRoot, &open)),
            false => probes.push(plain(&open, 200)),
        }
    }
    balancer(probes).with(|b| {
        (b.mode, b.found_mode) = (mode.clone(), mode);
        b.backends = Some(known(vec!["10.0.0.1:443".into(), "10.0.0.2:443".into()]));
    })
}

#[test]
fn a_dead_port_is_not_hidden_by_another_of_the_same_host() {
    use BalancerMode::{Auto, L4, L7};
    let (tls, open) = ("10.0.0.2:443", "10.0.0.2:80");
    for (mode, port) in [(L4, tls), (L7, open), (Auto, tls), (Auto, open)] {
        let (_, f) = findings(two_ports(mode.clone(), port, &[200, 502, 200, 502]));
        let words = ["1 of 2 backends down", port, "ConnectionRefused", "2 of 4"];
        expect(&f, Status::False, Severity::Error, ReasonCode::DeadBackendInUse, &words);
        let (_, f) = findings(two_ports(mode, port, &[200, 200]));
        expect(&f, Status::True, Severity::Warn, ReasonCode::BackendDown, &["1 of 2 backends", port]);
    }
    // A port that the balancer does not use may be closed.
    for (mode, port) in [(L4, open), (L7, tls)] {
        let b = two_ports(mode, port, &[200, 200]);
        assert!(paths_of(&b).paths.iter().all(|path| path.peer != port), "{port}");
        let (_, f) = findings(b);
        expect(&f, Status::True, Severity::Ok, ReasonCode::ForwardingWorks, &["2 of 2 backends"]);
    }
}

#[test]
fn two_backends_of_one_host_are_two() {
    let b =
        balancer(vec![root(200), plain("10.0.0.1:8081", 200), refused(K::ForwardedRoot, "10.0.0.1:8082")]);
    let (_, f) = findings(b);
    expect(&f, Status::True, Severity::Warn, ReasonCode::BackendDown, &["1 of 2 backends", "10.0.0.1:8082"]);
}

/// One that ends TLS and speaks it to its backends again.
#[test]
fn plain_ports_that_nobody_serves_leave_the_others() {
    let mut probes = vec![root(200)];
    for n in 1..=2 {
        probes.extend(secure(&format!("10.0.0.{n}:443")));
        probes.push(refused(K::ForwardedRoot, &format!("10.0.0.{n}:80")));
    }
    let (_, f) = findings(balancer(probes));
    expect(&f, Status::True, Severity::Ok, ReasonCode::ForwardingWorks, &["2 of 2 backends"]);
}

#[test]
fn what_could_not_be_tried_did_not_answer() {
    let own = |peer: &str| {
        dead(K::ForwardedRoot, Backend, peer, UnknownCause::PermissionDenied).with(|p| {
            p.tcp = Fact::unknown(UnknownCause::PermissionDenied, "Permission denied", "", world::now())
        })
    };
    for (status, reason) in [(200, ReasonCode::ForwardingWorks), (502, ReasonCode::BackendError)] {
        let (_, f) = findings(balancer(vec![root(status), own("10.0.0.1:80"), plain("10.0.0.2:80", 200)]));
        assert_eq!(f.reason, reason);
        let words =
            "1 of 2 backends answer by themselves (10.0.0.1:80 could not be tried: Permission denied)";
        assert!(f.message.contains(words), "{f:#?}");
    }
}

#[test]
fn one_backend_or_one_address_that_does_not_know_the_host_is_named() {
    let f =
        findings(balancer(vec![root(200), root(404), plain("10.0.0.1:80", 404), plain("10.0.0.2:80", 200)]))
            .1;
    let words = ["1 of 2 backends (10.0.0.1:80)", "1 of 2 tries", "on the named nodes"];
    expect(&f, Status::False, Severity::Error, ReasonCode::HostNotRouted, &words);
    let f = findings(balancer(vec![root(200), plain("10.0.0.1:80", 404), plain("10.0.0.2:80", 200)])).1;
    let words = ["1 of 2 backends do not know this Host", "10.0.0.1:80: 404"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::BackendDown, &words);
    let other = |status, location| probe(K::Root, Balancer, OTHER, Some(http(status, location, "")));
    for (answer, reason) in [
        (other(404, ""), ReasonCode::HostNotRouted),
        (other(502, ""), ReasonCode::BackendError),
        (other(302, SELF), ReasonCode::RedirectLoop),
        (other(429, ""), ReasonCode::BalancerRefusesRequest),
    ] {
        let f = findings(balancer(vec![root(200), answer])).1;
        let words = ["only at 192.0.2.11:443 (1 of 1), not at 192.0.2.10:443"];
        expect(&f, Status::False, Severity::Error, reason, &words);
    }
}

#[test]
fn proxy_protocol_at_some_backends_only() {
    let cut = |kind: K, target: ProbeTarget, peer: &str| {
        probe(kind, target, peer, None).with(|p| p.http = unknown(UnknownCause::Unreachable))
    };
    let ping = |peer: &str, status, body| probe(K::ProxyPing, Backend, peer, Some(http(status, "", body)));
    let through = || cut(K::Root, Balancer, LB);
    let expects = || vec![cut(K::ForwardedRoot, Backend, "10.0.0.1:80"), ping("10.0.0.1:80", 200, "pong")];
    let f = findings(balancer([vec![through(), root(200), plain("10.0.0.2:80", 200)], expects()].concat())).1;
    let words = ["1 of 2 backends (10.0.0.1:80)", "1 of 2 tries"];
    expect(&f, Status::False, Severity::Error, ReasonCode::ProxyProtocolMissing, &words);
    let page = "<html><h1>400 Bad Request</h1>";
    let bad = probe(K::Root, Balancer, LB, Some(http(400, "", page)));
    let f = findings(balancer(
        [vec![bad, root(200), plain("10.0.0.2:80", 200), ping("10.0.0.2:80", 400, page)], expects()].concat(),
    ))
    .1;
    let words = ["1 of 2: 10.0.0.2:80", "1 of 2 tries"];
    expect(&f, Status::False, Severity::Error, ReasonCode::ProxyProtocolUnexpected, &words);
    // Both sides speak it: nobody answers without.
    let f = findings(balancer([vec![root(200)], expects()].concat())).1;
    let words = ["0 of 1 backends answer by themselves (10.0.0.1:80 only after a PROXY protocol header)"];
    expect(&f, Status::True, Severity::Ok, ReasonCode::ForwardingWorks, &words);
}

/// What came of the tries straight at a backend is told where they decide nothing.
#[test]
fn a_loop_with_backends_that_tell_nothing_or_something_else() {
    let looping = || probe(K::Root, Balancer, LB, Some(http(302, SELF, "")));
    let f = findings(balancer(vec![looping(), refused(K::ForwardedRoot, "10.0.0.1:80")])).1;
    let words =
        ["0 of 1 backends answer", "10.0.0.1:80: no answer (ConnectionRefused)", "Let this node reach"];
    expect(&f, Status::False, Severity::Error, ReasonCode::RedirectLoop, &words);
    // Whatever it answers with the header, without it redirects.
    for status in [401, 403, 404, 500] {
        let straight = |kind, answer| probe(kind, Backend, "10.0.0.1:80", Some(answer));
        let f = findings(balancer(vec![
            looping(),
            straight(K::ForwardedRoot, http(status, "", "")),
            straight(K::PlainRoot, http(302, SELF, "")),
        ]))
        .1;
        assert_eq!(f.reason, ReasonCode::ForwardedHeaderMissing, "{status}");
    }
}

#[test]
fn a_failed_handshake_is_told_once_and_silence_with_its_words() {
    let no_tls = || {
        probe(K::Root, Balancer, LB, None).with(|p| {
            p.tls = unknown(UnknownCause::TlsFailed);
            p.http = Fact::not_applicable("no connection to ask on", world::now());
        })
    };
    let (r, f) = findings(balancer(vec![no_tls(), no_tls()]));
    assert_eq!((r.reason, r.severity), (ReasonCode::TlsFailed, Severity::Error));
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::TlsFailed, &["see LoadBalancerReachable"]);
    let odd = probe(K::Root, Balancer, LB, None).with(|p| {
        p.http = Fact::unknown(
            UnknownCause::InvalidAnswer,
            "the answer is not HTTP: invalid version",
            "",
            world::now(),
        );
        p.raw = "<html>an answer of 1991".into();
    });
    let words = ["the answer is not HTTP: invalid version", "it said \"<html>an answer of 1991\""];
    expect(
        &findings(balancer(vec![odd])).1,
        Status::False,
        Severity::Error,
        ReasonCode::BackendError,
        &words,
    );
}

#[test]
fn without_an_address_each_condition_says_so() {
    let b = balancer(vec![]).with(|b| b.addresses = world::absent("resolver"));
    let facts =
        world::node_facts(CheckFacts { load_balancer: Some(known(vec![b])), ..CheckFacts::default() });
    for f in outrider_diagnosis::judge(&facts).findings {
        assert_eq!(f.reason, ReasonCode::NameNotResolved, "{f:#?}");
    }
}

/// They cannot all be dead while every request is answered.
#[test]
fn none_that_answers_while_everything_works_is_another_than_the_balancer_uses() {
    for n in [1, 3] {
        let dead = (1..=n).map(|n| refused(K::ForwardedRoot, &format!("10.0.0.{n}:80")));
        let (_, f) = findings(balancer([root(200)].into_iter().chain(dead).collect()));
        let count = format!("{n} of {n} backends");
        let words = [&count, "the balancer uses others", "ConnectionRefused", "correct them"];
        expect(&f, Status::True, Severity::Warn, ReasonCode::BackendDown, &words.map(|w| w as &str));
        assert!(!f.advice.contains("Bring the named backend back"), "{f:#?}");
    }
}

/// What all do alike may be meant for the balancer alone; one that answers otherwise than the others is told.
#[test]
fn a_backend_that_answers_otherwise_than_the_others_is_told() {
    let of = |n: usize, answer: HttpAnswer| {
        probe(K::ForwardedRoot, Backend, &format!("10.0.0.{n}:80"), Some(answer))
    };
    let judged = |answers: Vec<HttpAnswer>| {
        let straight = answers.into_iter().enumerate().map(|(i, answer)| of(i + 1, answer));
        findings(balancer([root(200), root(200)].into_iter().chain(straight).collect())).1
    };
    let good = || http(200, "", "");
    for (odd, reason, words) in [
        (
            http(302, SELF, ""),
            ReasonCode::ForwardedHeaderIgnored,
            ["even with X-Forwarded-Proto", "trustedIPs"],
        ),
        (world::endless(302), ReasonCode::ForwardedHeaderIgnored, ["/step/0", "use-forwarded-headers"]),
        (
            http(302, "https://login.x/", ""),
            ReasonCode::BackendDown,
            ["as the others do", "https://login.x/"],
        ),
        (http(403, "", ""), ReasonCode::BackendDown, ["as the others do", "403"]),
        (http(404, "", ""), ReasonCode::BackendDown, ["do not know this Host", "404"]),
        (http(503, "", ""), ReasonCode::BackendDown, ["do not answer this node", "503"]),
    ] {
        for all in [vec![good(), odd.clone(), good()], vec![odd.clone(), good()]] {
            let (count, at) = (all.len(), all.iter().position(|a| *a == odd).unwrap() + 1);
            let f = judged(all);
            let told =
                [format!("1 of {count} backends"), format!("10.0.0.{at}:80"), "2 of 2 tries".to_owned()];
            expect(&f, Status::True, Severity::Warn, reason.clone(), &words);
            expect(&f, Status::True, Severity::Warn, reason.clone(), &told.each_ref().map(|w| w as &str));
        }
    }
    for alike in [http(302, SELF, ""), http(302, "https://login.x/", ""), http(403, "", "")] {
        assert_eq!(judged(vec![alike.clone(), alike.clone()]).reason, ReasonCode::ForwardingWorks);
        assert_eq!(judged(vec![alike]).reason, ReasonCode::ForwardingWorks);
    }
    assert_eq!(judged(vec![good(), http(302, "/dashboard/", "")]).reason, ReasonCode::ForwardingWorks);
}

/// Backends that a sensor found to speak plain http where TLS was expected answer, and the mode is what is wrong.
#[test]
fn backends_of_another_layer_than_configured_are_not_dead() {
    let mut probes = vec![root(200)];
    for n in 1..=3 {
        let peer = format!("10.0.0.{n}:8081");
        let mute = probe(K::Connect, Backend, &peer, None).with(|p| {
            p.tls = Fact::unknown(UnknownCause::TlsFailed, "the peer does not speak TLS", "", world::now());
            p.raw = "HTTP/1.1 400 Bad Request".into();
        });
        probes.extend([mute, plain(&peer, 200)]);
    }
    let (_, f) = findings(balancer(probes).with(|b| {
        (b.mode, b.found_mode) = (BalancerMode::L4, BalancerMode::L7);
        b.found_by = "its backends answer plain http where they were tried".into();
        b.backends = Some(known((1..=3).map(|n| format!("10.0.0.{n}:8081")).collect()));
    }));
    let words = ["configured as l4 and works as l7", "plain http", "Set mode = \"l7\""];
    expect(&f, Status::True, Severity::Warn, ReasonCode::BalancerModeDiffers, &words);
}
