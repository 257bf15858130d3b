//! The check `etcd`: finds the etcd of this node and reads it, never writes (`facts/etcd.md`).
//!
//! A pass asks the local member first, then takes the member list and asks every other member by itself, all at
//! once: one dead endpoint must not cost the others their time. Every call has a second; what did not answer is
//! `Unknown` with its cause and stays in the facts. Connections are kept between passes, so that a pass costs calls
//! and no handshakes, and [`poll_local`] between passes costs one call.
//!
//! Tour: `discover` and `rancher` (where etcd is), `credentials` (TLS files), `client` and `wire` (gRPC), `survey`
//! (who is asked), `metrics` (the scrape), `memory` (what a pass leaves for the next).

mod client;
mod credentials;
mod discover;
#[cfg(test)]
mod discover_tests;
mod memory;
mod metrics;
mod rancher;
mod survey;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{
    AlarmFacts, EndpointFacts, EndpointStatus, EtcdFacts, EtcdMetrics, Fact, Member, MemberList, Timestamp,
    UnknownCause,
};
use rustls::ClientConfig;

use self::client::Client;
use self::credentials::Material;
use self::discover::{Discovery, Found, discover};
pub use self::memory::Memory;
pub use self::metrics::{Families, MetricsReader};
use self::survey::{List, Look, Survey, survey};
use super::SenseContext;
use crate::config::EtcdSettings;
use crate::net::{Failure, Url};

/// Limit of one call, connecting included.
const CALL: Duration = Duration::from_secs(1);
/// Limit of a poll: what it does not hear, a pass asks again, so that a slow disk is no loss of quorum.
const POLL: Duration = Duration::from_millis(500);

/// One pass. Takes at most about five seconds, whatever the peers do; usually some milliseconds, and a second when a
/// member is silent.
pub async fn read(cx: &SenseContext, settings: &EtcdSettings, memory: &mut Memory) -> Fact<EtcdFacts> {
    let (found, material) = match search(cx, settings).await {
        Search::Found(found, material) => (*found, material),
        Search::NotHere(reason) => {
            *memory = Memory::default();
            return Fact::not_applicable(reason, cx.now());
        }
        Search::Failed(failure, source) => {
            memory.close();
            return failure.into_fact(source, cx.now());
        }
    };
    if let Err(failure) = memory.prepare(settings, found.clone(), material) {
        return failure.into_fact("TLS files of etcd", cx.now());
    }
    let known = memory.known_urls();
    let (grpc, http) = (memory.grpc_tls(), memory.http_tls());
    let urls = metrics_urls(&found, memory.metrics_url.as_ref());
    let (survey, scraped) =
        tokio::join!(survey(cx, &found, grpc, &mut memory.connections, &known), scrape_first(&urls, http));
    let metrics = take_metrics(memory, scraped, cx.now());
    memory.remember(&found, &survey, cx.now());
    facts(cx, &found, &survey, metrics, memory)
}

/// One linearizable read at the local member, in milliseconds, on the connection of the last pass: the cheap look
/// between passes. `None` where the last pass found no etcd or no way in, or the settings have changed since.
pub async fn poll_local(
    cx: &SenseContext,
    settings: &EtcdSettings,
    memory: &mut Memory,
) -> Option<Fact<f64>> {
    let url = memory.local_url(settings)?;
    let polled = async {
        if let Some(mut client) = memory.connections.remove(&url).filter(|client| !client.is_closed()) {
            let outcome = client.linearizable_read().await;
            // A kept connection that has died meanwhile says nothing about etcd: one new one is tried.
            if !matches!(&outcome, Err(failure) if is_transport(failure)) {
                memory.connections.insert(url.clone(), client);
                return outcome;
            }
        }
        let mut client = Client::connect(&url, memory.grpc_tls(), POLL).await?;
        memory.connections.insert(url.clone(), client.clone());
        client.linearizable_read().await
    };
    let outcome = tokio::time::timeout(POLL, polled)
        .await
        .unwrap_or_else(|_| Err(Failure::timed_out("linearizable read", POLL)));
    Some(fact_of(outcome, format!("KV/Range at {url}"), cx.now()))
}

/// A failure of the connection, not of etcd behind it.
fn is_transport(failure: &Failure) -> bool {
    use UnknownCause as C;
    matches!(
        failure.cause,
        C::Unreachable | C::ConnectionRefused | C::TlsFailed | C::IoError | C::InvalidAnswer
    )
}

enum Search {
    Found(Box<Found>, Option<Material>),
    NotHere(String),
    Failed(Failure, String),
}

/// Reads the disk away from the loop: a file system or helper that hangs must hold up only this check.
async fn search(cx: &SenseContext, settings: &EtcdSettings) -> Search {
    let (opener, settings) = (cx.opener.clone(), settings.clone());
    let searched = tokio::task::spawn_blocking(move || match discover(&*opener, &settings) {
        Discovery::Found(found) => match found.files.as_ref().map(|files| Material::read(&*opener, files)) {
            None => Search::Found(found, None),
            Some(Ok(material)) => Search::Found(found, Some(material)),
            Some(Err((failure, file))) => Search::Failed(failure, file),
        },
        Discovery::NotHere(reason) => Search::NotHere(reason),
        Discovery::Failed { failure, source } => Search::Failed(failure, source),
    });
    searched.await.unwrap_or_else(|e| {
        Search::Failed(Failure::new(UnknownCause::Panicked, e.to_string()), "looking for etcd".into())
    })
}

/// Where the local member's metrics may be: its own port first (`facts/etcd.md`, section 2), then the client port,
/// where etcd serves them unless it was told otherwise. The one that worked last comes first.
fn metrics_urls(found: &Found, last: Option<&Url>) -> Vec<Url> {
    let Some(local) = found.endpoints.first() else { return Vec::new() };
    let own_port = Url { tls: false, host: local.host.clone(), port: 2381, path: "/metrics".into() };
    let mut urls = vec![own_port, local.with_path("/metrics")];
    urls.sort_by_key(|url| Some(url) != last);
    urls
}

type Scraped = Result<(Families, Url), Failure>;

async fn scrape_first(urls: &[Url], tls: Option<Arc<ClientConfig>>) -> Scraped {
    let mut failures: Vec<Failure> = Vec::new();
    for url in urls {
        match metrics::scrape(url, tls.clone(), CALL).await {
            Ok(families) => return Ok((families, url.clone())),
            Err(failure) => failures.push(failure),
        }
    }
    let detail: Vec<&str> = failures.iter().map(|f| f.detail.as_str()).collect();
    let cause = failures.last().map_or(UnknownCause::NotYetRead, |f| f.cause.clone());
    Err(Failure::new(cause, detail.join("; ")))
}

/// The metrics fact, and the quota that the text states.
fn take_metrics(memory: &mut Memory, scraped: Scraped, now: Timestamp) -> (Fact<EtcdMetrics>, Option<i64>) {
    let (families, url) = match scraped {
        Ok(scraped) => scraped,
        Err(failure) => {
            memory.metrics_url = None;
            return (failure.into_fact("/metrics of the local member", now), None);
        }
    };
    let quota = families.quota_bytes.filter(|q| *q > 0.0 && *q < i64::MAX as f64).map(|q| q as i64);
    let source = url.to_string();
    match families.into_scrape(now) {
        Ok(scrape) => {
            memory.metrics_url = Some(url);
            (Fact::known(memory.scrapes.add(scrape), source, now), quota)
        }
        Err(failure) => (failure.into_fact(source, now), quota),
    }
}

fn facts(
    cx: &SenseContext,
    found: &Found,
    survey: &Survey,
    (metrics, quota): (Fact<EtcdMetrics>, Option<i64>),
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
        members: match &survey.list {
            Ok(list) => Fact::known(list_facts(list), format!("Cluster/MemberList at {}", list.via), now),
            Err(failure) => failure.clone().into_fact("Cluster/MemberList", now),
        },
        endpoints,
        alarms: fact_of(alarms.map_err(Clone::clone), "Maintenance/Alarm", now),
        metrics,
        kubernetes_nodes: Fact::unknown(
            UnknownCause::NotYetRead,
            "this node's credentials may not list Nodes",
            "Kubernetes API",
            now,
        ),
        learners_since: memory.learners_since.clone(),
        learner_progress: BTreeMap::new(),
        expected: None,
        data_folder: None,
        snapshots: None,
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

fn fact_of<T>(outcome: Result<T, Failure>, source: impl Into<String>, at: Timestamp) -> Fact<T> {
    match outcome {
        Ok(value) => Fact::known(value, source, at),
        Err(failure) => failure.into_fact(source, at),
    }
}

/// `quota` is what the member's metrics state, for versions whose `Status` does not.
fn status_facts(status: wire::StatusResponse, quota: Option<i64>) -> EndpointStatus {
    let header = status.header.unwrap_or_default();
    EndpointStatus {
        member_id: hex_id(header.member_id),
        cluster_id: hex_id(header.cluster_id),
        version: status.version,
        db_size_bytes: status.db_size,
        db_in_use_bytes: status.db_size_in_use,
        quota_bytes: if status.db_size_quota > 0 { status.db_size_quota } else { quota.unwrap_or(0) },
        leader: if status.leader == 0 { String::new() } else { hex_id(status.leader) },
        raft_term: status.raft_term,
        raft_index: status.raft_index,
        applied_index: status.raft_applied_index,
        is_learner: status.is_learner,
        errors: status.errors,
    }
}

fn list_facts(list: &List) -> MemberList {
    MemberList {
        cluster_id: hex_id(list.cluster_id),
        linearizable: list.linearizable,
        members: list
            .members
            .iter()
            .map(|m| Member {
                id: hex_id(m.id),
                name: m.name.clone(),
                peer_urls: m.peer_urls.clone(),
                client_urls: m.client_urls.clone(),
                is_learner: m.is_learner,
            })
            .collect(),
    }
}

/// Ids in hexadecimal without leading zeros, as etcdctl prints them.
fn hex_id(id: u64) -> String {
    format!("{id:x}")
}

fn alarm_kind(kind: i32) -> String {
    match kind {
        1 => "NOSPACE".into(),
        2 => "CORRUPT".into(),
        other => other.to_string(),
    }
}
