//! Certificate requests: the proof that a machine holds a key, and nothing else.
//!
//! Subject and extensions of a request are ignored: who a node is, the registry decides, and what a certificate is good
//! for, the authority.

use outrider_protocol::hex;
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use super::RequestError;

/// Longest certificate request that is read, in bytes of PEM.
pub const MAX_REQUEST_BYTES: usize = 16 * 1024;

const EC_PUBLIC_KEY: &str = "1.2.840.10045.2.1";
const P256: &str = "1.2.840.10045.3.1.7";

/// A request whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedRequest {
    spki: Vec<u8>,
}

impl VerifiedRequest {
    /// Reads and verifies one PEM block `CERTIFICATE REQUEST` with an ECDSA P-256 key.
    pub fn from_pem(pem: &str) -> Result<Self, RequestError> {
        if pem.len() > MAX_REQUEST_BYTES {
            return Err(RequestError::TooLarge { bytes: pem.len(), limit: MAX_REQUEST_BYTES });
        }
        let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes())
            .map_err(|e| RequestError::NotPem { problem: e.to_string() })?;
        Self::from_der(&der)
    }

    /// Reads and verifies a PKCS #10 request.
    pub fn from_der(der: &[u8]) -> Result<Self, RequestError> {
        let not_pkcs10 = |problem: &str| RequestError::NotPkcs10 { problem: problem.to_owned() };
        let (rest, request) =
            X509CertificationRequest::from_der(der).map_err(|e| not_pkcs10(&e.to_string()))?;
        if !rest.is_empty() {
            return Err(not_pkcs10("bytes follow its end"));
        }
        let key = &request.certification_request_info.subject_pki;
        let algorithm = key.algorithm.algorithm.to_id_string();
        let curve = key.algorithm.parameters.as_ref().and_then(|p| p.as_oid().ok());
        if algorithm != EC_PUBLIC_KEY || curve.as_ref().is_none_or(|c| c.to_id_string() != P256) {
            // The parameters of an RSA key are no curve, and read as an empty identifier.
            let curve = curve.map(|c| c.to_id_string()).filter(|_| algorithm == EC_PUBLIC_KEY);
            let algorithm = match curve.as_deref().unwrap_or(&algorithm) {
                "1.2.840.113549.1.1.1" => "RSA".to_owned(),
                "1.3.101.112" => "Ed25519".to_owned(),
                "1.3.132.0.34" => "ECDSA P-384".to_owned(),
                "1.3.132.0.35" => "ECDSA P-521".to_owned(),
                other => other.to_owned(),
            };
            return Err(RequestError::UnsupportedKey { algorithm });
        }
        request.verify_signature().map_err(|_| RequestError::BadSignature)?;
        Ok(Self { spki: key.raw.to_vec() })
    }

    /// The public key, as DER of a SubjectPublicKeyInfo.
    pub fn public_key(&self) -> &[u8] {
        &self.spki
    }

    /// SHA-256 of the public key, hex: what enrolment is idempotent by.
    pub fn key_hash(&self) -> String {
        hex(&Sha256::digest(&self.spki))
    }
}
