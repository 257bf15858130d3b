//! A coordinator or an agent that cannot start says what, where and what to do, in one line, with an exit code.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use outrider_tests::agent::AgentHome;
use outrider_tests::coordinator::Launch;
use outrider_tests::programs::{Process, program};
use outrider_tests::table::Table;

use super::Bed;

/// A coordinator that should end by itself.
fn refused(arguments: &[&str]) -> Output {
    let mut command = Command::new(program("outrider-coordinator").expect("the coordinator"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::spawn(&mut command).expect("a coordinator");
    let mut errors = process.child().stderr.take().expect("a pipe");
    let status =
        process.wait(Duration::from_secs(20)).unwrap_or_else(|e| panic!("{arguments:?} started: {e}"));
    let mut stderr = Vec::new();
    std::io::Read::read_to_end(&mut errors, &mut stderr).expect("what it said");
    Output { status, stdout: Vec::new(), stderr }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by tests/run --suite enrolment"]
async fn a_coordinator_that_cannot_start_says_why() {
    let bed = Bed::start(&[]).await;
    let mut table = Table::new("a coordinator that cannot start");
    let folder = bed.folder.path();
    fs::write(folder.join("file"), "").expect("a file");
    let address = bed.launch.address.to_string();
    let (other, below, used) = (folder.join("other"), folder.join("file/state"), bed.launch.folder.clone());
    for (fault, state, listen, words) in [
        ("the port is in use", &other, address.as_str(), vec![address.as_str(), "in use"]),
        ("the state folder is in use", &used, "127.0.0.1:0", vec!["another"]),
        ("the state folder cannot be made", &below, "127.0.0.1:0", vec!["file/state"]),
        ("an address that is not ours", &other, "192.0.2.77:7443", vec!["192.0.2.77"]),
    ] {
        let output = refused(&["serve", "--state-dir", &state.display().to_string(), "--listen", listen]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code().is_some_and(|code| code != 0), "{fault}: {output:?}");
        for word in words {
            assert!(said.contains(word), "{fault}: says {word:?}: {said}");
        }
        assert!(!said.contains("panicked"), "{fault}: {said}");
        let line = said.lines().last().unwrap_or_default().to_owned();
        let shown = line.split_once(" ERROR ").map_or(line.as_str(), |(_, rest)| rest).trim().to_owned();
        table.row(
            fault,
            format!("serve --listen {listen}"),
            format!("exit {}: {shown}", output.status.code().unwrap_or(-1)),
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by tests/run --suite enrolment"]
async fn damaged_files_are_set_aside_and_said() {
    let mut table = Table::new("damaged files");
    // The coordinator's database.
    let folder = tempfile::tempdir().expect("a folder");
    let launch = Launch::new(&folder.path().join("coordinator")).expect("a port");
    launch.start().await.expect("a coordinator").stop().await.expect("an end");
    let database = launch.folder.join(outrider_coordinator::store::sqlite::FILE_NAME);
    let mut bytes = fs::read(&database).expect("a database");
    let half = bytes.len() / 2;
    bytes[..half].fill(0x5a);
    fs::write(&database, bytes).expect("a wound");
    // What a write-ahead log still holds would heal it.
    let _ = fs::remove_file(database.with_extension("db-wal"));
    let coordinator = launch.start().await.expect("a coordinator starts all the same");
    let aside: Vec<String> = fs::read_dir(&launch.folder)
        .expect("a folder")
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains("corrupt"))
        .collect();
    assert!(!aside.is_empty(), "the damaged file is kept");
    let log = fs::read_to_string(launch.folder.with_extension("log")).expect("a log");
    assert!(aside.iter().any(|name| log.contains(name.as_str())), "and named in the log: {log}");
    coordinator.stop().await.expect("an end");
    table.row(
        "half the database overwritten",
        "0x5a from the first byte",
        format!("starts; set aside as {}", aside.join(", ")),
    );

    // The agent's spool.
    let home = AgentHome::new(&folder.path().join("agent"), "node-1").expect("a home");
    home.configure("[node]\nname = \"node-1\"\n").expect("a configuration");
    fs::write(home.state().join("spool.log"), [0x5a; 4096]).expect("a wound");
    let mut agent = home.start().expect("an agent");
    outrider_tests::programs::until("set aside, and said", Duration::from_secs(60), || {
        let mut files = fs::read_dir(home.state()).ok()?.filter_map(Result::ok);
        let kept = files.any(|e| e.file_name().to_string_lossy().contains("corrupt"));
        (kept && home.log().contains("set aside")).then_some(())
    })
    .unwrap_or_else(|e| panic!("{e}: {}", home.log()));
    assert!(agent.is_running());
    table.row("the spool overwritten", "4 KiB of 0x5a", "runs; set aside and said");

    // A configuration with errors: `validate` refuses with all of them placed, the daemon runs and says so.
    home.configure("[node]\nname = 7\n\n[chekcs.etcd]\ninterval = \"never\"\n").expect("a configuration");
    let output = home.command("validate").expect("a command").output().expect("an end");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains(":2:") && said.contains("agent.toml:4") && said.contains("chekcs"), "{said}");
    agent.signal(nix::sys::signal::Signal::SIGHUP).expect("a reload");
    outrider_tests::programs::until("ConfigValid=False", Duration::from_secs(60), || {
        let output = home.command("status").ok()?.output().ok()?;
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let conditions = status["conditions"].as_array()?;
        conditions.iter().find(|c| c["type"] == "ConfigValid" && c["status"] == "False").cloned()
    })
    .unwrap_or_else(|e| panic!("{e}: {}", home.log()));
    assert!(agent.is_running(), "one bad key blinds nobody");
    table.row(
        "two errors in agent.toml",
        "an unknown key and a wrong type",
        "validate exits 78; the daemon says ConfigValid=False",
    );
}
