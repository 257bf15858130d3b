//! RKE2 and K3s: which files a server and an agent have.
//!
//! The lists are upstream's (k3s-io/k3s, `pkg/util/services/services.go` and `pkg/daemons/control/deps/deps.go`; RKE2
//! uses the same code). The folders are listed all the same, for names change with versions.

use std::path::{Path, PathBuf};

use outrider_protocol::{CertificateUse as Use, Distribution, Fact};

use super::node::{Disk, Node, Port, Unread};
use crate::sense::SenseContext;
use crate::sense::rancher::{self, Opened, Program};

/// Most names of `tls-san` that are kept, and the longest.
const MAX_WANTED: usize = 16;
const MAX_NAME: usize = 253;

/// The supervisor's port; K3s serves the API on it too, and RKE2 has another for it, with a certificate of its own.
fn supervisor(program: &Program) -> u16 {
    if program.distribution == Distribution::Rke2 { 9345 } else { 6443 }
}

/// The usual data folder of this program, and the configured one.
pub(super) fn data_folders(disk: &Disk<'_>, program: &Program) -> Vec<PathBuf> {
    let usual = PathBuf::from(program.data_dir);
    let configured = rancher::read(&Opened(disk.0), program).data_dir(program);
    let other = (configured != usual && configured.is_absolute()).then_some(configured);
    std::iter::once(usual).chain(other).collect()
}

/// The node this program runs, if its certificates lie here.
pub(super) fn find(cx: &SenseContext, disk: &Disk<'_>, program: &Program) -> Result<Option<Node>, Unread> {
    // What of it cannot be read or understood is the `etcd` check's to tell: here the defaults stay in force.
    let told = rancher::read(&Opened(disk.0), program);
    let data = told.data_dir(program);
    let own_apiserver = program.distribution == Distribution::Rke2;
    let (tls, agent) = (data.join("server/tls"), data.join("agent"));
    let (server_names, agent_names) = (disk.must_list(&tls)?, disk.list(&agent));
    let has = |names: &Option<Vec<String>>| names.iter().flatten().any(|name| name.ends_with(".crt"));
    let pods = disk.list(&agent.join("pod-manifests")).ok().flatten();
    let runs = |pod: &str| pods.iter().flatten().any(|name| name == pod);
    // A server whose certificates are gone is one all the same: its static pods say so, or the folder that no agent has.
    let emptied = runs("etcd.yaml")
        || runs("kube-apiserver.yaml")
        || (server_names.is_some() && matches!(&agent_names, Ok(names) if has(names)));
    let server = has(&server_names) || emptied;
    let is_agent = match &agent_names {
        Ok(names) => has(names),
        Err(_) => true,
    };
    if !server && !is_agent {
        return Ok(None);
    }
    let found_by = if server { &tls } else { &agent };
    let mut node = Node::new(program.distribution.clone(), found_by, version(cx, disk, program, &data));
    node.server = server;
    node.node_ip = told.options.node_ips().first().copied();
    let wanted = told.options.wanted_names().into_iter().filter(|name| name.len() <= MAX_NAME);
    node.wanted_names = wanted.take(MAX_WANTED).map(str::to_owned).collect();

    if server {
        node.add(disk, &tls, Use::Server, |name| in_server(name, Use::Server));
        for component in ["kube-scheduler", "kube-controller-manager"] {
            node.add(disk, &tls.join(component), Use::SelfMade, |name| in_server(name, Use::SelfMade));
        }
        let etcd = tls.join("etcd");
        let names = node.add(disk, &etcd, Use::Server, |name| in_server(name, Use::Server));
        for (who, port, certificate, authority) in [
            ("etcd", 2379, "server-client.crt", "server-ca.crt"),
            ("etcd-peer", 2380, "peer-server-client.crt", "peer-ca.crt"),
        ] {
            if names.iter().any(|name| name == certificate) {
                let file = Some(etcd.join(certificate));
                node.ports.push(Port::new(who, port, file, Some(etcd.join(authority))));
            }
        }
        let server_ca = tls.join("server-ca.crt");
        node.expect(server_ca.clone(), Use::Authority);
        node.expect(tls.join("client-ca.crt"), Use::Authority);
        if own_apiserver && runs("kube-apiserver.yaml") {
            node.expect(tls.join("serving-kube-apiserver.crt"), Use::Server);
        }
        if runs("etcd.yaml") {
            for authority in ["server-ca.crt", "peer-ca.crt"] {
                node.expect(etcd.join(authority), Use::Authority);
            }
            for certificate in ["server-client.crt", "peer-server-client.crt"] {
                node.expect(etcd.join(certificate), Use::Server);
            }
        }
        if own_apiserver && runs_apiserver(disk, &agent) {
            let file = Some(tls.join("serving-kube-apiserver.crt"));
            node.ports.push(Port::new("kube-apiserver", 6443, file, Some(server_ca.clone())));
        }
        // In memory, in a Secret and in dynamic-cert.json, which holds the key as well.
        node.ports.push(Port::new("supervisor", supervisor(program), None, Some(server_ca)));
    }
    let names = node.add(disk, &agent, Use::Agent, |name| match name {
        "client-ca.crt" | "server-ca.crt" => Some(Use::Authority),
        name => name.ends_with(".crt").then_some(Use::Agent),
    });
    if names.iter().any(|name| name == "serving-kubelet.crt") {
        let file = Some(agent.join("serving-kubelet.crt"));
        node.ports.push(Port::new("kubelet", 10250, file, Some(agent.join("server-ca.crt"))));
    }
    Ok(Some(node))
}

fn in_server(name: &str, leaf: Use) -> Option<Use> {
    let stem = name.strip_suffix(".crt")?;
    let authority = stem.ends_with("-ca") || stem.ends_with("-ca.nochain");
    Some(if authority { Use::Authority } else { leaf })
}

/// On a server without an API server of its own, 6443 is a way to another server's, with that one's certificate. The
/// static pods tell; where they cannot be listed, there is one.
fn runs_apiserver(disk: &Disk<'_>, agent: &Path) -> bool {
    match disk.list(&agent.join("pod-manifests")) {
        Ok(Some(names)) if !names.is_empty() => names.iter().any(|name| name == "kube-apiserver.yaml"),
        _ => true,
    }
}

/// RKE2 unpacks its programs into a folder named after the version, and `bin` leads to the one in use. K3s leaves its
/// version in no file.
fn version(cx: &SenseContext, disk: &Disk<'_>, program: &Program, data: &Path) -> Fact<String> {
    let source = data.join("data").display().to_string();
    if program.distribution != Distribution::Rke2 {
        return Fact::absent(source, cx.now());
    }
    let in_use = std::fs::read_link(cx.path(data.join("bin"))).ok();
    let in_use = in_use
        .and_then(|target| target.components().rev().find_map(|part| version_of(part.as_os_str().to_str()?)));
    if let Some(version) = in_use {
        return Fact::known(version, data.join("bin").display().to_string(), cx.now());
    }
    match disk.list(&data.join("data")) {
        Ok(names) => {
            let mut found: Vec<String> = names.iter().flatten().filter_map(|name| version_of(name)).collect();
            found.dedup();
            match found.as_slice() {
                [only] => Fact::known(only.clone(), source, cx.now()),
                _ => Fact::absent(source, cx.now()),
            }
        }
        Err(e) => Fact::from_io(&e, source, cx.now()),
    }
}

/// `v1.33.1-rke2r1-0123456789ab` -> `v1.33.1-rke2r1`.
fn version_of(name: &str) -> Option<String> {
    let numbers = name.strip_prefix('v')?;
    let (first, _) = numbers.split_once('.')?;
    if first.is_empty() || first.len() > 3 || !first.bytes().all(|b| b.is_ascii_digit()) || name.len() > 100 {
        return None;
    }
    let parts: Vec<&str> = name.split('-').collect();
    let release = parts.iter().rposition(|part| part.starts_with("rke2")).unwrap_or(0);
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-+".contains(&b));
    plain.then(|| parts[..=release].join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_taken_from_the_folder_of_the_programs() {
        for (name, version) in [
            ("v1.33.1-rke2r1-eef53a0d1ec2", Some("v1.33.1-rke2r1")),
            ("v1.30.13-rc1-rke2r1-0123", Some("v1.30.13-rc1-rke2r1")),
            ("v1.31.2+rke2r1", Some("v1.31.2+rke2r1")),
            ("current", None),
            ("v", None),
            ("vx.y", None),
            ("v1.33.1\x1b[31m-rke2r1", None),
        ] {
            assert_eq!(version_of(name).as_deref(), version, "{name}");
        }
    }
}
