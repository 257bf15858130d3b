//! A redirect loop, told apart by the tries straight at a backend with and without the header: the ingress does not trust
//! it, the balancer does not send it, the balancer redirects https itself, or what answers on the nodes never arrives.

use outrider_protocol::{Fact, ProbeKind as K, ProbeTarget, ReasonCode as R};

use super::answer::Answer;
use super::exempt::{self, LEFT_OUT, Rule};
use super::headers;
use super::view::{NAMED, View, count, only_at};
use crate::finding::Finding;
use crate::wording::names;

/// The loop, and who makes it.
pub(super) fn judge(view: &View<'_>) -> Option<Finding> {
    let (location, followed) = view.root.iter().find_map(|(_, a)| match a {
        Answer::Loop(location, followed) => Some((*location, *followed)),
        _ => None,
    })?;
    let looping = count(&view.root, |a| matches!(a, Answer::Loop(..)));
    let how = match followed {
        0 => format!("redirects to itself ({location})"),
        n => format!("redirects without end (to {location}, and {n} times more until it was given up)"),
    };
    let is_loop = |a: &Answer<'_>| matches!(a, Answer::Loop(..));
    let seen = format!(
        "https://{}/ {how} in {looping} of {} tries{}",
        view.b.host,
        view.root.len(),
        only_at(&view.root, is_loop)
    );
    if let Some(first_only) = headers::first_only(view, &seen) {
        return Some(first_only);
    }
    let ignoring: Vec<&str> = loops(&view.with_header);
    // Whatever else it answers: it does not redirect, and does without the header.
    let redirected = loops(&view.without_header);
    let trusts = |(peer, a): &&(&str, Answer<'_>)| match a {
        Answer::Good | Answer::Away(_) => true,
        Answer::Loop(..) | Answer::Silent(..) => false,
        _ => redirected.contains(peer),
    };
    let trusting = view.with_header.iter().filter(trusts).count();
    let plain_loops = redirected.len();

    // Rancher redirects to https of the same path. Where that is what comes without the header, and what comes with it
    // leads from path to path, the header is honoured and somebody else redirects.
    let wanders = |(_, a): &&(&str, Answer<'_>)| matches!(a, Answer::Loop(_, followed) if *followed > 0);
    let wandering = view.with_header.iter().filter(wanders).count();
    if wandering > 0 && wandering == ignoring.len() && !view.without_header.iter().any(|a| wanders(&a)) {
        return view.error(
            R::RedirectLoop,
            format!(
                "{seen}, and straight at a backend with X-Forwarded-Proto: https as well ({wandering} of {}), from path to \
                 path: what answers there redirects without end, not the balancer.",
                view.with_header.len()
            ),
            "See what answers on the nodes: a login in front of Rancher, or a rewrite rule of the ingress.",
        );
    }
    if let Some(by_balancer) = balancer_redirects(view, &seen, trusting) {
        return Some(by_balancer);
    }
    if !ignoring.is_empty() {
        let message = format!(
            "{seen}, and straight at a backend it does so even with X-Forwarded-Proto: https ({} of {}: {}): the \
             ingress does not trust or forward the header.",
            ignoring.len(),
            view.with_header.len(),
            names(&ignoring, NAMED)
        );
        // Some ingresses honour it, and yet nothing comes through.
        if trusting > 0 && plain_loops > 0 && looping == view.root.len() {
            let message = format!(
                "{message} That explains some of the tries only: {trusting} of {} honour the header, so the balancer does \
                 not send it either, or sends this node to the same backend each time.",
                view.with_header.len()
            );
            let advice = format!("{} At the balancer: {SEND_ADVICE}", view.trust_advice());
            return view.error(R::ForwardedHeaderIgnored, message, advice);
        }
        if let Some((rule @ Rule::Ingress, straight)) = exempt::ping(view) {
            let message = format!(
                "{message} It has a redirect rule of its own: /ping is redirected too{straight}, and Rancher's own redirect \
                 leaves out {LEFT_OUT}."
            );
            let advice = format!("{} {}", view.trust_advice(), rule.advice(view));
            return view.error(R::ForwardedHeaderIgnored, message, advice);
        }
        return view.error(R::ForwardedHeaderIgnored, message, view.trust_advice());
    }
    if trusting > 0 && plain_loops > 0 {
        let message = format!(
            "{seen}; straight at a backend it answers with X-Forwarded-Proto: https ({trusting} of {}) and redirects \
             without it: the balancer does not send the header, or sends http, or a list such as \"https, http\", as two \
             proxies in a row make it.",
            view.with_header.len()
        );
        return view.error(R::ForwardedHeaderMissing, message, format!("Let the balancer {SEND_ADVICE}"));
    }
    if let (0, Some((rule, straight))) = (trusting, exempt::ping(view)) {
        let message = format!(
            "{seen}, and so is /ping{straight}. Rancher's own redirect to https leaves out {LEFT_OUT}, whatever header is \
             missing: a rule of {} redirects.",
            rule.whose()
        );
        return view.error(R::RedirectLoop, message, rule.advice(view));
    }
    let tried = !view.backends.is_empty();
    let direct = if trusting > 0 {
        "; straight at a backend it does not, with the header or without: the balancer itself redirects"
            .to_owned()
    } else if tried {
        format!("; no try straight at a backend tells whose fault it is: {}", view.answering())
    } else {
        "; no try straight at a backend tells whose fault it is".to_owned()
    };
    view.error(
        R::RedirectLoop,
        format!("{seen}{direct}."),
        if trusting > 0 {
            "Look for a rule at the balancer that redirects https to https."
        } else if tried && view.ports().any(|(_, port)| port.wants_proxy_protocol) {
            "The backends take PROXY protocol only, so they are not asked about the header. See both sides: the balancer has to \
             set X-Forwarded-Proto: https on every request, and the ingress to trust it (ingress-nginx: use-forwarded-headers \
             \"true\"; Traefik: forwardedHeaders.trustedIPs)."
        } else if tried {
            "Let this node reach the plain-http port of the backends (L7), or correct backends and backend_http_port in \
             [[load_balancer]]: a try with and one without X-Forwarded-Proto tells balancer from ingress."
        } else if matches!(view.b.backends, Some(Fact::NotApplicable { .. })) {
            "Backends are tried from server nodes only: see the same condition there, which tells balancer from ingress."
        } else {
            "Give the backends in [[load_balancer]] (L7: their plain-http port): a try with and one without \
             X-Forwarded-Proto tells balancer from ingress."
        },
    )
}

const SEND_ADVICE: &str = "set X-Forwarded-Proto: https (and X-Forwarded-Port 443, X-Forwarded-For, Host) on every request of \
                           every connection, not only on the first, in place of what a proxy before it wrote.";

/// The balancer redirects https itself: the header arrives, since what Rancher redirects without it is answered, or
/// even `/ping` is redirected, which Rancher never does (rancher/dynamiclistener, `HTTPRedirect`). Only where all tries
/// agree: of two balancers behind one name one may lack the header.
fn balancer_redirects(view: &View<'_>, seen: &str, trusting: usize) -> Option<Finding> {
    if trusting == 0 || view.root.iter().any(|(_, a)| !matches!(a, Answer::Loop(..))) {
        return None;
    }
    let statuses = |kind: K| -> Vec<u16> {
        let probes = view.b.probes.iter().filter(|p| p.kind == kind && p.target == ProbeTarget::Balancer);
        probes.filter_map(|p| p.http.value()).map(|a| a.status).collect()
    };
    let all = |kind: K, which: std::ops::Range<u16>| {
        let statuses = statuses(kind);
        !statuses.is_empty() && statuses.iter().all(|status| which.contains(status))
    };
    let how = if all(K::CaCerts, 200..201) {
        "/cacerts is answered through the balancer, so the header arrives"
    } else if all(K::Ping, 300..400) {
        "/ping is redirected too, which Rancher's own redirect leaves out"
    } else {
        return None;
    };
    view.error(
        R::RedirectLoop,
        format!("{seen}; straight at a backend it does not, and {how}: the balancer itself redirects."),
        "Look for a rule at the balancer that redirects https to https.",
    )
}

/// Addresses whose answer redirects to itself.
fn loops<'a>(answers: &[(&'a str, Answer<'_>)]) -> Vec<&'a str> {
    answers.iter().filter(|(_, a)| matches!(a, Answer::Loop(..))).map(|(address, _)| *address).collect()
}
