//! The coordinator's own certificate authority.
//!
//! [`Authority`] keeps one or two roots: the *active* one issues, and while a rotation overlaps the one before it is
//! trusted too. Tokens pin the SHA-256 of a root's DER ([`Pin`]).
//!
//! **Rotation without a day on which something breaks.** [`Authority::rotate`] makes a new root and has the old one sign
//! the new one's key as well. From then on the server shows `leaf (by new), new-by-old, new root, old root`:
//!
//! | who | finds its root in the chain | path of the leaf |
//! |---|---|---|
//! | agent or token that knows the old root | yes | leaf, new-by-old, old root |
//! | agent or token that knows the new root | yes | leaf, new root |
//!
//! Client certificates of either root are accepted. Agents learn both roots with their next renewal (two thirds of a
//! certificate's life). [`Authority::retire`] is an explicit, later step: after it, whoever knows only the old root is
//! left out, so the caller first asks the registry who that would be.
//!
//! **Expired client certificates** pass the handshake, because a VM that was switched off for a month must be able to
//! renew; [`PeerCertificate::expired_since`] tells, and everything but renewal refuses them. How long after its end a
//! certificate still renews is [`crate::enrol::Settings::renewal_grace`].
//!
//! A private key lives in one file with its certificates (0600, written whole or not at all), and is never logged.

mod authority;
mod csr;
mod error;
pub mod files;
mod peer;
mod root;
mod server;
mod verifier;

#[cfg(test)]
mod tests;

pub use authority::{Authority, Issued, Lifetimes, RootView};
pub use csr::{MAX_REQUEST_BYTES, VerifiedRequest};
pub use error::{PkiError, RequestError};
pub use peer::PeerCertificate;

use std::fmt;
use std::str::FromStr;

use outrider_protocol::hex;
use sha2::{Digest, Sha256};

/// SHA-256 of a root certificate's DER: what a token pins, 64 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin([u8; 32]);

impl Pin {
    /// The pin of a certificate.
    pub fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&hex(&self.0))
    }
}

impl FromStr for Pin {
    type Err = String;

    /// Reads 64 hex digits of either case; says what is wrong otherwise.
    fn from_str(s: &str) -> Result<Self, String> {
        let wrong =
            || format!("a CA hash is 64 hex digits (SHA-256); this has {} characters", s.chars().count());
        if let Some((i, c)) = s.chars().enumerate().find(|(_, c)| !c.is_ascii_hexdigit()) {
            let at = i + 1;
            return Err(format!("a CA hash is 64 hex digits (SHA-256); character {at} of this is {c:?}"));
        }
        if s.len() != 64 {
            return Err(wrong());
        }
        let mut pin = [0; 32];
        for (byte, pair) in pin.iter_mut().zip(s.as_bytes().chunks(2)) {
            let digit = |b: u8| char::from(b).to_digit(16);
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else {
                return Err(wrong());
            };
            *byte = (high * 16 + low) as u8;
        }
        Ok(Self(pin))
    }
}
