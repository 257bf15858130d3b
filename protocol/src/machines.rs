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

/// A machine of a pool that goes, or is gone, as the coordinator saw it. Times are by the coordinator's clock, but for
/// `createdAt`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Departure {
    /// `namespace/name` at Harvester.
    pub machine: String,
    /// UID of the `VirtualMachine`.
    pub uid: String,
    /// When it was made, by Harvester's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// When it was first seen being deleted, or not to be there any more.
    pub leaving_since: Timestamp,
    /// When it was first seen not to be there any more; absent while it is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<Timestamp>,
    /// Whether its node was ever heard.
    #[serde(default)]
    pub reported: bool,
    /// Whether its guest agent was ever seen connected.
    #[serde(default)]
    pub agent_connected: bool,
    /// Whether it was ever seen with an address.
    #[serde(default)]
    pub had_address: bool,
    /// The machine that began after it in the same pool, as `namespace/name`; empty while none has.
    #[serde(default)]
    pub replaced_by: String,
}

/// One node pool of a guest cluster (`kind: Pool`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// `apiVersion` and `kind: Pool`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Rancher's name of the guest cluster.
    pub cluster: String,
    /// Name of the pool.
    pub name: String,
    /// Machines that Rancher wants; absent when that is not known, which is not 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u32>,
    /// Why `wanted` is not known; empty when it is.
    #[serde(default)]
    pub wanted_unknown: String,
    /// Virtual machines that exist, those that are being deleted among them.
    pub present: u32,
    /// Of these, those that run.
    pub running: u32,
    /// Of these, those whose node is heard.
    pub reporting: u32,
    /// Of these, those that are being deleted.
    pub deleting: u32,
    /// Of these, those that run and whose node was never heard.
    pub never_reported: u32,
    /// Of these, those that began in the place of another within the last hour and do not report yet.
    pub replacing: u32,
    /// Machines that went within the last hour and in whose place another began.
    pub replaced_last_hour: u32,
    /// Since when the coordinator has watched the pool.
    pub watched_since: Timestamp,
    /// Machines that went within the last hour, the newest last; 100 at most.
    #[serde(default)]
    pub departures: Vec<Departure>,
    /// What is judged of it.
    pub conditions: Vec<Condition>,
}
