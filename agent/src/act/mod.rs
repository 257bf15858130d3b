//! Act: plan the steps of a turn, then take them.
//!
//! The plan is data that can be printed (`once --dry-run`); taking a step is stupid and safe to repeat. Nothing here
//! changes the machine: the steps touch files that Outrider made itself. What does change it is asked for by such a file
//! (`crate::setup`).

pub mod labels;
mod status_file;
mod textfile;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use outrider_protocol::{NodeConfig, Outcome, Plan, Step, StepKind, Timestamp, Transition, TypeMeta};
use outrider_sync::topology::{Action as KeyAction, Apply, TopologyPlan};

pub use status_file::{AgentStatus, CheckStatus};
pub use textfile::render as render_textfile;

use crate::journal::name;

/// What a turn has to act on.
pub struct TurnInput<'a> {
    /// Conditions that changed.
    pub transitions: &'a [Transition],
    /// The coordinator's URL; `None` when none is configured.
    pub coordinator: Option<&'a str>,
    /// A desired configuration that is not in force yet.
    pub desired: Option<&'a NodeConfig>,
    /// The status file, when it is time to write it.
    pub status_file: Option<PathBuf>,
    /// The textfile, when one is configured and it is time to write it.
    pub textfile: Option<PathBuf>,
    /// The file that asks for the guest agent's set-up, when it is time to ask.
    pub ask_setup: Option<PathBuf>,
    /// What is to become of the own Node's labels, where that is known.
    pub labels: Option<TopologyPlan>,
    /// Whether this run writes labels: another agent of this machine does where it does not.
    pub writes_labels: bool,
}

/// One step with what it needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<'a> {
    /// Put a transition into the spool.
    Spool(&'a Transition),
    /// Put a desired configuration in force.
    ApplyDesired(&'a NodeConfig),
    /// Write the last verdict to the status file.
    WriteStatus(PathBuf),
    /// Write metrics for a node exporter.
    WriteTextfile(PathBuf),
    /// Ask root's program to set up the guest agent.
    AskGuestAgentSetup(PathBuf),
    /// Apply labels to the own Node.
    ApplyLabels(Apply),
}

impl Action<'_> {
    /// The step as it is shown.
    pub fn step(&self) -> Step {
        let (kind, target, reason) = match self {
            Action::Spool(transition) => {
                let (condition, before) = (&transition.condition, transition.previous_status);
                let before = before.map_or("new", |status| status.as_str());
                let reason = format!("{before} -> {} ({})", condition.status, condition.reason);
                (StepKind::SpoolTransition, name(condition), reason)
            }
            Action::ApplyDesired(config) => {
                let reason = "the coordinator desires another configuration".to_owned();
                (StepKind::ApplyDesired, format!("generation {}", config.generation), reason)
            }
            Action::WriteStatus(path) => {
                let reason =
                    "people without root and the next boot's reader find the verdict there".to_owned();
                (StepKind::WriteStatusFile, path.display().to_string(), reason)
            }
            Action::WriteTextfile(path) => {
                let reason = "report.textfile is set".to_owned();
                (StepKind::WriteTextfile, path.display().to_string(), reason)
            }
            Action::AskGuestAgentSetup(path) => {
                let reason = "the guest agent does not run, and guest_agent.manage is true".to_owned();
                (StepKind::AskGuestAgentSetup, path.display().to_string(), reason)
            }
            Action::ApplyLabels(apply) => {
                let forced = if apply.force { " (taken over, as topology.take_over allows)" } else { "" };
                let reason = format!("{}{forced}", apply.changes.join(", "));
                (StepKind::ApplyLabels, format!("Node {}", apply.node), reason)
            }
        };
        Step { kind, target, reason }
    }
}

/// The actions of a turn, in order, and what is left alone with its reason.
pub fn plan<'a>(input: &TurnInput<'a>) -> (Vec<Action<'a>>, Vec<Step>) {
    let (mut actions, mut held) = (Vec::new(), Vec::new());
    for transition in input.transitions {
        match input.coordinator {
            Some(_) => actions.push(Action::Spool(transition)),
            None => held.push(Step {
                reason: "NoCoordinator: nobody is configured to be told".to_owned(),
                ..Action::Spool(transition).step()
            }),
        }
    }
    actions.extend(input.desired.map(Action::ApplyDesired));
    actions.extend(input.status_file.clone().map(Action::WriteStatus));
    actions.extend(input.textfile.clone().map(Action::WriteTextfile));
    actions.extend(input.ask_setup.clone().map(Action::AskGuestAgentSetup));
    if let Some(plan) = &input.labels {
        held.extend(left_alone(plan));
        let apply = plan.apply.clone().map(Action::ApplyLabels);
        match input.writes_labels {
            true => actions.extend(apply),
            false => held.extend(apply.map(|action| Step {
                reason: format!("{}: the daemon of this machine writes them", action.step().reason),
                ..action.step()
            })),
        }
    }
    (actions, held)
}

/// Labels that are not as they should be and stay so, and why.
fn left_alone(plan: &TopologyPlan) -> impl Iterator<Item = Step> {
    plan.keys.iter().filter_map(|key| match &key.action {
        KeyAction::Held(hold) => {
            let (target, reason) = (format!("label {}", key.key), hold.to_string());
            Some(Step { kind: StepKind::ApplyLabels, target, reason })
        }
        _ => None,
    })
}

/// The plan as a document.
pub fn describe(actions: &[Action<'_>], held: Vec<Step>) -> Plan {
    Plan { meta: TypeMeta::new("Plan"), steps: actions.iter().map(Action::step).collect(), held }
}

/// The outcome of a step as a document.
pub fn outcome(step: Step, at: Timestamp, result: &io::Result<()>) -> Outcome {
    let error = result.as_ref().err().map(|e| e.to_string()).unwrap_or_default();
    Outcome { step, at, error }
}

/// Writes a file that readers never see half written. Not fsynced: it is made anew at every start.
pub fn replace_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.new", std::process::id()));
    let partial = PathBuf::from(partial);
    let write = || {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&partial)?;
        // Whatever the umask: these files are for others to read.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        fs::rename(&partial, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&partial);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("status.json");
        replace_file(&path, b"one", 0o644).unwrap();
        replace_file(&path, b"two", 0o644).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace_file(&folder.path().join("missing/status.json"), b"x", 0o644).is_err());
    }
}
