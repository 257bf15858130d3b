//! Passes over the balancers, no more often than the budget of connections allows.

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{Fact, LoadBalancerFacts};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::idle::IdleTests;
use super::moves::Moves;
use crate::config::LoadBalancerSettings;
use crate::sense::{SenseContext, load_balancer};

/// Shared by the passes, which follow one another.
#[derive(Clone, Default)]
pub(super) struct BalancerWatch(Arc<Mutex<Memory>>);

#[derive(Default)]
struct Memory {
    last: Option<Pass>,
    idle: IdleTests,
    moves: Moves,
}

struct Pass {
    began: Instant,
    settings: Vec<LoadBalancerSettings>,
    facts: Fact<Vec<LoadBalancerFacts>>,
}

impl Pass {
    fn tend(&mut self, cx: &SenseContext, idle: &mut IdleTests) {
        if let Fact::Known { value, .. } = &mut self.facts {
            idle.tend(cx, &self.settings, value);
        }
    }
}

impl BalancerWatch {
    /// A new pass within `limit`, or the facts of the last one while another would be more than `per_minute`
    /// connections to one balancer and its backends.
    pub(super) async fn look(
        &self,
        cx: &SenseContext,
        settings: &[LoadBalancerSettings],
        per_minute: u32,
        limit: Duration,
    ) -> Fact<Vec<LoadBalancerFacts>> {
        let mut memory = self.0.lock().await;
        let Memory { last, idle, moves } = &mut *memory;
        if let Some(pass) = last.as_mut().filter(|pass| pass.settings == settings)
            && pass.began.elapsed() < pause(&pass.facts, per_minute)
        {
            pass.tend(cx, idle);
            return pass.facts.clone();
        }
        let began = Instant::now();
        let mut facts = load_balancer::read(cx, settings, limit).await;
        if let Fact::Known { value, .. } = &mut facts {
            moves.take(value);
        }
        // A program that makes one pass and ends holds no connection.
        let is_first = last.is_none();
        let pass = last.insert(Pass { began, settings: settings.to_vec(), facts });
        if !is_first {
            pass.tend(cx, idle);
        }
        pass.facts.clone()
    }
}

/// Time that the connections of a pass have to last.
fn pause(facts: &Fact<Vec<LoadBalancerFacts>>, per_minute: u32) -> Duration {
    let most = facts.value().into_iter().flatten().map(|balancer| balancer.connections).max();
    Duration::from_secs(60) * most.unwrap_or(0) / per_minute.max(1)
}

#[cfg(test)]
mod tests {
    use outrider_protocol::Timestamp;

    use super::*;

    #[test]
    fn connections_are_spread_over_minutes() {
        let facts = |connections: &[u32]| {
            let one = |connections: &u32| -> LoadBalancerFacts {
                serde_json::from_value(serde_json::json!({
                    "name": "", "url": "", "host": "", "port": 443, "httpPort": 80, "mode": "l4", "probes": [],
                    "addresses": { "state": "absent", "source": "", "at": Timestamp::default() },
                    "connections": connections,
                }))
                .unwrap()
            };
            Fact::known(connections.iter().map(one).collect(), "", Timestamp::default())
        };
        assert_eq!(pause(&facts(&[]), 60), Duration::ZERO);
        assert_eq!(pause(&facts(&[20]), 60), Duration::from_secs(20));
        assert_eq!(pause(&facts(&[20, 4]), 4), Duration::from_secs(300));
        assert_eq!(pause(&facts(&[20]), 0), Duration::from_secs(1200));
    }
}
