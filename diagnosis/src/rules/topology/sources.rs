//! What is said of where region and zone come from, apart from the labels themselves.

use outrider_protocol::{Fact, ReasonCode as R, Severity, Status, Timestamp, TopologyFacts};
use outrider_sync::topology::{Disagreement, Kind, TopologyPlan, Want, stranger};

use super::{TYPE, finding};
use crate::finding::Finding;

pub(super) fn judge(facts: &TopologyFacts, plan: &TopologyPlan, at: Timestamp) -> Vec<Finding> {
    let mut found: Vec<Finding> = machine(facts, plan, at).into_iter().collect();
    found.extend(Kind::ALL.into_iter().filter_map(|kind| beta(plan, kind, at)));
    found.extend(plan.disagreements.iter().map(|disagreement| disagree(disagreement, at)));
    found.extend(plan.keys.iter().filter_map(|key| {
        let Want::Value { value, .. } = &key.want else { return None };
        let fixed = facts.static_labels.get(key.key).filter(|fixed| *fixed != value)?;
        let message = format!(
            "node-label in the configuration of RKE2 or K3s gives this node {}={fixed}, which the kubelet writes at every start; it \
             should be {value:?}.",
            key.key
        );
        Some(finding(Status::True, Severity::Warn, R::TopologyReasserted, at, message).advice(
            "Take the entry out of node-label (of Rancher's clusters: out of the machine pool's labels), or give it the right value; \
             a restart at a time of your choice puts that in force.",
        ))
    }));
    found
}

/// The machine, where it has a say and does not say it.
fn machine(facts: &TopologyFacts, plan: &TopologyPlan, at: Timestamp) -> Option<Finding> {
    let why = plan.keys.iter().find_map(|key| match &key.want {
        Want::Unknown { why } => Some(why.trim_end_matches('.')),
        _ => None,
    })?;
    if let Some(why) = stranger(facts) {
        let message = format!("The labels stay as they are, for this Node is another machine's: {why}.");
        return Some(finding(Status::Unknown, Severity::Warn, R::TopologyMachineUnmatched, at, message).advice(
            "One of the two is a clone of the other's disk and acts with its name and credential: switch the clone off, or give it a \
             name, a machine-id and a place in the cluster of its own. A machine that was rebuilt under its old name is joined when \
             its old Node has been removed (of a server of RKE2 or K3s that removes its etcd member too).",
        ));
    }
    Some(match &facts.machine {
        Fact::Unknown { cause, detail, .. } => {
            let message = format!(
                "The virtual machine could not be read, so the labels stay: {}.",
                detail.trim_end_matches('.')
            );
            Finding::unknown(TYPE, cause, Severity::Warn, at, message)
        }
        // It follows its host, and nothing is known of what the host says now.
        Fact::Known { value, .. } if value.stopped || (value.unmatched.is_empty() && value.follows_host) => {
            let message = format!("The labels stay as they are: {why}.");
            finding(Status::True, Severity::Info, R::TopologyStale, at, message)
        }
        Fact::Known { value, .. } if value.unmatched.is_empty() => return instance(facts, why, at),
        Fact::Known { .. } | Fact::Absent { .. } => {
            let message = format!(
                "The labels stay as they are, for which virtual machine this node is cannot be told: {why}."
            );
            finding(Status::Unknown, Severity::Warn, R::TopologyMachineUnmatched, at, message).advice(
                "A machine is known by the MACs of its network cards, then by its name. See that the kubeconfig's namespace is the \
                 machine's own, and that no clone has its MAC.",
            )
        }
        Fact::NotApplicable { .. } => return instance(facts, why, at),
    })
}

fn instance(facts: &TopologyFacts, why: &str, at: Timestamp) -> Option<Finding> {
    let Fact::Unknown { cause, .. } = &facts.instance else { return None };
    let message = format!("The labels stay as they are: {why}.");
    Some(Finding::unknown(TYPE, cause, Severity::Info, at, message))
}

fn beta(plan: &TopologyPlan, kind: Kind, at: Timestamp) -> Option<Finding> {
    let have =
        |label: &str| plan.keys.iter().find(|key| key.key == label).and_then(|key| key.have.as_deref());
    let (label, beta) = (have(kind.label()), have(kind.beta_label())?);
    if label == Some(beta) {
        return None;
    }
    let message = format!(
        "{} is {beta:?} and {} is {}: a cloud controller compares the older one first and takes its value over.",
        kind.beta_label(),
        kind.label(),
        label.map_or_else(|| "not there".to_owned(), |label| format!("{label:?}"))
    );
    Some(finding(Status::True, Severity::Warn, R::TopologyBetaDiffers, at, message).advice(
        "Give both labels one value, the older one first, or take the older one away; nothing of today's Kubernetes needs it.",
    ))
}

fn disagree(disagreement: &Disagreement, at: Timestamp) -> Finding {
    let say =
        |value: &Option<String>| value.as_ref().map_or_else(|| "nothing".to_owned(), |v| format!("{v:?}"));
    let ((counts, value), (other, its)) = (&disagreement.counts, &disagreement.other);
    let message = format!(
        "Of the {}, {} says {} and {} says {}; the former counts.",
        disagreement.kind.word(),
        counts.words(),
        say(value),
        other.words(),
        say(its)
    );
    finding(Status::True, Severity::Warn, R::TopologySourcesDisagree, at, message).advice(
        "Harvester copies a host's labels to a machine only when something about the machine changes; a change of the host alone reaches \
         it late. Should it stay so, see the labels of the host and the annotations of the machine.",
    )
}
