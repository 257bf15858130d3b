//! How machines become nodes, and stay the ones they say they are.
//!
//! A machine shows a token and a certificate request ([`Registrar::enroll`]); what it gets is a short-lived client
//! certificate with the uid the registrar gave it. From then on the certificate speaks: [`Registrar::authenticate`] on
//! every request (revocation must not wait for the next handshake), [`Registrar::observe`] on every sign of life, which
//! is where two living machines with one identity show themselves.
//!
//! The pieces, from pure to busy: [`token`](TokenText) (the text), [`admission`] (may this machine have this name: a
//! function over what is known), [`vouching`] (does Harvester
//! vouch for it), [`clones`] (is this one machine or two: a function over sightings), [`NodeRecord`] and
//! [`TokenRecord`] (what is stored), [`Registrar`] (all of it together, over a [`Store`](crate::store::Store)).
//!
//! **Idempotent without a ledger.** A node's uid is derived from token id and public-key hash, and the uses of a token
//! are counted from the node records that name it. An enrolment is therefore one write, `nodes/<uid>`, that either
//! happened or did not; a crash anywhere burns no token, and the repeat is answered with the same node.

pub mod admission;
pub mod clones;
mod enrolling;
mod error;
mod housekeeping;
mod identity;
mod index;
mod operators;
mod record;
mod registrar;
mod token;
mod tokens;
pub mod vouching;

#[cfg(test)]
mod tests;

pub use error::EnrolError;
pub use operators::Operator;
pub use record::{CertificateRecord, CloneRecord, Ended, Enrolment, NodeRecord};
pub use registrar::{Departure, Registrar, Settings, Sighting};
pub use token::{MAX_TOKEN_BYTES, TokenError, TokenText};
pub use tokens::{TokenRecord, glob_matches};
