//! What answers in place of Rancher.

use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::{Backend, Balancer};
use outrider_protocol::*;

use crate::balancer::{LB, findings};
use crate::expect;
use crate::world::{balancer, http, probe};

const LOGIN: &str = "https://login.corp.x/oauth";

fn through(kind: K, status: u16, location: &str, body: &str) -> Probe {
    probe(kind, Balancer, LB, Some(http(status, location, body)))
}

fn forwarding(probes: Vec<Probe>) -> outrider_diagnosis::Finding {
    findings(balancer(probes)).1
}

#[test]
fn a_login_in_front_of_everything_is_not_rancher() {
    let away = |kind| through(kind, 302, LOGIN, "");
    let f = forwarding(vec![away(K::Root), away(K::Root), away(K::Ping), away(K::Healthz), away(K::CaCerts)]);
    let words = ["not Rancher", LOGIN, "GET /ping gave 302", "1 of 1", "agents cannot log in", "/v3/connect"];
    expect(&f, Status::False, Severity::Error, ReasonCode::NotRancher, &words);
    // Nothing else is known of it.
    let f = forwarding(vec![away(K::Root)]);
    expect(&f, Status::False, Severity::Error, ReasonCode::NotRancher, &[LOGIN, "1 of 1"]);
    // A chain that ends at another host.
    let mut chain = http(302, "/oauth2/start", "");
    chain.followed = vec![Hop { status: 302, location: LOGIN.into() }];
    let f = forwarding(vec![probe(K::Root, Balancer, LB, Some(chain))]);
    expect(&f, Status::False, Severity::Error, ReasonCode::NotRancher, &[LOGIN]);
}

#[test]
fn a_login_in_front_of_some_paths_is_a_warning() {
    let rancher = || vec![through(K::Ping, 200, "", "pong"), through(K::Healthz, 200, "", "ok")];
    let f = forwarding([vec![through(K::Root, 302, LOGIN, "")], rancher()].concat());
    let words = [LOGIN, "1 of 1", "which Rancher does not do", "/k8s"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::NotRancher, &words);
    let straight = probe(K::ForwardedRoot, Backend, "10.0.0.1:80", Some(http(200, "", "")));
    let f = forwarding([vec![through(K::Root, 302, LOGIN, ""), straight], rancher()].concat());
    assert!(f.message.contains("straight at a backend it is not"), "{f:#?}");
    // Installers of agents wait for 200 at /healthz.
    let healthz = |status| {
        let probes = vec![through(K::Root, 200, "", ""), through(K::Ping, 200, "", "pong")];
        forwarding([probes, vec![through(K::Healthz, status, "", "")]].concat())
    };
    for status in [301, 401, 403, 404] {
        let words = ["/healthz", "in place of 200", "singles /healthz out"];
        expect(&healthz(status), Status::False, Severity::Error, ReasonCode::NotRancher, &words);
    }
    assert_eq!(healthz(200).reason, ReasonCode::ForwardingWorks);
}

#[test]
fn ping_alone_is_answered_by_somebody_else() {
    let judged = |status, location: &str, body: &str| {
        forwarding(vec![
            through(K::Root, 302, "/dashboard/", ""),
            through(K::Ping, status, location, body),
            through(K::Healthz, 200, "", "ok"),
            through(K::CaCerts, 200, "", "-----BEGIN CERTIFICATE-----"),
        ])
    };
    // As Traefik does.
    let f = judged(200, "", "OK");
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::NotRancher,
        &["leads to Rancher", "\"OK\"", "Traefik"],
    );
    for (status, location) in [(302, "https://rancher.x/ping"), (404, ""), (403, "")] {
        let f = judged(status, location, "");
        let words = ["leads to Rancher", "singles /ping out", "in place of \"pong\"", location];
        expect(&f, Status::False, Severity::Error, ReasonCode::NotRancher, &words);
    }
    assert_eq!(judged(200, "", "pong").reason, ReasonCode::ForwardingWorks);
}

/// Rancher's own redirect, with a name that another proxy wrote.
#[test]
fn a_redirect_to_ranchers_pages_at_another_name_is_a_wrong_header() {
    let f = forwarding(vec![through(K::Root, 302, "https://inner.local/dashboard/", "")]);
    let words = ["https://inner.local/dashboard/", "a redirect of Rancher's", "X-Forwarded-Host"];
    expect(&f, Status::False, Severity::Error, ReasonCode::ForwardedAddressWrong, &words);
}

#[test]
fn plain_http_that_leads_to_another_host() {
    let redirect = |location: &str| {
        let lh = probe(K::Redirect, Balancer, "192.0.2.10:80", Some(http(301, location, "")));
        forwarding(vec![through(K::Root, 200, "", ""), lh])
    };
    let words = ["https://inner.local/", "https://rancher.x"];
    expect(
        &redirect("https://inner.local/"),
        Status::True,
        Severity::Warn,
        ReasonCode::RedirectMissing,
        &words,
    );
    assert_eq!(redirect("https://RANCHER.x:443/").reason, ReasonCode::ForwardingWorks);
}

/// The paths that Rancher's own redirect leaves out (rancher/dynamiclistener, `HTTPRedirect`): who redirects them has a rule of
/// its own, and a try straight at a backend tells whose.
#[test]
fn a_redirect_of_ping_is_a_rule_of_what_stands_in_front_and_it_is_named() {
    const TO: &str = "https://rancher.x/ping";
    let straight = |status, location: &str, body: &str| {
        probe(K::Ping, Backend, "10.0.0.1:80", Some(http(status, location, body)))
    };
    let rancher = || {
        vec![
            through(K::Root, 302, "/dashboard/", ""),
            through(K::Ping, 302, TO, ""),
            through(K::Healthz, 200, "", "ok"),
            through(K::CaCerts, 200, "", "-----BEGIN CERTIFICATE-----"),
        ]
    };
    let left_out = "leaves out /ping, /health… and /.well-known/";
    for (behind, whose, how, setting) in [
        (vec![], "a redirect rule of the balancer or the ingress singles /ping out", TO, "ssl-redirect"),
        (
            vec![straight(200, "", "pong")],
            "a redirect rule of the balancer singles /ping out",
            "answered with pong (1 of 1)",
            "redirect scheme https",
        ),
        (
            vec![straight(308, TO, "")],
            "a redirect rule of the ingress singles /ping out",
            "redirected as well (1 of 1)",
            "ssl-redirect",
        ),
        (
            vec![straight(308, TO, ""), straight(200, "", "pong")],
            "of the balancer or the ingress",
            "1 of 2 answer pong and 1 redirect",
            "ssl-redirect",
        ),
    ] {
        let f = forwarding([rancher(), behind].concat());
        let words = ["leads to Rancher", whose, how, left_out, "in place of \"pong\"", setting];
        expect(&f, Status::False, Severity::Error, ReasonCode::NotRancher, &words);
    }

    // `/` as well, straight at a backend as well: it is not the header alone.
    let to = "https://rancher.x/";
    let looping = |kind, target, peer| probe(kind, target, peer, Some(http(302, to, "")));
    let loops = || vec![looping(K::Root, Balancer, LB), through(K::Ping, 302, TO, "")];
    let at_backend = [
        looping(K::ForwardedRoot, Backend, "10.0.0.1:80"),
        looping(K::PlainRoot, Backend, "10.0.0.1:80"),
        straight(302, TO, ""),
    ];
    let f = forwarding([loops(), at_backend.to_vec()].concat());
    let words =
        ["does not trust", "redirect rule of its own", left_out, "use-forwarded-headers", "ssl-redirect"];
    expect(&f, Status::False, Severity::Error, ReasonCode::ForwardedHeaderIgnored, &words);
    // Rancher's own: /ping is answered.
    let own = [&at_backend[..2], &[straight(200, "", "pong")]].concat();
    let f =
        forwarding([vec![looping(K::Root, Balancer, LB), through(K::Ping, 200, "", "pong")], own].concat());
    expect(&f, Status::False, Severity::Error, ReasonCode::ForwardedHeaderIgnored, &["does not trust"]);
    assert!(!f.message.contains("rule of its own") && !f.advice.contains("ssl-redirect"), "{f:#?}");
    // Nobody tried a backend.
    let f = forwarding(loops());
    let words = ["and so is /ping", left_out, "a rule of the balancer or the ingress redirects"];
    expect(&f, Status::False, Severity::Error, ReasonCode::RedirectLoop, &words);
    // A health check of /ping finds no backend alive (E14).
    let failing = || vec![through(K::Root, 503, "", ""), through(K::Ping, 503, "", "")];
    let f = forwarding([failing(), vec![straight(308, TO, "")]].concat());
    let words =
        ["/ping is redirected (1 of 1), by a rule of the ingress", left_out, "health check", "ssl-redirect"];
    expect(&f, Status::False, Severity::Error, ReasonCode::BackendError, &words);
    let f = forwarding([failing(), vec![straight(308, TO, ""), straight(200, "", "pong")]].concat());
    assert!(f.reason == ReasonCode::BackendError && !f.message.contains("health check"), "{f:#?}");
}
