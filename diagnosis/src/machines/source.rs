//! `HarvesterReadable`: whether virtual machines can be read at all, and `RancherReadable`: whether what Rancher wants of them
//! can. One condition says so, instead of one a machine that is not there.

use std::time::Duration;

use outrider_protocol::{ConditionType, ReasonCode as R, Severity, Status, Timestamp, UnknownCause};

use crate::finding::{Finding, UNKNOWN_AFTER};
use crate::wording::{Count, Span, names};

/// One that has not been readable for so long is no restart any more.
const LASTS: Duration = Duration::from_secs(600);

/// One kind of object that is read.
#[derive(Clone, Debug)]
pub struct Source {
    /// Resource with its group, such as `virtualmachines.kubevirt.io`.
    pub resource: String,
    /// Whether machines can be judged without it.
    pub is_optional: bool,
    /// How reading it goes.
    pub state: SourceState,
}

/// How reading goes.
#[derive(Clone, Debug)]
pub enum SourceState {
    /// Not tried to its end yet.
    NotYetRead,
    /// Up to date: so many objects.
    Read(usize),
    /// It failed.
    Failed {
        /// The kind of failure.
        cause: UnknownCause,
        /// The failure in words: verb, resource, server, and what came back.
        detail: String,
        /// Since when.
        since: Timestamp,
        /// When it was last up to date; what is shown is as old as that.
        last_read: Option<Timestamp>,
    },
}

/// The condition over all `sources` of the server `server`, named as it is to be shown.
pub fn judge_source(server: &str, sources: &[Source], now: Timestamp) -> Finding {
    let of_machines = |age: Option<Span>| match age {
        Some(age) => format!("what is shown of machines is {age} old"),
        None => "no machine has been read yet, which does not mean that there is none".to_owned(),
    };
    if let Some(unread) = unread(ConditionType::HarvesterReadable, server, sources, of_machines, now) {
        return match sources.iter().find_map(cause) {
            Some(cause) => unread.advice(advice(cause)),
            None => unread,
        };
    }
    let counts = names(sources.iter().filter_map(count), sources.len());
    let missing = sources.iter().find_map(|source| match &source.state {
        SourceState::Failed { detail, .. } => Some((&source.resource, detail)),
        _ => None,
    });
    match missing {
        Some((resource, detail)) => {
            let message = format!(
                "{server} is read and up to date: {counts}. {resource} are not ({detail}), so that region and zone of \
                 hosts are known from the machines' annotations alone."
            );
            Finding::new(
                ConditionType::HarvesterReadable,
                Status::True,
                Severity::Info,
                R::HarvesterPartlyRead,
                now,
                message,
            )
            .advice("Give the coordinator's role list and watch on nodes, if host labels are wanted.")
        }
        None => {
            let message = format!("{server} is read and up to date: {counts}.");
            Finding::new(
                ConditionType::HarvesterReadable,
                Status::True,
                Severity::Ok,
                R::HarvesterRead,
                now,
                message,
            )
        }
    }
}

/// The condition over what is read of Rancher's own cluster at `server`.
pub fn judge_rancher(server: &str, source: &Source, now: Timestamp) -> Finding {
    let of_pools = |age: Option<Span>| match age {
        Some(age) => format!("what it wanted {age} ago is not taken for what it wants now"),
        None => "how many machines are wanted is unknown, which does not mean none".to_owned(),
    };
    let sources = std::slice::from_ref(source);
    if let Some(unread) = unread(ConditionType::RancherReadable, server, sources, of_pools, now) {
        return match cause(source) {
            Some(cause) => unread.advice(rancher_advice(cause)),
            None => unread,
        };
    }
    let message = format!("{server} is read and up to date: {}.", names(count(source), 1));
    Finding::new(ConditionType::RancherReadable, Status::True, Severity::Ok, R::RancherRead, now, message)
}

/// What keeps one of the needed sources from being read, if anything does; `shown` says what that leaves, by the age of what
/// was read last.
fn unread(
    condition: ConditionType,
    server: &str,
    sources: &[Source],
    shown: impl Fn(Option<Span>) -> String,
    now: Timestamp,
) -> Option<Finding> {
    let needed = || sources.iter().filter(|source| !source.is_optional);
    let failed = needed().find_map(|source| match &source.state {
        SourceState::Failed { cause, detail, since, last_read } => Some((cause, detail, *since, *last_read)),
        _ => None,
    });
    if let Some((cause, detail, since, last_read)) = failed {
        let shown = shown(last_read.map(|at| Span(now.since(at))));
        let message = format!("Not readable for {}: {detail}; {shown}.", Span(now.since(since)));
        let finding = Finding::unknown(condition, cause, Severity::Warn, now, message)
            // A server that is started anew is back sooner.
            .waits(UNKNOWN_AFTER, Duration::ZERO)
            .holds_since(Some(since))
            .escalates(LASTS, Severity::Error);
        return Some(finding);
    }
    needed().any(|source| matches!(source.state, SourceState::NotYetRead)).then(|| {
        let message = format!("{server} has not been read to its end yet.");
        Finding::unknown(condition, &UnknownCause::NotYetRead, Severity::Info, now, message)
            .waits(Duration::ZERO, Duration::ZERO)
    })
}

/// Why it failed, of a source that is needed.
fn cause(source: &Source) -> Option<&UnknownCause> {
    match &source.state {
        SourceState::Failed { cause, .. } if !source.is_optional => Some(cause),
        _ => None,
    }
}

fn rancher_advice(cause: &UnknownCause) -> &'static str {
    match cause {
        UnknownCause::Unauthenticated => {
            "The token or certificate in Rancher's kubeconfig is not accepted: it was revoked, has ended, or is of another cluster. \
             Put a new kubeconfig in its place; it is read again by itself."
        }
        UnknownCause::Forbidden => {
            "Give the account in Rancher's kubeconfig the role of /usr/share/outrider/outrider-coordinator-rancher.yaml (list and \
             watch of clusters.provisioning.cattle.io, nothing else) in the namespace that is read. It is tried again by itself."
        }
        UnknownCause::Unsupported => {
            "The server does not know clusters.provisioning.cattle.io: the kubeconfig must be of the cluster that Rancher itself runs \
             in, not of Harvester or of a guest cluster."
        }
        UnknownCause::InvalidInput | UnknownCause::IoError | UnknownCause::PermissionDenied => {
            "Correct the file that --rancher-kubeconfig names; it is read again by itself."
        }
        cause => crate::finding::advice_for_cause(cause),
    }
}

fn count(source: &Source) -> Option<String> {
    match source.state {
        SourceState::Read(n) => Some(format!("{n} {}", source.resource)),
        _ => None,
    }
}

fn advice(cause: &UnknownCause) -> &'static str {
    match cause {
        UnknownCause::Unauthenticated => {
            "The token or certificate in the kubeconfig is not accepted: it was revoked, has ended, or is of another Harvester. \
             Put a new kubeconfig in its place; it is read again by itself."
        }
        UnknownCause::Forbidden => {
            "Give the account in the kubeconfig the role of /usr/share/outrider/outrider-coordinator-harvester.yaml (list and \
             watch, nothing else), bound in every namespace that is read. It is tried again by itself."
        }
        UnknownCause::Unsupported => {
            "The server does not know virtual machines: the kubeconfig must be of the Harvester cluster, not of a guest cluster or \
             of Rancher."
        }
        UnknownCause::InvalidInput | UnknownCause::IoError | UnknownCause::PermissionDenied => {
            "Correct the file that --harvester-kubeconfig names; it is read again by itself."
        }
        cause => crate::finding::advice_for_cause(cause),
    }
}

/// How many of the sources are up to date, in words.
impl std::fmt::Display for SourceState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SourceState::NotYetRead => f.write_str("not read yet"),
            SourceState::Read(n) => write!(f, "{}", Count(*n, "object")),
            SourceState::Failed { detail, .. } => f.write_str(detail),
        }
    }
}
