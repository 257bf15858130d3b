//! `POST /v1/reports`: transitions are stored before they are acknowledged, the state is taken into memory.

use http::StatusCode;
use outrider_protocol::{Condition, NodeReport, NodeState, ReportAck};

use super::error::{Answer, Failure};
use super::heartbeat::{acknowledge, epoch_mismatch};
use crate::app::App;
use crate::fleet::Node;
use crate::server::peer::Peer;
use crate::store::{HistoryError, Origin};

/// Most transitions of one report; a full spool is sent in parts.
const MAX_TRANSITIONS: usize = 1000;
/// Most conditions of one state.
const MAX_CONDITIONS: usize = 1000;
/// Longest subject, name, zone.
const MAX_NAME: usize = 512;
/// Longest message or advice.
const MAX_TEXT: usize = 16 << 10;

/// Stores and takes over a report of the node that `peer` is.
pub(crate) async fn take(app: &App, peer: &Peer, report: NodeReport) -> Answer<ReportAck> {
    validate(&report)?;
    let node = &peer.node;
    let name = speaks_for_itself(node, &report)?;
    app.fleet.hear(node);
    let _one_at_a_time = node.reporting.lock().await;
    let origin = Origin { uid: node.uid.to_string(), name };
    let acknowledged = if report.transitions.is_empty() {
        app.history.acknowledged(&origin.uid, report.epoch).await
    } else {
        let now = app.clock().now();
        let appended = app.history.append(&origin, report.epoch, &report.transitions, now).await;
        appended.map(|a| a.acknowledged)
    };
    let acknowledged = match acknowledged {
        Ok(acknowledged) => acknowledged,
        Err(error) => {
            // What needs no store goes on without it: the state is judged and shown though nothing is acknowledged.
            if let HistoryError::Store(_) = error {
                let known = known_acknowledged(node, &report);
                app.fleet.take(node, report, known);
            }
            return Err(not_stored(error));
        }
    };
    let generation = report.generation;
    let has_state = report.state.is_some();
    app.fleet.take(node, report, acknowledged);
    let wants_state = !has_state && node.inner().state().is_none();
    Ok(acknowledge(app, node, generation, acknowledged, wants_state))
}

fn known_acknowledged(node: &Node, report: &NodeReport) -> u64 {
    let inner = node.inner();
    inner.report.as_ref().filter(|r| r.epoch == report.epoch).map_or(0, |r| r.acknowledged)
}

fn not_stored(error: HistoryError) -> Failure {
    match error {
        HistoryError::Mismatch { sequence, highest } => epoch_mismatch(sequence, highest),
        HistoryError::OutOfOrder { .. } => Failure::bad_request(
            "OutOfOrder",
            error.to_string(),
            "Send transitions in the order of their sequences, each once.",
        ),
        HistoryError::Store(error) => crate::api::store_failure(&error),
    }
}

/// A node reports for itself only; the certificate says who it is. Its name, as enrolled.
fn speaks_for_itself(node: &Node, report: &NodeReport) -> Answer<String> {
    let name = node.inner().record.name.clone();
    let is_itself =
        if report.node.uid.is_empty() { report.node.name == name } else { *report.node.uid == *node.uid };
    if is_itself {
        return Ok(name);
    }
    Err(Failure::new(
        StatusCode::FORBIDDEN,
        "NotYourNode",
        format!(
            "the certificate is of node {name} ({}); the report is of {} ({})",
            node.uid, report.node.name, report.node.uid
        ),
        "A node speaks only for itself. If the machine was renamed or copied, enrol it anew.",
    ))
}

fn validate(report: &NodeReport) -> Answer<()> {
    let invalid = |problem: String| {
        Failure::bad_request(
            "InvalidReport",
            problem,
            "Correct what is named or leave it out: sent again as it is, it is refused again. Nothing was stored.",
        )
        .permanent()
    };
    if report.transitions.len() > MAX_TRANSITIONS {
        return Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "TooLarge",
            format!("{} transitions; at most {MAX_TRANSITIONS} are taken at once", report.transitions.len()),
            "Send them in several reports, in order.",
        ));
    }
    let cluster = &report.node.cluster;
    if cluster.len() > 253 || cluster.chars().any(|c| c.is_control() || c.is_whitespace() || c == '/') {
        return Err(invalid("node.cluster: at most 253 characters without blanks and slashes".to_owned()));
    }
    for (i, sequenced) in report.transitions.iter().enumerate() {
        condition(&sequenced.transition.condition)
            .map_err(|problem| invalid(format!("transitions[{i}].condition.{problem}")))?;
    }
    if let Some(state) = &report.state {
        state_fits(state).map_err(|problem| invalid(format!("state.{problem}")))?;
    }
    if report.agent_version.len() > MAX_NAME {
        return Err(invalid(format!("agentVersion: longer than {MAX_NAME} characters")));
    }
    Ok(())
}

fn state_fits(state: &NodeState) -> Result<(), String> {
    if state.conditions.len() > MAX_CONDITIONS {
        return Err(format!(
            "conditions: {} entries; at most {MAX_CONDITIONS} are taken",
            state.conditions.len()
        ));
    }
    if state.digest.len() > 128 {
        return Err("digest: longer than 128 characters".to_owned());
    }
    if state.zone.len() > MAX_NAME || state.region.len() > MAX_NAME {
        return Err(format!("zone, region: longer than {MAX_NAME} characters"));
    }
    let mut seen = std::collections::HashSet::new();
    for (i, c) in state.conditions.iter().enumerate() {
        condition(c).map_err(|problem| format!("conditions[{i}].{problem}"))?;
        if !seen.insert(c.key()) {
            return Err(format!("conditions[{i}]: {} of {:?} occurs twice", c.condition_type, c.subject));
        }
    }
    Ok(())
}

fn condition(c: &Condition) -> Result<(), String> {
    let word = |field: &str, word: &str| {
        let fits = (1..=64).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_alphanumeric());
        if fits { Ok(()) } else { Err(format!("{field}: 1 to 64 letters and digits")) }
    };
    word("type", c.condition_type.as_str())?;
    word("reason", c.reason.as_str())?;
    for (field, text, limit) in [
        ("subject", &c.subject, MAX_NAME),
        ("message", &c.message, MAX_TEXT),
        ("advice", &c.advice, MAX_TEXT),
    ] {
        if text.len() > limit {
            return Err(format!("{field}: {} bytes; at most {limit} are taken", text.len()));
        }
    }
    Ok(())
}
