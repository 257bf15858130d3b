//! The judgement, in Kubernetes terms.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ReasonCode, Timestamp};

/// `True`, `False` or `Unknown`; positive polarity, so `EtcdQuorum=True` is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Status {
    /// What the type names holds.
    True,
    /// It does not hold.
    False,
    /// It could not be told, or is suspected but not yet certain.
    #[serde(other)]
    Unknown,
}

impl Status {
    /// The word as Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::True => "True",
            Status::False => "False",
            Status::Unknown => "Unknown",
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// How much a condition matters, independent of its status (quorum may hold and yet stand one loss from the end).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing to do.
    Ok,
    /// Good to know.
    Info,
    /// To be looked at in working hours.
    Warn,
    /// To be looked at now. Also what a later version's word is read as.
    #[serde(other)]
    Error,
}

impl Severity {
    /// The word as it stands in JSON, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Info => "info",
            Severity::Warn => "warn",
            Severity::Error => "error",
        }
    }
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

open_enum! {
    /// The checks of the agent: one sensor, one cadence, one time limit each.
    Check {
        /// Identity, operating system, memory, disk, load.
        Host = "host",
        /// Kernel synchronisation and offset to the coordinator.
        Clock = "clock",
        /// cloud-init's stages and result.
        CloudInit = "cloud-init",
        /// QEMU guest agent: port, package, unit, process.
        GuestAgent = "guest-agent",
        /// etcd members, status, alarms.
        Etcd = "etcd",
        /// The balancer in front of Rancher, and its backends.
        LoadBalancer = "load-balancer",
        /// Certificates on disk and as the ports show them.
        Certificates = "certificates",
        /// Kubeconfigs, tokens and cloud credentials: when they end, and whether they are accepted.
        Credentials = "credentials",
        /// Kubernetes on this node: end of life, requirements, firewall, node-to-node ports, overlay.
        Kubernetes = "kubernetes",
        /// Names this node depends on, as the machine and every server resolve them.
        Dns = "dns",
        /// rancher-system-agent, and the proxies of Rancher's programs.
        RancherAgent = "rancher-agent",
        /// Labels of region and zone of the own Node.
        Topology = "topology",
        /// The agent itself: configuration, delivery, identity.
        Agent = "agent",
    }
}

open_enum! {
    /// What a condition is about. Other tools may rely on these names.
    ConditionType {
        /// The agent runs and every latch has dropped; at the coordinator: the node is heard.
        Ready = "Ready",
        /// The configuration as written is valid and in force.
        ConfigValid = "ConfigValid",
        /// The guest agent can serve the host.
        GuestAgentReady = "GuestAgentReady",
        /// cloud-init finished without failure.
        CloudInitSucceeded = "CloudInitSucceeded",
        /// Region and zone labels equal those of the host.
        TopologyInSync = "TopologyInSync",
        /// The local member answers.
        EtcdMemberHealthy = "EtcdMemberHealthy",
        /// More than half of the voters are healthy.
        EtcdQuorum = "EtcdQuorum",
        /// The database has room and no alarm is set.
        EtcdSpace = "EtcdSpace",
        /// fsync and commit are fast enough.
        EtcdDisk = "EtcdDisk",
        /// The member list is what the cluster should have.
        EtcdMembership = "EtcdMembership",
        /// Every member runs one version of etcd.
        EtcdVersions = "EtcdVersions",
        /// A recent etcd snapshot exists.
        EtcdSnapshots = "EtcdSnapshots",
        /// Certificates are valid, and will be for long enough.
        CertificatesValid = "CertificatesValid",
        /// The balancer accepts connections.
        LoadBalancerReachable = "LoadBalancerReachable",
        /// The balancer forwards to living backends with the right headers.
        LoadBalancerForwarding = "LoadBalancerForwarding",
        /// WebSocket upgrades pass.
        LoadBalancerWebSocket = "LoadBalancerWebSocket",
        /// The CA bundle that Rancher serves is the expected one.
        RancherCa = "RancherCA",
        /// Rancher's `server-url`, its Ingress, the balancer and the certificate name one host.
        RancherName = "RancherName",
        /// Nothing but Rancher and what it needs is in Rancher's own cluster.
        RancherClusterDedicated = "RancherClusterDedicated",
        /// Names resolve, everywhere alike.
        DnsResolves = "DnsResolves",
        /// Credentials work and will go on to.
        CredentialsValid = "CredentialsValid",
        /// The clock is synchronised and agrees with the coordinator's.
        ClockSynchronized = "ClockSynchronized",
        /// kubelet and API server work.
        KubernetesReady = "KubernetesReady",
        /// rancher-system-agent works.
        RancherAgentReady = "RancherAgentReady",
        /// No other living machine has this identity.
        IdentityUnique = "IdentityUnique",
        /// Disk, memory and load leave room to work.
        HostHealthy = "HostHealthy",
        /// An EKS Anywhere bootstrap makes progress.
        BootstrapProgressing = "BootstrapProgressing",
        /// Neighbours of the same cluster are reached, at their own addresses and through the overlay network.
        NodePortsReachable = "NodePortsReachable",
        /// The proxies that Rancher's programs are given lead around the cluster.
        ProxySettingsValid = "ProxySettingsValid",
        /// The cloud provider has initialised the own Node.
        NodeInitialized = "NodeInitialized",
        /// Transitions reach the coordinator.
        ReportsDelivered = "ReportsDelivered",
        /// The coordinator reads Harvester's virtual machines.
        HarvesterReadable = "HarvesterReadable",
        /// The virtual machine runs and is heard as a node.
        MachineReporting = "MachineReporting",
        /// It is known which node the virtual machine is.
        MachineIdentified = "MachineIdentified",
        /// Harvester reaches the guest agent and shows an address.
        GuestAgentConnected = "GuestAgentConnected",
        /// The coordinator reads the node pools that Rancher wants.
        RancherReadable = "RancherReadable",
        /// As many machines of a node pool as Rancher wants are there and report.
        PoolComplete = "PoolComplete",
        /// Machines of a node pool stay, once they are made.
        PoolStable = "PoolStable",
    }
}

impl ConditionType {
    /// The check whose facts this type is judged from on a node.
    pub fn check(&self) -> Check {
        use ConditionType as T;
        match self {
            T::GuestAgentReady => Check::GuestAgent,
            T::CloudInitSucceeded => Check::CloudInit,
            T::EtcdMemberHealthy
            | T::EtcdQuorum
            | T::EtcdSpace
            | T::EtcdDisk
            | T::EtcdMembership
            | T::EtcdVersions
            | T::EtcdSnapshots => Check::Etcd,
            T::LoadBalancerReachable
            | T::LoadBalancerForwarding
            | T::LoadBalancerWebSocket
            | T::RancherCa => Check::LoadBalancer,
            T::ClockSynchronized => Check::Clock,
            T::CertificatesValid => Check::Certificates,
            T::CredentialsValid | T::RancherName | T::RancherClusterDedicated => Check::Credentials,
            T::HostHealthy => Check::Host,
            T::KubernetesReady | T::NodePortsReachable => Check::Kubernetes,
            T::DnsResolves => Check::Dns,
            T::TopologyInSync | T::NodeInitialized => Check::Topology,
            T::RancherAgentReady | T::ProxySettingsValid => Check::RancherAgent,
            _ => Check::Agent,
        }
    }

    /// The check whose facts the condition about `subject` is judged from: the agent's own certificate is its own.
    pub fn check_of(&self, subject: &str) -> Check {
        match self {
            ConditionType::CertificatesValid if subject == AGENT_CERTIFICATE => Check::Agent,
            other => other.check(),
        }
    }
}

/// Subject of `CertificatesValid` that is the agent's own client certificate.
pub const AGENT_CERTIFICATE: &str = "client certificate";

/// One judgement about one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about.
    #[serde(rename = "type")]
    pub condition_type: ConditionType,
    /// Whether it holds.
    pub status: Status,
    /// How much it matters.
    pub severity: Severity,
    /// Why, as a code of the registry.
    pub reason: ReasonCode,
    /// A sentence with the numbers in it.
    pub message: String,
    /// What to do next; empty when nothing is to be done.
    #[serde(default)]
    pub advice: String,
    /// Which thing: an etcd cluster, a balancer, a file system; empty for the node itself.
    #[serde(default)]
    pub subject: String,
    /// When `status` or `reason` last changed.
    pub last_transition_time: Timestamp,
    /// When the facts behind it were read.
    pub observed_at: Timestamp,
}

impl Condition {
    /// Type and subject: what a latch, a ledger or a table is keyed by.
    pub fn key(&self) -> (&ConditionType, &str) {
        (&self.condition_type, &self.subject)
    }
}

/// A condition before and after: what is spooled, sent, logged and shown as history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    /// When it was found.
    pub at: Timestamp,
    /// The condition as it is now.
    pub condition: Condition,
    /// The status before; absent when the condition is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_status: Option<Status>,
    /// The reason before; absent when the condition is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_reason: Option<ReasonCode>,
    /// True when the subject is gone and the condition with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// How many transitions a full spool merged into this one; 0 when it stands for itself.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A condition in force and, while hysteresis holds it back, what is about to replace it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Latch {
    /// What is shown.
    pub condition: Condition,
    /// What the latest findings say instead, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
}

/// A judgement that has not stood long enough to be shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// The status it would have.
    pub status: Status,
    /// The reason it would have.
    pub reason: ReasonCode,
    /// The severity it would have: tells a worse candidate from a better one while both have one status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Since when the findings agree on the status, and on being worse or better than what is shown.
    pub since: Timestamp,
}
