//! The host firewall. That one is active is no fault by itself: it is a warning where a document says that it conflicts,
//! or where tries of neighbours fail as well. What its rules let through is root's to read and is not claimed.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, Distribution, Fact, FirewallFacts, KubernetesFacts, Profile, ReasonCode as R, Severity,
    Status,
};

use crate::finding::Finding;
use crate::rules::unread;

const TYPE: ConditionType = ConditionType::KubernetesReady;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(30);

/// Who says that this firewall and this Kubernetes do not go together.
fn conflict(name: &str, k: &KubernetesFacts, profile: &Profile) -> Option<&'static str> {
    let runs_rancher = matches!(profile, Profile::RancherHaServer | Profile::RancherHaAgent);
    match (name, &k.distribution) {
        ("firewalld", Distribution::Rke2) => Some(
            "RKE2's known issues: firewalld conflicts with its default network (Canal) and should be disabled",
        ),
        ("firewalld", _) if runs_rancher => Some(
            "Rancher's requirements: since Kubernetes 1.19 firewalld must be turned off, because it conflicts with the \
             network plugins",
        ),
        _ => None,
    }
}

pub(super) fn judge(k: &KubernetesFacts, profile: &Profile) -> Option<Finding> {
    let (all, at) = match &k.firewalls {
        Fact::Known { value, at, .. } => (value, *at),
        // Without systemd there is nobody to ask, and rules are root's to read.
        other => {
            return unread(TYPE, "The host firewall", other, Severity::Info).map(|f| f.subject("firewall"));
        }
    };
    let active: Vec<&FirewallFacts> = all.iter().filter(|f| f.active).collect();
    let finding = |severity, reason, message: String| {
        Finding::new(TYPE, Status::True, severity, reason, at, message)
            .subject("firewall")
            .waits(RAISE, CLEAR)
    };
    if active.is_empty() {
        let known = match all.is_empty() {
            true => "systemd knows none of firewalld, ufw, nftables and iptables".to_owned(),
            false => words(&all.iter().collect::<Vec<_>>()),
        };
        return Some(finding(
            Severity::Ok,
            R::FirewallClear,
            format!("No host firewall is active: {known}."),
        ));
    }
    let evidence = words(&active);
    if let Some((name, why)) = active.iter().find_map(|f| Some((&f.name, conflict(&f.name, k, profile)?))) {
        let message = format!("{name} is active ({evidence}). {why}.");
        return Some(finding(Severity::Warn, R::FirewallConflicts, message).advice(
            "Disable firewalld on nodes of this cluster (systemctl disable --now firewalld) and filter outside of them, or \
             in the network's own policies; do it node by node.",
        ));
    }
    let failing = failing(k);
    if !failing.is_empty() {
        let message = format!(
            "A host firewall is active here ({evidence}), and tries of {} fail. Its rules are not known to Outrider.",
            failing.join(", ")
        );
        return Some(finding(Severity::Warn, R::FirewallActive, message).advice(
            "Let the cluster's nodes through on both sides: 6443, 10250, on RKE2 9345, between servers 2379 and 2380, and the \
             CNI's UDP port; K3s' requirements also ask for the networks of pods and services.",
        ));
    }
    let message = format!(
        "A host firewall is active ({evidence}); its rules are root's to read and not known to Outrider."
    );
    Some(finding(Severity::Info, R::FirewallActive, message).advice(
        "K3s' requirements recommend to turn firewalld and ufw off; where one stays, it must let the cluster's ports and the \
         networks of pods and services through.",
    ))
}

fn words(all: &[&FirewallFacts]) -> String {
    all.iter().map(|f| f.evidence.as_str()).collect::<Vec<_>>().join(", ")
}

/// Names of neighbours of which a try failed more than once.
fn failing(k: &KubernetesFacts) -> Vec<String> {
    let neighbours = k.network.value().map_or(&[][..], |n| n.neighbours.as_slice());
    let failed = neighbours.iter().filter(|n| n.tries.iter().any(|t| t.is_failed()));
    failed.map(|n| n.name.clone()).take(5).collect()
}
