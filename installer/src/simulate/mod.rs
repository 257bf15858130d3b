//! Simulated nodes: raw readings that are kept, some recorded and most written by hand ([`recording`]), changed by a script
//! of faults, through the real rules.
//!
//! A simulated node emits no condition of its own. Its facts go through `judge` and `latch` as an agent's do, and their
//! verdicts go to the coordinator over the delivery that agents use. It is marked as simulated wherever it is shown.

mod fault;
mod part;
mod player;
mod recording;
mod wardrobe;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outrider_agent::net::Url;
use outrider_agent::report::Token;
use outrider_agent::report::disk::MemoryDisk;
use outrider_protocol::{Latch, NodeFacts, Timestamp};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use part::Part;
use player::Stage;

/// What `part` reads at `now`, when the play has run for `elapsed`. `None` only for a recording that cannot be read,
/// which a test rules out.
fn facts(part: &Part, elapsed: Duration, now: Timestamp, latches: Vec<Latch>) -> Option<NodeFacts> {
    let mut facts = part.read(now)?;
    fault::live(part, elapsed, &mut facts);
    fault::apply(&fault::script(part, elapsed), part, &mut facts);
    facts.latches = latches;
    Some(facts)
}

/// Nodes that may enter at once.
const AT_THE_DOOR: usize = 8;

/// Names of the nodes that a play of `count` has.
pub(crate) fn names(count: usize) -> Vec<String> {
    part::cast(count).into_iter().map(|part| part.name).collect()
}

/// Names of the nodes that played before and come back as themselves.
pub(crate) fn returning(state_dir: &Path) -> BTreeSet<String> {
    wardrobe::open(&state_dir.join(wardrobe::FILE)).into_keys().collect()
}

/// Simulated nodes at play.
pub(crate) struct Play {
    nodes: JoinSet<()>,
    disks: Vec<(String, Arc<MemoryDisk>)>,
    curtain: watch::Sender<bool>,
    wardrobe: PathBuf,
}

impl Play {
    /// Begins a play of `count` nodes that report to `url`; those that the coordinator `knows` by name come back as
    /// themselves.
    pub(crate) fn begin(
        count: usize,
        url: Url,
        token: Option<Token>,
        state_dir: &Path,
        knows: &BTreeSet<String>,
    ) -> Self {
        let (curtain, seen) = watch::channel(false);
        // The more there are, the calmer each: the machine is to show a fleet, not to sweat.
        let (turn, heartbeat) = match count {
            0..=64 => (2, 5),
            65..=512 => (5, 15),
            _ => (10, 30),
        };
        let stage = Stage {
            url,
            token,
            turn: Duration::from_secs(turn),
            heartbeat: Duration::from_secs(heartbeat),
            began: Instant::now(),
            door: Arc::new(Semaphore::new(AT_THE_DOOR)),
            curtain: seen,
        };
        let wardrobe = state_dir.join(wardrobe::FILE);
        let mut kept = wardrobe::open(&wardrobe);
        kept.retain(|name, _| knows.contains(name));
        let mut play = Self { nodes: JoinSet::new(), disks: Vec::new(), curtain, wardrobe };
        for part in part::cast(count) {
            let disk = Arc::new(kept.remove(&part.name).unwrap_or_default());
            play.disks.push((part.name.clone(), disk.clone()));
            play.nodes.spawn(player::play(part, stage.clone(), disk));
        }
        play
    }

    /// Ends the play, and keeps what the nodes need to be themselves the next time.
    pub(crate) async fn end(mut self) {
        self.curtain.send_replace(true);
        while self.nodes.join_next().await.is_some() {}
        if let Err(error) = wardrobe::close(&self.wardrobe, &self.disks) {
            log::warn!("the simulated nodes will be others the next time: {error}");
        }
    }
}
