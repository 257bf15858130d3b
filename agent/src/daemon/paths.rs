//! What tries at load balancers came to over the last passes: one pass makes too few to tell a fault that strikes one try in
//! three.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use outrider_diagnosis::fleet;
use outrider_protocol::{BalancerPaths, CheckFacts, Fact, LoadBalancerFacts};

/// Passes that are kept, and for how long.
const PASSES: usize = 10;
const KEPT: Duration = Duration::from_secs(1800);
/// Most paths of one balancer.
const MAX_PATHS: usize = 32;

/// The last passes of each balancer, by name.
#[derive(Debug, Default)]
pub(super) struct PathMemory(BTreeMap<String, VecDeque<BalancerPaths>>);

impl PathMemory {
    /// Takes a pass in. A balancer that is not tried any more is forgotten; one that could not be tried is told so.
    pub(super) fn take(&mut self, fact: &Fact<Vec<LoadBalancerFacts>>) {
        let passes = match fact {
            Fact::Known { value, .. } => value,
            Fact::Absent { .. } | Fact::NotApplicable { .. } => return self.0.clear(),
            Fact::Unknown { cause, .. } => {
                for last in self.0.values_mut().filter_map(VecDeque::back_mut) {
                    last.untried = cause.to_string();
                }
                return;
            }
        };
        self.0.retain(|name, _| passes.iter().any(|pass| pass.name == *name));
        for pass in passes {
            let pass = fleet::paths_of(pass);
            let kept = self.0.entry(pass.name.clone()).or_default();
            // Tries at another address of the same name tell nothing of this one.
            kept.retain(|old| {
                (&old.host, old.port) == (&pass.host, pass.port) && pass.at.since(old.at) <= KEPT
            });
            // While a probe rests, to keep to its budget, its last pass is what there is: once, not once a turn.
            kept.retain(|old| old.at != pass.at);
            kept.push_back(pass);
            while kept.len() > PASSES {
                kept.pop_front();
            }
        }
    }

    /// All passes together: paths that the newest pass has, and what was tried on each.
    pub(super) fn totals(&self) -> Vec<BalancerPaths> {
        self.0.values().filter_map(total).collect()
    }
}

fn total(passes: &VecDeque<BalancerPaths>) -> Option<BalancerPaths> {
    let mut sum = passes.back()?.clone();
    let before = passes.iter().rev().nth(1);
    sum.every_seconds = before.map(|before| seconds(sum.at.since(before.at)));
    for earlier in passes.iter().rev().skip(1) {
        for tries in &earlier.paths {
            let known = sum.paths.iter().position(|p| p.target == tries.target && p.peer == tries.peer);
            let Some(place) = known else {
                // A probe that rests between passes, to keep to its budget, has not vanished.
                if sum.paths.len() < MAX_PATHS {
                    sum.paths.push(tries.clone());
                }
                continue;
            };
            if let Some(path) = sum.paths.get_mut(place) {
                path.tries = path.tries.saturating_add(tries.tries);
                path.failed = path.failed.saturating_add(tries.failed);
                path.timed_out = path.timed_out.saturating_add(tries.timed_out);
                path.cause = path.cause.take().or_else(|| tries.cause.clone());
            }
        }
    }
    sum.paths.sort_by(|a, b| (&a.target, &a.peer).cmp(&(&b.target, &b.peer)));
    Some(sum)
}

/// Whole seconds, no fewer than there are.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

/// One pass without a memory.
pub(super) fn paths_of(checks: &CheckFacts) -> Vec<BalancerPaths> {
    let balancers = checks.load_balancer.as_ref().and_then(Fact::value);
    balancers.into_iter().flatten().map(fleet::paths_of).collect()
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{Probe, ProbeKind, ProbeTarget, Timestamp, UnknownCause};

    use super::*;

    fn pass(second: i64, peers: &[(&str, bool)]) -> Fact<Vec<LoadBalancerFacts>> {
        let at = Timestamp::from_seconds(second);
        let probe = |(peer, good): &(&str, bool)| Probe {
            kind: ProbeKind::Connect,
            target: ProbeTarget::Balancer,
            peer: (*peer).to_owned(),
            at,
            tcp: if *good {
                Fact::known(1.0, "", at)
            } else {
                Fact::unknown(UnknownCause::TimedOut, "", "", at)
            },
            tls: Fact::not_applicable("", at),
            http: Fact::not_applicable("", at),
            raw: String::new(),
        };
        let facts = serde_json::json!({
            "name": "b", "url": "https://b", "host": "b", "port": 443, "httpPort": 0, "mode": "l4",
            "addresses": {"state": "known", "value": ["10.0.0.1"], "source": "", "at": at},
            "probes": peers.iter().map(probe).collect::<Vec<_>>(),
        });
        Fact::known(vec![serde_json::from_value(facts).unwrap()], "", at)
    }

    #[test]
    fn passes_add_up_and_old_ones_go() {
        let mut memory = PathMemory::default();
        for n in 0..30 {
            memory.take(&pass(n * 60, &[("10.0.0.1:443", n % 5 != 0)]));
        }
        let totals = memory.totals();
        let path = &totals[0].paths[0];
        assert_eq!((path.tries, path.failed, path.timed_out), (10, 2, 2));
        assert_eq!(totals[0].every_seconds, Some(60));
        memory.take(&pass(100_000, &[("10.0.0.1:443", true)]));
        assert_eq!(memory.totals()[0].paths[0].tries, 1, "what is old tells nothing of now");
        assert_eq!(memory.totals()[0].every_seconds, None);
    }

    #[test]
    fn a_pass_that_stands_while_the_probe_rests_counts_once() {
        let mut memory = PathMemory::default();
        memory.take(&pass(0, &[("10.0.0.1:443", true)]));
        for _ in 0..5 {
            memory.take(&pass(120, &[("10.0.0.1:443", false)]));
        }
        let totals = memory.totals();
        let path = &totals[0].paths[0];
        assert_eq!((path.tries, path.failed, totals[0].every_seconds), (2, 1, Some(120)));
    }

    #[test]
    fn a_pass_that_failed_as_a_whole_is_told_and_a_balancer_that_went_is_forgotten() {
        let mut memory = PathMemory::default();
        memory.take(&pass(0, &[("10.0.0.1:443", true)]));
        memory.take(&Fact::unknown(UnknownCause::TimedOut, "", "", Timestamp::default()));
        assert_eq!(memory.totals()[0].untried, "TimedOut");
        memory.take(&pass(60, &[("10.0.0.1:443", true)]));
        assert_eq!((memory.totals()[0].untried.as_str(), memory.totals()[0].paths[0].tries), ("", 2));
        memory.take(&Fact::not_applicable("none is configured", Timestamp::default()));
        assert!(memory.totals().is_empty());
    }
}
