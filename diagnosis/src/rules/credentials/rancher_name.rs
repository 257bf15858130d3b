//! `RancherName`: `server-url`, Rancher's Ingress, the balancer that is configured and the certificate it shows have to name
//! one host (`facts/rancher-load-balancer.md`, 6 and E17).
//!
//! `server-url` is the one that counts: every agent of every cluster holds it and it cannot be changed afterwards. So whatever
//! differs is to be brought to it, and never the other way round.

use outrider_protocol::{
    BalancerService, ConditionType, Fact, LoadBalancerFacts, NodeFacts, Probe, ProbeKind, ProbeTarget,
    RancherCluster, ReasonCode as R, Route, Routes, Severity, Status, Timestamp,
};

use super::RAISE;
use crate::candidate::{Candidate, worst};
use crate::finding::Finding;
use crate::rules::certificates::covers;
use crate::wording::names;

const TYPE: ConditionType = ConditionType::RancherName;
const QUOTED: usize = 4;
/// What nobody must do about a difference, in every advice.
const NEVER: &str =
    "Leave server-url as it is: agents of every cluster hold it, and it cannot be changed afterwards.";

pub(super) fn judge(cluster: &RancherCluster, at: Timestamp, facts: &NodeFacts) -> Option<Finding> {
    worst(TYPE, String::new(), at, super::CLEAR, candidates(cluster, facts))
}

fn candidates(cluster: &RancherCluster, facts: &NodeFacts) -> Vec<Candidate> {
    let url = match &cluster.server_url {
        Fact::Known { value, .. } => value.as_str(),
        other => return super::unread("Rancher's setting server-url", other).into_iter().collect(),
    };
    let address = match Address::of(url) {
        Ok(address) => address,
        Err(why) => return vec![unusable(url, &why)],
    };
    let balancers = facts.checks.load_balancer.as_ref().and_then(Fact::value);
    let balancers: Vec<&LoadBalancerFacts> =
        balancers.into_iter().flatten().filter(|b| b.service == BalancerService::Rancher).collect();
    let mut all = Vec::new();
    all.extend(certificate(&address, &balancers));
    all.extend(routed(&address, cluster, &balancers));
    all.extend(balancer(&address, &balancers));
    all.push(agreed(&address, cluster, &balancers));
    all
}

/// Where agents go.
struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// The error is a clause about the URL.
    fn of(url: &str) -> Result<Self, String> {
        let rest = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => rest,
            Some((scheme, _)) => return Err(format!("begins with {scheme}:// and not with https://")),
            None => return Err("is no URL (https://host)".to_owned()),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() {
            return Err(format!("has a path, /{path}, below which Rancher does not answer"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| format!("has no port that can be used ({port:?})"))?)
            }
            _ => (authority, 443),
        };
        let host = canonical(host.trim_start_matches('[').trim_end_matches(']'));
        if host.is_empty() || host.contains(['@', '?', '#', ' ']) {
            return Err("names no host that can be used".to_owned());
        }
        if host == "localhost" || host.parse::<core::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()) {
            return Err(format!("leads every agent to its own machine ({host})"));
        }
        Ok(Self { host, port })
    }
}

fn canonical(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}

fn unusable(url: &str, why: &str) -> Candidate {
    let (message, advice) = if url.is_empty() {
        let message = "Rancher's server-url is not set: no cluster can be registered, for its agents would be told of no server.";
        (
            message.to_owned(),
            "Log in to Rancher for the first time by the name that it is to keep, or set server-url under Global Settings, before \
             any cluster is registered: it cannot be changed afterwards.",
        )
    } else {
        (
            format!("Rancher's server-url, {url:?}, {why}."),
            "Ask Rancher's administrators which URL the agents of its clusters were given before anything is changed: those that \
             are registered hold it.",
        )
    };
    Candidate::fault(Severity::Warn, R::RancherServerUrlUnusable, message).advice(advice)
}

/// What the balancer shows has to cover the name that agents verify.
fn certificate(address: &Address, balancers: &[&LoadBalancerFacts]) -> Option<Candidate> {
    // Told with SNI of the configured host: another host may be shown another certificate, so only the same host counts as
    // certain.
    for balancer in balancers.iter().filter(|b| canonical(&b.host) == address.host) {
        let shown = balancer.probes.iter().filter(|probe| probe.target == ProbeTarget::Balancer);
        for (peer, leaf) in shown.filter_map(|p| Some((&p.peer, p.tls.value()?.chain.first()?))) {
            if leaf.sans.iter().any(|san| covers(san, &address.host)) {
                continue;
            }
            let shown = if leaf.sans.is_empty() { "no name".to_owned() } else { names(&leaf.sans, QUOTED) };
            let message = format!(
                "Agents are told to verify {} (server-url), and the certificate at {peer} covers {shown}.",
                address.host
            );
            return Some(Candidate::fault(Severity::Error, R::RancherNameDiffers, message).after(RAISE).advice(
                format!(
                    "Issue the certificate with {} among its subject alternative names, where TLS ends. {NEVER}",
                    address.host
                ),
            ));
        }
    }
    None
}

/// Who leads requests for the host of server-url to Rancher.
fn routed(
    address: &Address,
    cluster: &RancherCluster,
    balancers: &[&LoadBalancerFacts],
) -> Option<Candidate> {
    let (mut own, mut unread) = (Vec::new(), None);
    for (what, fact) in [("Ingress", &cluster.ingresses), ("HTTPRoute", &cluster.http_routes)] {
        match fact {
            Fact::Known { value, .. } => own.extend(ranchers(value).map(|route| (what, route))),
            other => {
                unread = unread.or_else(|| {
                    super::unread(&format!("What names the {what}s of Rancher's own cluster hold"), other)
                })
            }
        }
    }
    if own.iter().any(|(_, route)| takes(route, &address.host)) {
        return None;
    }
    let Some((what, first)) = own.first() else {
        // Without an Ingress of its own Rancher may be led to by other means; the balancer's tries tell whether it is.
        return unread;
    };
    let hosts = names(own.iter().flat_map(|(_, route)| &route.hosts), QUOTED);
    let message = format!(
        "Agents are told to go to {} (server-url), and Rancher's {what} {}/{} takes requests for {hosts} only.",
        address.host, first.namespace, first.name
    );
    // A balancer may write another Host; what has been seen to work is no outage.
    let works = balancers.iter().any(|b| canonical(&b.host) == address.host && b.probes.iter().any(is_pong));
    let (severity, tail) = if works {
        (Severity::Warn, " By the balancer it is reached all the same, which then rewrites the Host.")
    } else {
        (Severity::Error, "")
    };
    Some(Candidate::fault(severity, R::RancherNameDiffers, format!("{message}{tail}")).after(RAISE).advice(format!(
        "Give Rancher's chart the host of server-url (helm upgrade … --reuse-values --set hostname={}), and see that the \
         certificate covers it. {NEVER}",
        address.host
    )))
}

fn ranchers(routes: &Routes) -> impl Iterator<Item = &Route> {
    routes.routes.iter().filter(|route| route.is_ranchers)
}

/// Whether `route` takes requests for `host`; a star stands for one label or more, as controllers read it. One without
/// hosts takes every request.
fn takes(route: &Route, host: &str) -> bool {
    route.hosts.is_empty()
        || route.hosts.iter().any(|rule| {
            rule.is_empty() || rule == host || rule.strip_prefix('*').is_some_and(|rest| host.ends_with(rest))
        })
}

fn is_pong(probe: &Probe) -> bool {
    let answer = probe.http.value();
    probe.kind == ProbeKind::Ping
        && probe.target == ProbeTarget::Balancer
        && answer.is_some_and(|answer| answer.status == 200 && answer.body_start.starts_with("pong"))
}

/// The name under which Rancher is tried, which is also the one that is looked up.
fn balancer(address: &Address, balancers: &[&LoadBalancerFacts]) -> Option<Candidate> {
    let same_host = balancers.iter().find(|b| canonical(&b.host) == address.host);
    let message = match (same_host, balancers.first()) {
        (_, None) => return None,
        (Some(_), _) if balancers.iter().any(|b| is_at(b, address)) => return None,
        (Some(other), _) => format!(
            "Agents are told to go to port {} of {} (server-url), and the load balancer {} is configured at port {}.",
            address.port, address.host, other.name, other.port
        ),
        (None, Some(_)) => format!(
            "Agents are told to go to {} (server-url), and the load balancer that is configured is called {}: the name, the \
             addresses and the certificate that are tried here are not those that agents use.",
            address.host,
            names(balancers.iter().map(|b| &b.host), QUOTED)
        ),
    };
    Some(Candidate::fault(Severity::Warn, R::RancherNameDiffers, message).after(RAISE).advice(format!(
        "Configure the load balancer with server-url (url = \"https://{}{}\"); a second name for people needs an Ingress host \
         and a place in the certificate of its own. {NEVER}",
        address.host,
        if address.port == 443 { String::new() } else { format!(":{}", address.port) }
    )))
}

fn is_at(balancer: &LoadBalancerFacts, address: &Address) -> bool {
    canonical(&balancer.host) == address.host && balancer.port == address.port
}

fn agreed(address: &Address, cluster: &RancherCluster, balancers: &[&LoadBalancerFacts]) -> Candidate {
    let mut with = Vec::new();
    let routed = [("Ingress", &cluster.ingresses), ("HTTPRoute", &cluster.http_routes)];
    for (what, fact) in routed {
        let own = fact.value().into_iter().flat_map(ranchers).find(|route| takes(route, &address.host));
        with.extend(own.map(|route| format!("Rancher's {what} {}/{}", route.namespace, route.name)));
    }
    if let Some(balancer) = balancers.iter().find(|b| is_at(b, address)) {
        with.push(format!("the load balancer {}", balancer.name));
        if balancer.probes.iter().any(|p| p.target == ProbeTarget::Balancer && p.tls.value().is_some()) {
            with.push("its certificate".to_owned());
        }
    }
    let message = if with.is_empty() {
        format!(
            "Rancher's server-url is {}; no Ingress of Rancher and no configured load balancer is there to compare.",
            address.host
        )
    } else {
        format!("Rancher's server-url, {}, is the name of {} too.", address.host, with.join(", "))
    };
    Candidate::new(Status::True, Severity::Ok, R::RancherNameAgreed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_as_agents_read_them() {
        let good = |url: &str| Address::of(url).map(|a| (a.host, a.port)).unwrap();
        assert_eq!(good("https://Rancher.Example./"), ("rancher.example".to_owned(), 443));
        assert_eq!(good("HTTPS://rancher.example:8443"), ("rancher.example".to_owned(), 8443));
        assert_eq!(good("https://[2001:db8::1]:443"), ("2001:db8::1".to_owned(), 443));
        for url in [
            "rancher.example",
            "http://rancher.example",
            "https://",
            "https:///x",
            "https://rancher.example/dashboard",
            "https://rancher.example:http",
            "https://user@rancher.example",
            "https://127.0.0.1",
            "https://localhost:8443",
            "https://[::1]",
        ] {
            assert!(Address::of(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_route_takes_its_hosts_and_what_a_star_stands_for() {
        let takes = |rule: &str, host: &str| {
            super::takes(&Route { hosts: vec![rule.to_owned()], ..Route::default() }, host)
        };
        assert!(takes("rancher.example", "rancher.example") && takes("", "rancher.example"));
        assert!(takes("*.example", "rancher.example") && !takes("*.example", "example"));
        assert!(!takes("other.example", "rancher.example"));
    }
}
