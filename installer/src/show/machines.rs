//! Virtual machines of Harvester as rows.

use outrider_protocol::{ConditionType, MachineState, MachineView, Severity, Timestamp};

use super::{in_short, nodes, worst_first};
use crate::output::{Cell, Column, text};

/// Columns of `outrider get machines`; ages are counted to `now`.
pub(crate) fn columns(now: Timestamp) -> Vec<Column<MachineView>> {
    vec![
        Column::new("NAMESPACE", |machine: &MachineView| machine.namespace.clone()),
        Column::new("NAME", |machine: &MachineView| machine.name.clone()),
        Column::new("STATE", |machine: &MachineView| state(machine)),
        Column::new("WORST", |machine: &MachineView| nodes::worst_cell(worst(machine))),
        Column::new("NODE", |machine: &MachineView| machine.node.clone()),
        Column::new("GUEST AGENT", |machine: &MachineView| guest_agent(machine)),
        Column::new("ADDRESS", |machine: &MachineView| {
            machine.addresses.first().cloned().unwrap_or_default()
        }),
        Column::new("UP", move |machine: &MachineView| text::since(machine.running_since, now)),
        Column::new("CLUSTER", |machine: &MachineView| machine.cluster.clone()).where_told(),
        Column::wide("POOL", |machine: &MachineView| machine.pool.clone()),
        Column::wide("HOST", |machine: &MachineView| machine.host.clone()),
        Column::wide("ZONE", |machine: &MachineView| machine.zone.clone()),
        Column::wide("REGION", |machine: &MachineView| machine.region.clone()),
        Column::wide("MATCHED BY", |machine: &MachineView| machine.matched_by.clone()),
        Column::wide("AGE", move |machine: &MachineView| text::since(machine.created_at, now)),
        Column::new("PROBLEM", problem),
    ]
}

fn worst(machine: &MachineView) -> Option<Severity> {
    machine.conditions.iter().map(|condition| condition.severity).max()
}

fn state(machine: &MachineView) -> Cell {
    let severity = if machine.state == MachineState::Running { Severity::Ok } else { Severity::Info };
    Cell::toned(machine.state.as_str(), severity)
}

/// Whether the host reaches it; `-` of a machine that does not run.
fn guest_agent(machine: &MachineView) -> Cell {
    let of = |c: &&outrider_protocol::Condition| c.condition_type == ConditionType::GuestAgentConnected;
    let said = machine.conditions.iter().find(of);
    said.map_or_else(|| Cell::from(""), |c| Cell::toned(c.status.as_str(), c.severity))
}

/// The worst that is to be looked at, and how many more there are.
fn problem(machine: &MachineView) -> Cell {
    let problems = worst_first(machine.conditions.iter().filter(|c| c.severity > Severity::Info));
    match problems.as_slice() {
        [] => Cell::from(""),
        [worst, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" (+{} more)", rest.len()) };
            Cell::toned(format!("{}{more}: {}", in_short(worst), worst.message), worst.severity)
        }
    }
}
