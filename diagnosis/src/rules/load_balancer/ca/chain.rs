//! What is published against what is served: whether the one leads to the other, and until when.

use std::time::Duration;

use outrider_protocol::{
    CertificateFacts, NodeFacts, ProbeTarget, ReasonCode as R, Severity, Status, UnknownCause,
};

use super::{Mode, TYPE, View};
use crate::finding::Finding;
use crate::rules::clock::{Trust, Validity};
use crate::wording::{Moment, Span, names};

const DAY: Duration = Duration::from_secs(86_400);

impl View<'_> {
    pub(super) fn chain(&self) -> Option<Finding> {
        let why = self.ca.trusts_chain.value().filter(|_| self.is_foreign())?;
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

    /// Nothing is known to be wrong with the chain but its dates.
    pub(super) fn dates(&self) -> Option<Finding> {
        let why = self.ca.trusts_chain.value().filter(|why| !why.is_empty())?;
        let message = format!(
            "Whether the chain of {} leads to the CA at /cacerts cannot be told while its dates are wrong (see \
             LoadBalancerReachable): {why}.",
            self.b.host
        );
        Some(Finding::unknown(TYPE, &UnknownCause::TlsFailed, Severity::Info, self.at, message))
    }

    /// The published CA itself comes to its end. Of one that did not issue what is served the end does not matter.
    pub(super) fn ending(&self, facts: &NodeFacts) -> Option<Finding> {
        if self.is_foreign() {
            return None;
        }
        let all = self.ca.certificates.value()?;
        let now = facts.now;
        let counts = |c: &&CertificateFacts| self.is_needed(c, all);
        let first = all.iter().filter(counts).min_by_key(|c| c.not_after)?;
        let validity = |now| match first.not_after.since(now) {
            _ if first.not_after <= now => Validity::Ended,
            left if left < DAY * 30 => Validity::Ending(Severity::Warn),
            _ => Validity::Good,
        };
        let (here, trust) = (validity(now), Trust::of(facts));
        let doubt = trust.doubt(here, validity);
        let (status, when) = match here {
            Validity::Ended => (Status::False, format!("ended on {}", Moment(first.not_after))),
            Validity::Good if doubt.is_none() => {
                return all.iter().find(|c| c.not_after <= now && !counts(c)).map(|c| self.old(c));
            }
            _ => {
                let left = Span(first.not_after.since(now));
                (Status::True, format!("ends in {left}, on {}", Moment(first.not_after)))
            }
        };
        let message = format!("A CA that {} publishes at /cacerts {when}: {}.", self.b.host, first.subject);
        let renew = format!(
            "Issue a new CA and a server certificate by it, put the new PEM into the secret tls-ca in cattle-system, and give \
             every node the new checksum{}.",
            if here == Validity::Ended { "" } else { " before the old CA ends" }
        );
        if let Some(doubt) = doubt {
            let severity = here.severity().max(Severity::Warn);
            let unsure =
                self.new_finding(Status::Unknown, severity, R::CertificateClockUnsure, doubt.on(&message));
            return Some(unsure.advice(doubt.advice(if here == Validity::Ended { &renew } else { "" })));
        }
        Some(self.new_finding(status, here.severity(), R::CertificateAuthorityEnding, message).advice(renew))
    }

    /// Whether the served chain hangs on a published certificate: of those that issued it, and of two of one name the one
    /// that ends last. Where nothing tells, it hangs on each.
    fn is_needed(&self, one: &CertificateFacts, all: &[CertificateFacts]) -> bool {
        let served: Vec<&CertificateFacts> = self
            .b
            .probes
            .iter()
            .filter(|p| p.target == ProbeTarget::Balancer)
            .filter_map(|p| p.tls.value())
            .flat_map(|tls| &tls.chain)
            .collect();
        let issued =
            |c: &CertificateFacts| served.iter().any(|s| s.issuer == c.subject || s.sha256 == c.sha256);
        if self.ca.trusts_chain.value().is_none() || !all.iter().any(issued) {
            return true;
        }
        let newer = |c: &&CertificateFacts| c.subject == one.subject && c.not_after > one.not_after;
        issued(one) && !all.iter().any(|c| newer(&c))
    }

    /// A CA that has ended and on which nothing hangs.
    fn old(&self, ended: &CertificateFacts) -> Finding {
        let message = format!(
            "An old CA that {} publishes at /cacerts beside the one that issued the certificate ended on {}: {}. Agents work.",
            self.b.host,
            Moment(ended.not_after),
            ended.subject
        );
        self.new_finding(Status::True, Severity::Info, R::CertificateAuthorityEnding, message).advice(
            "Leave it until the CA is changed anyway, and take it out then: without it /cacerts has another checksum, which \
             every new node has to be given.",
        )
    }
}
