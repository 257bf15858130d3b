//! The path matrices of a cluster: from the node on the left to the place above.

use outrider_protocol::{PathCell, PathMatrix, PathRow, ProbeTarget, Timestamp};

use super::describe::table;
use super::report::Layout;
use crate::output::{Cell, Column, Tone, text};

/// A table a balancer.
pub(crate) fn tables(matrices: &[PathMatrix], now: Timestamp, layout: Layout) -> String {
    let mut out = String::new();
    for matrix in matrices.iter().filter(|m| !m.rows.is_empty() && !m.columns.is_empty()) {
        let balancer = text::printable(&matrix.balancer);
        out.push_str(&format!(
            "\nWho reaches {balancer} ({}:{}; tries that failed of those that were made; * a backend of it):\n",
            text::printable(&matrix.host),
            matrix.port
        ));
        out.push_str(&table(columns(matrix, now), layout).render(&matrix.rows));
    }
    out
}

fn columns(matrix: &PathMatrix, now: Timestamp) -> Vec<Column<PathRow>> {
    let from = Column::new("FROM", |row: &PathRow| {
        let mark = if row.is_target { "*" } else { "" };
        format!("{}{mark}", row.node)
    });
    let places = matrix.columns.iter().enumerate().map(|(i, column)| {
        let peer = text::printable(&column.peer);
        let title = match column.target {
            ProbeTarget::Balancer => format!("BALANCER {peer}"),
            _ => format!("BACKEND {peer}"),
        };
        Column::new(title, move |row: &PathRow| row.cells.get(i).map_or_else(|| Cell::from(""), cell))
    });
    let network = Column::wide("NETWORK", |row: &PathRow| row.network.clone());
    let age = Column::new("TRIED", move |row: &PathRow| format!("{} ago", text::age(now.since(row.at))));
    [from].into_iter().chain(places).chain([network, age]).collect()
}

/// "0/30", "10/30", "-" where nothing was tried.
fn cell(cell: &PathCell) -> Cell {
    let tone = match (cell.tries, cell.failed) {
        (0, _) => return Cell::from("-"),
        (_, 0) => Tone::Good,
        (tries, failed) if tries == failed => Tone::Bad,
        _ => Tone::Warn,
    };
    Cell::toned(format!("{}/{}", cell.failed, cell.tries), tone)
}
