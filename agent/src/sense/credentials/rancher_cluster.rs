//! Rancher's own cluster, as far as the way in hangs on it: two settings, Ingresses, HTTPRoutes, and the metadata of pods
//! outside of system namespaces. Each is read by itself, so that a right that lacks hides nothing else.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use outrider_protocol::{Fact, RancherCluster, Route, Routes, UnknownCause, Workload, Workloads};
use serde_json::Value;
use tokio::time::Instant;

use super::access::{Access, object};
use super::list::{self, List, METADATA, WHOLE};
use crate::net::Failure;
use crate::sense::SenseContext;

const SETTINGS: &str = "/apis/management.cattle.io/v3/settings";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/ingresses";
const HTTP_ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/httproutes";
const PODS: &str = "/api/v1/pods";
/// Where Rancher's chart puts it, whatever the release is called.
const NAMESPACE: &str = "cattle-system";
/// Objects of one page.
const PAGE: usize = 100;
/// Most routes, hosts of one, and workloads that are told of.
const MAX_ROUTES: usize = 64;
const MAX_HOSTS: usize = 16;
const MAX_WORKLOADS: usize = 40;
/// Most namespaces that a server is asked to leave out itself: a query must fit into a line.
const MAX_LEFT_OUT: usize = 60;

/// Rancher's default of `system-namespaces` (rancher/rancher: pkg/settings/setting.go, and later versions' additions), for
/// where the setting cannot be read.
const SYSTEM: [&str; 27] = [
    "kube-system",
    "kube-public",
    "kube-node-lease",
    "cattle-system",
    "cattle-alerting",
    "cattle-logging",
    "cattle-pipeline",
    "cattle-prometheus",
    "cattle-global-data",
    "cattle-global-nt",
    "cattle-istio",
    "cattle-fleet-system",
    "cattle-fleet-local-system",
    "cattle-impersonation-system",
    "cattle-csp-adapter-system",
    "cattle-monitoring-system",
    "cattle-provisioning-capi-system",
    "cattle-turtles-system",
    "cattle-capi-system",
    "cattle-ui-plugin-system",
    "ingress-nginx",
    "cert-manager",
    "security-scan",
    "calico-system",
    "calico-apiserver",
    "tigera-operator",
    "rancher-operator-system",
];

/// Everything that may be read. `Absent` where the server knows no settings of Rancher, so is not Rancher's own cluster.
pub(super) async fn read(cx: &SenseContext, access: &Access, deadline: Instant) -> Fact<RancherCluster> {
    let source = |path: &str| format!("{}{path}", access.server());
    let fact = |path: &str, read: Result<Option<String>, Failure>| match read {
        Ok(Some(value)) => Fact::known(value, source(path), cx.now()),
        Ok(None) => Fact::absent(source(path), cx.now()),
        Err(failure) => failure.into_fact(source(path), cx.now()),
    };
    let path = format!("{SETTINGS}/server-url");
    let server_url = fact(&path, setting(access, "server-url", deadline).await);
    match server_url {
        Fact::Absent { source, at } => return Fact::Absent { source, at },
        // Who does not answer, or does not know us, need not be asked four times more. A right that lacks is lacking here.
        Fact::Unknown { cause, detail, source, at } if cause != UnknownCause::Forbidden => {
            return Fact::Unknown { cause, detail, source, at };
        }
        _ => {}
    }
    let path = format!("{SETTINGS}/system-namespaces");
    let system_namespaces = fact(&path, setting(access, "system-namespaces", deadline).await).map(|text| {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(short).take(500).collect::<Vec<String>>()
    });
    let ingresses = routes(cx, access, INGRESSES, ingress, deadline).await;
    let http_routes = routes(cx, access, HTTP_ROUTES, http_route, deadline).await;
    let own: Vec<&str> = match system_namespaces.value() {
        Some(names) if !names.is_empty() => names.iter().map(String::as_str).collect(),
        _ => SYSTEM.to_vec(),
    };
    let workloads = match workloads(access, &own, deadline).await {
        Ok(found) => Fact::known(found, source(PODS), cx.now()),
        Err(failure) => failure.into_fact(source(PODS), cx.now()),
    };
    let cluster = RancherCluster {
        server: access.server(),
        server_url,
        system_namespaces,
        ingresses,
        http_routes,
        workloads,
    };
    Fact::known(cluster, access.server(), cx.now())
}

/// A setting in force: its value, else its default (rancher/rancher: pkg/settings).
async fn setting(access: &Access, name: &str, deadline: Instant) -> Result<Option<String>, Failure> {
    let answer = access.get(&format!("{SETTINGS}/{name}"), 64 * 1024, deadline).await?;
    let Some(object) = object(&answer)? else { return Ok(None) };
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    if object.get("value").is_none() && object.get("default").is_none() {
        let why = format!("the answer for the setting {name} has neither value nor default");
        return Err(Failure::new(UnknownCause::InvalidAnswer, why));
    }
    let value = if text("value").is_empty() { text("default") } else { text("value") };
    Ok(Some(value.chars().take(4096).filter(|c| !c.is_control()).collect()))
}

async fn routes(
    cx: &SenseContext,
    access: &Access,
    path: &str,
    of: fn(&Value) -> Route,
    deadline: Instant,
) -> Fact<Routes> {
    let source = format!("{}{path}", access.server());
    let mut found = Routes::default();
    let is_there = list::each(access, List { path, accept: WHOLE, page: PAGE }, deadline, |item| {
        let route = of(&item);
        // Rancher's own is told of however many there are.
        match (route.is_ranchers, found.routes.len() < MAX_ROUTES) {
            (true, _) => found.routes.insert(0, route),
            (false, true) => found.routes.push(route),
            (false, false) => found.left_out += 1,
        }
        Ok(())
    })
    .await;
    match is_there {
        Ok(true) => Fact::known(found, source, cx.now()),
        Ok(false) => Fact::absent(source, cx.now()),
        Err(failure) => failure.into_fact(source, cx.now()),
    }
}

fn ingress(item: &Value) -> Route {
    let rules = list_of(item, "/spec/rules");
    let hosts: Vec<&str> = rules.iter().map(|rule| text(rule, "/host")).collect();
    // Without rules a default backend takes every host.
    let hosts = if hosts.is_empty() { vec![""] } else { hosts };
    let paths = rules.iter().flat_map(|rule| list_of(rule, "/http/paths"));
    let services: Vec<&str> = paths.map(|path| text(path, "/backend/service/name")).collect();
    let class = match text(item, "/spec/ingressClassName") {
        "" => text(item, "/metadata/annotations/kubernetes.io~1ingress.class"),
        class => class,
    };
    Route { class: short(class), ..route(item, &hosts, &services) }
}

fn http_route(item: &Value) -> Route {
    let hosts: Vec<&str> = list_of(item, "/spec/hostnames").iter().filter_map(Value::as_str).collect();
    let hosts = if hosts.is_empty() { vec![""] } else { hosts };
    let rules = list_of(item, "/spec/rules").iter();
    let services = rules.flat_map(|rule| list_of(rule, "/backendRefs")).map(|backend| text(backend, "/name"));
    route(item, &hosts, &services.collect::<Vec<_>>())
}

/// Rancher's chart labels what it makes `chart: rancher-VERSION` and names its service after the release
/// (rancher/rancher: chart/templates/_helpers.tpl).
fn route(item: &Value, hosts: &[&str], services: &[&str]) -> Route {
    let namespace = text(item, "/metadata/namespace");
    let of_chart = text(item, "/metadata/labels/chart").starts_with("rancher-");
    let mut all: Vec<String> = Vec::new();
    for host in hosts.iter().map(|host| short(host).to_ascii_lowercase()) {
        if !all.contains(&host) && all.len() < MAX_HOSTS {
            all.push(host);
        }
    }
    Route {
        namespace: short(namespace),
        name: short(text(item, "/metadata/name")),
        hosts: all,
        class: String::new(),
        is_ranchers: namespace == NAMESPACE && (of_chart || services.contains(&"rancher")),
    }
}

/// Pods outside of `own`, by what made them: what does not run is in nobody's way.
async fn workloads(access: &Access, own: &[&str], deadline: Instant) -> Result<Workloads, Failure> {
    // The server leaves out what it can, so that mostly nothing is sent.
    let is_name = |name: &&&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let without = own.iter().filter(is_name).take(MAX_LEFT_OUT);
    let selector: Vec<String> = without.map(|name| format!("metadata.namespace%21%3D{name}")).collect();
    let path = format!("{PODS}?fieldSelector={}", selector.join("%2C"));
    let mut all: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    let mut left_out = 0;
    let is_there = list::each(access, List { path: &path, accept: METADATA, page: PAGE }, deadline, |pod| {
        let namespace = text(&pod, "/metadata/namespace");
        if is_own(namespace, own) {
            return Ok(());
        }
        let (kind, name) = maker(&pod);
        // More than are ever shown are counted, not kept.
        let is_full = all.len() >= 10 * MAX_WORKLOADS;
        match all.entry((short(namespace), short(kind), short(&name))) {
            Entry::Occupied(mut known) => *known.get_mut() += 1,
            Entry::Vacant(_) if is_full => left_out += 1,
            Entry::Vacant(new) => drop(new.insert(1)),
        }
        Ok(())
    })
    .await?;
    if !is_there {
        return Err(Failure::new(UnknownCause::Unsupported, "this server knows no pods"));
    }
    left_out += u32::try_from(all.len().saturating_sub(MAX_WORKLOADS)).unwrap_or(u32::MAX);
    let foreign = all.into_iter().take(MAX_WORKLOADS);
    let foreign = foreign.map(|((namespace, kind, name), pods)| Workload { namespace, kind, name, pods });
    Ok(Workloads { foreign: foreign.collect(), left_out })
}

/// Rancher makes namespaces with these beginnings for itself and for Fleet, whether or not the setting names each.
fn is_own(namespace: &str, own: &[&str]) -> bool {
    own.contains(&namespace)
        || ["cattle-", "fleet-", "cluster-fleet-"].iter().any(|start| namespace.starts_with(start))
}

/// What made a pod. A Deployment's pods belong to a ReplicaSet that is named after it and their `pod-template-hash`.
fn maker(pod: &Value) -> (&str, String) {
    let owners = list_of(pod, "/metadata/ownerReferences");
    let controller =
        owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true));
    let Some(owner) = controller else { return ("Pod", text(pod, "/metadata/name").to_owned()) };
    let (kind, name) = (text(owner, "/kind"), text(owner, "/name"));
    let hash = text(pod, "/metadata/labels/pod-template-hash");
    match name.strip_suffix(hash).and_then(|start| start.strip_suffix('-')) {
        Some(deployment) if kind == "ReplicaSet" && !hash.is_empty() => ("Deployment", deployment.to_owned()),
        _ => (kind, name.to_owned()),
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list_of<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn short(text: &str) -> String {
    text.chars().take(253).filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ingress_takes_the_hosts_of_its_rules_and_without_rules_all() {
        let made = |namespace: &str, spec: Value| {
            ingress(&json!({"metadata": {"namespace": namespace, "name": "rancher"}, "spec": spec}))
        };
        let rule = |host: &str, service: &str| json!({"host": host, "http": {"paths": [{"backend": {"service": {"name": service}}}]}});
        let route = made(
            "cattle-system",
            json!({"ingressClassName": "nginx", "rules": [rule("Rancher.Example", "rancher"), rule("rancher.example", "x")]}),
        );
        assert_eq!(
            (route.hosts, route.class.as_str(), route.is_ranchers),
            (vec!["rancher.example".to_owned()], "nginx", true)
        );
        assert!(!made("default", json!({"rules": [rule("rancher.example", "rancher")]})).is_ranchers);
        assert_eq!(made("default", json!({"defaultBackend": {}})).hosts, [""]);
        assert_eq!(ingress(&json!("nonsense")).hosts, [""]);
        let labelled =
            json!({"metadata": {"namespace": "cattle-system", "labels": {"chart": "rancher-2.12.0"}}});
        assert!(ingress(&labelled).is_ranchers && http_route(&labelled).is_ranchers);
    }

    #[test]
    fn a_pod_is_named_after_what_made_it() {
        let pod = |owner: Value, hash: &str| json!({"metadata": {"name": "web-1", "labels": {"pod-template-hash": hash}, "ownerReferences": [owner]}});
        let of = |kind: &str, name: &str| json!({"kind": kind, "name": name, "controller": true});
        assert_eq!(maker(&pod(of("ReplicaSet", "web-abc12"), "abc12")), ("Deployment", "web".to_owned()));
        assert_eq!(maker(&pod(of("ReplicaSet", "web-abc12"), "")), ("ReplicaSet", "web-abc12".to_owned()));
        assert_eq!(maker(&pod(of("DaemonSet", "logs"), "x")), ("DaemonSet", "logs".to_owned()));
        assert_eq!(maker(&json!({"metadata": {"name": "web-1"}})), ("Pod", "web-1".to_owned()));
    }

    #[test]
    fn namespaces_of_rancher_and_fleet_are_its_own() {
        for (namespace, own) in [
            ("kube-system", true),
            ("cattle-new-thing", true),
            ("cluster-fleet-local-local-1a3d67d0a899", true),
            ("default", false),
            ("prod", false),
        ] {
            assert_eq!(is_own(namespace, &SYSTEM), own, "{namespace}");
        }
    }
}
