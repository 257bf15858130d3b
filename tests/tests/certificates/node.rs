//! The node: its files, and who listens.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use outrider_protocol::Condition;
use outrider_tests::beds::pki::{Authority, DAY, Issued, Seconds};
use outrider_tests::checked::{Checked, check, check_until};
use outrider_tests::programs::{Process, until};

pub(super) const LIMIT: Duration = Duration::from_secs(60);
pub(super) const RKE2: &str = "/var/lib/rancher/rke2";
/// An address of this machine that is not loopback, on its loopback interface.
pub(super) const ADDRESS: &str = "10.9.8.7";
pub(super) const NAMES: [&str; 2] = [ADDRESS, "127.0.0.1"];

/// Runs `test` on a thread whose processes have a network and a `/var/lib` of their own.
pub(super) fn on_a_machine_of_its_own(test: impl FnOnce() + Send + 'static) {
    let machine = move || {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET) {
            println!("skipped: a machine of its own needs root ({e})");
            return;
        }
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some("tmpfs"), "/var/lib", Some("tmpfs"), MsFlags::empty(), Some("size=400m,mode=755"))
            .unwrap();
        run("ip", &["link", "set", "lo", "up"]);
        run("ip", &["address", "add", &format!("{ADDRESS}/32"), "dev", "lo"]);
        test();
    };
    if let Err(panic) = std::thread::spawn(machine).join() {
        std::panic::resume_unwind(panic);
    }
}

pub(super) fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// An RKE2 server: its files, and who listens.
pub(super) struct Node {
    pub(super) server_ca: Authority,
    pub(super) etcd_ca: Authority,
    pub(super) peer_ca: Authority,
    pub(super) folder: tempfile::TempDir,
    pub(super) etcd: Option<Process>,
    pub(super) stand_ins: Vec<(u16, Process)>,
}

impl Node {
    pub(super) fn new() -> Self {
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
        // The last whose kubelet takes no new file by itself, with the wide window of renewal.
        fs::create_dir_all(format!("{RKE2}/data/v1.30.14-rke2r1-eef53a0d1ec2")).unwrap();
        // A container's clock is kept by nobody it can see, and would make every end of a certificate doubtful.
        fs::write(node.config(), "[checks.clock]\nenabled = false\n").unwrap();
        node.put("etcd/server-client", &node.etcd_ca, 300 * DAY);
        node.put("etcd/peer-server-client", &node.peer_ca, 300 * DAY);
        node.put("serving-kube-apiserver", &node.server_ca, 300 * DAY);
        node.put("client-admin", &node.server_ca, 300 * DAY);
        node.kubelet(300 * DAY).write(&agent("serving-kubelet.crt"), &agent("serving-kubelet.key")).unwrap();
        node
    }

    pub(super) fn start() -> Self {
        let mut node = Self::new();
        node.start_etcd();
        node.stand_in(6443, &tls("serving-kube-apiserver"), &[]);
        node.start_supervisor(300 * DAY);
        node.stand_in(10250, &agent("serving-kubelet"), &[]);
        node
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder.path().join("agent.toml")
    }

    pub(super) fn put(&self, name: &str, authority: &Authority, end: Seconds) {
        let issued = authority.issue(name, &NAMES, -DAY, end).unwrap();
        issued.write(&tls(&format!("{name}.crt")), &tls(&format!("{name}.key"))).unwrap();
    }

    pub(super) fn kubelet(&self, end: Seconds) -> Issued {
        self.server_ca.issue("kubelet", &NAMES, -DAY, end).unwrap()
    }

    pub(super) fn start_etcd(&mut self) {
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

    pub(super) fn log(&self) -> PathBuf {
        self.folder.path().join("etcd.log")
    }

    /// Lines in etcd's log about connections it did not like.
    pub(super) fn complaints(&self) -> usize {
        fs::read_to_string(self.log()).unwrap().lines().filter(|l| l.contains("rejected connection")).count()
    }

    /// `openssl s_server` with this certificate and key, in place of what listened on the port.
    pub(super) fn stand_in(&mut self, port: u16, pair: &Path, more: &[&str]) {
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
    pub(super) fn start_supervisor(&mut self, end: Seconds) {
        let pair = self.folder.path().join("supervisor");
        let issued = self.server_ca.issue("rke2", &NAMES, -DAY, end).unwrap();
        issued.write(&pair.with_extension("crt"), &pair.with_extension("key")).unwrap();
        self.stand_in(9345, &pair, &[]);
    }

    pub(super) fn close(&mut self, port: u16) {
        self.stand_ins.retain(|(open, _)| *open != port);
    }

    pub(super) fn check(&self) -> Checked {
        check(&self.config(), "certificates").unwrap()
    }

    pub(super) fn until(&self, what: &str, good: impl Fn(&Checked) -> bool) -> (Duration, Checked) {
        check_until(&self.config(), "certificates", what, LIMIT, good).unwrap()
    }

    pub(super) fn until_well(&self) -> Duration {
        self.until("all is well", |checked| checked.code == 0).0
    }
}

pub(super) fn tls(name: &str) -> PathBuf {
    Path::new(RKE2).join("server/tls").join(name)
}

pub(super) fn agent(name: &str) -> PathBuf {
    Path::new(RKE2).join("agent").join(name)
}

/// Whether a socket listens there, without a connection that somebody would have to answer.
pub(super) fn listens(port: u16) -> bool {
    // The thread's own network, not the process'.
    let table = fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    table.lines().any(|line| line.contains(&format!(":{port:04X} ")) && line.contains(" 0A "))
}

pub(super) fn about<'a>(checked: &'a Checked, subject: &str) -> &'a Condition {
    let found = checked.document.conditions.iter().find(|c| c.subject == subject);
    found.unwrap_or_else(|| panic!("{subject}: nothing said:\n{}", checked.lines()))
}

pub(super) fn is(checked: &Checked, subject: &str, reason: &str) -> bool {
    checked.document.conditions.iter().any(|c| c.subject == subject && c.reason.as_str() == reason)
}

pub(super) fn said(condition: &Condition) -> String {
    format!(
        "{}={} {} {}: {}",
        condition.subject, condition.status, condition.severity, condition.reason, condition.message
    )
}
