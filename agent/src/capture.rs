//! One pass of all sensors, without a daemon: `outrider check`, `outrider facts`, `outrider-agent once`.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::join_all;
use outrider_protocol::{AgentFacts, Check, CheckFacts, Fact, NodeFacts, NodeRef, TypeMeta};

use crate::checks::{Machine, PassContext, Reading, Sensors, Slot, pass};
use crate::config::{self, ConfigSource, Loaded, Settings};
use crate::sense::SenseContext;

/// The version every document of this agent carries.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One pass over this machine, as a person asks for it.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// The configuration: this one file, or where it is looked for anyhow.
    pub config: Option<PathBuf>,
    /// Only these checks; all that are enabled when empty.
    pub only: Vec<Check>,
    /// What the judgement needs besides is read as well.
    pub to_judge: bool,
}

/// What a [`Look`] gave.
#[derive(Debug)]
pub struct Looked {
    /// The facts.
    pub facts: NodeFacts,
    /// Problems of the configuration, a line each.
    pub notes: Vec<String>,
}

impl Look {
    /// The checks to read: an end of a certificate that is told by a wrong clock is unknown, so its check needs the clock.
    pub fn wanted(&self) -> Vec<Check> {
        let mut wanted = self.only.clone();
        let dated = [Check::Certificates, Check::Credentials].iter().any(|check| wanted.contains(check));
        if self.to_judge && dated && !wanted.contains(&Check::Clock) {
            wanted.push(Check::Clock);
        }
        wanted
    }
}

/// The check that is called `word` and reads something; an error lists those there are.
pub fn check_of(word: &str) -> Result<Check, String> {
    let sensors = || Check::ALL.iter().filter(|check| **check != Check::Agent);
    let listed = || sensors().map(Check::as_str).collect::<Vec<_>>().join(", ");
    let found = sensors().find(|check| check.as_str() == word);
    found.cloned().ok_or_else(|| format!("there is no check {word:?}; the checks are {}", listed()))
}

/// Takes the look with the configuration of this machine or of the one file. An error is a wrong use, in words.
pub async fn look(look: &Look, cx: &SenseContext) -> Result<Looked, String> {
    let source = match &look.config {
        Some(file) if !file.exists() => return Err(format!("--config: there is no file {}", file.display())),
        Some(file) => ConfigSource::File(file.clone()),
        None => ConfigSource::below(&cx.root),
    };
    let loaded = config::load(&source);
    if let (Some(_), Some(problem), true) = (&look.config, loaded.problems.first(), loaded.files.is_empty()) {
        // Not one key of what was asked for is there: the defaults would answer another question.
        return Err(format!("--config: {problem}"));
    }
    // The clock is read unasked only where the configuration has not switched it off.
    let clock_is_on = loaded.settings.checks.get(&Check::Clock).is_none_or(|clock| clock.enabled);
    let only = Look { to_judge: look.to_judge && clock_is_on, ..look.clone() }.wanted();
    let facts = capture(&loaded.settings, cx, &only).await;
    // Asked for some checks only, one is not told about others; that the configuration is not in force is no other.
    let whole = look.only.is_empty() || !loaded.problems.is_empty();
    let notes = loaded.problems.iter().map(|problem| format!("warning: {problem}")).collect();
    Ok(Looked { facts: if whole { with_config(facts, &loaded) } else { facts }, notes })
}

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
