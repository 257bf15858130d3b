//! What lies on the machine, and what its processes ask each other.

use std::path::Path;
use std::sync::Arc;

use outrider_agent::privileged::{DirectOpener, Document, Reply, Request};
use outrider_agent::sense::etcd::MemberConfig;
use outrider_agent::sense::rancher::{Options, scheme};
use outrider_agent::sense::{self, SenseContext};
use outrider_protocol::{CloudInitFacts, CloudInitStatus, Fact, HostFacts, Timestamp};
use tempfile::TempDir;

/// The root helper's request line, and its reply.
pub fn helper_request(bytes: &[u8]) {
    if let Ok(request) = Request::from_line(bytes) {
        let line = request.to_line().unwrap_or_default();
        assert_eq!(line.iter().position(|b| *b == b'\n'), Some(line.len() - 1), "one line: {line:?}");
        assert_eq!(Request::from_line(line.trim_ascii_end()), Ok(request));
        assert!(Reply::from_line(bytes).is_err(), "a question is no answer");
    }
    if let Ok(reply) = Reply::from_line(bytes) {
        let line = reply.to_line().unwrap_or_default();
        assert_eq!(Reply::from_line(line.trim_ascii_end()).ok(), Some(reply));
    }
}

/// `config.yaml` of RKE2 and K3s: the root helper's excerpt says of the datastore what the whole file says, and no more
/// of its endpoint than the scheme.
pub fn server_config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut whole = Options::default();
    let read = whole.merge(text.as_bytes());
    let Ok(excerpt) = Document::Rancher.excerpt(&text) else {
        assert!(read.is_err(), "the excerpt of a readable file: {text:?}");
        return;
    };
    assert_eq!(read, Ok(()), "{text:?}");
    let mut told = Options::default();
    assert_eq!(told.merge(excerpt.as_bytes()), Ok(()), "{excerpt}");
    let kind = |options: &Options| {
        let endpoint = options.datastore_endpoint();
        endpoint.map(|endpoint| scheme(endpoint).unwrap_or("sqlite").to_owned())
    };
    assert_eq!(kind(&told), kind(&whole), "{text:?}");
    let endpoint = told.datastore_endpoint().unwrap_or_default().to_owned();
    assert!(
        endpoint.is_empty()
            || endpoint == "sqlite"
            || scheme(&endpoint).map(str::len) == Some(endpoint.len() - 3),
        "{endpoint}"
    );
    // An empty list unsets it: the rest is the same.
    for options in [&mut told, &mut whole] {
        assert_eq!(options.merge(b"datastore-endpoint: []"), Ok(()));
    }
    assert_eq!(told, whole, "{text:?}");
}

/// A unit that starts RKE2 or K3s, and a file of its environment: what was left out once stays out, and the rest is what
/// it was.
pub fn launch(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for document in [Document::Unit, Document::Environment] {
        let once = document.excerpt(&text).unwrap_or_default();
        assert_eq!(document.excerpt(&once).as_deref(), Ok(once.as_str()), "{text:?}");
    }
}

/// etcd's configuration file and its static pod: the root helper's excerpt says of the member what the whole says.
pub fn etcd_config(bytes: &[u8]) {
    type Read = fn(&str) -> Result<MemberConfig, &'static str>;
    let text = String::from_utf8_lossy(bytes);
    for (document, read) in [
        (Document::EtcdConfig, MemberConfig::of_file as Read),
        (Document::EtcdPod, MemberConfig::of_pod as Read),
    ] {
        let Ok(excerpt) = document.excerpt(&text) else { continue };
        // Nothing at all is an error where the whole is read and an empty document where the excerpt is.
        if let Ok(whole) = read(&text) {
            let told = read(&excerpt).map(|config| config.expected());
            assert_eq!(told, Ok(whole.expected()), "{excerpt}");
        }
    }
}

/// A folder that stands for `/`, kept as long as its thread: files are written over.
fn prepared(files: &[(&str, &[u8])]) -> Option<SenseContext> {
    thread_local! {
        // In memory where there is such a folder: a file system on a disk flushes each file that is written over.
        static ROOT: Option<TempDir> = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).ok();
    }
    ROOT.with(|root| {
        let root = root.as_ref()?.path();
        for (path, content) in files {
            let file = root.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(file.parent().unwrap_or(root)).ok()?;
            std::fs::write(file, content).ok()?;
        }
        Some(context(root))
    })
}

fn context(root: &Path) -> SenseContext {
    SenseContext {
        root: root.to_owned(),
        clock: Arc::new(|| Timestamp::from_seconds(1_800_000_000)),
        opener: Arc::new(DirectOpener::below(root)),
    }
}

/// The bytes up to a line of `%`, and those behind it.
fn halves(bytes: &[u8]) -> (&[u8], &[u8]) {
    const RULE: &[u8] = b"\n%\n";
    match bytes.windows(RULE.len()).position(|window| window == RULE) {
        Some(at) => (&bytes[..at], &bytes[at + RULE.len()..]),
        None => (bytes, b"{\"v1\":{}}"),
    }
}

/// cloud-init's status and result, set apart by a line of `%`: errors, status and exit code agree, and all is bounded.
pub fn cloud_init(bytes: &[u8]) {
    let (status, result) = halves(bytes);
    let files = [
        ("/usr/bin/cloud-init", &b""[..]),
        ("/proc/uptime", b"1000.5 900.0"),
        ("/run/cloud-init/status.json", status),
        ("/run/cloud-init/result.json", result),
    ];
    let Some(cx) = prepared(&files) else { return };
    let fact = sense::cloud_init::read(&cx);
    let text = serde_json::to_string(&fact).unwrap_or_default();
    assert_eq!(serde_json::from_str::<Fact<CloudInitFacts>>(&text).ok().as_ref(), Some(&fact), "{text}");
    assert!(!matches!(fact, Fact::Absent { .. }), "the files are there");
    let Some(facts) = fact.value() else { return };
    assert_eq!(facts.status == CloudInitStatus::Error, !facts.errors.is_empty(), "{facts:?}");
    assert_eq!(facts.exit_code == Some(1), !facts.errors.is_empty(), "{facts:?}");
    if facts.errors.is_empty() {
        assert_eq!(facts.exit_code == Some(2), !facts.recoverable_errors.is_empty(), "{facts:?}");
    }
    let lists = facts.recoverable_errors.values().chain([&facts.errors]);
    let longest = lists.clone().flatten().chain([&facts.stage, &facts.datasource]).map(|t| t.chars().count());
    assert!(longest.max() <= Some(501), "{facts:?}");
    assert!(lists.clone().all(|list| list.len() <= 21) && lists.count() <= 21, "{facts:?}");
}

/// The files of `/proc`, `/sys` and `/etc` that tell of the host, each with the same content.
pub fn host(bytes: &[u8]) {
    let files = [
        "/etc/machine-id",
        "/etc/os-release",
        "/proc/1/environ",
        "/proc/cpuinfo",
        "/proc/loadavg",
        "/proc/meminfo",
        "/proc/pressure/cpu",
        "/proc/pressure/io",
        "/proc/pressure/memory",
        "/proc/self/mountinfo",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/osrelease",
        "/proc/sys/kernel/random/boot_id",
        "/proc/uptime",
        "/run/cloud-init/instance-data.json",
        "/sys/class/net/eth0/address",
        "/sys/class/net/eth0/type",
        "/sys/devices/system/cpu/online",
        "/sys/devices/virtual/dmi/id/product_uuid",
        "/sys/devices/virtual/dmi/id/sys_vendor",
        "/sys/hypervisor/type",
    ];
    let files: Vec<(&str, &[u8])> = files.iter().map(|file| (*file, bytes)).collect();
    let Some(cx) = prepared(&files) else { return };
    let fact = sense::host::read(&cx);
    let text = serde_json::to_string(&fact).unwrap_or_default();
    assert_eq!(serde_json::from_str::<Fact<HostFacts>>(&text).ok().as_ref(), Some(&fact), "{text}");
}

/// `resolv.conf`, a hosts file and a name beyond ASCII: bounded, and the same read twice.
pub fn resolver(bytes: &[u8]) {
    use outrider_agent::sense::dns::{hosts, parse, to_ascii};
    let text = String::from_utf8_lossy(bytes);
    let conf = parse("/etc/resolv.conf", &text);
    assert!(conf.nameservers.len() <= 32 && conf.search.len() <= 32 && conf.problems.len() <= 4, "{conf:?}");
    let written: String = conf.nameservers.iter().map(|server| format!("nameserver {server}\n")).collect();
    assert_eq!(parse("/etc/resolv.conf", &written).nameservers, conf.nameservers);
    assert!(hosts(&text, "rancher.example").iter().all(|ip| ip.parse::<std::net::IpAddr>().is_ok()));
    if let Ok(name) = to_ascii(&text) {
        assert!(name.is_ascii());
        assert_eq!(to_ascii(&name).as_ref(), Ok(&name), "punycode stays as it is");
    }
}

/// An environment file of systemd: no password is kept, and the root helper's excerpt reads as the whole.
pub fn environment(bytes: &[u8]) {
    use outrider_agent::sense::rancher_agent::environment::{excerpt, parse};
    let text = String::from_utf8_lossy(bytes);
    let hidden = format!("{text}\nHTTPS_PROXY=http://user:s3cretS3cret@proxy:1\nTOKEN=s3cretS3cret\n");
    for whole in [text.as_ref(), hidden.as_str()] {
        let (read, passed) = (parse(whole), excerpt(whole));
        let again = parse(&passed);
        let names = |all: &[outrider_agent::sense::rancher_agent::environment::Assignment]| {
            all.iter().map(|a| (a.line, a.name.clone(), a.exported)).collect::<Vec<_>>()
        };
        assert_eq!(names(&again), names(&read), "{passed:?}");
        // What was there without our doing may say anything.
        if !text.contains("s3cretS3cret") && whole.len() > text.len() {
            assert!(
                !passed.contains("s3cretS3cret") && !format!("{read:?}").contains("s3cretS3cret"),
                "{passed:?}"
            );
        }
    }
}
