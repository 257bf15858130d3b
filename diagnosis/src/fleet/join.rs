//! One health a voter, from what every report says of it.

use std::time::Duration;

use outrider_protocol::{EndpointFacts, Fact, Member, MemberList, Timestamp};

use super::View;
use crate::rules::etcd::quorum::{Health, Proof, Tally, Voter};
use crate::rules::etcd::view;
use crate::wording::Span;

/// A node is known to be silent after this long at the latest; until then a member that somebody lost and whose own
/// node has not spoken since is unknown, afterwards the word of its own node, which is still heard, stands.
const UNCONFIRMED: Duration = Duration::from_secs(120);

pub(super) fn tally<'a>(
    group: &[View<'a>],
    list: &'a MemberList,
    nodes: Option<&[String]>,
    now: Timestamp,
) -> Tally<'a> {
    let voters = list.members.iter().filter(|m| !m.is_learner).map(|member| {
        let (health, why) = health(group, list, member, now);
        let ghost = nodes.is_some_and(|n| {
            !member.name.is_empty() && !crate::rules::etcd::membership::has_node(&member.name, n)
        });
        Voter { id: &member.id, name: view::display_name(member), health, why, ghost }
    });
    let timeout = group.iter().map(|v| v.etcd.election_timeout_ms).max().unwrap_or(0);
    Tally {
        voters: voters.collect(),
        learners: list.members.iter().filter(|m| m.is_learner).count(),
        proof: proof(group),
        election_timeout: Duration::from_millis(u64::from(timeout)),
        list_may_be_stale: !list.linearizable,
        seen_from: String::new(),
    }
}

/// The newest report that tried a linearizable read: an older one that worked proves nothing any more.
fn proof(group: &[View<'_>]) -> Proof {
    let tried = |e: &EndpointFacts| match &e.linearizable_read {
        Fact::Known { .. } => true,
        Fact::Unknown { cause, .. } => view::is_down(cause),
        _ => false,
    };
    let newest = group.iter().filter(|v| v.etcd.endpoints.iter().any(tried)).max_by_key(|v| v.at);
    newest.map_or(Proof::None, |v| view::proof(v.etcd))
}

fn health(group: &[View<'_>], list: &MemberList, member: &Member, now: Timestamp) -> (Health, String) {
    // The newest reading that the member itself answered, and the newest loss of it.
    let mut answered: Option<(Timestamp, &View<'_>, Health, String)> = None;
    let mut lost: Option<(Timestamp, &View<'_>, String)> = None;
    let mut unknown: Option<String> = None;
    for v in group {
        let direct = view::endpoints_of(v.etcd, member).any(|e| e.status.value().is_some());
        let (health, why) = view::health(v.etcd, list, member, now);
        if direct {
            // Of readings of one age, its own node's word counts.
            let own = |v: &View<'_>| v.local_id == member.id;
            if answered.as_ref().is_none_or(|(at, w, ..)| (v.at, own(v)) > (*at, own(w))) {
                answered = Some((v.at, v, health, why));
            }
        } else if health == Health::Down {
            let onset = view::endpoints_of(v.etcd, member).filter_map(|e| e.down_since).min().unwrap_or(v.at);
            if lost.as_ref().is_none_or(|(at, ..)| onset > *at) {
                lost = Some((onset, v, why));
            }
        } else {
            unknown.get_or_insert(why);
        }
    }
    match (answered, lost) {
        (Some((at, by, Health::Healthy, _)), Some((onset, loser, _)))
            if onset > at && now.since(onset) <= UNCONFIRMED =>
        {
            let why = format!(
                "was healthy by the report of {}, but {} has not reached it for {}",
                by.node,
                loser.node,
                Span(now.since(onset))
            );
            (Health::Unknown, why)
        }
        (Some((_, _, health, why)), _) => (health, why),
        (None, Some((_, loser, why))) => (Health::Down, format!("{why} (seen from {})", loser.node)),
        (None, None) => (Health::Unknown, unknown.unwrap_or_else(|| "is in no report".to_owned())),
    }
}
