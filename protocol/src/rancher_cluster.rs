//! Facts of Rancher's own (`local`) cluster on which the way in hangs: the name that Rancher gives its agents, who else takes
//! that name, and what else runs there. Of objects only names and hosts are kept, and everything is bounded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fact;

/// Rancher's own cluster as `credentials.rancher_kubeconfig` may see it. Each part is read with a right of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RancherCluster {
    /// The server that was asked.
    pub server: String,
    /// Setting `server-url`; empty where nobody has set it.
    pub server_url: Fact<String>,
    /// Setting `system-namespaces`: what Rancher counts as its own and Kubernetes'.
    pub system_namespaces: Fact<Vec<String>>,
    /// Every Ingress.
    pub ingresses: Fact<Routes>,
    /// Every HTTPRoute of the Gateway API; absent where the cluster does not know them.
    pub http_routes: Fact<Routes>,
    /// What runs outside of system namespaces.
    pub workloads: Fact<Workloads>,
}

/// Objects that lead requests to services by their host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Routes {
    /// Rancher's first, then in the order of the server.
    pub routes: Vec<Route>,
    /// More than are told of.
    #[serde(default)]
    pub left_out: u32,
}

/// One Ingress or HTTPRoute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Hosts of its rules, lower case; an empty one stands for every host.
    pub hosts: Vec<String>,
    /// Class of an Ingress; empty when it names none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub class: String,
    /// Made by Rancher's chart: in `cattle-system`, with the chart's label or to the service `rancher`.
    #[serde(default)]
    pub is_ranchers: bool,
}

/// Pods by who made them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workloads {
    /// Outside of system namespaces.
    pub foreign: Vec<Workload>,
    /// More than are told of.
    #[serde(default)]
    pub left_out: u32,
}

/// One workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Its namespace.
    pub namespace: String,
    /// `Deployment`, `StatefulSet`, …; `Pod` where nobody made it.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its pods.
    pub pods: u32,
}
