//! Facts of the check `credentials`: kubeconfigs on this node, and Rancher's cloud credentials where they may be read.
//! Rules: `facts/credentials.md`.
//!
//! No token, key or password is ever in here: of a token only what it says of itself, of a certificate only what
//! everybody may know. Everything is bounded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CertificateFacts, Fact, RancherCluster, Timestamp};

/// The credentials that were found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialsFacts {
    /// Kubeconfigs on this node.
    pub kubeconfigs: Vec<KubeconfigFacts>,
    /// Rancher's cloud credentials; `NotApplicable` where no kubeconfig with access is configured.
    pub rancher: Fact<CloudCredentials>,
    /// Rancher's own cluster, read with the same kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rancher_cluster: Option<Fact<RancherCluster>>,
}

open_enum! {
    /// What a kubeconfig is there for, by its place.
    KubeconfigPurpose {
        /// Harvester's cloud provider and CSI driver in a guest cluster.
        CloudProvider = "harvester-cloud-provider",
        /// Written for the administrators of this node's cluster.
        Admin = "admin",
        /// Named in `[credentials]`.
        Configured = "configured",
    }
}

/// One kubeconfig.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigFacts {
    /// Its path.
    pub path: String,
    /// What it is there for.
    pub purpose: KubeconfigPurpose,
    /// Every user of this machine may read it.
    #[serde(default)]
    pub world_readable: bool,
    /// What is in it; absent when the file is not there.
    pub content: Fact<KubeconfigContent>,
    /// What one request with it came to; `NotApplicable` with the reason when none was made.
    pub call: Fact<CredentialCall>,
}

/// What a client would take from a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigContent {
    /// Why no client can use it as it is; empty when one can.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fault: String,
    /// `current-context`; empty when none is set.
    #[serde(default)]
    pub current_context: String,
    /// Contexts in the file.
    pub contexts: u32,
    /// User of the current context.
    #[serde(default)]
    pub user: String,
    /// Namespace of the current context; empty when none is set.
    #[serde(default)]
    pub namespace: String,
    /// Server of the current context.
    #[serde(default)]
    pub server: String,
    /// By what the user is known, in the order a client uses it; empty when by nothing.
    pub kinds: Vec<CredentialKind>,
    /// What the token says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Fact<TokenFacts>>,
    /// The client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Fact<CertificateFacts>>,
    /// The program of an exec plugin, without its arguments.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub exec: String,
}

open_enum! {
    /// How a user is known to a server.
    CredentialKind {
        /// A bearer token in the file.
        Token = "token",
        /// A bearer token in another file.
        TokenFile = "token-file",
        /// A client certificate.
        ClientCertificate = "client-certificate",
        /// A program is run for it.
        Exec = "exec",
        /// An auth provider of old clients (gone since Kubernetes 1.26).
        AuthProvider = "auth-provider",
        /// User name and password (gone since Kubernetes 1.19).
        Basic = "basic",
    }
}

open_enum! {
    /// What kind of token it is, by its looks.
    TokenForm {
        /// A ServiceAccount's JSON web token.
        ServiceAccount = "service-account",
        /// Another JSON web token.
        Jwt = "jwt",
        /// Of Rancher: a name, a colon and a key.
        Rancher = "rancher",
        /// Anything else: it says nothing of itself.
        Opaque = "opaque",
    }
}

/// What a token says of itself; never the token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenFacts {
    /// Its form.
    pub form: TokenForm,
    /// Rancher's name of the token, or the subject of a JSON web token; empty when it has none.
    #[serde(default)]
    pub name: String,
    /// `iss` of a JSON web token.
    #[serde(default)]
    pub issuer: String,
    /// `nbf` or, without one, `iat` of a JSON web token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// `exp` of a JSON web token; absent when it has none: such a token never ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Why its claims could not be read; empty when they could, or when its form has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fault: String,
}

/// What a request with a credential came to. A refusal is tried a few times before it is believed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CredentialCall {
    /// The request, such as `GET /version`.
    pub request: String,
    /// Status of the last answer.
    pub status: u16,
    /// Answers.
    pub calls: u32,
    /// Of them 401.
    pub refused: u32,
    /// What the server said, its beginning; empty when nothing.
    #[serde(default)]
    pub said: String,
    /// The token as Rancher has it, where it is one of Rancher's and was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Fact<RancherToken>>,
}

/// A token object of Rancher, without its key (`tokens.management.cattle.io`, `tokens.ext.cattle.io`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RancherToken {
    /// Name: what stands before the colon.
    pub name: String,
    /// True for `ext.cattle.io`, where a TTL below 0 means never and 0 the default; in `management.cattle.io` 0 means never.
    #[serde(default)]
    pub ext: bool,
    /// Life in milliseconds, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<i64>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// `expiresAt`; absent when it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// `expired`, as written; a label of the page that may be stale.
    #[serde(default)]
    pub expired: bool,
    /// `enabled`; absent when it is not written, which means yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Fields that could not be understood, such as `expiresAt`; empty when all could.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// Rancher's cloud credentials, read from its cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudCredentials {
    /// The server that was asked.
    pub server: String,
    /// Those of Harvester and of AWS.
    pub credentials: Vec<CloudCredential>,
    /// Those of other clouds, which say nothing of their end.
    #[serde(default)]
    pub others: u32,
    /// Of Harvester and AWS, left out because there are too many.
    #[serde(default)]
    pub left_out: u32,
}

open_enum! {
    /// Whose credential it is.
    CloudKind {
        /// SUSE Virtualization.
        Harvester = "harvester",
        /// AWS.
        Amazon = "amazonec2",
    }
}

/// One cloud credential.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudCredential {
    /// Name of its Secret in `cattle-global-data`.
    pub id: String,
    /// Name people gave it; empty when none.
    #[serde(default)]
    pub name: String,
    /// Whose it is.
    pub kind: CloudKind,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// Annotation `rancher.io/expiration-timestamp`, as written, its beginning; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration: Option<String>,
    /// Rancher has made the tokens of just this kubeconfig last (`management.cattle.io/harvester-token-checksum`).
    #[serde(default)]
    pub made_to_last: bool,
    /// The kubeconfig in it, for Harvester.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<Fact<KubeconfigContent>>,
    /// Rancher's object of its token; absent when it is gone, `NotApplicable` when there is none to look for.
    pub token: Fact<RancherToken>,
    /// Last four characters of an access key id; empty when it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_hint: String,
    /// The access key is a temporary one of AWS STS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub temporary: bool,
    /// Clusters that use it, as namespace/name.
    pub used_by: Fact<Vec<String>>,
}
