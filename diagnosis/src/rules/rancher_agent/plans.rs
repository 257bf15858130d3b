//! What holds plans up (rancher/system-agent: pkg/applyinator/applyinator.go).

use std::time::Duration;

use outrider_protocol::{Fact, ReasonCode as R, Severity, Status};

use super::{RAISE, View};
use crate::candidate::Candidate;
use crate::wording::{Moment, Span};

/// The agent waits for a pending restart five minutes, and then applies by force; as long again is no accident.
const PENDING: Duration = Duration::from_secs(600);
/// A plan that installs Kubernetes takes minutes; after an hour it hangs.
const ACTIVE: Duration = Duration::from_secs(3600);

pub(super) fn candidates(view: &View<'_>) -> Vec<Candidate> {
    let plans = match &view.agent.plans {
        Fact::Known { value, .. } => value,
        Fact::Unknown { cause, detail, .. } => {
            let message = format!("The plans on disk could not be seen: {}.", detail.trim_end_matches('.'));
            let reason = R::from(cause);
            let unread = Candidate::new(Status::True, Severity::Info, reason, message).after(RAISE);
            return vec![unread.advice("The rest of this condition does not depend on them.")];
        }
        _ => return Vec::new(),
    };
    let mut all = Vec::new();
    let over = |since, limit| Some(view.now.since(since)).filter(|age| *age >= limit);
    if let Some(since) = plans.restart_pending_since
        && let Some(age) = over(since, PENDING)
    {
        let message = format!(
            "A restart of rancher-system-agent has been pending for {} (interlock file restart-pending, since {}); plans wait \
             for it.",
            Span(age),
            Moment(since)
        );
        all.push(Candidate::fault(Severity::Warn, R::RancherAgentPlanStuck, message).advice(
            "See whether an installer of rancher-system-agent still runs (ps, cloud-init status). If none does, it was cut \
             short: restart the agent by hand, or run the registration command again.",
        ));
    }
    if let Some(since) = plans.active_since
        && let Some(age) = over(since, ACTIVE)
    {
        let (severity, running) = match view.agent.unit.active_state.as_str() {
            "active" => (Severity::Warn, "is being applied"),
            _ => (Severity::Warn, "was being applied when the agent stopped"),
        };
        let message = format!(
            "A plan {running} since {} ({} ago; interlock file applyinator-active).",
            Moment(since),
            Span(age)
        );
        all.push(Candidate::fault(severity, R::RancherAgentPlanStuck, message).advice(
            "Read journalctl -u rancher-system-agent: which instruction is under way. An installer that waits for the network or \
             an image that cannot be pulled hangs there.",
        ));
    }
    all
}
