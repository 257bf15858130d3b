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

open_enum! {
    /// What a balancer leads to.
    BalancerService {
        /// Rancher, at 80 and 443.
        Rancher = "rancher",
        /// The API servers of a cluster, at 6443.
        Kubernetes = "kubernetes",
        /// The supervisors of RKE2 or K3s, at 9345, where nodes register.
        Supervisor = "supervisor",
    }
}

/// What a document of an older agent means, which knew nothing else.
fn rancher() -> BalancerService {
    BalancerService::Rancher
}

fn not_found_out() -> BalancerMode {
    BalancerMode::Auto
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
    /// What it leads to.
    #[serde(default = "rancher")]
    pub service: BalancerService,
    /// Mode as configured, or as found when that was `auto`.
    pub mode: BalancerMode,
    /// Mode by who shows which certificate, whatever is configured; `auto` where that cannot be told.
    #[serde(default = "not_found_out")]
    pub found_mode: BalancerMode,
    /// How `found_mode` is known, or why it is not: a clause for a sentence.
    #[serde(default)]
    pub found_by: String,
    /// Addresses of the host, each tried by itself.
    pub addresses: Fact<Vec<String>>,
    /// Every try, in the order made.
    pub probes: Vec<Probe>,
    /// Backends as configured; absent when none are, not applicable where this node does not try them.
    #[serde(default)]
    pub backends: Option<Fact<Vec<String>>>,
    /// Connections that the tries took.
    #[serde(default)]
    pub connections: u32,
    /// `ca_checksum` as configured: what the nodes' agents expect of `/cacerts`; empty when none is given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca_checksum: String,
    /// How Rancher's agents verify, as configured: `strict` or `system-store`; empty when that is not said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent_tls_mode: String,
    /// What `/cacerts` publishes.
    #[serde(default)]
    pub ca: Option<Fact<CaFacts>>,
    /// Addresses that were silent for a moment within the pass, and answered every try after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<GapFacts>,
    /// Who answers for the addresses of the name in this machine's own network (`/proc/net/arp`: IPv4 only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<AddressHolder>,
    /// Addresses that went from one machine to another while they were watched, in the last hour, the newest at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<AddressMove>,
    /// How long a silent connection lasts; absent while `idle_test` is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Fact<IdleFacts>>,
}

/// A moment of silence: tries that failed one after another, and none since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GapFacts {
    /// The address.
    pub address: String,
    /// Tries that failed.
    pub failed: u32,
    /// The end of the last try before them, or the beginning of the pass.
    pub from: Timestamp,
    /// The first try that came through again.
    pub until: Timestamp,
    /// Tries that were made after that to be sure, all of which came through.
    pub confirmed: u32,
}

/// Who answers for an address in a network of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressHolder {
    /// The address.
    pub address: String,
    /// The hardware address behind it.
    pub mac: String,
}

/// An address that another machine answers for than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressMove {
    /// The address.
    pub address: String,
    /// Hardware address before.
    pub from: String,
    /// Hardware address since.
    pub to: String,
    /// When that was seen.
    pub at: Timestamp,
}

open_enum! {
    /// On what the patience with silence is measured.
    IdleManner {
        /// A WebSocket through Rancher, as a shell is one.
        WebSocket = "websocket",
        /// A connection on which one request was answered. To a balancer in L4 it is what a WebSocket is.
        KeptAlive = "kept-alive",
    }
}

open_enum! {
    /// How a silent connection ended.
    IdleEnd {
        /// Somebody closed or reset it.
        Cut = "cut",
        /// It was still good when the time of the test was up.
        Held = "held",
        /// Nobody closed it, and when the time of the test was up nothing came back: forgotten on the way.
        Lost = "lost",
    }
}

/// What became of a connection on which nothing was said (`facts/rancher-load-balancer.md`, E9).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdleFacts {
    /// What was held.
    pub manner: IdleManner,
    /// Seconds after which the test gives up.
    pub limit_seconds: f64,
    /// Through the balancer.
    pub through: IdleHold,
    /// The same past the balancer, where the first was cut and a backend may be tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub straight: Option<Fact<IdleHold>>,
}

/// One connection that was held in silence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdleHold {
    /// Address and port.
    pub peer: String,
    /// Seconds from the last byte to the end.
    pub seconds: f64,
    /// How it ended.
    pub end: IdleEnd,
}

/// What Rancher publishes at `/cacerts`, as one address of the balancer gave it (`facts/rancher-load-balancer.md`, 6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaFacts {
    /// Address and port that gave it.
    pub peer: String,
    /// Status code.
    pub status: u16,
    /// Bytes of the body (at most 1 MiB are read).
    pub bytes: u64,
    /// SHA-256 of those bytes, hex: what `CATTLE_CA_CHECKSUM` has to be.
    pub sha256: String,
    /// First 120 bytes of the body, control characters replaced.
    pub body_start: String,
    /// Certificates in it, at most ten; absent when it is no PEM, with the reason as source.
    pub certificates: Fact<Vec<CertificateFacts>>,
    /// Other checksums that people take for the right one, at most 40.
    pub candidates: Vec<CaCandidate>,
    /// `Known` empty string when the chain that this peer sent leads to a certificate of `/cacerts`, else why not.
    pub trusts_chain: Fact<String>,
    /// The same by the roots of this machine alone.
    pub system_trusts_chain: Fact<String>,
}

/// A checksum that is near the right one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CaCandidate {
    /// Of what: a clause such as `the bytes with a final newline added`.
    pub what: String,
    /// SHA-256, hex.
    pub sha256: String,
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
        /// `GET /` over plain http with `X-Forwarded-Proto: https`, as any client may write; must redirect all the same.
        ForgedRoot = "forged-root",
        /// `GET /` over https as a client that claims another name and port for it ([`STRANGE_HOST`], [`STRANGE_PORT`]): whoever
        /// ends TLS must overwrite them.
        ForgedAddress = "forged-address",
        /// The same with `X-Forwarded-Proto: http`.
        ForgedProto = "forged-proto",
        /// `GET` of a path nobody serves; a 200 means a default backend answers.
        Nonsense = "nonsense",
        /// `GET /` at a backend with `X-Forwarded-Proto: https`.
        ForwardedRoot = "forwarded-root",
        /// The same with [`STRANGE_HOST`] and [`STRANGE_PORT`] as `X-Forwarded-Host` and `X-Forwarded-Port`: what the ingress
        /// passes on of them shows in Rancher's links.
        ForwardedAddress = "forwarded-address",
        /// `GET /` at a backend without that header.
        PlainRoot = "plain-root",
        /// `GET /healthz` at a backend with the backend's own address as Host, as balancers ask; the answer tells which
        /// ingress it is.
        HealthzByAddress = "healthz-by-address",
        /// `GET /ping` with a PROXY protocol header in front, where the same without failed.
        ProxyPing = "proxy-ping",
        /// A complete WebSocket handshake on `/v3/connect`, as an agent makes it; Rancher asks who that is before it looks
        /// at the upgrade, so a refusal of its own proves only that the request arrived.
        WebSocket = "websocket",
        /// The same as a browser from another site would make it. Rancher refuses that with 403 `origin not allowed`, and
        /// only where the upgrade arrived (rancher/rancher:pkg/websocket/handler.go): a 401 shows that it was lost.
        WebSocketOrigin = "websocket-origin",
        /// That over HTTP/2 (RFC 8441), where the peer offers it.
        WebSocketHttp2 = "websocket-http2",
        /// `GET /cacerts`.
        CaCerts = "cacerts",
    }
}

/// A name that is nobody's, sent in forwarded headers to see who passes it on.
pub const STRANGE_HOST: &str = "outrider.invalid";
/// The same for a port.
pub const STRANGE_PORT: u16 = 61_443;

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
    /// What came in place of TLS or of HTTP: its first 400 bytes, control characters replaced; empty when all was well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub raw: String,
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
    /// Negotiated cipher suite, such as `TLS13_AES_256_GCM_SHA384`; empty when not read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cipher: String,
    /// Certificates in the order sent, leaf first.
    pub chain: Vec<CertificateFacts>,
    /// `Known` empty string when the chain leads to a trusted root, else why not.
    pub trust: Fact<String>,
    /// True when a SAN of the leaf covers the host asked for.
    pub name_matches: bool,
    /// Where the last certificate of the chain says that its issuer's can be had (authority information access); empty
    /// when it does not say, as private authorities mostly do not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub issuer_at: String,
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
    /// By which algorithm its issuer signed it, such as `ecdsa-with-SHA256`; empty where that was not told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub signature: String,
}

/// What an HTTP server answered; bodies are bounded and never kept whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpAnswer {
    /// Status code.
    pub status: u16,
    /// Version of the answer, such as `HTTP/1.1`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// `Location` header; empty when none.
    #[serde(default)]
    pub location: String,
    /// `Server` header; empty when none.
    #[serde(default)]
    pub server: String,
    /// `Upgrade` header; empty when none.
    #[serde(default)]
    pub upgrade: String,
    /// `Content-Type` header; empty when none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// `WWW-Authenticate` header; empty when none. Rancher sends none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub challenge: String,
    /// `Sec-WebSocket-Version` header; empty when none. A WebSocket server that refuses a handshake names its version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub web_socket_version: String,
    /// With 101: whether `Sec-WebSocket-Accept` fits the key that was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_fits: Option<bool>,
    /// What Rancher takes for its own address, by the links that its API puts into the answer: scheme, host and, where
    /// that is not 80 or 443, port, as `X-Forwarded-*` or Host brought them (rancher/norman:urlbuilder); empty when there
    /// is no link.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub self_link: String,
    /// First 120 bytes of the body, control characters replaced.
    #[serde(default)]
    pub body_start: String,
    /// Bytes of body read (at most 1 MiB).
    pub body_bytes: u64,
    /// SHA-256 of those bytes, hex.
    pub body_sha256: String,
    /// Milliseconds from request to the end of the answer.
    pub ms: f64,
    /// Our clock minus the `Date` header, in milliseconds, the middle of its second taken; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date_offset_ms: Option<i64>,
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
