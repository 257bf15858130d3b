//! RKE1: end of life on 2025-07-31; Rancher 2.12 and later neither provision nor manage it. Every page about it in
//! Rancher's documents begins with that notice (rancher/rancher-docs, such as `rke1-vs-rke2-differences.md`; the
//! releases of rancher-archives/rke say the same).

use outrider_protocol::{
    ConditionType, Distribution, KubernetesFacts, ReasonCode as R, Severity, Status, Timestamp,
};

use crate::finding::Finding;
use crate::wording::names;

/// 2025-07-31T00:00:00Z.
const END_OF_LIFE: i64 = 1_753_920_000;
const DAY: i64 = 86_400;
const NAMED: usize = 6;

pub(super) fn judge(k: &KubernetesFacts, at: Timestamp, now: Timestamp) -> Option<Finding> {
    let signs: Vec<&String> = k.rke1.running.iter().chain(&k.rke1.on_disk).collect();
    let here = k.distribution == Distribution::Rke1 || !k.rke1.running.is_empty();
    if signs.is_empty() && !here {
        return None;
    }
    let said = if signs.is_empty() { k.found_by.clone() } else { names(&signs, NAMED) };
    let finding = |severity, reason, message: String| {
        Finding::new(ConditionType::KubernetesReady, Status::True, severity, reason, at, message)
            .subject("rke1")
    };
    if !here {
        let message = format!("This node runs {} and still holds what an RKE1 left: {said}.", k.distribution);
        return Some(finding(Severity::Info, R::Rke1Remains, message).advice(
            "When no RKE1 cluster needs this node any more, clean it as Rancher's page on cleaning cluster nodes says; \
             etcd certificates and data of the old cluster are secrets.",
        ));
    }
    let days = (now.as_millis() / 1000 - END_OF_LIFE).div_euclid(DAY);
    let since = if days >= 0 {
        format!("ended on 2025-07-31, {days} days ago")
    } else {
        "ends on 2025-07-31".to_owned()
    };
    let seen = if k.rke1.running.is_empty() { ", though none of its processes is seen" } else { "" };
    let message = format!(
        "This node is of an RKE1 cluster{seen}: {said}. The life of RKE1 {since}: no security updates any more, and Rancher \
         2.12 and later neither provision nor manage such a cluster."
    );
    Some(finding(Severity::Warn, R::Rke1EndOfLife, message).advice(
        "Replatform the cluster to RKE2: there is no upgrade in place. Until then keep Rancher below 2.12, take etcd \
         snapshots, and plan the move of workloads to a new RKE2 cluster.",
    ))
}
