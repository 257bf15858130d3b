//! The checks `dns` and `rancher-agent` as a person runs them, against real dnsmasq: each fault is made for real, in a
//! network and a mount namespace of the test's own, so that `/etc/resolv.conf`, `/etc/hosts` and port 53 are the ones
//! glibc uses.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use outrider_protocol::Condition;
use outrider_tests::checked::{Checked, check};
use outrider_tests::programs::{Process, until};
use outrider_tests::table::Table;

const LIMIT: Duration = Duration::from_secs(30);
const NAME: &str = "rancher.example";
/// Two servers and the cluster DNS, on loopback addresses of the namespace.
const FIRST: &str = "127.1.0.2";
const SECOND: &str = "127.1.0.3";

/// Runs `test` on a thread whose processes have a network, an `/etc` and a `/run` of their own.
fn on_a_machine_of_its_own(test: impl FnOnce(&Node) + Send + 'static) {
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

struct Node {
    folder: PathBuf,
    config: PathBuf,
}

impl Node {
    fn new(folder: &Path) -> Self {
        let config = folder.join("agent.toml");
        fs::write(&config, format!("[[load_balancer]]\nname = \"rancher\"\nurl = \"https://{NAME}\"\n"))
            .unwrap();
        let node = Self { folder: folder.to_owned(), config };
        node.reset();
        node
    }

    /// Two servers, an empty hosts file.
    fn reset(&self) {
        self.write("/etc/resolv.conf", &format!("nameserver {FIRST}\nnameserver {SECOND}\n"));
        self.write("/etc/hosts", "127.0.0.1 localhost\n");
        self.write("/etc/nsswitch.conf", "hosts: files dns\n");
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(path, text).unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// A dnsmasq at `address` with these options.
    fn server(&self, address: &str, options: &[&str]) -> Process {
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

    fn check(&self) -> Checked {
        check(&self.config, "dns").unwrap()
    }
}

/// The condition about `subject`.
#[track_caller]
fn about<'a>(checked: &'a Checked, subject: &str) -> &'a Condition {
    let mut found = checked.document.conditions.iter();
    found.find(|c| c.condition_type.as_str() == "DnsResolves" && c.subject == subject).unwrap_or_else(|| {
        panic!("no condition about {subject}:\n{}", checked.lines());
    })
}

/// A name everybody has at 198.51.100.10 and nothing else: what is not known does not exist.
fn good() -> Vec<String> {
    vec![format!("--host-record={NAME},198.51.100.10"), "--local=/#/".to_owned()]
}

fn words(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// One fault: what, how, the servers' options, the files, and the reason expected about which subject.
struct Fault {
    fault: &'static str,
    made: &'static str,
    first: Option<Vec<String>>,
    second: Option<Vec<String>>,
    files: &'static [(&'static str, &'static str)],
    subject: &'static str,
    reason: &'static str,
    words: &'static [&'static str],
}

#[test]
#[ignore = "needs root, dnsmasq and ip"]
fn each_fault_is_told_from_its_neighbours() {
    on_a_machine_of_its_own(|node| {
        let mut table = Table::new("dns: dnsmasq on two addresses, glibc beside them");
        for fault in faults() {
            node.reset();
            for (path, text) in fault.files {
                node.write(path, text);
            }
            let servers = [(FIRST, &fault.first), (SECOND, &fault.second)];
            let running: Vec<Process> = servers
                .into_iter()
                .filter_map(|(address, options)| Some(node.server(address, &words(options.as_ref()?))))
                .collect();
            let start = std::time::Instant::now();
            let checked = node.check();
            let took = start.elapsed();
            let condition = about(&checked, fault.subject);
            assert_eq!(condition.reason.as_str(), fault.reason, "{}:\n{}", fault.fault, checked.lines());
            for word in fault.words {
                let found = condition.message.contains(word) || condition.advice.contains(word);
                assert!(found, "{}: {word:?} is missing in\n{}", fault.fault, checked.lines());
            }
            let seen = format!("{} {} {}", condition.status, condition.severity, condition.reason);
            // Without a daemon a verdict is shown at the first look; the cure is the next row's start.
            table.timed(fault.fault, fault.made, seen, took, None);
            drop(running);
        }
    });
}

fn faults() -> Vec<Fault> {
    let s = |options: &[&str]| Some(options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>());
    let ok = || Some(good());
    let with = |more: &[&str]| {
        let mut all = good();
        all.extend(more.iter().map(|o| (*o).to_owned()));
        Some(all)
    };
    let fault = |fault, made, first, second, subject, reason, words| Fault {
        fault,
        made,
        first,
        second,
        files: &[],
        subject,
        reason,
        words,
    };
    vec![
        fault(
            "none",
            "two servers that agree",
            ok(),
            ok(),
            NAME,
            "NamesResolve",
            &["198.51.100.10", "2 of 2"],
        ),
        fault("none", "the same, the servers", ok(), ok(), "servers", "NamesResolve", &["2 DNS servers"]),
        fault(
            "no such name",
            "--local=/#/",
            s(&["--local=/#/"]),
            s(&["--local=/#/"]),
            NAME,
            "NameNotResolved",
            &["NXDOMAIN"],
        ),
        fault(
            "a name without an address",
            "--txt-record alone",
            s(&["--txt-record=rancher.example,x", "--local=/#/"]),
            s(&["--txt-record=rancher.example,x", "--local=/#/"]),
            NAME,
            "NameNotResolved",
            &["neither an A nor an AAAA"],
        ),
        fault(
            "REFUSED",
            "dnsmasq without upstreams",
            s(&[]),
            s(&[]),
            NAME,
            "DnsServerFailing",
            &["REFUSED", "allow-query"],
        ),
        fault(
            "no server answers",
            "nobody listens",
            None,
            None,
            NAME,
            "DnsServerDown",
            &["nothing listens there"],
        ),
        fault(
            "the first server is dead",
            "nobody listens at it",
            None,
            ok(),
            "servers",
            "DnsServerDown",
            &["first", FIRST],
        ),
        fault(
            "the spare is dead",
            "nobody listens at it",
            ok(),
            None,
            "servers",
            "DnsServerDown",
            &["spare", SECOND],
        ),
        fault("the name is well all the same", "the same", None, ok(), NAME, "NamesResolve", &["1 of 2"]),
        fault(
            "split horizon",
            "another address at the second",
            ok(),
            s(&["--host-record=rancher.example,10.7.7.7", "--local=/#/"]),
            NAME,
            "DnsAnswersDiffer",
            &["127.1.0.2 says 198.51.100.10", "127.1.0.3 says 10.7.7.7", "private"],
        ),
        fault(
            "one server does not know it",
            "--local=/#/ at the first",
            s(&["--local=/#/"]),
            ok(),
            NAME,
            "NameNotResolved",
            &["does not resolve on this host", "says 198.51.100.10"],
        ),
        fault(
            "loopback from a filter",
            "--address=/rancher.example/0.0.0.0",
            s(&["--address=/rancher.example/0.0.0.0", "--local=/#/"]),
            s(&["--address=/rancher.example/0.0.0.0", "--local=/#/"]),
            NAME,
            "NameIsLoopback",
            &["0.0.0.0"],
        ),
        fault(
            "this node alone",
            "the record has this node's address",
            s(&["--host-record=rancher.example,192.0.2.1", "--local=/#/"]),
            s(&["--host-record=rancher.example,192.0.2.1", "--local=/#/"]),
            NAME,
            "NameIsThisNode",
            &["192.0.2.1", "single server"],
        ),
        fault(
            "AAAA without a way",
            "an AAAA record, no IPv6 route",
            s(&["--host-record=rancher.example,198.51.100.10,2001:db8::7", "--local=/#/"]),
            s(&["--host-record=rancher.example,198.51.100.10,2001:db8::7", "--local=/#/"]),
            NAME,
            "AddressUnroutable",
            &["2001:db8::7", "1 of 2 IPv6"],
        ),
        fault(
            "answers everything",
            "--address=/#/203.0.113.9",
            s(&["--host-record=rancher.example,198.51.100.10", "--address=/#/203.0.113.9"]),
            ok(),
            "servers",
            "DnsAnswersEverything",
            &[".invalid cannot exist", FIRST],
        ),
        Fault {
            files: &[("/etc/hosts", "127.0.0.1 localhost\n198.51.100.10 rancher.example\n")],
            ..fault(
                "in the hosts file alone",
                "an entry, and servers that deny it",
                s(&["--local=/#/"]),
                s(&["--local=/#/"]),
                NAME,
                "NameOnlyOnHost",
                &["/etc/hosts alone", "NXDOMAIN"],
            )
        },
        Fault {
            files: &[("/etc/hosts", "198.51.100.99 rancher.example\n")],
            ..fault(
                "the hosts file contradicts DNS",
                "an entry with another address",
                ok(),
                ok(),
                NAME,
                "DnsAnswersDiffer",
                &["/etc/hosts", "198.51.100.99", "198.51.100.10"],
            )
        },
        Fault {
            files: &[("/etc/hosts", "127.0.1.1 rancher.example\n")],
            ..fault(
                "loopback from the hosts file",
                "127.0.1.1",
                ok(),
                ok(),
                NAME,
                "NameIsLoopback",
                &["127.0.1.1"],
            )
        },
        Fault {
            files: &[(
                "/etc/resolv.conf",
                "search corp.example\nnameserver 127.1.0.2\nnameserver 127.1.0.3\n",
            )],
            ..fault(
                "a wildcard behind a search domain",
                "search corp.example, --address=/corp.example/…",
                with(&["--address=/corp.example/198.51.100.5"]),
                with(&["--address=/corp.example/198.51.100.5"]),
                "servers",
                "SearchDomainWildcard",
                &["corp.example", "198.51.100.5"],
            )
        },
        Fault {
            files: &[(
                "/etc/resolv.conf",
                "search corp.example\nnameserver 127.1.0.2\nnameserver 127.1.0.3\noptions ndots:5\n",
            )],
            ..fault(
                "tried before the name itself",
                "the same with ndots:5",
                with(&["--address=/corp.example/198.51.100.5"]),
                with(&["--address=/corp.example/198.51.100.5"]),
                NAME,
                "SearchDomainWildcard",
                &["rancher.example.corp.example is 198.51.100.5", "this host"],
            )
        },
        Fault {
            files: &[(
                "/etc/resolv.conf",
                "nameserver 127.1.0.2\nnameserver 127.1.0.3\nnameserver 127.1.0.2\nnameserver 127.1.0.9\n",
            )],
            ..fault(
                "a fourth server",
                "four lines",
                ok(),
                ok(),
                "servers",
                "DnsServersIgnored",
                &["127.1.0.9 never is"],
            )
        },
        Fault {
            files: &[(
                "/etc/resolv.conf",
                "nameserver 127.1.0.2\nnameserver 127.1.0.3\nnameserver dns.example\n",
            )],
            ..fault(
                "a line without effect",
                "a name as nameserver",
                ok(),
                ok(),
                "servers",
                "DnsServersIgnored",
                &["line 3"],
            )
        },
    ]
}

/// A server that says what it is told, for what dnsmasq would never do.
fn stand_in(address: &'static str, answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) {
    let socket = UdpSocket::bind((address, 53)).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((n, peer)) = socket.recv_from(&mut buffer) {
            if let Some(bytes) = answer(&buffer[..n]) {
                let _ = socket.send_to(&bytes, peer);
            }
        }
    });
}

/// The question with these flags and these answer bytes behind it.
fn answered(question: &[u8], flags: [u8; 2], records: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = question.to_vec();
    bytes[2..4].copy_from_slice(&flags);
    bytes[6..8].copy_from_slice(&u16::try_from(records.len()).unwrap().to_be_bytes());
    bytes.extend(records.concat());
    bytes
}

/// A record whose owner is the question's name.
fn record(kind: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60];
    bytes.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Whether AAAA is asked for.
fn wants_v6(question: &[u8]) -> bool {
    question[question.len() - 3] == 28
}

#[test]
#[ignore = "needs root and ip"]
fn what_no_real_server_does_on_purpose() {
    on_a_machine_of_its_own(|node| {
        let mut table = Table::new("dns: stand-ins for broken servers");
        node.write(
            "/etc/resolv.conf",
            "nameserver 127.1.1.1\nnameserver 127.1.1.2\nnameserver 127.1.1.3\noptions timeout:1 attempts:1\n",
        );
        let good = |q: &[u8]| {
            let address = record(1, &[198, 51, 100, 10]);
            answered(q, [0x81, 0x80], if wants_v6(q) { &[] } else { std::slice::from_ref(&address) })
        };
        let rows: [(&'static str, &'static str, &'static str, &'static str); 5] = [
            ("127.2.0.1", "SERVFAIL", "DnsServerFailing", "SERVFAIL"),
            ("127.2.0.2", "NXDOMAIN for AAAA only", "DnsFamiliesDisagree", "NXDOMAIN when asked for AAAA"),
            ("127.2.0.3", "cut, and no TCP", "DnsAnswerTruncated", "TCP port 53"),
            ("127.2.0.4", "an alias of itself", "DnsAliasBroken", "circle"),
            ("127.2.0.5", "silence", "DnsServerDown", "silent"),
        ];
        stand_in(rows[0].0, |q| Some(answered(q, [0x81, 0x82], &[])));
        stand_in(rows[1].0, move |q| {
            Some(if wants_v6(q) { answered(q, [0x81, 0x83], &[]) } else { good(q) })
        });
        stand_in(rows[2].0, |q| Some(answered(q, [0x83, 0x80], &[])));
        stand_in(rows[3].0, |q| Some(answered(q, [0x81, 0x80], &[record(5, &[0xc0, 12])])));
        stand_in(rows[4].0, |_| None);
        // A TCP port that takes nobody's word.
        let _closed = TcpListener::bind((rows[4].0, 53)).unwrap();
        for (address, made, reason, word) in rows {
            node.write("/etc/resolv.conf", &format!("nameserver {address}\noptions timeout:1 attempts:1\n"));
            let start = std::time::Instant::now();
            let checked = node.check();
            let condition = about(&checked, NAME);
            assert_eq!(condition.reason.as_str(), reason, "{made}:\n{}", checked.lines());
            let found = condition.message.contains(word) || condition.advice.contains(word);
            assert!(found, "{made}: {word:?} is missing in\n{}", checked.lines());
            let seen = format!("{} {} {}", condition.status, condition.severity, condition.reason);
            table.timed(made, format!("a stand-in at {address}"), seen, start.elapsed(), None);
        }
    });
}

/// An RKE2 agent node of files: the configuration, rancher-system-agent's files, and no systemd.
fn rke2(node: &Node, resolv_conf: &str) {
    let put = |path: &str, text: &str| {
        fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    put("/etc/rancher/rke2/config.yaml", &format!("server: https://{NAME}:9345\ntoken: s3cret\n"));
    fs::create_dir_all("/var/lib/rancher/rke2/agent").unwrap();
    node.write("/etc/resolv.conf", resolv_conf);
}

#[test]
#[ignore = "needs root, dnsmasq and ip"]
fn what_pods_are_given_is_judged_by_what_rke2_chooses() {
    on_a_machine_of_its_own(|node| {
        let mut table = Table::new("dns: what RKE2 gives to pods");
        let options = good();
        let _first = node.server(FIRST, &words(&options));
        rke2(node, &format!("nameserver {FIRST}\n"));
        let checked = node.check();
        let condition = about(&checked, "servers");
        assert_eq!(condition.reason.as_str(), "PodResolverUnfit", "{}", checked.lines());
        assert!(condition.message.contains("8.8.8.8"), "{}", checked.lines());
        table.row(
            "a server on loopback",
            "resolv.conf of an RKE2 node",
            format!("{} {}", condition.severity, condition.reason),
        );
        fs::write("/etc/rancher/rke2/pods.conf", format!("nameserver {FIRST}\n")).unwrap();
        fs::create_dir_all("/etc/rancher/rke2/config.yaml.d").unwrap();
        fs::write(
            "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
            r#"{"resolv-conf": "/etc/rancher/rke2/pods.conf"}"#,
        )
        .unwrap();
        let checked = node.check();
        let condition = about(&checked, "servers");
        assert_eq!(condition.reason.as_str(), "PodResolverUnfit", "{}", checked.lines());
        assert!(condition.message.contains("Loop"), "{}", checked.lines());
        table.row(
            "the same file named on purpose",
            "resolv-conf in config.yaml.d",
            format!("{} {}", condition.severity, condition.reason),
        );
        let name = about(&checked, NAME);
        assert!(name.message.contains("server of rke2"), "{}", checked.lines());
    });
}

#[test]
#[ignore = "needs root, dnsmasq and ip"]
fn both_checks_explain_themselves_in_one_screen() {
    on_a_machine_of_its_own(|node| {
        let options = good();
        let _servers = [node.server(FIRST, &words(&options)), node.server(SECOND, &words(&options))];
        let mut command = Command::new(outrider_tests::programs::program("outrider").unwrap());
        command.args(["check", "--only", "dns,rancher-agent", "--config"]).arg(&node.config);
        command.env("HTTPS_PROXY", "http://user:s3cret@proxy.example:3128").env("NO_PROXY", "*.example");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        println!("{text}");
        assert!(!text.contains("s3cret"), "a password is shown:\n{text}");
        assert!(text.lines().count() <= 24, "more than a screen:\n{text}");
        assert!(text.contains("not installed"), "{text}");
        assert!(node.folder.exists());
    });
}
