//! When a credential ends, and what that means now.

use std::time::Duration;

use outrider_protocol::{RancherToken, ReasonCode as R, Severity, Status, Timestamp};

use super::{Verdict, View};
use crate::rules::clock::Validity;
use crate::wording::{Moment, Span};

const DAY_MS: i64 = 86_400_000;
/// Below this, a number that should be milliseconds since 1970 is of before 1973: it is seconds.
const SECONDS_BELOW: i64 = 100_000_000_000;
/// Above this (the year 5138), it is neither.
const NO_TIME_ABOVE: i64 = 100_000_000_000_000;

/// What is known of an end.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    /// It has none.
    Never(&'static str),
    /// It has one: when, and who says so.
    At(Timestamp, String),
    /// What would say it is gone: the token was purged or deleted.
    Gone(String),
    /// Switched off.
    Disabled,
    /// Nobody says; why.
    Unknown(String),
}

impl End {
    /// By Rancher's own object. The TTL decides, as in Rancher (`pkg/auth/tokens`, `IsExpired`): `expired` and `expiresAt`
    /// may be left over from before a TTL was set to 0 (G4).
    pub(super) fn of_token(token: &RancherToken) -> Self {
        if token.enabled == Some(false) {
            return End::Disabled;
        }
        match (token.ext, token.ttl_ms) {
            (false, Some(0)) => return End::Never("Rancher has set its TTL to 0, which is never"),
            (true, Some(ttl)) if ttl < 0 => return End::Never("its TTL is below 0, which is never"),
            _ => {}
        }
        let by = |what: &str| format!("by {what} of the token {}", token.name);
        let ttl = token.ttl_ms.filter(|ttl| *ttl > 0);
        match (token.expires_at, token.created_at.zip(ttl)) {
            // Old tokens: made at, and so long.
            (_, Some((made, ttl))) if !token.ext => {
                End::At(Timestamp::from_millis(made.as_millis().saturating_add(ttl)), by("the TTL"))
            }
            (Some(end), _) => End::At(end, by("expiresAt")),
            (None, Some((made, ttl))) => {
                End::At(Timestamp::from_millis(made.as_millis().saturating_add(ttl)), by("the TTL"))
            }
            (None, None) if !token.unread.is_empty() => End::Unknown(format!(
                "{} of the token {} cannot be understood",
                token.unread.join(" and "),
                token.name
            )),
            (None, None) if token.expired => {
                End::Gone(format!("Rancher calls the token {} expired and gives no time", token.name))
            }
            (None, None) if ttl.is_some() => End::Unknown(format!(
                "the token {} has a TTL of {} and neither a time of its making nor of its end",
                token.name,
                Span(Duration::from_millis(ttl.unwrap_or_default().unsigned_abs()))
            )),
            (None, None) if token.ttl_ms.is_some_and(|ttl| ttl < 0) => End::Unknown(format!(
                "the token {} has a TTL below 0 ({} ms), which Rancher gives to no token of this kind",
                token.name,
                token.ttl_ms.unwrap_or_default()
            )),
            // An empty expiresAt of an old token is never; of a new one, 0 is a default that the object does not tell.
            (None, None) if !token.ext => End::Never("Rancher gives it no end"),
            (None, None) => {
                End::Unknown(format!("the token {} has the default TTL, which it does not tell", token.name))
            }
        }
    }

    /// By the annotation `rancher.io/expiration-timestamp`: milliseconds since 1970, 0 for a token that was gone already.
    pub(super) fn of_annotation(text: &str) -> Self {
        let said = format!("by the annotation rancher.io/expiration-timestamp ({})", text.escape_debug());
        match text.trim().parse::<i64>() {
            Ok(0) => End::Gone(
                "the annotation rancher.io/expiration-timestamp is 0: its token was gone already".into(),
            ),
            Ok(n) if (1..SECONDS_BELOW).contains(&n) => End::At(
                Timestamp::from_seconds(n),
                format!("{said}, read as seconds, for as milliseconds it is of 1970"),
            ),
            Ok(n) if (SECONDS_BELOW..NO_TIME_ABOVE).contains(&n) => End::At(Timestamp::from_millis(n), said),
            _ => End::Unknown(format!("the annotation rancher.io/expiration-timestamp is no time: {text:?}")),
        }
    }

    fn validity(end: Timestamp, now: Timestamp, days: [i64; 2]) -> Validity {
        let left = end.as_millis().saturating_sub(now.as_millis());
        let within = |days: i64| left <= days.saturating_mul(DAY_MS);
        if left <= 0 {
            Validity::Ended
        } else if within(days[1]) {
            Validity::Ending(Severity::Error)
        } else if within(days[0]) {
            Validity::Ending(Severity::Warn)
        } else {
            Validity::Good
        }
    }

    /// The verdict on `what`, which begins the sentence. `advice` renews it.
    pub(super) fn judge(&self, view: &View, what: &str, advice: &str) -> Verdict {
        let (end, by) = match self {
            End::Never(why) => {
                let message = format!("{what} has no end: {why}.");
                return Verdict::new(Status::True, Severity::Ok, R::CredentialsGood, message);
            }
            End::Gone(why) => {
                let message = format!("{what} is of no use any more: {why}.");
                return Verdict::new(Status::False, Severity::Error, R::CredentialGone, message)
                    .advice(advice);
            }
            End::Disabled => {
                let message = format!("{what} is switched off in Rancher (enabled: false).");
                return Verdict::new(Status::False, Severity::Error, R::CredentialRefused, message).advice(
                    "Find out who switched the token off and why before it is switched on again or replaced.",
                );
            }
            End::Unknown(why) => {
                let message = format!("When {} ends cannot be told: {why}.", crate::wording::lower(what));
                return Verdict::new(Status::Unknown, Severity::Info, R::CredentialEndUnknown, message)
                    .advice("Look at the token in Rancher (Account & API Keys), or let Outrider try the credential.");
            }
            End::At(end, by) => (*end, by),
        };
        let here = Self::validity(end, view.now, view.days);
        let words = match here {
            Validity::Ended => {
                format!("{what} ended {} ago, on {}, {by}.", Span(view.now.since(end)), Moment(end))
            }
            _ => format!("{what} ends in {}, on {}, {by}.", Span(end.since(view.now)), Moment(end)),
        };
        if let Some(doubt) = view.doubt(here, |now| Self::validity(end, now, view.days)) {
            let severity = here.severity().max(Severity::Info);
            return Verdict::new(Status::Unknown, severity, R::CredentialClockUnsure, doubt.on(&words))
                .advice(doubt.advice(""));
        }
        match here {
            Validity::Good | Validity::NotYet => {
                Verdict::new(Status::True, Severity::Ok, R::CredentialsGood, words)
            }
            Validity::Ending(severity) => {
                Verdict::new(Status::True, severity, R::CredentialEnding, words).advice(advice)
            }
            Validity::Ended => {
                Verdict::new(Status::False, Severity::Error, R::CredentialExpired, words).advice(advice)
            }
        }
    }
}
