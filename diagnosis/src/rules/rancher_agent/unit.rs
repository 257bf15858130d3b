//! The unit: running, stopped, or restarted for ever.

use std::time::Duration;

use outrider_protocol::{ReasonCode as R, ServiceUnit, Severity, Status};

use super::{RAISE, View};
use crate::candidate::Candidate;
use crate::wording::{Count, Span};

/// So many restarts within ten minutes are no upgrade: with `RestartSec=5s` a process that ends at once makes over fifty.
const MANY: u32 = 3;
/// A count without an earlier look tells something only if it is large and the newest process is young.
const MANY_SO_FAR: u32 = 5;
const YOUNG: u64 = 60;

pub(super) fn candidates(view: &View<'_>) -> Vec<Candidate> {
    let unit = &view.agent.unit;
    vec![restarting(view, unit).or_else(|| stopped(unit)).unwrap_or_else(|| running(unit))]
}

fn restarting(view: &View<'_>, unit: &ServiceUnit) -> Option<Candidate> {
    let waits = unit.sub_state == "auto-restart";
    let counted = view.agent.earlier.map(|e| (unit.restarts.saturating_sub(e.restarts), view.at.since(e.at)));
    let how_often = match counted {
        Some((n, span)) if n >= MANY && !lives(unit, n, span) => {
            format!("{} within {}", Count(n as usize, "restart"), Span(span))
        }
        // The first look, or counts too few to tell: a process that lives again ends the story.
        _ if unit.restarts >= MANY_SO_FAR
            && (waits || unit.started_seconds_ago.is_some_and(|s| s < YOUNG)) =>
        {
            format!("{} so far", Count(unit.restarts as usize, "restart"))
        }
        _ => return None,
    };
    let message = format!(
        "rancher-system-agent ends and is restarted again and again: {how_often}, the last process {}; Rancher may go on \
         showing this node as running.",
        ended(unit)
    );
    Some(Candidate::fault(Severity::Error, R::RancherAgentRestarting, message).advice(
        "Read why it ends: journalctl -u rancher-system-agent -n 50. A changed CA or certificate of Rancher is the usual cause \
         (x509 in the log), then a file it refuses, then a Secret that is gone. Nothing of this node is applied meanwhile.",
    ))
}

/// The newest process has run twice as long as the ones before it, and a minute at least: that is over.
fn lives(unit: &ServiceUnit, restarts: u32, within: Duration) -> bool {
    let mean = within.as_secs() / u64::from(restarts.max(1));
    let runs = unit.active_state == "active" && unit.sub_state != "auto-restart";
    runs && unit.started_seconds_ago.is_some_and(|seconds| seconds > YOUNG.max(2 * mean))
}

fn ended(unit: &ServiceUnit) -> String {
    match unit.result.as_str() {
        "exit-code" => format!("ended with exit code {}", unit.exit_status),
        "signal" | "core-dump" => format!("was ended by signal {}", unit.exit_status),
        "success" | "" => format!("ended with exit code {}", unit.exit_status),
        other => format!("ended by {other}"),
    }
}

fn stopped(unit: &ServiceUnit) -> Option<Candidate> {
    let words = format!(
        "its unit is {}, {}{}",
        unit.load_state,
        unit.active_state,
        if unit.unit_file_state.is_empty() { String::new() } else { format!(", {}", unit.unit_file_state) }
    );
    if unit.load_state == "masked" || unit.unit_file_state.starts_with("masked") {
        let message = format!(
            "Somebody masked rancher-system-agent ({words}): Rancher cannot change anything on this node."
        );
        return Some(Candidate::fault(Severity::Error, R::RancherAgentStopped, message).after(RAISE).advice(
            "Find out who masked it and why; only then unmask and start it. Outrider does neither.",
        ));
    }
    match unit.active_state.as_str() {
        "active" | "reloading" => None,
        "activating" | "deactivating" => {
            let message =
                format!("rancher-system-agent is between two states: {words} ({}).", unit.sub_state);
            let starting = Candidate::new(Status::Unknown, Severity::Warn, R::RancherAgentStopped, message);
            Some(
                starting
                    .after(RAISE)
                    .advice("Wait a minute; if it stays so, read journalctl -u rancher-system-agent."),
            )
        }
        "failed" => {
            let message = format!(
                "rancher-system-agent has failed and is not restarted: {words}; the last process {}.",
                ended(unit)
            );
            Some(
                Candidate::fault(Severity::Error, R::RancherAgentStopped, message)
                    .after(RAISE)
                    .advice("Read journalctl -u rancher-system-agent, cure what it says, then start it."),
            )
        }
        _ => {
            let is_off = unit.unit_file_state == "disabled";
            let severity = if is_off { Severity::Warn } else { Severity::Error };
            let message = format!(
                "rancher-system-agent does not run: {words}. Plans of Rancher are not applied on this node."
            );
            Some(Candidate::fault(severity, R::RancherAgentStopped, message).after(RAISE).advice(
                "Start it (systemctl start rancher-system-agent), or, where it is left over from another cluster, remove it with \
                 its own uninstall script.",
            ))
        }
    }
}

fn running(unit: &ServiceUnit) -> Candidate {
    let age = unit
        .started_seconds_ago
        .map(|s| format!(" for {}", Span(Duration::from_secs(s))))
        .unwrap_or_default();
    let restarts = match unit.restarts {
        0 => String::new(),
        n => format!(", {} so far", Count(n as usize, "restart")),
    };
    let message = format!("rancher-system-agent runs as process {}{age}{restarts}.", unit.pid);
    Candidate::new(Status::True, Severity::Ok, R::RancherAgentRunning, message)
}
