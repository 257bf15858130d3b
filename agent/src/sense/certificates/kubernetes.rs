//! RKE1 and kubeadm: files below `/etc/kubernetes`.

use std::path::{Path, PathBuf};

use outrider_protocol::{CertificateUse as Use, Distribution, Fact};

use super::node::{Disk, Node, Port, Unread, Wanted, own_addresses};
use crate::sense::SenseContext;

/// The kubelet's folder. `kubelet-client-*.pem` and `kubelet-server-*.pem` in it hold keys as well and are not opened.
const KUBELET: &str = "/var/lib/kubelet/pki";

/// RKE1 (rke, `pki/constants.go`): found by listing the folder, for etcd's are named by address (D21).
pub(super) fn rke1(cx: &SenseContext, disk: &Disk<'_>) -> Result<Option<Node>, Unread> {
    let folder = Path::new("/etc/kubernetes/ssl");
    let names = disk.must_list(folder)?.unwrap_or_default();
    if !names.iter().any(|name| name == "kube-ca.pem") {
        return Ok(None);
    }
    let version = Fact::not_applicable("RKE1 renews nothing at a start, whatever its version", cx.now());
    let mut node = Node::new(Distribution::Rke1, folder, version);
    let etcd = own_file(&names, "kube-etcd-");
    let kubelet = own_file(&names, "kube-kubelet-");
    node.add(disk, folder, Use::Server, |name| {
        let stem = name.strip_suffix(".pem")?;
        let by_address = name.starts_with("kube-etcd-") || name.starts_with("kube-kubelet-");
        match stem {
            "kube-ca" | "kube-apiserver-requestheader-ca" => Some(Use::Authority),
            // Only its key is used, to sign tokens.
            "kube-service-account-token" => None,
            stem if stem.ends_with("-key") || stem.ends_with("-csr") || !stem.starts_with("kube-") => None,
            _ if by_address && Some(name) != etcd && Some(name) != kubelet => Some(Use::Foreign),
            _ => Some(Use::Server),
        }
    });
    let authority = Some(folder.join("kube-ca.pem"));
    if let Some(name) = etcd {
        for (who, port) in [("etcd", 2379), ("etcd-peer", 2380)] {
            node.ports.push(Port::new(who, port, Some(folder.join(name)), authority.clone()));
        }
    }
    let apiserver = names.iter().any(|name| name == "kube-apiserver.pem");
    if apiserver {
        let file = Some(folder.join("kube-apiserver.pem"));
        node.ports.push(Port::new("kube-apiserver", 6443, file, authority.clone()));
    }
    node.server = apiserver || etcd.is_some();
    match kubelet {
        Some(name) => node.ports.push(Port::new("kubelet", 10250, Some(folder.join(name)), authority)),
        None => own_kubelet(disk, &mut node),
    }
    Ok(Some(node))
}

/// The file that is named after an address of this machine; the only one, where none is.
fn own_file<'a>(names: &'a [String], prefix: &str) -> Option<&'a str> {
    let is_certificate = |name: &&String| {
        name.starts_with(prefix)
            && name.ends_with(".pem")
            && !name.ends_with("-key.pem")
            && !name.ends_with("-csr.pem")
    };
    let found: Vec<&String> = names.iter().filter(is_certificate).collect();
    let ours: Vec<String> = own_addresses()
        .iter()
        .map(|ip| format!("{prefix}{}.pem", ip.to_string().replace(['.', ':'], "-")))
        .collect();
    let own = found.iter().find(|name| ours.contains(name));
    own.copied().or(if found.len() == 1 { found.first().copied() } else { None }).map(String::as_str)
}

/// kubeadm (`cmd/kubeadm/app/constants/constants.go`).
pub(super) fn kubeadm(cx: &SenseContext, disk: &Disk<'_>) -> Result<Option<Node>, Unread> {
    let folder = Path::new("/etc/kubernetes/pki");
    let names = disk.must_list(folder)?.unwrap_or_default();
    if !names.iter().any(|name| name == "ca.crt") {
        return Ok(None);
    }
    let version = Fact::not_applicable("kubeadm renews nothing at a start, whatever its version", cx.now());
    let mut node = Node::new(Distribution::Kubeadm, folder, version);
    let usage = |name: &str| {
        let stem = name.strip_suffix(".crt")?;
        Some(if stem == "ca" || stem.ends_with("-ca") { Use::Authority } else { Use::Server })
    };
    node.add(disk, folder, Use::Server, usage);
    let etcd = folder.join("etcd");
    let in_etcd = node.add(disk, &etcd, Use::Server, usage);
    for (who, port, certificate) in [("etcd", 2379, "server.crt"), ("etcd-peer", 2380, "peer.crt")] {
        if in_etcd.iter().any(|name| name == certificate) {
            let file = Some(etcd.join(certificate));
            node.ports.push(Port::new(who, port, file, Some(etcd.join("ca.crt"))));
        }
    }
    if names.iter().any(|name| name == "apiserver.crt") {
        node.server = true;
        let file = Some(folder.join("apiserver.crt"));
        node.ports.push(Port::new("kube-apiserver", 6443, file, Some(folder.join("ca.crt"))));
    }
    own_kubelet(disk, &mut node);
    Ok(Some(node))
}

/// A kubelet that was given no serving certificate makes one for itself, which nobody verifies.
fn own_kubelet(disk: &Disk<'_>, node: &mut Node) {
    let file: PathBuf = Path::new(KUBELET).join("kubelet.crt");
    let names = disk.list(Path::new(KUBELET)).ok().flatten().unwrap_or_default();
    let file = names.iter().any(|name| name == "kubelet.crt").then_some(file);
    // With `serverTLSBootstrap` the kubelet renews another one by itself.
    let file = file.filter(|_| !names.iter().any(|name| name == "kubelet-server-current.pem"));
    node.files.extend(file.clone().map(|path| Wanted { path, usage: Use::SelfMade }));
    node.ports.push(Port::new("kubelet", 10250, file, None));
}
