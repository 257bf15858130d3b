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
        Ok(Self { ca, client, digest })
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

    /// From the files' contents; the failure names what does not fit, and shows none of it.
    pub(super) fn new(material: &Material) -> Result<Self, Failure> {
        let ca = certificate::certificates(&material.ca).map_err(|e| e.during("CA"))?;
        let trust = tls::trusting(tls::roots_of(&ca)?)?;
        let identity = match &material.client {
            Some((certificate, key)) => Some(tls::Identity::from_pem(certificate, key)?),
            None => None,
        };
        let grpc = tls::client_config(trust, identity.as_ref(), &[b"h2"])?;
        let mut http = ClientConfig::clone(&grpc);
        http.alpn_protocols.clear();
        Ok(Self { digest: material.digest, grpc, http: Arc::new(http) })
    }
}
