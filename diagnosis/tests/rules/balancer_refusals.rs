//! What stands in front and lets nobody in, or answers in place of who should.

use outrider_diagnosis::{Judgement, judge};
use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::{Backend, Balancer};
use outrider_protocol::*;

use crate::balancer::{LB, reachable};
use crate::world::{self, Change, balancer, dead, http, known, probe, unknown};
use crate::{expect, only};

fn judged(b: LoadBalancerFacts) -> Judgement {
    judge(&world::node_facts(CheckFacts { load_balancer: Some(known(vec![b])), ..CheckFacts::default() }))
}

fn refused_in_tls13(kind: K) -> Probe {
    probe(kind, Balancer, LB, None).with(|p| p.http = unknown(UnknownCause::Unauthenticated))
}

#[test]
fn a_balancer_that_wants_a_client_certificate_is_named() {
    let kinds = [K::Root, K::Ping, K::CaCerts, K::WebSocketOrigin];
    let tls13: Vec<_> = kinds.into_iter().map(refused_in_tls13).collect();
    // In TLS 1.2 the handshake itself fails.
    let tls12 = tls13.iter().cloned().map(|p| {
        p.with(|p| {
            p.tls = unknown(UnknownCause::Unauthenticated);
            p.http = Fact::not_applicable("no connection to ask on", world::now());
        })
    });
    let nginx = || {
        let page = "<html>\r\n<head><title>400 No required SSL certificate was sent</title></head>";
        probe(K::Root, Balancer, LB, Some(http(400, "", page)))
    };
    for (probes, count) in
        [(tls13.clone(), "4 of 4"), (tls12.collect(), "4 of 4"), (vec![nginx(), nginx()], "2 of 2")]
    {
        let connected = probe(K::Connect, Balancer, LB, None);
        let j = judged(balancer([vec![connected], probes].concat()));
        let f = only(&j, ConditionType::LoadBalancerForwarding);
        let words = ["wants a client certificate (mTLS)", count, LB, "agents and browsers have none"];
        expect(&f, Status::False, Severity::Error, ReasonCode::BalancerRefusesRequest, &words);
    }
    let j = judged(balancer(tls13));
    let ca = only(&j, ConditionType::RancherCa);
    assert!(ca.status == Status::Unknown && ca.advice.starts_with("See LoadBalancerForwarding"), "{ca:#?}");
    assert!(only(&j, ConditionType::LoadBalancerWebSocket).message.contains("see LoadBalancerReachable"));

    // A backend that takes the balancer's certificate only is well.
    let good = probe(K::Root, Balancer, LB, Some(http(200, "", "")));
    let behind = refused_in_tls13(K::Ping).with(|p| (p.target, p.peer) = (Backend, "10.0.0.1:443".into()));
    let f = only(&judged(balancer(vec![good, behind])), ConditionType::LoadBalancerForwarding);
    assert_eq!(f.reason, ReasonCode::ForwardingWorks, "{f:#?}");
}

#[test]
fn a_filter_that_refuses_everything_proves_nothing_about_web_sockets() {
    let with = |status: u16, body: &str| {
        let web_socket = probe(K::WebSocketOrigin, Balancer, LB, Some(http(403, "", "blocked")));
        let plain = [K::Root, K::Ping].map(|kind| probe(kind, Balancer, LB, Some(http(status, "", body))));
        only(
            &judged(balancer([plain.to_vec(), vec![web_socket]].concat())),
            ConditionType::LoadBalancerWebSocket,
        )
    };
    let f = with(403, "blocked");
    assert_eq!((f.status, &f.reason), (Status::Unknown, &ReasonCode::InvalidAnswer), "{f:#?}");
    assert!(f.message.contains("403 to plain requests too"), "{f:#?}");
    assert_eq!(with(200, "pong").reason, ReasonCode::WebSocketUnproven);
}

#[test]
fn only_an_api_server_says_ok() {
    let with = |status: u16, body: &str| {
        let ready = probe(K::Healthz, Balancer, LB, Some(http(status, "", body)));
        let b = balancer(vec![ready; 3]).with(|b| b.service = BalancerService::Kubernetes);
        only(&judged(b), ConditionType::LoadBalancerForwarding)
    };
    let words = ["no API server", "/readyz", "default backend - 200", "3 of 3"];
    let f = with(200, "default backend - 200");
    expect(&f, Status::False, Severity::Error, ReasonCode::NotRancher, &words);
    let f = with(403, "blocked");
    expect(&f, Status::False, Severity::Error, ReasonCode::BalancerRefusesRequest, &["3 of 3", "403"]);
    for (status, body) in
        [(200, "ok"), (200, "ok\n"), (401, "{\"kind\":\"Status\"}"), (403, "{\"kind\":\"Status\"}")]
    {
        assert_eq!(with(status, body).reason, ReasonCode::ForwardingWorks, "{status} {body}");
    }
}

#[test]
fn addresses_that_were_not_tried_are_not_called_dead() {
    let with = |n: usize| {
        let all = (1..=n).map(|n| format!("192.0.2.{n}")).collect();
        let tried = [1, 2]
            .map(|n| dead(K::Root, Balancer, &format!("192.0.2.{n}:443"), UnknownCause::ConnectionRefused));
        reachable(balancer(tried.to_vec()).with(|b| b.addresses = known(all)))
    };
    let words = ["None of 2 tried of 3 addresses"];
    expect(&with(3), Status::False, Severity::Error, ReasonCode::BalancerDown, &words);
    expect(&with(2), Status::False, Severity::Error, ReasonCode::BalancerDown, &["No address of"]);
}

#[test]
fn a_dead_http2_is_told_from_a_dead_backend() {
    let ping = |alpn: &str, answer| {
        probe(K::Ping, Balancer, LB, answer).with(|p| {
            if let Fact::Known { value, .. } = &mut p.tls {
                value.alpn = alpn.into();
            }
        })
    };
    let dead = |alpn| ping(alpn, None).with(|p| p.http = unknown(UnknownCause::TimedOut));
    let good = || ping("http/1.1", Some(http(200, "", "pong")));
    let told = |probes| {
        let f = only(&judged(balancer(probes)), ConditionType::LoadBalancerForwarding);
        assert_eq!(f.reason, ReasonCode::BackendError, "{f:#?}");
        f.message.contains("Only HTTP/2 fails")
    };
    assert!(told(vec![dead("h2"), good()]));
    assert!(!told(vec![dead("h2"), dead("http/1.1"), good()]));
    assert!(!told(vec![dead("h2")]));
}

#[test]
fn what_is_no_silence_is_in_no_gap() {
    let gap = GapFacts {
        address: "192.0.2.10".into(),
        failed: 1,
        from: world::ago(9),
        until: world::now(),
        confirmed: 3,
    };
    let b = |cause| {
        let failed = probe(K::Root, Balancer, LB, None).with(|p| p.http = unknown(cause));
        let good = probe(K::Root, Balancer, LB, Some(http(200, "", "")));
        let b = balancer(vec![failed, good]).with(|b| b.gaps = vec![gap.clone()]);
        only(&judged(b), ConditionType::LoadBalancerForwarding).status
    };
    assert_eq!(b(UnknownCause::TimedOut), Status::True);
    assert_eq!(b(UnknownCause::InvalidAnswer), Status::False);
}
