//! kill -9 of agents and coordinator at 200 random moments while transitions stream: what was acknowledged is there
//! once and in order, and nobody lends a hand.
//!
//! `SEED=n` repeats a run's moments; `KILLS=n` changes their number.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outrider_agent::report::disk::StdDisk;
use outrider_agent::report::{Spool, SpoolLimits};
use outrider_coordinator::store::sqlite::SqliteStore;
use outrider_coordinator::store::{EventFilter, History};
use outrider_protocol::{ConditionType, EventView, List, NodeView, ReasonCode, Status, Timestamp};
use outrider_tests::agent::AgentHome;
use outrider_tests::chain;
use outrider_tests::coordinator::{Coordinator, Launch};
use outrider_tests::programs::{Process, program};
use outrider_tests::table::Table;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const NODES: [&str; 3] = ["storm-1", "storm-2", "storm-3"];
/// Load balancers of a node of the storm (src/bin/storm.rs).
const BALANCERS: usize = 20;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

struct Node {
    home: AgentHome,
    folder: std::path::PathBuf,
    process: Process,
    deaths: u32,
}

impl Node {
    fn start(home: &AgentHome, folder: &std::path::Path) -> Process {
        let mut command = Command::new(program("storm").expect("the storm"));
        command.arg(folder).stdin(Stdio::null());
        home.logged(&mut command).expect("a log");
        Process::spawn(&mut command).expect("a storm")
    }

    fn kill_and_start_again(&mut self) {
        assert!(self.process.is_running(), "ended by itself; its log: {}", self.home.log());
        self.process.kill().expect("a dead storm");
        self.deaths += 1;
        self.process = Self::start(&self.home, &self.folder);
    }
}

async fn events(coordinator: &Coordinator, node: &str) -> anyhow::Result<Vec<EventView>> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let path = format!("/v1/nodes/{node}/events?after={after}&limit=500");
        let page: List<EventView> = coordinator.operator.get(&path).await?;
        let Some(last) = page.items.last() else { return Ok(all) };
        after = last.id;
        all.extend(page.items);
    }
}

/// Conditions judged from reports; what the coordinator adds of its own (whether the node is heard) is no part of them.
fn of_the_node(events: Vec<EventView>) -> Vec<EventView> {
    events.into_iter().filter(|e| e.transition.condition.condition_type != ConditionType::Ready).collect()
}

#[tokio::test]
#[ignore = "run by tests/run --suite chaos"]
async fn two_hundred_deaths_lose_and_double_nothing() {
    let seed = from_environment("SEED", rand::random_range(0..1_000_000));
    let kills = from_environment("KILLS", 200);
    println!("SEED={seed} KILLS={kills}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut table = Table::new("chaos: kill -9 under load");
    let folder = tempfile::tempdir().expect("a folder");
    let mut launch = Launch::new(&folder.path().join("coordinator")).expect("a port");
    launch.arguments = vec!["--log-level".into(), "warn".into()];
    let mut coordinator = launch.start().await.expect("a coordinator");
    let token = coordinator.operator.pool_token("storm-*", 1000).await.expect("a token");

    let mut nodes = Vec::new();
    for name in NODES {
        let place = folder.path().join(name);
        let home = AgentHome::new(&place, name).expect("a home");
        std::fs::write(place.join("token"), &token).expect("a token file");
        home.configure(&format!(
            "[node]\nname = \"{name}\"\n[coordinator]\nurls = [\"https://{}\"]\ntoken_file = \"{}\"\n\
             [checks.load-balancer]\ninterval = \"1s\"\nprobes_per_minute = 600\n[report]\nheartbeat = \"2s\"\n",
            launch.address,
            place.join("token").display(),
        ))
        .expect("a configuration");
        nodes.push(Node { process: Node::start(&home, &place), folder: place, home, deaths: 0 });
    }

    let started = Instant::now();
    let mut coordinator_deaths = 0;
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(rng.random_range(20..700))).await;
        match rng.random_range(0..5) {
            0 => {
                coordinator.process.kill().expect("a dead coordinator");
                coordinator_deaths += 1;
                // Now and then it stays away for a while.
                tokio::time::sleep(Duration::from_millis([0, 0, 300, 1500][rng.random_range(0..4)])).await;
                coordinator = launch.start().await.expect("the coordinator starts again by itself");
            }
            _ => nodes[rng.random_range(0..NODES.len())].kill_and_start_again(),
        }
    }
    let storm = started.elapsed();

    let calm = Instant::now();
    for node in &nodes {
        std::fs::write(node.folder.join("quiet"), "").expect("a file");
    }
    let mut total = 0;
    for node in &mut nodes {
        let name = node.folder.file_name().expect("a name").to_string_lossy().into_owned();
        let settled = settled(&coordinator, &name, Duration::from_secs(60)).await;
        let (history, view) = settled.unwrap_or_else(|why| {
            let log = node.home.log();
            let tail: Vec<&str> = log.lines().rev().take(30).collect();
            panic!("SEED={seed}: {name} did not settle: {why}\nits log, newest first: {tail:#?}")
        });
        total += history.len();
        let last =
            chain::unbroken(&of_the_node(history)).unwrap_or_else(|e| panic!("SEED={seed}: {name}: {e:#}"));
        let told: BTreeMap<_, _> =
            last.iter().map(|(key, c)| (key.clone(), (c.status, c.reason.clone()))).collect();
        assert_eq!(told, conditions_of(&view), "SEED={seed}: {name}: left: by history, right: by state");
        assert!(node.process.is_running(), "{name} runs");
        let said = node.home.log();
        assert!(!said.contains("set aside"), "SEED={seed}: {name} found its spool damaged: {said}");
    }
    let deaths: u32 = nodes.iter().map(|node| node.deaths).sum();
    table.row(
        "agent killed".to_owned(),
        format!("SIGKILL at {deaths} random moments, three nodes"),
        format!("{total} transitions, unbroken from first to last"),
    );
    table.timed(
        "coordinator killed",
        format!("SIGKILL at {coordinator_deaths} random moments, away up to 1.5 s"),
        format!("the storm took {:.0} s", storm.as_secs_f64()),
        Duration::ZERO,
        Some(calm.elapsed()),
    );
    for node in &mut nodes {
        let status = node.process.terminate(Duration::from_secs(60)).expect("ends on SIGTERM");
        assert!(status.success(), "{status}");
    }
    coordinator.stop().await.expect("ends on SIGTERM");
    for node in &nodes {
        let sequences = sequences(&launch.folder, &node.folder).await;
        assert!(sequences.len() > 100, "SEED={seed}: {} transitions are no storm", sequences.len());
        let all: Vec<u64> = (1..=sequences.len() as u64).collect();
        assert_eq!(sequences, all, "SEED={seed}: {}: each sequence once, in order", node.folder.display());
    }
}

/// Sequences in the coordinator's store, in the order of its history, once the node's own spool agrees that they are all
/// it ever gave: one epoch, nothing left to send, nothing merged away.
async fn sequences(coordinator: &Path, node: &Path) -> Vec<u64> {
    let disk = StdDisk::open(&node.join("state")).expect("a state folder");
    let spool = Spool::open(Arc::new(disk), SpoolLimits::default(), Timestamp::default());
    assert_eq!((spool.len(), spool.merged(), spool.problem()), (0, 0, String::new()));
    let store = SqliteStore::open(coordinator).expect("a store");
    assert!(store.set_aside.is_none(), "the store was found damaged");
    let name = node.file_name().map(|name| name.to_string_lossy().into_owned());
    let filter = EventFilter { name, uid: None };
    let (mut sequences, mut after) = (Vec::new(), 0);
    loop {
        let page = store.store.events(&filter, after, 1000).await.expect("events");
        let Some(last) = page.last() else { break };
        after = last.id;
        // The coordinator's own verdicts about a node have an epoch of their own.
        sequences.extend(page.iter().filter(|e| e.epoch == spool.epoch()).map(|e| e.sequence));
        let foreign = page.iter().filter(|e| e.epoch != spool.epoch());
        for event in foreign {
            let kind = &event.transition.condition.condition_type;
            assert_eq!(*kind, ConditionType::Ready, "a second epoch: {event:?}");
        }
    }
    assert_eq!(sequences.last().copied(), Some(spool.last_sequence()), "all that was ever given is stored");
    store.store.close().await;
    sequences
}

/// What a node's own reports say, by type and subject.
fn conditions_of(view: &NodeView) -> BTreeMap<(ConditionType, String), (Status, ReasonCode)> {
    view.conditions
        .iter()
        .filter(|c| !matches!(c.condition_type, ConditionType::Ready | ConditionType::IdentityUnique))
        .map(|c| ((c.condition_type.clone(), c.subject.clone()), (c.status, c.reason.clone())))
        .collect()
}

/// Waits until the history ends where the state stands, twice in a row. How long thousands of transitions take to arrive is
/// the machine's affair: given up is what stands still for `patience`.
async fn settled(
    coordinator: &Coordinator,
    name: &str,
    patience: Duration,
) -> Result<(Vec<EventView>, NodeView), String> {
    let mut moved = Instant::now();
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let view: NodeView =
            coordinator.operator.get(&format!("/v1/nodes/{name}")).await.map_err(|e| format!("{e:#}"))?;
        let history = events(coordinator, name).await.map_err(|e| format!("{e:#}"))?;
        let balancers =
            view.conditions.iter().filter(|c| c.condition_type == ConditionType::LoadBalancerReachable);
        let stands = history.len() == before;
        if stands && balancers.count() == BALANCERS {
            return Ok((history, view));
        }
        if !stands {
            moved = Instant::now();
        }
        if moved.elapsed() > patience {
            let known: Vec<_> = conditions_of(&view).into_keys().collect();
            return Err(format!(
                "{} events, none more for {patience:?}, conditions {known:?}",
                history.len()
            ));
        }
        before = history.len();
    }
}
