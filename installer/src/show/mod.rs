//! The protocol's nouns as people see them.

pub(crate) mod clusters;
pub(crate) mod conditions;
pub(crate) mod describe;
pub(crate) mod etcd;
pub(crate) mod events;
pub(crate) mod install;
pub(crate) mod machines;
pub(crate) mod nagios;
pub(crate) mod nodes;
pub(crate) mod paths;
pub(crate) mod pools;
pub(crate) mod report;
pub(crate) mod sync;
pub(crate) mod tokens;
pub(crate) mod userdata;

#[cfg(test)]
mod tests;

use outrider_protocol::Condition;

/// The conditions with the worst first, then by type and subject.
pub(crate) fn worst_first<'a>(conditions: impl IntoIterator<Item = &'a Condition>) -> Vec<&'a Condition> {
    let mut sorted: Vec<&Condition> = conditions.into_iter().collect();
    sorted.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.key().cmp(&b.key())));
    sorted
}

/// `EtcdQuorum=False (rke2)`: a condition in the fewest words.
pub(crate) fn in_short(condition: &Condition) -> String {
    let what = format!("{}={}", condition.condition_type, condition.status);
    if condition.subject.is_empty() { what } else { format!("{what} ({})", condition.subject) }
}
