//! `KubernetesReady` and `NodePortsReachable`: whether Kubernetes answers on this node, what is about to end or does not
//! suit it, and which neighbours it reaches.
//!
//! Sources, by name in the rules below: Rancher's `installation-requirements.md` (rancher/rancher-docs), RKE2's
//! `install/requirements.md` and `known_issues.md` (rancher/rke2-docs), K3s' `installation/requirements.md`
//! (k3s-io/docs). What none of them asks for is not judged.

mod components;
mod firewall;
pub(crate) mod neighbours;
pub(crate) mod overlay;
mod requirements;
mod rke1;

use std::time::Duration;

use outrider_protocol::{KubernetesFacts, NodeFacts, Severity, Timestamp, UnknownCause};

use crate::finding::{Finding, Judgement};

pub(super) fn judge(out: &mut Judgement, k: &KubernetesFacts, at: Timestamp, facts: &NodeFacts) {
    out.findings.extend(components::judge(k));
    out.findings.extend(rke1::judge(k, at, facts.now));
    out.findings.push(requirements::judge(k, &facts.node.profile, at));
    out.findings.extend(firewall::judge(k, &facts.node.profile));
    if let Some(network) = k.network.value() {
        out.findings.extend(neighbours::judge(network, k.network.at()));
        out.findings.extend(overlay::judge(network, k.network.at()));
        if network.others.is_none() {
            untold(out, facts, k.network.at());
        }
    }
}

/// After a restart of the agent the coordinator has not named any neighbour yet: what was shown of them before stands for
/// a while, for it has not become good, nor have they gone.
fn untold(out: &mut Judgement, facts: &NodeFacts, at: Timestamp) {
    const PATIENCE: Duration = Duration::from_secs(600);
    let shown = facts.latches.iter().map(|latch| &latch.condition);
    for condition in shown.filter(|c| c.condition_type == neighbours::TYPE) {
        if out.findings.iter().all(|f| f.key() != condition.key()) {
            let message = "The coordinator has not named any neighbours to try since the agent started.";
            out.findings.push(
                Finding::unknown(neighbours::TYPE, &UnknownCause::NotYetRead, Severity::Info, at, message)
                    .subject(condition.subject.clone())
                    .waits(PATIENCE, PATIENCE),
            );
        }
    }
}
