//! Dates against the clock, and against a clock that may be wrong.
//!
//! The levels are fixed numbers of days. A clock that is known to be wrong tells no end: then the verdict is unknown,
//! whatever it would have been, unless both clocks agree that all is well or that it has ended.

use std::time::Duration;

use outrider_protocol::{
    CertificateUse, CertificatesFacts, Fact, NodeFacts, ReasonCode as R, Severity, Status, Timestamp,
};

use super::{Candidate, Link, Part, View};
use crate::wording::{Moment, Span, lower};

const DAY_MS: i64 = 86_400_000;
/// A file written this far ahead of the clock was written by a clock that knew better.
const WRITTEN_AHEAD: Duration = Duration::from_secs(3600);

/// Whether the clock may be believed.
pub(super) enum Clock {
    /// Nothing speaks against it.
    Believed,
    /// It differs from the coordinator's: what the time would be by that one, and how far off this one is.
    Skewed { now: Timestamp, why: String },
    /// Something speaks against it, and the right time is not known; that it is behind may be.
    Doubtful { why: String, behind: bool },
}

impl Clock {
    pub(super) fn of(facts: &NodeFacts, certificates: &CertificatesFacts) -> Self {
        let clock = facts.checks.clock.as_ref().and_then(Fact::value);
        if let Some(offset) = clock.and_then(|clock| clock.coordinator.value()) {
            let certain = offset.offset_ms.saturating_abs().saturating_sub(offset.uncertainty_ms.max(0));
            if certain > facts.thresholds.clock_error_ms {
                let now = Timestamp::from_millis(facts.now.as_millis().saturating_sub(offset.offset_ms));
                let off = Span(Duration::from_millis(offset.offset_ms.unsigned_abs()));
                let way = if offset.offset_ms > 0 { "ahead of" } else { "behind" };
                let why = format!("this clock is {off} {way} that of {}", offset.peer);
                return Clock::Skewed { now, why };
            }
        }
        let ahead = |file: &&outrider_protocol::CertificateFile| {
            file.modified.is_some_and(|modified| modified.since(facts.now) > WRITTEN_AHEAD)
        };
        if let Some(file) = certificates.files.iter().find(ahead) {
            let by = Span(file.modified.unwrap_or_default().since(facts.now));
            let why = format!("{} was written {by} ahead of this clock, which must be behind", file.path);
            return Clock::Doubtful { why, behind: true };
        }
        match clock.map(|clock| (&clock.kernel, clock.coordinator.value())) {
            // What agrees with the coordinator is right, whoever sets it.
            Some((Fact::Known { value: kernel, .. }, None)) if !kernel.synchronized => Clock::Doubtful {
                why: "nobody keeps this clock (the kernel calls it unsynchronised)".to_owned(),
                behind: false,
            },
            _ => Clock::Believed,
        }
    }
}

/// What the dates of one way to the authority say at one instant.
#[derive(Clone, Copy)]
pub(super) struct Dated<'a> {
    pub(super) verdict: Verdict,
    /// The certificate that decides.
    pub(super) link: Link<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Good,
    /// Ends within the days of this level.
    Ending(Severity),
    NotYet,
    Ended,
}

impl Verdict {
    /// Whether a clock of which only this is known leaves it open. A clock that is behind makes an end only more certain.
    pub(super) fn is_doubted(self, behind: bool) -> bool {
        self == Verdict::NotYet || (self == Verdict::Ended && !behind)
    }

    fn severity(self) -> Severity {
        match self {
            Verdict::Good => Severity::Ok,
            Verdict::Ending(severity) => severity,
            Verdict::NotYet | Verdict::Ended => Severity::Error,
        }
    }
}

/// The worst date on the way; `None` for an empty one.
pub(super) fn dated<'a>(path: &[Link<'a>], now: Timestamp, days: [i64; 3]) -> Option<Dated<'a>> {
    let ended = path.iter().filter(|link| link.certificate.not_after <= now);
    if let Some(link) = ended.min_by_key(|link| link.certificate.not_after) {
        return Some(Dated { verdict: Verdict::Ended, link: *link });
    }
    let early = path.iter().filter(|link| link.certificate.not_before > now);
    if let Some(link) = early.max_by_key(|link| link.certificate.not_before) {
        return Some(Dated { verdict: Verdict::NotYet, link: *link });
    }
    // The authority's own end has its subject; here it counts only where it comes before the leaf's.
    let link = path.iter().min_by_key(|link| link.certificate.not_after)?;
    let verdict = match level(link.certificate.not_after, now, days) {
        Severity::Ok => Verdict::Good,
        severity => Verdict::Ending(severity),
    };
    Some(Dated { verdict, link: *link })
}

/// How near `end` is: `days` are those that inform, warn and are an error.
pub(super) fn level(end: Timestamp, now: Timestamp, days: [i64; 3]) -> Severity {
    let left = end.as_millis().saturating_sub(now.as_millis());
    let within = |days: i64| left <= days.saturating_mul(DAY_MS);
    if within(days[2]) {
        Severity::Error
    } else if within(days[1]) {
        Severity::Warn
    } else if within(days[0]) {
        Severity::Info
    } else {
        Severity::Ok
    }
}

/// What is said of the dates of a thing. `what` names it and begins a sentence; `advice` is asked only when needed; a
/// thing that harms little is never more than `at_most`.
pub(super) fn candidate(
    view: &View<'_>,
    path: &[Link<'_>],
    what: &str,
    at_most: Severity,
    advice: impl FnOnce(&Dated<'_>) -> String,
) -> Option<Candidate> {
    let here = dated(path, view.now, view.days)?;
    let words = words(&here, view.now, what);
    if let Some((why, is_wrong)) = doubt(view, path, &here) {
        let severity = here.verdict.severity().max(Severity::Warn).min(at_most.max(Severity::Warn));
        let message = format!("By this clock: {words} But {why}, so that cannot be told.");
        let correct = "Correct the clock first (ClockSynchronized says how), then look again: renew and replace nothing \
                       by this clock.";
        let advice = if is_wrong || here.verdict != Verdict::Ended {
            correct.to_owned()
        } else {
            // Where nothing keeps the time it may be right all the same.
            format!(
                "Compare this clock with another (date -u). If it is wrong: {} If it is right: {}",
                lower(correct),
                advice(&here)
            )
        };
        let unsure = Candidate::new(Status::Unknown, severity, R::CertificateClockUnsure, message);
        return Some(unsure.advice(advice));
    }
    let severity = here.verdict.severity().min(at_most);
    Some(match here.verdict {
        Verdict::Good => Candidate::new(Status::True, Severity::Ok, R::CertificatesInDate, words),
        Verdict::Ending(_) => {
            Candidate::new(Status::True, severity, R::CertificateEnding, words).advice(advice(&here))
        }
        // The registry knows no lesser end: what harms little has ended all the same, and holds.
        Verdict::Ended if severity < Severity::Error => {
            Candidate::new(Status::True, severity, R::CertificateEnding, words).advice(advice(&here))
        }
        Verdict::Ended => {
            Candidate::new(Status::False, severity, R::CertificateExpired, words).advice(advice(&here))
        }
        Verdict::NotYet => Candidate::new(Status::False, Severity::Error, R::CertificateNotYetValid, words)
            .advice(
                "Compare the clocks first: a clock that is behind makes every new certificate look so. If this clock is \
                 right, the machine that issued it had a clock that was ahead: correct that one and issue it again.",
            ),
    })
}

/// Why the verdict cannot be believed, and whether the clock is known to be wrong; `None` when it can.
fn doubt(view: &View<'_>, path: &[Link<'_>], here: &Dated<'_>) -> Option<(String, bool)> {
    match &view.clock {
        Clock::Believed => None,
        Clock::Skewed { now, why } => {
            let there = dated(path, *now, view.days)?;
            let agreed = |verdict| here.verdict == verdict && there.verdict == verdict;
            (!agreed(Verdict::Good) && !agreed(Verdict::Ended)).then(|| (why.clone(), true))
        }
        Clock::Doubtful { why, behind } => here.verdict.is_doubted(*behind).then(|| (why.clone(), false)),
    }
}

fn words(dated: &Dated<'_>, now: Timestamp, what: &str) -> String {
    let certificate = dated.link.certificate;
    let (subject, end) = (&certificate.subject, certificate.not_after);
    let what = match dated.link.part {
        Part::Leaf => what.to_owned(),
        Part::Intermediate => format!("An intermediate of {}", lower(what)),
        Part::Authority => format!("The authority behind {}", lower(what)),
    };
    match dated.verdict {
        Verdict::Ended => {
            format!("{what} ended {} ago, on {} ({subject}).", Span(now.since(end)), Moment(end))
        }
        Verdict::NotYet => {
            let from = certificate.not_before;
            format!(
                "{what} is not valid before {}, {} from now ({subject}).",
                Moment(from),
                Span(from.since(now))
            )
        }
        Verdict::Ending(_) => {
            format!("{what} ends in {}, on {} ({subject}).", Span(end.since(now)), Moment(end))
        }
        Verdict::Good => {
            format!("{what} is good for {} more, until {}.", Span(end.since(now)), Moment(end))
        }
    }
}

/// The least that the verdict over a thing of this use may wake: what nobody verifies wakes nobody.
pub(super) fn at_most(usage: &CertificateUse) -> Severity {
    match usage {
        CertificateUse::SelfMade => Severity::Warn,
        CertificateUse::Foreign => Severity::Info,
        _ => Severity::Error,
    }
}
