//! Metrics in the text format of Prometheus, for a node exporter's textfile collector and our own `/metrics`.
//!
//! Labels come from enums only, but for `subject`: a name out of the configuration (a balancer) or of the machine (a
//! mount), of which there are few.

use std::fmt::Write;

use outrider_protocol::{AgentFacts, Condition, Status, Timestamp};

/// Renders the conditions and the agent's own state.
pub fn render(conditions: &[Condition], agent: &AgentFacts, now: Timestamp) -> String {
    let mut out = String::with_capacity(256 + conditions.len() * 160);
    // Writing to a String cannot fail.
    let _ = conditions_into(&mut out, conditions);
    let _ = agent_into(&mut out, agent, now);
    out
}

fn conditions_into(out: &mut String, conditions: &[Condition]) -> std::fmt::Result {
    out.push_str("# HELP outrider_condition_status Status of a condition: 1 true, 0 false, -1 unknown.\n");
    out.push_str("# TYPE outrider_condition_status gauge\n");
    for condition in conditions {
        let value = match condition.status {
            Status::True => 1,
            Status::False => 0,
            Status::Unknown => -1,
        };
        writeln!(
            out,
            "outrider_condition_status{{type=\"{}\",subject=\"{}\",severity=\"{}\",reason=\"{}\"}} {value}",
            escaped(condition.condition_type.as_str()),
            escaped(&condition.subject),
            condition.severity,
            escaped(condition.reason.as_str()),
        )?;
    }
    Ok(())
}

fn agent_into(out: &mut String, agent: &AgentFacts, now: Timestamp) -> std::fmt::Result {
    let failing = agent.delivery_failing_since.map_or(0.0, |since| now.since(since).as_secs_f64());
    let gauges = [
        ("outrider_spooled_transitions", "Transitions that wait for the coordinator.", agent.spooled as f64),
        ("outrider_delivery_failing_seconds", "Seconds since deliveries fail; 0 when they work.", failing),
        (
            "outrider_config_problems",
            "Problems of the configuration as written.",
            agent.config_problems.len() as f64,
        ),
        (
            "outrider_failing_checks",
            "Checks whose sensor timed out or panicked.",
            agent.failing_checks.len() as f64,
        ),
        (
            "outrider_last_turn_timestamp_seconds",
            "When the verdict was last renewed.",
            now.as_millis() as f64 / 1000.0,
        ),
    ];
    for (name, help, value) in gauges {
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}")?;
    }
    Ok(())
}

/// A label value with what the format reserves escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
