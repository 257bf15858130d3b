//! A chain that leads to no trusted root: is a certificate missing, or is the authority not known here?
//!
//! Both look the same to a verifier. They are told apart by what else is known: whether somebody else sends the missing
//! certificate, whether the last one that was sent says where its issuer's can be had, and what Rancher publishes.

use outrider_protocol::{
    CertificateFacts, ConditionType, Fact, LoadBalancerFacts, ReasonCode as R, Severity, Status, Timestamp,
    TlsFacts,
};

use crate::finding::Finding;
use crate::wording::names;

const TYPE: ConditionType = ConditionType::LoadBalancerReachable;

pub(super) fn judge(b: &LoadBalancerFacts, peer: &str, tls: &TlsFacts, why: &str, at: Timestamp) -> Finding {
    let sent = names(tls.chain.iter().map(|c| c.subject.as_str()), 4);
    let sent = format!("{} sent: {sent}", tls.chain.len());
    let new = |reason, message: String| Finding::new(TYPE, Status::True, Severity::Warn, reason, at, message);
    let top = top(&tls.chain);
    if top.subject == top.issuer {
        let what = if tls.chain.len() == 1 { "signed itself" } else { "leads to" };
        let message = format!(
            "The certificate at {peer} {what} {}, an authority that is not known here: {why}; {sent}.",
            top.subject
        );
        let published = published(b, &top.subject);
        return new(R::BalancerCaUnknown, format!("{}{published}", message)).advice(CA_ADVICE);
    }
    let issuer = top.issuer.as_str();
    if let Some(evidence) = missing(b, tls, top) {
        let message = format!(
            "The chain at {peer} is not whole: the certificate of {issuer} is missing ({evidence}); {sent}. The machine's \
             verdict: {why}."
        );
        return new(R::BalancerChainIncomplete, message).advice(format!(
            "Append the certificate of {issuer} where TLS ends, leaf first: nginx ssl_certificate (fullchain), HAProxy the \
             .pem of crt, ingress the tls.crt of secret tls-rancher-ingress in cattle-system."
        ));
    }
    let message = format!(
        "The chain at {peer} ends at {issuer}, which was not sent and is not known here: {why}; {sent}.{}",
        published(b, issuer)
    );
    new(R::BalancerCaUnknown, message).advice(format!(
        "{CA_ADVICE} If {issuer} is an intermediate and no root, let the server send its certificate too."
    ))
}

const CA_ADVICE: &str = "With a private CA: name it (ca in [[load_balancer]]) and check that Rancher's agents have its \
                         checksum. An authority that nobody knows is a default certificate of the ingress, or somebody \
                         who ends TLS on the way.";

/// The last certificate that is reached from the leaf by issuers that were sent.
fn top(chain: &[CertificateFacts]) -> &CertificateFacts {
    let mut top = &chain[0];
    for _ in 0..chain.len() {
        let next = chain.iter().find(|c| c.subject == top.issuer && c.sha256 != top.sha256);
        match next {
            Some(next) if top.subject != top.issuer => top = next,
            _ => break,
        }
    }
    top
}

/// How it is known that a certificate between the chain and its root is missing.
fn missing(b: &LoadBalancerFacts, tls: &TlsFacts, top: &CertificateFacts) -> Option<String> {
    let seen = b.probes.iter().filter_map(|p| Some((p, p.tls.value()?)));
    for (probe, other) in seen {
        let between = other.chain.iter().find(|c| c.subject == top.issuer && c.subject != c.issuer);
        if let Some(between) = between {
            return Some(format!("{} sends it, issued by {}", probe.peer, between.issuer));
        }
    }
    if let Some(certificates) = published_certificates(b)
        && certificates.iter().any(|c| c.subject == top.issuer && c.subject != c.issuer)
    {
        return Some("Rancher has it at /cacerts, but the server has to send it".to_owned());
    }
    if !tls.issuer_at.is_empty() {
        return Some(format!("it can be had at {}, as the last one says that was sent", tls.issuer_at));
    }
    let unrelated = tls.chain.len() > 1 && std::ptr::eq(top, &tls.chain[0]);
    if unrelated {
        return Some("others were sent that did not issue this one".to_owned());
    }
    let name = top.issuer.to_ascii_lowercase();
    let says = ["intermediate", "issuing", "subordinate"].into_iter().find(|word| name.contains(word))?;
    Some(format!("by its name it is no root: {says:?}"))
}

/// What Rancher publishes at `/cacerts`.
pub(super) fn published_certificates(b: &LoadBalancerFacts) -> Option<&Vec<CertificateFacts>> {
    match &b.ca {
        Some(Fact::Known { value, .. }) => value.certificates.value(),
        _ => None,
    }
}

/// What Rancher publishes, seen from an authority that is not known here, as a sentence of its own.
fn published(b: &LoadBalancerFacts, authority: &str) -> String {
    match published_certificates(b) {
        Some(all) if all.iter().any(|c| c.subject == authority) => {
            " Rancher publishes it at /cacerts, so its agents know it; this machine does not.".to_owned()
        }
        Some(all) if !all.is_empty() => {
            format!(
                " Rancher publishes another at /cacerts: {}.",
                names(all.iter().map(|c| c.subject.as_str()), 3)
            )
        }
        _ => String::new(),
    }
}
