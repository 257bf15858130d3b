//! The agent about itself: `Ready`, `ConfigValid`, `ReportsDelivered`, and its own certificate.

use std::time::Duration;

use outrider_protocol::{
    AGENT_CERTIFICATE, AgentFacts, ConditionType, Fact, NodeFacts, ReasonCode as R, Severity, Status,
    Timestamp, UnknownCause,
};

use crate::finding::{Finding, Judgement};
use crate::wording::{Span, names};

/// A lost delivery is tried again; only a row of them is news.
const DELIVERY_RAISE: Duration = Duration::from_secs(30);
/// What a restarted agent showed before stands for so long; the first exchange takes less.
const UNTRIED_RAISE: Duration = Duration::from_secs(30);
/// Without the coordinator for this long, a warning becomes an error.
const DELIVERY_ERROR: Duration = Duration::from_secs(300);
/// The own certificate lives for days and is renewed at two thirds; this close to its end renewal has failed for long.
const CERTIFICATE_WARN: Duration = Duration::from_secs(3 * 86_400);
const CERTIFICATE_ERROR: Duration = Duration::from_secs(86_400);
/// Deliveries must have failed for so long before the end of the own certificate is news of its own.
const CERTIFICATE_FAILING: Duration = Duration::from_secs(3_600);

/// Problems quoted in a message.
const QUOTED: usize = 5;

pub(super) fn judge(out: &mut Judgement, agent: &AgentFacts, at: Timestamp, facts: &NodeFacts) {
    out.findings.push(ready(agent, at, facts));
    out.findings.push(config_valid(agent, at));
    out.findings.push(reports_delivered(agent, at, facts.now));
    out.findings.extend(certificate(agent, at, facts));
}

fn ready(agent: &AgentFacts, at: Timestamp, facts: &NodeFacts) -> Finding {
    let c = &facts.checks;
    let read = [
        c.host.is_some(),
        c.clock.is_some(),
        c.cloud_init.is_some(),
        c.guest_agent.is_some(),
        c.etcd.is_some(),
        c.load_balancer.is_some(),
        c.certificates.is_some(),
        c.credentials.is_some(),
    ];
    let read = read.iter().filter(|r| **r).count();
    if read == 0 {
        let message = format!("Agent {} has started and waits for its first reads.", facts.agent_version);
        return Finding::new(
            ConditionType::Ready,
            Status::Unknown,
            Severity::Info,
            R::AgentStarting,
            at,
            message,
        )
        .advice("Wait for the first reads; each check has its own time limit.");
    }
    let failing = match agent.failing_checks.len() {
        0 => String::new(),
        n => format!(
            ", {n} of them without an answer now: {}",
            names(agent.failing_checks.iter().map(|check| check.as_str()), QUOTED)
        ),
    };
    let message = format!("Agent {} runs; {read} checks have been read{failing}.", facts.agent_version);
    Finding::new(ConditionType::Ready, Status::True, Severity::Ok, R::AgentRunning, at, message)
}

fn config_valid(agent: &AgentFacts, at: Timestamp) -> Finding {
    let new = |status, severity, reason, message: String| {
        Finding::new(ConditionType::ConfigValid, status, severity, reason, at, message)
    };
    match agent.config_problems.len() {
        0 => new(Status::True, Severity::Ok, R::ConfigAccepted, "The configuration as written is in force.".to_owned()),
        n => new(
            Status::False,
            Severity::Error,
            R::ConfigRejected,
            format!(
                "The configuration has {n} problem{}: {}. The last good one, or the defaults and what is valid, stays \
                 in force.",
                if n == 1 { "" } else { "s" },
                names(&agent.config_problems, QUOTED)
            ),
        )
        .advice("Correct the files named above; outrider-agent validate shows every problem. Then reload the agent."),
    }
}

fn reports_delivered(agent: &AgentFacts, at: Timestamp, now: Timestamp) -> Finding {
    let waiting = format!("{} transitions wait in the spool", agent.spooled);
    let new = |status, severity, reason, message: String| {
        Finding::new(ConditionType::ReportsDelivered, status, severity, reason, at, message)
    };
    if !agent.spool_problem.is_empty() {
        let message =
            format!("The spool does not work: {}; {waiting}.", agent.spool_problem.trim_end_matches('.'));
        return new(Status::False, Severity::Error, R::SpoolFailing, message).advice(
            "See whether the disk below /var/lib/outrider is full or read-only. A corrupt file was set aside, not \
             deleted; what it held may be missing at the coordinator.",
        );
    }
    if agent.coordinator.is_empty() {
        let message = "No coordinator is configured; verdicts stay on this machine.".to_owned();
        return new(Status::True, Severity::Ok, R::NoCoordinator, message);
    }
    let error = agent.delivery_error.trim_end_matches('.');
    let why = if error.is_empty() { String::new() } else { format!(": {error}") };
    match agent.enrolment.as_str() {
        "refused" => {
            let message = format!("{} refuses to enrol this node{why}; {waiting}.", agent.coordinator);
            return new(Status::False, Severity::Error, R::EnrolmentRefused, message).advice(
                "Check the token (ended, used up, another cluster's) with outrider token list and give the node a new \
                 one; a revoked node needs a new enrolment.",
            );
        }
        "token-unusable" => {
            let message = format!("This node cannot enrol at {}{why}; {waiting}.", agent.coordinator);
            return new(Status::False, Severity::Error, R::EnrolmentTokenUnusable, message).advice(
                "Write the one line that outrider token create printed to the file that coordinator.token_file names \
                 (0640, root:outrider), then reload the agent; without a reload it looks again within a minute.",
            );
        }
        "pending" => {
            let message =
                format!("{} waits for an operator to approve this node{why}; {waiting}.", agent.coordinator);
            return new(Status::False, Severity::Warn, R::EnrolmentPending, message)
                .advice("Compare the node's identity, then run outrider approve with its name.");
        }
        _ => {}
    }
    if agent.merged > 0 {
        let message = format!(
            "The spool was full: {} older transitions were merged into their successors; {waiting}{why}.",
            agent.merged
        );
        return new(Status::False, Severity::Warn, R::SpoolOverflowed, message)
            .advice("Restore the connection to the coordinator; the present state is complete, the history has a gap.");
    }
    if !error.is_empty() {
        let down = agent.delivery_failing_since.map(|since| now.since(since)).unwrap_or_default();
        let severity = if down >= DELIVERY_ERROR { Severity::Error } else { Severity::Warn };
        let message =
            format!("{} has not taken a report for {}{why}; {waiting}.", agent.coordinator, Span(down));
        return new(Status::False, severity, R::CoordinatorUnreachable, message)
            .waits(DELIVERY_RAISE, Duration::ZERO)
            .advice(
                "Check the way to the coordinator from this node: name, port, proxy, its certificate and pin. Nothing \
                 is lost meanwhile.",
            );
    }
    if agent.untried {
        let message = format!(
            "Nothing has been exchanged with {} yet, so whether reports reach it is not known; {waiting}.",
            agent.coordinator
        );
        return Finding::unknown(
            ConditionType::ReportsDelivered,
            &UnknownCause::NotYetRead,
            Severity::Info,
            at,
            message,
        )
        .advice("Wait for the first exchange; a running agent begins it as soon as it has read its host.")
        .waits(UNTRIED_RAISE, Duration::ZERO);
    }
    let message = format!("Reports reach {}; {waiting}.", agent.coordinator);
    new(Status::True, Severity::Ok, R::ReportsFlow, message)
}

/// The time by the coordinator's clock where that is known, else by this machine's. Who gave the agent's own certificate says
/// whether it is good, rightly or wrongly.
fn coordinators_now(facts: &NodeFacts) -> Timestamp {
    let clock = facts.checks.clock.as_ref().and_then(Fact::value);
    let ahead_ms = clock.and_then(|clock| clock.coordinator.value()).map_or(0, |offset| offset.offset_ms);
    Timestamp::from_millis(facts.now.as_millis().saturating_sub(ahead_ms))
}

fn certificate(agent: &AgentFacts, at: Timestamp, facts: &NodeFacts) -> Option<Finding> {
    let not_after = agent.certificate_not_after?;
    let now = coordinators_now(facts);
    let left = not_after.since(now);
    let ended = not_after <= now;
    // Certificates may live for a day or an hour; a coordinator that restarts must not sound their end.
    let failing = !agent.delivery_error.is_empty()
        && agent.delivery_failing_since.is_some_and(|since| facts.now.since(since) >= CERTIFICATE_FAILING);
    let (status, severity, reason) = if ended {
        (Status::False, Severity::Error, R::CertificateExpired)
    } else if failing && left < CERTIFICATE_ERROR {
        (Status::True, Severity::Error, R::CertificateEnding)
    } else if failing && left < CERTIFICATE_WARN {
        (Status::True, Severity::Warn, R::CertificateEnding)
    } else {
        (Status::True, Severity::Ok, R::CertificatesInDate)
    };
    let message = if ended {
        format!("This node's client certificate ended {} ago, on {not_after}.", Span(now.since(not_after)))
    } else {
        let renewal = if failing { "; its renewal fails while the coordinator does not answer" } else { "" };
        format!("This node's client certificate is good for {} more, until {not_after}{renewal}.", Span(left))
    };
    let finding = Finding::new(ConditionType::CertificatesValid, status, severity, reason, at, message);
    Some(finding.subject(AGENT_CERTIFICATE).advice(match severity {
        Severity::Ok => "",
        _ => {
            "Restore the connection to the coordinator: the node renews by itself, also for a while after the end. If \
             its clock is wrong, correct that first."
        }
    }))
}
