//! The program as an operator runs it: serve, token, ca, backup, and an end by SIGTERM.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail loudly

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_outrider-coordinator");
const PATIENCE: Duration = Duration::from_secs(60);

fn run(state: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).arg("--state-dir").arg(state).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeed(state: &Path, arguments: &[&str]) -> String {
    let output = run(state, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A service of our own; killed if a test fails before it has ended.
struct Service {
    child: Child,
    address: SocketAddr,
    log: std::thread::JoinHandle<String>,
}

impl Service {
    fn start(state: &Path, mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let lines = BufReader::new(stderr).lines();
            lines.map_while(Result::ok).fold(String::new(), |all, line| all + &line + "\n")
        });
        let end = Instant::now() + PATIENCE;
        let endpoint = state.join("endpoint");
        let address = loop {
            if let Some(address) = std::fs::read_to_string(&endpoint).ok().and_then(|t| t.trim().parse().ok())
            {
                break address;
            }
            assert!(Instant::now() < end, "it does not start");
            std::thread::sleep(Duration::from_millis(50));
        };
        Self { child, address, log }
    }

    fn serve(state: &Path) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--listen", "127.0.0.1:0", "--state-dir"]).arg(state);
        Self::start(state, command)
    }

    /// SIGTERM; its log.
    fn stop(mut self) -> String {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        let log = std::mem::replace(&mut self.log, std::thread::spawn(String::new));
        log.join().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Already reaped after a stop; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn tokens_and_roots_of_a_running_and_of_a_stopped_coordinator() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let service = Service::serve(state);
    let token = succeed(state, &["token", "create", "--uses", "3"]);
    assert!(token.starts_with("OR1") && token.lines().count() == 1, "{token}");
    let id = token.split_once("::").unwrap().1.split(':').next().unwrap().to_owned();
    assert!(succeed(state, &["token", "list"]).contains(&id));
    let shown = succeed(state, &["ca", "show"]);
    assert!(shown.contains(&token["OR1".len()..][..64]), "{shown}");
    succeed(state, &["ca", "rotate"]);
    let refused = run(state, &["ca", "rotate"]);
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("retire"),
        "{}",
        text(&refused.stderr)
    );
    let log = service.stop();
    assert!(log.contains("listening on") && log.contains("stopped"), "{log}");
    assert!(!state.join("endpoint").exists());

    // The same without a service.
    succeed(state, &["ca", "retire", "1"]);
    succeed(state, &["token", "revoke", &id]);
    let listed = succeed(state, &["token", "list"]);
    assert!(listed.lines().any(|l| l.contains(&id) && l.contains("revoked")), "{listed}");
    let json: serde_json::Value =
        serde_json::from_str(&succeed(state, &["ca", "show", "-o", "json"])).unwrap();
    assert_eq!(json["items"][0]["generation"], 2, "{json}");
}

#[test]
fn a_backup_of_a_running_coordinator_starts_as_the_same_one() {
    let (state, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = state.path();
    let service = Service::serve(state);
    let token = succeed(state, &["token", "create"]);
    let copy = elsewhere.path().join("copy.db");
    succeed(state, &["backup", copy.to_str().unwrap()]);
    let again = run(state, &["backup", copy.to_str().unwrap()]);
    assert!(!again.status.success() && text(&again.stderr).contains("exists"), "{}", text(&again.stderr));
    drop(service);

    let restored = elsewhere.path().join("restored");
    std::fs::create_dir(&restored).unwrap();
    std::fs::rename(&copy, restored.join("coordinator.db")).unwrap();
    std::fs::rename(elsewhere.path().join("copy.db.ca"), restored.join("ca")).unwrap();
    let shown = succeed(&restored, &["ca", "show"]);
    assert!(shown.contains(&token["OR1".len()..][..64]), "{shown}");
    let id = token.split_once("::").unwrap().1.split(':').next().unwrap();
    assert!(succeed(&restored, &["token", "list"]).contains(id));
}

#[test]
fn a_lost_database_is_not_begun_anew_unasked() {
    let (state, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let state = state.path();
    let service = Service::serve(state);
    let copy = elsewhere.path().join("copy.db");
    let token = succeed(state, &["token", "create"]);
    succeed(state, &["backup", copy.to_str().unwrap()]);
    service.stop();
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(state.join(format!("coordinator.db{suffix}")));
    }

    let serve = ["serve", "--listen", "127.0.0.1:0"];
    for is_empty in [false, true] {
        if is_empty {
            std::fs::write(state.join("coordinator.db"), "").unwrap();
        }
        for arguments in [&serve[..], &["token", "list"], &["backup", "/nowhere/copy"]] {
            let refused = run(state, arguments);
            let said = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(66), "{arguments:?}: {said}");
            for word in [if is_empty { "is empty" } else { "is missing" }, "ca.pem", "backup", "--begin-anew"]
            {
                assert!(said.contains(word), "{arguments:?}: {word:?} is not in {said}");
            }
        }
        let size = std::fs::metadata(state.join("coordinator.db")).map(|m| m.len()).ok();
        assert_eq!(size, is_empty.then_some(0), "it was touched");
    }

    // The copy makes all well.
    std::fs::copy(&copy, state.join("coordinator.db")).unwrap();
    let id = token.split_once("::").unwrap().1.split(':').next().unwrap();
    assert!(succeed(state, &["token", "list"]).contains(id));

    // Without one, it is begun anew where that is asked for, and said; the next start needs no word.
    std::fs::remove_file(state.join("coordinator.db")).unwrap();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(state.join(format!("coordinator.db{suffix}")));
    }
    let mut command = Command::new(PROGRAM);
    command.args(serve).arg("--begin-anew").arg("--state-dir").arg(state);
    let log = Service::start(state, command).stop();
    assert!(log.contains("no node is known any more"), "{log}");
    Service::serve(state).stop();
    assert!(!succeed(state, &["token", "list"]).contains(id));
}

#[test]
fn a_second_one_on_the_same_folder_is_to_be_tried_again() {
    let state = tempfile::tempdir().unwrap();
    let service = Service::serve(state.path());
    let second = run(state.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(75), "{said}");
    assert!(said.contains("another coordinator") && said.contains(&service.child.id().to_string()), "{said}");
    // Two processes never write one database: the tools beside it ask the one that runs.
    succeed(
        state.path(),
        &["token", "create", "--pool", "--name-pattern", "pool1-*", "--rate-per-hour", "3"],
    );
    let listed = succeed(state.path(), &["token", "list"]);
    assert!(listed.contains("pool ") && listed.contains("pool1-*"), "{listed}");
    service.stop();
    let wrong = run(state.path(), &["token", "create", "--kind", "pool"]);
    assert_eq!(wrong.status.code(), Some(64), "{}", text(&wrong.stderr));
}

#[test]
fn an_operator_token_that_others_may_read_is_said_and_follows_the_ca() {
    use std::os::unix::fs::PermissionsExt;
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let log = Service::serve(state).stop();
    assert!(!log.contains("chmod"), "{log}");
    let file = state.join("operator.token");
    let before = std::fs::read_to_string(&file).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let service = Service::serve(state);
    // The token still opens the API, and the file follows a rotation while the service runs and while it does not.
    succeed(state, &["ca", "rotate"]);
    let followed = std::fs::read_to_string(&file).unwrap();
    assert_ne!(followed, before);
    assert_eq!(followed.split_once("::").unwrap().1, before.split_once("::").unwrap().1);
    let log = service.stop();
    for word in ["operator.token has mode 0644", "chmod 600", "remove the file"] {
        assert!(log.contains(word), "{word:?} is not in {log}");
    }
    succeed(state, &["ca", "retire", "1"]);
    let shown = succeed(state, &["ca", "rotate"]);
    let last = std::fs::read_to_string(&file).unwrap();
    let active = shown.lines().find(|line| line.contains(" active ")).unwrap();
    assert!(last != followed && active.contains(&last["OR1".len()..][..64]), "{shown}\n{last}");
}

#[test]
fn a_wrong_folder_is_named_and_not_made() {
    let state = tempfile::tempdir().unwrap();
    let wrong = state.path().join("typo");
    let output = run(&wrong, &["token", "list"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("typo") && text(&output.stderr).contains("--state-dir"));
    assert!(!wrong.exists());
}

#[test]
fn when_files_run_out_it_waits_says_so_and_goes_on() {
    let state = tempfile::tempdir().unwrap();
    let state = state.path();
    let mut command = Command::new("sh");
    let serve =
        "ulimit -n 80; exec \"$0\" serve --listen 127.0.0.1:0 --max-connections 1000 --state-dir \"$1\"";
    command.args(["-c", serve, PROGRAM]).arg(state);
    let service = Service::start(state, command);

    let flood: Vec<TcpStream> = (0..120).map(|_| TcpStream::connect(service.address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(500));
    drop(flood);
    let end = Instant::now() + PATIENCE;
    loop {
        let mut stream = TcpStream::connect(service.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        if answer.contains("TlsExpected") {
            break;
        }
        assert!(Instant::now() < end, "it does not go on: {answer:?}");
    }
    let log = service.stop();
    assert!(log.contains("LimitNOFILE") && log.contains("accepted again"), "{log}");
}
