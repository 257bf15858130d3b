//! Voters that answer, and whose log or data is far behind that of the others: they count for the quorum, and until they have
//! caught up nothing can be decided by their hand.
//!
//! A status tells two numbers (etcd-io/etcd:server/etcdserver/api/v3rpc/maintenance.go): how far the log is agreed on, by the
//! member's own word, and how far that has been applied to its data.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EndpointStatus, EtcdFacts, Fact, Member, MemberList, ReasonCode as R, Severity, Status,
    Timestamp,
};

use super::quorum::{Health, NAMED, Tally, quorum_of};
use super::view::{display_name, name_of, ours};
use crate::finding::Finding;
use crate::wording::names;

/// Answers of one pass are read side by side; further apart the front has moved on between them.
const ONE_PASS: Duration = Duration::from_secs(5);
/// A busy cluster agrees on some thousand entries a second, which is what may lie between two answers of one pass.
const BEHIND: u64 = 20_000;
/// With more than so much agreed on and not applied a member refuses every request ("too many requests",
/// etcd-io/etcd:server/etcdserver/v3_server.go, `maxGapBetweenApplyAndCommitIndex`).
const UNAPPLIED: u64 = 5_000;

/// One voter that is behind, in words.
struct Behind<'a> {
    member: &'a Member,
    words: String,
}

/// The voters of `list` that are far behind, by one view's answers of one pass.
pub(super) fn judge(
    etcd: &EtcdFacts,
    list: &MemberList,
    tally: &Tally<'_>,
    at: Timestamp,
) -> Option<Finding> {
    let answers: Vec<(&EndpointStatus, Timestamp)> = ours(etcd)
        .filter_map(|e| match &e.status {
            Fact::Known { value, at, .. } => Some((value, *at)),
            _ => None,
        })
        .collect();
    let newest = answers.iter().map(|(_, read)| *read).max()?;
    let answers = answers.into_iter().filter(|(_, read)| newest.since(*read) <= ONE_PASS);
    let answers: Vec<&EndpointStatus> = answers.map(|(status, _)| status).collect();
    let front = answers.iter().map(|status| status.raft_index).max()?;
    let voters = list.members.iter().filter(|m| !m.is_learner);
    let behind: Vec<Behind<'_>> = voters
        .filter_map(|member| {
            // Loopback and node address are one member.
            let own = answers.iter().filter(|s| s.member_id == member.id).max_by_key(|s| s.raft_index)?;
            Some(Behind { member, words: words(own, front)? })
        })
        .collect();
    if behind.is_empty() {
        return None;
    }
    let is_behind = |id: &str| behind.iter().any(|b| b.member.id == id);
    let abreast = |v: &&super::quorum::Voter<'_>| v.health == Health::Healthy && !is_behind(v.id);
    let (voters, with) = (tally.voters.len(), tally.voters.iter().filter(abreast).count());
    let quorum = quorum_of(voters);
    // Whether what is behind is needed as soon as one of the others is lost.
    let severity = if with <= quorum { Severity::Warn } else { Severity::Info };
    let who = names(behind.iter().map(|b| display_name(b.member)), NAMED);
    let all = names(behind.iter().map(|b| format!("{} {}", display_name(b.member), b.words)), NAMED);
    let message = format!(
        "Behind the others, though answering: {all}. {with} of {voters} voters are abreast, quorum {quorum}."
    );
    let others = names(tally.voters.iter().filter(abreast).map(|v| &*v.name), NAMED);
    let hold = match (severity, others.as_str()) {
        (Severity::Warn, others) if !others.is_empty() => format!(
            "Until it has caught up restart, drain or upgrade none of {others}: with one of them away nothing is agreed on before {who} \
             has caught up. "
        ),
        _ => String::new(),
    };
    let leader = answers.iter().map(|s| s.leader.as_str()).find(|id| !matches!(*id, "" | "0"));
    let leader = leader.map_or("the leader", |id| name_of(Some(list), id));
    Some(
        Finding::new(ConditionType::EtcdMembership, Status::True, severity, R::EtcdVoterLagging, at, message)
            .advice(format!(
                "{hold}It catches up by itself, by a copy of the whole database where its log is too old. If it does not come closer \
                 at the next look: see the disk of {who} (EtcdDisk there), port 2380 between {who} and {leader} both ways, and its \
                 log. Do not remove it while it comes closer."
            )),
    )
}

/// How far one member is behind, to follow its name; `None` where that is not worth a word.
fn words(status: &EndpointStatus, front: u64) -> Option<String> {
    let (index, applied) = (status.raft_index, status.applied_index);
    let behind = front.saturating_sub(index);
    if behind >= BEHIND {
        return Some(format!("is at raft index {index} of {front}, {behind} entries behind"));
    }
    // A version that does not tell it tells 0.
    let unapplied = index.saturating_sub(applied);
    (applied > 0 && unapplied > UNAPPLIED).then(|| {
        format!("has applied {applied} of the {index} entries that are agreed on, {unapplied} behind, and refuses requests")
    })
}
