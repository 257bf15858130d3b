//! The certificate a client showed, read once a connection.

use outrider_protocol::{Timestamp, hex};
use sha2::{Digest, Sha256};
use x509_parser::extensions::GeneralName;

/// How a client certificate names its node.
const NODE_URI: &str = "outrider://node/";

/// What a client's certificate says. Only for certificates that passed the handshake: the chain is not verified here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// Uid of the node.
    pub uid: String,
    /// Serial number, hex.
    pub serial: String,
    /// SHA-256 of the public key, hex.
    pub key_hash: String,
    /// First instant of validity.
    pub not_before: Timestamp,
    /// Last instant of validity.
    pub not_after: Timestamp,
}

impl PeerCertificate {
    /// Reads a client certificate; what is wrong with it otherwise.
    pub fn read(der: &[u8]) -> Result<Self, String> {
        let (_, certificate) =
            x509_parser::parse_x509_certificate(der).map_err(|e| format!("no X.509 certificate: {e}"))?;
        let names = certificate.subject_alternative_name().map_err(|e| e.to_string())?;
        let uid = names
            .iter()
            .flat_map(|n| &n.value.general_names)
            .find_map(|name| match name {
                GeneralName::URI(uri) => uri.strip_prefix(NODE_URI),
                _ => None,
            })
            .filter(|uid| !uid.is_empty())
            .ok_or_else(|| format!("the certificate carries no URI {NODE_URI}<uid>; it is no node's"))?
            .to_owned();
        let validity = certificate.validity();
        Ok(Self {
            uid,
            serial: hex(certificate.raw_serial()),
            key_hash: hex(&Sha256::digest(certificate.public_key().raw)),
            not_before: Timestamp::from_seconds(validity.not_before.timestamp()),
            not_after: Timestamp::from_seconds(validity.not_after.timestamp()),
        })
    }

    /// The name of `uid` in a certificate.
    pub(super) fn uri(uid: &str) -> String {
        format!("{NODE_URI}{uid}")
    }

    /// When it ended, if it has at `now`.
    ///
    /// A certificate that has not begun counts as valid: we issue it ourselves, backdated, so it is our own clock that
    /// stepped back, and a fleet must not go blind for that.
    pub fn expired_since(&self, now: Timestamp) -> Option<Timestamp> {
        (now > self.not_after).then_some(self.not_after)
    }
}
