//! `RancherClusterDedicated`: what else lives in Rancher's own cluster. Its makers advise against it: what shares the cluster
//! shares its ingress, its load and its upgrades.

use outrider_protocol::{
    ConditionType, Fact, RancherCluster, ReasonCode as R, Route, Severity, Status, Timestamp,
};

use super::RAISE;
use crate::candidate::{Candidate, worst};
use crate::finding::Finding;
use crate::wording::{Count, names};

const TYPE: ConditionType = ConditionType::RancherClusterDedicated;
const QUOTED: usize = 5;

pub(super) fn judge(cluster: &RancherCluster, at: Timestamp) -> Option<Finding> {
    worst(TYPE, String::new(), at, super::CLEAR, candidates(cluster))
}

fn candidates(cluster: &RancherCluster) -> Vec<Candidate> {
    let mut all = Vec::new();
    let kinds =
        [("Ingress", "Ingresses", &cluster.ingresses), ("HTTPRoute", "HTTPRoutes", &cluster.http_routes)];
    let routes: Vec<(&str, &Route)> = kinds
        .iter()
        .flat_map(|(what, _, fact)| {
            fact.value().into_iter().flat_map(move |all| all.routes.iter().map(|route| (*what, route)))
        })
        .collect();
    let others: Vec<(&str, &Route)> =
        routes.iter().copied().filter(|(_, route)| !route.is_ranchers).collect();
    let rivals = rivals(&routes, &others);
    all.extend(contested(&routes, &rivals));
    let known = cluster.system_namespaces.value().map_or(&[][..], Vec::as_slice);
    let foreign: Vec<String> = others
        .iter()
        .filter(|other| !rivals.contains(other) && !is_systems(&other.1.namespace, known))
        .map(|(what, route)| format!("{what} {}/{} ({})", route.namespace, route.name, hosts(route)))
        .collect();
    if !foreign.is_empty() {
        let message = format!(
            "{} beside Rancher's own in its cluster: {}.",
            if foreign.len() == 1 { "A route stands" } else { "Routes stand" },
            names(&foreign, QUOTED)
        );
        all.push(Candidate::fault(Severity::Warn, R::RancherClusterShared, message).after(RAISE).advice(
            "Move what it leads to into another cluster: an Ingress of somebody else's shares the controller, its ports and its \
             settings with Rancher, and one mistake in it shuts everybody out.",
        ));
    }
    match &cluster.workloads {
        Fact::Known { value, .. } if !value.foreign.is_empty() => {
            let listed = value.foreign.iter().map(|w| {
                format!("{} {}/{} ({})", w.kind, w.namespace, w.name, Count(w.pods as usize, "pod"))
            });
            let more =
                if value.left_out > 0 { format!(", and {} more", value.left_out) } else { String::new() };
            let message = format!(
                "{} of others {} in Rancher's own cluster: {}{more}.",
                Count(value.foreign.len(), "workload"),
                if value.foreign.len() == 1 { "runs" } else { "run" },
                names(listed, QUOTED),
            );
            all.push(Candidate::fault(Severity::Info, R::RancherClusterShared, message).after(RAISE).advice(
                "Rancher's makers advise to keep its own cluster for Rancher alone: see whether these can live elsewhere. What \
                 belongs to the machine or to Rancher (storage, monitoring, backups) may stay; add its namespace to Rancher's \
                 setting system-namespaces and it is not named here any more.",
            ));
        }
        Fact::Known { .. } => {}
        other => all.extend(super::unread("What runs in Rancher's own cluster", other)),
    }
    for (_, plural, fact) in kinds {
        all.extend(super::unread(&format!("The {plural} of Rancher's own cluster"), fact));
    }
    let own = routes.iter().filter(|(_, route)| route.is_ranchers).count();
    let message = format!(
        "Nothing but Rancher and what it needs runs in its own cluster ({}; no pod outside of system namespaces).",
        Count(own, "route of Rancher's own")
    );
    all.push(Candidate::new(Status::True, Severity::Ok, R::RancherClusterAlone, message));
    all
}

/// Those that claim a host of Rancher's. Exactly the same: a star, or no host at all, yields to it.
fn rivals<'a>(routes: &[(&str, &Route)], others: &[(&'a str, &'a Route)]) -> Vec<(&'a str, &'a Route)> {
    let is_ranchers = |host: &String| {
        !host.is_empty() && routes.iter().any(|(_, route)| route.is_ranchers && route.hosts.contains(host))
    };
    others.iter().copied().filter(|(_, route)| route.hosts.iter().any(is_ranchers)).collect()
}

/// Two that claim one host: controllers take the older, merge them, or serve whichever they read last.
fn contested(routes: &[(&str, &Route)], rivals: &[(&str, &Route)]) -> Option<Candidate> {
    if rivals.is_empty() {
        return None;
    }
    let own = routes.iter().filter(|(_, route)| route.is_ranchers).flat_map(|(_, route)| &route.hosts);
    let host = own
        .filter(|host| !host.is_empty() && rivals.iter().any(|(_, route)| route.hosts.contains(host)))
        .map(String::as_str)
        .next();
    let message = format!(
        "{} {} requests for {} beside Rancher's own: which of them a request comes to hangs on the controller, its paths and \
         their age.",
        names(
            rivals.iter().map(|(what, route)| format!("{what} {}/{}", route.namespace, route.name)),
            QUOTED
        ),
        if rivals.len() == 1 { "takes" } else { "take" },
        host.unwrap_or("Rancher's host"),
    );
    Some(Candidate::fault(Severity::Warn, R::RancherHostContested, message).after(RAISE).advice(
        "Give what it leads to another host. Look at its paths first (kubectl get ingress -A): one for / takes all of Rancher \
         away, one for a path below takes that.",
    ))
}

fn hosts(route: &Route) -> String {
    let shown = |host: &String| if host.is_empty() { "every host".to_owned() } else { host.clone() };
    names(route.hosts.iter().map(shown), 3)
}

/// A route in a namespace of Kubernetes' or Rancher's own came with one of their charts.
fn is_systems(namespace: &str, known: &[String]) -> bool {
    namespace.starts_with("cattle-")
        || namespace.starts_with("kube-")
        || known.iter().any(|name| name == namespace)
}
