//! What the registry stores of a node, under `nodes/<uid>`.

use std::collections::BTreeMap;

use outrider_protocol::{Identity, NodeConfig, NodeConfigSpec, NodeRef, Profile, Timestamp, TypeMeta};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::clones;

/// Certificates remembered for a node: the current one, and the one before it while an answer may have been lost.
const CERTIFICATES_KEPT: usize = 2;

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enrolment {
    /// Asked, and waits for an operator.
    Pending,
    /// A node.
    Approved,
    /// Shut out by an operator.
    Revoked,
    /// Its machine was enrolled anew; kept a while so that the old certificate is told why it no longer works.
    Superseded,
}

impl Enrolment {
    /// The word as the API shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Enrolment::Pending => "pending",
            Enrolment::Approved => "approved",
            Enrolment::Revoked => "revoked",
            Enrolment::Superseded => "superseded",
        }
    }
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRecord {
    /// Serial number, hex.
    pub serial: String,
    /// Last instant of validity.
    pub not_after: Timestamp,
    /// Generation of the root that signed it.
    pub generation: u32,
}

/// How a node's time here ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// When.
    pub at: Timestamp,
    /// The operator's words, or which node took its place.
    #[serde(default)]
    pub why: String,
}

/// Two living machines under one certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloneRecord {
    /// Since when it is known.
    pub since: Timestamp,
    /// The machine that may go on, by its boot id and spool epoch.
    pub rightful: clones::Incarnation,
    /// The machine that is stopped.
    pub twin: clones::Incarnation,
}

/// A node as it is stored. Readers ignore fields they do not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// Derived from token id and key hash.
    pub uid: String,
    /// Unique among the nodes that are approved.
    pub name: String,
    /// Cluster; empty when none.
    #[serde(default)]
    pub cluster: String,
    /// Whether its token binds it to that cluster; it merely names it otherwise.
    #[serde(default)]
    pub cluster_bound: bool,
    /// Profile.
    pub profile: Profile,
    /// Played by `outrider up --simulate`.
    #[serde(default)]
    pub simulated: bool,
    /// Marks of the machine, as of its last report of them.
    pub identity: Identity,
    /// Labels of people.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Where it stands.
    pub enrolment: Enrolment,
    /// Why it waits for approval; empty when it does not.
    #[serde(default)]
    pub pending_why: String,
    /// When it asked first.
    pub enrolled_at: Timestamp,
    /// Token it came with.
    pub token_id: String,
    /// Whether the token's rate admitted it, without an operator.
    #[serde(default)]
    pub admitted_by_rate: bool,
    /// SHA-256 of its public key, hex.
    pub key_hash: String,
    /// Certificates it holds, the newest last.
    #[serde(default)]
    pub certificates: Vec<CertificateRecord>,
    /// Version of its agent.
    #[serde(default)]
    pub agent_version: String,
    /// Its clock minus ours at first contact, in milliseconds.
    #[serde(default)]
    pub clock_skew_ms: i64,
    /// Desired configuration.
    pub desired: NodeConfig,
    /// Uids whose place it took.
    #[serde(default)]
    pub supersedes: Vec<String>,
    /// How it ended; absent while it is pending or approved.
    #[serde(default)]
    pub ended: Option<Ended>,
    /// A twin that is stopped.
    #[serde(default)]
    pub clone: Option<CloneRecord>,
}

impl NodeRecord {
    /// The uid for a token and a key: the same for every repeat of one enrolment. A UUID of version 8.
    pub fn uid_of(token_id: &str, key_hash: &str) -> String {
        let digest = Sha256::digest(format!("outrider node {token_id} {key_hash}"));
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
    }

    /// Where a record lives in the store.
    pub fn key(uid: &str) -> String {
        format!("nodes/{uid}")
    }

    /// The configuration of a node for which nothing was ever desired.
    pub fn undesired() -> NodeConfig {
        NodeConfig { meta: TypeMeta::new("NodeConfig"), generation: 0, spec: NodeConfigSpec::default() }
    }

    /// The node as documents name it.
    pub fn reference(&self) -> NodeRef {
        NodeRef {
            name: self.name.clone(),
            uid: self.uid.clone(),
            cluster: self.cluster.clone(),
            profile: self.profile.clone(),
            simulated: self.simulated,
        }
    }

    /// Remembers a certificate.
    pub(super) fn add_certificate(&mut self, issued: &crate::pki::Issued) {
        self.certificates.push(CertificateRecord {
            serial: issued.serial.clone(),
            not_after: issued.not_after,
            generation: issued.generation,
        });
        let surplus = self.certificates.len().saturating_sub(CERTIFICATES_KEPT);
        self.certificates.drain(..surplus);
    }

    /// A short mark of the key for people: the first 12 digits of its hash.
    pub fn key_mark(&self) -> &str {
        self.key_hash.get(..12).unwrap_or(&self.key_hash)
    }
}
