//! What a pass learnt, in the words of the protocol.

use outrider_protocol::{
    AlarmFacts, EndpointFacts, EndpointStatus, EtcdFacts, EtcdMetrics, Fact, Member, MemberList, Timestamp,
    UnknownCause,
};

use super::discover::Found;
use super::memory::Memory;
use super::survey::{List, Look, Survey};
use super::wire;
use crate::net::Failure;
use crate::sense::SenseContext;

/// The facts of one pass.
pub(super) fn facts(
    cx: &SenseContext,
    found: &Found,
    survey: &Survey,
    (metrics, quota): (Fact<EtcdMetrics>, Option<i64>),
    kubernetes_nodes: Fact<Vec<String>>,
    memory: &Memory,
) -> Fact<EtcdFacts> {
    let now = cx.now();
    let local_endpoint = survey.looks.first().map(|look| look.url.to_string()).unwrap_or_default();
    let mut endpoints: Vec<EndpointFacts> = survey
        .looks
        .iter()
        .enumerate()
        .map(|(i, look)| endpoint_facts(look, i == 0, memory, if i == 0 { quota } else { None }))
        .collect();
    endpoints.extend(survey.bad_urls.iter().map(|bad| {
        let unusable = || Failure::new(UnknownCause::InvalidInput, bad.error.to_string());
        EndpointFacts {
            endpoint: bad.text.clone(),
            member_id: hex_id(bad.member_id),
            local: false,
            status: unusable().into_fact("member list", now),
            linearizable_read: unusable().into_fact("member list", now),
            down_since: memory.down_since.get(&bad.text).copied(),
        }
    }));
    let alarms = survey.alarms.as_ref().map(|alarms| {
        alarms
            .iter()
            .map(|a| AlarmFacts { member_id: hex_id(a.member_id), kind: alarm_kind(a.alarm) })
            .collect()
    });
    let facts = EtcdFacts {
        distribution: found.distribution.clone(),
        found_by: found.found_by.clone(),
        election_timeout_ms: u32::try_from(found.election_timeout.as_millis()).unwrap_or(u32::MAX),
        local_endpoint: local_endpoint.clone(),
        cluster_id: memory.cluster.map(hex_id),
        members: match &survey.list {
            Ok(list) => Fact::known(list_facts(list), format!("Cluster/MemberList at {}", list.via), now),
            Err(failure) => failure.clone().into_fact("Cluster/MemberList", now),
        },
        endpoints,
        alarms: fact_of(alarms.map_err(Clone::clone), "Maintenance/Alarm", now),
        metrics,
        kubernetes_nodes,
        learners_since: memory.learners.since.clone(),
        no_read_since: memory.no_read_since,
        learner_progress: memory.learners.progress.clone(),
        expected: memory.disk.as_ref().map(|disk| disk.expected.clone()),
        data_folder: memory.disk.as_ref().map(|disk| disk.data_folder.clone()),
        snapshots: memory.disk.as_ref().map(|disk| disk.snapshots.clone()),
        paths: found.paths(),
    };
    Fact::known(facts, local_endpoint, now)
}

fn endpoint_facts(look: &Look, local: bool, memory: &Memory, quota: Option<i64>) -> EndpointFacts {
    let endpoint = look.url.to_string();
    EndpointFacts {
        member_id: memory.owner_of(look, local).map(hex_id).unwrap_or_default(),
        local,
        status: fact_of(
            look.status.clone().map(|status| status_facts(status, quota)),
            format!("Maintenance/Status at {endpoint}"),
            look.at,
        ),
        linearizable_read: fact_of(look.read.clone(), format!("KV/Range at {endpoint}"), look.at),
        down_since: memory.down_since.get(&endpoint).copied(),
        endpoint,
    }
}

/// What came of a call as a fact.
pub(super) fn fact_of<T>(outcome: Result<T, Failure>, source: impl Into<String>, at: Timestamp) -> Fact<T> {
    match outcome {
        Ok(value) => Fact::known(value, source, at),
        Err(failure) => failure.into_fact(source, at),
    }
}

/// The status as facts. `quota` is what the member's metrics state, for versions whose `Status` does not.
pub fn status_facts(status: wire::StatusResponse, quota: Option<i64>) -> EndpointStatus {
    let header = status.header.unwrap_or_default();
    EndpointStatus {
        member_id: hex_id(header.member_id),
        cluster_id: hex_id(header.cluster_id),
        version: status.version,
        db_size_bytes: status.db_size,
        db_in_use_bytes: status.db_size_in_use,
        quota_bytes: if status.db_size_quota == 0 { quota.unwrap_or(0) } else { status.db_size_quota },
        leader: if status.leader == 0 { String::new() } else { hex_id(status.leader) },
        raft_term: status.raft_term,
        raft_index: status.raft_index,
        applied_index: status.raft_applied_index,
        is_learner: status.is_learner,
        errors: status.errors,
    }
}

/// A list as facts.
pub(super) fn list_facts(list: &List) -> MemberList {
    MemberList {
        cluster_id: hex_id(list.cluster_id),
        linearizable: list.linearizable,
        members: list.members.iter().map(member_facts).collect(),
    }
}

/// A member as facts.
pub(super) fn member_facts(member: &wire::Member) -> Member {
    Member {
        id: hex_id(member.id),
        name: member.name.clone(),
        peer_urls: member.peer_urls.clone(),
        client_urls: member.client_urls.clone(),
        is_learner: member.is_learner,
    }
}

/// Ids in hexadecimal without leading zeros, as etcdctl prints them.
pub(super) fn hex_id(id: u64) -> String {
    format!("{id:x}")
}

fn alarm_kind(kind: i32) -> String {
    match kind {
        1 => "NOSPACE".into(),
        2 => "CORRUPT".into(),
        other => other.to_string(),
    }
}
