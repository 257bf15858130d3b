//! What a sensor read, or why it could not.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::Timestamp;

open_enum! {
    /// Why a reading is unknown. 401 is not 403, and neither is "not there".
    UnknownCause {
        /// The sensor's time limit passed.
        TimedOut = "TimedOut",
        /// The operating system refused (EACCES, EPERM).
        PermissionDenied = "PermissionDenied",
        /// The peer refused the connection.
        ConnectionRefused = "ConnectionRefused",
        /// No route, reset, or closed before an answer.
        Unreachable = "Unreachable",
        /// The name did not resolve.
        NameNotResolved = "NameNotResolved",
        /// TLS failed: untrusted, expired, wrong name, or no TLS at all.
        TlsFailed = "TlsFailed",
        /// The peer did not accept who we are (HTTP 401, gRPC UNAUTHENTICATED).
        Unauthenticated = "Unauthenticated",
        /// The peer knows us and refuses (HTTP 403, gRPC PERMISSION_DENIED).
        Forbidden = "Forbidden",
        /// An answer came and made no sense.
        InvalidAnswer = "InvalidAnswer",
        /// The peer said it cannot answer now (no leader, too many requests).
        Unavailable = "Unavailable",
        /// The peer does not know the call.
        Unsupported = "Unsupported",
        /// A file or setting could not be used as it is.
        InvalidInput = "InvalidInput",
        /// The sensor panicked; the rest of the agent goes on.
        Panicked = "Panicked",
        /// The read has not been tried yet.
        NotYetRead = "NotYetRead",
        /// Any other operating-system error.
        IoError = "IoError",
    }
}

/// One reading. Unknown is not false, and absent is not empty.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Fact<T> {
    /// The value, where it was read and when.
    Known {
        /// What was read.
        value: T,
        /// File, URL or system call it came from.
        source: String,
        /// When it was read.
        at: Timestamp,
    },
    /// We looked, and it is not there.
    Absent {
        /// Where we looked.
        source: String,
        /// When we looked.
        at: Timestamp,
    },
    /// This machine has no such thing to look at; the reason says why.
    NotApplicable {
        /// Why there is nothing to read.
        reason: String,
        /// When that was found.
        at: Timestamp,
    },
    /// The read failed. It is never false, empty or absent.
    Unknown {
        /// The kind of failure.
        cause: UnknownCause,
        /// The failure in words, without secrets.
        detail: String,
        /// What was read.
        source: String,
        /// When it failed.
        at: Timestamp,
    },
}

/// The fields of a reading in any of its states. serde's own tagged enums read all of a value before they look at it, and so
/// lose the place of what is wrong in it; this is read as it comes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "T: Deserialize<'de>", expecting = "a reading with its state")]
struct Fields<T> {
    state: State,
    #[serde(default, deserialize_with = "present")]
    value: Option<T>,
    source: Option<String>,
    at: Timestamp,
    reason: Option<String>,
    cause: Option<UnknownCause>,
    detail: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum State {
    Known,
    Absent,
    NotApplicable,
    Unknown,
}

/// `null` is no value that is left out.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Fact<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        fn need<V, E: serde::de::Error>(field: Option<V>, name: &'static str) -> Result<V, E> {
            field.ok_or_else(|| E::missing_field(name))
        }
        let Fields { state, value, source, at, reason, cause, detail } = Fields::deserialize(d)?;
        Ok(match state {
            State::Known => Fact::Known { value: need(value, "value")?, source: need(source, "source")?, at },
            State::Absent => Fact::Absent { source: need(source, "source")?, at },
            State::NotApplicable => Fact::NotApplicable { reason: need(reason, "reason")?, at },
            State::Unknown => Fact::Unknown {
                cause: need(cause, "cause")?,
                detail: need(detail, "detail")?,
                source: need(source, "source")?,
                at,
            },
        })
    }
}

impl<T> Fact<T> {
    /// A value read from `source` at `at`.
    pub fn known(value: T, source: impl Into<String>, at: Timestamp) -> Self {
        Fact::Known { value, source: source.into(), at }
    }

    /// Nothing at `source`.
    pub fn absent(source: impl Into<String>, at: Timestamp) -> Self {
        Fact::Absent { source: source.into(), at }
    }

    /// Nothing to read on this machine, because of `reason`.
    pub fn not_applicable(reason: impl Into<String>, at: Timestamp) -> Self {
        Fact::NotApplicable { reason: reason.into(), at }
    }

    /// A read that failed.
    pub fn unknown(
        cause: UnknownCause,
        detail: impl Into<String>,
        source: impl Into<String>,
        at: Timestamp,
    ) -> Self {
        Fact::Unknown { cause, detail: detail.into(), source: source.into(), at }
    }

    /// A read that failed in the operating system: absent when the file is not there, unknown otherwise.
    pub fn from_io(error: &std::io::Error, source: impl Into<String>, at: Timestamp) -> Self {
        use std::io::ErrorKind as K;
        let cause = match error.kind() {
            K::NotFound => return Fact::absent(source, at),
            K::PermissionDenied => UnknownCause::PermissionDenied,
            K::TimedOut => UnknownCause::TimedOut,
            K::ConnectionRefused => UnknownCause::ConnectionRefused,
            K::ConnectionReset | K::ConnectionAborted | K::UnexpectedEof | K::BrokenPipe => {
                UnknownCause::Unreachable
            }
            K::HostUnreachable | K::NetworkUnreachable | K::NotConnected => UnknownCause::Unreachable,
            K::InvalidData => UnknownCause::InvalidAnswer,
            K::InvalidInput => UnknownCause::InvalidInput,
            _ => UnknownCause::IoError,
        };
        Fact::unknown(cause, error.to_string(), source, at)
    }

    /// The value, if it is known.
    pub fn value(&self) -> Option<&T> {
        match self {
            Fact::Known { value, .. } => Some(value),
            _ => None,
        }
    }

    /// When the reading was made.
    pub fn at(&self) -> Timestamp {
        match self {
            Fact::Known { at, .. }
            | Fact::Absent { at, .. }
            | Fact::NotApplicable { at, .. }
            | Fact::Unknown { at, .. } => *at,
        }
    }

    /// The same reading with its value changed by `f`.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Fact::Known { value, source, at } => Fact::Known { value: f(value), source, at },
            Fact::Absent { source, at } => Fact::Absent { source, at },
            Fact::NotApplicable { reason, at } => Fact::NotApplicable { reason, at },
            Fact::Unknown { cause, detail, source, at } => Fact::Unknown { cause, detail, source, at },
        }
    }
}
