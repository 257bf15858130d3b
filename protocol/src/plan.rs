//! What we would do, and what it did.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Timestamp, TypeMeta};

open_enum! {
    /// The steps an agent may take. Each of the daemon's touches only what Outrider made itself; those from `WaitForCloudInit`
    /// on are the guest agent's set-up, which root runs.
    StepKind {
        /// Ask the coordinator for a certificate.
        Enroll = "Enroll",
        /// Renew our own certificate.
        RenewCertificate = "RenewCertificate",
        /// Put a transition into the spool.
        SpoolTransition = "SpoolTransition",
        /// Apply the desired node configuration.
        ApplyDesired = "ApplyDesired",
        /// Write the last verdict to the status file.
        WriteStatusFile = "WriteStatusFile",
        /// Write metrics for a node exporter to read.
        WriteTextfile = "WriteTextfile",
        /// Apply region and zone to the own Node.
        ApplyLabels = "ApplyLabels",
        /// Ask the guest agent's set-up to run.
        AskGuestAgentSetup = "AskGuestAgentSetup",
        /// Wait until cloud-init has installed its packages.
        WaitForCloudInit = "WaitForCloudInit",
        /// Wait until nobody holds the package manager's lock.
        WaitForLock = "WaitForLock",
        /// Finish what an interrupted installation of ours left.
        RepairPackages = "RepairPackages",
        /// Install a package.
        InstallPackage = "InstallPackage",
        /// Start a unit.
        StartUnit = "StartUnit",
    }
}

/// One step: what, on what, why. Safe to repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What would be done.
    pub kind: StepKind,
    /// On what: a path, a URL, a condition.
    pub target: String,
    /// Why.
    pub reason: String,
}

/// The steps of one turn, in order; `--dry-run` prints it and stops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// `apiVersion` and `kind: Plan`.
    #[serde(flatten)]
    pub meta: TypeMeta,
    /// What would be done.
    pub steps: Vec<Step>,
    /// What is left alone, and why: inaction has a reason too.
    #[serde(default)]
    pub held: Vec<Step>,
}

/// What one step did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The step.
    pub step: Step,
    /// When it ended.
    pub at: Timestamp,
    /// Empty when it worked, else the error.
    #[serde(default)]
    pub error: String,
}
