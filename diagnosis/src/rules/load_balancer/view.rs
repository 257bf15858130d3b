//! What was tried at one balancer and past it, sorted as the rules of forwarding look at it.

use std::collections::{BTreeMap, BTreeSet};

use outrider_protocol::{
    BalancerMode, Fact, LoadBalancerFacts, Probe, ProbeKind as K, ProbeTarget, ReasonCode, Severity, Status,
    Timestamp, UnknownCause,
};

use super::answer::{self, Answer, host_of};
use super::author::{self, Author};
use super::forwarding::TYPE;
use super::proxy_protocol;
use crate::finding::Finding;
use crate::wording::names;

/// Peers named in a message.
pub(super) const NAMED: usize = 6;

/// Answers with the peer (`address:port`) that gave them.
pub(super) type Answers<'a> = Vec<(&'a str, Answer<'a>)>;

pub(super) struct View<'a> {
    pub(super) b: &'a LoadBalancerFacts,
    at: Timestamp,
    /// `GET /` through the balancer.
    pub(super) root: Answers<'a>,
    /// Every request through the balancer that Rancher should answer.
    pub(super) through: Answers<'a>,
    /// Straight at a backend, with the header and without.
    pub(super) with_header: Answers<'a>,
    pub(super) without_header: Answers<'a>,
    /// Backends, each with the ports that the balancer can be using.
    pub(super) backends: BTreeMap<&'a str, Backend<'a>>,
}

/// A backend: one port, or two while it is not known whether the balancer speaks TLS to it.
#[derive(Default)]
pub(super) struct Backend<'a> {
    ports: BTreeMap<&'a str, Port<'a>>,
}

impl Backend<'_> {
    pub(super) fn is_down(&self) -> bool {
        self.ports.values().any(Port::is_down)
    }
}

/// What came of the tries at one port of a backend.
#[derive(Default)]
pub(super) struct Port<'a> {
    /// Answers of any kind, failures apart.
    pub(super) good: usize,
    failure: Option<Answer<'a>>,
    /// An answer that Rancher would not give: it does not serve this Host.
    wrong: Option<Answer<'a>>,
    /// Why it could not be tried, a cause of our own.
    untried: Option<&'a str>,
    /// It answers once a PROXY protocol header goes in front.
    pub(super) wants_proxy_protocol: bool,
}

impl<'a> Port<'a> {
    fn is_down(&self) -> bool {
        self.good == 0 && self.failure.is_some() && !self.wants_proxy_protocol
    }

    fn answers(&self) -> bool {
        self.good > 0 || self.wants_proxy_protocol
    }

    fn add(&mut self, probe: &'a Probe, host: &str) {
        match probe.kind {
            K::ProxyPing => {
                self.wants_proxy_protocol |= proxy_protocol::answers(probe);
                return;
            }
            // What becomes of these is the matter of LoadBalancerWebSocket and RancherCA.
            K::WebSocket | K::WebSocketOrigin | K::CaCerts => return,
            _ => {}
        }
        match answer::of(probe, host) {
            // One that takes the balancer's certificate only serves as it should.
            Some(Answer::Silent(UnknownCause::Unauthenticated, _)) => {}
            Some(failure) if failure.is_failure() => {
                self.failure.get_or_insert(failure);
            }
            Some(answer) => {
                self.good += 1;
                let is_wrong = matches!(answer, Answer::NotFound | Answer::Refused(_));
                // By a node's address Traefik answers 404, as it should.
                if is_wrong && probe.kind != K::HealthzByAddress {
                    self.wrong.get_or_insert(answer);
                }
            }
            None => {
                self.untried = self.untried.or(own_failure(probe));
            }
        }
    }
}

/// Why a try could not be made, where the reason lies with this machine.
fn own_failure(probe: &Probe) -> Option<&str> {
    fn detail<T>(fact: &Fact<T>) -> Option<&str> {
        match fact {
            Fact::Unknown { cause, detail, .. } if !answer::is_of_peer(cause) => Some(detail),
            _ => None,
        }
    }
    detail(&probe.tcp).or(detail(&probe.tls)).or(detail(&probe.http))
}

impl<'a> View<'a> {
    pub(super) fn new(b: &'a LoadBalancerFacts, at: Timestamp) -> Self {
        let answers = |kind: K, target: ProbeTarget| {
            let probes = b.probes.iter().filter(move |p| p.kind == kind && p.target == target);
            probes.filter_map(|p| answer::of(p, &b.host).map(|a| (p.peer.as_str(), a)))
        };
        let only = |kind: K| answers(kind, ProbeTarget::Balancer);
        let root: Answers<'_> = only(K::Root).collect();
        let through = root.iter().cloned().chain(only(K::Ping)).chain(only(K::Healthz)).collect();
        Self {
            b,
            at,
            root,
            through,
            with_header: answers(K::ForwardedRoot, ProbeTarget::Backend).collect(),
            without_header: answers(K::PlainRoot, ProbeTarget::Backend).collect(),
            backends: backends(b),
        }
    }

    pub(super) fn new_finding(
        &self,
        status: Status,
        severity: Severity,
        reason: ReasonCode,
        message: String,
    ) -> Finding {
        Finding::new(TYPE, status, severity, reason, self.at, message)
    }

    pub(super) fn unknown(&self, cause: &UnknownCause, severity: Severity, why: &str) -> Finding {
        let message = format!("What {} forwards to cannot be told: {why}.", self.b.host);
        Finding::unknown(TYPE, cause, severity, self.at, message)
    }

    pub(super) fn error(
        &self,
        reason: ReasonCode,
        message: String,
        advice: impl Into<String>,
    ) -> Option<Finding> {
        Some(self.new_finding(Status::False, Severity::Error, reason, message).advice(advice))
    }

    /// The ingress straight at a backend, where it can be recognised: what answers through the balancer may be the
    /// balancer itself.
    pub(super) fn ingress(&self) -> Author {
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
    pub(super) fn health_check(&self) -> &'static str {
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

    /// Every port of every backend, by `address:port`.
    pub(super) fn ports(&self) -> impl Iterator<Item = (&'a str, &Port<'a>)> {
        self.backends.values().flat_map(|b| &b.ports).map(|(peer, port)| (*peer, port))
    }

    /// Ports that are down, and how.
    pub(super) fn down(&self) -> Vec<String> {
        let down = self.ports().filter(|(_, port)| port.is_down());
        down.map(|(peer, port)| match &port.failure {
            Some(failure) => format!("{peer}: {failure}"),
            None => peer.to_owned(),
        })
        .collect()
    }

    /// Ports that answer and serve something else than this Host.
    pub(super) fn misrouted(&self) -> Vec<String> {
        let wrong = self.ports().filter(|(_, port)| port.wrong == Some(Answer::NotFound));
        wrong.map(|(peer, _)| format!("{peer}: 404")).collect()
    }

    /// Ports that answer, and otherwise than another that serves `/` or `/ping` as it should: what all do alike may be
    /// meant for the balancer alone, a difference is not.
    pub(super) fn unlike(&self) -> Vec<(&'a str, &Answer<'a>)> {
        let strays = |a: &Answer<'_>| matches!(a, Answer::Loop(..) | Answer::Away(_));
        let led_on = self.with_header.iter().filter(|(_, a)| strays(a)).map(|(peer, a)| (*peer, a));
        let refused =
            self.ports().filter(|(_, port)| !port.wants_proxy_protocol).filter_map(|(peer, port)| {
                port.wrong.as_ref().filter(|a| matches!(a, Answer::Refused(_))).map(|a| (peer, a))
            });
        let unlike: BTreeMap<&str, &Answer<'_>> = refused.chain(led_on).collect();
        let as_it_should = |(peer, port): (&str, &Port<'_>)| {
            port.good > 0 && port.wrong.is_none() && !unlike.contains_key(peer)
        };
        if self.ports().any(as_it_should) { unlike.into_iter().collect() } else { Vec::new() }
    }

    /// How many backends answer by themselves, and what of the others.
    pub(super) fn answering(&self) -> String {
        let all = self.backends.len();
        let mut good = 0;
        let mut others = Vec::new();
        for backend in self.backends.values() {
            let mut flaw = None;
            for (peer, port) in &backend.ports {
                flaw = flaw.or(match port {
                    port if port.wants_proxy_protocol && port.good == 0 => {
                        Some(format!("{peer} only after a PROXY protocol header"))
                    }
                    Port { failure: Some(failure), good: 0, .. } => Some(format!("{peer}: {failure}")),
                    Port { untried: Some(why), good: 0, .. } => {
                        Some(format!("{peer} could not be tried: {}", why.trim_end_matches('.')))
                    }
                    port if port.wants_proxy_protocol && port.wrong.is_some() => {
                        Some(format!("{peer} only after a PROXY protocol header"))
                    }
                    Port { wrong: Some(wrong), .. } => Some(format!("{peer} answers {wrong}")),
                    _ => None,
                });
            }
            good += usize::from(flaw.is_none());
            others.extend(flaw);
        }
        if others.is_empty() {
            return format!("{all} of {all} backends answer by themselves");
        }
        format!("{good} of {all} backends answer by themselves ({})", names(&others, NAMED))
    }
}

/// Backends with the ports that the balancer can be using. While the mode is being found out, a backend's TLS port and its
/// plain one are tried, and one that nobody uses may well be closed.
fn backends(b: &LoadBalancerFacts) -> BTreeMap<&str, Backend<'_>> {
    let mut ports: BTreeMap<&str, Port<'_>> = BTreeMap::new();
    for p in b.probes.iter().filter(|p| p.target == ProbeTarget::Backend) {
        ports.entry(&p.peer).or_default().add(p, &b.host);
    }
    let configured = match &b.backends {
        Some(Fact::Known { value, .. }) => value.as_slice(),
        _ => &[],
    };
    let is_plain = |peer: &str| {
        let derived = !configured.is_empty() && configured.iter().all(|one| one != peer);
        let probes = || b.probes.iter().filter(|p| p.peer == peer);
        let asked_plainly =
            |p: &Probe| matches!(p.kind, K::ForwardedRoot | K::PlainRoot | K::ForwardedAddress);
        let speaks_plainly =
            probes().any(|p| p.http.value().is_some()) && probes().all(|p| p.tls.value().is_none());
        derived || speaks_plainly || probes().any(asked_plainly)
    };
    let (plain, secure): (BTreeMap<_, _>, BTreeMap<_, _>) =
        ports.into_iter().partition(|(peer, _)| is_plain(peer));
    let answers = |side: &BTreeMap<&str, Port<'_>>| side.values().any(Port::answers);
    let both = |plain: BTreeMap<_, _>, secure| plain.into_iter().chain(secure).collect::<BTreeMap<_, _>>();
    let used = if plain.is_empty() || secure.is_empty() {
        both(plain, secure)
    } else {
        match b.mode {
            BalancerMode::L4 => secure,
            // One that speaks TLS to its backends again.
            BalancerMode::L7 if !answers(&plain) && answers(&secure) => secure,
            BalancerMode::L7 => plain,
            _ if answers(&plain) && !answers(&secure) => plain,
            _ if answers(&secure) && !answers(&plain) => secure,
            _ => both(plain, secure),
        }
    };
    let mut found: BTreeMap<&str, Backend<'_>> = BTreeMap::new();
    let peers: Vec<&str> = used.keys().copied().collect();
    for (peer, port) in used {
        // A plain port that was tried beside a configured one is of the same backend.
        let own = || peers.iter().find(|other| host_of(other) == host_of(peer) && !is_plain(other));
        let key = if is_plain(peer) { own().copied().unwrap_or(peer) } else { peer };
        found.entry(key).or_default().ports.insert(peer, port);
    }
    found
}

/// The ports of backends that the balancer can be using: while the mode is being found out, others are tried too.
pub(crate) fn used_ports(b: &LoadBalancerFacts) -> BTreeSet<&str> {
    backends(b).into_values().flat_map(|backend| backend.ports.into_keys()).collect()
}

/// How many answers are such.
pub(super) fn count<'a>(all: &[(&str, Answer<'a>)], which: impl Fn(&Answer<'a>) -> bool) -> usize {
    all.iter().filter(|(_, answer)| which(answer)).count()
}

/// Where answers are such, as a clause that begins with a semicolon, where that is so at some addresses and not at
/// others: then the address is the fault.
pub(super) fn only_at<'a>(all: &[(&str, Answer<'a>)], which: impl Fn(&Answer<'a>) -> bool) -> String {
    let mut by_peer: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (peer, answer) in all {
        let (such, tries) = by_peer.entry(peer).or_default();
        *such += usize::from(which(answer));
        *tries += 1;
    }
    let (bad, good): (Vec<_>, Vec<_>) = by_peer.iter().partition(|(_, (such, _))| *such > 0);
    if bad.is_empty() || good.is_empty() {
        return String::new();
    }
    let bad = bad.iter().map(|(peer, (such, tries))| format!("{peer} ({such} of {tries})"));
    format!("; only at {}, not at {}", names(bad, NAMED), names(good.iter().map(|(peer, _)| **peer), NAMED))
}
