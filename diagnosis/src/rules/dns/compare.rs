//! Who says what of one name: servers among themselves, the hosts file against them, the cluster DNS against them.

use std::collections::BTreeSet;

use outrider_protocol::{Fact, NameFacts, ReasonCode as R, Severity};

use super::name::{QUOTED, codes, failing_advice, lines, wanted};
use super::said::{Said, Word};
use super::{RAISE, View, search};
use crate::candidate::Candidate;
use crate::wording::names;

pub(super) fn candidates(view: &View<'_>, name: &NameFacts, said: &[Said<'_>]) -> Vec<Candidate> {
    let outside: Vec<&Said<'_>> = said.iter().filter(|s| !s.is_cluster()).collect();
    let cluster = said.iter().find(|s| s.is_cluster());
    let yes = |s: &&&Said<'_>| matches!(s.word, Word::Yes(_));
    let mut all = Vec::new();
    all.extend(only_here(view, name, &outside));
    all.extend(overridden(name, &outside));
    all.extend(denied(view, name, &outside));
    all.extend(split(name, &outside.iter().filter(yes).copied().collect::<Vec<_>>()));
    // What a search domain makes of it is not the name.
    let cluster = cluster.filter(|_| search::by_domain(view, name, &outside).is_none());
    all.extend(cluster.and_then(|cluster| pods(name, cluster, &outside)));
    all
}

fn addresses<'a>(said: &'a Said<'_>) -> BTreeSet<&'a str> {
    match &said.word {
        Word::Yes(addresses) => addresses.iter().map(String::as_str).collect(),
        _ => BTreeSet::new(),
    }
}

/// The host resolves it and no server does: they deny it, fail or are silent.
fn only_here(view: &View<'_>, name: &NameFacts, outside: &[&Said<'_>]) -> Option<Candidate> {
    let here = name.host.value().filter(|h| !h.addresses.is_empty())?;
    let asked: Vec<&Said<'_>> = outside.iter().filter(|s| s.word != Word::Untold).copied().collect();
    if asked.is_empty() || asked.iter().any(|s| matches!(s.word, Word::Yes(_))) {
        return None;
    }
    let denied = asked.iter().any(|s| matches!(s.word, Word::NoName | Word::NoAddress | Word::BrokenAlias));
    if name.hosts_file.is_empty() && search::by_domain(view, name, outside).is_some() {
        return None;
    }
    let severity = if view.has_pods() { Severity::Error } else { Severity::Warn };
    let title = format!(
        "{} (for {}) resolves to {} on this host",
        name.name,
        wanted(name),
        names(&here.addresses, QUOTED)
    );
    if name.hosts_file.is_empty() && !denied {
        // A cache between glibc and the servers, most likely.
        let message = format!(
            "{title} by something else than the servers asked, which do not say so: {}.",
            lines(asked.iter().copied())
        );
        let is_silent = asked.iter().all(|s| matches!(s.word, Word::Silent(_)));
        let reason = if is_silent { R::DnsServerDown } else { R::DnsServerFailing };
        return Some(
            Candidate::fault(severity, reason, message).after(RAISE).advice(match is_silent {
                true => {
                    "See whether the servers run and whether port 53 (UDP and TCP) is open from this node."
                        .to_owned()
                }
                false => failing_advice(&codes(&asked)),
            }),
        );
    }
    let by = if name.hosts_file.is_empty() {
        "by something else than DNS (see `hosts:` in /etc/nsswitch.conf)"
    } else {
        "by /etc/hosts alone"
    };
    let pods = match (view.has_pods(), denied) {
        (false, _) => "",
        (true, true) => " Pods of this node cannot resolve it.",
        (true, false) => " Pods of this node, which do not have that file, cannot resolve it now.",
    };
    let message = format!("{title} {by}; {}.{pods}", lines(asked.iter().copied()));
    let and = if name.hosts_file.is_empty() { "" } else { ", then take the entry out of /etc/hosts" };
    let cure = match denied {
        true => "Add the record to the DNS that nodes and pods ask",
        false => "Get the named servers to answer, with the record of this name",
    };
    Some(Candidate::fault(severity, R::NameOnlyOnHost, message).after(RAISE).advice(format!(
        "{cure}{and}. Where there is no such DNS, give the pods the entry too (CoreDNS: a `hosts` block, in RKE2 and K3s by \
         their own configuration of CoreDNS)."
    )))
}

/// The hosts file says other than the servers.
fn overridden(name: &NameFacts, outside: &[&Said<'_>]) -> Option<Candidate> {
    if name.hosts_file.is_empty() {
        return None;
    }
    let file: BTreeSet<&str> = name.hosts_file.iter().map(String::as_str).collect();
    let all: BTreeSet<&str> = outside.iter().flat_map(|s| addresses(s)).collect();
    if all.is_empty() || !all.is_disjoint(&file) {
        return None;
    }
    let message = format!(
        "/etc/hosts of this node says that {} is {}, and DNS that it is {}: this host and its pods go to different places.",
        name.name,
        names(&file, QUOTED),
        names(&all, QUOTED)
    );
    Some(Candidate::fault(Severity::Error, R::DnsAnswersDiffer, message).after(RAISE).advice(
        "Take the entry out of /etc/hosts, or correct it, if DNS is right; if the entry is right, correct DNS.",
    ))
}

/// Some servers have the name and others deny it.
fn denied(view: &View<'_>, name: &NameFacts, outside: &[&Said<'_>]) -> Option<Candidate> {
    let no: Vec<&Said<'_>> =
        outside.iter().filter(|s| matches!(s.word, Word::NoName | Word::NoAddress)).copied().collect();
    let yes: Vec<&Said<'_>> = outside.iter().filter(|s| matches!(s.word, Word::Yes(_))).copied().collect();
    if no.is_empty() || yes.is_empty() {
        return None;
    }
    let first_says_no = outside.first().is_some_and(|s| matches!(s.word, Word::NoName | Word::NoAddress));
    let severity = if first_says_no || view.has_pods() { Severity::Error } else { Severity::Warn };
    let message =
        format!("Servers disagree whether {} exists: {}.", name.name, lines(yes.iter().chain(&no).copied()));
    Some(Candidate::fault(severity, R::DnsAnswersDiffer, message).after(RAISE).advice(
        "Let every server of the list know the same zones: a no of the first one ends the search, and the cluster DNS asks \
         them in any order, so that pods resolve the name by chance. A server for other zones does not belong into the list.",
    ))
}

/// Servers that all have the name and have different addresses of it.
fn split(name: &NameFacts, yes: &[&Said<'_>]) -> Option<Candidate> {
    let (first, rest) = yes.split_first()?;
    let other = rest.iter().find(|s| addresses(s) != addresses(first))?;
    let (a, b) = (addresses(first), addresses(other));
    let who = lines([*first, *other]);
    if !a.is_disjoint(&b) {
        let message = format!("Servers give different parts of the addresses of {}: {who}.", name.name);
        return Some(Candidate::fault(Severity::Info, R::DnsAnswersDiffer, message).after(RAISE).advice(
            "Right for a name whose addresses rotate; otherwise a zone has not spread to every server yet.",
        ));
    }
    let private = |set: &BTreeSet<&str>| set.iter().all(|ip| is_private(ip));
    let kind =
        if private(&a) != private(&b) { " One is a private address, the other a public one." } else { "" };
    let message = format!("Servers say different things of {} (split horizon): {who}.{kind}", name.name);
    Some(Candidate::fault(Severity::Warn, R::DnsAnswersDiffer, message).after(RAISE).advice(
        "Ask only servers of one view from this node, for which of them is asked is a matter of chance, for pods above all. \
         Names that a cloud spreads over its places may differ rightly.",
    ))
}

/// What the cluster DNS tells the pods.
fn pods(name: &NameFacts, cluster: &Said<'_>, outside: &[&Said<'_>]) -> Option<Candidate> {
    let mut known: BTreeSet<&str> = outside.iter().flat_map(|s| addresses(s)).collect();
    known.extend(name.host.value().into_iter().flat_map(|h| &h.addresses).map(String::as_str));
    let known_here = !known.is_empty();
    match &cluster.word {
        Word::NoName | Word::NoAddress if known_here => {
            let message = format!(
                "Pods cannot resolve {}: {}, and outside of the cluster it is {}.",
                name.name,
                lines([cluster]),
                names(&known, QUOTED)
            );
            Some(Candidate::fault(Severity::Error, R::DnsAnswersDiffer, message).after(RAISE).advice(
                "Look at where CoreDNS forwards to (its ConfigMap, and the resolv.conf the kubelet gives it) and whether that \
                 server has the name; a name below the cluster's own domain is never forwarded.",
            ))
        }
        Word::Yes(_) if known_here && addresses(cluster).is_disjoint(&known) => {
            let message = format!(
                "Pods are sent elsewhere: of {}, {}, and outside of the cluster it is {}.",
                name.name,
                lines([cluster]),
                names(&known, QUOTED)
            );
            Some(Candidate::fault(Severity::Warn, R::DnsAnswersDiffer, message).after(RAISE).advice(
                "Right where CoreDNS is told so on purpose (a `hosts` block, a rewrite); otherwise it forwards to a server of \
                 another view than this node's.",
            ))
        }
        _ => None,
    }
}

/// RFC 1918, RFC 6598, RFC 4193 and link-local.
pub(in crate::rules) fn is_private(address: &str) -> bool {
    let bytes: Vec<u8> = address.split('.').filter_map(|part| part.parse().ok()).collect();
    match bytes.as_slice() {
        [10, ..] | [192, 168, ..] | [169, 254, ..] => true,
        [172, b, _, _] => (16..32).contains(b),
        [100, b, _, _] => (64..128).contains(b),
        _ => {
            let start = address.to_ascii_lowercase();
            start.contains(':')
                && ["fc", "fd", "fe8", "fe9", "fea", "feb"].iter().any(|p| start.starts_with(p))
        }
    }
}

/// The addresses this host has for the name.
pub(super) fn here(name: &NameFacts) -> &[String] {
    match &name.host {
        Fact::Known { value, .. } => &value.addresses,
        _ => &[],
    }
}
