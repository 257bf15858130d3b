//! Clusters as rows.

use outrider_protocol::{ClusterView, ConditionType, Severity};

use super::{in_short, worst_first};
use crate::output::{Cell, Column};

/// Columns of `outrider get clusters`.
pub(crate) fn columns() -> Vec<Column<ClusterView>> {
    vec![
        Column::new("NAME", |cluster: &ClusterView| cluster.name.clone()),
        Column::new("NODES", |cluster: &ClusterView| cluster.nodes.len().to_string()),
        Column::new("QUORUM", |cluster: &ClusterView| {
            let quorum = cluster.conditions.iter().find(|c| c.condition_type == ConditionType::EtcdQuorum);
            quorum.map_or_else(|| Cell::from(""), |c| Cell::toned(c.status.as_str(), c.severity))
        }),
        Column::new("WORST", |cluster: &ClusterView| Cell::toned(worst(cluster).as_str(), worst(cluster))),
        Column::wide("MEMBERS", |cluster: &ClusterView| cluster.nodes.join(",")),
        Column::new("MESSAGE", message),
    ]
}

fn worst(cluster: &ClusterView) -> Severity {
    cluster.conditions.iter().map(|condition| condition.severity).max().unwrap_or(Severity::Ok)
}

/// The worst condition's words; where all is well, the quorum's numbers.
fn message(cluster: &ClusterView) -> Cell {
    match worst_first(&cluster.conditions).first() {
        Some(worst) => Cell::toned(format!("{}: {}", in_short(worst), worst.message), worst.severity),
        None => Cell::from(""),
    }
}
