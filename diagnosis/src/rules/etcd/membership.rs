//! `EtcdMembership`: ghosts, members that never started, members of another cluster (`facts/etcd.md`, sections 6 and
//! 7); learners and peer URLs have files of their own.

use std::collections::HashMap;
use std::time::Duration;

use outrider_protocol::{
    ConditionType, EtcdFacts, Fact, Member, MemberList, NodeFacts, ReasonCode as R, Severity, Status,
    Timestamp, UnknownCause,
};

use super::peers::Compared;
use super::quorum::{Ghost, Health, Tally, Voter, quorum_of, tolerated};
use super::view::with_id;
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
    repeated: &[String],
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
    let answers = |m: &Member| super::view::endpoints_of(etcd, m).any(|e| e.status.value().is_some());
    found.extend(peers::listed(list, answers, at));
    let own_urls = peers::local(etcd, list, at);
    if let Compared::Different(finding) = &own_urls {
        found.push((**finding).clone());
    }
    found.extend(learners::judge(etcd, list, stalled, at, now));
    found.extend(ghosts(tally, at));
    found.extend(unstarted(list, at));
    found.extend(repeated_ids(repeated, at));
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
            let urls = match own_urls {
                Compared::Same => "; this member's peer URL is the configured one".to_owned(),
                Compared::Untold(why) => {
                    format!("; whether this member's peer URL is the configured one cannot be told ({why})")
                }
                Compared::Different(_) | Compared::Not => String::new(),
            };
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
    let own = super::view::cluster_id(etcd);
    let own = if own.is_empty() { &list.cluster_id } else { own };
    let others = etcd.endpoints.iter().filter(|e| super::view::is_foreign(e, own));
    let others = others.filter_map(|e| Some((e.endpoint.as_str(), e.status.value()?.cluster_id.as_str())));
    let others: Vec<(&str, &str)> = others.collect();
    if others.is_empty() {
        return None;
    }
    let message = format!(
        "{} of {} endpoints answer for another cluster than this member's ({}): {}.",
        others.len(),
        etcd.endpoints.len(),
        own,
        names(others.iter().map(|(endpoint, id)| format!("{endpoint} (cluster {id})")), NAMED)
    );
    let who = names(others.iter().map(|(endpoint, _)| *endpoint), NAMED);
    Some(
        Finding::new(TYPE, Status::False, Severity::Error, R::EtcdClusterIdMismatch, at, message)
            .advice(cluster_id_advice(&who, own)),
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
    let ghosts: Vec<(&Voter<'_>, &Ghost)> =
        tally.voters.iter().filter_map(|v| Some((v, v.ghost.as_ref()?))).collect();
    if ghosts.is_empty() {
        return None;
    }
    let voters = tally.voters.len();
    let healthy = tally.count(Health::Healthy);
    let left = voters - ghosts.len();
    // Who answers without a leader lacks nothing but the quorum that the removal gives back.
    let lives = |v: &&Voter<'_>| matches!(v.health, Health::Healthy | Health::NoLeader);
    let living_left = tally.voters.iter().filter(|v| v.ghost.is_none()).filter(lives).count();
    let lost = healthy + tally.count(Health::Unknown) < quorum_of(voters);
    // With the whole id: it is what the command takes that a person will type.
    let named = |v: &Voter<'_>| match v.name.split_once(" (id ") {
        Some((name, _)) => format!("{name} with id {}", v.id),
        None => format!("{} with id {}", v.name, v.id),
    };
    let list = names(
        ghosts.iter().map(|(v, ghost)| {
            let state = match v.health {
                Health::Healthy => "still answers",
                Health::Unknown => "not asked",
                _ => "does not answer",
            };
            match ghost {
                Ghost::WithoutNode => format!("{} ({state}), without a Kubernetes node", named(v)),
                Ghost::Rebuilt { node, living } => format!(
                    "{} ({state}), left over from before node {node} was built anew, whose living member is {living}",
                    named(v)
                ),
            }
        }),
        NAMED,
    );
    let several = ghosts.len() > 1;
    let message = format!(
        "Ghost {}: {list}; the cluster of {left} counts as {voters}, quorum {} of {voters}, tolerates {} more; after removal \
         of the {}: {}, quorum {}, tolerates {}.",
        if several { "members" } else { "member" },
        quorum_of(voters),
        tolerated(voters, healthy),
        if several { "ghosts" } else { "ghost" },
        Count(left, "voter"),
        quorum_of(left),
        tolerated(left, living_left)
    );
    let all = names(ghosts.iter().map(|(v, _)| named(v)), NAMED);
    let living: Vec<&str> = ghosts
        .iter()
        .filter_map(|(_, ghost)| match ghost {
            Ghost::Rebuilt { living, .. } => Some(living.as_str()),
            Ghost::WithoutNode => None,
        })
        .collect();
    let kubelet = if living.len() == ghosts.len() {
        ""
    } else {
        " (a server without kubelet has no Kubernetes node either)"
    };
    let stays = match names(&living, NAMED) {
        stay if stay.is_empty() => String::new(),
        stay => format!(", and not {stay},"),
    };
    let back = tally.voters.iter().filter(|v| v.may_return() && v.health != Health::NoLeader);
    let first = match names(back.map(|v| &*v.name), NAMED) {
        back if lost && !back.is_empty() => {
            format!("No quorum holds now, and a removal needs one: first bring back {back}. ")
        }
        _ if lost => "No quorum holds now, and a removal needs one. ".to_owned(),
        _ => String::new(),
    };
    Some(Finding::new(TYPE, Status::False, Severity::Warn, R::EtcdGhostMember, at, message).advice(format!(
        "A person makes sure that the {} of {all} {} gone for good{kubelet}, then removes {}{stays} while quorum holds ({} of \
         {voters} healthy voters needed now). {first}Outrider does not remove members.",
        if several { "machines" } else { "machine" },
        if several { "are" } else { "is" },
        if several { "those members, one at a time" } else { "that member" },
        quorum_of(voters),
    )))
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

/// Member ids that stand more than once in an answer: no etcd gives such a list.
pub(crate) fn repeated_ids(repeated: &[String], at: Timestamp) -> Option<Finding> {
    if repeated.is_empty() {
        return None;
    }
    let message = format!(
        "The member list names a member more than once, which was counted once: {}.",
        names(repeated, NAMED)
    );
    let finding = Finding::unknown(TYPE, &UnknownCause::InvalidAnswer, Severity::Warn, at, message);
    Some(finding.advice(
        "See what answers there (etcdctl member list names each id once): it may be no etcd, or a proxy.",
    ))
}

/// A node has one member: of several under one node's name (a machine that was built anew under it, D17) those that do
/// not answer are ghosts while another one, a learner perhaps, does.
pub(crate) struct Rebuilt<'a> {
    list: &'a MemberList,
    /// By the ghost's place in the list: its node, and the living member's place.
    ghosts: HashMap<usize, (&'a str, usize)>,
}

impl<'a> Rebuilt<'a> {
    /// Among `list`, whose members are as healthy as `health` says, on `nodes` of these names.
    pub(crate) fn among(
        list: &'a MemberList,
        health: impl Fn(usize) -> Health,
        nodes: impl Iterator<Item = &'a str> + Clone,
    ) -> Self {
        let mut by_stem: HashMap<String, Vec<usize>> = HashMap::new();
        for (i, m) in list.members.iter().enumerate().filter(|(_, m)| !m.name.is_empty()) {
            by_stem.entry(stem(&m.name)).or_default().push(i);
        }
        let mut ghosts = HashMap::new();
        for same in by_stem.into_values().filter(|same| same.len() > 1) {
            let of = |node: &&str, i: &usize| is_of_node(&list.members[*i].name, node);
            // A name that several nodes could have given tells nothing.
            let mut theirs = nodes.clone().filter(|node| same.iter().any(|i| of(node, i)));
            let Some(node) = theirs.next().filter(|node| theirs.all(|n| n.eq_ignore_ascii_case(node))) else {
                continue;
            };
            let same: Vec<usize> = same.into_iter().filter(|i| of(&node, i)).collect();
            let lives = |i: &usize| matches!(health(*i), Health::Healthy | Health::NoLeader);
            let Some(living) = same.iter().copied().find(lives) else { continue };
            let down = same.into_iter().filter(|i| health(*i) == Health::Down);
            ghosts.extend(down.map(|i| (i, (node, living))));
        }
        Self { list, ghosts }
    }

    /// What the member at this place of the list is a ghost of.
    pub(crate) fn ghost(&self, place: usize) -> Option<Ghost> {
        let (node, living) = self.ghosts.get(&place)?;
        let (node, living) = ((*node).to_owned(), with_id(&self.list.members[*living]));
        Some(Ghost::Rebuilt { node, living })
    }
}

/// What members of one node have in common in their names.
fn stem(member: &str) -> String {
    let name = member.to_ascii_lowercase();
    let name = name.strip_prefix("etcd-").unwrap_or(&name);
    match name.len().checked_sub(9).and_then(|at| name.split_at_checked(at)) {
        Some((head, tail))
            if tail.starts_with('-')
                && tail[1..].bytes().all(|b| b.is_ascii_hexdigit())
                && !head.is_empty() =>
        {
            head.to_owned()
        }
        _ => name.to_owned(),
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
