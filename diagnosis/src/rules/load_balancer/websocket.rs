//! `LoadBalancerWebSocket`: whether the upgrade of a WebSocket reaches Rancher (`facts/rancher-load-balancer.md`, E7, E8,
//! E10).
//!
//! Rancher asks who somebody is before it looks at the upgrade (rancher/remotedialer:server.go), so its 401 to a caller
//! without a token proves that the request arrived and nothing more. What proves the upgrade is its refusal of a browser
//! from a foreign site: 403 `origin not allowed`, given before any login and only where `Connection: Upgrade` arrived
//! (rancher/rancher:pkg/websocket/handler.go). So the try as such a browser is judged, and the one as an agent only
//! where that was not made.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, HttpAnswer, LoadBalancerFacts, Probe, ProbeKind as K, ProbeTarget, ReasonCode as R,
    Severity, Status, Timestamp, UnknownCause,
};

use super::answer::{self, Answer, host_of, redirect_host};
use super::author::{self, Author};
use super::idle;
use crate::finding::Finding;
use crate::wording::names;

const TYPE: ConditionType = ConditionType::LoadBalancerWebSocket;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(30);
const NAMED: usize = 6;

/// What became of one handshake.
#[derive(Clone, Debug, PartialEq)]
enum Seen<'a> {
    /// The WebSocket was opened, or refused in the words that prove the upgrade.
    Passed(&'a HttpAnswer),
    /// Rancher's refusal of a request that it did not take for an upgrade.
    Lost(&'a HttpAnswer),
    /// A refusal that proves nothing, by nobody known.
    Unproven(&'a HttpAnswer),
    /// 101 with a `Sec-WebSocket-Accept` that is not of this handshake.
    False(&'a HttpAnswer),
    /// A redirect.
    Redirected(&'a HttpAnswer),
    /// An answer to a plain request.
    Plain(&'a HttpAnswer),
    /// A refusal by another than Rancher.
    Refused(&'a HttpAnswer),
    /// A server error.
    Error(&'a HttpAnswer),
    /// No answer.
    Silent(&'a UnknownCause, &'a str),
}

fn seen(probe: &Probe) -> Option<Seen<'_>> {
    let failed = answer::of(probe, "").filter(|answer| matches!(answer, Answer::Silent(..)));
    if let Some(Answer::Silent(cause, detail)) = failed {
        return Some(Seen::Silent(cause, detail));
    }
    let answer = probe.http.value()?;
    let (author, _) = author::of(answer);
    let as_browser = probe.kind != K::WebSocket;
    Some(match answer.status {
        101 if answer.accept_fits == Some(false) => Seen::False(answer),
        101 => Seen::Passed(answer),
        // Over HTTP/2 a WebSocket is opened with 200.
        200 if probe.kind == K::WebSocketHttp2 => Seen::Passed(answer),
        403 if answer.body_start.contains("origin not allowed") => Seen::Passed(answer),
        300..=399 => Seen::Redirected(answer),
        500..=599 => Seen::Error(answer),
        200..=299 => Seen::Plain(answer),
        400 | 401 | 403 if author == Author::Rancher && as_browser => Seen::Lost(answer),
        // A WebSocket server that names its version has seen no upgrade.
        400 | 426 if !answer.web_socket_version.is_empty() => Seen::Lost(answer),
        401 | 403 if !author.is_proxy() => Seen::Unproven(answer),
        _ => Seen::Refused(answer),
    })
}

/// What a server that knows nothing of `/v3/connect` says to any request for it.
fn is_anybodys(seen: &Seen<'_>) -> bool {
    match seen {
        Seen::Plain(_) => true,
        Seen::Refused(answer) => answer.status == 404,
        _ => false,
    }
}

struct View<'a> {
    b: &'a LoadBalancerFacts,
    at: Timestamp,
    through: Vec<(&'a str, Seen<'a>)>,
    straight: Vec<(&'a str, Seen<'a>)>,
    http2: Vec<(&'a str, Seen<'a>)>,
}

/// `routed` is the reason of `LoadBalancerForwarding`.
pub(super) fn judge(b: &LoadBalancerFacts, at: Timestamp, routed: &R) -> Finding {
    View::new(b, at).finding(routed).waits(RAISE, CLEAR)
}

impl<'a> View<'a> {
    fn new(b: &'a LoadBalancerFacts, at: Timestamp) -> Self {
        let of = |kind: K, target: ProbeTarget| -> Vec<(&'a str, Seen<'a>)> {
            let probes = b.probes.iter().filter(|p| p.kind == kind && p.target == target);
            probes.filter_map(|p| Some((host_of(&p.peer), seen(p)?))).collect()
        };
        let best = |target: ProbeTarget| match of(K::WebSocketOrigin, target.clone()) {
            none if none.is_empty() => of(K::WebSocket, target),
            some => some,
        };
        // At an address where no plain request passes the WebSocket is not the matter.
        let passes = |peer: &str| {
            let plain = plain_answers(b).filter(|(at, _)| host_of(at) == peer).map(|(_, answer)| answer);
            let (failing, others): (Vec<_>, Vec<_>) = plain.partition(Answer::is_failure);
            failing.is_empty() || !others.is_empty()
        };
        let all = best(ProbeTarget::Balancer);
        let some: Vec<_> = all.iter().filter(|(peer, _)| passes(peer)).cloned().collect();
        Self {
            b,
            at,
            through: if some.is_empty() { all } else { some },
            straight: best(ProbeTarget::Backend),
            http2: of(K::WebSocketHttp2, ProbeTarget::Balancer),
        }
    }

    fn new_finding(&self, status: Status, severity: Severity, reason: R, message: String) -> Finding {
        Finding::new(TYPE, status, severity, reason, self.at, message)
    }

    fn unknown(&self, cause: &UnknownCause, why: &str) -> Finding {
        let message = format!("Whether WebSockets pass through {} cannot be told: {why}.", self.b.host);
        Finding::unknown(TYPE, cause, Severity::Info, self.at, message)
    }

    fn finding(&self, routed: &R) -> Finding {
        let Some((peer, worst)) = self.worst() else {
            let (cause, why) = super::untried(self.b)
                .filter(|_| self.b.probes.is_empty())
                .unwrap_or((UnknownCause::NotYetRead, "no handshake was tried"));
            return self.unknown(&cause, why);
        };
        if self.nothing_passes() {
            return self.unknown(
                &UnknownCause::Unreachable,
                "no request of any kind passes; see LoadBalancerReachable and LoadBalancerForwarding",
            );
        }
        if matches!(routed, R::HostNotRouted | R::NotRancher) && is_anybodys(worst) && !self.reaches_rancher()
        {
            return self.unknown(
                &UnknownCause::InvalidAnswer,
                "what answers in place of Rancher answers the handshake too; see LoadBalancerForwarding",
            );
        }
        if let (Seen::Unproven(answer), true) = (worst, self.everything_is_refused()) {
            return self.unknown(
                &UnknownCause::InvalidAnswer,
                &format!(
                    "a filter answers {} to plain requests too; see LoadBalancerForwarding",
                    answer.status
                ),
            );
        }
        if matches!(worst, Seen::Passed(_) | Seen::Unproven(_))
            && let Some(cut) = idle::cut_early(self.b)
        {
            let found = self.new_finding(Status::True, cut.severity, R::WebSocketCutIdle, cut.message);
            return found.advice(cut.advice);
        }
        let n = self.through.len();
        let alike = self
            .through
            .iter()
            .filter(|(_, s)| std::mem::discriminant(s) == std::mem::discriminant(worst))
            .count();
        let tries = format!("{alike} of {n} tries (first at {peer})");
        match worst {
            Seen::Passed(answer) => self.passes(answer),
            Seen::Unproven(answer) => self.unproven(answer),
            Seen::Lost(answer) => self.lost(&tries, answer),
            Seen::False(_) => self.error(
                R::WebSocketRefused,
                format!(
                    "{} answers a WebSocket handshake with 101 in {tries}, but its Sec-WebSocket-Accept does not fit the \
                     key that was sent: something on the way answers in place of Rancher or mixes answers up{}.",
                    self.b.host,
                    self.compared()
                ),
                "Look for a cache or an inspecting firewall between this node and Rancher and let it pass /v3/connect and \
                 /v1/subscribe on untouched.",
            ),
            Seen::Redirected(answer) => self.error(
                R::WebSocketRedirected,
                format!(
                    "A WebSocket handshake through {} is redirected ({} to {}) in {tries}: agents do not follow, and say \
                     \"bad handshake\"{}.",
                    self.b.host,
                    answer.status,
                    if answer.location.is_empty() { "nowhere" } else { &answer.location },
                    self.compared()
                ),
                if redirect_host(&answer.location).is_some_and(|to| !to.eq_ignore_ascii_case(host_of(&self.b.host))) {
                    "Another site or a login answers: see LoadBalancerForwarding, and let /v3/connect and /v3/connect/register \
                     pass to Rancher without it."
                } else {
                    "The request does not reach Rancher as https: see LoadBalancerForwarding for the header, and see that the \
                     balancer sets X-Forwarded-Proto: https on upgrades too, not only on plain requests."
                },
            ),
            Seen::Plain(answer) => {
                let (author, how) = author::of(answer);
                self.error(
                    R::WebSocketRefused,
                    format!(
                        "{} answers a WebSocket handshake on /v3/connect with {} instead of 101 in {tries}, as if it were \
                         a plain request; the answer is from {}{}.",
                        self.b.host,
                        answer.status,
                        by(author, how),
                        self.compared()
                    ),
                    &self.upgrade_advice(),
                )
            }
            Seen::Refused(answer) => self.refused(&tries, answer),
            Seen::Error(answer) => {
                let (author, how) = author::of(answer);
                self.error(
                    R::WebSocketFails,
                    format!(
                        "{} answers a WebSocket handshake with {} in {tries}, while plain requests pass; the answer is from \
                         {}{}.",
                        self.b.host,
                        answer.status,
                        by(author, how),
                        self.compared()
                    ),
                    &self.upgrade_advice(),
                )
            }
            Seen::Silent(cause, detail) => self.error(
                R::WebSocketFails,
                format!(
                    "{} does not answer a WebSocket handshake in {tries} ({cause}: {detail}), while plain requests pass{}.",
                    self.b.host,
                    self.compared()
                ),
                &self.upgrade_advice(),
            ),
        }
    }

    fn error(&self, reason: R, message: String, advice: &str) -> Finding {
        self.new_finding(Status::False, Severity::Error, reason, message).advice(advice)
    }

    /// The first of the gravest, so that tries in another order do not change the words.
    fn worst(&self) -> Option<(&'a str, &Seen<'a>)> {
        let rank = |s: &Seen<'_>| match s {
            Seen::Passed(_) => 0,
            Seen::Unproven(_) => 1,
            Seen::Lost(_) => 2,
            Seen::Silent(..) => 3,
            Seen::Error(_) => 4,
            Seen::False(_) => 5,
            Seen::Plain(_) | Seen::Refused(_) => 6,
            Seen::Redirected(_) => 7,
        };
        let best = self.through.iter().map(|(_, s)| rank(s)).max()?;
        self.through.iter().find(|(_, s)| rank(s) == best).map(|(peer, s)| (*peer, s))
    }

    fn plain_answers(&self) -> Vec<Answer<'a>> {
        plain_answers(self.b).map(|(_, answer)| answer).collect()
    }

    /// Rancher answers /ping to everybody: who refuses that stands in front.
    fn everything_is_refused(&self) -> bool {
        let answers = self.plain_answers();
        !answers.is_empty() && answers.iter().all(|a| matches!(a, Answer::Refused(_)))
    }

    /// Some handshake got an answer that only Rancher gives.
    fn reaches_rancher(&self) -> bool {
        self.through.iter().any(|(_, s)| matches!(s, Seen::Passed(_) | Seen::Lost(_)))
    }

    /// Plain requests fail as well: the WebSocket is not the matter.
    fn nothing_passes(&self) -> bool {
        let answers = self.plain_answers();
        !super::is_connected(self.b) || (!answers.is_empty() && answers.iter().all(Answer::is_failure))
    }

    /// What the same handshake comes to straight at a backend, as a clause that begins with a semicolon.
    fn compared(&self) -> String {
        let good: Vec<&str> = self
            .straight
            .iter()
            .filter(|(_, s)| matches!(s, Seen::Passed(_)))
            .map(|(peer, _)| *peer)
            .collect();
        let all = self.straight.len();
        if all == 0 {
            "; no try straight at a backend tells whether the balancer or the ingress is at fault".to_owned()
        } else if good.len() == all {
            format!("; straight at a backend it passes ({} of {all}): the balancer is at fault", all)
        } else if good.is_empty() {
            format!(
                "; straight at a backend it does not pass either (0 of {all}): the ingress or what is behind it is at fault"
            )
        } else {
            format!(
                "; straight at a backend it passes at {} of {all} only ({})",
                good.len(),
                names(&good, NAMED)
            )
        }
    }

    fn passes(&self, answer: &HttpAnswer) -> Finding {
        let how = match answer.status {
            101 => "it is opened (101)",
            _ => "Rancher refuses a foreign origin (403), which it does only where the upgrade arrived",
        };
        let proof = format!("{how} in {} of {} tries", self.through.len(), self.through.len());
        if let Some((peer, bad)) =
            self.http2.iter().find(|(_, s)| !matches!(s, Seen::Passed(_) | Seen::Unproven(_)))
        {
            return self.http2_differs(peer, bad, &proof);
        }
        let offered =
            self.b.probes.iter().any(|p| {
                p.target == ProbeTarget::Balancer && p.tls.value().is_some_and(|tls| tls.alpn == "h2")
            });
        let http2 = match (self.http2.len(), offered) {
            (0, true) => "; HTTP/2 is offered without WebSockets over it, so browsers take HTTP/1.1 for them",
            (0, false) => "; HTTP/2 is not offered",
            _ => "; it passes over HTTP/2 too",
        };
        let message = format!(
            "WebSockets pass through {} over HTTP/1.1: {proof}{http2}{}.",
            self.b.host,
            idle::clause(self.b)
        );
        self.new_finding(Status::True, Severity::Ok, R::WebSocketPasses, message)
    }

    fn http2_differs(&self, peer: &str, bad: &Seen<'_>, proof: &str) -> Finding {
        let got = match bad {
            Seen::Silent(cause, detail) => format!("no answer ({cause}: {detail})"),
            Seen::Passed(a)
            | Seen::Lost(a)
            | Seen::Unproven(a)
            | Seen::False(a)
            | Seen::Redirected(a)
            | Seen::Plain(a)
            | Seen::Refused(a)
            | Seen::Error(a) => {
                let (author, how) = author::of(a);
                format!("{} from {}", a.status, by(author, how))
            }
        };
        let message = format!(
            "WebSockets pass through {} over HTTP/1.1 ({proof}), but not over HTTP/2, which it offers for them: {got} at \
             {peer}. Agents use HTTP/1.1 and work; browsers use HTTP/2 here, so shells and logs in the UI fail.",
            self.b.host
        );
        self.new_finding(Status::True, Severity::Warn, R::WebSocketHttp2Differs, message).advice(
            "HAProxy: set h2-workaround-bogus-websocket-clients in global, or alpn http/1.1 on the bind line, so that \
             browsers take HTTP/1.1 for WebSockets; another balancer: switch extended CONNECT (RFC 8441) or HTTP/2 off in \
             front of Rancher.",
        )
    }

    fn unproven(&self, answer: &HttpAnswer) -> Finding {
        let same = self.straight.iter().all(|(_, s)| matches!(s, Seen::Unproven(_)));
        let straight = match self.straight.len() {
            0 => "",
            _ if same => ", as straight at a backend",
            _ => ", other than straight at a backend",
        };
        let message = format!(
            "{} refuses a WebSocket handshake with {} {:?}{straight}. That the request arrives is proven; that the upgrade \
             does is not, for these are not Rancher's words for it.",
            self.b.host,
            answer.status,
            short(&answer.body_start)
        );
        self.new_finding(Status::True, Severity::Info, R::WebSocketUnproven, message).advice(
            "See whether a shell opens in the UI (Kubectl Shell), or whether cluster agents stay connected through this \
             name.",
        )
    }

    fn lost(&self, tries: &str, answer: &HttpAnswer) -> Finding {
        let message = format!(
            "The upgrade of a WebSocket is lost on the way through {}: in {tries} Rancher answers {} {:?} as to a plain \
             request; one that arrives whole it would refuse for its foreign origin (403) before asking who it is{}. Shells \
             in the UI and agents fail with \"bad handshake\".",
            self.b.host,
            answer.status,
            short(&answer.body_start),
            self.compared()
        );
        self.error(R::WebSocketUpgradeLost, message, &self.upgrade_advice())
    }

    fn refused(&self, tries: &str, answer: &HttpAnswer) -> Finding {
        let (author, how) = author::of(answer);
        let message = format!(
            "{} refuses a WebSocket handshake on /v3/connect with {} in {tries}; the answer is from {}, not from Rancher{}.",
            self.b.host,
            answer.status,
            by(author, how),
            self.compared()
        );
        let advice = match (answer.status, author) {
            (_, Author::Login) => {
                "Take the login away in front of Rancher, or let /v3/connect, /v3/connect/register, /cacerts, /ping and \
                 /healthz pass without it: agents cannot log in there."
                    .to_owned()
            }
            (404, _) => {
                "Send every path of this host to Rancher, not only some: /v3/connect belongs to none that is served here."
                    .to_owned()
            }
            _ => self.upgrade_advice(),
        };
        self.error(R::WebSocketRefused, message, &advice)
    }

    /// The settings of who is at fault, as far as that is known.
    fn upgrade_advice(&self) -> String {
        let straight_passes =
            !self.straight.is_empty() && self.straight.iter().all(|(_, s)| matches!(s, Seen::Passed(_)));
        let straight_fails =
            !self.straight.is_empty() && self.straight.iter().all(|(_, s)| !matches!(s, Seen::Passed(_)));
        let answers = |target: ProbeTarget| {
            self.b.probes.iter().filter(move |p| p.target == target).filter_map(|p| p.http.value())
        };
        let whose = if straight_fails { "the ingress" } else { "the balancer" };
        let product = if straight_fails {
            author::ingress(answers(ProbeTarget::Backend))
        } else {
            front(answers(ProbeTarget::Balancer))
        };
        let nginx = "nginx: proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \
                     $connection_upgrade; with map $http_upgrade $connection_upgrade { default upgrade; '' close; }";
        let haproxy = "HAProxy: mode http passes upgrades on by itself; remove option httpclose, option forceclose and any \
                       http-request del-header of Upgrade or Connection, and set timeout tunnel 30m";
        let traefik =
            "Traefik passes upgrades on by itself; look for a middleware that removes headers or buffers";
        let setting = match product {
            Author::Nginx if straight_fails => {
                "ingress-nginx passes upgrades on by itself; look for a snippet that sets Connection or \
                 proxy_http_version 1.0"
                    .to_owned()
            }
            Author::Nginx => nginx.to_owned(),
            Author::Haproxy => haproxy.to_owned(),
            Author::Traefik => traefik.to_owned(),
            _ => format!("{nginx}. {haproxy}"),
        };
        let sure = if straight_passes || straight_fails { "" } else { " (or the ingress)" };
        format!(
            "Let {whose}{sure} speak HTTP/1.1 to its upstream and pass Upgrade and Connection on. {setting}. Idle time-outs of \
             30 minutes (1800 s) for reading and writing."
        )
    }
}

/// What plain requests through the balancer came to, by peer.
fn plain_answers(b: &LoadBalancerFacts) -> impl Iterator<Item = (&str, Answer<'_>)> {
    let plain = b
        .probes
        .iter()
        .filter(|p| p.target == ProbeTarget::Balancer && matches!(p.kind, K::Root | K::Ping | K::Healthz));
    plain.filter_map(|p| Some((p.peer.as_str(), answer::of(p, &b.host)?)))
}

/// The product in front, by its own pages and headers.
fn front<'a>(answers: impl Iterator<Item = &'a HttpAnswer>) -> Author {
    let mut by_header = Author::Unknown;
    for answer in answers {
        if let author @ (Author::Nginx | Author::Haproxy | Author::Traefik) = author::of(answer).0 {
            return author;
        }
        if answer.server.to_ascii_lowercase().contains("nginx") {
            by_header = Author::Nginx;
        }
    }
    by_header
}

fn by(author: Author, how: &str) -> String {
    if how.is_empty() { author.to_string() } else { format!("{author} (known by {how})") }
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}
