//! The tests with a silent connection, beside the passes: each lasts for longer than any pass may.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outrider_protocol::{Fact, IdleFacts, LoadBalancerFacts, UnknownCause};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::config::LoadBalancerSettings;
use crate::sense::{SenseContext, load_balancer};

/// Time-outs of a balancer change when somebody changes them.
const AGAIN: Duration = Duration::from_secs(86_400);
/// What failed is tried again sooner.
const AGAIN_AFTER_FAILURE: Duration = Duration::from_secs(3600);

type Outcome = Option<(Instant, Fact<IdleFacts>)>;

/// One test a balancer, by name; one connection at a time over all of them.
#[derive(Default)]
pub(super) struct IdleTests(BTreeMap<String, IdleTest>);

struct IdleTest {
    settings: LoadBalancerSettings,
    task: AbortHandle,
    outcome: Arc<Mutex<Outcome>>,
    /// What the test before came to.
    before: Option<Fact<IdleFacts>>,
    under_way: Fact<IdleFacts>,
}

impl IdleTest {
    fn outcome(&self) -> Outcome {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_due(&self) -> bool {
        self.outcome().is_some_and(|(ended, fact)| {
            let wait = if fact.value().is_some() { AGAIN } else { AGAIN_AFTER_FAILURE };
            ended.elapsed() >= wait
        })
    }

    fn says(&self) -> Fact<IdleFacts> {
        match self.outcome() {
            Some((_, fact)) => fact,
            None => self.before.clone().unwrap_or_else(|| self.under_way.clone()),
        }
    }
}

impl Drop for IdleTest {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl IdleTests {
    /// Begins the test that is due, and writes into `facts` what is known of each.
    pub(super) fn tend(
        &mut self,
        cx: &SenseContext,
        settings: &[LoadBalancerSettings],
        facts: &mut [LoadBalancerFacts],
    ) {
        let wanted = |name: &str| settings.iter().find(|b| b.name == name && b.idle_test.is_some());
        self.0.retain(|name, test| wanted(name) == Some(&test.settings));
        for balancer in facts {
            let Some(settings) = wanted(&balancer.name) else { continue };
            let is_due = self.0.get(&settings.name).is_none_or(IdleTest::is_due);
            if is_due && self.0.values().all(|test| test.outcome().is_some()) {
                self.begin(cx, settings, balancer);
            }
            balancer.idle = Some(match self.0.get(&settings.name) {
                Some(test) => test.says(),
                None => Fact::unknown(UnknownCause::NotYetRead, "waits for its turn", SOURCE, cx.now()),
            });
        }
    }

    fn begin(&mut self, cx: &SenseContext, settings: &LoadBalancerSettings, last: &LoadBalancerFacts) {
        let outcome = Arc::new(Mutex::new(None));
        let (result, own, balancer, last) = (outcome.clone(), cx.clone(), settings.clone(), last.clone());
        let task = tokio::spawn(async move {
            let fact = load_balancer::measure_idle(&own, &balancer, &last).await;
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), fact));
        });
        let seconds = settings.idle_test.unwrap_or_default().as_secs();
        let words = format!("a silent connection is held, for {seconds} s at most");
        let test = IdleTest {
            settings: settings.clone(),
            task: task.abort_handle(),
            outcome,
            before: self.0.get(&settings.name).and_then(IdleTest::outcome).map(|(_, fact)| fact),
            under_way: Fact::unknown(UnknownCause::NotYetRead, words, SOURCE, cx.now()),
        };
        self.0.insert(settings.name.clone(), test);
    }
}

const SOURCE: &str = "idle_test of [[load_balancer]]";
