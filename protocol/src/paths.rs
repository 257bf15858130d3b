//! The path matrix: whose tries at a load balancer came through, over the nodes of a cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ProbeTarget, Status, Timestamp, UnknownCause};

/// What one node's tries at one balancer came to lately, as its report carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BalancerPaths {
    /// Name from the configuration.
    pub name: String,
    /// Host of its URL.
    pub host: String,
    /// Port of its URL.
    pub port: u16,
    /// When the last try was made.
    pub at: Timestamp,
    /// Seconds between the last two passes; absent while there was but one. A report is sent by change, so the age of `at`
    /// does not tell how often the node looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<u32>,
    /// Why the newest look came to nothing (no address, a sensor that failed); empty when it came to something.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub untried: String,
    /// Tries by where they went; bounded.
    pub paths: Vec<PathTries>,
}

/// Tries on one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathTries {
    /// Whom they went to.
    pub target: ProbeTarget,
    /// Address and port.
    pub peer: String,
    /// Tries that told anything of the path.
    pub tries: u32,
    /// Of them, those that failed: no connection, no TLS, no answer, or an answer 502, 503 or 504.
    pub failed: u32,
    /// Of the failed, those that a time-out ended.
    #[serde(default)]
    pub timed_out: u32,
    /// Cause of the last failure; absent when an answer told it, or none failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<UnknownCause>,
    /// No try of the newest pass came through, of three or more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// Hardware address that answers for it in the node's own network; empty where it is in another, or an IPv6 one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
}

impl BalancerPaths {
    /// What a change of which must be told: where tries go, whether they fail once or more often, and about how many came
    /// through.
    pub fn signs(&self) -> impl Iterator<Item = String> + '_ {
        let all = std::iter::once(format!("{}:{} {} {}", self.host, self.port, self.name, self.untried));
        all.chain(self.paths.iter().map(|path| {
            let good = path.tries.saturating_sub(path.failed);
            let about = good.checked_ilog2().map_or(0, |log| log + 1).min(6);
            let (target, peer, down, mac) = (&path.target, &path.peer, path.down, &path.mac);
            format!("{target} {peer} {} {about} {down} {mac}", path.failed.min(4))
        }))
    }
}

/// The joined tries of a cluster's nodes at one balancer: a part of `kind: Cluster`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathMatrix {
    /// Name of the balancer.
    pub balancer: String,
    /// Host of its URL.
    pub host: String,
    /// Port of its URL.
    pub port: u16,
    /// Addresses of the balancer and, behind them, its backends.
    pub columns: Vec<PathColumn>,
    /// A row a node, by name.
    pub rows: Vec<PathRow>,
}

/// One place that is tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathColumn {
    /// An address of the balancer, or a backend.
    pub target: ProbeTarget,
    /// Address and port.
    pub peer: String,
    /// Node that has this address, where one of the cluster does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
}

/// What one node saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathRow {
    /// The node.
    pub node: String,
    /// When it last tried.
    pub at: Timestamp,
    /// It is a backend of this balancer itself.
    #[serde(default)]
    pub is_target: bool,
    /// Network it stands in, such as `10.0.1.0/24`; empty when unknown.
    #[serde(default)]
    pub network: String,
    /// A cell a column.
    pub cells: Vec<PathCell>,
}

/// One node's tries at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathCell {
    /// `True` when every try came through, `False` when one failed, `Unknown` when there was none.
    pub reached: Status,
    /// Tries.
    pub tries: u32,
    /// Of them failed.
    pub failed: u32,
}
