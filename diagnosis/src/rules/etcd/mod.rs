//! etcd.
use crate::finding::Judgement;
use outrider_protocol::{EtcdFacts, NodeFacts, Timestamp};
pub(crate) fn judge(_out: &mut Judgement, _etcd: &EtcdFacts, _at: Timestamp, _facts: &NodeFacts) {}
