//! What one node is told of its etcd.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::only;
use crate::world::{self, known};

/// A node of which nothing but its etcd was read.
pub(crate) fn etcd_node(e: EtcdFacts) -> NodeFacts {
    world::node_facts(CheckFacts { etcd: Some(known(e)), ..CheckFacts::default() })
}

/// The one finding of a type.
pub(crate) fn found(e: EtcdFacts, of: ConditionType) -> Finding {
    only(&judge(&etcd_node(e)), of)
}

pub(crate) fn membership(e: EtcdFacts) -> Finding {
    found(e, ConditionType::EtcdMembership)
}

pub(crate) fn local(e: EtcdFacts) -> Finding {
    found(e, ConditionType::EtcdMemberHealthy)
}
