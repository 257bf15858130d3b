//! The daemon as a whole: scripted sensors, paused time, real files and sockets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outrider_diagnosis::diagnose;
use outrider_protocol::{
    Check, CloudInitFacts, CloudInitStatus, Condition, ConditionType, Fact, NodeConditions, NodeFacts,
    Status, Timestamp,
};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::turn::Daemon;
use super::*;
use crate::act::AgentStatus;
use crate::checks::{PassContext, PassFuture, Reading, SlotGuard};
use crate::local::{Ask, ask};
use crate::privileged::DirectOpener;
use crate::report::disk::StdDisk;
use crate::report::{Spool, SpoolLimits};

/// What a check does when it is asked.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    CloudInit(Status),
    Hang,
    Panic,
}

/// Sensors that follow a script; checks without a part have nothing to look at.
#[derive(Default)]
struct Script {
    parts: Mutex<BTreeMap<Check, Act>>,
    passes: AtomicUsize,
}

impl Script {
    fn plays(&self, check: Check, act: Act) {
        self.parts.lock().unwrap().insert(check, act);
    }
}

impl Sensors for Script {
    fn pass(&self, check: &Check, _: PassContext, guard: SlotGuard) -> PassFuture {
        let act = self.parts.lock().unwrap().get(check).copied();
        self.passes.fetch_add(usize::from(act.is_none()), Ordering::Relaxed);
        let check = check.clone();
        Box::pin(async move {
            let _guard = guard;
            match act {
                None => Reading::not_applicable(&check, "not in the script", Timestamp::default()),
                Some(Act::CloudInit(status)) => Some(Reading::CloudInit(cloud_init(status))),
                Some(Act::Hang) => std::future::pending().await,
                Some(Act::Panic) => panic!("out of the script"),
            }
        })
    }
}

fn cloud_init(status: Status) -> Fact<CloudInitFacts> {
    let (status, errors) = match status {
        Status::True => (CloudInitStatus::Done, vec![]),
        _ => (CloudInitStatus::Error, vec!["scripts-user failed".to_owned()]),
    };
    let facts = CloudInitFacts {
        status,
        extended_status: String::new(),
        exit_code: None,
        stage: String::new(),
        stage_seconds: None,
        errors,
        recoverable_errors: BTreeMap::new(),
        datasource: "DataSourceNoCloud".to_owned(),
        version: String::new(),
    };
    Fact::known(facts, "result.json", clock()())
}

/// A wall clock that goes with paused time.
fn clock() -> Arc<dyn Fn() -> Timestamp + Send + Sync> {
    thread_local!(static START: Instant = Instant::now());
    Arc::new(|| Timestamp::from_seconds(1_800_000_000).after(START.with(|start| start.elapsed())))
}

fn options(folder: &Path, script: &Arc<Script>) -> RunOptions {
    RunOptions {
        config: ConfigSource::File(folder.join("agent.toml")),
        state_dir: folder.join("state"),
        runtime_dir: folder.join("run"),
        sense: SenseContext {
            root: folder.join("root"),
            clock: clock(),
            opener: Arc::new(DirectOpener::below(folder.join("root"))),
        },
        sensors: Some(script.clone()),
        embedding: None,
        notifier: Notifier::silent(),
    }
}

struct Running {
    folder: std::path::PathBuf,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    async fn start(folder: &TempDir, script: &Arc<Script>) -> Self {
        clock()();
        let folder = folder.path().to_owned();
        if !folder.join("agent.toml").exists() {
            std::fs::write(folder.join("agent.toml"), "").unwrap();
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let options = options(&folder, script);
        let task = tokio::spawn(run(options, async move {
            let _ = stopped.await;
        }));
        tokio::time::sleep(Duration::from_secs(2)).await;
        Self { folder, stop, task }
    }

    async fn ask<T: serde::de::DeserializeOwned>(&self, question: Ask) -> T {
        serde_json::from_value(ask(&self.folder.join("run/agent.sock"), question).await.unwrap()).unwrap()
    }

    async fn condition(&self, condition_type: ConditionType) -> Option<Condition> {
        let verdict: NodeConditions = self.ask(Ask::Conditions).await;
        verdict.conditions.into_iter().find(|c| c.condition_type == condition_type)
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_is_unknown_and_holds_up_no_other() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    script.plays(Check::CloudInit, Act::CloudInit(Status::True));
    let daemon = Running::start(&folder, &script).await;
    assert_eq!(daemon.condition(ConditionType::CloudInitSucceeded).await.unwrap().status, Status::True);
    script.plays(Check::CloudInit, Act::Hang);
    let before = script.passes.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(1_500)).await;
    let condition = daemon.condition(ConditionType::CloudInitSucceeded).await.unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (Status::Unknown, "TimedOut"), "{condition:?}");
    let status: AgentStatus = daemon.ask(Ask::Status).await;
    assert_eq!(status.agent.failing_checks, [Check::CloudInit]);
    // Four checks at a minute, one at two: none was late.
    assert!(script.passes.load(Ordering::Relaxed) - before >= 4 * 25 - 4);
    script.plays(Check::CloudInit, Act::CloudInit(Status::True));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(daemon.condition(ConditionType::CloudInitSucceeded).await.unwrap().status, Status::True);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_check_that_panics_is_unknown_and_clears_when_it_works_again() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    script.plays(Check::CloudInit, Act::Panic);
    let daemon = Running::start(&folder, &script).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let condition = daemon.condition(ConditionType::CloudInitSucceeded).await.unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (Status::Unknown, "Panicked"), "{condition:?}");
    script.plays(Check::CloudInit, Act::CloudInit(Status::True));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(daemon.condition(ConditionType::CloudInitSucceeded).await.unwrap().status, Status::True);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_changes_nothing() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    script.plays(Check::CloudInit, Act::CloudInit(Status::False));
    let daemon = Running::start(&folder, &script).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let before: NodeConditions = daemon.ask(Ask::Conditions).await;
    daemon.stop().await;
    let sequence = || {
        let disk = StdDisk::open(&folder.path().join("state")).unwrap();
        Spool::open(Arc::new(disk), SpoolLimits::default(), Timestamp::default()).last_sequence()
    };
    let told = sequence();
    assert!(told > 0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let daemon = Running::start(&folder, &script).await;
    let after: NodeConditions = daemon.ask(Ask::Conditions).await;
    daemon.stop().await;
    let facts = |verdict: &NodeConditions| -> Vec<_> {
        let conditions = verdict.conditions.iter();
        conditions
            .map(|c| (c.condition_type.clone(), c.status, c.reason.clone(), c.last_transition_time))
            .collect()
    };
    assert_eq!(facts(&after), facts(&before));
    assert_eq!(sequence(), told, "nothing was told anew");
}

#[tokio::test(start_paused = true)]
async fn what_was_captured_gives_the_same_verdict_byte_for_byte() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    script.plays(Check::CloudInit, Act::CloudInit(Status::True));
    let daemon = Running::start(&folder, &script).await;
    for status in [Status::True, Status::False, Status::True] {
        script.plays(Check::CloudInit, Act::CloudInit(status));
        tokio::time::sleep(Duration::from_secs(613)).await;
        let facts: NodeFacts = daemon.ask(Ask::Facts).await;
        let verdict: NodeConditions = daemon.ask(Ask::Conditions).await;
        let again = diagnose(&facts);
        assert_eq!(serde_json::to_string(&again).unwrap(), serde_json::to_string(&verdict).unwrap());
    }
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_status_file_holds_the_last_verdict() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    script.plays(Check::CloudInit, Act::CloudInit(Status::False));
    let daemon = Running::start(&folder, &script).await;
    let bytes = std::fs::read(folder.path().join("run/status.json")).unwrap();
    let status: AgentStatus = serde_json::from_slice(&bytes).unwrap();
    assert!(status.conditions.iter().any(|c| c.condition_type == ConditionType::CloudInitSucceeded));
    assert!(status.summary.contains("CloudInitSucceeded=False (CloudInitFailed)"), "{}", status.summary);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_textfile_is_written_for_a_node_exporter() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    let textfile = folder.path().join("outrider.prom");
    let config = format!("[report]\ntextfile = {textfile:?}\n");
    std::fs::write(folder.path().join("agent.toml"), config).unwrap();
    script.plays(Check::CloudInit, Act::CloudInit(Status::True));
    let daemon = Running::start(&folder, &script).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let text = std::fs::read_to_string(&textfile).unwrap();
    assert!(text.contains("outrider_condition_status{type=\"CloudInitSucceeded\""), "{text}");
    assert!(text.contains("outrider_spooled_transitions 0\n"), "{text}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bad_configuration_leaves_the_last_good_one_in_force() {
    clock()();
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, "[node]\nname = \"good\"\n").unwrap();
    let mut daemon = Daemon::start(options(folder.path(), &script), mpsc::channel(1).0).unwrap();
    let valid = |daemon: &mut Daemon| {
        let reading = Reading::not_applicable(&Check::Host, "not in the script", clock()());
        daemon.turn(Event::Passes(vec![Ended { check: Check::Host, reading }]));
        let verdict = daemon.verdict();
        let config =
            verdict.conditions.iter().find(|c| c.condition_type == ConditionType::ConfigValid).unwrap();
        (verdict.node.name.clone(), config.status, config.message.clone())
    };
    std::fs::create_dir_all(folder.path().join("run")).unwrap();
    daemon.ready();
    assert_eq!(valid(&mut daemon).1, Status::True);
    std::fs::write(&file, "[node]\nname = \"other\"\nnmae = \"x\"\n").unwrap();
    daemon.turn(Event::Reload);
    let (name, status, message) = valid(&mut daemon);
    assert_eq!((name.as_str(), status), ("good", Status::False));
    assert!(message.contains("agent.toml:3: node.nmae: unknown key"), "{message}");
    std::fs::write(&file, "[node]\nname = \"other\"\n").unwrap();
    daemon.turn(Event::Reload);
    tokio::time::advance(Duration::from_secs(120)).await;
    let (name, status, _) = valid(&mut daemon);
    assert_eq!((name.as_str(), status), ("other", Status::True));
}

#[tokio::test(start_paused = true)]
async fn what_brings_nothing_new_is_judged_when_time_has_passed() {
    clock()();
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    let mut daemon = Daemon::start(options(folder.path(), &script), mpsc::channel(1).0).unwrap();
    std::fs::create_dir_all(folder.path().join("run")).unwrap();
    daemon.ready();
    let reading = || Reading::not_applicable(&Check::Host, "not in the script", clock()());
    let pass = |reading| Event::Passes(vec![Ended { check: Check::Host, reading }]);
    daemon.turn(pass(reading()));
    // The first findings are shown at once; what they wait for, if anything, is over.
    tokio::time::advance(Duration::from_secs(600)).await;
    daemon.turn(pass(reading()));
    let judged = daemon.judged_at();
    for _ in 0..9 {
        tokio::time::advance(Duration::from_secs(1)).await;
        daemon.turn(pass(None));
        daemon.turn(Event::Due);
        assert_eq!(daemon.judged_at(), judged);
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    daemon.turn(Event::Due);
    let later = daemon.judged_at();
    assert_eq!(later.since(judged), Duration::from_secs(10));
    daemon.turn(pass(reading()));
    tokio::time::advance(Duration::from_secs(1)).await;
    daemon.turn(pass(reading()));
    assert_eq!(daemon.judged_at().since(later), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_judged_when_its_wait_ends() {
    clock()();
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    let mut daemon = Daemon::start(options(folder.path(), &script), mpsc::channel(1).0).unwrap();
    std::fs::create_dir_all(folder.path().join("run")).unwrap();
    daemon.ready();
    let pass = |reading| Event::Passes(vec![Ended { check: Check::CloudInit, reading }]);
    let failed =
        || Reading::unknown(&Check::CloudInit, outrider_protocol::UnknownCause::TimedOut, "late", clock()());
    let status = |daemon: &Daemon| {
        let all = &daemon.verdict().conditions;
        all.iter().find(|c| c.condition_type == ConditionType::CloudInitSucceeded).unwrap().status
    };
    daemon.turn(pass(Some(Reading::CloudInit(cloud_init(Status::True)))));
    // Whatever else waits at the start is over.
    tokio::time::advance(Duration::from_secs(600)).await;
    // Two failed reads make a check blind, five seconds after the first.
    daemon.turn(pass(failed()));
    tokio::time::advance(Duration::from_secs(1)).await;
    daemon.turn(pass(failed()));
    let judged = daemon.judged_at();
    for _ in 0..39 {
        tokio::time::advance(Duration::from_millis(100)).await;
        daemon.turn(Event::Due);
        assert_eq!(daemon.judged_at(), judged);
    }
    assert_eq!(status(&daemon), Status::True);
    tokio::time::advance(Duration::from_millis(100)).await;
    daemon.turn(Event::Due);
    assert_eq!(daemon.judged_at().since(judged), Duration::from_secs(4));
    assert_eq!(status(&daemon), Status::Unknown);
}

#[tokio::test(start_paused = true)]
async fn a_first_start_takes_what_is_valid() {
    clock()();
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    let bad = "[node]\nname = \"good\"\n[checks.host]\nenabled = \"yes\"\n";
    std::fs::write(folder.path().join("agent.toml"), bad).unwrap();
    let daemon = Running::start(&folder, &script).await;
    let verdict: NodeConditions = daemon.ask(Ask::Conditions).await;
    assert_eq!(verdict.node.name, "good");
    assert_eq!(daemon.condition(ConditionType::ConfigValid).await.unwrap().status, Status::False);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_daemons_do_not_share_a_folder() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    let daemon = Running::start(&folder, &script).await;
    let same = run(options(folder.path(), &script), std::future::pending()).await;
    assert!(matches!(same, Err(RunError::Socket(SocketError::InUse(_)))), "{same:?}");
    let mut other_socket = options(folder.path(), &script);
    other_socket.runtime_dir = folder.path().join("run2");
    let other_socket = run(other_socket, std::future::pending()).await;
    assert!(matches!(other_socket, Err(RunError::StateInUse(_))), "{other_socket:?}");
    daemon.stop().await;
    // Killed, so that its socket stays behind: the next one takes the place.
    let path = folder.path().join("run/agent.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    Running::start(&folder, &script).await.stop().await;
    assert!(!path.exists());
}

#[tokio::test(start_paused = true)]
async fn a_state_folder_that_cannot_be_used_is_said_and_no_reason_to_stop() {
    let (folder, script) = (tempfile::tempdir().unwrap(), Arc::new(Script::default()));
    std::fs::write(folder.path().join("state"), "a file where the folder should be").unwrap();
    let daemon = Running::start(&folder, &script).await;
    let condition = daemon.condition(ConditionType::ReportsDelivered).await.unwrap();
    assert_eq!(
        (condition.status, condition.reason.as_str()),
        (Status::False, "SpoolFailing"),
        "{condition:?}"
    );
    assert!(condition.message.contains("cannot be used"), "{}", condition.message);
    daemon.stop().await;
}
