//! The certificate the coordinator shows, changed while it runs.

use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::Authority;

/// Shows the authority's current server certificate, whatever name is asked for.
#[derive(Debug)]
pub(super) struct CurrentCertificate(pub(super) Arc<Authority>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.server_certificate())
    }
}
