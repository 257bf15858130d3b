//! `EtcdMembership` over the whole cluster: whether its nodes belong to one cluster, see each other and the same leader,
//! and whether the list holds what it should.

use std::time::Duration;

use outrider_protocol::{ConditionType, Fact, Member, MemberList, ReasonCode as R, Severity, Status};

use super::{Joined, NAMED, View, join, learners, one_way, topology};
use crate::finding::Finding;
use crate::rules::etcd::peers::Compared;
use crate::rules::etcd::quorum::{Ghost, Tally};
use crate::rules::etcd::rivals::{self, Camp};
use crate::rules::etcd::split::Split;
use crate::rules::etcd::urls::Urls;
use crate::rules::etcd::view::with_id;
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
    let rivals = leaders(joined, list, tally);
    // That sides do not reach each other is the smaller part of it where each has a leader, and they do not catch up by themselves.
    let apart = apart.filter(|_| rivals.as_ref().is_none_or(|rivals| rivals.status == Status::True));
    found.extend(apart.or_else(|| one_way::judge(joined, list, at)));
    found.extend(topology::client_port(joined, list, at));
    found.extend(peer_urls(joined, list, tally));
    found.extend(foreign(joined, tally));
    found.extend(rivals);
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
        let advice = match strangers(joined) {
            true => format!(
                "The lists of these clusters share no member and no address: where they are clusters of their own, nothing is broken \
                 but the name, so give each its own in [node] cluster of its agents. If not: {advice}"
            ),
            false => advice,
        };
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

/// Whether the other clusters' lists have no member and no URL in common with the judged one: two clusters under one name.
fn strangers(joined: &Joined<'_>) -> bool {
    let Some(list) = joined.list.as_deref() else { return false };
    let mut lists = joined.others.iter().map(View::list).peekable();
    let is_known = |m: &Member| {
        let known = |k: &Member| {
            k.id == m.id || k.name == m.name || k.peer_urls.iter().any(|u| m.peer_urls.contains(u))
        };
        list.members.iter().any(known)
    };
    lists.peek().is_some()
        && lists.all(|other| other.is_some_and(|other| !other.members.iter().any(is_known)))
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

/// Members that follow different leaders, by the newest word of each.
fn leaders(joined: &Joined<'_>, list: &MemberList, tally: &Tally<'_>) -> Option<Finding> {
    let serves = |camp: &Camp<'_>| {
        let own = joined.own_view(camp.leader);
        own.is_some_and(|v| v.lives() && v.etcd.no_read_since.is_none())
    };
    rivals::judge(&join::camps(joined, list), list, serves, ("", tally.election_timeout), joined.at)
}

/// Members that answer for another cluster at the addresses of this one, where their own nodes tell nothing (D10).
fn foreign(joined: &Joined<'_>, tally: &Tally<'_>) -> Option<Finding> {
    let split = Split::of(tally).filter(|_| joined.others.is_empty())?;
    let finding = Finding::new(
        TYPE,
        Status::False,
        Severity::Error,
        R::EtcdClusterIdMismatch,
        joined.at,
        split.words(),
    );
    let strangers = tally.voters.iter().filter(|v| v.foreign.is_some()).map(|v| &*v.name);
    Some(
        finding.advice(membership::cluster_id_advice(
            &names(strangers, NAMED),
            &joined.list.as_deref()?.cluster_id,
        )),
    )
}
