//! Clusters as rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use outrider_protocol::{ClusterView, ConditionType, NodeView, ReasonCode, Severity};

use super::{in_short, nodes, worst_first};
use crate::output::{Cell, Column, text};

/// How the nodes of each cluster are, by the cluster's name.
pub(crate) type Members = BTreeMap<String, Standing>;

/// How the nodes of one cluster are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    worst: Option<Severity>,
    troubled: Vec<String>,
}

/// How the nodes of each cluster are.
pub(crate) fn members(all: &[NodeView]) -> Members {
    let mut members = Members::new();
    for node in all.iter().filter(|node| counts(node)) {
        let standing = members.entry(node.cluster.clone()).or_default();
        standing.worst = standing.worst.max(nodes::worst(node));
        standing.troubled.extend(troubled([node]));
    }
    members
}

/// Names of the nodes that need a look.
pub(crate) fn troubled<'a>(nodes: impl IntoIterator<Item = &'a NodeView>) -> Vec<String> {
    let in_trouble = nodes.into_iter().filter(|n| counts(n) && nodes::worst(n) > Some(Severity::Info));
    in_trouble.map(|node| node.name.clone()).collect()
}

/// What a node that was shut out, or whose machine is deleted, last said is nobody's trouble any more.
fn counts(node: &NodeView) -> bool {
    node.enrolment != "revoked" && node.conditions.iter().all(|c| c.reason != ReasonCode::NodeRetired)
}

/// Columns of `outrider get clusters`.
pub(crate) fn columns(members: &Members) -> Vec<Column<ClusterView>> {
    let members = Arc::new(members.clone());
    let standing = {
        let members = members.clone();
        move |cluster: &ClusterView| members.get(&cluster.name).cloned().unwrap_or_default()
    };
    let of = standing.clone();
    vec![
        Column::new("NAME", |cluster: &ClusterView| cluster.name.clone()),
        Column::new("NODES", |cluster: &ClusterView| cluster.nodes.len().to_string()),
        Column::new("QUORUM", |cluster: &ClusterView| {
            let quorum = cluster.conditions.iter().find(|c| c.condition_type == ConditionType::EtcdQuorum);
            quorum.map_or_else(|| Cell::from(""), |c| Cell::toned(c.status.as_str(), c.severity))
        }),
        Column::new("WORST", move |cluster: &ClusterView| {
            nodes::worst_cell(own_worst(cluster).max(of(cluster).worst))
        }),
        Column::wide("MEMBERS", |cluster: &ClusterView| cluster.nodes.join(",")),
        Column::new("MESSAGE", move |cluster: &ClusterView| message(cluster, &standing(cluster))),
    ]
}

fn own_worst(cluster: &ClusterView) -> Option<Severity> {
    cluster.conditions.iter().map(|condition| condition.severity).max()
}

/// The worst condition's words; where all is well, the quorum's numbers. What is worse on the nodes comes first.
fn message(cluster: &ClusterView, standing: &Standing) -> Cell {
    if let (Some(worst), false) = (standing.worst, standing.troubled.is_empty())
        && standing.worst > own_worst(cluster)
    {
        let n = standing.troubled.len();
        let need = if n == 1 { "needs" } else { "need" };
        let nodes = text::count(n, "node");
        return Cell::toned(format!("{nodes} {need} a look: {}", standing.troubled.join(", ")), worst);
    }
    match worst_first(&cluster.conditions).first() {
        Some(worst) => Cell::toned(format!("{}: {}", in_short(worst), worst.message), worst.severity),
        None => Cell::from(""),
    }
}
