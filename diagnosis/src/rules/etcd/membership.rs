//! `EtcdMembership`: ghosts, learners, members that never started, members of another cluster
//! (`facts/etcd.md`, sections 3, 6 and 7).

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EtcdFacts, Fact, Member, MemberList, NodeFacts, ReasonCode as R, Severity, Status,
    Timestamp,
};

use super::quorum::{Health, Tally, quorum_of, tolerated};
use super::view::{display_name, endpoints_of, is_down};
use crate::finding::Finding;
use crate::wording::{Count, Span, names};

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
    found.extend(learners(etcd, list, stalled, at, now));
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
            let message = format!("{}, none stuck; {compared}.", Count(list.members.len(), "member"));
            Finding::new(TYPE, Status::True, Severity::Ok, R::EtcdMembersExpected, at, message)
        })
        .waits(RAISE, CLEAR)
}

/// The gravest finding, with what the others say appended: one condition, nothing hidden.
pub(crate) fn worst_of(mut found: Vec<Finding>) -> Option<Finding> {
    // Stable: among equals the order of the rules decides.
    found.sort_by_key(|f| std::cmp::Reverse(f.severity));
    let mut found = found.into_iter();
    let mut worst = found.next()?;
    for other in found {
        worst.message.push_str(" Also: ");
        worst.message.push_str(&other.message);
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
        other.then(|| format!("{} (cluster {})", e.endpoint, status.cluster_id))
    });
    let others: Vec<String> = others.collect();
    if others.is_empty() {
        return None;
    }
    let message = format!(
        "{} of {} endpoints answer for another cluster than this member's ({}): {}.",
        others.len(),
        etcd.endpoints.len(),
        list.cluster_id,
        names(&others, NAMED)
    );
    Some(
        Finding::new(TYPE, Status::False, Severity::Error, R::EtcdClusterIdMismatch, at, message)
            .advice(CLUSTER_ID_ADVICE),
    )
}

pub(crate) const CLUSTER_ID_ADVICE: &str = "A node was rebuilt under its old name or address, restored alone, or bootstrapped a cluster of its own. Find out \
     which side holds the data that counts. Adding a node again needs its member removed and its data folder empty; both \
     are a person's steps.";

fn learners(
    etcd: &EtcdFacts,
    list: &MemberList,
    stalled: Duration,
    at: Timestamp,
    now: Timestamp,
) -> Vec<Finding> {
    let front = etcd.endpoints.iter().filter_map(|e| e.status.value()).map(|s| s.raft_index).max();
    let learners = list.members.iter().filter(|m| m.is_learner);
    learners.map(|m| learner(etcd, m, front, stalled, at, now)).collect()
}

fn learner(
    etcd: &EtcdFacts,
    member: &Member,
    front: Option<u64>,
    stalled: Duration,
    at: Timestamp,
    now: Timestamp,
) -> Finding {
    let name = display_name(member);
    let age = etcd.learners_since.get(&member.id).map(|t| now.since(*t));
    let age_words = age.map(|a| format!(", seen for {}", Span(a))).unwrap_or_default();
    let new = |severity, reason, message: String| {
        let status = if reason == R::EtcdLearnerBlocking { Status::False } else { Status::True };
        Finding::new(TYPE, status, severity, reason, at, message)
    };

    let mut index = None;
    let (mut answers, mut silent, mut down_since) = (false, false, None);
    for e in endpoints_of(etcd, member) {
        match &e.status {
            Fact::Known { value, .. } => {
                answers = true;
                index = index.max(Some(value.raft_index));
            }
            // "rpc not supported for learner" is an answer (D7).
            Fact::Unknown { cause, .. } if !is_down(cause) => answers = true,
            _ => {
                silent = true;
                down_since = e.down_since;
            }
        }
    }
    // A learner that was never asked is not silent; one that publishes no address has not come up since it was added.
    let never_up = member.client_urls.is_empty() || member.name.is_empty();
    let silent_for = if answers {
        None
    } else if silent {
        Some(down_since.map_or(Duration::ZERO, |t| now.since(t)))
    } else if never_up {
        Some(age.unwrap_or_default())
    } else {
        None
    };

    let unreachable = silent_for.map(|d| format!("has not answered for {}", Span(d)));
    if let (Some(d), Some(words)) = (silent_for, &unreachable)
        && d >= stalled
    {
        let message = format!(
            "Learner {name} {words}{age_words} (limit {}) and blocks every further join (\"too many learner members\").",
            Span(stalled)
        );
        return new(Severity::Warn, R::EtcdLearnerBlocking, message).advice(
            "Bring that machine back, or, if it is gone for good, a person removes the learner; then the waiting node \
             joins by itself. Voters are not affected.",
        );
    }
    let lag = match (index, front) {
        (Some(i), Some(front)) => {
            format!("raft index {i} of {front}, {} behind", front.saturating_sub(i))
        }
        _ => "its raft index was not read".to_owned(),
    };
    let words = unreachable.map(|w| format!(" and {w}")).unwrap_or_default();
    let slow = age.is_some_and(|a| a >= stalled);
    let message = format!(
        "Learner {name} is joining, catching up: {lag}{age_words}{words}; it is not counted as a voter."
    );
    if slow {
        new(Severity::Warn, R::EtcdLearnerJoining, message).advice(
            "It has been catching up for longer than usual. See whether its lag shrinks, whether port 2380 is open both \
             ways between it and the leader, and how fast its disk is.",
        )
    } else {
        new(Severity::Info, R::EtcdLearnerJoining, message).advice(
            "Wait, it is not broken: the leader promotes it when it has caught up. One learner at a time.",
        )
    }
}

pub(crate) fn ghosts(tally: &Tally<'_>, at: Timestamp) -> Option<Finding> {
    let ghosts: Vec<_> = tally.voters.iter().filter(|v| v.ghost).collect();
    if ghosts.is_empty() {
        return None;
    }
    let voters = tally.voters.len();
    let healthy = tally.count(Health::Healthy);
    let left = voters - ghosts.len();
    let healthy_left = healthy - ghosts.iter().filter(|g| g.health == Health::Healthy).count();
    let list = names(
        ghosts.iter().map(|g| match g.health {
            Health::Healthy => format!("{} (still answers)", g.name),
            Health::Unknown => format!("{} (not asked)", g.name),
            _ => format!("{} (does not answer)", g.name),
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
        tolerated(left, healthy_left)
    );
    Some(Finding::new(TYPE, Status::False, Severity::Warn, R::EtcdGhostMember, at, message).advice(
        "A person makes sure that the machine is gone for good (a server without kubelet has no Kubernetes node either), \
         then removes the member while quorum holds. Outrider does not remove members.",
    ))
}

fn unstarted(list: &MemberList, at: Timestamp) -> Option<Finding> {
    let new: Vec<&Member> = list.members.iter().filter(|m| m.name.is_empty() && !m.is_learner).collect();
    if new.is_empty() {
        return None;
    }
    let message = format!(
        "{} added and never started, and counted in the quorum: {}.",
        Count(new.len(), "voter"),
        names(new.iter().map(|m| format!("{} ({})", m.id, names(&m.peer_urls, 2))), NAMED)
    );
    Some(Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdMemberUnstarted, at, message).advice(
        "Start etcd on that machine with the peer URL recorded above. If it will never come, a person removes the member.",
    ))
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
