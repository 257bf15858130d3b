//! `RancherAgentReady`: whether rancher-system-agent runs and gets on with its plans, and (subject `connection`) whether its
//! files are as it wants them (`facts/rancher-system-agent.md`).
//!
//! The user interface goes on saying that a node runs while its agent restarts for ever (rancher/rancher#52866, #48382,
//! #54928), so that nothing there is evidence here. How often plans failed is kept at Rancher, and nothing is claimed of it.

mod connection;
mod pinned;
mod plans;
mod unit;

use std::time::Duration;

use outrider_protocol::{
    Check, ConditionType, Fact, LoadBalancerFacts, NodeFacts, NotApplicable, RancherAgentFacts, SystemAgent,
    Timestamp,
};

use crate::candidate::worst;
use crate::finding::{Blind, Judgement};
use crate::rules::clock::Trust;

const TYPE: ConditionType = ConditionType::RancherAgentReady;
/// An upgrade of the agent restarts it once.
const RAISE: Duration = Duration::from_secs(70);
const CLEAR: Duration = Duration::from_secs(30);
/// The subject of its files.
const CONNECTION: &str = "connection";

pub(super) fn judge(out: &mut Judgement, rancher: &RancherAgentFacts, at: Timestamp, facts: &NodeFacts) {
    let agent = match &rancher.agent {
        Fact::Known { value, .. } => value,
        Fact::Unknown { cause, detail, at, .. } => {
            let (check, detail) = (Check::RancherAgent, detail.clone());
            out.blind.push(Blind { check, cause: cause.clone(), detail, at: *at });
            return;
        }
        Fact::Absent { .. } | Fact::NotApplicable { .. } => {
            let reason = "rancher-system-agent is not installed on this machine".to_owned();
            out.not_applicable.push(NotApplicable { check: Check::RancherAgent, reason });
            return;
        }
    };
    let balancers = facts.checks.load_balancer.as_ref().and_then(Fact::value);
    let balancers = balancers.map_or(&[][..], Vec::as_slice);
    let view = View { agent, at, now: facts.now, clock: Trust::of(facts), balancers };
    let mut own = unit::candidates(&view);
    own.extend(plans::candidates(&view));
    out.findings.extend(worst(TYPE, String::new(), at, CLEAR, own));
    out.findings.extend(worst(TYPE, CONNECTION.to_owned(), at, CLEAR, connection::candidates(&view)));
}

/// All that the parts of this rule look at.
struct View<'a> {
    agent: &'a SystemAgent,
    at: Timestamp,
    now: Timestamp,
    clock: Trust,
    /// What this node's tries at balancers were shown.
    balancers: &'a [LoadBalancerFacts],
}
