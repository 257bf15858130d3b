//! A timeline as a person writes it, read strictly: an unknown key, a time of another kind or a field that the provider
//! does not have is an error that names its place.

use serde_json::Value;

use crate::hosted::explain::DEFAULT_INTERVAL_SECONDS;
use crate::hosted::fields::shape;
use crate::hosted::object::{self, Origin};
use crate::hosted::{Document, Provider};

/// Most events of a timeline, and most refreshes that are played.
pub const MOST_EVENTS: usize = 10_000;

/// What is played.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Whose cluster.
    pub provider: Provider,
    /// Where it came from.
    pub origin: Origin,
    /// Seconds between two refreshes.
    pub interval: i64,
    /// When the first refresh reads the cloud.
    pub first_refresh: i64,
    /// When the play ends.
    pub until: i64,
    /// S at the beginning, applied.
    pub spec: Document,
    /// The cloud at the beginning.
    pub upstream: Document,
    /// What happens, in order of its end.
    pub events: Vec<Event>,
    /// Times are times of one day.
    pub time_of_day: bool,
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// A person or a tool in the cloud.
    Cloud,
    /// A person or a tool in Rancher.
    Rancher,
    /// The operator is restarted, and pushes what it has.
    Restart,
    /// Somebody forces a refresh.
    Refresh,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Who does it.
    pub actor: Actor,
    /// The word it was written with.
    pub source: String,
    /// When it begins: an update in the cloud, or a form that is opened.
    pub start: i64,
    /// When it is done: the update has ended, or the form was saved.
    pub end: i64,
    /// The field, and its new value; none for restarts and refreshes.
    pub change: Option<(String, Value)>,
    /// For a change in Rancher: when a read of the cloud shows it first, where that is later than its end.
    pub visible: i64,
}

const KEYS: &[&str] = &[
    "apiVersion",
    "kind",
    "provider",
    "origin",
    "interval",
    "firstRefresh",
    "until",
    "desired",
    "upstream",
    "events",
];
const EVENT_KEYS: &[&str] = &["source", "start", "end", "field", "value", "visible"];

/// Reads a timeline; `base` is the cluster it happens to, where one is given beside it.
pub fn read(document: &Value, base: Option<&object::Hosted>) -> Result<Scenario, String> {
    let map = document
        .as_object()
        .ok_or("the timeline is no object; it has the keys provider, desired and events")?;
    only(map, KEYS, "the timeline")?;
    let provider = match map.get("provider").and_then(Value::as_str).map(str::to_ascii_uppercase) {
        Some(word) => match word.as_str() {
            "EKS" => Provider::Eks,
            "AKS" => Provider::Aks,
            "GKE" => Provider::Gke,
            _ => return Err(format!("provider is {word:?}; expected EKS, AKS or GKE")),
        },
        None => base.map(|b| b.provider).ok_or("provider is missing; expected EKS, AKS or GKE")?,
    };
    let origin = match map.get("origin").and_then(Value::as_str) {
        None => base.map_or(Origin::Created, |b| b.origin),
        Some("created") => Origin::Created,
        Some("imported") => Origin::Imported,
        Some(other) => return Err(format!("origin is {other:?}; expected created or imported")),
    };
    let spec = part(map, "desired", base.map(|b| b.spec.clone()))?.ok_or("desired is missing")?;
    let upstream =
        part(map, "upstream", base.and_then(|b| b.upstream.clone()))?.unwrap_or_else(|| spec.clone());
    for (name, document) in [("desired", &spec), ("upstream", &upstream)] {
        if let Some(misfit) = shape::misfits(provider, document).first() {
            return Err(format!("{name}.{} {}", misfit.path, misfit.reason));
        }
    }
    let mut clock = Clock::default();
    let items = map.get("events").and_then(Value::as_array).ok_or("events is missing; expected a list")?;
    if items.len() > MOST_EVENTS {
        return Err(format!("{} events; at most {MOST_EVENTS} are played", items.len()));
    }
    let mut events = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        events.push(event(item, provider, &mut clock).map_err(|e| format!("event {}: {e}", index + 1))?);
    }
    events.sort_by_key(|e| e.end);
    let interval = interval(map.get("interval"))?;
    let first = events.iter().map(|e| e.start).min().ok_or("events is empty")?;
    let first_refresh = match map.get("firstRefresh") {
        Some(value) => clock.read(value).map_err(|e| format!("firstRefresh: {e}"))?,
        None => first,
    };
    let last = events.iter().map(|e| e.end.max(e.visible)).max().unwrap_or(first).max(first_refresh);
    let until = match map.get("until") {
        Some(value) => clock.read(value).map_err(|e| format!("until: {e}"))?,
        // Long enough for the refresh that settles the last event.
        None => last.saturating_add(2 * interval),
    };
    if until < last {
        return Err(format!(
            "until is {}, before the last event ends at {}",
            clock.show(until),
            clock.show(last)
        ));
    }
    if (until.saturating_sub(first_refresh)) / interval > MOST_EVENTS as i64 {
        return Err(format!(
            "more than {MOST_EVENTS} refreshes lie between firstRefresh and until; play a shorter time"
        ));
    }
    let time_of_day = clock.kind == Some(Kind::TimeOfDay);
    Ok(Scenario { provider, origin, interval, first_refresh, until, spec, upstream, events, time_of_day })
}

fn only(map: &Document, keys: &[&str], what: &str) -> Result<(), String> {
    match map.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(key) => Err(format!("{what} has no key {key:?}; it has {}", keys.join(", "))),
        None => Ok(()),
    }
}

fn part(map: &Document, key: &str, base: Option<Document>) -> Result<Option<Document>, String> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(base),
        Some(Value::Object(document)) => Ok(Some(document.clone())),
        Some(_) => Err(format!("{key} is no object of fields")),
    }
}

fn interval(value: Option<&Value>) -> Result<i64, String> {
    let seconds = match value {
        None | Some(Value::Null) => Some(DEFAULT_INTERVAL_SECONDS),
        Some(Value::Number(n)) => n.as_i64(),
        Some(Value::String(text)) => match text.trim() {
            text if text.ends_with('s') => text.trim_end_matches('s').parse().ok(),
            text if text.ends_with('m') => {
                text.trim_end_matches('m').parse::<i64>().ok().and_then(|m| m.checked_mul(60))
            }
            text => text.parse().ok(),
        },
        Some(_) => None,
    };
    match seconds {
        Some(seconds) if (1..=86_400).contains(&seconds) => Ok(seconds),
        _ => Err("interval is no time between 1s and 24h; write for example 300s or 5m".to_owned()),
    }
}

fn event(item: &Value, provider: Provider, clock: &mut Clock) -> Result<Event, String> {
    let map = item.as_object().ok_or("is no object; expected source, start, end, field and value")?;
    only(map, EVENT_KEYS, "an event")?;
    let source = map.get("source").and_then(Value::as_str).ok_or("source is missing")?;
    let actor = match source {
        "cloud" | "console" | "terraform" => Actor::Cloud,
        "rancher" => Actor::Rancher,
        "restart" => Actor::Restart,
        "refresh" => Actor::Refresh,
        other => {
            return Err(format!(
                "source is {other:?}; expected cloud, console or terraform, rancher, restart or refresh"
            ));
        }
    };
    let mut time =
        |key: &str| map.get(key).map(|v| clock.read(v).map_err(|e| format!("{key}: {e}"))).transpose();
    let start = time("start")?.ok_or("start is missing")?;
    let end = time("end")?.unwrap_or(start);
    let visible = time("visible")?.unwrap_or(end);
    if end < start || visible < end {
        return Err("ends before it starts".to_owned());
    }
    let change = match actor {
        Actor::Restart | Actor::Refresh => None,
        Actor::Cloud | Actor::Rancher => Some(change(map, provider)?),
    };
    Ok(Event { actor, source: source.to_owned(), start, end, change, visible })
}

fn change(map: &Document, provider: Provider) -> Result<(String, Value), String> {
    let name = map.get("field").and_then(Value::as_str).ok_or("field is missing")?;
    let value = map.get("value").ok_or("value is missing; null means unmanaged, or not told")?.clone();
    if provider.field(name).is_none() {
        let known: Vec<&str> = provider.fields().iter().map(|f| f.name).collect();
        return Err(format!("{} has no field {name:?}; it has {}", provider.as_str(), known.join(", ")));
    }
    let alone = Document::from_iter([(name.to_owned(), value.clone())]);
    match shape::misfits(provider, &alone).first() {
        Some(misfit) => Err(format!("{} {}", misfit.path, misfit.reason)),
        None => Ok((name.to_owned(), value)),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    TimeOfDay,
    Absolute,
}

/// Reads times, all of one kind: `11:01`, `11:01:30`, or RFC 3339.
#[derive(Default)]
struct Clock {
    kind: Option<Kind>,
}

impl Clock {
    fn read(&mut self, value: &Value) -> Result<i64, String> {
        let text = value
            .as_str()
            .ok_or_else(|| format!("{value} is no time; write \"11:01\", \"11:01:30\" or RFC 3339"))?;
        let (kind, seconds) = match time_of_day(text) {
            Some(seconds) => (Kind::TimeOfDay, seconds),
            None => {
                let at: outrider_protocol::Timestamp = text
                    .parse()
                    .map_err(|_| format!("{text:?} is no time; write \"11:01\", \"11:01:30\" or RFC 3339"))?;
                (Kind::Absolute, at.as_millis().div_euclid(1000))
            }
        };
        if *self.kind.get_or_insert(kind) != kind {
            return Err(format!(
                "{text:?} is of another kind than the times before it; use one kind for all"
            ));
        }
        Ok(seconds)
    }

    fn show(&self, seconds: i64) -> String {
        show(seconds, self.kind == Some(Kind::TimeOfDay))
    }
}

/// A time as it was written: `11:01:00`, or RFC 3339.
pub fn show(seconds: i64, time_of_day: bool) -> String {
    if !time_of_day {
        return outrider_protocol::Timestamp::from_seconds(seconds).to_string().replace(".000Z", "Z");
    }
    // The play may run past midnight.
    let (day, s) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let clock = format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
    if day == 0 { clock } else { format!("{clock}+{day}d") }
}

fn time_of_day(text: &str) -> Option<i64> {
    let parts: Vec<&str> = text.trim().split(':').collect();
    let number = |part: &str, below: i64| -> Option<i64> {
        let digits = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        part.parse().ok().filter(|n| digits && (0..below).contains(n))
    };
    match parts.as_slice() {
        [h, m] => Some(number(h, 24)? * 3600 + number(m, 60)? * 60),
        [h, m, s] => Some(number(h, 24)? * 3600 + number(m, 60)? * 60 + number(s, 60)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(key: &str, value: Value) -> Value {
        let mut timeline = json!({
            "provider": "eks", "desired": {"privateAccess": false},
            "events": [{"source": "console", "start": "11:01", "field": "privateAccess", "value": true}],
        });
        timeline[key] = value;
        timeline
    }

    #[test]
    fn what_is_left_out_has_a_meaning() {
        let scenario = read(&with("firstRefresh", json!("11:00")), None).unwrap();
        assert_eq!((scenario.first_refresh, scenario.interval), (39_600, 300));
        assert_eq!(scenario.until, 39_660 + 600);
        assert_eq!(scenario.upstream, scenario.spec);
        assert!(scenario.time_of_day);
        assert_eq!(show(scenario.until, true), "11:11:00");
        assert_eq!(show(86_400 + 60, true), "00:01:00+1d");
    }

    #[test]
    fn what_cannot_be_played_is_named_with_its_place() {
        let event = |event: Value| with("events", json!([event]));
        for (timeline, want) in [
            (json!([]), "is no object"),
            (with("evnts", json!([])), "no key \"evnts\""),
            (with("provider", json!("OKE")), "expected EKS, AKS or GKE"),
            (with("origin", json!("found")), "expected created or imported"),
            (with("desired", json!(3)), "desired is no object"),
            (with("desired", json!({"privateAccess": "no"})), "desired.privateAccess is the text \"no\""),
            (with("interval", json!("0s")), "between 1s and 24h"),
            (with("events", json!([])), "events is empty"),
            (with("until", json!("10:00")), "before the last event ends at 11:01:00"),
            (with("until", json!("2026-11-29T11:00:00Z")), "of another kind"),
            (event(json!({"source": "moon", "start": "11:01"})), "event 1: source is \"moon\""),
            (event(json!({"source": "cloud", "start": 661})), "event 1: start: 661 is no time"),
            (event(json!({"source": "cloud", "start": "25:01"})), "\"25:01\" is no time"),
            (event(json!({"source": "cloud", "start": "11:01", "end": "11:00"})), "ends before it starts"),
            (
                event(json!({"source": "cloud", "start": "11:01", "field": "tag", "value": 1})),
                "EKS has no field \"tag\"",
            ),
            (event(json!({"source": "cloud", "start": "11:01", "field": "tags"})), "value is missing"),
            (
                event(json!({"source": "cloud", "start": "11:01", "field": "tags", "value": "x"})),
                "expected a map of texts",
            ),
        ] {
            let error = read(&timeline, None).unwrap_err();
            assert!(error.contains(want), "{want:?} is not in {error:?}");
        }
    }
}
