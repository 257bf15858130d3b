//! `RancherCA`: whether agents can trust Rancher by what it publishes at `/cacerts` (`facts/rancher-load-balancer.md`, 6;
//! E15 to E17, F1, F2).
//!
//! An agent in `strict` mode trusts the certificates of `/cacerts` and nothing else, and only if their bytes have the
//! checksum that it was given. In `system-store` mode a chain that the machine itself trusts is enough, and a checksum
//! is then discarded.

mod chain;
mod checksum;
mod empty;

use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{
    CaFacts, ConditionType, Fact, LoadBalancerFacts, NodeFacts, ProbeKind as K, ProbeTarget, ReasonCode as R,
    Severity, Status, Timestamp, UnknownCause,
};

use self::checksum::{expected, malformed};
use super::answer::{self, Answer};
use super::author;
use crate::finding::Finding;
use crate::wording::names;

const TYPE: ConditionType = ConditionType::RancherCa;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(30);
const NAMED: usize = 6;

pub(super) fn judge(b: &LoadBalancerFacts, at: Timestamp, facts: &NodeFacts) -> Finding {
    finding(b, at, facts).waits(RAISE, CLEAR)
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

fn finding(b: &LoadBalancerFacts, at: Timestamp, facts: &NodeFacts) -> Finding {
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
                None => match super::untried(b).filter(|_| b.probes.is_empty()) {
                    Some((cause, why)) => unknown(&cause, why.to_owned()),
                    None => unknown(
                        &UnknownCause::NotYetRead,
                        "it was not asked; no request passes yet (see LoadBalancerReachable)".to_owned(),
                    ),
                },
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
        .or_else(|| {
            // Each is to be mended, whatever becomes of the other.
            let found = view.mismatch().or_else(|| view.chain());
            found.into_iter().chain(view.ending(facts)).reduce(Finding::beside)
        })
        .or_else(|| view.dates())
        .unwrap_or_else(|| view.good())
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
        // What `/` comes to as well, Rancher's own redirect included, is no matter of this path.
        let as_root = self.b.probes.iter().any(|p| {
            let alike = p.http.value().is_some_and(|a| a.status / 100 == status / 100);
            let good = matches!(answer::of(p, &self.b.host), None | Some(Answer::Good));
            p.kind == K::Root && p.target == ProbeTarget::Balancer && alike && !good
        });
        let is_rancher =
            pings.peek().is_some() && pings.all(|(_, a)| a.status == 200 && a.body_start.trim() == "pong");
        if !is_rancher || as_root || (self.mode == Mode::SystemStore && self.is_public()) {
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
        if self.mode == Mode::SystemStore && self.is_public() {
            return Some(self.left_over(format!(
                "/cacerts at {} gives {what}{whose}; agents in system-store mode do without it, for this machine's roots trust \
                 the chain.",
                self.ca.peer
            )));
        }
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

    /// Agents do without what is amiss.
    fn left_over(&self, message: String) -> Finding {
        self.new_finding(Status::True, Severity::Info, R::CaLeftOver, message).advice(
            "Nothing has to be done while it works. To be rid of it, take the old CA out (secret tls-ca, setting cacerts) and \
             register nodes anew without --ca-checksum.",
        )
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
