//! A real kube-apiserver on 6443: it takes a new file by itself, so nobody may be told to restart it because of one.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use outrider_protocol::{Condition, Severity, Status};
use outrider_tests::beds::kube_apiserver::{Etcd, KubeApiserver, Settings, program};
use outrider_tests::beds::pki::{Authority, DAY};
use outrider_tests::checked::{Checked, check};
use outrider_tests::table::Table;

use crate::node::{LIMIT, Node, about, agent, is, on_a_machine_of_its_own, said, tls};

const PORT: &str = "kube-apiserver:6443";
const SERVING: &str = "serving-kube-apiserver";

/// The API server of the node, in front of its etcd.
fn settings(node: &Node, flags: &[&str]) -> Settings {
    node.put("etcd/client", &node.etcd_ca, 300 * DAY);
    Settings {
        etcd: Etcd {
            endpoints: vec!["https://127.0.0.1:2379".to_owned()],
            ca: tls("etcd/server-ca.crt"),
            certificate: tls("etcd/client.crt"),
            key: tls("etcd/client.key"),
        },
        listen: ([0, 0, 0, 0], 6443).into(),
        serving: Some((tls(&format!("{SERVING}.crt")), tls(&format!("{SERVING}.key")), tls("server-ca.crt"))),
        flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
    }
}

/// A node with everything but the API server.
fn node() -> Node {
    let mut node = Node::new();
    node.start_etcd();
    node.start_supervisor(300 * DAY);
    node.stand_in(10250, &agent("serving-kubelet"), &[]);
    node
}

fn start(program: &std::path::Path, node: &Node, flags: &[&str]) -> KubeApiserver {
    let mut server = KubeApiserver::start(program, settings(node, flags)).unwrap();
    let admin = server.admin().unwrap();
    let took = server.wait_until_ready(&admin, LIMIT).unwrap_or_else(|e| panic!("{e:?}"));
    println!("kube-apiserver is ready after {took:.1?}");
    server
}

fn built() -> Option<PathBuf> {
    match program() {
        Ok(program) => Some(program),
        Err(why) => {
            println!("skipped: {why}");
            None
        }
    }
}

/// Every different thing said of the port until all is well again, with when it was said first; and when that was.
fn until_well(node: &Node) -> (Vec<(Duration, Condition)>, Duration) {
    let start = Instant::now();
    let mut said: Vec<(Duration, Condition)> = Vec::new();
    loop {
        let checked = node.check();
        let took = start.elapsed();
        if checked.code == 0 && is(&checked, PORT, "CertificatesInDate") {
            return (said, took);
        }
        let condition = about(&checked, PORT);
        if said.last().is_none_or(|(_, last)| last.reason != condition.reason) {
            said.push((took, condition.clone()));
        }
        assert!(took < 2 * LIMIT, "{}", checked.lines());
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn a_real_kube_apiserver_takes_a_new_file_by_itself() {
    let Some(program) = built() else { return };
    on_a_machine_of_its_own(move || {
        let mut table = Table::new("certificates of a real kube-apiserver");
        let node = node();
        let mut server = start(&program, &node, &[]);
        let (_, took) = until_well(&node);
        table.timed("none", "all good for 299 days", said(about(&node.check(), PORT)), took, None);

        // Renewed on disk. What a pass says before it is taken must not send anybody to restart it.
        node.put(SERVING, &node.server_ca, 365 * DAY);
        let (meanwhile, took) = until_well(&node);
        for (_, condition) in &meanwhile {
            assert!(!condition.advice.contains("Restart needed"), "{condition:?}");
            assert!(condition.severity <= Severity::Info, "{condition:?}");
        }
        let words = meanwhile.first().map_or_else(|| "nothing".to_owned(), |(_, first)| said(first));
        table.timed("renewed on disk, not restarted", "new files below a running one", words, took, None);

        // It ends under our eyes, and the new one is taken without a restart.
        node.put(SERVING, &node.server_ca, 8);
        let end = Instant::now() + Duration::from_secs(8);
        let (_, ended) = node.until("it has ended", |c| is(c, PORT, "CertificateExpired"));
        let raised = Instant::now().saturating_duration_since(end);
        let condition = about(&ended, PORT).clone();
        assert_eq!((condition.status, ended.code), (Status::False, 2), "{}", ended.lines());
        node.put(SERVING, &node.server_ca, 300 * DAY);
        let (_, cleared) = until_well(&node);
        let made = "one of 8 s put in place; then one of 300 days";
        table.timed("its certificate ends", made, said(&condition), raised, Some(cleared));

        // A pair that does not fit is not taken: the old one stays, and no restart would help.
        let key = fs::read(tls(&format!("{SERVING}.key"))).unwrap();
        node.put(SERVING, &node.server_ca, 365 * DAY);
        fs::write(tls(&format!("{SERVING}.key")), key).unwrap();
        let (raised, misfit) =
            node.until("a pair that does not fit", |c| is(c, PORT, "CertificateKeyMismatch"));
        table.timed(
            "renewed with a key that is not its own",
            "a new certificate beside the old key",
            said(about(&misfit, PORT)),
            raised,
            None,
        );
        node.put(SERVING, &node.server_ca, 300 * DAY);
        until_well(&node);

        // Another cluster's.
        let other = Authority::new("rke2-server-ca@1", 3000 * DAY).unwrap();
        node.put(SERVING, &other, 300 * DAY);
        let (raised, wrong) = node.until("another cluster's", |c| is(c, PORT, "CertificateWrong"));
        let condition = about(&wrong, PORT).clone();
        assert_eq!((condition.status, condition.severity), (Status::False, Severity::Error), "{condition:?}");
        node.put(SERVING, &node.server_ca, 300 * DAY);
        let (_, cleared) = until_well(&node);
        let made = "one of another authority of the same name put in place";
        table.timed("certificate of another cluster", made, said(&condition), raised, Some(cleared));

        // Frozen, and gone.
        server.freeze(true).unwrap();
        let (raised, frozen) = node.until("frozen", |c| is(c, PORT, "TimedOut"));
        let condition = about(&frozen, PORT).clone();
        assert_eq!(condition.status, Status::Unknown, "{condition:?}");
        server.freeze(false).unwrap();
        let (_, cleared) = until_well(&node);
        table.timed("frozen", "SIGSTOP", said(&condition), raised, Some(cleared));
        server.kill();
        let gone = node.check();
        assert!(gone.document.conditions.iter().all(|c| c.subject != PORT), "{}", gone.lines());
        table.row("killed", "SIGKILL", "no condition of its port: the check kubernetes tells");
    });
}

fn kubernetes(node: &Node) -> Checked {
    check(&node.config(), "kubernetes").unwrap()
}

/// What the check `kubernetes` says of kubelet and API server.
fn ready(checked: &Checked) -> Condition {
    let found = checked.condition("KubernetesReady");
    found.unwrap_or_else(|| panic!("nothing said of it:\n{}", checked.lines())).clone()
}

/// `healthz` of a kubelet that is well, as long as the test runs.
fn kubelet() {
    let listener = TcpListener::bind("127.0.0.1:10248").unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
}

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn readyz_of_a_real_kube_apiserver() {
    let Some(program) = built() else { return };
    on_a_machine_of_its_own(move || {
        let mut table = Table::new("the check kubernetes before a real kube-apiserver");
        let mut node = node();
        kubelet();
        for (anonymous, flags) in [
            ("nobody without a name (RKE2, K3s)", &[][..]),
            ("anybody (kubeadm)", &["--anonymous-auth=true"][..]),
        ] {
            let mut server = start(&program, &node, flags);
            let well = ready(&kubernetes(&node));
            assert_eq!(well.status, Status::True, "{well:?}");
            table.row("none", anonymous, said(&well));
            node.etcd = None;
            std::thread::sleep(Duration::from_secs(3));
            let blind = ready(&kubernetes(&node));
            table.row("its etcd is killed", anonymous, said(&blind));
            node.start_etcd();
            let admin = server.admin().unwrap();
            server.wait_until_ready(&admin, LIMIT).unwrap();
            server.freeze(true).unwrap();
            let frozen = ready(&kubernetes(&node));
            assert_eq!(frozen.status, Status::False, "{frozen:?}");
            table.row("frozen", anonymous, said(&frozen));
            server.freeze(false).unwrap();
            server.kill();
            let gone = ready(&kubernetes(&node));
            assert_eq!(gone.status, Status::False, "{gone:?}");
            table.row("killed", anonymous, said(&gone));
        }
    });
}
