//! A machine with a network, an `/etc` and a `/run` of its own, and dnsmasq on addresses of its loopback.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use outrider_protocol::Condition;
use outrider_tests::checked::{Checked, check};
use outrider_tests::programs::{Process, until};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
pub(crate) const NAME: &str = "rancher.example";
/// Two servers and the cluster DNS, on loopback addresses of the namespace.
pub(crate) const FIRST: &str = "127.1.0.2";
pub(crate) const SECOND: &str = "127.1.0.3";

/// Runs `test` on a thread whose processes have a network, an `/etc` and a `/run` of their own.
pub(crate) fn on_a_machine_of_its_own(test: impl FnOnce(&Node) + Send + 'static) {
    let machine = move || {
        if let Err(e) = unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET) {
            println!("skipped: a machine of its own needs root ({e})");
            return;
        }
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let folder = tempfile::tempdir().unwrap();
        // A copy of /etc stands in its place, so that whatever is written there is gone with it.
        let etc = folder.path().join("etc");
        assert!(Command::new("cp").args(["-a", "/etc"]).arg(&etc).status().unwrap().success());
        for name in ["resolv.conf", "hosts", "nsswitch.conf"] {
            // It may be a link to where nothing is any more.
            let _ = fs::remove_file(etc.join(name));
        }
        mount(Some(&etc), "/etc", none, MsFlags::MS_BIND, none).unwrap();
        for tree in ["/run", "/var/lib"] {
            mount(Some("tmpfs"), tree, Some("tmpfs"), MsFlags::empty(), Some("size=20m,mode=755")).unwrap();
        }
        for arguments in
            ["link set lo up", "address add 192.0.2.1/24 dev lo", "route add 198.51.100.0/24 dev lo"]
        {
            let words: Vec<&str> = arguments.split(' ').collect();
            assert!(Command::new("ip").args(&words).status().unwrap().success(), "ip {arguments}");
        }
        test(&Node::new(folder.path()));
    };
    if let Err(panic) = std::thread::spawn(machine).join() {
        std::panic::resume_unwind(panic);
    }
}

pub(crate) struct Node {
    pub(crate) folder: PathBuf,
    pub(crate) config: PathBuf,
}

impl Node {
    pub(crate) fn new(folder: &Path) -> Self {
        let config = folder.join("agent.toml");
        fs::write(&config, format!("[[load_balancer]]\nname = \"rancher\"\nurl = \"https://{NAME}\"\n"))
            .unwrap();
        let node = Self { folder: folder.to_owned(), config };
        node.reset();
        node
    }

    /// Two servers, an empty hosts file.
    pub(crate) fn reset(&self) {
        self.write("/etc/resolv.conf", &format!("nameserver {FIRST}\nnameserver {SECOND}\n"));
        self.write("/etc/hosts", "127.0.0.1 localhost\n");
        self.write("/etc/nsswitch.conf", "hosts: files dns\n");
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        fs::write(path, text).unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// A dnsmasq at `address` with these options.
    pub(crate) fn server(&self, address: &str, options: &[&str]) -> Process {
        let mut command = Command::new("dnsmasq");
        command.args([
            "--keep-in-foreground",
            "--no-resolv",
            "--no-hosts",
            "--conf-file=/dev/null",
            "--user=root",
        ]);
        command.args(["--bind-interfaces", "--no-daemon", "--local-ttl=60", "--pid-file="]);
        command.arg(format!("--listen-address={address}")).arg("--except-interface=nonexistent");
        command.args(options).stdout(Stdio::null()).stderr(Stdio::null());
        let process = Process::spawn(&mut command).unwrap();
        // It binds UDP and TCP before it serves.
        until(&format!("dnsmasq at {address}"), LIMIT, || std::net::TcpStream::connect((address, 53)).ok())
            .unwrap();
        process
    }

    pub(crate) fn check(&self) -> Checked {
        check(&self.config, "dns").unwrap()
    }
}

/// The condition about `subject`.
#[track_caller]
pub(crate) fn about<'a>(checked: &'a Checked, subject: &str) -> &'a Condition {
    let mut found = checked.document.conditions.iter();
    found.find(|c| c.condition_type.as_str() == "DnsResolves" && c.subject == subject).unwrap_or_else(|| {
        panic!("no condition about {subject}:\n{}", checked.lines());
    })
}

/// A name everybody has at 198.51.100.10 and nothing else: what is not known does not exist.
pub(crate) fn good() -> Vec<String> {
    vec![format!("--host-record={NAME},198.51.100.10"), "--local=/#/".to_owned()]
}

pub(crate) fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}
