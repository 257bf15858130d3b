//! What answers in place of Rancher: an ingress that does not know the Host, another site, a login.

use outrider_protocol::{
    BalancerService, HttpAnswer, Probe, ProbeKind as K, ProbeTarget, ReasonCode as R, Severity, Status,
};

use super::answer::{Answer, host_of, redirect_host};
use super::author::{self, Author};
use super::exempt::{self, LEFT_OUT, Rule};
use super::view::{NAMED, View, count, only_at};
use crate::finding::Finding;
use crate::wording::names;

pub(super) fn host_not_routed(view: &View<'_>) -> Option<Finding> {
    let is_404 = |a: &Answer<'_>| *a == Answer::NotFound;
    let not_found = count(&view.root, is_404);
    let default_backend = view.b.probes.iter().any(|p| {
        p.kind == K::Nonsense
            && p.target == ProbeTarget::Balancer
            && p.http.value().is_some_and(|a| (200..300).contains(&a.status))
    });
    if not_found == 0 && !default_backend {
        return None;
    }
    let (host, tries) = (&view.b.host, view.root.len());
    let direct: Vec<&str> =
        view.with_header.iter().filter(|(_, a)| is_404(a)).map(|(peer, _)| *peer).collect();
    let all = view.with_header.len();
    let at = only_at(&view.root, is_404);
    let (message, advice) = if not_found == 0 {
        (
            format!(
                "A path that nobody serves answers 200 through {host}: a default backend answers in place of Rancher."
            ),
            HOST_ADVICE,
        )
    } else if !direct.is_empty() && direct.len() < all {
        (
            format!(
                "{} of {all} backends ({}) know no ingress for the Host {host}: 404 straight at them and in {not_found} of \
                 {tries} tries through the balancer{at}.",
                direct.len(),
                names(&direct, NAMED)
            ),
            "Look at the ingress on the named nodes: whether it runs there, has taken up Rancher's Ingress (its log), and \
             is of the class that Rancher's Ingress names. Until then take them out of the balancer.",
        )
    } else if !direct.is_empty() {
        (
            format!(
                "No ingress matches the Host {host}: 404 in {not_found} of {tries} tries through the balancer and in {all} \
                 of {all} straight at a backend."
            ),
            HOST_ADVICE,
        )
    } else if !at.is_empty() {
        (
            format!(
                "{host} answers 404 in {not_found} of {tries} tries through the balancer{at}: what answers at that address \
                 does not send this Host to Rancher."
            ),
            "Look at the named address: the balancer there sends the name elsewhere, changes the Host, or is another machine. \
             Every address of the name has to lead to the same Rancher.",
        )
    } else if all > 0 {
        (
            format!(
                "{host} answers 404 in {not_found} of {tries} tries through the balancer, but not straight at a \
                 backend: the balancer changes the Host or sends it elsewhere."
            ),
            "Let the balancer pass the Host header on unchanged, and send this name to Rancher's ingress.",
        )
    } else {
        (format!("No ingress matches the Host {host}: 404 in {not_found} of {tries} tries."), HOST_ADVICE)
    };
    view.error(R::HostNotRouted, message, advice)
}

const HOST_ADVICE: &str = "Compare the Host that the balancer sends with the one of Rancher's ingress (helm value hostname), and see whether \
     the ingress class exists.";

/// A path that Rancher answers to everybody is answered otherwise. Rancher redirects neither of the two, whatever header is
/// missing (rancher/dynamiclistener, `HTTPRedirect`), and installers of agents wait for 200 at /healthz (F10).
pub(super) fn not_rancher(view: &View<'_>) -> Option<Finding> {
    let judged = match view.b.service {
        BalancerService::Kubernetes => vec![(K::Healthz, "/readyz", "ok")],
        BalancerService::Supervisor => vec![(K::Ping, "/ping", "pong")],
        _ => vec![(K::Ping, "/ping", "pong"), (K::Healthz, "/healthz", "")],
    };
    judged.into_iter().find_map(|(kind, path, right)| foreign(view, &kind, path, right))
}

fn foreign(view: &View<'_>, kind: &K, path: &str, right: &str) -> Option<Finding> {
    let of_kind = |p: &&Probe| p.kind == *kind && p.target == ProbeTarget::Balancer;
    let answers: Vec<&HttpAnswer> =
        view.b.probes.iter().filter(of_kind).filter_map(|p| p.http.value()).collect();
    let is_api = view.b.service == BalancerService::Kubernetes;
    let is_foreign = |a: &HttpAnswer| match a.status {
        200..=299 => !right.is_empty() && (a.status != 200 || a.body_start.trim() != right),
        // An API server that asks who somebody is; failures are told by another rule.
        401 | 403 if is_api => false,
        status => status < 500,
    };
    let first = *answers.iter().find(|a| is_foreign(a))?;
    let wrong = answers.iter().filter(|a| is_foreign(a)).count();
    let host = &view.b.host;
    let to = if first.location.is_empty() { String::new() } else { format!(" to {}", first.location) };
    let body: String = first.body_start.chars().take(40).collect();
    let said = if body.is_empty() { String::new() } else { format!(" with {body:?}") };
    let place = if right.is_empty() { "200".to_owned() } else { format!("{right:?}") };
    let tries = format!("in {wrong} of {} tries", answers.len());
    let got = format!("GET {path} gave {}{to}{said} in place of {place} {tries}", first.status);
    if is_redirect(first) && redirect_host(&first.location).is_some_and(|to| !is_same(to, host)) {
        return view.error(
            R::NotRancher,
            format!(
                "What stands in front of {host} is not Rancher, which redirects neither /ping nor /healthz: {got}; a login or \
                 another site, by that address."
            ),
            LOGIN_ADVICE,
        );
    }
    if view.b.service == BalancerService::Rancher && rancher_answers(view) {
        // Traefik answers /ping by itself where it is told to (facts/rancher-load-balancer.md, 3).
        if (200..300).contains(&first.status) {
            let whose = match author::of(first) {
                (Author::Unknown, _) => "by something in front of it, as Traefik does".to_owned(),
                (author, how) => format!("by {author}, known by {how}"),
            };
            let message = format!(
                "{host} leads to Rancher, but {path} is answered {whose}: {got}. A health check of {path} says nothing of \
                 Rancher."
            );
            return Some(view.new_finding(Status::True, Severity::Warn, R::NotRancher, message).advice(
                "Let every path of this host go to Rancher (Traefik: no ping on the entry point that Rancher uses), or check \
                 Rancher's health by /healthz with its Host.",
            ));
        }
        if is_redirect(first) {
            let (rule, straight) = match kind {
                K::Ping => exempt::ping(view).unwrap_or((Rule::Either, String::new())),
                _ => (Rule::Either, String::new()),
            };
            let message = format!(
                "{host} leads to Rancher, but a redirect rule of {} singles {path} out: {got}{straight}. Rancher's own redirect \
                 to https leaves out {LEFT_OUT}, whatever header is missing. Health checks and joining agents that ask it \
                 fail.",
                rule.whose()
            );
            return view.error(R::NotRancher, message, rule.advice(view));
        }
        return view.error(
            R::NotRancher,
            format!(
                "{host} leads to Rancher, but something in front of it singles {path} out, which Rancher itself answers to \
                 everybody: {got}. Health checks and joining agents that ask it fail."
            ),
            format!("Send {path} of this host to Rancher too: look for a rule or a filter at the balancer or the ingress that names it."),
        );
    }
    let who = match view.b.service {
        BalancerService::Kubernetes => "no API server",
        BalancerService::Supervisor => "no supervisor",
        _ => "not Rancher",
    };
    let answers = if right.is_empty() { "with 200" } else { right };
    view.error(
        R::NotRancher,
        match view.b.service == BalancerService::Rancher && is_redirect(first) {
            true => format!(
                "What answers behind {host} is {who}: {got}; Rancher's own redirect to https leaves out {LEFT_OUT}."
            ),
            false => format!("What answers behind {host} is {who}: {got}."),
        },
        format!("See which server the balancer sends this name to; the right one answers {answers}."),
    )
}

const LOGIN_ADVICE: &str = "Take the login or the redirect away in front of Rancher, or let at least /ping, /healthz, /cacerts, /v3/connect and \
     /v3/connect/register pass without it: agents cannot log in there. Rancher has logins of its own (SAML, OIDC). If the \
     site has moved, use its new address as url.";

fn is_redirect(a: &HttpAnswer) -> bool {
    (300..400).contains(&a.status)
}

fn is_same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(host_of(b))
}

/// Whether an answer through the balancer other than that to /ping and /healthz is Rancher's own.
fn rancher_answers(view: &View<'_>) -> bool {
    view.b.probes.iter().filter(|p| p.target == ProbeTarget::Balancer).any(|p| {
        let asks_other = !matches!(p.kind, K::Ping | K::Healthz | K::ProxyPing);
        let is_its = |a: &HttpAnswer| {
            author::of(a).0 == Author::Rancher
                || p.kind == K::CaCerts
                    && a.status == 200
                    && a.body_start.starts_with("-----BEGIN CERTIFICATE")
                || p.kind == K::Root
                    && a.location.contains("/dashboard")
                    && redirect_host(&a.location).is_none()
        };
        asks_other && p.http.value().is_some_and(is_its)
            || p.kind == K::Ping && p.http.value().is_some_and(|a| author::of(a).0 == Author::Rancher)
    })
}

/// `/` leads to another host: nothing of Rancher's is seen there, whatever else is.
pub(super) fn led_away(view: &View<'_>) -> Option<Finding> {
    let is_away = |a: &Answer<'_>| matches!(a, Answer::Away(_));
    let to = view.root.iter().find_map(|(_, a)| if let Answer::Away(to) = a { Some(*to) } else { None })?;
    let (host, away, tries) = (&view.b.host, count(&view.root, is_away), view.root.len());
    let straight = match (count(&view.with_header, is_away), view.with_header.len()) {
        (_, 0) => "",
        (0, _) => "; straight at a backend it is not",
        _ => "; straight at a backend it is as well",
    };
    let seen = format!(
        "https://{host}/ is redirected to another host ({to}) in {away} of {tries} tries{}{straight}",
        only_at(&view.root, is_away)
    );
    if !rancher_answers(view) {
        let message = format!("What answers behind {host} is not Rancher: {seen}.");
        return view.error(R::NotRancher, message, LOGIN_ADVICE);
    }
    let message = format!(
        "{seen}, which Rancher does not do; other paths are answered by Rancher, so agents may pass."
    );
    Some(view.new_finding(Status::True, Severity::Warn, R::NotRancher, message).advice(
        "If a login stands in front on purpose, let /ping, /healthz, /cacerts, /v3/connect, /v3/connect/register and, for \
         kubeconfigs, /k8s pass without it; otherwise look for the rule at the balancer that redirects.",
    ))
}
