//! Forwarded headers that are wrong without a loop (E3, E5): Rancher takes itself for another address, or believes what a
//! client writes into them.
//!
//! What Rancher does with each: `X-Forwarded-Proto` must be `https` or `wss` alone, in its first line, or `/` is redirected
//! (rancher/dynamiclistener, `HTTPRedirect`); of `X-Forwarded-Host` and `X-Forwarded-Port` it makes the links of its API,
//! the first of a list, and leaves the ports 80 and 443 out (rancher/norman, `urlbuilder/url.go`). So a port of 80 beside
//! https does no harm there and leaves no trace, as `X-Forwarded-For` leaves none.

use outrider_protocol::{
    BalancerMode, Fact, Probe, ProbeKind as K, ProbeTarget, ReasonCode as R, STRANGE_HOST, STRANGE_PORT,
    Severity, Status,
};

use super::answer::{self, Answer, host_of};
use super::view::View;
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
        "Rancher takes itself for {written} where https://{asked} was asked ({source}, at {}): {header}{}.",
        probe.peer,
        whose(view, &part)
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

/// Who writes the part that is wrong, by what the ingress made of strange headers straight at a backend; a clause that
/// begins with a semicolon, or nothing where that was not tried.
fn whose(view: &View<'_>, part: &Part) -> String {
    let kept = |link: &str| match part {
        Part::Host => host_of(authority(link)) == STRANGE_HOST,
        Part::Port(_) => port_of(authority(link)) == Some(STRANGE_PORT),
        Part::Scheme => link.starts_with("https:"),
    };
    let links = strange_links(view, K::ForwardedAddress, ProbeTarget::Backend);
    let kept_by = links.iter().filter(|(_, link)| kept(link)).count();
    let all = links.len();
    let name = part.header();
    match kept_by {
        _ if all == 0 => String::new(),
        n if n == all => format!(
            "; straight at a backend {name} passes as it is sent ({n} of {all}): the balancer writes it"
        ),
        0 => format!(
            "; straight at a backend {name} is replaced as well (0 of {all} pass it on): the ingress writes it"
        ),
        n => format!("; straight at a backend {name} passes at {n} of {all} only"),
    }
}

/// Peer and link of the answers to strange headers.
fn strange_links<'a>(view: &View<'a>, kind: K, target: ProbeTarget) -> Vec<(&'a str, &'a str)> {
    let probes = view.b.probes.iter().filter(|p| p.kind == kind && p.target == target);
    let links = probes.filter_map(|p| Some((p.peer.as_str(), p.http.value()?.self_link.as_str())));
    links.filter(|(_, link)| !link.is_empty()).collect()
}

fn authority(url: &str) -> &str {
    url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default())
}

fn port_of(authority: &str) -> Option<u16> {
    authority.rsplit_once(':').filter(|(_, port)| !port.contains(']'))?.1.parse().ok()
}

enum Part {
    Scheme,
    Host,
    Port(u16),
}

impl Part {
    fn header(&self) -> &'static str {
        match self {
            Part::Scheme => "X-Forwarded-Proto",
            Part::Host => "X-Forwarded-Host",
            Part::Port(_) => "X-Forwarded-Port",
        }
    }
}

/// Which part of an absolute URL is not the one of the balancer. A redirect to another host is somebody's own business
/// where it does not lead to what Rancher's `/` leads to; a link of the API is not.
fn differs(written: &str, view: &View<'_>, is_link: bool) -> Option<Part> {
    let (scheme, _) = written.split_once("://")?;
    let authority = authority(written);
    let host = host_of(authority);
    if !host.eq_ignore_ascii_case(host_of(&view.b.host)) {
        let path = written.split_once(authority).map_or("", |(_, path)| path);
        return (is_link || path.starts_with("/dashboard")).then_some(Part::Host);
    }
    if is_link && !scheme.eq_ignore_ascii_case("https") {
        return Some(Part::Scheme);
    }
    let port = port_of(authority)?;
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

/// Over https a client's own headers reach Rancher: whoever ends TLS passes them on, or adds its own behind them.
pub(super) fn believed(view: &View<'_>) -> Option<Finding> {
    let b = view.b;
    let links = strange_links(view, K::ForgedAddress, ProbeTarget::Balancer);
    let passes = |what: fn(&str) -> bool| links.iter().any(|(_, link)| what(authority(link)));
    let probes = b.probes.iter().filter(|p| p.kind == K::ForgedProto && p.target == ProbeTarget::Balancer);
    // Without the lie the same is answered, or this rule would not be asked.
    let loops = probes.filter(|p| matches!(answer::of(p, &b.host), Some(Answer::Loop(..)))).count() > 0;
    let passed: Vec<&str> = [
        (loops, "X-Forwarded-Proto"),
        (passes(|authority| host_of(authority) == STRANGE_HOST), "X-Forwarded-Host"),
        (passes(|authority| port_of(authority) == Some(STRANGE_PORT)), "X-Forwarded-Port"),
    ]
    .into_iter()
    .filter_map(|(is_so, name)| is_so.then_some(name))
    .collect();
    if passed.is_empty() {
        return None;
    }
    let is_l4 = b.mode == BalancerMode::L4;
    let who = if is_l4 { "the ingress trusts every client" } else { "the balancer does not set them itself" };
    let link =
        links.iter().find(|(_, link)| authority(link).contains(STRANGE_HOST) || link.ends_with("61443"));
    let seen = match (link, loops) {
        (Some((peer, link)), _) => format!("its links say {link} to a client that writes so, at {peer}"),
        (None, _) => "a client that writes http is redirected to https without end".to_owned(),
    };
    let message = format!(
        "What a client of https://{} itself writes into {} reaches Rancher: {seen}; {who}. Links can be forged, and a second \
         proxy in front would be heard in place of this one.",
        b.host,
        passed.join(", ")
    );
    let advice = if is_l4 {
        "In L4 the ingress ends TLS and must not trust these headers: ingress-nginx use-forwarded-headers \"false\" (its \
         default), Traefik without forwardedHeaders.insecure."
    } else {
        "Let the balancer set each header, not add it and not pass it on: HAProxy http-request set-header (not add-header) \
         X-Forwarded-Proto https, X-Forwarded-Port 443, X-Forwarded-Host %[req.hdr(Host)]; nginx proxy_set_header \
         X-Forwarded-Port 443 and X-Forwarded-Host $host."
    };
    let finding = view.new_finding(Status::True, Severity::Warn, R::ForwardedHeaderForged, message);
    Some(finding.advice(advice))
}
