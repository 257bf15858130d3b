//! Plays a timeline twice, under Rancher's loops and under ours, and tells what became of every write.
//!
//! A verdict follows the rules over time ([`timeline`](super::timeline)), held against the play: a field that the
//! operator never sends is not lost by a push, whatever the window says. Rows R1 to R11 of `cases/hosted-sync-edges.md`
//! are the tests.
//!
//! What the play assumes, beside the facts: a change in the cloud lands when it is done; a push writes at once, or when
//! the update that is under way is done; a refresh takes no time.

pub mod scenario;
mod world;

use serde_json::Value;

use super::compare::{equal, pool_differences, pools_by_name};
use super::explain::Risk;
use super::fields::Equality;
use super::object::Origin;
use super::timeline::{self, Source, Verdict};
use super::{Document, Provider, known};
use scenario::{Actor, Event, Scenario};
use world::Played;

/// What became of all writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// One a write, in the order in which they were done.
    pub writes: Vec<Outcome>,
    /// Every refresh: when, and whether Rancher's gate and ours were open.
    pub refreshes: Vec<(i64, bool, bool)>,
}

/// What became of one write.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Which.
    pub event: Event,
    /// Under Rancher's loops.
    pub rancher: Fate,
    /// Under ours.
    pub outrider: Fate,
}

/// What became of a write under one set of rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Fate {
    /// The verdict.
    pub risk: Risk,
    /// Why, in words.
    pub reason: String,
    /// The cloud has the written value at the end.
    pub in_cloud: bool,
}

/// Plays `scenario`.
pub fn simulate(scenario: &Scenario) -> Simulation {
    let (theirs, ours) = (world::under_rancher(scenario), world::under_ours(scenario));
    let play = Play { scenario, theirs: &theirs, ours: &ours };
    let writes =
        scenario.events.iter().filter(|e| e.change.is_some()).map(|event| play.outcome(event)).collect();
    let refreshes =
        theirs.refreshes.iter().zip(&ours.refreshes).map(|(t, o)| (t.at, t.gate_open, o.gate_open));
    Simulation { writes, refreshes: refreshes.collect() }
}

struct Play<'a> {
    scenario: &'a Scenario,
    theirs: &'a Played,
    ours: &'a Played,
}

impl Play<'_> {
    fn outcome(&self, event: &Event) -> Outcome {
        let Some((field, value)) = &event.change else {
            // Only writes are asked for.
            return Outcome { event: event.clone(), rancher: nothing(), outrider: nothing() };
        };
        let provider = self.scenario.provider;
        let rancher = match event.actor {
            Actor::Cloud => self.cloud_write(event, field, value),
            _ => self.rancher_write(event, field, value),
        };
        let kept = holds(provider, &self.ours.live, field, value);
        let outrider = match event.actor {
            Actor::Cloud => self.cloud_write_under_ours(event, field, kept),
            _ => self.edit_under_ours(event, field, kept),
        };
        Outcome { event: event.clone(), rancher, outrider }
    }

    fn cloud_write(&self, event: &Event, field: &str, value: &Value) -> Fate {
        let in_cloud = holds(self.scenario.provider, &self.theirs.live, field, value);
        let fate = |risk, reason: String| Fate { risk, reason, in_cloud };
        if !self.managed_at(event.start, field) {
            return fate(Risk::Safe, "not managed: nobody else writes it".to_owned());
        }
        if let Some(edit) = self.imported_and_edited_before(event) {
            let reason = format!(
                "the cluster was imported and edited through Rancher at {}: its configuration is what counts",
                self.at(edit)
            );
            return fate(Risk::RolledBack, reason);
        }
        let facts = self.facts(event, field, true);
        match timeline::cloud_verdict(
            &facts,
            &self.theirs.refreshes,
            &self.theirs.pushes,
            self.scenario.until,
        ) {
            Verdict::Safe => fate(Risk::Safe, "nobody else writes it".to_owned()),
            Verdict::Superseded => {
                fate(Risk::Superseded, "Rancher set the same field on purpose afterwards".to_owned())
            }
            Verdict::AtRisk { until: Some(at) } => fate(
                Risk::AtRisk,
                format!("until the refresh at {} and {} s to settle", self.at(at), timeline::SETTLE_SECONDS),
            ),
            Verdict::AtRisk { until: None } => {
                fate(Risk::AtRisk, "no refresh took it over before the end".to_owned())
            }
            Verdict::Adopted => fate(Risk::Adopted, self.adopted_words(self.theirs, event, field)),
            Verdict::Lost { .. }
                if in_cloud && self.theirs.adopted.iter().any(|(at, f)| f == field && *at >= event.end) =>
            {
                fate(
                    Risk::Adopted,
                    format!(
                        "the operator does not send the older value; {}",
                        self.adopted_words(self.theirs, event, field)
                    ),
                )
            }
            Verdict::Lost { .. } if in_cloud => {
                fate(Risk::Safe, "no operator sends this field back".to_owned())
            }
            Verdict::Lost { destructive } => fate(Risk::Lost, self.lost_words(event, destructive)),
        }
    }

    fn lost_words(&self, event: &Event, destructive: bool) -> String {
        let push = self.theirs.pushes.iter().find(|p| p.at >= event.start);
        let by = push.map_or_else(String::new, |p| match p.sets.as_slice() {
            [] => format!("the restart at {} pushed the configuration as it was", self.at(p.at)),
            sets if event.change.as_ref().is_some_and(|(f, _)| sets.contains(f)) => format!(
                "the form saved at {} was opened at {}, before the change was done",
                self.at(p.at),
                self.at(p.seen_at)
            ),
            sets => {
                format!("the edit of {} at {} pushed the whole configuration", sets.join(", "), self.at(p.at))
            }
        });
        let next = self.theirs.refreshes.iter().find(|r| r.at >= event.end).map_or_else(
            || "before any refresh".to_owned(),
            |r| format!("before the refresh at {}", self.at(r.at)),
        );
        let members = if destructive { "; what it added is removed" } else { "" };
        format!("{by}, {next}{members}")
    }

    fn rancher_write(&self, event: &Event, field: &str, value: &Value) -> Fate {
        let in_cloud = holds(self.scenario.provider, &self.theirs.live, field, value);
        let facts = self.facts(event, field, false);
        let others = self.scenario.events.iter().filter(|e| e.actor == Actor::Cloud);
        let later: Vec<timeline::Event> =
            others.filter_map(|e| Some(self.facts(e, &e.change.as_ref()?.0, true))).collect();
        let confirmed = Some(event.visible);
        let fate = |risk, reason: &str| Fate { risk, reason: reason.to_owned(), in_cloud };
        match timeline::rancher_verdict(&facts, &later, &self.theirs.refreshes, confirmed) {
            Verdict::Lost { .. } => fate(
                Risk::Lost,
                "a refresh read the cloud before it showed the new value, took the old one for news and pushed it back",
            ),
            Verdict::Superseded => {
                fate(Risk::Superseded, "the same field was changed in the cloud afterwards")
            }
            _ if !in_cloud && self.edited_again(event, field) => {
                fate(Risk::Superseded, "the same field was edited again")
            }
            _ if !in_cloud && !value.is_null() => fate(Risk::Lost, "the operator does not send it"),
            _ => fate(Risk::Safe, "pushed"),
        }
    }

    fn cloud_write_under_ours(&self, event: &Event, field: &str, in_cloud: bool) -> Fate {
        let fate = |risk, reason: String| Fate { risk, reason, in_cloud };
        if !self.managed_at(event.start, field) {
            return fate(Risk::Safe, "not managed: nobody else writes it".to_owned());
        }
        if let Some((at, path, _, why)) =
            self.ours.held.iter().find(|(at, path, ..)| *at >= event.end && of(path, field))
        {
            return fate(Risk::WouldLose, format!("the push at {} was held for {path}: {why}", self.at(*at)));
        }
        if self.ours.adopted.iter().any(|(at, f)| f == field && *at >= event.end) {
            return fate(Risk::Adopted, self.adopted_words(self.ours, event, field));
        }
        match (in_cloud, self.edited_again(event, field)) {
            (_, true) => fate(Risk::Superseded, "set on purpose afterwards; the conflict is told".to_owned()),
            (true, false) => fate(Risk::AtRisk, "not yet taken over; no push of ours undoes it".to_owned()),
            (false, false) => fate(Risk::Superseded, "changed again in the cloud".to_owned()),
        }
    }

    fn edit_under_ours(&self, event: &Event, field: &str, in_cloud: bool) -> Fate {
        let fate = |risk, reason: String| Fate { risk, reason, in_cloud };
        let held = self.ours.held.iter().find(|(at, path, ..)| *at >= event.end && of(path, field));
        match (in_cloud, held) {
            (true, _) => {
                fate(Risk::Safe, "pushed, and counted as applied only when a read showed it".to_owned())
            }
            (false, Some((at, path, _, why))) => {
                fate(Risk::WouldLose, format!("held at {} for {path}: {why}", self.at(*at)))
            }
            (false, None) => fate(Risk::Superseded, "the same field was changed afterwards".to_owned()),
        }
    }

    fn adopted_words(&self, played: &Played, event: &Event, field: &str) -> String {
        let at = played.adopted.iter().find(|(at, f)| f == field && *at >= event.end).map(|(at, _)| *at);
        let at =
            at.or_else(|| played.refreshes.iter().find(|r| r.gate_open && r.at >= event.end).map(|r| r.at));
        at.map_or_else(
            || "taken over by a refresh".to_owned(),
            |at| format!("taken over by the refresh at {}", self.at(at)),
        )
    }

    /// S manages the field: it was desired at the beginning, or by an edit before `start`.
    fn managed_at(&self, start: i64, field: &str) -> bool {
        let edits = self.scenario.events.iter().filter(|e| e.actor == Actor::Rancher && e.end <= start);
        let last = edits.filter_map(|e| e.change.as_ref()).rfind(|(f, _)| f == field);
        match last {
            Some((_, value)) => !value.is_null(),
            None => known(&self.scenario.spec, field).is_some(),
        }
    }

    fn imported_and_edited_before(&self, event: &Event) -> Option<i64> {
        let edits = self.scenario.events.iter().filter(|e| e.actor == Actor::Rancher && e.end <= event.end);
        (self.scenario.origin == Origin::Imported).then(|| edits.map(|e| e.end).max()).flatten()
    }

    fn edited_again(&self, event: &Event, field: &str) -> bool {
        let later = self
            .scenario
            .events
            .iter()
            .filter(|e| e.actor == Actor::Rancher && e.end >= event.end && *e != event);
        later.filter_map(|e| e.change.as_ref()).any(|(f, _)| f == field)
    }

    /// The event as the rules over time see it.
    fn facts(&self, event: &Event, field: &str, cloud: bool) -> timeline::Event {
        let exact = matches!(field, "tags" | "labels");
        let pools = field == self.scenario.provider.pool_list();
        timeline::Event {
            source: if cloud { Source::Cloud } else { Source::Rancher },
            field: field.to_owned(),
            start: event.start,
            end: event.end,
            managed: self.managed_at(event.start, field),
            added_member: exact || pools,
        }
    }

    fn at(&self, seconds: i64) -> String {
        scenario::show(seconds, self.scenario.time_of_day)
    }
}

fn nothing() -> Fate {
    Fate { risk: Risk::Safe, reason: String::new(), in_cloud: true }
}

/// Whether `path` is the field, or a pool of it.
fn of(path: &str, field: &str) -> bool {
    path == field || path.split_once('/').is_some_and(|(list, _)| list == field)
}

/// Whether the cloud has the written value: for pools, every one of them as it was written.
fn holds(provider: Provider, live: &Document, field: &str, value: &Value) -> bool {
    let (Some(spec), Some(live)) = (provider.field(field), live.get(field)) else { return value.is_null() };
    if spec.equality != Equality::Pools || value.is_null() {
        return value == live || (!value.is_null() && !live.is_null() && equal(provider, spec, value, live));
    }
    match (pools_by_name(provider, value), pools_by_name(provider, live)) {
        (Ok(written), Ok(live)) => {
            written.len() == live.len()
                && written.iter().all(|(name, pool)| {
                    live.get(name).is_some_and(|there| pool_differences(provider, pool, there).is_empty())
                })
        }
        _ => value == live,
    }
}

#[cfg(test)]
mod tests;
