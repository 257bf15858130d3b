//! Local facts at every pass; neighbours at a cadence of their own.

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{Fact, KubernetesFacts, Peers};
use tokio::sync::Mutex;

use crate::sense::{SenseContext, kubernetes};

/// What one look leaves for the next. Shared by the looks, which follow one another.
#[derive(Clone, Default)]
pub(super) struct NeighbourWatch(Arc<Mutex<kubernetes::Memory>>);

impl NeighbourWatch {
    /// Reads this node, and tries the neighbours in `peers` when that is due.
    pub(super) async fn look(
        &self,
        cx: &SenseContext,
        peers: Option<&Peers>,
        every: Duration,
    ) -> Fact<KubernetesFacts> {
        kubernetes::read(cx, peers, every, &mut *self.0.lock().await).await
    }
}
