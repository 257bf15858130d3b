//! The etcd of a whole cluster as all its members' reports show it: the numbers behind `EtcdQuorum`, a row a member,
//! and who sees whom.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Status, Timestamp};

open_enum! {
    /// Whether a member votes.
    MemberRole {
        /// It votes.
        Voter = "voter",
        /// It catches up and does not vote yet.
        Learner = "learner",
    }
}

open_enum! {
    /// What all reports together say of a member.
    MemberHealth {
        /// It answers without error.
        Healthy = "healthy",
        /// It answers and sees no leader.
        NoLeader = "no-leader",
        /// It does not answer.
        Down = "down",
        /// It could not be asked, or the reports do not agree yet.
        Unknown = "unknown",
    }
}

/// The joined picture of one cluster's etcd. Only voters count in the numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterEtcd {
    /// Cluster id, hex: that of most reports.
    pub cluster_id: String,
    /// When the newest report that counts was read.
    pub observed_at: Timestamp,
    /// Members that vote.
    pub voters: u32,
    /// Voters that must be healthy: more than half.
    pub quorum: u32,
    /// Voters known to be healthy.
    pub healthy: u32,
    /// Voters of which nothing is known.
    pub unknown: u32,
    /// Voters that may still fail, at least; never below 0.
    pub tolerated: u32,
    /// The same once the ghosts have been removed; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerated_without_ghosts: Option<u32>,
    /// Members that do not vote yet.
    pub learners: u32,
    /// A row a member, by name.
    pub members: Vec<ClusterMember>,
    /// Who sees whom: a row a report that counts, by node.
    pub matrix: Vec<MatrixRow>,
    /// Nodes whose reports do not count, and why.
    #[serde(default)]
    pub unheard: Vec<UnheardNode>,
    /// The newest snapshot that any report knows of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_snapshot: Option<NewestSnapshot>,
}

/// One member of the list and what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterMember {
    /// Id, hex.
    pub id: String,
    /// Name; its id until it has started once.
    pub name: String,
    /// The node it runs on; empty when no report tells.
    #[serde(default)]
    pub node: String,
    /// Zone of that node, where known.
    #[serde(default)]
    pub zone: String,
    /// Region of that node, where known.
    #[serde(default)]
    pub region: String,
    /// Voter or learner.
    pub role: MemberRole,
    /// What all reports together say of it.
    pub health: MemberHealth,
    /// Why it is not healthy, to follow its name in a sentence.
    #[serde(default)]
    pub why: String,
    /// Since when nobody has reached it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_since: Option<Timestamp>,
    /// Whether Kubernetes has its node: `False` is a ghost, `Unknown` when nobody could compare.
    pub kubernetes_node: Status,
    /// Recorded peer URLs.
    #[serde(default)]
    pub peer_urls: Vec<String>,
    /// Alarms set on it.
    #[serde(default)]
    pub alarms: Vec<String>,
    /// What it answered last; absent when no report has an answer of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<MemberStatus>,
}

/// A member's own answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// When it was asked.
    pub at: Timestamp,
    /// etcd version.
    pub version: String,
    /// Size of its database in bytes.
    pub db_size_bytes: i64,
    /// Bytes in use inside it; 0 where the version does not say.
    pub db_in_use_bytes: i64,
    /// Raft term.
    pub raft_term: u64,
    /// Raft index.
    pub raft_index: u64,
    /// Entries behind the furthest member of the same look.
    pub raft_lag: u64,
    /// Name of the leader as it sees it; empty when it sees none.
    pub leader: String,
}

/// What one node's report says of every member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatrixRow {
    /// The node that looked.
    pub node: String,
    /// When it looked.
    pub at: Timestamp,
    /// A cell a member, in the order of the members.
    pub cells: Vec<MatrixCell>,
}

/// One look from a node at a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatrixCell {
    /// The member looked at, hex.
    pub member_id: String,
    /// `True` when its client port answered, `False` when it met silence, `Unknown` when it was not or could not be asked.
    pub reached: Status,
    /// The node's own member counts its peer connection (port 2380) to it as standing or not; `Unknown` where it does not
    /// count it, and for itself.
    pub peer: Status,
    /// It is the member on this node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// Since when it has not been reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why it was not reached; empty when it was.
    #[serde(default)]
    pub cause: String,
}

/// A node with etcd whose report does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnheardNode {
    /// The node.
    pub node: String,
    /// Why: `silent`, `stale`, `other-cluster`, or the cause of a failed read.
    pub why: String,
}

/// The newest snapshot of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewestSnapshot {
    /// The node on whose disk it lies.
    pub node: String,
    /// The folder.
    pub folder: String,
    /// Its file name.
    pub name: String,
    /// When it was written.
    pub at: Timestamp,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Nodes that hold any snapshot.
    pub nodes: u32,
    /// The configuration sends snapshots to object storage as well.
    pub object_storage: bool,
}
