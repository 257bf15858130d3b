//! A whole cluster as the coordinator has it, to break one report at a time.

use outrider_diagnosis::fleet::{Member, Received, judge_cluster, picture};
use outrider_diagnosis::{Finding, Judgement};
use outrider_protocol::*;

use crate::only;
use crate::world::{self, etcd_from, known, now};

/// A cluster as the coordinator has it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) ready: Status,
    pub(crate) zone: String,
    pub(crate) region: String,
    pub(crate) etcd: Option<Fact<EtcdFacts>>,
    pub(crate) network: Option<NodeNetwork>,
    pub(crate) received: Option<Received>,
    pub(crate) heard: Option<Timestamp>,
    pub(crate) retired: Option<&'static str>,
}

/// A server that is heard and tells this of etcd.
pub(crate) fn node(name: &str, etcd: EtcdFacts) -> Node {
    Node {
        name: name.into(),
        ready: Status::True,
        zone: "z1".into(),
        region: "r1".into(),
        etcd: Some(known(etcd)),
        network: None,
        received: None,
        heard: None,
        retired: None,
    }
}

impl World {
    /// `n` healthy servers, each in a zone of its own.
    pub(crate) fn of(n: usize) -> Self {
        let node = |i: usize| Node { zone: format!("z{i}"), ..node(&format!("n{i}"), etcd_from(i, n)) };
        Self { nodes: (1..=n).map(node).collect() }
    }

    pub(crate) fn view(&mut self, node: usize, change: impl FnOnce(&mut EtcdFacts)) {
        match &mut self.nodes[node - 1].etcd {
            Some(Fact::Known { value, .. }) => change(value),
            _ => panic!("the view of n{node} is known"),
        }
    }

    pub(crate) fn every(mut self, mut change: impl FnMut(usize, &mut EtcdFacts)) -> Self {
        for i in 1..=self.nodes.len() {
            self.view(i, |e| change(i, e));
        }
        self
    }

    pub(crate) fn members<'a>(&'a self) -> Vec<Member<'a>> {
        let member = |n: &'a Node| Member {
            name: &n.name,
            ready: n.ready,
            zone: &n.zone,
            region: &n.region,
            etcd: n.etcd.as_ref(),
            network: n.network.as_ref(),
            received: n.received,
            heard: n.heard,
            retired: n.retired,
            addresses: &[],
            paths: &[],
        };
        self.nodes.iter().map(member).collect()
    }

    pub(crate) fn judged(&self) -> Judgement {
        judge_cluster("prod", &self.members(), now())
    }

    pub(crate) fn picture(&self) -> ClusterEtcd {
        picture(&self.members(), now()).unwrap_or_else(|| panic!("there is etcd"))
    }

    pub(crate) fn found(&self, of: ConditionType) -> Finding {
        only(&self.judged(), of)
    }

    pub(crate) fn quorum(&self) -> Finding {
        self.found(ConditionType::EtcdQuorum)
    }

    pub(crate) fn membership(&self) -> Finding {
        self.found(ConditionType::EtcdMembership)
    }
}

pub(crate) fn id(n: usize) -> String {
    world::member(n).id
}
