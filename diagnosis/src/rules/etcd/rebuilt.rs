//! Which member is of which node, and which of several is the one that lives there.

use std::collections::HashMap;

use outrider_protocol::{EtcdFacts, MemberList};

use super::quorum::{Ghost, Health};
use super::view::with_id;

/// Members of whose node, or at whose address, another one lives while they do not answer: nothing will become of them.
pub(crate) struct Leftovers<'a> {
    rebuilt: Rebuilt<'a>,
    health: Vec<Health>,
}

impl<'a> Leftovers<'a> {
    /// Among `list`, whose members are as healthy as `health` says, place by place, on `nodes` of these names.
    pub(crate) fn among(
        list: &'a MemberList,
        health: Vec<Health>,
        nodes: impl Iterator<Item = &'a str> + Clone,
    ) -> Self {
        Self { rebuilt: Rebuilt::among(list, |i| health[i], nodes), health }
    }

    /// Why the member at this place is left over, to follow its name; `None` for one that is not.
    pub(crate) fn words(&self, place: usize) -> Option<String> {
        if let Some(Ghost::Rebuilt { node, living }) = self.rebuilt.ghost(place) {
            return Some(format!(
                "it does not answer, and node {node}, which was built anew, runs {living} now"
            ));
        }
        let members = &self.rebuilt.list.members;
        let member = members.get(place).filter(|_| self.health.get(place) == Some(&Health::Down))?;
        let lives = |i: usize| matches!(self.health.get(i), Some(Health::Healthy | Health::NoLeader));
        let others = members.iter().enumerate().filter(|(i, _)| *i != place && lives(*i)).map(|(_, m)| m);
        let is_ours = |url: &&String| member.peer_urls.iter().any(|own| same_place(own, url));
        let (living, url) = others.filter_map(|m| Some((m, m.peer_urls.iter().find(is_ours)?))).next()?;
        Some(format!(
            "it does not answer, and {} answers as the member at its address {url}",
            with_id(living)
        ))
    }
}

/// Whether two URLs are of one host and port, whatever their scheme.
fn same_place(a: &str, b: &str) -> bool {
    let place = |url: &'_ str| {
        let place = url.trim().trim_end_matches('/');
        place.split_once("://").map_or(place, |(_, place)| place).to_ascii_lowercase()
    };
    let a = place(a);
    !a.is_empty() && a == place(b)
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
pub(super) fn stem(member: &str) -> String {
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
