//! Dates against the clock, and against a clock that may be wrong.
//!
//! The levels are fixed numbers of days. A clock that is known to be wrong tells no end: then the verdict is unknown,
//! whatever it would have been, unless both clocks agree that all is well or that it has ended.

use std::time::Duration;

use outrider_protocol::{
    CertificateFacts, CertificateFile, CertificateUse, Fact, NodeFacts, ReasonCode as R, Severity, Status,
    Timestamp,
};

use super::{Candidate, Link, Part, View};
pub(super) use crate::rules::clock::Validity as Verdict;
use crate::rules::clock::{Doubt, Trust};
use crate::wording::{Moment, Span, lower, upper};

const DAY_MS: i64 = 86_400_000;
/// A file written this far ahead of the clock was written by a clock that knew better.
const WRITTEN_AHEAD: Duration = Duration::from_secs(3600);

/// What this machine's own files say against its clock: the one written farthest ahead of it, and how far.
pub(in crate::rules) fn written_ahead(facts: &NodeFacts) -> Option<(&str, Span)> {
    let certificates = facts.checks.certificates.as_ref().and_then(Fact::value)?;
    let by = |file: &CertificateFile| Some(file.modified?.since(facts.now)).filter(|by| *by > WRITTEN_AHEAD);
    let all = certificates.files.iter().filter_map(|file| Some((file.path.as_str(), by(file)?)));
    // The first of equals, as they were read.
    all.reduce(|far, other| if other.1 > far.1 { other } else { far }).map(|(path, by)| (path, Span(by)))
}

/// What the dates of one way to the authority say at one instant.
#[derive(Clone, Copy)]
pub(super) struct Dated<'a> {
    pub(super) verdict: Verdict,
    /// The certificate that decides.
    pub(super) link: Link<'a>,
}

/// The worst date on the way; `None` for an empty one.
pub(super) fn dated<'a>(path: &[Link<'a>], now: Timestamp, days: [i64; 3]) -> Option<Dated<'a>> {
    // The nearest to the authority decides: no leaf is renewed to any use under one that has ended.
    if let Some(link) = path.iter().rfind(|link| link.certificate.not_after <= now) {
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
    if let Some(doubt) = doubt(view, path, &here) {
        let severity = here.verdict.severity().max(Severity::Warn).min(at_most.max(Severity::Warn));
        let if_right = if here.verdict == Verdict::Ended { advice(&here) } else { String::new() };
        let unsure = Candidate::new(Status::Unknown, severity, R::CertificateClockUnsure, doubt.on(&words));
        return Some(unsure.advice(doubt.advice(&if_right)));
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
            let mut advice = advice(&here);
            if let Trust::Unread { why } = &view.clock {
                advice.push_str(&format!(" Before that, compare this clock with another (date -u): {why}."));
            }
            Candidate::new(Status::False, severity, R::CertificateExpired, words).advice(advice)
        }
        Verdict::NotYet => {
            let certificate = here.link.certificate;
            Candidate::new(Status::False, Severity::Error, R::CertificateNotYetValid, words).advice(format!(
                "Compare the clocks first (date -u; here it is {}): a clock that is behind makes every new certificate look so. \
                 If this clock is right, the one of the machine that issued it ({}) was {} ahead: correct that one and issue it \
                 again.",
                Moment(view.now),
                certificate.issuer,
                Span(certificate.not_before.since(view.now))
            ))
        }
    })
}

/// Whether this certificate has ended beyond what a wrong clock leaves open.
pub(super) fn has_ended(view: &View<'_>, certificate: &CertificateFacts) -> bool {
    ended(view, &[Link { certificate, part: Part::Leaf }]).is_some_and(|(_, if_right)| !if_right)
}

/// The certificate that has ended on this way to the authority, and whether only if this clock, which nobody keeps, is right.
pub(super) fn ended<'a>(view: &View<'_>, path: &[Link<'a>]) -> Option<(Link<'a>, bool)> {
    let here = dated(path, view.now, view.days).filter(|here| here.verdict == Verdict::Ended)?;
    match doubt(view, path, &here) {
        Some(doubt) if doubt.is_wrong => None,
        doubt => Some((here.link, doubt.is_some())),
    }
}

/// Why the verdict cannot be believed; `None` when it can.
fn doubt<'a>(view: &'a View<'_>, path: &[Link<'_>], here: &Dated<'_>) -> Option<Doubt<'a>> {
    let there = |now| dated(path, now, view.days).map_or(here.verdict, |there| there.verdict);
    view.clock.doubt(here.verdict, there)
}

fn words(dated: &Dated<'_>, now: Timestamp, what: &str) -> String {
    let certificate = dated.link.certificate;
    let (subject, end) = (&certificate.subject, certificate.not_after);
    let what = upper(&dated.link.part.of(&lower(what)));
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
