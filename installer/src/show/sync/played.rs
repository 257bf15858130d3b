//! `outrider sync simulate`: what became of each write.

use outrider_protocol::TypeMeta;
use outrider_sync::hosted::simulate::scenario::{Scenario, show};
use outrider_sync::hosted::simulate::{Fate, Simulation};
use serde::Serialize;
use serde_json::Value;

use super::{tone, value};
use crate::output::{Cell, Column, Table, Tone, text};
use crate::show::report::Layout;

/// `kind: SyncSimulation`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Played {
    #[serde(flatten)]
    meta: TypeMeta,
    provider: &'static str,
    origin: &'static str,
    interval_seconds: i64,
    until: String,
    refreshes: Vec<Refresh>,
    events: Vec<PlayedEvent>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Refresh {
    at: String,
    rancher_gate_open: bool,
    outrider_gate_open: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlayedEvent {
    source: String,
    start: String,
    end: String,
    field: String,
    value: Value,
    rancher: PlayedFate,
    outrider: PlayedFate,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PlayedFate {
    verdict: &'static str,
    in_cloud_at_end: bool,
    reason: String,
    #[serde(skip)]
    tone: Tone,
}

impl PlayedFate {
    fn new(fate: &Fate) -> Self {
        Self {
            verdict: fate.risk.as_str(),
            in_cloud_at_end: fate.in_cloud,
            reason: fate.reason.clone(),
            tone: tone(fate.risk),
        }
    }

    fn cell(&self) -> Cell {
        Cell::toned(self.verdict, self.tone)
    }
}

impl Played {
    /// The play as a document.
    pub(crate) fn new(scenario: &Scenario, simulation: &Simulation) -> Self {
        let at = |seconds| show(seconds, scenario.time_of_day);
        let refreshes = simulation.refreshes.iter().map(|(when, rancher, outrider)| Refresh {
            at: at(*when),
            rancher_gate_open: *rancher,
            outrider_gate_open: *outrider,
        });
        let events = simulation.writes.iter().filter_map(|outcome| {
            let (field, value) = outcome.event.change.clone()?;
            Some(PlayedEvent {
                source: outcome.event.source.clone(),
                start: at(outcome.event.start),
                end: at(outcome.event.end),
                field,
                value,
                rancher: PlayedFate::new(&outcome.rancher),
                outrider: PlayedFate::new(&outcome.outrider),
            })
        });
        Self {
            meta: TypeMeta::new("SyncSimulation"),
            provider: scenario.provider.as_str(),
            origin: scenario.origin.as_str(),
            interval_seconds: scenario.interval,
            until: at(scenario.until),
            refreshes: refreshes.collect(),
            events: events.collect(),
        }
    }

    /// Writes that are lost under Rancher's loops, one a line.
    pub(crate) fn names(&self) -> String {
        let lost = self.events.iter().filter(|e| matches!(e.rancher.verdict, "LOST" | "ROLLED BACK"));
        lost.map(|e| format!("{}/{}/{}\n", e.source, e.end, e.field)).collect()
    }
}

/// The play for people: one row a write, reasons below.
pub(crate) fn table(play: &Played, layout: Layout) -> String {
    let columns = vec![
        Column::new("DONE", |e: &PlayedEvent| e.end.clone()),
        Column::new("SOURCE", |e: &PlayedEvent| e.source.clone()),
        Column::new("FIELD", |e: &PlayedEvent| e.field.clone()),
        Column::new("VALUE", |e: &PlayedEvent| value(&e.field, &e.value)),
        Column::new("RANCHER", |e: &PlayedEvent| e.rancher.cell()),
        Column::new("OUTRIDER", |e: &PlayedEvent| e.outrider.cell()),
    ];
    let mut table = Table::new(columns, layout.wide);
    table.limit = layout.width;
    table.colour = layout.colour;
    let rendered = table.render(&play.events);
    let mut lines = rendered.lines();
    let mut out = format!(
        "{}, {}; a refresh every {} s, played until {}\n\n",
        play.provider, play.origin, play.interval_seconds, play.until
    );
    out.extend(lines.next().map(|title| format!("{title}\n")));
    let room = layout.width.unwrap_or(120).saturating_sub(14);
    for (line, event) in lines.zip(&play.events) {
        out.push_str(line);
        out.push('\n');
        for (who, fate) in [("Rancher", &event.rancher), ("Outrider", &event.outrider)] {
            let kept = if fate.in_cloud_at_end { "" } else { "; the cloud does not have it at the end" };
            for (index, part) in
                text::wrap(&text::printable(&format!("{}{kept}", fate.reason)), room).iter().enumerate()
            {
                let who = if index == 0 { format!("{who}:") } else { String::new() };
                out.push_str(&format!("    {who:<10}{part}\n"));
            }
        }
    }
    let lost = play.events.iter().filter(|e| matches!(e.rancher.verdict, "LOST" | "ROLLED BACK")).count();
    out.push_str(&format!(
        "\n{} of {} lost under Rancher's loops\n",
        lost,
        text::count(play.events.len(), "write")
    ));
    out
}
