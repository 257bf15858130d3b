//! Its files: mode and owner, where Rancher is, whom it trusts.

use outrider_protocol::{Fact, GuardedFile, ReasonCode as R, Severity, Status};

use super::{RAISE, View, pinned};
use crate::candidate::Candidate;
use crate::rules::clock::Validity;
use crate::wording::{Count, Moment, Span, names};

/// Days before the end of a pinned authority that are worth a word.
const AHEAD: u64 = 30;
const DAY: u64 = 86_400;

pub(super) fn candidates(view: &View<'_>) -> Vec<Candidate> {
    let agent = view.agent;
    let mut all = Vec::new();
    if let Fact::Known { value, .. } = &agent.config {
        all.extend(refused(view, &value.file));
    }
    if let Fact::Known { value, .. } = &agent.connection {
        all.extend(refused(view, &value.file));
    }
    all.extend(unconnected(view));
    all.extend(trust(view));
    all.extend(pinned::candidate(view));
    all.push(good(view));
    all
}

/// The parser takes a file only with exactly 0600 and its own owner (rancher/system-agent: pkg/config/config_unix.go).
fn refused(view: &View<'_>, file: &GuardedFile) -> Option<Candidate> {
    let why = match (file.mode & 0o777, file.uid, file.gid) {
        (0o600, 0, 0) => return None,
        (0o600, uid, gid) => format!("it belongs to {uid}:{gid} and not to root"),
        (mode, ..) => format!("its mode is {mode:04o} and not exactly 0600"),
    };
    let runs = view.agent.unit.active_state == "active";
    // What runs has read its files before; it refuses them at its next start.
    let (severity, when) =
        if runs { (Severity::Warn, "at its next start") } else { (Severity::Error, "and so does not start") };
    let message = format!("rancher-system-agent refuses {} {when}: {why}.", file.path);
    Some(Candidate::fault(severity, R::RancherAgentFilesRefused, message).after(RAISE).advice(format!(
        "chown root:root {0} && chmod 0600 {0}, and look for what changed it (a hardening job, a restored backup).",
        file.path
    )))
}

fn unconnected(view: &View<'_>) -> Option<Candidate> {
    let agent = view.agent;
    let config = match &agent.config {
        Fact::Known { value, .. } => value,
        Fact::Absent { source, .. } => {
            let message = format!(
                "rancher-system-agent has no configuration ({source} is not there) and cannot start."
            );
            return Some(
                Candidate::fault(Severity::Error, R::RancherAgentUnconnected, message).after(RAISE).advice(
                    "Run the registration command of the cluster again on this node; it writes the file.",
                ),
            );
        }
        Fact::Unknown { cause, detail, source, .. } => {
            let message = format!("{source} could not be read: {}.", detail.trim_end_matches('.'));
            let unread =
                Candidate::new(Status::Unknown, Severity::Warn, R::from(cause), message).after(RAISE);
            return Some(unread.advice("Let the root helper read it, or run this check as root."));
        }
        Fact::NotApplicable { .. } => return None,
    };
    if !config.remote {
        return None;
    }
    let fault = |message: String| {
        let advice = "Run the registration command of the cluster again on this node; a node that was removed in Rancher needs a \
                      new registration.";
        Some(
            Candidate::fault(Severity::Error, R::RancherAgentUnconnected, message)
                .after(RAISE)
                .advice(advice),
        )
    };
    match &agent.connection {
        Fact::Known { value, .. } if value.server.is_empty() => {
            fault(format!("{} names no server that can be used.", value.file.path))
        }
        Fact::Known { value, .. } if value.secret_name.is_empty() => {
            fault(format!("{} names no Secret to take plans from.", value.file.path))
        }
        Fact::Absent { source, .. } => {
            fault(format!("Nothing tells rancher-system-agent where Rancher is: {source} is not there."))
        }
        Fact::Unknown { cause, detail, source, .. } => {
            let message = format!("{source} could not be used: {}.", detail.trim_end_matches('.'));
            let unread =
                Candidate::new(Status::Unknown, Severity::Warn, R::from(cause), message).after(RAISE);
            Some(unread.advice("Let the root helper read it, or run this check as root; if it is broken, register the node again."))
        }
        _ => None,
    }
}

/// Strict verification, and the authorities that are pinned.
fn trust(view: &View<'_>) -> Option<Candidate> {
    let agent = view.agent;
    let connection = agent.connection.value()?;
    let strict = agent.strict_verify.value().copied().unwrap_or(false);
    let server = &connection.server;
    match &connection.authorities {
        Fact::Known { value, .. } if !value.is_empty() => {
            let last = value.iter().max_by_key(|ca| ca.not_after)?;
            let validity = |now| match last.not_after.since(now) {
                _ if last.not_after <= now => Validity::Ended,
                left if left.as_secs() < AHEAD * DAY => Validity::Ending(Severity::Warn),
                _ => Validity::Good,
            };
            let here = validity(view.now);
            let doubt = view.clock.doubt(here, validity);
            if here == Validity::Good && doubt.is_none() {
                return None;
            }
            let severity = if strict { here.severity() } else { Severity::Warn }.max(Severity::Warn);
            let what = match here {
                Validity::Ended => format!("ended on {}", Moment(last.not_after)),
                _ => format!("ends in {}", Span(last.not_after.since(view.now))),
            };
            let then = if strict {
                ""
            } else {
                " It falls back to the system's store then, for it does not verify strictly."
            };
            let message = format!(
                "The authority that rancher-system-agent pins for {server} ({}) {what}.{then}",
                last.subject
            );
            let renew = if here == Validity::Ended {
                "Renew Rancher's CA (setting cacerts), and register the nodes again with its new checksum at once."
            } else {
                "Renew Rancher's CA (setting cacerts), and register the nodes again with its new checksum before the old one ends."
            };
            if let Some(doubt) = doubt {
                let if_right = if here == Validity::Ended { renew } else { "" };
                let unsure =
                    Candidate::new(Status::Unknown, severity, R::CertificateClockUnsure, doubt.on(&message));
                return Some(unsure.advice(doubt.advice(if_right)));
            }
            Some(Candidate::fault(severity, R::RancherAgentCaUnfit, message).advice(renew))
        }
        Fact::Absent { .. } | Fact::Known { .. } if strict => {
            let message = format!(
                "rancher-system-agent verifies strictly and pins no authority for {server}: it works only while the system's \
                 store trusts the certificate there."
            );
            Some(Candidate::fault(Severity::Warn, R::RancherAgentCaUnfit, message).advice(
                "With a certificate of a private CA this fails for certain: set cacerts in Rancher and register the node again \
                 with its checksum. With a public one, agent-tls-mode system-store says the same without the trap.",
            ))
        }
        Fact::Unknown { detail, .. } => {
            let message = format!(
                "The authority that rancher-system-agent should trust for {server} cannot be read: {}.",
                detail.trim_end_matches('.')
            );
            Some(
                Candidate::fault(Severity::Error, R::RancherAgentCaUnfit, message)
                    .after(RAISE)
                    .advice("Register the node again; the file's certificate-authority-data is broken."),
            )
        }
        _ => None,
    }
}

fn good(view: &View<'_>) -> Candidate {
    let agent = view.agent;
    let server = agent.connection.value().map(|c| c.server.clone()).filter(|s| !s.is_empty());
    let to = server.map_or("without a connection to Rancher".to_owned(), |server| format!("to {server}"));
    let pinned = match agent.connection.value().map(|c| &c.authorities) {
        Some(Fact::Known { value, .. }) if !value.is_empty() => {
            format!("pins {}", names(value.iter().map(|ca| ca.subject.as_str()), 2))
        }
        _ => "trusts the system's store".to_owned(),
    };
    let mode = match &agent.strict_verify {
        Fact::Known { value: true, .. } => "strictly",
        Fact::Unknown { .. } => "with a strictness that could not be read",
        _ => "with the system's store as a way out",
    };
    let plans = agent.plans.value().filter(|p| p.begun > 0).map(|p| {
        let last = p.last_begun.map(|at| format!(", the last at {}", Moment(at))).unwrap_or_default();
        format!("; {} begun{last}", Count(p.begun as usize, "plan"))
    });
    let message =
        format!("rancher-system-agent goes {to}, {pinned} and verifies {mode}{}.", plans.unwrap_or_default());
    Candidate::new(Status::True, Severity::Ok, R::RancherAgentConnected, message)
}
