//! The programs themselves over a disk that loses power: first starts, enrolment, a fleet's reports.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use outrider_protocol::{EventView, List, NodeView};
use outrider_tests::agent::AgentHome;
use outrider_tests::coordinator::Launch;
use outrider_tests::fault_disk::FaultDisk;
use outrider_tests::programs::Process;
use outrider_tests::simulated::{Applicant, Target};
use outrider_tests::table::Table;

use super::shim;

const LIMIT: Duration = Duration::from_secs(30);

/// What a program says is written to a file beside its state, and its disk is watched as well.
fn with_log(root: &Path) -> std::io::Result<()> {
    std::fs::write(root.join("state.log"), "")
}

/// Up to `most` of the numbers from 1 to `all`, evenly.
fn spread(all: u64, most: u64) -> impl Iterator<Item = u64> {
    let step = all.div_ceil(most).max(1);
    (1..=all).step_by(usize::try_from(step).unwrap_or(1))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by tests/run --suite faults"]
async fn a_coordinator_may_lose_power_at_any_moment_of_its_first_start() {
    let mut table = Table::new("a coordinator's first start, the power gone");
    let whole = FaultDisk::new(shim(), with_log).expect("a disk");
    let mut launch = Launch::new(&whole.root().join("state")).expect("a port");
    launch.environment = whole.environment(0);
    launch.start().await.expect("a coordinator").stop().await.expect("an end");
    let changes = whole.history().expect("a history").1 as u64;
    let mut cuts = 0;
    for kill_at in spread(changes, 40) {
        let disk = FaultDisk::new(shim(), with_log).expect("a disk");
        let mut launch = Launch::new(&disk.root().join("state")).expect("a port");
        launch.environment = disk.environment(kill_at);
        // It dies at the change, or, where only stopping makes that many, is killed.
        if let Ok(mut coordinator) = launch.start().await {
            coordinator.process.kill().expect("an end");
        }
        let left = disk.cut(kill_at).expect("a cut");
        let again = Launch::new(&left.path().join("state")).expect("a port");
        let coordinator = again.start().await.unwrap_or_else(|e| panic!("after change {kill_at}: {e:#}"));
        let log = std::fs::read_to_string(again.folder.with_extension("log")).unwrap_or_default();
        assert!(!log.contains("set aside"), "after change {kill_at}: {log}");
        coordinator.stop().await.expect("an end");
        cuts += 1;
    }
    table.row(
        "power gone in the first start",
        format!("at {cuts} of {changes} changes"),
        "starts again by itself",
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by tests/run --suite faults"]
async fn a_coordinator_that_lost_power_knows_its_nodes_and_all_it_acknowledged() {
    let mut table = Table::new("a working coordinator, the power gone");
    let disk = FaultDisk::new(shim(), with_log).expect("a disk");
    let mut launch = Launch::new(&disk.root().join("state")).expect("a port");
    launch.environment = disk.environment(0);
    let mut coordinator = launch.start().await.expect("a coordinator");
    let target = coordinator.operator.target.clone();
    let token = coordinator.operator.pool_token("*", 100).await.expect("a token");
    let mut members = Vec::new();
    for number in 0..4 {
        let applicant = Applicant::new(&format!("node-{number}"), number).expect("a machine");
        let mut line = target.connect(target.tls(None).expect("TLS"), None).await.expect("a connection");
        let answer = applicant.apply(&mut line, &token).await.expect("an answer");
        members.push(applicant.admitted(&target, &answer, IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("let in"));
    }
    for _ in 0..10 {
        for member in &mut members {
            let mut line = target.connect(member.tls.clone(), None).await.expect("a connection");
            member.report(&mut line, true).await.expect("acknowledged");
        }
    }
    coordinator.process.kill().expect("an end");

    let mut cuts = 0;
    for seed in 0..12 {
        let left = disk.cut(seed).expect("a cut");
        let again = Launch::new(&left.path().join("state")).expect("a port");
        let coordinator = again.start().await.unwrap_or_else(|e| panic!("seed {seed}: {e:#}"));
        assert_eq!(coordinator.operator.target.pin, target.pin, "seed {seed}: the CA is the one it was");
        let target = Target { address: again.address, ..target.clone() };
        for member in &members {
            let name = &member.node.name;
            let view: NodeView =
                coordinator.operator.get(&format!("/v1/nodes/{name}")).await.expect("the node");
            assert_eq!(view.uid, member.node.uid, "seed {seed}");
            let list: List<EventView> = coordinator
                .operator
                .get(&format!("/v1/nodes/{name}/events?limit=500"))
                .await
                .expect("events");
            let of_the_node =
                list.items.iter().filter(|e| e.transition.condition.condition_type.as_str() == "HostHealthy");
            assert_eq!(
                of_the_node.count() as u64,
                member.sequence,
                "seed {seed}: {name}: each acknowledged one, once"
            );
            // The node goes on where it was.
            let mut member = member.clone();
            let mut line = target.connect(member.tls.clone(), None).await.expect("a connection");
            member.report(&mut line, true).await.unwrap_or_else(|e| panic!("seed {seed}: {name}: {e:#}"));
        }
        coordinator.stop().await.expect("an end");
        cuts += 1;
    }
    table.row(
        "power gone",
        format!("SIGKILL, then {cuts} ways to lose what was not synced"),
        "4 nodes known, 40 of 40 transitions, all go on",
    );
}

/// The key is on disk before the first request: whenever the power goes, the once-token still lets this machine in.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by tests/run --suite faults"]
async fn an_agent_that_loses_power_while_it_enrols_burns_no_token() {
    let mut table = Table::new("an agent enrols, the power gone");
    let folder = tempfile::tempdir().expect("a folder");
    let launch = Launch::new(&folder.path().join("coordinator")).expect("a port");
    let coordinator = launch.start().await.expect("a coordinator");
    let token = || async {
        let request = serde_json::json!({ "apiVersion": outrider_protocol::API_VERSION, "kind": "TokenRequest", "tokenKind": "once" });
        let answer =
            coordinator.operator.ask(http::Method::POST, "/v1/tokens", request).await.expect("an answer");
        let view: outrider_protocol::TokenView = serde_json::from_slice(&answer.body).expect("a token");
        view.token
    };
    let (mut enrolled_before, mut changes) = (0, 0);
    let mut seen = BTreeSet::new();
    for kill_at in 1..=200 {
        // From the first changes on, and far enough that some are let in before the power goes.
        if kill_at > 32 && enrolled_before >= 3 {
            break;
        }
        changes = kill_at;
        let name = format!("node-{kill_at}");
        let token = token().await;
        let machine =
            |root: &Path| prepared(root, &name, &launch, &token).map(drop).map_err(std::io::Error::other);
        let disk = FaultDisk::new(shim(), machine).expect("a disk");
        let home = AgentHome::at(&disk.root());
        let mut command = home.command("run").expect("a command");
        // Lines of a log are changes too, and not those that matter here.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        disk.arm(&mut command, kill_at);
        let mut agent = Process::spawn(&mut command).expect("an agent");
        // Dies at the change; where it makes fewer in its first seconds, it is killed.
        let died = agent.wait(Duration::from_secs(3)).is_ok();
        agent.kill().ok();
        seen.insert(died);
        let view = coordinator.operator.get::<NodeView>(&format!("/v1/nodes/{name}")).await;
        enrolled_before += u32::from(view.is_ok());

        let left = disk.cut(kill_at).expect("a cut");
        let home = AgentHome::at(left.path());
        let _agent = home.start().expect("an agent");
        let start = Instant::now();
        loop {
            let view = coordinator.operator.get::<NodeView>(&format!("/v1/nodes/{name}")).await;
            if view.as_ref().is_ok_and(|v| !v.conditions.is_empty()) {
                break;
            }
            assert!(start.elapsed() < LIMIT, "after change {kill_at}: {view:?}; log: {}", home.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(seen.contains(&true), "the power went while it enrolled");
    assert!(
        enrolled_before > 0,
        "some were let in before the power went, so that a new key would be refused"
    );
    table.row(
        "power gone during enrolment",
        format!("SIGKILL after each of the first {changes} changes; unsynced ones lost"),
        format!("all {changes} enrol with their once-token; {enrolled_before} had been let in before"),
    );
}

/// An agent's folders, configuration and token file; all of it certain, as an installed machine's is. The token file is
/// named from the root of the file system, and stays where it is when the state is cut.
fn prepared(folder: &Path, name: &str, launch: &Launch, token: &str) -> anyhow::Result<AgentHome> {
    let home = AgentHome::new(folder, name)?;
    std::fs::write(folder.join("token"), token)?;
    let text = format!(
        "[node]\nname = \"{name}\"\n[coordinator]\nurls = [\"https://{}\"]\ntoken_file = \"TOKEN\"\n[report]\nheartbeat = \"1s\"\n",
        launch.address
    );
    home.configure(&text.replace("TOKEN", &folder.join("token").display().to_string()))?;
    Ok(home)
}
