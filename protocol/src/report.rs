//! What a node tells the coordinator, and what it hears back. All over mTLS but for [`EnrollRequest`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{
    BalancerPaths, Condition, EtcdFacts, Fact, NodeConfig, NodeNetwork, NodeRef, Timestamp, Transition,
    TypeMeta,
};

/// Who a machine is, by several marks: two living machines that share them are clones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Application-specific hash of the machine-id; empty when unknown.
    #[serde(default)]
    pub machine_id_hash: String,
    /// SMBIOS system UUID; empty when unknown or junk.
    #[serde(default)]
    pub system_uuid: String,
    /// Hardware addresses of real interfaces.
    #[serde(default)]
    pub macs: Vec<String>,
    /// Kernel boot id.
    #[serde(default)]
    pub boot_id: String,
    /// cloud-init's instance id.
    #[serde(default)]
    pub instance_id: String,
    /// Addresses with prefix length.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// `POST /v1/enroll`: a token and a certificate request. Idempotent by token id and public-key hash.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnrollRequest {
    /// `apiVersion` and `kind: EnrollRequest`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// `OR1<sha256 of CA>::<id>:<secret>`; never logged.
    pub token: String,
    /// Certificate request, PEM; its subject is ignored.
    pub csr: String,
    /// Name asked for, cluster and profile.
    pub node: NodeRef,
    /// Who the machine is.
    pub identity: Identity,
    /// Version of the agent.
    pub agent_version: String,
    /// The node's clock, for the skew at first contact.
    pub sent_at: Timestamp,
}

// The token is a secret: a debug print must not carry it.
impl std::fmt::Debug for EnrollRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnrollRequest").field("node", &self.node).finish_non_exhaustive()
    }
}

/// `POST /v1/renew`, over mTLS with the current certificate, expired or not (within the grace).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewRequest {
    /// `apiVersion` and `kind: RenewRequest`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Certificate request, PEM, signed by the key of the current certificate.
    pub csr: String,
}

/// Answer to an enrolment or a renewal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnrollResponse {
    /// `apiVersion` and `kind: EnrollResponse`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Uid of the node at this coordinator.
    pub node_uid: String,
    /// Leaf and intermediates, PEM; empty while an operator has not approved.
    #[serde(default)]
    pub certificate: String,
    /// Every root to be trusted, PEM: two while a CA rotation overlaps.
    #[serde(default)]
    pub ca_bundle: String,
    /// When to renew (two thirds of the certificate's life).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_at: Option<Timestamp>,
    /// Seconds until to ask again, while approval is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
    /// What an operator has to do, while approval is pending.
    #[serde(default)]
    pub pending: String,
    /// The coordinator's clock.
    pub server_time: Timestamp,
}

/// One spooled transition with its place in the epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SequencedTransition {
    /// Place in the epoch; grows by at least one.
    pub sequence: u64,
    /// The transition.
    pub transition: Transition,
}

impl SequencedTransition {
    /// SHA-256 (hex) of the canonical JSON of the transition: two contents under one sequence are told apart by it.
    pub fn content_hash(&self) -> String {
        let bytes = serde_json::to_vec(&self.transition).unwrap_or_default();
        hex(&Sha256::digest(bytes))
    }
}

/// Lower-case hex of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// `POST /v1/reports`: transitions, and the whole state when it changed or was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// `apiVersion` and `kind: NodeReport`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Who reports; must be the node of the certificate.
    pub node: NodeRef,
    /// Spool epoch: a new one whenever the spool was made anew or the coordinator saw a mismatch.
    pub epoch: Uuid,
    /// Kernel boot id, as in [`Heartbeat`]; empty when unknown. A report without the state is told from a clone's by it.
    #[serde(default)]
    pub boot_id: String,
    /// Version of the agent.
    pub agent_version: String,
    /// The node's clock.
    pub sent_at: Timestamp,
    /// Generation of the desired configuration in force.
    #[serde(default)]
    pub generation: u64,
    /// Transitions not yet acknowledged, in order.
    #[serde(default)]
    pub transitions: Vec<SequencedTransition>,
    /// The whole state; absent when only transitions are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<NodeState>,
}

/// All that the coordinator keeps of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// Digest of this state, as heartbeats carry it ([`NodeState::digest`]).
    pub digest: String,
    /// Who the machine is.
    pub identity: Identity,
    /// Every condition in force.
    pub conditions: Vec<Condition>,
    /// This node's view of etcd, for the verdict over the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Fact<EtcdFacts>>,
    /// What this node's tries at the balancers came to lately, for the path matrix.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<BalancerPaths>,
    /// Where neighbours find this node, and which of them it reaches, for the verdict over the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NodeNetwork>,
    /// Zone and region, where they are known.
    #[serde(default)]
    pub zone: String,
    /// Region, where it is known.
    #[serde(default)]
    pub region: String,
}

impl NodeState {
    /// Digest over what a change of which must be told: identity, and type, subject, status, severity and reason of
    /// each condition; 16 hex digits. Messages and readings move without a change of digest.
    pub fn compute_digest(identity: &Identity, conditions: &[Condition]) -> String {
        Self::digest_with(identity, conditions, None, &[])
    }

    /// The same, and over what a verdict over all members of etcd rests on: who answers, who sees a leader, whether a
    /// quorum answers, and what tries at balancers came to. A member that is back is told at once, not when its node's own
    /// condition has settled.
    pub fn digest_with(
        identity: &Identity,
        conditions: &[Condition],
        etcd: Option<&Fact<EtcdFacts>>,
        paths: &[BalancerPaths],
    ) -> String {
        let mut hash = Sha256::new();
        for sign in paths.iter().flat_map(BalancerPaths::signs) {
            hash.update(sign);
            hash.update([0]);
        }
        if let Some(etcd) = etcd.and_then(Fact::value) {
            etcd.each_sign(|sign| {
                hash.update(sign);
                hash.update([0]);
            });
        }
        hash.update(serde_json::to_vec(identity).unwrap_or_default());
        for c in conditions {
            for part in [c.condition_type.as_str(), &c.subject, c.status.as_str(), c.severity.as_str()] {
                hash.update(part);
                hash.update([0]);
            }
            hash.update(c.reason.as_str());
            hash.update([0]);
        }
        hex(&hash.finalize()[..8])
    }
}

/// Answer to a report: sent only after the commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportAck {
    /// `apiVersion` and `kind: ReportAck`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Every transition of the epoch up to this sequence is stored.
    pub acknowledged: u64,
    /// True when the coordinator wants the whole state with the next report.
    #[serde(default)]
    pub resync: bool,
    /// Desired configuration, when its generation is not the reported one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired: Option<NodeConfig>,
    /// The coordinator's clock.
    pub server_time: Timestamp,
}

/// `POST /v1/heartbeat`: cheap, may be lost; the answer is held until it is due or something is desired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// `apiVersion` and `kind: Heartbeat`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Spool epoch.
    pub epoch: Uuid,
    /// Highest sequence ever spooled in this epoch.
    pub sequence: u64,
    /// Digest of the state last reported.
    pub digest: String,
    /// Kernel boot id: two that alternate under one certificate are two living machines.
    pub boot_id: String,
    /// Generation of the desired configuration in force.
    #[serde(default)]
    pub generation: u64,
    /// Seconds the answer may be held (0 to 3600); also the interval by which silence is judged.
    pub hold_seconds: u32,
    /// The node's clock.
    pub sent_at: Timestamp,
}

/// `GET /v1/…` of anything wrong, and every error answer: Kubernetes' `Status` in shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiError {
    /// `apiVersion` and `kind: Status`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// HTTP status code.
    pub code: u16,
    /// CamelCase word, such as `TokenExpired`.
    pub reason: String,
    /// What is wrong, where.
    pub message: String,
    /// What to do.
    #[serde(default)]
    pub advice: String,
    /// Sent again as it is, it will be refused again: the sender must change it or leave it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
}

impl ApiError {
    /// An error answer.
    pub fn new(code: u16, reason: &str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            meta: TypeMeta::new("Status"),
            code,
            reason: reason.to_owned(),
            message: message.into(),
            advice: advice.into(),
            permanent: false,
        }
    }
}
