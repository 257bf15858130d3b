//! Who a simulated node is: its name, its place, and how a recording is dressed for it.

use outrider_protocol::{EtcdFacts, Fact, NodeFacts, Profile, Timestamp, hex};
use sha2::{Digest, Sha256};

use super::recording;

/// Nodes of one group: a cluster of three servers and two workers, and three virtual machines of their own.
const GROUP: usize = 8;
const SERVERS: usize = 3;
const WORKERS: usize = 2;

/// What a node plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Server `index` (0 to 2) of its cluster.
    Server {
        /// Place among the members.
        index: usize,
    },
    /// Worker of its cluster.
    Worker,
    /// A virtual machine without a cluster.
    Vm,
}

/// One simulated node. Nothing in it changes while it plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Name; says by itself that it is simulated.
    pub(crate) name: String,
    /// Cluster; empty for a virtual machine.
    pub(crate) cluster: String,
    /// Number of the group, from 0: what happens to a cluster happens to the whole group.
    pub(crate) group: usize,
    /// Number among all simulated nodes, from 0.
    pub(crate) number: usize,
    /// What it plays.
    pub(crate) role: Role,
}

/// The cast of `count` nodes. Clusters are complete; what is left over are virtual machines.
pub(crate) fn cast(count: usize) -> Vec<Part> {
    (0..count)
        .map(|number| {
            let (group, place) = (number / GROUP, number % GROUP);
            // A cluster of two servers would be a fault of the simulation, not of the simulated.
            let has_cluster = count - group * GROUP >= SERVERS;
            let cluster = format!("sim-c{}", group + 1);
            let (role, name) = match place {
                place if has_cluster && place < SERVERS => {
                    (Role::Server { index: place }, format!("{cluster}-server-{}", place + 1))
                }
                place if has_cluster && place < SERVERS + WORKERS => {
                    (Role::Worker, format!("{cluster}-worker-{}", place + 1 - SERVERS))
                }
                _ => (Role::Vm, format!("sim-vm-{}", number + 1)),
            };
            let cluster = if role == Role::Vm { String::new() } else { cluster };
            Part { name, cluster, group, number, role }
        })
        .collect()
}

impl Part {
    /// One of three zones; the members of a cluster stand in different ones.
    pub(crate) fn zone(&self) -> String {
        format!("sim-{}", ["a", "b", "c"][self.number % GROUP % 3])
    }

    /// The one region.
    pub(crate) fn region(&self) -> String {
        "sim-region".to_owned()
    }

    /// What it is to its owner.
    pub(crate) fn profile(&self) -> Profile {
        match self.role {
            Role::Server { .. } => Profile::RancherHaServer,
            Role::Worker => Profile::RancherHaAgent,
            Role::Vm => Profile::HarvesterVm,
        }
    }

    /// The network of its group, up to the last dot.
    fn network(&self) -> String {
        format!("10.{}.{}.", 1 + self.group / 250, self.group % 250)
    }

    /// `n` bytes in hex that are this node's own and always the same.
    fn digest(&self, what: &str, n: usize) -> String {
        hex(&Sha256::digest(format!("{what} of simulated {}", self.name))[..n])
    }

    /// A UUID of its own.
    fn uuid(&self, what: &str) -> String {
        let hex = self.digest(what, 16);
        format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
    }

    /// What this node reads at `now` when all is well: the recording with its own names and addresses.
    pub(crate) fn read(&self, now: Timestamp) -> Option<NodeFacts> {
        let recording = match self.role {
            Role::Server { .. } => recording::SERVER.as_ref(),
            Role::Worker => recording::AGENT.as_ref(),
            Role::Vm => recording::VM.as_ref(),
        };
        let host = format!("rancher.{}.example", self.cluster);
        let mut facts = recording?.at(now, &self.network(), &host)?;
        self.dress(&mut facts);
        Some(facts)
    }

    fn dress(&self, facts: &mut NodeFacts) {
        facts.node.name.clone_from(&self.name);
        facts.node.cluster.clone_from(&self.cluster);
        facts.node.simulated = true;
        facts.node.profile = self.profile();
        if let Some(Fact::Known { value: host, .. }) = &mut facts.checks.host {
            set(&mut host.hostname, self.name.clone());
            set(&mut host.machine_id_hash, self.digest("machine id", 32));
            set(&mut host.system_uuid, self.uuid("system UUID"));
            set(&mut host.boot_id, self.uuid("boot id"));
            set(&mut host.instance_id, format!("i-{}", self.digest("instance", 8)));
            if let Fact::Known { value: interfaces, .. } = &mut host.interfaces
                && let Some(first) = interfaces.first_mut()
            {
                let mac = self.digest("MAC", 3);
                first.mac = format!("52:54:00:{}:{}:{}", &mac[..2], &mac[2..4], &mac[4..]);
                first.addresses = vec![format!("{}{}/24", self.network(), 11 + self.number % GROUP)];
            }
        }
        if let (Role::Server { index }, Some(Fact::Known { value: etcd, .. })) =
            (self.role, &mut facts.checks.etcd)
        {
            self.dress_etcd(etcd, index);
        }
    }

    /// The recorded view is the first server's: the others see the same members and another one as their own.
    fn dress_etcd(&self, etcd: &mut EtcdFacts, own: usize) {
        let server = |i: usize| format!("{}-server-{}", self.cluster, i + 1);
        if let Fact::Known { value: list, .. } = &mut etcd.members {
            for (i, member) in list.members.iter_mut().enumerate() {
                member.name = format!("{}-{}", server(i), &member.id[..8.min(member.id.len())]);
            }
        }
        for (i, endpoint) in etcd.endpoints.iter_mut().enumerate() {
            endpoint.local = i == own;
            endpoint.endpoint = match endpoint.local {
                true => etcd.local_endpoint.clone(),
                false => format!("https://{}{}:2379", self.network(), 11 + i),
            };
        }
        set(&mut etcd.kubernetes_nodes, (0..SERVERS).map(server).collect());
    }
}

/// Another value from the same source, where the recording has one.
pub(crate) fn set<T>(fact: &mut Fact<T>, to: T) {
    if let Fact::Known { value, .. } = fact {
        *value = to;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn clusters_are_complete_and_in_three_zones() {
        for count in [0, 1, 2, 3, 6, 8, 10, 11, 1000] {
            let cast = cast(count);
            assert_eq!(cast.len(), count);
            assert_eq!(cast.iter().map(|part| &part.name).collect::<BTreeSet<_>>().len(), count);
            assert!(cast.iter().all(|part| part.name.starts_with("sim-")));
            for part in cast.iter().filter(|part| part.role == Role::Worker) {
                let servers = cast.iter().filter(|p| p.cluster == part.cluster && p.role != Role::Worker);
                assert_eq!(
                    servers.map(Part::zone).collect::<BTreeSet<_>>().len(),
                    SERVERS,
                    "{}",
                    part.cluster
                );
            }
        }
        assert_eq!(cast(6).iter().map(Part::zone).collect::<BTreeSet<_>>().len(), 3);
    }

    #[test]
    fn no_two_share_a_mark_of_identity() {
        let now = "2026-11-02T09:30:00.000Z".parse().unwrap();
        let mut seen = BTreeSet::new();
        for part in cast(64) {
            let facts = part.read(now).unwrap();
            let host = facts.checks.host.as_ref().and_then(Fact::value).unwrap();
            for mark in [&host.machine_id_hash, &host.system_uuid, &host.boot_id] {
                assert!(seen.insert(mark.value().unwrap().clone()), "{} shares {mark:?}", part.name);
            }
            let first = &host.interfaces.value().unwrap()[0];
            assert!(
                seen.insert(first.mac.clone()) && seen.insert(first.addresses[0].clone()),
                "{}",
                part.name
            );
            let words = serde_json::to_string(&facts).unwrap();
            assert!(
                !words.contains("\"server-")
                    && !words.contains("10.0.0.")
                    && !words.contains("//rancher.example"),
                "{words}"
            );
        }
    }
}
