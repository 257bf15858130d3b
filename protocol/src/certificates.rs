//! Facts of the check `certificates`: what lies on disk, and what the ports really show. Rules: `facts/etcd.md`, section 8.
//!
//! Of a key only its public half is looked at, and everything here is bounded: files, certificates a file, names a certificate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CertificateFacts, Distribution, Fact, Timestamp};

/// The certificates of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificatesFacts {
    /// Who runs Kubernetes here.
    pub distribution: Distribution,
    /// The folder that gave it away.
    pub found_by: String,
    /// A server (control plane, etcd) and not only a worker.
    pub server: bool,
    /// Version of that distribution, such as `v1.33.1+rke2r1`; when certificates are renewed hangs on it.
    pub version: Fact<String>,
    /// Names and addresses of this node, one of which a serving certificate must cover.
    pub node_names: Vec<String>,
    /// Names and addresses that RKE2 or K3s was told to put into its serving certificates (`tls-san` and the like).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wanted_names: Vec<String>,
    /// Certificate files, and folders that could not be listed.
    pub files: Vec<CertificateFile>,
    /// Files that were left out because there are too many.
    #[serde(default)]
    pub files_left_out: u32,
    /// The TLS ports of this node's roles.
    pub served: Vec<ServedCertificate>,
}

open_enum! {
    /// What a file is there for, by its place.
    CertificateUse {
        /// A certificate authority.
        Authority = "authority",
        /// Made by the server at its start, when its end is near.
        Server = "server",
        /// Fetched by the agent from a server at every start.
        Agent = "agent",
        /// Made by a component for itself (`kube-scheduler`, `kube-controller-manager`, a kubelet's own).
        SelfMade = "self-made",
        /// Of another node.
        Foreign = "foreign",
    }
}

/// One file, or a folder that could not be listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateFile {
    /// Its path.
    pub path: String,
    /// What it is there for.
    pub usage: CertificateUse,
    /// When it was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<Timestamp>,
    /// What is in it, in the file's order: the certificate itself first.
    pub certificates: Fact<Vec<CertificateFacts>>,
    /// The file of the authority on this node that signed the first one; absent when none did.
    pub issuer: Fact<String>,
    /// Whether the private key beside it (the source) is that of the first one, by their public halves; absent where none
    /// lies there, `None` where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Fact<bool>>,
}

/// What one port shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServedCertificate {
    /// Who serves there: `etcd`, `etcd-peer`, `kube-apiserver`, `supervisor`, `kubelet`.
    pub name: String,
    /// The port.
    pub port: u16,
    /// Address and port that were asked.
    pub peer: String,
    /// The file it should come from; empty when the process keeps it elsewhere.
    #[serde(default)]
    pub file: String,
    /// The file of the authority that should have signed it; empty when it is self-made.
    #[serde(default)]
    pub authority: String,
    /// Certificates in the order sent; `NotApplicable` when nobody listens.
    pub chain: Fact<Vec<CertificateFacts>>,
    /// `authority` when that signed it; absent when it did not.
    pub issuer: Fact<String>,
}
