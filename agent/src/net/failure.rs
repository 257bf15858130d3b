//! Every network error, told as a cause and a sentence.

use std::error::Error;
use std::future::Future;
use std::io;
use std::time::Duration;

use outrider_protocol::{Fact, Timestamp, UnknownCause};
use rustls::{AlertDescription, CertificateError};

/// Why something on the network did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Failure {
    /// The kind of failure, as facts carry it.
    pub cause: UnknownCause,
    /// The failure in words, without secrets.
    pub detail: String,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(cause: UnknownCause, detail: impl Into<String>) -> Self {
        Self { cause, detail: detail.into() }
    }

    /// The same failure, with what was being done in front.
    pub fn during(self, what: impl std::fmt::Display) -> Self {
        Self { cause: self.cause, detail: format!("{what}: {}", self.detail) }
    }

    /// A time limit that passed.
    pub fn timed_out(what: impl std::fmt::Display, limit: Duration) -> Self {
        let limit = match limit.as_millis() {
            ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
            ms => format!("{ms} ms"),
        };
        Self::new(UnknownCause::TimedOut, format!("{what}: no answer within {limit}"))
    }

    /// The reading that failed this way.
    pub fn into_fact<T>(self, source: impl Into<String>, at: Timestamp) -> Fact<T> {
        Fact::unknown(self.cause, self.detail, source, at)
    }

    /// Looks through an error and its sources for the one that tells the cause.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        let mut next = Some(error);
        let mut hyper = None;
        while let Some(current) = next {
            if let Some(failure) = current.downcast_ref::<Failure>() {
                return failure.clone();
            }
            if let Some(tls) = current.downcast_ref::<rustls::Error>() {
                return Self::from(tls);
            }
            if let Some(io) = current.downcast_ref::<io::Error>() {
                return Self::from(io);
            }
            hyper = hyper.or_else(|| current.downcast_ref::<hyper::Error>());
            next = current.source();
        }
        match hyper {
            Some(e) => Self::from_http(e),
            None => Self::new(UnknownCause::IoError, chain(error)),
        }
    }

    fn from_http(error: &hyper::Error) -> Self {
        use UnknownCause as C;
        if error.is_parse_too_large() {
            Self::new(C::InvalidAnswer, "the header of the answer is larger than the limit")
        } else if error.is_parse() {
            Self::new(C::InvalidAnswer, format!("the answer is not HTTP: {}", chain(error)))
        } else if error.is_timeout() {
            Self::new(C::TimedOut, chain(error))
        } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
            Self::new(C::Unreachable, "the peer closed the connection before a whole answer")
        } else if error.is_user() {
            Self::new(C::InvalidInput, chain(error))
        } else {
            Self::new(C::InvalidAnswer, chain(error))
        }
    }
}

impl From<&io::Error> for Failure {
    fn from(error: &io::Error) -> Self {
        if let Some(inner) = error.get_ref() {
            if let Some(tls) = inner.downcast_ref::<rustls::Error>() {
                return Self::from(tls);
            }
            if let Some(failure) = inner.downcast_ref::<Failure>() {
                return failure.clone();
            }
        }
        // A process that was killed says no goodbye; TLS calls that by a text with an address of its documentation.
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::new(
                UnknownCause::Unreachable,
                "the peer closed the connection before a whole answer",
            );
        }
        // The one mapping of operating-system errors is the protocol's; only "not there" means something else here.
        match Fact::<()>::from_io(error, "", Timestamp::default()) {
            Fact::Unknown { cause, detail, .. } => Self::new(cause, detail),
            _ => Self::new(UnknownCause::InvalidInput, error.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::from(&error)
    }
}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Self {
        Self::from_error(&error)
    }
}

impl From<rustls::Error> for Failure {
    fn from(error: rustls::Error) -> Self {
        Self::from(&error)
    }
}

impl From<&rustls::Error> for Failure {
    fn from(error: &rustls::Error) -> Self {
        use AlertDescription as A;
        use UnknownCause as C;
        match error {
            // Only who showed no certificate hears this (RFC 8446, 6.2).
            rustls::Error::AlertReceived(A::CertificateRequired) => Self::new(
                C::Unauthenticated,
                "the peer wants a client certificate, and none was shown (CertificateRequired)",
            ),
            // A client hears these about its own certificate only.
            rustls::Error::AlertReceived(
                alert @ (A::BadCertificate
                | A::UnsupportedCertificate
                | A::CertificateRevoked
                | A::CertificateExpired
                | A::CertificateUnknown
                | A::UnknownCA
                | A::AccessDenied),
            ) => {
                Self::new(C::Unauthenticated, format!("the peer refused our client certificate ({alert:?})"))
            }
            rustls::Error::AlertReceived(alert) => {
                Self::new(C::TlsFailed, format!("the peer ended the TLS handshake ({alert:?})"))
            }
            rustls::Error::InvalidMessage(_) => {
                Self::new(C::TlsFailed, "the peer does not speak TLS on this port")
            }
            rustls::Error::InvalidCertificate(why) => Self::new(C::TlsFailed, certificate_problem(why)),
            rustls::Error::InconsistentKeys(_) => {
                Self::new(C::InvalidInput, "the private key does not belong to the certificate")
            }
            other => Self::new(C::TlsFailed, other.to_string()),
        }
    }
}

/// What is wrong with a peer's certificate, in an operator's words.
pub(super) fn certificate_problem(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => {
            "the certificate leads to no trusted authority (unknown issuer, or an intermediate is missing)"
                .into()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            format!(
                "the certificate expired {} ago by this clock (is a clock wrong? compare first)",
                span(time.as_secs().saturating_sub(not_after.as_secs()))
            )
        }
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "the certificate becomes valid only in {} by this clock (is a clock wrong? compare first)",
            span(not_before.as_secs().saturating_sub(time.as_secs()))
        ),
        // These carry identifiers as bytes, which tell nobody anything.
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the certificate, or one of its chain, is signed by an algorithm that is not accepted (SHA-1, say)".into()
        }
        CertificateError::BadEncoding => "the certificate cannot be decoded (BadEncoding)".into(),
        CertificateError::BadSignature => {
            "the signature of the certificate does not fit the authority that it names (BadSignature): another CA of the \
             same name?"
                .into()
        }
        CertificateError::Revoked => "the certificate was revoked".into(),
        CertificateError::Other(other) => match other.0.to_string().as_str() {
            "CaUsedAsEndEntity" => {
                "the peer shows a CA's certificate as its own (CaUsedAsEndEntity); give it one that \
                                    the CA issued for its name"
                    .to_owned()
            }
            text => text.to_owned(),
        },
        other => rustls::Error::InvalidCertificate(other.clone()).to_string(),
    }
}

/// Seconds in the unit a person counts them in.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// An error and its sources in one line, each once.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(current) = next {
        let layer = current.to_string();
        if !text.ends_with(&layer) {
            text.push_str(": ");
            text.push_str(&layer);
        }
        next = current.source();
    }
    text
}

/// Runs `work` for at most `limit`; `what` names it when the time is up. A text and no format arguments: those cannot
/// be held over an await of a task that moves between threads.
pub async fn within<T>(
    limit: Duration,
    what: impl Into<String>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(Failure::timed_out(what.into(), limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_error_inside_an_io_error_keeps_its_meaning() {
        let inner = rustls::Error::AlertReceived(AlertDescription::UnknownCA);
        let outer = io::Error::new(io::ErrorKind::InvalidData, inner);
        assert_eq!(Failure::from(outer).cause, UnknownCause::Unauthenticated);
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_said_without_bytes_and_with_the_clock_first() {
        use rustls::pki_types::UnixTime;
        let at = |s| UnixTime::since_unix_epoch(Duration::from_secs(s));
        let expired = CertificateError::ExpiredContext { time: at(900_000), not_after: at(0) };
        assert_eq!(
            certificate_problem(&expired),
            "the certificate expired 10 days ago by this clock (is a clock wrong? compare first)"
        );
        let odd = CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: vec![42, 134],
            public_key_algorithm_id: vec![42, 134],
        };
        assert!(!certificate_problem(&odd).contains("42"), "{}", certificate_problem(&odd));
    }

    #[test]
    fn operating_system_errors_are_told_apart() {
        for (kind, cause) in [
            (io::ErrorKind::ConnectionRefused, UnknownCause::ConnectionRefused),
            (io::ErrorKind::ConnectionReset, UnknownCause::Unreachable),
            (io::ErrorKind::HostUnreachable, UnknownCause::Unreachable),
            (io::ErrorKind::TimedOut, UnknownCause::TimedOut),
            (io::ErrorKind::UnexpectedEof, UnknownCause::Unreachable),
            (io::ErrorKind::NotFound, UnknownCause::InvalidInput),
        ] {
            assert_eq!(Failure::from(io::Error::from(kind)).cause, cause, "{kind:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_names_what_it_cut() {
        let never = std::future::pending::<Result<(), Failure>>();
        let failure = within(Duration::from_millis(1500), "status", never).await.unwrap_err();
        assert_eq!(failure, Failure::new(UnknownCause::TimedOut, "status: no answer within 1500 ms"));
    }
}
