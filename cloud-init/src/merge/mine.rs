//! The document that is added to: what it says as written and as PyYAML builds it, and what must stay as it was.

use std::collections::{BTreeSet, HashMap};

use super::item::canonical;
use super::root_of;
use crate::Finding;
use crate::lint::is_null;
use crate::yaml::{self, Node, Value};

/// Nodes that aliases may add to what a text holds itself.
pub(super) const ALIAS_BUDGET: usize = 20_000;

pub(super) struct Mine {
    /// As it is written; `None` for an empty document.
    pub(super) written: Option<Node>,
    /// With its aliases and merge keys written out, where it has any.
    expanded: Option<Node>,
}

impl Mine {
    pub(super) fn read(text: &str) -> Result<Self, Vec<Finding>> {
        let written = root_of(text)?;
        let expanded = written
            .as_ref()
            .filter(|root| root.has_aliases())
            .map(|root| yaml::expand(root, text.len() + ALIAS_BUDGET))
            .transpose()
            .map_err(|e| vec![Finding::error("AliasesRefused", e.line, e.message, "write the values out")])?;
        Ok(Self { written, expanded })
    }

    /// As PyYAML builds it.
    pub(super) fn meant(&self) -> Option<&Node> {
        self.expanded.as_ref().or(self.written.as_ref())
    }

    /// Refuses what stands in more than one place: what is added at `path` would come in at the others as well.
    pub(super) fn must_be_alone(&self, path: &[String]) -> Result<(), Vec<Finding>> {
        let Some(root) = self.written.as_ref().filter(|_| self.expanded.is_some()) else { return Ok(()) };
        let mut aliased = BTreeSet::new();
        aliases(root, &mut aliased);
        let mut node = root;
        for key in path {
            let Some(below) = node.get(key) else { break };
            node = below;
            if matches!(node.value, Value::Alias(_)) || aliased.contains(&node.anchor) {
                let message = format!(
                    "{} is tied to another place by an anchor (&) and an alias (*): what is added to one would be added to both",
                    path.join(".")
                );
                let cure = "write the value out in both places, without & and *";
                return Err(vec![Finding::error("SharedByAlias", 0, message, cure).at(node)]);
            }
        }
        Ok(())
    }

    /// Refuses a key that comes in by `<<`: written again beside it, it would take the inherited one's place.
    pub(super) fn inherited(&self, path: &[String], mapping: Option<&Node>) -> Finding {
        let message = format!(
            "{} comes in through the merge key <<, and a value beside it would take its place instead of being added",
            path.join(".")
        );
        let cure = "write the inherited value out as a key of its own";
        let merge = mapping.and_then(Node::pairs).into_iter().flatten().find(|(key, _)| key.is_merge_key());
        let finding = Finding::error("MergeKey", 0, message, cure);
        merge.map_or(finding.clone(), |(key, _)| finding.at(key))
    }
}

fn aliases(node: &Node, out: &mut BTreeSet<usize>) {
    match &node.value {
        Value::Alias(anchor) => drop(out.insert(*anchor)),
        Value::Sequence { items, .. } => items.iter().for_each(|item| aliases(item, out)),
        Value::Mapping { pairs, .. } => pairs.iter().for_each(|(key, value)| {
            aliases(key, out);
            aliases(value, out);
        }),
        Value::Scalar { .. } => {}
    }
}

/// `after`, with the safety net under the splices: but for what is added at `path`, it means what `before` meant.
pub(super) fn unchanged_but_for(
    path: &[String],
    before: &Mine,
    after: Result<Mine, Vec<Finding>>,
) -> Result<Mine, Vec<Finding>> {
    let changed = match after.as_ref().map(Mine::meant) {
        Ok(Some(new)) => before.meant().and_then(|old| changed_in(old, new, path)),
        Ok(None) | Err(_) => Some("the document".to_owned()),
    };
    let what = match (changed, after) {
        (None, Ok(after)) => return Ok(after),
        (what, _) => what.unwrap_or_else(|| "the document".to_owned()),
    };
    let place =
        before.written.as_ref().and_then(|root| path.iter().try_fold(root, |node, key| node.get(key)));
    let message = format!("adding to {} would change {what}; nothing is written", path.join("."));
    let finding =
        Finding::error("MergeUnsafe", 0, message, "lay this part out in lines of its own, or add by hand");
    Err(vec![match place {
        Some(node) => finding.at(node),
        None => finding,
    }])
}

/// Path of what `new` says otherwise than `old`, not counting additions at `path`.
fn changed_in(old: &Node, new: &Node, path: &[String]) -> Option<String> {
    let Some((name, rest)) = path.split_first() else { return lost_in(old, new) };
    let (Some(before), Some(after)) = (old.pairs(), new.pairs()) else {
        return Some("the document".to_owned());
    };
    let after = by_name(after);
    before.iter().find_map(|(key, value)| {
        let key = key.text()?;
        match after.get(key) {
            None => Some(key.to_owned()),
            Some(now) if key == name => changed_in(value, now, rest),
            Some(now) => (canonical(value) != canonical(now)).then(|| key.to_owned()),
        }
    })
}

fn by_name(pairs: &[(Node, Node)]) -> HashMap<&str, &Node> {
    pairs.iter().filter_map(|(key, value)| Some((key.text()?, value))).collect()
}

/// Path of a value of `old` that `new` has not.
fn lost_in(old: &Node, new: &Node) -> Option<String> {
    match (&old.value, &new.value) {
        _ if is_null(old) => None,
        (Value::Mapping { pairs, .. }, Value::Mapping { pairs: now, .. }) => {
            let now = by_name(now);
            pairs.iter().find_map(|(key, value)| {
                let name = key.text()?;
                match now.get(name) {
                    None => Some(name.to_owned()),
                    Some(now) => lost_in(value, now).map(|below| format!("{name}.{below}")),
                }
            })
        }
        (Value::Sequence { items, .. }, Value::Sequence { items: now, .. }) => {
            let mut now = now.iter().map(canonical);
            let kept = items.iter().map(canonical).all(|item| now.any(|n| n == item));
            (!kept).then(|| "an item".to_owned())
        }
        _ => (canonical(old) != canonical(new)).then(|| "its value".to_owned()),
    }
}
