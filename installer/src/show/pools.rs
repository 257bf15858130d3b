//! Node pools of guest clusters at Harvester as rows.

use outrider_protocol::{Condition, PoolView, Severity};

use super::{in_short, nodes, worst_first};
use crate::output::{Cell, Column};

/// Columns of `outrider get pools`.
pub(crate) fn columns() -> Vec<Column<PoolView>> {
    vec![
        Column::new("CLUSTER", |pool: &PoolView| pool.cluster.clone()),
        Column::new("NAME", |pool: &PoolView| pool.name.clone()),
        // What is not known is no 0.
        Column::new("WANTED", |pool: &PoolView| {
            pool.wanted.map_or_else(|| "?".to_owned(), |n| n.to_string())
        }),
        Column::new("PRESENT", |pool: &PoolView| pool.present.to_string()),
        Column::new("RUNNING", |pool: &PoolView| pool.running.to_string()),
        Column::new("REPORTING", |pool: &PoolView| pool.reporting.to_string()),
        Column::new("REPLACING", |pool: &PoolView| pool.replacing.to_string()),
        Column::new("WORST", |pool: &PoolView| {
            nodes::worst_cell(pool.conditions.iter().map(|condition| condition.severity).max())
        }),
        Column::wide("DELETING", |pool: &PoolView| pool.deleting.to_string()),
        Column::wide("NEVER REPORTED", |pool: &PoolView| pool.never_reported.to_string()),
        Column::wide("REPLACED/1H", |pool: &PoolView| pool.replaced_last_hour.to_string()),
        Column::new("PROBLEM", problem),
    ]
}

/// The worst that is to be looked at, and how many more there are.
fn problem(pool: &PoolView) -> Cell {
    let problems: Vec<&Condition> =
        worst_first(pool.conditions.iter().filter(|c| c.severity > Severity::Info));
    match problems.as_slice() {
        [] => Cell::from(""),
        [worst, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" (+{} more)", rest.len()) };
            Cell::toned(format!("{}{more}: {}", in_short(worst), worst.message), worst.severity)
        }
    }
}
