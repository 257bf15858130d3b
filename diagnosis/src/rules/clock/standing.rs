//! Which clock is right, as far as the facts of one node tell, the better witness first. The condition `ClockSynchronized`
//! and every verdict on an end rest on this one answer.

use outrider_protocol::{ClockOffset, Fact, NodeFacts};

use super::peers::{self, Whose};
use super::service;
use crate::rules::certificates;
use crate::wording::Span;

/// What is known for certain of this clock.
pub(super) enum Standing<'a> {
    /// It agrees with the coordinator's, as far as the network lets one see.
    Agrees(&'a ClockOffset),
    /// It differs from the coordinator's, which is the one that is wrong: who agrees with this one.
    CoordinatorWrong { offset: &'a ClockOffset, agree: String },
    /// It differs from the coordinator's by more than so many milliseconds, and is wrong or may be.
    Differs { offset: &'a ClockOffset, certain_ms: i64, whose: Whose },
    /// It is ahead by so many milliseconds by its own service's word.
    OffByService(f64),
    /// It is ahead by so many milliseconds of clocks that agree with each other, and with it does none.
    OffFromPeers { by_ms: i64, who: String },
    /// A file of this machine was written in its future.
    WrittenAhead { path: &'a str, by: Span },
    /// Nothing but what its kernel says of it, and perhaps clocks of which nobody knows that they are right.
    Alone,
}

impl<'a> Standing<'a> {
    pub(super) fn of(facts: &'a NodeFacts) -> Self {
        let limit = facts.thresholds.clock_warn_ms;
        let clock = facts.checks.clock.as_ref().and_then(Fact::value);
        let others = peers::of(facts);
        if let Some(offset) = clock.and_then(|clock| clock.coordinator.value()) {
            // No truer than its uncertainty: what may be the network is not held against the clock.
            let certain_ms = offset.offset_ms.saturating_abs().saturating_sub(offset.uncertainty_ms.max(0));
            if certain_ms <= limit {
                return Standing::Agrees(offset);
            }
            return match peers::whose(offset, &others, limit) {
                Whose::Coordinators(agree) => Standing::CoordinatorWrong { offset, agree },
                whose => Standing::Differs { offset, certain_ms, whose },
            };
        }
        let own = clock.and_then(service::source);
        if let Some(off) = own.and_then(|own| service::off_by_own_word(own, limit)) {
            return Standing::OffByService(off);
        }
        if let Some((by_ms, who)) = peers::against_us(&others, limit) {
            return Standing::OffFromPeers { by_ms, who };
        }
        match certificates::written_ahead(facts) {
            Some((path, by)) => Standing::WrittenAhead { path, by },
            None => Standing::Alone,
        }
    }
}
