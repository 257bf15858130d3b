//! Prepared machines of every kind, and what a look at their own files says of the member.

use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use outrider_protocol::{ExpectedMember, Fact, UnknownCause};

use super::discover::{Discovery, Found, discover};
use super::disk::{DiskFacts, look};
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

fn found(machine: &Machine) -> Found {
    match discover(&*machine.cx().opener, &EtcdSettings::default()) {
        Discovery::Found(found) => *found,
        other => panic!("{other:?}"),
    }
}

fn looked(machine: &Machine) -> DiskFacts {
    look(&machine.cx(), &found(machine), None)
}

fn cause<T>(fact: &Fact<T>) -> &UnknownCause {
    match fact {
        Fact::Unknown { cause, .. } => cause,
        _ => panic!("it is known"),
    }
}

fn rke2() -> Machine {
    machine(&[
        (&format!("{RKE2}/server/db/etcd/member/wal/0.wal"), ""),
        (
            &format!("{RKE2}/server/db/etcd/config"),
            "name: n1-1a2b3c4d\nelection-timeout: 5000\nheartbeat-interval: 500\n\
             listen-peer-urls: https://127.0.0.1:2380,https://10.0.0.1:2380\nadvertise-client-urls: https://10.0.0.1:2379\n",
        ),
    ])
}

#[test]
fn an_rke2_server_with_snapshots() {
    let machine = rke2();
    let snapshots = format!("{RKE2}/server/db/snapshots");
    let (page, zip) = ("x".repeat(4 * 4096), "x".repeat(500));
    for (name, text, seconds) in [
        ("etcd-snapshot-n1-1700000000", page.as_str(), 1_700_000_000),
        ("etcd-snapshot-n1-1700043200.zip", zip.as_str(), 1_700_043_200),
        ("by-hand.db", page.as_str(), 1_600_000_000),
        // Under way, of other names, and no file: none of them is a snapshot.
        ("etcd-snapshot-n1-1700086400.part", page.as_str(), 1_700_086_400),
        ("README.txt", page.as_str(), 1_700_086_401),
        ("tmp-x", page.as_str(), 1_700_086_401),
        (".metadata/x-1", page.as_str(), 1_700_086_402),
    ] {
        put(&machine, &format!("{snapshots}/{name}"), text, seconds);
    }
    let disk = looked(&machine);
    let expected = disk.expected.value().unwrap();
    assert_eq!(
        (expected.name.as_str(), &expected.peer_urls[..]),
        ("n1-1a2b3c4d", &["https://10.0.0.1:2380".to_owned()][..])
    );
    assert_eq!(disk.election_timeout, Some(Duration::from_secs(5)));
    let data = disk.data_folder.value().unwrap();
    assert_eq!(
        (data.path.as_str(), data.tombstone, data.reset_flag),
        (&*format!("{RKE2}/server/db/etcd"), false, false)
    );
    assert!(data.free_bytes.is_some_and(|free| free > 0));
    let found = disk.snapshots.value().unwrap();
    assert_eq!((found.folder.as_str(), found.count), (snapshots.as_str(), 3));
    assert_eq!(found.too_small, None);
    assert_eq!((found.object_storage, found.schedule_disabled), (false, false));
    let newest = found.newest.as_ref().unwrap();
    assert_eq!((newest.name.as_str(), newest.size_bytes), ("etcd-snapshot-n1-1700043200.zip", 500));
    assert_eq!(newest.at.as_millis(), 1_700_043_200_000);
}

/// Writes a file as of then.
fn put(machine: &Machine, path: &str, text: &str, seconds: u64) {
    machine.write(path, text);
    let file = std::fs::File::open(machine.path(path)).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

#[test]
fn what_is_too_small_for_a_snapshot_is_not_counted_and_told_while_it_is_the_newest() {
    let snapshots = format!("{RKE2}/server/db/snapshots");
    for (name, size) in [
        ("etcd-snapshot-n1-1700086400", 0),
        ("etcd-snapshot-n1-1700086400", 4 * 4096 - 1),
        ("on-demand-n1-1700086400", 10),
        ("on-demand-n1-1700086400.zip", 22),
    ] {
        for (seconds, is_newest) in [(1_700_086_400, true), (1_600_000_000, false)] {
            let machine = rke2();
            put(
                &machine,
                &format!("{snapshots}/etcd-snapshot-n1-1700000000"),
                &"x".repeat(4 * 4096),
                1_700_000_000,
            );
            put(&machine, &format!("{snapshots}/{name}"), &"x".repeat(size), seconds);
            let disk = looked(&machine);
            let found = disk.snapshots.value().unwrap();
            let newest = found.newest.as_ref().map(|file| file.name.as_str());
            assert_eq!((newest, found.count), (Some("etcd-snapshot-n1-1700000000"), 1));
            let told = found.too_small.as_ref().map(|file| (file.name.as_str(), file.size_bytes));
            assert_eq!(told, is_newest.then_some((name, size as u64)));
        }
    }
}

#[test]
fn marks_of_a_removed_member_and_of_a_reset() {
    let machine = rke2();
    machine.write(&format!("{RKE2}/server/db/etcd/tombstone"), "10");
    machine.write(&format!("{RKE2}/server/db/reset-flag"), "");
    let disk = looked(&machine);
    let data = disk.data_folder.value().unwrap();
    assert!(data.tombstone && data.reset_flag);
}

#[test]
fn snapshots_as_configured() {
    let machine = machine(&[
        (&format!("{K3S}/server/db/etcd/member/wal/0.wal"), ""),
        ("/etc/rancher/k3s/config.yaml", "etcd-snapshot-dir: /mnt/backup\netcd-s3: true\n"),
        ("/etc/rancher/k3s/config.yaml.d/50-rancher.yaml", r#"{"etcd-disable-snapshots": true}"#),
    ]);
    let snapshots = looked(&machine).snapshots;
    let snapshots = snapshots.value().unwrap();
    assert_eq!((snapshots.folder.as_str(), snapshots.count, &snapshots.newest), ("/mnt/backup", 0, &None));
    assert!(snapshots.object_storage && snapshots.schedule_disabled);
    assert!(found(&machine).paths().contains(&"/mnt/backup".to_owned()));

    // A configuration that is broken may name another folder.
    machine.write("/etc/rancher/k3s/config.yaml.d/60-broken.yaml", "token: [s3cret");
    match looked(&machine).snapshots {
        Fact::Unknown { cause: UnknownCause::InvalidInput, detail, .. } => {
            assert!(!detail.contains("s3cret"))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_configuration_that_is_missing_or_broken_is_unknown() {
    let machine = rke2();
    machine.write(&format!("{RKE2}/server/db/etcd/config"), "- s3cret");
    let disk = looked(&machine);
    assert_eq!(cause(&disk.expected), &UnknownCause::InvalidInput);
    assert_eq!(disk.election_timeout, None);
    assert!(disk.data_folder.value().is_some(), "the rest does not suffer from it");
    std::fs::remove_file(machine.path(&format!("{RKE2}/server/db/etcd/config"))).unwrap();
    assert_eq!(cause(&looked(&machine).expected), &UnknownCause::InvalidInput);
}

#[test]
fn kubeadm_by_its_pod() {
    let machine = machine(&[
        ("/etc/kubernetes/pki/etcd/healthcheck-client.key", ""),
        (
            "/etc/kubernetes/manifests/etcd.yaml",
            "spec:\n  containers:\n  - name: etcd\n    command:\n    - etcd\n    - --name=cp1\n    - --data-dir=/data/etcd\n    \
             - --initial-advertise-peer-urls=https://10.0.0.1:2380\n    - --election-timeout=2000\n",
        ),
        ("/data/etcd/member/snap/db", "x"),
    ]);
    let disk = looked(&machine);
    assert_eq!(disk.expected.value().unwrap().name, "cp1");
    assert_eq!(disk.election_timeout, Some(Duration::from_secs(2)));
    assert_eq!(disk.data_folder.value().unwrap().path, "/data/etcd");
    assert!(matches!(disk.snapshots, Fact::NotApplicable { .. }), "{:?}", disk.snapshots);
}

#[test]
fn rke1_by_its_process() {
    let machine = machine(&[
        ("/etc/kubernetes/ssl/kube-etcd-10-0-0-1.pem", ""),
        ("/etc/kubernetes/ssl/kube-etcd-10-0-0-1-key.pem", ""),
        ("/var/lib/etcd/member/wal/0.wal", ""),
        ("/proc/1/comm", "systemd\n"),
        ("/proc/80/comm", "etcd\n"),
        (
            "/proc/80/cmdline",
            "/usr/local/bin/etcd\0--name=etcd-n1\0--listen-client-urls=https://0.0.0.0:2379\0--election-timeout=5000\0\
             --initial-advertise-peer-urls=https://10.0.0.1:2380\0--heartbeat-interval=500\0",
        ),
    ]);
    let disk = looked(&machine);
    let expected = ExpectedMember {
        name: "etcd-n1".into(),
        peer_urls: vec!["https://10.0.0.1:2380".into()],
        client_urls: Vec::new(),
        election_timeout_ms: Some(5000),
        heartbeat_ms: Some(500),
    };
    assert_eq!(disk.expected.value(), Some(&expected));
    assert_eq!(disk.data_folder.value().unwrap().path, "/var/lib/etcd");
}

#[test]
fn a_member_on_another_machine_has_no_files_here() {
    let machine = Machine::new();
    let settings =
        EtcdSettings { endpoints: vec!["http://192.0.2.1:2379".into()], ..EtcdSettings::default() };
    let Discovery::Found(found) = discover(&*machine.cx().opener, &settings) else { panic!("configured") };
    let disk = look(&machine.cx(), &found, None);
    assert_eq!(cause(&disk.expected), &UnknownCause::Unsupported);
    assert_eq!(cause(&disk.data_folder), &UnknownCause::Unsupported);
}

#[test]
fn a_look_is_taken_again_only_for_another_member_or_after_a_while() {
    let machine = rke2();
    let first = looked(&machine);
    machine.write(&format!("{RKE2}/server/db/etcd/tombstone"), "10");
    let found = Found { found_by: first_found_by(&machine), ..found(&machine) };
    let second = look(&machine.cx(), &found, Some(first.clone()));
    assert!(
        !second.data_folder.value().unwrap().tombstone,
        "a second pass within a minute takes the first look"
    );
    let other = Found { local_name: Some("other".into()), ..found };
    assert!(look(&machine.cx(), &other, Some(first)).data_folder.value().unwrap().tombstone);
}

/// The tombstone changes how the member was found; here only the second look is meant.
fn first_found_by(machine: &Machine) -> String {
    found(machine).found_by.split(" (").next().unwrap_or_default().to_owned()
}

/// Describes nothing, as a helper does that is not there.
struct Refusing(DirectOpener);

impl OpenFile for Refusing {
    fn open(&self, path: &Path) -> io::Result<std::fs::File> {
        self.0.open(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.list(path)
    }

    fn describe(&self, _: &Path) -> io::Result<Folder> {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[test]
fn folders_that_may_not_be_read_are_unknown_and_never_empty() {
    let machine = rke2();
    let mut cx = machine.cx();
    cx.opener = std::sync::Arc::new(Refusing(DirectOpener::below(cx.root.clone())));
    let disk = look(&cx, &found(&machine), None);
    assert_eq!(cause(&disk.data_folder), &UnknownCause::PermissionDenied);
    assert_eq!(cause(&disk.snapshots), &UnknownCause::PermissionDenied);
    assert!(disk.expected.value().is_some());
}
