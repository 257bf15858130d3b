//! Members under one cluster id that follow different leaders.
//!
//! Raft elects one leader a term, and a leader that no longer hears a majority gives up within two election timeouts
//! (CheckQuorum, which etcd switches on: etcd-io/etcd:server/etcdserver/bootstrap.go). So what lasts longer than an election is
//! no late news but two clusters: one of them was begun anew from the other's data (`--force-new-cluster`, a cluster reset, a
//! copied data folder; `facts/etcd.md`, D10 and D19), which keeps the cluster id.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EndpointStatus, MemberList, ReasonCode as R, Severity, Status, Timestamp,
};

use super::quorum::{Health, Voter};
use super::spoilt::Spoilt;
use super::view::{is_of_another, lacks_leader, name_of};
use crate::finding::Finding;
use crate::wording::{Span, names};

const TYPE: ConditionType = ConditionType::EtcdMembership;
const NAMED: usize = 7;

/// A leader and the voters that follow it.
#[derive(Clone, Debug)]
pub(crate) struct Camp<'a> {
    pub(crate) leader: &'a str,
    /// The newest raft term that a follower told.
    pub(crate) term: u64,
    /// Ids of the followers.
    pub(crate) followers: Vec<&'a str>,
}

impl Camp<'_> {
    /// Whether the leader itself says that it leads.
    pub(crate) fn leads(&self) -> bool {
        self.followers.contains(&self.leader)
    }
}

/// The camps of the cluster `id` by what each voter answered of itself: the one that most follow first, of equal ones that of
/// the newest term. Who answers for another cluster is in none.
pub(crate) fn camps<'a>(answers: impl IntoIterator<Item = &'a EndpointStatus>, id: &str) -> Vec<Camp<'a>> {
    let mut out: Vec<Camp<'a>> = Vec::new();
    for s in answers {
        if s.is_learner || is_of_another(s, id) || s.member_id.is_empty() || lacks_leader(s) {
            continue;
        }
        match out.iter_mut().find(|camp| camp.leader == s.leader) {
            Some(camp) => {
                camp.term = camp.term.max(s.raft_term);
                if !camp.followers.contains(&s.member_id.as_str()) {
                    camp.followers.push(&s.member_id);
                }
            }
            None => out.push(Camp { leader: &s.leader, term: s.raft_term, followers: vec![&s.member_id] }),
        }
    }
    out.sort_by(|a, b| {
        let rank = |camp: &Camp<'_>| (camp.followers.len(), camp.term);
        rank(b).cmp(&rank(a)).then(a.leader.cmp(b.leader))
    });
    out
}

/// A voter that follows a rival of the first camp's leader is in no quorum with the others.
pub(crate) fn mark(voters: &mut [Voter<'_>], camps: &[Camp<'_>], list: &MemberList) {
    for camp in camps.iter().skip(1) {
        let follows = |v: &&mut Voter<'_>| v.health == Health::Healthy && camp.followers.contains(&v.id);
        for voter in voters.iter_mut().filter(follows) {
            voter.health = Health::NoLeader;
            voter.spoilt = voter.spoilt.or(Some(Spoilt::Rival));
            let leader = name_of(Some(list), camp.leader);
            voter.why =
                format!("follows another leader ({leader} in term {}), as EtcdMembership tells", camp.term);
        }
    }
}

/// What is to be said of several camps; `serves` whether reads are answered through a leader, as far as that is known.
/// `seen` ends the first sentence.
pub(crate) fn judge(
    camps: &[Camp<'_>],
    list: &MemberList,
    serves: impl Fn(&Camp<'_>) -> bool,
    (seen, election): (&str, Duration),
    at: Timestamp,
) -> Option<Finding> {
    let [first, rest @ ..] = camps else { return None };
    if rest.is_empty() {
        return None;
    }
    let of = |ids: &[&str]| names(ids.iter().map(|id| name_of(Some(list), id)), NAMED);
    let sides = camps.iter().map(|camp| {
        let leader = name_of(Some(list), camp.leader);
        format!("{leader} in term {} (followed by {})", camp.term, of(&camp.followers))
    });
    let sides = names(sides, NAMED);
    let message = format!("Members of cluster {} follow different leaders{seen}: {sides}.", list.cluster_id);
    // Two that lead by their own word in one term, or both of whom serve reads.
    let is_rival =
        |camp: &&Camp<'_>| camp.leads() && (camp.term == first.term || (serves(camp) && serves(first)));
    let is_split = first.leads() && rest.iter().any(|camp| is_rival(&camp));
    if !is_split {
        let message = format!(
            "{message} An election ends that within {}; what lasts is two clusters under one id.",
            Span(election * 2)
        );
        let advice = format!(
            "Look again in a minute, and check port 2380 between {} and {}, both ways: late news ends once they reach each \
             other. Where both sides still have a leader then, each takes writes that the other never gets: see \
             outrider explain EtcdSplitBrain. Do not restart etcd and do not reset the cluster.",
            of(&first.followers),
            names(rest.iter().map(|camp| of(&camp.followers)), NAMED)
        );
        return Some(
            Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdLeadersDisagree, at, message)
                .advice(advice),
        );
    }
    let message = format!(
        "{message} Each side takes writes that the other never gets: two clusters under one id (split brain)."
    );
    let leaders = names(camps.iter().map(|camp| name_of(Some(list), camp.leader)), NAMED);
    let advice = format!(
        "Save both sides before anything else (etcdctl snapshot save at each of {leaders}), and keep clients from writing where you \
         can. One side was begun anew from the data of the other (a cluster reset or --force-new-cluster, a copied data folder). A \
         person decides whose data counts: mostly that which most follow ({}), unless the reset was meant. The servers of the \
         other side are stopped then, their members removed where they are listed, their data folders emptied, and they join \
         again. Restart, reset and empty nothing before that; Outrider does none of it.",
        of(&first.followers)
    );
    Some(Finding::new(TYPE, Status::False, Severity::Error, R::EtcdSplitBrain, at, message).advice(advice))
}
