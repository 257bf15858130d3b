//! The check `etcd`: finds the etcd of this node and reads it, never writes (`facts/etcd.md`).
//!
//! A pass asks the local member first, then takes the member list and asks every other member by itself, all at
//! once: one dead endpoint must not cost the others their time. Every call has a second; what did not answer is
//! `Unknown` with its cause and stays in the facts. Connections are kept between passes, so that a pass costs calls
//! and no handshakes, and [`watch`] between passes costs one call.
//!
//! Tour: `discover` and `rancher` (where etcd is), `credentials` (TLS files), `expected`, `process` and `disk` (what
//! this node's own files say), `client` and `wire` (gRPC), `survey` (who is asked), `metrics` (the scrape), `nodes`
//! (names of Kubernetes Nodes), `facts` (all of it in the words of the protocol), `memory` and `learners` (what a pass
//! leaves for the next), `watch` (the cheap looks in between).

mod client;
mod credentials;
mod discover;
#[cfg(test)]
mod discover_tests;
mod disk;
#[cfg(test)]
mod disk_tests;
mod expected;
mod facts;
mod learners;
mod memory;
mod metrics;
mod nodes;
mod process;
mod rancher;
mod survey;
mod watch;
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{Distribution, EtcdFacts, EtcdMetrics, Fact, Timestamp, UnknownCause};
use rustls::ClientConfig;

use self::credentials::Material;
use self::discover::{Discovery, Found, discover};
use self::disk::DiskFacts;
pub use self::expected::MemberConfig;
pub(crate) use self::expected::flags;
pub use self::facts::status_facts;
use self::facts::{facts, hex_id};
pub use self::memory::Memory;
pub use self::metrics::{Families, MetricsReader};
use self::survey::{Known, Look, Survey, survey};
pub(crate) use self::watch::is_refusal;
pub use self::watch::{Watched, poll_local, watch};
use super::SenseContext;
use super::kubernetes::rke1_is_left_over;
use crate::config::EtcdSettings;
use crate::net::{Failure, Url};

/// Limit of one call, connecting included.
const CALL: Duration = Duration::from_secs(1);

/// One pass. Takes at most about five seconds, whatever the peers do; usually some milliseconds, and a second when a
/// member is silent.
pub async fn read(cx: &SenseContext, settings: &EtcdSettings, memory: &mut Memory) -> Fact<EtcdFacts> {
    let (found, material, disk) = match search(cx, settings, memory.disk.take()).await {
        Search::Found(found, material, disk) => (*found, material, disk),
        Search::NotHere(reason) => {
            *memory = Memory::default();
            return Fact::not_applicable(reason, cx.now());
        }
        Search::Failed(failure, source) => {
            memory.close();
            return failure.into_fact(source, cx.now());
        }
    };
    if let Err((failure, file)) = memory.prepare(settings, found.clone(), material) {
        return failure.into_fact(file, cx.now());
    }
    memory.disk = Some(*disk);
    let began = cx.now();
    let known = Known { urls: memory.known_urls(), own: memory.local_member, cluster: memory.cluster };
    let (grpc, http) = (memory.grpc_tls(), memory.http_tls());
    let urls = metrics_urls(&found, memory.metrics_url.as_ref());
    let (survey, scraped) =
        tokio::join!(survey(cx, &found, grpc, &mut memory.connections, &known), scrape_first(&urls, http));
    if let (Some(Look { status: Err(_), .. }), Some(disk)) = (survey.looks.first(), memory.disk.clone()) {
        memory.disk = Some(look_for_cause(cx, disk).await);
    }
    let metrics = take_metrics(memory, scraped, &survey, cx.now());
    memory.remember(&found, &survey, cx.now());
    let read = survey.looks.iter().any(|look| look.read.is_ok() && !survey.is_foreign(look));
    memory.note_read(read, began);
    let nodes = memory.nodes.refresh(cx, &found, &survey).await;
    facts(cx, &found, &survey, metrics, nodes, memory)
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
    Found(Box<Found>, Option<Material>, Box<DiskFacts>),
    NotHere(String),
    Failed(Failure, String),
}

/// Reads the disk away from the loop: a file system or helper that hangs must hold up only this check.
async fn search(cx: &SenseContext, settings: &EtcdSettings, last: Option<DiskFacts>) -> Search {
    let (cx, settings) = (cx.clone(), settings.clone());
    let searched = tokio::task::spawn_blocking(move || match discover(&*cx.opener, &settings) {
        Discovery::Found(found) if found.distribution == Distribution::Rke1 && rke1_is_left_over(&cx) => {
            Search::NotHere(format!(
                "RKE1 left its files here ({}) and cannot run: nothing of it does, and Docker is gone",
                found.found_by
            ))
        }
        Discovery::Found(mut found) => {
            let material = match found.files.as_ref().map(|files| Material::read(&*cx.opener, files)) {
                None => None,
                Some(Ok(material)) => Some(material),
                Some(Err((failure, file))) => return Search::Failed(failure, file),
            };
            let disk = disk::look(&cx, &found, last);
            // What somebody configured for us counts more than what etcd was started with.
            if let (None, Some(timeout)) = (settings.election_timeout, disk.election_timeout) {
                found.election_timeout = timeout;
            }
            Search::Found(found, material, Box::new(disk))
        }
        Discovery::NotHere(reason) => Search::NotHere(reason),
        Discovery::Failed { failure, source } => Search::Failed(failure, source),
    });
    searched.await.unwrap_or_else(|e| {
        Search::Failed(Failure::new(UnknownCause::Panicked, e.to_string()), "looking for etcd".into())
    })
}

/// What lies in the data folder now that its member does not answer.
async fn look_for_cause(cx: &SenseContext, disk: DiskFacts) -> DiskFacts {
    let (cx, before) = (cx.clone(), disk.clone());
    tokio::task::spawn_blocking(move || disk::look_for_cause(&cx, disk)).await.unwrap_or(before)
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

/// All within one call's limit: a member that is silent on one port must not cost the pass another second for the next.
async fn scrape_first(urls: &[Url], tls: Option<Arc<ClientConfig>>) -> Scraped {
    let mut failures: Vec<Failure> = Vec::new();
    let deadline = tokio::time::Instant::now() + CALL;
    for url in urls {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        if left.is_zero() {
            break;
        }
        match metrics::scrape(url, tls.clone(), left).await {
            Ok(families) => return Ok((families, url.clone())),
            Err(failure) => failures.push(failure),
        }
    }
    let detail: Vec<&str> = failures.iter().map(|f| f.detail.as_str()).collect();
    let cause = failures.last().map_or(UnknownCause::NotYetRead, |f| f.cause.clone());
    Err(Failure::new(cause, detail.join("; ")))
}

/// The metrics fact, and the quota that the text states.
fn take_metrics(
    memory: &mut Memory,
    scraped: Scraped,
    survey: &Survey,
    now: Timestamp,
) -> (Fact<EtcdMetrics>, Option<i64>) {
    let (families, url) = match scraped {
        Ok(scraped) => scraped,
        Err(failure) => {
            memory.metrics_url = None;
            return (failure.into_fact("/metrics of the local member", now), None);
        }
    };
    let quota = families.quota();
    let source = url.to_string();
    match families.into_scrape(now) {
        Ok(mut scrape) => {
            // etcd goes on to count for a member that was removed, until it is restarted.
            if let Ok(list) = &survey.list {
                scrape.peers.retain(|id, _| list.members.iter().any(|member| hex_id(member.id) == *id));
            }
            memory.metrics_url = Some(url);
            (Fact::known(memory.scrapes.add(scrape), source, now), quota)
        }
        Err(failure) => (failure.into_fact(source, now), quota),
    }
}
