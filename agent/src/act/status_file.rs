//! The last verdict in a file (`/run/outrider/status.json`): it is there when the journal has dropped lines and when
//! the daemon is too busy to answer.

use outrider_protocol::{AgentFacts, Condition, NodeRef, NotApplicable, Timestamp, TypeMeta};
use serde::{Deserialize, Serialize};

/// What `status.json` holds and `outrider-agent status` shows (`kind: AgentStatus`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentStatus {
    /// `apiVersion` and `kind: AgentStatus`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// This node.
    pub node: NodeRef,
    /// Version of the daemon.
    pub agent_version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// When this was written.
    pub written_at: Timestamp,
    /// The line `systemctl status` shows.
    pub summary: String,
    /// Files of the configuration in force, in the order they were merged.
    pub config_files: Vec<String>,
    /// Generation of the desired configuration in force; 0 for none.
    pub generation: u64,
    /// The agent about itself.
    pub agent: AgentFacts,
    /// Every check with its cadence and last reading.
    pub checks: Vec<CheckStatus>,
    /// Conditions in force.
    pub conditions: Vec<Condition>,
    /// Checks with nothing to look at, and why.
    pub not_applicable: Vec<NotApplicable>,
}

/// One check in [`AgentStatus`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckStatus {
    /// Its name.
    pub check: String,
    /// Whether it runs.
    pub enabled: bool,
    /// Seconds between passes.
    pub interval_seconds: u64,
    /// When it was last read; absent before the first reading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Timestamp>,
    /// Why the last reading failed as a whole; empty when it did not.
    #[serde(default)]
    pub failure: String,
}
