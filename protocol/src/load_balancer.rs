//! Facts of the check `load-balancer`: tries against the way in. Rules: `facts/rancher-load-balancer.md`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Fact, Timestamp};

open_enum! {
    /// Where TLS ends.
    BalancerMode {
        /// To be found out.
        Auto = "auto",
        /// TCP pass-through.
        L4 = "l4",
        /// TLS ends at the balancer.
        L7 = "l7",
    }
}

/// All that was tried against one balancer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerFacts {
    /// Name from the configuration.
    pub name: String,
    /// URL people use.
    pub url: String,
    /// Host of that URL.
    pub host: String,
    /// Port of that URL.
    pub port: u16,
    /// Port that redirects to https; 0 when there is none to probe.
    pub http_port: u16,
    /// Mode as configured, or as found when that was `auto`.
    pub mode: BalancerMode,
    /// Addresses of the host, each tried by itself.
    pub addresses: Fact<Vec<String>>,
    /// Every try, in the order made.
    pub probes: Vec<Probe>,
}

open_enum! {
    /// What one try asks.
    ProbeKind {
        /// TCP and, on a TLS port, the handshake; nothing sent after it.
        Connect = "connect",
        /// `GET /ping` with the Rancher Host; must answer `pong`.
        Ping = "ping",
        /// `GET /healthz` with the Rancher Host.
        Healthz = "healthz",
        /// `GET /` with the Rancher Host; must not redirect to itself.
        Root = "root",
        /// `GET /` over plain http; must redirect to https.
        Redirect = "redirect",
        /// `GET` of a path nobody serves; a 200 means a default backend answers.
        Nonsense = "nonsense",
        /// `GET /` at a backend with `X-Forwarded-Proto: https`.
        ForwardedRoot = "forwarded-root",
        /// `GET /` at a backend without that header.
        PlainRoot = "plain-root",
        /// A complete WebSocket handshake on `/v3/connect`.
        WebSocket = "websocket",
        /// `GET /cacerts`.
        CaCerts = "cacerts",
    }
}

open_enum! {
    /// Whom a try goes to.
    ProbeTarget {
        /// An address of the balancer's name.
        Balancer = "balancer",
        /// A backend, past the balancer.
        Backend = "backend",
    }
}

/// One try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    /// What was asked.
    pub kind: ProbeKind,
    /// Whom.
    pub target: ProbeTarget,
    /// Address and port connected to.
    pub peer: String,
    /// When.
    pub at: Timestamp,
    /// Milliseconds until TCP was up.
    pub tcp: Fact<f64>,
    /// The TLS handshake; `NotApplicable` on a plain port.
    pub tls: Fact<TlsFacts>,
    /// The answer; `NotApplicable` when nothing was asked.
    pub http: Fact<HttpAnswer>,
}

/// What a TLS handshake showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsFacts {
    /// Protocol, such as `TLSv1.3`.
    pub version: String,
    /// Negotiated ALPN protocol; empty when none.
    #[serde(default)]
    pub alpn: String,
    /// Certificates in the order sent, leaf first.
    pub chain: Vec<CertificateFacts>,
    /// `Known` empty string when the chain leads to a trusted root, else why not.
    pub trust: Fact<String>,
    /// True when a SAN of the leaf covers the host asked for.
    pub name_matches: bool,
}

/// One certificate, without key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateFacts {
    /// Subject, RFC 4514.
    pub subject: String,
    /// Issuer, RFC 4514.
    pub issuer: String,
    /// DNS and IP subject alternative names.
    pub sans: Vec<String>,
    /// Start of validity.
    pub not_before: Timestamp,
    /// End of validity.
    pub not_after: Timestamp,
    /// SHA-256 of the DER, hex.
    pub sha256: String,
    /// It may sign others.
    pub is_ca: bool,
}

/// What an HTTP server answered; bodies are bounded and never kept whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// `Location` header; empty when none.
    #[serde(default)]
    pub location: String,
    /// `Server` header; empty when none.
    #[serde(default)]
    pub server: String,
    /// `Upgrade` header; empty when none.
    #[serde(default)]
    pub upgrade: String,
    /// First 120 bytes of the body, control characters replaced.
    #[serde(default)]
    pub body_start: String,
    /// Bytes of body read (at most 1 MiB).
    pub body_bytes: u64,
    /// SHA-256 of those bytes, hex.
    pub body_sha256: String,
    /// Milliseconds from request to the end of the answer.
    pub ms: f64,
    /// The answers to `/` that came of following a redirect to another path of the same host at the same peer, in
    /// order; at most [`MAX_REDIRECTS`], and fewer where the chain ended, left the host or ran out of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub followed: Vec<Hop>,
}

/// Redirects that are followed. Browsers give up at 20; Rancher needs two.
pub const MAX_REDIRECTS: usize = 10;

/// One answer in a chain of redirects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hop {
    /// Status code.
    pub status: u16,
    /// `Location` header, its beginning; empty when none.
    #[serde(default)]
    pub location: String,
}

impl HttpAnswer {
    /// Whether redirects went on and on until nobody followed any more.
    pub fn redirects_without_end(&self) -> bool {
        let redirects = |status: u16| (300..400).contains(&status);
        self.followed.len() >= MAX_REDIRECTS
            && redirects(self.status)
            && self.followed.iter().all(|hop| redirects(hop.status))
    }
}
