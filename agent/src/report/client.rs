//! Talking to the coordinator: one typed exchange, its errors, and what its clock says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, StatusCode, header};
use outrider_protocol::{ApiError, ClockOffset, Fact, Timestamp, TypeMeta, UnknownCause};
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::transport::Transport;
use crate::net::{Connection, Failure, Limits, Url};

/// Limit of an exchange that is not held.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Bytes an answer may have.
const BODY_LIMIT: usize = 1 << 20;

/// An exchange with the coordinator did not bring what was asked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The network, TLS or HTTP failed.
    #[error("{0}")]
    Network(Failure),
    /// The coordinator answered with an error.
    #[error("{}: {}{}", .error.reason, .error.message.trim_end_matches('.'), advice(.error))]
    Refused {
        /// What it answered.
        error: Box<ApiError>,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// Nothing was sent: what is needed for it is missing here.
    #[error("{0}")]
    Unprepared(String),
    /// Nothing was sent: there is no enrolment token that could be used.
    #[error("{0}")]
    Token(String),
}

fn advice(error: &ApiError) -> String {
    if error.advice.is_empty() { String::new() } else { format!(". {}", error.advice) }
}

impl ExchangeError {
    /// The coordinator's reason; empty when it did not answer.
    pub fn reason(&self) -> &str {
        match self {
            ExchangeError::Refused { error, .. } => &error.reason,
            _ => "",
        }
    }

    /// Whether the coordinator says that it will refuse the same again.
    pub fn is_permanent(&self) -> bool {
        matches!(self, ExchangeError::Refused { error, .. } if error.permanent)
    }

    /// When the coordinator wants to be asked again, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            ExchangeError::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

impl From<Failure> for ExchangeError {
    fn from(failure: Failure) -> Self {
        let hint = match failure.cause {
            UnknownCause::TlsFailed if !failure.detail.contains("clock") => {
                "; the agents' port needs TCP pass-through: does a balancer end TLS in front of the coordinator?"
            }
            _ => "",
        };
        ExchangeError::Network(Failure::new(failure.cause, format!("{}{hint}", failure.detail)))
    }
}

/// The coordinator's addresses: the one that worked last, then the others in order.
#[derive(Clone)]
pub(super) struct Addresses {
    urls: Arc<[Url]>,
    good: Arc<AtomicUsize>,
}

impl Addresses {
    pub(super) fn new(urls: Vec<Url>) -> Self {
        Self { urls: urls.into(), good: Arc::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.urls.is_empty()
    }

    /// The address in use; empty when there is none.
    pub(super) fn current(&self) -> String {
        self.urls.get(self.good.load(Ordering::Relaxed)).map(ToString::to_string).unwrap_or_default()
    }

    /// A connection to the first address that takes one.
    pub(super) async fn open(
        &self,
        transport: &dyn Transport,
        tls: Arc<ClientConfig>,
    ) -> Result<Connection, ExchangeError> {
        let good = self.good.load(Ordering::Relaxed);
        let order = std::iter::once(good).chain((0..self.urls.len()).filter(|i| *i != good));
        let mut failures = Vec::new();
        for i in order {
            let Some(url) = self.urls.get(i) else { continue };
            match transport.open(url, tls.clone()).await {
                Ok(connection) => {
                    self.good.store(i, Ordering::Relaxed);
                    return Ok(connection);
                }
                Err(failure) => failures.push((url, failure)),
            }
        }
        // The next round begins with the first again: it is first because it is preferred.
        self.good.store(0, Ordering::Relaxed);
        let cause = failures.first().map_or(UnknownCause::InvalidInput, |(_, failure)| failure.cause.clone());
        let each: Vec<_> = failures.iter().map(|(url, failure)| format!("{url}: {failure}")).collect();
        Err(Failure::new(cause, each.join("; ")).into())
    }
}

/// An answer and how long it took.
pub(super) struct Exchanged<T> {
    pub(super) answer: T,
    pub(super) status: StatusCode,
    pub(super) round_trip: Duration,
    pub(super) ended: Timestamp,
}

/// Posts a document and reads the one that comes back, of the kind `kind`.
pub(super) async fn post<T: DeserializeOwned>(
    connection: &mut Connection,
    path: &str,
    document: &impl Serialize,
    kind: &str,
    deadline: Duration,
    clock: &(dyn Fn() -> Timestamp + Send + Sync),
) -> Result<Exchanged<T>, ExchangeError> {
    let invalid = |detail: String| Failure::new(UnknownCause::InvalidInput, detail);
    let body = serde_json::to_vec(document).map_err(|e| invalid(format!("{path}: {e}")))?;
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(|e| invalid(format!("{path}: {e}")))?;
    ask(connection, path, request, kind, deadline, clock).await
}

/// Asks for a document of the kind `kind`.
pub(super) async fn get<T: DeserializeOwned>(
    connection: &mut Connection,
    path: &str,
    kind: &str,
    deadline: Duration,
    clock: &(dyn Fn() -> Timestamp + Send + Sync),
) -> Result<Exchanged<T>, ExchangeError> {
    let request = Request::get(path)
        .body(Vec::new())
        .map_err(|e| Failure::new(UnknownCause::InvalidInput, format!("{path}: {e}")))?;
    ask(connection, path, request, kind, deadline, clock).await
}

async fn ask<T: DeserializeOwned>(
    connection: &mut Connection,
    path: &str,
    request: Request<Vec<u8>>,
    kind: &str,
    deadline: Duration,
    clock: &(dyn Fn() -> Timestamp + Send + Sync),
) -> Result<Exchanged<T>, ExchangeError> {
    let started = tokio::time::Instant::now();
    let answer = connection.exchange(request, Limits { body: BODY_LIMIT, deadline }).await?;
    let (round_trip, ended) = (started.elapsed(), clock());
    let status = answer.head.status;
    if !status.is_success() {
        let retry_after = answer.head.text(header::RETRY_AFTER).and_then(|text| text.trim().parse().ok());
        return Err(refused(status, &answer.body, retry_after.map(Duration::from_secs), connection.peer()));
    }
    let not_ours = |why: String| {
        let detail = format!("{} answered {path} with {status} and no {kind}: {why}", connection.peer());
        ExchangeError::Network(Failure::new(UnknownCause::InvalidAnswer, detail))
    };
    let meta: TypeMeta = serde_json::from_slice(&answer.body).map_err(|e| not_ours(e.to_string()))?;
    meta.expect(kind).map_err(not_ours)?;
    let answer = serde_json::from_slice(&answer.body).map_err(|e| not_ours(e.to_string()))?;
    Ok(Exchanged { answer, status, round_trip, ended })
}

/// An error answer; one that is not the coordinator's own is named as what it most likely is.
fn refused(status: StatusCode, body: &[u8], retry_after: Option<Duration>, peer: &str) -> ExchangeError {
    let error = serde_json::from_slice::<ApiError>(body).ok().filter(|error| error.meta.kind == "Status");
    let error = error.unwrap_or_else(|| {
        let message = format!("{peer} answers {status}, and not as a coordinator does");
        let advice = "Check the URL: does a proxy or balancer answer in the coordinator's place?";
        ApiError::new(status.as_u16(), "NotACoordinator", message, advice)
    });
    ExchangeError::Refused { error: Box::new(error), retry_after }
}

/// Our clock against the coordinator's, from one exchange whose answer was stamped somewhere within the round trip.
pub(super) fn clock_offset(
    server_time: Timestamp,
    ended: Timestamp,
    round_trip: Duration,
    peer: &str,
) -> Fact<ClockOffset> {
    let half = i64::try_from(round_trip.as_millis() / 2).unwrap_or(i64::MAX);
    let middle = ended.before(round_trip / 2);
    let offset = ClockOffset {
        offset_ms: middle.as_millis() - server_time.as_millis(),
        // Half the round trip, and the millisecond that stamps are cut to on either side.
        uncertainty_ms: half.saturating_add(2),
        peer: peer.to_owned(),
    };
    Fact::known(offset, peer, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_is_taken_in_the_middle_of_the_round_trip() {
        let fact = clock_offset(
            Timestamp::from_millis(1_000_000),
            Timestamp::from_millis(1_005_100),
            Duration::from_millis(200),
            "https://c.example",
        );
        let offset = fact.value().unwrap();
        assert_eq!((offset.offset_ms, offset.uncertainty_ms), (5_000, 102));
    }

    #[test]
    fn a_balancer_is_suspected_only_where_the_clock_does_not_explain_it() {
        let said = |error: rustls::CertificateError| {
            ExchangeError::from(Failure::from(rustls::Error::InvalidCertificate(error))).to_string()
        };
        assert!(said(rustls::CertificateError::UnknownIssuer).contains("TCP pass-through"));
        let at = |s| rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(s));
        for error in [
            rustls::CertificateError::ExpiredContext { time: at(900_000), not_after: at(0) },
            rustls::CertificateError::NotValidYetContext { time: at(0), not_before: at(900_000) },
        ] {
            let said = said(error);
            assert!(said.contains("clock") && !said.contains("balancer"), "{said}");
        }
    }

    #[test]
    fn an_error_page_of_something_else_is_named() {
        let error = refused(StatusCode::BAD_GATEWAY, b"<html>nginx</html>", None, "192.0.2.1:443");
        assert_eq!(error.reason(), "NotACoordinator");
        assert!(error.to_string().contains("192.0.2.1:443 answers 502 Bad Gateway"), "{error}");
    }
}
