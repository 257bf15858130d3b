//! `LoadBalancerReachable`, `LoadBalancerForwarding`, `LoadBalancerWebSocket` and `RancherCA`, one subject a balancer
//! (`facts/rancher-load-balancer.md`).
//!
//! Reachable is about the way to the balancer: name, TCP, TLS, certificate. Forwarding is about what comes out behind
//! it, told by pairs of tries (straight to a backend and through the balancer): the difference is the diagnosis.
//! WebSocket is the same for upgrades; RancherCA is about what agents come to trust.

mod answer;
mod author;
mod backends;
mod ca;
mod certificate;
mod chain;
mod exempt;
mod foreign;
mod forwarding;
mod headers;
mod idle;
mod moved;
mod proxy_protocol;
mod reachable;
mod redirects;
mod view;
mod websocket;

use std::borrow::Cow;

use outrider_protocol::{
    BalancerService, Check, Fact, LoadBalancerFacts, NodeFacts, NotApplicable, Probe, ProbeTarget, Timestamp,
    UnknownCause,
};

use crate::finding::Judgement;

pub(crate) use answer::{host_of, is_at_port, is_of_peer};
pub(crate) use author::words_of_a_proxy;
pub(crate) use view::used_ports;

pub(super) fn judge(out: &mut Judgement, balancers: &[LoadBalancerFacts], facts: &NodeFacts) {
    if balancers.is_empty() {
        out.not_applicable.push(NotApplicable {
            check: Check::LoadBalancer,
            reason: "no load balancer is configured".to_owned(),
        });
    }
    for balancer in balancers {
        let balancer = &*without_gaps(balancer);
        let at = observed_at(balancer);
        out.findings.push(reachable::judge(balancer, at, facts).subject(balancer.name.clone()));
        let forwarding = forwarding::judge(balancer, at);
        let routed = forwarding.reason.clone();
        out.findings.push(forwarding.subject(balancer.name.clone()));
        if balancer.service != BalancerService::Rancher {
            // The rest is about Rancher.
            continue;
        }
        out.findings.push(websocket::judge(balancer, at, &routed).subject(balancer.name.clone()));
        out.findings.push(ca::judge(balancer, at, facts).subject(balancer.name.clone()));
    }
}

/// Why nothing could be tried, where the name has no address.
fn untried(b: &LoadBalancerFacts) -> Option<(UnknownCause, &'static str)> {
    let why = "the name does not resolve; see LoadBalancerReachable";
    match &b.addresses {
        Fact::Absent { .. } => Some((UnknownCause::NameNotResolved, why)),
        Fact::Known { value, .. } if value.is_empty() => Some((UnknownCause::NameNotResolved, why)),
        Fact::Unknown { cause, .. } => {
            Some((cause.clone(), "its addresses could not be looked up; see LoadBalancerReachable"))
        }
        _ => None,
    }
}

/// Whether any connection to the balancer's https port came about.
fn is_connected(b: &LoadBalancerFacts) -> bool {
    b.probes
        .iter()
        .any(|p| p.target == ProbeTarget::Balancer && is_at_port(&p.peer, b.port) && p.tcp.value().is_some())
}

/// When the last try was made.
fn observed_at(balancer: &LoadBalancerFacts) -> Timestamp {
    balancer.probes.iter().map(|p| p.at).max().unwrap_or(balancer.addresses.at())
}

/// The facts without the tries that failed in a moment's silence which was over before the pass was.
pub(crate) fn without_gaps(b: &LoadBalancerFacts) -> Cow<'_, LoadBalancerFacts> {
    use UnknownCause as C;
    use answer::Answer::Silent;
    // What came in place of an answer is no silence.
    let in_gap = |p: &Probe| {
        let mut gaps = b.gaps.iter();
        p.target == ProbeTarget::Balancer
            && matches!(
                answer::of(p, &b.host),
                Some(Silent(C::ConnectionRefused | C::TimedOut | C::Unreachable | C::TlsFailed, _))
            )
            && gaps.any(|gap| gap.address == host_of(&p.peer) && p.at <= gap.until)
    };
    if !b.probes.iter().any(in_gap) {
        return Cow::Borrowed(b);
    }
    let mut rest = b.clone();
    rest.probes.retain(|p| !in_gap(p));
    Cow::Owned(rest)
}
