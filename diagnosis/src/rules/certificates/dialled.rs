//! What etcd shows, against the hosts of its own member's URLs. Others dial a member by its peer URL and hold the
//! certificate against the host of that URL (Go's TLS, as every client of etcd): a certificate for other names ends their
//! handshake, however good it is at the address where it was looked at.

use outrider_protocol::{
    CertificateFacts, Distribution, Fact, Member, NodeFacts, ReasonCode as R, ServedCertificate, Severity,
    Status,
};

use super::served::covers;
use super::{Candidate, RAISE, View, renewal};
use crate::rules::etcd::{urls, view};
use crate::wording::{Count, names};

/// This server's member, and how many there are.
pub(super) struct Own<'a> {
    member: &'a Member,
    members: usize,
}

impl<'a> Own<'a> {
    /// `None` where the list or which member is this server's is not known.
    pub(super) fn of(facts: &'a NodeFacts) -> Option<Self> {
        let etcd = facts.checks.etcd.as_ref().and_then(Fact::value)?;
        let list = etcd.members.value()?;
        let mut local = etcd.endpoints.iter().filter(|e| e.local);
        let id = local.find_map(view::member_of)?;
        let member = list.members.iter().find(|m| m.id == id)?;
        Some(Self { member, members: list.members.len() })
    }
}

/// URLs of this server's own member whose host the certificate at the port does not cover.
pub(super) fn uncovered(
    view: &View<'_>,
    served: &ServedCertificate,
    leaf: &CertificateFacts,
) -> Option<Candidate> {
    let own = view.own.as_ref()?;
    let (urls, usual, who) = match served.name.as_str() {
        "etcd-peer" => (&own.member.peer_urls, 2380, "the other members"),
        "etcd" => (&own.member.client_urls, 2379, "whoever dials it there"),
        _ => return None,
    };
    let missing: Vec<(&str, &str)> = urls
        .iter()
        .filter_map(|url| Some((url.as_str(), host_of(url, usual)?)))
        .filter(|(_, host)| !leaf.sans.iter().any(|san| covers(san, host)))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let hosts = names(missing.iter().map(|(_, host)| host), 4);
    let name = view::display_name(own.member);
    let dialled = served.name == "etcd-peer" && own.members > 1;
    let effect = match (served.name.as_str(), own.members) {
        ("etcd-peer", 0 | 1) => "no other member dials it yet, and one that joins could not".to_owned(),
        ("etcd-peer", n) => {
            format!("{who} ({} in all) end the handshake when they dial it", Count(n, "member"))
        }
        _ => format!("{who} ends the handshake"),
    };
    let message = format!(
        "The certificate that {} shows at {} does not cover {hosts} of {name}'s own {} ({}): {effect}. It covers {}.",
        served.name,
        served.peer,
        if served.name == "etcd-peer" { "peer URL" } else { "client URL" },
        names(missing.iter().map(|(url, _)| url), 4),
        if leaf.sans.is_empty() { "no name at all".to_owned() } else { names(&leaf.sans, 6) }
    );
    let compare = format!(
        "See which is right (ip -br address): if {hosts} is this server's, its certificate is of another address or another \
         node's files; if not, the address has changed and the member list still has the old one."
    );
    let advice = match view.facts.distribution {
        Distribution::Rke2 | Distribution::K3s => view.weighed(format!(
            "{compare} {} makes a new certificate for its node-ip at a start where the one on disk does not cover it.",
            renewal::unit(view)
        )),
        Distribution::Rke1 => format!("{compare} rke cert rotate issues a new one for the addresses of cluster.yml."),
        Distribution::Kubeadm => view.weighed(format!(
            "{compare} kubeadm certs renew keeps the names of the old one: move etcd's {} and its key away and make it anew \
             (kubeadm init phase certs {}), then restart the static pod etcd.",
            if served.file.is_empty() { "certificate" } else { &served.file },
            if served.name == "etcd-peer" { "etcd-peer" } else { "etcd-server" }
        )),
        _ => compare,
    };
    let (status, severity) =
        if dialled { (Status::False, Severity::Error) } else { (Status::True, Severity::Warn) };
    Some(Candidate::new(status, severity, R::CertificateWrong, message).after(RAISE).advice(advice))
}

/// The host of `https://host:port`; `None` of a URL without TLS, and of one that is none.
fn host_of(url: &str, usual: u16) -> Option<&str> {
    let (host, _) = urls::split(url.strip_prefix("https://")?.split('/').next()?, usual);
    Some(host).filter(|host| !host.is_empty())
}
