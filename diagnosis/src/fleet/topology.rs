//! Who sees whom, which zone holds how many voters, and whether all lie in one region.

use std::collections::{BTreeMap, HashMap, HashSet};

use outrider_protocol::{
    ConditionType, Member as EtcdMember, MemberList, ReasonCode as R, Severity, Status, Timestamp,
};

use super::{Joined, Member, View, join};
use crate::finding::Finding;
use crate::rules::etcd::links::{brings_news, cut_for, link};
use crate::rules::etcd::quorum::{Tally, Voter, quorum_of};
use crate::rules::etcd::rebuilt::is_of_node;
use crate::rules::etcd::view;
use crate::wording::{Count, names};

const TYPE: ConditionType = ConditionType::EtcdMembership;
const NAMED: usize = 7;

/// Living members that fall into groups none of which reaches another.
///
/// Two members count as connected when either reached the other, or when neither really tried: only a silence that was
/// met on every way between two groups splits them. What counts is whether the members reach each other on port 2380: a
/// client port that is closed between them ([`client_port`]) is no partition, and a silence that is too young for etcd
/// itself to have noticed is not called one yet.
pub(super) fn partition(joined: &Joined<'_>, list: &MemberList, at: Timestamp) -> Option<Finding> {
    let mut place_of: HashMap<usize, usize> = HashMap::new();
    let mut living: Vec<(&str, &EtcdMember)> = Vec::new();
    let by_id: HashMap<&str, &EtcdMember> = list.members.iter().map(|m| (m.id.as_str(), m)).collect();
    for (i, v) in joined.group.iter().enumerate().filter(|(_, v)| v.lives()) {
        if let Some(member) = by_id.get(v.local_id) {
            place_of.insert(i, living.len());
            living.push((v.node, member));
        }
    }
    // Pairs of which the first does not reach the second.
    let mut cut: HashSet<(usize, usize)> = HashSet::new();
    for (to, (_, member)) in living.iter().enumerate() {
        let losses = join::losses(joined, member).into_iter();
        // A side without a quorum has no leader: where that is seen, both ports are closed, whatever the counts of
        // connections still say (etcd has been seen to call one up for three minutes after the network was cut).
        let leaderless = joined.own_view(&member.id).is_some_and(View::sees_no_leader);
        let silent = losses.filter(|(place, _)| {
            let v = &joined.group[*place];
            leaderless || v.sees_no_leader() || is_cut(v, member)
        });
        cut.extend(silent.filter_map(|(place, _)| Some((*place_of.get(&place)?, to))));
    }
    if cut.is_empty() && !joined.group.iter().any(View::sees_no_leader) {
        return None;
    }
    let on_both = cut.clone();
    cut.extend(without_raft(joined, &living, &place_of));
    let part = parts(living.len(), |a, b| cut.contains(&(a, b)) && cut.contains(&(b, a)), &cut);
    if part.len() < 2 {
        return None;
    }
    let sides: Vec<String> =
        part.iter().map(|side| names(side.iter().map(|i| living[*i].0), NAMED)).collect();
    let place = |i: usize| part.iter().position(|side| side.contains(&i));
    let between = |pairs: &HashSet<(usize, usize)>| pairs.iter().any(|(a, b)| place(*a) != place(*b));
    let (how, ports) = match between(&on_both) {
        true => ("", "ports 2379 and 2380"),
        false => (" on port 2380, though their client ports (2379) answer", "port 2380"),
    };
    let message = format!(
        "{} living members fall into {} groups that do not reach each other{how}: {}.",
        living.len(),
        sides.len(),
        sides.join(" | ")
    );
    let voters = list.members.iter().filter(|m| !m.is_learner).count();
    let quorum = quorum_of(voters);
    let goes_on =
        part.iter().position(|side| side.iter().filter(|i| !living[**i].1.is_learner).count() >= quorum);
    let who = match goes_on {
        Some(side) => format!(
            "{} {} on with a quorum of {quorum} of {voters} voters, the rest catches up by itself",
            sides[side],
            if part[side].len() == 1 { "goes" } else { "go" }
        ),
        None => format!(
            "No side is known to have the {quorum} of {voters} voters that a quorum needs, see EtcdQuorum"
        ),
    };
    Some(Finding::new(TYPE, Status::False, Severity::Error, R::EtcdPartitioned, at, message).advice(format!(
        "This is the network, not etcd: check {ports} between {}, both ways. {who}. Do not reset the cluster \
         and do not remove members.",
        sides.join(" and "),
    )))
}

/// Whether the member behind `v`, which has lost `member`, does not hear it on port 2380 either. Where its metrics do not
/// tell of that port, the client port stands for both.
fn is_cut(v: &View<'_>, member: &EtcdMember) -> bool {
    let counted = v.etcd.metrics.value().is_some_and(|m| m.latest.peers.contains_key(&member.id));
    let since = v.etcd.endpoints.iter().filter(|e| view::member_of(e) == Some(member.id.as_str()));
    let since = since.filter_map(|e| e.down_since).max();
    match v.etcd.link_after(&member.id, since) {
        Some(stands) => !stands,
        None => !counted || since.is_none(),
    }
}

/// Pairs of living members of which the first counts its raft connection to the second as down while one of them sees no
/// leader: by itself such a count may be left over from a restart.
fn without_raft(
    joined: &Joined<'_>,
    living: &[(&str, &EtcdMember)],
    place_of: &HashMap<usize, usize>,
) -> Vec<(usize, usize)> {
    let by_id: HashMap<&str, usize> =
        living.iter().enumerate().map(|(i, (_, m))| (m.id.as_str(), i)).collect();
    let mut of_view: Vec<(&View<'_>, usize)> =
        place_of.iter().map(|(place, i)| (&joined.group[*place], *i)).collect();
    of_view.sort_by_key(|(_, i)| *i);
    let leaderless: HashSet<usize> =
        of_view.iter().filter(|(v, _)| v.sees_no_leader()).map(|(_, i)| *i).collect();
    let mut cut = Vec::new();
    for (v, from) in of_view {
        let Some(metrics) = v.etcd.metrics.value() else { continue };
        let down = metrics.latest.peers.keys().filter(|id| link(metrics, id) == Status::False);
        let to = down.filter_map(|id| by_id.get(id.as_str()).copied());
        cut.extend(
            to.filter(|to| leaderless.contains(&from) || leaderless.contains(to)).map(|to| (from, to)),
        );
    }
    cut
}

/// Pairs of living voters between which port 2380 is closed. While both follow a leader nobody notices before that one goes,
/// and then neither of the two may get votes enough; one of them that sees no leader may well be apart from all, which the
/// counts of the others show later ([`partition`]).
pub(super) fn pairs<'a>(joined: &Joined<'a>, list: &MemberList, at: Timestamp) -> Option<Pairs<'a>> {
    let voters = list.members.iter().filter(|m| !m.is_learner);
    let mut living: Vec<(&View<'_>, &EtcdMember)> =
        voters.filter_map(|m| Some((joined.own_view(&m.id).filter(|v| v.lives())?, m))).collect();
    living.sort_unstable_by_key(|(v, _)| v.node);
    let metrics = |i: usize| living[i].0.etcd.metrics.value();
    let cut = |from: usize, to: usize| metrics(from).and_then(|m| cut_for(m, &living[to].1.id));
    let news = |from: usize, to: usize| metrics(from).is_some_and(|m| brings_news(m, &living[to].1.id));
    let mut closed: HashMap<(usize, usize), String> = HashMap::new();
    for a in 0..living.len() {
        for b in a + 1..living.len() {
            let told = [(a, b), (b, a)].map(|(from, to)| cut(from, to).map(|why| (from, to, why)));
            let told: Vec<(usize, usize, String)> = told.into_iter().flatten().collect();
            if let [(from, to, why), rest @ ..] = told.as_slice() {
                let both = !rest.is_empty();
                let way = match (both, news(*to, *from)) {
                    (true, _) => "both ways".to_owned(),
                    (false, true) => format!("{} hears {}", living[*to].0.node, living[*from].0.node),
                    (false, false) => format!("{} does not tell", living[*to].0.node),
                };
                closed.insert((a, b), format!("{}: {why}; {way}", living[*from].0.node));
            }
        }
    }
    if closed.is_empty() {
        return None;
    }
    let total = list.members.iter().filter(|m| !m.is_learner).count();
    let quorum = quorum_of(total);
    let leads = |i: usize| {
        let local = living[i].0.etcd.endpoints.iter().filter(|e| e.local);
        local.filter_map(|e| e.status.value()).any(|s| s.leader == living[i].1.id)
    };
    let leader = (0..living.len()).find(|i| leads(*i));
    let left: Vec<usize> = (0..living.len()).filter(|i| Some(*i) != leader).collect();
    let apart = |a: usize, b: usize| closed.contains_key(&(a.min(b), a.max(b)));
    let votes = |i: usize| left.iter().filter(|j| **j == i || !apart(i, **j)).count();
    let elects = left.iter().any(|i| votes(*i) >= quorum);
    let mut ways: Vec<(&(usize, usize), &String)> = closed.iter().collect();
    ways.sort_unstable();
    let name = |i: usize| living[i].0.node;
    let words = ways.iter().map(|((a, b), why)| format!("{} and {} ({why})", name(*a), name(*b)));
    let alone: Vec<&str> = (0..living.len())
        .filter(|i| living[*i].0.sees_no_leader() && closed.keys().any(|(a, b)| a == i || b == i))
        .map(name)
        .collect();
    let hangs_on = leader.filter(|_| !elects && alone.is_empty()).map(name);
    let rest = match leader {
        _ if !alone.is_empty() => {
            let (sees, takes) = if alone.len() == 1 { ("sees", "it takes") } else { ("see", "they take") };
            format!("{} {sees} no leader, so {takes} no part until that port is open", names(&alone, NAMED))
        }
        Some(l) if !elects => format!(
            "While {} leads nobody notices; without it none of the others gets the {quorum} votes of {total} that it takes to \
             lead: the real tolerance is 0",
            name(l)
        ),
        Some(l) => format!("{} leads; without it another one can still be elected", name(l)),
        None => "Who leads is not told".to_owned(),
    };
    let message = format!("Port 2380 is closed between living voters: {}. {rest}.", names(words, NAMED));
    let who = names(ways.iter().map(|((a, b), _)| format!("{} and {}", name(*a), name(*b))), NAMED);
    let last = leader
        .filter(|_| !elects)
        .map(|l| format!(" Until then do not restart or upgrade {l}.", l = name(l)));
    // Where neither end leads next to nothing is said, so that nobody counts what is lost there.
    let also = (!alone.is_empty()).then(|| {
        let (it, sees) = (names(&alone, NAMED), if alone.len() == 1 { "sees" } else { "see" });
        format!(
            " Look at the ways between {it} and the other members too: {it} {sees} no leader, and between two followers a \
             closed port is noticed late or never."
        )
    });
    let finding =
        Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdPartitioned, at, message).advice(format!(
            "Open TCP 2380 between {who}, both ways (host firewall, security group, routes, MTU).{}{}",
            also.unwrap_or_default(),
            last.unwrap_or_default()
        ));
    Some(Pairs { finding, hangs_on, who })
}

/// Voters between which port 2380 is closed.
pub(super) struct Pairs<'a> {
    pub(super) finding: Finding,
    /// The leader without which nobody can be elected: quorum bears no loss of that one, whatever the count of voters says.
    hangs_on: Option<&'a str>,
    who: String,
}

impl Pairs<'_> {
    /// `quorum` with the word that its number does not hold.
    pub(super) fn limit(&self, mut quorum: Finding) -> Finding {
        let Some(leader) = self.hangs_on.filter(|_| quorum.status == Status::True) else { return quorum };
        quorum.message = format!(
            "{} But port 2380 is closed between {}: without {leader}, which leads, nobody could be elected, so the real tolerance is 0 \
             (EtcdMembership).",
            quorum.message, self.who
        );
        let advice =
            format!("Open port 2380 between {} first, and do not restart {leader} before.", self.who);
        quorum.advice = format!("{advice} {}", quorum.advice).trim_end().to_owned();
        if quorum.severity < Severity::Warn {
            (quorum.severity, quorum.reason) = (Severity::Warn, R::EtcdNoTolerance);
        }
        quorum
    }
}

/// Living members whose client port some nodes do not reach while the raft connection to them stands: a firewall that
/// lets 2380 pass and not 2379.
pub(super) fn client_port(joined: &Joined<'_>, list: &MemberList, at: Timestamp) -> Option<Finding> {
    let mut closed: Vec<(&str, Vec<&str>)> = Vec::new();
    for member in &list.members {
        let Some(own) = joined.own_view(&member.id).filter(|v| v.lives()) else { continue };
        let by = joined.group.iter().filter(|v| view::only_client_port_is_closed(v.etcd, member));
        let by: Vec<&str> = by.map(|v| v.node).collect();
        if !by.is_empty() {
            closed.push((own.node, by));
        }
    }
    if closed.is_empty() {
        return None;
    }
    closed.sort_unstable();
    let ways = names(closed.iter().map(|(to, by)| format!("that of {to} to {}", names(by, NAMED))), NAMED);
    let message = format!(
        "The client port (2379) of members is closed to other servers: {ways}. Their raft connections on port 2380 stand \
         (etcd_network_active_peers), and each of them answers on its own node: this is no partition, and quorum does not \
         suffer."
    );
    Some(Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdClientPortClosed, at, message).advice(format!(
        "Nothing stops now: members talk on 2380, and each apiserver asks the etcd on its own node. Open TCP 2379 to {} from \
         the other servers (host firewall, security group) before a server joins or is replaced, for that asks the others \
         there; servers without etcd of their own, etcdctl --cluster and what is seen of a member from the other nodes hang \
         on it too.",
        names(closed.iter().map(|(to, _)| to), NAMED)
    )))
}

/// The parts into which `n` fall when two are apart as `apart` says, which can be so only of pairs in `lost`: few, so that
/// each is looked at once and not every pair.
fn parts(n: usize, apart: impl Fn(usize, usize) -> bool, lost: &HashSet<(usize, usize)>) -> Vec<Vec<usize>> {
    let mut away: Vec<HashSet<usize>> = vec![HashSet::new(); n];
    for &(a, b) in lost.iter().filter(|(a, b)| apart(*a, *b)) {
        away[a].insert(b);
    }
    let mut unvisited: Vec<usize> = (0..n).collect();
    let mut parts = Vec::new();
    while let Some(&first) = unvisited.first() {
        unvisited.remove(0);
        let (mut part, mut todo) = (vec![first], vec![first]);
        while let Some(at) = todo.pop() {
            let (near, far): (Vec<usize>, Vec<usize>) = unvisited.iter().partition(|i| !away[at].contains(i));
            todo.extend(&near);
            part.extend(near);
            unvisited = far;
        }
        part.sort_unstable();
        parts.push(part);
    }
    parts
}

/// The node on which the member runs: by the report of its own agent, else by its name, unless that node tells that it
/// runs another.
pub(super) fn node_of<'a>(joined: &Joined<'a>, id: &str, name: &str) -> Option<&'a Member<'a>> {
    match joined.own_view(id) {
        Some(view) => joined.node(view.node),
        None => {
            let node = joined.members.iter().find(|m| is_of_node(name, m.name)).copied()?;
            let runs = joined.view_of(node.name).filter(|v| v.lives()).map_or("", |v| v.local_id);
            (runs.is_empty() || runs == id).then_some(node)
        }
    }
}

/// A zone whose loss takes the quorum with it, when the zone of every voter is known.
pub(super) fn failure_domain(joined: &Joined<'_>, tally: &Tally<'_>, at: Timestamp) -> Option<Finding> {
    // A ghost lies nowhere: what is judged is where the others lie, once it is removed.
    let placed: Vec<&Voter<'_>> = tally.voters.iter().filter(|v| v.ghost.is_none()).collect();
    let voters = placed.len();
    if voters < 3 {
        return None;
    }
    let mut zones: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for voter in &placed {
        let node = node_of(joined, voter.id, &voter.name)?;
        if node.zone.is_empty() {
            return None;
        }
        zones.entry((node.region, node.zone)).or_default().push(&voter.name);
    }
    let ((_, zone), held) = zones.iter().max_by(|a, b| a.1.len().cmp(&b.1.len()).then(b.0.cmp(a.0)))?;
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
