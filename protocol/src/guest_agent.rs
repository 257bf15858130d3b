//! Facts of the check `guest-agent`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Fact;

/// The QEMU guest agent, from the channel to the process (`facts/guest-agent.md`, section 4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestAgentFacts {
    /// The virtio channel `/dev/virtio-ports/org.qemu.guest_agent.0`; `Absent` when the VM has none.
    pub port: Fact<String>,
    /// Path of the `qemu-ga` binary.
    pub binary: Fact<String>,
    /// Units of either name that systemd knows; `qemu-ga.service` on openSUSE before 15.3.
    pub units: Fact<Vec<UnitFacts>>,
    /// The running process.
    pub process: Fact<ProcessFacts>,
    /// Seconds since boot, for the grace a booting machine has.
    pub uptime_seconds: Fact<u64>,
}

/// One systemd unit, as `org.freedesktop.systemd1.Unit` describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitFacts {
    /// Name with suffix.
    pub name: String,
    /// `loaded`, `not-found`, `masked`, `error`, …
    pub load_state: String,
    /// `active`, `inactive`, `failed`, `activating`, …
    pub active_state: String,
    /// `running`, `dead`, …
    #[serde(default)]
    pub sub_state: String,
    /// `enabled`, `static`, `masked`, `disabled`, …; empty where there is no unit file.
    #[serde(default)]
    pub unit_file_state: String,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessFacts {
    /// Process id.
    pub pid: i32,
    /// Command name.
    pub name: String,
    /// Seconds it has been running.
    pub seconds: u64,
}
