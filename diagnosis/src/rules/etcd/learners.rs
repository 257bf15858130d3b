//! Learners: how old, how far behind, whether they come closer, and whether they hold up a join
//! (`facts/etcd.md`, section 3; D6, D7, D8).

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EtcdFacts, Fact, LearnerProgress, Member, MemberList, ReasonCode as R, Severity, Status,
    Timestamp,
};

use super::links::link;
use super::view::{display_name, endpoints_of, is_down, ours};
use crate::finding::Finding;
use crate::wording::{Span, names};

const TYPE: ConditionType = ConditionType::EtcdMembership;

/// The leader promotes a learner whose log has come to this share of its own
/// (etcd-io/etcd:server/etcdserver/server.go, `readyPercentThreshold`).
const READY_PERCENT: u64 = 90;
/// Two looks closer together show no trend.
const TREND_AT_LEAST: Duration = Duration::from_secs(10);

/// What reports show of one learner.
#[derive(Debug, Default)]
pub(crate) struct Learner<'a> {
    pub(crate) name: &'a str,
    /// How long it has been a learner, as far as anybody knows.
    pub(crate) age: Option<Duration>,
    /// Its raft index and the furthest of any member.
    pub(crate) index: Option<u64>,
    pub(crate) front: Option<u64>,
    /// How it came on between the first and the last look.
    pub(crate) trend: Option<Trend>,
    /// How long it has not answered anybody; `None` when it answers or was not asked.
    pub(crate) silent_for: Option<Duration>,
    /// Connections on port 2380, a phrase a direction.
    pub(crate) links: Vec<String>,
    /// Nodes that run etcd and are in no member list: they wait.
    pub(crate) waiting: Vec<&'a str>,
}

/// From the first look to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trend {
    pub(crate) before: u64,
    pub(crate) now: u64,
    pub(crate) over: Duration,
}

impl Trend {
    pub(crate) fn of(progress: &[LearnerProgress]) -> Option<Self> {
        let (first, last) = (progress.first()?, progress.last()?);
        let over = last.at.since(first.at);
        let lag = |p: &LearnerProgress| p.front.saturating_sub(p.index);
        (over >= TREND_AT_LEAST).then(|| Self { before: lag(first), now: lag(last), over })
    }

    pub(crate) fn shrinks(self) -> bool {
        self.now < self.before
    }

    /// Time until nothing is missing, at the pace of the looks.
    fn left(self) -> Option<Duration> {
        let gained = self.before.checked_sub(self.now).filter(|g| *g > 0)?;
        let seconds = self.over.as_secs_f64() * (self.now as f64 / gained as f64);
        // A pace that would take years is no pace.
        (seconds < 1e8).then(|| Duration::from_secs_f64(seconds))
    }
}

/// The learners of `list` as this node's facts show them.
pub(super) fn judge(
    etcd: &EtcdFacts,
    list: &MemberList,
    stalled: Duration,
    at: Timestamp,
    now: Timestamp,
) -> Vec<Finding> {
    let learners = list.members.iter().filter(|m| m.is_learner);
    learners.map(|m| finding(&seen_by(etcd, m, now), stalled, at)).collect()
}

/// What one node's facts show of the learner `member`.
pub(crate) fn seen_by<'a>(etcd: &'a EtcdFacts, member: &'a Member, now: Timestamp) -> Learner<'a> {
    let age = etcd.learners_since.get(&member.id).map(|t| now.since(*t));
    let mut index = None;
    let (mut answers, mut silent, mut down_since) = (false, false, None);
    for e in endpoints_of(etcd, member) {
        match &e.status {
            Fact::Known { value, .. } => {
                answers = true;
                index = index.max(Some(value.raft_index));
            }
            // "rpc not supported for learner" is an answer (D7).
            Fact::Unknown { cause, .. } if !is_down(cause) => answers = true,
            _ => {
                silent = true;
                down_since = e.down_since;
            }
        }
    }
    // A learner that was never asked is not silent; one that publishes no address has not come up since it was added.
    let never_up = member.client_urls.is_empty() || member.name.is_empty();
    let silent_for = match (answers, silent, never_up) {
        (true, ..) => None,
        (_, true, _) => Some(down_since.map_or(Duration::ZERO, |t| now.since(t))),
        (_, _, true) => Some(age.unwrap_or_default()),
        _ => None,
    };
    let progress = etcd.learner_progress.get(&member.id).map_or(&[][..], Vec::as_slice);
    let statuses = ours(etcd).filter_map(|e| e.status.value());
    let last = progress.last();
    Learner {
        name: display_name(member),
        age,
        index: index.or(last.map(|p| p.index)),
        front: statuses.map(|s| s.raft_index).max().max(last.map(|p| p.front)),
        trend: Trend::of(progress),
        silent_for,
        links: own_link(etcd, member).into_iter().collect(),
        waiting: Vec::new(),
    }
}

/// How this node's member counts its connection to the learner, for a sentence; nothing where it does not count it.
fn own_link(etcd: &EtcdFacts, member: &Member) -> Option<String> {
    let metrics = etcd.metrics.value()?;
    let to = display_name(member);
    match link(metrics, &member.id) {
        Status::True => Some(format!("this member's connection to {to} stands")),
        Status::False => Some(format!("this member's connection to {to} is down")),
        Status::Unknown => None,
    }
}

/// What is to be said of one learner.
pub(crate) fn finding(learner: &Learner<'_>, stalled: Duration, at: Timestamp) -> Finding {
    let name = learner.name;
    let age_words = learner.age.map(|a| format!(", a learner for {}", Span(a))).unwrap_or_default();
    let new = |severity, reason, message: String| {
        let status = if reason == R::EtcdLearnerBlocking { Status::False } else { Status::True };
        Finding::new(TYPE, status, severity, reason, at, message)
    };
    if let Some(silence) = learner.silent_for.filter(|d| *d >= stalled) {
        let who = match learner.waiting.as_slice() {
            [] => "every further join".to_owned(),
            waiting => format!("the join of {}", names(waiting, 3)),
        };
        let message = format!(
            "Learner {name} has not answered for {}{age_words} (limit {}) and blocks {who} (\"too many learner members\").",
            Span(silence),
            Span(stalled)
        );
        return new(Severity::Warn, R::EtcdLearnerBlocking, message).advice(format!(
            "Bring {name}'s machine back, or, if it is gone for good, a person removes this learner; then {} by itself. \
             Voters are not affected.",
            match learner.waiting.as_slice() {
                [] => "the next node joins".to_owned(),
                [one] => format!("{one} joins"),
                several => format!("{} join one after the other", names(several, 3)),
            }
        ));
    }

    let silence =
        learner.silent_for.map(|d| format!(" and has not answered for {}", Span(d))).unwrap_or_default();
    let links = if learner.links.is_empty() {
        String::new()
    } else {
        format!("; port 2380: {}", names(&learner.links, 6))
    };
    let numbers = format!("{}{}{age_words}{silence}{links}", lag(learner), trend(learner));
    let old = learner.age.is_some_and(|a| a >= stalled);
    let shrinks = learner.trend.is_some_and(Trend::shrinks);
    let ready = learner.percent().is_some_and(|p| p >= READY_PERCENT);
    if old && ready {
        let message = format!("Learner {name} has caught up and is not promoted: {numbers}.");
        return new(Severity::Warn, R::EtcdLearnerLagging, message).advice(format!(
            "The leader promotes a learner from {READY_PERCENT} % on, within 15 s on K3s and RKE2. See the log of the leader \
             for why it does not promote {name}, and whether {name}'s own server has finished its start."
        ));
    }
    if old && !shrinks {
        let message = match learner.trend {
            Some(_) => format!("Learner {name} does not catch up: {numbers}."),
            None => format!("Learner {name} has been catching up for longer than usual: {numbers}."),
        };
        return new(Severity::Warn, R::EtcdLearnerLagging, message).advice(format!(
            "Check that port 2380 is open both ways between {name} and the leader, and how fast {name}'s disk is{}. After \
             5 min without progress K3s and RKE2 take a learner out by themselves, and it tries anew. Do not remove it while \
             it comes closer.",
            if learner.links.is_empty() { " (neither was seen from here)" } else { "" }
        ));
    }
    let message = format!("Learner {name} is joining, catching up: {numbers}; it is not counted as a voter.");
    let left = learner.trend.and_then(Trend::left).filter(|_| !ready);
    new(Severity::Info, R::EtcdLearnerJoining, message).advice(format!(
        "Wait, it is not broken: the leader promotes {name} once it has {READY_PERCENT} % of the log{}. One learner at a time: \
         further nodes join after it.",
        left.map(|d| format!(", at this pace in {} at most", Span(d))).unwrap_or_default()
    ))
}

impl Learner<'_> {
    fn percent(&self) -> Option<u64> {
        let (index, front) = (self.index?, self.front?);
        let percent = u128::from(index) * 100 / u128::from(front.max(1));
        u64::try_from(percent).ok()
    }
}

fn lag(learner: &Learner<'_>) -> String {
    match (learner.index, learner.front, learner.percent()) {
        (Some(index), Some(front), Some(percent)) => {
            format!("raft index {index} of {front} ({percent} %), {} behind", front.saturating_sub(index))
        }
        _ => "its raft index was not read".to_owned(),
    }
}

fn trend(learner: &Learner<'_>) -> String {
    let Some(trend) = learner.trend else { return String::new() };
    let over = Span(trend.over);
    match trend.before.cmp(&trend.now) {
        std::cmp::Ordering::Greater => {
            format!(", the lag shrank by {} in {over}", trend.before - trend.now)
        }
        std::cmp::Ordering::Equal => format!(", the lag has not changed in {over}"),
        std::cmp::Ordering::Less => format!(", the lag grew by {} in {over}", trend.now - trend.before),
    }
}
