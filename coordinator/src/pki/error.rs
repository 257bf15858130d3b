//! What can go wrong with keys and certificates, in words that say what, where and what to do.

use std::path::PathBuf;

use outrider_protocol::Timestamp;

/// The authority cannot be opened or cannot issue.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or folder cannot be read or written.
    #[error("cannot {verb} {}", path.display())]
    Io {
        /// `read`, `write`, `create`.
        verb: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others may read a private key.
    #[error(
        "{} holds a private key and has mode {mode:04o}; it must be 0600: if nobody else read it, run `chmod 600 {}`, \
         otherwise rotate the CA", path.display(), path.display()
    )]
    Permissions {
        /// Which file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A file does not hold what it should.
    #[error("{} {problem}; restore it from a backup of the state folder", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Key and certificate in one file do not belong together.
    #[error(
        "the private key in {} does not belong to the certificate in it (key {key}, certificate {certificate}); \
         restore the file from a backup of the state folder", path.display()
    )]
    KeyMismatch {
        /// Which file.
        path: PathBuf,
        /// SHA-256 of the key's public half.
        key: String,
        /// SHA-256 of the certificate's public key.
        certificate: String,
    },
    /// The active root has ended, or has not begun by our clock.
    #[error("the CA's root is valid from {not_before} to {not_after} and the clock says {now}: {advice}")]
    RootNotValid {
        /// First instant of validity.
        not_before: Timestamp,
        /// Last instant of validity.
        not_after: Timestamp,
        /// Our clock.
        now: Timestamp,
        /// Set the clock, or rotate.
        advice: &'static str,
    },
    /// A rotation is under way.
    #[error("a rotation is under way since root {active}; retire root {previous} first")]
    RotationUnderWay {
        /// Generation of the active root.
        active: u32,
        /// Generation of the one before.
        previous: u32,
    },
    /// Only a root that is trusted and not active can be retired.
    #[error("root {generation} cannot be retired: {problem}")]
    NotRetirable {
        /// Which generation was asked for.
        generation: u32,
        /// Why not.
        problem: &'static str,
    },
    /// A name that no certificate can carry.
    #[error("{name:?} is neither a DNS name nor an IP address; the server's certificate cannot carry it")]
    BadName {
        /// The name.
        name: String,
    },
    /// The certificate library failed.
    #[error("cannot make a certificate: {detail}")]
    Making {
        /// Its words.
        detail: String,
    },
}

/// A certificate request that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// More bytes than any request has.
    #[error("the certificate request has {bytes} bytes; at most {limit} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Not one PEM block `CERTIFICATE REQUEST`.
    #[error("the certificate request is not one PEM block CERTIFICATE REQUEST: {problem}")]
    NotPem {
        /// What it is instead.
        problem: String,
    },
    /// No PKCS #10 structure.
    #[error("the certificate request is no PKCS #10 request: {problem}")]
    NotPkcs10 {
        /// Where reading stopped.
        problem: String,
    },
    /// A key we do not issue for.
    #[error("the certificate request has a key of algorithm {algorithm}; ECDSA P-256 is wanted")]
    UnsupportedKey {
        /// Its object identifier.
        algorithm: String,
    },
    /// The requester does not hold the key.
    #[error("the certificate request is not signed by the key it carries")]
    BadSignature,
}
