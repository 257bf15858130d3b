//! The log: the journal with structured fields where stderr is connected to it, plain lines on stderr elsewhere.
//!
//! A transition is one line with the `MESSAGE_ID` of its reason (`protocol/src/reasons.rs`) and the fields
//! `OUTRIDER_TYPE`, `_SUBJECT`, `_STATUS`, `_SEVERITY`, `_REASON`, `_PREVIOUS_STATUS`, `_ADVICE`. journald drops lines
//! above a rate, sometimes silently (J11), so repeats are limited here, per condition, and summed up.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use outrider_protocol::{Condition, Severity, Timestamp, Transition};
use tokio::time::Instant;

/// Lines a condition may write within [`WINDOW`].
const LINES: u32 = 5;
const WINDOW: Duration = Duration::from_secs(600);

/// Installs the logger, once a process. `level` as `error`, `warn`, `info`, `debug`, `trace`.
pub fn install(level: LevelFilter) {
    let journal = systemd_journal_logger::connected_to_journal()
        .then(systemd_journal_logger::JournalLog::new)
        .and_then(Result::ok)
        .map(|log| log.with_syslog_identifier("outrider-agent".to_owned()));
    let installed = match journal {
        Some(journal) => journal.install(),
        None => log::set_boxed_logger(Box::new(Plain)),
    };
    if installed.is_ok() {
        log::set_max_level(level);
        // A check that panics is one line of the log, and a condition; not a trace that buries them.
        std::panic::set_hook(Box::new(|panic| {
            log::error!("a fault of Outrider itself, please report it: {panic}");
        }));
    }
}

/// Lines on stderr, with time and level.
struct Plain;

impl Log for Plain {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let now = Timestamp::from(std::time::SystemTime::now());
        // Nobody is left to be told of a closed stderr.
        let _ = writeln!(std::io::stderr().lock(), "{now} {:5} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

/// Writes transitions, a limited number of lines a condition.
#[derive(Debug, Default)]
pub struct TransitionLog {
    recent: BTreeMap<String, Recent>,
}

#[derive(Debug)]
struct Recent {
    since: Instant,
    lines: u32,
    held_back: u32,
    last: Option<Transition>,
}

impl TransitionLog {
    /// Writes `transition`, or counts it when its condition has filled its share of lines; says whether it was written.
    pub fn write(&mut self, transition: &Transition, now: Instant) -> bool {
        let key = name(&transition.condition);
        let fresh = Recent { since: now, lines: 0, held_back: 0, last: None };
        let recent = self.recent.entry(key).or_insert(fresh);
        if recent.lines < LINES {
            recent.lines += 1;
            line(transition);
            true
        } else {
            recent.held_back += 1;
            recent.last = Some(transition.clone());
            false
        }
    }

    /// Sums up what was held back in windows that have ended; gives how many transitions that were.
    pub fn sum_up(&mut self, now: Instant) -> u32 {
        let mut summed = 0;
        self.recent.retain(|name, recent| {
            if now.duration_since(recent.since) < WINDOW {
                return true;
            }
            if let Some(last) = &recent.last {
                summed += recent.held_back;
                let condition = &last.condition;
                log::log!(level(condition.severity), MESSAGE_ID = message_id(condition),
                    OUTRIDER_TYPE = condition.condition_type.as_str(), OUTRIDER_SUBJECT = condition.subject.as_str(),
                    OUTRIDER_STATUS = condition.status.as_str(), OUTRIDER_REASON = condition.reason.as_str(),
                    OUTRIDER_REPEATS = recent.held_back;
                    "{name} changed {} more times within {} min; now {} ({}): {}", recent.held_back,
                    WINDOW.as_secs() / 60, condition.status, condition.reason, condition.message);
            }
            false
        });
        summed
    }
}

fn line(transition: &Transition) {
    let condition = &transition.condition;
    let before = transition.previous_status.map_or("", |status| status.as_str());
    let change = match (transition.removed, before) {
        (true, _) => "gone".to_owned(),
        (false, "") => condition.status.to_string(),
        (false, before) => format!("{before} -> {}", condition.status),
    };
    log::log!(level(condition.severity), MESSAGE_ID = message_id(condition),
        OUTRIDER_TYPE = condition.condition_type.as_str(), OUTRIDER_SUBJECT = condition.subject.as_str(),
        OUTRIDER_STATUS = condition.status.as_str(), OUTRIDER_SEVERITY = condition.severity.as_str(),
        OUTRIDER_REASON = condition.reason.as_str(), OUTRIDER_PREVIOUS_STATUS = before,
        OUTRIDER_ADVICE = condition.advice.as_str();
        "{} {change} ({}): {}", name(condition), condition.reason, condition.message);
}

/// Type and subject, as a line shows them.
pub(crate) fn name(condition: &Condition) -> String {
    match condition.subject.as_str() {
        "" => condition.condition_type.to_string(),
        subject => format!("{}[{subject}]", condition.condition_type),
    }
}

fn message_id(condition: &Condition) -> &'static str {
    condition.reason.info().map_or("", |info| info.message_id)
}

fn level(severity: Severity) -> Level {
    match severity {
        Severity::Ok | Severity::Info => Level::Info,
        Severity::Warn => Level::Warn,
        Severity::Error => Level::Error,
    }
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{ConditionType, ReasonCode, Status};

    use super::*;

    fn transition(subject: &str) -> Transition {
        let at = Timestamp::default();
        let condition = Condition {
            condition_type: ConditionType::LoadBalancerReachable,
            status: Status::False,
            severity: Severity::Error,
            reason: ReasonCode::BalancerDown,
            message: "no address answers".to_owned(),
            advice: String::new(),
            subject: subject.to_owned(),
            last_transition_time: at,
            observed_at: at,
        };
        Transition { at, condition, previous_status: None, previous_reason: None, removed: false, merged: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn repeats_of_one_condition_are_limited_and_summed_up_and_hold_back_no_other() {
        let mut log = TransitionLog::default();
        let written = (0..100).filter(|_| log.write(&transition("a"), Instant::now())).count();
        assert_eq!(written, LINES as usize);
        assert!(log.write(&transition("b"), Instant::now()));
        assert_eq!(log.sum_up(Instant::now()), 0);
        tokio::time::advance(WINDOW).await;
        assert_eq!(log.sum_up(Instant::now()), 100 - LINES);
        assert!(log.write(&transition("a"), Instant::now()), "a new window begins");
    }

    #[test]
    fn every_line_of_a_known_reason_has_a_message_id() {
        assert_eq!(message_id(&transition("a").condition).len(), 32);
    }
}
