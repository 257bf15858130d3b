//! Facts of the check `rancher-agent`: rancher-system-agent and the proxies of Rancher's programs on this node
//! (`facts/rancher-system-agent.md`). No token, no plan and no password is ever read into them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CertificateFacts, Fact, Timestamp};

/// What the check `rancher-agent` reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RancherAgentFacts {
    /// rancher-system-agent; `Absent` where it is not installed.
    pub agent: Fact<SystemAgent>,
    /// The environments that name proxies: this agent's own, and those of Rancher's units that are here.
    pub proxies: Vec<ProxyEnvironment>,
}

/// rancher-system-agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemAgent {
    /// Its unit.
    pub unit: ServiceUnit,
    /// Restarts by systemd that the unit had at an earlier look, and when that was; absent at the first look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<RestartCount>,
    /// `CATTLE_AGENT_STRICT_VERIFY` of its environment; absent when it is not set, which means no.
    pub strict_verify: Fact<bool>,
    /// `/etc/rancher/agent/config.yaml`.
    pub config: Fact<SystemAgentConfig>,
    /// The connection file, as far as it is no secret.
    pub connection: Fact<RancherConnection>,
    /// Plans on disk, and what holds them up.
    pub plans: Fact<PlanFacts>,
}

/// A service as systemd describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceUnit {
    /// Name with suffix.
    pub name: String,
    /// `loaded`, `not-found`, `masked`, …
    pub load_state: String,
    /// `active`, `inactive`, `failed`, `activating`, …
    pub active_state: String,
    /// `running`, `dead`, `auto-restart`, …
    #[serde(default)]
    pub sub_state: String,
    /// `enabled`, `disabled`, …
    #[serde(default)]
    pub unit_file_state: String,
    /// How the last process ended: `success`, `exit-code`, `signal`, …
    #[serde(default)]
    pub result: String,
    /// Exit code or signal of the last process that ended.
    #[serde(default)]
    pub exit_status: i32,
    /// Automatic restarts since somebody last started it.
    #[serde(default)]
    pub restarts: u32,
    /// Process id; 0 when none runs.
    #[serde(default)]
    pub pid: i32,
    /// Seconds since the newest process was started; absent when none ever was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_seconds_ago: Option<u64>,
}

/// A count of restarts at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartCount {
    /// How many.
    pub restarts: u32,
    /// When.
    pub at: Timestamp,
}

/// A file whose mode and owner rancher-system-agent insists on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardedFile {
    /// Its path.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When it was last written.
    pub modified: Timestamp,
}

/// The configuration of rancher-system-agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemAgentConfig {
    /// Mode and owner.
    pub file: GuardedFile,
    /// Whether plans come from Rancher.
    pub remote: bool,
    /// Whether plans come from a folder.
    pub local: bool,
    /// Where the connection file lies; empty when none is named.
    pub connection_file: String,
}

/// How rancher-system-agent reaches Rancher, without its token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RancherConnection {
    /// Mode and owner.
    pub file: GuardedFile,
    /// The server, `https://host[:port]`; empty when the file names none.
    pub server: String,
    /// Namespace of the plan's Secret.
    pub namespace: String,
    /// Name of the plan's Secret.
    pub secret_name: String,
    /// The authorities it pins; `Absent` when it pins none and trusts the system's store.
    pub authorities: Fact<Vec<CertificateFacts>>,
}

/// Plans on disk. What became of them (applied, failed, how often) is kept in a Secret at Rancher and is not known here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanFacts {
    /// Plans whose application was begun, as far as they are kept (64 at most).
    pub begun: u32,
    /// When the newest of them was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_begun: Option<Timestamp>,
    /// Since when a plan is being applied (interlock file `applyinator-active`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_since: Option<Timestamp>,
    /// Since when the installer waits to restart the agent (interlock file `restart-pending`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_pending_since: Option<Timestamp>,
}

open_enum! {
    /// Where a variable was read.
    ProxySource {
        /// The environment of the running process.
        Process = "process",
        /// The unit and the files it names: what the next start will see.
        Unit = "unit",
    }
}

/// The proxy variables of one program. User names and passwords are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyEnvironment {
    /// The program: `outrider` (this very process), `rancher-system-agent`, `rke2-server`, …
    pub program: String,
    /// Where it was read.
    pub read_from: ProxySource,
    /// The variables that are set.
    pub variables: Fact<Vec<ProxyVariable>>,
    /// What goes around the proxy; empty where none is set.
    #[serde(default)]
    pub readings: Vec<ProxyReading>,
    /// Files that were written after the running process had started, so that it does not know what is in them.
    #[serde(default)]
    pub newer_files: Vec<String>,
    /// Lines that systemd does not take as they are (`export …`), with file and line number.
    #[serde(default)]
    pub ignored: Vec<String>,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyVariable {
    /// `HTTPS_PROXY`, `https_proxy`, …
    pub name: String,
    /// Its value without credentials.
    pub value: String,
    /// Why it cannot be used as a proxy; empty when it can.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// Whether it carries a user name or a password.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub credentials: bool,
    /// Unit or file it stands in.
    #[serde(default)]
    pub source: String,
}

open_enum! {
    /// What a target is.
    DirectKind {
        /// Rancher, or another server this node depends on: a proxy may be the right way to it.
        Server = "server",
        /// An address of this node.
        Node = "node",
        /// A network of the cluster.
        Network = "network",
        /// A name of the cluster's services.
        Service = "service",
    }
}

/// What one program makes of `NO_PROXY` for one thing that should be reached without a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyReading {
    /// A host name, an address, a CIDR, or `.domain`.
    pub host: String,
    /// What it is.
    pub kind: DirectKind,
    /// What it is in words, such as `the pod network (default of rke2)`.
    pub what: String,
    /// Whether it is reached without the proxy as Go's programs read it (all of Rancher and Kubernetes).
    pub go: bool,
    /// The same as wget, Python and curl before 7.86 read it.
    pub plain: bool,
}
