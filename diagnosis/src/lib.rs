//! Pure rules: from facts to conditions, for one node and across the nodes of a cluster.
//!
//! The tour: [`judge`] turns the facts of one node into a [`Judgement`]; [`latch`] raises and clears what is shown with
//! hysteresis; [`diagnose`] does both. [`fleet::judge_cluster`] judges what only all members' reports tell together, and
//! [`machines::judge`] what Harvester says of a virtual machine beside what its node says.
//! Nothing here touches a clock, a file, a network or a thread: time is an argument and part of the facts, so that an
//! agent, the coordinator and a person with a captured file get the same answer from the same facts, byte for byte.
//!
//! The rules live in `rules/`, one file or folder a check.

mod candidate;
mod finding;
pub mod fleet;
mod latch;
pub mod machines;
mod rules;
mod wording;

pub use finding::{Blind, Finding, Judgement};
pub use latch::{Latched, latch};

use outrider_protocol::{ClockOffset, NodeConditions, NodeFacts, TypeMeta};

/// What the facts of one node say, before hysteresis. Depends on nothing but `facts`; `facts.now` is the time.
pub fn judge(facts: &NodeFacts) -> Judgement {
    rules::judge(facts)
}

/// How far the clock that dated `facts` is off, where they tell that.
pub fn clock_offset(facts: &NodeFacts) -> Option<ClockOffset> {
    rules::clock_offset(facts)
}

/// Whether the kernel of this machine says that a time service keeps its clock, and nothing that is known speaks against it.
pub fn keeps_time(facts: &NodeFacts) -> bool {
    rules::keeps_time(facts)
}

/// The conditions of one node: [`judge`], then [`latch`] on the latches that the facts carry.
pub fn diagnose(facts: &NodeFacts) -> NodeConditions {
    let judgement = judge(facts);
    let latched = latch(&facts.latches, &judgement, facts.now);
    NodeConditions {
        meta: TypeMeta::new("NodeConditions"),
        node: facts.node.clone(),
        conditions: latched.conditions,
        not_applicable: judgement.not_applicable,
    }
}
