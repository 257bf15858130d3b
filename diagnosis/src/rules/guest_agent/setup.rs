//! What the guest agent's set-up said, where the agent does not run: what it waits for, why it failed, why it leaves things as
//! they are.

use std::time::Duration;

use outrider_protocol::{
    Fact, GuestAgentFacts, GuestAgentSetup, NodeFacts, ReasonCode as R, SetupState, Severity, Status,
    Timestamp,
};

use super::own_addresses;
use crate::finding::Finding;

/// How long "I work on it" is believed: it is written anew every few seconds.
const BELIEVED: Duration = Duration::from_secs(120);
/// How long it has to be at work before that is shown: an agent that is restarted by an upgrade is back by then.
const AT_WORK: Duration = Duration::from_secs(10);
/// How long waiting for a lock is no fault: apt's daily run takes some minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// The finding, with what the set-up knows of its cause.
pub(super) fn told(found: Finding, guest: &GuestAgentFacts, at: Timestamp, facts: &NodeFacts) -> Finding {
    let concerned =
        [R::GuestAgentNotInstalled, R::GuestAgentStopped, R::GuestAgentStarting, R::GuestAgentUnitMissing];
    let Some(setup) =
        guest.setup.as_ref().and_then(Fact::value).filter(|_| concerned.contains(&found.reason))
    else {
        return found;
    };
    let words = setup.message.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = words.trim_end_matches('.');
    let own = own_addresses(facts);
    match (&setup.state, setup.reason.as_ref()) {
        (SetupState::Working, reason) if at.since(setup.at) < BELIEVED => {
            let held = reason == Some(&R::GuestAgentLockHeld);
            let patient = guest.uptime_seconds.value().is_none_or(|s| *s < PATIENCE.as_secs());
            let message = format!("The guest agent's set-up {words}{own}.");
            let (status, severity, reason) = match (held, patient) {
                (true, false) => (Status::False, Severity::Warn, R::GuestAgentLockHeld),
                (true, true) => (Status::Unknown, Severity::Info, R::GuestAgentLockHeld),
                _ => (Status::Unknown, Severity::Info, R::GuestAgentInstalling),
            };
            let advice = if held { LOCK_ADVICE } else { "Wait until it has ended." };
            new(&found, status, severity, reason, message).advice(advice).waits(AT_WORK, Duration::ZERO)
        }
        (SetupState::Working, _) => {
            let message = format!(
                "{} The set-up was last heard at {} and was cut short: {words}.",
                found.message, setup.at
            );
            Finding { message, ..found }
        }
        (SetupState::Failed, Some(reason)) if KNOWN.contains(reason) => {
            let message =
                format!("The guest agent does not run, and its set-up failed: {words}{}{own}.", next(setup));
            new(&found, Status::False, severity_of(reason, found.severity), reason.clone(), message)
                .advice(advice(reason))
        }
        (SetupState::Held, Some(reason)) if KNOWN.contains(reason) => {
            let message = format!("The guest agent does not run: {words}{own}.");
            new(&found, Status::False, severity_of(reason, found.severity), reason.clone(), message)
                .advice(advice(reason))
        }
        (SetupState::Failed, _) => {
            let message = format!("{} The set-up says: {words}{}.", found.message, next(setup));
            Finding { message, ..found }
        }
        (SetupState::Held, _) => {
            let message = format!("{} The set-up leaves it at that: {words}.", found.message);
            Finding { message, ..found }
        }
        _ => found,
    }
}

/// Reasons that only the set-up knows.
const KNOWN: [R; 5] = [
    R::GuestAgentLockHeld,
    R::GuestAgentNoRepository,
    R::GuestAgentInstallFailed,
    R::GuestAgentRebootNeeded,
    R::GuestAgentSetupHeld,
];

const LOCK_ADVICE: &str = "Let it end: whoever holds the lock changes the system, and is not ended by Outrider. One that hangs is found by its \
     process number; systemctl status tells whose it is.";

fn advice(reason: &R) -> &'static str {
    match reason {
        R::GuestAgentLockHeld => LOCK_ADVICE,
        R::GuestAgentNoRepository => {
            "Make a repository reachable (proxy, mirror, DNS), or put the package on the machine and name it in \
             guest_agent.package_file, or use an image that has it. Userdata that is edited now does not run again on this VM."
        }
        R::GuestAgentRebootNeeded => {
            "Reboot the machine when it suits (Outrider does not): the next boot has the agent, and starts it."
        }
        R::GuestAgentSetupHeld => {
            "Put the configuration right (outrider-agent validate), in files that nobody but root may write; it is read again at \
             the next attempt."
        }
        _ => {
            "Read its journal (journalctl -u outrider-guest-agent) and install the package qemu-guest-agent by hand to see why."
        }
    }
}

/// As grave as it is without the set-up, within what the registry allows of the reason.
fn severity_of(reason: &R, without: Severity) -> Severity {
    match reason {
        R::GuestAgentRebootNeeded => Severity::Warn,
        _ => without.max(Severity::Warn),
    }
}

/// What the set-up says is certain, and shown at once.
fn new(found: &Finding, status: Status, severity: Severity, reason: R, message: String) -> Finding {
    Finding { status, severity, reason, message, ..found.clone() }.waits(Duration::ZERO, Duration::ZERO)
}

/// When it tries again: a time and no span, which would be another one at every turn.
fn next(setup: &GuestAgentSetup) -> String {
    setup.next_attempt_at.map_or(String::new(), |next| format!("; it tries again at {next} at the earliest"))
}
