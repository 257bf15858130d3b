//! The paths that Rancher's own redirect leaves out: whoever redirects them to https is not Rancher.
//!
//! Rancher answers `/.well-known/…`, `/ping` and `/health…` whatever header is missing (rancher/dynamiclistener,
//! `HTTPRedirect`; `facts/rancher-load-balancer.md`, 2). So a redirect of `/ping` is a rule of what stands in front, and
//! the same try straight at a backend tells whose.

use outrider_protocol::{HttpAnswer, ProbeKind as K, ProbeTarget};

use super::answer::{host_of, redirect_host};
use super::author::Author;
use super::view::View;

/// What Rancher's redirect leaves out.
pub(super) const LEFT_OUT: &str = "/ping, /health… and /.well-known/";

/// Whose rule redirects `/ping`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Straight at a backend it is answered.
    Balancer,
    /// Straight at a backend it is redirected as well.
    Ingress,
    /// No try straight at a backend tells.
    Either,
}

impl Rule {
    /// Whose it is, after "of".
    pub(super) fn whose(self) -> &'static str {
        match self {
            Rule::Balancer => "the balancer",
            Rule::Ingress => "the ingress",
            Rule::Either => "the balancer or the ingress",
        }
    }

    /// The settings by which such a rule is made.
    pub(super) fn advice(self, view: &View<'_>) -> String {
        let balancer = "the balancer's rule that redirects to https (HAProxy: http-request redirect scheme https, without \
                        unless { ssl_fc }; nginx: return 301 or rewrite)";
        let ingress = match view.ingress() {
            Author::Nginx => {
                "the ingress's (ingress-nginx: nginx.ingress.kubernetes.io/ssl-redirect and force-ssl-redirect \"false\" on \
                 Rancher's Ingress; helm value tls=external does so)"
            }
            Author::Traefik => {
                "the ingress's (Traefik: a middleware redirectScheme, or redirections of the entry point web)"
            }
            _ => {
                "the ingress's (ingress-nginx: nginx.ingress.kubernetes.io/ssl-redirect and force-ssl-redirect \"false\" on \
                 Rancher's Ingress; Traefik: a middleware redirectScheme, or redirections of the entry point)"
            }
        };
        let which = match self {
            Rule::Balancer => balancer.to_owned(),
            Rule::Ingress => ingress.to_owned(),
            Rule::Either => format!("{balancer} or {ingress}"),
        };
        format!("Take away {which}, or let it leave out {LEFT_OUT} as Rancher's own does.")
    }
}

/// What `/ping` came to: answers, redirects to the same host among them, and those that said pong.
struct Pings {
    all: usize,
    redirected: usize,
    pong: usize,
}

fn pings(view: &View<'_>, target: ProbeTarget) -> Pings {
    let probes = view.b.probes.iter().filter(|p| p.kind == K::Ping && p.target == target);
    let answers: Vec<&HttpAnswer> = probes.filter_map(|p| p.http.value()).collect();
    let is_redirected = |a: &&&HttpAnswer| {
        let to = redirect_host(&a.location);
        (300..400).contains(&a.status) && to.is_none_or(|to| to.eq_ignore_ascii_case(host_of(&view.b.host)))
    };
    Pings {
        all: answers.len(),
        redirected: answers.iter().filter(is_redirected).count(),
        pong: answers.iter().filter(|a| a.body_start.trim() == "pong").count(),
    }
}

/// `/ping` through the balancer is redirected to the same host in every answer: whose rule that is, and how that is known,
/// as a clause that begins with a semicolon; it is empty where no try straight at a backend tells.
pub(super) fn ping(view: &View<'_>) -> Option<(Rule, String)> {
    let through = pings(view, ProbeTarget::Balancer);
    if through.all == 0 || through.redirected < through.all {
        return None;
    }
    let Pings { all, redirected, pong } = pings(view, ProbeTarget::Backend);
    Some(match all {
        0 => (Rule::Either, String::new()),
        _ if pong == all => {
            (Rule::Balancer, format!("; straight at a backend /ping is answered with pong ({pong} of {all})"))
        }
        _ if redirected == all => (
            Rule::Ingress,
            format!("; straight at a backend it is redirected as well ({redirected} of {all})"),
        ),
        _ => (
            Rule::Either,
            format!("; straight at a backend {pong} of {all} answer pong and {redirected} redirect"),
        ),
    })
}

/// Every backend that answers redirects `/ping`: a balancer whose health check asks for it takes them all out (E14). A
/// sentence that says so, with a space in front.
pub(super) fn fails_health_checks(view: &View<'_>) -> Option<String> {
    let Pings { all, redirected, .. } = pings(view, ProbeTarget::Backend);
    (all > 0 && redirected == all).then(|| {
        format!(
            " Straight at a backend /ping is redirected ({redirected} of {all}), by a rule of the ingress, for Rancher's own \
             redirect to https leaves out {LEFT_OUT}: a balancer whose health check asks for it takes every backend out."
        )
    })
}
