//! When each check is due. The one place that knows cadences; timers run on the monotonic clock, so that a wall clock
//! that is set neither stalls nor hurries a check.

use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{Check, CloudInitFacts, CloudInitStatus, Fact, KubernetesFacts};
use tokio::time::Instant;

use crate::checks::{Ended, Reading, Slot, waits_for_news};
use crate::config::Settings;
use crate::sense::certificates;

/// Time to the next try of neighbours while one does not answer.
const NEIGHBOUR_RETRY: Duration = Duration::from_secs(20);

/// Between two looks at the topology, each of which waits for news.
const TOPOLOGY_AGAIN: Duration = Duration::from_millis(100);

/// From this cadence on a fleet could ask in step.
const JITTERED: Duration = Duration::from_secs(10);

/// The state of every enabled check.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    entries: BTreeMap<Check, Entry>,
}

#[derive(Debug)]
struct Entry {
    due: Instant,
    running: bool,
    slot: Slot,
    /// Time to the next pass, by the last reading.
    cadence: Duration,
}

/// A pass to begin now.
pub(super) struct Due {
    pub(super) check: Check,
    pub(super) slot: Slot,
    pub(super) limit: Duration,
}

impl Schedule {
    /// Takes over changed settings: checks that are new are due now, a shorter cadence counts at once. Returns the
    /// checks that are switched off.
    pub(super) fn apply(&mut self, settings: &Settings, now: Instant) -> Vec<Check> {
        let mut off = Vec::new();
        for (check, values) in &settings.checks {
            if !values.enabled {
                self.entries.remove(check);
                off.push(check.clone());
                continue;
            }
            let latest = now + values.interval;
            let entry = self.entries.entry(check.clone());
            let entry = entry.or_insert_with(|| {
                let (slot, cadence) = (Slot::default(), values.interval);
                Entry { due: now, running: false, slot, cadence }
            });
            entry.due = entry.due.min(latest);
            entry.cadence = entry.cadence.min(values.interval);
        }
        off
    }

    /// Makes every check due now: after a reload, or when the machine woke up.
    pub(super) fn all_due(&mut self, now: Instant) {
        self.entries.values_mut().for_each(|entry| entry.due = now);
    }

    /// Makes one check due now.
    pub(super) fn due_now(&mut self, check: &Check, now: Instant) {
        if let Some(entry) = self.entries.get_mut(check) {
            entry.due = now;
        }
    }

    /// When the next check is due; `None` while all are running or off.
    pub(super) fn next(&self) -> Option<Instant> {
        self.entries.values().filter(|entry| !entry.running).map(|entry| entry.due).min()
    }

    /// Takes the checks that are due and not running; they run from now on.
    pub(super) fn start_due(&mut self, settings: &Settings, now: Instant) -> Vec<Due> {
        let due = self.entries.iter_mut().filter(|(_, entry)| !entry.running && entry.due <= now);
        due.map(|(check, entry)| {
            entry.running = true;
            let limit = settings.checks.get(check).map_or(Duration::from_secs(10), |values| values.timeout);
            let limit = limit + waits_for_news(check);
            Due { check: check.clone(), slot: entry.slot.clone(), limit }
        })
        .collect()
    }

    /// A pass has ended: the next one follows at the check's cadence. A check that was switched off meanwhile is not
    /// brought back; false then.
    pub(super) fn ended(&mut self, pass: &Ended, settings: &Settings, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&pass.check) else { return false };
        entry.running = false;
        if let Some(reading) = &pass.reading {
            entry.cadence = cadence(reading, settings);
        }
        entry.due = now + jittered(entry.cadence, rand::random());
        true
    }
}

/// Time to the next pass: some checks look more often while something is under way, or where there is more to see.
fn cadence(reading: &Reading, settings: &Settings) -> Duration {
    let interval = settings.checks.get(&reading.check()).map_or(Duration::from_secs(60), |v| v.interval);
    match reading {
        Reading::CloudInit(fact) if settled(fact) => settings.cloud_init_settled_interval.max(interval),
        Reading::Etcd(Fact::Known { .. }) => settings.etcd_poll.min(interval),
        Reading::Certificates(Fact::Known { value, .. }) if certificates::is_in_motion(value) => {
            interval.min(certificates::AGAIN)
        }
        // A look waits for news by itself.
        Reading::Topology(Fact::Known { .. } | Fact::Unknown { .. }) => interval.min(TOPOLOGY_AGAIN),
        // A neighbour that did not answer is tried again soon: once is no news, and an answer is good news.
        Reading::Kubernetes(fact) if some_neighbour_fails(fact) => interval.min(NEIGHBOUR_RETRY),
        _ => interval,
    }
}

fn some_neighbour_fails(fact: &Fact<KubernetesFacts>) -> bool {
    let neighbours =
        fact.value().and_then(|k| k.network.value()).map_or(&[][..], |n| n.neighbours.as_slice());
    neighbours.iter().flat_map(|n| &n.tries).any(|t| t.failures > 0)
}

fn settled(fact: &Fact<CloudInitFacts>) -> bool {
    match fact {
        Fact::Known { value, .. } => {
            matches!(value.status, CloudInitStatus::Done | CloudInitStatus::Error | CloudInitStatus::Disabled)
        }
        Fact::Absent { .. } | Fact::NotApplicable { .. } => true,
        Fact::Unknown { .. } => false,
    }
}

/// `interval` shortened by up to a tenth, so that a fleet that booted together does not ask together for ever. A poll every
/// few seconds asks this node's own etcd and nobody else: there it would only be more polls.
fn jittered(interval: Duration, random: f64) -> Duration {
    if interval < JITTERED { interval } else { interval.mul_f64(1.0 - 0.1 * random) }
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{HostFacts, Timestamp};

    use super::*;

    fn pass() -> Ended {
        let reading = Reading::Host(Fact::<HostFacts>::absent("nowhere", Timestamp::default()));
        Ended { check: Check::Host, reading: Some(reading) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_runs_once_until_its_reading_arrives_and_then_at_its_cadence() {
        let settings = Settings::default();
        let mut schedule = Schedule::default();
        let start = Instant::now();
        assert!(schedule.apply(&settings, start).is_empty());
        assert_eq!(schedule.start_due(&settings, start).len(), settings.checks.len());
        assert!(schedule.start_due(&settings, start).is_empty(), "running checks are not begun again");
        assert_eq!(schedule.next(), None);
        for pass in [pass(), Ended { check: Check::Host, reading: None }] {
            assert!(schedule.ended(&pass, &settings, start));
            let next = schedule.next().unwrap() - start;
            assert!((54..=60).contains(&next.as_secs()), "{next:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_switched_off_while_it_runs_stays_off() {
        let mut settings = Settings::default();
        let mut schedule = Schedule::default();
        let now = Instant::now();
        schedule.apply(&settings, now);
        schedule.start_due(&settings, now);
        settings.checks.get_mut(&Check::Host).unwrap().enabled = false;
        assert_eq!(schedule.apply(&settings, now), [Check::Host]);
        assert!(!schedule.ended(&pass(), &settings, now));
    }

    #[test]
    fn cloud_init_is_looked_at_seldom_once_it_has_finished() {
        let settings = Settings::default();
        let at = Timestamp::default();
        let fact = |status| CloudInitFacts {
            status,
            extended_status: String::new(),
            exit_code: None,
            stage: String::new(),
            stage_seconds: None,
            errors: Vec::new(),
            recoverable_errors: BTreeMap::new(),
            datasource: String::new(),
            version: String::new(),
        };
        let reading = |status| Reading::CloudInit(Fact::known(fact(status), "status.json", at));
        assert_eq!(cadence(&reading(CloudInitStatus::Running), &settings).as_secs(), 30);
        assert_eq!(cadence(&reading(CloudInitStatus::Done), &settings).as_secs(), 600);
        let unknown = Reading::unknown(&Check::CloudInit, outrider_protocol::UnknownCause::TimedOut, "", at);
        assert_eq!(cadence(&unknown.unwrap(), &settings).as_secs(), 30);
    }
}
