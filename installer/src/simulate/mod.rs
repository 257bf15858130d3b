//! Simulated nodes: recorded raw readings, changed by a script of faults, through the real rules.
//!
//! A simulated node emits no condition of its own. Its facts go through `judge` and `latch` as an agent's do, and their
//! verdicts go to the coordinator over the same delivery. It is marked as simulated wherever it is shown.

mod fault;
mod part;
mod recording;

use std::time::Duration;

use outrider_protocol::{Latch, NodeFacts, Timestamp};

use part::Part;

/// What `part` reads at `now`, when the play has run for `elapsed`. `None` only for a recording that cannot be read,
/// which a test rules out.
fn facts(part: &Part, elapsed: Duration, now: Timestamp, latches: Vec<Latch>) -> Option<NodeFacts> {
    let mut facts = part.recording()?.at(now)?;
    part.dress(&mut facts);
    fault::live(part, elapsed, &mut facts);
    fault::apply(&fault::script(part, elapsed), part, &mut facts);
    facts.latches = latches;
    Some(facts)
}
