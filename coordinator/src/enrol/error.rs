//! Why a machine or a person is not let in: each cause its own, so that nobody has to guess.

use std::time::Duration;

use outrider_protocol::{ApiError, Timestamp};

use super::TokenError;
use crate::pki::{Pin, PkiError, RequestError};
use crate::store::StoreError;

/// A request that enrolment refuses.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The text of the token is wrong.
    #[error(transparent)]
    TokenMalformed(#[from] TokenError),
    /// No token of this id, or the secret is another one.
    #[error("no token {id} with this secret is known here")]
    TokenUnknown {
        /// Its id.
        id: String,
    },
    /// Its time is over.
    #[error("token {id} ended at {since}")]
    TokenExpired {
        /// Its id.
        id: String,
        /// Since when.
        since: Timestamp,
    },
    /// Every use is taken.
    #[error("token {id} was good for {uses} {}, and each is used", if *uses == 1 { "node" } else { "nodes" })]
    TokenUsedUp {
        /// Its id.
        id: String,
        /// How many nodes it admitted.
        uses: u32,
    },
    /// An operator revoked it.
    #[error("token {id} was revoked")]
    TokenRevoked {
        /// Its id.
        id: String,
    },
    /// The token pins a root that is not ours.
    #[error("the token pins CA {pinned}; this coordinator's CA is {ours}")]
    CaMismatch {
        /// What the token says.
        pinned: Pin,
        /// Our active root.
        ours: Pin,
    },
    /// So many wait with this token that one more would only bury them.
    #[error("{pending} machines wait for approval with token {id} already")]
    TooManyPending {
        /// Its id.
        id: String,
        /// How many wait.
        pending: u32,
    },
    /// The token is for other names.
    #[error("token {id} is for nodes named {pattern:?}, not {name:?}")]
    NameNotAllowed {
        /// Its id.
        id: String,
        /// The names it is for.
        pattern: String,
        /// The name asked for.
        name: String,
    },
    /// The name cannot be a node's.
    #[error("{name:?} cannot be a node's name: {problem}")]
    NameInvalid {
        /// The name asked for, cut to a readable length.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The certificate request is wrong.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Another living machine has this name or identity.
    #[error("{what} is in use by node {name} ({uid}), heard {} s ago", ago.as_secs())]
    IdentityInUse {
        /// Which mark: `the name "…"`, `the machine-id`, `the private key`.
        what: String,
        /// Name of the node that has it.
        name: String,
        /// Its uid.
        uid: String,
        /// How long ago it was heard.
        ago: Duration,
        /// After how much longer silence it counts as gone.
        free_in: Duration,
    },
    /// This machine is the twin of a living node and is stopped.
    #[error("{detail}")]
    IdentityCloned {
        /// Both machines and how they are told apart.
        detail: String,
    },
    /// The node was revoked.
    #[error("node {name} was revoked at {since}{}", if why.is_empty() { String::new() } else { format!(": {why}") })]
    NodeRevoked {
        /// Its name.
        name: String,
        /// When.
        since: Timestamp,
        /// The operator's words; may be empty.
        why: String,
    },
    /// Another enrolment took the node's place.
    #[error("node {name} was enrolled anew at {since}; this certificate is the old one's")]
    NodeSuperseded {
        /// Its name.
        name: String,
        /// When.
        since: Timestamp,
    },
    /// The node waits for approval.
    #[error("node {name} waits for approval")]
    NodePending {
        /// Its name.
        name: String,
    },
    /// The coordinator does not know this node.
    #[error("no node {node} is known here")]
    NodeUnknown {
        /// Uid or name.
        node: String,
    },
    /// The certificate has ended; it may still renew.
    #[error("the certificate ended at {since}")]
    CertificateExpired {
        /// Since when.
        since: Timestamp,
    },
    /// The certificate ended too long ago to renew.
    #[error("the certificate ended at {since}, more than {} days ago", grace.as_secs() / 86_400)]
    GraceOver {
        /// Since when.
        since: Timestamp,
        /// How long after its end a certificate renews.
        grace: Duration,
    },
    /// The certificate is not one of the node's.
    #[error("certificate {serial} is not one that node {name} holds")]
    CertificateUnknown {
        /// Its serial number.
        serial: String,
        /// The node's name.
        name: String,
    },
    /// A renewal for another key.
    #[error("the certificate request carries another key than the certificate it renews")]
    KeyChanged,
    /// No or a wrong operator token.
    #[error("{problem}")]
    Unauthenticated {
        /// What is wrong.
        problem: String,
    },
    /// A token request that makes no sense.
    #[error("{field}: {problem}")]
    BadTokenRequest {
        /// Which field.
        field: &'static str,
        /// What is wrong and what instead.
        problem: String,
    },
    /// The desired configuration was changed by somebody else meanwhile.
    #[error("the configuration of node {name} is at generation {current}, not {expected}")]
    ConfigChanged {
        /// The node.
        name: String,
        /// What was expected.
        expected: u64,
        /// What is.
        current: u64,
    },
    /// A label has another value already.
    #[error("node {name} has the label {key}={value} already")]
    LabelTaken {
        /// The node.
        name: String,
        /// The label's key.
        key: String,
        /// The value it has.
        value: String,
    },
    /// More labels than a node may have.
    #[error("node {name} would have {count} labels; at most {most} are kept")]
    TooManyLabels {
        /// The node.
        name: String,
        /// How many it would have.
        count: usize,
        /// How many it may have.
        most: usize,
    },
    /// The authority failed.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EnrolError {
    /// HTTP status, CamelCase reason and advice.
    fn answer(&self) -> (u16, &'static str, &'static str) {
        use EnrolError as E;
        match self {
            E::LabelTaken { .. } => (
                409,
                "LabelTaken",
                "Nothing was changed; to change it, say overwrite (`outrider label NODE KEY=VALUE --overwrite`).",
            ),
            E::TooManyLabels { .. } => (400, "TooManyLabels", "Remove some: `outrider label NODE KEY-`."),
            E::TokenMalformed(_) => {
                (400, "TokenMalformed", "Copy the whole token as `outrider token create` printed it.")
            }
            E::TokenUnknown { .. } => (
                401,
                "TokenUnknown",
                "Check that the token is of this coordinator, or make a new one with `outrider token create`.",
            ),
            E::TokenExpired { .. } => (401, "TokenExpired", "Make a new token with `outrider token create`."),
            E::TokenUsedUp { .. } => (
                401,
                "TokenUsedUp",
                "Make a new token with `outrider token create`, with more uses or of kind pool.",
            ),
            E::TokenRevoked { .. } => {
                (401, "TokenRevoked", "Ask who revoked it; make a new one if it may be.")
            }
            E::CaMismatch { .. } => (
                401,
                "CaMismatch",
                "The token is of another coordinator, or of a CA retired since: make a new one with `outrider token create`.",
            ),
            E::TooManyPending { .. } => (
                429,
                "TooManyPending",
                "Approve or revoke those that wait; if nobody knows them, revoke the token: it has leaked.",
            ),
            E::NameNotAllowed { .. } => {
                (403, "NameNotAllowed", "Name the machine as the token allows, or make a token for its name.")
            }
            E::NameInvalid { .. } => (400, "NameInvalid", "Set [node] name in agent.toml."),
            E::Request(_) => (400, "RequestInvalid", "Let the agent make its request anew: restart it."),
            E::IdentityInUse { .. } => (
                409,
                "IdentityInUse",
                "If it is this same machine, it is let in once the old node is silent, or after it is revoked (POST /v1/nodes/NAME/revoke); if it is another, give this one its own name and machine-id.",
            ),
            E::IdentityCloned { .. } => (
                409,
                "IdentityCloned",
                "Give this machine its own identity: remove /var/lib/outrider, make a new machine-id, enrol it anew.",
            ),
            E::NodeRevoked { .. } => {
                (403, "NodeRevoked", "Enrol it anew with a new token and a new key if it may come back.")
            }
            E::NodeSuperseded { .. } => (
                403,
                "NodeSuperseded",
                "If this machine is the right one, enrol it anew; otherwise stop its agent.",
            ),
            E::NodePending { .. } => (403, "NodePending", "Approve it with `outrider approve NODE`."),
            E::NodeUnknown { .. } => (404, "NodeUnknown", "Enrol the machine anew with a token."),
            E::CertificateExpired { .. } => (401, "CertificateExpired", "Renew it: POST /v1/renew."),
            E::GraceOver { .. } => (401, "CertificateGraceOver", "Enrol the machine anew with a token."),
            E::CertificateUnknown { .. } => {
                (403, "CertificateUnknown", "Enrol the machine anew with a token.")
            }
            E::KeyChanged => (403, "KeyChanged", "Renew with the key of the certificate, or enrol anew."),
            E::Unauthenticated { .. } => (
                401,
                "Unauthenticated",
                "Give an operator token: `Authorization: Bearer …`; the first lies in operator.token in the coordinator's state folder.",
            ),
            E::BadTokenRequest { .. } => (400, "BadTokenRequest", "Correct the field and ask again."),
            E::ConfigChanged { .. } => (409, "ConfigChanged", "Read it again and repeat the change."),
            E::Pki(_) => (500, "CaFailed", "See the coordinator's log; nothing was changed."),
            E::Store(StoreError::Conflict { .. }) => {
                (409, "Conflict", "Read it again and repeat the change.")
            }
            E::Store(StoreError::DiskFull { .. }) => {
                (507, "DiskFull", "Free space for the coordinator's state folder; requests may be repeated.")
            }
            E::Store(_) => (503, "StoreUnavailable", "Repeat the request; see the coordinator's log."),
        }
    }

    /// CamelCase reason.
    pub fn reason(&self) -> &'static str {
        self.answer().1
    }

    /// The error as it goes over the wire.
    pub fn to_api(&self) -> ApiError {
        let (code, reason, advice) = self.answer();
        let mut advice = advice.to_owned();
        if let EnrolError::IdentityInUse { free_in, .. } = self {
            advice.push_str(&format!(" It counts as silent in {} s.", free_in.as_secs()));
        }
        ApiError::new(code, reason, self.to_string(), advice)
    }
}
