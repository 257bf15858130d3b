//! Whether a node is heard: `Ready` as the coordinator judges it.
//!
//! Silence is judged by a clock that only goes forward, against the interval the node itself announced with its last
//! heartbeat. After a restart of the coordinator nobody was heard "in this run", so the count begins at the restart:
//! a coordinator that was away must not call the whole fleet silent.

use std::sync::Arc;
use std::time::Duration;

use outrider_diagnosis::Finding;
use outrider_protocol::{Condition, ConditionType, ReasonCode, Severity, Status, Timestamp};
use serde::{Deserialize, Serialize};

/// The interval assumed of a node that has not announced one.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(30);
/// After so long without a first report, the condition is a warning.
const NEVER_REPORTED_WARNS: Duration = Duration::from_secs(600);
/// A clock this far off may keep a node from reporting at all: certificates begin an hour before they are issued.
const SKEW_WARNS: Duration = Duration::from_secs(3600);
/// After so long without a first report, such a clock is the reason.
const SKEW_WARNS_AFTER: Duration = Duration::from_secs(30);
/// After so long in silence, the condition is an error.
const SILENCE_IS_ERROR: Duration = Duration::from_secs(300);

/// What is known of a node's voice.
#[derive(Clone, Debug)]
pub(crate) struct Hearing {
    /// Time since it was last heard in this run or, when it was not, since the coordinator began to listen for it.
    pub(crate) quiet: Duration,
    /// True when it was heard in this run.
    pub(crate) heard_in_this_run: bool,
    /// When it was last heard, in this run or before; `None` when never.
    pub(crate) last_seen: Option<Timestamp>,
    /// Time between its heartbeats.
    pub(crate) interval: Duration,
    /// Its peers do not reach it, and it did not answer when it was asked.
    pub(crate) is_lost: bool,
    /// When it enrolled.
    pub(crate) enrolled_at: Timestamp,
    /// Its clock minus ours when it enrolled, in milliseconds.
    pub(crate) clock_skew_ms: i64,
    /// Its virtual machine was deleted.
    pub(crate) retired: Option<Arc<Retired>>,
}

/// What is known of the virtual machine of a node, once it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Retired {
    /// `namespace/name` at Harvester.
    pub(crate) machine: String,
    /// UID of the `VirtualMachine`.
    pub(crate) vm_uid: String,
    /// When it was first seen not to be there any more.
    pub(crate) gone_at: Timestamp,
}

/// After so long nothing heard is silence. One that was lost by its peers and owes an answer is given one interval.
pub(crate) fn limit(interval: Duration, silent_after: u32, is_lost: bool) -> Duration {
    interval.saturating_mul(if is_lost { 1 } else { silent_after })
}

/// The finding `Ready=Unknown` of a node that is not heard; `None` while it is.
pub(crate) fn judge(hearing: &Hearing, silent_after: u32, now: Timestamp) -> Option<Finding> {
    let limit = limit(hearing.interval, silent_after, hearing.is_lost);
    if let Some(retired) =
        hearing.retired.as_deref().filter(|_| hearing.last_seen.is_none() || hearing.quiet > limit)
    {
        return Some(judge_retired(hearing, retired, now));
    }
    let Some(last_seen) = hearing.last_seen else {
        let waited = now.since(hearing.enrolled_at);
        let skew = Duration::from_millis(hearing.clock_skew_ms.unsigned_abs());
        let is_off = skew >= SKEW_WARNS && waited >= SKEW_WARNS_AFTER;
        let severity = if waited >= NEVER_REPORTED_WARNS || is_off { Severity::Warn } else { Severity::Info };
        let clock = match is_off {
            true if hearing.clock_skew_ms < 0 => format!("; its clock was {} behind this one's", words(skew)),
            true => format!("; its clock was {} ahead of this one's", words(skew)),
            false => String::new(),
        };
        let message =
            format!("Enrolled {} ago and has not reported yet{clock}.", words(waited.max(hearing.quiet)));
        let advice = "Look at the agent on the node: outrider-agent status, journalctl -u outrider-agent. \
                      Its clock, its way to this coordinator, and the certificate it was given are the usual causes.";
        return Some(finding(severity, ReasonCode::NodeNeverReported, message, advice, now));
    };
    if hearing.quiet <= limit {
        return None;
    }
    let severity = if hearing.quiet >= SILENCE_IS_ERROR { Severity::Error } else { Severity::Warn };
    let message = if hearing.is_lost {
        format!(
            "Not heard for {}: it announced a heartbeat every {}, did not answer when it was asked, and at least two other \
             nodes do not reach its etcd member either.",
            words(hearing.quiet),
            words(hearing.interval),
        )
    } else if hearing.heard_in_this_run {
        format!(
            "Not heard for {}: it announced a heartbeat every {} and counts as silent after {} of them ({}).",
            words(hearing.quiet),
            words(hearing.interval),
            silent_after,
            words(limit),
        )
    } else {
        format!(
            "Not heard since this coordinator started {} ago; the last stored report is of {last_seen} ({} ago).",
            words(hearing.quiet),
            words(now.since(last_seen)),
        )
    };
    let advice = "Is the machine on, and its network? On it: outrider-agent status, journalctl -u outrider-agent. \
                  The other conditions show what was last reported, with its age.";
    Some(finding(severity, ReasonCode::NodeSilent, message, advice, now))
}

/// One that is silent because there is no machine any more: nobody's trouble.
fn judge_retired(hearing: &Hearing, retired: &Retired, now: Timestamp) -> Finding {
    let last = match hearing.last_seen {
        Some(at) => format!("the node was last heard {} ago", words(now.since(at))),
        None => "the node was never heard".to_owned(),
    };
    let message = format!(
        "Its machine {} was deleted at Harvester (seen {} ago), and {last}: it is retired, and its cluster does not wait for it.",
        retired.machine,
        words(now.since(retired.gone_at)),
    );
    let advice = "Nothing is to be done. outrider revoke NODE takes it off the lists for good; an etcd member that it left behind is \
                  named by its cluster's EtcdMembership.";
    finding(Severity::Info, ReasonCode::NodeRetired, message, advice, now)
}

fn finding(
    severity: Severity,
    reason: ReasonCode,
    message: String,
    advice: &str,
    observed_at: Timestamp,
) -> Finding {
    Finding::new(ConditionType::Ready, Status::Unknown, severity, reason, observed_at, message).advice(advice)
}

/// `Ready=True` of a node that is heard and whose own report carries no `Ready`.
pub(crate) fn heard(now: Timestamp) -> Condition {
    Condition {
        condition_type: ConditionType::Ready,
        status: Status::True,
        severity: Severity::Ok,
        reason: ReasonCode::NodeHeard,
        message: "The node reports in time.".to_owned(),
        advice: String::new(),
        subject: String::new(),
        last_transition_time: now,
        observed_at: now,
    }
}

/// A duration in words of two units at most, such as `3 min 20 s`.
pub(crate) fn words(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0 => format!("{} ms", d.as_millis()),
        1..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_796_000_000;

    fn hearing(quiet: u64) -> Hearing {
        Hearing {
            quiet: Duration::from_secs(quiet),
            heard_in_this_run: true,
            last_seen: Some(Timestamp::from_seconds(NOW - i64::try_from(quiet).unwrap())),
            interval: Duration::from_secs(10),
            is_lost: false,
            enrolled_at: Timestamp::from_seconds(NOW - 10_000),
            clock_skew_ms: 0,
            retired: None,
        }
    }

    fn judged(h: &Hearing) -> Option<(Severity, ReasonCode, String)> {
        judge(h, 3, Timestamp::from_seconds(NOW)).map(|f| (f.severity, f.reason, f.message))
    }

    #[test]
    fn three_intervals_are_the_limit() {
        assert_eq!(judged(&hearing(30)), None);
        let (severity, reason, message) = judged(&hearing(31)).unwrap();
        assert_eq!((severity, reason), (Severity::Warn, ReasonCode::NodeSilent));
        assert!(
            message.contains("31 s") && message.contains("10 s") && message.contains("30 s"),
            "{message}"
        );
        assert_eq!(judged(&hearing(301)).unwrap().0, Severity::Error);
    }

    #[test]
    fn one_that_nobody_reaches_and_that_owes_an_answer_is_silent_after_one_interval() {
        let lost = |quiet| Hearing { is_lost: true, ..hearing(quiet) };
        assert_eq!(judged(&lost(10)), None);
        let (_, reason, message) = judged(&lost(11)).unwrap();
        assert_eq!(reason, ReasonCode::NodeSilent);
        assert!(message.contains("11 s") && message.contains("two other nodes"), "{message}");
    }

    #[test]
    fn one_whose_machine_is_deleted_is_retired_while_it_is_silent() {
        let machine = Retired {
            machine: "prod/n1".to_owned(),
            vm_uid: "u".to_owned(),
            gone_at: Timestamp::from_seconds(NOW - 120),
        };
        let of = |quiet| Hearing { retired: Some(Arc::new(machine.clone())), ..hearing(quiet) };
        assert_eq!(judged(&of(30)), None, "it is heard");
        let (severity, reason, message) = judged(&of(900)).unwrap();
        assert_eq!((severity, reason), (Severity::Info, ReasonCode::NodeRetired));
        assert!(
            message.contains("prod/n1") && message.contains("2 min 0 s") && message.contains("15 min 0 s"),
            "{message}"
        );
        let never = Hearing { last_seen: None, ..of(5) };
        assert!(judged(&never).unwrap().2.contains("never heard"));
    }

    #[test]
    fn a_restart_of_the_coordinator_starts_the_count_anew() {
        let mut h = hearing(20);
        h.heard_in_this_run = false;
        h.last_seen = Some(Timestamp::from_seconds(NOW - 86_400));
        assert_eq!(judged(&h), None);
        h.quiet = Duration::from_secs(40);
        let message = judged(&h).unwrap().2;
        assert!(
            message.contains("this coordinator started 40 s ago") && message.contains("1 d 0 h"),
            "{message}"
        );
    }

    #[test]
    fn a_node_that_never_reported_is_not_called_silent() {
        let mut h = hearing(5);
        h.last_seen = None;
        assert_eq!(judged(&h).unwrap().1, ReasonCode::NodeNeverReported);
        assert_eq!(judged(&h).unwrap().0, Severity::Warn);
        h.enrolled_at = Timestamp::from_seconds(NOW - 5);
        assert_eq!(judged(&h).unwrap().0, Severity::Info);
        h.clock_skew_ms = -90_000_000;
        assert_eq!(judged(&h).unwrap().0, Severity::Info);
        h.enrolled_at = Timestamp::from_seconds(NOW - 60);
        let (severity, _, message) = judged(&h).unwrap();
        assert_eq!(severity, Severity::Warn);
        assert!(message.contains("1 d 1 h behind"), "{message}");
    }
}
