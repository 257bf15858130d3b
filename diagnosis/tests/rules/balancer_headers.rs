//! Headers that are wrong without a loop, PROXY protocol on one side, and the mode of the balancer.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::{Backend, Balancer};
use outrider_protocol::*;

use crate::world::{self, Change, balancer, http, known, probe, unknown};
use crate::{expect, only};

const LB: &str = "192.0.2.10:443";
const PLAIN: &str = "192.0.2.10:80";
const SELF: &str = "https://rancher.x/";

fn judged(b: LoadBalancerFacts) -> Finding {
    let facts =
        world::node_facts(CheckFacts { load_balancer: Some(known(vec![b])), ..CheckFacts::default() });
    only(&judge(&facts), ConditionType::LoadBalancerForwarding)
}

fn forwarding(probes: Vec<Probe>) -> Finding {
    judged(balancer(probes))
}

fn root(answer: HttpAnswer) -> Probe {
    probe(K::Root, Balancer, LB, Some(answer))
}

/// A request on the connection of the one before.
fn kept(answer: HttpAnswer) -> Probe {
    root(answer).with(|p| p.tcp = Fact::not_applicable("on the connection of the try before", world::now()))
}

#[test]
fn a_header_on_the_first_request_only() {
    let (good, bad) = (|| http(200, "", ""), || http(302, SELF, ""));
    let f = forwarding(vec![root(good()), kept(bad()), root(good()), root(good())]);
    let words = ["3 tries", "1 of 1", "first request of a connection only", "return (pass)"];
    expect(&f, Status::False, Severity::Error, ReasonCode::ForwardedHeaderFirstOnly, &words);
    // Now and then on new connections too: that is something else.
    for probes in [
        vec![root(bad()), kept(bad())],
        vec![root(good()), root(bad()), kept(bad())],
        vec![root(good()), kept(good()), kept(bad())],
    ] {
        assert_eq!(forwarding(probes).reason, ReasonCode::RedirectLoop);
    }
    assert_eq!(forwarding(vec![root(good()), kept(good())]).reason, ReasonCode::ForwardingWorks);
}

#[test]
fn what_rancher_takes_itself_for() {
    let link = |link: &str| forwarding(vec![root(http(200, "", "{").with(|a| a.self_link = link.into()))]);
    for right in ["https://rancher.x", "https://RANCHER.x", "https://rancher.x:443", ""] {
        assert_eq!(link(right).reason, ReasonCode::ForwardingWorks, "{right}");
    }
    for (wrong, word) in [
        ("http://rancher.x", "X-Forwarded-Proto is not https"),
        ("https://rancher.x:80", "X-Forwarded-Port is 80 beside"),
        ("https://rancher.x:8443", "another than the port"),
        ("https://10.0.0.1", "Host is replaced"),
        ("https://rancher.internal:443", "Host is replaced"),
    ] {
        let words = [word, wrong, "server-url", "links of Rancher's API"];
        expect(&link(wrong), Status::False, Severity::Error, ReasonCode::ForwardedAddressWrong, &words);
    }
    // Redirects tell the port too; another host there may be a login.
    let to = |location: &str| forwarding(vec![root(http(302, location, ""))]).reason;
    assert_eq!(to("https://rancher.x:80/dashboard/"), ReasonCode::ForwardedAddressWrong);
    assert_eq!(to("https://rancher.x/dashboard/"), ReasonCode::ForwardingWorks);
    assert_eq!(to("https://login.x/"), ReasonCode::NotRancher);
    // A balancer at another port, whose name is an address.
    let at = |link: &str| {
        let answer = http(200, "", "{").with(|a| a.self_link = link.into());
        judged(balancer(vec![probe(K::Root, Balancer, "[2001:db8::1]:8443", Some(answer))]).with(|b| {
            b.host = "2001:db8::1".into();
            b.port = 8443;
        }))
        .reason
    };
    assert_eq!(at("https://[2001:db8::1]:8443"), ReasonCode::ForwardingWorks);
    assert_eq!(at("https://[2001:db8::1]"), ReasonCode::ForwardingWorks);
    assert_eq!(at("https://[2001:db8::1]:80"), ReasonCode::ForwardedAddressWrong);
    assert_eq!(at("https://[2001:db8::2]:8443"), ReasonCode::ForwardedAddressWrong);
}

#[test]
fn plain_http_that_believes_its_client() {
    let forged = |answer: HttpAnswer| {
        forwarding(vec![
            root(http(200, "", "")),
            probe(K::Redirect, Balancer, PLAIN, Some(http(302, SELF, ""))),
            probe(K::ForgedRoot, Balancer, PLAIN, Some(answer)),
        ])
    };
    for believed in
        [http(200, "", ""), http(302, "/dashboard/", ""), http(302, "http://rancher.x/dashboard/", "")]
    {
        let words = ["port 80", "1 of 1", "$scheme", "use-forwarded-headers \"false\""];
        expect(&forged(believed), Status::True, Severity::Warn, ReasonCode::ForwardedHeaderForged, &words);
    }
    for refused in
        [http(302, SELF, ""), http(301, "HTTPS://rancher.x/", ""), http(404, "", ""), http(400, "", "")]
    {
        assert_eq!(forged(refused).reason, ReasonCode::ForwardingWorks);
    }
}

fn cut(kind: K, target: ProbeTarget, peer: &str) -> Probe {
    let mut p = probe(kind, target, peer, None);
    if peer.ends_with(":443") {
        p.tls = unknown(UnknownCause::TlsFailed);
    } else {
        p.http = unknown(UnknownCause::Unreachable);
    }
    p
}

#[test]
fn proxy_protocol_that_the_ingress_expects_and_does_not_get() {
    for (peer, kind) in [("10.0.0.1:443", K::Ping), ("10.0.0.1:80", K::ForwardedRoot)] {
        let through = || cut(K::Root, Balancer, LB);
        let ping = probe(K::ProxyPing, Backend, peer, Some(http(200, "", "pong")));
        let f = forwarding(vec![through(), through(), cut(kind.clone(), Backend, peer), ping.clone()]);
        let words = [
            "1 of 1 backends (10.0.0.1:",
            "2 of 2 tries",
            "does not send what the ingress expects",
            "send-proxy-v2",
        ];
        expect(&f, Status::False, Severity::Error, ReasonCode::ProxyProtocolMissing, &words);
        // A connection that stands is no answer, the balancer's own redirect of plain http says nothing of what is behind
        // it in L7, and 502 is what it makes of an ingress that closes.
        let f = judged(
            balancer(vec![
                root(http(502, "", "")),
                probe(K::Redirect, Balancer, "192.0.2.10:80", Some(http(301, SELF, ""))),
                probe(K::Connect, Backend, peer, None),
                cut(kind.clone(), Backend, peer),
                ping.clone(),
            ])
            .with(|b| b.mode = BalancerMode::L7),
        );
        assert_eq!(f.reason, ReasonCode::ProxyProtocolMissing, "{f:#?}");
        // With both sides right the backend is not down, though it answers us only with a header.
        let f = forwarding(vec![root(http(200, "", "")), cut(kind.clone(), Backend, peer), ping]);
        expect(&f, Status::True, Severity::Ok, ReasonCode::ForwardingWorks, &[]);
        // A backend that answers in no way is down.
        let dead = cut(K::ProxyPing, Backend, peer);
        let f = forwarding(vec![through(), cut(kind, Backend, peer), dead]);
        assert_eq!(f.reason, ReasonCode::BackendDown);
    }
}

#[test]
fn proxy_protocol_that_the_front_expects() {
    let ping = || probe(K::ProxyPing, Balancer, LB, Some(http(200, "", "pong")));
    let good = probe(K::ForwardedRoot, Backend, "10.0.0.1:80", Some(http(200, "", "")));
    let f = forwarding(vec![cut(K::Root, Balancer, LB), ping(), good]);
    let words = ["the balancer's own front", "accept-proxy"];
    expect(&f, Status::False, Severity::Error, ReasonCode::ProxyProtocolMissing, &words);
    let f = forwarding(vec![cut(K::Root, Balancer, LB), ping()]);
    expect(&f, Status::False, Severity::Error, ReasonCode::ProxyProtocolMissing, &["or a backend behind"]);
    // Tries that work prove that nothing is expected.
    let f = forwarding(vec![cut(K::Root, Balancer, LB), root(http(200, "", "")), ping()]);
    assert_ne!(f.reason, ReasonCode::ProxyProtocolMissing);
}

#[test]
fn proxy_protocol_that_the_ingress_does_not_expect() {
    let good = |peer: &str| probe(K::Ping, Backend, peer, Some(http(200, "", "pong")));
    // nginx behind L4: plain words where TLS was to come.
    let said = "HTTP/1.1 400 Bad Request\u{fffd}\u{fffd}Server: nginx<title>400 The plain HTTP request was sent to HTTPS port";
    let through = cut(K::Root, Balancer, LB).with(|p| p.raw = said.into());
    let f = forwarding(vec![through, good("10.0.0.1:443")]);
    let words =
        ["1 of 1", "not sent TLS, though TLS was sent", "no send-proxy", "use-proxy-protocol \"true\""];
    expect(&f, Status::False, Severity::Error, ReasonCode::ProxyProtocolUnexpected, &words);
    // L7: the backend calls the header a bad request, from us as from the balancer.
    let bad = || http(400, "", "<html>400 Bad Request nginx");
    let straight = |answer| probe(K::ProxyPing, Backend, "10.0.0.1:80", Some(answer));
    let f = forwarding(vec![root(bad()), good("10.0.0.1:80"), straight(bad())]);
    let words = ["400", "very same", "a header that the ingress does not expect"];
    expect(&f, Status::False, Severity::Error, ReasonCode::ProxyProtocolUnexpected, &words);
    // The same, said before a request was sent.
    let early =
        "HTTP/1.1 400 Bad Request\u{fffd}\u{fffd}Server: nginx\u{fffd}\u{fffd}<html>400 Bad Request nginx";
    let f = forwarding(vec![
        root(bad()),
        good("10.0.0.1:80"),
        cut(K::ProxyPing, Backend, "10.0.0.1:80").with(|p| p.raw = early.into()),
    ]);
    expect(&f, Status::False, Severity::Error, ReasonCode::ProxyProtocolUnexpected, &words);
    // Another bad request of another make is another fault.
    for other in [http(400, "", "bad host"), http(200, "", "pong")] {
        let f = forwarding(vec![root(bad()), good("10.0.0.1:80"), straight(other)]);
        assert_eq!(f.reason, ReasonCode::BalancerRefusesRequest);
    }
    // Dead behind the balancer: cut as well, but nothing says that it is this.
    let f = forwarding(vec![
        cut(K::Root, Balancer, LB),
        good("10.0.0.1:443"),
        cut(K::ProxyPing, Backend, "10.0.0.1:443"),
    ]);
    let words = ["1 of 1 backends answer by themselves", "see LoadBalancerReachable"];
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::TlsFailed, &words);
}

#[test]
fn a_mode_that_is_not_as_configured() {
    let with = |mode: BalancerMode, found: BalancerMode| {
        judged(balancer(vec![root(http(200, "", ""))]).with(|b| {
            b.mode = mode;
            b.found_mode = found;
            b.found_by = "backend 10.0.0.1:443 shows the very certificate".into();
        }))
    };
    use BalancerMode::{Auto, L4, L7};
    let f = with(L4, L7);
    let words = ["configured as l4 and works as l7", "10.0.0.1", "tls=external"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::BalancerModeDiffers, &words);
    assert_eq!(with(L7, L4).reason, ReasonCode::BalancerModeDiffers);
    expect(&with(L4, L4), Status::True, Severity::Ok, ReasonCode::ForwardingWorks, &["l4: backend 10.0.0.1"]);
    expect(
        &with(Auto, Auto),
        Status::True,
        Severity::Ok,
        ReasonCode::ForwardingWorks,
        &["is not known", "10.0.0.1"],
    );
    expect(&with(L7, Auto), Status::True, Severity::Ok, ReasonCode::ForwardingWorks, &["l7 as configured"]);
}

#[test]
fn an_agent_is_sent_to_the_servers_for_the_second_point() {
    let b = balancer(vec![root(http(302, SELF, ""))]).with(|b| {
        b.backends = Some(Fact::not_applicable("backends are tried from server nodes only", world::now()))
    });
    expect(&judged(b), Status::False, Severity::Error, ReasonCode::RedirectLoop, &["from server nodes only"]);
}

/// Which health check suits depends on the ingress that answers, not on the balancer.
#[test]
fn the_health_check_suits_the_ingress() {
    let advice = |body: &str| {
        let health = probe(K::HealthzByAddress, Backend, "10.0.0.1:80", Some(http(404, "", body)));
        let mut down = probe(K::ForwardedRoot, Backend, "10.0.0.2:80", None);
        down.tcp = unknown(UnknownCause::ConnectionRefused);
        let failing = root(http(502, "", "").with(|a| a.server = "nginx".into()));
        let good = root(http(200, "", ""));
        let f = forwarding(vec![failing, good, health, down]);
        assert_eq!(f.reason, ReasonCode::DeadBackendInUse, "{f:#?}");
        f.advice
    };
    assert!(advice("404 page not found").contains("Traefik answers 404"));
    assert!(advice("default backend - 404").contains("or GET /healthz; HAProxy"));
    assert!(advice("?").contains("with the Rancher Host"));
}

/// Straight at a backend strange headers tell whether the ingress or the balancer writes what is wrong.
#[test]
fn who_writes_the_address_that_is_wrong() {
    let judged = |written: &str, straight: &[&str]| {
        let mut probes = vec![root(http(200, "", "{").with(|a| a.self_link = written.into()))];
        for (i, link) in straight.iter().enumerate() {
            let answer = http(200, "", "{").with(|a| a.self_link = (*link).into());
            probes.push(probe(K::ForwardedAddress, Backend, &format!("10.0.0.{}:80", i + 1), Some(answer)));
        }
        forwarding(probes)
    };
    let strange = "https://outrider.invalid:61443";
    for (written, straight, words) in [
        (
            "https://rancher.x:8443",
            vec![strange; 2],
            "X-Forwarded-Port passes as it is sent (2 of 2): the balancer writes it",
        ),
        (
            "https://rancher.x:8443",
            vec!["https://outrider.invalid:8443"],
            "is replaced as well (0 of 1 pass it on): the ingress",
        ),
        ("https://inner.x", vec![strange, "https://inner.x:61443"], "X-Forwarded-Host passes at 1 of 2 only"),
        ("https://inner.x", vec!["https://inner.x:61443"], "X-Forwarded-Host is replaced as well"),
        ("http://rancher.x", vec![strange], "X-Forwarded-Proto passes as it is sent"),
    ] {
        expect(
            &judged(written, &straight),
            Status::False,
            Severity::Error,
            ReasonCode::ForwardedAddressWrong,
            &[words],
        );
    }
    let untried = judged("https://rancher.x:8443", &[]);
    assert!(untried.message.ends_with("than the port that was asked."), "{untried:#?}");
}

#[test]
fn what_a_client_writes_itself() {
    let judged = |link: &str, proto: HttpAnswer, mode: BalancerMode| {
        let lie = |kind: K, answer: HttpAnswer| probe(kind, Balancer, LB, Some(answer));
        let answer = http(200, "", "{").with(|a| a.self_link = link.into());
        judged(
            balancer(vec![
                root(http(200, "", "{")),
                lie(K::ForgedAddress, answer),
                lie(K::ForgedProto, proto),
            ])
            .with(|b| b.mode = mode),
        )
    };
    use BalancerMode::{L4, L7};
    let good = || http(200, "", "{");
    for (link, proto, mode, words) in [
        ("https://outrider.invalid:61443", good(), L7, ["X-Forwarded-Host, X-Forwarded-Port", "add-header"]),
        (
            "https://rancher.x:61443",
            good(),
            L7,
            ["writes into X-Forwarded-Port reaches", "https://rancher.x:61443"],
        ),
        (
            "https://outrider.invalid",
            good(),
            L4,
            ["writes into X-Forwarded-Host reaches", "the ingress trusts every client"],
        ),
        (
            "https://rancher.x",
            http(302, SELF, ""),
            L7,
            ["writes into X-Forwarded-Proto reaches", "redirected"],
        ),
        (
            "",
            http(302, "https://rancher.x/?outrider-asks-who-is-believed", ""),
            L4,
            ["X-Forwarded-Proto", "must not trust"],
        ),
    ] {
        let f = judged(link, proto, mode);
        expect(&f, Status::True, Severity::Warn, ReasonCode::ForwardedHeaderForged, &words);
    }
    for link in ["https://rancher.x", "https://rancher.x:443", ""] {
        assert_eq!(judged(link, good(), L7).reason, ReasonCode::ForwardingWorks, "{link}");
    }
}
