//! Between two full passes over the cluster, one cheap question to the local member: is quorum there?

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{EtcdFacts, Fact};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config::EtcdSettings;
use crate::sense::{SenseContext, etcd};

/// What one look leaves for the next. Shared by the looks, which follow one another.
#[derive(Clone, Default)]
pub(super) struct EtcdWatch(Arc<Mutex<Remembered>>);

#[derive(Default)]
struct Remembered {
    memory: etcd::Memory,
    last: Option<Full>,
}

struct Full {
    at: Instant,
    settings: EtcdSettings,
    facts: EtcdFacts,
    source: String,
}

impl EtcdWatch {
    /// Reads the cluster. While the last full pass is younger than `full_every` and quorum held in it, only the local
    /// member is asked; as soon as it does not confirm quorum, the whole cluster is.
    pub(super) async fn look(
        &self,
        cx: &SenseContext,
        settings: &EtcdSettings,
        full_every: Duration,
    ) -> Fact<EtcdFacts> {
        let remembered = &mut *self.0.lock().await;
        if let Some(fact) = poll(cx, settings, full_every, remembered).await {
            return fact;
        }
        // Should this look be cut short, the next one is a full one.
        remembered.last = None;
        let fact = etcd::read(cx, settings, &mut remembered.memory).await;
        if let Fact::Known { value, source, .. } = &fact {
            remembered.last = Some(Full {
                at: Instant::now(),
                settings: settings.clone(),
                facts: value.clone(),
                source: source.clone(),
            });
        }
        fact
    }
}

/// The last full pass with a fresh word of the local member; `None` when a full pass is due.
async fn poll(
    cx: &SenseContext,
    settings: &EtcdSettings,
    full_every: Duration,
    remembered: &mut Remembered,
) -> Option<Fact<EtcdFacts>> {
    let last = remembered.last.as_mut()?;
    if last.at.elapsed() >= full_every || last.settings != *settings {
        return None;
    }
    let local = last.facts.endpoints.iter_mut().find(|endpoint| endpoint.local)?;
    local.linearizable_read.value()?;
    let polled = etcd::poll_local(cx, settings, &mut remembered.memory).await?;
    polled.value()?;
    let at = polled.at();
    local.linearizable_read = polled;
    Some(Fact::known(last.facts.clone(), last.source.clone(), at))
}
