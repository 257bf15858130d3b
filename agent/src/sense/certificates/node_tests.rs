//! Prepared nodes of every kind, and what the sensor reads of them.

use std::time::Duration;

use outrider_protocol::{CertificateUse, CertificatesFacts, Distribution, Fact, UnknownCause};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, KeyPair};

use super::node::{Search, search};
use super::{Memory, read};
use crate::net::authority::authority;
use crate::sense::prepared::Machine;

const RKE2: &str = "/var/lib/rancher/rke2";

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        Self(authority(name))
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    fn leaf(&self, name: &str) -> String {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.signed_by(&KeyPair::generate().unwrap(), &self.0).unwrap().pem()
    }
}

fn found(machine: &Machine) -> super::node::Node {
    match search(&machine.cx()) {
        Search::Found(node) => *node,
        Search::NotHere(reason) => panic!("not here: {reason}"),
        Search::Failed(failure, source) => panic!("{source}: {failure}"),
    }
}

fn ports(node: &super::node::Node) -> Vec<(&'static str, u16)> {
    node.ports.iter().map(|port| (port.name, port.port)).collect()
}

fn write_all(machine: &Machine, folder: &str, names: &[&str]) {
    for name in names {
        machine.write(&format!("{folder}/{name}"), "x");
    }
}

/// Files and ports of a prepared machine; nothing listens on the ports of a node in a test's own machine, or something
/// does that is none of the test's business, so only files are looked at.
async fn facts(machine: &Machine) -> CertificatesFacts {
    match read(&machine.cx(), Duration::from_secs(20), &mut Memory::default()).await {
        Fact::Known { value, .. } => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_rke2_server() {
    let machine = Machine::new();
    write_all(
        &machine,
        &format!("{RKE2}/server/tls"),
        &[
            "server-ca.crt",
            "client-ca.crt",
            "client-ca.nochain.crt",
            "client-ca.key",
            "client-admin.crt",
            "serving-kube-apiserver.crt",
            "dynamic-cert.json",
            "kube-scheduler/kube-scheduler.crt",
            "etcd/server-client.crt",
            "etcd/peer-server-client.crt",
            "etcd/peer-ca.crt",
        ],
    );
    write_all(
        &machine,
        &format!("{RKE2}/agent"),
        &["serving-kubelet.crt", "client-ca.crt", "pod-manifests/kube-apiserver.yaml"],
    );
    machine.write(&format!("{RKE2}/data/v1.33.1-rke2r1-eef53a0d1ec2/bin/x"), "");
    machine.link(&format!("{RKE2}/bin"), format!("{RKE2}/data/v1.33.1-rke2r1-eef53a0d1ec2/bin"));
    machine.write("/etc/rancher/rke2/config.yaml", "node-ip: 10.0.0.1\n");
    let node = found(&machine);
    assert_eq!((node.distribution.clone(), node.server), (Distribution::Rke2, true));
    assert_eq!(node.version.value().map(String::as_str), Some("v1.33.1-rke2r1"));
    assert!(node.names.contains(&"10.0.0.1".to_owned()), "{:?}", node.names);
    assert_eq!(
        ports(&node),
        [
            ("etcd", 2379),
            ("etcd-peer", 2380),
            ("kube-apiserver", 6443),
            ("supervisor", 9345),
            ("kubelet", 10250)
        ]
    );
    let usage = |path: &str| {
        let wanted = node.files.iter().find(|file| file.path.ends_with(path));
        wanted.map(|file| file.usage.clone())
    };
    for (path, expected) in [
        ("tls/client-ca.nochain.crt", Some(CertificateUse::Authority)),
        ("etcd/peer-ca.crt", Some(CertificateUse::Authority)),
        ("tls/client-admin.crt", Some(CertificateUse::Server)),
        ("kube-scheduler.crt", Some(CertificateUse::SelfMade)),
        ("agent/serving-kubelet.crt", Some(CertificateUse::Agent)),
        ("client-ca.key", None),
        ("dynamic-cert.json", None),
    ] {
        assert_eq!(usage(path), expected, "{path}");
    }
}

#[test]
fn an_rke2_server_without_an_api_server_of_its_own() {
    let machine = Machine::new();
    write_all(&machine, &format!("{RKE2}/server/tls"), &["server-ca.crt", "serving-kube-apiserver.crt"]);
    write_all(&machine, &format!("{RKE2}/agent/pod-manifests"), &["etcd.yaml"]);
    assert_eq!(ports(&found(&machine)), [("supervisor", 9345)]);
}

#[test]
fn an_agent_has_its_kubelet_only() {
    let machine = Machine::new();
    let files = [
        "serving-kubelet.crt",
        "client-kubelet.crt",
        "client-kube-proxy.crt",
        "client-rke2-controller.crt",
        "server-ca.crt",
    ];
    write_all(&machine, &format!("{RKE2}/agent"), &files);
    let node = found(&machine);
    assert!(!node.server);
    assert_eq!(ports(&node), [("kubelet", 10250)]);
    assert_eq!(node.files.len(), files.len());
}

#[test]
fn k3s_serves_its_api_with_the_supervisors_certificate() {
    let machine = Machine::new();
    write_all(&machine, "/data/k3s/server/tls", &["server-ca.crt", "serving-kube-apiserver.crt"]);
    machine.write("/etc/rancher/k3s/config.yaml.d/50-rancher.yaml", r#"{"data-dir":"/data/k3s"}"#);
    let node = found(&machine);
    assert_eq!(node.distribution, Distribution::K3s);
    assert!(matches!(node.version, Fact::Absent { .. }), "{:?}", node.version);
    let supervisor = node.ports.iter().find(|port| port.port == 6443).unwrap();
    assert_eq!((supervisor.name, &supervisor.file), ("supervisor", &None));
}

#[test]
fn rke1_by_listing_and_without_its_keys() {
    let machine = Machine::new();
    write_all(
        &machine,
        "/etc/kubernetes/ssl",
        &[
            "kube-ca.pem",
            "kube-apiserver.pem",
            "kube-apiserver-key.pem",
            "kube-apiserver-requestheader-ca.pem",
            "kube-service-account-token.pem",
            "kube-etcd-203-0-113-1.pem",
            "kube-etcd-203-0-113-1-key.pem",
            "kubecfg-kube-node.yaml",
        ],
    );
    let node = found(&machine);
    assert_eq!(node.distribution, Distribution::Rke1);
    let names: Vec<String> =
        node.files.iter().map(|f| f.path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(
        names,
        [
            "kube-apiserver-requestheader-ca.pem",
            "kube-apiserver.pem",
            "kube-ca.pem",
            "kube-etcd-203-0-113-1.pem"
        ]
    );
    assert_eq!(
        ports(&node),
        [("etcd", 2379), ("etcd-peer", 2380), ("kube-apiserver", 6443), ("kubelet", 10250)]
    );
    // With those of several members none of which bears our address, they are the others'.
    write_all(&machine, "/etc/kubernetes/ssl", &["kube-etcd-203-0-113-2.pem"]);
    let node = found(&machine);
    assert_eq!(node.files.iter().filter(|f| f.usage == CertificateUse::Foreign).count(), 2);
}

#[test]
fn kubeadm_and_the_kubelets_own() {
    let machine = Machine::new();
    write_all(
        &machine,
        "/etc/kubernetes/pki",
        &[
            "ca.crt",
            "apiserver.crt",
            "front-proxy-ca.crt",
            "sa.pub",
            "etcd/ca.crt",
            "etcd/server.crt",
            "etcd/peer.crt",
        ],
    );
    write_all(
        &machine,
        "/var/lib/kubelet/pki",
        &["kubelet.crt", "kubelet.key", "kubelet-client-current.pem"],
    );
    let node = found(&machine);
    assert_eq!(node.distribution, Distribution::Kubeadm);
    assert_eq!(
        ports(&node),
        [("etcd", 2379), ("etcd-peer", 2380), ("kube-apiserver", 6443), ("kubelet", 10250)]
    );
    assert!(node.files.iter().all(|file| !file.path.to_string_lossy().ends_with(".pem")));
    let worker = Machine::new();
    write_all(&worker, "/etc/kubernetes/pki", &["ca.crt"]);
    let node = found(&worker);
    assert_eq!((node.server, ports(&node)), (false, vec![("kubelet", 10250)]));
}

#[test]
fn no_kubernetes_is_not_here() {
    let machine = Machine::new();
    machine.write("/var/lib/rancher/agent/x", "");
    assert!(matches!(search(&machine.cx()), Search::NotHere(_)));
}

#[tokio::test]
async fn files_say_who_signed_them_or_why_they_hold_nothing() {
    let machine = Machine::new();
    let (ours, theirs) = (Authority::new("rke2-server-ca@1"), Authority::new("rke2-server-ca@1"));
    let tls = |name: &str| format!("{RKE2}/server/tls/{name}");
    machine.write(&tls("server-ca.crt"), &ours.pem());
    machine.write(&tls("client-ca.crt"), &ours.pem());
    machine.write(&tls("client-big.crt"), &(ours.leaf("big") + &" ".repeat(70_000)));
    machine.write(&tls("client-admin.crt"), &(ours.leaf("admin") + &ours.pem()));
    machine.write(&tls("client-controller.crt"), &theirs.leaf("controller"));
    machine.write(&tls("client-scheduler.crt"), "garbage");
    machine.write(&tls("client-supervisor.crt"), "");
    std::fs::create_dir_all(machine.path(&tls("client-folder.crt"))).unwrap();
    machine.link(&tls("client-dangling.crt"), "/nowhere");
    let facts = facts(&machine).await;
    let file = |name: &str| facts.files.iter().find(|file| file.path == tls(name)).unwrap();
    let signer = file("client-admin.crt").issuer.value().map(String::as_str);
    assert!(signer.is_some_and(|path| path.ends_with("-ca.crt")), "{signer:?}");
    let Fact::Unknown { cause, detail, .. } = &file("client-big.crt").certificates else {
        panic!("it is read")
    };
    assert_eq!((cause, detail.as_str()), (&UnknownCause::Unsupported, "larger than 64 KiB, not read"));
    // The authority behind it stands once among the facts.
    assert_eq!(file("client-admin.crt").certificates.value().map(Vec::len), Some(1));
    assert!(file("client-admin.crt").modified.is_some());
    assert!(matches!(file("client-controller.crt").issuer, Fact::Absent { .. }));
    for (name, words) in [
        ("client-scheduler.crt", "no PEM certificate"),
        ("client-supervisor.crt", "empty"),
        ("client-folder.crt", "not a regular file"),
    ] {
        let Fact::Unknown { cause, detail, .. } = &file(name).certificates else { panic!("{name} is read") };
        assert_eq!(*cause, UnknownCause::InvalidInput, "{name}");
        assert!(detail.contains(words), "{name}: {detail}");
    }
    assert!(matches!(file("client-dangling.crt").certificates, Fact::Absent { .. }));
}

/// Nothing may be read here, as for a plain user without the root helper.
struct Denied;

impl crate::sense::OpenFile for Denied {
    fn open(&self, _: &std::path::Path) -> std::io::Result<std::fs::File> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }
    fn list(&self, _: &std::path::Path) -> std::io::Result<Vec<String>> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }
    fn describe(&self, _: &std::path::Path) -> std::io::Result<crate::sense::Folder> {
        Err(std::io::ErrorKind::PermissionDenied.into())
    }
}

#[tokio::test]
async fn a_user_who_may_not_look_knows_nothing() {
    let mut cx = Machine::new().cx();
    cx.opener = std::sync::Arc::new(Denied);
    let fact = read(&cx, Duration::from_secs(20), &mut Memory::default()).await;
    let Fact::Unknown { cause, source, .. } = fact else { panic!("{fact:?}") };
    assert_eq!(
        (cause, source.as_str()),
        (UnknownCause::PermissionDenied, "/var/lib/rancher/rke2/server/tls")
    );
}

#[tokio::test]
async fn files_are_few() {
    let machine = Machine::new();
    for n in 0..100 {
        machine.write(&format!("{RKE2}/server/tls/c{n}.crt"), "x");
    }
    let facts = facts(&machine).await;
    // Two authorities that are missing are among those read.
    assert_eq!((facts.files.len(), facts.files_left_out), (super::node::MAX_FILES, 38));
}

#[tokio::test]
async fn of_many_files_those_of_the_ports_and_the_authorities_are_read() {
    let machine = Machine::new();
    for n in 0..100 {
        machine.write(&format!("{RKE2}/server/tls/a{n}.crt"), "x");
    }
    let wanted =
        ["server-ca.crt", "old-ca.crt", "etcd/server-client.crt", "etcd/client.crt", "etcd/server-ca.crt"];
    write_all(&machine, &format!("{RKE2}/server/tls"), &wanted);
    let facts = facts(&machine).await;
    for name in wanted {
        let path = format!("{RKE2}/server/tls/{name}");
        assert!(facts.files.iter().any(|file| file.path == path), "{name}");
    }
}

#[tokio::test]
async fn what_has_to_be_here_and_is_not_is_missing() {
    let machine = Machine::new();
    let ours = Authority::new("etcd-server-ca@1");
    for name in ["server-ca.crt", "client-ca.crt", "etcd/peer-ca.crt"] {
        machine.write(&format!("{RKE2}/server/tls/{name}"), &Authority::new("other").pem());
    }
    machine.write(&format!("{RKE2}/server/tls/etcd/client.crt"), &ours.leaf("etcd"));
    write_all(&machine, &format!("{RKE2}/agent/pod-manifests"), &["etcd.yaml", "kube-apiserver.yaml"]);
    let facts = facts(&machine).await;
    let missing: Vec<&str> = facts
        .files
        .iter()
        .filter(|file| matches!(file.certificates, Fact::Absent { .. }))
        .filter_map(|file| file.path.strip_prefix("/var/lib/rancher/rke2/server/tls/"))
        .collect();
    let expected = [
        "serving-kube-apiserver.crt",
        "etcd/server-ca.crt",
        "etcd/server-client.crt",
        "etcd/peer-server-client.crt",
    ];
    assert_eq!(missing, expected);
    // Whose authority is missing does not belong to another cluster.
    let client = facts.files.iter().find(|file| file.path.ends_with("etcd/client.crt")).unwrap();
    assert!(matches!(client.issuer, Fact::Unknown { .. }), "{:?}", client.issuer);
}

#[test]
fn a_server_whose_certificates_are_gone_is_no_agent() {
    let machine = Machine::new();
    write_all(&machine, &format!("{RKE2}/agent"), &["serving-kubelet.crt", "server-ca.crt"]);
    assert!(!found(&machine).server);
    std::fs::create_dir_all(machine.path(&format!("{RKE2}/server/tls"))).unwrap();
    let node = found(&machine);
    assert!(node.server);
    assert!(node.files.iter().any(|file| file.path.ends_with("server/tls/server-ca.crt")));
}
