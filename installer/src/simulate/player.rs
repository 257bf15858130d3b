//! One simulated node at play: a turn every few seconds, reported by the code that real nodes report by.

use std::sync::Arc;
use std::time::Duration;

use outrider_agent::net::{ProxySettings, Url};
use outrider_agent::report::disk::{Disk, MemoryDisk};
use outrider_agent::report::{
    DeliveryStatus, Network, Reporter, ReporterOptions, SpoolLimits, Target, Token, TokenSource,
};
use outrider_protocol::{AgentFacts, Fact, Identity, NodeFacts, NodeRef, NodeState, Timestamp};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::fault;
use super::part::Part;
use super::wardrobe;

/// How long a node may take to tell what it still has to tell when the play ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long a node that enters may keep others waiting at the door.
const ENTRANCE: Duration = Duration::from_secs(10);
/// How old readings may be while nothing new is wrong: about the cadence of a real agent's checks.
const CADENCE: Duration = Duration::from_secs(30);

/// What all nodes of a play share.
#[derive(Clone)]
pub(crate) struct Stage {
    /// The coordinator.
    pub(crate) url: Url,
    /// Admits those that have no certificate yet.
    pub(crate) token: Option<Token>,
    /// Time between turns.
    pub(crate) turn: Duration,
    /// Time between heartbeats.
    pub(crate) heartbeat: Duration,
    /// When the play began.
    pub(crate) began: Instant,
    /// Lets few enter at a time: a thousand enrolments at once are a load that no real fleet makes.
    pub(crate) door: Arc<Semaphore>,
    /// Becomes true when the play ends.
    pub(crate) curtain: watch::Receiver<bool>,
}

/// Plays `part` until the curtain falls. Its identity and latches lie on `disk`, and so does its spool while it is silent.
pub(crate) async fn play(part: Part, mut stage: Stage, disk: Arc<MemoryDisk>) {
    // Nodes that turn and enrol all at once are no fleet but a herd.
    let mut door = tokio::select! {
        door = stage.door.clone().acquire_owned() => door.ok(),
        _ = stage.curtain.wait_for(|down| *down) => return,
    };
    let mut turns = tokio::time::interval(stage.turn);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut latches = wardrobe::latches(&*disk);
    let mut reporter: Option<Reporter> = None;
    let mut shown = None;
    let mut read_at: Option<Instant> = None;
    loop {
        tokio::select! {
            _ = turns.tick() => {}
            _ = stage.curtain.wait_for(|down| *down) => break,
        }
        let elapsed = stage.began.elapsed();
        let faults = fault::script(&part, elapsed);
        if faults.silent {
            // Switched off: no heartbeat, no farewell.
            reporter = None;
            continue;
        }
        let story = faults.story();
        let waits = latches.iter().any(|latch| latch.pending.is_some());
        let fresh = read_at.is_some_and(|at| at.elapsed() < CADENCE);
        if reporter.is_some() && fresh && !waits && shown == Some(story) {
            continue;
        }
        (shown, read_at) = (Some(story), Some(Instant::now()));
        let reporter = reporter.get_or_insert_with(|| start(&part, &stage, disk.clone()));
        let status = reporter.status().borrow().clone();
        let Some(mut facts) = super::facts(&part, elapsed, now(), std::mem::take(&mut latches)) else {
            return;
        };
        facts.node.uid.clone_from(&status.node_uid);
        facts.checks.agent = Some(Fact::known(about_itself(&status), "simulated agent", facts.now));
        let latched =
            outrider_diagnosis::latch(&facts.latches, &outrider_diagnosis::judge(&facts), facts.now);
        let state = state(&part, &facts, &latched.conditions);
        reporter.put(latched.transitions, &latched.latches, Some(state));
        latches = latched.latches;
        if let Some(door) = door.take() {
            let mut status = reporter.status();
            let entered = status.wait_for(|status| status.enrolment == "enrolled" && status.spooled == 0);
            let _ = tokio::time::timeout(ENTRANCE, entered).await;
            drop(door);
        }
    }
    wardrobe::keep_latches(&*disk, &latches);
    if let Some(reporter) = reporter {
        reporter.stop(FAREWELL).await;
    }
}

fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}

fn start(part: &Part, stage: &Stage, disk: Arc<dyn Disk>) -> Reporter {
    Reporter::start(ReporterOptions {
        disk: Ok(disk),
        limits: SpoolLimits::default(),
        clock: Arc::new(now),
        transport: Arc::new(Network { proxy: ProxySettings::none() }),
        target: Target {
            urls: vec![stage.url.clone()],
            ca_checksum: None,
            token: stage.token.clone().map_or(TokenSource::None, TokenSource::Given),
            heartbeat: stage.heartbeat,
            refresh: Duration::from_secs(300),
            node: node(part),
        },
    })
}

fn node(part: &Part) -> NodeRef {
    NodeRef {
        name: part.name.clone(),
        uid: String::new(),
        cluster: part.cluster.clone(),
        profile: part.profile(),
        simulated: true,
    }
}

/// What a node's agent knows of itself comes from the delivery that really runs.
fn about_itself(status: &DeliveryStatus) -> AgentFacts {
    AgentFacts {
        coordinator: status.coordinator.clone(),
        enrolment: status.enrolment.clone(),
        delivery_error: status.error.clone(),
        delivery_failing_since: status.failing_since,
        untried: !status.tried,
        spooled: status.spooled,
        merged: status.merged,
        spool_problem: status.spool_problem.clone(),
        certificate_not_after: status.certificate_not_after,
        ..AgentFacts::default()
    }
}

fn state(part: &Part, facts: &NodeFacts, conditions: &[outrider_protocol::Condition]) -> NodeState {
    let identity = identity(facts);
    let balancers = facts.checks.load_balancer.as_ref().and_then(Fact::value);
    NodeState {
        digest: NodeState::compute_digest(&identity, conditions),
        identity,
        conditions: conditions.to_vec(),
        etcd: facts.checks.etcd.clone(),
        paths: balancers.into_iter().flatten().map(outrider_diagnosis::fleet::paths_of).collect(),
        // Simulated nodes are nowhere to be reached.
        network: None,
        zone: part.zone(),
        region: part.region(),
    }
}

fn identity(facts: &NodeFacts) -> Identity {
    let Some(host) = facts.checks.host.as_ref().and_then(Fact::value) else { return Identity::default() };
    let text = |fact: &Fact<String>| fact.value().cloned().unwrap_or_default();
    let real = host.interfaces.value().into_iter().flatten().filter(|interface| !interface.is_virtual);
    Identity {
        machine_id_hash: text(&host.machine_id_hash),
        system_uuid: text(&host.system_uuid),
        macs: real.clone().map(|interface| interface.mac.clone()).collect(),
        boot_id: text(&host.boot_id),
        instance_id: text(&host.instance_id),
        addresses: real.flat_map(|interface| interface.addresses.iter().cloned()).collect(),
    }
}
