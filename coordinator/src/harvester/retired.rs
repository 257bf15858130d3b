//! Nodes whose virtual machines are deleted: while they are silent nobody waits for them.
//!
//! A machine is deleted when it was seen to be this node and Harvester does not have it any more, by a watch's word or by a
//! complete list; what is not read any more is not deleted. It is taken back as soon as the node is heard again, or a machine
//! is identified as it.

use std::collections::BTreeSet;
use std::sync::Arc;

use outrider_protocol::Timestamp;

use super::Judged;
use super::keeper::Known;
use super::seen::Seen;
use crate::fleet::{Fleet, Retired};

/// Where they lie in the store.
pub(crate) const RETIRED: &str = "retired/";

impl Judged {
    /// The machine of a node is gone.
    pub(super) fn retire(&mut self, key: &str, seen: &Seen, fleet: &Fleet, now: Timestamp) {
        let Some(node) = seen.node.as_deref() else { return };
        let retired = Retired { machine: key.to_owned(), vm_uid: seen.uid.to_string(), gone_at: now };
        self.store(format!("{RETIRED}{node}"), &retired);
        let retired = Arc::new(retired);
        fleet.retire(node, Some(retired.clone()));
        self.retired.insert(node.into(), retired);
    }

    /// Takes back what is not so any more. `nodes` are those that are somebody, `machines` the uids of nodes that are machines
    /// now.
    pub(super) fn take_back(&mut self, nodes: &[Known], machines: &BTreeSet<&str>, fleet: &Fleet) {
        if !std::mem::replace(&mut self.is_told, true) {
            for (uid, retired) in &self.retired {
                fleet.retire(uid, Some(retired.clone()));
            }
        }
        let is_back = |uid: &str, retired: &Retired| {
            let node = nodes.iter().find(|node| *node.uid == *uid);
            machines.contains(uid)
                || node.is_none_or(|node| node.last_seen.is_some_and(|at| at > retired.gone_at))
        };
        let back: Vec<Arc<str>> = self
            .retired
            .iter()
            .filter(|(uid, retired)| is_back(uid, retired))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in back {
            self.retired.remove(&uid);
            self.unsaved.insert(format!("{RETIRED}{uid}"), None);
            fleet.retire(&uid, None);
        }
    }
}
