//! What Rancher's operators would send for S against the live view L; to show, never to act by.
//!
//! rancher/eks-operator, rancher/aks-operator and rancher/gke-operator, `controller/*-cluster-config-handler.go` and
//! `pkg/*/update.go`; `facts/hosted-sync.md`, section 2.3. They know of no second writer: a field that differs is sent,
//! a pool that is not in the list is deleted.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::hosted::compare::{equal, networks, pool_differences, pools_by_name, scales_itself, versions};
use crate::hosted::fields::{Equality, Field, Trait};
use crate::hosted::object::Origin;
use crate::hosted::{Document, Provider, known};

/// What the operator would do about a field or a pool that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Leave it.
    Nothing,
    /// Send S.
    Update,
    /// Create the pool.
    Create,
    /// Delete the pool.
    Delete,
    /// Fail, and send nothing more.
    Fail,
}

/// One field or pool that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub does: Does,
    /// Why, in words.
    pub why: String,
}

fn step(does: Does, why: impl Into<String>) -> Step {
    Step { does, why: why.into() }
}

/// What the operator would do, by path (`tags`, `nodeGroups/NAME`); what agrees is left out.
pub fn push(provider: Provider, origin: Origin, spec: &Document, live: &Document) -> BTreeMap<String, Step> {
    let mut steps = BTreeMap::new();
    for field in provider.fields().iter().filter(|f| f.special != Trait::Identity) {
        let Some(ours) = known(spec, field.name) else { continue };
        let theirs = live.get(field.name).unwrap_or(&Value::Null);
        if field.equality == Equality::Pools {
            push_pools(provider, spec, ours, theirs, &mut steps);
        } else if !agrees(provider, field, ours, theirs) {
            steps.insert(field.name.to_owned(), of_field(provider, origin, field, spec, ours, theirs));
        }
    }
    for group in provider.sent_together() {
        let sent = |name: &&&str| steps.get(**name).is_some_and(|s: &Step| s.does == Does::Update);
        let Some(first) = group.iter().find(sent).copied() else { continue };
        for other in group.iter().filter(|name| known(spec, name).is_some()) {
            let along = step(Does::Nothing, format!("sent along with {first}, with the value it has"));
            steps.entry((*other).to_owned()).or_insert(along);
        }
    }
    steps
}

/// What the cloud does not tell compares as the Go zero value: `false`, `""`, `[]`, `{}`, `0`.
fn agrees(provider: Provider, field: &Field, ours: &Value, theirs: &Value) -> bool {
    if !theirs.is_null() {
        return equal(provider, field, ours, theirs);
    }
    match ours {
        Value::Bool(on) => !on,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(n) => n.as_i64() == Some(0),
        Value::Null => true,
    }
}

fn of_field(
    provider: Provider,
    origin: Origin,
    field: &Field,
    spec: &Document,
    ours: &Value,
    theirs: &Value,
) -> Step {
    let not_compared = || step(Does::Nothing, "the operator does not compare this field after creation");
    match (provider, field.name) {
        (_, "kubernetesVersion") => of_version(provider, ours, theirs),
        (_, "tags" | "labels") => step(Does::Update, removed(ours, theirs)),
        (Provider::Eks, "publicAccess" | "privateAccess" | "publicAccessSources" | "loggingTypes") => {
            step(Does::Update, "")
        }
        (Provider::Eks, "ebsCSIDriver") if ours == &Value::Bool(true) => step(Does::Update, ""),
        (Provider::Eks, "ebsCSIDriver") => {
            step(Does::Nothing, "the operator enables the driver and never disables it")
        }
        (Provider::Aks, "authorizedIpRanges") if origin == Origin::Imported && !adds(ours, theirs) => {
            step(Does::Nothing, "for an imported cluster ranges are only added, never removed")
        }
        (Provider::Aks, "authorizedIpRanges" | "httpApplicationRouting" | "monitoring") => {
            step(Does::Update, "")
        }
        (Provider::Gke, "locations") if known(spec, "zone").is_none_or(|z| z == "") => {
            step(Does::Nothing, "locations are sent for zonal clusters only")
        }
        (Provider::Gke, "loggingService" | "monitoringService") if ours == "" => {
            step(Does::Nothing, "empty stands for the default service")
        }
        (
            Provider::Gke,
            "clusterAddons"
            | "masterAuthorizedNetworks"
            | "loggingService"
            | "monitoringService"
            | "networkPolicyEnabled"
            | "locations"
            | "maintenanceWindow",
        ) => step(Does::Update, ""),
        _ => not_compared(),
    }
}

fn of_version(provider: Provider, ours: &Value, theirs: &Value) -> Step {
    let lower = versions(ours, theirs) == Some(Ordering::Less);
    match provider {
        _ if !lower => step(Does::Update, ""),
        Provider::Eks => step(Does::Nothing, "the operator ignores a lower version"),
        Provider::Gke if minor(ours) != minor(theirs) => {
            step(Does::Fail, "a lower minor version is an error, and nothing after it is sent")
        }
        Provider::Gke => step(Does::Update, ""),
        Provider::Aks => step(Does::Update, "sent although it is lower; Azure refuses to go back"),
    }
}

fn minor(version: &Value) -> Option<Vec<&str>> {
    Some(version.as_str()?.trim_start_matches('v').split('.').take(2).collect())
}

fn removed(ours: &Value, theirs: &Value) -> String {
    let (Some(ours), Some(theirs)) = (ours.as_object(), theirs.as_object()) else { return String::new() };
    let gone: Vec<&str> = theirs.keys().filter(|key| !ours.contains_key(*key)).map(String::as_str).collect();
    if gone.is_empty() { String::new() } else { format!("removes {}", gone.join(", ")) }
}

fn adds(ours: &Value, theirs: &Value) -> bool {
    let list = |value: &Value| networks(value).flatten().unwrap_or_default();
    list(ours).difference(&list(theirs)).next().is_some()
}

fn push_pools(
    provider: Provider,
    spec: &Document,
    ours: &Value,
    theirs: &Value,
    steps: &mut BTreeMap<String, Step>,
) {
    let list = provider.pool_list();
    if autopilot(spec) {
        return;
    }
    let none = Value::Array(Vec::new());
    let theirs = if theirs.is_null() { &none } else { theirs };
    let (mine, cloud) = match (pools_by_name(provider, ours), pools_by_name(provider, theirs)) {
        (Ok(mine), Ok(cloud)) => (mine, cloud),
        (Err(reason), _) | (_, Err(reason)) => {
            steps.insert(list.to_owned(), step(Does::Fail, reason));
            return;
        }
    };
    for (name, pool) in &mine {
        let differs = match cloud.get(name) {
            None => Some(step(Does::Create, "")),
            Some(theirs) => of_pool(provider, pool, theirs),
        };
        if let Some(step) = differs {
            steps.insert(format!("{list}/{name}"), step);
        }
    }
    let system = |pool: &Document| pool.get("mode").and_then(Value::as_str) == Some("System");
    for (name, pool) in cloud.iter().filter(|(name, _)| !mine.contains_key(*name)) {
        let last = provider == Provider::Aks && system(pool) && !mine.values().any(|p| system(p));
        let does = match last {
            true => step(Does::Fail, "the last System pool cannot be removed"),
            false => step(Does::Delete, "a pool that is not in the list is deleted"),
        };
        steps.insert(format!("{list}/{name}"), does);
    }
}

fn autopilot(spec: &Document) -> bool {
    known(spec, "autopilotConfig").and_then(|a| a.get("enabled")) == Some(&Value::Bool(true))
}

/// Fields of an EKS node group that the operator sends after creation.
const EKS_SENT: [&str; 7] =
    ["version", "launchTemplate", "desiredSize", "minSize", "maxSize", "labels", "tags"];

fn of_pool(provider: Provider, pool: &Document, theirs: &Document) -> Option<Step> {
    let mut differing: Vec<&str> = pool_differences(provider, pool, theirs);
    // GKE's count is sent although the pool scales itself (rancher/gke-operator: `pkg/gke/update.go`).
    if provider == Provider::Gke && scales_itself(provider, pool) {
        let (ours, live) = (known(pool, "initialNodeCount"), known(theirs, "initialNodeCount"));
        if ours.is_some() && live.is_some() && ours != live {
            differing.push("initialNodeCount");
        }
    }
    if differing.is_empty() {
        return None;
    }
    let sent: Vec<&str> = match provider {
        Provider::Eks => differing.iter().copied().filter(|name| EKS_SENT.contains(name)).collect(),
        Provider::Aks | Provider::Gke => differing.clone(),
    };
    Some(match sent.is_empty() {
        true => step(Does::Nothing, format!("{} is not sent after creation", differing.join(", "))),
        false => step(Does::Update, format!("sends {}", sent.join(", "))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use Does::{Create, Delete, Fail, Nothing, Update};
    use Provider::{Aks, Eks, Gke};

    fn does(provider: Provider, spec: Value, live: Value) -> Vec<(String, Does)> {
        does_for(provider, Origin::Created, spec, live)
    }

    fn does_for(provider: Provider, origin: Origin, spec: Value, live: Value) -> Vec<(String, Does)> {
        let steps = push(provider, origin, spec.as_object().unwrap(), live.as_object().unwrap());
        steps.into_iter().map(|(path, step)| (path, step.does)).collect()
    }

    fn one(path: &str, does: Does) -> Vec<(String, Does)> {
        vec![(path.to_owned(), does)]
    }

    #[test]
    fn a_lower_version_is_ignored_refused_or_sent() {
        let lower = || (json!({"kubernetesVersion": "1.25"}), json!({"kubernetesVersion": "1.26"}));
        assert_eq!(does(Eks, lower().0, lower().1), one("kubernetesVersion", Nothing));
        assert_eq!(does(Gke, lower().0, lower().1), one("kubernetesVersion", Fail));
        assert_eq!(does(Aks, lower().0, lower().1), one("kubernetesVersion", Update));
        let patch =
            (json!({"kubernetesVersion": "1.30.1-gke.1"}), json!({"kubernetesVersion": "1.30.2-gke.1"}));
        assert_eq!(does(Gke, patch.0, patch.1), one("kubernetesVersion", Update));
        let as_versions = (json!({"kubernetesVersion": "1.30"}), json!({"kubernetesVersion": "1.9"}));
        assert_eq!(does(Eks, as_versions.0, as_versions.1), one("kubernetesVersion", Update));
    }

    #[test]
    fn both_kinds_of_access_go_in_one_call() {
        let sent = does(
            Eks,
            json!({"privateAccess": false, "publicAccess": true}),
            json!({"privateAccess": true, "publicAccess": true}),
        );
        assert_eq!(sent, [("privateAccess".to_owned(), Update), ("publicAccess".to_owned(), Nothing)]);
    }

    #[test]
    fn pools_are_made_and_deleted_by_name() {
        let pool = |name: &str| json!({"nodegroupName": name});
        let sent = does(
            Eks,
            json!({"nodeGroups": [pool("a"), pool("b")]}),
            json!({"nodeGroups": [pool("b"), pool("c")]}),
        );
        assert_eq!(sent, [("nodeGroups/a".to_owned(), Create), ("nodeGroups/c".to_owned(), Delete)]);
        assert_eq!(does(Eks, json!({"nodeGroups": null}), json!({"nodeGroups": [pool("a")]})), []);
        assert_eq!(
            does(Eks, json!({"nodeGroups": []}), json!({"nodeGroups": [pool("a")]})),
            one("nodeGroups/a", Delete)
        );
        assert_eq!(
            does(Eks, json!({"nodeGroups": [pool("a"), pool("a")]}), json!({})),
            one("nodeGroups", Fail)
        );
        let system = |name: &str| json!({"name": name, "mode": "System"});
        assert_eq!(
            does(Aks, json!({"nodePools": []}), json!({"nodePools": [system("a")]})),
            one("nodePools/a", Fail)
        );
    }

    #[test]
    fn counts_while_a_pool_scales_itself() {
        let gke = |n: i64| json!({"nodePools": [{"name": "a", "initialNodeCount": n, "autoscaling": {"enabled": true}}]});
        assert_eq!(does(Gke, gke(3), gke(5)), one("nodePools/a", Update));
        let aks = |n: i64| json!({"nodePools": [{"name": "a", "count": n, "enableAutoScaling": true}]});
        assert_eq!(does(Aks, aks(3), aks(5)), []);
    }

    #[test]
    fn ranges_of_an_imported_aks_cluster_are_only_added() {
        let (less, more) = (
            json!({"authorizedIpRanges": ["192.0.2.1/32"]}),
            json!({"authorizedIpRanges": ["192.0.2.1/32", "192.0.2.2/32"]}),
        );
        assert_eq!(
            does_for(Aks, Origin::Imported, less.clone(), more.clone()),
            one("authorizedIpRanges", Nothing)
        );
        assert_eq!(
            does_for(Aks, Origin::Imported, more.clone(), less.clone()),
            one("authorizedIpRanges", Update)
        );
        assert_eq!(does_for(Aks, Origin::Created, less, more), one("authorizedIpRanges", Update));
    }

    #[test]
    fn empty_is_what_the_cloud_does_not_tell() {
        assert_eq!(does(Aks, json!({"monitoring": false, "tags": {}}), json!({"tags": null})), []);
        assert_eq!(does(Aks, json!({"monitoring": true}), json!({})), one("monitoring", Update));
        assert_eq!(
            does(Eks, json!({"ebsCSIDriver": false}), json!({"ebsCSIDriver": true})),
            one("ebsCSIDriver", Nothing)
        );
    }
}
