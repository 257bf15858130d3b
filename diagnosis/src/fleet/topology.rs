//! Who sees whom, which zone holds how many voters, and whether all lie in one region.

use outrider_protocol::{ConditionType, MemberList, ReasonCode as R, Severity, Status, Timestamp};

use super::{Joined, Member, View, join};
use crate::finding::Finding;
use crate::rules::etcd::membership::is_of_node;
use crate::rules::etcd::quorum::{Tally, quorum_of};
use crate::wording::{Count, names};

const TYPE: ConditionType = ConditionType::EtcdMembership;
const NAMED: usize = 7;

/// Living members that fall into groups none of which reaches another.
///
/// Two members count as connected when either reached the other, or when neither really tried: only a silence that was
/// met on every way between two groups splits them.
pub(super) fn partition(group: &[View<'_>], list: &MemberList, at: Timestamp) -> Option<Finding> {
    let living: Vec<&View<'_>> = group
        .iter()
        .filter(|v| v.lives())
        .filter(|v| list.members.iter().any(|m| m.id == v.local_id))
        .collect();
    let mut part: Vec<usize> = (0..living.len()).collect();
    for i in 0..living.len() {
        for j in 0..i {
            if part[i] != part[j] && !(lost(living[i], living[j], list) && lost(living[j], living[i], list)) {
                let (from, to) = (part[i], part[j]);
                part.iter_mut().filter(|p| **p == from).for_each(|p| *p = to);
            }
        }
    }
    let mut roots = part.clone();
    roots.sort_unstable();
    roots.dedup();
    if roots.len() < 2 {
        return None;
    }
    let sides: Vec<String> = roots
        .iter()
        .map(|root| names(living.iter().zip(&part).filter(|(_, p)| *p == root).map(|(v, _)| v.node), NAMED))
        .collect();
    let message = format!(
        "{} living members fall into {} groups that do not reach each other: {}.",
        living.len(),
        roots.len(),
        sides.join(" | ")
    );
    let voters = list.members.iter().filter(|m| !m.is_learner).count();
    Some(Finding::new(TYPE, Status::False, Severity::Error, R::EtcdPartitioned, at, message).advice(format!(
        "This is the network, not etcd: check ports 2379 and 2380 between {}, both ways. The side with {} of {voters} voters \
         goes on, the other catches up by itself. Do not reset the cluster and do not remove members.",
        sides.join(" and "),
        quorum_of(voters)
    )))
}

/// Whether `from` tried to reach the member of `to` and met silence on every way.
fn lost(from: &View<'_>, to: &View<'_>, list: &MemberList) -> bool {
    let member = list.members.iter().find(|m| m.id == to.local_id);
    member.is_some_and(|m| join::lost_since(from, m).is_some())
}

/// The node on which the member runs: by the report of its own agent, else by its name.
pub(super) fn node_of<'a>(joined: &Joined<'a>, id: &str, name: &str) -> Option<&'a Member<'a>> {
    match joined.group.iter().find(|v| v.local_id == id) {
        Some(view) => joined.node(view.node),
        None => joined.members.iter().find(|m| is_of_node(name, m.name)).copied(),
    }
}

/// A zone whose loss takes the quorum with it, when the zone of every voter is known.
pub(super) fn failure_domain(joined: &Joined<'_>, tally: &Tally<'_>, at: Timestamp) -> Option<Finding> {
    let voters = tally.voters.len();
    if voters < 3 {
        return None;
    }
    let mut zones: Vec<((&str, &str), Vec<&str>)> = Vec::new();
    for voter in &tally.voters {
        let node = node_of(joined, voter.id, voter.name)?;
        if node.zone.is_empty() {
            return None;
        }
        let zone = (node.region, node.zone);
        match zones.iter_mut().find(|(z, _)| *z == zone) {
            Some((_, held)) => held.push(voter.name),
            None => zones.push((zone, vec![voter.name])),
        }
    }
    let ((_, zone), held) = zones.iter().max_by(|a, b| a.1.len().cmp(&b.1.len()).then(b.0.cmp(&a.0)))?;
    let left = voters - held.len();
    if left >= quorum_of(voters) {
        return None;
    }
    let mut all: Vec<(&str, &str)> =
        joined.members.iter().filter(|m| !m.zone.is_empty()).map(|m| (m.region, m.zone)).collect();
    all.sort_unstable();
    all.dedup();
    // With fewer than three zones nobody can place three voters better; that is good to know, not to be nagged about.
    let severity = if all.len() >= 3 { Severity::Warn } else { Severity::Info };
    let message = format!(
        "Zone {zone} holds {} of {voters} voters ({}): quorum is lost with the zone, for that leaves {left} of the {} it needs; \
         the cluster has nodes in {}.",
        held.len(),
        names(held, NAMED),
        quorum_of(voters),
        Count(all.len(), "zone")
    );
    let most = voters - quorum_of(voters);
    let advice = if all.len() >= 3 {
        format!(
            "Spread the voters over three zones, no more than {most} of {voters} in one: move one of {} at a time, and only \
             while quorum has a reserve.",
            names(held, NAMED)
        )
    } else {
        format!(
            "Only a third zone makes {voters} voters outlive the loss of one; with {} there is no better placing than to know it.",
            Count(all.len(), "zone")
        )
    };
    Some(Finding::new(TYPE, Status::True, severity, R::EtcdFailureDomain, at, message).advice(advice))
}

/// Members in more than one region. Rancher wants the nodes of its cluster in one region or data centre, in separate
/// zones (rancher/rancher-docs:docs/how-to-guides/new-user-guides/infrastructure-setup/ha-rke2-kubernetes-cluster.md);
/// etcd is made for short ways (k3s-io/k3s#6297).
pub(super) fn regions(joined: &Joined<'_>, list: &MemberList) -> Option<Finding> {
    let mut regions: Vec<(&str, Vec<&str>)> = Vec::new();
    for member in &list.members {
        let Some(node) = node_of(joined, &member.id, &member.name).filter(|n| !n.region.is_empty()) else {
            continue;
        };
        match regions.iter_mut().find(|(region, _)| *region == node.region) {
            Some((_, held)) => held.push(node.name),
            None => regions.push((node.region, vec![node.name])),
        }
    }
    if regions.len() < 2 {
        return None;
    }
    regions.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then(a.0.cmp(b.0)));
    let all = regions.iter().map(|(region, held)| format!("{region} ({})", names(held, NAMED)));
    let message =
        format!("Members of one etcd cluster lie in {} regions: {}.", regions.len(), names(all, NAMED));
    let (main, _) = regions.first()?;
    let away = names(regions.iter().skip(1).flat_map(|(_, held)| held), NAMED);
    Some(Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdRegionsDiffer, joined.at, message).advice(format!(
        "Rancher wants the nodes of one cluster in one region or data centre, in separate zones of it. Put the members of {away} \
         into {main}, one at a time while quorum has a reserve, or serve the other region by a cluster of its own."
    )))
}
