//! What stands in the way, found before anything is changed.

mod coordinator;
mod identity;
mod machine;
mod room;

use outrider_protocol::Severity;
use serde::Serialize;

use super::look::Seen;
use super::plan::Plan;
use super::step::Wanted;
use super::wishes::{Given, Wishes};
use super::{Machine, Release};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// What was looked at.
    pub(crate) check: &'static str,
    /// `error` stops the installation, `warn` does not.
    pub(crate) severity: Severity,
    /// What was found.
    pub(crate) message: String,
    /// What to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) advice: String,
}

/// All that a look before the installation needs.
pub(crate) struct Preflight<'a> {
    /// The machine.
    pub(crate) machine: &'a Machine,
    /// What was given on the command line.
    pub(crate) given: &'a Given,
    /// That over what was asked for earlier.
    pub(crate) wishes: &'a Wishes,
    /// Where the programs come from.
    pub(crate) release: Option<&'a Release>,
    /// The release was named, not merely found.
    pub(crate) named: bool,
    /// The files that are wanted.
    pub(crate) wanted: &'a [Wanted],
    /// What lies there.
    pub(crate) seen: &'a Seen,
    /// What would be done.
    pub(crate) plan: &'a Plan,
}

impl Preflight<'_> {
    /// Looks, changes nothing, and says what it found.
    pub(crate) async fn run(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        machine::rights(self, &mut findings);
        machine::system(self, &mut findings);
        machine::programs(self, &mut findings);
        machine::units(self, &mut findings);
        machine::name(self, &mut findings);
        machine::others(self, &mut findings);
        machine::configuration(self, &mut findings);
        room::places(self, &mut findings);
        let ledger = identity::look(self, &mut findings);
        coordinator::ask(self, ledger.as_ref(), &mut findings).await;
        findings
    }
}

/// Adds a finding.
fn tell(
    findings: &mut Vec<Finding>,
    check: &'static str,
    severity: Severity,
    message: impl Into<String>,
    advice: impl Into<String>,
) {
    findings.push(Finding { check, severity, message: message.into(), advice: advice.into() });
}
