//! What is remembered of a virtual machine beyond what Harvester shows of it now: when it appeared, which node it was,
//! whether anything was ever heard of it. By this it is told, when it is gone, what went.

use std::sync::Arc;

use outrider_protocol::{Latch, Timestamp};
use outrider_sync::harvester::{AgentConnected, Vm};
use serde::{Deserialize, Serialize};

use super::inventory::{Entry, Inventory};

/// One `VirtualMachine`, told from another of its name by its UID. Times are by the coordinator's clock, but for `created_at`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Seen {
    pub(super) uid: Box<str>,
    pub(super) cluster: Box<str>,
    pub(super) pool: Box<str>,
    pub(super) machine_set: Box<str>,
    pub(super) created_at: Option<Timestamp>,
    /// When it was first seen; `None` of one that was there when the coordinator looked for the first time.
    pub(super) appeared: Option<Timestamp>,
    /// When it was first seen being deleted.
    pub(super) leaving: Option<Timestamp>,
    /// Uid of the node that it was last identified as.
    pub(super) node: Option<Box<str>>,
    /// Whether that node was ever heard.
    pub(super) reported: bool,
    pub(super) agent_connected: bool,
    pub(super) had_address: bool,
}

/// The node that a machine is, as far as it is remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity<'a> {
    pub(super) uid: &'a str,
    pub(super) reported: bool,
}

impl Seen {
    /// What is known of a machine that `before` may tell more of. `None` while only its instance is known.
    pub(super) fn of(
        entry: &Entry,
        before: Option<&Seen>,
        appeared: Option<Timestamp>,
        node: Option<Identity<'_>>,
        now: Timestamp,
    ) -> Option<Self> {
        let vm = entry.object()?;
        let mut seen = before.filter(|seen| seen.uid == vm.uid).cloned().unwrap_or_else(|| Self {
            uid: vm.uid.clone(),
            created_at: vm.created_at,
            appeared,
            ..Self::default()
        });
        (seen.cluster, seen.pool, seen.machine_set) =
            (vm.cluster.clone(), pool_of(vm).into(), vm.machine_set.clone());
        if vm.deleted_at.is_some() {
            seen.leaving = seen.leaving.or(Some(now));
        }
        if let Some(instance) = entry.instance() {
            seen.agent_connected |= matches!(instance.agent, AgentConnected::True(_));
            seen.had_address |= instance.addresses().next().is_some();
        }
        if let Some(node) = node {
            seen.node = Some(node.uid.into());
            seen.reported |= node.reported;
        }
        Some(seen)
    }

    /// Whether Harvester does not have it any more. Only to be asked while the same VMs are read as when it was seen.
    pub(super) fn is_gone(&self, key: &str, inventory: &Inventory) -> bool {
        let now = inventory.machines.get(key).and_then(Entry::object);
        now.is_none_or(|vm| vm.uid != self.uid)
    }
}

/// Name of a machine's pool; its machine set where it has no other.
fn pool_of(vm: &Vm) -> &str {
    if vm.pool.is_empty() { &vm.machine_set } else { &vm.pool }
}

/// A machine as it is stored: an earlier version wrote its latches alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Stored {
    Latches(Vec<Latch>),
    Machine(Box<StoredMachine>),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredMachine {
    pub(super) latches: Vec<Latch>,
    /// Which VMs were read when it was seen.
    #[serde(default)]
    pub(super) scope: Arc<str>,
    #[serde(default)]
    pub(super) seen: Option<Seen>,
}

impl From<Stored> for StoredMachine {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Latches(latches) => Self { latches, ..Self::default() },
            Stored::Machine(machine) => *machine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_version_stored_is_read() {
        let read = |text: &str| serde_json::from_str::<Stored>(text).map(StoredMachine::from);
        assert!(read("[]").unwrap().seen.is_none());
        let machine = StoredMachine {
            scope: "here".into(),
            seen: Some(Seen { uid: "u".into(), reported: true, ..Seen::default() }),
            ..StoredMachine::default()
        };
        let again = read(&serde_json::to_string(&machine).unwrap()).unwrap();
        assert_eq!((again.scope, again.seen), (machine.scope, machine.seen));
    }
}
