//! The cloud and the desired side while a timeline is played, once under Rancher's loops and once under ours.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::scenario::{Actor, Event, Scenario};
use crate::hosted::plan::{Action, Hold, Input, Plan, plan};
use crate::hosted::rancher::{self, push::Does};
use crate::hosted::refresh::{Reading, Record, refresh};
use crate::hosted::timeline::{Push, Refresh};
use crate::hosted::{Document, Provider, compare::same_document, effective, object::Origin};

/// Seconds after which Rancher's handler counts an edit as applied (`facts/hosted-sync.md`, section 2.2).
const HANDLER_SECONDS: i64 = 10;

/// The cloud: its true state, and what a read shows for some seconds after a call.
struct Cloud {
    live: Document,
    lagging: Vec<(i64, String, Option<Value>)>,
    busy: Vec<(i64, i64)>,
}

impl Cloud {
    fn new(scenario: &Scenario) -> Self {
        let busy = scenario.events.iter().filter(|e| e.actor == Actor::Cloud).map(|e| (e.start, e.end));
        Self { live: scenario.upstream.clone(), lagging: Vec::new(), busy: busy.collect() }
    }

    /// What a read at `now` shows.
    fn seen(&self, now: i64) -> Document {
        let mut seen = self.live.clone();
        for (_, field, old) in self.lagging.iter().filter(|(until, ..)| now < *until) {
            match old {
                Some(old) => seen.insert(field.clone(), old.clone()),
                None => seen.remove(field),
            };
        }
        seen
    }

    fn in_progress(&self, now: i64) -> bool {
        self.busy.iter().any(|(start, end)| *start <= now && now < *end)
    }

    /// The end of the update that is under way at `now`.
    fn free_at(&self, now: i64) -> i64 {
        let ends = self.busy.iter().filter(|(start, end)| *start <= now && now < *end).map(|(_, end)| *end);
        ends.max().unwrap_or(now)
    }

    fn set(&mut self, provider: Provider, path: &str, value: &Value) {
        match path.split_once('/') {
            None => {
                self.live.insert(path.to_owned(), value.clone());
            }
            Some((list, name)) => set_pool(provider, &mut self.live, (list, name), value),
        }
    }
}

/// Writes one pool: null deletes it, an object is laid over what is there.
fn set_pool(provider: Provider, document: &mut Document, (list, name): (&str, &str), value: &Value) {
    let entry = document.entry(list.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
    if !entry.is_array() {
        *entry = Value::Array(Vec::new());
    }
    let Some(pools) = entry.as_array_mut() else { return };
    let named = |pool: &Value| pool.get(provider.pool_name()).and_then(Value::as_str) == Some(name);
    match (pools.iter().position(named), value) {
        (Some(index), Value::Null) => {
            pools.remove(index);
        }
        (Some(index), Value::Object(new)) => {
            if let Some(pool) = pools[index].as_object_mut() {
                pool.extend(new.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), v.clone())));
            }
        }
        (None, Value::Object(_)) => pools.push(value.clone()),
        _ => {}
    }
}

/// What a play left behind.
pub(super) struct Played {
    /// The cloud at the end.
    pub(super) live: Document,
    /// S at the end.
    pub(super) spec: Document,
    /// Every refresh, with its gate.
    pub(super) refreshes: Vec<Refresh>,
    /// Every push that was begun, at the moment its reason came.
    pub(super) pushes: Vec<Push>,
    /// Fields and pools that a push held, with the time and the reason.
    pub(super) held: Vec<(i64, String, Hold, String)>,
    /// Fields that a refresh took over, with the time.
    pub(super) adopted: Vec<(i64, String)>,
}

/// What happens at one moment. The order of the variants is the order at the same second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A change in the cloud is done.
    Lands(usize),
    /// A form is opened, or the operator is restarted.
    Opens(usize),
    /// A form is saved.
    Saves(usize),
    Reads,
}

fn steps(scenario: &Scenario) -> Vec<(i64, Step)> {
    let mut steps = Vec::new();
    for (index, event) in scenario.events.iter().enumerate() {
        match event.actor {
            Actor::Cloud => steps.push((event.end, Step::Lands(index))),
            Actor::Rancher | Actor::Restart => {
                steps.push((event.start, Step::Opens(index)));
                steps.push((event.end, Step::Saves(index)));
            }
            Actor::Refresh => steps.push((event.end, Step::Reads)),
        }
    }
    let mut at = scenario.first_refresh;
    while at <= scenario.until {
        steps.push((at, Step::Reads));
        at = at.saturating_add(scenario.interval);
    }
    steps.sort();
    steps
}

/// Whether a push that waits until `at` goes before `step`: what lands at the same second is what it waits for.
fn due(at: i64, now: i64, step: Step) -> bool {
    at < now || (at == now && !matches!(step, Step::Lands(_)))
}

fn push_of(event: &Event) -> Push {
    let sets = event.change.iter().map(|(field, _)| field.clone()).collect();
    Push { at: event.end, sets, seen_at: event.start }
}

/// Plays the timeline under Rancher's loops.
pub(super) fn under_rancher(scenario: &Scenario) -> Played {
    let mut cloud = Cloud::new(scenario);
    let mut spec = scenario.spec.clone();
    // The spec that will count as applied, and from when.
    let mut applied = (i64::MIN, spec.clone());
    let mut edited = false;
    let mut waiting: Option<i64> = None;
    let mut out = Played::new();
    for (now, step) in steps(scenario) {
        if let Some(at) = waiting.filter(|at| due(*at, now, step)) {
            waiting = None;
            send_as_rancher(scenario, &spec, &mut cloud);
            applied = (at + HANDLER_SECONDS, spec.clone());
        }
        match step {
            Step::Lands(index) => land(scenario, &mut cloud, index),
            Step::Opens(_) => {}
            Step::Saves(index) => {
                let event = &scenario.events[index];
                if let Some((field, value)) = &event.change {
                    edited = true;
                    lag(&mut cloud, event, field);
                    spec.insert(field.clone(), value.clone());
                }
                out.pushes.push(push_of(event));
                match cloud.in_progress(now) {
                    true => waiting = Some(cloud.free_at(now)),
                    false => {
                        send_as_rancher(scenario, &spec, &mut cloud);
                        applied = (now + HANDLER_SECONDS, spec.clone());
                    }
                }
            }
            Step::Reads => {
                let open = now >= applied.0 && applied.1 == spec;
                out.refreshes.push(Refresh { at: now, gate_open: open });
                let seen = cloud.seen(now);
                if scenario.origin == Origin::Imported && edited {
                    // What is desired counts from the first edit on: a change in the cloud is rolled back.
                    send_as_rancher(scenario, &spec, &mut cloud);
                } else if open {
                    let after = rancher::refresh(&spec, Some(&spec), &seen);
                    for field in after.keys().filter(|f| after.get(*f) != spec.get(*f)) {
                        out.adopted.push((now, field.clone()));
                    }
                    if after != spec {
                        spec = after;
                        send_as_rancher(scenario, &spec, &mut cloud);
                        applied = (now, spec.clone());
                    }
                }
            }
        }
    }
    if waiting.is_some() {
        send_as_rancher(scenario, &spec, &mut cloud);
    }
    out.live = cloud.live;
    out.spec = spec;
    out
}

/// For some seconds after the call reads show the value from before it.
fn lag(cloud: &mut Cloud, event: &Event, field: &str) {
    if event.visible > event.end {
        cloud.lagging.push((event.visible, field.to_owned(), cloud.live.get(field).cloned()));
    }
}

fn land(scenario: &Scenario, cloud: &mut Cloud, index: usize) {
    if let Some((field, value)) = &scenario.events[index].change {
        cloud.set(scenario.provider, field, value);
    }
}

/// The operator compares with the cloud's true state: it reads it live, and what lags there lags for the reader of the
/// next refresh only where the timeline says so.
fn send_as_rancher(scenario: &Scenario, spec: &Document, cloud: &mut Cloud) {
    let provider = scenario.provider;
    for (path, step) in rancher::push::push(provider, scenario.origin, spec, &cloud.live) {
        let value = match path.split_once('/') {
            None => spec.get(&path).cloned().unwrap_or(Value::Null),
            Some((list, name)) => pool(provider, spec, list, name),
        };
        match step.does {
            Does::Update | Does::Create => cloud.set(provider, &path, &value),
            Does::Delete => cloud.set(provider, &path, &Value::Null),
            Does::Fail => return,
            Does::Nothing => {}
        }
    }
}

fn pool(provider: Provider, document: &Document, list: &str, name: &str) -> Value {
    let pools = document.get(list).and_then(Value::as_array).into_iter().flatten();
    let named = |pool: &&Value| pool.get(provider.pool_name()).and_then(Value::as_str) == Some(name);
    pools.into_iter().find(named).cloned().unwrap_or(Value::Null)
}

/// Plays the timeline under our rules.
pub(super) fn under_ours(scenario: &Scenario) -> Played {
    let provider = scenario.provider;
    let mut cloud = Cloud::new(scenario);
    let mut desired = Desired {
        spec: scenario.spec.clone(),
        upstream: scenario.upstream.clone(),
        applied: Some(scenario.spec.clone()),
        edited: BTreeMap::new(),
    };
    let mut opened: BTreeMap<usize, Document> = BTreeMap::new();
    let mut waiting: Option<i64> = None;
    let mut out = Played::new();
    for (now, step) in steps(scenario) {
        if let Some(at) = waiting.filter(|at| due(*at, now, step)) {
            waiting = None;
            desired.push(provider, &mut cloud, at, &mut out);
        }
        match step {
            Step::Lands(index) => land(scenario, &mut cloud, index),
            Step::Opens(index) => {
                opened.insert(index, effective(&desired.spec, &desired.upstream));
            }
            Step::Saves(index) => {
                let event = &scenario.events[index];
                if let Some((field, value)) = &event.change {
                    let saw =
                        opened.remove(&index).and_then(|d| d.get(field).cloned()).unwrap_or(Value::Null);
                    lag(&mut cloud, event, field);
                    desired.spec.insert(field.clone(), value.clone());
                    desired.edited.insert(field.clone(), saw);
                }
                out.pushes.push(push_of(event));
                match cloud.in_progress(now) {
                    true => waiting = Some(cloud.free_at(now)),
                    false => desired.push(provider, &mut cloud, now, &mut out),
                }
            }
            Step::Reads => desired.refresh(provider, &cloud, now, &mut out),
        }
    }
    if waiting.is_some() {
        desired.push(provider, &mut cloud, scenario.until, &mut out);
    }
    out.live = cloud.live;
    out.spec = desired.spec;
    out
}

/// The desired side under our rules.
struct Desired {
    spec: Document,
    upstream: Document,
    applied: Option<Document>,
    edited: BTreeMap<String, Value>,
}

impl Desired {
    /// What is left to send, by what a read at `now` shows.
    fn plan(&self, provider: Provider, cloud: &Cloud, now: i64, in_progress: bool) -> Plan {
        plan(&Input {
            provider,
            spec: &self.spec,
            live: &cloud.seen(now),
            in_progress,
            edited: &self.edited,
            base: self.applied.as_ref(),
            confirmed: &BTreeSet::new(),
            last_push: None,
        })
    }

    fn push(&mut self, provider: Provider, cloud: &mut Cloud, now: i64, out: &mut Played) {
        let planned = self.plan(provider, cloud, now, false);
        for write in &planned.writes {
            let gone = write.action == Action::DeletePool;
            cloud.set(provider, &write.path, if gone { &Value::Null } else { &write.to });
        }
        for held in planned.held {
            out.held.push((now, held.write.path, held.hold, held.reason));
        }
        self.settle(provider, cloud, now);
    }

    /// A becomes S only when a read shows that nothing is left to send.
    fn settle(&mut self, provider: Provider, cloud: &Cloud, now: i64) {
        let left = self.plan(provider, cloud, now, cloud.in_progress(now));
        if !left.requeue && left.writes.is_empty() && left.held.is_empty() {
            self.applied = Some(self.spec.clone());
            self.edited.clear();
        }
    }

    fn refresh(&mut self, provider: Provider, cloud: &Cloud, now: i64, out: &mut Played) {
        if !self.applied.as_ref().is_some_and(|applied| same_document(provider, applied, &self.spec)) {
            self.settle(provider, cloud, now);
        }
        let reading = Reading::Read { upstream: cloud.seen(now), in_progress: cloud.in_progress(now) };
        let after = refresh(provider, &self.spec, &self.upstream, self.applied.as_ref(), &reading);
        out.refreshes.push(Refresh { at: now, gate_open: after.skipped.is_none() });
        for record in &after.records {
            if let Record::Adopted { field, .. } = record {
                out.adopted.push((now, field.clone()));
            }
        }
        (self.spec, self.upstream, self.applied) = (after.spec, after.upstream, after.applied);
    }
}

impl Played {
    fn new() -> Self {
        Self {
            live: Document::new(),
            spec: Document::new(),
            refreshes: Vec::new(),
            pushes: Vec::new(),
            held: Vec::new(),
            adopted: Vec::new(),
        }
    }
}
