//! Nodes as rows.

use outrider_protocol::{NodeView, Severity, Timestamp};

use super::{in_short, worst_first};
use crate::output::{Cell, Column, text};

/// Columns of `outrider get nodes`; ages are counted to `now`.
pub(crate) fn columns(now: Timestamp) -> Vec<Column<NodeView>> {
    vec![
        Column::new("NAME", |node: &NodeView| node.name.clone()),
        Column::new("READY", |node: &NodeView| Cell::toned(node.ready.as_str(), node.ready)),
        Column::new("WORST", |node: &NodeView| worst_cell(worst(node))),
        Column::new("CLUSTER", |node: &NodeView| node.cluster.clone()),
        Column::new("ZONE", |node: &NodeView| node.zone.clone()).where_told(),
        Column::new("SIMULATED", |node: &NodeView| if node.simulated { "yes" } else { "no" }).where_told(),
        Column::new("SEEN", move |node: &NodeView| text::since(node.last_seen, now)),
        Column::new("AGE", move |node: &NodeView| text::since(Some(node.enrolled_at), now)),
        Column::wide("PROFILE", |node: &NodeView| node.profile.to_string()),
        Column::wide("REGION", |node: &NodeView| node.region.clone()),
        Column::wide("ADDRESS", |node: &NodeView| {
            node.identity.addresses.first().cloned().unwrap_or_default()
        }),
        Column::wide("VERSION", |node: &NodeView| node.agent_version.clone()),
        Column::wide("ENROLMENT", |node: &NodeView| node.enrolment.clone()),
        Column::wide("UID", |node: &NodeView| node.uid.clone()),
        Column::new("PROBLEM", problem),
    ]
}

/// The highest severity among the node's conditions; `None` where nothing was judged.
pub(crate) fn worst(node: &NodeView) -> Option<Severity> {
    node.conditions.iter().map(|condition| condition.severity).max()
}

/// A severity, or `-` where nothing was judged: that is not ok.
pub(crate) fn worst_cell(worst: Option<Severity>) -> Cell {
    worst.map_or_else(|| Cell::from(""), |worst| Cell::toned(worst.as_str(), worst))
}

/// The worst that is to be looked at, and how many more there are; what holds a node back comes first.
fn problem(node: &NodeView) -> Cell {
    if node.enrolment == "pending" {
        let advice = format!("waits for approval: outrider approve {}", node.name);
        return Cell::toned(advice, Severity::Warn);
    }
    if node.enrolment == "revoked" {
        return Cell::toned("revoked by an operator", Severity::Info);
    }
    let problems = worst_first(node.conditions.iter().filter(|c| c.severity > Severity::Info));
    match problems.as_slice() {
        [] => Cell::from(""),
        [worst, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" (+{} more)", rest.len()) };
            Cell::toned(format!("{}{more}: {}", in_short(worst), worst.message), worst.severity)
        }
    }
}
