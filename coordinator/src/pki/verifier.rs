//! Which client certificates pass the handshake: ours, expired or not.

use std::sync::Arc;

use outrider_protocol::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::{Authority, PeerCertificate};

/// Accepts a certificate that chains to a trusted root and was valid at some time; see the module's docs for why an
/// expired one is let through here. No client certificate at all is fine too: operators show a token instead.
#[derive(Debug)]
pub(super) struct NodeVerifier {
    pub(super) authority: Arc<Authority>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for NodeVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    // No hints: they could not follow a rotation, and a node has one certificate only.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let peer = PeerCertificate::read(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        // Judged as of an instant at which it was valid, so that only time may be wrong with it and nothing else.
        let seconds = |t: Timestamp| u64::try_from(t.as_millis() / 1000).unwrap_or(0);
        let (first, last) = (seconds(peer.not_before), seconds(peer.not_after));
        let at = now.as_secs().clamp(first.min(last), last);
        let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
        self.authority.client_roots().verify_client_cert(end_entity, intermediates, at)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
