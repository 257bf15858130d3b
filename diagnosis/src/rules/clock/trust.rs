//! By which moment an end may be judged, of certificates, credentials and whatever else ends; else by none
//! (`facts/credentials.md`, 7).

use std::time::Duration;

use outrider_protocol::{Fact, NodeFacts, Severity, Timestamp};

use super::peers;
use super::standing::Standing;
use crate::wording::{Span, lower};

/// Clocks that are no farther apart tell the same days.
const CLOSE: Duration = Duration::from_secs(3600);

/// Whether this machine's clock may be believed where an end hangs on it.
pub(in crate::rules) enum Trust {
    /// Nothing speaks against it, or what does is itself wrong.
    Believed,
    /// It differs from another that is right or may be: what the time is by that one, and how far off this one is.
    Skewed { now: Timestamp, apart: Duration, why: String },
    /// Something speaks against it, and the right time is not known; that it is behind may be.
    Doubtful { why: String, behind: bool },
    /// Its state is not known.
    Unread { why: String },
}

/// How a thing that ends stands to one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::rules) enum Validity {
    Good,
    /// Ends within the days of this level.
    Ending(Severity),
    NotYet,
    Ended,
}

impl Validity {
    /// What a verdict of this kind weighs, by a clock that is believed.
    pub(in crate::rules) fn severity(self) -> Severity {
        match self {
            Validity::Good => Severity::Ok,
            Validity::Ending(severity) => severity,
            Validity::NotYet | Validity::Ended => Severity::Error,
        }
    }
}

/// Why a verdict is left open.
pub(in crate::rules) struct Doubt<'a> {
    /// A clause about this clock.
    pub(in crate::rules) why: &'a str,
    /// Two clocks disagree; otherwise nothing but their agreement is missing.
    pub(in crate::rules) is_wrong: bool,
}

impl Doubt<'_> {
    /// What this clock would say, which are whole sentences, and that it is left open.
    pub(in crate::rules) fn on(&self, words: &str) -> String {
        format!("By this clock: {words} But {}, so that cannot be told.", self.why)
    }

    /// What to do; `if_right` is the advice where this clock is right after all, which only one that nobody keeps may be.
    pub(in crate::rules) fn advice(&self, if_right: &str) -> String {
        let correct = "Correct the clock first (ClockSynchronized says how), then look again: renew and replace nothing by \
                       this clock.";
        if self.is_wrong || if_right.is_empty() {
            return correct.to_owned();
        }
        format!(
            "Compare this clock with another (date -u). If it is wrong: {} If it is right: {if_right}",
            lower(correct)
        )
    }
}

impl Trust {
    pub(in crate::rules) fn of(facts: &NodeFacts) -> Self {
        match Standing::of(facts) {
            // What agrees with the coordinator is right, whoever sets it.
            Standing::Agrees(_) | Standing::CoordinatorWrong { .. } => Trust::Believed,
            Standing::Differs { offset, .. } => {
                skewed(facts, offset.offset_ms, &format!("that of {}", offset.peer))
            }
            Standing::OffByService(ms) => skewed(facts, ms as i64, "the true time by its own service's word"),
            Standing::OffFromPeers { by_ms, who } => skewed(facts, by_ms, &format!("those of {who}")),
            Standing::WrittenAhead { path, by } => Trust::Doubtful {
                why: format!("{path} was written {by} ahead of this clock, which must be behind"),
                behind: true,
            },
            Standing::Alone => Self::alone(facts),
        }
    }

    /// By the kernel's word, which other clocks may speak against.
    fn alone(facts: &NodeFacts) -> Self {
        let clock = facts.checks.clock.as_ref().and_then(Fact::value);
        let why = match clock.map(|clock| &clock.kernel) {
            Some(Fact::Known { value: kernel, .. }) if kernel.synchronized => return Trust::Believed,
            Some(Fact::Known { .. }) => "nobody keeps this clock (the kernel calls it unsynchronised)",
            _ => "whether anybody keeps this clock is not known",
        };
        let others = peers::of(facts);
        let off = peers::off(&others, facts.thresholds.clock_warn_ms);
        if off.is_empty() && clock.is_none_or(|clock| clock.kernel.value().is_none()) {
            return Trust::Unread { why: why.to_owned() };
        }
        let and = if off.is_empty() {
            String::new()
        } else {
            format!(", and by the Date of the answers it is {}", peers::apart(&off))
        };
        Trust::Doubtful { why: format!("{why}{and}"), behind: false }
    }

    /// Why the verdict `here`, which is this clock's, is left open; `there` tells it for another moment. It stands where it
    /// is the same whichever clock is right. A clock that nobody keeps leaves open whether a thing has begun or ended, and
    /// not that it ends soon: levels are days, and it drifts by less.
    pub(in crate::rules) fn doubt(
        &self,
        here: Validity,
        there: impl FnOnce(Timestamp) -> Validity,
    ) -> Option<Doubt<'_>> {
        use Validity as V;
        match self {
            Trust::Believed | Trust::Unread { .. } => None,
            Trust::Skewed { now, apart, why } => {
                let stands = match (here, there(*now)) {
                    (V::Good, V::Good) | (V::Ended, V::Ended) => true,
                    (V::NotYet, V::NotYet) | (V::Good | V::Ending(_), V::Good | V::Ending(_)) => {
                        *apart < CLOSE
                    }
                    _ => false,
                };
                (!stands).then_some(Doubt { why, is_wrong: true })
            }
            Trust::Doubtful { why, behind } => {
                // A clock that is behind makes an end only more certain.
                let open = here == V::NotYet || (here == V::Ended && !behind);
                open.then_some(Doubt { why, is_wrong: false })
            }
        }
    }
}

/// This clock is `ahead_ms` ahead of `whose`.
fn skewed(facts: &NodeFacts, ahead_ms: i64, whose: &str) -> Trust {
    let apart = Duration::from_millis(ahead_ms.unsigned_abs());
    let way = if ahead_ms > 0 { "ahead of" } else { "behind" };
    Trust::Skewed {
        now: Timestamp::from_millis(facts.now.as_millis().saturating_sub(ahead_ms)),
        apart,
        why: format!("this clock is {} {way} {whose}", Span(apart)),
    }
}
