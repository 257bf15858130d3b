//! What only all members' reports tell together.

use outrider_protocol::{EtcdFacts, Fact, Status, Timestamp};

use crate::Judgement;

/// One node of a cluster, as the coordinator knows it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Name of the node.
    pub name: &'a str,
    /// Whether it is heard: `True` while it reports in time.
    pub ready: Status,
    /// Zone; empty when unknown.
    pub zone: &'a str,
    /// Region; empty when unknown.
    pub region: &'a str,
    /// Its last report's view of etcd.
    pub etcd: Option<&'a Fact<EtcdFacts>>,
}

/// The conditions over the whole cluster `cluster`, whose name is their subject.
pub fn judge_cluster(_cluster: &str, _members: &[Member<'_>], _now: Timestamp) -> Judgement {
    Judgement::default()
}
