//! A moment's silence, an address that moves, and one that two machines hold.

use outrider_diagnosis::{Finding, fleet, judge};
use outrider_protocol::ProbeKind as K;
use outrider_protocol::ProbeTarget::Balancer;
use outrider_protocol::*;

use crate::world::{self, Change, ago, balancer, dead, http, known, probe};
use crate::{expect, only};

const LB: &str = "192.0.2.10:443";

fn judged(b: LoadBalancerFacts) -> (Finding, Finding) {
    let facts =
        world::node_facts(CheckFacts { load_balancer: Some(known(vec![b])), ..CheckFacts::default() });
    let j = judge(&facts);
    (only(&j, ConditionType::LoadBalancerReachable), only(&j, ConditionType::LoadBalancerForwarding))
}

/// Two tries that failed ten seconds ago, others that came through since.
fn with_gap() -> LoadBalancerFacts {
    let failed = |seconds| dead(K::Root, Balancer, LB, UnknownCause::TimedOut).with(|p| p.at = ago(seconds));
    let good = probe(K::Root, Balancer, LB, Some(http(200, "", ""))).with(|p| p.at = ago(3));
    balancer(vec![failed(12), failed(10), good.clone(), good]).with(|b| {
        b.gaps = vec![GapFacts {
            address: "192.0.2.10".into(),
            failed: 2,
            from: ago(13),
            until: ago(9),
            confirmed: 6,
        }];
    })
}

fn moved(seconds: u64, from: &str, to: &str) -> AddressMove {
    AddressMove { address: "192.0.2.10".into(), from: from.into(), to: to.into(), at: ago(seconds) }
}

#[test]
fn a_moment_of_silence_is_no_outage() {
    let (r, f) = judged(with_gap());
    let words = ["silent for a moment, 2 tries failed within 4.0 s", "6 of 6"];
    expect(&r, Status::True, Severity::Info, ReasonCode::BalancerGap, &words);
    assert_eq!(f.reason, ReasonCode::ForwardingWorks, "{f:#?}");
    let paths = fleet::paths_of(&with_gap());
    assert_eq!((paths.paths[0].tries, paths.paths[0].failed), (2, 0));
    // What fails after it counts.
    let later = with_gap().with(|b| {
        b.probes.push(dead(K::Ping, Balancer, LB, UnknownCause::TimedOut).with(|p| p.at = ago(1)));
    });
    assert_eq!(judged(later.clone()).0.reason, ReasonCode::BalancerPartlyDown);
    assert_eq!(fleet::paths_of(&later).paths[0].failed, 1);
    // At another address as well.
    let other = with_gap().with(|b| b.probes[0].peer = "192.0.2.11:443".into());
    assert_eq!(judged(other).0.reason, ReasonCode::BalancerPartlyDown);
}

#[test]
fn a_move_is_told_for_a_quarter_of_an_hour() {
    let (r, _) = judged(with_gap().with(|b| b.moves = vec![moved(10, "aa", "bb")]));
    let words = ["bb answers for it since", "aa before, 2 tries failed within 4.0 s"];
    expect(&r, Status::True, Severity::Info, ReasonCode::BalancerMoved, &words);
    let quiet = |moves| {
        let good = probe(K::Root, Balancer, LB, Some(http(200, "", "")));
        judged(balancer(vec![good]).with(|b| b.moves = moves)).0
    };
    expect(
        &quiet(vec![moved(800, "aa", "bb")]),
        Status::True,
        Severity::Info,
        ReasonCode::BalancerMoved,
        &["aa before."],
    );
    assert_eq!(quiet(vec![moved(1000, "aa", "bb")]).reason, ReasonCode::BalancerAnswers);
    // There and back is maintenance; to and fro is none.
    let there_and_back = vec![moved(500, "aa", "bb"), moved(100, "bb", "aa")];
    assert_eq!(quiet(there_and_back.clone()).reason, ReasonCode::BalancerMoved);
    let again = [there_and_back, vec![moved(50, "aa", "bb")]].concat();
    let words = ["3 times within 15 min", "aa, bb", "protocol 112"];
    expect(&quiet(again), Status::True, Severity::Warn, ReasonCode::BalancerContested, &words);
}
