//! Learners: how old, how far behind, whether they come closer, what they wait for, and whether they hold up a join
//! (`facts/etcd.md`, section 3; D6, D7, D8).

use std::borrow::Cow;
use std::time::Duration;

use outrider_protocol::{
    ConditionType, Distribution, EndpointFacts, EtcdFacts, Fact, LearnerProgress, Member, MemberList,
    ReasonCode as R, Severity, Status, Timestamp,
};

use super::ghosts::removal_needs;
use super::links::link;
use super::rebuilt::Leftovers;
use super::view::{
    Silence, answers_itself, display_name, endpoints_of, is_down, lacks_leader, member_of, name_of, ours,
    service, with_id,
};
use crate::finding::Finding;
use crate::wording::{Span, names};

const TYPE: ConditionType = ConditionType::EtcdMembership;

/// The leader promotes a learner whose log has come to this share of its own
/// (etcd-io/etcd:server/etcdserver/server.go, `readyPercentThreshold`).
const READY_PERCENT: u64 = 90;
/// Two looks closer together show no trend.
const TREND_AT_LEAST: Duration = Duration::from_secs(10);
/// Four of the rounds in which K3s and RKE2 promote (`facts/etcd.md`, section 3): whoever is ready for longer is stuck.
const PROMOTED_WITHIN: Duration = Duration::from_secs(60);

/// What is known of one learner.
#[derive(Debug)]
pub(crate) struct Learner<'a> {
    pub(crate) name: &'a str,
    /// Name and id.
    pub(crate) with_id: String,
    /// How long it has been a learner, as far as anybody knows.
    pub(crate) age: Option<Duration>,
    /// Its raft index and the furthest of any member.
    pub(crate) index: Option<u64>,
    pub(crate) front: Option<u64>,
    /// How it came on between the first and the last look.
    pub(crate) trend: Option<Trend>,
    /// How long it has been near enough to be promoted, by the looks.
    pub(crate) ready_for: Option<Duration>,
    /// It answers nobody who asked.
    pub(crate) is_silent: bool,
    /// For how long, where anybody knows.
    pub(crate) silent_for: Option<Duration>,
    /// How it is silent, and where.
    pub(crate) silence: Option<(Silence, &'a str)>,
    /// The peer URLs of one that has never started.
    pub(crate) unstarted_at: Option<Cow<'a, str>>,
    /// Connections on port 2380, a phrase a direction.
    pub(crate) links: Vec<String>,
    /// Nodes that run etcd and are in no member list: they wait.
    pub(crate) waiting: Vec<&'a str>,
    /// Who runs the cluster: by that it is told who promotes.
    pub(crate) distribution: Option<&'a Distribution>,
    /// The leader that somebody sees, by name; `Some("")` where all that answer see none.
    pub(crate) leader: Option<&'a str>,
    /// It answers and sees no leader itself.
    pub(crate) sees_none: bool,
    /// Whether quorum holds, as `EtcdQuorum` says: without one nothing is promoted, nor removed.
    pub(crate) quorum: Status,
    /// Why nothing will become of it: its node runs another member now.
    pub(crate) leftover: Option<String>,
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

/// The learners of `list` as this node's facts show them; `leftovers` are the members whose node runs another one now.
pub(super) fn judge(
    etcd: &EtcdFacts,
    list: &MemberList,
    leftovers: &Leftovers<'_>,
    quorum: Status,
    stalled: Duration,
    (at, now): (Timestamp, Timestamp),
) -> Vec<Finding> {
    let learners = list.members.iter().enumerate().filter(|(_, m)| m.is_learner);
    let found = learners.map(|(i, m)| {
        let learner = Learner { leftover: leftovers.words(i), quorum, ..seen_by(etcd, m, now) };
        on_this_node(finding(&learner, stalled, at), etcd, &m.id)
    });
    found.collect()
}

/// The peers that a learner on this node does not hear, in words: it counts its connections to all of them as down, and its log
/// does not grow. A learner takes part in no election, so it goes on naming the leader it heard last (etcd-io/raft, `raft.go`,
/// `tickElection`).
pub(super) fn cut_off(etcd: &EtcdFacts, id: &str) -> Option<String> {
    let is_here = |e: &EndpointFacts| e.local && member_of(e) == Some(id);
    let metrics = etcd.metrics.value().filter(|_| etcd.endpoints.iter().any(is_here))?;
    let peers = &metrics.latest.peers;
    let progress = etcd.learner_progress.get(id).map_or(&[][..], Vec::as_slice);
    let grows = progress.first().zip(progress.last()).is_some_and(|(first, last)| last.index > first.index);
    let all_down = !peers.is_empty() && peers.keys().all(|peer| link(metrics, peer) == Status::False);
    (all_down && !grows).then(|| names(peers.keys().map(|peer| name_of(etcd.members.value(), peer)), 7))
}

/// What there is to do about a learner that hears nobody.
pub(super) fn cut_off_advice(peers: &str) -> String {
    format!(
        "First see EtcdQuorum of a server whose member votes: without a quorum nobody sends a learner the log or promotes it. If one \
         holds there, check port 2380 between this node and {peers}, both ways. Do not restart etcd because of it."
    )
}

/// `finding` of a learner, with what this node's own member counts against "wait" if it is the one.
fn on_this_node(finding: Finding, etcd: &EtcdFacts, id: &str) -> Finding {
    let Some(peers) = cut_off(etcd, id).filter(|_| finding.advice.starts_with("Wait")) else {
        return finding;
    };
    let message = format!(
        "{} Its connections on port 2380 to {peers} are all down, so nobody sends it the log.",
        finding.message
    );
    Finding { severity: Severity::Warn, reason: R::EtcdLearnerLagging, message, ..finding }
        .advice(cut_off_advice(&peers))
}

/// What one node's facts show of the learner `member`.
pub(crate) fn seen_by<'a>(etcd: &'a EtcdFacts, member: &'a Member, now: Timestamp) -> Learner<'a> {
    let age = etcd.learners_since.get(&member.id).map(|t| now.since(*t));
    let mut index = None;
    let mut sees_none = false;
    let (mut answers, mut silent, mut down_since) = (false, false, None);
    let mut silence = None;
    for e in endpoints_of(etcd, member) {
        match &e.status {
            Fact::Known { value, .. } if answers_itself(e, member) => {
                answers = true;
                index = index.max(Some(value.raft_index));
                sees_none = lacks_leader(value);
            }
            // "rpc not supported for learner" is an answer (D7).
            Fact::Unknown { cause, .. } if !is_down(cause) => answers = true,
            _ => {
                silent = true;
                down_since = e.down_since;
                silence = Silence::of(e).map(|how| (how, e.endpoint.as_str()));
            }
        }
    }
    // A learner that was never asked is not silent; one that publishes no address has not come up since it was added.
    let never_up = member.client_urls.is_empty() || member.name.is_empty();
    let is_silent = !answers && (silent || never_up);
    let silent_for = match (is_silent, silent) {
        (true, true) => down_since.map(|t| now.since(t)),
        (true, false) => age,
        _ => None,
    };
    let progress = etcd.learner_progress.get(&member.id).map_or(&[][..], Vec::as_slice);
    let statuses = || ours(etcd).filter_map(|e| e.status.value());
    let last = progress.last();
    let leads = statuses().find(|s| !lacks_leader(s)).map(|s| s.leader.as_str());
    let leader = leads.map(|id| name_of(etcd.members.value(), id)).or(statuses().next().map(|_| ""));
    Learner {
        name: display_name(member),
        with_id: with_id(member),
        age,
        index: index.or(last.map(|p| p.index)),
        front: statuses().map(|s| s.raft_index).max().max(last.map(|p| p.front)),
        trend: Trend::of(progress),
        ready_for: ready_for(progress),
        is_silent,
        silent_for,
        silence: silence.filter(|_| is_silent),
        unstarted_at: (member.name.is_empty() && !answers && !silent).then(|| recorded(member)),
        links: own_link(etcd, member).into_iter().collect(),
        waiting: Vec::new(),
        distribution: Some(&etcd.distribution),
        leader,
        sees_none,
        quorum: Status::Unknown,
        leftover: None,
    }
}

/// Where the list says that the member is to be found, for a sentence.
pub(super) fn recorded(member: &Member) -> Cow<'_, str> {
    match names(member.peer_urls.iter().filter(|url| !url.trim().is_empty()), 2) {
        none if none.is_empty() => "an address that nobody recorded".into(),
        urls => urls.into(),
    }
}

/// How long the last looks have shown it near enough to be promoted; `None` without looks.
fn ready_for(progress: &[LearnerProgress]) -> Option<Duration> {
    let last = progress.last()?;
    let is_ready = |p: &&LearnerProgress| share(p.index, p.front).is_some_and(|p| p >= READY_PERCENT);
    let since = progress.iter().rev().take_while(is_ready).last();
    Some(since.map_or(Duration::ZERO, |first| last.at.since(first.at)))
}

fn share(index: u64, front: u64) -> Option<u64> {
    u64::try_from(u128::from(index) * 100 / u128::from(front.max(1))).ok()
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
        let gone = matches!(reason, R::EtcdLearnerBlocking | R::EtcdGhostMember);
        Finding::new(TYPE, if gone { Status::False } else { Status::True }, severity, reason, at, message)
    };
    if let Some(leftover) = &learner.leftover {
        let message = format!(
            "Learner {} is left over: {leftover}. It has no vote{age_words}, and blocks every further join (\"too many learner \
             members\").",
            learner.with_id
        );
        return new(Severity::Warn, R::EtcdGhostMember, message).advice(format!(
            "Nothing will become of it: {}",
            learner.removal("nothing runs as it any more")
        ));
    }
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
            "{} If its machine is gone for good: {} Then {} by itself. Voters are not affected.",
            learner.start(),
            learner.removal("its machine is gone for good"),
            match learner.waiting.as_slice() {
                [] => "the next node joins".to_owned(),
                [one] => format!("{one} joins"),
                several => format!("{} join one after the other", names(several, 3)),
            }
        ));
    }

    let silence = match learner.silent_for {
        Some(d) => format!(" and has not answered for {}", Span(d)),
        None if learner.is_silent => " and does not answer, nobody knows since when".to_owned(),
        None => String::new(),
    };
    let links = if learner.links.is_empty() {
        String::new()
    } else {
        format!("; port 2380: {}", names(&learner.links, 6))
    };
    let numbers = format!("{}{}{age_words}{silence}{links}", lag(learner), trend(learner));
    let old = learner.age.is_some_and(|a| a >= stalled);
    let (severity, reason) =
        if old { (Severity::Warn, R::EtcdLearnerLagging) } else { (Severity::Info, R::EtcdLearnerJoining) };
    if learner.has_no_leader() {
        let message = format!("Learner {name} waits for a leader, and nobody sees one now: {numbers}.");
        return new(severity, reason, message).advice(learner.no_leader());
    }
    if let Some(leader) = learner.leader.filter(|_| learner.sees_none) {
        let message = format!("Learner {name} sees no leader, though {leader} leads: {numbers}.");
        return new(severity, reason, message).advice(format!(
            "Check port 2380 between {name} and {leader}, both ways: without it nobody sends {name} the log or promotes it. Do \
             not restart etcd because it sees no leader.{}",
            learner.taken_out()
        ));
    }
    if learner.is_silent {
        // A silence that began nobody knows when may be as old as the learner itself.
        let (severity, reason) = match learner.silent_for {
            None => (severity, reason),
            Some(_) => (Severity::Info, R::EtcdLearnerJoining),
        };
        let message =
            format!("Learner {name} is joining and silent: {numbers}; it is not counted as a voter.");
        return new(severity, reason, message).advice(format!(
            "{} It goes on catching up by itself then; the voters go on without it.{}",
            learner.start(),
            learner.taken_out()
        ));
    }
    let shrinks = learner.trend.is_some_and(Trend::shrinks);
    let ready = learner.percent().is_some_and(|p| p >= READY_PERCENT);
    if old && ready && learner.ready_for.is_none_or(|d| d >= PROMOTED_WITHIN) {
        let message = format!("Learner {name} has caught up and is not promoted: {numbers}.");
        return new(Severity::Warn, R::EtcdLearnerLagging, message).advice(learner.stuck());
    }
    if ready {
        let message = format!(
            "Learner {name} has caught up and waits for its promotion: {numbers}; it is not counted as a voter."
        );
        return new(Severity::Info, R::EtcdLearnerJoining, message).advice(format!(
            "Wait, it is not broken: {} One learner at a time: further nodes join after it.",
            learner.promoter()
        ));
    }
    if old && !shrinks {
        let message = match learner.trend {
            Some(_) => format!("Learner {name} does not catch up: {numbers}."),
            None => format!("Learner {name} has been catching up for longer than usual: {numbers}."),
        };
        let leader = learner.leader.filter(|l| !l.is_empty()).unwrap_or("the leader");
        return new(Severity::Warn, R::EtcdLearnerLagging, message).advice(format!(
            "Check that port 2380 is open both ways between {name} and {leader}, and how fast {name}'s disk is{}.{} Do not \
             remove it while it comes closer.",
            if learner.links.is_empty() { " (neither was seen from here)" } else { "" },
            learner.taken_out()
        ));
    }
    let message = format!("Learner {name} is joining, catching up: {numbers}; it is not counted as a voter.");
    let left = learner.trend.and_then(Trend::left);
    new(Severity::Info, R::EtcdLearnerJoining, message).advice(format!(
        "Wait, it is not broken: from {READY_PERCENT} % of the log on it can be promoted{}; {} One learner at a time: further \
         nodes join after it.",
        left.map(|d| format!(", at this pace in {} at most", Span(d))).unwrap_or_default(),
        learner.promoter()
    ))
}

impl Learner<'_> {
    fn percent(&self) -> Option<u64> {
        share(self.index?, self.front?)
    }

    fn has_no_leader(&self) -> bool {
        self.quorum == Status::False || self.leader == Some("")
    }

    /// K3s and RKE2 promote and take out by themselves.
    fn is_ranchers(&self) -> bool {
        self.distribution.is_some_and(Distribution::is_ranchers)
    }

    /// Who promotes it, as a sentence.
    pub(super) fn promoter(&self) -> String {
        let name = self.name;
        match self.distribution {
            Some(d @ (Distribution::Rke2 | Distribution::K3s)) => {
                let leader = self.leader.filter(|l| !l.is_empty());
                let leader = leader.map(|l| format!(" ({l})")).unwrap_or_default();
                let which = if *d == Distribution::K3s { "K3s" } else { "RKE2" };
                format!(
                    "{which} on the leader's server{leader} promotes {name} by itself, looking every 15 s."
                )
            }
            Some(Distribution::Kubeadm) => {
                format!("kubeadm join on {name}'s machine promotes it before it ends.")
            }
            _ => format!(
                "whoever added {name} promotes it (etcdctl member promote {}); etcd does not by itself.",
                self.id()
            ),
        }
    }

    fn id(&self) -> &str {
        self.with_id.rsplit(' ').next().unwrap_or(&self.with_id)
    }

    /// It has been ready for longer than a promotion takes.
    fn stuck(&self) -> String {
        let (name, id) = (self.name, self.id());
        let leader = self.leader.filter(|l| !l.is_empty()).unwrap_or("the leader");
        match self.distribution {
            Some(d @ (Distribution::Rke2 | Distribution::K3s)) => {
                let unit = if *d == Distribution::K3s { "k3s" } else { "rke2-server" };
                format!(
                    "A learner can be promoted from {READY_PERCENT} % on, and {unit} on the server of {leader} does so every 15 s. \
                     See its log there for \"learner\" and why it does not promote {name}, and whether {name}'s own server has \
                     finished its start (journalctl -u {unit}); without an error there, a person promotes it (etcdctl member \
                     promote {id})."
                )
            }
            Some(Distribution::Kubeadm) => format!(
                "A learner can be promoted from {READY_PERCENT} % on, and kubeadm join does so while it runs. If it ended on \
                 {name}'s machine before that, a person promotes it (etcdctl member promote {id})."
            ),
            _ => format!(
                "A learner can be promoted from {READY_PERCENT} % on, and etcd does not do so by itself: see whether what added \
                 {name} still runs; else a person promotes it (etcdctl member promote {id})."
            ),
        }
    }

    /// Without a leader nothing is replicated, promoted or removed.
    pub(super) fn no_leader(&self) -> String {
        let silent = if self.is_silent { format!(" {}", self.start()) } else { String::new() };
        format!(
            "Quorum first, as EtcdQuorum tells: without a leader nobody sends {} the log, promotes it or takes it out, and it is \
             no way to a quorum either, for it has no vote.{silent}",
            self.name
        )
    }

    /// What a person does about one that is silent, by how it is silent.
    fn start(&self) -> String {
        let name = self.name;
        let service = self.distribution.map_or("etcd", service);
        if let Some(urls) = &self.unstarted_at {
            return format!(
                "{name} was added and has never started: start {service} on the machine that is to listen at {urls}."
            );
        }
        match self.silence {
            Some((Silence::Refuses, url)) => format!(
                "Nothing listens at {url}: bring {service} up on the machine of {name} and see what its log ends with."
            ),
            Some((Silence::Hangs, url)) => format!(
                "{name} hangs: at {url} it takes the connection and never answers. Look at its disk and its log (a stopped \
                 process, a full or stuck disk) before anything else."
            ),
            Some((Silence::NoConnection, url)) => format!(
                "Nothing came back from {url}: see whether the machine of {name} is on, whether port 2379 is open to it, and \
                 whether etcd there hangs."
            ),
            Some((Silence::Unreachable, url)) => format!(
                "{url} cannot be reached: see whether the machine of {name} is on, and the network to it."
            ),
            Some((Silence::Unavailable, url)) => {
                format!(
                    "What answers at {url} says that it cannot serve: see the log of {service} on the machine of {name}."
                )
            }
            None => format!("Bring {service} up on the machine of {name}."),
        }
    }

    /// Whether, and by what, a person removes it.
    fn removal(&self, certain: &str) -> String {
        let by_itself =
            if self.is_ranchers() { " if it is still there 5 min after its last progress" } else { "" };
        let step = format!(
            "a person removes this learner, {}{by_itself}, sure that {certain}; it has no vote, so the quorum stays as it is.",
            self.with_id
        );
        removal_needs(self.quorum, &step)
    }

    /// Who takes one out that makes no progress.
    fn taken_out(&self) -> &'static str {
        match self.distribution {
            Some(Distribution::Rke2 | Distribution::K3s) => {
                " After 5 min without progress K3s and RKE2 take a learner out by themselves, and it tries anew."
            }
            _ => "",
        }
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
