//! The check `topology`: labels of region and zone of the own Node, and what they should be
//! (`facts/harvester-topology.md`).
//!
//! Two tasks follow the own Node and the own virtual machine, each on one kept connection ([`follow`]); a pass waits for
//! news of either. No other Node is ever read, and no list of them.
//!
//! Tour: `node` and `machine` (which object, and what is kept of it), `session` (requests and watches), `local` (files of
//! this machine). What is written, and when, is `crate::act::labels`.

mod follow;
mod local;
mod machine;
pub(crate) mod node;
pub(crate) mod session;

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{Fact, TopologyFacts, TopologyMode, UnknownCause};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::follow::Followed;
use super::{SenseContext, host};
use crate::act::labels::Ledger;
use crate::config::TopologySettings;

/// While nothing changes, what is known is told anew after so long.
const TELL: Duration = Duration::from_secs(60);
/// For so long one look waits for news.
pub const WAITS: Duration = Duration::from_secs(30);

/// What one look leaves for the next.
#[derive(Default)]
pub struct Memory {
    ledger: Arc<Ledger>,
    /// News of writes; those between two looks are not missed.
    writes: Option<watch::Receiver<()>>,
    followed: Option<(TopologySettings, Followed)>,
    /// When facts were told last, and with which settings.
    told: Option<(Instant, TopologySettings)>,
}

impl Memory {
    /// A memory of looks whose writes `ledger` keeps.
    pub fn with(ledger: Arc<Ledger>) -> Self {
        Self { ledger, ..Self::default() }
    }
}

/// One look: waits for the first reading, at most `limit`, or later for news. `None` when nothing is new.
pub async fn look(
    cx: &SenseContext,
    settings: &TopologySettings,
    limit: Duration,
    memory: &mut Memory,
) -> Option<Fact<TopologyFacts>> {
    if settings.mode == TopologyMode::Off {
        memory.followed = None;
        return Some(Fact::not_applicable("switched off by topology.mode", cx.now()));
    }
    let deadline = Instant::now() + limit.mul_f64(0.9);
    let is_other = |(known, _): &(TopologySettings, Followed)| !known.follows_as(settings);
    if memory.followed.as_ref().is_none_or(is_other) {
        memory.followed = Some((settings.clone(), Followed::start(cx, settings)));
        memory.told = None;
    }
    let (_, followed) = memory.followed.as_mut()?;
    let writes = memory.writes.get_or_insert_with(|| memory.ledger.news());
    // Facts of other settings are of no use: with new ones, what is known is told at once.
    let told = memory.told.as_ref().filter(|(_, with)| with == settings).map(|(at, _)| *at);
    match told {
        None => {
            let read = async {
                let _ = followed.node.wait_for(is_read).await;
                let _ = followed.machine.wait_for(is_read).await;
            };
            let _ = timeout_at(deadline, read).await;
        }
        Some(told) => {
            let until = (Instant::now() + WAITS).min(told + TELL);
            tokio::select! {
                _ = followed.node.changed() => {}
                _ = followed.machine.changed() => {}
                _ = writes.changed() => {}
                () = sleep_until(until) => {
                    if told.elapsed() < TELL { return None }
                }
            }
        }
    }
    let node = followed.node.borrow_and_update().clone();
    let machine = followed.machine.borrow_and_update().clone();
    memory.told = Some((Instant::now(), settings.clone()));
    if let (Fact::NotApplicable { reason, .. }, Fact::NotApplicable { .. }) = (&node, &machine) {
        return Some(Fact::not_applicable(reason.as_str(), cx.now()));
    }
    if let Fact::Known { value, .. } = &node {
        memory.ledger.observe(value, cx.now());
    }
    let (instance, static_labels, uuid) = {
        let cx = cx.clone();
        let read = move || (local::instance(&cx), local::static_labels(&cx), host::system_uuid(&cx));
        tokio::task::spawn_blocking(read).await.ok()?
    };
    let facts = TopologyFacts {
        mode: settings.mode.clone(),
        take_over: settings.take_over.clone(),
        strict: settings.strict,
        node,
        machine,
        host: settings.host.clone(),
        desired: settings.desired.clone(),
        configured: settings.values.clone(),
        instance,
        static_labels,
        system_uuid: uuid.value().cloned().unwrap_or_default(),
        writes: memory.ledger.record(),
    };
    Some(Fact::known(facts, "own Node and virtual machine", cx.now()))
}

fn is_read<T>(fact: &Fact<T>) -> bool {
    !matches!(fact, Fact::Unknown { cause: UnknownCause::NotYetRead, .. })
}
