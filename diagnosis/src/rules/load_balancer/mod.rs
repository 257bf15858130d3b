//! lb
use crate::finding::Judgement;
use outrider_protocol::{LoadBalancerFacts, NodeFacts};
pub(super) fn judge(_out: &mut Judgement, _b: &[LoadBalancerFacts], _facts: &NodeFacts) {}
