//! What a push would send, in order, and why each write is held (`facts/hosted-sync.md`, section 3, safety rules).
//!
//! Nothing here writes. A change that somebody else made is held and reported; a deletion, a removal or a widening of
//! network access waits until it is confirmed by name; a lower version is never written; the same difference after a
//! write of ours is a loop and stops.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::compare::{equal, networks, pool_differences, pools_by_name, versions};
use super::fields::{Equality, Field, Trait};
use super::{Document, Provider, known};

/// All that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Whose cluster.
    pub provider: Provider,
    /// S.
    pub spec: &'a Document,
    /// L, read for this push.
    pub live: &'a Document,
    /// The cloud says an update is under way.
    pub in_progress: bool,
    /// Fields edited in S since they were last applied, each with the cloud's value that was seen when editing.
    pub edited: &'a BTreeMap<String, Value>,
    /// U as it was when S and the cloud last agreed; `None` when that is not known.
    pub base: Option<&'a Document>,
    /// What was confirmed by name: `publicAccess`, `tags`, `nodeGroups/n2`.
    pub confirmed: &'a BTreeSet<String>,
    /// What our last push wrote, while it is not known to have held.
    pub last_push: Option<&'a Document>,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// Field, or `nodeGroups/NAME` for a pool.
    pub path: String,
    /// What kind of write.
    pub action: Action,
    /// The cloud's value now.
    pub from: Value,
    /// The value it would get; null for a deletion.
    pub to: Value,
}

/// Kinds of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Change a field, or fields of a pool.
    Update,
    /// Create a pool.
    CreatePool,
    /// Delete a pool.
    DeletePool,
}

/// Why a write is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// Somebody changed it in the cloud and nobody edited it here.
    WouldLose,
    /// It deletes a pool, a tag or a label.
    Destructive,
    /// It opens the cluster to more of the world.
    WidensAccess,
    /// The cloud is ahead; it cannot go back. Adopt its version.
    VersionLower,
    /// Cannot be changed after creation.
    Immutable,
    /// The same difference stands after our write: something else writes it back.
    Loop,
    /// One call would send it together with a field that is held.
    SentTogether,
    /// The control plane has to get there first.
    AfterControlPlane,
    /// The last pool that runs system pods cannot go.
    LastSystemPool,
    /// It cannot be used as it is.
    Invalid,
}

impl Hold {
    /// Whether confirming the path by name lets the write go.
    pub fn confirmable(self) -> bool {
        matches!(self, Hold::Destructive | Hold::WidensAccess | Hold::WouldLose)
    }
}

/// A write that waits, with the reason in words.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The write.
    pub write: Write,
    /// Why.
    pub hold: Hold,
    /// In words, with the values.
    pub reason: String,
}

/// What a push would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Nothing is sent now: an update is under way.
    pub requeue: bool,
    /// To be sent, in order: control plane, pools.
    pub writes: Vec<Write>,
    /// To wait.
    pub held: Vec<Held>,
    /// Edited here on purpose while the cloud changed too: sent, and told (path, seen, now).
    pub conflicts: Vec<(String, Value, Value)>,
}

/// Plans a push. A null field is never part of it; what the cloud does not tell is not a difference.
pub fn plan(input: &Input<'_>) -> Plan {
    let mut plan = Plan { requeue: input.in_progress, ..Plan::default() };
    if plan.requeue {
        return plan;
    }
    for field in input.provider.fields().iter().filter(|f| f.special != Trait::Identity) {
        let (Some(ours), Some(live)) = (known(input.spec, field.name), known(input.live, field.name)) else {
            continue;
        };
        if field.equality == Equality::Pools {
            plan_pools(input, field.name, ours, live, &mut plan);
        } else if !equal(input.provider, field, ours, live) {
            let write = write(field.name, Action::Update, live, ours);
            plan_field(input, field, write, &mut plan);
        }
    }
    hold_together(input.provider, &mut plan);
    plan
}

fn write(path: &str, action: Action, from: &Value, to: &Value) -> Write {
    Write { path: path.to_owned(), action, from: from.clone(), to: to.clone() }
}

fn plan_field(input: &Input<'_>, field: &Field, write: Write, plan: &mut Plan) {
    match why_held(input, field, &write) {
        Some((hold, _)) if hold.confirmable() && input.confirmed.contains(&write.path) => {
            plan.writes.push(write)
        }
        Some((hold, reason)) => plan.held.push(Held { write, hold, reason }),
        None => {
            if let Some(seen) = input.edited.get(field.name)
                && !equal(input.provider, field, seen, &write.from)
            {
                plan.conflicts.push((write.path.clone(), seen.clone(), write.from.clone()));
            }
            plan.writes.push(write);
        }
    }
}

fn why_held(input: &Input<'_>, field: &Field, write: &Write) -> Option<(Hold, String)> {
    let (from, to) = (&write.from, &write.to);
    if field.special == Trait::Immutable {
        return Some((
            Hold::Immutable,
            format!("{} is {from} and cannot be changed after creation", field.name),
        ));
    }
    if field.equality == Equality::Version && versions(to, from) == Some(Ordering::Less) {
        let reason = format!("the cloud is at {from}, ahead of {to}, and cannot go back; adopt {from}");
        return Some((Hold::VersionLower, reason));
    }
    if input.last_push.and_then(|p| known(p, field.name)).is_some_and(|w| equal(input.provider, field, w, to))
    {
        return Some((
            Hold::Loop,
            format!("we wrote {to} and read {from} again; something else writes it back"),
        ));
    }
    if let Some(reason) = changed_by_another(input, field, from) {
        return Some((Hold::WouldLose, reason));
    }
    let removed = removed_keys(field, from, to);
    if !removed.is_empty() {
        return Some((Hold::Destructive, format!("removes {} from {}", removed.join(", "), field.name)));
    }
    widens(field, from, to)
        .then(|| (Hold::WidensAccess, format!("{from} -> {to} opens the cluster to more of the world")))
}

/// Whether the cloud's value came from somebody else: nobody edited the field here, and it is not what the cloud had
/// when both agreed.
fn changed_by_another(input: &Input<'_>, field: &Field, live: &Value) -> Option<String> {
    if input.edited.contains_key(field.name) {
        return None;
    }
    let before = input.base.and_then(|base| known(base, field.name));
    match before {
        Some(before) if equal(input.provider, field, before, live) => None,
        Some(before) => Some(format!("changed in the cloud from {before} to {live}; nobody edited it here")),
        None => Some(format!("the cloud has {live}; nobody edited it here")),
    }
}

fn removed_keys(field: &Field, from: &Value, to: &Value) -> Vec<String> {
    match (field.special, from.as_object(), to.as_object()) {
        (Trait::RemovesKeys, Some(from), Some(to)) => {
            from.keys().filter(|key| !to.contains_key(*key)).cloned().collect()
        }
        _ => Vec::new(),
    }
}

/// Whether going from `from` to `to` lets more of the world in.
fn widens(field: &Field, from: &Value, to: &Value) -> bool {
    match field.special {
        Trait::TrueWidens => to == &Value::Bool(true) && from != to,
        Trait::FalseWidens => switched_off(from, to),
        Trait::MoreWidens => match (allowed(from), allowed(to)) {
            (Some(from), Some(to)) => to.iter().any(|network| !within(network, &from)),
            (Some(_), None) => true,
            (None, _) => false,
        },
        _ => false,
    }
}

/// Whether a switch that keeps the world out goes off: the value itself, or one inside an object.
fn switched_off(from: &Value, to: &Value) -> bool {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => from.iter().any(|(key, was)| {
            was == &Value::Bool(true) && to.get(key).is_none_or(|is| is == &Value::Bool(false))
        }),
        _ => to == &Value::Bool(false) && from != to,
    }
}

/// Whether one of `networks` contains `network`; text that is no network is within itself alone.
fn within(network: &str, networks: &BTreeSet<String>) -> bool {
    networks.contains(network)
        || network_of(network).is_some_and(|(address, length)| {
            networks.iter().filter_map(|n| network_of(n)).any(|(wide, wide_length)| {
                wide_length <= length && prefix(address, wide_length) == prefix(wide, wide_length)
            })
        })
}

/// Address and prefix length of `192.0.2.0/24`, both counted as IPv6: IPv4 lies below `::ffff:0:0/96`.
fn network_of(text: &str) -> Option<(u128, u32)> {
    let (address, length) = text.trim().split_once('/')?;
    let length: u32 = length.parse().ok()?;
    match address.parse().ok()? {
        IpAddr::V4(a) if length <= 32 => Some((u128::from(a.to_ipv6_mapped()), length + 96)),
        IpAddr::V6(a) if length <= 128 => Some((u128::from(a), length)),
        _ => None,
    }
}

fn prefix(address: u128, length: u32) -> u128 {
    if length == 0 { 0 } else { address >> (128 - length) }
}

/// Networks let in by a list, or by GKE's object with `enabled` and `cidrBlocks`; `None` means all of them.
fn allowed(value: &Value) -> Option<BTreeSet<String>> {
    let Some(object) = value.as_object() else { return networks(value).flatten() };
    if object.get("enabled") != Some(&Value::Bool(true)) {
        return None;
    }
    let blocks = object.get("cidrBlocks").and_then(Value::as_array);
    let block = |b: &Value| b.get("cidrBlock").and_then(Value::as_str).map(str::to_owned);
    Some(blocks.into_iter().flatten().filter_map(block).collect())
}

fn plan_pools(input: &Input<'_>, list: &str, ours: &Value, live: &Value, plan: &mut Plan) {
    let provider = input.provider;
    let (mine, cloud) = match (pools_by_name(provider, ours), pools_by_name(provider, live)) {
        (Ok(mine), Ok(cloud)) => (mine, cloud),
        (Err(reason), _) | (_, Err(reason)) => {
            let write = write(list, Action::Update, live, ours);
            return plan.held.push(Held { write, hold: Hold::Invalid, reason });
        }
    };
    for (name, pool) in &mine {
        let path = format!("{list}/{name}");
        match cloud.get(name) {
            None => plan_new_pool(input, (list, name), &path, pool, plan),
            Some(theirs) => plan_pool(input, (list, &path), pool, theirs, plan),
        }
    }
    for (name, pool) in cloud.iter().filter(|(name, _)| !mine.contains_key(*name)) {
        let write = write(
            &format!("{list}/{name}"),
            Action::DeletePool,
            &Value::Object((*pool).clone()),
            &Value::Null,
        );
        plan_deletion(input, list, write, (&mine, pool), plan);
    }
}

fn plan_new_pool(
    input: &Input<'_>,
    (list, name): (&str, &str),
    path: &str,
    pool: &Document,
    plan: &mut Plan,
) {
    let write = write(path, Action::CreatePool, &Value::Null, &Value::Object(pool.clone()));
    if let Some(reason) = ahead_of_control_plane(input, pool) {
        return plan.held.push(Held { write, hold: Hold::AfterControlPlane, reason });
    }
    if !added_here(input, list, name) && !input.confirmed.contains(&write.path) {
        let reason = "not in the cloud, and nobody added it here: it was deleted there".to_owned();
        return plan.held.push(Held { write, hold: Hold::WouldLose, reason });
    }
    plan.writes.push(write);
}

/// Whether an edit here added the pool: the list was edited, and the one seen before did not have it.
fn added_here(input: &Input<'_>, list: &str, name: &str) -> bool {
    let seen = input.edited.get(list).map(|seen| pools_by_name(input.provider, seen));
    match seen {
        Some(Ok(before)) => !before.contains_key(name),
        Some(Err(_)) | None => false,
    }
}

fn plan_pool(
    input: &Input<'_>,
    (list, path): (&str, &str),
    pool: &Document,
    theirs: &Document,
    plan: &mut Plan,
) {
    let differing = pool_differences(input.provider, pool, theirs);
    if differing.is_empty() {
        return;
    }
    let part = |of: &Document| {
        Value::Object(
            of.iter()
                .filter(|(k, _)| differing.contains(&k.as_str()))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
        )
    };
    let write = write(path, Action::Update, &part(theirs), &part(pool));
    let held = pool_hold(input, list, pool, theirs, &differing);
    match held {
        Some((hold, _)) if hold.confirmable() && input.confirmed.contains(path) => plan.writes.push(write),
        Some((hold, reason)) => plan.held.push(Held { write, hold, reason }),
        None => plan.writes.push(write),
    }
}

fn pool_hold(
    input: &Input<'_>,
    list: &str,
    pool: &Document,
    theirs: &Document,
    differing: &[&str],
) -> Option<(Hold, String)> {
    let fields = || input.provider.pool_fields().iter().filter(|f| differing.contains(&f.name));
    for field in fields().filter(|f| f.equality == Equality::Version) {
        let (to, from) = (pool.get(field.name)?, theirs.get(field.name)?);
        if versions(to, from) == Some(Ordering::Less) {
            let reason = format!("the pool is at {from}, ahead of {to}, and cannot go back");
            return Some((Hold::VersionLower, reason));
        }
        if let Some(reason) = ahead_of_control_plane(input, pool) {
            return Some((Hold::AfterControlPlane, reason));
        }
    }
    if !input.edited.contains_key(list) {
        let reason = format!("{} changed in the cloud; nobody edited the pools here", differing.join(", "));
        return Some((Hold::WouldLose, reason));
    }
    let removed: Vec<String> = fields()
        .filter_map(|f| Some(removed_keys(f, theirs.get(f.name)?, pool.get(f.name)?)))
        .flatten()
        .collect();
    (!removed.is_empty()).then(|| (Hold::Destructive, format!("removes {}", removed.join(", "))))
}

/// A pool's version may not be later than the control plane's.
fn ahead_of_control_plane(input: &Input<'_>, pool: &Document) -> Option<String> {
    let control_plane = known(input.live, "kubernetesVersion")?;
    let field = input.provider.pool_fields().iter().find(|f| f.equality == Equality::Version)?;
    let wanted = known(pool, field.name)?;
    (versions(wanted, control_plane) == Some(Ordering::Greater))
        .then(|| format!("wants {wanted} while the control plane is at {control_plane}"))
}

fn plan_deletion(
    input: &Input<'_>,
    list: &str,
    write: Write,
    (mine, pool): (&BTreeMap<&str, &Document>, &Document),
    plan: &mut Plan,
) {
    let system = |p: &Document| p.get("mode").and_then(Value::as_str) == Some("System");
    if input.provider == Provider::Aks && system(pool) && !mine.values().any(|p| system(p)) {
        let reason = "no other pool runs system pods".to_owned();
        return plan.held.push(Held { write, hold: Hold::LastSystemPool, reason });
    }
    if input.confirmed.contains(&write.path) {
        return plan.writes.push(write);
    }
    let named = |seen: &Value| {
        let pools = pools_by_name(input.provider, seen);
        pools.is_ok_and(|pools| pools.keys().any(|name| write.path.ends_with(&format!("/{name}"))))
    };
    let reason = match input.edited.get(list).map(named) {
        None => "the pool is in the cloud only; nobody edited the list here",
        Some(false) => "the pool is in the cloud only, and whoever edited the list had not seen it",
        Some(true) => "the pool is in the cloud and no longer in the list",
    };
    let reason = reason.to_owned();
    plan.held.push(Held { write, hold: Hold::Destructive, reason });
}

/// Holds what one call would send together with a held field.
fn hold_together(provider: Provider, plan: &mut Plan) {
    for group in provider.sent_together() {
        let Some(held) = plan.held.iter().map(|h| h.write.path.clone()).find(|p| group.contains(&p.as_str()))
        else {
            continue;
        };
        let (with, rest): (Vec<_>, Vec<_>) =
            plan.writes.drain(..).partition(|w| group.contains(&w.path.as_str()));
        plan.writes = rest;
        plan.held.extend(with.into_iter().map(|write| Held {
            write,
            hold: Hold::SentTogether,
            reason: format!("one call sends it together with {held}, which is held"),
        }));
    }
}

#[cfg(test)]
mod tests;
