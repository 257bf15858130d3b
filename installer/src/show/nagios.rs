//! One line and performance data, as monitoring systems read it from a plugin.

use outrider_protocol::{NodeConditions, NodeFacts, Severity, Status};

use super::{in_short, worst_first};
use crate::exit::{Exit, of_one, verdict, worse};
use crate::output::text;

/// One number to draw: label, value with its unit, and `;warn;crit;min;max`.
struct Perf {
    label: String,
    value: String,
    limits: String,
}

impl Perf {
    fn new(label: impl Into<String>, value: impl ToString, limits: impl Into<String>) -> Self {
        Self { label: label.into(), value: value.to_string(), limits: limits.into() }
    }

    /// Labels with blanks stand in quotes; `=`, quotes and bars may not be in one at all.
    fn text(&self) -> String {
        let label: String =
            self.label.chars().map(|c| if matches!(c, '=' | '\'' | '|') { '_' } else { c }).collect();
        let label = if label.contains(' ') { format!("'{label}'") } else { label };
        format!("{label}={}{}", self.value, self.limits)
    }
}

/// `OUTRIDER CRITICAL - … | …`; the conditions are those of `facts`, which the numbers come from. `unjudged` is what was
/// asked for and could not be judged.
pub(crate) fn line(conditions: &NodeConditions, facts: &NodeFacts, unjudged: &[String]) -> String {
    let nothing = conditions.conditions.is_empty() || !unjudged.is_empty();
    let least = if nothing { Exit::CheckUnknown } else { Exit::Ok };
    let word = match worse(verdict(&conditions.conditions), least) {
        Exit::CheckError => "CRITICAL",
        Exit::CheckWarning => "WARNING",
        Exit::CheckUnknown => "UNKNOWN",
        Exit::Ok | Exit::Failed | Exit::Usage => "OK",
    };
    let told: Vec<String> = worst_first(&conditions.conditions)
        .into_iter()
        .filter(|c| of_one(c) != Exit::Ok)
        .map(|c| format!("{}: {}", in_short(c), c.message.trim_end_matches('.')))
        .chain(unjudged.iter().cloned())
        .collect();
    let text = match told.as_slice() {
        [] if nothing => "nothing was judged".to_owned(),
        [] => {
            let judged = text::count(conditions.conditions.len(), "condition");
            match conditions.conditions.iter().filter(|c| c.status == Status::Unknown).count() {
                0 => format!("{judged} judged, all is well"),
                n => format!("{judged} judged, nothing to look at; {n} of them could not be told"),
            }
        }
        told => told.join("; "),
    };
    let mut perf = counts(conditions);
    perf.extend(numbers(facts));
    let perf: Vec<String> = perf.iter().map(Perf::text).collect();
    // The bar ends the text and a newline ends the line: neither may come out of a message.
    format!("OUTRIDER {word} - {} | {}\n", text::printable(&text).replace('|', "/"), perf.join(" "))
}

fn counts(conditions: &NodeConditions) -> Vec<Perf> {
    let of = |severity| conditions.conditions.iter().filter(|c| c.severity == severity).count();
    let unknown = conditions.conditions.iter().filter(|c| c.status == Status::Unknown).count();
    vec![
        Perf::new("errors", of(Severity::Error), ";;0;0"),
        Perf::new("warnings", of(Severity::Warn), ";0;;0"),
        Perf::new("unknown", unknown, ";;;0"),
        Perf::new("ok", of(Severity::Ok), ";;;0"),
    ]
}

/// What a graph over weeks should show: room, offset, voters.
fn numbers(facts: &NodeFacts) -> Vec<Perf> {
    let limits = &facts.thresholds;
    let mut out = Vec::new();
    if let Some(host) = facts.checks.host.as_ref().and_then(|fact| fact.value()) {
        let edges = format!(";{}:;{}:;0;100", limits.disk_warn_percent, limits.disk_error_percent);
        for fs in host.filesystems.value().into_iter().flatten().filter(|fs| fs.total_bytes > 0) {
            let share = percent(fs.available_bytes, fs.total_bytes);
            out.push(Perf::new(format!("disk_available {}", fs.mount), share, edges.clone()));
        }
        if let Some(memory) = host.memory.value().filter(|memory| memory.total_bytes > 0) {
            let edges = format!(";{}:;{}:;0;100", limits.memory_warn_percent, limits.memory_error_percent);
            out.push(Perf::new(
                "memory_available",
                percent(memory.available_bytes, memory.total_bytes),
                edges,
            ));
        }
    }
    let clock = facts.checks.clock.as_ref().and_then(|fact| fact.value());
    if let Some(offset) = clock.and_then(|clock| clock.coordinator.value()) {
        let (warn, error) = (limits.clock_warn_ms, limits.clock_error_ms);
        let edges = format!(";-{warn}:{warn};-{error}:{error}");
        out.push(Perf::new("clock_offset", format!("{}ms", offset.offset_ms), edges));
    }
    if let Some(etcd) = facts.checks.etcd.as_ref().and_then(|fact| fact.value()) {
        if let Some(list) = etcd.members.value() {
            let voters = list.members.iter().filter(|member| !member.is_learner).count();
            out.push(Perf::new("etcd_voters", voters, ";;;0"));
        }
        let local = etcd.endpoints.iter().find(|endpoint| endpoint.local);
        if let Some(status) = local.and_then(|endpoint| endpoint.status.value()) {
            out.push(Perf::new("etcd_db_size", format!("{}B", status.db_size_bytes), ";;;0"));
        }
    }
    out
}

#[allow(clippy::cast_precision_loss)] // a share in tenths of a percent needs no 53 bits
fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", 100.0 * part as f64 / whole as f64)
}
