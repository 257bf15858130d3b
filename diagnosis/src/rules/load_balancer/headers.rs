//! Forwarded headers that are wrong without a loop (E3, E5): Rancher takes itself for another address, or believes a client
//! that claims https.
//!
//! `X-Forwarded-For` leaves no trace in an answer, so nothing is said of it.

use outrider_protocol::{Fact, Probe, ProbeKind as K, ProbeTarget, ReasonCode as R, Severity, Status};

use super::answer::{self, Answer, host_of};
use super::forwarding::View;
use crate::finding::Finding;

/// The first request of every connection is answered and a later one on the same connection is not (E4).
pub(super) fn first_only(view: &View<'_>, seen: &str) -> Option<Finding> {
    let roots = || {
        let probes = view.b.probes.iter().filter(|p| p.kind == K::Root && p.target == ProbeTarget::Balancer);
        probes.filter_map(|p| Some((p, answer::of(p, &view.b.host)?)))
    };
    let (mut fresh, mut kept) = ((0, 0), (0, 0));
    for (probe, answer) in roots() {
        let (good, loops) = match &probe.tcp {
            Fact::NotApplicable { .. } => &mut kept,
            _ => &mut fresh,
        };
        match answer {
            Answer::Good => *good += 1,
            Answer::Loop(..) => *loops += 1,
            _ => return None,
        }
    }
    if fresh.0 == 0 || fresh.1 > 0 || kept.0 > 0 || kept.1 == 0 {
        return None;
    }
    let message = format!(
        "{seen}: never on a new connection ({} tries), always when asked again on a kept one ({} of {}). The balancer sets \
         X-Forwarded-Proto on the first request of a connection only.",
        fresh.0, kept.1, kept.1
    );
    view.error(
        R::ForwardedHeaderFirstOnly,
        message,
        "Let the balancer handle every request of a connection: Varnish with return (pass) in place of return (pipe), \
         HAProxy without option http-tunnel.",
    )
}

/// An address that Rancher wrote into an answer and that is not the one that was asked for.
pub(super) fn wrong_address(view: &View<'_>) -> Option<Finding> {
    let b = view.b;
    let asked = if b.port == 443 { b.host.clone() } else { format!("{}:{}", b.host, b.port) };
    let through = b.probes.iter().filter(|p| {
        p.target == ProbeTarget::Balancer && matches!(p.tls, Fact::Known { .. } | Fact::NotApplicable { .. })
    });
    let secure = through.filter(|p| matches!(p.kind, K::Root | K::CaCerts | K::Ping));
    let (probe, written, part) = secure
        .filter_map(|p| {
            let answer = p.http.value()?;
            let of = |written: &str, is_link| Some((p, written.to_owned(), differs(written, view, is_link)?));
            of(&answer.self_link, true).or_else(|| of(&answer.location, false))
        })
        .next()?;
    let header = match part {
        Part::Scheme => "X-Forwarded-Proto is not https where it arrives",
        Part::Host => "X-Forwarded-Host or Host is replaced on the way",
        Part::Port(80) => "X-Forwarded-Port is 80 beside X-Forwarded-Proto https",
        Part::Port(_) => "X-Forwarded-Port is another than the port that was asked",
    };
    let source = if probe.http.value().is_some_and(|a| a.self_link == written) {
        "the links of Rancher's API"
    } else {
        "a redirect of Rancher's"
    };
    let message = format!(
        "Rancher takes itself for {written} where https://{asked} was asked ({source}, at {}): {header}.",
        probe.peer
    );
    view.error(
        R::ForwardedAddressWrong,
        message,
        "Let the outermost balancer set all of X-Forwarded-Proto https, X-Forwarded-Port 443, X-Forwarded-Host and Host as the \
         client sent it, and let a second one behind it pass them on unchanged: nginx proxy_set_header X-Forwarded-Port \
         $http_x_forwarded_port, HAProxy without http-request set-header of them. Leave server-url as it is; the name \
         cannot be changed later.",
    )
}

enum Part {
    Scheme,
    Host,
    Port(u16),
}

/// Which part of an absolute URL is not the one of the balancer. A redirect to another host is somebody's own business; a
/// link of the API is not.
fn differs(written: &str, view: &View<'_>, is_link: bool) -> Option<Part> {
    let (scheme, rest) = written.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host_of(authority);
    if !host.eq_ignore_ascii_case(host_of(&view.b.host)) {
        return is_link.then_some(Part::Host);
    }
    if is_link && !scheme.eq_ignore_ascii_case("https") {
        return Some(Part::Scheme);
    }
    let port = authority.rsplit_once(':').filter(|(_, port)| !port.contains(']'))?.1.parse().ok()?;
    (port != view.b.port).then_some(Part::Port(port))
}

/// Plain http is served to whoever claims https.
pub(super) fn forged(view: &View<'_>) -> Option<Finding> {
    let b = view.b;
    let probes = b.probes.iter().filter(|p| p.kind == K::ForgedRoot && p.target == ProbeTarget::Balancer);
    let believed = |p: &&Probe| {
        p.http.value().is_some_and(|a| {
            let to_https = a.location.get(..8).is_some_and(|s| s.eq_ignore_ascii_case("https://"));
            (200..300).contains(&a.status) || ((300..400).contains(&a.status) && !to_https)
        })
    };
    let all = probes.clone().filter(|p| p.http.value().is_some()).count();
    let wrong: Vec<&Probe> = probes.filter(believed).collect();
    let first = wrong.first()?;
    let status = first.http.value()?.status;
    let message = format!(
        "Plain http on port {} is served ({status} at {}) to a client that itself sends X-Forwarded-Proto: https, in {} of {all} \
         tries, and redirected to others: who claims https is believed.",
        b.http_port,
        first.peer,
        wrong.len()
    );
    Some(view.new_finding(Status::True, Severity::Warn, R::ForwardedHeaderForged, message).advice(
        "Let the balancer overwrite the header on its plain port (HAProxy: http-request set-header X-Forwarded-Proto http; nginx: \
         proxy_set_header X-Forwarded-Proto $scheme). In L4 the ingress must not trust it: ingress-nginx \
         use-forwarded-headers \"false\", Traefik without forwardedHeaders.insecure.",
    ))
}
