//! What a person sees of `outrider check --only etcd,certificates` on an RKE2 server of three: the whole screen, in the four
//! states that matter most. Times, measurements and ids are written as `#`, and columns
//! stand a space apart.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use outrider_tests::beds::pki::DAY;
use outrider_tests::programs::{Process, program, until};

use crate::node::{LIMIT, Node, RKE2, agent, listens, on_a_machine_of_its_own, run, tls};

/// Addresses of the servers; the first is the one that is looked at.
const SERVERS: [&str; 3] = [crate::node::ADDRESS, "10.9.8.8", "10.9.8.9"];

/// A member of etcd, as RKE2 lays it out on the first server; the others' data lies in `elsewhere`.
fn member(node: &Node, elsewhere: &Path, i: usize) -> Process {
    let (name, address) = (format!("n{}-0a0b0c0{}", i + 1, i + 1), SERVERS[i]);
    let (server, peer, data, also) = match i {
        0 => (
            tls("etcd/server-client"),
            tls("etcd/peer-server-client"),
            format!("{RKE2}/server/db/etcd").into(),
            ",https://127.0.0.1:2379",
        ),
        _ => {
            let of = |what: &str| elsewhere.join(format!("{what}-{i}"));
            (of("server"), of("peer"), of("data"), "")
        }
    };
    for (pair, authority) in [(&server, &node.etcd_ca), (&peer, &node.peer_ca)] {
        // On one machine a peer comes from the address it dials, and etcd holds that against the certificate.
        let names = [SERVERS[0], SERVERS[1], SERVERS[2], "127.0.0.1"];
        let issued = authority.issue("etcd", &names, -DAY, 300 * DAY).unwrap();
        issued.write(&pair.with_extension("crt"), &pair.with_extension("key")).unwrap();
    }
    let all: Vec<String> =
        (0..SERVERS.len()).map(|i| format!("n{0}-0a0b0c0{0}=https://{1}:2380", i + 1, SERVERS[i])).collect();
    let log = File::options().create(true).append(true).open(node.log()).unwrap();
    let mut command = Command::new("etcd");
    command
        .args(["--name", &name, "--logger", "zap", "--data-dir"])
        .arg(&data)
        .args(["--listen-client-urls", &format!("https://{address}:2379{also}")])
        .args(["--advertise-client-urls", &format!("https://{address}:2379")])
        .args(["--listen-peer-urls", &format!("https://{address}:2380")])
        .args(["--initial-advertise-peer-urls", &format!("https://{address}:2380")])
        .args(["--initial-cluster", &all.join(","), "--client-cert-auth", "--peer-client-cert-auth"])
        .arg("--cert-file")
        .arg(server.with_extension("crt"))
        .arg("--key-file")
        .arg(server.with_extension("key"))
        .arg("--trusted-ca-file")
        .arg(tls("etcd/server-ca.crt"))
        .arg("--peer-cert-file")
        .arg(peer.with_extension("crt"))
        .arg("--peer-key-file")
        .arg(peer.with_extension("key"))
        .arg("--peer-trusted-ca-file")
        .arg(tls("etcd/peer-ca.crt"))
        .args((i == 0).then_some("--listen-metrics-urls=http://127.0.0.1:2381"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    Process::spawn(&mut command).unwrap()
}

/// Units before which a number is a measurement.
const UNITS: [&str; 11] = ["ms", "s", "min", "h", "days", "bytes", "kB", "MB", "GB", "%", "us"];
const PUNCTUATION: [char; 6] = ['(', ')', '.', ',', ';', ':'];

/// The screen in words that stay from run to run.
fn steady(screen: &str) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let bare = |i: usize| words.get(i).map_or("", |word| word.trim_matches(PUNCTUATION));
        let changes = |i: usize| {
            let word = bare(i);
            let made_of = |also: &str| word.chars().all(|c| c.is_ascii_digit() || also.contains(c));
            let is_when = word.len() >= 5 && made_of("-:") && word.contains(['-', ':']);
            let is_id = word.len() >= 12 && word.chars().all(|c| c.is_ascii_hexdigit());
            is_when || is_id || (!word.is_empty() && made_of(".") && UNITS.contains(&bare(i + 1)))
        };
        let kept =
            |i: usize| if changes(i) { words[i].replacen(bare(i), "#", 1) } else { words[i].to_owned() };
        (0..words.len()).map(kept).collect::<Vec<_>>().join(" ")
    };
    screen.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Compares a screen with that kept under `name`; `UPDATE=1` keeps this one.
fn holds(name: &str, screen: &str) {
    let kept = format!("{}/tests/certificates/screens/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    // Whose machine it is stands before the summary.
    let screen = screen.split_once(':').map_or(screen, |(_, rest)| rest.trim_start()).to_owned() + "\n";
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&kept, &screen).unwrap();
    }
    assert_eq!(screen, fs::read_to_string(&kept).unwrap(), "{name}: refresh with UPDATE=1 if it is meant");
}

/// Looks until `good` holds of the screen, which is the one kept under `name` then.
fn screen(node: &Node, name: &str, good: impl Fn(&str) -> bool) {
    let start = Instant::now();
    loop {
        let mut command = Command::new(program("outrider").unwrap());
        command.args(["check", "--only", "etcd,certificates", "--config"]).arg(node.config());
        let screen = String::from_utf8(command.output().unwrap().stdout).unwrap();
        if good(&screen) {
            println!("---- {name}\n{screen}");
            return holds(name, &steady(&screen));
        }
        assert!(start.elapsed() < LIMIT, "{name}: not within {LIMIT:?}:\n{screen}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn four_screens() {
    on_a_machine_of_its_own(|| {
        for address in &SERVERS[1..] {
            run("ip", &["address", "add", &format!("{address}/32"), "dev", "lo"]);
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let mut node = Node::new();
        node.put("etcd/client", &node.etcd_ca, 300 * DAY);
        node.stand_in(6443, &tls("serving-kube-apiserver"), &[]);
        node.start_supervisor(300 * DAY);
        node.stand_in(10250, &agent("serving-kubelet"), &[]);
        let mut members: Vec<Process> =
            (0..SERVERS.len()).map(|i| member(&node, elsewhere.path(), i)).collect();
        until("etcd listens", LIMIT, || listens(2379).then_some(())).unwrap();
        for name in ["n1", "n2", "n3"] {
            let put = || etcdctl(&["put", &format!("/registry/minions/{name}"), "{}"]).then_some(());
            until("etcd takes a key", LIMIT, put).unwrap();
        }
        let snapshots = format!("{RKE2}/server/db/snapshots");
        fs::create_dir_all(&snapshots).unwrap();
        fs::write(format!("{snapshots}/etcd-snapshot-n1-1796000000"), vec![b'x'; 4 * 4096]).unwrap();

        screen(&node, "well", |s| s.contains("Quorum holds: 3 voters, quorum 2, 3 healthy"));

        node.put("etcd/server-client", &node.etcd_ca, -3 * DAY);
        screen(&node, "expired", |s| s.contains("CertificateExpired"));
        node.put("etcd/server-client", &node.etcd_ca, 300 * DAY);

        node.kubelet(365 * DAY).write(&agent("serving-kubelet.crt"), &agent("serving-kubelet.key")).unwrap();
        screen(&node, "not-served", |s| s.contains("CertificateNotServed"));
        node.stand_in(10250, &agent("serving-kubelet"), &[]);

        members.truncate(1);
        screen(&node, "leader-lost", |s| s.contains("sees no leader"));
    });
}

/// Whether etcd took the command at the looked-at server.
fn etcdctl(arguments: &[&str]) -> bool {
    let path = |name: &str| tls(&format!("etcd/{name}")).display().to_string();
    let mut command = Command::new("etcdctl");
    command
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", "https://127.0.0.1:2379", "--cacert", &path("server-ca.crt")])
        .args(["--cert", &path("client.crt"), "--key", &path("client.key")])
        .args(arguments);
    command.output().is_ok_and(|output| output.status.success())
}
