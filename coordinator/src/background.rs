//! What runs beside the requests, a task each: judging, writing behind, telling watchers, tending.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;

use crate::app::App;
use crate::feed;
use crate::fleet::keeper;
use crate::fleet::saver::STATES;
use crate::harvester;
use crate::latches::Latch;
use crate::store::Expect;

/// Time between writes of states.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Time between looks at a store that works, and at one that does not.
const PROBE_EVERY: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(2));
/// Pause after transitions could not be stored.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(2);
/// Time between prunings of the history and sweeps of the gate.
const TEND_EVERY: Duration = Duration::from_secs(600);
/// How long the last writes may take.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// Where the probe writes.
const ALIVE: &str = "coordinator/alive";

/// Starts them all; they end when the set is dropped.
pub(crate) fn spawn(app: &Arc<App>, keep_history: Duration, progress: watch::Sender<u64>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let turned = move || progress.send_modify(|turns| *turns += 1);
    tasks.spawn(keeper::keep(app.fleet.clone(), app.registrar.clone(), turned));
    tasks.spawn(feed::publish(app.fleet.clone(), app.feed.clone(), app.history.subscribe()));
    tasks.spawn(save(app.clone()));
    tasks.spawn(announce(app.clone()));
    tasks.spawn(part(app.clone()));
    tasks.spawn(probe(app.clone()));
    tasks.spawn(tend(app.clone(), keep_history));
    tasks.spawn(app.registrar.clone().run());
    if let Some(harvester) = &app.harvester {
        for resource in harvester.resources() {
            tasks.spawn(harvester::read(harvester.clone(), resource));
        }
        tasks.spawn(harvester::keep(harvester.clone(), app.fleet.clone(), app.registrar.clone()));
    }
    tasks.spawn(app.authority.clone().keep_fresh());
    tasks
}

/// Writes what must be written before the end, for at most [`LAST_WRITES`].
pub(crate) async fn finish(app: &App) {
    let written = tokio::time::timeout(LAST_WRITES, async {
        if let Err(error) = app.fleet.announcements.deliver(&*app.history, app.clock().now()).await {
            log::error!("some of the coordinator's own transitions could not be stored: {error}");
        }
        if let Err(error) = app.fleet.save(&*app.store).await {
            log::error!("some states could not be written and will be asked for again: {error}");
        }
        save_machines(app).await;
        app.registrar.save_found().await;
    });
    if written.await.is_err() {
        log::error!("the store did not take the last writes within {} s", LAST_WRITES.as_secs());
    }
}

async fn save(app: Arc<App>) {
    loop {
        tokio::time::sleep(SAVE_EVERY).await;
        // A failure is told by the store's latch; what failed waits in memory.
        if app.fleet.save(&*app.store).await.is_err() || !save_machines(&app).await {
            tokio::time::sleep(PROBE_EVERY.1).await;
        }
    }
}

/// Writes what is remembered of machines and pools; false when some wait again.
async fn save_machines(app: &App) -> bool {
    let Some(harvester) = &app.harvester else { return true };
    let mut is_saved = true;
    for (key, document) in harvester.take_unsaved() {
        let written = match &document {
            Some(document) => app.store.put(&key, document.clone().into(), Expect::Any).await.map(drop),
            None => app.store.delete(&key, Expect::Any).await,
        };
        if written.is_err() {
            harvester.put_back(key, document);
            is_saved = false;
        }
    }
    is_saved
}

async fn announce(app: Arc<App>) {
    loop {
        app.fleet.announcements.rung().await;
        while app.fleet.announcements.deliver(&*app.history, app.clock().now()).await.is_err() {
            tokio::time::sleep(ANNOUNCE_AGAIN).await;
        }
    }
}

/// Closes the connections of nodes that may no longer speak.
async fn part(app: Arc<App>) {
    let mut departures = app.registrar.departures();
    loop {
        match departures.recv().await {
            Ok(departure) => match app.follow(&departure.uid) {
                Some(node) => app.connections.close_node(&node),
                None => app.fleet.forget(&departure.uid),
            },
            // More at once than the channel holds: every node is looked at.
            Err(broadcast::error::RecvError::Lagged(_)) => {
                for node in app.fleet.nodes() {
                    if app.follow(&node.uid).is_some_and(|n| !n.may_speak()) {
                        app.connections.close_node(&node);
                    }
                }
            }
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// Writes a small document now and then: a store that cannot be written is known before a node has something to say.
async fn probe(app: Arc<App>) {
    loop {
        let alive = Bytes::from(format!("{{\"at\":\"{}\"}}", app.clock().now()));
        let _ = app.store.put(ALIVE, alive, Expect::Any).await;
        let works = app.latches.why(Latch::Store).is_none();
        tokio::time::sleep(if works { PROBE_EVERY.0 } else { PROBE_EVERY.1 }).await;
    }
}

async fn tend(app: Arc<App>, keep_history: Duration) {
    loop {
        app.gate.sweep(app.clock().elapsed());
        match app.history.prune(app.clock().now().before(keep_history)).await {
            Ok(0) => {}
            Ok(n) => {
                log::info!("{n} transitions older than {} days were removed", keep_history.as_secs() / 86_400)
            }
            Err(error) => log::warn!("the history could not be pruned: {error}"),
        }
        forget(&app).await;
        tokio::time::sleep(TEND_EVERY).await;
    }
}

/// Forgets nodes that enrolment has forgotten, and their states.
async fn forget(app: &App) {
    for uid in app.fleet.uids() {
        if app.registrar.node(&uid).is_none() {
            app.fleet.forget(&uid);
            if let Err(error) = app.store.delete(&format!("{STATES}{uid}"), Expect::Any).await {
                log::warn!("the state of node {uid} could not be removed: {error}");
            }
        }
    }
}
