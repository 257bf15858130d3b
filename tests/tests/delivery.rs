//! The coordinator goes away and comes back: what happened meanwhile arrives afterwards, all of it, in order. Ten minutes
//! of absence are played with a paused clock in the agent's own tests; here both are real processes.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::time::{Duration, Instant};

use outrider_protocol::{EventView, List};
use outrider_tests::agent::AgentHome;
use outrider_tests::chain;
use outrider_tests::coordinator::{Coordinator, Launch};
use outrider_tests::programs::until;
use outrider_tests::table::Table;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
const NODE: &str = "node-1";

async fn history(coordinator: &Coordinator) -> Vec<EventView> {
    let list: List<EventView> =
        coordinator.operator.get(&format!("/v1/nodes/{NODE}/events?limit=500")).await.expect("events");
    list.items
}

fn shown(home: &AgentHome, kind: &str) -> Option<Value> {
    let output = home.command("status").ok()?.output().ok()?;
    let status: Value = serde_json::from_slice(&output.stdout).ok()?;
    status["conditions"].as_array()?.iter().find(|c| c["type"] == kind).cloned()
}

/// What the history says of cloud-init, oldest first.
fn told(events: &[EventView]) -> Vec<String> {
    let of = events.iter().filter(|e| e.transition.condition.condition_type.as_str() == "CloudInitSucceeded");
    of.map(|e| e.transition.condition.reason.to_string()).collect()
}

async fn until_told(coordinator: &Coordinator, count: usize) -> Duration {
    let start = Instant::now();
    loop {
        let events = history(coordinator).await;
        if told(&events).len() >= count {
            return start.elapsed();
        }
        assert!(start.elapsed() < LIMIT, "told only {:?}", told(&events));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by tests/run --suite delivery"]
async fn what_happens_while_the_coordinator_is_away_arrives_afterwards() {
    let mut table = Table::new("the coordinator is away");
    let folder = tempfile::tempdir().expect("a folder");
    let launch = Launch::new(&folder.path().join("coordinator")).expect("a port");
    let coordinator = launch.start().await.expect("a coordinator");
    let token = coordinator.operator.pool_token("*", 10).await.expect("a token");
    let home = AgentHome::new(&folder.path().join("agent"), NODE).expect("a home");
    std::fs::write(folder.path().join("token"), token).expect("a token file");
    home.configure(&format!(
        "[node]\nname = \"{NODE}\"\n[coordinator]\nurls = [\"https://{}\"]\ntoken_file = {:?}\n\
         [checks.cloud-init]\ninterval = \"1s\"\nsettled_interval = \"1s\"\n[report]\nheartbeat = \"2s\"\n",
        launch.address,
        folder.path().join("token"),
    ))
    .expect("a configuration");
    home.set_cloud_init(None).expect("a machine");
    let mut agent = home.start().expect("an agent");

    // Near: a change is told at once.
    until_told(&coordinator, 1).await;
    home.set_cloud_init(Some("disk setup failed")).expect("a fault");
    let raised = until_told(&coordinator, 2).await;
    home.set_cloud_init(None).expect("a cure");
    let cleared = until_told(&coordinator, 3).await;
    table.timed(
        "cloud-init failed",
        "an error in result.json",
        "CloudInitFailed at the coordinator",
        raised,
        Some(cleared),
    );

    // Away, in two ways: it ends as a service does, then it is killed. The agent is restarted in between.
    let mut expected = 3;
    let mut running = Some(coordinator);
    for (how, kill) in [("SIGTERM", false), ("SIGKILL", true)] {
        let mut coordinator = running.take().expect("it runs");
        if kill {
            coordinator.process.kill().expect("an end");
        } else {
            coordinator.stop().await.expect("an end");
        }
        for round in 0..3 {
            for (error, reason) in [(Some("disk setup failed"), "CloudInitFailed"), (None, "CloudInitDone")] {
                home.set_cloud_init(error).expect("a fault");
                until(&format!("{how}, round {round}: the agent sees {reason}"), LIMIT, || {
                    (shown(&home, "CloudInitSucceeded")?["reason"] == reason).then_some(())
                })
                .unwrap_or_else(|e| panic!("{e}; log: {}", home.log()));
                expected += 1;
            }
        }
        agent.kill().expect("an end");
        agent = home.start().expect("an agent");
        let back = Instant::now();
        let coordinator = launch.start().await.expect("the coordinator again");
        until_told(&coordinator, expected).await;
        table.timed(
            format!("away after {how}"),
            "six changes meanwhile, the agent killed as well",
            "all six, in order",
            Duration::ZERO,
            Some(back.elapsed()),
        );
        running = Some(coordinator);
    }
    let coordinator = running.take().expect("it runs");
    let events = history(&coordinator).await;
    let told = told(&events);
    assert_eq!(told.len(), expected, "each once: {told:?}");
    for (i, reason) in told.iter().enumerate() {
        assert_eq!(
            reason,
            if i % 2 == 0 { "CloudInitDone" } else { "CloudInitFailed" },
            "in order: {told:?}"
        );
    }
    let of_the_node: Vec<_> =
        events.into_iter().filter(|e| e.transition.condition.condition_type.as_str() != "Ready").collect();
    chain::unbroken(&of_the_node).expect("an unbroken history");
    let asked = Instant::now();
    let ended = agent.terminate(LIMIT).expect("ends on SIGTERM");
    assert!(ended.success(), "{ended}");
    // The budget is five seconds; a busy machine is no fault of ours.
    table.timed("the agent is stopped", "SIGTERM", "ends with 0", asked.elapsed(), None);
    assert!(asked.elapsed() < 4 * Duration::from_secs(5), "{:?}", asked.elapsed());
    coordinator.stop().await.expect("an end");
}
