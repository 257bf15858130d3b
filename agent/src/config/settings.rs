//! Typed settings: the third stage of configuration, after *as written* and *merged*.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use outrider_protocol::{BalancerMode, Check, Profile, Thresholds};

/// Everything the agent acts on. Built only from a valid configuration; every field has a default or is discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `[node]`.
    pub node: NodeSettings,
    /// `[coordinator]`.
    pub coordinator: CoordinatorSettings,
    /// `[checks.*]`: an entry for every check this version has.
    pub checks: BTreeMap<Check, CheckSettings>,
    /// Thresholds of `[checks.*]`.
    pub thresholds: Thresholds,
    /// `[etcd]`.
    pub etcd: EtcdSettings,
    /// `[[load_balancer]]`.
    pub load_balancers: Vec<LoadBalancerSettings>,
    /// `[report]`.
    pub report: ReportSettings,
}

/// `[node]`.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSettings {
    /// Node name; the host name when left out.
    pub name: Option<String>,
    /// Cluster; empty when none.
    pub cluster: String,
    /// Profile; `generic` when left out.
    pub profile: Profile,
}

/// `[coordinator]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoordinatorSettings {
    /// `https://host[:port]`, tried in order.
    pub urls: Vec<String>,
    /// SHA-256 (hex) of the root certificate's DER; taken from the token when left out.
    pub ca_checksum: Option<String>,
    /// File with the enrolment token.
    pub token_file: Option<PathBuf>,
}

/// `[checks.NAME]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckSettings {
    /// Whether it runs.
    pub enabled: bool,
    /// Time between passes.
    pub interval: Duration,
    /// Limit of one pass.
    pub timeout: Duration,
}

/// `[etcd]`: left out, the cluster is found on RKE2, K3s, RKE1 and kubeadm nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EtcdSettings {
    /// Client URLs; the first is the local member's.
    pub endpoints: Vec<String>,
    /// CA of the client port, PEM.
    pub ca: Option<PathBuf>,
    /// Client certificate, PEM.
    pub cert: Option<PathBuf>,
    /// Its key, PEM.
    pub key: Option<PathBuf>,
    /// etcd's election timeout, when it is not the distribution's default.
    pub election_timeout: Option<Duration>,
}

/// `[[load_balancer]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalancerSettings {
    /// Name in conditions; the host when left out.
    pub name: String,
    /// `https://host[:port]`.
    pub url: String,
    /// Host of the URL, without brackets.
    pub host: String,
    /// Port of the URL.
    pub port: u16,
    /// Port that redirects; 0 = none.
    pub http_port: u16,
    /// Where TLS ends.
    pub mode: BalancerMode,
    /// Backends, address and port (443 in L4, `backend_http_port` in L7 when the port is left out).
    pub backends: Vec<SocketAddr>,
    /// Plain-http port of the backends.
    pub backend_http_port: u16,
    /// CA file to trust besides the system's.
    pub ca: Option<PathBuf>,
    /// Expected SHA-256 (hex) of the bytes at `/cacerts`.
    pub ca_checksum: Option<String>,
    /// `strict` or `system-store`: how Rancher's agents verify.
    pub agent_tls_mode: Option<String>,
    /// Tries an address and pass.
    pub tries: u32,
    /// Fixed addresses a name, instead of DNS.
    pub resolve: BTreeMap<String, Vec<IpAddr>>,
}

/// `[report]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportSettings {
    /// Time between heartbeats.
    pub heartbeat: Duration,
    /// Where `/metrics` listens; loopback only unless given.
    pub metrics_listen: Option<SocketAddr>,
    /// File for a node exporter's textfile collector.
    pub textfile: Option<PathBuf>,
}
