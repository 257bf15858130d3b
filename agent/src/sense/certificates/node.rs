//! Which certificate files and TLS ports this node has, found by what lies on disk (`facts/rke2-k3s-on-disk.md`).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use outrider_protocol::{CertificateUse, Distribution, Fact};

use super::{kubernetes, rancher};
use crate::net::Failure;
use crate::sense::rancher::{K3S, RKE2};
use crate::sense::{OpenFile, SenseContext};

/// Most files that are read.
pub(super) const MAX_FILES: usize = 64;
/// Names of RKE2 and K3s (k3s-io/k3s, `pkg/daemons/control/deps/deps.go`) and of kubeadm: read before any other.
const KNOWN: [&str; 41] = [
    "server-ca.crt",
    "client-ca.crt",
    "request-header-ca.crt",
    "peer-ca.crt",
    "server-client.crt",
    "peer-server-client.crt",
    "client.crt",
    "client-admin.crt",
    "client-auth-proxy.crt",
    "client-cloud-controller.crt",
    "client-controller.crt",
    "client-kube-apiserver.crt",
    "client-kube-proxy.crt",
    "client-kubelet.crt",
    "client-k3s-cloud-controller.crt",
    "client-k3s-controller.crt",
    "client-rke2-cloud-controller.crt",
    "client-rke2-controller.crt",
    "client-scheduler.crt",
    "client-supervisor.crt",
    "serving-kube-apiserver.crt",
    "serving-kubelet.crt",
    "kube-scheduler.crt",
    "kube-controller-manager.crt",
    "server-ca.nochain.crt",
    "client-ca.nochain.crt",
    "ca.crt",
    "front-proxy-ca.crt",
    "front-proxy-client.crt",
    "apiserver.crt",
    "apiserver-etcd-client.crt",
    "apiserver-kubelet-client.crt",
    "server.crt",
    "peer.crt",
    "healthcheck-client.crt",
    "kubelet.crt",
    "kube-ca.pem",
    "kube-apiserver.pem",
    "kube-apiserver-requestheader-ca.pem",
    "kube-controller-manager.pem",
    "kube-scheduler.pem",
];
/// Most names of this node that are kept.
const MAX_NAMES: usize = 16;

/// Whether this is a name of RKE2's, K3s', kubeadm's or RKE1's own, and no copy that a person left there.
pub(super) fn is_known(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| KNOWN.contains(&name) || is_of_rke1(name))
}

/// RKE1 names what it makes after who uses it, and etcd's and the kubelet's after an address besides (D21).
fn is_of_rke1(name: &str) -> bool {
    let Some(stem) = name.strip_prefix("kube-").and_then(|name| name.strip_suffix(".pem")) else {
        return false;
    };
    stem.starts_with("etcd-")
        || stem.starts_with("kubelet-")
        || matches!(stem, "node" | "proxy" | "admin" | "apiserver-proxy-client")
}

/// A node with certificates.
pub(super) struct Node {
    pub(super) distribution: Distribution,
    pub(super) found_by: String,
    pub(super) server: bool,
    pub(super) version: Fact<String>,
    /// Host name and addresses.
    pub(super) names: Vec<String>,
    /// Names that its serving certificates were to have besides.
    pub(super) wanted_names: Vec<String>,
    /// A configured address of this node, where one is known.
    pub(super) node_ip: Option<IpAddr>,
    pub(super) files: Vec<Wanted>,
    pub(super) left_out: u32,
    /// Folders that could not be listed.
    pub(super) unlisted: Vec<(PathBuf, CertificateUse, Failure)>,
    pub(super) ports: Vec<Port>,
}

/// A file to read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) path: PathBuf,
    pub(super) usage: CertificateUse,
}

/// A port to ask.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Port {
    pub(super) name: &'static str,
    pub(super) port: u16,
    /// Where its certificate lies; none when the process keeps it elsewhere.
    pub(super) file: Option<PathBuf>,
    /// Who should have signed it; none when it is self-made.
    pub(super) authority: Option<PathBuf>,
    /// Every handshake without a client certificate leaves a line in its log.
    pub(super) logs_handshakes: bool,
}

impl Port {
    pub(super) fn new(
        name: &'static str,
        port: u16,
        file: Option<PathBuf>,
        authority: Option<PathBuf>,
    ) -> Self {
        Self { name, port, file, authority, logs_handshakes: name.starts_with("etcd") }
    }

    pub(super) fn file_text(&self) -> String {
        self.file.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }

    pub(super) fn authority_text(&self) -> String {
        self.authority.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }
}

impl Node {
    pub(super) fn new(distribution: Distribution, found_by: &Path, version: Fact<String>) -> Self {
        Self {
            distribution,
            found_by: found_by.display().to_string(),
            server: false,
            version,
            names: Vec::new(),
            wanted_names: Vec::new(),
            node_ip: None,
            files: Vec::new(),
            left_out: 0,
            unlisted: Vec::new(),
            ports: Vec::new(),
        }
    }

    /// Adds the files of a folder that `usage` has a use for, or the folder where it cannot be listed. The names in it.
    pub(super) fn add(
        &mut self,
        disk: &Disk<'_>,
        folder: &Path,
        otherwise: CertificateUse,
        usage: impl Fn(&str) -> Option<CertificateUse>,
    ) -> Vec<String> {
        match disk.list(folder) {
            Ok(names) => {
                let names = names.unwrap_or_default();
                for name in &names {
                    let Some(usage) = usage(name) else { continue };
                    self.files.push(Wanted { path: folder.join(name), usage });
                }
                names
            }
            Err(error) => {
                self.unlisted.push((folder.to_owned(), otherwise, Failure::from(error)));
                Vec::new()
            }
        }
    }

    /// A file that has to be here: one that is not listed is read all the same, so that it is told as missing.
    pub(super) fn expect(&mut self, path: PathBuf, usage: CertificateUse) {
        if !self.files.iter().any(|wanted| wanted.path == path) {
            self.files.push(Wanted { path, usage });
        }
    }

    /// Adds the authorities of the ports, and leaves at most [`MAX_FILES`] to read: what a port shows and what signs it
    /// first, then names that are known, then other authorities.
    fn settle(&mut self) {
        for authority in self.ports.iter().filter_map(|port| port.authority.clone()).collect::<Vec<_>>() {
            self.expect(authority, CertificateUse::Authority);
        }
        if self.files.len() <= MAX_FILES {
            return;
        }
        let of_a_port = |wanted: &Wanted| {
            let path = Some(&wanted.path);
            self.ports.iter().any(|port| port.file.as_ref() == path || port.authority.as_ref() == path)
        };
        let mut ranked: Vec<(u8, Wanted)> = Vec::with_capacity(self.files.len());
        for wanted in &self.files {
            let rank = match wanted.usage {
                _ if of_a_port(wanted) => 0,
                _ if is_known(&wanted.path) => 1,
                CertificateUse::Authority => 2,
                _ => 3,
            };
            ranked.push((rank, wanted.clone()));
        }
        ranked.sort_by_key(|(rank, _)| *rank);
        let left_out = ranked.len() - MAX_FILES;
        self.left_out = u32::try_from(left_out).unwrap_or(u32::MAX);
        self.files = ranked.into_iter().take(MAX_FILES).map(|(_, wanted)| wanted).collect();
    }

    /// Where this node's own ports are asked: loopback first, then its configured address, for a process that listens
    /// there only.
    pub(super) fn asked_addresses(&self) -> Vec<IpAddr> {
        let mut asked = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
        asked.extend(self.node_ip);
        if self.node_ip.is_some_and(|ip| ip.is_ipv6()) {
            asked.push(IpAddr::V6(Ipv6Addr::LOCALHOST));
        }
        asked
    }
}

/// What the search came to.
pub(super) enum Search {
    Found(Box<Node>),
    NotHere(String),
    Failed(Failure, String),
}

/// Looks for RKE2, K3s, RKE1 and kubeadm, in this order. Blocking.
pub(super) fn search(cx: &SenseContext) -> Search {
    let disk = Disk(&*cx.opener);
    let mut failed = None;
    let steps: [&dyn Fn() -> Result<Option<Node>, Unread>; 4] = [
        &|| rancher::find(cx, &disk, &RKE2),
        &|| rancher::find(cx, &disk, &K3S),
        &|| kubernetes::rke1(cx, &disk),
        &|| kubernetes::kubeadm(cx, &disk),
    ];
    for step in steps {
        match step() {
            Ok(Some(mut node)) => {
                node.settle();
                node.names = names_of_this_node(node.node_ip);
                return Search::Found(Box::new(node));
            }
            Ok(None) => {}
            // What cannot be read of one distribution does not hide another that can.
            Err(unread) => {
                failed.get_or_insert(unread);
            }
        }
    }
    match failed {
        Some(Unread { error, path }) => Search::Failed(Failure::from(error), path.display().to_string()),
        None => Search::NotHere(
            "no certificates of RKE2, K3s, RKE1 or kubeadm here (server/tls, agent, /etc/kubernetes)"
                .to_owned(),
        ),
    }
}

/// A folder that says what is here and could not be listed.
pub(super) struct Unread {
    pub(super) error: io::Error,
    pub(super) path: PathBuf,
}

/// Listings through the opener.
pub(super) struct Disk<'a>(pub(super) &'a dyn OpenFile);

impl Disk<'_> {
    /// Names in a folder; `None` when it is not there.
    pub(super) fn list(&self, path: &Path) -> io::Result<Option<Vec<String>>> {
        match self.0.list(path) {
            Ok(names) => Ok(Some(names)),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The same, where not being able to list it leaves open what is here.
    pub(super) fn must_list(&self, path: &Path) -> Result<Option<Vec<String>>, Unread> {
        self.list(path).map_err(|error| Unread { error, path: path.to_owned() })
    }
}

/// Host name, configured address, and the addresses of every interface that is not loopback.
fn names_of_this_node(node_ip: Option<IpAddr>) -> Vec<String> {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let mut names: Vec<String> = host.into_iter().filter(|name| !name.is_empty()).collect();
    names.extend(node_ip.map(|ip| ip.to_string()));
    for ip in own_addresses() {
        if !names.contains(&ip.to_string()) && names.len() < MAX_NAMES {
            names.push(ip.to_string());
        }
    }
    names
}

/// Addresses others may know this machine by.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
    });
    let is_link_local = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0) == 0xfe80,
    };
    addresses.filter(|ip| !ip.is_loopback() && !is_link_local(ip)).collect()
}
