//! Check `dns`: the names this node depends on, as the machine resolves them and as each server it may ask answers
//! (`facts/rancher-load-balancer.md`, section 7).
//!
//! Tour: `names` (what is looked up, and for whom), `resolv_conf` (who is asked, and the hosts file), `servers` (the list of
//! them, each with its part), `host` (glibc's own lookup, the way to the addresses), `exchange` (one question at one server),
//! `message` (its bytes), `idn` (names beyond ASCII). Polite: two questions a name and server, none at a server that was
//! silent a moment ago, everything within one limit.

mod exchange;
mod host;
mod idn;
mod message;
mod names;
mod resolv_conf;
mod servers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use outrider_protocol::{
    AppendedName, DnsAnswer, DnsFacts, DnsServer, Fact, HostAnswer, NameFacts, ResolvConf, ServerAnswer,
    UnknownCause,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

pub use self::idn::to_ascii;
pub use self::message::{Family, Read, answer, question};
pub use self::resolv_conf::{hosts, parse};

use self::exchange::ask;
use self::names::Wanted;
use self::servers::Server;
use super::cluster::{self, Cluster};
use super::{SenseContext, file, rancher_agent};
use crate::config::Settings;
use crate::net::Failure;

/// Questions with a search domain behind a name, in all.
const MAX_APPENDED: usize = 24;

/// What one look leaves for the next: a lookup of glibc cannot be cancelled, and no second is begun beside it.
#[derive(Debug, Default)]
pub struct Memory {
    looking: Arc<AtomicBool>,
}

/// What is known before anything is asked.
struct Prepared {
    cluster: Cluster,
    names: Vec<Wanted>,
    names_left_out: u32,
    hosts: String,
    resolv_conf: Fact<ResolvConf>,
    upstreams: Fact<ResolvConf>,
    pods: Fact<ResolvConf>,
    servers: Vec<Server>,
    cluster_dns: Fact<String>,
}

/// One pass within `limit`.
pub async fn read(
    cx: &SenseContext,
    settings: &Settings,
    limit: Duration,
    memory: &mut Memory,
) -> Fact<DnsFacts> {
    // A tenth is kept for what is not waiting: the facts must be there before the limit, not at it.
    let deadline = Instant::now() + limit.mul_f64(0.9);
    let (blocking, wanted) = (cx.clone(), settings.clone());
    let prepared = match tokio::task::spawn_blocking(move || prepare(&blocking, &wanted)).await {
        Ok(prepared) => prepared,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => return Fact::unknown(UnknownCause::IoError, error.to_string(), "dns", cx.now()),
        },
    };
    if prepared.names.is_empty() && prepared.cluster.distribution.is_none() {
        let reason = "no name to resolve: neither a balancer, a coordinator, a server of RKE2 or K3s nor \
                      rancher-system-agent is configured by name";
        return Fact::not_applicable(reason, cx.now());
    }
    // Of a name that cannot exist (RFC 6761): a new one each time, so that no cache answers.
    let nonsense_name = format!("outrider-{:08x}.invalid", rand::random::<u32>());
    let mut on_host: Vec<String> =
        prepared.names.iter().filter(|w| w.problem.is_empty()).map(asked_here).collect();
    on_host.push(nonsense_name.clone());
    let (hosts, answers) = join(
        lookups(cx, on_host, deadline, memory),
        join_all(
            prepared.servers.iter().map(|s| one_server(cx, s, &prepared.names, &nonsense_name, deadline)),
        ),
    )
    .await;
    let appended = appended(cx, &prepared, &answers, deadline).await;
    let facts = assemble(cx, prepared, nonsense_name, hosts, answers, appended);
    Fact::known(facts, "resolv.conf(5), getaddrinfo(3), DNS", cx.now())
}

/// The name as programs here hand it to glibc: with the final dot, if it was written.
fn asked_here(wanted: &Wanted) -> String {
    let dot = if wanted.written.ends_with('.') { "." } else { "" };
    format!("{}{dot}", wanted.name)
}

/// Reads files. Blocking.
fn prepare(cx: &SenseContext, settings: &Settings) -> Prepared {
    let cluster = cluster::read(cx);
    let connection = rancher_agent::server(cx);
    let (names, names_left_out) = names::wanted(settings, &cluster, connection.as_deref());
    let resolv_conf = resolv_conf::read(cx, "/etc/resolv.conf");
    let upstreams = servers::upstreams(cx, &resolv_conf);
    let pods = servers::pods(cx, &cluster, &resolv_conf);
    let (servers, cluster_dns) =
        servers::list(cx, &cluster, [&resolv_conf, &upstreams, &pods], &settings.dns.servers);
    let hosts = file::read_text(&cx.path("/etc/hosts"), file::LARGE).unwrap_or_default();
    Prepared { cluster, names, names_left_out, hosts, resolv_conf, upstreams, pods, servers, cluster_dns }
}

/// glibc's lookups, one after the other on one thread; what has not come by the deadline is unknown.
async fn lookups(
    cx: &SenseContext,
    names: Vec<String>,
    deadline: Instant,
    memory: &Memory,
) -> Vec<Fact<HostAnswer>> {
    let late = |detail: &str| Fact::unknown(UnknownCause::TimedOut, detail, "getaddrinfo(3)", cx.now());
    if memory.looking.swap(true, Ordering::AcqRel) {
        let detail = "the lookup of an earlier pass has not ended; no second one is begun beside it";
        return names.iter().map(|_| late(detail)).collect();
    }
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let (blocking, wanted, looking) = (cx.clone(), names.clone(), Looking(memory.looking.clone()));
    tokio::task::spawn_blocking(move || {
        let _looking = looking;
        for name in wanted {
            // Nobody waits any more: the rest is not looked up.
            if sender.send(host::lookup(&blocking, &name)).is_err() {
                return;
            }
        }
    });
    let mut found = Vec::with_capacity(names.len());
    while let Ok(Some(fact)) = timeout_at(deadline, receiver.recv()).await {
        found.push(fact);
    }
    let missing = names.len().saturating_sub(found.len());
    let detail = "glibc's lookup did not end in time: a server of resolv.conf is silent";
    found.extend(std::iter::repeat_with(|| late(detail)).take(missing));
    found
}

/// Held by the thread that looks up.
struct Looking(Arc<AtomicBool>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What one server said.
struct Said {
    nonsense: Fact<DnsAnswer>,
    /// A and AAAA of each name, in the order of the names.
    names: Vec<(Fact<DnsAnswer>, Fact<DnsAnswer>)>,
}

async fn one_server(
    cx: &SenseContext,
    server: &Server,
    names: &[Wanted],
    nonsense: &str,
    deadline: Instant,
) -> Said {
    let mut said =
        Said { nonsense: one(cx, server.socket, nonsense, Family::V4, deadline).await, names: vec![] };
    let mut silent = is_silent(&said.nonsense);
    // A filter may swallow the odd name alone: silence has to be heard twice.
    let mut is_first = true;
    for wanted in names {
        let skipped = |detail: &str| {
            let fact = || Fact::unknown(UnknownCause::TimedOut, detail, server.socket.to_string(), cx.now());
            (fact(), fact())
        };
        if !wanted.problem.is_empty() {
            let fact = || Fact::not_applicable(wanted.problem.clone(), cx.now());
            said.names.push((fact(), fact()));
        } else if silent && !is_first {
            said.names.push(skipped("not asked: the server was silent a moment ago"));
        } else {
            let (a, aaaa) = join(
                one(cx, server.socket, &wanted.name, Family::V4, deadline),
                one(cx, server.socket, &wanted.name, Family::V6, deadline),
            )
            .await;
            silent = is_silent(&a) && is_silent(&aaaa);
            is_first = false;
            said.names.push((a, aaaa));
        }
    }
    said
}

fn is_silent(fact: &Fact<DnsAnswer>) -> bool {
    matches!(fact, Fact::Unknown { cause: UnknownCause::TimedOut, .. })
}

async fn one(
    cx: &SenseContext,
    server: SocketAddr,
    name: &str,
    family: Family,
    deadline: Instant,
) -> Fact<DnsAnswer> {
    let source = format!("{} {name} at {server}", family.as_str());
    let asked = timeout_at(deadline, ask(server, name, family)).await;
    let answer = asked.unwrap_or_else(|_| {
        Err(Failure::new(UnknownCause::TimedOut, "there was no time left in this pass to wait for it"))
    });
    match answer {
        Ok(answer) => Fact::known(answer, source, cx.now()),
        Err(failure) => failure.into_fact(source, cx.now()),
    }
}

/// Names with each search domain behind them, at the first server that answers: what a pod, or this machine, gets when
/// the domains are tried before the name itself.
async fn appended(
    cx: &SenseContext,
    prepared: &Prepared,
    answers: &[Said],
    deadline: Instant,
) -> Vec<AppendedName> {
    let outside = |server: &Server| server.role != outrider_protocol::DnsServerRole::Cluster;
    let answering = prepared.servers.iter().zip(answers);
    let Some((server, _)) = answering.into_iter().find(|(s, a)| outside(s) && a.nonsense.value().is_some())
    else {
        return Vec::new();
    };
    let mut domains: Vec<(String, Vec<String>)> = Vec::new();
    for (of, conf) in [("host", &prepared.resolv_conf), ("pods", &prepared.pods)] {
        for domain in conf.value().map_or(&[][..], |c| c.search.as_slice()) {
            match domains.iter_mut().find(|(known, _)| known == domain) {
                Some((_, all)) => all.push(of.to_owned()),
                None => domains.push((domain.clone(), vec![of.to_owned()])),
            }
        }
    }
    let names = prepared.names.iter().filter(|w| w.problem.is_empty());
    // A final dot keeps the search domains away.
    let names: Vec<&Wanted> = names.filter(|w| !w.written.ends_with('.')).collect();
    let pairs = names.iter().flat_map(|w| domains.iter().map(move |d| (&w.name, d)));
    let tries = pairs.take(MAX_APPENDED).map(|(name, (domain, of))| async move {
        let both = format!("{name}.{domain}");
        let found = one(cx, server.socket, &both, Family::V4, deadline).await;
        let addresses = found.value().map(|a| a.addresses.clone()).filter(|a| !a.is_empty())?;
        let odd = format!("outrider-{:08x}.{domain}", rand::random::<u32>());
        let odd = one(cx, server.socket, &odd, Family::V4, deadline).await;
        Some(AppendedName {
            name: name.clone(),
            domain: domain.clone(),
            of: of.clone(),
            server: server.socket.to_string(),
            addresses,
            wildcard: odd.value().is_some_and(|a| !a.addresses.is_empty()),
        })
    });
    join_all(tries).await.into_iter().flatten().collect()
}

fn assemble(
    cx: &SenseContext,
    prepared: Prepared,
    nonsense_name: String,
    hosts: Vec<Fact<HostAnswer>>,
    mut answers: Vec<Said>,
    appended: Vec<AppendedName>,
) -> DnsFacts {
    let mut hosts = hosts.into_iter();
    let mut names = Vec::with_capacity(prepared.names.len());
    for (i, wanted) in prepared.names.into_iter().enumerate() {
        let host = match wanted.problem.is_empty() {
            true => hosts.next(),
            false => Some(Fact::not_applicable(wanted.problem.clone(), cx.now())),
        };
        let host = host.unwrap_or_else(|| Fact::unknown(UnknownCause::NotYetRead, "", "", cx.now()));
        let said: Vec<ServerAnswer> = prepared
            .servers
            .iter()
            .zip(&answers)
            .filter_map(|(server, said)| {
                let (a, aaaa) = said.names.get(i)?.clone();
                Some(ServerAnswer { server: server.socket.to_string(), a, aaaa })
            })
            .collect();
        let hosts_file = resolv_conf::hosts(&prepared.hosts, &asked_here(&wanted));
        let mut addresses: Vec<&String> = host.value().map_or(vec![], |h| h.addresses.iter().collect());
        for fact in said.iter().flat_map(|s| [&s.a, &s.aaaa]) {
            addresses.extend(fact.value().map_or(&[][..], |a| a.addresses.as_slice()));
        }
        let mut ways = Vec::new();
        for address in addresses {
            if ways.len() < 16 && ways.iter().all(|w: &outrider_protocol::AddressWay| w.address != *address) {
                ways.push(host::way(cx, address));
            }
        }
        names.push(NameFacts {
            name: wanted.name,
            written: wanted.written,
            wanted_by: wanted.by,
            problem: wanted.problem,
            host,
            hosts_file,
            answers: said,
            ways,
        });
    }
    let nonsense = match hosts.next() {
        Some(fact) => fact.map(|answer| answer.addresses),
        None => Fact::unknown(UnknownCause::NotYetRead, "", "", cx.now()),
    };
    let servers = prepared.servers.into_iter().zip(answers.drain(..)).map(|(server, said)| DnsServer {
        address: server.socket.to_string(),
        role: server.role,
        position: server.position,
        assumed: server.assumed,
        nonsense: said.nonsense,
    });
    DnsFacts {
        resolv_conf: prepared.resolv_conf,
        upstreams: prepared.upstreams,
        pods: prepared.pods,
        servers: servers.collect(),
        cluster_dns: prepared.cluster_dns,
        nonsense,
        nonsense_name,
        appended,
        names,
        names_left_out: prepared.names_left_out,
    }
}
