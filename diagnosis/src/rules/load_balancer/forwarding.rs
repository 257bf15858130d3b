//! `LoadBalancerForwarding`: whether Rancher answers behind the balancer, and if not, whose fault it is.
//!
//! The rules run from the fault that explains the others to the one that is explained by none: PROXY protocol on one side
//! only (`proxy_protocol`), a Host that no ingress matches, a redirect loop (`redirects`), a dead backend still in use, errors, what is not Rancher, headers that are wrong
//! without a loop (`headers`), the missing redirect of plain http, a mode that is not as configured.

use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{
    BalancerMode, BalancerService, ConditionType, Fact, HttpAnswer, LoadBalancerFacts, Probe, ProbeKind as K,
    ProbeTarget, ReasonCode as R, Severity, Status, Timestamp, UnknownCause,
};

use super::answer::{self, Answer, host_of};
use super::author::{self, Author};
use super::{headers, proxy_protocol, redirects};
use crate::finding::Finding;
use crate::wording::names;

const TYPE: ConditionType = ConditionType::LoadBalancerForwarding;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(30);
pub(super) const NAMED: usize = 6;

pub(super) fn judge(b: &LoadBalancerFacts, at: Timestamp) -> Finding {
    let view = View::new(b, at);
    proxy_protocol::judge(&view)
        .or_else(|| view.wants_certificate())
        .or_else(|| view.nothing_asked())
        .or_else(|| view.host_not_routed())
        .or_else(|| redirects::judge(&view))
        .or_else(|| view.backends_down())
        .or_else(|| view.server_errors())
        .or_else(|| view.refused())
        .or_else(|| view.not_rancher())
        .or_else(|| headers::wrong_address(&view))
        .or_else(|| view.redirect_missing())
        .or_else(|| headers::forged(&view))
        .or_else(|| headers::believed(&view))
        .or_else(|| view.mode_differs())
        .or_else(|| view.idle_backend_down())
        .unwrap_or_else(|| view.works())
        .waits(RAISE, CLEAR)
}

pub(super) struct View<'a> {
    pub(super) b: &'a LoadBalancerFacts,
    at: Timestamp,
    /// `GET /` through the balancer.
    pub(super) root: Vec<Answer<'a>>,
    /// Every request through the balancer that Rancher should answer.
    pub(super) through: Vec<Answer<'a>>,
    /// Straight at a backend, with the header and without, by address.
    pub(super) with_header: Vec<(&'a str, Answer<'a>)>,
    pub(super) without_header: Vec<(&'a str, Answer<'a>)>,
    /// Backends by address: good answers, failures, and the first failure.
    pub(super) backends: BTreeMap<&'a str, Backend<'a>>,
}

#[derive(Default)]
pub(super) struct Backend<'a> {
    pub(super) good: usize,
    pub(super) failure: Option<Answer<'a>>,
    /// It answers once a PROXY protocol header goes in front.
    pub(super) wants_proxy_protocol: bool,
}

impl Backend<'_> {
    pub(super) fn is_down(&self) -> bool {
        self.good == 0 && self.failure.is_some() && !self.wants_proxy_protocol
    }
}

impl<'a> View<'a> {
    fn new(b: &'a LoadBalancerFacts, at: Timestamp) -> Self {
        let answers = |kind: K, target: ProbeTarget| {
            let probes = b.probes.iter().filter(move |p| p.kind == kind && p.target == target);
            probes.filter_map(|p| answer::of(p, &b.host).map(|a| (host_of(&p.peer), a)))
        };
        let only = |kind: K| answers(kind, ProbeTarget::Balancer).map(|(_, a)| a);
        let root: Vec<_> = only(K::Root).collect();
        let through = root.iter().cloned().chain(only(K::Ping)).chain(only(K::Healthz)).collect();
        let mut view = Self {
            b,
            at,
            root,
            through,
            with_header: answers(K::ForwardedRoot, ProbeTarget::Backend).collect(),
            without_header: answers(K::PlainRoot, ProbeTarget::Backend).collect(),
            backends: BTreeMap::new(),
        };
        for p in b.probes.iter().filter(|p| p.target == ProbeTarget::Backend) {
            view.add_backend(p);
        }
        view
    }

    fn add_backend(&mut self, probe: &'a Probe) {
        let backend = self.backends.entry(host_of(&probe.peer)).or_default();
        match probe.kind {
            K::ProxyPing => {
                backend.wants_proxy_protocol |= proxy_protocol::answers(probe);
                return;
            }
            // What becomes of these is the matter of LoadBalancerWebSocket and RancherCA.
            K::WebSocket | K::WebSocketOrigin | K::CaCerts => return,
            _ => {}
        }
        match answer::of(probe, &self.b.host) {
            // One that takes the balancer's certificate only serves as it should.
            Some(Answer::Silent(UnknownCause::Unauthenticated, _)) => {}
            Some(failure) if failure.is_failure() => {
                backend.failure.get_or_insert(failure);
            }
            Some(_) => backend.good += 1,
            None => {}
        }
    }

    pub(super) fn new_finding(
        &self,
        status: Status,
        severity: Severity,
        reason: R,
        message: String,
    ) -> Finding {
        Finding::new(TYPE, status, severity, reason, self.at, message)
    }

    pub(super) fn error(&self, reason: R, message: String, advice: impl Into<String>) -> Option<Finding> {
        Some(self.new_finding(Status::False, Severity::Error, reason, message).advice(advice))
    }

    /// The handshake or the first answer asks for a certificate that no agent and no browser has. nginx says so in an
    /// answer of 400.
    fn wants_certificate(&self) -> Option<Finding> {
        let asked = self.b.probes.iter().filter(|p| {
            p.target == ProbeTarget::Balancer
                && !matches!(
                    (&p.tls, &p.http),
                    (Fact::Known { .. } | Fact::NotApplicable { .. }, Fact::NotApplicable { .. })
                )
                && answer::is_at_port(&p.peer, self.b.port)
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
            self.b.host,
            wanting.count(),
            asked.len(),
            first.peer
        );
        self.error(
            R::BalancerRefusesRequest,
            message,
            "Switch the demand off for this name where TLS ends (HAProxy: verify none on the bind line; nginx: \
             ssl_verify_client off; Traefik: tls.options clientAuth), or let it be optional.",
        )
    }

    fn nothing_asked(&self) -> Option<Finding> {
        let connected =
            self.b.probes.iter().any(|p| p.target == ProbeTarget::Balancer && p.tcp.value().is_some());
        if connected && !self.through.is_empty() {
            return None;
        }
        let tried = self.b.probes.iter().any(|p| p.target == ProbeTarget::Balancer);
        let (cause, message) = if tried && !connected {
            (UnknownCause::Unreachable, "no connection to the balancer stood; see LoadBalancerReachable")
        } else {
            (UnknownCause::NotYetRead, "no request was sent through the balancer")
        };
        let message = format!("What {} forwards to cannot be told: {message}.", self.b.host);
        Some(Finding::unknown(TYPE, &cause, Severity::Warn, self.at, message))
    }

    fn host_not_routed(&self) -> Option<Finding> {
        let not_found = count(&self.root, |a| *a == Answer::NotFound);
        let default_backend = self.b.probes.iter().any(|p| {
            p.kind == K::Nonsense
                && p.target == ProbeTarget::Balancer
                && p.http.value().is_some_and(|a| (200..300).contains(&a.status))
        });
        if not_found == 0 && !default_backend {
            return None;
        }
        let (host, tries) = (&self.b.host, self.root.len());
        let direct = self.with_header.iter().map(|(_, a)| a);
        let direct_404 = direct.clone().filter(|a| **a == Answer::NotFound).count();
        let (message, advice) = if not_found == 0 {
            (
                format!(
                    "A path that nobody serves answers 200 through {host}: a default backend answers in place of Rancher."
                ),
                HOST_ADVICE,
            )
        } else if direct_404 > 0 {
            (
                format!(
                    "No ingress matches the Host {host}: 404 in {not_found} of {tries} tries through the balancer and in \
                     {direct_404} of {} straight at a backend.",
                    self.with_header.len()
                ),
                HOST_ADVICE,
            )
        } else if direct.count() > 0 {
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
        self.error(R::HostNotRouted, message, advice)
    }

    fn mode_differs(&self) -> Option<Finding> {
        let (mode, found) = (&self.b.mode, &self.b.found_mode);
        if *mode == BalancerMode::Auto || *found == BalancerMode::Auto || mode == found {
            return None;
        }
        let message = format!(
            "{} is configured as {mode} and works as {found}: {}. Tries at the backends were made as for {mode}.",
            self.b.host, self.b.found_by
        );
        Some(self.new_finding(Status::True, Severity::Warn, R::BalancerModeDiffers, message).advice(format!(
            "Set mode = \"{found}\" in [[load_balancer]], or leave it out.{}",
            if *found == BalancerMode::L7 {
                " In L7 Rancher needs tls=external (helm) and the forwarded headers from the balancer."
            } else {
                ""
            }
        )))
    }

    /// The ingress straight at a backend, where it can be recognised: what answers through the balancer may be the
    /// balancer itself.
    fn ingress(&self) -> Author {
        let straight = self.b.probes.iter().filter(|p| p.target == ProbeTarget::Backend);
        author::ingress(straight.filter_map(|p| p.http.value()))
    }

    /// The setting of the ingress that answers.
    pub(super) fn trust_advice(&self) -> &'static str {
        match self.ingress() {
            Author::Nginx => {
                "ingress-nginx: set use-forwarded-headers to \"true\" in its configuration map (RKE2: HelmChartConfig \
                 rke2-ingress-nginx, controller.config). After an upgrade of the ingress check this again."
            }
            Author::Traefik => {
                "Traefik: set forwardedHeaders.trustedIPs of its entry points to the balancer's addresses (K3s and RKE2: \
                 HelmChartConfig, ports.web and ports.websecure). After an upgrade of the ingress check this again."
            }
            _ => {
                "ingress-nginx: set use-forwarded-headers to \"true\"; Traefik (K3s, newer RKE2): set \
                 forwardedHeaders.trustedIPs of its entry points to the balancer's addresses. After an upgrade of the \
                 ingress check this again."
            }
        }
    }

    /// A health check that suits the ingress: Traefik answers /healthz only to the right Host, ingress-nginx to any (E14).
    fn health_check(&self) -> &'static str {
        match self.ingress() {
            Author::Nginx => {
                "TCP on port 80 every 10 s, or GET /healthz; HAProxy: option httpchk and check on the server lines"
            }
            Author::Traefik => {
                "TCP on port 80 every 10 s, or GET /ping with the Rancher Host and the body pong: to another Host Traefik \
                 answers 404; HAProxy: check on the server lines"
            }
            _ => {
                "TCP on port 80 every 10 s, or GET /healthz with the Rancher Host; HAProxy: check on the server lines, nginx: \
                 max_fails=3 fail_timeout=5s"
            }
        }
    }

    fn down(&self) -> Vec<String> {
        let down = self.backends.iter().filter(|(_, b)| b.is_down());
        down.map(|(address, b)| match &b.failure {
            Some(failure) => format!("{address}: {failure}"),
            None => (*address).to_owned(),
        })
        .collect()
    }

    /// Backends that are down while requests fail.
    fn backends_down(&self) -> Option<Finding> {
        let down = self.down();
        let failing = count(&self.through, Answer::is_failure);
        if down.is_empty() || failing == 0 {
            return None;
        }
        let (all, tries) = (self.backends.len(), self.through.len());
        let list = names(&down, NAMED);
        if down.len() == all {
            let message = format!(
                "Every backend of {} is down ({list}), and {failing} of {tries} tries through the balancer fail.",
                self.b.host
            );
            return self.error(
                R::BackendDown,
                message,
                "Look at the ingress and at Rancher on the named nodes first.",
            );
        }
        let message = format!(
            "{} of {all} backends down ({list}) and the balancer still uses it: {failing} of {tries} tries fail.",
            down.len()
        );
        let advice = format!(
            "Repair the named backend, and give the balancer a health check that takes a dead one out ({}).",
            self.health_check()
        );
        self.error(R::DeadBackendInUse, message, advice)
    }

    fn server_errors(&self) -> Option<Finding> {
        let first = self.through.iter().find(|a| a.is_failure())?;
        let failing = count(&self.through, Answer::is_failure);
        let backends = match self.backends.len() {
            0 => "no backend is configured to be tried by itself".to_owned(),
            n => format!("{n} of {n} backends answer by themselves"),
        };
        let message = format!(
            "{failing} of {} tries through {} fail ({first}); {backends}.{}",
            self.through.len(),
            self.b.host,
            if self.fails_by_http2_only() { " Only HTTP/2 fails, which every browser takes." } else { "" }
        );
        self.error(
            R::BackendError,
            message,
            "Look at the balancer's log: which backend it chose, on which port, with TLS or without. Tries that fail now and \
             then only from nodes behind the balancer are a hairpin.",
        )
    }

    /// Connections that failed had HTTP/2 agreed on, and others work.
    fn fails_by_http2_only(&self) -> bool {
        let mut by_http2 = false;
        for p in self.b.probes.iter().filter(|p| p.target == ProbeTarget::Balancer) {
            if let (Some(tls), Some(a)) = (p.tls.value(), answer::of(p, &self.b.host))
                && matches!(p.kind, K::Root | K::Ping | K::Healthz)
                && a.is_failure()
            {
                by_http2 |= tls.alpn == "h2";
                if tls.alpn != "h2" {
                    return false;
                }
            }
        }
        by_http2 && self.through.iter().any(|a| !a.is_failure())
    }

    fn refused(&self) -> Option<Finding> {
        let asked = if self.root.is_empty() { &self.through } else { &self.root };
        let codes: Vec<u16> =
            asked.iter().filter_map(|a| if let Answer::Refused(c) = a { Some(*c) } else { None }).collect();
        let code = codes.first()?;
        let message = format!(
            "{} of {} tries through {} are refused with {code}.",
            codes.len(),
            asked.len(),
            self.b.host
        );
        let advice = if *code == 400 {
            "A bare 400 is what one side speaking PROXY protocol, or http sent to an https port, looks like: compare both \
             sides of the balancer."
        } else {
            "See who answers: a filter in front of Rancher asks for a login or refuses this client."
        };
        self.error(R::BalancerRefusesRequest, message, advice)
    }

    fn not_rancher(&self) -> Option<Finding> {
        let (kind, path, right, who) = match self.b.service {
            BalancerService::Kubernetes => (K::Healthz, "/readyz", "ok", "no API server"),
            BalancerService::Supervisor => (K::Ping, "/ping", "pong", "no supervisor"),
            _ => (K::Ping, "/ping", "pong", "not Rancher"),
        };
        let probes = self.b.probes.iter().filter(|p| p.kind == kind && p.target == ProbeTarget::Balancer);
        let answers: Vec<_> = probes.filter_map(|p| p.http.value()).collect();
        let is_foreign =
            |a: &HttpAnswer| a.status == 404 || (a.status == 200 && a.body_start.trim() != right);
        let foreign = answers.iter().find(|a| is_foreign(a))?;
        let wrong = answers.iter().filter(|a| is_foreign(a)).count();
        let message = format!(
            "What answers behind {} is {who}: GET {path} gave {} with {:?} in place of {right:?} in {wrong} of {} tries.",
            self.b.host,
            foreign.status,
            foreign.body_start.chars().take(40).collect::<String>(),
            answers.len()
        );
        self.error(
            R::NotRancher,
            message,
            format!("See which server the balancer sends this name to; the right one answers {right}."),
        )
    }

    fn redirect_missing(&self) -> Option<Finding> {
        let probes =
            self.b.probes.iter().filter(|p| p.kind == K::Redirect && p.target == ProbeTarget::Balancer);
        let tries: Vec<&Probe> = probes.collect();
        let redirects = |p: &&Probe| {
            p.http.value().is_some_and(|a| {
                (300..400).contains(&a.status)
                    && a.location.get(..8).is_some_and(|s| s.eq_ignore_ascii_case("https://"))
            })
        };
        let wrong = tries
            .iter()
            .find(|p| !redirects(p) && (p.http.value().is_some() || answer::of(p, "").is_some()))?;
        let good = tries.iter().filter(|p| redirects(p)).count();
        let got = match (wrong.http.value(), answer::of(wrong, "")) {
            (Some(a), _) if a.location.is_empty() => format!("{}", a.status),
            (Some(a), _) => format!("{} to {}", a.status, a.location),
            (None, Some(a)) => a.to_string(),
            (None, None) => return None,
        };
        let message = format!(
            "https works, but plain http on port {} does not redirect to it: {got} at {}; {good} of {} tries redirect.",
            self.b.http_port,
            wrong.peer,
            tries.len()
        );
        Some(self.new_finding(Status::True, Severity::Warn, R::RedirectMissing, message).advice(
            "Let port 80 redirect to https (in L4 the ingress does it: pass 80 through as well), or set http_port = 0 if it \
             is closed on purpose.",
        ))
    }

    /// A backend down that no request met: the balancer has taken it out, or was lucky.
    fn idle_backend_down(&self) -> Option<Finding> {
        let down = self.down();
        if down.is_empty() {
            return None;
        }
        let all = self.backends.len();
        let message = format!(
            "{} of {} tries through {} work, but {} of {all} backends do not answer this node: {}.",
            self.through.len(),
            self.through.len(),
            self.b.host,
            down.len(),
            names(&down, NAMED)
        );
        Some(self.new_finding(Status::True, Severity::Warn, R::BackendDown, message).advice(
            "Bring the named backend back before the others are all there is. If it answers elsewhere, this node is not \
             allowed to reach it.",
        ))
    }

    /// What stands behind the balancer, as people call it.
    fn service(&self) -> &'static str {
        match self.b.service {
            BalancerService::Kubernetes => "the API servers",
            BalancerService::Supervisor => "the supervisors",
            _ => "Rancher",
        }
    }

    fn works(&self) -> Finding {
        let (good, n) = (count(&self.through, |a| *a == Answer::Good), self.through.len());
        let backends = match self.backends.len() {
            0 => String::new(),
            n => format!("; {n} of {n} backends answer by themselves"),
        };
        let mode = match (&self.b.mode, self.b.found_by.as_str()) {
            (BalancerMode::Auto, "") => String::new(),
            (BalancerMode::Auto, why) => format!("; L4 or L7 is not known ({why})"),
            (mode, why) if *mode == self.b.found_mode && !why.is_empty() => format!("; {mode}: {why}"),
            (mode, _) => format!("; {mode} as configured"),
        };
        let message = format!(
            "{} forwards to {}: {good} of {n} tries work{backends}{mode}.",
            self.b.host,
            self.service()
        );
        self.new_finding(Status::True, Severity::Ok, R::ForwardingWorks, message)
    }
}

const HOST_ADVICE: &str = "Compare the Host that the balancer sends with the one of Rancher's ingress (helm value hostname), and see whether \
     the ingress class exists.";

pub(super) fn count<T>(all: &[T], which: impl Fn(&T) -> bool) -> usize {
    all.iter().filter(|a| which(a)).count()
}
