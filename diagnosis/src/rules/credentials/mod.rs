//! `CredentialsValid`: a subject a kubeconfig, and one a cloud credential of Rancher (`facts/credentials.md`).
//!
//! Four outcomes: good, ending, ended, unknown. What the server answered counts before what is written anywhere, and an
//! end counts for nothing by a clock that is in doubt. 401 is not 403, and neither is "gone". Advice names the clusters
//! that hang on a credential and never says to rename or to delete anything.

mod answer;
mod cloud;
mod dedicated;
mod end;
mod kubeconfig;
mod rancher_name;

use std::time::Duration;

use outrider_protocol::{
    ConditionType, CredentialsFacts, Fact, NodeFacts, ReasonCode, Severity, Status, Timestamp, UnknownCause,
};

use crate::candidate::{Candidate, badness};
use crate::finding::{Finding, Judgement};
use crate::rules::clock::{Doubt, Trust, Validity};

const TYPE: ConditionType = ConditionType::CredentialsValid;
/// A second look has to confirm what a server said once; what is written needs no second look.
const RAISE: Duration = Duration::from_secs(60);
const CLEAR: Duration = Duration::from_secs(60);

pub(super) fn judge(out: &mut Judgement, credentials: &CredentialsFacts, at: Timestamp, facts: &NodeFacts) {
    let view = View { at, now: facts.now, days: facts.thresholds.credential_days, trust: Trust::of(facts) };
    for found in &credentials.kubeconfigs {
        out.findings.push(kubeconfig::judge(&view, found).into_finding(&view).subject(found.path.clone()));
    }
    match &credentials.rancher {
        Fact::Known { value, .. } => cloud::judge(out, &view, value),
        Fact::Unknown { cause, detail, at, .. } => {
            let message =
                format!("Rancher's cloud credentials could not be read: {}.", detail.trim_end_matches('.'));
            let finding = Finding::unknown(TYPE, cause, Severity::Warn, *at, message);
            out.findings.push(finding.advice(cloud::access_advice(cause)).subject(cloud::ALL));
        }
        Fact::Absent { source, .. } => {
            let message =
                format!("There are no cloud credentials at {source}: this is not Rancher's own cluster.");
            let unknown = Finding::unknown(TYPE, &UnknownCause::Unsupported, Severity::Info, at, message);
            out.findings.push(unknown.subject(cloud::ALL));
        }
        Fact::NotApplicable { .. } => {}
    }
    match &credentials.rancher_cluster {
        Some(Fact::Known { value, at, .. }) => {
            out.findings.extend(rancher_name::judge(value, *at, facts));
            out.findings.extend(dedicated::judge(value, *at));
        }
        Some(Fact::Absent { source, at }) => {
            let message = format!(
                "There is no {source}: credentials.rancher_kubeconfig does not lead to Rancher's own cluster."
            );
            let cause = UnknownCause::InvalidInput;
            let finding = Finding::unknown(ConditionType::RancherName, &cause, Severity::Warn, *at, message);
            out.findings.push(finding.advice(
                "Name a kubeconfig of the cluster that Rancher itself runs in, or leave credentials.rancher_kubeconfig out on \
                 this node.",
            ));
        }
        Some(Fact::Unknown { cause, detail, .. }) => {
            // What to do stands with the cloud credentials, which are read in the same way: one cause, one advice.
            let message = format!(
                "Not known while Rancher's own cluster cannot be read with credentials.rancher_kubeconfig: {}.",
                detail.trim_end_matches('.')
            );
            for condition_type in [ConditionType::RancherName, ConditionType::RancherClusterDedicated] {
                out.findings.push(told_elsewhere(condition_type, cause, at, message.clone()));
            }
        }
        Some(Fact::NotApplicable { .. }) | None => {}
    }
}

/// Not known for a reason that another condition shows with what to do about it.
fn told_elsewhere(
    condition_type: ConditionType,
    cause: &UnknownCause,
    at: Timestamp,
    message: String,
) -> Finding {
    let finding = Finding::unknown(condition_type, cause, Severity::Info, at, message);
    // Some causes are never less than a warning, and that has advice.
    if finding.severity < Severity::Warn { finding.advice("") } else { finding }
}

/// A part of Rancher's own cluster that could not be read. What the cluster does not know is no fault.
fn unread<T>(what: &str, fact: &Fact<T>) -> Option<Candidate> {
    match fact {
        Fact::Unknown { cause, detail, .. } => {
            let message = format!("{what} could not be read: {}.", detail.trim_end_matches('.'));
            let unread = Candidate::new(Status::Unknown, Severity::Warn, ReasonCode::from(cause), message);
            Some(unread.after(RAISE).advice(cloud::access_advice(cause)))
        }
        _ => None,
    }
}

/// What the parts of this rule look at.
struct View {
    at: Timestamp,
    now: Timestamp,
    /// Days before the end that warn and are an error.
    days: [i64; 2],
    trust: Trust,
}

impl View {
    /// Why the verdict `here` on an end is left open; `there` tells it for another moment. No end of a credential is judged
    /// by a clock that nobody keeps.
    fn doubt(&self, here: Validity, there: impl FnOnce(Timestamp) -> Validity) -> Option<Doubt<'_>> {
        match &self.trust {
            Trust::Doubtful { why, .. } | Trust::Unread { why } => Some(Doubt { why, is_wrong: true }),
            trust => trust.doubt(here, there),
        }
    }
}

/// One verdict about one credential.
struct Verdict {
    status: Status,
    severity: Severity,
    reason: ReasonCode,
    message: String,
    advice: String,
    /// It rests on an answer of a server.
    answered: bool,
}

impl Verdict {
    fn new(status: Status, severity: Severity, reason: ReasonCode, message: impl Into<String>) -> Self {
        Self { status, severity, reason, message: message.into(), advice: String::new(), answered: false }
    }

    /// A reading that failed.
    fn unknown(cause: &UnknownCause, severity: Severity, message: impl Into<String>) -> Self {
        let finding = Finding::unknown(TYPE, cause, severity, Timestamp::default(), message);
        Self {
            status: finding.status,
            severity: finding.severity,
            reason: finding.reason,
            message: finding.message,
            advice: finding.advice,
            answered: true,
        }
    }

    fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    fn answered(mut self) -> Self {
        self.answered = true;
        self
    }

    /// The same, with what else is to be said.
    fn also(mut self, words: &str) -> Self {
        if !words.is_empty() {
            self.message = format!("{} {words}", self.message);
        }
        self
    }

    /// The worse of two, the first of equals, and what the other says behind it.
    fn beside(self, other: Verdict) -> Verdict {
        let is_worse = badness(other.status, other.severity) > badness(self.status, self.severity);
        let (worse, lesser) = if is_worse { (other, self) } else { (self, other) };
        let advice = match lesser.severity {
            Severity::Ok | Severity::Info => worse.advice.clone(),
            _ if lesser.advice == worse.advice => worse.advice.clone(),
            _ => format!("{} {}", worse.advice, lesser.advice).trim().to_owned(),
        };
        let answered = worse.answered || lesser.answered;
        Verdict { advice, answered, ..worse }.also(&lesser.message)
    }

    fn into_finding(self, view: &View) -> Finding {
        let raise = if self.answered { RAISE } else { Duration::ZERO };
        Finding::new(TYPE, self.status, self.severity, self.reason, view.at, self.message)
            .advice(self.advice)
            .waits(raise, CLEAR)
    }
}
