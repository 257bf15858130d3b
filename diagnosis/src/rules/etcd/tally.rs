//! The voters of one cluster, what is known of each, and the arithmetic of a majority (`facts/etcd.md`, section 1).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use outrider_protocol::{Member, Timestamp};

use super::learners;
use super::split::Split;
use super::spoilt::Spoilt;
use super::view::{Seen, display_name};
use crate::wording::{Count, names};

/// Members named in a message.
pub(super) const NAMED: usize = 7;

/// What is known of one voter, from worst evidence to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    /// It does not answer.
    Down,
    /// It could not be asked, through no fault of its own.
    Unknown,
    /// It answers and sees no leader.
    NoLeader,
    /// It answers without error.
    Healthy,
}

/// One voter.
#[derive(Clone, Debug)]
pub(crate) struct Voter<'a> {
    pub(crate) id: &'a str,
    /// What it is called in a sentence: its name, with its id where another voter has the same.
    pub(crate) name: Cow<'a, str>,
    pub(crate) health: Health,
    /// Why it is not healthy, to follow its name in a sentence.
    pub(crate) why: String,
    /// It answers for another cluster, that of this id.
    pub(crate) foreign: Option<String>,
    /// Another member answers at its address.
    pub(crate) replaced: bool,
    /// Counted, and nobody is behind it any more; `None` for a living member and where that cannot be told.
    pub(crate) ghost: Option<Ghost>,
    /// Nothing came back from it: it may well serve others.
    pub(crate) unreached: bool,
    /// It was added and has never started: where it is to listen. Nothing of it is there that could come back.
    pub(crate) unstarted: Option<Cow<'a, str>>,
    /// Its data is not to be served again as it is; `None` where nothing speaks against that.
    pub(crate) spoilt: Option<Spoilt>,
}

/// Why a voter is a ghost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ghost {
    /// It has no Kubernetes node.
    WithoutNode,
    /// Its node was built anew and runs another member now.
    Rebuilt {
        /// The node.
        node: String,
        /// The living member: name and id, in words.
        living: String,
    },
    /// The virtual machine of its node was deleted, and the node is silent.
    Retired {
        /// The virtual machine.
        machine: String,
        /// Peer URLs under which it is listed.
        peers: String,
    },
}

impl<'a> Voter<'a> {
    pub(crate) fn new(member: &'a Member, seen: Seen, ghost: Option<Ghost>) -> Self {
        let Seen { health, why, foreign, replaced, unreached } = seen;
        let answers = matches!(health, Health::Healthy | Health::NoLeader);
        let unstarted = (member.name.is_empty() && !answers).then(|| learners::recorded(member));
        Self {
            id: &member.id,
            name: display_name(member).into(),
            health,
            why,
            foreign,
            replaced,
            unreached,
            ghost,
            unstarted,
            spoilt: None,
        }
    }
}

/// Tells voters of one name apart by their ids: the first eight digits where those differ.
pub(crate) fn label(voters: &mut [Voter<'_>]) {
    let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
    for (i, v) in voters.iter().enumerate().filter(|(_, v)| v.name != v.id) {
        by_name.entry(v.name.to_string()).or_default().push(i);
    }
    for same in by_name.into_values().filter(|same| same.len() > 1) {
        let short = |i: usize| voters[i].id.get(..8).unwrap_or(voters[i].id);
        let differ: HashSet<&str> = same.iter().map(|i| short(*i)).collect();
        let whole = differ.len() < same.len();
        let labels: Vec<String> = same
            .iter()
            .map(|i| format!("{} (id {})", voters[*i].name, if whole { voters[*i].id } else { short(*i) }))
            .collect();
        same.into_iter().zip(labels).for_each(|(i, label)| voters[i].name = label.into());
    }
}

/// What linearizable reads show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Proof {
    /// One ended after so many milliseconds: a quorum answered it.
    Read {
        ms: f64,
        /// Who got it, and who had lost its own reads before that, in words: the doubt is theirs alone.
        against: Option<(String, String)>,
    },
    /// Every one failed that was tried at a living voter.
    Failed(String),
    /// None was tried.
    None,
}

impl Voter<'_> {
    /// It is away and may come back as the member it is: no ghost, not of another cluster, its address not another's, not
    /// yet to be started, and its data not spoilt.
    pub(crate) fn may_return(&self) -> bool {
        let is_other =
            self.ghost.is_some() || self.foreign.is_some() || self.replaced || self.unstarted.is_some();
        self.health != Health::Healthy && !is_other && self.spoilt.is_none()
    }

    /// A ghost that does not answer: nothing will ever be read, mended or freed there.
    pub(crate) fn is_dead_ghost(&self) -> bool {
        self.ghost.is_some() && self.health == Health::Down
    }

    /// It answers, or may do so again without anybody being removed.
    fn is_in_reach(&self) -> bool {
        let answers = self.health != Health::Down || self.may_return() || self.unstarted.is_some();
        self.foreign.is_none() && !self.replaced && answers
    }
}

/// The voters of one cluster and what is known of them.
#[derive(Clone, Debug)]
pub(crate) struct Tally<'a> {
    pub(crate) voters: Vec<Voter<'a>>,
    /// The cluster of the list.
    pub(crate) cluster_id: &'a str,
    /// Nodes whose own reports are of other clusters: that one's id, and the node.
    pub(crate) elsewhere: Vec<(&'a str, &'a str)>,
    pub(crate) learners: usize,
    pub(crate) proof: Proof,
    pub(crate) election_timeout: Duration,
    /// Since when no linearizable read has been answered, anywhere.
    pub(crate) no_read_since: Option<Timestamp>,
    pub(crate) list_may_be_stale: bool,
    /// Who leads and how many see it so, to follow in the sentence; empty when that is not told.
    pub(crate) leader: String,
    /// How many nodes looked.
    pub(crate) looks: usize,
    /// Who looked, to end the sentence; empty for one node.
    pub(crate) seen_from: String,
    /// An alarm is set while which writes are refused, quorum or not.
    pub(crate) alarmed: bool,
    /// Servers on which the cluster was reset and whose member does not answer, in words; empty where none is known.
    pub(crate) reset_on: Vec<&'a str>,
    /// The newest snapshot known, in words.
    pub(crate) snapshot: Option<String>,
}

/// Voters that must be healthy: more than half.
pub(crate) fn quorum_of(voters: usize) -> usize {
    voters / 2 + 1
}

/// Voters that may still fail.
pub(crate) fn tolerated(voters: usize, healthy: usize) -> usize {
    healthy.saturating_sub(quorum_of(voters))
}

impl Tally<'_> {
    pub(crate) fn count(&self, health: Health) -> usize {
        self.voters.iter().filter(|v| v.health == health).count()
    }

    /// "3 voters, quorum 2, 2 healthy, 0 more failures tolerated", with what limits the numbers.
    pub(crate) fn numbers(&self) -> String {
        let (voters, healthy) = (self.voters.len(), self.count(Health::Healthy));
        let least = if self.count(Health::Unknown) > 0 { "at least " } else { "" };
        let learners = match self.learners {
            0 => String::new(),
            n => format!(", {} not counted", Count(n, "learner")),
        };
        let stale =
            if self.list_may_be_stale { ", by the local member's own list, which may be stale" } else { "" };
        format!(
            "{}, quorum {}, {healthy} healthy, tolerates {least}{} more{learners}{stale}",
            Count(voters, "voter"),
            quorum_of(voters),
            tolerated(voters, healthy)
        )
    }

    pub(super) fn unhealthy(&self) -> String {
        let all = self.voters.iter().filter(|v| v.health != Health::Healthy);
        names(all.map(|v| format!("{} {}", v.name, v.why)), NAMED)
    }

    /// Voters to be brought back first. Who answers without a leader lacks nothing but the quorum.
    pub(super) fn missing(&self) -> impl Iterator<Item = &Voter<'_>> {
        self.voters.iter().filter(|v| v.may_return() && v.health != Health::NoLeader)
    }

    pub(super) fn returning(&self, of: &[Health]) -> Vec<&str> {
        self.voters.iter().filter(|v| v.may_return() && of.contains(&v.health)).map(|v| &*v.name).collect()
    }

    /// Voters that would answer if all came back that may, and all started that never did.
    pub(crate) fn in_reach(&self) -> usize {
        self.voters.iter().filter(|v| v.is_in_reach()).count()
    }

    /// Of whom other conditions tell what to do, to follow a sentence: they do not come back by waiting, nor are they simply
    /// brought back.
    pub(super) fn of_others(&self) -> String {
        let ghosts = self.voters.iter().filter(|v| v.health != Health::Healthy && v.ghost.is_some());
        let ghosts = names(ghosts.filter(|v| v.foreign.is_none()).map(|v| &*v.name), NAMED);
        let mut out = String::new();
        if let Some(split) = Split::of(self) {
            out.push_str(&format!(" {} {}", split.words(), split.advice()));
        }
        if !ghosts.is_empty() {
            out.push_str(&format!(" Ghosts: {ghosts}; see EtcdMembership."));
        }
        let unstarted: Vec<String> = self
            .voters
            .iter()
            .filter_map(|v| v.unstarted.as_ref().map(|at| format!("{} at {at}", v.name)))
            .collect();
        if !unstarted.is_empty() {
            out.push_str(&format!(
                " Start etcd where {} to be ({}), or see EtcdMembership.",
                if unstarted.len() > 1 {
                    "those that never started are"
                } else {
                    "the one that never started is"
                },
                names(&unstarted, NAMED)
            ));
        }
        let away = self.voters.iter().filter(|v| v.health != Health::Healthy && v.ghost.is_none());
        let of = |spoilt| names(away.clone().filter(|v| v.spoilt == Some(spoilt)).map(|v| &*v.name), NAMED);
        for (who, why) in [
            (of(Spoilt::Corrupt), "a CORRUPT alarm is set there, see EtcdSpace"),
            (of(Spoilt::Rival), "writes of its own may lie there, see EtcdMembership"),
            (of(Spoilt::ByItsFolder), "see EtcdMemberHealthy there, for what lies in its data folder"),
        ] {
            if !who.is_empty() {
                out.push_str(&format!(" Do not simply bring {who} back: {why}."));
            }
        }
        out
    }

    /// Whether the one node that looked may be the one that is cut off: those it does not reach would be a quorum by themselves.
    pub(super) fn may_be_cut_off(&self) -> bool {
        let unreached = self.voters.iter().filter(|v| v.unreached && v.health == Health::Down).count();
        self.looks <= 1 && unreached >= quorum_of(self.voters.len())
    }

    /// Names of the voters whose health is among `of`.
    pub(super) fn named(&self, of: &[Health]) -> String {
        names(self.voters.iter().filter(|v| of.contains(&v.health)).map(|v| &*v.name), NAMED)
    }
}
