//! One turn without a daemon: read everything, judge, act, report, end.

use std::path::Path;
use std::time::Duration;

use outrider_diagnosis as diagnosis;
use outrider_protocol::{Condition, Fact, NodeState, NotApplicable, Outcome, Plan, TypeMeta};
use outrider_sync::topology;
use serde::Serialize;

use super::RunError;
use super::paths::paths_of;
use super::start::{self, StateFolder};
use super::state::{identity_of, network_of};
use crate::act::{self, Action, TurnInput};
use crate::capture::{capture, with_config};
use crate::config::Loaded;
use crate::sense::SenseContext;

/// How long delivery may take.
const DELIVERY: Duration = Duration::from_secs(15);

/// What one turn found and did (`kind: Turn`).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    /// `apiVersion` and `kind: Turn`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// Conditions in force.
    pub conditions: Vec<Condition>,
    /// Checks with nothing to look at, and why.
    pub not_applicable: Vec<NotApplicable>,
    /// The steps, and what is left alone.
    pub plan: Plan,
    /// What each step did; empty for a dry run.
    pub outcomes: Vec<Outcome>,
}

/// Makes one turn. A dry run plans it, reads the machine and touches nothing else. The latches of the state folder are
/// gone on with, so that a timer that calls this tells changes and not the same again and again. The status file is the
/// daemon's to write.
pub async fn once(
    loaded: &Loaded,
    sense: SenseContext,
    state_dir: &Path,
    dry_run: bool,
) -> Result<Turn, RunError> {
    let settings = &loaded.settings;
    let mut facts = with_config(capture(settings, &sense, &[]).await, loaded);
    let reporter = if dry_run {
        None
    } else {
        let folder = StateFolder::open(state_dir)?;
        let reporter = start::reporter(&folder, &sense, start::target(settings, None));
        facts.latches = reporter.latches().to_vec();
        Some((reporter, folder))
    };
    let judgement = diagnosis::judge(&facts);
    let latched = diagnosis::latch(&facts.latches, &judgement, facts.now);
    let input = TurnInput {
        transitions: &latched.transitions,
        coordinator: settings.coordinator.urls.first().map(String::as_str),
        desired: None,
        status_file: None,
        textfile: settings.report.textfile.clone(),
        // One pass is no reason to change the machine.
        ask_setup: None,
        labels: facts.checks.topology.as_ref().and_then(Fact::value).and_then(topology::plan),
        writes_labels: dry_run,
    };
    let (actions, held) = act::plan(&input);
    let plan = act::describe(&actions, held);
    let mut outcomes = Vec::new();
    if let Some((reporter, _folder)) = reporter {
        let agent = facts.checks.agent.as_ref().and_then(Fact::value).cloned().unwrap_or_default();
        for action in &actions {
            if let Action::WriteTextfile(path) = action {
                let text = act::render_textfile(&latched.conditions, &agent, facts.now);
                let result = act::replace_file(path, text.as_bytes(), 0o644);
                outcomes.push(act::outcome(action.step(), sense.now(), &result));
            }
        }
        let identity = identity_of(&facts.checks);
        let state = NodeState {
            digest: NodeState::compute_digest(&identity, &latched.conditions),
            identity,
            conditions: latched.conditions.clone(),
            etcd: facts.checks.etcd.clone(),
            paths: paths_of(&facts.checks),
            network: network_of(&facts.checks),
            zone: String::new(),
            region: String::new(),
        };
        reporter.put(latched.transitions.clone(), &latched.latches, Some(state));
        let mut status = reporter.status();
        if input.coordinator.is_some() {
            let told = status.wait_for(|s| s.enrolment == "enrolled" && s.error.is_empty() && s.reported);
            let _ = tokio::time::timeout(DELIVERY, told).await;
        }
        reporter.stop(DELIVERY).await;
        let status = status.borrow().clone();
        let failed = [status.spool_problem.as_str(), status.error.as_str()];
        let failed = failed.into_iter().find(|error| !error.is_empty());
        let result = failed.map_or(Ok(()), |error| Err(std::io::Error::other(error.to_owned())));
        let spools = actions.iter().filter(|action| matches!(action, Action::Spool(_)));
        outcomes.extend(spools.map(|action| act::outcome(action.step(), sense.now(), &result)));
    }
    Ok(Turn {
        meta: TypeMeta::new("Turn"),
        conditions: latched.conditions,
        not_applicable: judgement.not_applicable,
        plan,
        outcomes,
    })
}
