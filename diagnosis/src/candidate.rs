//! Several things may be wrong with one subject at once; the worst is the finding, and the next ones stand behind it.
//!
//! One order holds for all of them: the graver severity first, whatever the status, so that what could not be read never
//! hides an error that was, nor a fault for information a warning. Among equally grave ones what does not hold goes before
//! what is not known, and that before what holds.

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
}

/// How bad it is to say this: worse is greater.
pub(crate) fn badness(status: Status, severity: Severity) -> (Severity, u8) {
    let rank = match status {
        Status::True => 0,
        Status::Unknown => 1,
        Status::False => 2,
    };
    (severity, rank)
}

/// The worst of `candidates` as the finding about `subject`, with what else is wrong behind it. The first of equals.
pub(crate) fn worst(
    condition_type: ConditionType,
    subject: String,
    at: Timestamp,
    clear: Duration,
    mut candidates: Vec<Candidate>,
) -> Option<Finding> {
    candidates.sort_by_key(|candidate| std::cmp::Reverse(badness(candidate.status, candidate.severity)));
    let mut all = candidates.into_iter();
    let first = all.next()?;
    let also: Vec<String> =
        all.filter(|other| other.severity > Severity::Ok).map(|other| other.message).take(2).collect();
    let message = [first.message].into_iter().chain(also).collect::<Vec<_>>().join(" ");
    let severity = within_range(&first.reason, first.severity);
    let finding = Finding::new(condition_type, first.status, severity, first.reason, at, message);
    Some(finding.subject(subject).advice(first.advice).waits(first.raise, clear))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(status: Status, severity: Severity, name: &str) -> Candidate {
        Candidate::new(status, severity, ReasonCode::Other(name.into()), name.to_owned())
    }

    fn said(candidates: Vec<Candidate>) -> Finding {
        worst(ConditionType::DnsResolves, String::new(), Timestamp::default(), Duration::ZERO, candidates)
            .unwrap()
    }

    #[test]
    fn what_is_not_known_hides_no_error_and_what_informs_no_warning() {
        for (hidden, by) in [
            ((Status::True, Severity::Error), (Status::Unknown, Severity::Warn)),
            ((Status::True, Severity::Error), (Status::False, Severity::Warn)),
            ((Status::True, Severity::Warn), (Status::False, Severity::Info)),
            ((Status::True, Severity::Warn), (Status::Unknown, Severity::Info)),
            ((Status::False, Severity::Error), (Status::Unknown, Severity::Error)),
            ((Status::Unknown, Severity::Warn), (Status::True, Severity::Warn)),
        ] {
            let all = vec![of(by.0, by.1, "by"), of(hidden.0, hidden.1, "hidden")];
            let finding = said(all);
            assert_eq!((finding.status, finding.severity), hidden, "{finding:?}");
            assert!(finding.message.starts_with("hidden by"), "{finding:?}");
        }
    }

    proptest! {
        #[test]
        fn the_order_given_decides_among_equals_only(
            all in prop::collection::vec((prop::sample::select(vec![Status::True, Status::Unknown, Status::False]), 0usize..4), 1..6)
        ) {
            let severities = [Severity::Ok, Severity::Info, Severity::Warn, Severity::Error];
            let named = all.iter().enumerate().map(|(i, (status, s))| of(*status, severities[*s], &i.to_string()));
            let finding = said(named.collect());
            let first: usize = finding.message.split(' ').next().unwrap().parse().unwrap();
            let rank = |(status, s): (Status, usize)| badness(status, severities[s]);
            for (i, other) in all.iter().enumerate() {
                prop_assert!(rank(*other) < rank(all[first]) || (rank(*other) == rank(all[first]) && i >= first));
            }
        }
    }
}
