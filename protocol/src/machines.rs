//! Virtual machines of SUSE Virtualization as the coordinator sees them from outside.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Condition, Timestamp, TypeMeta};

open_enum! {
    /// How a virtual machine stands, by its own objects.
    MachineState {
        /// It runs.
        Running = "running",
        /// It is being started.
        Starting = "starting",
        /// It exists and does not run.
        Stopped = "stopped",
        /// It is being deleted.
        Deleting = "deleting",
    }
}

/// One virtual machine, and the node it is (`kind: Machine`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineView {
    /// `apiVersion` and `kind: Machine`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Namespace at Harvester.
    pub namespace: String,
    /// Name, unique in its namespace.
    pub name: String,
    /// Rancher's name of the guest cluster; empty for a VM of none.
    #[serde(default)]
    pub cluster: String,
    /// Node pool; empty when none.
    #[serde(default)]
    pub pool: String,
    /// How it stands.
    pub state: MachineState,
    /// The node it is; empty while none is known.
    #[serde(default)]
    pub node: String,
    /// The mark by which the node is told: `MAC`, `guest host name`, `name`, `system UUID`; empty without a node.
    #[serde(default)]
    pub matched_by: String,
    /// Host it runs on; empty while it does not.
    #[serde(default)]
    pub host: String,
    /// Region of the host, where known.
    #[serde(default)]
    pub region: String,
    /// Zone of the host, where known.
    #[serde(default)]
    pub zone: String,
    /// Addresses that Harvester shows; the last good ones for a while after it lost them.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Since when it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Timestamp>,
    /// What is judged of it.
    pub conditions: Vec<Condition>,
}
