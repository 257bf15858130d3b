//! Who signed a certificate, by the signature: names do not tell (every RKE1 authority is `CN=kube-ca`, every kubeadm one
//! `CN=kubernetes`), and dates have no part in it.

use outrider_protocol::{CertificateUse, UnknownCause};
use rustls::pki_types::CertificateDer;
use x509_parser::error::X509Error;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::files::Read;
use crate::net::Failure;

/// Most steps from a certificate to its authority.
const MAX_STEPS: usize = 6;

/// The certificates of an authority's file.
pub(super) struct Authority {
    path: String,
    certificates: Vec<CertificateDer<'static>>,
}

impl Authority {
    /// From a file that is one. The copy without its chain says nothing more.
    pub(super) fn of(read: &Read) -> Option<Self> {
        let usable = read.file.usage == CertificateUse::Authority
            && !read.chain.is_empty()
            && !read.file.path.contains(".nochain.");
        usable.then(|| Self { path: read.file.path.clone(), certificates: read.chain.clone() })
    }

    /// The file.
    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

/// The file of the authority that the first certificate of `chain` leads to, over the others of the chain; `None` when
/// it leads to none. An error when a signature cannot be checked here.
pub(super) fn signer<'a>(
    chain: &[CertificateDer<'_>],
    authorities: &'a [Authority],
) -> Result<Option<&'a str>, Failure> {
    let parsed: Vec<X509Certificate<'_>> =
        chain.iter().filter_map(|der| X509Certificate::from_der(der).ok()).map(|(_, c)| c).collect();
    let Some(mut current) = parsed.first() else { return Ok(None) };
    let mut unsupported = false;
    for _ in 0..MAX_STEPS {
        for authority in authorities {
            let mut known =
                authority.certificates.iter().filter_map(|der| X509Certificate::from_der(der).ok());
            if known.any(|(_, issuer)| signed(current, &issuer, &mut unsupported)) {
                return Ok(Some(&authority.path));
            }
        }
        let next = parsed.iter().skip(1).find(|issuer| {
            issuer.subject() != current.subject() && signed(current, issuer, &mut unsupported)
        });
        match next {
            Some(issuer) => current = issuer,
            None => break,
        }
    }
    if unsupported {
        return Err(Failure::new(
            UnknownCause::Unsupported,
            "its signature is of a kind that cannot be checked here",
        ));
    }
    Ok(None)
}

fn signed(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>, unsupported: &mut bool) -> bool {
    if certificate.issuer().as_raw() != issuer.subject().as_raw() {
        return false;
    }
    match certificate.verify_signature(Some(issuer.public_key())) {
        Ok(()) => true,
        Err(X509Error::SignatureUnsupportedAlgorithm) => {
            *unsupported = true;
            false
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{CertificateFile, Fact, Timestamp};
    use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};

    use super::*;
    use crate::net::authority::{authority, params};

    fn leaf(of: &CertifiedIssuer<'static, KeyPair>) -> CertificateDer<'static> {
        let params = CertificateParams::new(vec!["n1".to_owned()]).unwrap();
        params.signed_by(&KeyPair::generate().unwrap(), of).unwrap().der().clone()
    }

    fn file(path: &str, chain: Vec<CertificateDer<'static>>) -> Authority {
        let at = Timestamp::default();
        let file = CertificateFile {
            path: path.to_owned(),
            usage: CertificateUse::Authority,
            modified: None,
            certificates: Fact::absent("", at),
            issuer: Fact::absent("", at),
            key: None,
        };
        Authority::of(&Read { file, chain }).unwrap()
    }

    #[test]
    fn an_authority_of_the_same_name_did_not_sign_it() {
        let (ours, theirs) = (authority("kubernetes"), authority("kubernetes"));
        let files = [file("/ca.crt", vec![ours.der().clone()])];
        assert_eq!(signer(&[leaf(&ours)], &files).unwrap(), Some("/ca.crt"));
        assert_eq!(signer(&[leaf(&theirs)], &files).unwrap(), None);
    }

    #[test]
    fn intermediates_lead_on_and_a_bundle_has_several() {
        let (root, other) = (authority("root"), authority("other"));
        let key = KeyPair::generate().unwrap();
        let intermediate = CertifiedIssuer::signed_by(params("intermediate"), key, &root).unwrap();
        let files = [file("/bundle.crt", vec![other.der().clone(), root.der().clone()])];
        let leaf = leaf(&intermediate);
        assert_eq!(signer(&[leaf.clone(), intermediate.der().clone()], &files).unwrap(), Some("/bundle.crt"));
        assert_eq!(signer(&[leaf], &files).unwrap(), None, "the link is missing");
        assert_eq!(signer(&[], &files).unwrap(), None);
    }
}
