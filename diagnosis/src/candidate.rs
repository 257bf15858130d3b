//! Several things may be wrong with one subject at once; the worst is the finding, and the next ones stand behind it.

use std::time::Duration;

use outrider_protocol::{ConditionType, ReasonCode, Severity, Status, Timestamp};

use crate::finding::{Finding, within_range};

/// One thing that may be said of a subject; the worst is.
pub(crate) struct Candidate {
    pub(crate) status: Status,
    pub(crate) severity: Severity,
    pub(crate) reason: ReasonCode,
    pub(crate) message: String,
    advice: String,
    raise: Duration,
}

impl Candidate {
    pub(crate) fn new(status: Status, severity: Severity, reason: ReasonCode, message: String) -> Self {
        Self { status, severity, reason, message, advice: String::new(), raise: Duration::ZERO }
    }

    /// An error says that what the type names does not hold; a warning leaves it standing.
    pub(crate) fn fault(severity: Severity, reason: ReasonCode, message: String) -> Self {
        let status = if severity == Severity::Error { Status::False } else { Status::True };
        Self::new(status, severity, reason, message)
    }

    pub(crate) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    pub(crate) fn after(mut self, raise: Duration) -> Self {
        self.raise = raise;
        self
    }

    pub(crate) fn badness(&self) -> (u8, Severity) {
        badness(self.status, self.severity)
    }
}

/// How bad it is to say this: worse is greater, and not to know is worse than to know that it holds.
pub(crate) fn badness(status: Status, severity: Severity) -> (u8, Severity) {
    let rank = match status {
        Status::True => 0,
        Status::Unknown => 1,
        Status::False => 2,
    };
    (rank, severity)
}

/// The worst of `candidates` as the finding about `subject`, with what else is wrong behind it. The first of equals.
pub(crate) fn worst(
    condition_type: ConditionType,
    subject: String,
    at: Timestamp,
    clear: Duration,
    mut candidates: Vec<Candidate>,
) -> Option<Finding> {
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.badness()));
    first(condition_type, subject, at, clear, candidates)
}

/// The first of `candidates`, which stand in their order already, as [`worst`] makes a finding of it.
pub(crate) fn first(
    condition_type: ConditionType,
    subject: String,
    at: Timestamp,
    clear: Duration,
    candidates: Vec<Candidate>,
) -> Option<Finding> {
    let mut all = candidates.into_iter();
    let first = all.next()?;
    let also: Vec<String> =
        all.filter(|other| other.severity > Severity::Ok).map(|other| other.message).take(2).collect();
    let message = [first.message].into_iter().chain(also).collect::<Vec<_>>().join(" ");
    let severity = within_range(&first.reason, first.severity);
    let finding = Finding::new(condition_type, first.status, severity, first.reason, at, message);
    Some(finding.subject(subject).advice(first.advice).waits(first.raise, clear))
}
