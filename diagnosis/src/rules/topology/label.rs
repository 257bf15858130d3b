//! One of region and zone: what it is, what it should be, and what is done about it.

use outrider_protocol::{ReasonCode as R, Severity, Status, Timestamp, TopologyFacts, WriteFailure};
use outrider_sync::topology::{Action, Hold, KeyPlan, Kind, TopologyPlan, Want};

use super::finding;
use crate::finding::Finding;
use crate::wording::names;

/// None where the label is as it should be, or nobody knows how.
pub(super) fn judge(
    facts: &TopologyFacts,
    plan: &TopologyPlan,
    kind: Kind,
    at: Timestamp,
) -> Option<Finding> {
    let pair: Vec<&KeyPlan> = plan.keys.iter().filter(|key| key.kind == kind).collect();
    let differing =
        pair.iter().filter(|key| key.differs() || matches!(key.action, Action::Held(Hold::Refused(_))));
    // What goes with its other label is told of that one.
    let key = differing.min_by_key(|key| matches!(key.action, Action::Held(Hold::With(_))))?;
    Some(match &key.action {
        Action::Held(hold) => held(facts, key, hold, at),
        Action::Write { .. } | Action::Remove => writing(facts, key, at),
        Action::Nothing => return None,
    })
}

/// Every label is as its source says, or no source speaks of it.
pub(super) fn good(plan: &TopologyPlan, at: Timestamp) -> Finding {
    let said = plan.keys.iter().filter(|key| key.key == key.kind.label()).filter_map(|key| match &key.want {
        Want::Value { value, source } => {
            Some(format!("{} {value} as {} says", key.kind.word(), source.words()))
        }
        Want::Nothing { source } => Some(format!("no {}, as {} has none", key.kind.word(), source.words())),
        Want::Unknown { .. } | Want::Unmanaged => None,
    });
    let said: Vec<String> = said.collect();
    if said.is_empty() {
        let message = "Nothing here says which region and zone this node is in: neither a virtual machine of Harvester, nor \
                       [topology], nor instance metadata.";
        return finding(Status::True, Severity::Ok, R::TopologyUnmanaged, at, message.to_owned());
    }
    let message = format!("The own Node has {}.", said.join(", and "));
    finding(Status::True, Severity::Ok, R::TopologyMatches, at, message)
}

/// `zone: the Node has a, and the virtual machine says b`.
fn difference(key: &KeyPlan) -> String {
    let have = key.have.as_deref().map_or_else(|| "no such label".to_owned(), |value| format!("{value:?}"));
    let want = match &key.want {
        Want::Value { value, source } => format!("{} says {value:?}", source.words()),
        Want::Nothing { source } => format!("{} has none", source.words()),
        Want::Unknown { why } => why.clone(),
        Want::Unmanaged => "no source speaks of it".to_owned(),
    };
    let owners = match key.managers.as_slice() {
        [] => String::new(),
        managers => format!(" (owned by {})", names(managers.iter().map(String::as_str), 4)),
    };
    format!("{}: the Node has {have}{owners}, and {want}", key.key)
}

fn held(facts: &TopologyFacts, key: &KeyPlan, hold: &Hold, at: Timestamp) -> Finding {
    let difference = difference(key);
    let say = |severity, reason, message: String, advice: &str| {
        finding(Status::False, severity, reason, at, message).advice(advice)
    };
    let word = key.kind.word();
    match hold {
        Hold::Refused(why) => say(
            Severity::Warn,
            R::TopologyValueInvalid,
            format!("{difference}, which can be no label: {why}. Nothing was sent."),
            "Give the host (or whatever else is named) a value that Kubernetes takes: at most 63 letters, digits, '-', '_' and '.', \
             with a letter or digit at both ends.",
        ),
        Hold::Verify(why) if matches!(key.want, Want::Nothing { .. }) => {
            not_removed(key, at, &format!("; labels are only compared: {why}"))
        }
        Hold::Verify(why) => say(
            Severity::Warn,
            R::TopologyDiffers,
            format!("{difference}. Labels are only compared here: {why}."),
            "Where Harvester's cloud provider keeps the labels, see its log and restart its pod if it does not act; to let Outrider \
             write them instead, set topology.mode to sync, and never beside such a provider.",
        ),
        Hold::Fight(times) => {
            let reverted = facts.writes.reverted.get(key.key);
            let by =
                reverted.map(|r| r.by.as_str()).filter(|by| !by.is_empty()).unwrap_or("somebody unknown");
            say(
                Severity::Error,
                R::TopologyFight,
                format!(
                    "{difference}. Our value was changed back {times} times by {by}, so it is not written any more."
                ),
                "Let one of the two own the label: take the manager that is named out of topology.take_over or set topology.mode to \
                 verify, or stop what writes the other value.",
            )
        }
        Hold::Strict => say(
            Severity::Warn,
            R::TopologyKept,
            format!("{difference}. In strict mode a {word} that is set is neither changed nor taken away."),
            "See which volumes are bound to the old value (kubectl get pv -o yaml, nodeAffinity): pods that use them cannot run on a \
             node with the new one. Then change the label by hand, or set topology.strict to false.",
        ),
        Hold::Migrating => finding(
            Status::False,
            Severity::Info,
            R::TopologyWriting,
            at,
            format!("{difference}. It is written when the migration that is under way has ended."),
        ),
        Hold::Owned(managers) => owned(key, managers, at),
        Hold::OwnerUnknown => say(
            Severity::Warn,
            R::TopologyOwnedByOther,
            format!("{difference}. Nobody is known to own the label, so it is left as it is."),
            "Take the label away by hand (kubectl label node NODE KEY-): Outrider sets it then, in the mode sync.",
        ),
        Hold::NotOurs => not_removed(key, at, ", and Outrider did not set it"),
        Hold::With(other) => say(
            Severity::Warn,
            R::TopologyOwnedByOther,
            format!("{difference}. It goes with {other}, which is left as it is."),
            "See what is said of the other label.",
        ),
    }
}

fn owned(key: &KeyPlan, managers: &[String], at: Timestamp) -> Finding {
    let all = names(managers.iter().map(String::as_str), 4);
    let message = format!("{}. The label is left as it is, for it is owned by {all}.", difference(key));
    finding(Status::False, Severity::Warn, R::TopologyOwnedByOther, at, message).advice(format!(
        "Change it where {all} has it from, or let Outrider take it over: topology.take_over = [{}].",
        managers.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    ))
}

fn not_removed(key: &KeyPlan, at: Timestamp, end: &str) -> Finding {
    let message = format!("{}{end}.", difference(key));
    finding(Status::False, Severity::Warn, R::TopologyNotRemoved, at, message).advice(
        "Harvester takes a label that its host lost away from the virtual machine and never from the Node. If the label is wrong, \
         take it away by hand (kubectl label node NODE KEY-), else give the host its label again.",
    )
}

fn writing(facts: &TopologyFacts, key: &KeyPlan, at: Timestamp) -> Finding {
    match &facts.writes.failed {
        Some(failure) if failure.status == 409 && !failure.conflicts.is_empty() => {
            owned(key, &failure.conflicts, at)
        }
        Some(failure) => refused(key, failure, at),
        None => finding(
            Status::False,
            Severity::Info,
            R::TopologyWriting,
            at,
            format!("{}. It is being written.", difference(key)),
        ),
    }
}

fn refused(key: &KeyPlan, failure: &WriteFailure, at: Timestamp) -> Finding {
    let severity = if matches!(failure.status, 401 | 403) { Severity::Error } else { Severity::Warn };
    let message =
        format!("{}. The write did not succeed: {}.", difference(key), failure.detail.trim_end_matches('.'));
    let advice = match failure.status {
        401 => {
            "The kubelet's credential is not accepted any more: see CertificatesValid and the kubelet's own log."
        }
        403 => {
            "The kubelet's credential may write region and zone of its own Node and nothing else: see that topology.kubeconfig names \
                that of this node's kubelet, or a credential with the right to patch nodes."
        }
        0 => "See whether the API server is reached from this node; the write is tried again.",
        _ => "See what the API server says; the write is tried again, ever more rarely.",
    };
    finding(Status::False, severity, R::TopologyWriteRefused, at, message).advice(advice)
}
