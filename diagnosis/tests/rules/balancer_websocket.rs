//! `LoadBalancerWebSocket`: whose answer a handshake got, and what it proves.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::{Backend, Balancer};
use outrider_protocol::*;

use crate::world::{self, Change, balancer, dead, http, known, probe, unknown};
use crate::{expect, only};

const LB: &str = "192.0.2.10:443";
const ORIGIN: &str =
    "{\"Code\":{\"Code\":\"PermissionDenied\",\"Status\":403},\"Message\":\"origin not allowed\"";
const NGINX: &str =
    "<html>\u{fffd}<head><title>400 Bad Request</title></head>\u{fffd}<body>\u{fffd}<center>nginx";
const HAPROXY: &str = "<html><body><h1>400 Bad request</h1>\u{fffd}Your browser sent an invalid request.";

fn web_socket(probes: Vec<Probe>) -> Finding {
    let root = probe(K::Root, Balancer, LB, Some(http(200, "", "")));
    judged(balancer([vec![root], probes].concat()))
}

fn judged(b: LoadBalancerFacts) -> Finding {
    let facts =
        world::node_facts(CheckFacts { load_balancer: Some(known(vec![b])), ..CheckFacts::default() });
    only(&judge(&facts), ConditionType::LoadBalancerWebSocket)
}

fn through(kind: K, status: u16, body: &str) -> Probe {
    probe(kind, Balancer, LB, Some(http(status, "", body)))
}

fn straight(n: usize, status: u16, body: &str) -> Probe {
    probe(K::WebSocketOrigin, Backend, &format!("10.0.0.{n}:80"), Some(http(status, "", body)))
}

/// The handshake as both callers make it.
fn both(origin: (u16, &str), agent: (u16, &str)) -> Vec<Probe> {
    vec![through(K::WebSocketOrigin, origin.0, origin.1), through(K::WebSocket, agent.0, agent.1)]
}

const LOST: (u16, &str) = (401, "failed authentication");

#[test]
fn the_refusal_of_a_foreign_origin_proves_the_upgrade() {
    let f = web_socket(both((403, ORIGIN), LOST));
    let words = ["only where the upgrade arrived", "HTTP/2 is not offered"];
    expect(&f, Status::True, Severity::Ok, ReasonCode::WebSocketPasses, &words);
    let opened = through(K::WebSocketOrigin, 101, "").with(|p| {
        p.http = known(http(101, "", "").with(|a| a.accept_fits = Some(true)));
    });
    expect(
        &web_socket(vec![opened]),
        Status::True,
        Severity::Ok,
        ReasonCode::WebSocketPasses,
        &["opened (101)"],
    );
}

#[test]
fn rancher_that_saw_no_upgrade_and_who_lost_it() {
    for (direct, words) in [
        (vec![], ["no try straight at a backend", "proxy_http_version 1.1"]),
        (
            vec![straight(1, 403, ORIGIN), straight(2, 403, ORIGIN)],
            ["the balancer is at fault", "Let the balancer speak"],
        ),
        (
            vec![straight(1, 401, LOST.1), straight(2, 401, LOST.1)],
            ["the ingress or what is behind it", "Let the ingress"],
        ),
        (
            vec![straight(1, 401, LOST.1), straight(2, 403, ORIGIN)],
            ["at 1 of 2 only (10.0.0.2)", "(or the ingress)"],
        ),
    ] {
        let f = web_socket([both(LOST, LOST), direct].concat());
        expect(&f, Status::False, Severity::Error, ReasonCode::WebSocketUpgradeLost, &words);
        expect(
            &f,
            Status::False,
            Severity::Error,
            ReasonCode::WebSocketUpgradeLost,
            &["bad handshake", "401"],
        );
    }
    // A refusal with 400 of Rancher's API, and one of a WebSocket library that saw no upgrade.
    let json = (400, "{\"type\":\"error\",\"message\":\"x\"}");
    assert_eq!(web_socket(both(json, LOST)).reason, ReasonCode::WebSocketUpgradeLost);
    let gorilla = through(K::WebSocketOrigin, 400, "Bad Request").with(|p| {
        p.http = known(http(400, "", "Bad Request").with(|a| a.web_socket_version = "13".into()));
    });
    assert_eq!(web_socket(vec![gorilla]).reason, ReasonCode::WebSocketUpgradeLost);
}

#[test]
fn the_setting_is_that_of_the_product_that_answers() {
    let with_server = |server: &str| {
        let root = probe(K::Root, Balancer, LB, Some(http(200, "", "").with(|a| a.server = server.into())));
        judged(balancer([vec![root, straight(1, 403, ORIGIN)], both(LOST, LOST)].concat()))
    };
    let f = with_server("nginx/1.26.3");
    assert!(f.advice.contains("$connection_upgrade") && !f.advice.contains("HAProxy"), "{f:#?}");
    let f = with_server("");
    assert!(f.advice.contains("$connection_upgrade") && f.advice.contains("HAProxy"), "{f:#?}");
    let f = web_socket([both((400, HAPROXY), (400, HAPROXY)), vec![straight(1, 403, ORIGIN)]].concat());
    assert!(!f.advice.contains("$connection_upgrade") && f.advice.contains("option httpclose"), "{f:#?}");
}

#[test]
fn another_than_rancher_is_named() {
    use ReasonCode::{WebSocketFails as Fails, WebSocketRefused as Refused};
    for (status, body, reason, words) in [
        (400, HAPROXY, Refused, ["400", "HAProxy (known by an error page of HAProxy)"]),
        (400, NGINX, Refused, ["400", "nginx (known by an error page of nginx)"]),
        (200, "<!doctype html>", Refused, ["200 instead of 101", "plain request"]),
        (200, "pong", Refused, ["200 instead of 101", "Rancher"]),
        (404, "404 page not found", Refused, ["Traefik", "every path"]),
        (404, "default backend - 404", Refused, ["nginx", "every path"]),
        (405, "", Refused, ["405", "not from Rancher"]),
        (426, "", Refused, ["426", "not from Rancher"]),
        (502, "<html><body><h1>502 Bad Gateway</h1>", Fails, ["502", "HAProxy"]),
        (504, "<html><center>nginx", Fails, ["504", "nginx"]),
        (503, "no healthy upstream", Fails, ["503", "Envoy"]),
    ] {
        let f = web_socket(both((status, body), (status, body)));
        expect(&f, Status::False, Severity::Error, reason, &words);
    }
    let login = http(401, "", "").with(|a| a.challenge = "Basic realm=\"corporate\"".into());
    let f = web_socket(vec![probe(K::WebSocketOrigin, Balancer, LB, Some(login))]);
    expect(&f, Status::False, Severity::Error, Refused, &["authenticating proxy", "/v3/connect/register"]);
    let false_accept = http(101, "", "").with(|a| a.accept_fits = Some(false));
    let f = web_socket(vec![probe(K::WebSocketOrigin, Balancer, LB, Some(false_accept))]);
    expect(&f, Status::False, Severity::Error, Refused, &["Sec-WebSocket-Accept"]);
    let f = web_socket(vec![probe(
        K::WebSocketOrigin,
        Balancer,
        LB,
        Some(http(302, "https://rancher.x/v3/connect", "")),
    )]);
    let words = ["https://rancher.x/v3/connect", "X-Forwarded-Proto"];
    expect(&f, Status::False, Severity::Error, ReasonCode::WebSocketRedirected, &words);
    let mut silent = through(K::WebSocketOrigin, 0, "");
    silent.http = unknown(UnknownCause::TimedOut);
    expect(&web_socket(vec![silent]), Status::False, Severity::Error, Fails, &["TimedOut"]);
}

#[test]
fn words_that_prove_nothing_are_no_fault_and_no_proof() {
    for status in [401, 403] {
        let f = web_socket(
            [both((status, "no token"), (status, "no token")), vec![straight(1, status, "no token")]]
                .concat(),
        );
        let words = ["no token", "does is not", "as straight at a backend"];
        expect(&f, Status::True, Severity::Info, ReasonCode::WebSocketUnproven, &words);
    }
    // An older agent's facts have the plain handshake only.
    let f = web_socket(vec![through(K::WebSocket, 401, LOST.1)]);
    assert_eq!((f.status, f.reason), (Status::True, ReasonCode::WebSocketUnproven));
}

#[test]
fn http2_is_judged_by_itself() {
    let proven = || both((403, ORIGIN), LOST);
    let h2 = |status, body| web_socket([proven(), vec![through(K::WebSocketHttp2, status, body)]].concat());
    for (status, body) in [(502, HAPROXY), (400, HAPROXY), (401, LOST.1), (404, "")] {
        let f = h2(status, body);
        let words = ["not over HTTP/2", "Agents use HTTP/1.1", "h2-workaround-bogus-websocket-clients"];
        expect(&f, Status::True, Severity::Warn, ReasonCode::WebSocketHttp2Differs, &words);
    }
    for (status, body) in [(200, ""), (403, ORIGIN)] {
        expect(
            &h2(status, body),
            Status::True,
            Severity::Ok,
            ReasonCode::WebSocketPasses,
            &["over HTTP/2 too"],
        );
    }
    let mut offered = probe(K::Connect, Balancer, LB, None);
    if let Fact::Known { value, .. } = &mut offered.tls {
        value.alpn = "h2".into();
    }
    let f = web_socket([proven(), vec![offered]].concat());
    expect(&f, Status::True, Severity::Ok, ReasonCode::WebSocketPasses, &["browsers take HTTP/1.1"]);
    // What fails over HTTP/1.1 too is no difference.
    let f = web_socket([both(LOST, LOST), vec![through(K::WebSocketHttp2, 502, "")]].concat());
    assert_eq!(f.reason, ReasonCode::WebSocketUpgradeLost);
}

#[test]
fn where_nothing_passes_the_web_socket_is_not_the_matter() {
    let f = judged(balancer(vec![
        probe(K::Root, Balancer, LB, Some(http(503, "", ""))),
        through(K::WebSocketOrigin, 503, ""),
    ]));
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::Unreachable, &["LoadBalancerForwarding"]);
    let f = judged(balancer(vec![dead(K::WebSocketOrigin, Balancer, LB, UnknownCause::ConnectionRefused)]));
    assert_eq!((f.status, f.reason), (Status::Unknown, ReasonCode::Unreachable));
    let f = judged(balancer(vec![]));
    assert_eq!((f.status, f.reason), (Status::Unknown, ReasonCode::NotYetRead));
}

#[test]
fn one_address_of_two_that_loses_it_is_counted() {
    let mut good = through(K::WebSocketOrigin, 403, ORIGIN);
    good.peer = "192.0.2.11:443".into();
    let f = web_socket(vec![good, through(K::WebSocketOrigin, LOST.0, LOST.1)]);
    let words = ["1 of 2 tries", "192.0.2.10"];
    expect(&f, Status::False, Severity::Error, ReasonCode::WebSocketUpgradeLost, &words);
}

/// At an address where nothing passes the WebSocket is not the matter.
#[test]
fn an_address_where_plain_requests_fail_as_well() {
    const OTHER: &str = "192.0.2.11:443";
    let at = |peer: &str, kind: K, status: u16, body: &str| {
        probe(kind, Balancer, peer, Some(http(status, "", body)))
    };
    let f = web_socket(vec![
        through(K::WebSocketOrigin, 403, ORIGIN),
        at(OTHER, K::Root, 502, ""),
        at(OTHER, K::WebSocketOrigin, 502, ""),
    ]);
    expect(&f, Status::True, Severity::Ok, ReasonCode::WebSocketPasses, &["1 of 1 tries"]);
    let f = web_socket(vec![
        through(K::WebSocketOrigin, 403, ORIGIN),
        at(OTHER, K::Root, 200, ""),
        at(OTHER, K::WebSocketOrigin, 502, ""),
    ]);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::WebSocketFails,
        &["while plain requests pass", "192.0.2.11"],
    );
}

#[test]
fn a_handshake_that_is_led_to_a_login() {
    let led = |location: &str| {
        web_socket(vec![probe(K::WebSocketOrigin, Balancer, LB, Some(http(302, location, "")))])
    };
    let f = led("https://login.corp.x/");
    expect(&f, Status::False, Severity::Error, ReasonCode::WebSocketRedirected, &["Another site or a login"]);
    assert!(led("https://rancher.x/v3/connect").advice.contains("X-Forwarded-Proto"));
}

/// What answers in place of Rancher answers the handshake as well: one cause, told by LoadBalancerForwarding.
#[test]
fn a_host_that_does_not_lead_to_rancher_is_no_matter_of_the_upgrade() {
    let page = "<!doctype html><html>hello";
    let get = |kind: K, status: u16, body: &str| probe(kind, Balancer, LB, Some(http(status, "", body)));
    let hidden = || vec![get(K::Root, 200, page), get(K::Nonsense, 200, page)];
    let unknown_host = || vec![get(K::Root, 404, "404 page not found")];
    let other_site = || vec![get(K::Root, 200, page), get(K::Ping, 200, page)];
    for (around, status, body) in [
        (hidden(), 200, page),
        (unknown_host(), 404, "404 page not found"),
        (unknown_host(), 404, "default backend - 404"),
        (other_site(), 200, page),
        (other_site(), 404, "<html><center>nginx"),
    ] {
        let straight = vec![straight(1, 403, ORIGIN), straight(2, 403, ORIGIN)];
        let f = judged(balancer([around, both((status, body), (status, body)), straight].concat()));
        let words = ["in place of Rancher", "see LoadBalancerForwarding"];
        expect(&f, Status::Unknown, Severity::Info, ReasonCode::InvalidAnswer, &words);
    }
    // A refusal that not everything gets is a matter of its own, and so is a handshake that Rancher itself refuses.
    let f = judged(balancer([hidden(), both((400, HAPROXY), (400, HAPROXY))].concat()));
    assert_eq!(f.reason, ReasonCode::WebSocketRefused);
    let f = judged(balancer([unknown_host(), both(LOST, LOST)].concat()));
    assert_eq!(f.reason, ReasonCode::WebSocketUpgradeLost);
    let f = judged(balancer([unknown_host(), both((403, ORIGIN), LOST)].concat()));
    assert_eq!(f.reason, ReasonCode::WebSocketPasses);
}
