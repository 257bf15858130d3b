//! Backends that are down, and failures that no backend explains.

use outrider_protocol::{
    Probe, ProbeKind as K, ProbeTarget, ReasonCode as R, Severity, Status, UnknownCause,
};

use super::answer::{self, Answer};
use super::exempt::{self, Rule};
use super::view::{Backend, NAMED, View, count, only_at};
use crate::finding::Finding;
use crate::wording::names;

/// Backends that are down while requests fail.
pub(super) fn down(view: &View<'_>) -> Option<Finding> {
    let down = view.down();
    let failing = count(&view.through, Answer::is_failure);
    if down.is_empty() || failing == 0 {
        return None;
    }
    let (all, tries) = (view.backends.len(), view.through.len());
    let list = names(&down, NAMED);
    let lost = view.backends.values().filter(|b| b.is_down()).count();
    if lost == all {
        let message = format!(
            "Every backend of {} is down ({list}), and {failing} of {tries} tries through the balancer fail.",
            view.b.host
        );
        return view.error(
            R::BackendDown,
            message,
            "Look at the ingress and at Rancher on the named nodes first.",
        );
    }
    let message = format!(
        "{lost} of {all} backends down ({list}) and the balancer still uses it: {failing} of {tries} tries fail."
    );
    let advice = format!(
        "Repair the named backend, and give the balancer a health check that takes a dead one out ({}).",
        view.health_check()
    );
    view.error(R::DeadBackendInUse, message, advice)
}

pub(super) fn errors(view: &View<'_>) -> Option<Finding> {
    let (_, first) = view.through.iter().find(|(_, a)| a.is_failure())?;
    let failing = count(&view.through, Answer::is_failure);
    let by_tls = |a: &Answer<'_>| matches!(a, Answer::Silent(UnknownCause::TlsFailed, _));
    if count(&view.through, by_tls) == view.through.len() {
        // One fault, told once.
        let straight =
            if view.backends.is_empty() { String::new() } else { format!("; {}", view.answering()) };
        let why = format!("no handshake of TLS succeeds, see LoadBalancerReachable{straight}");
        return Some(view.unknown(&UnknownCause::TlsFailed, Severity::Info, &why));
    }
    let backends = match view.backends.len() {
        0 => "no backend is configured to be tried by itself".to_owned(),
        _ => view.answering(),
    };
    let message = format!(
        "{failing} of {} tries through {} fail ({first}{}){}; {backends}.{}",
        view.through.len(),
        view.b.host,
        detail(view, first),
        only_at(&view.through, Answer::is_failure),
        if fails_by_http2_only(view) { " Only HTTP/2 fails, which every browser takes." } else { "" }
    );
    if let (Answer::ServerError(_), Some(checked)) = (first, exempt::fails_health_checks(view)) {
        let advice = format!(
            "{} Or let the balancer check its backends by TCP, or by /healthz with Rancher's Host.",
            Rule::Ingress.advice(view)
        );
        return view.error(R::BackendError, format!("{message}{checked}"), advice);
    }
    view.error(
        R::BackendError,
        message,
        "Look at the balancer's log: which backend it chose, on which port, with TLS or without. Tries that fail now and \
         then only from nodes behind the balancer are a hairpin.",
    )
}

/// How the first failure went, and what came in place of an answer.
fn detail(view: &View<'_>, first: &Answer<'_>) -> String {
    let Answer::Silent(_, detail) = first else { return String::new() };
    let is_it = |p: &&Probe| {
        let asked = matches!(p.kind, K::Root | K::Ping | K::Healthz) && p.target == ProbeTarget::Balancer;
        asked && answer::of(p, &view.b.host).is_some_and(|a| a == *first)
    };
    let said = view.b.probes.iter().find(is_it).map_or("", |p| p.raw.as_str());
    let said: String = said.chars().take(60).collect();
    let said = if said.is_empty() { said } else { format!("; it said {said:?}") };
    format!(": {}{said}", detail.trim_end_matches('.'))
}

/// Connections that failed had HTTP/2 agreed on, and others work.
fn fails_by_http2_only(view: &View<'_>) -> bool {
    let mut by_http2 = false;
    for p in view.b.probes.iter().filter(|p| p.target == ProbeTarget::Balancer) {
        if let (Some(tls), Some(a)) = (p.tls.value(), answer::of(p, &view.b.host))
            && matches!(p.kind, K::Root | K::Ping | K::Healthz)
            && a.is_failure()
        {
            by_http2 |= tls.alpn == "h2";
            if tls.alpn != "h2" {
                return false;
            }
        }
    }
    by_http2 && view.through.iter().any(|(_, a)| !a.is_failure())
}

/// A backend down, or other than the rest, that no request met: the balancer has taken it out, or was lucky.
pub(super) fn idle(view: &View<'_>) -> Option<Finding> {
    let (down, misrouted, unlike) = (view.down(), view.misrouted(), view.unlike());
    let all = view.backends.len();
    let (reason, bad, what, advice) = if !down.is_empty() && view.backends.values().all(Backend::is_down) {
        // They cannot all be dead while every request is answered.
        (
            R::BackendDown,
            down,
            "do not answer this node; the balancer uses others, or this node may not reach these",
            "See whether backends in [[load_balancer]] (address and port) are those that the balancer uses, and correct them. If \
             they are, let this node reach them: without them nobody tells the balancer's faults from theirs.",
        )
    } else if !down.is_empty() {
        (
            R::BackendDown,
            down,
            "do not answer this node",
            "Bring the named backend back before the others are all there is. If it answers elsewhere, this node is not allowed \
             to reach it.",
        )
    } else if !misrouted.is_empty() {
        (
            R::BackendDown,
            misrouted,
            "do not know this Host",
            "Look at the ingress on the named nodes: whether it has taken up Rancher's Ingress and is of its class. The balancer \
             leaves them out, or these tries were lucky.",
        )
    } else if unlike.iter().any(|(_, a)| matches!(a, Answer::Loop(..))) {
        (
            R::ForwardedHeaderIgnored,
            told(unlike.iter().filter(|(_, a)| matches!(a, Answer::Loop(..)))),
            "redirect to the same again even with X-Forwarded-Proto: https, which the others take: whoever is sent there loops, \
             unless the ingress there trusts the balancer's address alone",
            view.trust_advice(),
        )
    } else {
        (
            R::BackendDown,
            told(unlike.iter()),
            "do not answer as the others do",
            "Look at the ingress on the named nodes, or at what else answers there: what is sent to them does not come to Rancher. \
             The balancer leaves them out, or these tries were lucky.",
        )
    };
    if bad.is_empty() {
        return None;
    }
    let message = format!(
        "{} of {} tries through {} work, but {} of {all} backends {what}: {}.",
        view.through.len(),
        view.through.len(),
        view.b.host,
        bad.len(),
        names(&bad, NAMED)
    );
    Some(view.new_finding(Status::True, Severity::Warn, reason, message).advice(advice))
}

fn told<'a>(answers: impl Iterator<Item = &'a (&'a str, &'a Answer<'a>)>) -> Vec<String> {
    answers.map(|(peer, answer)| format!("{peer}: {answer}")).collect()
}
