//! Desired node configuration: what the coordinator may ask of an agent.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HostTopology, TopologyValues, TypeMeta};

/// Desired configuration of one node. A null (absent) field is unmanaged: the node's own value stays. An empty value
/// is managed and empty. Effective = the node's own value + non-null desired.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeConfigSpec {
    /// Seconds between heartbeats (1 to 3600).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_seconds: Option<u32>,
    /// Overrides per check, by its name; a check not in the map is unmanaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<BTreeMap<String, CheckConfig>>,
    /// Cluster the node is shown under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Limits of the check `load-balancer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancerConfig>,
    /// Region and zone of its Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyConfig>,
}

/// Desired labels of the own Node; null fields are unmanaged, an empty one is to be no label.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyConfig {
    /// Region and zone that an operator desires.
    #[serde(flatten)]
    pub values: TopologyValues,
    /// Labels of the physical host that the node's machine runs on, as the coordinator last read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostTopology>,
}

/// Desired limits of the check `load-balancer`; null fields are unmanaged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerConfig {
    /// Connections a minute that the node may make to one balancer and its backends (1 to 600): its share of the fleet's
    /// budget, which the coordinator gives out unless an operator desires another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes_per_minute: Option<u32>,
}

/// Desired cadence of one check; null fields are unmanaged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckConfig {
    /// Whether it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Seconds between passes (1 to 86400).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_seconds: Option<u32>,
}

/// The document that carries it, with the generation that changes whenever the spec does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeConfig {
    /// `apiVersion` and `kind: NodeConfig`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Grows by one with every change of what an operator desires; 0 when nothing was ever desired. What a node is sent
    /// carries its share of the probes above: a number that is another for every other spec.
    pub generation: u64,
    /// What is desired.
    pub spec: NodeConfigSpec,
}
