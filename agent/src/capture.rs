//! One pass of all sensors, without a daemon: `outrider check`, `outrider facts`, `outrider-agent once`.

use std::sync::Arc;

use futures_util::future::join_all;
use outrider_protocol::{AgentFacts, Check, CheckFacts, Fact, NodeFacts, NodeRef, TypeMeta};

use crate::checks::{Machine, PassContext, Reading, Sensors, Slot, pass};
use crate::config::{Loaded, Settings};
use crate::sense::SenseContext;

/// The version every document of this agent carries.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Reads the checks in `only` (all that are enabled when it is empty) at the same time, each within its own limit. A
/// check named in `only` runs even when it is switched off.
pub async fn capture(settings: &Settings, cx: &SenseContext, only: &[Check]) -> NodeFacts {
    let sensors: Arc<dyn Sensors> = Arc::new(Machine::new(cx.clone()));
    capture_with(settings, cx, only, &sensors).await
}

/// [`capture`] with sensors of the caller's choice.
pub async fn capture_with(
    settings: &Settings,
    cx: &SenseContext,
    only: &[Check],
    sensors: &Arc<dyn Sensors>,
) -> NodeFacts {
    let context = PassContext { settings: Arc::new(settings.clone()), clock_offset: None, peers: None };
    let wanted = settings.checks.iter().filter(|(check, values)| match only {
        [] => values.enabled,
        only => only.contains(check),
    });
    let passes = wanted.map(|(check, values)| {
        let (sensors, context, slot) = (sensors.clone(), context.clone(), Slot::default());
        async move {
            let work = |guard| sensors.pass(check, context, guard);
            pass(check, values.timeout, &slot, || cx.now(), work).await
        }
    });
    let mut checks = CheckFacts::default();
    join_all(passes).await.into_iter().flatten().for_each(|reading: Reading| reading.store(&mut checks));
    NodeFacts {
        meta: TypeMeta::new("NodeFacts"),
        node: node_ref(settings),
        agent_version: VERSION.to_owned(),
        now: cx.now(),
        thresholds: settings.thresholds.clone(),
        latches: Vec::new(),
        checks,
    }
}

/// Adds what a single pass knows of the agent itself: whether the configuration is valid.
pub fn with_config(mut facts: NodeFacts, loaded: &Loaded) -> NodeFacts {
    let agent = AgentFacts {
        config_problems: loaded.problems.iter().map(ToString::to_string).collect(),
        coordinator: loaded.settings.coordinator.urls.first().cloned().unwrap_or_default(),
        enrolment: "none".to_owned(),
        // A pass only looks: it sends nothing.
        untried: true,
        ..AgentFacts::default()
    };
    facts.checks.agent = Some(Fact::known(agent, "outrider-agent", facts.now));
    facts
}

/// Who this node is before any coordinator knows it.
pub fn node_ref(settings: &Settings) -> NodeRef {
    NodeRef {
        name: settings.node.name.clone().unwrap_or_else(host_name),
        uid: String::new(),
        cluster: settings.node.cluster.clone(),
        profile: settings.node.profile.clone(),
        simulated: false,
    }
}

/// The kernel's host name; `localhost` when there is none to be had.
fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".to_owned())
}
