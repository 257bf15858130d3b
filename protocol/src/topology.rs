//! Facts of the check `topology`: region and zone of the own Node, and what they should be
//! (`facts/harvester-topology.md`).
//!
//! A label's value is always text: `010` and `no` are zones like any other.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Fact, Timestamp};

/// The label of the region (kubernetes/api, `core/v1/well_known_labels.go`).
pub const REGION: &str = "topology.kubernetes.io/region";
/// The label of the zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The region's label of before 1.17, which cloud controllers still compare first.
pub const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
/// The zone's.
pub const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// Our name among the field managers of a Node.
pub const FIELD_MANAGER: &str = "outrider";

open_enum! {
    /// What may be done about labels: `[topology] mode`.
    TopologyMode {
        /// As the cloud provider of the node leaves room for: `sync` or `verify`.
        Auto = "auto",
        /// Labels are written.
        Sync = "sync",
        /// Labels are compared and never written.
        Verify = "verify",
        /// Nothing is looked at.
        Off = "off",
    }
}

/// What the check `topology` reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyFacts {
    /// Mode as configured.
    pub mode: TopologyMode,
    /// Field managers whose labels may be taken over.
    #[serde(default)]
    pub take_over: Vec<String>,
    /// Whether a node that has a zone keeps it until a person changes it: volumes may be bound to the old one.
    #[serde(default)]
    pub strict: bool,
    /// The own Node.
    pub node: Fact<NodeTopology>,
    /// The virtual machine that this node is, at its host cluster.
    pub machine: Fact<MachineTopology>,
    /// Labels of the physical host, as the coordinator last told; absent when it tells none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostTopology>,
    /// Region and zone that an operator desires for this node; null fields are unmanaged, an empty one is to be no label.
    #[serde(default)]
    pub desired: TopologyValues,
    /// Region and zone of `[topology]`.
    #[serde(default)]
    pub configured: TopologyValues,
    /// Region and zone as cloud-init read them from the instance's metadata.
    pub instance: Fact<TopologyValues>,
    /// Labels that the configuration of RKE2 or K3s gives the kubelet, of the four of topology.
    #[serde(default)]
    pub static_labels: BTreeMap<String, String>,
    /// System UUID of the machine that the agent runs on; empty when not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system_uuid: String,
    /// What our own writes came to.
    #[serde(default)]
    pub writes: WriteRecord,
}

/// A region and a zone; null is none that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyValues {
    /// Region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// The labels of a physical host, for the node whose machine runs on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostTopology {
    /// Name of the host's Node in the host cluster.
    pub name: String,
    /// Its region and zone; null is no such label.
    #[serde(flatten)]
    pub values: TopologyValues,
    /// When they were read.
    pub at: Timestamp,
}

/// The own Node, as far as topology goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTopology {
    /// Its name.
    pub name: String,
    /// Its uid: another one is another Node of the same name.
    pub uid: String,
    /// `metadata.resourceVersion` of this reading.
    pub resource_version: String,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Its labels, of the four of topology.
    pub labels: BTreeMap<String, String>,
    /// Who owns each of them (`metadata.managedFields`).
    #[serde(default)]
    pub owners: BTreeMap<String, Vec<LabelOwner>>,
    /// `spec.providerID`; empty when none is set.
    #[serde(default)]
    pub provider_id: String,
    /// `status.nodeInfo.systemUUID`: system UUID of the machine whose kubelet reports; empty when not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system_uuid: String,
    /// Versions of Harvester's cloud provider among the images on this node.
    #[serde(default)]
    pub cloud_provider_versions: Vec<String>,
    /// Whether it has the taint `node.cloudprovider.kubernetes.io/uninitialized`.
    #[serde(default)]
    pub uninitialized: bool,
    /// Since when that is known to be so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uninitialized_since: Option<Timestamp>,
    /// When it last became Ready; absent while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<Timestamp>,
}

/// Who owns a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelOwner {
    /// Name of the field manager.
    pub manager: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// When it last wrote any of its fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// A virtual machine, as far as topology goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineTopology {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Uid of its `VirtualMachine`, which a provider ID holds; empty when not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// By what it was found to be this node: `mac`, `hostname`, `name`, `uuid`.
    #[serde(default)]
    pub matched_by: String,
    /// How many candidates there were, when there was not exactly one; their names follow.
    #[serde(default)]
    pub candidates: Vec<String>,
    /// Why none was taken; empty when one was.
    #[serde(default)]
    pub unmatched: String,
    /// Host it runs on; empty when none.
    #[serde(default)]
    pub host: String,
    /// Its annotations of region and zone.
    #[serde(default)]
    pub annotations: TopologyValues,
    /// The same under Harvester's own keys (`topology.harvesterhci.io/…`).
    #[serde(default)]
    pub harvester: TopologyValues,
    /// Whether Harvester copies its host's labels to it: only to machines of the Rancher node driver.
    #[serde(default)]
    pub follows_host: bool,
    /// Host whose labels Harvester copied last (annotation `kubernetes.io/hostname`); empty when it has copied none yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub copied_from: String,
    /// Whether a migration is under way.
    #[serde(default)]
    pub migrating: bool,
    /// The virtual machine is there and no instance of it runs.
    #[serde(default)]
    pub stopped: bool,
}

/// What our writes to the own Node came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteRecord {
    /// Requests that changed something, since the record was begun.
    #[serde(default)]
    pub written: u64,
    /// The last that did not succeed; absent when the last one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<WriteFailure>,
    /// Values of ours that were changed back, by label.
    #[serde(default)]
    pub reverted: BTreeMap<String, Reverted>,
}

/// A write that was refused or lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteFailure {
    /// HTTP status; 0 when there was no answer.
    pub status: u16,
    /// What was said, without secrets.
    pub detail: String,
    /// Field managers that a 409 names.
    #[serde(default)]
    pub conflicts: Vec<String>,
    /// Version of the Node that it was planned for.
    #[serde(default)]
    pub resource_version: String,
    /// When.
    pub at: Timestamp,
}

/// A value of ours that somebody changes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reverted {
    /// The value that we wrote.
    pub value: String,
    /// How often it was changed back.
    pub times: u32,
    /// To what, the last time; empty when the label was taken away.
    pub to: String,
    /// By whom; empty when that is not known.
    #[serde(default)]
    pub by: String,
    /// When, the last time.
    pub at: Timestamp,
}
