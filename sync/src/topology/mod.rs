//! Region and zone of the own Node: what they should be, who owns them, and what may be done about it.
//!
//! [`plan`] is pure and total: from [`TopologyFacts`] it makes one [`KeyPlan`] a label and, where something is to be
//! written, one [`Apply`]: the whole set that the field manager `outrider` is to own, as server-side apply wants it.
//! What we set before is what that manager owns in `metadata.managedFields`, so no restart and no restored disk can make us
//! take another's label for ours. A clone of this machine's disk has our credential and our name among the managers; it is
//! told by the Node, which names the machine that it is ([`stranger`]).
//!
//! Tour: `wants` (which source counts), `own` (whether the Node is this machine's), `mode` (whether we write at all), `value`
//! (what Kubernetes takes).
//!
//! The rules come from `facts/harvester-topology.md`: the old beta label is what cloud controllers compare first
//! (kubernetes/cloud-provider, `controllers/node/node_controller.go`, `reconcileNodeLabels`), so it is written with the
//! other where it is there, and never made.

mod mode;
mod own;
mod value;
mod wants;

use std::collections::{BTreeMap, BTreeSet};

use outrider_protocol::{
    BETA_REGION, BETA_ZONE, FIELD_MANAGER, Fact, LabelOwner, NodeTopology, REGION, TopologyFacts, ZONE,
};

pub use mode::{Effective, effective};
pub use own::stranger;
pub use value::refused;
pub use wants::{Disagreement, Source, Want};

/// So often may a value of ours be changed back before we leave it so.
pub const FIGHT: u32 = 2;

/// Region or zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The region.
    Region,
    /// The zone.
    Zone,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Region, Self::Zone];

    /// Its label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Region => REGION,
            Self::Zone => ZONE,
        }
    }

    /// Its label of before Kubernetes 1.17.
    pub fn beta_label(self) -> &'static str {
        match self {
            Self::Region => BETA_REGION,
            Self::Zone => BETA_ZONE,
        }
    }

    /// In a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Self::Region => "region",
            Self::Zone => "zone",
        }
    }
}

/// Why a label that differs is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Kubernetes would refuse the value; why.
    Refused(String),
    /// Labels are only compared here; why.
    Verify(String),
    /// Ours was changed back so many times.
    Fight(u32),
    /// A zone or region that is set is neither changed nor taken away in strict mode.
    Strict,
    /// The machine is moving.
    Migrating,
    /// Other field managers own it, and not all of them may be taken over.
    Owned(Vec<String>),
    /// Nobody is known to own it, which does not make it ours.
    OwnerUnknown,
    /// The source has no such label, and what is here was not set by us.
    NotOurs,
    /// It goes with its other label, which is held; that one's name.
    With(&'static str),
}

impl std::fmt::Display for Hold {
    /// A sentence without its full stop.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "Kubernetes would refuse the value: {why}"),
            Self::Verify(why) => write!(f, "labels are only compared: {why}"),
            Self::Fight(times) => write!(f, "our value was changed back {times} times"),
            Self::Strict => f.write_str("topology.strict: a Node that has a value keeps it"),
            Self::Migrating => f.write_str("the virtual machine is migrating"),
            Self::Owned(managers) => write!(f, "owned by {}", managers.join(", ")),
            Self::OwnerUnknown => f.write_str("nobody is known to own it"),
            Self::NotOurs => f.write_str("the source has no such label, and Outrider did not set this one"),
            Self::With(other) => write!(f, "it goes with {other}, which is left as it is"),
        }
    }
}

/// What is done with one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is as it should be, or nobody knows how it should be.
    Nothing,
    /// Written; true when that takes it from another manager that may be taken over.
    Write {
        /// Whether others are overruled.
        force: bool,
    },
    /// Taken away: the source has none, and we set it.
    Remove,
    /// Left as it is.
    Held(Hold),
}

impl Action {
    /// Whether it changes the Node.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Remove)
    }
}

/// One label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPlan {
    /// Its key.
    pub key: &'static str,
    /// Region or zone.
    pub kind: Kind,
    /// What it should be.
    pub want: Want,
    /// What it is; none when there is no such label.
    pub have: Option<String>,
    /// Field managers that own it, ours among them, by name.
    pub managers: Vec<String>,
    /// What is done.
    pub action: Action,
}

impl KeyPlan {
    /// Whether the label is not as it should be, by a source that is known.
    pub fn differs(&self) -> bool {
        match &self.want {
            Want::Value { value, .. } => self.have.as_ref() != Some(value),
            Want::Nothing { .. } => self.have.is_some(),
            Want::Unknown { .. } | Want::Unmanaged => false,
        }
    }
}

/// One server-side apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apply {
    /// The Node.
    pub node: String,
    /// Its uid: a Node of the same name with another uid is not touched.
    pub uid: String,
    /// The version that this was planned for.
    pub resource_version: String,
    /// All labels that our field manager is to own: those of it that are left out are given up.
    pub labels: BTreeMap<String, String>,
    /// Whether another manager's value is overruled.
    pub force: bool,
    /// What changes, in words: `topology.kubernetes.io/zone: a -> b`.
    pub changes: Vec<String>,
}

/// What is to be done about the labels of the own Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyPlan {
    /// Whether labels are written, and why.
    pub mode: Effective,
    /// Every label, region first; beta labels only where they are there.
    pub keys: Vec<KeyPlan>,
    /// Sources that contradict each other.
    pub disagreements: Vec<Disagreement>,
    /// The write; none when nothing changes.
    pub apply: Option<Apply>,
}

/// The plan; none while the own Node is not known.
pub fn plan(facts: &TopologyFacts) -> Option<TopologyPlan> {
    let Fact::Known { value: node, .. } = &facts.node else { return None };
    let mode = effective(facts, node);
    let mut keys = Vec::new();
    for kind in Kind::ALL {
        let want = wants::want(facts, kind);
        let mut pair = vec![key_plan(facts, node, &mode, kind, kind.label(), &want)];
        // Making it would arm a controller that compares it first.
        if node.labels.contains_key(kind.beta_label()) {
            pair.push(key_plan(facts, node, &mode, kind, kind.beta_label(), &want));
        }
        tie(&mut pair);
        keys.append(&mut pair);
    }
    let disagreements = wants::disagreements(facts);
    let apply = apply(node, &keys);
    Some(TopologyPlan { mode, keys, disagreements, apply })
}

fn key_plan(
    facts: &TopologyFacts,
    node: &NodeTopology,
    mode: &Effective,
    kind: Kind,
    key: &'static str,
    want: &Want,
) -> KeyPlan {
    let have = node.labels.get(key).cloned();
    let owners = node.owners.get(key).map_or(&[][..], Vec::as_slice);
    let mut managers: Vec<String> = owners.iter().map(|owner| name_of(owner).to_owned()).collect();
    managers.sort();
    managers.dedup();
    let plan = KeyPlan { key, kind, want: want.clone(), have, managers, action: Action::Nothing };
    let action = action(facts, mode, &plan, owners);
    KeyPlan { action, ..plan }
}

fn action(facts: &TopologyFacts, mode: &Effective, plan: &KeyPlan, owners: &[LabelOwner]) -> Action {
    if let Want::Value { value, .. } = &plan.want
        && let Some(why) = refused(value)
    {
        return Action::Held(Hold::Refused(why));
    }
    if !plan.differs() {
        return Action::Nothing;
    }
    if let Effective::Verify(why) = mode {
        return Action::Held(Hold::Verify(why.clone()));
    }
    let reverted = facts.writes.reverted.get(plan.key).filter(|reverted| {
        matches!(&plan.want, Want::Value { value, .. } if *value == reverted.value) && reverted.times >= FIGHT
    });
    if let Some(reverted) = reverted {
        return Action::Held(Hold::Fight(reverted.times));
    }
    if facts.machine.value().is_some_and(|machine| machine.migrating) {
        return Action::Held(Hold::Migrating);
    }
    if plan.have.is_none() {
        return Action::Write { force: false };
    }
    let foreign: BTreeSet<&str> = owners.iter().filter(|owner| !is_ours(owner)).map(name_of).collect();
    match &plan.want {
        _ if facts.strict => Action::Held(Hold::Strict),
        // Where another owns it too, giving up our share would not take it away.
        Want::Nothing { .. } if !owners.is_empty() && foreign.is_empty() => Action::Remove,
        Want::Nothing { .. } => Action::Held(Hold::NotOurs),
        _ if owners.is_empty() => Action::Held(Hold::OwnerUnknown),
        _ if foreign.is_empty() => Action::Write { force: false },
        _ if foreign.iter().all(|name| facts.take_over.iter().any(|taken| taken == name)) => {
            Action::Write { force: true }
        }
        _ => Action::Held(Hold::Owned(foreign.into_iter().map(str::to_owned).collect())),
    }
}

/// A manager's name, as it is shown; some have none.
fn name_of(owner: &LabelOwner) -> &str {
    if owner.manager.is_empty() { "(unnamed)" } else { &owner.manager }
}

/// Whether this owner is us: by server-side apply, as nobody else uses our name.
pub fn is_ours(owner: &LabelOwner) -> bool {
    owner.manager == FIELD_MANAGER && owner.operation == "Apply"
}

/// A label and its beta are written together or not at all: of a pair that differs, a cloud controller takes the beta's
/// value over into the other.
fn tie(pair: &mut [KeyPlan]) {
    let [first, second] = pair else { return };
    let is_held = |plan: &KeyPlan| matches!(plan.action, Action::Held(_));
    if is_held(first) && second.action.changes() {
        second.action = Action::Held(Hold::With(first.key));
    } else if is_held(second) && first.action.changes() {
        first.action = Action::Held(Hold::With(second.key));
    }
}

fn apply(node: &NodeTopology, keys: &[KeyPlan]) -> Option<Apply> {
    let changed: Vec<&KeyPlan> = keys.iter().filter(|plan| plan.action.changes()).collect();
    if changed.is_empty() {
        return None;
    }
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for (key, value) in &node.labels {
        if node.owners.get(key).is_some_and(|owners| owners.iter().any(is_ours)) {
            labels.insert(key.clone(), value.clone());
        }
    }
    for plan in &changed {
        match (&plan.action, &plan.want) {
            (Action::Write { .. }, Want::Value { value, .. }) => {
                labels.insert(plan.key.to_owned(), value.clone());
            }
            _ => {
                labels.remove(plan.key);
            }
        }
    }
    let change = |plan: &&KeyPlan| {
        let none = "no label";
        let to = labels.get(plan.key).map_or(none, String::as_str);
        format!("{}: {} -> {to}", plan.key, plan.have.as_deref().unwrap_or(none))
    };
    let changes = changed.iter().map(change).collect();
    let force = changed.iter().any(|plan| plan.action == Action::Write { force: true });
    Some(Apply {
        node: node.name.clone(),
        uid: node.uid.clone(),
        resource_version: node.resource_version.clone(),
        labels,
        force,
        changes,
    })
}
