//! What the coordinator shows to people and tools: nodes, clusters, tokens, events.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClusterEtcd, Condition, Identity, PathMatrix, Profile, Status, Timestamp, Transition, TypeMeta};

/// A list of objects with the position a watch may start from. `kind` is the item's kind + `List`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    /// `apiVersion` and `kind`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Revision of the store at which the list was made.
    pub revision: u64,
    /// Where the next page starts; empty at the last.
    #[serde(default, rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
    /// The objects.
    pub items: Vec<T>,
}

/// One node as the coordinator shows it (`kind: Node`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// `apiVersion` and `kind: Node`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Cluster; empty when none.
    #[serde(default)]
    pub cluster: String,
    /// Cluster the node itself says, where it is another: only an operator moves a node (`spec.cluster` of its
    /// configuration).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reported_cluster: String,
    /// Profile.
    pub profile: Profile,
    /// Played by `outrider up --simulate`.
    #[serde(default)]
    pub simulated: bool,
    /// Status of the condition `Ready`.
    pub ready: Status,
    /// When it was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// When it enrolled.
    pub enrolled_at: Timestamp,
    /// Version of its agent.
    #[serde(default)]
    pub agent_version: String,
    /// Zone, where known.
    #[serde(default)]
    pub zone: String,
    /// Region, where known.
    #[serde(default)]
    pub region: String,
    /// Labels of people, for `-l`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Marks of identity.
    pub identity: Identity,
    /// Enrolment: `approved`, `pending` or `revoked`.
    pub enrolment: String,
    /// Conditions of the node's own report and those the coordinator judged.
    pub conditions: Vec<Condition>,
}

/// One cluster: what all its members' reports say together (`kind: Cluster`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// `apiVersion` and `kind: Cluster`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Name.
    pub name: String,
    /// Nodes that report for it.
    pub nodes: Vec<String>,
    /// Conditions over the whole cluster.
    pub conditions: Vec<Condition>,
    /// Its etcd as all reports together show it; absent when none of its nodes reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<ClusterEtcd>,
    /// Who reaches the load balancers and what is behind them, a matrix a balancer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathMatrix>,
}

/// `GET /v1/coordinator`: who answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoordinatorView {
    /// `apiVersion` and `kind: Coordinator`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Version of the coordinator.
    pub version: String,
    /// URL it is reached at.
    pub url: String,
    /// SHA-256 of the root certificate's DER, hex: the pin.
    pub ca_checksum: String,
    /// When it started.
    pub started_at: Timestamp,
    /// Latches that hold readiness back; empty when ready.
    #[serde(default)]
    pub not_ready: Vec<String>,
    /// What is judged of the sources that it reads itself, such as Harvester's API; none where it is given none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// `GET /install/index.json`: what the coordinator has to install on a new machine, of its own version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallIndex {
    /// `apiVersion` and `kind: InstallIndex`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Version of the coordinator and of everything it serves.
    pub version: String,
    /// One a family and architecture, by name; empty when nothing was put there.
    pub items: Vec<InstallFile>,
    /// Files of that version that lie there and cannot be served, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// A file below `/install/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallFile {
    /// Its name without a version, which stays the same: `outrider-agent-<architecture>.<tar.gz|deb|rpm>`.
    pub name: String,
    /// Its name in the coordinator's folder, with version and release; it is served by this one too.
    pub file: String,
    /// `tar`, `deb` or `rpm`.
    pub family: String,
    /// As `uname -m` says it: `x86_64` or `aarch64`.
    pub architecture: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256 of its bytes, hex; the ETag as well.
    pub sha256: String,
}

/// What `outrider up -o json` prints: the fleet as the embedded coordinator shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Fleet {
    /// `apiVersion` and `kind: Fleet`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Who answers.
    pub coordinator: CoordinatorView,
    /// Clusters, by name.
    #[serde(default)]
    pub clusters: Vec<ClusterView>,
    /// Nodes, by name.
    pub nodes: Vec<NodeView>,
}

open_enum! {
    /// How long a token lives and what admits a node that shows it.
    TokenKind {
        /// Until its time or its uses run out.
        Once = "once",
        /// As long as a node pool: a replacement months later still joins.
        Pool = "pool",
    }
}

/// An enrolment token without its secret (`kind: Token`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenView {
    /// `apiVersion` and `kind: Token`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Public part of the token.
    pub id: String,
    /// Once or pool.
    pub token_kind: TokenKind,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; absent for a pool token without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Nodes it may still admit; absent when unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u32>,
    /// Node names it asks approval for, as a glob such as `pool1-*`; empty for any.
    #[serde(default)]
    pub name_pattern: String,
    /// New nodes an hour the pattern admits without approval; 0 means every node waits for approval.
    #[serde(default)]
    pub rate_per_hour: u32,
    /// Whether a machine that Harvester shows, and that no living node is, is admitted without approval.
    #[serde(default)]
    pub admit_seen_vm: bool,
    /// Cluster its nodes are shown under.
    #[serde(default)]
    pub cluster: String,
    /// Revoked by an operator.
    #[serde(default)]
    pub revoked: bool,
    /// The whole token; only in the answer to its creation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
}

/// `POST /v1/tokens` (`kind: TokenRequest`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenRequest {
    /// `apiVersion` and `kind: TokenRequest`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Once or pool.
    pub token_kind: TokenKind,
    /// Life in seconds; absent for the default (once: 24 h) or, for a pool, no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// Nodes it may admit (once: 1 by default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// Node names, as a glob.
    #[serde(default)]
    pub name_pattern: String,
    /// New nodes an hour the pattern admits without approval.
    #[serde(default)]
    pub rate_per_hour: u32,
    /// Whether a machine that Harvester shows, and that no living node is, is admitted without approval: only of a pool token
    /// with a name pattern.
    #[serde(default)]
    pub admit_seen_vm: bool,
    /// Cluster its nodes are shown under.
    #[serde(default)]
    pub cluster: String,
}

/// `PATCH /v1/nodes/NAME/labels` (`kind: NodeLabels`): changes to labels; what is not named stays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeLabels {
    /// `apiVersion` and `kind: NodeLabels`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Value by key; null removes the label.
    pub labels: BTreeMap<String, Option<String>>,
    /// Whether a label that has another value is changed; without it, that is refused.
    #[serde(default)]
    pub overwrite: bool,
}

/// A stored transition of a node (`kind: Event`): history and server-sent events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// `apiVersion` and `kind: Event`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Position in the coordinator's history.
    pub id: u64,
    /// Node name; a cluster's name for fleet conditions.
    pub node: String,
    /// When the coordinator stored it.
    pub received_at: Timestamp,
    /// The transition.
    pub transition: Transition,
}

/// A trusted root of the coordinator's certificate authority (`kind: Root`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RootView {
    /// `apiVersion` and `kind: Root`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// 1 for the first; one more with each rotation.
    pub generation: u32,
    /// SHA-256 of its DER, hex: what tokens pin.
    pub checksum: String,
    /// It issues; one that does not is trusted while a rotation overlaps.
    pub active: bool,
    /// Last instant of validity.
    pub not_after: Timestamp,
    /// Nodes that would be left out if it were retired now: they have not renewed since it was replaced.
    #[serde(default)]
    pub nodes: Vec<String>,
}
