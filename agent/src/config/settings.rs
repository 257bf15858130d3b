//! Typed settings: the third stage of configuration, after *as written* and *merged*.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use outrider_protocol::{
    BalancerMode, BalancerService, Check, HostTopology, Profile, Thresholds, TopologyMode, TopologyValues,
};

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
    /// `[checks.etcd] poll`: time between looks at the local member, between full passes.
    pub etcd_poll: Duration,
    /// `[checks.cloud-init] settled_interval`: time between passes once cloud-init has finished.
    pub cloud_init_settled_interval: Duration,
    /// `[checks.kubernetes] neighbour_interval`: time between tries of neighbours that answer.
    pub neighbour_interval: Duration,
    /// `[checks.load-balancer] probes_per_minute`: connections a minute to one balancer and its backends.
    pub probes_per_minute: u32,
    /// `[checks.dns]`: what is looked up and asked beside what is found.
    pub dns: DnsSettings,
    /// `[etcd]`.
    pub etcd: EtcdSettings,
    /// `[credentials]`.
    pub credentials: CredentialSettings,
    /// `[[load_balancer]]`.
    pub load_balancers: Vec<LoadBalancerSettings>,
    /// Entries of it that could not be used: what is configured is not tried, which is another thing than nothing.
    pub load_balancers_refused: usize,
    /// `[topology]`.
    pub topology: TopologySettings,
    /// `[guest_agent]`.
    pub guest_agent: GuestAgentSettings,
    /// `[report]`.
    pub report: ReportSettings,
}

impl Default for Settings {
    /// What holds where nothing is written.
    fn default() -> Self {
        let checks = Check::ALL.iter().filter(|check| **check != Check::Agent);
        Self {
            node: NodeSettings { name: None, cluster: String::new(), profile: Profile::Generic },
            coordinator: CoordinatorSettings::default(),
            checks: checks.map(|check| (check.clone(), CheckSettings::default_of(check))).collect(),
            thresholds: Thresholds::default(),
            // Four polls in five seconds cost a fifth less than five, and a loss is still suspected within three: the time
            // to the next poll, half a second for it, one for the pass that follows.
            etcd_poll: Duration::from_millis(1250),
            cloud_init_settled_interval: Duration::from_secs(600),
            neighbour_interval: Duration::from_secs(300),
            probes_per_minute: 60,
            dns: DnsSettings::default(),
            etcd: EtcdSettings::default(),
            credentials: CredentialSettings::default(),
            load_balancers: Vec::new(),
            load_balancers_refused: 0,
            topology: TopologySettings::default(),
            guest_agent: GuestAgentSettings::default(),
            report: ReportSettings {
                heartbeat: Duration::from_secs(30),
                metrics_listen: None,
                textfile: None,
            },
        }
    }
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

impl CheckSettings {
    /// Cadence and limit where nothing is written.
    pub fn default_of(check: &Check) -> Self {
        let (interval, timeout) = match check {
            Check::CloudInit => (30, 10),
            Check::Etcd => (120, 10),
            Check::LoadBalancer => (60, 30),
            Check::Certificates => (600, 20),
            Check::Credentials => (600, 30),
            Check::Kubernetes => (60, 20),
            Check::Dns => (60, 20),
            _ => (60, 10),
        };
        Self { enabled: true, interval: Duration::from_secs(interval), timeout: Duration::from_secs(timeout) }
    }
}

/// `[checks.dns]`: what is looked up and asked beside what is found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DnsSettings {
    /// Names, in lower case.
    pub names: Vec<String>,
    /// Servers, address and port.
    pub servers: Vec<SocketAddr>,
}

/// `[etcd]`: left out, the cluster is found on RKE2, K3s, RKE1 and kubeadm nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EtcdSettings {
    /// Client URLs; the first is the local member's.
    pub endpoints: Vec<String>,
    /// Some are written and cannot be used: which etcd is meant is not known then.
    pub endpoints_refused: bool,
    /// CA of the client port, PEM.
    pub ca: Option<PathBuf>,
    /// Client certificate, PEM.
    pub cert: Option<PathBuf>,
    /// Its key, PEM.
    pub key: Option<PathBuf>,
    /// etcd's election timeout, when it is not the distribution's default.
    pub election_timeout: Option<Duration>,
}

/// `[credentials]`: kubeconfigs of RKE2, K3s, kubeadm, Rancher's system agent and Harvester are found without it.
#[derive(Clone, Debug, PartialEq)]
pub struct CredentialSettings {
    /// More kubeconfigs to look at.
    pub kubeconfigs: Vec<PathBuf>,
    /// Whether one request is made with a credential that may be read whole.
    pub verify: bool,
    /// A kubeconfig that may read cloud credentials and tokens in Rancher's own cluster.
    pub rancher_kubeconfig: Option<PathBuf>,
}

impl Default for CredentialSettings {
    fn default() -> Self {
        Self { kubeconfigs: Vec::new(), verify: true, rancher_kubeconfig: None }
    }
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
    /// What it leads to; by the port of the URL when left out.
    pub service: BalancerService,
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
    /// Whether this node tries the backends: servers do, nodes whose profile is an agent's do not.
    pub try_backends: bool,
    /// How long a silent connection is held, once a day; none: that is not measured.
    pub idle_test: Option<Duration>,
    /// A file with the token of a Rancher user, for a WebSocket to hold.
    pub idle_test_token_file: Option<PathBuf>,
}

impl Default for LoadBalancerSettings {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            host: String::new(),
            port: 443,
            http_port: 80,
            service: BalancerService::Rancher,
            mode: BalancerMode::Auto,
            backends: Vec::new(),
            backend_http_port: 80,
            ca: None,
            ca_checksum: None,
            agent_tls_mode: None,
            tries: 3,
            resolve: BTreeMap::new(),
            try_backends: true,
            idle_test: None,
            idle_test_token_file: None,
        }
    }
}

/// `[topology]`.
#[derive(Clone, Debug, PartialEq)]
pub struct TopologySettings {
    /// What may be done about labels.
    pub mode: TopologyMode,
    /// Field managers whose labels may be taken over.
    pub take_over: Vec<String>,
    /// Kubeconfig of the guest cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the Harvester cluster.
    pub harvester_kubeconfig: Option<PathBuf>,
    /// Whether a region or zone that the node has is never changed to another.
    pub strict: bool,
    /// Region and zone of a machine that no other source speaks of.
    pub values: TopologyValues,
    /// What the coordinator desires in their place; never written in a file.
    pub desired: TopologyValues,
    /// The physical host's labels, as the coordinator last told.
    pub host: Option<HostTopology>,
}

impl Default for TopologySettings {
    fn default() -> Self {
        Self {
            mode: TopologyMode::Auto,
            take_over: Vec::new(),
            kubeconfig: None,
            harvester_kubeconfig: None,
            strict: false,
            values: TopologyValues::default(),
            desired: TopologyValues::default(),
            host: None,
        }
    }
}

impl TopologySettings {
    /// Whether the same objects are followed with both.
    pub fn follows_as(&self, other: &Self) -> bool {
        self.kubeconfig == other.kubeconfig && self.harvester_kubeconfig == other.harvester_kubeconfig
    }
}

/// `[guest_agent]`: what the set-up (`crate::setup`) may do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuestAgentSettings {
    /// Whether a missing or stopped guest agent may be installed and started; left out, it may with the profile
    /// `harvester-vm`.
    pub manage: bool,
    /// A package, or a folder of packages, to install it from, instead of the distribution's repositories.
    pub package_file: Option<PathBuf>,
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
