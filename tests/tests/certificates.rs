//! The check `certificates` as a person runs it, on an RKE2 server's files and ports: a real etcd on 2379 and 2380, and
//! `openssl s_server` standing in for the API server, the supervisor and the kubelet (like them it reads its files when it
//! starts; unlike the newer of them, never again).
//!
//! Everything lies at its usual path and listens at its usual port, in a mount and a network namespace of the test's own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::{SenseContext, certificates};
use outrider_protocol::{
    Condition, Fact, NodeFacts, NodeRef, Profile, Severity, Status, Thresholds, Timestamp, TypeMeta,
};
use outrider_tests::beds::pki::{Authority, DAY, Issued, Seconds};
use outrider_tests::checked::{Checked, check, check_until};
use outrider_tests::programs::{Process, until};
use outrider_tests::table::Table;

const LIMIT: Duration = Duration::from_secs(60);
const RKE2: &str = "/var/lib/rancher/rke2";
/// An address of this machine that is not loopback, on its loopback interface.
const ADDRESS: &str = "10.9.8.7";
const NAMES: [&str; 2] = [ADDRESS, "127.0.0.1"];

/// Runs `test` on a thread whose processes have a network and a `/var/lib` of their own.
fn on_a_machine_of_its_own(test: impl FnOnce() + Send + 'static) {
    let machine = move || {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET) {
            println!("skipped: a machine of its own needs root ({e})");
            return;
        }
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some("tmpfs"), "/var/lib", Some("tmpfs"), MsFlags::empty(), Some("size=200m,mode=755"))
            .unwrap();
        run("ip", &["link", "set", "lo", "up"]);
        run("ip", &["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"]);
        test();
    };
    if let Err(panic) = std::thread::spawn(machine).join() {
        std::panic::resume_unwind(panic);
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// An RKE2 server: its files, and who listens.
struct Node {
    server_ca: Authority,
    etcd_ca: Authority,
    peer_ca: Authority,
    folder: tempfile::TempDir,
    etcd: Option<Process>,
    stand_ins: Vec<(u16, Process)>,
}

impl Node {
    fn new() -> Self {
        let node = Self {
            server_ca: Authority::new("rke2-server-ca@1", 3000 * DAY).unwrap(),
            etcd_ca: Authority::new("etcd-server-ca@1", 3000 * DAY).unwrap(),
            peer_ca: Authority::new("etcd-peer-ca@1", 3000 * DAY).unwrap(),
            folder: tempfile::tempdir_in("/var/lib").unwrap(),
            etcd: None,
            stand_ins: Vec::new(),
        };
        fs::create_dir_all(tls("etcd")).unwrap();
        fs::create_dir_all(agent("")).unwrap();
        for (path, authority) in [
            (tls("server-ca.crt"), &node.server_ca),
            (tls("client-ca.crt"), &node.server_ca),
            (agent("server-ca.crt"), &node.server_ca),
            (tls("etcd/server-ca.crt"), &node.etcd_ca),
            (tls("etcd/peer-ca.crt"), &node.peer_ca),
        ] {
            fs::write(path, authority.pem()).unwrap();
        }
        fs::create_dir_all(format!("{RKE2}/data/v1.33.1-rke2r1-eef53a0d1ec2")).unwrap();
        // A container's clock is kept by nobody it can see, and would make every end of a certificate doubtful.
        fs::write(node.config(), "[checks.clock]\nenabled = false\n").unwrap();
        node.put("etcd/server-client", &node.etcd_ca, 300 * DAY);
        node.put("etcd/peer-server-client", &node.peer_ca, 300 * DAY);
        node.put("serving-kube-apiserver", &node.server_ca, 300 * DAY);
        node.put("client-admin", &node.server_ca, 300 * DAY);
        node.kubelet(300 * DAY).write(&agent("serving-kubelet.crt"), &agent("serving-kubelet.key")).unwrap();
        node
    }

    fn start() -> Self {
        let mut node = Self::new();
        node.start_etcd();
        node.stand_in(6443, &tls("serving-kube-apiserver"), &[]);
        node.start_supervisor(300 * DAY);
        node.stand_in(10250, &agent("serving-kubelet"), &[]);
        node
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("agent.toml")
    }

    fn put(&self, name: &str, authority: &Authority, end: Seconds) {
        let issued = authority.issue(name, &NAMES, -DAY, end).unwrap();
        issued.write(&tls(&format!("{name}.crt")), &tls(&format!("{name}.key"))).unwrap();
    }

    fn kubelet(&self, end: Seconds) -> Issued {
        self.server_ca.issue("kubelet", &NAMES, -DAY, end).unwrap()
    }

    fn start_etcd(&mut self) {
        let path = |name: &str| tls(&format!("etcd/{name}")).display().to_string();
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = Command::new("etcd");
        command
            .args(["--name", "n1", "--logger", "zap", "--data-dir"])
            .arg(self.folder.path().join("data"))
            .args(["--listen-client-urls", "https://127.0.0.1:2379"])
            .args(["--advertise-client-urls", "https://127.0.0.1:2379"])
            .args(["--listen-peer-urls", "https://127.0.0.1:2380"])
            .args(["--initial-advertise-peer-urls", "https://127.0.0.1:2380"])
            .args(["--initial-cluster", "n1=https://127.0.0.1:2380"])
            .args(["--cert-file", &path("server-client.crt"), "--key-file", &path("server-client.key")])
            .args(["--client-cert-auth", "--trusted-ca-file", &path("server-ca.crt")])
            .args(["--peer-cert-file", &path("peer-server-client.crt")])
            .args(["--peer-key-file", &path("peer-server-client.key")])
            .args(["--peer-client-cert-auth", "--peer-trusted-ca-file", &path("peer-ca.crt")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.etcd = Some(Process::spawn(&mut command).unwrap());
        until("etcd listens", LIMIT, || listens(2379).then_some(())).unwrap();
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("etcd.log")
    }

    /// Lines in etcd's log about connections it did not like.
    fn complaints(&self) -> usize {
        fs::read_to_string(self.log()).unwrap().lines().filter(|l| l.contains("rejected connection")).count()
    }

    /// `openssl s_server` with this certificate and key, in place of what listened on the port.
    fn stand_in(&mut self, port: u16, pair: &Path, more: &[&str]) {
        self.close(port);
        let mut command = Command::new("openssl");
        command
            .args(["s_server", "-quiet", "-accept", &format!("127.0.0.1:{port}"), "-naccept", "100000"])
            .arg("-cert")
            .arg(pair.with_extension("crt"))
            .arg("-key")
            .arg(pair.with_extension("key"))
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.stand_ins.push((port, Process::spawn(&mut command).unwrap()));
        until("the stand-in listens", LIMIT, || listens(port).then_some(())).unwrap();
    }

    /// RKE2 keeps the supervisor's certificate in no PEM file.
    fn start_supervisor(&mut self, end: Seconds) {
        let pair = self.folder.path().join("supervisor");
        let issued = self.server_ca.issue("rke2", &NAMES, -DAY, end).unwrap();
        issued.write(&pair.with_extension("crt"), &pair.with_extension("key")).unwrap();
        self.stand_in(9345, &pair, &[]);
    }

    fn close(&mut self, port: u16) {
        self.stand_ins.retain(|(open, _)| *open != port);
    }

    fn check(&self) -> Checked {
        check(&self.config(), "certificates").unwrap()
    }

    fn until(&self, what: &str, good: impl Fn(&Checked) -> bool) -> (Duration, Checked) {
        check_until(&self.config(), "certificates", what, LIMIT, good).unwrap()
    }

    fn until_well(&self) -> Duration {
        self.until("all is well", |checked| checked.code == 0).0
    }
}

fn tls(name: &str) -> PathBuf {
    Path::new(RKE2).join("server/tls").join(name)
}

fn agent(name: &str) -> PathBuf {
    Path::new(RKE2).join("agent").join(name)
}

/// Whether a socket listens there, without a connection that somebody would have to answer.
fn listens(port: u16) -> bool {
    // The thread's own network, not the process'.
    let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    table.lines().any(|line| line.contains(&format!(":{port:04X} ")) && line.contains(" 0A "))
}

fn about<'a>(checked: &'a Checked, subject: &str) -> &'a Condition {
    let found = checked.document.conditions.iter().find(|c| c.subject == subject);
    found.unwrap_or_else(|| panic!("{subject}: nothing said:\n{}", checked.lines()))
}

fn is(checked: &Checked, subject: &str, reason: &str) -> bool {
    checked.document.conditions.iter().any(|c| c.subject == subject && c.reason.as_str() == reason)
}

fn said(condition: &Condition) -> String {
    format!(
        "{}={} {} {}: {}",
        condition.subject, condition.status, condition.severity, condition.reason, condition.message
    )
}

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn real_expired_and_swapped_certificates() {
    on_a_machine_of_its_own(|| {
        let mut table =
            Table::new("certificates of an RKE2 server: etcd, and openssl s_server for the other ports");
        let mut node = Node::start();
        let well = node.check();
        let subjects: Vec<&str> = well.document.conditions.iter().map(|c| c.subject.as_str()).collect();
        assert_eq!(
            subjects,
            [
                "ca",
                "etcd-peer:2380",
                "etcd:2379",
                "files",
                "kube-apiserver:6443",
                "kubelet:10250",
                "supervisor:9345"
            ],
            "{}",
            well.lines()
        );
        assert_eq!(well.code, 0, "{}", well.lines());
        table.row("none", "all good for 299 days", said(about(&well, "etcd:2379")));

        // etcd ends under our eyes: a certificate of eight seconds, which it takes at the next handshake.
        let end = Instant::now() + Duration::from_secs(8);
        node.put("etcd/server-client", &node.etcd_ca, 8);
        let soon = node.check();
        let soon = about(&soon, "etcd:2379");
        assert_eq!((soon.status, soon.severity), (Status::True, Severity::Error), "{soon:?}");
        let (_, ended) = node.until("etcd's has ended", |c| is(c, "etcd:2379", "CertificateExpired"));
        let raised = Instant::now().saturating_duration_since(end);
        let condition = about(&ended, "etcd:2379");
        assert_eq!((condition.status, ended.code), (Status::False, 2), "{}", ended.lines());
        assert!(condition.advice.contains("A restart of rke2-server renews it"), "{condition:?}");
        node.put("etcd/server-client", &node.etcd_ca, 300 * DAY);
        let cleared = node.until_well();
        table.timed(
            "etcd's certificate ends",
            "one of 8 s put in place (etcd reads at each handshake)",
            said(condition),
            raised,
            Some(cleared),
        );

        // Rotated on disk and not restarted.
        node.kubelet(365 * DAY).write(&agent("serving-kubelet.crt"), &agent("serving-kubelet.key")).unwrap();
        let (raised, stale) =
            node.until("the kubelet holds the old one", |c| is(c, "kubelet:10250", "CertificateNotServed"));
        let condition = about(&stale, "kubelet:10250");
        assert_eq!(
            (condition.status, condition.severity, stale.code),
            (Status::True, Severity::Warn, 1),
            "{condition:?}"
        );
        assert!(
            condition.advice.starts_with("Restart needed: the process holds the old one"),
            "{condition:?}"
        );
        node.stand_in(10250, &agent("serving-kubelet"), &[]);
        let cleared = node.until_well();
        table.timed(
            "renewed on disk, not restarted",
            "new files beside a running s_server; then restarted",
            said(condition),
            raised,
            Some(cleared),
        );

        // The same when the old one has ended meanwhile: the worst day of D15.
        node.kubelet(-3 * DAY).write(&agent("serving-kubelet.crt"), &agent("serving-kubelet.key")).unwrap();
        node.stand_in(10250, &agent("serving-kubelet"), &[]);
        node.kubelet(365 * DAY).write(&agent("serving-kubelet.crt"), &agent("serving-kubelet.key")).unwrap();
        let (raised, dead) =
            node.until("it serves an ended one", |c| is(c, "kubelet:10250", "CertificateExpired"));
        let condition = about(&dead, "kubelet:10250");
        assert!(condition.advice.starts_with("Restart needed"), "{condition:?}");
        node.stand_in(10250, &agent("serving-kubelet"), &[]);
        let cleared = node.until_well();
        table.timed(
            "the process serves an ended one, the file is good",
            "s_server started with it, file renewed",
            said(condition),
            raised,
            Some(cleared),
        );

        // Another cluster's, under the same names.
        let other = Authority::new("etcd-server-ca@1", 3000 * DAY).unwrap();
        node.put("etcd/server-client", &other, 300 * DAY);
        let (raised, wrong) = node.until("another cluster's", |c| is(c, "etcd:2379", "CertificateWrong"));
        let condition = about(&wrong, "etcd:2379");
        assert_eq!((condition.status, condition.severity), (Status::False, Severity::Error), "{condition:?}");
        node.put("etcd/server-client", &node.etcd_ca, 300 * DAY);
        let cleared = node.until_well();
        table.timed(
            "certificate of another cluster",
            "etcd given one of another CA of the same name",
            said(condition),
            raised,
            Some(cleared),
        );

        // A key that is not its own.
        let key = fs::read(tls("etcd/server-client.key")).unwrap();
        fs::copy(tls("client-admin.key"), tls("etcd/server-client.key")).unwrap();
        let (raised, broken) = node.until("the handshake ends", |c| is(c, "etcd:2379", "TlsFailed"));
        let condition = about(&broken, "etcd:2379");
        assert_eq!((condition.status, broken.code != 0), (Status::Unknown, true), "{}", broken.lines());
        fs::write(tls("etcd/server-client.key"), key).unwrap();
        let cleared = node.until_well();
        table.timed(
            "key beside it does not match",
            "another key copied over etcd's",
            said(condition),
            raised,
            Some(cleared),
        );

        for (fault, made, from, end, names, reason, status) in [
            (
                "not valid yet",
                "begins in two days",
                2 * DAY,
                300 * DAY,
                NAMES.as_slice(),
                "CertificateNotYetValid",
                Status::False,
            ),
            (
                "names of another node",
                "only for 10.9.8.6",
                -DAY,
                300 * DAY,
                ["10.9.8.6"].as_slice(),
                "CertificateWrong",
                Status::False,
            ),
            (
                "ends in 25 days",
                "25 days left",
                -DAY,
                25 * DAY,
                NAMES.as_slice(),
                "CertificateEnding",
                Status::True,
            ),
            (
                "ends in 100 days",
                "100 days left",
                -DAY,
                100 * DAY,
                NAMES.as_slice(),
                "CertificateEnding",
                Status::True,
            ),
            (
                "an authority that ends before its leaf, which has no end",
                "until 9999-12-31",
                -DAY,
                i64::MAX,
                NAMES.as_slice(),
                "CertificatesInDate",
                Status::True,
            ),
            (
                "ended in 1970",
                "until 1970-01-01 00:16",
                -21_000 * DAY,
                i64::MIN,
                NAMES.as_slice(),
                "CertificateExpired",
                Status::False,
            ),
        ] {
            let pair = node.folder.path().join("odd");
            let end = match end {
                i64::MIN => 1000 - unix_now(),
                // 9999-12-31T23:59:59Z, which says that there is no end (RFC 5280).
                i64::MAX => 253_402_300_799 - unix_now(),
                end => end,
            };
            let odd = node.server_ca.issue("kube-apiserver", names, from, end).unwrap();
            odd.write(&pair.with_extension("crt"), &pair.with_extension("key")).unwrap();
            fs::copy(pair.with_extension("crt"), tls("serving-kube-apiserver.crt")).unwrap();
            node.stand_in(6443, &pair, &[]);
            let (raised, odd) = node.until(fault, |c| is(c, "kube-apiserver:6443", reason));
            let condition = about(&odd, "kube-apiserver:6443");
            assert_eq!(condition.status, status, "{}", odd.lines());
            node.put("serving-kube-apiserver", &node.server_ca, 300 * DAY);
            node.stand_in(6443, &tls("serving-kube-apiserver"), &[]);
            let cleared = node.until_well();
            table.timed(fault, format!("s_server on 6443, {made}"), said(condition), raised, Some(cleared));
        }

        // An intermediate that has ended, sent along.
        let middle = node.server_ca.intermediate("middle", -DAY).unwrap();
        let pair = node.folder.path().join("chained");
        let leaf = middle.issue("kube-apiserver", &NAMES, -DAY, 300 * DAY).unwrap();
        leaf.write(&pair.with_extension("crt"), &pair.with_extension("key")).unwrap();
        let chain = pair.with_extension("chain");
        fs::write(&chain, middle.pem()).unwrap();
        fs::write(tls("serving-kube-apiserver.crt"), leaf.certificate.clone() + &middle.pem()).unwrap();
        node.stand_in(6443, &pair, &["-cert_chain", chain.to_str().unwrap()]);
        let (raised, odd) =
            node.until("the intermediate", |c| is(c, "kube-apiserver:6443", "CertificateExpired"));
        let condition = about(&odd, "kube-apiserver:6443");
        assert!(condition.message.contains("intermediate"), "{condition:?}");
        node.put("serving-kube-apiserver", &node.server_ca, 300 * DAY);
        node.stand_in(6443, &tls("serving-kube-apiserver"), &[]);
        let cleared = node.until_well();
        table.timed(
            "an intermediate has ended",
            "s_server -cert_chain",
            said(condition),
            raised,
            Some(cleared),
        );
    });
}

fn unix_now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn bad_files_and_bad_ports_are_named_within_the_limit() {
    on_a_machine_of_its_own(|| {
        let mut table = Table::new("certificate files and ports that are not what they should be");
        let mut node = Node::start();
        node.until_well();
        let admin = tls("client-admin.crt");
        let good = fs::read(&admin).unwrap();
        let der = node.server_ca.issue("admin", &NAMES, -DAY, 300 * DAY).unwrap().der;
        let cut = good[..good.len() / 2].to_vec();
        for (fault, bytes) in [
            ("an empty file", Vec::new()),
            ("garbage", b"\x00\xffnot a certificate".to_vec()),
            ("a certificate in DER", der),
            ("a certificate cut in two", cut),
            ("a key instead", fs::read(tls("client-admin.key")).unwrap()),
        ] {
            fs::write(&admin, bytes).unwrap();
            let (raised, bad) = node.until(fault, |c| is(c, "files", "CertificateUnreadable"));
            let condition = about(&bad, "files");
            assert!(condition.message.contains("client-admin.crt"), "{condition:?}");
            assert!(!bad.lines().contains("PRIVATE KEY"), "nothing of a file is shown");
            fs::write(&admin, &good).unwrap();
            let cleared = node.until_well();
            table.timed(fault, "written over client-admin.crt", said(condition), raised, Some(cleared));
        }
        fs::remove_file(&admin).unwrap();
        fs::create_dir(&admin).unwrap();
        let (raised, bad) = node.until("a folder", |c| is(c, "files", "CertificateUnreadable"));
        table.timed(
            "a folder of that name",
            "mkdir client-admin.crt",
            said(about(&bad, "files")),
            raised,
            None,
        );
        fs::remove_dir(&admin).unwrap();
        fs::write(&admin, &good).unwrap();

        // A bundle is fine; what stands first counts.
        fs::write(&admin, [good.clone(), node.server_ca.pem().into_bytes()].concat()).unwrap();
        node.until_well();

        // Ports: one that hangs, one without TLS, one that is closed.
        node.close(9345);
        let hanging = TcpListener::bind("127.0.0.1:9345").unwrap();
        let start = Instant::now();
        let hangs = node.check();
        let took = start.elapsed();
        let condition = about(&hangs, "supervisor:9345");
        assert_eq!(
            (condition.status, condition.reason.as_str()),
            (Status::Unknown, "TimedOut"),
            "{}",
            hangs.lines()
        );
        assert_eq!(about(&hangs, "etcd:2379").severity, Severity::Ok, "one port holds up no other");
        assert!(took < Duration::from_secs(20), "{took:?}");
        table.timed("a port that hangs", "listens, never answers", said(condition), took, None);
        drop(hanging);
        let start = Instant::now();
        let closed = node.check();
        assert_eq!(closed.code, 0, "{}", closed.lines());
        assert!(
            closed.document.conditions.iter().all(|c| c.subject != "supervisor:9345"),
            "{}",
            closed.lines()
        );
        table.timed("a port nobody listens on", "closed", "no condition, exit code 0", start.elapsed(), None);
        let plain = TcpListener::bind("127.0.0.1:9345").unwrap();
        let server = std::thread::spawn(move || {
            use std::io::Write;
            let (mut stream, _) = plain.accept().unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            std::thread::sleep(Duration::from_millis(300));
        });
        let start = Instant::now();
        let plain = node.check();
        let condition = about(&plain, "supervisor:9345");
        assert_eq!(
            (condition.status, condition.reason.as_str()),
            (Status::Unknown, "TlsFailed"),
            "{}",
            plain.lines()
        );
        table.timed("a port without TLS", "answers in plain HTTP", said(condition), start.elapsed(), None);
        server.join().unwrap();
        node.start_supervisor(300 * DAY);
        node.until_well();

        // What the last start left alone although it was due is no longer used (D16).
        let orphan = tls("client-kube-proxy.crt");
        node.put("client-kube-proxy", &node.server_ca, -20 * DAY);
        let (raised, expired) = node.until("an ended file", |c| is(c, "files", "CertificateExpired"));
        table.timed(
            "a file without a port has ended",
            "client-kube-proxy.crt, just written",
            said(about(&expired, "files")),
            raised,
            None,
        );
        let written = SystemTime::now() - Duration::from_secs(400 * DAY as u64);
        File::options().write(true).open(&orphan).unwrap().set_modified(written).unwrap();
        fs::write(tls("client-ca.nochain.crt"), node.server_ca.pem()).unwrap();
        let (raised, left) = node.until("a leftover", |c| is(c, "files", "CertificateLeftOver"));
        let condition = about(&left, "files");
        assert_eq!(
            (condition.status, condition.severity, left.code),
            (Status::True, Severity::Info, 0),
            "{}",
            left.lines()
        );
        fs::remove_file(&orphan).unwrap();
        let cleared = node.until_well();
        table.timed(
            "a leftover file",
            "400 days old; the service has started since",
            said(condition),
            raised,
            Some(cleared),
        );

        // The authority itself, and what outlives it.
        let ca = fs::read(tls("server-ca.crt")).unwrap();
        for (days, severity) in [(100, Severity::Warn), (10, Severity::Error)] {
            let ending = Authority::new("rke2-request-header-ca@1", days * DAY).unwrap();
            fs::write(tls("request-header-ca.crt"), ending.pem()).unwrap();
            let checked = node.check();
            let condition = about(&checked, "ca");
            assert_eq!(
                (condition.severity, condition.reason.as_str()),
                (severity, "CertificateAuthorityEnding"),
                "{condition:?}"
            );
            assert!(condition.advice.contains("rke2 certificate rotate-ca"), "{condition:?}");
            table.row(format!("an authority ends in {days} days"), "request-header-ca.crt", said(condition));
        }
        fs::remove_file(tls("request-header-ca.crt")).unwrap();
        fs::write(tls("server-ca.crt"), b"nothing").unwrap();
        let checked = node.check();
        assert_eq!(about(&checked, "kube-apiserver:6443").status, Status::Unknown, "{}", checked.lines());
        assert!(is(&checked, "files", "CertificateUnreadable") && checked.code == 2, "{}", checked.lines());
        table.row(
            "the authority's file is broken",
            "server-ca.crt overwritten",
            said(about(&checked, "kube-apiserver:6443")),
        );
        fs::write(tls("server-ca.crt"), ca).unwrap();
        node.until_well();
    });
}

fn context(root: &Path) -> SenseContext {
    SenseContext {
        root: root.to_owned(),
        clock: Arc::new(|| Timestamp::from(SystemTime::now())),
        opener: Arc::new(DirectOpener::below(root)),
    }
}

/// What the rules say of one pass of the sensor over the files below `root`.
fn judged(root: &Path, memory: &mut certificates::Memory) -> Vec<Condition> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fact = runtime.block_on(certificates::read(&context(root), Duration::from_secs(20), memory));
    let mut facts = NodeFacts {
        meta: TypeMeta::new("NodeFacts"),
        node: NodeRef {
            name: "n1".to_owned(),
            uid: String::new(),
            cluster: String::new(),
            profile: Profile::Generic,
            simulated: false,
        },
        agent_version: String::new(),
        now: Timestamp::from(SystemTime::now()),
        thresholds: Thresholds::default(),
        latches: Vec::new(),
        checks: Default::default(),
    };
    assert!(matches!(fact, Fact::Known { .. }), "{fact:?}");
    facts.checks.certificates = Some(fact);
    outrider_diagnosis::diagnose(&facts).conditions
}

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn etcds_log_is_left_in_peace() {
    on_a_machine_of_its_own(|| {
        let mut table = Table::new("what etcd logs of a look");
        let mut node = Node::new();
        node.start_etcd();
        let before = node.complaints();
        let mut memory = certificates::Memory::default();
        judged(Path::new("/"), &mut memory);
        until("etcd has logged", LIMIT, || (node.complaints() == before + 2).then_some(())).unwrap();
        for _ in 0..5 {
            judged(Path::new("/"), &mut memory);
        }
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(node.complaints(), before + 2, "one line a port, and none at the looks that follow");
        table.row(
            "one look",
            "a handshake on 2379 and on 2380, without a client certificate",
            "one line each: rejected connection",
        );
        table.row("five more within the hour", "the daemon's memory", "no line");
    });
}

#[test]
#[ignore = "run by tests/run --suite certificates"]
fn kubeadm_and_rke1_with_advice_that_is_theirs() {
    on_a_machine_of_its_own(|| {
        let mut table = Table::new("other distributions, openssl s_server on 6443");
        let mut node = Node::new();
        for (name, folder, authority, leaf, words) in [
            ("kubeadm", "etc/kubernetes/pki", "ca.crt", "apiserver", "kubeadm certs renew all"),
            ("RKE1", "etc/kubernetes/ssl", "kube-ca.pem", "kube-apiserver", "rke cert rotate"),
        ] {
            let root = tempfile::tempdir_in("/var/lib").unwrap();
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            let ca = Authority::new("kubernetes", 3000 * DAY).unwrap();
            fs::write(folder.join(authority), ca.pem()).unwrap();
            let extension = authority.rsplit('.').next().unwrap();
            for (days, status) in [(20, Status::True), (-2, Status::False)] {
                let issued = ca.issue(leaf, &NAMES, -365 * DAY, days * DAY).unwrap();
                let pair = node.folder.path().join(format!("{leaf}{days}"));
                issued.write(&pair.with_extension("crt"), &pair.with_extension("key")).unwrap();
                fs::write(folder.join(format!("{leaf}.{extension}")), &issued.certificate).unwrap();
                node.stand_in(6443, &pair, &[]);
                let conditions = judged(root.path(), &mut certificates::Memory::default());
                let condition = conditions.iter().find(|c| c.subject == "kube-apiserver:6443").unwrap();
                assert_eq!(condition.status, status, "{conditions:#?}");
                assert!(
                    condition.advice.contains(words) && condition.advice.contains("renews nothing"),
                    "{condition:?}"
                );
                table.row(format!("{name}: {days} days left"), "s_server on 6443", said(condition));
            }
        }
    });
}
