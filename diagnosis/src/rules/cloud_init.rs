//! `CloudInitSucceeded`: what cloud-init did in this boot (`facts/cloud-init.md`, section 7).

use std::time::Duration;

use outrider_protocol::{
    Check, CloudInitFacts, CloudInitStatus, ConditionType, Fact, NodeFacts, ReasonCode, Severity, Status,
    Timestamp, UnknownCause,
};

use super::open;
use crate::finding::{Finding, Judgement};
use crate::wording::{Span, names};

const TYPE: ConditionType = ConditionType::CloudInitSucceeded;

/// A stage that runs for longer is probably a script that tries again and again (F10: up to six hours).
const LONG_STAGE: Duration = Duration::from_secs(30 * 60);

/// Failures quoted in a message.
const QUOTED: usize = 3;

pub(super) fn judge(out: &mut Judgement, facts: &NodeFacts) {
    if let Some(Fact::Absent { source, at }) = &facts.checks.cloud_init {
        let message = format!("cloud-init is not installed here (looked for {source}).");
        out.findings.push(
            Finding::new(
                TYPE,
                Status::Unknown,
                Severity::Info,
                ReasonCode::CloudInitNotInstalled,
                *at,
                message,
            )
            .advice("Do not wait for cloud-init on this machine; set it up directly with outrider install."),
        );
    } else if let Some((cloud_init, at)) = open(out, Check::CloudInit, &facts.checks.cloud_init, facts.now) {
        out.findings.push(result(cloud_init, at));
    }
}

enum Result {
    NotRun,
    Running,
    Done,
    Degraded,
    Failed,
    Disabled,
    Unclear,
}

/// The word decides whether it has ended, the exit code how.
fn classify(c: &CloudInitFacts) -> Result {
    match (&c.status, c.exit_code) {
        // While it runs the exit code says nothing final (2 with `running` is common).
        (CloudInitStatus::Running, _) => Result::Running,
        (CloudInitStatus::NotRun, _) => Result::NotRun,
        (CloudInitStatus::Disabled, _) => Result::Disabled,
        (CloudInitStatus::Error, _) => Result::Failed,
        (_, Some(1)) => Result::Failed,
        (CloudInitStatus::Done, None) if !c.errors.is_empty() => Result::Failed,
        (_, Some(2)) => Result::Degraded,
        (CloudInitStatus::Done, _) | (_, Some(0)) => {
            let shows_warnings = !c.errors.is_empty() || c.recoverable_errors.values().any(|v| !v.is_empty());
            if shows_warnings || c.extended_status.starts_with("degraded") {
                Result::Degraded
            } else {
                Result::Done
            }
        }
        (CloudInitStatus::Other(_), _) => Result::Unclear,
    }
}

fn result(c: &CloudInitFacts, at: Timestamp) -> Finding {
    let exit = c.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
    let source =
        if c.datasource.is_empty() { String::new() } else { format!(", data source {}", c.datasource) };
    let new =
        |status, severity, reason, message: String| Finding::new(TYPE, status, severity, reason, at, message);
    match classify(c) {
        Result::Done => new(
            Status::True,
            Severity::Ok,
            ReasonCode::CloudInitDone,
            format!("cloud-init finished without a warning (status {}{exit}{source}).", c.status),
        ),
        Result::Degraded => new(
            Status::True,
            Severity::Warn,
            ReasonCode::CloudInitDegraded,
            format!("cloud-init finished with {} (status {}{exit}{source}).", warnings(c), said(c)),
        )
        .advice(
            "Read the warnings above; what they name was skipped or only half done, everything else went on. Details: \
             /var/log/cloud-init.log.",
        ),
        Result::Failed => {
            let errors = match c.errors.len() {
                0 => "no error in its result file".to_owned(),
                n => format!("{n} errors: {}", names(c.errors.iter().map(|e| e.trim()), QUOTED)),
            };
            new(
                Status::False,
                Severity::Error,
                ReasonCode::CloudInitFailed,
                format!("cloud-init failed (status {}{exit}{source}): {errors}.", said(c)),
            )
            .advice(
                "Read /var/log/cloud-init.log and cloud-init-output.log, correct the userdata and make the machine \
                 anew: edited userdata does not run a second time on the same instance.",
            )
        }
        Result::Running => running(c, at, &exit),
        Result::NotRun => new(
            Status::Unknown,
            Severity::Info,
            ReasonCode::CloudInitNotRun,
            format!("cloud-init is installed and has not begun in this boot (status {}{exit}).", c.status),
        )
        .advice("Early in a boot: wait. Later: its units are not part of this boot, so do not wait for it."),
        Result::Disabled => new(
            Status::True,
            Severity::Info,
            ReasonCode::CloudInitDisabled,
            format!("cloud-init is switched off and will not run{exit}; nothing is waited for."),
        ),
        Result::Unclear => Finding::unknown(
            TYPE,
            &UnknownCause::InvalidAnswer,
            Severity::Warn,
            at,
            format!("cloud-init reports the status {:?}, which this version does not know{exit}.", said(c)),
        ),
    }
}

fn running(c: &CloudInitFacts, at: Timestamp, exit: &str) -> Finding {
    let stage = if c.stage.is_empty() { "a stage" } else { c.stage.as_str() };
    let age = c.stage_seconds.map(Duration::from_secs);
    let since = age.map(|a| format!(" for {}", Span(a))).unwrap_or_default();
    let so_far = match c.errors.len() {
        0 => String::new(),
        n => format!("; {n} errors so far: {}", names(c.errors.iter().map(|e| e.trim()), QUOTED)),
    };
    let long = age.is_some_and(|a| a > LONG_STAGE);
    let severity = if long || !c.errors.is_empty() { Severity::Warn } else { Severity::Info };
    let message = format!("cloud-init has not finished: {stage} has been running{since}{exit}{so_far}.");
    let advice = if long {
        "See what the stage waits for (pstree, /var/log/cloud-init-output.log): a script that tries to register again \
         and again keeps the last stage running for hours."
    } else {
        "Wait; it is not finished, whatever its exit code is now."
    };
    Finding::new(TYPE, Status::Unknown, severity, ReasonCode::CloudInitRunning, at, message).advice(advice)
}

/// The longer of the two status words.
fn said(c: &CloudInitFacts) -> &str {
    if c.extended_status.is_empty() { c.status.as_str() } else { &c.extended_status }
}

fn warnings(c: &CloudInitFacts) -> String {
    let all = c
        .recoverable_errors
        .iter()
        .flat_map(|(level, list)| list.iter().map(move |text| format!("{level} {:?}", text.trim())));
    let all: Vec<String> = all.chain(c.errors.iter().map(|e| format!("error {:?}", e.trim()))).collect();
    match all.len() {
        0 => "recoverable warnings that its result file does not list".to_owned(),
        1 => format!("1 recoverable warning: {}", all[0]),
        n => format!("{n} recoverable warnings: {}", names(&all, QUOTED)),
    }
}
