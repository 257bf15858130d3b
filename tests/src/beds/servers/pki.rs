//! The certificates of etcd in RKE2: a CA for clients and one for peers (`facts/rke2-k3s-on-disk.md`, section 3).

use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;

use crate::beds::pki::{Authority, DAY};

/// Both CAs of one cluster.
pub struct Pki {
    server: Authority,
    peer: Authority,
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pki")
    }
}

impl Pki {
    /// Two new CAs.
    pub fn new() -> Result<Self> {
        let authority = |name| Authority::new(name, 3650 * DAY);
        Ok(Self { server: authority("etcd-server-ca")?, peer: authority("etcd-peer-ca")? })
    }

    /// All files of a server at `address` into `folder` (`server/tls/etcd`).
    pub fn write(&self, folder: &Path, address: IpAddr) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("server-ca.crt"), self.server.pem())?;
        std::fs::write(folder.join("peer-ca.crt"), self.peer.pem())?;
        let address = address.to_string();
        let names = ["localhost", "127.0.0.1", "::1", address.as_str()];
        write_leaf(folder, "server-client", &self.server, &names)?;
        write_leaf(folder, "peer-server-client", &self.peer, &names)?;
        self.write_client(folder)
    }

    /// A client certificate of this cluster into `folder`.
    pub fn write_client(&self, folder: &Path) -> Result<()> {
        write_leaf(folder, "client", &self.server, &["etcd-client"])
    }
}

fn write_leaf(folder: &Path, name: &str, issuer: &Authority, names: &[&str]) -> Result<()> {
    let issued = issuer.issue(name, names, -3600, 365 * DAY)?;
    issued.write(&folder.join(format!("{name}.crt")), &folder.join(format!("{name}.key")))
}
