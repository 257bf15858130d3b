//! Who of a member list is healthy, as one node's endpoints show it.

use std::time::Duration;

use outrider_protocol::{
    EndpointFacts, EndpointStatus, EtcdFacts, Fact, Member, MemberList, Timestamp, UnknownCause,
};

use super::membership::{has_node, mark_rebuilt};
use super::quorum::{Health, OF_ANOTHER_CLUSTER, Proof, Tally, Voter};
use crate::wording::Span;

/// The name people know a member by; its id until it has started once.
pub(crate) fn display_name(member: &Member) -> &str {
    if member.name.is_empty() { &member.id } else { &member.name }
}

/// The name of the member with `id`, or the id itself when the list does not have it.
pub(crate) fn name_of<'a>(list: Option<&'a MemberList>, id: &'a str) -> &'a str {
    list.and_then(|l| l.members.iter().find(|m| m.id == id)).map_or(id, display_name)
}

/// Counts the voters of `list` by what `etcd`'s endpoints answered.
pub(crate) fn tally<'a>(
    etcd: &'a EtcdFacts,
    list: &'a MemberList,
    nodes: Option<&[String]>,
    now: Timestamp,
) -> Tally<'a> {
    let voters = list.members.iter().filter(|m| !m.is_learner).map(|member| {
        let (health, why) = health(etcd, list, member, now);
        let ghost = nodes.is_some_and(|nodes| !member.name.is_empty() && !has_node(&member.name, nodes));
        Voter { id: &member.id, name: display_name(member), health, why, ghost }
    });
    let mut voters: Vec<Voter<'_>> = voters.collect();
    mark_rebuilt(&mut voters, nodes.unwrap_or_default());
    Tally {
        voters,
        learners: list.members.iter().filter(|m| m.is_learner).count(),
        proof: proof(etcd),
        election_timeout: Duration::from_millis(u64::from(etcd.election_timeout_ms)),
        no_read_since: etcd.no_read_since,
        list_may_be_stale: !list.linearizable,
        seen_from: String::new(),
        snapshot: etcd.snapshots.as_ref().and_then(Fact::value).and_then(super::snapshots::newest_words),
    }
}

/// Endpoints that belong to `member`: who answered decides, then what the sensor matched, then the published URLs.
pub(crate) fn endpoints_of<'a>(
    etcd: &'a EtcdFacts,
    member: &'a Member,
) -> impl Iterator<Item = &'a EndpointFacts> {
    etcd.endpoints.iter().filter(move |e| match (e.status.value(), e.member_id.as_str()) {
        (Some(status), _) if !status.member_id.is_empty() => status.member_id == member.id,
        (_, "") => {
            member.client_urls.iter().any(|url| url.trim_end_matches('/') == e.endpoint.trim_end_matches('/'))
        }
        (_, id) => id == member.id,
    })
}

/// The best that any endpoint of `member` showed, and in words why that is not better.
pub(crate) fn health(
    etcd: &EtcdFacts,
    list: &MemberList,
    member: &Member,
    now: Timestamp,
) -> (Health, String) {
    let seen = endpoints_of(etcd, member).map(|e| endpoint_health(e, &list.cluster_id, now));
    let best = seen.max_by_key(|(health, _)| *health);
    best.unwrap_or_else(|| {
        if member.name.is_empty() {
            (Health::Down, "was added and has never started".to_owned())
        } else if member.client_urls.is_empty() {
            (Health::Down, "publishes no client address".to_owned())
        } else {
            (Health::Unknown, "was not asked".to_owned())
        }
    })
}

/// " for 10 min", or nothing while the silence is as young as the question.
pub(crate) fn silent_for(e: &EndpointFacts, now: Timestamp) -> String {
    let silence = e.down_since.map(|t| now.since(t)).filter(|d| *d >= Duration::from_secs(1));
    silence.map(|d| format!(" for {}", Span(d))).unwrap_or_default()
}

fn endpoint_health(e: &EndpointFacts, cluster_id: &str, now: Timestamp) -> (Health, String) {
    let since = silent_for(e, now);
    match &e.status {
        Fact::Known { value: status, .. } => status_health(status, cluster_id),
        Fact::Unknown { cause, detail, .. } if is_down(cause) => {
            (Health::Down, format!("does not answer at {}{since}: {cause}, {detail}", e.endpoint))
        }
        Fact::Unknown { cause, detail, .. } => {
            (Health::Unknown, format!("could not be asked at {}: {cause}, {detail}", e.endpoint))
        }
        Fact::Absent { .. } => (Health::Down, format!("is not there at {}{since}", e.endpoint)),
        Fact::NotApplicable { reason, .. } => {
            (Health::Unknown, format!("was not asked at {}: {reason}", e.endpoint))
        }
    }
}

/// What a member's answer says of it.
pub(super) fn status_health(status: &EndpointStatus, cluster_id: &str) -> (Health, String) {
    if !cluster_id.is_empty() && !status.cluster_id.is_empty() && status.cluster_id != cluster_id {
        return (Health::Down, format!("{OF_ANOTHER_CLUSTER} ({})", status.cluster_id));
    }
    if lacks_leader(status) {
        return (Health::NoLeader, "answers and sees no leader".to_owned());
    }
    match status.errors.iter().find(|e| !is_alarm(e)) {
        Some(error) => (Health::Down, format!("answers with an error: {error}")),
        None => (Health::Healthy, String::new()),
    }
}

/// Whether the member sees no leader: nothing can be written through it.
pub(crate) fn lacks_leader(status: &EndpointStatus) -> bool {
    status.leader.is_empty() || status.leader == "0" || status.errors.iter().any(|e| e.contains("no leader"))
}

/// Status lists alarms among its errors; an alarm says nothing about whether the member answers (D5).
fn is_alarm(error: &str) -> bool {
    error.contains("alarm:")
        || error.contains("NOSPACE")
        || error.contains("CORRUPT")
        || error.contains("space exceeded")
}

/// Causes that are the peer's silence. The others are ours, and say nothing about the member.
pub(crate) fn is_down(cause: &UnknownCause) -> bool {
    matches!(
        cause,
        UnknownCause::ConnectionRefused
            | UnknownCause::TimedOut
            | UnknownCause::Unreachable
            | UnknownCause::Unavailable
    )
}

/// What the linearizable reads prove: one that ends needs a quorum; failing at members that see a leader hints at none.
pub(crate) fn proof(etcd: &EtcdFacts) -> Proof {
    let mut failed = None;
    for e in &etcd.endpoints {
        match &e.linearizable_read {
            Fact::Known { value, .. } => return Proof::Read { ms: *value },
            // Learners refuse such reads (D7), a refused credential proves nothing, and a member cut off from the
            // leader fails by itself while the others go on.
            Fact::Unknown { cause, detail, .. }
                if is_down(cause) && e.status.value().is_some_and(|s| !s.is_learner && !lacks_leader(s)) =>
            {
                failed.get_or_insert_with(|| format!("{cause}, {detail} at {}", e.endpoint));
            }
            _ => {}
        }
    }
    failed.map_or(Proof::None, Proof::Failed)
}
