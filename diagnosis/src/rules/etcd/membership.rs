//! `EtcdMembership`: ghosts, members that never started, members of another cluster (`facts/etcd.md`, sections 6 and
//! 7); learners and peer URLs have files of their own.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EtcdFacts, Fact, Member, MemberList, NodeFacts, ReasonCode as R, Severity, Status,
    Timestamp,
};

use super::quorum::{Health, Tally, Voter, quorum_of, tolerated};
use super::{learners, peers};
use crate::finding::Finding;
use crate::wording::{Count, names};

const TYPE: ConditionType = ConditionType::EtcdMembership;

/// A member that is being added or removed settles within a minute.
const RAISE: Duration = Duration::from_secs(60);
const CLEAR: Duration = Duration::from_secs(10);
const NAMED: usize = 7;

pub(super) fn judge(
    etcd: &EtcdFacts,
    list: &MemberList,
    tally: &Tally<'_>,
    at: Timestamp,
    facts: &NodeFacts,
) -> Finding {
    let now = facts.now;
    let stalled = Duration::from_secs(facts.thresholds.etcd_learner_stalled_seconds);
    if list.members.is_empty() {
        return Finding::new(
            TYPE,
            Status::Unknown,
            Severity::Warn,
            R::EtcdNoMembers,
            at,
            "The member list is empty.",
        )
        .advice(super::quorum::NO_MEMBERS_ADVICE);
    }
    let mut found: Vec<Finding> = Vec::new();
    found.extend(other_cluster(etcd, list, at));
    found.extend(peers::judge(etcd, list, at));
    found.extend(learners::judge(etcd, list, stalled, at, now));
    found.extend(ghosts(tally, at));
    found.extend(unstarted(list, at));
    worst_of(found)
        .unwrap_or_else(|| {
            let compared = match &etcd.kubernetes_nodes {
                Fact::Known { value, .. } if kubernetes_nodes(etcd).is_some() => {
                    format!("each has its node among {} Kubernetes nodes", value.len())
                }
                Fact::Known { .. } => "not compared: no Kubernetes node has the name of a member".to_owned(),
                Fact::Unknown { cause, .. } => format!("not compared with Kubernetes nodes ({cause})"),
                _ => "not compared with Kubernetes nodes".to_owned(),
            };
            let urls =
                if peers::is_compared(etcd) { "; this member's peer URL is the configured one" } else { "" };
            let message = format!("{}, none stuck; {compared}{urls}.", Count(list.members.len(), "member"));
            Finding::new(TYPE, Status::True, Severity::Ok, R::EtcdMembersExpected, at, message)
        })
        .waits(RAISE, CLEAR)
}

/// The gravest finding, with what the others say, and what to do about it, appended: one condition, nothing hidden.
pub(crate) fn worst_of(mut found: Vec<Finding>) -> Option<Finding> {
    // Stable: among equals the order of the rules decides.
    found.sort_by_key(|f| std::cmp::Reverse(f.severity));
    let mut found = found.into_iter();
    let mut worst = found.next()?;
    for other in found {
        worst.message.push_str(" Also: ");
        worst.message.push_str(&other.message);
        // Waiting needs no second word; what a person has to do must not hide behind another fault.
        if other.severity >= Severity::Warn && !worst.advice.contains(&other.advice) {
            worst.advice.push_str(" Also: ");
            worst.advice.push_str(&other.advice);
        }
    }
    Some(worst)
}

/// Endpoints that answer for another cluster than the list is of: what people call split brain (D10).
fn other_cluster(etcd: &EtcdFacts, list: &MemberList, at: Timestamp) -> Option<Finding> {
    let others = etcd.endpoints.iter().filter_map(|e| {
        let status = e.status.value()?;
        let other = !status.cluster_id.is_empty()
            && !list.cluster_id.is_empty()
            && status.cluster_id != list.cluster_id;
        other.then_some((e.endpoint.as_str(), status.cluster_id.as_str()))
    });
    let others: Vec<(&str, &str)> = others.collect();
    if others.is_empty() {
        return None;
    }
    let message = format!(
        "{} of {} endpoints answer for another cluster than this member's ({}): {}.",
        others.len(),
        etcd.endpoints.len(),
        list.cluster_id,
        names(others.iter().map(|(endpoint, id)| format!("{endpoint} (cluster {id})")), NAMED)
    );
    let who = names(others.iter().map(|(endpoint, _)| *endpoint), NAMED);
    Some(
        Finding::new(TYPE, Status::False, Severity::Error, R::EtcdClusterIdMismatch, at, message)
            .advice(cluster_id_advice(&who, &list.cluster_id)),
    )
}

/// What people do about `who`, who are not of the cluster `id` (D10).
pub(crate) fn cluster_id_advice(who: &str, id: &str) -> String {
    format!(
        "{who}: rebuilt under the old name or address, restored alone, or bootstrapped apart. Find out which side holds the \
         data that counts before anything else. Whoever is to join cluster {id} again needs the old member removed and the \
         data folder empty; both are a person's steps, and Outrider does neither."
    )
}

pub(crate) fn ghosts(tally: &Tally<'_>, at: Timestamp) -> Option<Finding> {
    let ghosts: Vec<_> = tally.voters.iter().filter(|v| v.ghost).collect();
    if ghosts.is_empty() {
        return None;
    }
    let voters = tally.voters.len();
    let healthy = tally.count(Health::Healthy);
    let left = voters - ghosts.len();
    // Who answers without a leader lacks nothing but the quorum that the removal gives back.
    let lives = |v: &&Voter<'_>| matches!(v.health, Health::Healthy | Health::NoLeader);
    let living_left = tally.voters.iter().filter(|v| !v.ghost).filter(lives).count();
    let lost = healthy + tally.count(Health::Unknown) < quorum_of(voters);
    // Members of one name are told apart by their ids.
    let named = |g: &Voter<'_>| match tally.voters.iter().filter(|v| v.name == g.name).count() {
        1 => g.name.to_owned(),
        _ => format!("{} with id {}", g.name, g.id),
    };
    let list = names(
        ghosts.iter().map(|g| match g.health {
            Health::Healthy => format!("{} (still answers)", named(g)),
            Health::Unknown => format!("{} (not asked)", named(g)),
            _ => format!("{} (does not answer)", named(g)),
        }),
        NAMED,
    );
    let message = format!(
        "Ghost {}: {list} without a Kubernetes node; the cluster of {left} counts as {voters}, quorum {} of {voters}, \
         tolerates {} more; after removal of the ghosts: {}, quorum {}, tolerates {}.",
        if ghosts.len() == 1 { "member" } else { "members" },
        quorum_of(voters),
        tolerated(voters, healthy),
        Count(left, "voter"),
        quorum_of(left),
        tolerated(left, living_left)
    );
    Some(Finding::new(TYPE, Status::False, Severity::Warn, R::EtcdGhostMember, at, message).advice(
        format!(
            "A person makes sure that the {} of {} {} gone for good (a server without kubelet has no Kubernetes node either), \
             then removes {} while quorum holds ({} of {} healthy voters needed now). {}Outrider does not remove members.",
            if ghosts.len() == 1 { "machine" } else { "machines" },
            names(ghosts.iter().map(|g| named(g)), NAMED),
            if ghosts.len() == 1 { "is" } else { "are" },
            if ghosts.len() == 1 { "that member" } else { "those members, one at a time," },
            quorum_of(voters),
            voters,
            match names(tally.voters.iter().filter(|v| v.may_return() && v.health != Health::NoLeader).map(|v| v.name), NAMED) {
                back if lost && !back.is_empty() =>
                    format!("No quorum holds now, and a removal needs one: first bring back {back}. "),
                _ if lost => "No quorum holds now, and a removal needs one. ".to_owned(),
                _ => String::new(),
            },
        ),
    ))
}

pub(crate) fn unstarted(list: &MemberList, at: Timestamp) -> Option<Finding> {
    let new: Vec<&Member> = list.members.iter().filter(|m| m.name.is_empty() && !m.is_learner).collect();
    if new.is_empty() {
        return None;
    }
    let message = format!(
        "{} added and never started, and counted in the quorum: {}.",
        Count(new.len(), "voter"),
        names(new.iter().map(|m| format!("{} ({})", m.id, names(&m.peer_urls, 2))), NAMED)
    );
    let urls = names(new.iter().map(|m| names(&m.peer_urls, 2)), NAMED);
    Some(Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdMemberUnstarted, at, message).advice(format!(
        "Start etcd on the machine that is to listen at {urls}. If it will never come, a person removes {}.",
        names(new.iter().map(|m| m.id.as_str()), NAMED)
    )))
}

/// A node has one member: of several under one node's name (a machine that was rebuilt under it, D17) those that do not
/// answer are ghosts while another one does.
pub(crate) fn mark_rebuilt(voters: &mut [Voter<'_>], nodes: &[String]) {
    // A name that several nodes could have given tells nothing.
    let of_one = |member: &str| nodes.iter().filter(|n| is_of_node(member, n)).count() == 1;
    for node in nodes {
        let of_node = |v: &&mut Voter<'_>| v.name != v.id && is_of_node(v.name, node) && of_one(v.name);
        let lives =
            voters.iter_mut().filter(of_node).any(|v| matches!(v.health, Health::Healthy | Health::NoLeader));
        if lives {
            voters
                .iter_mut()
                .filter(of_node)
                .filter(|v| v.health == Health::Down)
                .for_each(|v| v.ghost = true);
        }
    }
}

/// Names of the Kubernetes nodes, if members can be matched with them: an empty list, or one in which no member has its
/// node, shows that the names do not tell, not that every member is a ghost.
pub(crate) fn kubernetes_nodes(etcd: &EtcdFacts) -> Option<&[String]> {
    let nodes = etcd.kubernetes_nodes.value()?;
    let list = etcd.members.value()?;
    list.members.iter().any(|m| has_node(&m.name, nodes)).then_some(nodes.as_slice())
}

pub(crate) fn has_node(member: &str, nodes: &[String]) -> bool {
    nodes.iter().any(|node| is_of_node(member, node))
}

/// Whether the member's name is one that `node` would have: the node's name (kubeadm), `etcd-<name>` (RKE1), or
/// `<name>-<first 8 of a UUID>` (K3s and RKE2).
pub(crate) fn is_of_node(member: &str, node: &str) -> bool {
    let (member, node) = (member.as_bytes(), node.as_bytes());
    let rke1 = member.strip_prefix(b"etcd-").unwrap_or(member);
    if node.is_empty() || member.eq_ignore_ascii_case(node) || rke1.eq_ignore_ascii_case(node) {
        return !node.is_empty();
    }
    match member.split_at_checked(node.len()) {
        Some((head, [b'-', suffix @ ..])) => {
            head.eq_ignore_ascii_case(node) && suffix.len() == 8 && suffix.iter().all(u8::is_ascii_hexdigit)
        }
        _ => false,
    }
}
