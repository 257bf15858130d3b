//! The coordinator's own certificate authority.
