//! `MachineIdentified`: which node a virtual machine is, and why one is none. A machine that shares no mark with any node
//! is nobody's doubt, and has no such condition.

use outrider_protocol::{ConditionType, ReasonCode as R, Severity, Status, Timestamp};

use super::{Machine, Standing};
use crate::finding::Finding;
use crate::wording::names;

const TYPE: ConditionType = ConditionType::MachineIdentified;
const NAMED: usize = 5;

pub(super) fn judge(machine: &Machine<'_>, now: Timestamp) -> Option<Finding> {
    let new = |status, severity, reason, message: String| {
        Finding::new(TYPE, status, severity, reason, now, message)
    };
    Some(match &machine.node {
        Standing::Nobody => return None,
        Standing::Is(node, by) => {
            let message = format!("This machine is node {}, by its {}.", node.name, by.as_str());
            new(Status::True, Severity::Ok, R::MachineMatched, message)
        }
        Standing::Several { by, names: all, are_vms: true } => {
            let message = format!(
                "{} virtual machines have one {}: {}. Which of them is the node cannot be told, so none is matched.",
                all.len(),
                by.as_str(),
                names(all, NAMED)
            );
            new(Status::False, Severity::Error, R::MachineAmbiguous, message).advice(
                "Find the copy (a clone, or a restore beside its original) and give it a MAC and a firmware UUID of its own, or \
                 delete it: two machines with one MAC on one network disturb each other.",
            )
        }
        Standing::Several { by, names: all, are_vms: false } => {
            let message = format!(
                "{} nodes have this machine's {}: {}. Which of them it is cannot be told, so none is matched.",
                all.len(),
                by.as_str(),
                names(all, NAMED)
            );
            new(Status::False, Severity::Error, R::MachineAmbiguous, message).advice(
                "See IdentityUnique of these nodes. Revoke the nodes that are gone: outrider revoke node NAME.",
            )
        }
        Standing::Contradicted { node, by, against } => {
            let message = format!(
                "Node {node} has this machine's {} and another {}: it is taken for another machine, and none is matched.",
                by.as_str(),
                against.as_str()
            );
            new(Status::False, Severity::Warn, R::MachineContradicted, message).advice(format!(
                "Where the machine was made anew under an old name, revoke the old node once the new one is in: outrider revoke \
                 node {node}. Otherwise compare the machine's network cards with the node's (outrider describe node {node})."
            ))
        }
    })
}
