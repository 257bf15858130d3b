//! Second stage: the files merged into one tree. Every value keeps the place it was written at.

use super::written::{Document, Node, Table, Value};

/// Merges in order; the later document wins.
pub(super) fn merge(documents: Vec<Document>) -> Table {
    documents.into_iter().fold(Table::new(), |mut base, document| {
        merge_table(&mut base, document.table, true);
        base
    })
}

fn merge_table(base: &mut Table, over: Table, top: bool) {
    for (key, (place, node)) in over {
        match (base.get_mut(&key), node) {
            (Some((_, Node { value: Value::Table(old), .. })), Node { value: Value::Table(new), .. }) => {
                merge_table(old, new, false);
            }
            (Some((_, Node { value: Value::Array(old), .. })), Node { value: Value::Array(new), .. })
                if top && key == "load_balancer" =>
            {
                merge_balancers(old, new);
            }
            (_, node) => {
                base.insert(key, (place, node));
            }
        }
    }
}

/// A drop-in that adds a balancer must not silently unwatch the others, so these merge by name.
fn merge_balancers(old: &mut Vec<Node>, new: Vec<Node>) {
    for node in new {
        let identity = identity(&node);
        let same = old.iter_mut().find(|o| identity.is_some() && self::identity(o) == identity);
        match (same, node) {
            (Some(Node { value: Value::Table(old), .. }), Node { value: Value::Table(new), .. }) => {
                merge_table(old, new, false);
            }
            (_, node) => old.push(node),
        }
    }
}

fn identity(node: &Node) -> Option<String> {
    let Value::Table(table) = &node.value else { return None };
    ["name", "url"].iter().find_map(|key| match table.get(*key) {
        Some((_, Node { value: Value::String(s), .. })) => Some(s.clone()),
        _ => None,
    })
}
