//! The authority it pins against the certificate that Rancher's own name shows (E17, F1; rancher/rancher#52866, #48382, #54928).
//!
//! A process that holds its connection goes on; the next one that is made meets the new certificate.

use outrider_protocol::{
    BalancerService, CertificateFacts, Fact, LoadBalancerFacts, ProbeTarget, ReasonCode as R, Severity,
    TlsFacts,
};

use super::{RAISE, View};
use crate::candidate::Candidate;
use crate::rules::load_balancer::host_of;
use crate::wording::names;

pub(super) fn candidate(view: &View<'_>) -> Option<Candidate> {
    let connection = view.agent.connection.value()?;
    let pinned = connection.authorities.value().filter(|all| !all.is_empty())?;
    let balancer = view.balancers.iter().find(|b| is_at(b, &connection.server))?;
    let (peer, tls) = shown(balancer).find(|(_, tls)| !leads_to(tls, pinned))?;
    let issuer = &tls.chain.last()?.issuer;
    let fact = format!(
        "rancher-system-agent pins {} for {}, and the certificate at {peer} leads to {issuer}",
        names(pinned.iter().map(|ca| ca.subject.as_str()), 3),
        connection.server
    );
    let (severity, then) = match (&view.agent.strict_verify, trusted_by_system(balancer)) {
        (Fact::Known { value: true, .. }, _) => (
            Severity::Error,
            "It verifies strictly: its next connection fails, and then it is restarted for ever",
        ),
        (Fact::Unknown { .. }, _) => {
            (Severity::Warn, "If it verifies strictly, which could not be read, its next connection fails")
        }
        (_, Some(true)) => (
            Severity::Info,
            "It does not verify strictly: its first try fails, it drops that authority, and the system's store trusts what is \
             served",
        ),
        (_, Some(false)) => (
            Severity::Error,
            "The system's store, to which it falls back, does not trust that either: its next connection fails",
        ),
        (_, None) => (
            Severity::Warn,
            "It falls back to the system's store, of which is not known whether it trusts that",
        ),
    };
    let advice = match severity {
        Severity::Info => {
            "Nothing has to be done while it works. To be rid of the message in its log, run the registration command of the \
             cluster again on this node."
        }
        _ => {
            "Before anything restarts it: run the registration command of the cluster again on this node, which brings the CA \
             that Rancher publishes now (see RancherCA for its checksum), or serve a certificate of the old CA again. \
             Rancher goes on showing the node as running."
        }
    };
    let candidate = Candidate::fault(severity, R::RancherAgentCaUnfit, format!("{fact}. {then}."));
    Some(candidate.after(RAISE).advice(advice))
}

/// Whether the balancer is what `server` (a URL) names.
fn is_at(b: &LoadBalancerFacts, server: &str) -> bool {
    let Some(rest) = server.strip_prefix("https://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host_of(authority);
    let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(443);
    b.service == BalancerService::Rancher && port == b.port && host.eq_ignore_ascii_case(host_of(&b.host))
}

/// What the balancer's addresses showed.
fn shown(b: &LoadBalancerFacts) -> impl Iterator<Item = (&str, &TlsFacts)> {
    let through = b.probes.iter().filter(|p| p.target == ProbeTarget::Balancer);
    through.filter_map(|p| Some((p.peer.as_str(), p.tls.value().filter(|tls| !tls.chain.is_empty())?)))
}

/// A chain can lead to a certificate only by its name, or where it is itself in it.
fn leads_to(tls: &TlsFacts, pinned: &[CertificateFacts]) -> bool {
    let is_met =
        |ca: &CertificateFacts| tls.chain.iter().any(|c| c.issuer == ca.subject || c.sha256 == ca.sha256);
    pinned.iter().any(is_met)
}

/// Whether the machine's own roots, and no configured CA, trust what is served.
fn trusted_by_system(b: &LoadBalancerFacts) -> Option<bool> {
    let ca = b.ca.as_ref()?.value()?;
    ca.system_trusts_chain.value().map(String::is_empty)
}
