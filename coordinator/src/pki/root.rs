//! One root: certificate, key, and the certificate that the root before it gave to its key.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outrider_protocol::{Timestamp, hex};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::{Pin, PkiError, files};

/// Certificates begin this long before they are made: clocks of nodes that are a little behind must not matter.
pub(super) const BACKDATE: Duration = Duration::from_secs(3600);

/// A root that can issue.
#[derive(Debug)]
pub(super) struct Root {
    /// 1 for the first, one more with each rotation.
    pub(super) generation: u32,
    /// Its self-signed certificate.
    pub(super) certificate: CertificateDer<'static>,
    /// The same name and key, signed by the root before: how those who know only that one get to a leaf of this.
    pub(super) crossed: Option<CertificateDer<'static>>,
    /// Name and key for signing. Its debug print carries no key.
    pub(super) issuer: Issuer<'static, KeyPair>,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
}

pub(super) fn making(error: rcgen::Error) -> PkiError {
    PkiError::Making { detail: error.to_string() }
}

/// `t` in whole seconds, as certificates count.
pub(super) fn date(t: Timestamp) -> Result<OffsetDateTime, PkiError> {
    OffsetDateTime::from_unix_timestamp(t.as_millis().div_euclid(1000))
        .map_err(|e| PkiError::Making { detail: format!("{t}: {e}") })
}

/// A positive random serial of 16 bytes.
pub(super) fn serial() -> rcgen::SerialNumber {
    let mut bytes: [u8; 16] = rand::random();
    // Neither negative nor with a leading zero, so that its length in the certificate is fixed.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    bytes.to_vec().into()
}

impl Root {
    /// A new root from an hour before `now`; with `previous`, its key is signed by that one too.
    pub(super) fn make(
        generation: u32,
        now: Timestamp,
        lifetime: Duration,
        previous: Option<&Root>,
    ) -> Result<Self, PkiError> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(making)?;
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        // Two roots must not share a name, or a verifier would have to guess between their keys.
        let mark = &hex(&Sha256::digest(key.public_key_raw()))[..8];
        name.push(DnType::OrganizationName, "Outrider");
        name.push(DnType::CommonName, format!("Outrider CA {generation} {mark}"));
        params.distinguished_name = name;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.not_before = date(now.before(BACKDATE))?;
        params.not_after = date(now.after(lifetime))?;
        params.serial_number = Some(serial());
        let certificate = params.self_signed(&key).map_err(making)?.der().clone();
        let crossed = previous
            .map(|previous| {
                params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
                params.not_after = date(now.after(lifetime).min(previous.not_after))?;
                params.serial_number = Some(serial());
                params.use_authority_key_identifier_extension = true;
                Ok(params.signed_by(&key, &previous.issuer).map_err(making)?.der().clone())
            })
            .transpose()?;
        Self::assemble(generation, certificate, crossed, key)
    }

    fn assemble(
        generation: u32,
        certificate: CertificateDer<'static>,
        crossed: Option<CertificateDer<'static>>,
        key: KeyPair,
    ) -> Result<Self, PkiError> {
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|e| PkiError::Making { detail: e.to_string() })?;
        let validity = parsed.validity();
        let not_before = Timestamp::from_seconds(validity.not_before.timestamp());
        let not_after = Timestamp::from_seconds(validity.not_after.timestamp());
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(making)?;
        Ok(Self { generation, certificate, crossed, issuer, not_before, not_after })
    }

    /// What a token pins.
    pub(super) fn pin(&self) -> Pin {
        Pin::of(&self.certificate)
    }

    /// Where generation `n` lives in the authority's folder.
    pub(super) fn path(folder: &Path, generation: u32) -> PathBuf {
        folder.join(format!("root-{generation}.pem"))
    }

    /// Writes certificates and key into one file, for the owner only.
    pub(super) fn save(&self, folder: &Path) -> Result<(), PkiError> {
        let mut content = pem(&self.certificate);
        if let Some(crossed) = &self.crossed {
            content.push_str(&pem(crossed));
        }
        content.push_str(&self.issuer.key().serialize_pem());
        files::write_whole(&Self::path(folder, self.generation), content.as_bytes(), 0o600)
    }

    /// Reads generation `n`: the root first, then the cross-signed certificate, if any, and the key.
    pub(super) fn load(folder: &Path, generation: u32) -> Result<Self, PkiError> {
        let path = Self::path(folder, generation);
        let damaged = |problem: String| PkiError::Damaged { path: path.clone(), problem };
        let content = files::read_secret(&path)?.ok_or_else(|| damaged("is missing".to_owned()))?;
        let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(content.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|e| damaged(format!("holds a certificate that cannot be read ({e})")))?;
        let mut certificates = certificates.into_iter();
        let certificate = certificates.next().ok_or_else(|| damaged("holds no certificate".to_owned()))?;
        let crossed = certificates.next();
        let key = rustls_pki_types::PrivateKeyDer::from_pem_slice(content.as_bytes())
            .map_err(|e| damaged(format!("holds no private key that can be read ({e})")))?;
        let key = KeyPair::from_der_and_sign_algo(&key, &rcgen::PKCS_ECDSA_P256_SHA256)
            .map_err(|e| damaged(format!("holds a private key that is not ECDSA P-256 ({e})")))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|e| damaged(format!("holds a certificate that cannot be read ({e})")))?;
        let certified = parsed.public_key().subject_public_key.data.as_ref();
        if certified != key.public_key_raw() {
            let fingerprint = |bytes: &[u8]| hex(&Sha256::digest(bytes));
            return Err(PkiError::KeyMismatch {
                path,
                key: fingerprint(key.public_key_raw()),
                certificate: fingerprint(certified),
            });
        }
        Self::assemble(generation, certificate, crossed, key)
    }
}

/// One certificate as PEM.
pub(super) fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut out = String::with_capacity(text.len() + text.len() / 64 + 64);
    out.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, tail) = rest.split_at(rest.len().min(64));
        out.push_str(line);
        out.push('\n');
        rest = tail;
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}
