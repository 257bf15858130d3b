//! `EtcdMembership` over the whole cluster: whether its nodes belong to one cluster, see each other and the same leader,
//! and whether the list holds what it should.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, Fact, Member, MemberList, ReasonCode as R, Severity, Status, Timestamp,
};

use super::{Joined, NAMED, View, learners, one_way, topology};
use crate::finding::Finding;
use crate::rules::etcd::peers::Compared;
use crate::rules::etcd::quorum::{Ghost, Tally};
use crate::rules::etcd::urls::Urls;
use crate::rules::etcd::view::{name_of, with_id};
use crate::rules::etcd::{ghosts, member, membership, peers, view};
use crate::wording::{Count, names};

const TYPE: ConditionType = ConditionType::EtcdMembership;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(10);

pub(super) fn judge(
    joined: &Joined<'_>,
    list: &MemberList,
    tally: &Tally<'_>,
    split: Option<Finding>,
    apart: Option<Finding>,
) -> Finding {
    let at = joined.at;
    let mut found: Vec<Finding> = split.into_iter().collect();
    found.extend(apart.or_else(|| one_way::judge(joined, list, at)));
    found.extend(topology::client_port(joined, list, at));
    found.extend(peer_urls(joined, list, tally));
    found.extend(leaders(joined, list));
    found.extend(learners::judge(joined, list, tally));
    found.extend(ghosts::ghosts(tally, at).map(|f| with_addresses(f, joined, list, tally)));
    found.extend(membership::unstarted(list, tally, at));
    found.extend(membership::repeated_ids(&joined.repeated, at));
    found.extend(removed(joined, list));
    found.extend(topology::regions(joined, list));
    found.extend(topology::failure_domain(joined, tally, at));
    membership::worst_of(found).unwrap_or_else(|| expected(joined, list)).waits(RAISE, CLEAR)
}

fn expected(joined: &Joined<'_>, list: &MemberList) -> Finding {
    let told = list.members.iter().filter(|m| joined.kubernetes_node(m) == Status::True).count();
    let disputed = list.members.iter().find_map(|m| match joined.with_and_without(m) {
        (Some(with), Some(without)) => Some(format!(
            "; the list of {with} has a node of {}, that of {without} lacks it",
            view::display_name(m)
        )),
        _ => None,
    });
    let ghosts = if told == list.members.len() {
        "each has its Kubernetes node".to_owned()
    } else if let Some(disputed) = disputed {
        format!("whether each has a Kubernetes node is unknown{disputed}")
    } else {
        let cause = joined.group.iter().find_map(|v| match &v.etcd.kubernetes_nodes {
            Fact::Unknown { cause, .. } => Some(format!(" ({cause})")),
            _ => None,
        });
        format!("whether each has a Kubernetes node is unknown{}", cause.unwrap_or_default())
    };
    let message = format!(
        "{} of cluster {}, one cluster id in {}; {ghosts}.",
        Count(list.members.len(), "member"),
        list.cluster_id,
        Count(joined.group.len(), "report")
    );
    Finding::new(TYPE, Status::True, Severity::Ok, R::EtcdMembersExpected, joined.at, message)
}

/// Nodes that belong to different clusters, the minority named where there is one (D10).
pub(super) fn split(joined: &Joined<'_>) -> Option<Finding> {
    let (group, others) = (&joined.group, &joined.others);
    if others.is_empty() {
        return None;
    }
    let list =
        |views: &[View<'_>]| names(views.iter().map(|v| format!("{} ({})", v.node, v.cluster_id)), NAMED);
    let known: Vec<&View<'_>> = group.iter().filter(|v| !v.cluster_id.is_empty()).collect();
    let found = |message: String, advice: String| {
        Finding::new(TYPE, Status::False, Severity::Error, R::EtcdClusterIdMismatch, joined.at, message)
            .advice(advice)
    };
    if known.len() > others.len() {
        let id = known.first().map_or("", |v| v.cluster_id);
        let message = format!(
            "The nodes belong to different etcd clusters; {} of {} are in the minority: {}; the others are of cluster {id}.",
            others.len(),
            known.len() + others.len(),
            list(others)
        );
        let who = names(others.iter().map(|v| v.node), NAMED);
        return Some(found(message, membership::cluster_id_advice(&who, id)));
    }
    // Without a majority nobody is the one that is wrong.
    let mut sides: Vec<(&str, Vec<&str>)> = Vec::new();
    for v in known.into_iter().chain(others) {
        match sides.iter_mut().find(|(id, _)| *id == v.cluster_id) {
            Some((_, nodes)) => nodes.push(v.node),
            None => sides.push((v.cluster_id, vec![v.node])),
        }
    }
    sides.sort_unstable();
    let all = sides.iter().map(|(id, nodes)| format!("cluster {id} has {}", names(nodes, NAMED)));
    let message = format!(
        "The nodes belong to different etcd clusters, and no cluster has more than half of them, so none is called \
         the minority: {}.",
        names(all, NAMED)
    );
    Some(found(
        message,
        format!(
            "One side was rebuilt, restored alone or bootstrapped apart. A person finds out which of the clusters {} holds the data that \
             counts (etcdctl endpoint status: revision; the newest objects), before anything else. Whoever is then to join that \
             cluster needs its old member there removed and its own data folder empty; Outrider does neither.",
            names(sides.iter().map(|(id, _)| id), NAMED)
        ),
    ))
}

/// Recorded peer URLs against what each node's own configuration expects, else against the node's address, and what is
/// wrong in the list itself.
fn peer_urls(joined: &Joined<'_>, list: &MemberList, tally: &Tally<'_>) -> Vec<Finding> {
    let lives = |m: &Member| joined.said_of(m).iter().any(|(_, e)| view::answers_itself(e, m));
    let mut found = peers::listed(list, lives, joined.at);
    let urls = Urls::of(list);
    found.extend(urls.judge(joined.at));
    found.extend(joined.group.iter().filter_map(|v| match peers::local(v.etcd, list, tally, joined.at) {
        Compared::Different(finding) => Some(*finding),
        Compared::Same | Compared::Untold(_) => None,
        Compared::Not => by_node(joined, v, list, tally),
    }));
    let mixed = urls.mixed(&found, joined.at);
    found.extend(mixed);
    found
}

/// Servers whose own member was removed: by the list that a quorum vouched for to them, or by what lies in their data folder.
fn removed(joined: &Joined<'_>, list: &MemberList) -> Option<Finding> {
    let gone = |v: &View<'_>| {
        let unlisted = member::unlisted(v.etcd).is_some_and(|(_, own)| own.linearizable);
        let folder = v.etcd.data_folder.as_ref().and_then(Fact::value);
        unlisted || (!v.lives() && folder.is_some_and(|f| f.tombstone))
    };
    let nodes: Vec<&str> = joined.group.iter().filter(|v| gone(v)).map(|v| v.node).collect();
    let who = match nodes.as_slice() {
        [] => return None,
        nodes => names(nodes, NAMED),
    };
    let several = nodes.len() > 1;
    let message = format!(
        "{} of {who} {} removed from cluster {}, which has {}.",
        if several { "The members" } else { "The member" },
        if several { "were" } else { "was" },
        list.cluster_id,
        names(list.members.iter().map(view::display_name), NAMED)
    );
    let finding =
        Finding::new(TYPE, Status::False, Severity::Error, R::EtcdMemberRemoved, joined.at, message);
    Some(finding.advice(format!(
        "EtcdMemberHealthy of {who} says what to do there; the members of the list need nothing for it."
    )))
}

/// The member that runs on the node of `v` against the address that its agent told. Only where the distribution is known
/// to give the member that address.
fn by_node(joined: &Joined<'_>, v: &View<'_>, list: &MemberList, tally: &Tally<'_>) -> Option<Finding> {
    if !v.etcd.distribution.is_ranchers() || v.local_id.is_empty() {
        return None;
    }
    let addresses = &joined.node(v.node)?.network?.addresses;
    let member = list.members.iter().find(|m| m.id == v.local_id)?;
    peers::by_node(member, v.node, addresses, v.lives(), (tally, joined.at))
}

/// The finding about ghosts, and where a ghost of a node that was built anew was to be found against where the node is.
fn with_addresses(
    mut finding: Finding,
    joined: &Joined<'_>,
    list: &MemberList,
    tally: &Tally<'_>,
) -> Finding {
    let told = tally.voters.iter().filter_map(|v| {
        let Some(Ghost::Rebuilt { node, .. }) = &v.ghost else { return None };
        let addresses = &joined.node(node)?.network?.addresses;
        let member = list.members.iter().find(|m| m.id == v.id)?;
        Some(format!("{} is {}", with_id(member), peers::against_node(member, addresses)?))
    });
    let told: Vec<String> = told.take(NAMED).collect();
    if !told.is_empty() {
        finding.message.push_str(&format!(" {}.", told.join("; ")));
    }
    finding
}

/// What one look shows of leaders: each with the members that follow it and their term.
struct Leaders<'a>(Vec<(&'a str, u64, Vec<&'a str>)>);

impl<'a> Leaders<'a> {
    /// As the node behind `v` found it, all members asked in one pass.
    fn seen_by(v: &View<'a>, list: &'a MemberList) -> Self {
        let mut out: Vec<(&str, u64, Vec<&str>)> = Vec::new();
        for e in &v.etcd.endpoints {
            let Some(s) = e.status.value() else { continue };
            let voter = list.members.iter().any(|m| m.id == s.member_id && !m.is_learner);
            if !voter || s.leader.is_empty() || s.leader == "0" {
                continue;
            }
            let name = name_of(Some(list), &s.member_id);
            match out.iter_mut().find(|(leader, ..)| *leader == s.leader) {
                Some((_, term, followers)) => {
                    *term = (*term).max(s.raft_term);
                    if !followers.contains(&name) {
                        followers.push(name);
                    }
                }
                None => out.push((&s.leader, s.raft_term, vec![name])),
            }
        }
        // The newest term first: its leader is the one that counts.
        out.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        Self(out)
    }

    fn answers(&self) -> usize {
        self.0.iter().map(|(_, _, followers)| followers.len()).sum()
    }
}

/// Members that follow different leaders. A look in the middle of an election shows that too, so most of those that
/// could tell have to.
fn leaders(joined: &Joined<'_>, list: &MemberList) -> Option<Finding> {
    let looks = joined.group.iter().map(|v| (v.at, v.node, Leaders::seen_by(v, list)));
    let mut looks: Vec<(Timestamp, &str, Leaders<'_>)> = looks.filter(|(_, _, l)| l.answers() > 1).collect();
    let disagree = looks.iter().filter(|(_, _, l)| l.0.len() > 1).count();
    if disagree == 0 || disagree * 2 <= looks.len() {
        return None;
    }
    looks.retain(|(_, _, l)| l.0.len() > 1);
    let (_, node, newest) = looks.iter().max_by_key(|(at, ..)| *at)?;
    let sides = newest.0.iter().map(|(leader, term, followers)| {
        format!("{} in term {term} (followed by {})", name_of(Some(list), leader), names(followers, NAMED))
    });
    let (newest_leader, newest_term, _) = newest.0.first()?;
    let behind = names(newest.0.iter().skip(1).flat_map(|(_, _, followers)| followers.iter()), NAMED);
    let message = format!(
        "Members see different leaders at the same time, by the look of {node}: {}.",
        names(sides, NAMED)
    );
    Some(Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdLeadersDisagree, joined.at, message).advice(format!(
        "Only {} in term {newest_term} can write; {behind} has not heard of it. Check port 2380 between {behind} and {}, both \
         ways. It settles by itself once they reach each other: do not restart etcd and do not reset the cluster.",
        name_of(Some(list), newest_leader),
        name_of(Some(list), newest_leader),
    )))
}
