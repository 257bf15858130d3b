//! Case TC08, and what comes out behind the balancer.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::{Backend, Balancer};
use outrider_protocol::*;

use crate::world::{self, Change, balancer, dead, http, known, probe, unknown};
use crate::{expect, only};

pub(crate) const LB: &str = "192.0.2.10:443";
const SELF: &str = "https://rancher.x/";

pub(crate) fn findings(b: LoadBalancerFacts) -> (Finding, Finding) {
    let j = judge(&world::node_facts(CheckFacts {
        load_balancer: Some(known(vec![b])),
        ..CheckFacts::default()
    }));
    let (r, f) =
        (only(&j, ConditionType::LoadBalancerReachable), only(&j, ConditionType::LoadBalancerForwarding));
    assert_eq!((r.subject.as_str(), f.subject.as_str()), ("rancher", "rancher"));
    (r, f)
}

fn forwarding(probes: Vec<Probe>) -> Finding {
    findings(balancer(probes)).1
}

pub(crate) fn reachable(b: LoadBalancerFacts) -> Finding {
    findings(b).0
}

fn backend(n: usize) -> String {
    format!("10.0.0.{n}:80")
}

/// D+ and D- at three backends, LS and LH, each an HTTP status with a location.
fn two_point(
    with: (u16, &str),
    without: (u16, &str),
    ls: (u16, &str),
    lh: Option<(u16, &str)>,
) -> Vec<Probe> {
    let mut probes = Vec::new();
    for n in 1..=3 {
        probes.push(probe(K::ForwardedRoot, Backend, &backend(n), Some(http(with.0, with.1, ""))));
        probes.push(probe(K::PlainRoot, Backend, &backend(n), Some(http(without.0, without.1, ""))));
    }
    for _ in 0..4 {
        probes.push(probe(K::Root, Balancer, LB, Some(http(ls.0, ls.1, ""))));
    }
    if let Some((status, location)) = lh {
        probes.push(probe(K::Redirect, Balancer, "192.0.2.10:80", Some(http(status, location, ""))));
    }
    probes
}

#[test]
fn tc08_s1_the_ingress_does_not_trust_the_header() {
    for status in [301, 302, 307, 308] {
        for location in [SELF, "https://rancher.x", "https://rancher.x:80/", "https://RANCHER.X/"] {
            let f = forwarding(two_point(
                (status, location),
                (status, location),
                (status, location),
                Some((301, SELF)),
            ));
            expect(
                &f,
                Status::False,
                Severity::Error,
                ReasonCode::ForwardedHeaderIgnored,
                &[
                    "does not trust or forward the header",
                    "3 of 3",
                    "4 of 4",
                    "10.0.0.1",
                    "use-forwarded-headers",
                    "trustedIPs",
                ],
            );
        }
    }
}

/// The same as TC08, with a path that changes at every redirect.
#[test]
fn redirects_without_end_are_a_loop_whatever_their_paths() {
    let through = |n: usize| {
        probe(K::Root, Balancer, LB, Some(world::endless(302)).filter(|_| n < 3).or(Some(http(200, "", ""))))
    };
    let backend = |kind, answer: HttpAnswer| probe(kind, Backend, "10.0.0.1:80", Some(answer));
    let judged = |with: Option<HttpAnswer>, without: Option<HttpAnswer>| {
        let direct = [with.map(|a| backend(K::ForwardedRoot, a)), without.map(|a| backend(K::PlainRoot, a))];
        forwarding((0..4).map(through).chain(direct.into_iter().flatten()).collect())
    };
    let (endless, good) = (|| Some(world::endless(302)), || Some(http(200, "", "")));
    let told = ["redirects without end", "/step/0", "3 of 4", "10 times"];
    for (with, without, reason) in [
        (endless(), endless(), ReasonCode::ForwardedHeaderIgnored),
        (good(), endless(), ReasonCode::ForwardedHeaderMissing),
        (good(), Some(http(302, SELF, "")), ReasonCode::ForwardedHeaderMissing),
        (good(), good(), ReasonCode::RedirectLoop),
        (None, None, ReasonCode::RedirectLoop),
    ] {
        expect(&judged(with, without), Status::False, Severity::Error, reason, &told);
    }

    // A chain that ends, or was not followed to the end, is none.
    let ends = |change: fn(&mut HttpAnswer)| {
        let mut answer = world::endless(302);
        change(&mut answer);
        forwarding(vec![probe(K::Root, Balancer, LB, Some(answer))]).reason
    };
    assert_eq!(ends(|a| a.followed[9].status = 200), ReasonCode::ForwardingWorks);
    assert_eq!(ends(|a| a.followed.truncate(9)), ReasonCode::ForwardingWorks);
    assert_eq!(ends(|a| a.followed[9].location = "https://login.x/".into()), ReasonCode::RedirectLoop);
}

#[test]
fn tc08_s1_the_setting_of_the_ingress_that_answers() {
    for (server, setting, other) in
        [("nginx", "use-forwarded-headers", "trustedIPs"), ("Traefik", "trustedIPs", "use-forwarded-headers")]
    {
        let mut probes = two_point((302, SELF), (302, SELF), (302, SELF), None);
        for p in &mut probes {
            if let Fact::Known { value, .. } = &mut p.http {
                value.server = server.into();
            }
        }
        let f = forwarding(probes);
        assert!(f.advice.contains(setting) && !f.advice.contains(other), "{f:#?}");
    }
}

#[test]
fn tc08_s2_the_balancer_does_not_send_the_header() {
    for good in [(200, ""), (302, "https://rancher.x/dashboard/"), (302, "/dashboard/")] {
        let f = forwarding(two_point(good, (302, SELF), (302, SELF), Some((301, SELF))));
        expect(
            &f,
            Status::False,
            Severity::Error,
            ReasonCode::ForwardedHeaderMissing,
            &["does not send the header, or sends http", "X-Forwarded-Proto: https"],
        );
    }
}

#[test]
fn tc08_s3_http_to_https_is_right() {
    for root in [(200, ""), (302, "/dashboard/"), (307, "https://rancher.x/dashboard/")] {
        let f = forwarding(two_point((200, ""), (302, SELF), root, Some((301, SELF))));
        expect(
            &f,
            Status::True,
            Severity::Ok,
            ReasonCode::ForwardingWorks,
            &["4 of 4 tries", "3 of 3 backends"],
        );
    }
}

#[test]
fn tc08_s4_the_host_matches_no_ingress() {
    let f = forwarding(two_point((404, ""), (404, ""), (404, ""), None));
    expect(&f, Status::False, Severity::Error, ReasonCode::HostNotRouted, &["rancher.x", "4 of 4", "3 of 3"]);
    // Only through the balancer: it changes the Host.
    let f = forwarding(two_point((200, ""), (302, SELF), (404, ""), None));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::HostNotRouted,
        &["not straight at a backend", "Host header"],
    );
    // A default backend that answers everything hides a missing ingress.
    let mut probes = two_point((200, ""), (302, SELF), (200, ""), None);
    probes.push(probe(K::Nonsense, Balancer, LB, Some(http(200, "", "welcome"))));
    expect(
        &forwarding(probes),
        Status::False,
        Severity::Error,
        ReasonCode::HostNotRouted,
        &["default backend"],
    );
}

/// S5 with `down` of `backends` backends refused and `failed` of `tries` tries answered by `code` (0: silence).
fn s5(backends: usize, down: usize, tries: usize, failed: usize, code: u16) -> Vec<Probe> {
    let mut probes = Vec::new();
    for n in 1..=backends {
        probes.push(if n <= down {
            dead(K::ForwardedRoot, Backend, &backend(n), UnknownCause::ConnectionRefused)
        } else {
            probe(K::ForwardedRoot, Backend, &backend(n), Some(http(200, "", "")))
        });
    }
    for n in 0..tries {
        let mut p = probe(K::Root, Balancer, LB, Some(http(if n < failed { code } else { 200 }, "", "")));
        if n < failed && code == 0 {
            p.http = unknown(UnknownCause::Unreachable);
        }
        probes.push(p);
    }
    probes
}

#[test]
fn tc08_s5_a_dead_backend_still_in_use() {
    let f = forwarding(s5(3, 1, 12, 4, 502));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::DeadBackendInUse,
        &["1 of 3 backends", "10.0.0.1", "ConnectionRefused", "4 of 12"],
    );
    for (backends, down, tries, failed, code) in [(5, 2, 20, 7, 503), (2, 1, 4, 1, 504), (3, 1, 12, 4, 0)] {
        let f = forwarding(s5(backends, down, tries, failed, code));
        let words = [format!("{down} of {backends} backends"), format!("{failed} of {tries}")];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        expect(&f, Status::False, Severity::Error, ReasonCode::DeadBackendInUse, &words);
    }
}

#[test]
fn a_dead_backend_that_is_out_of_use_only_warns() {
    expect(
        &forwarding(s5(3, 1, 12, 0, 502)),
        Status::True,
        Severity::Warn,
        ReasonCode::BackendDown,
        &["1 of 3", "10.0.0.1"],
    );
    expect(
        &forwarding(s5(3, 3, 12, 12, 503)),
        Status::False,
        Severity::Error,
        ReasonCode::BackendDown,
        &["Every backend", "12 of 12"],
    );
    expect(
        &forwarding(s5(3, 0, 12, 5, 502)),
        Status::False,
        Severity::Error,
        ReasonCode::BackendError,
        &["5 of 12", "3 of 3 backends", "502"],
    );
    expect(
        &forwarding(s5(0, 0, 3, 3, 500)),
        Status::False,
        Severity::Error,
        ReasonCode::BackendError,
        &["no backend is configured"],
    );
}

#[test]
fn a_backend_that_answers_5xx_is_down_as_one_that_refuses() {
    let mut probes = s5(3, 0, 6, 2, 502);
    probes[1] = probe(K::ForwardedRoot, Backend, &backend(2), Some(http(503, "", "")));
    expect(
        &forwarding(probes),
        Status::False,
        Severity::Error,
        ReasonCode::DeadBackendInUse,
        &["10.0.0.2:80: 503"],
    );
}

#[test]
fn loops_without_a_second_point_are_named_without_a_culprit() {
    let f = forwarding(vec![probe(K::Root, Balancer, LB, Some(http(302, SELF, "")))]);
    expect(&f, Status::False, Severity::Error, ReasonCode::RedirectLoop, &["no try straight at a backend"]);
    let f = forwarding(two_point((200, ""), (200, ""), (302, "http://rancher.x/"), None));
    expect(&f, Status::False, Severity::Error, ReasonCode::RedirectLoop, &["the balancer itself redirects"]);
}

#[test]
fn one_ingress_of_three_that_ignores_the_header_is_named() {
    let mut probes = two_point((200, ""), (302, SELF), (302, SELF), None);
    probes[2] = probe(K::ForwardedRoot, Backend, &backend(2), Some(http(302, SELF, "")));
    expect(
        &forwarding(probes),
        Status::False,
        Severity::Error,
        ReasonCode::ForwardedHeaderIgnored,
        &["1 of 3: 10.0.0.2"],
    );
}

#[test]
fn ping_has_to_be_rancher() {
    let with_ping = |status, body: &str| {
        forwarding(vec![
            probe(K::Root, Balancer, LB, Some(http(200, "", ""))),
            probe(K::Ping, Balancer, LB, Some(http(status, "", body))),
        ])
    };
    expect(&with_ping(200, "pong"), Status::True, Severity::Ok, ReasonCode::ForwardingWorks, &[]);
    expect(&with_ping(200, "pong\n"), Status::True, Severity::Ok, ReasonCode::ForwardingWorks, &[]);
    expect(
        &with_ping(200, "<html>"),
        Status::False,
        Severity::Error,
        ReasonCode::NotRancher,
        &["<html>", "pong"],
    );
    expect(&with_ping(404, ""), Status::False, Severity::Error, ReasonCode::NotRancher, &["404"]);
    expect(&with_ping(502, ""), Status::False, Severity::Error, ReasonCode::BackendError, &["1 of 2"]);
}

#[test]
fn a_bare_400_hints_at_proxy_protocol() {
    let f = forwarding(vec![probe(K::Root, Balancer, LB, Some(http(400, "", "")))]);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::BalancerRefusesRequest,
        &["400", "PROXY protocol"],
    );
}

#[test]
fn plain_http_has_to_redirect() {
    let lh = |p: Probe| forwarding(vec![probe(K::Root, Balancer, LB, Some(http(200, "", ""))), p]);
    let at = "192.0.2.10:80";
    for (status, location) in [(200, ""), (302, "http://rancher.x/"), (404, "")] {
        let f = lh(probe(K::Redirect, Balancer, at, Some(http(status, location, ""))));
        expect(&f, Status::True, Severity::Warn, ReasonCode::RedirectMissing, &["port 80", "http_port = 0"]);
    }
    let f = lh(dead(K::Redirect, Balancer, at, UnknownCause::ConnectionRefused));
    expect(&f, Status::True, Severity::Warn, ReasonCode::RedirectMissing, &["ConnectionRefused"]);
    for location in ["https://rancher.x/", "HTTPS://rancher.x/", "https://rancher.x:443/"] {
        let f = lh(probe(K::Redirect, Balancer, at, Some(http(308, location, ""))));
        assert_eq!(f.reason, ReasonCode::ForwardingWorks, "{f:#?}");
    }
    // Our own failure says nothing about the balancer.
    let f = lh(dead(K::Redirect, Balancer, at, UnknownCause::Panicked));
    assert_eq!(f.reason, ReasonCode::ForwardingWorks, "{f:#?}");
}

/// Straight at a backend the header is honoured, so what loops through the balancer is the balancer's own doing where what
/// Rancher redirects without the header is answered, or where /ping is redirected.
#[test]
fn a_balancer_that_redirects_https_itself() {
    let judged = |further: Vec<Probe>| {
        let mut probes = two_point((200, ""), (302, SELF), (302, SELF), None);
        probes.extend(further);
        forwarding(probes)
    };
    let through = |kind: K, answer: HttpAnswer| probe(kind, Balancer, LB, Some(answer));
    let f = judged(vec![through(K::CaCerts, http(200, "", "a certificate"))]);
    let words = ["/cacerts is answered", "the balancer itself redirects", "redirects https to https"];
    expect(&f, Status::False, Severity::Error, ReasonCode::RedirectLoop, &words);
    let f = judged(vec![through(K::Ping, http(301, "https://rancher.x/ping", ""))]);
    expect(&f, Status::False, Severity::Error, ReasonCode::RedirectLoop, &["/ping is redirected too"]);
    // The header is missing: then /cacerts is redirected as / is.
    let f = judged(vec![through(K::CaCerts, http(302, "https://rancher.x/cacerts", ""))]);
    assert_eq!(f.reason, ReasonCode::ForwardedHeaderMissing);
    // One of two balancers lacks it.
    let f = judged(vec![through(K::CaCerts, http(200, "", "")), through(K::Root, http(200, "", ""))]);
    assert_eq!(f.reason, ReasonCode::ForwardedHeaderMissing);
}

/// With the header / leads from path to path without end, without it to https: the header is honoured.
#[test]
fn what_answers_on_the_nodes_redirects_without_end() {
    let f = forwarding(vec![
        probe(K::Root, Balancer, LB, Some(world::endless(302))),
        probe(K::ForwardedRoot, Backend, "10.0.0.1:80", Some(world::endless(302))),
        probe(K::PlainRoot, Backend, "10.0.0.1:80", Some(http(302, SELF, ""))),
    ]);
    let words = ["from path to path", "not the balancer", "1 of 1"];
    expect(&f, Status::False, Severity::Error, ReasonCode::RedirectLoop, &words);
}

#[test]
fn without_balancers_nothing_applies() {
    let j =
        judge(&world::node_facts(CheckFacts { load_balancer: Some(known(vec![])), ..CheckFacts::default() }));
    assert!(j.findings.is_empty());
    assert_eq!(j.not_applicable[0].check, Check::LoadBalancer);
}

/// A balancer in front of a cluster's own ports is judged by what those answer.
#[test]
fn api_servers_and_supervisors_behind_a_balancer() {
    let refusal = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"reason\":\"Unauthorized\",\"code\":401}";
    let judged = |service: BalancerService, kind: K, answer: HttpAnswer| {
        let mut p = probe(kind, Balancer, LB, Some(answer));
        if let Fact::Known { value, .. } = &mut p.tls {
            value.trust = known("unknown issuer".into());
        }
        let b = balancer(vec![p]).with(|b| b.service = service);
        let facts =
            world::node_facts(CheckFacts { load_balancer: Some(known(vec![b])), ..CheckFacts::default() });
        let judgement = judge(&facts);
        // Neither WebSockets nor Rancher's CA are asked for.
        assert_eq!(judgement.findings.len(), 2);
        assert_eq!(
            only(&judgement, ConditionType::LoadBalancerReachable).reason,
            ReasonCode::BalancerAnswers
        );
        only(&judgement, ConditionType::LoadBalancerForwarding)
    };
    use BalancerService::{Kubernetes, Supervisor};
    for answer in [http(401, "", refusal), http(403, "", refusal), http(200, "", "ok")] {
        let f = judged(Kubernetes, K::Healthz, answer);
        expect(&f, Status::True, Severity::Ok, ReasonCode::ForwardingWorks, &["the API servers"]);
    }
    let f = judged(Supervisor, K::Ping, http(200, "", "pong"));
    expect(&f, Status::True, Severity::Ok, ReasonCode::ForwardingWorks, &["the supervisors"]);
    assert_eq!(judged(Kubernetes, K::Healthz, http(502, "", "")).reason, ReasonCode::BackendError);
    assert_eq!(judged(Supervisor, K::Ping, http(200, "", "<html>")).reason, ReasonCode::NotRancher);
}
