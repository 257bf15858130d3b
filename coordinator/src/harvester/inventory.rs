//! What was read of Harvester, and what must be remembered beyond it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use outrider_diagnosis::machines::{Source, SourceState};
use outrider_protocol::{Latch, Timestamp};
use outrider_sync::harvester::{AgentConnected, Instance, Mark, Metadata, Vm, VmMarks, WantedPool};

use super::failure::Failure;
use super::reading::{Item, Resource};
use super::seen::Seen;
use super::{Harvester, now};

/// Keys of topology labels, the standard one first: it wins where both are set (`facts/harvester-topology.md`, C9).
const REGION: [&str; 2] = ["topology.kubernetes.io/region", "topology.harvesterhci.io/region"];
const ZONE: [&str; 2] = ["topology.kubernetes.io/zone", "topology.harvesterhci.io/zone"];

/// A host, by its labels.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    name: Box<str>,
    pub(super) region: Box<str>,
    pub(super) zone: Box<str>,
}

impl Host {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let first = |keys: [&str; 2]| {
            let value = keys.into_iter().find_map(|key| metadata.labels.get(key).filter(|v| !v.is_empty()));
            value.map_or("", String::as_str).into()
        };
        Self { name: metadata.name.as_str().into(), region: first(REGION), zone: first(ZONE) }
    }
}

/// Both objects of one VM.
#[derive(Default)]
pub(super) struct Entry {
    vm: Option<Vm>,
    running: Option<Vm>,
    pub(super) memory: Memory,
}

/// What outlives a flap of what Harvester says.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    /// The instance it is of, by the time it was made.
    of: Option<Timestamp>,
    pub(super) watched_since: Timestamp,
    was_connected: bool,
    pub(super) agent_lost: Option<Timestamp>,
    pub(super) had_first_ipv4: bool,
    pub(super) addresses: Vec<Box<str>>,
    pub(super) addresses_lost: Option<Timestamp>,
}

impl Entry {
    fn any(&self) -> Option<&Vm> {
        self.vm.as_ref().or(self.running.as_ref())
    }

    /// What its `VirtualMachine` says; `None` where only its instance is known.
    pub(super) fn object(&self) -> Option<&Vm> {
        self.vm.as_ref()
    }

    /// Guest cluster that it is labelled with.
    pub(super) fn cluster(&self) -> &str {
        self.any().map_or("", |vm| &vm.cluster)
    }

    /// Whether Rancher's node driver made it.
    pub(super) fn is_by_node_driver(&self) -> bool {
        self.any().is_some_and(|vm| vm.by_node_driver)
    }

    /// Marks of both objects together.
    pub(super) fn marks(&self) -> VmMarks<'_> {
        let mut marks = self.any().map(Vm::marks).unwrap_or_default();
        if let (Some(_), Some(running)) = (&self.vm, &self.running) {
            let running = running.marks();
            marks.macs.extend(running.macs);
            marks.guest_host_name = running.guest_host_name;
            if !running.system_uuid.is_empty() {
                marks.system_uuid = running.system_uuid;
            }
        }
        marks
    }

    /// Both objects as one machine.
    pub(super) fn joined(&self) -> Option<Vm> {
        let mut vm = self.any()?.clone();
        vm.instance = self.running.as_ref().and_then(|running| running.instance.clone());
        Some(vm)
    }

    /// Takes note of what must be remembered. What was lost while nobody looked is lost from the next look on: how long it
    /// had been gone by then is not known.
    pub(super) fn note(&mut self, at: Timestamp) {
        let Some(instance) = self.running.as_ref().and_then(|vm| vm.instance.as_deref()) else { return };
        let memory = &mut self.memory;
        if memory.of != instance.created_at || memory.watched_since == Timestamp::default() {
            *memory = Memory { of: instance.created_at, watched_since: at, ..Memory::default() };
        }
        memory.had_first_ipv4 |= instance.satisfies_driver();
        if matches!(instance.agent, AgentConnected::True(_)) {
            memory.was_connected = true;
            memory.agent_lost = None;
        } else if memory.was_connected {
            memory.agent_lost = memory.agent_lost.or(Some(at));
        }
        let addresses: Vec<&str> = instance.addresses().collect();
        if !addresses.is_empty() {
            if !memory.addresses.iter().map(|a| &**a).eq(addresses.iter().copied()) {
                memory.addresses = addresses.into_iter().map(Box::from).collect();
            }
            memory.addresses_lost = None;
        } else if !memory.addresses.is_empty() {
            memory.addresses_lost = memory.addresses_lost.or(Some(at));
        }
    }

    pub(super) fn instance(&self) -> Option<&Instance> {
        self.running.as_ref()?.instance.as_deref()
    }
}

/// How reading one resource goes.
#[derive(Default)]
struct Progress {
    /// When a list was last complete.
    last_read: Option<Timestamp>,
    /// Which objects that list holds: the server with the namespaces.
    scope: Arc<str>,
    /// The watch after it stands.
    is_current: bool,
    failing: Option<(Failure, Timestamp)>,
}

/// A machine of this fleet, as it was judged last.
pub(super) struct Machine {
    /// The node it is.
    pub(super) node: Option<(Arc<str>, Mark)>,
    pub(super) latches: Vec<Latch>,
    /// What is remembered of it; `None` while only its instance is known.
    pub(super) seen: Option<Seen>,
    /// Whether its node is heard.
    pub(super) is_heard: bool,
}

/// All that was read.
#[derive(Default)]
pub(super) struct Inventory {
    /// The server with the namespaces that are read of it, in words; empty before anything was read.
    pub(super) server: String,
    pub(super) machines: BTreeMap<Arc<str>, Entry>,
    /// Which VMs the list of them holds: what is not on a list of others is not gone.
    pub(super) scope: Arc<str>,
    /// Rancher, and what it wants, by `namespace/name` of its clusters; `None` where it is not read at all.
    rancher: Option<Rancher>,
    hosts: HashMap<Box<str>, Host>,
    progress: HashMap<u8, Progress>,
}

/// What was read of Rancher's own cluster.
#[derive(Default)]
struct Rancher {
    server: String,
    wanted: BTreeMap<Box<str>, Vec<WantedPool>>,
}

impl Inventory {
    /// One in which what Rancher wants is expected as well, if `with_rancher`.
    pub(super) fn new(with_rancher: bool) -> Self {
        Self { rancher: with_rancher.then(Rancher::default), ..Self::default() }
    }

    fn progress(&mut self, resource: Resource) -> &mut Progress {
        self.progress.entry(resource as u8).or_default()
    }

    fn entry(&mut self, key: &str) -> &mut Entry {
        self.machines.entry(key.into()).or_default()
    }

    fn put(&mut self, item: Item) {
        match item {
            Item::Vm(vm) => {
                let key = key_of(&vm);
                self.entry(&key).vm = Some(vm);
            }
            Item::Instance(vm) => {
                let key = key_of(&vm);
                self.entry(&key).running = Some(vm);
            }
            Item::Host(host) => {
                self.hosts.insert(host.name.clone(), host);
            }
            Item::Wanted(key, pools) => {
                if let Some(rancher) = &mut self.rancher {
                    rancher.wanted.insert(key, pools);
                }
            }
        }
    }

    /// How reading goes, a source a resource.
    pub(super) fn sources(&self) -> Vec<Source> {
        Resource::OF_HARVESTER.into_iter().map(|resource| self.source(resource)).collect()
    }

    /// How reading Rancher goes, with its server in words; `None` where it is not read.
    pub(super) fn rancher(&self) -> Option<(&str, Source)> {
        let server = self.rancher.as_ref()?.server.as_str();
        Some((if server.is_empty() { "Rancher" } else { server }, self.source(Resource::Clusters)))
    }

    /// What Rancher wants of node pools, while that is up to date; why it is not known otherwise. `None` where nobody reads it.
    pub(super) fn wanted(&self) -> Option<Result<Vec<WantedPool>, String>> {
        let rancher = self.rancher.as_ref()?;
        Some(match self.is_current_of(Resource::Clusters) {
            true => Ok(rancher.wanted.values().flatten().cloned().collect()),
            false => Err("what Rancher wants cannot be read now (RancherReadable)".to_owned()),
        })
    }

    fn source(&self, resource: Resource) -> Source {
        let count = || match resource {
            Resource::Vms => self.machines.values().filter(|entry| entry.vm.is_some()).count(),
            Resource::Instances => self.machines.values().filter(|entry| entry.running.is_some()).count(),
            Resource::Hosts => self.hosts.len(),
            Resource::Clusters => self.rancher.as_ref().map_or(0, |rancher| rancher.wanted.len()),
        };
        let state = match self.progress.get(&(resource as u8)) {
            Some(Progress { failing: Some((failure, since)), last_read, .. }) => SourceState::Failed {
                cause: failure.cause.clone(),
                detail: failure.detail.clone(),
                since: *since,
                last_read: *last_read,
            },
            Some(Progress { is_current: true, .. }) => SourceState::Read(count()),
            _ => SourceState::NotYetRead,
        };
        Source { resource: resource.name().to_owned(), is_optional: resource.is_optional(), state }
    }

    /// Whether what is known of machines is up to date, in both kinds of objects, and both are of the same namespaces.
    pub(super) fn is_current(&self) -> bool {
        let scope = |resource: Resource| self.progress.get(&(resource as u8)).map(|progress| &progress.scope);
        [Resource::Vms, Resource::Instances].into_iter().all(|resource| self.is_current_of(resource))
            && scope(Resource::Vms) == scope(Resource::Instances)
    }

    fn is_current_of(&self, resource: Resource) -> bool {
        self.progress.get(&(resource as u8)).is_some_and(|p| p.is_current && p.failing.is_none())
    }

    /// A host, while hosts are up to date: its labels may be others by now.
    pub(super) fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.get(name).filter(|_| self.is_current_of(Resource::Hosts))
    }
}

/// `namespace/name`.
fn key_of(vm: &Vm) -> String {
    format!("{}/{}", vm.namespace, vm.name)
}

impl Harvester {
    /// All there is of a resource now; what is not among it is gone.
    pub(super) fn replace(&self, resource: Resource, server: &str, items: Vec<Item>) {
        let mut inventory = self.inventory();
        if resource != Resource::Clusters && inventory.server != server {
            server.clone_into(&mut inventory.server);
        }
        match resource {
            Resource::Vms => {
                inventory.scope = server.into();
                inventory.machines.values_mut().for_each(|entry| entry.vm = None);
            }
            Resource::Instances => inventory.machines.values_mut().for_each(|entry| entry.running = None),
            Resource::Hosts => inventory.hosts.clear(),
            Resource::Clusters => {
                inventory.rancher = Some(Rancher { server: server.to_owned(), ..Rancher::default() });
            }
        }
        items.into_iter().for_each(|item| inventory.put(item));
        inventory.machines.retain(|_, entry| entry.any().is_some());
        let progress = inventory.progress(resource);
        progress.last_read = Some(now());
        if *progress.scope != *server {
            progress.scope = server.into();
        }
    }

    /// The watch of a resource stands.
    pub(super) fn alive(&self, resource: Resource) {
        let mut inventory = self.inventory();
        let progress = inventory.progress(resource);
        progress.is_current = true;
        progress.last_read = Some(now());
        if progress.failing.take().is_some() {
            log::info!("{} are read again", resource.name());
        }
        drop(inventory);
        self.bell.notify_one();
    }

    /// Reading a resource failed; what was read stays.
    pub(super) fn failed(&self, resource: Resource, failure: Failure) {
        let mut inventory = self.inventory();
        let progress = inventory.progress(resource);
        let since = progress.failing.as_ref().map_or_else(now, |(_, since)| *since);
        if progress.failing.as_ref().is_none_or(|(before, _)| before.cause != failure.cause) {
            log::warn!("{} cannot be read: {}", resource.name(), failure.detail);
        }
        if progress.is_current {
            progress.last_read = Some(now());
        }
        progress.is_current = false;
        progress.failing = Some((failure, since));
        drop(inventory);
        self.bell.notify_one();
    }

    pub(super) fn apply(&self, item: Item) {
        self.inventory().put(item);
        self.bell.notify_one();
    }

    pub(super) fn remove(&self, item: Item) {
        let mut inventory = self.inventory();
        match item {
            Item::Vm(vm) => inventory.entry(&key_of(&vm)).vm = None,
            Item::Instance(vm) => inventory.entry(&key_of(&vm)).running = None,
            Item::Host(host) => {
                inventory.hosts.remove(&host.name);
            }
            Item::Wanted(key, _) => {
                if let Some(rancher) = &mut inventory.rancher {
                    rancher.wanted.remove(&key);
                }
            }
        }
        inventory.machines.retain(|_, entry| entry.any().is_some());
        drop(inventory);
        self.bell.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use outrider_sync::harvester::Nic;

    use super::*;

    fn running(agent: AgentConnected, address: &str) -> Vm {
        let addresses = if address.is_empty() { Vec::new() } else { vec![address.into()] };
        let instance = Instance {
            created_at: Some(Timestamp::from_seconds(1)),
            agent,
            nics: vec![Nic { mac: "52:54:00:00:00:01".into(), addresses }],
            first_address: address.into(),
            ..Instance::default()
        };
        Vm { instance: Some(Box::new(instance)), ..Vm::default() }
    }

    #[test]
    fn what_is_lost_while_nobody_looks_is_lost_from_the_next_look_on() {
        let at = Timestamp::from_seconds;
        let lost = |entry: &Entry| (entry.memory.agent_lost, entry.memory.addresses_lost);
        let connected = || Some(running(AgentConnected::True(None), "192.0.2.9"));
        let mut entry = Entry { running: connected(), ..Entry::default() };
        entry.note(at(100));
        assert_eq!(lost(&entry), (None, None));
        assert!(entry.memory.had_first_ipv4);
        entry.running = Some(running(AgentConnected::Unsaid, ""));
        entry.note(at(1300));
        entry.note(at(1303));
        assert_eq!(lost(&entry), (Some(at(1300)), Some(at(1300))));
        entry.running = connected();
        entry.note(at(1400));
        assert_eq!(lost(&entry), (None, None));
    }
}
