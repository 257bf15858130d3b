//! Machines as they are shown and counted.

use std::collections::BTreeMap;

use outrider_protocol::{MachineState, MachineView, PoolView, TypeMeta};

use super::Harvester;
use super::inventory::{Entry, Inventory, Machine};

/// Whether there is something to show.
pub(crate) enum Readable {
    /// Machines were read and judged.
    Yes,
    /// Nothing was ever read to its end and judged: why, in words.
    NotYet(String),
}

impl Harvester {
    /// Whether machines were read and judged at all: which of them are shown is known only then.
    pub(crate) fn readable(&self) -> Readable {
        let judged = self.judged();
        if judged.is_judged {
            return Readable::Yes;
        }
        let why = judged.source.first().map(|latch| latch.condition.message.clone());
        Readable::NotYet(why.unwrap_or_else(|| "it has not been asked yet".to_owned()))
    }

    /// At most `limit` machines whose `namespace/name` comes after `after`.
    pub(crate) fn machines_after(&self, after: &str, limit: usize) -> Vec<MachineView> {
        use std::ops::Bound::{Excluded, Unbounded};
        let inventory = self.inventory();
        let judged = self.judged();
        let range = judged.machines.range::<str, _>((Excluded(after), Unbounded));
        // Counted when they are shown: one that has just gone must not make a full page look like the last.
        range.filter_map(|(key, machine)| view(&inventory, key, machine)).take(limit).collect()
    }

    /// Every pool, by cluster and name.
    pub(crate) fn pools(&self) -> Vec<PoolView> {
        self.judged().pools.values().filter_map(|pool| pool.view().cloned()).collect()
    }

    /// Machines by state, and VMs that are left alone.
    pub(crate) fn count(&self) -> (BTreeMap<&'static str, u64>, u64) {
        let inventory = self.inventory();
        let judged = self.judged();
        let mut states = BTreeMap::new();
        for entry in judged.machines.keys().filter_map(|key| inventory.machines.get(key)) {
            let word = match state(entry) {
                MachineState::Running => "running",
                MachineState::Starting => "starting",
                MachineState::Deleting => "deleting",
                _ => "stopped",
            };
            *states.entry(word).or_default() += 1;
        }
        (states, judged.ignored as u64)
    }

    /// Calls `f` with every condition in force: `harvester` for the APIs, `machine` for a machine, `pool` for a pool.
    pub(crate) fn each_condition(&self, mut f: impl FnMut(&'static str, &outrider_protocol::Condition)) {
        let judged = self.judged();
        judged.source.iter().for_each(|latch| f("harvester", &latch.condition));
        judged
            .machines
            .values()
            .flat_map(|machine| &machine.latches)
            .for_each(|latch| f("machine", &latch.condition));
        judged.pools.values().flat_map(|pool| pool.conditions()).for_each(|condition| f("pool", condition));
    }
}

fn state(entry: &Entry) -> MachineState {
    let Some(vm) = entry.joined() else { return MachineState::Stopped };
    match &vm.instance {
        _ if vm.deleted_at.is_some() => MachineState::Deleting,
        Some(instance) if instance.is_running() => MachineState::Running,
        Some(instance) if instance.deleted_at.is_some() => MachineState::Stopped,
        Some(instance) if matches!(&*instance.phase, "Succeeded" | "Failed") => MachineState::Stopped,
        Some(_) => MachineState::Starting,
        None => MachineState::Stopped,
    }
}

fn view(inventory: &Inventory, key: &str, machine: &Machine) -> Option<MachineView> {
    let entry = inventory.machines.get(key)?;
    let vm = entry.joined()?;
    let instance = entry.instance();
    let host = instance.and_then(|instance| inventory.host(&instance.host));
    // The host's own label, or what Harvester wrote of it at the machine.
    let topology = |of_host: Option<&str>, of_machine: Option<&str>| {
        of_host.filter(|v| !v.is_empty()).or(of_machine).unwrap_or_default().to_owned()
    };
    let is_running = instance.is_some();
    let (node, matched_by) = match &machine.node {
        Some((node, by)) => (node.to_string(), by.as_str().to_owned()),
        None => (String::new(), String::new()),
    };
    let addresses = if is_running {
        entry.memory.addresses.iter().map(ToString::to_string).collect()
    } else {
        Vec::new()
    };
    Some(MachineView {
        meta: TypeMeta::new("Machine"),
        namespace: vm.namespace.into(),
        name: vm.name.into(),
        cluster: vm.cluster.into(),
        pool: vm.pool.into(),
        state: state(entry),
        node,
        matched_by,
        host: instance.map(|instance| instance.host.to_string()).unwrap_or_default(),
        region: topology(host.map(|host| &*host.region), instance.map(|instance| &*instance.region)),
        zone: topology(host.map(|host| &*host.zone), instance.map(|instance| &*instance.zone)),
        addresses,
        created_at: vm.created_at,
        running_since: instance.and_then(|instance| instance.running_since),
        conditions: machine.latches.iter().map(|latch| latch.condition.clone()).collect(),
    })
}
