//! All that is known of one node or cluster.

use outrider_protocol::{ClusterView, EventView, NodeView, Timestamp};
use unicode_width::UnicodeWidthStr;

use super::report::{self, Layout};
use crate::output::{Column, Table, text};

/// A node: who it is, its conditions, its last transitions.
pub(crate) fn node(node: &NodeView, events: &[EventView], now: Timestamp, layout: Layout) -> String {
    let seen = match node.last_seen {
        Some(at) => format!("{at} ({} ago)", text::age(now.since(at))),
        None => "never".to_owned(),
    };
    let cluster = match node.reported_cluster.as_str() {
        "" => node.cluster.clone(),
        said => format!("{} (the node itself says {said})", text::or_dash(&node.cluster)),
    };
    let labels: Vec<String> = node.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let identity = &node.identity;
    let mut out = fields(&[
        ("Name", node.name.clone()),
        ("Uid", node.uid.clone()),
        ("Simulated", if node.simulated { "yes" } else { "no" }.to_owned()),
        ("Cluster", cluster),
        ("Profile", node.profile.to_string()),
        ("Zone", node.zone.clone()),
        ("Region", node.region.clone()),
        ("Labels", labels.join(", ")),
        ("Ready", node.ready.to_string()),
        ("Enrolment", node.enrolment.clone()),
        ("Enrolled", node.enrolled_at.to_string()),
        ("Last seen", seen),
        ("Agent version", node.agent_version.clone()),
        ("Machine id (hash)", identity.machine_id_hash.clone()),
        ("System UUID", identity.system_uuid.clone()),
        ("Boot id", identity.boot_id.clone()),
        ("Instance id", identity.instance_id.clone()),
        ("MACs", identity.macs.join(", ")),
        ("Addresses", identity.addresses.join(", ")),
    ]);
    out.push_str(&format!("\nConditions: {}\n", report::summary(&node.conditions, layout.colour)));
    if !node.conditions.is_empty() {
        out.push_str(&report::rows(&node.conditions, layout));
    }
    out.push_str(&report::where_to_read_on(&node.conditions, layout));
    if !events.is_empty() {
        out.push_str(&format!(
            "\nLast transitions:\n{}",
            table(super::events::columns(), layout).render(events)
        ));
    }
    out
}

/// A cluster: its members as they are, and the conditions over all of them.
pub(crate) fn cluster(cluster: &ClusterView, members: &[NodeView], now: Timestamp, layout: Layout) -> String {
    let mut about = vec![("Name", cluster.name.clone()), ("Nodes", cluster.nodes.len().to_string())];
    if let Some(etcd) = &cluster.etcd {
        about.extend(super::etcd::fields(etcd, now));
    }
    let mut out = fields(&about);
    let mut summary = report::summary(&cluster.conditions, layout.colour);
    // All may be well between the nodes and not on them.
    let troubled = super::clusters::troubled(members);
    if !troubled.is_empty() {
        let need = if troubled.len() == 1 { "needs" } else { "need" };
        let nodes = text::count(troubled.len(), "node");
        summary = format!("{}; {nodes} {need} a look, below", summary.trim_end_matches("; all is well"));
    }
    out.push_str(&format!("\nConditions: {summary}\n"));
    if !cluster.conditions.is_empty() {
        out.push_str(&report::rows(&cluster.conditions, layout));
    }
    out.push_str(&report::where_to_read_on(&cluster.conditions, layout));
    if let Some(etcd) = &cluster.etcd {
        out.push_str(&super::etcd::tables(etcd, now, layout));
    }
    out.push_str(&super::paths::tables(&cluster.paths, now, layout));
    out.push_str(&format!(
        "\nNodes:\n{}",
        table(super::nodes::columns(now), layout).compact(members).render(members)
    ));
    out
}

pub(super) fn table<T>(columns: Vec<Column<T>>, layout: Layout) -> Table<T> {
    let mut table = Table::new(columns, layout.wide);
    table.limit = layout.width;
    table.colour = layout.colour;
    table
}

fn fields(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(name, _)| name.width() + 1).max().unwrap_or(0);
    let line = |(name, value): &(&str, String)| {
        let name = format!("{name}:");
        format!("{name:width$}  {}\n", text::or_dash(&text::printable(value)))
    };
    fields.iter().map(line).collect()
}
