//! `LoadBalancerForwarding`: whether Rancher answers behind the balancer, and if not, whose fault it is.
//!
//! The rules run from the fault that explains the others to the one that is explained by none: PROXY protocol on one side
//! only (`proxy_protocol`), a Host that no ingress matches (`foreign`), a redirect loop (`redirects`), a dead backend still
//! in use, errors (`backends`), what is not Rancher (`foreign`), headers that are wrong without a loop (`headers`), the
//! missing redirect of plain http, a mode that is not as configured.

use std::time::Duration;

use outrider_protocol::{
    BalancerMode, BalancerService, ConditionType, Fact, LoadBalancerFacts, Probe, ProbeKind as K,
    ProbeTarget, ReasonCode as R, Severity, Status, Timestamp, UnknownCause,
};

use super::answer::{self, Answer, host_of, redirect_host};
use super::view::{View, count, only_at};
use super::{backends, foreign, headers, proxy_protocol, redirects};
use crate::finding::Finding;

pub(super) const TYPE: ConditionType = ConditionType::LoadBalancerForwarding;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(30);

pub(super) fn judge(b: &LoadBalancerFacts, at: Timestamp) -> Finding {
    let view = View::new(b, at);
    proxy_protocol::judge(&view)
        .or_else(|| wants_certificate(&view))
        .or_else(|| nothing_asked(&view))
        .or_else(|| foreign::host_not_routed(&view))
        .or_else(|| redirects::judge(&view))
        .or_else(|| backends::down(&view))
        .or_else(|| backends::errors(&view))
        .or_else(|| refused(&view))
        .or_else(|| foreign::not_rancher(&view))
        .or_else(|| headers::wrong_address(&view))
        .or_else(|| foreign::led_away(&view))
        .or_else(|| redirect_missing(&view))
        .or_else(|| headers::forged(&view))
        .or_else(|| headers::believed(&view))
        .or_else(|| mode_differs(&view))
        .or_else(|| backends::idle(&view))
        .unwrap_or_else(|| works(&view))
        .waits(RAISE, CLEAR)
}

/// The handshake or the first answer asks for a certificate that no agent and no browser has. nginx says so in an
/// answer of 400.
fn wants_certificate(view: &View<'_>) -> Option<Finding> {
    let asked = view.b.probes.iter().filter(|p| {
        p.target == ProbeTarget::Balancer
            && !matches!(
                (&p.tls, &p.http),
                (Fact::Known { .. } | Fact::NotApplicable { .. }, Fact::NotApplicable { .. })
            )
            && answer::is_at_port(&p.peer, view.b.port)
    });
    let wants = |p: &&Probe| {
        matches!(answer::of(p, ""), Some(Answer::Silent(UnknownCause::Unauthenticated, _)))
            || p.http.value().is_some_and(|a| {
                a.status == 400 && a.body_start.contains("No required SSL certificate was sent")
            })
    };
    let asked: Vec<&Probe> = asked.collect();
    let wanting = asked.iter().filter(|p| wants(p));
    let first = wanting.clone().next()?;
    let message = format!(
        "{} wants a client certificate (mTLS) in {} of {} tries, first at {}; agents and browsers have none.",
        view.b.host,
        wanting.count(),
        asked.len(),
        first.peer
    );
    view.error(
        R::BalancerRefusesRequest,
        message,
        "Switch the demand off for this name where TLS ends (HAProxy: verify none on the bind line; nginx: \
         ssl_verify_client off; Traefik: tls.options clientAuth), or let it be optional.",
    )
}

fn nothing_asked(view: &View<'_>) -> Option<Finding> {
    let connected = super::is_connected(view.b);
    if connected && !view.through.is_empty() {
        return None;
    }
    let tried = view.b.probes.iter().any(|p| p.target == ProbeTarget::Balancer);
    let (cause, why) = match super::untried(view.b) {
        Some(untried) if !tried => untried,
        _ if tried && !connected => (
            UnknownCause::Unreachable,
            "no connection to its https port came about; see LoadBalancerReachable",
        ),
        _ => (UnknownCause::NotYetRead, "no request was sent through the balancer"),
    };
    Some(view.unknown(&cause, Severity::Warn, why))
}

fn refused(view: &View<'_>) -> Option<Finding> {
    let asked = if view.root.is_empty() { &view.through } else { &view.root };
    let code =
        asked.iter().find_map(|(_, a)| if let Answer::Refused(code) = a { Some(code) } else { None })?;
    let is_refused = |a: &Answer<'_>| matches!(a, Answer::Refused(_));
    let message = format!(
        "{} of {} tries through {} are refused with {code}{}.",
        count(asked, is_refused),
        asked.len(),
        view.b.host,
        only_at(asked, is_refused)
    );
    let advice = if *code == 400 {
        "A bare 400 is what one side speaking PROXY protocol, or http sent to an https port, looks like: compare both \
         sides of the balancer."
    } else {
        "See who answers: a filter in front of Rancher asks for a login or refuses this client."
    };
    view.error(R::BalancerRefusesRequest, message, advice)
}

fn redirect_missing(view: &View<'_>) -> Option<Finding> {
    let probes = view.b.probes.iter().filter(|p| p.kind == K::Redirect && p.target == ProbeTarget::Balancer);
    let tries: Vec<&Probe> = probes.collect();
    let redirects = |p: &&Probe| {
        p.http.value().is_some_and(|a| {
            (300..400).contains(&a.status)
                && a.location.get(..8).is_some_and(|s| s.eq_ignore_ascii_case("https://"))
                && redirect_host(&a.location).is_some_and(|to| to.eq_ignore_ascii_case(host_of(&view.b.host)))
        })
    };
    let wrong =
        tries.iter().find(|p| !redirects(p) && (p.http.value().is_some() || answer::of(p, "").is_some()))?;
    let good = tries.iter().filter(|p| redirects(p)).count();
    let got = match (wrong.http.value(), answer::of(wrong, "")) {
        (Some(a), _) if a.location.is_empty() => format!("{}", a.status),
        (Some(a), _) => format!("{} to {}", a.status, a.location),
        (None, Some(a)) => a.to_string(),
        (None, None) => return None,
    };
    let message = format!(
        "https works, but plain http on port {} does not redirect to https://{}: {got} at {}; {good} of {} tries redirect.",
        view.b.http_port,
        view.b.host,
        wrong.peer,
        tries.len()
    );
    Some(view.new_finding(Status::True, Severity::Warn, R::RedirectMissing, message).advice(
        "Let port 80 redirect to https (in L4 the ingress does it: pass 80 through as well), or set http_port = 0 if it \
         is closed on purpose.",
    ))
}

fn mode_differs(view: &View<'_>) -> Option<Finding> {
    let (mode, found) = (&view.b.mode, &view.b.found_mode);
    if *mode == BalancerMode::Auto || *found == BalancerMode::Auto || mode == found {
        return None;
    }
    let message = format!(
        "{} is configured as {mode} and works as {found}: {}. Tries at the backends were made as for {mode}.",
        view.b.host, view.b.found_by
    );
    Some(view.new_finding(Status::True, Severity::Warn, R::BalancerModeDiffers, message).advice(format!(
        "Set mode = \"{found}\" in [[load_balancer]], or leave it out.{}",
        if *found == BalancerMode::L7 {
            " In L7 Rancher needs tls=external (helm) and the forwarded headers from the balancer."
        } else {
            ""
        }
    )))
}

/// What stands behind the balancer, as people call it.
fn service(view: &View<'_>) -> &'static str {
    match view.b.service {
        BalancerService::Kubernetes => "the API servers",
        BalancerService::Supervisor => "the supervisors",
        _ => "Rancher",
    }
}

fn works(view: &View<'_>) -> Finding {
    let (good, n) = (count(&view.through, |a| matches!(a, Answer::Good)), view.through.len());
    let backends = match view.backends.len() {
        0 => String::new(),
        _ => format!("; {}", view.answering()),
    };
    let mode = match (&view.b.mode, view.b.found_by.as_str()) {
        (BalancerMode::Auto, "") => String::new(),
        (BalancerMode::Auto, why) => format!("; L4 or L7 is not known ({why})"),
        (mode, why) if *mode == view.b.found_mode && !why.is_empty() => format!("; {mode}: {why}"),
        (mode, _) => format!("; {mode} as configured"),
    };
    let message =
        format!("{} forwards to {}: {good} of {n} tries work{backends}{mode}.", view.b.host, service(view));
    view.new_finding(Status::True, Severity::Ok, R::ForwardingWorks, message)
}
