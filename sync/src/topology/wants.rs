//! Which source says what a label should be.
//!
//! In the order of trust: what an operator desires, the physical host's labels, the machine's annotations, the
//! configuration of this node, its instance metadata. A source that could not be read is never passed over for a lesser
//! one: a zone that is not known is not another zone.

use outrider_protocol::{Fact, HostTopology, MachineTopology, TopologyFacts, TopologyValues};

use super::{Kind, stranger};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// An operator, through the coordinator.
    Desired,
    /// Labels of the physical host.
    Host,
    /// Annotations of the virtual machine.
    Machine,
    /// The same under Harvester's own keys.
    Harvester,
    /// `[topology]` of this node's configuration.
    Configured,
    /// cloud-init's reading of the instance metadata.
    Instance,
}

impl Source {
    /// In a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Desired => "the desired configuration",
            Self::Host => "the physical host",
            Self::Machine => "the virtual machine",
            Self::Harvester => "the virtual machine (topology.harvesterhci.io)",
            Self::Configured => "[topology] of this node",
            Self::Instance => "the instance metadata",
        }
    }
}

/// What a label should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// This value.
    Value {
        /// The value, as text.
        value: String,
        /// Who says so.
        source: Source,
    },
    /// No label: the source is known and has none.
    Nothing {
        /// Who says so.
        source: Source,
    },
    /// The source could not be read, or does not count now: the label stays. Why, as the end of a sentence.
    Unknown {
        /// Why.
        why: String,
    },
    /// No source speaks of it: the label is nobody's business here.
    Unmanaged,
}

/// Two sources that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Of what.
    pub kind: Kind,
    /// What counts.
    pub counts: (Source, Option<String>),
    /// What does not.
    pub other: (Source, Option<String>),
}

fn of(values: &TopologyValues, kind: Kind) -> Option<&str> {
    match kind {
        Kind::Region => values.region.as_deref(),
        Kind::Zone => values.zone.as_deref(),
    }
}

/// A value that is one: an empty text names no region.
fn given(values: &TopologyValues, kind: Kind) -> Option<String> {
    of(values, kind).filter(|value| !value.is_empty()).map(str::to_owned)
}

/// The physical host, while it is where the machine runs. Of a machine that is not known, or does not run, it says nothing.
fn host(facts: &TopologyFacts) -> Option<&HostTopology> {
    let runs_on = match &facts.machine {
        Fact::Known { value, .. } if value.unmatched.is_empty() && !value.stopped => value.host.as_str(),
        Fact::NotApplicable { .. } => "",
        _ => return None,
    };
    facts.host.as_ref().filter(|host| runs_on.is_empty() || runs_on == host.name)
}

/// What the label should be; unknown where the Node is another machine's, whatever is said of this one.
pub(super) fn want(facts: &TopologyFacts, kind: Kind) -> Want {
    match said(facts, kind) {
        want @ (Want::Unknown { .. } | Want::Unmanaged) => want,
        want => stranger(facts).map_or(want, |why| Want::Unknown { why }),
    }
}

fn said(facts: &TopologyFacts, kind: Kind) -> Want {
    if let Some(desired) = of(&facts.desired, kind) {
        return match desired {
            "" => Want::Nothing { source: Source::Desired },
            value => Want::Value { value: value.to_owned(), source: Source::Desired },
        };
    }
    if let Some(host) = host(facts) {
        return match given(&host.values, kind) {
            Some(value) => Want::Value { value, source: Source::Host },
            None => Want::Nothing { source: Source::Host },
        };
    }
    match &facts.machine {
        Fact::Known { value, .. } => match of_machine(value, kind) {
            Want::Unmanaged => {}
            want => return want,
        },
        Fact::Unknown { detail, .. } => {
            return Want::Unknown { why: format!("the virtual machine could not be read: {detail}") };
        }
        Fact::Absent { .. } => {
            return Want::Unknown { why: "no virtual machine is known to be this node".to_owned() };
        }
        Fact::NotApplicable { .. } => {}
    }
    if let Some(value) = given(&facts.configured, kind) {
        return Want::Value { value, source: Source::Configured };
    }
    match &facts.instance {
        Fact::Known { value, .. } => match given(value, kind) {
            Some(value) => Want::Value { value, source: Source::Instance },
            None => Want::Unmanaged,
        },
        Fact::Unknown { detail, .. } => {
            Want::Unknown { why: format!("the instance metadata could not be read: {detail}") }
        }
        Fact::Absent { .. } | Fact::NotApplicable { .. } => Want::Unmanaged,
    }
}

fn of_machine(machine: &MachineTopology, kind: Kind) -> Want {
    if !machine.unmatched.is_empty() {
        return Want::Unknown { why: machine.unmatched.clone() };
    }
    if machine.stopped {
        let why = format!(
            "the virtual machine {}/{} has no running instance, so that no host speaks for it",
            machine.namespace, machine.name
        );
        return Want::Unknown { why };
    }
    if let Some(value) = given(&machine.annotations, kind) {
        return Want::Value { value, source: Source::Machine };
    }
    if let Some(value) = given(&machine.harvester, kind) {
        return Want::Value { value, source: Source::Harvester };
    }
    // Where Harvester copies its host's labels, no annotation means no label; elsewhere it means that nobody asked.
    if !machine.follows_host {
        return Want::Unmanaged;
    }
    // It copies the host's name with them (harvester/harvester, `pkg/controller/master/virtualmachine/vmi_controller.go`).
    if machine.copied_from.is_empty() || machine.host.is_empty() {
        return Want::Unknown { why: "Harvester has not copied its host's labels yet".to_owned() };
    }
    Want::Nothing { source: Source::Machine }
}

pub(super) fn disagreements(facts: &TopologyFacts) -> Vec<Disagreement> {
    let mut all = Vec::new();
    let Some(machine) = facts.machine.value().filter(|m| m.unmatched.is_empty() && !m.stopped) else {
        return all;
    };
    for kind in Kind::ALL {
        let annotated = given(&machine.annotations, kind);
        if let Some(host) = host(facts).filter(|_| machine.follows_host) {
            let labelled = given(&host.values, kind);
            if labelled != annotated {
                let (counts, other) = ((Source::Host, labelled), (Source::Machine, annotated.clone()));
                all.push(Disagreement { kind, counts, other });
            }
        }
        let own = given(&machine.harvester, kind);
        if annotated.is_some() && own.is_some() && annotated != own {
            let (counts, other) = ((Source::Machine, annotated), (Source::Harvester, own));
            all.push(Disagreement { kind, counts, other });
        }
    }
    all
}
