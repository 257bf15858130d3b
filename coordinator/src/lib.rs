//! outrider-coordinator
pub mod enrol;
pub mod pki;
pub mod store;
