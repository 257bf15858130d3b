//! Facts of the check `etcd`: one node's view of its cluster. Rules: `facts/etcd.md`.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Fact, Timestamp};

open_enum! {
    /// Who runs etcd on this node.
    Distribution {
        /// Rancher's RKE2.
        Rke2 = "rke2",
        /// K3s.
        K3s = "k3s",
        /// RKE1, in a container.
        Rke1 = "rke1",
        /// kubeadm.
        Kubeadm = "kubeadm",
        /// Endpoints from our own configuration.
        Configured = "configured",
    }
}

impl Distribution {
    /// RKE2 or K3s: Rancher's own, which give a member its peer URL, its election timeout and its certificates in the same ways.
    pub fn is_ranchers(&self) -> bool {
        matches!(self, Self::Rke2 | Self::K3s)
    }
}

/// etcd gives up a connection on which nothing comes in after 5 s (etcd-io/etcd:server/etcdserver/api/rafthttp/peer.go,
/// `ConnReadTimeout`); what it counts of a connection to a peer is worth something this long after a silence began.
pub const LINK_SETTLED: Duration = Duration::from_secs(8);

/// One node's view of its etcd cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdFacts {
    /// How the cluster was found.
    pub distribution: Distribution,
    /// The path or setting that gave it away.
    pub found_by: String,
    /// Election timeout in milliseconds: what a loss must outlast to be certain (RKE2 and K3s: 5000; etcd: 1000).
    pub election_timeout_ms: u32,
    /// The endpoint of the member on this node.
    pub local_endpoint: String,
    /// The cluster of the member on this node: by its own word or, while it says nothing, by its last one. Absent where that
    /// could not be told, and from agents that do not remember it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Cluster and members.
    pub members: Fact<MemberList>,
    /// Each endpoint asked by itself.
    pub endpoints: Vec<EndpointFacts>,
    /// Alarms that are set anywhere in the cluster.
    pub alarms: Fact<Vec<AlarmFacts>>,
    /// Two scrapes of the local member's `/metrics`, for rates over the last minutes.
    pub metrics: Fact<EtcdMetrics>,
    /// Names of the cluster's Kubernetes Nodes, from somebody who may list them; ghosts cannot be told without.
    pub kubernetes_nodes: Fact<Vec<String>>,
    /// When this agent first saw each learner, by member id.
    #[serde(default)]
    pub learners_since: BTreeMap<String, Timestamp>,
    /// Since when no member has answered a linearizable read of this agent: the start of the first one that failed. Absent
    /// while one is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_read_since: Option<Timestamp>,
    /// How far each learner has come at the last looks, oldest first, by member id; bounded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub learner_progress: BTreeMap<String, Vec<LearnerProgress>>,
    /// What this node's own configuration says that its member is; absent from agents that do not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Fact<ExpectedMember>>,
    /// The data folder and the marks in it; absent from agents that do not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_folder: Option<Fact<DataFolder>>,
    /// etcd snapshots on this node; absent from agents that do not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Fact<Snapshots>>,
    /// Every path that this was read from: certificates, key, configuration, data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

impl EtcdFacts {
    /// Gives `sign` everything that a verdict over all members rests on, numbers that move all the time aside.
    pub fn each_sign(&self, mut sign: impl FnMut(&str)) {
        for endpoint in &self.endpoints {
            sign(&endpoint.endpoint);
            match &endpoint.status {
                Fact::Known { value, .. } => {
                    sign(&value.cluster_id);
                    sign(if value.leader.is_empty() { "no leader" } else { "a leader" });
                    value.errors.iter().for_each(|error| sign(error));
                }
                other => sign(cause_of(other)),
            }
            sign(cause_of(&endpoint.linearizable_read));
            sign(match self.link_after(&endpoint.member_id, endpoint.down_since) {
                Some(true) => "and its peers reach it",
                Some(false) => "and its peers do not reach it",
                None => "",
            });
        }
        for (id, peer) in self.metrics.value().iter().flat_map(|metrics| &metrics.latest.peers) {
            if peer.active == Some(false) {
                sign(id);
            }
        }
        if let Some(list) = self.members.value() {
            sign(if list.linearizable { "by a quorum" } else { "by the local member" });
            for member in &list.members {
                sign(&member.id);
                sign(if member.is_learner { "learner" } else { "voter" });
            }
        }
        sign(if self.no_read_since.is_some() { "no read" } else { "read" });
    }

    /// Whether the local member's connection to the peer `id` on port 2380 stood after `since`, as the local member counts
    /// it; `None` where nothing after that was read yet.
    ///
    /// What it counts in the first [`LINK_SETTLED`] of a silence proves nothing.
    pub fn link_after(&self, id: &str, since: Option<Timestamp>) -> Option<bool> {
        let (since, metrics) = (since?, self.metrics.value()?);
        let settled = |scrape: &EtcdScrape| scrape.at.since(since) >= LINK_SETTLED;
        let latest = metrics.latest.peers.get(id).filter(|_| settled(&metrics.latest))?;
        // Versions without the gauge count what comes in; and the gauge may stay down after one of several streams ended
        // late, while another has long brought news.
        let earlier = metrics.earlier.as_ref().filter(|earlier| settled(earlier));
        let before = earlier.and_then(|earlier| earlier.peers.get(id)).map(|peer| peer.received_bytes);
        match before {
            Some(before) if latest.received_bytes > before => Some(true),
            // A leader and its followers hear each other all the time: a link that is called up and brings nothing is
            // neither proof of life nor of silence.
            Some(_) if latest.active == Some(true) && self.leads_or_follows(id) => None,
            _ => latest.active,
        }
    }

    /// Whether the local member leads the peer `id` or follows it, by its own word.
    fn leads_or_follows(&self, id: &str) -> bool {
        self.local_status().is_some_and(|s| s.leader == id || s.leader == s.member_id)
    }

    /// What this node's own member answered; `None` where it did not.
    pub fn local_status(&self) -> Option<&EndpointStatus> {
        self.endpoints.iter().filter(|e| e.local).find_map(|e| e.status.value())
    }
}

/// Why a fact is not known, as a word; "known" when it is.
fn cause_of<T>(fact: &Fact<T>) -> &str {
    match fact {
        Fact::Known { .. } => "known",
        Fact::Unknown { cause, .. } => cause.as_str(),
        Fact::Absent { .. } => "absent",
        Fact::NotApplicable { .. } => "not applicable",
    }
}

/// One look at a learner on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LearnerProgress {
    /// When it was looked at.
    pub at: Timestamp,
    /// Its raft index then.
    pub index: u64,
    /// The furthest raft index of any member then.
    pub front: u64,
}

/// What the node's configuration says of its member: the etcd configuration file that RKE2 and K3s write, else the
/// flags of the static pod or of the process (`facts/rke2-k3s-on-disk.md`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedMember {
    /// Name of the member; empty when it does not say.
    pub name: String,
    /// Peer URLs that it means to be reached at.
    pub peer_urls: Vec<String>,
    /// Client URLs that it means to be reached at.
    pub client_urls: Vec<String>,
    /// Its election timeout in milliseconds; absent when it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub election_timeout_ms: Option<u32>,
    /// Its heartbeat interval in milliseconds; absent when it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u32>,
}

/// The data folder of the local member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataFolder {
    /// Its path.
    pub path: String,
    /// `tombstone` lies in it: this member was removed from its cluster for good.
    pub tombstone: bool,
    /// `reset-flag` lies beside it: somebody has reset the cluster here.
    pub reset_flag: bool,
    /// Free bytes of its file system; absent when they could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
}

/// etcd snapshots in one folder of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshots {
    /// Where they lie.
    pub folder: String,
    /// How many.
    pub count: u32,
    /// The newest; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<SnapshotFile>,
    /// A newer file with the name of one that is too small to be a snapshot, empty for instance; it is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_small: Option<SnapshotFile>,
    /// The configuration sends them to object storage as well, whose contents are not looked at.
    #[serde(default)]
    pub object_storage: bool,
    /// The configuration switches scheduled snapshots off.
    #[serde(default)]
    pub schedule_disabled: bool,
}

/// One snapshot file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotFile {
    /// Name of the file.
    pub name: String,
    /// When it was last written.
    pub at: Timestamp,
    /// Size in bytes.
    pub size_bytes: u64,
}

/// Answer of `etcdserverpb.Cluster/MemberList`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberList {
    /// Cluster id, hex.
    pub cluster_id: String,
    /// False when only the local member's own list could be had: it may be stale.
    pub linearizable: bool,
    /// Members, voters and learners.
    pub members: Vec<Member>,
}

/// One member as the list records it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Member id, hex.
    pub id: String,
    /// Name; empty until the member has started once.
    pub name: String,
    /// Recorded peer URLs.
    pub peer_urls: Vec<String>,
    /// Published client URLs.
    pub client_urls: Vec<String>,
    /// Learners count neither in quorum nor as failed.
    pub is_learner: bool,
}

/// One endpoint, asked by itself with short limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointFacts {
    /// Its URL.
    pub endpoint: String,
    /// Id of the member it belongs to, hex; empty when that could not be told.
    #[serde(default)]
    pub member_id: String,
    /// True for the member on this node.
    pub local: bool,
    /// `etcdserverpb.Maintenance/Status`.
    pub status: Fact<EndpointStatus>,
    /// A linearizable read, in milliseconds; proves quorum. `Unknown (Unsupported)` at a learner.
    pub linearizable_read: Fact<f64>,
    /// Since when this endpoint has not answered; absent while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_since: Option<Timestamp>,
}

/// Answer of `etcdserverpb.Maintenance/Status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointStatus {
    /// Who answered, hex.
    pub member_id: String,
    /// Its cluster, hex.
    pub cluster_id: String,
    /// etcd version.
    pub version: String,
    /// Size of the database file in bytes.
    pub db_size_bytes: i64,
    /// Bytes in use inside it; 0 where the version does not say.
    pub db_in_use_bytes: i64,
    /// Quota in bytes; 0 means the default of 2 GiB or that the version does not say, below 0 that it is switched off.
    pub quota_bytes: i64,
    /// Member id of the leader it sees, hex; empty when it sees none.
    pub leader: String,
    /// Raft term.
    pub raft_term: u64,
    /// Raft index.
    pub raft_index: u64,
    /// Applied raft index.
    pub applied_index: u64,
    /// It is a learner.
    pub is_learner: bool,
    /// Errors it reports, such as `etcdserver: no leader`.
    pub errors: Vec<String>,
}

/// One alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlarmFacts {
    /// The member it is set on, hex.
    pub member_id: String,
    /// `NOSPACE`, `CORRUPT`, or the number of a later kind.
    pub kind: String,
}

/// Two scrapes of one member's metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMetrics {
    /// The earlier scrape; absent at the first pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EtcdScrape>,
    /// The latest scrape.
    pub latest: EtcdScrape,
}

/// What we keep of one scrape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdScrape {
    /// When it was made.
    pub at: Timestamp,
    /// `etcd_disk_wal_fsync_duration_seconds`.
    pub wal_fsync: Histogram,
    /// `etcd_disk_backend_commit_duration_seconds`.
    pub backend_commit: Histogram,
    /// `etcd_server_leader_changes_seen_total`.
    pub leader_changes: f64,
    /// `etcd_server_proposals_failed_total`.
    pub proposals_failed: f64,
    /// `etcd_server_proposals_pending`.
    pub proposals_pending: f64,
    /// The member's own connections to its peers, by member id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, PeerScrape>,
}

/// What a member's metrics say of one peer: `etcd_network_*` with the label `To` or `Remote`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerScrape {
    /// `etcd_network_active_peers`; absent where the version does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// `etcd_network_peer_round_trip_time_seconds`.
    pub round_trip: Histogram,
    /// `etcd_network_peer_sent_failures_total`.
    pub sent_failures: f64,
    /// `etcd_network_peer_received_bytes_total`.
    pub received_bytes: f64,
}

/// A cumulative Prometheus histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Histogram {
    /// Pairs of upper bound in seconds and cumulative count, by bound; the last stands for infinity with the total.
    pub buckets: Vec<(f64, u64)>,
    /// Observations in all.
    pub count: u64,
    /// Sum in seconds.
    pub sum: f64,
}
