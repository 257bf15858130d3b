//! Transitions as lines of `outrider watch`.

use outrider_protocol::{EventView, Status};

use crate::output::{Cell, Column};

/// Columns of a transition.
pub(crate) fn columns() -> Vec<Column<EventView>> {
    vec![
        Column::new("TIME", |e: &EventView| e.transition.at.to_string()),
        Column::new("SEVERITY", |e: &EventView| {
            let severity = e.transition.condition.severity;
            Cell::toned(severity.as_str(), severity)
        }),
        Column::new("OBJECT", |e: &EventView| e.node.clone()),
        Column::new("CONDITION", |e: &EventView| e.transition.condition.condition_type.to_string()),
        Column::new("SUBJECT", |e: &EventView| e.transition.condition.subject.clone()),
        Column::new("CHANGE", change),
        Column::new("REASON", |e: &EventView| e.transition.condition.reason.to_string()),
        Column::new("MESSAGE", |e: &EventView| {
            let merged = match e.transition.merged {
                0 => String::new(),
                n => format!(" ({n} earlier changes were merged into this one)"),
            };
            format!("{}{merged}", e.transition.condition.message)
        }),
    ]
}

/// `True->False`, `new False`, `gone`.
fn change(event: &EventView) -> String {
    let now = event.transition.condition.status;
    match (event.transition.removed, event.transition.previous_status) {
        (true, _) => "gone".to_owned(),
        (false, None) => format!("new {now}"),
        (false, Some(before)) if before == now => now.to_string(),
        (false, Some(before)) => format!("{}->{}", Status::as_str(before), now),
    }
}
