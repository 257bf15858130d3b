//! What Harvester says of a virtual machine, beside what its node says: who runs and was never heard, whose guest agent
//! one side sees and the other does not, who has copies.
//!
//! [`judge`] yields the conditions of one VM, [`judge_pool`] those of a node pool, [`judge_source`] and [`judge_rancher`] those of
//! the APIs they are read from. Times come from
//! `facts/guest-agent.md`, sections 3 and 8.

mod contact;
mod guest_agent;
mod identity;
mod pool;
mod source;

use outrider_protocol::{Condition, Status, Timestamp};
use outrider_sync::harvester::{Instance, Mark, Vm};

use crate::finding::Judgement;

pub use pool::{POOL_WINDOW, Pool, PoolWanted, judge_pool, replaced};
pub use source::{Source, SourceState, judge_rancher, judge_source};

/// One VM with all that is known of it from both sides.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// What Harvester says now.
    pub vm: &'a Vm,
    /// Which node it is.
    pub node: Standing<'a>,
    /// Since when its running instance has been watched; how it was before is not known.
    pub watched_since: Timestamp,
    /// When this instance's guest agent, seen connected before, was first seen not to be any more.
    pub agent_lost: Option<Timestamp>,
    /// Addresses that Harvester showed last, and when it was first seen to show none any more.
    pub last_addresses: Option<(&'a [Box<str>], Timestamp)>,
    /// Whether this instance's first interface has been seen with an IPv4 address: Rancher's driver waits for nothing else.
    pub had_first_ipv4: bool,
}

/// Which node a VM is.
#[derive(Clone, Debug)]
pub enum Standing<'a> {
    /// This one, by the mark.
    Is(Node<'a>, Mark),
    /// None that is known.
    Nobody,
    /// One of several, all of which have the mark.
    Several {
        /// The mark.
        by: Mark,
        /// Nodes, or VMs as `namespace/name`, by name.
        names: Vec<&'a str>,
        /// Whether the names are those of VMs.
        are_vms: bool,
    },
    /// This one by one mark, and not by another.
    Contradicted {
        /// Name of the node.
        node: &'a str,
        /// The mark they share.
        by: Mark,
        /// The mark that differs.
        against: Mark,
    },
}

/// A node as the coordinator knows it.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether it waits for an operator's approval.
    pub is_pending: bool,
    /// When it was last heard; `None` when it never reported.
    pub last_seen: Option<Timestamp>,
    /// Whether it is heard: `True` while it reports in time.
    pub heard: Status,
    /// Its own word on its guest agent, while it is heard.
    pub guest_agent: Option<&'a Condition>,
}

/// The conditions of one VM: `MachineReporting`, `MachineIdentified`, `GuestAgentConnected`. `now` is the coordinator's
/// clock.
pub fn judge(machine: &Machine<'_>, now: Timestamp) -> Judgement {
    let mut out = Judgement::default();
    out.findings.push(contact::judge(machine, now));
    out.findings.extend(identity::judge(machine, now));
    if let Some(instance) = running(machine.vm) {
        out.findings.push(guest_agent::judge(machine, instance, now));
    }
    out.sorted()
}

/// What runs of it, while it really does.
fn running(vm: &Vm) -> Option<&Instance> {
    vm.instance.as_deref().filter(|instance| instance.is_running() && vm.deleted_at.is_none())
}

impl Machine<'_> {
    /// Since when its guest runs, at the latest.
    fn running_since(&self, instance: &Instance) -> Timestamp {
        instance.running_since.or(instance.created_at).unwrap_or(self.watched_since)
    }
}
