//! Search domains: what the name becomes with one of them behind it.

use outrider_protocol::{AppendedName, NameFacts, ReasonCode as R, Severity};

use super::compare::here;
use super::name::{lines, wanted};
use super::said::{Said, Word};
use super::{RAISE, View};
use crate::candidate::Candidate;
use crate::wording::names;

/// `ndots` of pods with the cluster's DNS (kubernetes/kubernetes: pkg/kubelet/network/dns/dns.go).
const POD_NDOTS: usize = 5;

pub(super) fn candidates(view: &View<'_>, name: &NameFacts, said: &[Said<'_>]) -> Vec<Candidate> {
    let outside: Vec<&Said<'_>> = said.iter().filter(|s| !s.is_cluster()).collect();
    if let Some(appended) = by_domain(view, name, &outside) {
        let pods = match view.has_pods() && appended.of.iter().any(|of| of == "pods") {
            true => ", as pods do",
            false => "",
        };
        let message = format!(
            "{} (for {}) does not exist ({}), and yet this host connects to {}{pods}: a search domain makes {}.{} of it, which \
             answers {}.",
            name.name,
            wanted(name),
            lines(outside),
            names(&appended.addresses, 4),
            name.name,
            appended.domain,
            kind(appended)
        );
        return vec![Candidate::fault(Severity::Error, R::SearchDomainWildcard, message).after(RAISE).advice(
            "Add the record of the name itself, and take the search domain out of the resolver configuration or the wildcard \
             out of the domain: what answers there is not what was meant.",
        )];
    }
    let of_name = view.dns.appended.iter().filter(|a| a.name == name.name);
    of_name.filter_map(|appended| one(view, name, appended)).collect()
}

/// The search domain by which alone this host has addresses for a name that the servers deny: glibc tries the domains after
/// the name, too.
pub(super) fn by_domain<'a>(
    view: &View<'a>,
    name: &NameFacts,
    outside: &[&Said<'_>],
) -> Option<&'a AppendedName> {
    let here = here(name);
    let denied = outside.iter().any(|s| matches!(s.word, Word::NoName | Word::NoAddress));
    if here.is_empty()
        || !name.hosts_file.is_empty()
        || !denied
        || outside.iter().any(|s| matches!(s.word, Word::Yes(_)))
    {
        return None;
    }
    let of_host = |a: &&AppendedName| a.name == name.name && a.of.iter().any(|of| of == "host");
    // IPv4 alone is asked of the domains.
    let told = |a: &&AppendedName| here.iter().any(|ip| a.addresses.contains(ip));
    view.dns.appended.iter().filter(of_host).find(told)
}

fn kind(appended: &AppendedName) -> &'static str {
    if appended.wildcard { "by a wildcard" } else { "by a record of its own" }
}

fn one(view: &View<'_>, name: &NameFacts, appended: &AppendedName) -> Option<Candidate> {
    let dots = name.name.matches('.').count();
    let ndots = view.dns.resolv_conf.value().map_or(1, |c| c.ndots as usize);
    let is_of = |who: &str| appended.of.iter().any(|of| of == who);
    let in_pods = is_of("pods") && dots < POD_NDOTS;
    let on_host = is_of("host") && dots < ndots;
    // What the name itself is: by the servers, for this host may have been led astray already.
    let facts = name.answers.iter().flat_map(|a| [a.a.value(), a.aaaa.value()]).flatten();
    let told: Vec<&String> = facts.flat_map(|answer| &answer.addresses).collect();
    let same = !told.is_empty() && appended.addresses.iter().all(|ip| told.contains(&ip));
    let both = format!("{}.{}", name.name, appended.domain);
    let who = match (in_pods, on_host) {
        (true, true) => "pods (ndots 5) and this host",
        (true, false) => "pods (ndots 5)",
        (false, true) => "this host",
        (false, false) => "nobody first",
    };
    let message = format!(
        "{both} is {} too, {} of the search domain {}: {who} {} that before {} itself.",
        names(&appended.addresses, 4),
        kind(appended),
        appended.domain,
        if in_pods { "try" } else { "tries" },
        name.name
    );
    let severity = if !in_pods && !on_host || same { Severity::Info } else { Severity::Error };
    Some(Candidate::fault(severity, R::SearchDomainWildcard, message).after(RAISE).advice(
        "Take the search domain out of the resolver configuration of the nodes (pods inherit it), or the wildcard out of the \
         domain. A final dot after the name keeps search domains away, where a program takes one.",
    ))
}
