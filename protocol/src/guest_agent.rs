//! Facts of the check `guest-agent`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Fact, ReasonCode, Timestamp};

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
    /// What keeps the agent from answering calls, wherever that is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpc_lists: Option<Fact<Vec<RpcList>>>,
    /// What SELinux denied the agent lately; `NotApplicable` without SELinux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denials: Option<Fact<Vec<Denial>>>,
    /// What the set-up said last; `Absent` where it has not run since boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<Fact<GuestAgentSetup>>,
}

/// Calls the agent is told to answer, or not to (`facts/guest-agent.md`, section 5). The setting has had three names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RpcList {
    /// File, or command line of the process, it stands in.
    pub source: String,
    /// The setting as it is written there: `block-rpcs`, `allow-rpcs`, `BLACKLIST_RPC`, …
    pub setting: String,
    /// Whether the calls are those that are answered; else they are those that are not.
    pub allows: bool,
    /// Names of calls.
    pub calls: Vec<String>,
}

/// One denial of SELinux (an access vector cache message).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// When.
    pub at: Timestamp,
    /// The message, from `avc:` on.
    pub text: String,
}

open_enum! {
    /// How far the set-up of the guest agent has come.
    SetupState {
        /// It works, or waits for somebody; see the reason.
        Working = "working",
        /// Nothing is left to do.
        Done = "done",
        /// It leaves things as they are; see the reason.
        Held = "held",
        /// It did not succeed, and tries again at `next_attempt_at` at the earliest.
        Failed = "failed",
    }
}

/// Status file of the set-up (`/run/outrider-guest-agent/status.json`), written by root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuestAgentSetup {
    /// How far it has come.
    pub state: SetupState,
    /// Why; empty where there is nothing to say that the check itself does not see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonCode>,
    /// A sentence, without secrets.
    pub message: String,
    /// When this was written. While it works it writes anew every few seconds.
    pub at: Timestamp,
    /// Attempts in a row that failed.
    #[serde(default)]
    pub failures: u32,
    /// When it tries again at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
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
