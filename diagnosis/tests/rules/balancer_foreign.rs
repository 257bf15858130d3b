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
