//! `EtcdMembership`: ghosts, members that never started, members of another cluster (`facts/etcd.md`, sections 6 and
//! 7); learners and peer URLs have files of their own.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EtcdFacts, Fact, Member, MemberList, NodeFacts, ReasonCode as R, Severity, Status,
    Timestamp, UnknownCause,
};

use super::ghosts::{ghosts, standing};
use super::peers::Compared;
use super::quorum::{Health, Tally, quorum_of};
use super::rebuilt::{Leftovers, kubernetes_nodes};
use super::rivals::{self, Camp};
use super::urls::Urls;
use super::view::{self, Seen};
use super::{lagging, learners, member, peers, versions};
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
        .advice(super::ask_a_member(etcd));
    }
    let mut found: Vec<Finding> = Vec::new();
    found.extend(other_cluster(etcd, at));
    let answers = |m: &Member| view::endpoints_of(etcd, m).any(|e| view::answers_itself(e, m));
    found.extend(peers::listed(list, answers, at));
    let urls = Urls::of(list);
    found.extend(urls.judge(at));
    let own_urls = peers::local(etcd, list, tally, at);
    if let Compared::Different(finding) = &own_urls {
        found.push((**finding).clone());
    }
    let mixed = urls.mixed(&found, at);
    found.extend(mixed);
    if tally.learners > 0 {
        let health: Vec<Health> = list.members.iter().map(|m| seen(etcd, list, m, now).health).collect();
        let nodes = kubernetes_nodes(etcd).unwrap_or_default().iter().map(String::as_str);
        let leftovers = Leftovers::among(list, health, nodes);
        let quorum = standing(tally, at);
        found.extend(learners::judge(etcd, list, &leftovers, quorum, stalled, (at, now)));
    }
    // Whether the leader on another machine serves reads, this node does not know.
    let own = |camp: &Camp<'_>| {
        etcd.no_read_since.is_none() && etcd.local_status().is_some_and(|s| s.member_id == camp.leader)
    };
    let camps = view::camps(etcd, list);
    found.extend(rivals::judge(&camps, list, own, (", as this node sees it", tally.election_timeout), at));
    found.extend(ghosts(tally, at));
    found.extend(unstarted(list, tally, at));
    found.extend(repeated_ids(repeated, at));
    found.extend(removed(etcd, at));
    found.extend(lagging::judge(etcd, list, tally, at));
    found.extend(versions::apart(etcd, list, at));
    worst_of(found)
        .unwrap_or_else(|| {
            let compared = match &etcd.kubernetes_nodes {
                Fact::Known { value, .. } if kubernetes_nodes(etcd).is_some() => {
                    format!("each has its node among {}", Count(value.len(), "Kubernetes node"))
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

/// This server's own member is not among those of the list, which a quorum vouched for.
fn removed(etcd: &EtcdFacts, at: Timestamp) -> Option<Finding> {
    let (id, list) = member::unlisted(etcd).filter(|(_, list)| list.linearizable)?;
    let message = format!(
        "The list has {}, and the member of this server (id {id}) is not among them.",
        names(list.members.iter().map(view::display_name), NAMED)
    );
    Some(
        Finding::new(TYPE, Status::False, Severity::Error, R::EtcdMemberRemoved, at, message).advice(
            "EtcdMemberHealthy of this server says what to do; the members of the list need nothing.",
        ),
    )
}

fn seen(etcd: &EtcdFacts, list: &MemberList, m: &Member, now: Timestamp) -> Seen {
    view::health(view::endpoints_of(etcd, m), &list.cluster_id, m, now)
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

/// Endpoints that answer for another cluster than this node's member is of: what people call split brain (D10).
pub(super) fn other_cluster(etcd: &EtcdFacts, at: Timestamp) -> Option<Finding> {
    let own = view::cluster_id(etcd);
    let others = etcd.endpoints.iter().filter(|e| view::is_foreign(e, own));
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
    let finding = Finding::new(TYPE, Status::False, Severity::Error, R::EtcdClusterIdMismatch, at, message);
    let who = names(others.iter().map(|(endpoint, _)| *endpoint), NAMED);
    Some(finding.advice(match side(etcd, own, &others) {
        Side::Theirs => cluster_id_advice(&who, own),
        Side::Ours(id) => {
            cluster_id_advice(&format!("The member of this server (cluster {own}) is the minority"), id)
        }
        Side::Neither => format!(
            "No cluster has more than half of those that answer, so none is called the minority. {}",
            cluster_id_advice(&format!("{who} or the member of this server"), own)
        ),
    }))
}

/// Which side is the minority of those that answer.
enum Side<'a> {
    Theirs,
    /// That of this server; the cluster of the others.
    Ours(&'a str),
    Neither,
}

fn side<'a>(etcd: &EtcdFacts, own: &str, others: &[(&'a str, &'a str)]) -> Side<'a> {
    // Loopback and node address are one member.
    let mut ours: Vec<&str> =
        view::ours(etcd).filter_map(|e| e.status.value()).map(|s| s.member_id.as_str()).collect();
    ours.sort_unstable();
    ours.dedup();
    let of = |id: &str| others.iter().filter(|(_, other)| *other == id).count();
    let all = ours.len() + others.len();
    let largest = others.iter().map(|(_, id)| *id).max_by_key(|id| (of(id), std::cmp::Reverse(*id)));
    match largest {
        Some(id) if of(id) * 2 > all && id != own => Side::Ours(id),
        _ if ours.len() * 2 > all => Side::Theirs,
        _ => Side::Neither,
    }
}

/// What people do about `who`, who are not of the cluster `id` (D10).
pub(crate) fn cluster_id_advice(who: &str, id: &str) -> String {
    format!(
        "{who}: rebuilt under the old name or address, restored alone, or bootstrapped apart. Find out which side holds the \
         data that counts before anything else. Whoever is to join cluster {id} again needs the old member removed and the \
         data folder empty; both are a person's steps, and Outrider does neither."
    )
}

/// Voters without a name: one that never started counts against the quorum, and how to be rid of it hangs on whether there
/// is one.
pub(crate) fn unstarted(list: &MemberList, tally: &Tally<'_>, at: Timestamp) -> Vec<Finding> {
    let health = |m: &Member| tally.voters.iter().find(|v| v.id == m.id).map(|v| v.health);
    let unnamed = list.members.iter().filter(|m| m.name.is_empty() && !m.is_learner);
    let (started, new): (Vec<&Member>, Vec<&Member>) =
        unnamed.partition(|m| matches!(health(m), Some(Health::Healthy | Health::NoLeader)));
    let at_urls =
        |all: &[&Member]| names(all.iter().map(|m| format!("{} ({})", m.id, learners::recorded(m))), NAMED);
    let mut found = Vec::new();
    if !started.is_empty() {
        let message = format!(
            "{} answering without a name in the list: {}.",
            Count(started.len(), "voter"),
            at_urls(&started)
        );
        let finding = Finding::new(TYPE, Status::True, Severity::Info, R::EtcdMemberUnstarted, at, message);
        found.push(finding.advice(
            "Wait: a member publishes its name as soon as a quorum agrees to it after its start. As long as it has none see \
             EtcdQuorum.",
        ));
    }
    if new.is_empty() {
        return found;
    }
    let (voters, healthy) = (tally.voters.len(), tally.count(Health::Healthy));
    let quorum = quorum_of(voters);
    let message = format!(
        "{} added and never started, and counted in the quorum ({quorum} of {voters}): {}.",
        Count(new.len(), "voter"),
        at_urls(&new)
    );
    let urls = names(new.iter().map(|m| learners::recorded(m)), NAMED);
    let ids = names(new.iter().map(|m| m.id.as_str()), NAMED);
    let several = new.len() > 1;
    let machine = if several { "machines that are" } else { "machine that is" };
    let rest = match standing(tally, at) {
        Status::True => format!(
            "If {} will never come, a person removes {ids}{} while quorum holds ({healthy} healthy of {quorum} needed).",
            if several { "they" } else { "it" },
            if several { ", one at a time," } else { "" }
        ),
        Status::False => format!(
            "{} what the quorum lacks, or part of it ({healthy} healthy of {quorum} needed), and {ids} cannot be removed: a \
             removal needs a quorum too. What else brings one back EtcdQuorum tells.",
            if several { "They are" } else { "It is" }
        ),
        Status::Unknown => format!(
            "Whether {ids} could be removed is not known: a removal needs a quorum ({quorum} of {voters}), of which EtcdQuorum \
             cannot tell now."
        ),
    };
    let finding = Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdMemberUnstarted, at, message);
    found.push(finding.advice(format!("Start etcd on the {machine} to listen at {urls}. {rest}")));
    found
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
