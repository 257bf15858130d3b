//! Where a clock has its time from, by the word of real chronyd and ntpd on a machine in namespaces of its own
//! (`tests/suites/clock.sh`). The kernel's clock is everybody's: none of them may set it, so the kernel's state is given to the
//! rules both ways, and what the services say is theirs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use nix::sched::{CloneFlags, setns};
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::{SenseContext, clock};
use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;
use outrider_tests::programs::Process;
use outrider_tests::table::Table;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(90);
/// A right server, one that is three seconds ahead, and one that is none.
const RIGHT: &str = "127.0.0.2";
const AHEAD: &str = "127.0.0.3";
const NOBODY: &str = "127.0.0.9";

/// Folder of the unpacked services; only the suite has one, and a network of its own.
fn services() -> PathBuf {
    let given = std::env::var_os("OUTRIDER_TIME_SERVICES").expect("run by tests/run --suite clock");
    assert!(std::env::var_os("OUTRIDER_ENCLOSED").is_some(), "never on the machine itself");
    given.into()
}

fn run(words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success(), "{words:?}");
}

/// A chronyd that sets no clock.
fn chronyd(folder: &Path, name: &str, config: &str) -> Process {
    let path = folder.join(format!("{name}.conf"));
    let pid = folder.join(format!("{name}.pid"));
    fs::write(&path, format!("{config}\nbindcmdaddress /\npidfile {}\n", pid.display())).unwrap();
    let mut command = Command::new(services().join("usr/sbin/chronyd"));
    command.args(["-x", "-d", "-4", "-u", "root", "-f"]).arg(&path);
    Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap()
}

/// A time server that is so many seconds ahead, which no real one is on purpose.
fn stand_in(socket: UdpSocket, ahead: u64) {
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            if length < 48 {
                continue;
            }
            let since_1900 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
                + Duration::from_secs(ahead);
            let stamp = |d: Duration| {
                let fraction = (u64::from(d.subsec_nanos()) << 32) / 1_000_000_000;
                (((d.as_secs() + 2_208_988_800) << 32) | fraction).to_be_bytes()
            };
            // Version 4, server, stratum 2.
            let mut answer = vec![0x24, 2, 6, 0xec, 0, 0, 0, 0, 0, 0, 0, 1];
            answer.extend(b"TEST");
            answer.extend(stamp(since_1900 - Duration::from_secs(1)));
            answer.extend(&buffer[40..48]);
            answer.extend(stamp(since_1900));
            answer.extend(stamp(since_1900));
            let _ = socket.send_to(&answer, peer);
        }
    });
}

fn read() -> ClockFacts {
    let cx = SenseContext {
        root: "/".into(),
        clock: Arc::new(|| SystemTime::now().into()),
        opener: Arc::new(DirectOpener::below(Path::new("/"))),
    };
    clock::read(&cx, None).value().expect("facts of the clock").clone()
}

/// The facts once `good`, and how long that took.
fn until(what: &str, good: impl Fn(&TimeSource) -> bool) -> (ClockFacts, Duration) {
    let start = Instant::now();
    loop {
        let facts = read();
        if facts.source.as_ref().and_then(Fact::value).is_some_and(&good) {
            return (facts, start.elapsed());
        }
        assert!(start.elapsed() < LIMIT, "{what}: {facts:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What is said where the kernel calls the clock synchronised, or not.
fn judged(facts: &ClockFacts, synchronized: bool) -> Finding {
    let at = Timestamp::from(SystemTime::now());
    let kernel = KernelClock { synchronized, estimated_error_us: 100, maximum_error_us: 16_000_000 };
    let facts = ClockFacts { kernel: Fact::known(kernel, "suite", at), ..facts.clone() };
    let node: NodeFacts = serde_json::from_value(json!({
        "apiVersion": API_VERSION, "kind": "NodeFacts", "agentVersion": "0", "now": at,
        "node": {"name": "n1", "profile": "generic"}, "checks": {"clock": Fact::known(facts, "suite", at)},
    }))
    .unwrap();
    let mut found = judge(&node).findings;
    found.retain(|f| f.condition_type == ConditionType::ClockSynchronized);
    found.pop().expect("a verdict")
}

fn source(facts: &ClockFacts) -> &TimeSource {
    facts.source.as_ref().and_then(Fact::value).expect("a source")
}

#[track_caller]
fn expect(finding: &Finding, reason: ReasonCode, words: &[&str]) {
    assert_eq!(finding.reason, reason, "{finding:#?}");
    for word in words {
        assert!(
            finding.message.contains(word) || finding.advice.contains(word),
            "{word:?} is missing: {finding:#?}"
        );
    }
}

fn said(finding: &Finding) -> String {
    format!("{} {} {}", finding.status, finding.severity, finding.reason)
}

#[test]
#[ignore = "run by tests/run --suite clock"]
fn where_the_clock_has_its_time_from_is_told_by_the_service_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Table::new("clock: real chronyd and ntpd, which may not set it");
    let at = folder.path();
    let right = chronyd(at, "right", &format!("local stratum 8\nallow\ncmdport 0\nbindaddress {RIGHT}"));
    stand_in(UdpSocket::bind((AHEAD, 123)).unwrap(), 3);
    let client =
        |servers: &str| chronyd(at, "client", &format!("{servers}\nport 0\nbindcmdaddress 127.0.0.1"));
    // Poll often, so that nothing is waited for.
    let server = |address: &str| format!("server {address} iburst minpoll 0 maxpoll 0\n");

    let running = client(&server(RIGHT));
    let (facts, took) = until("a source is followed", |s| !s.selected.is_empty());
    let found = judged(&facts, true);
    table.timed("none", "chronyd follows a chronyd of stratum 8", said(&found), took, None);
    expect(&found, ReasonCode::ClockInSync, &["chronyd from 127.0.0.2", "stratum 9"]);
    let own = source(&facts);
    assert!(own.offset_ms.is_some_and(|ms| ms.abs() < 100.0) && own.updated_at.is_some(), "{own:#?}");
    assert!(own.sources[0].answered > 0 && own.sources[0].stratum == 8, "{own:#?}");
    drop(running);

    // The kernel says for hours that all is well.
    for (fault, made, servers, words) in [
        (
            "nobody answers",
            "a server that is none",
            server(NOBODY),
            ["hears nothing from its 1 source (127.0.0.9)", "UDP port 123"],
        ),
        (
            "no source",
            "no server in chrony.conf",
            String::new(),
            ["has no source at all", "Name a time server"],
        ),
        (
            "the name does not resolve",
            "a server below .invalid",
            "server time.invalid iburst\n".to_owned(),
            ["could not resolve", "check dns"],
        ),
    ] {
        let running = client(&servers);
        let count = servers.lines().count();
        let (facts, took) = until(fault, |s| s.sources.len() == count);
        for (synchronized, reason) in
            [(true, ReasonCode::ClockSourceLost), (false, ReasonCode::ClockUnsynchronized)]
        {
            let found = judged(&facts, synchronized);
            let kernel = if synchronized { "kernel says yes" } else { "kernel says no" };
            table.timed(fault, format!("{made}; {kernel}"), said(&found), took, None);
            expect(&found, reason, &words);
        }
        drop(running);
    }

    let running = client(&server(AHEAD));
    let (facts, took) = until("the offset is known", |s| s.offset_ms.is_some_and(|ms| ms.abs() > 1000.0));
    let found = judged(&facts, true);
    table.timed("three seconds behind", "the only server is ahead", said(&found), took, None);
    expect(&found, ReasonCode::ClockSkewed, &["behind the true time by its own service's word", "makestep"]);
    assert!(source(&facts).offset_ms.is_some_and(|ms| (-3100.0..-2900.0).contains(&ms)), "{facts:#?}");
    drop(running);

    let running = client(&(server(RIGHT) + &server(AHEAD)));
    let (facts, took) =
        until("sources at odds", |s| s.sources.iter().any(|one| one.state == NtpState::FalseTicker));
    let found = judged(&facts, false);
    table.timed("two servers at odds", "one of two is 3 s ahead", said(&found), took, None);
    expect(&found, ReasonCode::ClockUnsynchronized, &["at odds with each other", "at least three"]);
    drop(running);

    let running = client(&(server(RIGHT) + "cmdport 0\n"));
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(500));
    let facts = read();
    assert!(
        matches!(&facts.source, Some(Fact::Unknown { cause: UnknownCause::ConnectionRefused, .. })),
        "{facts:#?}"
    );
    let found = judged(&facts, true);
    table.timed("chronyd answers nobody", "cmdport 0", said(&found), start.elapsed(), None);
    expect(&found, ReasonCode::ClockInSync, &["does not say from where"]);
    drop((running, right));

    let facts = read();
    assert!(matches!(facts.service, Fact::Absent { .. }), "{facts:#?}");
    let found = judged(&facts, false);
    table.row("no time service", "none runs; kernel says no", said(&found));
    expect(&found, ReasonCode::ClockUnsynchronized, &["Enable one time service"]);
}

#[test]
#[ignore = "run by tests/run --suite clock"]
fn ntpd_is_asked_as_ntpq_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Table::new("clock: ntpd without the right to set it");
    // It binds port 123 everywhere, so its server is another machine.
    for words in [
        "ip netns add server",
        "ip link add name time0 type veth peer name time1 netns server",
        "ip address add 10.9.0.1/24 dev time0",
        "ip link set time0 up",
        "ip -n server address add 10.9.0.2/24 dev time1",
        "ip -n server link set time1 up",
    ] {
        run(words);
    }
    // Nothing of the time services' names runs there: the sensor looks at every process of the machine.
    let socket = std::thread::spawn(|| {
        setns(fs::File::open("/run/netns/server").unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        UdpSocket::bind(("10.9.0.2", 123)).unwrap()
    });
    stand_in(socket.join().unwrap(), 0);
    let config = folder.path().join("ntp.conf");
    let pool = "server 10.9.0.2 iburst minpoll 0 maxpoll 4\nserver 10.9.0.9 iburst minpoll 0 maxpoll 4\n";
    fs::write(&config, format!("disable ntp\nrestrict default noquery\nrestrict 127.0.0.1\n{pool}")).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-sys_time", "--inh-caps=-sys_time", "--no-new-privs"]);
    command.arg(services().join("usr/sbin/ntpd")).args(["-n", "-c"]).arg(&config);
    let _ntpd = Process::spawn(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    let (facts, took) = until("ntpd follows its server", |s| s.selected == "10.9.0.2");
    let own = source(&facts);
    let found = judged(&facts, true);
    table.timed("none", "ntpd follows a server of stratum 2", said(&found), took, None);
    expect(&found, ReasonCode::ClockInSync, &["ntpd from 10.9.0.2", "stratum 3"]);
    let silent = own.sources.iter().find(|one| one.address == "10.9.0.9").expect("both sources");
    assert_eq!((silent.answered, own.sources.len()), (0, 2), "{own:#?}");
    assert_eq!(silent.state, NtpState::Unusable, "{own:#?}");
    run("ip netns del server");
}
