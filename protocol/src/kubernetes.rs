//! Facts of the check `kubernetes`: what runs here, on what machine, behind which firewall, and which neighbours of the
//! same cluster this node reaches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Distribution, Fact, NodeRef, Timestamp, TypeMeta, UnitFacts};

open_enum! {
    /// What a node is to its cluster.
    KubernetesRole {
        /// Runs the control plane, etcd or both.
        Server = "server",
        /// Runs workloads only.
        Agent = "agent",
        /// It could not be told.
        Unknown = "unknown",
    }
}

/// What the check `kubernetes` reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesFacts {
    /// Who runs Kubernetes here.
    pub distribution: Distribution,
    /// Server or agent.
    pub role: KubernetesRole,
    /// The path, unit or process that gave it away.
    pub found_by: String,
    /// What says RKE1, running or left behind.
    #[serde(default)]
    pub rke1: Rke1Facts,
    /// The machine, as Rancher's requirements ask of it.
    pub machine: MachineFacts,
    /// Packet filters that the system manages; an empty list when systemd knows none.
    pub firewalls: Fact<Vec<FirewallFacts>>,
    /// NetworkManager, where it is installed.
    pub network_manager: Fact<NetworkManagerFacts>,
    /// kubelet's `healthz` on loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<Fact<ComponentAnswer>>,
    /// The API server's `readyz` on loopback; absent on agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apiserver: Option<Fact<ComponentAnswer>>,
    /// This node on the network, and what it reaches.
    pub network: Fact<NodeNetwork>,
}

/// What says RKE1 on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rke1Facts {
    /// Processes of an RKE1 that runs.
    #[serde(default)]
    pub running: Vec<String>,
    /// Files, folders and images of an RKE1 that runs, stopped or was not cleaned away.
    #[serde(default)]
    pub on_disk: Vec<String>,
}

/// The machine, as requirements ask of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineFacts {
    /// Logical processors online.
    pub cpus: Fact<u32>,
    /// Memory the kernel has, in bytes.
    pub memory_bytes: Fact<u64>,
    /// As `uname -m`.
    pub architecture: Fact<String>,
    /// The operating system's own name for itself.
    pub os: Fact<String>,
    /// Sockets of container runtimes that are there.
    pub runtimes: Fact<Vec<String>>,
    /// Whether the unified hierarchy (cgroup v2) is mounted.
    pub cgroup_v2: Fact<bool>,
    /// `net.ipv4.conf.all.forwarding`.
    pub forwarding: Fact<bool>,
    /// SELinux and AppArmor in words, such as `SELinux enforcing`.
    pub confinement: Fact<String>,
    /// Units of Kubernetes and its runtime that systemd knows.
    pub units: Fact<Vec<UnitFacts>>,
}

/// One packet filter that the system manages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirewallFacts {
    /// Its name: `firewalld`, `ufw`, `nftables`, `iptables`.
    pub name: String,
    /// Whether it filters now. Its rules are root's to read and are not known here.
    pub active: bool,
    /// What says so.
    pub evidence: String,
}

/// What NetworkManager does with the interfaces of a CNI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkManagerFacts {
    /// Whether it runs.
    pub active: bool,
    /// Prefixes of CNI interfaces (`cali`, `flannel`) that its configuration does not exempt.
    #[serde(default)]
    pub manages: Vec<String>,
    /// Units `nm-cloud-setup.*` that run or will be started.
    #[serde(default)]
    pub cloud_setup: Vec<String>,
}

/// What a component answered on loopback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentAnswer {
    /// HTTP status; 401 and 403 are answers of a living server, too.
    pub status: u16,
    /// The beginning of what it said.
    #[serde(default)]
    pub said: String,
}

/// One node on the network: where neighbours find it, and what it reaches of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeNetwork {
    /// Who runs Kubernetes there.
    pub distribution: Distribution,
    /// Server or agent.
    pub role: KubernetesRole,
    /// Addresses Kubernetes uses for the node, the first family first; at most one a family.
    pub addresses: Vec<String>,
    /// MTU of the interface that holds the first of them; absent when it could not be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Interfaces of the cluster's overlay network.
    #[serde(default)]
    pub overlays: Vec<OverlayFacts>,
    /// Names of the packet filters that are active there.
    #[serde(default)]
    pub firewalls: Vec<String>,
    /// How many other nodes of the cluster can be tried at all, by the coordinator; absent before it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<u32>,
    /// What it reaches of the neighbours it was told to try.
    #[serde(default)]
    pub neighbours: Vec<NeighbourFacts>,
}

open_enum! {
    /// How an overlay network wraps its packets.
    Encapsulation {
        /// VXLAN over UDP.
        Vxlan = "vxlan",
        /// Geneve over UDP.
        Geneve = "geneve",
        /// WireGuard over UDP.
        Wireguard = "wireguard",
        /// IP in IP.
        Ipip = "ipip",
        /// Not at all: routed as they are.
        None = "none",
    }
}

/// One interface of an overlay network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverlayFacts {
    /// Its name, such as `flannel.1`.
    pub interface: String,
    /// Which CNI makes such an interface.
    pub cni: String,
    /// How it wraps packets.
    pub encapsulation: Encapsulation,
    /// UDP port of the encapsulation; 0 where there is none.
    #[serde(default)]
    pub port: u16,
    /// Its MTU; absent when it could not be read, or where the interface's own MTU is not what packets obey.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Its addresses, without prefix length; at most one a family.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// One neighbour and what came of trying its ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NeighbourFacts {
    /// Name of the node.
    pub name: String,
    /// Server or agent.
    pub role: KubernetesRole,
    /// The newest try of each port.
    pub tries: Vec<PortTry>,
}

open_enum! {
    /// What a port is tried for.
    TriedPort {
        /// The API server.
        Apiserver = "apiserver",
        /// RKE2's supervisor.
        Supervisor = "supervisor",
        /// The kubelet at the node's address.
        Kubelet = "kubelet",
        /// The kubelet at the node's address in the overlay network.
        Overlay = "overlay",
    }
}

open_enum! {
    /// What came of a try.
    Reach {
        /// TLS answered, whatever it said.
        Answered = "answered",
        /// The connection was refused: nothing listens, or a filter resets.
        Refused = "refused",
        /// The network said that there is no way: no route, or a filter that says so.
        Prohibited = "prohibited",
        /// No answer to the connection at all.
        Silent = "silent",
        /// Connected, and then no answer to the TLS handshake.
        Stalled = "stalled",
        /// Connected, and closed without an answer.
        Closed = "closed",
        /// It could not be tried from here.
        Untried = "untried",
    }
}

/// The newest try of one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortTry {
    /// What for.
    pub port: TriedPort,
    /// Address and port.
    pub peer: String,
    /// The overlay's interface; empty for the node's own address.
    #[serde(default)]
    pub interface: String,
    /// What came of it.
    pub reach: Reach,
    /// Milliseconds until the answer; 0 without one.
    #[serde(default)]
    pub ms: u32,
    /// Tries in a row that were not answered.
    #[serde(default)]
    pub failures: u32,
    /// When.
    pub at: Timestamp,
}

impl PortTry {
    /// Whether it failed often enough to be no accident: one lost try is no news.
    pub fn is_failed(&self) -> bool {
        self.failures >= 2
    }
}

/// `GET /v1/peers`: some neighbours of the node that asks, of its own cluster (`kind: Peers`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Peers {
    /// `apiVersion` and `kind: Peers`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// The cluster; empty when the node belongs to none.
    #[serde(default)]
    pub cluster: String,
    /// How many other nodes of the cluster can be tried at all.
    pub others: u32,
    /// Those to try now; a share that changes, so that in time every node tries every other.
    pub peers: Vec<Peer>,
}

/// One neighbour to try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Who it is.
    pub node: NodeRef,
    /// Who runs Kubernetes there.
    pub distribution: Distribution,
    /// Server or agent.
    pub role: KubernetesRole,
    /// Addresses Kubernetes uses for it.
    pub addresses: Vec<String>,
    /// Its interfaces of the overlay network.
    #[serde(default)]
    pub overlays: Vec<OverlayFacts>,
}
