//! The verdict over one node, to be read at 3 a.m.: the worst first, every message whole, advice right below.

use std::collections::BTreeMap;

use outrider_protocol::{Condition, NodeConditions, NotApplicable, Severity, Status};
use unicode_width::UnicodeWidthStr;

use super::{in_short, worst_first};
use crate::exit::{Exit, verdict};
use crate::output::{Screen, Tone, text};

/// How a report is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Columns of the terminal; `None` wraps nothing.
    pub(crate) width: Option<usize>,
    /// Colour may be used.
    pub(crate) colour: bool,
    /// Reasons and times as well.
    pub(crate) wide: bool,
}

impl Layout {
    /// For this screen.
    pub(crate) fn on(screen: &Screen, wide: bool) -> Self {
        Self { width: screen.width(), colour: screen.colour, wide }
    }
}

/// A summary line, the conditions, and what does not apply here.
pub(crate) fn node(conditions: &NodeConditions, layout: Layout) -> String {
    let name = if conditions.node.simulated {
        format!("{} (simulated)", conditions.node.name)
    } else {
        conditions.node.name.clone()
    };
    let mut out = format!("{}: {}\n", text::printable(&name), summary(&conditions.conditions, layout.colour));
    if !conditions.conditions.is_empty() {
        out.push('\n');
        out.push_str(&rows(&conditions.conditions, layout));
    }
    out.push_str(&where_to_read_on(&conditions.conditions, layout));
    if !conditions.not_applicable.is_empty() {
        out.push_str("\nNot applicable here:\n");
        out.push_str(&not_applicable(&conditions.not_applicable));
    }
    out
}

/// `1 error, 2 warnings, 4 ok`, or that all is well.
pub(crate) fn summary(conditions: &[Condition], colour: bool) -> String {
    if conditions.is_empty() {
        return "nothing was judged".to_owned();
    }
    let mut counts: BTreeMap<Severity, usize> = BTreeMap::new();
    for condition in conditions {
        *counts.entry(condition.severity).or_default() += 1;
    }
    let words = counts.iter().rev().map(|(severity, n)| {
        let words = match severity {
            Severity::Error => text::count(*n, "error"),
            Severity::Warn => text::count(*n, "warning"),
            Severity::Info => format!("{n} info"),
            Severity::Ok => format!("{n} ok"),
        };
        Tone::from(*severity).paint(&words, colour)
    });
    let mut out = words.collect::<Vec<_>>().join(", ");
    let unknown = conditions.iter().filter(|c| c.status == Status::Unknown).count();
    if unknown > 0 {
        out.push_str(&format!("; {unknown} of them could not be told"));
    } else if verdict(conditions) == Exit::Ok {
        out.push_str("; all is well");
    }
    out
}

/// One row a condition, advice below what is not ok.
pub(crate) fn rows(conditions: &[Condition], layout: Layout) -> String {
    let mut titles = vec!["SEVERITY", "CONDITION", "SUBJECT"];
    if layout.wide {
        titles.extend(["REASON", "SINCE"]);
    }
    let lines: Vec<(Vec<String>, &Condition)> = worst_first(conditions)
        .into_iter()
        .map(|condition| (cells(condition, layout.wide), condition))
        .collect();
    let width_of = |(i, title): (usize, &&str)| {
        lines.iter().map(|(cells, _)| cells[i].width()).chain([title.width()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = titles.iter().enumerate().map(width_of).collect();
    // A narrow terminal gets the message below its row: a column of a few words a line would take several screens.
    let beside: usize = widths.iter().map(|width| width + 2).sum();
    let below = layout.width.is_some_and(|width| width < beside + 60);
    let indent = if below { 10 } else { beside };
    let room = layout.width.map_or(usize::MAX, |width| width.saturating_sub(indent));

    let mut out = String::new();
    for (title, width) in titles.iter().zip(&widths) {
        out.push_str(&padded(title, *width));
    }
    out.push_str(if below { "" } else { "MESSAGE" });
    out = out.trim_end().to_owned() + "\n";
    let mut advised: Vec<&Condition> = Vec::new();
    for (cells, condition) in lines {
        let tone = Tone::from(condition.severity);
        let mut line = String::new();
        for (i, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let cell = padded(cell, *width);
            line.push_str(&if i == 0 { tone.paint(&cell, layout.colour) } else { cell });
        }
        // Wide has a column for it; here the runbook's name stands where the reading ends.
        let told = match layout.wide {
            true => condition.message.clone(),
            false => format!("{} ({})", condition.message.trim_end(), condition.reason),
        };
        let message = text::wrap(&text::printable(&told), room);
        let mut message = message.iter();
        if !below {
            line.push_str(message.next().map_or("", String::as_str));
        }
        out.push_str(line.trim_end());
        out.push('\n');
        let blank = " ".repeat(indent);
        for more in message {
            out.push_str(&format!("{blank}{more}\n"));
        }
        if condition.severity > Severity::Ok && !condition.advice.is_empty() {
            // What was advised above is not read again.
            let advice = match advised.iter().find(|above| above.advice == condition.advice) {
                Some(above) => format!("as above, for {}", in_short(above)),
                None => condition.advice.clone(),
            };
            advised.push(condition);
            let advice = text::wrap(&text::printable(&advice), room.saturating_sub(3));
            for (i, line) in advice.iter().enumerate() {
                let mark = if i == 0 { "-> " } else { "   " };
                out.push_str(&format!("{blank}{mark}{line}\n"));
            }
        }
    }
    out
}

/// The way from a reason to its runbook, below conditions of which one is not ok.
pub(crate) fn where_to_read_on(conditions: &[Condition], layout: Layout) -> String {
    if conditions.iter().all(|c| c.severity == Severity::Ok) {
        return String::new();
    }
    let text = "What a reason means and what to do: `outrider explain REASON`, docs/runbooks/REASON.md.";
    format!("\n{}\n", text::wrap(text, layout.width.unwrap_or(usize::MAX)).join("\n"))
}

fn cells(condition: &Condition, wide: bool) -> Vec<String> {
    let mut cells = vec![
        condition.severity.to_string(),
        format!("{}={}", condition.condition_type, condition.status),
        text::printable(text::or_dash(&condition.subject)),
    ];
    if wide {
        cells.push(text::printable(condition.reason.as_str()));
        cells.push(condition.last_transition_time.to_string());
    }
    cells
}

fn padded(cell: &str, width: usize) -> String {
    format!("{cell}{}  ", " ".repeat(width.saturating_sub(cell.width())))
}

fn not_applicable(items: &[NotApplicable]) -> String {
    let width = items.iter().map(|item| item.check.as_str().width()).max().unwrap_or(0);
    let line = |item: &NotApplicable| format!("  {:width$}  {}\n", item.check, text::printable(&item.reason));
    items.iter().map(line).collect()
}
