//! The checksum that agents are given against that of what is published.

use outrider_protocol::{LoadBalancerFacts, ProbeTarget, ReasonCode as R, Severity, Status, Timestamp};

use super::{Mode, TYPE, View, authority, short};
use crate::finding::Finding;
use crate::wording::names;

/// The configured checksum in the form that `/cacerts` is compared in; empty when none is given.
pub(super) fn expected(b: &LoadBalancerFacts) -> String {
    let bare = b.ca_checksum.trim().to_ascii_lowercase();
    let bare = bare.strip_prefix("sha256:").unwrap_or(&bare);
    bare.chars().filter(|c| *c != ':' && !c.is_whitespace()).collect()
}

pub(super) fn malformed(b: &LoadBalancerFacts, at: Timestamp) -> Option<Finding> {
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

impl View<'_> {
    pub(super) fn mismatch(&self) -> Option<Finding> {
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
    pub(super) fn is_foreign(&self) -> bool {
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
}
