//! Members that answer for different clusters (`facts/etcd.md`, D10): who is of which one, and who is the minority where
//! there is one. Ports are open between them all, so that no advice about reaching anybody is any good here.

use super::quorum::{Health, Tally};
use super::rebuilt::is_of_node;
use crate::wording::names;

const NAMED: usize = 7;

/// The clusters that members answer for.
pub(crate) struct Split<'a> {
    /// Cluster id and members, the largest first.
    groups: Vec<(&'a str, Vec<&'a str>)>,
    /// Members that told theirs.
    told: usize,
    /// The cluster of the list, where nobody answers for it.
    silent: Option<&'a str>,
}

impl<'a> Split<'a> {
    /// `None` while all that answer are of one cluster.
    pub(crate) fn of(tally: &'a Tally<'_>) -> Option<Self> {
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut add = |id: &'a str, name: &'a str| match groups.iter_mut().find(|(known, _)| *known == id) {
            Some((_, members)) => members.push(name),
            None => groups.push((id, vec![name])),
        };
        for v in &tally.voters {
            // What its own node says of it comes below.
            if tally.elsewhere.iter().any(|(_, node)| is_of_node(&v.name, node)) {
                continue;
            }
            match &v.foreign {
                Some(id) => add(id, &v.name),
                None if matches!(v.health, Health::Healthy | Health::NoLeader) => {
                    add(tally.cluster_id, &v.name)
                }
                None => {}
            }
        }
        tally.elsewhere.iter().for_each(|(id, node)| add(id, node));
        if !groups.iter().any(|(id, _)| *id != tally.cluster_id) {
            return None;
        }
        groups.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then(a.0.cmp(b.0)));
        let told = groups.iter().map(|(_, members)| members.len()).sum();
        let silent = groups.iter().all(|(id, _)| *id != tally.cluster_id).then_some(tally.cluster_id);
        Some(Self { groups, told, silent })
    }

    /// Who is of which cluster, in sentences.
    pub(crate) fn words(&self) -> String {
        let groups = self.groups.iter().map(|(id, members)| format!("{id} has {}", names(members, NAMED)));
        let minority = match (self.silent, self.groups.split_first()) {
            (Some(id), _) => format!("nobody answers for {id}, whose list this is"),
            (None, Some((first, rest))) if first.1.len() * 2 > self.told => {
                let few: Vec<&str> = rest.iter().flat_map(|(_, members)| members.iter().copied()).collect();
                format!("the minority is {} ({} of {})", names(&few, NAMED), few.len(), self.told)
            }
            _ => format!("none has more than half of the {}, so there is no minority", self.told),
        };
        format!("Members answer for different clusters: {}; {minority}.", names(groups, NAMED))
    }

    /// What people do first.
    pub(crate) fn advice(&self) -> String {
        format!(
            "Find out which of the clusters {} holds the data that counts (etcdctl endpoint status -w table at each: revision \
             and raft term; the newest objects) before anything else; nothing is added, taken away or reset until then. \
             EtcdMembership says what follows.",
            names(self.groups.iter().map(|(id, _)| id), NAMED)
        )
    }
}
