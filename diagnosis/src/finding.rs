//! What the rules say before hysteresis: findings, and checks that could not be read.

use std::time::Duration;

use outrider_protocol::{
    Check, ConditionType, NotApplicable, ReasonCode, Severity, Status, Timestamp, UnknownCause,
};

use crate::candidate::badness;

/// How long a reading may stay unknown before that is shown: one lost read is no news.
pub(crate) const UNKNOWN_AFTER: Duration = Duration::from_secs(10);

/// What a rule found about one subject, and how long that must hold before it is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What the finding is about.
    pub condition_type: ConditionType,
    /// Which thing; empty for the node itself.
    pub subject: String,
    /// Whether it holds.
    pub status: Status,
    /// How much it matters.
    pub severity: Severity,
    /// Why.
    pub reason: ReasonCode,
    /// A sentence with the numbers in it.
    pub message: String,
    /// What to do next; empty when nothing is to be done.
    pub advice: String,
    /// When the facts behind it were read.
    pub observed_at: Timestamp,
    /// How long it must hold before it replaces something better.
    pub raise_after: Duration,
    /// How long it must hold before it replaces something worse.
    pub clear_after: Duration,
    /// It has held since then already, by the facts' own word: the wait begins there.
    pub since: Option<Timestamp>,
    /// With a status other than `True`: the reason under which the condition goes `Unknown` at once, while `raise_after`
    /// runs.
    pub suspect: Option<ReasonCode>,
    /// While `raise_after` runs, it is shown without alarm from so long on, no graver than this: what is shown must be true
    /// before it is alarming.
    pub early: Option<(Duration, Severity)>,
    /// Once it has been shown for so long, it is as grave as this: what is normal for an hour is not for a day.
    pub escalates: Option<(Duration, Severity)>,
}

impl Finding {
    /// A finding about the node itself that is shown at once; the other methods refine it.
    pub fn new(
        condition_type: ConditionType,
        status: Status,
        severity: Severity,
        reason: ReasonCode,
        observed_at: Timestamp,
        message: impl Into<String>,
    ) -> Self {
        Self {
            condition_type,
            subject: String::new(),
            status,
            severity,
            reason,
            message: message.into(),
            advice: String::new(),
            observed_at,
            raise_after: Duration::ZERO,
            clear_after: Duration::ZERO,
            since: None,
            suspect: None,
            early: None,
            escalates: None,
        }
    }

    /// A reading that failed: `Unknown` for `cause`, as grave as `severity` where the registry allows it.
    pub fn unknown(
        condition_type: ConditionType,
        cause: &UnknownCause,
        severity: Severity,
        at: Timestamp,
        message: impl Into<String>,
    ) -> Self {
        let reason = ReasonCode::from(cause);
        let severity = within_range(&reason, severity);
        Self::new(condition_type, Status::Unknown, severity, reason, at, message)
            .advice(advice_for_cause(cause))
            .waits(UNKNOWN_AFTER, UNKNOWN_AFTER)
    }

    /// The same about `subject`.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    /// The same with the next step for a person.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    /// The same, held back by `raise` before it replaces something better and by `clear` before something worse.
    #[must_use]
    pub fn waits(mut self, raise: Duration, clear: Duration) -> Self {
        self.raise_after = raise;
        self.clear_after = clear;
        self
    }

    /// The same, whose wait began at `since`, as the facts tell.
    #[must_use]
    pub fn holds_since(mut self, since: Option<Timestamp>) -> Self {
        self.since = since;
        self
    }

    /// The same, shown as `Unknown` with this reason while it waits to be raised.
    #[must_use]
    pub fn suspected_as(mut self, reason: ReasonCode) -> Self {
        self.suspect = Some(reason);
        self
    }

    /// The same, shown `after` so long already, no graver than `most`, while it waits to be raised. For findings of status
    /// `True`.
    #[must_use]
    pub fn early(mut self, after: Duration, most: Severity) -> Self {
        self.early = Some((after, most));
        self
    }

    /// The same, graver once it has been shown for `after`.
    #[must_use]
    pub fn escalates(mut self, after: Duration, to: Severity) -> Self {
        self.escalates = Some((after, to));
        self
    }

    /// The worse of two about one subject, the first of equals, with what the other says and advises behind it.
    #[must_use]
    pub(crate) fn beside(self, other: Self) -> Self {
        let is_worse = badness(other.status, other.severity) > badness(self.status, self.severity);
        let (worse, lesser) = if is_worse { (other, self) } else { (self, other) };
        let advice = match lesser.severity {
            _ if worse.advice.contains(&lesser.advice) => worse.advice.clone(),
            Severity::Ok | Severity::Info => worse.advice.clone(),
            _ => format!("{} {}", worse.advice, lesser.advice).trim_start().to_owned(),
        };
        Self { message: format!("{} {}", worse.message, lesser.message), advice, ..worse }
    }

    /// Type and subject, by which latches are kept.
    pub fn key(&self) -> (&ConditionType, &str) {
        (&self.condition_type, &self.subject)
    }
}

/// A whole check that could not be read: every condition of it is unknown, none is false.
#[derive(Clone, Debug, PartialEq)]
pub struct Blind {
    /// The check.
    pub check: Check,
    /// Why it could not be read.
    pub cause: UnknownCause,
    /// The failure in words.
    pub detail: String,
    /// When it failed.
    pub at: Timestamp,
}

/// All that one pass of the rules says. A check that has not run yet occurs in none of the three lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// What was found, in the order of types, then subjects.
    pub findings: Vec<Finding>,
    /// Checks that could not be read.
    pub blind: Vec<Blind>,
    /// Checks with nothing to look at on this machine.
    pub not_applicable: Vec<NotApplicable>,
}

impl Judgement {
    /// Whether `check` was read, whatever came of it.
    pub(crate) fn has_read(&self, check: &Check) -> bool {
        self.findings.iter().any(|f| f.condition_type.check_of(&f.subject) == *check)
            || self.not_applicable.iter().any(|n| n.check == *check)
    }

    /// Findings in the order of types, then subjects, so that equal facts give equal bytes.
    pub(crate) fn sorted(mut self) -> Self {
        self.findings.sort_by(|a, b| a.key().cmp(&b.key()));
        self
    }
}

/// `wanted`, moved into the range that the registry allows for `reason`.
pub(crate) fn within_range(reason: &ReasonCode, wanted: Severity) -> Severity {
    match reason.info() {
        Some(info) => wanted.clamp(info.severities.0, info.severities.1),
        None => wanted,
    }
}

/// What to do about a read that failed, by its cause.
pub(crate) fn advice_for_cause(cause: &UnknownCause) -> &'static str {
    use UnknownCause as C;
    match cause {
        C::TimedOut => {
            "See whether what is named above hangs (its log, its disk) or the way to it drops packets; the check goes on trying."
        }
        C::PermissionDenied => {
            "Give Outrider's user or its root helper access to what is named above; nothing else is wrong with the check."
        }
        C::ConnectionRefused => {
            "Nothing listens where it was asked: see whether its service runs, and what its log ends with."
        }
        C::Unreachable => "Check the way there: route, firewall, and whether the peer closed the connection.",
        C::NameNotResolved => {
            "See what this machine's resolver says of the name above (getent ahosts NAME), and whether it is spelt right."
        }
        C::TlsFailed => {
            "See which certificate is shown where it was asked (openssl s_client -connect HOST:PORT -showcerts), and which CA is \
             trusted here."
        }
        C::Unauthenticated => {
            "The credential is not accepted: check which one is used and whether it was replaced."
        }
        C::Forbidden => "The credential is known and lacks the right: check the role behind it.",
        C::InvalidAnswer => {
            "See what the file holds, or what answers where it was asked: it is not what the check expects there."
        }
        C::Unavailable => "The peer answers and cannot serve now; its own state says why.",
        C::Unsupported => {
            "What is named above is of a version or kind that this check does not know; nothing is said to be broken by that."
        }
        C::InvalidInput => "Correct the file or setting named above.",
        C::Panicked => "This is a fault of Outrider: keep its journal and report it. The other checks go on.",
        C::NotYetRead => "Wait for the first read.",
        _ => {
            "See what lies where it was read (of a file: ls -l, and namei -l for every folder and link on the way) and the system's \
             log (dmesg) for the error named above."
        }
    }
}
