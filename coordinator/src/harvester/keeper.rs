//! The loop that judges machines: soon after something was read, and every few seconds for what nodes and time change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use outrider_diagnosis::machines::{self, Node as NodeSide, Standing};
use outrider_diagnosis::{Judgement, latch};
use outrider_protocol::{Condition, ConditionType, Latch, Status, Timestamp, Transition};
use outrider_sync::harvester::{Identified, Mark, NodeMarks, VmMarks, identify};

use super::inventory::{Entry, Inventory, Machine};
use super::pools::{self, Key, POOLS};
use super::seen::{Identity, Seen, StoredMachine};
use super::{Harvester, Judged, MACHINES};
use crate::enrol::{Enrolment, Registrar};
use crate::fleet::{Fleet, Node};
use crate::store::Origin;

/// Time between two judgements of which nothing that was read is the cause.
const TURN: Duration = Duration::from_secs(3);
/// What is read within this time is judged together.
const COALESCE: Duration = Duration::from_millis(300);
/// Turns between two looks at which clusters tokens are for.
const TURNS_PER_TOKENS: u32 = 10;

/// Judges until it is dropped.
pub(crate) async fn keep(harvester: Arc<Harvester>, fleet: Arc<Fleet>, registrar: Arc<Registrar>) {
    let mut of_tokens = BTreeSet::new();
    let mut turns = 0_u32;
    loop {
        if turns.is_multiple_of(TURNS_PER_TOKENS)
            && let Ok(tokens) = registrar.tokens().await
        {
            // A cluster of which no node has enrolled yet is known by its token alone.
            let living = tokens.into_iter().filter(|token| !token.revoked && !token.cluster.is_empty());
            of_tokens = living.map(|token| token.cluster).collect();
        }
        turns = turns.wrapping_add(1);
        harvester.judge(&fleet, &of_tokens);
        tokio::select! {
            () = tokio::time::sleep(TURN) => {}
            () = harvester.bell.notified() => tokio::time::sleep(COALESCE).await,
        }
    }
}

/// A node as it is compared and shown beside a machine. Copied out: no lock of a node is held while machines are judged.
pub(super) struct Known {
    pub(super) uid: Arc<str>,
    name: Arc<str>,
    cluster: String,
    macs: Vec<String>,
    system_uuid: String,
    is_pending: bool,
    pub(super) last_seen: Option<Timestamp>,
    heard: Status,
    guest_agent: Option<Condition>,
}

impl Known {
    /// `None` of a node that is nobody any more.
    fn of(fleet: &Fleet, node: &Node) -> Option<Self> {
        let last_seen = node.hearing(fleet.clock.elapsed(), fleet.clock.now(), Duration::ZERO).last_seen;
        let inner = node.inner();
        let is_pending = match inner.record.enrolment {
            Enrolment::Approved => false,
            Enrolment::Pending => true,
            Enrolment::Revoked | Enrolment::Superseded => return None,
        };
        let state = inner.state();
        let identity = state.map_or(&inner.record.identity, |state| &state.identity);
        let own = |c: &&Condition| c.condition_type == ConditionType::GuestAgentReady && c.subject.is_empty();
        let guest_agent = state.and_then(|state| state.conditions.iter().find(own)).cloned();
        Some(Self {
            uid: node.uid.clone(),
            name: inner.record.name.as_str().into(),
            cluster: inner.cluster().to_owned(),
            macs: identity.macs.clone(),
            system_uuid: identity.system_uuid.clone(),
            is_pending,
            last_seen: inner.report.is_some().then_some(last_seen).flatten(),
            heard: inner.heard(),
            // What a silent node said last is stale.
            guest_agent: guest_agent.filter(|_| inner.heard() == Status::True),
        })
    }

    fn marks(&self) -> NodeMarks<'_> {
        NodeMarks {
            name: &self.name,
            host_name: "",
            cluster: &self.cluster,
            macs: &self.macs,
            system_uuid: &self.system_uuid,
        }
    }

    fn side(&self) -> NodeSide<'_> {
        NodeSide {
            name: &self.name,
            is_pending: self.is_pending,
            last_seen: self.last_seen,
            heard: self.heard,
            guest_agent: self.guest_agent.as_ref(),
        }
    }
}

impl Harvester {
    /// Judges the API and, while it is read, every machine of the fleet.
    fn judge(&self, fleet: &Fleet, of_tokens: &BTreeSet<String>) {
        let now = fleet.clock.now();
        let nodes: Vec<Known> = fleet.nodes().iter().filter_map(|node| Known::of(fleet, node)).collect();
        let mut clusters = of_tokens.clone();
        clusters.extend(self.clusters.iter().cloned());
        clusters.extend(nodes.iter().map(|node| node.cluster.clone()).filter(|name| !name.is_empty()));
        // Both at once: nobody is to see that the API is read and its machines are not judged.
        let mut inventory = self.inventory();
        let mut judged = self.judged();
        judged.judge_source(&inventory, fleet, now);
        if !inventory.is_current() {
            // What was read last stays in sight; nothing new is concluded from it.
            return;
        }
        // A VM of another cluster is left alone without a word (`facts/harvester-topology.md`, C3).
        let concerns = |entry: &Entry| entry.cluster().is_empty() || clusters.contains(entry.cluster());
        // Where others are read than before, what appears was there, and what is missing is not gone.
        judged.is_same_scope = *judged.known_scope() == *inventory.scope;
        let mut candidates: Vec<(&Arc<str>, &mut Entry)> =
            inventory.machines.iter_mut().filter(|(_, entry)| concerns(entry)).collect();
        candidates.iter_mut().for_each(|(_, entry)| entry.note(now));
        let candidates: Vec<(&Arc<str>, &Entry)> =
            candidates.iter().map(|(key, entry)| (*key, &**entry)).collect();
        let marks: Vec<VmMarks<'_>> = candidates.iter().map(|(_, entry)| entry.marks()).collect();
        let node_marks: Vec<NodeMarks<'_>> = nodes.iter().map(Known::marks).collect();
        let identified = identify(&marks, &node_marks);

        let mut machines = BTreeMap::new();
        for ((key, entry), identified) in candidates.iter().zip(&identified) {
            let is_expected = entry.is_by_node_driver() && clusters.contains(entry.cluster());
            if !is_expected && is_strange(identified) {
                continue;
            }
            let standing = standing(identified, &nodes, &candidates);
            let node = match identified {
                Identified::Is { node, .. } => nodes.get(*node),
                _ => None,
            };
            let seen = judged.remember(key, entry, node, now);
            let machine = judged.judge_machine((key, entry), standing, seen, fleet, now);
            machines.insert((*key).clone(), machine);
        }
        judged.ignored = inventory.machines.len().saturating_sub(machines.len());
        judged.settle(machines, &inventory, fleet, now);
        let is_machine = |identified: &Identified| match identified {
            Identified::Is { node, .. } => nodes.get(*node).map(|node| &*node.uid),
            _ => None,
        };
        judged.take_back(&nodes, &identified.iter().filter_map(is_machine).collect(), fleet);
        judged.judge_pools(&inventory, &clusters, fleet, now);
    }
}

/// Whether a VM that is not expected as a node is somebody else's: it shares no mark with any, or nothing but a name, which
/// anybody may give, and differs in another.
fn is_strange(identified: &Identified) -> bool {
    matches!(
        identified,
        Identified::Nobody | Identified::Contradicted { by: Mark::Name | Mark::HostName, .. }
    )
}

/// What was identified, in the words of the rules.
fn standing<'a>(
    identified: &Identified,
    nodes: &'a [Known],
    candidates: &[(&'a Arc<str>, &'a Entry)],
) -> Standing<'a> {
    let name = |node: &usize| nodes.get(*node).map_or("", |node| &*node.name);
    match identified {
        Identified::Nobody => Standing::Nobody,
        Identified::Is { node, by } => {
            nodes.get(*node).map_or(Standing::Nobody, |node| Standing::Is(node.side(), *by))
        }
        Identified::SeveralNodes { nodes: several, by } => {
            Standing::Several { by: *by, names: several.iter().map(name).collect(), are_vms: false }
        }
        Identified::SeveralVms { vms, by, .. } => {
            let names = vms.iter().filter_map(|vm| candidates.get(*vm)).map(|(key, _)| &***key).collect();
            Standing::Several { by: *by, names, are_vms: true }
        }
        Identified::Contradicted { node, by, against } => {
            Standing::Contradicted { node: name(node), by: *by, against: *against }
        }
    }
}

impl Judged {
    fn judge_source(&mut self, inventory: &Inventory, fleet: &Fleet, now: Timestamp) {
        let server = if inventory.server.is_empty() { "Harvester" } else { inventory.server.as_str() };
        let finding = machines::judge_source(server, &inventory.sources(), now);
        let mut findings = vec![finding];
        if let Some((server, source)) = inventory.rancher() {
            findings.push(machines::judge_rancher(server, &source, now));
        }
        let judgement = Judgement { findings, ..Judgement::default() };
        let latched = latch(&self.source, &judgement, now);
        self.source = latched.latches;
        for transition in latched.transitions {
            let name = "harvester".to_owned();
            fleet.announcements.add(Origin { uid: "coordinator/harvester".to_owned(), name }, transition);
        }
    }

    fn judge_machine(
        &mut self,
        (key, entry): (&Arc<str>, &Entry),
        node: Standing<'_>,
        seen: Option<Seen>,
        fleet: &Fleet,
        now: Timestamp,
    ) -> Arc<Machine> {
        let known = self.machines.get(key).map(|machine| machine.latches.as_slice());
        let stored = || self.stored.get(key).map(|stored| stored.latches.as_slice());
        let before: &[Latch] = known.or_else(stored).unwrap_or_default();
        let vm = entry.joined().unwrap_or_default();
        let memory = &entry.memory;
        let shown = memory.addresses_lost.map(|at| (memory.addresses.as_slice(), at));
        let is_heard = matches!(&node, Standing::Is(node, _)
            if !node.is_pending && node.last_seen.is_some() && node.heard == Status::True);
        let is = match &node {
            Standing::Is(node, by) => Some((node.name.into(), *by)),
            _ => None,
        };
        let machine = machines::Machine {
            vm: &vm,
            node,
            watched_since: memory.watched_since,
            agent_lost: memory.agent_lost,
            last_addresses: shown,
            had_first_ipv4: memory.had_first_ipv4,
        };
        let latched = latch(before, &machines::judge(&machine, now), now);
        if !latched.transitions.is_empty() || self.remembered(key) != seen.as_ref() {
            let (latches, scope) = (latched.latches.clone(), self.scope.clone());
            self.store(format!("{MACHINES}{key}"), &StoredMachine { latches, scope, seen: seen.clone() });
        }
        for transition in latched.transitions {
            announce(fleet, key, transition);
        }
        Arc::new(Machine { node: is, latches: latched.latches, seen, is_heard })
    }

    /// Which VMs were read when those that are known were seen.
    fn known_scope(&self) -> &str {
        match self.stored.values().next() {
            Some(stored) if !self.is_judged => &stored.scope,
            _ => &self.scope,
        }
    }

    /// What was remembered of a machine so far.
    fn remembered(&self, key: &str) -> Option<&Seen> {
        match self.machines.get(key) {
            Some(machine) => machine.seen.as_ref(),
            None => self.stored.get(key)?.seen.as_ref(),
        }
    }

    fn remember(&self, key: &str, entry: &Entry, node: Option<&Known>, now: Timestamp) -> Option<Seen> {
        let appeared = self.is_same_scope.then_some(now);
        let node = node.map(|node| Identity { uid: &node.uid, reported: node.last_seen.is_some() });
        Seen::of(entry, self.remembered(key), appeared, node, now)
    }

    /// Takes over the machines there are now; those that are gone are told.
    fn settle(
        &mut self,
        machines: BTreeMap<Arc<str>, Arc<Machine>>,
        inventory: &Inventory,
        fleet: &Fleet,
        now: Timestamp,
    ) {
        self.is_judged = true;
        let before = std::mem::replace(&mut self.machines, machines);
        // Of an earlier run, whatever is not there any more is gone as well.
        let stored = std::mem::take(&mut self.stored);
        let of_stored = stored.into_iter().map(|(key, stored)| (key, stored.latches, stored.seen));
        let known =
            before.into_iter().map(|(key, machine)| (key, machine.latches.clone(), machine.seen.clone()));
        let known: Vec<(Arc<str>, Vec<Latch>, Option<Seen>)> = known.chain(of_stored).collect();
        for (key, _, seen) in &known {
            if let Some(seen) =
                seen.as_ref().filter(|seen| self.is_same_scope && seen.is_gone(key, inventory))
            {
                self.depart(key, seen, true, now);
                self.retire(key, seen, fleet, now);
            }
        }
        let known = known.into_iter().map(|(key, latches, _)| (key, latches));
        for (key, latches) in known.filter(|(key, _)| !self.machines.contains_key(key)).collect::<Vec<_>>() {
            self.unsaved.insert(format!("{MACHINES}{key}"), None);
            let reporting =
                latches.into_iter().find(|l| l.condition.condition_type == ConditionType::MachineReporting);
            if let Some(latch) = reporting {
                announce(fleet, &key, removed(latch, now));
            }
        }
        self.scope.clone_from(&inventory.scope);
        let leave = |seen: &&Seen| seen.leaving == Some(now);
        let leaving: Vec<(Arc<str>, Seen)> = self
            .machines
            .iter()
            .filter_map(|(key, machine)| Some((key.clone(), machine.seen.as_ref().filter(leave)?.clone())))
            .collect();
        for (key, seen) in leaving {
            self.depart(&key, &seen, false, now);
        }
        for (key, machine) in &self.machines {
            let Some(seen) = machine.seen.as_ref().filter(|seen| seen.appeared == Some(now)) else {
                continue;
            };
            if let Some(pool) = self.pools.get_mut(&(seen.cluster.to_string(), seen.pool.to_string())) {
                pool.appear(key);
            }
        }
    }

    /// A machine goes, or is gone.
    fn depart(&mut self, key: &str, seen: &Seen, is_gone: bool, now: Timestamp) {
        if seen.cluster.is_empty() || seen.pool.is_empty() {
            return;
        }
        let of = (seen.cluster.to_string(), seen.pool.to_string());
        let pool = self.pools.entry(of.clone()).or_default();
        pool.depart(key, seen, is_gone, now);
        let pool = pool.clone();
        self.store(format!("{POOLS}{}/{}", of.0, of.1), &pool);
    }

    fn judge_pools(
        &mut self,
        inventory: &Inventory,
        clusters: &BTreeSet<String>,
        fleet: &Fleet,
        now: Timestamp,
    ) {
        let mut pools = std::mem::take(&mut self.pools);
        let changes = pools::judge(&mut pools, &self.machines, inventory, clusters, now);
        self.pools = pools;
        for key in changes.stored {
            if let Some(pool) = self.pools.get(&key).cloned() {
                self.store(format!("{POOLS}{}/{}", key.0, key.1), &pool);
            }
        }
        for (key, transition) in changes.transitions {
            announce_pool(fleet, &key, transition);
        }
        for (key, pool) in changes.ended {
            self.unsaved.insert(format!("{POOLS}{}/{}", key.0, key.1), None);
            for latch in pool.latches() {
                announce_pool(fleet, &key, removed(latch, now));
            }
        }
    }
}

/// The end of a condition whose subject is no more.
fn removed(latch: Latch, now: Timestamp) -> Transition {
    let condition = latch.condition;
    Transition {
        at: now,
        previous_status: Some(condition.status),
        previous_reason: Some(condition.reason.clone()),
        condition,
        removed: true,
        merged: 0,
    }
}

fn announce_pool(fleet: &Fleet, key: &Key, transition: Transition) {
    let name = format!("{}/{}", key.0, key.1);
    fleet.announcements.add(Origin { uid: format!("pool/{name}"), name }, transition);
}

fn announce(fleet: &Fleet, key: &str, transition: Transition) {
    fleet.announcements.add(Origin { uid: format!("machine/{key}"), name: key.to_owned() }, transition);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namesake_is_nobody_here_and_a_copy_is() {
        let contradicted = |by, against| Identified::Contradicted { node: 0, by, against };
        assert!(is_strange(&Identified::Nobody) && is_strange(&contradicted(Mark::Name, Mark::Mac)));
        assert!(!is_strange(&contradicted(Mark::Mac, Mark::SystemUuid)));
        assert!(!is_strange(&Identified::Is { node: 0, by: Mark::Name }));
        assert!(!is_strange(&Identified::SeveralVms { node: 0, vms: vec![0, 1], by: Mark::Name }));
    }
}
