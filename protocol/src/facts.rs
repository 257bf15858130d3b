//! Everything one node knows, in one document that can be judged again anywhere.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CertificatesFacts, Check, ClockFacts, CloudInitFacts, Condition, CredentialsFacts, DnsFacts, EtcdFacts,
    Fact, GuestAgentFacts, HostFacts, KubernetesFacts, Latch, LoadBalancerFacts, RancherAgentFacts,
    Timestamp, TopologyFacts, TypeMeta,
};

open_enum! {
    /// What kind of machine this is to its owner.
    Profile {
        /// A VM on SUSE Virtualization.
        HarvesterVm = "harvester-vm",
        /// A server node of an HA Rancher.
        RancherHaServer = "rancher-ha-server",
        /// A worker node of an HA Rancher.
        RancherHaAgent = "rancher-ha-agent",
        /// A K3s server.
        K3sServer = "k3s-server",
        /// A K3s agent.
        K3sAgent = "k3s-agent",
        /// An EKS Anywhere admin machine.
        EksaAdmin = "eksa-admin",
        /// A node of an EKS Anywhere cluster.
        EksaNode = "eksa-node",
        /// Anything else.
        Generic = "generic",
    }
}

/// Which node a document is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRef {
    /// Name, unique in the fleet while it lives.
    pub name: String,
    /// Uid that the coordinator gave at enrolment; empty before.
    #[serde(default)]
    pub uid: String,
    /// Cluster it belongs to; empty when it belongs to none.
    #[serde(default)]
    pub cluster: String,
    /// Its profile.
    pub profile: Profile,
    /// True for a node that `outrider up --simulate` plays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
}

/// Facts of every check, the time, and the latches before: all that a judgement depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// `apiVersion` and `kind: NodeFacts`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Whose facts.
    pub node: NodeRef,
    /// Version of the agent that read them.
    pub agent_version: String,
    /// The instant of the judgement.
    pub now: Timestamp,
    /// Thresholds in force.
    #[serde(default)]
    pub thresholds: Thresholds,
    /// Latches before this judgement.
    #[serde(default)]
    pub latches: Vec<Latch>,
    /// What the checks read.
    pub checks: CheckFacts,
}

/// One reading a check; absent when the check has not run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckFacts {
    /// Check `host`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Fact<HostFacts>>,
    /// Check `clock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Fact<ClockFacts>>,
    /// Check `cloud-init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<Fact<CloudInitFacts>>,
    /// Check `guest-agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_agent: Option<Fact<GuestAgentFacts>>,
    /// Check `etcd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Fact<EtcdFacts>>,
    /// Check `load-balancer`, an entry a balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<Fact<Vec<LoadBalancerFacts>>>,
    /// Check `certificates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Fact<CertificatesFacts>>,
    /// Check `kubernetes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Fact<KubernetesFacts>>,
    /// Check `dns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Fact<DnsFacts>>,
    /// Check `rancher-agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rancher_agent: Option<Fact<RancherAgentFacts>>,
    /// Check `credentials`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Fact<CredentialsFacts>>,
    /// Check `topology`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Fact<TopologyFacts>>,
    /// The agent about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Fact<AgentFacts>>,
}

/// The agent about itself: facts of the check `agent`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentFacts {
    /// Problems of the configuration as written, with file and line; empty when it is valid.
    #[serde(default)]
    pub config_problems: Vec<String>,
    /// The coordinator in use; empty when none is configured.
    #[serde(default)]
    pub coordinator: String,
    /// Enrolment: `enrolled`, `pending`, `refused`, `token-unusable`, `none`.
    #[serde(default)]
    pub enrolment: String,
    /// The last failure of enrolment or delivery, in words; empty when the last try worked.
    #[serde(default)]
    pub delivery_error: String,
    /// Since when deliveries fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_failing_since: Option<Timestamp>,
    /// True until the first exchange with the coordinator has ended, well or not: of the way to it nothing is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untried: bool,
    /// Transitions in the spool.
    #[serde(default)]
    pub spooled: u64,
    /// Transitions that a full spool merged away since the last acknowledgement.
    #[serde(default)]
    pub merged: u64,
    /// Problems of the spool (disk full, corrupt file set aside); empty when it works.
    #[serde(default)]
    pub spool_problem: String,
    /// End of our own client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_not_after: Option<Timestamp>,
    /// Checks whose sensor panicked or timed out, for the record.
    #[serde(default)]
    pub failing_checks: Vec<Check>,
}

/// Thresholds of the rules; defaults from the facts, changed by `[checks.*]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Thresholds {
    /// Warn when less than this share of a file system is available, in percent.
    pub disk_warn_percent: f64,
    /// Error below this share, in percent.
    pub disk_error_percent: f64,
    /// Warn when less than this share of memory is available, in percent.
    pub memory_warn_percent: f64,
    /// Error below this share, in percent.
    pub memory_error_percent: f64,
    /// Warn when the clock is off by more, in milliseconds.
    pub clock_warn_ms: i64,
    /// Error when the clock is off by more, in milliseconds.
    pub clock_error_ms: i64,
    /// Seconds after boot before a silent guest agent is an error (`facts/guest-agent.md`, section 8: at least 360).
    pub guest_agent_grace_seconds: u64,
    /// Share of the etcd quota in use that warns, in percent (D3: 80).
    pub etcd_space_warn_percent: f64,
    /// fsync p99 that warns, in milliseconds (D9: 10).
    pub etcd_fsync_warn_ms: f64,
    /// fsync p99 that is an error, in milliseconds (D9: 100).
    pub etcd_fsync_error_ms: f64,
    /// Seconds after which an unreachable learner blocks joins (`facts/etcd.md`, section 3: 300).
    pub etcd_learner_stalled_seconds: u64,
    /// Days before the end of a certificate that inform, warn and are an error (D14: 120, 30, 7).
    pub certificate_days: [i64; 3],
    /// Days before the end of a credential that warn and are an error (14, 7).
    pub credential_days: [i64; 2],
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            disk_warn_percent: 15.0,
            disk_error_percent: 5.0,
            memory_warn_percent: 10.0,
            memory_error_percent: 3.0,
            clock_warn_ms: 1_000,
            clock_error_ms: 30_000,
            guest_agent_grace_seconds: 360,
            etcd_space_warn_percent: 80.0,
            etcd_fsync_warn_ms: 10.0,
            etcd_fsync_error_ms: 100.0,
            etcd_learner_stalled_seconds: 300,
            certificate_days: [120, 30, 7],
            credential_days: [14, 7],
        }
    }
}

impl Thresholds {
    /// What is wrong with the first of them that nobody can mean: field and words.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        let percents = [
            ("diskWarnPercent", self.disk_warn_percent),
            ("diskErrorPercent", self.disk_error_percent),
            ("memoryWarnPercent", self.memory_warn_percent),
            ("memoryErrorPercent", self.memory_error_percent),
            ("etcdSpaceWarnPercent", self.etcd_space_warn_percent),
        ];
        let shares = percents.into_iter().find(|(_, share)| !(0.0..=100.0).contains(share));
        if let Some((field, share)) = shares {
            return Some((field, format!("is {share}; expected a share from 0 to 100")));
        }
        let times = [
            ("clockWarnMs", self.clock_warn_ms as f64),
            ("clockErrorMs", self.clock_error_ms as f64),
            ("etcdFsyncWarnMs", self.etcd_fsync_warn_ms),
            ("etcdFsyncErrorMs", self.etcd_fsync_error_ms),
        ];
        if let Some((field, ms)) = times.into_iter().find(|(_, ms)| ms.is_nan() || *ms < 0.0) {
            return Some((field, format!("is {ms}; expected 0 ms or more")));
        }
        let days: [(&str, &[i64]); 2] =
            [("certificateDays", &self.certificate_days), ("credentialDays", &self.credential_days)];
        let falls = |days: &[i64]| days.is_sorted_by(|a, b| a >= b) && days.iter().all(|days| *days >= 0);
        let (field, days) = days.into_iter().find(|(_, days)| !falls(days))?;
        Some((field, format!("is {days:?}; expected falling numbers of days, none below 0")))
    }
}

/// What `outrider check -o json` prints: the conditions of one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeConditions {
    /// `apiVersion` and `kind: NodeConditions`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Whose conditions.
    pub node: NodeRef,
    /// In the order of their types, then subjects.
    pub conditions: Vec<Condition>,
    /// Checks that have nothing to look at on this machine, and why.
    #[serde(default)]
    pub not_applicable: Vec<NotApplicable>,
}

/// A check without a subject on this machine: inaction has a reason too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotApplicable {
    /// The check.
    pub check: Check,
    /// Why there is nothing to look at.
    pub reason: String,
}
