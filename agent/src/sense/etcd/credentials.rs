//! TLS towards etcd, built from the files on disk and rebuilt when one of them has changed.

use std::path::Path;
use std::sync::Arc;

use outrider_protocol::UnknownCause;
use rustls::ClientConfig;
use sha2::{Digest, Sha256};

use super::discover::{TlsFiles, read_file};
use crate::net::{Failure, certificate, tls};
use crate::sense::OpenFile;

/// The bytes of the TLS files; the key among them, so they live only until [`Credentials`] are made of them.
pub(super) struct Material {
    ca: Vec<u8>,
    client: Option<(Vec<u8>, Vec<u8>)>,
    digest: [u8; 32],
    files: TlsFiles,
}

impl Material {
    /// Reads the files. Blocking. The failure names the file.
    pub(super) fn read(disk: &dyn OpenFile, files: &TlsFiles) -> Result<Self, (Failure, String)> {
        let read =
            |path: &Path| read_file(disk, path).map_err(|e| (file_failure(&e), path.display().to_string()));
        let ca = read(&files.ca)?;
        let client = match &files.client {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        let mut hash = Sha256::new();
        for part in
            [Some(&ca), client.as_ref().map(|c| &c.0), client.as_ref().map(|c| &c.1)].into_iter().flatten()
        {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize().into();
        Ok(Self { ca, client, digest, files: files.clone() })
    }
}

/// A file that is not there is as unusable here as one that may not be read: something else says it should be.
fn file_failure(error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::NotFound => Failure::new(UnknownCause::InvalidInput, "the file is not there"),
        _ => Failure::from(error),
    }
}

/// Ready-made TLS configurations.
#[derive(Clone)]
pub(super) struct Credentials {
    digest: [u8; 32],
    /// For gRPC.
    pub(super) grpc: Arc<ClientConfig>,
    /// For `/metrics` on the client port, which is HTTP/1.1.
    pub(super) http: Arc<ClientConfig>,
}

impl Credentials {
    /// Whether they were made of the same bytes.
    pub(super) fn made_of(&self, material: &Material) -> bool {
        self.digest == material.digest
    }

    /// From the files' contents; the failure names what does not fit, and in which file, and shows none of it.
    pub(super) fn new(material: &Material) -> Result<Self, (Failure, String)> {
        let of = |path: &Path| {
            let source = path.display().to_string();
            move |failure: Failure| (failure, source)
        };
        let in_ca = || of(&material.files.ca);
        let ca = certificate::certificates(&material.ca).map_err(in_ca())?;
        let trust = tls::trusting(tls::roots_of(&ca).map_err(in_ca())?).map_err(in_ca())?;
        let (identity, pair) = match (&material.client, &material.files.client) {
            (Some((certificate, key)), Some((certificate_path, key_path))) => {
                let chain = certificate::certificates(certificate).map_err(of(certificate_path))?;
                let key = certificate::private_key(key).map_err(of(key_path))?;
                let pair = format!("{} and {}", certificate_path.display(), key_path.display());
                (Some(tls::Identity::from_der(chain, key)), pair)
            }
            _ => (None, "TLS files of etcd".to_owned()),
        };
        let grpc =
            tls::client_config(trust, identity.as_ref(), &[b"h2"]).map_err(|failure| (failure, pair))?;
        let mut http = ClientConfig::clone(&grpc);
        http.alpn_protocols.clear();
        Ok(Self { digest: material.digest, grpc, http: Arc::new(http) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::prepared::Machine;

    #[test]
    fn what_cannot_be_used_is_named_by_its_file() {
        let key = rcgen::KeyPair::generate().unwrap();
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let params = rcgen::CertificateParams::new(vec!["n1".to_owned()]).unwrap();
        let good = params.self_signed(&key).unwrap().pem();
        let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let twice = format!("{good}{bad}");
        let key = key.serialize_pem();
        for (ca, certificate, key, source) in [
            (bad, good.as_str(), key.as_str(), "/ca.crt"),
            (&twice, &good, &key, "/ca.crt"),
            ("x", &good, &key, "/ca.crt"),
            (&good, "x", &key, "/client.crt"),
            (&good, &good, "x", "/client.key"),
            (&good, &good, &other, "/client.crt and /client.key"),
        ] {
            let machine = Machine::new();
            let files =
                TlsFiles { ca: "/ca.crt".into(), client: Some(("/client.crt".into(), "/client.key".into())) };
            for (path, text) in [("/ca.crt", ca), ("/client.crt", certificate), ("/client.key", key)] {
                machine.write(path, text);
            }
            let material = Material::read(&*machine.cx().opener, &files).map_err(|(f, _)| f).unwrap();
            let (failure, told) = Credentials::new(&material).err().unwrap();
            assert_eq!(told, source, "{failure}");
        }
    }
}
