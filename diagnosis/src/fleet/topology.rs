//! Who sees whom, and which zone holds how many voters.

use outrider_protocol::{ConditionType, Fact, MemberList, ReasonCode as R, Severity, Status, Timestamp};

use super::{Member, View};
use crate::finding::Finding;
use crate::rules::etcd::membership::is_of_node;
use crate::rules::etcd::quorum::{Tally, quorum_of};
use crate::rules::etcd::view::{endpoints_of, is_down};
use crate::wording::names;

const TYPE: ConditionType = ConditionType::EtcdMembership;
const NAMED: usize = 7;

/// Living members that fall into groups none of which reaches another.
///
/// Two members count as connected when either reached the other, or when neither really tried: only a silence that was
/// met on every way between two groups splits them.
pub(super) fn partition(group: &[View<'_>], list: &MemberList, at: Timestamp) -> Option<Finding> {
    let living: Vec<&View<'_>> = group
        .iter()
        .filter(|v| v.etcd.endpoints.iter().any(|e| e.local && e.status.value().is_some()))
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
    Some(Finding::new(TYPE, Status::False, Severity::Error, R::EtcdPartitioned, at, message).advice(
        "This is the network, not etcd: check ports 2379 and 2380 between the groups, both ways. The side with quorum goes on, \
         the other catches up by itself. Do not reset the cluster and do not remove members.",
    ))
}

/// Whether `from` tried to reach the member of `to` and met silence on every way.
fn lost(from: &View<'_>, to: &View<'_>, list: &MemberList) -> bool {
    let Some(member) = list.members.iter().find(|m| m.id == to.local_id) else { return false };
    let mut tried = false;
    for e in endpoints_of(from.etcd, member) {
        match &e.status {
            Fact::Unknown { cause, .. } if is_down(cause) => tried = true,
            _ => return false,
        }
    }
    tried
}

/// A zone whose loss takes the quorum with it, when the zone of every voter is known.
pub(super) fn failure_domain(
    members: &[Member<'_>],
    group: &[View<'_>],
    tally: &Tally<'_>,
    at: Timestamp,
) -> Option<Finding> {
    let voters = tally.voters.len();
    if voters < 3 {
        return None;
    }
    let mut zones: Vec<((&str, &str), usize)> = Vec::new();
    for voter in &tally.voters {
        let reporter = group.iter().find(|v| v.local_id == voter.id).map(|v| v.node);
        let node = members.iter().find(|m| match reporter {
            Some(name) => m.name == name,
            None => is_of_node(voter.name, m.name),
        })?;
        if node.zone.is_empty() {
            return None;
        }
        let zone = (node.region, node.zone);
        match zones.iter_mut().find(|(z, _)| *z == zone) {
            Some((_, n)) => *n += 1,
            None => zones.push((zone, 1)),
        }
    }
    let ((_, zone), held) = *zones.iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)))?;
    if voters - held >= quorum_of(voters) {
        return None;
    }
    let mut all: Vec<(&str, &str)> =
        members.iter().filter(|m| !m.zone.is_empty()).map(|m| (m.region, m.zone)).collect();
    all.sort_unstable();
    all.dedup();
    // With fewer than three zones nobody can place three voters better; that is good to know, not to be nagged about.
    let severity = if all.len() >= 3 { Severity::Warn } else { Severity::Info };
    let message = format!(
        "Zone {zone} holds {held} of {voters} voters; its loss leaves {} of the {} that quorum needs; the cluster has nodes in \
         {} zones.",
        voters - held,
        quorum_of(voters),
        all.len()
    );
    Some(Finding::new(TYPE, Status::True, severity, R::EtcdFailureDomain, at, message).advice(
        "Spread the voters over three zones, one server at a time and only while quorum has a reserve.",
    ))
}
