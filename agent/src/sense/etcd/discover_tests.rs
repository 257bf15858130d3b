//! Prepared machines of every kind, and what the search says of them.

use std::io;
use std::path::Path;
use std::time::Duration;

use outrider_protocol::{Distribution, UnknownCause};

use super::discover::{Discovery, Found, discover};
use crate::config::EtcdSettings;
use crate::privileged::DirectOpener;
use crate::sense::prepared::Machine;
use crate::sense::{Folder, OpenFile};

const RKE2: &str = "/var/lib/rancher/rke2";
const K3S: &str = "/var/lib/rancher/k3s";

fn machine(files: &[(&str, &str)]) -> Machine {
    let machine = Machine::new();
    for (path, text) in files {
        machine.write(path, text);
    }
    machine
}

fn search(machine: &Machine, settings: &EtcdSettings) -> Discovery {
    discover(&*machine.cx().opener, settings)
}

fn found(machine: &Machine) -> Found {
    match search(machine, &EtcdSettings::default()) {
        Discovery::Found(found) => *found,
        other => panic!("{other:?}"),
    }
}

fn not_here(machine: &Machine) -> String {
    match search(machine, &EtcdSettings::default()) {
        Discovery::NotHere(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_rke2_server_with_a_write_ahead_log() {
    let machine = machine(&[
        (&format!("{RKE2}/server/db/etcd/member/wal/0.wal"), ""),
        (&format!("{RKE2}/server/db/etcd/name"), "n1-1a2b3c4d\n"),
        ("/etc/rancher/rke2/config.yaml", "datastore-endpoint: mysql://ignored\n"),
    ]);
    let found = found(&machine);
    assert_eq!(found.distribution, Distribution::Rke2);
    assert_eq!(found.found_by, format!("{RKE2}/server/db/etcd/member/wal"));
    assert_eq!(found.endpoints[0].to_string(), "https://127.0.0.1:2379");
    assert_eq!(found.local_alternative.unwrap().to_string(), "https://[::1]:2379");
    assert_eq!(found.election_timeout, Duration::from_millis(5000));
    assert_eq!(found.local_name.as_deref(), Some("n1-1a2b3c4d"));
    let files = found.files.unwrap();
    assert_eq!(files.ca, Path::new(RKE2).join("server/tls/etcd/server-ca.crt"));
    assert_eq!(files.client.unwrap().1, Path::new(RKE2).join("server/tls/etcd/client.key"));
}

#[test]
fn a_moved_data_folder_is_found_by_the_configuration() {
    let machine = machine(&[
        ("/data/k3s/server/db/etcd/member/wal/0.wal", ""),
        ("/etc/rancher/k3s/config.yaml", "data-dir: /elsewhere\n"),
        (
            "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml",
            r#"{"data-dir": "/data/k3s", "node-ip": "fd00::1"}"#,
        ),
    ]);
    let found = found(&machine);
    assert_eq!(found.distribution, Distribution::K3s);
    assert_eq!(found.found_by, "/data/k3s/server/db/etcd/member/wal");
    assert_eq!(found.endpoints[0].to_string(), "https://[::1]:2379");
}

#[test]
fn a_data_folder_on_the_command_line_is_found() {
    let machine = machine(&[
        ("/data/k3s/server/db/etcd/member/wal/0.wal", ""),
        ("/etc/rancher/k3s/config.yaml", "data-dir: /elsewhere\n"),
        (
            "/etc/systemd/system/k3s.service",
            "[Service]\nExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--data-dir' \\\n\t'/data/k3s' \\\n\
             \t'--etcd-snapshot-dir=backups' \\\n\n",
        ),
    ]);
    let found = found(&machine);
    assert_eq!(found.found_by, "/data/k3s/server/db/etcd/member/wal");
    // Where a relative folder lies hangs on where the process was started.
    assert!(found.snapshots.unwrap().problem.unwrap().to_string().contains("no absolute path"));
}

#[test]
fn other_datastores_are_named_without_their_password() {
    let endpoint = "datastore-endpoint: 'postgres://user:s3cret@db.example/k3s'\n";
    for (files, says) in [
        (vec![(format!("{K3S}/server/db/state.db"), "")], "sqlite"),
        (
            vec![(format!("{K3S}/server/token"), ""), ("/etc/rancher/k3s/config.yaml".into(), endpoint)],
            "external datastore (postgres)",
        ),
        (
            vec![
                (format!("{RKE2}/server/token"), ""),
                (
                    "/etc/rancher/rke2/config.yaml".into(),
                    "datastore-endpoint: https://e1:2379,https://e2:2379",
                ),
            ],
            "external etcd",
        ),
        (
            vec![
                (format!("{RKE2}/server/token"), ""),
                ("/etc/rancher/rke2/config.yaml".into(), "disable-etcd: true"),
            ],
            "disable-etcd",
        ),
        (
            // Certificates of etcd may lie there from before.
            vec![(format!("{K3S}/server/kine.sock"), ""), (format!("{K3S}/server/tls/etcd/client.crt"), "")],
            "behind kine",
        ),
        (
            // Given to the installer, which writes it where only root may read.
            vec![
                (format!("{K3S}/server/token"), ""),
                (
                    "/etc/systemd/system/k3s.service".into(),
                    "[Service]\nEnvironmentFile=-/etc/systemd/system/k3s.service.env\nExecStart=k3s server\n",
                ),
                (
                    "/etc/systemd/system/k3s.service.env".into(),
                    "K3S_DATASTORE_ENDPOINT='mysql://u:s3cret@tcp(db)/k3s'\n",
                ),
            ],
            "external datastore (mysql)",
        ),
        (
            vec![
                (format!("{RKE2}/server/token"), ""),
                (
                    "/usr/lib/systemd/system/rke2-server.service".into(),
                    "[Service]\nExecStart=rke2 server --datastore-endpoint=https://u:s3cret@e1:2379\n",
                ),
            ],
            "external etcd",
        ),
        (
            vec![(format!("{K3S}/server/manifests/coredns.yaml"), "")],
            "has no datastore: it never started here, or was emptied",
        ),
        (
            vec![
                (format!("{K3S}/server/token"), ""),
                (
                    "/etc/systemd/system/k3s.service".into(),
                    "[Service]\nExecStart=k3s server --cluster-init\n",
                ),
            ],
            "is to begin one (cluster-init)",
        ),
        (
            // Converted to etcd and then emptied of it.
            vec![(format!("{K3S}/server/db/state.db.migrated"), "")],
            "no write-ahead log",
        ),
        (vec![(format!("{RKE2}/agent/kubelet.kubeconfig"), "")], "agent"),
        (vec![("/etc/hostname".into(), "")], "no etcd here"),
    ] {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let reason = not_here(&machine(&files));
        assert!(reason.contains(says) && !reason.contains("s3cret"), "{reason}");
    }
}

#[test]
fn the_log_on_disk_decides_before_every_setting_and_sign() {
    for (data, config) in [(RKE2, "/etc/rancher/rke2/config.yaml"), (K3S, "/etc/rancher/k3s/config.yaml")] {
        let wal = format!("{data}/server/db/etcd/member/wal");
        for told in [
            "datastore-endpoint: postgres://u:p@db/x",
            "disable-etcd: true",
            "cluster-init: false",
            "server: https://x:9345",
        ] {
            let machine = machine(&[
                (&format!("{wal}/0.wal"), ""),
                (&format!("{data}/server/db/state.db"), ""),
                (&format!("{data}/server/db/state.db.migrated"), ""),
                (&format!("{data}/server/kine.sock"), ""),
                (config, told),
            ]);
            assert_eq!(found(&machine).found_by, wal, "{told}");
        }
        // Only the log counts, not the folder around it.
        let without = machine(&[
            (&format!("{data}/server/db/etcd/member/snap/db"), ""),
            (config, "datastore-endpoint: mysql://x"),
        ]);
        assert!(not_here(&without).contains("external datastore (mysql)"));
    }
}

#[test]
fn each_scheme_of_a_datastore_is_told_for_what_it_is() {
    for (endpoint, says) in [
        ("http://e1:2379", "external etcd"),
        ("https://e1:2379", "external etcd"),
        ("unix:///run/etcd.sock", "external etcd"),
        ("unixs:///run/etcd.sock", "external etcd"),
        ("mysql://u:s3cret@tcp(db)/x", "external datastore (mysql)"),
        ("postgres://u:s3cret@db/x", "external datastore (postgres)"),
        ("nats://u:s3cret@db", "external datastore (nats)"),
        // Without a scheme it is a name of a file, or a secret.
        ("s3cret", "external datastore (sqlite)"),
    ] {
        for (data, config) in [(RKE2, "/etc/rancher/rke2/config.yaml"), (K3S, "/etc/rancher/k3s/config.yaml")]
        {
            let text = format!("datastore-endpoint: '{endpoint}'\n");
            let reason = not_here(&machine(&[(&format!("{data}/server/token"), ""), (config, &text)]));
            assert!(reason.contains(says) && !reason.contains("s3cret"), "{endpoint}: {reason}");
        }
    }
    // Without etcd of its own: one that joined another server has its control plane only, RKE2's others stand behind kine.
    for (more, says) in [("", "behind kine"), ("server: https://n1:9345\n", "the control plane only")] {
        let text = format!("disable-etcd: true\n{more}");
        let files =
            [(format!("{RKE2}/server/token"), ""), ("/etc/rancher/rke2/config.yaml".into(), text.as_str())];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let reason = not_here(&machine(&files));
        assert!(reason.contains("disable-etcd") && reason.contains(says), "{reason}");
    }
}

#[test]
fn a_server_whose_etcd_data_is_gone_is_still_asked() {
    let machine = machine(&[(&format!("{RKE2}/server/tls/etcd/client.crt"), "")]);
    assert_eq!(found(&machine).found_by, format!("{RKE2}/server/tls/etcd"));
}

#[test]
fn a_tombstone_is_told() {
    let machine = machine(&[
        (&format!("{RKE2}/server/db/etcd/member/wal/0.wal"), ""),
        (&format!("{RKE2}/server/db/etcd/tombstone"), ""),
    ]);
    assert!(found(&machine).found_by.contains("removed from its cluster"));
}

#[test]
fn rke1_certificates_are_found_by_listing() {
    let ssl = "/etc/kubernetes/ssl";
    let certificates = [
        (format!("{ssl}/kube-etcd-10-9-9-9.pem"), ""),
        (format!("{ssl}/kube-etcd-10-9-9-9-key.pem"), ""),
        (format!("{ssl}/kube-etcd-127-0-0-1.pem"), ""),
        (format!("{ssl}/kube-etcd-127-0-0-1-key.pem"), ""),
        (format!("{ssl}/kube-ca.pem"), ""),
    ];
    let mut files: Vec<(&str, &str)> =
        certificates.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    assert!(not_here(&machine(&files)).contains("without etcd data"));
    files.push(("/var/lib/etcd/member/wal/0.wal", ""));
    let found = found(&machine(&files));
    assert_eq!(found.distribution, Distribution::Rke1);
    // The certificate of an address this machine has comes first.
    assert_eq!(found.found_by, format!("{ssl}/kube-etcd-127-0-0-1.pem"));
    assert!(not_here(&machine(&[(&format!("{ssl}/kube-node.pem"), "")])).contains("RKE1"));
}

#[test]
fn kubeadm_stacked_and_external() {
    let pki = "/etc/kubernetes/pki";
    let mut files = vec![("/etc/kubernetes/manifests/kube-apiserver.yaml", "")];
    assert!(not_here(&machine(&files)).contains("external etcd"));
    files.push(("/etc/kubernetes/manifests/etcd.yaml", ""));
    let client = |files: &[(&str, &str)]| found(&machine(files)).files.unwrap().client.unwrap().0;
    assert_eq!(client(&files), Path::new(pki).join("apiserver-etcd-client.crt"));
    files.push(("/etc/kubernetes/pki/etcd/healthcheck-client.key", ""));
    assert_eq!(client(&files), Path::new(pki).join("etcd/healthcheck-client.crt"));
    assert_eq!(found(&machine(&files)).election_timeout, Duration::from_millis(1000));
}

#[test]
fn configured_endpoints_come_first_and_are_checked() {
    let machine = machine(&[(&format!("{RKE2}/server/db/etcd/member/wal/0.wal"), "")]);
    let settings = |endpoints: &[&str]| EtcdSettings {
        endpoints: endpoints.iter().map(|e| (*e).to_owned()).collect(),
        ca: Some("/ca.pem".into()),
        election_timeout: Some(Duration::from_millis(2500)),
        ..EtcdSettings::default()
    };
    match search(&machine, &settings(&["https://[fd00::1]:2379", "https://e2:2379"])) {
        Discovery::Found(found) => {
            assert_eq!(found.distribution, Distribution::Configured);
            assert_eq!(found.endpoints.len(), 2);
            assert_eq!(found.election_timeout, Duration::from_millis(2500));
        }
        other => panic!("{other:?}"),
    }
    for (endpoints, says) in
        [(["https://fd00::1:2379"], "https://[fd00::1]:2379"), (["etcd:2379"], "does not start with http")]
    {
        match search(&machine, &settings(&endpoints)) {
            Discovery::Failed { failure, source } => {
                assert_eq!((failure.cause, source.as_str()), (UnknownCause::InvalidInput, "[etcd]"));
                assert!(failure.detail.contains(says), "{}", failure.detail);
            }
            other => panic!("{other:?}"),
        }
    }
    let without_ca = EtcdSettings { ca: None, ..settings(&["https://e1:2379"]) };
    assert!(matches!(search(&machine, &without_ca), Discovery::Failed { .. }));
}

/// Refuses everything below one folder, as the kernel does to a daemon without rights.
struct Refusing(DirectOpener, &'static str);

impl OpenFile for Refusing {
    fn open(&self, path: &Path) -> io::Result<std::fs::File> {
        if path.starts_with(self.1) { Err(io::ErrorKind::PermissionDenied.into()) } else { self.0.open(path) }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        if path.starts_with(self.1) { Err(io::ErrorKind::PermissionDenied.into()) } else { self.0.list(path) }
    }

    fn describe(&self, path: &Path) -> io::Result<Folder> {
        if path.starts_with(self.1) {
            Err(io::ErrorKind::PermissionDenied.into())
        } else {
            self.0.describe(path)
        }
    }
}

#[test]
fn what_may_not_be_read_is_unknown_never_absent() {
    let machine = machine(&[(&format!("{K3S}/server/db/state.db"), "")]);
    let opener = Refusing(DirectOpener::below(machine.cx().root), "/var/lib/rancher/k3s/server");
    match discover(&opener, &EtcdSettings::default()) {
        Discovery::Failed { failure, .. } => assert_eq!(failure.cause, UnknownCause::PermissionDenied),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_configuration_that_may_not_be_read_is_the_helpers_business() {
    let machine = machine(&[
        (&format!("{K3S}/server/db/state.db"), ""),
        ("/etc/rancher/k3s/config.yaml", "data-dir: /elsewhere\n"),
    ]);
    let opener = Refusing(DirectOpener::below(machine.cx().root), "/etc/rancher");
    match discover(&opener, &EtcdSettings::default()) {
        Discovery::NotHere(reason) => assert!(reason.contains("sqlite"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_broken_configuration_leaves_the_answer_open() {
    let machine = machine(&[
        (&format!("{K3S}/agent/x"), ""),
        ("/etc/rancher/k3s/config.yaml", "token: s3cret\n- what\n"),
    ]);
    match search(&machine, &EtcdSettings::default()) {
        Discovery::Failed { failure, .. } => {
            assert!(failure.detail.contains("/etc/rancher/k3s/config.yaml"), "{failure}");
            assert!(!failure.detail.contains("s3cret"), "{failure}");
        }
        other => panic!("{other:?}"),
    }
}
