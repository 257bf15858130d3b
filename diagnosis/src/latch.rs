//! Hysteresis: what is shown changes only when the findings have held for long enough.
//!
//! A condition's verdict is its status, reason and severity. The first verdict about a subject is shown at once. After
//! that a worse one waits for `raise_after` and a better one for `clear_after`; findings that return to what is shown
//! drop the wait. Worse is decided by status (`True` < `Unknown` < `False`), then by severity; an equally bad one with
//! another reason waits as a worse one does; one that is better by status and graver by severity waits for both. Five
//! choices deserve their reason (a finding that escalates is taken as the graver one it has become):
//!
//! - The wait runs on while the findings agree on the status and on being worse (or better), even if the reason
//!   changes meanwhile: two causes that take turns must not hold an alarm back for ever.
//! - A change of severity alone is told as a transition, for a warning that becomes an error must reach people; but
//!   `lastTransitionTime` stays, for status and reason still hold since then.
//! - A finding that tells since when it has held begins its wait there, for evidence travels: what is certain after a second
//!   must not become certain a second after it was heard of.
//! - What lasts too short a time to alarm anybody (one of three members, restarted) may be shown early, without alarm: else a
//!   condition would tell numbers that have not been true for half a minute.
//! - A wait that began in the future (the clock stepped back) begins anew now, so that no step freezes a latch.

use std::time::Duration;

use outrider_protocol::{
    Check, Condition, ConditionType, Latch, Pending, ReasonCode, Severity, Status, Timestamp, Transition,
};

use crate::candidate;
use crate::finding::{Blind, Finding, Judgement, within_range};

/// How long a check must be blind, over two reads at least, before its conditions become unknown.
const BLIND_AFTER: Duration = Duration::from_secs(5);

/// After this long a single failed read counts: a slow check may not read again for many minutes.
const BLIND_WITHOUT_SECOND_READ: Duration = Duration::from_secs(60);

/// What is in force after a judgement, and what changed by it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latched {
    /// To be given to the next [`latch`].
    pub latches: Vec<Latch>,
    /// What is shown, in the order of types, then subjects.
    pub conditions: Vec<Condition>,
    /// What changed, in the same order.
    pub transitions: Vec<Transition>,
    /// When the same judgement is next latched otherwise than now: the end of the first wait. `None` while nothing waits.
    pub due: Option<Timestamp>,
}

/// Raises and clears: `previous` latches and a judgement in, what is shown and what changed out.
///
/// Subjects that a check no longer names are removed; conditions of a check that was not read at all stay as they are;
/// conditions of a blind check become unknown. Latching the same judgement twice at one instant changes nothing.
pub fn latch(previous: &[Latch], judgement: &Judgement, now: Timestamp) -> Latched {
    let mut before: Vec<&Latch> = previous.iter().collect();
    before.sort_by(|a, b| a.condition.key().cmp(&b.condition.key()));
    before.dedup_by(|later, first| later.condition.key() == first.condition.key());
    let found = worst_by_key(&judgement.findings);

    let latches = Vec::with_capacity(found.len());
    let mut turn = Turn { now, latches, transitions: Vec::new(), due: None };
    let (mut before, mut found) = (before.into_iter().peekable(), found.into_iter().peekable());
    loop {
        let order = match (before.peek(), found.peek()) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(b), Some(f)) => b.condition.key().cmp(&f.key()),
        };
        let old = if order.is_le() { before.next() } else { None };
        let new = if order.is_ge() { found.next() } else { None };
        match (old, new) {
            (Some(old), Some(new)) => match escalated(old, new, now) {
                Some(graver) => turn.weigh(old, &graver, None),
                None => turn.weigh(old, new, None),
            },
            (None, Some(new)) => turn.adopt_first(new),
            (Some(old), None) => turn.without_finding(old, judgement),
            (None, None) => break,
        }
    }
    for blind in &judgement.blind {
        let in_sight = turn
            .latches
            .iter()
            .any(|l| l.condition.condition_type.check_of(&l.condition.subject) == blind.check);
        if let (false, Some(main)) = (in_sight, main_type(&blind.check)) {
            turn.adopt_first(&blindness(blind, main, ""));
        }
    }
    turn.latches.sort_by(|a, b| a.condition.key().cmp(&b.condition.key()));
    turn.transitions.sort_by(|a, b| a.condition.key().cmp(&b.condition.key()));
    let conditions = turn.latches.iter().map(|l| l.condition.clone()).collect();
    Latched { latches: turn.latches, conditions, transitions: turn.transitions, due: turn.due }
}

/// One finding a key, the worst by the rules' own order (`candidate`): a mount or a balancer named twice must not flip from
/// one to the other.
fn worst_by_key(findings: &[Finding]) -> Vec<&Finding> {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by(|a, b| {
        let worse = |f: &Finding| candidate::badness(f.status, f.severity);
        let worse_first = worse(b).cmp(&worse(a));
        a.key().cmp(&b.key()).then(worse_first).then_with(|| a.reason.cmp(&b.reason))
    });
    sorted.dedup_by(|later, first| later.key() == first.key());
    sorted
}

struct Turn {
    now: Timestamp,
    latches: Vec<Latch>,
    transitions: Vec<Transition>,
    due: Option<Timestamp>,
}

impl Turn {
    /// Notes that something changes `wait` after `since`, unless that has passed.
    fn wake(&mut self, since: Timestamp, wait: Duration) {
        // A timestamp cuts to milliseconds: not before the wait is over.
        let at = since.after(wait + Duration::from_nanos(999_999));
        if at > self.now {
            self.due = Some(self.due.map_or(at, |due| due.min(at)));
        }
    }

    fn adopt_first(&mut self, finding: &Finding) {
        let condition = condition_of(finding, self.now);
        self.transitions.push(transition(self.now, &condition, None));
        self.latches.push(Latch { condition, pending: None });
    }

    fn without_finding(&mut self, old: &Latch, judgement: &Judgement) {
        let check = old.condition.condition_type.check_of(&old.condition.subject);
        if let Some(blind) = judgement.blind.iter().find(|b| b.check == check) {
            let finding = blindness(blind, old.condition.condition_type.clone(), &old.condition.subject);
            self.weigh(old, &finding, Some(blind.at));
        } else if judgement.has_read(&check) {
            let gone = transition(self.now, &old.condition, Some(&old.condition));
            self.transitions.push(Transition { removed: true, ..gone });
        } else {
            self.latches.push(old.clone());
        }
    }

    /// Weighs `finding` against what is shown. One that a single read gave, at `read`, must be confirmed by a second or by
    /// a longer wait.
    fn weigh(&mut self, old: &Latch, finding: &Finding, read: Option<Timestamp>) {
        let shown = &old.condition;
        let same_word = finding.status == shown.status && finding.reason == shown.reason;
        if same_word && finding.severity == shown.severity {
            let mut condition = shown.clone();
            refresh(&mut condition, finding);
            return self.latches.push(Latch { condition, pending: None });
        }

        let shown_badness = badness(shown.status, shown.severity);
        let worse = badness(finding.status, finding.severity) >= shown_badness;
        let since = match &old.pending {
            Some(p) if p.since <= self.now && agrees(p, finding) => {
                let was_worse = badness(p.status, p.severity.unwrap_or(finding.severity)) >= shown_badness;
                if was_worse == worse { p.since } else { self.now }
            }
            _ => self.now,
        };
        // What was seen late began before it was seen; a clock that is ahead tells nothing.
        let since = finding.since.filter(|_| worse).map_or(since, |told| told.min(since));
        let wait = match (worse, finding.severity > shown.severity) {
            (true, _) => finding.raise_after,
            (false, false) => finding.clear_after,
            // Better by status and graver by severity (a suspicion that ends with a voter less): both have to pass.
            (false, true) => finding.raise_after.max(finding.clear_after),
        };

        let wait = match read {
            Some(read) if read <= since && !wait.is_zero() => wait.max(BLIND_WITHOUT_SECOND_READ),
            _ => wait,
        };
        if self.now.since(since) >= wait {
            let mut condition = condition_of(finding, self.now);
            if same_word {
                condition.last_transition_time = shown.last_transition_time;
            }
            self.transitions.push(transition(self.now, &condition, Some(shown)));
            return self.latches.push(Latch { condition, pending: None });
        }

        let pending = Pending {
            status: finding.status,
            reason: finding.reason.clone(),
            severity: Some(finding.severity),
            since,
        };
        let waited = self.now.since(since);
        self.wake(since, wait);
        if let Some((after, _)) = finding.early {
            self.wake(since, after);
            self.wake(since, finding.clear_after);
        }
        let condition = match (&finding.suspect, early(shown, finding, waited)) {
            (Some(suspicion), _) if may_suspect(shown, finding, suspicion) => {
                self.suspect(shown, finding, suspicion)
            }
            (_, Some(early)) => self.show_early(shown, finding, early),
            _ => {
                let mut condition = shown.clone();
                if same_word {
                    refresh(&mut condition, finding);
                }
                condition
            }
        };
        self.latches.push(Latch { condition, pending: Some(pending) });
    }

    /// The numbers at once, the alarm later.
    fn show_early(&mut self, shown: &Condition, finding: &Finding, severity: Severity) -> Condition {
        let mut condition = condition_of(finding, self.now);
        condition.severity = severity;
        let seconds = finding.raise_after.as_secs_f64();
        let graver = finding.severity;
        condition.message =
            format!("{} For now: this becomes {graver} once it has held for {seconds} s.", finding.message);
        if shown.status == condition.status && shown.reason == condition.reason {
            condition.last_transition_time = shown.last_transition_time;
        }
        if (shown.status, shown.severity, &shown.reason) != (condition.status, severity, &condition.reason) {
            self.transitions.push(transition(self.now, &condition, Some(shown)));
        }
        condition
    }

    /// Suspicion is shown at once, certainty later.
    fn suspect(&mut self, shown: &Condition, finding: &Finding, suspicion: &ReasonCode) -> Condition {
        let mut condition = condition_of(finding, self.now);
        condition.status = Status::Unknown;
        condition.severity = within_range(suspicion, Severity::Warn);
        condition.reason = suspicion.clone();
        let seconds = finding.raise_after.as_secs_f64();
        condition.message = format!("Not yet certain (it must hold for {seconds} s): {}", finding.message);
        if shown.status == Status::Unknown && shown.reason == *suspicion {
            condition.last_transition_time = shown.last_transition_time;
        } else {
            self.transitions.push(transition(self.now, &condition, Some(shown)));
        }
        condition
    }
}

/// How grave `finding` is while it waits, if it may be shown by now: worse than what is shown, or in place of a doubt.
fn early(shown: &Condition, finding: &Finding, waited: Duration) -> Option<Severity> {
    let (after, most) = finding.early.filter(|_| finding.status == Status::True)?;
    let severity = within_range(&finding.reason, finding.severity.min(most));
    if severity == finding.severity || severity > most {
        return None;
    }
    let wait = match shown.status {
        Status::True if severity >= shown.severity => after,
        Status::True => return None,
        // It ends a doubt or a loss as any good word would.
        Status::Unknown | Status::False => finding.clear_after,
    };
    (waited >= wait).then_some(severity)
}

/// Whether `finding` carries on the wait of `pending`: they agree on the status, or it makes certain what that suspected.
fn agrees(pending: &Pending, finding: &Finding) -> bool {
    pending.status == finding.status || finding.suspect.as_ref() == Some(&pending.reason)
}

/// The finding with the severity it has by the time it has been shown for; `None` while that is its own.
fn escalated(old: &Latch, finding: &Finding, now: Timestamp) -> Option<Finding> {
    let (after, severity) = finding.escalates?;
    let shown = &old.condition;
    let same_word = finding.status == shown.status && finding.reason == shown.reason;
    (same_word && now.since(shown.last_transition_time) >= after).then(|| Finding {
        severity,
        raise_after: Duration::ZERO,
        ..finding.clone()
    })
}

/// Whether the suspicion may be shown in place of `shown`: it is no better than that, and softens no verdict.
fn may_suspect(shown: &Condition, finding: &Finding, suspicion: &ReasonCode) -> bool {
    match (finding.status, shown.status) {
        (Status::True, _) | (_, Status::False) => false,
        (Status::False, _) | (Status::Unknown, Status::True) => true,
        (Status::Unknown, Status::Unknown) => shown.reason == *suspicion && shown.severity <= Severity::Warn,
    }
}

/// How bad a verdict is: by status, then by severity.
fn badness(status: Status, severity: Severity) -> (u8, Severity) {
    let status = match status {
        Status::True => 0,
        Status::Unknown => 1,
        Status::False => 2,
    };
    (status, severity)
}

fn condition_of(finding: &Finding, now: Timestamp) -> Condition {
    Condition {
        condition_type: finding.condition_type.clone(),
        status: finding.status,
        severity: finding.severity,
        reason: finding.reason.clone(),
        message: finding.message.clone(),
        advice: finding.advice.clone(),
        subject: finding.subject.clone(),
        last_transition_time: now,
        observed_at: finding.observed_at,
    }
}

/// New numbers under the same verdict.
fn refresh(condition: &mut Condition, finding: &Finding) {
    condition.message.clone_from(&finding.message);
    condition.advice.clone_from(&finding.advice);
    condition.observed_at = finding.observed_at;
}

fn transition(at: Timestamp, condition: &Condition, before: Option<&Condition>) -> Transition {
    Transition {
        at,
        condition: condition.clone(),
        previous_status: before.map(|c| c.status),
        previous_reason: before.map(|c| c.reason.clone()),
        removed: false,
        merged: 0,
    }
}

fn blindness(blind: &Blind, condition_type: ConditionType, subject: &str) -> Finding {
    let message =
        format!("The check {} could not be read: {}.", blind.check, blind.detail.trim_end_matches('.'));
    Finding::unknown(condition_type, &blind.cause, Severity::Warn, blind.at, message)
        .subject(subject)
        .waits(BLIND_AFTER, BLIND_AFTER)
}

/// The type under which a check that was never read shows that it is blind.
fn main_type(check: &Check) -> Option<ConditionType> {
    Some(match check {
        Check::Host => ConditionType::HostHealthy,
        Check::Clock => ConditionType::ClockSynchronized,
        Check::CloudInit => ConditionType::CloudInitSucceeded,
        Check::GuestAgent => ConditionType::GuestAgentReady,
        Check::Etcd => ConditionType::EtcdQuorum,
        Check::LoadBalancer => ConditionType::LoadBalancerReachable,
        Check::Certificates => ConditionType::CertificatesValid,
        Check::Credentials => ConditionType::CredentialsValid,
        Check::Kubernetes => ConditionType::KubernetesReady,
        Check::Dns => ConditionType::DnsResolves,
        Check::Topology => ConditionType::TopologyInSync,
        Check::RancherAgent => ConditionType::RancherAgentReady,
        Check::Agent => ConditionType::Ready,
        Check::Other(_) => return None,
    })
}
