//! `TopologyInSync` and `NodeInitialized`: labels of region and zone of the own Node, and whether it waits for a cloud
//! provider (`facts/harvester-topology.md`).
//!
//! What should be done about a label is planned by [`outrider_sync::topology`], as the agent plans it; here the plan is put
//! into words (`label` for one of region and zone, `sources` for what is said of both).

mod label;
mod sources;
mod taint;

use std::time::Duration;

use outrider_protocol::{
    Check, ConditionType, Fact, NodeFacts, NotApplicable, ReasonCode as R, Severity, Status, Timestamp,
    TopologyFacts,
};
use outrider_sync::topology::{Kind, TopologyPlan, plan};

use crate::finding::{Finding, Judgement};

const TYPE: ConditionType = ConditionType::TopologyInSync;
/// A write, a migration and a cloud provider take their seconds: what differs for less is no news.
const RAISE: Duration = Duration::from_secs(15);

pub(super) fn judge(out: &mut Judgement, topology: &TopologyFacts, at: Timestamp, facts: &NodeFacts) {
    match &topology.node {
        Fact::Known { value: node, .. } => {
            out.findings.push(taint::judge(node, at, facts.now));
            if let Some(plan) = plan(topology) {
                out.findings.push(in_sync(topology, &plan, at));
            }
        }
        Fact::Unknown { cause, detail, at, .. } => {
            let message = format!("The own Node could not be read: {}.", detail.trim_end_matches('.'));
            for condition in [TYPE, ConditionType::NodeInitialized] {
                let severity = if condition == TYPE { Severity::Warn } else { Severity::Info };
                out.findings.push(Finding::unknown(condition, cause, severity, *at, message.as_str()));
            }
        }
        Fact::Absent { source, at } => out.findings.push(
            Finding::new(TYPE, Status::Unknown, Severity::Warn, R::TopologyNodeMissing, *at, format!("There is no Node at {source}."))
                .advice(
                    "See under which name the kubelet registers (node-name in the configuration, else the host name), and whether a \
                     cloud provider deleted the Node because it found no machine of that name.",
                )
                .waits(RAISE, Duration::ZERO),
        ),
        Fact::NotApplicable { reason, .. } => {
            out.not_applicable.push(NotApplicable { check: Check::Topology, reason: reason.clone() });
        }
    }
}

/// One condition about all labels: the worst comes first, and what else is wrong stands behind it.
fn in_sync(topology: &TopologyFacts, plan: &TopologyPlan, at: Timestamp) -> Finding {
    let labels = Kind::ALL.into_iter().filter_map(|kind| label::judge(topology, plan, kind, at));
    let found = labels.chain(sources::judge(topology, plan, at));
    found.reduce(Finding::beside).unwrap_or_else(|| label::good(plan, at))
}

fn finding(status: Status, severity: Severity, reason: R, at: Timestamp, message: String) -> Finding {
    Finding::new(TYPE, status, severity, reason, at, message).waits(RAISE, Duration::ZERO)
}
