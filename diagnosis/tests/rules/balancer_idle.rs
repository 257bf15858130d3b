//! How long a silent WebSocket lasts, where that is measured.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::Balancer;
use outrider_protocol::*;

use crate::world::{self, Change, balancer, http, known, probe};
use crate::{expect, only};

const LB: &str = "192.0.2.10:443";

fn hold(seconds: f64, end: IdleEnd) -> IdleHold {
    IdleHold { peer: "10.0.0.1:443".into(), seconds, end }
}

fn idle(manner: IdleManner, through: IdleHold, straight: Option<IdleHold>) -> Fact<IdleFacts> {
    let straight = straight.map(known);
    known(IdleFacts {
        manner,
        limit_seconds: 1860.0,
        through: IdleHold { peer: LB.into(), ..through },
        straight,
    })
}

fn judged(idle: Fact<IdleFacts>, mode: BalancerMode, status: u16) -> Finding {
    let answer = http(status, "", if status == 403 { "origin not allowed" } else { "" });
    let b = balancer(vec![probe(K::WebSocketOrigin, Balancer, LB, Some(answer))]).with(|b| {
        b.mode = mode;
        b.idle = Some(idle);
    });
    let facts =
        world::node_facts(CheckFacts { load_balancer: Some(known(vec![b])), ..CheckFacts::default() });
    only(&judge(&facts), ConditionType::LoadBalancerWebSocket)
}

use BalancerMode::{L4, L7};
use IdleEnd::{Cut, Held, Lost};
use IdleManner::{KeptAlive, WebSocket};

#[test]
fn a_websocket_that_is_cut_early_says_who_cuts_it_and_what_to_set() {
    let cut = |straight| judged(idle(WebSocket, hold(60.0, Cut), straight), L7, 403);
    let words = [
        "after 60 s",
        "1800 s",
        "Shells and logs",
        "timeout tunnel 1800s",
        "proxy-read-timeout",
        "nothing tells",
    ];
    expect(&cut(None), Status::True, Severity::Warn, ReasonCode::WebSocketCutIdle, &words);
    let f = judged(idle(WebSocket, hold(50.0, Cut), Some(hold(67.5, Held))), L4, 403);
    let words = ["still there after 68 s: the balancer ends it", "timeout client 1800s", "proxy_timeout"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::WebSocketCutIdle, &words);
    assert!(!f.advice.contains("chart"), "{f:#?}");
    let f = judged(idle(WebSocket, hold(60.0, Cut), Some(hold(60.5, Cut))), L4, 403);
    let words = ["straight at 10.0.0.1:443 it ends after 60 s as well: the ingress", "chart sets"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::WebSocketCutIdle, &words);
    let f = judged(idle(WebSocket, hold(1860.0, Lost), None), L7, 403);
    assert_eq!(f.reason, ReasonCode::WebSocketPasses, "longer than is wanted");
    let f = judged(idle(WebSocket, hold(900.0, Lost), None), L7, 403);
    expect(&f, Status::True, Severity::Warn, ReasonCode::WebSocketCutIdle, &["forgotten", "within 900 s"]);
    let f = judged(idle(WebSocket, hold(4.0, Cut), None), L7, 403);
    expect(
        &f,
        Status::True,
        Severity::Error,
        ReasonCode::WebSocketCutIdle,
        &["4.0 s", "tunnels of Rancher's agents"],
    );
}

#[test]
fn what_is_long_enough_is_a_clause_of_good_news() {
    for (seconds, end, words) in [
        (1860.0, Held, "held for 1860 s, the whole test"),
        (300.0, Held, "held for 300 s, the whole test"),
        (1800.0, Cut, "cut after 1800 s"),
        (1795.0, Cut, "cut after 1795 s"),
    ] {
        let f = judged(idle(WebSocket, hold(seconds, end), None), L7, 403);
        expect(&f, Status::True, Severity::Ok, ReasonCode::WebSocketPasses, &[words]);
    }
    let why = Fact::not_applicable("without idle_test_token_file no WebSocket stands open", world::now());
    let f = judged(why, L7, 403);
    expect(&f, Status::True, Severity::Ok, ReasonCode::WebSocketPasses, &["not measured: without idle_test"]);
    let f = judged(world::unknown(UnknownCause::Unauthenticated), L7, 403);
    expect(&f, Status::True, Severity::Ok, ReasonCode::WebSocketPasses, &["how long silence is borne"]);
}

/// The ingress has a limit of its own for connections on which nothing was upgraded.
#[test]
fn a_plain_connection_proves_something_only_where_it_lasts_longer_past_the_balancer() {
    for straight in [None, Some(hold(75.0, Cut)), Some(hold(70.0, Cut))] {
        let f = judged(idle(KeptAlive, hold(75.0, Cut), straight), L4, 403);
        expect(
            &f,
            Status::True,
            Severity::Ok,
            ReasonCode::WebSocketPasses,
            &["held for 75 s and then ended"],
        );
    }
    for straight in [hold(55.0, Held), hold(54.0, Cut)] {
        let f = judged(idle(KeptAlive, hold(40.0, Cut), Some(straight)), L4, 403);
        expect(
            &f,
            Status::True,
            Severity::Warn,
            ReasonCode::WebSocketCutIdle,
            &["in L4 is what", "the balancer ends it"],
        );
    }
}

#[test]
fn a_websocket_that_fails_is_the_graver_news() {
    let f = judged(idle(WebSocket, hold(60.0, Cut), None), L7, 502);
    assert_eq!(f.reason, ReasonCode::WebSocketFails);
}
