//! Finds the etcd of this node: configured endpoints first, then RKE2, K3s, RKE1 and kubeadm by what they leave on
//! disk (`facts/rke2-k3s-on-disk.md`). A node that keeps its state elsewhere (sqlite, an external datastore) or runs
//! no etcd is told apart from one whose files could not be read.

use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outrider_protocol::{Distribution, UnknownCause};

use super::disk::SnapshotSettings;
use super::expected::Configuration;
use super::rancher;
use crate::config::EtcdSettings;
use crate::net::{Failure, Url};
use crate::sense::OpenFile;
use crate::sense::rancher::{K3S, RKE2};

/// Largest certificate, key or configuration file.
const MAX_FILE: u64 = 256 * 1024;

/// The etcd of this node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    /// Who runs it.
    pub(super) distribution: Distribution,
    /// The path or setting that gave it away.
    pub(super) found_by: String,
    /// Client URLs; the first is the local member's.
    pub(super) endpoints: Vec<Url>,
    /// The local member's URL where the node has IPv6 only.
    pub(super) local_alternative: Option<Url>,
    /// TLS files; none for plain http.
    pub(super) files: Option<TlsFiles>,
    /// What a loss must outlast to be certain.
    pub(super) election_timeout: Duration,
    /// The local member's name, where a file tells it.
    pub(super) local_name: Option<String>,
    /// Where the local member's configuration stands.
    pub(super) configuration: Configuration,
    /// The local member's data folder, where the distribution fixes it.
    pub(super) data: Option<PathBuf>,
    /// Its snapshots, where the distribution makes any.
    pub(super) snapshots: Option<SnapshotSettings>,
}

impl Found {
    /// Every path that is read for this etcd.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths: Vec<&Path> = Vec::new();
        if let Some(files) = &self.files {
            paths.push(&files.ca);
            paths.extend(files.client.iter().flat_map(|(certificate, key)| [certificate.as_path(), key]));
        }
        if let Configuration::File(path) | Configuration::Pod(path) = &self.configuration {
            paths.push(path);
        }
        paths.extend(self.data.as_deref());
        paths.extend(self.snapshots.as_ref().map(|s| s.folder.as_path()));
        paths.iter().map(|path| path.display().to_string()).collect()
    }
}

/// PEM files towards the client port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// CA.
    pub(super) ca: PathBuf,
    /// Client certificate and key.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

/// What the search came to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Discovery {
    /// There is an etcd to ask.
    Found(Box<Found>),
    /// There is none, and why.
    NotHere(String),
    /// It could not be told.
    Failed {
        /// Why.
        failure: Failure,
        /// What was read.
        source: String,
    },
}

/// RKE2, K3s and RKE1 all start etcd with this election timeout (`facts/etcd.md`, section 2; RKE1 by its defaults).
pub(super) const RANCHER_ELECTION: Duration = Duration::from_millis(5000);
/// etcd's own default.
const DEFAULT_ELECTION: Duration = Duration::from_millis(1000);

/// Searches. Blocking: it reads files.
pub(super) fn discover(files: &dyn OpenFile, settings: &EtcdSettings) -> Discovery {
    let disk = Disk(files);
    // Somebody said where etcd is: if that cannot be used, no other etcd will do instead.
    if let Step::Done(configured) = configured(settings) {
        return configured;
    }
    let mut unreadable = None;
    let steps: [&dyn Fn() -> Step; 4] =
        [&|| rancher::find(&disk, &RKE2), &|| rancher::find(&disk, &K3S), &|| rke1(&disk), &|| {
            kubeadm(&disk)
        }];
    for step in steps {
        match step() {
            Step::Next => {}
            Step::Done(Discovery::Found(mut found)) => {
                if let Some(timeout) = settings.election_timeout {
                    found.election_timeout = timeout;
                }
                return Discovery::Found(found);
            }
            Step::Done(discovery @ Discovery::Failed { .. }) => {
                // What cannot be read of one distribution does not hide another that can.
                unreadable.get_or_insert(discovery);
            }
            Step::Done(not_here) => return unreadable.unwrap_or(not_here),
        }
    }
    unreadable.unwrap_or_else(|| {
        Discovery::NotHere("no etcd here: no [etcd] endpoints, no RKE2, K3s, RKE1 or kubeadm etcd".into())
    })
}

/// One distribution's part of the search.
pub(super) enum Step {
    /// Not this distribution.
    Next,
    /// It is, and this is what it says.
    Done(Discovery),
}

impl Step {
    pub(super) fn not_here(reason: impl Into<String>) -> Self {
        Step::Done(Discovery::NotHere(reason.into()))
    }

    pub(super) fn failed(error: &io::Error, source: &Path) -> Self {
        let failure = Failure::from(error);
        Step::Done(Discovery::Failed { failure, source: source.display().to_string() })
    }

    pub(super) fn found(found: Found) -> Self {
        Step::Done(Discovery::Found(Box::new(found)))
    }
}

/// Bounded reads through the opener.
pub(super) struct Disk<'a>(pub(super) &'a dyn OpenFile);

impl Disk<'_> {
    /// Names in a folder; `None` when it is not there.
    pub(super) fn list(&self, path: &Path) -> io::Result<Option<Vec<String>>> {
        absent(self.0.list(path))
    }

    /// A file's bytes; `None` when it is not there.
    pub(super) fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        absent(read_file(self.0, path))
    }
}

/// A small file, whole.
pub(super) fn read_file(files: &dyn OpenFile, path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    files.open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        let text = format!("larger than {MAX_FILE} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(bytes)
}

fn absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e),
    }
}

/// A URL we made ourselves.
pub(super) fn loopback(host: &str) -> Url {
    Url { tls: true, host: host.to_owned(), port: 2379, path: "/".to_owned() }
}

fn configured(settings: &EtcdSettings) -> Step {
    if settings.endpoints.is_empty() && !settings.endpoints_refused {
        return Step::Next;
    }
    let refuse = |detail: String| {
        let failure = Failure::new(UnknownCause::InvalidInput, detail);
        Step::Done(Discovery::Failed { failure, source: "[etcd]".into() })
    };
    if settings.endpoints_refused {
        // The first is the local member's: without one of them another might be taken for it.
        return refuse(
            "etcd.endpoints has an entry that cannot be used, so which etcd is meant is not known: the configuration's problems \
             say what is wrong with it (outrider-agent validate)"
                .to_owned(),
        );
    }
    let mut endpoints = Vec::new();
    for text in &settings.endpoints {
        match Url::parse(text) {
            Ok(url) if !endpoints.contains(&url) => endpoints.push(url),
            Ok(_) => {}
            Err(e) => return refuse(format!("etcd.endpoints: {e}")),
        }
    }
    let client = match (&settings.cert, &settings.key) {
        (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
        (None, None) => None,
        _ => return refuse("etcd.cert and etcd.key must be given together".into()),
    };
    let files = match &settings.ca {
        Some(ca) => Some(TlsFiles { ca: ca.clone(), client }),
        None if endpoints.iter().any(|url| url.tls) => {
            return refuse("etcd.endpoints use https, so etcd.ca must name the CA of the client port".into());
        }
        None => None,
    };
    let here = endpoints.first().is_some_and(is_here);
    Step::found(Found {
        distribution: Distribution::Configured,
        found_by: "[etcd] endpoints".into(),
        endpoints,
        local_alternative: None,
        files,
        election_timeout: settings.election_timeout.unwrap_or(DEFAULT_ELECTION),
        local_name: None,
        configuration: if here { Configuration::Process } else { Configuration::Elsewhere },
        data: None,
        snapshots: None,
    })
}

/// RKE1: certificates named after each address, data on the host in `/var/lib/etcd` (D21: list, do not guess).
fn rke1(disk: &Disk<'_>) -> Step {
    let folder = Path::new("/etc/kubernetes/ssl");
    let names = match disk.list(folder) {
        Ok(None) => return Step::Next,
        Ok(Some(names)) => names,
        Err(e) => return Step::failed(&e, folder),
    };
    let mut keys: Vec<&String> =
        names.iter().filter(|n| n.starts_with("kube-etcd-") && n.ends_with("-key.pem")).collect();
    // A node may hold the certificates of all members; any of them is a client certificate. Ours first.
    let ours = own_addresses();
    keys.sort_by_key(|name| {
        (!ours.iter().any(|ip| **name == format!("kube-etcd-{ip}-key.pem")), name.as_str())
    });
    let Some(key) = keys.first() else {
        return if names.iter().any(|n| n == "kube-node.pem") {
            Step::not_here(
                "RKE1 node without the etcd role (no kube-etcd certificate in /etc/kubernetes/ssl)",
            )
        } else {
            Step::Next
        };
    };
    let data = Path::new("/var/lib/etcd/member");
    match disk.list(data) {
        Ok(Some(_)) => {}
        Ok(None) => return Step::not_here("RKE1 node without etcd data (/var/lib/etcd/member)"),
        Err(e) => return Step::failed(&e, data),
    }
    let certificate = folder.join(key.replace("-key.pem", ".pem"));
    Step::found(Found {
        distribution: Distribution::Rke1,
        found_by: certificate.display().to_string(),
        endpoints: vec![loopback("127.0.0.1")],
        local_alternative: None,
        files: Some(TlsFiles {
            ca: folder.join("kube-ca.pem"),
            client: Some((certificate, folder.join(key.as_str()))),
        }),
        election_timeout: RANCHER_ELECTION,
        local_name: None,
        configuration: Configuration::Process,
        data: Some("/var/lib/etcd".into()),
        snapshots: None,
    })
}

/// IPv4 addresses of this machine with dashes, as RKE1 writes them into file names.
fn own_addresses() -> Vec<String> {
    addresses().iter().filter(|ip| ip.is_ipv4()).map(|ip| ip.to_string().replace('.', "-")).collect()
}

fn addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        v4.or_else(|| Some(IpAddr::from(address.as_sockaddr_in6()?.ip())))
    });
    addresses.collect()
}

/// Whether a member at this address runs on this machine.
fn is_here(url: &Url) -> bool {
    url.host == "localhost" || url.ip().is_some_and(|ip| ip.is_loopback() || addresses().contains(&ip))
}

fn kubeadm(disk: &Disk<'_>) -> Step {
    let (pki, manifests) = (Path::new("/etc/kubernetes/pki"), Path::new("/etc/kubernetes/manifests"));
    let folder = pki.join("etcd");
    let pods = match disk.list(manifests) {
        Ok(Some(names)) => names,
        Ok(None) => return Step::Next,
        Err(e) => return Step::failed(&e, manifests),
    };
    if !pods.iter().any(|n| n == "etcd.yaml") {
        return if pods.iter().any(|n| n == "kube-apiserver.yaml") {
            Step::not_here("control plane with an external etcd: give its endpoints in [etcd] to watch it")
        } else {
            Step::Next
        };
    }
    let in_folder = match disk.list(&folder) {
        Ok(names) => names.unwrap_or_default(),
        Err(e) => return Step::failed(&e, &folder),
    };
    let healthcheck = in_folder.iter().any(|n| n == "healthcheck-client.key");
    let client =
        if healthcheck { folder.join("healthcheck-client") } else { pki.join("apiserver-etcd-client") };
    Step::found(Found {
        distribution: Distribution::Kubeadm,
        found_by: manifests.join("etcd.yaml").display().to_string(),
        endpoints: vec![loopback("127.0.0.1")],
        local_alternative: None,
        files: Some(TlsFiles {
            ca: folder.join("ca.crt"),
            client: Some((client.with_extension("crt"), client.with_extension("key"))),
        }),
        election_timeout: DEFAULT_ELECTION,
        local_name: None,
        configuration: Configuration::Pod(manifests.join("etcd.yaml")),
        data: None,
        snapshots: None,
    })
}
