//! The addresses of one name: loopback, this node alone, without a route.

use std::collections::BTreeSet;

use outrider_protocol::{Fact, Member, NameFacts, Profile, ReasonCode as R, Severity};

use super::compare::here;
use super::name::wanted;
use super::said::{Said, Word};
use super::{RAISE, View};
use crate::candidate::Candidate;
use crate::rules::load_balancer::host_of;
use crate::wording::names;

pub(super) fn candidates(view: &View<'_>, name: &NameFacts, said: &[Said<'_>]) -> Vec<Candidate> {
    let mut all = Vec::new();
    all.extend(loopback(name, said));
    all.extend(this_node(view, name, said));
    all.extend(unroutable(name));
    all.extend(link_local(name, said));
    all
}

/// 127.0.0.0/8, ::1, and the unspecified address, which connects to oneself as well.
fn is_loopback(address: &str) -> bool {
    let mapped = address.strip_prefix("::ffff:").unwrap_or(address);
    mapped.starts_with("127.") || matches!(mapped, "::1" | "0.0.0.0" | "::")
}

fn loopback(name: &NameFacts, said: &[Said<'_>]) -> Option<Candidate> {
    let mine: Vec<&String> = here(name).iter().filter(|ip| is_loopback(ip)).collect();
    let (who, found) = if mine.is_empty() {
        said.iter().find_map(|s| match &s.word {
            Word::Yes(all) => {
                let found: Vec<String> = all.iter().filter(|ip| is_loopback(ip)).cloned().collect();
                (!found.is_empty()).then(|| (format!("says {}", s.title()), found))
            }
            _ => None,
        })?
    } else {
        let by_file = mine.iter().any(|ip| name.hosts_file.contains(ip));
        let by = if by_file { "by /etc/hosts of this node" } else { "on this node" };
        (by.to_owned(), mine.into_iter().cloned().collect())
    };
    let message = format!(
        "{} (for {}) is {} {who}: whoever asks connects to itself, a pod to the pod.",
        name.name,
        wanted(name),
        names(&found, 3)
    );
    Some(Candidate::fault(Severity::Error, R::NameIsLoopback, message).after(RAISE).advice(
        "Take the entry out: installers put the machine's own name at 127.0.1.1 in /etc/hosts, and filters answer 0.0.0.0. The \
         name has to lead to the address of the balancer or server.",
    ))
}

fn this_node(view: &View<'_>, name: &NameFacts, said: &[Said<'_>]) -> Option<Candidate> {
    let addresses: Vec<&String> = here(name).iter().filter(|ip| !is_loopback(ip)).collect();
    let own = |ip: &&&String| {
        name.ways.iter().any(|w| w.address == ***ip && w.from.value().is_some_and(|from| *from == ***ip))
    };
    if addresses.is_empty() || !addresses.iter().all(|ip| own(&ip)) {
        return None;
    }
    let agrees = said.iter().any(|s| match &s.word {
        Word::Yes(all) => all.iter().all(|ip| addresses.contains(&ip)),
        _ => false,
    });
    let list = names(&addresses, 3);
    if !agrees {
        let message = format!(
            "{} (for {}) is {list} on this host, which is this node alone; DNS does not say so.",
            name.name,
            wanted(name)
        );
        return Some(Candidate::fault(Severity::Error, R::NameIsThisNode, message).after(RAISE).advice(
            "Take the entry out of /etc/hosts: this node goes to itself and never sees what is wrong with the way in, and its \
             pods go elsewhere.",
        ));
    }
    let (voters, is_ha) = (voters_beside(view, &addresses), is_ha(view));
    let leads_to_rancher =
        name.wanted_by.iter().any(|by| by.starts_with("load balancer ") || by == "rancher-system-agent");
    let (severity, known) = match voters {
        0 | 1 if is_ha => (Severity::Warn, String::new()),
        0 | 1 => (Severity::Info, String::new()),
        n if leads_to_rancher => (Severity::Error, format!(", one of {n} voters of etcd")),
        n => (Severity::Warn, format!(", one of {n} voters of etcd")),
    };
    let message = format!(
        "{} (for {}) is {list} everywhere, which is this node alone{known}: without this node nobody reaches it.",
        name.name,
        wanted(name)
    );
    Some(Candidate::fault(severity, R::NameIsThisNode, message).after(RAISE).advice(match severity {
        Severity::Error => {
            "Let the name lead to a balancer in front of the servers, or to every one of them: when this node is away, all of \
             Rancher is."
        }
        _ => "Right for a single server. With several, let the name lead to a balancer, or to every one of them.",
    }))
}

fn is_ha(view: &View<'_>) -> bool {
    matches!(view.facts.node.profile, Profile::RancherHaServer | Profile::RancherHaAgent)
}

/// Voters of etcd, where one of them is at one of `addresses`; else 0. An address that no member has may be a virtual one,
/// which is at another server tomorrow.
fn voters_beside(view: &View<'_>, addresses: &[&String]) -> usize {
    let etcd = view.facts.checks.etcd.as_ref().and_then(Fact::value);
    let members = etcd.and_then(|etcd| etcd.members.value()).map_or(&[][..], |list| &list.members);
    let is_at = |m: &Member| {
        m.peer_urls.iter().chain(&m.client_urls).any(|url| {
            let authority = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            addresses.iter().any(|address| *address == host_of(authority))
        })
    };
    let voters = || members.iter().filter(|m| !m.is_learner);
    if voters().any(is_at) { voters().count() } else { 0 }
}

fn unroutable(name: &NameFacts) -> Option<Candidate> {
    let route = |ip: &String| name.ways.iter().find(|w| w.address == *ip).map(|w| &w.from);
    let all = here(name);
    let dead: Vec<&String> = all.iter().filter(|ip| matches!(route(ip), Some(Fact::Absent { .. }))).collect();
    if dead.is_empty() {
        return None;
    }
    let family = if dead.iter().all(|ip| ip.contains(':')) { "IPv6 " } else { "" };
    if dead.len() == all.len() {
        let message =
            format!("This node has no route to any {family}address of {}: {}.", name.name, names(&dead, 4));
        return Some(Candidate::fault(Severity::Error, R::AddressUnroutable, message).after(RAISE).advice(
            "Give the node a route (and an address of that family), or the name an address that this node can reach.",
        ));
    }
    let message = format!(
        "This node has no route to {} of {} addresses of {} ({family}{}); programs try them in vain before the others.",
        dead.len(),
        all.len(),
        name.name,
        names(&dead, 4)
    );
    Some(Candidate::fault(Severity::Info, R::AddressUnroutable, message).after(RAISE).advice(
        "Give the node a route, or take the record out of the name if nobody needs it. The try fails at once here; it hangs \
         where a route leads nowhere.",
    ))
}

/// An address that means something on one link only, and there only with the name of an interface (RFC 4291, 2.5.6).
fn link_local(name: &NameFacts, said: &[Said<'_>]) -> Option<Candidate> {
    let is_local = |ip: &&String| ip.to_ascii_lowercase().starts_with("fe80:");
    let told = said.iter().flat_map(|s| if let Word::Yes(all) = &s.word { all.as_slice() } else { &[] });
    let all: BTreeSet<&String> = here(name).iter().chain(told).collect();
    let local: Vec<&&String> = all.iter().filter(|ip| is_local(ip)).collect();
    if local.is_empty() {
        return None;
    }
    let severity = if local.len() == all.len() { Severity::Error } else { Severity::Warn };
    let message = format!(
        "{} of {} addresses of {} (for {}) are link-local ({}): programs that have the name alone reach nobody by them.",
        local.len(),
        all.len(),
        name.name,
        wanted(name),
        names(local, 4)
    );
    Some(Candidate::fault(severity, R::AddressUnroutable, message).after(RAISE).advice(
        "Take the AAAA record out, or give it a global or unique local (fd00::/8) address of the balancer; look for what \
         registers addresses by itself (dynamic DNS).",
    ))
}
