//! `RancherCA`: whether agents can trust Rancher by what it publishes at `/cacerts` (`facts/rancher-load-balancer.md`, 6;
//! E15 to E17, F1, F2).
//!
//! An agent in `strict` mode trusts the certificates of `/cacerts` and nothing else, and only if their bytes have the
//! checksum that it was given. In `system-store` mode a chain that the machine itself trusts is enough, and a checksum
//! is then discarded.

use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{
    CaFacts, ConditionType, Fact, LoadBalancerFacts, ProbeKind as K, ProbeTarget, ReasonCode as R, Severity,
    Status, Timestamp, UnknownCause,
};

use super::author;
use crate::finding::Finding;
use crate::wording::{Moment, Span, names};

const TYPE: ConditionType = ConditionType::RancherCa;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(86_400);
const NAMED: usize = 6;

pub(super) fn judge(b: &LoadBalancerFacts, at: Timestamp, now: Timestamp) -> Finding {
    finding(b, at, now).waits(RAISE, CLEAR)
}

/// How agents verify.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Strict,
    SystemStore,
    Unsaid,
}

struct View<'a> {
    b: &'a LoadBalancerFacts,
    ca: &'a CaFacts,
    at: Timestamp,
    mode: Mode,
}

fn finding(b: &LoadBalancerFacts, at: Timestamp, now: Timestamp) -> Finding {
    let unknown = |cause: &UnknownCause, why: String| {
        let message = format!("What {} publishes at /cacerts cannot be told: {why}.", b.host);
        let found = Finding::unknown(TYPE, cause, Severity::Info, at, message);
        match cause {
            UnknownCause::Unauthenticated => found
                .advice("See LoadBalancerForwarding: a client certificate is wanted, and agents have none."),
            _ => found,
        }
    };
    if let Some(malformed) = malformed(b, at) {
        return malformed;
    }
    let ca = match &b.ca {
        Some(Fact::Known { value, .. }) => value,
        Some(Fact::Unknown { cause, detail, .. }) => return unknown(cause, detail.clone()),
        _ => {
            let tries = b.probes.iter().filter(|p| p.kind == K::CaCerts && p.target == ProbeTarget::Balancer);
            let failed = tries.filter_map(|p| match &p.http {
                Fact::Unknown { cause, detail, .. } => Some((cause, detail)),
                _ => None,
            });
            return match failed.into_iter().next() {
                Some((cause, detail)) => unknown(cause, detail.clone()),
                None => unknown(
                    &UnknownCause::NotYetRead,
                    "it was not asked; no request passes yet (see LoadBalancerReachable)".to_owned(),
                ),
            };
        }
    };
    let mode = match b.agent_tls_mode.as_str() {
        "strict" => Mode::Strict,
        "system-store" => Mode::SystemStore,
        _ => Mode::Unsaid,
    };
    let view = View { b, ca, at, mode };
    if let Some(broken) = view.broken() {
        return broken;
    }
    if !(200..300).contains(&ca.status) {
        let why = format!("{} answered {}; see LoadBalancerForwarding", ca.peer, ca.status);
        return unknown(&UnknownCause::InvalidAnswer, why);
    }
    view.too_much()
        .or_else(|| view.differ())
        .or_else(|| view.no_pem())
        .or_else(|| view.empty())
        .or_else(|| view.mismatch())
        .or_else(|| view.chain())
        .or_else(|| view.ending(now))
        .unwrap_or_else(|| view.good())
}

/// The configured checksum in the form that `/cacerts` is compared in; empty when none is given.
fn expected(b: &LoadBalancerFacts) -> String {
    let bare = b.ca_checksum.trim().to_ascii_lowercase();
    let bare = bare.strip_prefix("sha256:").unwrap_or(&bare);
    bare.chars().filter(|c| *c != ':' && !c.is_whitespace()).collect()
}

fn malformed(b: &LoadBalancerFacts, at: Timestamp) -> Option<Finding> {
    let given = expected(b);
    if given.is_empty() || (given.len() == 64 && given.bytes().all(|c| c.is_ascii_hexdigit())) {
        return None;
    }
    let hex = given.bytes().all(|c| c.is_ascii_hexdigit());
    let looks = match given.len() {
        40 if hex => "; 40 hex digits are a SHA-1",
        32 if hex => "; 32 hex digits are an MD5",
        128 if hex => "; 128 hex digits are a SHA-512",
        43 | 44 if !hex => "; it looks like base64",
        _ if given.starts_with("or1") => "; it looks like an enrolment token of Outrider's",
        _ if given.starts_with("k10") => "; it looks like a token of K3s or RKE2",
        _ => "",
    };
    let shown: String = given.chars().take(12).collect();
    let message = format!(
        "The ca_checksum that is given ({shown}…, {} characters) can be no SHA-256 of /cacerts: that has 64 hex digits{looks}.",
        given.chars().count()
    );
    Some(
        Finding::new(TYPE, Status::False, Severity::Error, R::CaChecksumMalformed, at, message)
            .advice(format!("Take it anew: curl -ks https://{}/cacerts | sha256sum", authority(b))),
    )
}

/// Host and port as a URL has them.
fn authority(b: &LoadBalancerFacts) -> String {
    let host = if b.host.contains(':') { format!("[{}]", b.host) } else { b.host.clone() };
    if b.port == 443 { host } else { format!("{host}:{}", b.port) }
}

impl View<'_> {
    fn new_finding(&self, status: Status, severity: Severity, reason: R, message: String) -> Finding {
        Finding::new(TYPE, status, severity, reason, self.at, message)
    }

    fn error(&self, reason: R, message: String, advice: impl Into<String>) -> Option<Finding> {
        Some(self.new_finding(Status::False, Severity::Error, reason, message).advice(advice))
    }

    /// Why the machine's own roots do not trust the chain; empty when they do, `None` when that is not known.
    fn system(&self) -> Option<&str> {
        self.ca.system_trusts_chain.value().map(String::as_str)
    }

    fn is_public(&self) -> bool {
        self.system() == Some("")
    }

    /// `/cacerts` gives something else than a good answer, while what stands beside it is Rancher's own.
    fn broken(&self) -> Option<Finding> {
        let through = |kind: K| {
            let probes =
                self.b.probes.iter().filter(move |p| p.kind == kind && p.target == ProbeTarget::Balancer);
            probes.filter_map(|p| Some((p.peer.as_str(), p.http.value()?)))
        };
        let is_good = |status: u16| (200..300).contains(&status);
        let all = through(K::CaCerts).count().max(1);
        let mut bad = through(K::CaCerts).filter(|(_, a)| !is_good(a.status));
        let (peer, status, location) = match bad.next() {
            Some((peer, a)) => (peer, a.status, a.location.as_str()),
            None if is_good(self.ca.status) => return None,
            None => (self.ca.peer.as_str(), self.ca.status, ""),
        };
        let count = bad.count() + 1;
        let mut pings = through(K::Ping).peekable();
        let is_rancher =
            pings.peek().is_some() && pings.all(|(_, a)| a.status == 200 && a.body_start.trim() == "pong");
        if !is_rancher || (self.mode == Mode::SystemStore && self.is_public()) {
            return None;
        }
        let to = if location.is_empty() { String::new() } else { format!(" to {location}") };
        self.error(
            R::CaCertsNotPem,
            format!(
                "/cacerts of {} answers {status}{to} at {peer} in {count} of {all} tries, while /ping is answered by \
                 Rancher: agents take the checksum of that page for the CA's, or stop.",
                self.b.host
            ),
            "Send every path of this host to Rancher, /cacerts too: look for a rule or a filter in front of it that singles \
             that path out.",
        )
    }

    /// More than is read, so that no checksum is known.
    fn too_much(&self) -> Option<Finding> {
        if !self.ca.sha256.is_empty() {
            return None;
        }
        let message = format!(
            "/cacerts at {} gives more than {} MiB, not hashed; it begins {:?}.",
            self.ca.peer,
            self.ca.bytes >> 20,
            self.ca.body_start.chars().take(40).collect::<String>()
        );
        let found = Finding::unknown(TYPE, &UnknownCause::InvalidAnswer, Severity::Warn, self.at, message);
        Some(found.advice(
            "Publish the CA that issued the certificate and no more (secret tls-ca in cattle-system): that has some \
             kilobytes.",
        ))
    }

    /// Addresses and backends give different bytes: more than one Rancher, or one that was changed, behind one name.
    fn differ(&self) -> Option<Finding> {
        let mut by_sum: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for p in self.b.probes.iter().filter(|p| p.kind == K::CaCerts) {
            if let Some(answer) = p.http.value().filter(|a| a.status == 200 && !a.body_sha256.is_empty()) {
                by_sum.entry(&answer.body_sha256).or_default().push(&p.peer);
            }
        }
        if by_sum.len() < 2 {
            return None;
        }
        let given = expected(self.b);
        let list = names(
            by_sum.iter().map(|(sum, peers)| {
                let right = if **sum == given { ", the one that is given" } else { "" };
                format!("{}…{right} at {}", short(sum), names(peers, 3))
            }),
            NAMED,
        );
        self.error(
            R::CaCertsDiffer,
            format!(
                "{} different answers to /cacerts behind {}: {list}. Agents come to trust one and meet the other.",
                by_sum.len(),
                self.b.host
            ),
            "Not every server behind this name is the same Rancher, or one of them has not taken up a changed CA: look at \
             the named peers, and restart the rollout of Rancher there (kubectl -n cattle-system rollout restart \
             deploy/rancher) if the secret tls-ca was changed.",
        )
    }

    fn no_pem(&self) -> Option<Finding> {
        let Fact::Absent { source: why, .. } = &self.ca.certificates else { return None };
        if self.is_empty() {
            return None;
        }
        let html = self.ca.body_start.trim_start().starts_with('<');
        let what = if html { "a web page".to_owned() } else { format!("no certificate ({why})") };
        let probes = self.b.probes.iter().filter(|p| p.kind == K::CaCerts && p.peer == self.ca.peer);
        let author = probes.filter_map(|p| p.http.value()).map(author::of).next();
        let whose = match author {
            Some((author, how)) if !how.is_empty() => format!("; it is from {author}, known by {how}"),
            _ => String::new(),
        };
        self.error(
            R::CaCertsNotPem,
            format!(
                "/cacerts at {} gives {what}: {} bytes that begin {:?}{whose}. Agents take the checksum of that, whatever it \
                 is, and then trust nothing.",
                self.ca.peer,
                self.ca.bytes,
                self.ca.body_start.chars().take(40).collect::<String>()
            ),
            "Send /cacerts of this host to Rancher without a login or a page of the balancer's in front; if Rancher itself \
             publishes this, put the PEM of the CA into the secret tls-ca in cattle-system.",
        )
    }

    fn is_empty(&self) -> bool {
        self.ca.bytes == 0
            || matches!(&self.ca.certificates, Fact::Absent { source, .. } if source == "it is empty")
    }

    fn empty(&self) -> Option<Finding> {
        if !self.is_empty() {
            return None;
        }
        let given = expected(self.b);
        let host = &self.b.host;
        let publish = "Either publish the private CA (helm: privateCA=true, and the PEM in the secret tls-ca in \
                       cattle-system), or, where the certificate is a public one, set agent-tls-mode to system-store and \
                       register nodes without --ca-checksum.";
        if !given.is_empty() && self.mode != Mode::SystemStore {
            return self.error(
                R::CaCertsEmpty,
                format!(
                    "A checksum is given ({}…) and /cacerts of {host} is empty: agents stop with \"Configured cacerts \
                     checksum ({}…) does not match given --ca-checksum ({}…)\".",
                    short(&given),
                    short(&self.ca.sha256),
                    short(&given)
                ),
                publish,
            );
        }
        match (self.mode, self.system()) {
            (Mode::Strict, _) => self.error(
                R::CaCertsEmpty,
                format!(
                    "Agents verify strictly and /cacerts of {host} is empty: every registration fails, certainly and before it \
                     begins (\"Aborting system-agent installation due to requested strict CA verification with no CA \
                     checksum provided\")."
                ),
                publish,
            ),
            (Mode::SystemStore, Some("")) if !given.is_empty() => Some(self.left_over(format!(
                "A checksum is given ({}…) and /cacerts of {host} is empty; agents in system-store mode discard it, for this \
                 machine's roots trust the chain.",
                short(&given)
            ))),
            (Mode::SystemStore, Some("")) => Some(self.new_finding(
                Status::True,
                Severity::Ok,
                R::CaTrusted,
                format!(
                    "/cacerts of {host} is empty, and the chain is trusted by this machine's own roots, which is what agents \
                     in system-store mode go by."
                ),
            )),
            (Mode::Unsaid, Some("")) => Some(
                self.new_finding(
                    Status::True,
                    Severity::Warn,
                    R::CaCertsEmpty,
                    format!(
                        "/cacerts of {host} is empty. The chain is trusted by this machine's own roots, so agents in \
                         system-store mode work; in strict mode, which new installations of Rancher have, every \
                         registration fails."
                    ),
                )
                .advice(
                    "See Rancher's setting agent-tls-mode and write it into [[load_balancer]] (agent_tls_mode): with \
                     system-store this is right as it is.",
                ),
            ),
            (_, Some(why)) => self.error(
                R::CaChainMismatch,
                format!(
                    "/cacerts of {host} is empty, and this machine's own roots do not trust the chain: {why}. Agents have \
                     nothing to trust Rancher by."
                ),
                publish,
            ),
            (_, None) => None,
        }
    }

    fn left_over(&self, message: String) -> Finding {
        self.new_finding(Status::True, Severity::Info, R::CaLeftOver, message).advice(
            "Nothing has to be done while it works. To be rid of it, take the old CA out (secret tls-ca, setting cacerts) and \
             register nodes anew without --ca-checksum.",
        )
    }

    fn mismatch(&self) -> Option<Finding> {
        let given = expected(self.b);
        if given.is_empty() || given == self.ca.sha256 {
            return None;
        }
        if self.mode == Mode::SystemStore && self.is_public() {
            return Some(self.left_over(format!(
                "The given checksum ({}…) is not that of /cacerts ({}…); agents in system-store mode discard it, for this \
                 machine's roots trust the chain.",
                short(&given),
                short(&self.ca.sha256)
            )));
        }
        let text = format!(
            "Configured cacerts checksum ({}) does not match given --ca-checksum ({given})",
            self.ca.sha256
        );
        let hit = self.ca.candidates.iter().find(|c| c.sha256 == given);
        let (why, advice) = match hit {
            Some(hit) if self.is_signer(&hit.what) => (
                format!(
                    "what is given is the checksum of {}, the CA that the served certificate leads to; /cacerts publishes \
                     another CA than the one that signed",
                    hit.what
                ),
                "Keep the checksum, and publish that CA: put its PEM, byte for byte, into the secret tls-ca in cattle-system \
                 (helm privateCA=true) and restart the rollout of Rancher."
                    .to_owned(),
            ),
            Some(hit) if self.is_foreign() => (
                format!(
                    "what is given is the checksum of {}; and the served certificate does not lead to what /cacerts publishes",
                    hit.what
                ),
                "First publish the CA that issued the served certificate (secret tls-ca in cattle-system); then give the \
                 checksum of the bytes as /cacerts serves them from then on."
                    .to_owned(),
            ),
            Some(hit) => (
                format!("what is given is the checksum of {}", hit.what),
                format!(
                    "Give the checksum of the bytes exactly as /cacerts serves them, a final newline counts: {}. Registration \
                     commands copied from Rancher carry it.",
                    self.ca.sha256
                ),
            ),
            None => (
                format!(
                    "it is that of nothing near either; tried: {}",
                    names(self.ca.candidates.iter().map(|c| c.what.as_str()), 12)
                ),
                format!(
                    "Somebody changed one of the two: either the CA of this Rancher was replaced (then register the nodes with \
                     {}…, or put the old PEM back into the secret tls-ca), or this name leads to another Rancher than the \
                     nodes were registered at (see LoadBalancerForwarding and where {} resolves to).",
                    short(&self.ca.sha256),
                    self.b.host
                ),
            ),
        };
        let published = match self.ca.certificates.value() {
            Some(all) if !all.is_empty() => {
                format!(" /cacerts holds {}.", names(all.iter().map(|c| c.subject.as_str()), 4))
            }
            _ => String::new(),
        };
        self.error(
            R::CaChecksumMismatch,
            format!("\"{text}\" is what agents say at {}; {why}.{published}", self.ca.peer),
            advice,
        )
    }

    /// What is published did not issue what is served; a wrong date alone does not tell.
    fn is_foreign(&self) -> bool {
        self.ca.trusts_chain.value().is_some_and(|why| !why.is_empty() && !why.contains("by this clock"))
    }

    /// `what`, a checksum's origin, is the configured CA, and it alone makes the served chain trusted here.
    fn is_signer(&self, what: &str) -> bool {
        let mut shown = self.b.probes.iter().filter(|p| p.target == ProbeTarget::Balancer);
        what.starts_with("the file ")
            && self.is_foreign()
            && !self.is_public()
            && shown.any(|p| p.tls.value().is_some_and(|tls| tls.trust.value().is_some_and(String::is_empty)))
    }

    fn chain(&self) -> Option<Finding> {
        let why = self.ca.trusts_chain.value().filter(|why| !why.is_empty())?;
        if why.contains("by this clock") {
            let message = format!(
                "Whether the chain of {} leads to the CA at /cacerts cannot be told while its dates are wrong: {why}.",
                self.b.host
            );
            return Some(Finding::unknown(TYPE, &UnknownCause::TlsFailed, Severity::Info, self.at, message));
        }
        let held = match self.ca.certificates.value() {
            Some(all) => names(all.iter().map(|c| c.subject.as_str()), 4),
            None => "?".to_owned(),
        };
        let shown = self.b.probes.iter().filter(|p| p.target == ProbeTarget::Balancer);
        let leaf = shown.filter_map(|p| p.tls.value()?.chain.first()).next();
        let issuer = leaf.map_or_else(|| "?".to_owned(), |leaf| leaf.issuer.clone());
        let fact = format!(
            "The certificate of {} was issued by {issuer}, and its chain does not lead to what /cacerts publishes ({held}): \
             {why}",
            self.b.host
        );
        if self.is_public() {
            let public = "this machine's own roots trust it";
            return Some(match self.mode {
                Mode::SystemStore => self.left_over(format!(
                    "{fact}; {public}. Agents in system-store mode fail once, say so, drop their CA data and work with the \
                     system's roots."
                )),
                mode => {
                    let (status, severity, strict) = match mode {
                        Mode::Strict => (Status::False, Severity::Error, "Agents verify strictly and fail"),
                        _ => (Status::True, Severity::Warn, "Agents in strict mode fail; in system-store mode they work"),
                    };
                    self.new_finding(
                        status,
                        severity,
                        R::CaChainMismatch,
                        format!(
                            "{fact}; {public}: an old CA was kept after the move to a public certificate. {strict}."
                        ),
                    )
                    .advice(
                        "Publish the CA that issued the certificate (secret tls-ca in cattle-system, helm privateCA=true), or \
                         take the old one out and set agent-tls-mode to system-store; then register the nodes anew, for \
                         their checksum changes.",
                    )
                }
            });
        }
        self.error(
            R::CaChainMismatch,
            format!("{fact}. Agents trust /cacerts and fail."),
            "Publish the CA that issued the certificate (secret tls-ca in cattle-system, helm privateCA=true), and let whoever \
             ends TLS (the balancer in L7, the ingress in L4) send the intermediate certificates too.",
        )
    }

    /// The published CA itself comes to its end.
    fn ending(&self, now: Timestamp) -> Option<Finding> {
        let first = self.ca.certificates.value()?.iter().min_by_key(|c| c.not_after)?;
        let left = first.not_after.since(now);
        let (status, severity, when) = if first.not_after <= now {
            (Status::False, Severity::Error, format!("ended on {}", Moment(first.not_after)))
        } else if left < DAY * 30 {
            (Status::True, Severity::Warn, format!("ends in {}, on {}", Span(left), Moment(first.not_after)))
        } else {
            return None;
        };
        let message = format!("A CA that {} publishes at /cacerts {when}: {}.", self.b.host, first.subject);
        Some(self.new_finding(status, severity, R::CertificateAuthorityEnding, message).advice(
            "Issue a new CA and a server certificate by it, put the new PEM into the secret tls-ca in cattle-system, and \
             give every node the new checksum before the old CA ends.",
        ))
    }

    fn good(&self) -> Finding {
        let given = expected(self.b);
        let sum = if given.is_empty() {
            format!("its checksum is {}", self.ca.sha256)
        } else {
            format!("its checksum is the one given ({}…)", short(&given))
        };
        let message = format!(
            "The chain of {} leads to the CA at /cacerts ({} bytes); {sum}.",
            self.b.host, self.ca.bytes
        );
        self.new_finding(Status::True, Severity::Ok, R::CaTrusted, message)
    }
}

fn short(sum: &str) -> &str {
    sum.get(..12).unwrap_or(sum)
}
