//! Who is asked: servers that are down, that answer everything, that pods must not be given, that are never asked.

use std::collections::BTreeSet;

use outrider_protocol::{
    DnsAnswer, DnsCode, DnsServer, DnsServerRole as Role, Fact, ReasonCode as R, ResolvConf, Severity,
    Status, UnknownCause,
};

use super::name::failing_advice;
use super::said::{silence, title};
use super::{RAISE, View};
use crate::candidate::Candidate;
use crate::wording::{Count, names};

/// Servers glibc asks.
const ASKED: usize = 3;

pub(super) fn candidates(view: &View<'_>) -> Vec<Candidate> {
    let mut all = Vec::new();
    all.extend(unread(view));
    all.extend(pods(view));
    all.extend(down(view));
    all.extend(failing(view));
    all.extend(everything(view));
    all.extend(ignored(view));
    all.push(good(view));
    all
}

fn unread(view: &View<'_>) -> Option<Candidate> {
    let Fact::Unknown { cause, detail, source, .. } = &view.dns.resolv_conf else { return None };
    let message = format!("{source} could not be read: {}.", detail.trim_end_matches('.'));
    let candidate = Candidate::new(Status::Unknown, Severity::Warn, R::from(cause), message).after(RAISE);
    Some(candidate.advice("Let everybody read /etc/resolv.conf: every program needs it."))
}

/// Why `server` gave no answer to any question; none when it answered one.
fn dead(view: &View<'_>, server: &DnsServer) -> Option<String> {
    let answers = view.dns.names.iter().flat_map(|n| &n.answers).filter(|a| a.server == server.address);
    let all: Vec<_> =
        std::iter::once(&server.nonsense).chain(answers.flat_map(|a| [&a.a, &a.aaaa])).collect();
    if all.iter().any(|fact| fact.value().is_some()) {
        return None;
    }
    all.into_iter().find_map(silence)
}

/// The code by which `server` fails every question that it answers; none when it served one.
fn fails(view: &View<'_>, server: &DnsServer) -> Option<String> {
    let answers = view.dns.names.iter().flat_map(|n| &n.answers).filter(|a| a.server == server.address);
    let asked: Vec<&DnsAnswer> = answers.flat_map(|a| [&a.a, &a.aaaa]).filter_map(Fact::value).collect();
    let odd = server.nonsense.value();
    let serves = |a: &&DnsAnswer| matches!(a.code, DnsCode::NoError | DnsCode::NxDomain);
    if asked.iter().chain(&odd).any(serves) {
        return None;
    }
    Some(asked.into_iter().chain(odd).next()?.code.to_string())
}

/// Servers that answer and serve nothing.
fn failing(view: &View<'_>) -> Option<Candidate> {
    let outside = || view.dns.servers.iter().filter(|s| s.role != Role::Cluster);
    let bad: Vec<(&DnsServer, String)> = outside().filter_map(|s| Some((s, fails(view, s)?))).collect();
    if bad.is_empty() {
        return None;
    }
    let all = outside().count();
    let severity = if bad.len() == all { Severity::Error } else { Severity::Warn };
    let message = format!(
        "{} of {all} DNS servers answer every question with a failure: {}.",
        bad.len(),
        names(bad.iter().map(|(s, code)| format!("{} with {code}", title(s))), 5)
    );
    let codes: Vec<String> = bad.into_iter().map(|(_, code)| code).collect();
    Some(Candidate::fault(severity, R::DnsServerFailing, message).after(RAISE).advice(failing_advice(&codes)))
}

fn down(view: &View<'_>) -> Vec<Candidate> {
    let judged: Vec<(&DnsServer, Option<String>)> =
        view.dns.servers.iter().map(|s| (s, dead(view, s))).collect();
    let outside = || judged.iter().filter(|(s, _)| s.role != Role::Cluster);
    let alive = outside().filter(|(_, dead)| dead.is_none()).count();
    let conf = view.dns.resolv_conf.value();
    let mut all = Vec::new();
    let lost: Vec<_> = outside().filter_map(|(s, dead)| Some((*s, dead.clone()?))).collect();
    if alive == 0 && !lost.is_empty() {
        let list = names(lost.iter().map(|(s, why)| format!("{} ({why})", title(s))), 5);
        let message = format!("No DNS server of this node answers: {list}.");
        all.push(Candidate::fault(Severity::Error, R::DnsServerDown, message).after(RAISE).advice(
            "See whether the servers run and whether UDP and TCP port 53 are open from this node; correct the nameserver \
             lines if they are the wrong ones.",
        ));
    } else if let Some((first, why)) =
        lost.iter().min_by_key(|(s, _)| (s.role != Role::Nameserver, s.position))
    {
        let others = lost.len() - 1;
        let more =
            if others == 0 { String::new() } else { format!(" (and {} more)", Count(others, "server")) };
        let cost = match (&first.role, first.position, conf) {
            (Role::Nameserver, 1, Some(conf)) if why == "silent" => format!(
                " It is the first in {}: every lookup of a new process waits {} s for it.",
                conf.path, conf.timeout_seconds
            ),
            (Role::Nameserver, 1, Some(conf)) => format!(" It is the first in {}.", conf.path),
            (Role::Upstream, ..) if view.has_pods() => {
                " The cluster DNS asks it as often as the others, so that some lookups of pods are slow or fail.".to_owned()
            }
            _ => " It is a spare that is none.".to_owned(),
        };
        let message = format!(
            "The DNS server {} does not answer ({why}){more}; {alive} of {} do.{cost}",
            title(first),
            alive + lost.len()
        );
        all.push(Candidate::fault(Severity::Warn, R::DnsServerDown, message).after(RAISE).advice(
            "Repair the server or its port 53 (UDP and TCP), or take it out of the list (netplan, NetworkManager, DHCP, or \
             resolv.conf itself).",
        ));
    }
    let cluster = judged.iter().find(|(s, _)| s.role == Role::Cluster);
    if let Some((server, Some(why))) = cluster {
        let (severity, assumed) = if server.assumed {
            (
                Severity::Info,
                " That address is the default, and nothing on this node says that it holds here.",
            )
        } else {
            (Severity::Error, "")
        };
        let message = format!("{} does not answer from this node ({why}).{assumed}", capital(&title(server)));
        all.push(Candidate::fault(severity, R::DnsServerDown, message).after(RAISE).advice(
            "See whether CoreDNS runs (kubectl -n kube-system get pods -l k8s-app=kube-dns) and whether kube-proxy and the \
             overlay carry packets from this node to it; its log says `Loop` when it asks itself.",
        ));
    }
    all
}

/// Addresses for a name that cannot exist.
fn everything(view: &View<'_>) -> Option<Candidate> {
    let liars: Vec<String> = view
        .dns
        .servers
        .iter()
        .filter_map(|s| {
            let found = s.nonsense.value().filter(|a| !a.addresses.is_empty())?;
            Some(format!("{} says {}", title(s), names(&found.addresses, 2)))
        })
        .collect();
    let odd = &view.dns.nonsense_name;
    if !liars.is_empty() {
        let message = format!("{odd} cannot exist (RFC 6761), and yet {}.", names(liars, 3));
        return Some(Candidate::fault(Severity::Warn, R::DnsAnswersEverything, message).after(RAISE).advice(
            "Use a server that says NXDOMAIN: a provider's helpful address, or a captive portal, makes every mistyped name and \
             every search domain look right.",
        ));
    }
    let found = view.dns.nonsense.value().filter(|all| !all.is_empty())?;
    let search = view.dns.resolv_conf.value().map_or(String::new(), |c| names(&c.search, 4));
    let message = format!(
        "A name that cannot exist ({odd}) resolves on this host to {}: a search domain ({search}) is put behind it, and a \
         wildcard there answers.",
        names(found, 3)
    );
    Some(Candidate::fault(Severity::Warn, R::SearchDomainWildcard, message).after(RAISE).advice(
        "Take the domain out of `search`, or the wildcard out of the domain: a name that is missing then looks as if it were \
         there, here and in pods.",
    ))
}

/// What pods are given.
fn pods(view: &View<'_>) -> Option<Candidate> {
    let fault = |severity, message: String, advice: &str| {
        Some(Candidate::fault(severity, R::PodResolverUnfit, message).after(RAISE).advice(advice))
    };
    let pods = match &view.dns.pods {
        Fact::Known { value, .. } => value,
        Fact::Absent { source, .. } => {
            return fault(
                Severity::Error,
                format!(
                    "The kubelet is to give pods {source}, and there is no such file: it cannot start pods without it."
                ),
                "Make the file, or give the kubelet another one (resolv-conf in RKE2's and K3s' configuration).",
            );
        }
        _ => return None,
    };
    let loops: Vec<&String> = pods.nameservers.iter().filter(|n| is_loopback(n)).collect();
    if !loops.is_empty() {
        return fault(
            Severity::Error,
            format!(
                "Pods are given {} with {} in it: in a pod that is the pod itself, and the cluster DNS asks itself in a circle \
                 (CoreDNS ends with `Loop`).",
                pods.path,
                names(&loops, 3)
            ),
            "Give the kubelet a file with the real servers: behind systemd-resolved /run/systemd/resolve/resolv.conf \
             (resolv-conf in RKE2's and K3s' configuration, resolvConf in a KubeletConfiguration).",
        );
    }
    if pods.nameservers.is_empty() {
        return fault(
            Severity::Error,
            format!(
                "Pods are given {}, which names no server: the cluster DNS has nobody to ask.",
                pods.path
            ),
            "Name the servers in the file, or give the kubelet another one (resolv-conf).",
        );
    }
    let is_made = pods.path.ends_with("/agent/etc/resolv.conf") && pods.nameservers == ["8.8.8.8"];
    if is_made {
        return fault(
            Severity::Warn,
            format!(
                "No file of this node suits pods (a nameserver on loopback spoils a file), so that they are given {} with \
                 8.8.8.8: names of your own network do not resolve in pods, nor anything without the internet.",
                pods.path
            ),
            "Write a file with the real servers and name it as resolv-conf in the configuration of RKE2 or K3s.",
        );
    }
    None
}

fn is_loopback(address: &str) -> bool {
    address.starts_with("127.") || address == "::1" || address == "0.0.0.0"
}

/// Lines and servers without effect.
fn ignored(view: &View<'_>) -> Vec<Candidate> {
    let mut seen: Vec<&ResolvConf> = Vec::new();
    for conf in [&view.dns.resolv_conf, &view.dns.pods].into_iter().filter_map(Fact::value) {
        if seen.iter().all(|c| c.path != conf.path) {
            seen.push(conf);
        }
    }
    let mut all = Vec::new();
    for conf in seen {
        if conf.nameservers.len() > ASKED {
            let rest = conf.nameservers.iter().skip(ASKED);
            let message = format!(
                "{} names {} servers; only the first three are asked, by glibc and by Kubernetes: {} never is.",
                conf.path,
                conf.nameservers.len(),
                names(rest, 4)
            );
            all.push(
                Candidate::fault(Severity::Info, R::DnsServersIgnored, message)
                    .advice("Leave the three best in the list."),
            );
        }
        let repeated: BTreeSet<&String> = (1..conf.nameservers.len())
            .filter_map(|i| {
                conf.nameservers.get(i).filter(|one| conf.nameservers.iter().take(i).any(|n| n == *one))
            })
            .collect();
        if !repeated.is_empty() {
            let message = format!(
                "{} names {} more than once: that is no second server, and a look-up waits for it twice when it is silent.",
                conf.path,
                names(repeated, 3)
            );
            all.push(
                Candidate::fault(Severity::Info, R::DnsServersIgnored, message)
                    .advice("Name another server in its place, or take the line out."),
            );
        }
        if !conf.problems.is_empty() {
            let message = format!("Part of {} has no effect: {}.", conf.path, names(&conf.problems, 3));
            all.push(
                Candidate::fault(Severity::Warn, R::DnsServersIgnored, message)
                    .advice("Correct the line, or whatever writes the file."),
            );
        }
    }
    if view.dns.names_left_out > 0 {
        let left = Count(view.dns.names_left_out as usize, "name");
        let message = format!("{left} more than this check looks up were left out.");
        let advice = "Name fewer in [checks.dns] names.";
        all.push(Candidate::fault(Severity::Info, R::DnsServersIgnored, message).advice(advice));
    }
    all
}

fn good(view: &View<'_>) -> Candidate {
    let servers: Vec<String> = view.dns.servers.iter().map(title).collect();
    if servers.is_empty() {
        let message = "No DNS server of this node is known, and none was asked.".to_owned();
        let reason = R::from(&UnknownCause::NotYetRead);
        return Candidate::new(Status::Unknown, Severity::Info, reason, message);
    }
    let pods = view.dns.pods.value().map(|p| format!("; pods are given {}", p.path)).unwrap_or_default();
    let why = match &view.dns.cluster_dns {
        Fact::NotApplicable { reason, .. } if view.has_pods() => {
            format!("; the cluster DNS was not asked ({reason})")
        }
        _ => String::new(),
    };
    let message =
        format!("{} answer: {}{pods}{why}.", Count(servers.len(), "DNS server"), names(&servers, 5));
    Candidate::new(Status::True, Severity::Ok, R::NamesResolve, message)
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
