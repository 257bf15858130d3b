//! Who this node is to its coordinator: a key that never leaves it, and the ledger of what it got for that key.
//!
//! `identity.key` (P-256, PKCS#8 PEM, mode 0600) is on disk before the first request: enrolling is idempotent by token id
//! and public key, so that a crash burns no token. `identity.json` is the ledger: node uid, certificate, trusted roots,
//! when to renew. A damaged ledger is set aside and the enrolment repeated with the same key; a damaged key is set aside
//! with it, for a certificate is worth nothing without.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use outrider_protocol::{EnrollResponse, Timestamp, TypeMeta, hex};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::disk::{self, Disk};
use crate::net::{Failure, certificate, tls};

const KEY: &str = "identity.key";
const LEDGER: &str = "identity.json";
const VERSION: u32 = 1;

/// What enrolment brought.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// `apiVersion` and `kind: IdentityLedger`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Version of this file.
    pub version: u32,
    /// Uid of this node at the coordinator.
    pub node_uid: String,
    /// Leaf and intermediates, PEM.
    pub certificate: String,
    /// Every root to be trusted, PEM.
    pub ca_bundle: String,
    /// When to renew.
    pub renew_at: Timestamp,
    /// End of the certificate.
    pub not_after: Timestamp,
    /// Id of the token that admitted the node; empty after a renewal of an identity that was given.
    #[serde(default)]
    pub token_id: String,
    /// SHA-256 (hex) of the public key, DER: the ledger belongs to this key.
    pub key_sha256: String,
}

/// The state folder cannot hold an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Reading or writing failed.
    #[error("the identity in the state folder cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// A key cannot be made or used.
    #[error("no usable key: {0}")]
    Key(String),
    /// The coordinator's answer holds no usable certificate.
    #[error("the coordinator's answer cannot be used: {0}")]
    Answer(String),
}

/// Key and ledger.
pub struct Identity {
    key: KeyPair,
    ledger: Option<Ledger>,
    /// What was set aside when it was opened, in words; empty when nothing was.
    pub found: String,
}

/// The ledger as it lies there, neither checked nor set aside: for what is shown before the identity is in use.
pub fn peek(disk: &dyn Disk) -> Option<Ledger> {
    serde_json::from_slice(&disk.read(LEDGER).ok()?).ok()
}

impl Identity {
    /// Reads the identity, or makes a key and writes it. What cannot be used is set aside.
    pub fn open(disk: &dyn Disk, now: Timestamp) -> Result<Self, IdentityError> {
        let mut found = Vec::new();
        let key = match read(disk, KEY)? {
            Some(pem) => match String::from_utf8(pem).ok().and_then(|pem| KeyPair::from_pem(&pem).ok()) {
                Some(key) => key,
                None => {
                    let aside = disk::set_aside(disk, KEY, now.as_millis())?;
                    found.push(format!("the key was damaged and set aside as {aside}; a new one was made"));
                    new_key(disk)?
                }
            },
            None => new_key(disk)?,
        };
        let ledger = match read(disk, LEDGER)? {
            None => None,
            Some(bytes) => match usable(&bytes, &key) {
                Ok(ledger) => Some(ledger),
                Err(why) => {
                    let aside = disk::set_aside(disk, LEDGER, now.as_millis())?;
                    found.push(format!(
                        "the ledger {why}; it was set aside as {aside} and enrolment is repeated"
                    ));
                    None
                }
            },
        };
        Ok(Self { key, ledger, found: found.join("; ") })
    }

    /// What enrolment brought; `None` before.
    pub fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// SHA-256 (hex) of the public key.
    pub fn key_sha256(&self) -> String {
        fingerprint(&self.key)
    }

    /// A certificate request for our key, PEM.
    pub fn request(&self) -> Result<String, IdentityError> {
        let params = CertificateParams::new(Vec::new()).map_err(|e| IdentityError::Key(e.to_string()))?;
        let request = params.serialize_request(&self.key).map_err(|e| IdentityError::Key(e.to_string()))?;
        request.pem().map_err(|e| IdentityError::Key(e.to_string()))
    }

    /// Takes over what the coordinator gave, on disk first.
    pub fn take(
        &mut self,
        disk: &dyn Disk,
        response: &EnrollResponse,
        token_id: &str,
    ) -> Result<(), IdentityError> {
        let answer = |failure: Failure| IdentityError::Answer(failure.to_string());
        let leaf = certificate::certificates(response.certificate.as_bytes()).map_err(answer)?;
        let facts = leaf.first().map(|leaf| certificate::facts(leaf)).transpose().map_err(answer)?;
        let facts = facts.ok_or_else(|| IdentityError::Answer("it has no certificate".to_owned()))?;
        let life = facts.not_after.since(facts.not_before);
        let ledger = Ledger {
            meta: TypeMeta::new("IdentityLedger"),
            version: VERSION,
            node_uid: response.node_uid.clone(),
            certificate: response.certificate.clone(),
            ca_bundle: response.ca_bundle.clone(),
            renew_at: response.renew_at.unwrap_or_else(|| facts.not_before.after(life * 2 / 3)),
            not_after: facts.not_after,
            token_id: token_id.to_owned(),
            key_sha256: self.key_sha256(),
        };
        client_config(&self.key, &ledger).map_err(answer)?;
        let bytes = serde_json::to_vec_pretty(&ledger).map_err(io::Error::from)?;
        disk::replace(disk, LEDGER, &bytes)?;
        self.ledger = Some(ledger);
        Ok(())
    }

    /// Drops what enrolment brought, for a coordinator that knows this node no more. The key stays.
    pub fn forget(&mut self, disk: &dyn Disk, now: Timestamp) -> Result<(), IdentityError> {
        if self.ledger.take().is_some() {
            disk.rename(LEDGER, &format!("identity.former-{}", now.as_millis()))?;
            disk.sync_folder()?;
        }
        Ok(())
    }

    /// TLS as this node: our certificate, and trust in the roots of the ledger. `None` before enrolment.
    pub fn tls(&self) -> Result<Option<Arc<ClientConfig>>, Failure> {
        self.ledger.as_ref().map(|ledger| client_config(&self.key, ledger)).transpose()
    }
}

fn read(disk: &dyn Disk, name: &str) -> io::Result<Option<Vec<u8>>> {
    match disk.read(name) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn new_key(disk: &dyn Disk) -> Result<KeyPair, IdentityError> {
    let key =
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|e| IdentityError::Key(e.to_string()))?;
    disk::replace(disk, KEY, key.serialize_pem().as_bytes())?;
    Ok(key)
}

fn fingerprint(key: &KeyPair) -> String {
    hex(&Sha256::digest(key.subject_public_key_info()))
}

fn usable(bytes: &[u8], key: &KeyPair) -> Result<Ledger, String> {
    let ledger: Ledger = serde_json::from_slice(bytes).map_err(|e| format!("is damaged ({e})"))?;
    if ledger.version != VERSION {
        return Err(format!("has format {}; this version reads {VERSION}", ledger.version));
    }
    if ledger.key_sha256 != fingerprint(key) {
        return Err("belongs to another key".to_owned());
    }
    client_config(key, &ledger).map_err(|e| format!("cannot be used ({e})"))?;
    Ok(ledger)
}

fn client_config(key: &KeyPair, ledger: &Ledger) -> Result<Arc<ClientConfig>, Failure> {
    let roots = tls::roots_of(&certificate::certificates(ledger.ca_bundle.as_bytes())?)?;
    let identity = tls::Identity::from_pem(ledger.certificate.as_bytes(), key.serialize_pem().as_bytes())?;
    tls::client_config(tls::trusting(roots)?, Some(&identity), &[])
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateSigningRequestParams, IsCa, Issuer};

    use super::*;
    use crate::report::disk::MemoryDisk;

    fn now() -> Timestamp {
        Timestamp::from_seconds(1_800_000_000)
    }

    /// What a coordinator would answer to the request of `identity`.
    fn answered(identity: &Identity) -> EnrollResponse {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let root = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let csr = CertificateSigningRequestParams::from_pem(&identity.request().unwrap()).unwrap();
        EnrollResponse {
            meta: TypeMeta::new("EnrollResponse"),
            node_uid: "uid-1".to_owned(),
            certificate: csr.signed_by(&issuer).unwrap().pem(),
            ca_bundle: root.pem(),
            renew_at: None,
            retry_after_seconds: None,
            pending: String::new(),
            server_time: now(),
        }
    }

    #[test]
    fn the_key_is_on_disk_before_anything_is_asked_and_stays() {
        let disk = MemoryDisk::default();
        let first = Identity::open(&disk, now()).unwrap();
        assert!(disk.read(KEY).unwrap().starts_with(b"-----BEGIN PRIVATE KEY-----"));
        let second = Identity::open(&disk, now()).unwrap();
        assert_eq!(first.key_sha256(), second.key_sha256());
        assert!(second.tls().unwrap().is_none());
    }

    #[test]
    fn an_enrolment_survives_a_restart() {
        let disk = MemoryDisk::default();
        let mut identity = Identity::open(&disk, now()).unwrap();
        let response = answered(&identity);
        identity.take(&disk, &response, "tok").unwrap();
        let again = Identity::open(&disk, now()).unwrap();
        assert_eq!(again.ledger().unwrap().node_uid, "uid-1");
        assert!(again.tls().unwrap().is_some());
        assert_eq!(again.found, "");
    }

    #[test]
    fn a_damaged_ledger_is_set_aside_and_the_key_kept() {
        let disk = MemoryDisk::default();
        let mut identity = Identity::open(&disk, now()).unwrap();
        let key = identity.key_sha256();
        let response = answered(&identity);
        identity.take(&disk, &response, "tok").unwrap();
        disk::replace(&disk, LEDGER, b"{\"version\":1,").unwrap();
        let again = Identity::open(&disk, now()).unwrap();
        assert!(again.ledger().is_none() && again.key_sha256() == key);
        assert!(again.found.contains("set aside as identity.json.corrupt-1800000000000"), "{}", again.found);
    }

    #[test]
    fn a_damaged_key_takes_its_ledger_with_it() {
        let disk = MemoryDisk::default();
        let mut identity = Identity::open(&disk, now()).unwrap();
        let response = answered(&identity);
        identity.take(&disk, &response, "tok").unwrap();
        disk::replace(&disk, KEY, b"-----BEGIN PRIVATE KEY-----\nAAAA\n").unwrap();
        let again = Identity::open(&disk, now().after(std::time::Duration::from_secs(1))).unwrap();
        assert!(again.ledger().is_none() && again.key_sha256() != identity.key_sha256());
        assert!(
            again.found.contains("the key was damaged") && again.found.contains("belongs to another key"),
            "{}",
            again.found
        );
        assert!(!again.found.contains("AAAA"));
    }

    #[test]
    fn an_answer_with_a_certificate_for_another_key_is_refused() {
        let disk = MemoryDisk::default();
        let mut identity = Identity::open(&disk, now()).unwrap();
        let other = answered(&Identity::open(&MemoryDisk::default(), now()).unwrap());
        let error = identity.take(&disk, &other, "tok").unwrap_err();
        assert!(error.to_string().contains("does not belong"), "{error}");
        assert!(identity.ledger().is_none());
    }
}
