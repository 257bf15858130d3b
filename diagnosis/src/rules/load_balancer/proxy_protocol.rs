//! PROXY protocol on one side only (E13), and on which.
//!
//! A side that expects the header takes what comes without it for broken and closes. A side that does not expect it takes
//! the header for a request, or for a TLS handshake, and calls it bad. Both are made sure of by a try straight at the
//! peer with a header in front.

use outrider_protocol::{
    BalancerMode, Fact, Probe, ProbeKind as K, ProbeTarget, ReasonCode as R, UnknownCause,
};

use super::answer::host_of;
use super::view::View;
use crate::finding::Finding;
use crate::wording::names;

const NAMED: usize = 6;

/// Whether a peer answered a try with a header in front as it should.
pub(super) fn answers(probe: &Probe) -> bool {
    probe.http.value().is_some_and(|a| a.status < 500 && a.status != 400)
}

pub(super) fn judge(view: &View<'_>) -> Option<Finding> {
    // Its evidence is the stronger: the very words that a backend has for a header.
    unexpected(view).or_else(|| missing(view))
}

/// Tries through the balancer: those that work and those that are cut or called bad.
fn through<'a>(view: &View<'a>) -> (usize, Vec<&'a Probe>) {
    // In L7 the balancer answers plain http by itself, so that says nothing of what is behind it.
    let plain = view.b.mode == BalancerMode::L4;
    let probes = view.b.probes.iter().filter(|p| {
        p.target == ProbeTarget::Balancer
            && (matches!(p.kind, K::Root | K::Ping) || plain && p.kind == K::Redirect)
            && !matches!(&p.tcp, Fact::Unknown { .. })
    });
    let (bad, rest): (Vec<&Probe>, Vec<&Probe>) = probes.partition(|p| is_cut(p));
    (rest.iter().filter(|p| p.http.value().is_some_and(|a| a.status < 500)).count(), bad)
}

fn is_cut(probe: &Probe) -> bool {
    use UnknownCause as C;
    let cut = |cause: &C| matches!(cause, C::TlsFailed | C::InvalidAnswer | C::Unreachable);
    match (&probe.tls, &probe.http) {
        (Fact::Unknown { cause, .. }, _) | (_, Fact::Unknown { cause, .. }) => cut(cause),
        // 502 is what a balancer makes of an ingress that closes.
        (_, Fact::Known { value, .. }) => matches!(value.status, 400 | 502),
        _ => false,
    }
}

/// A side expects the header and does not get it.
fn missing(view: &View<'_>) -> Option<Finding> {
    let (works, cut) = through(view);
    let expecting: Vec<&str> = view
        .ports()
        .filter(|(_, port)| port.good == 0 && port.wants_proxy_protocol)
        .map(|(at, _)| at)
        .collect();
    // Where some tries work, some backends do not expect it; where all expect it, it is sent.
    let some = works > 0 && !expecting.is_empty() && view.ports().any(|(_, port)| port.good > 0);
    if cut.is_empty() || works > 0 && !some {
        return None;
    }
    let tries = cut.len();
    let all = works + tries;
    let host = &view.b.host;
    let advice = "Both sides or none. Let the balancer send it (HAProxy: send-proxy-v2 on the server lines; nginx stream: \
                  proxy_protocol on), or let the ingress not expect it (ingress-nginx: use-proxy-protocol \"false\"; Traefik: \
                  no proxyProtocol; nginx: listen without proxy_protocol).";
    if !expecting.is_empty() {
        let message = format!(
            "Only one side speaks PROXY protocol: {} of {} backends ({}) answer only after a PROXY header, and {host} does not \
             send one: {tries} of {all} tries through it are cut or called bad. The balancer does not send what the \
             ingress expects.",
            expecting.len(),
            view.backends.len(),
            names(&expecting, NAMED)
        );
        return view.error(R::ProxyProtocolMissing, message, advice);
    }
    let proxied = view
        .b
        .probes
        .iter()
        .find(|p| p.kind == K::ProxyPing && p.target == ProbeTarget::Balancer && answers(p))?;
    let behind = if view.ports().any(|(_, port)| port.good > 0) {
        "Backends answer without one, so it is the balancer's own front that expects it."
    } else {
        "It is the balancer's own front that expects it, or a backend behind a balancer that passes bytes on."
    };
    let message = format!(
        "Only one side speaks PROXY protocol: {host} ({}) answers only after a PROXY header, and clients send none: {tries} of \
         {tries} tries without it are cut or called bad. {behind}",
        host_of(&proxied.peer)
    );
    view.error(
        R::ProxyProtocolMissing,
        message,
        "Let the front not expect it where clients come straight (HAProxy: bind without accept-proxy; nginx: listen without \
         proxy_protocol), or only from the balancer in front (HAProxy: tcp-request connection expect-proxy layer4 if { src \
         ADDRESSES }).",
    )
}

/// The balancer sends the header and the backend does not expect it.
fn unexpected(view: &View<'_>) -> Option<Finding> {
    let (works, cut) = through(view);
    let good: Vec<&str> = view.ports().filter(|(_, port)| port.good > 0).map(|(at, _)| at).collect();
    // That some tries work proves that it is sent where they come to a backend that answers only so.
    let is_sent = view.ports().any(|(_, port)| port.good == 0 && port.wants_proxy_protocol);
    if cut.is_empty() || works > 0 && !is_sent || good.is_empty() {
        return None;
    }
    let straight = || {
        view.b
            .probes
            .iter()
            .filter(|p| p.kind == K::ProxyPing && p.target == ProbeTarget::Backend && !answers(p))
    };
    let evidence = cut.iter().find_map(|p| {
        let said = plaintext(p);
        // In place of TLS a backend says that it was sent something else than TLS: what we sent was TLS.
        if said.contains("plain HTTP request was sent to HTTPS port")
            || said.contains("HTTP request to an HTTPS server")
        {
            return Some((p, "it says that it was not sent TLS, though TLS was sent"));
        }
        let same = straight().any(|direct| match (p.http.value(), direct.http.value()) {
            (Some(a), Some(b)) => a.status == 400 && b.status == 400 && a.body_start == b.body_start,
            // It called the header bad before a request was sent, so what it said was no answer yet.
            (Some(a), None) => {
                let page: String = a.body_start.chars().take(40).collect();
                let words = plaintext(direct);
                a.status == 400
                    && status_line(words).contains(" 400 ")
                    && !page.is_empty()
                    && words.contains(&page)
            }
            _ => !said.is_empty() && status_line(said) == status_line(plaintext(direct)),
        });
        same.then_some((p, "it says the very same to a try straight at it with a PROXY header in front"))
    });
    let (probe, how) = evidence?;
    let said = match probe.http.value() {
        Some(answer) => format!("{} {:?}", answer.status, short(&answer.body_start)),
        None => format!("{:?}", short(plaintext(probe))),
    };
    let message = format!(
        "Only one side speaks PROXY protocol: straight at a backend requests work ({} of {}: {}), through {} the backend \
         answers {said} in {} of {} tries, and {how}. The balancer sends a header that the ingress does not expect.",
        good.len(),
        view.ports().count(),
        names(&good, NAMED),
        view.b.host,
        cut.len(),
        works + cut.len()
    );
    view.error(
        R::ProxyProtocolUnexpected,
        message,
        "Both sides or none. Let the balancer not send it (HAProxy: no send-proxy on the server lines; nginx stream: no \
         proxy_protocol), or let the ingress expect it (ingress-nginx: use-proxy-protocol \"true\"; Traefik: \
         proxyProtocol.trustedIPs with the balancer's addresses).",
    )
}

fn plaintext(probe: &Probe) -> &str {
    &probe.raw
}

/// The first line of what was said; dates differ in the others.
fn status_line(said: &str) -> &str {
    said.split('\u{fffd}').next().unwrap_or(said)
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}
