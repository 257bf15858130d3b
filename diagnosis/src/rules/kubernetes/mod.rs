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

use outrider_protocol::{KubernetesFacts, NodeFacts, Timestamp};

use crate::finding::Judgement;

pub(super) fn judge(out: &mut Judgement, k: &KubernetesFacts, at: Timestamp, facts: &NodeFacts) {
    out.findings.extend(components::judge(k));
    out.findings.extend(rke1::judge(k, at, facts.now));
    out.findings.push(requirements::judge(k, &facts.node.profile, at));
    out.findings.extend(firewall::judge(k, &facts.node.profile));
    if let Some(network) = k.network.value() {
        out.findings.extend(neighbours::judge(network, k.network.at()));
        out.findings.extend(overlay::judge(network, k.network.at()));
    }
}
