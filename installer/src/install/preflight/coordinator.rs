//! Is the coordinator there, is it the one that the token pins, and what does its clock say?
//!
//! That it cannot be reached stops nothing: a machine may be installed before its network is there. That something else
//! answers in its place does: nothing is changed, and no token goes there, for none is sent from here at all.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Request;
use jiff::Timestamp;
use outrider_agent::net::{Dialer, Failure, Limits, ProxySettings, Resolve, Url, certificate, tls};
use outrider_agent::report::identity::Ledger;
use outrider_protocol::{Severity, UnknownCause};

use super::{Finding, Preflight, machine, tell};
use crate::contexts;

/// The agent's own limits.
const LIMITS: Limits = Limits { body: 1 << 20, deadline: Duration::from_secs(10) };
/// The check `clock` warns and errs at these.
const OFFSET: [u64; 2] = [1, 30];

/// Tries each coordinator that the agent will.
pub(super) async fn ask(looked: &Preflight<'_>, ledger: Option<&Ledger>, findings: &mut Vec<Finding>) {
    let Some(settings) = machine::effective(looked) else { return };
    let urls = settings.coordinator.urls;
    let pin = match &looked.given.token {
        Some(token) => Some(token.pin.clone()),
        None => settings.coordinator.ca_checksum,
    };
    for url in urls.iter().filter_map(|url| Url::parse(url).ok()) {
        let Some(verifier) = verifier(pin.as_deref(), ledger) else {
            tell(
                findings,
                "coordinator",
                Severity::Info,
                format!("{url} was not asked: no token says which one to believe"),
                "",
            );
            continue;
        };
        let proxy = ProxySettings::from_env();
        let by_proxy = proxy.for_url(&url).is_some();
        match try_one(&url, &verifier, proxy).await {
            Ok(offset) => {
                let trust = if pin.is_some() {
                    "its CA is the one that the token pins"
                } else {
                    "its CA is the one this node knows"
                };
                tell(findings, "coordinator", Severity::Ok, format!("{url} answers, and {trust}"), "");
                of_clock(&verifier, offset, findings);
                if by_proxy {
                    let message = format!(
                        "{url} was asked by way of HTTPS_PROXY, which is in this shell and not in the unit"
                    );
                    tell(
                        findings,
                        "coordinator",
                        Severity::Warn,
                        message,
                        "If the agent needs it too: systemctl edit outrider-agent.service, [Service] Environment=HTTPS_PROXY=…",
                    );
                }
            }
            Err(failure)
                if failure.cause == UnknownCause::TlsFailed
                    || failure.cause == UnknownCause::InvalidAnswer =>
            {
                let advice = "Is the token of another coordinator, or does a balancer or a proxy end TLS in front of this one? The \
                              agents' port needs TCP pass-through. Nothing was changed.";
                tell(findings, "coordinator", Severity::Error, format!("{url}: {failure}"), advice);
            }
            Err(failure) => {
                let message = format!("{url} cannot be asked from here: {failure}");
                tell(
                    findings,
                    "coordinator",
                    Severity::Warn,
                    message,
                    "The agent goes on trying; `outrider check` and the journal say how it fares.",
                );
            }
        }
    }
}

/// What believes a coordinator.
enum Verifier {
    Pinned(Arc<tls::Pinned>),
    Known(String),
}

fn verifier(pin: Option<&str>, ledger: Option<&Ledger>) -> Option<Verifier> {
    match pin {
        Some(pin) => contexts::checksum(pin).ok().map(|pin| Verifier::Pinned(tls::Pinned::new(pin, true))),
        None => ledger.map(|ledger| Verifier::Known(ledger.ca_bundle.clone())),
    }
}

/// How far our clock is ahead of the coordinator's, in seconds, where it says what time it is.
async fn try_one(url: &Url, verifier: &Verifier, proxy: ProxySettings) -> Result<Option<i64>, Failure> {
    let config = match verifier {
        Verifier::Pinned(pinned) => tls::client_config(pinned.clone(), None, &[])?,
        Verifier::Known(bundle) => {
            let roots = tls::roots_of(&certificate::certificates(bundle.as_bytes())?)?;
            tls::client_config(tls::trusting(roots)?, None, &[])?
        }
    };
    let dialer = Dialer { tls: config, proxy, resolve: Resolve::new(), limit: Duration::from_secs(10) };
    let mut connection = dialer.open(url).await?;
    let invalid = |detail: String| Failure::new(UnknownCause::InvalidAnswer, detail);
    let request = Request::get("/healthz").body(Bytes::new()).map_err(|e| invalid(e.to_string()))?;
    let answer = connection.exchange(request, LIMITS).await?;
    if !answer.head.status.is_success() {
        return Err(Failure::new(UnknownCause::Unreachable, format!("it answers {}", answer.head.status)));
    }
    let theirs = answer.head.text(http::header::DATE).and_then(http_date);
    let ours = Timestamp::try_from(SystemTime::now()).ok();
    Ok(theirs.zip(ours).map(|(theirs, ours)| ours.as_second() - theirs.as_second()))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7).
fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

fn of_clock(verifier: &Verifier, offset: Option<i64>, findings: &mut Vec<Finding>) {
    let by_certificate = match verifier {
        Verifier::Pinned(pinned) => pinned.clock_skew().map(|skew| skew.seconds),
        Verifier::Known(_) => None,
    };
    let Some(offset) = offset.or(by_certificate) else { return };
    let direction = if offset > 0 { "ahead of" } else { "behind" };
    let seconds = offset.unsigned_abs();
    // The header counts whole seconds, and an answer takes a moment.
    if seconds <= OFFSET[0] + 1 {
        tell(findings, "clock", Severity::Ok, "it agrees with the coordinator's", "");
    } else {
        let message = format!("this machine's clock is {seconds} s {direction} the coordinator's");
        let advice = if seconds >= OFFSET[1] {
            "Set up chrony, or systemd-timesyncd: certificates are judged by it. The clock is never set from here."
        } else {
            ""
        };
        tell(findings, "clock", Severity::Warn, message, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_read() {
        let date = http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(date.as_second(), 784_111_777);
        assert_eq!(http_date("yesterday"), None);
    }
}
