//! The load: enrolment, connecting, settling, a steady rate.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use outrider_agent::net::Connection;
use outrider_tests::simulated::{Applicant, Member, Operator, Target};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::histogram::Histogram;

/// Agents a local address: one has 28,232 ports, and a reconnect needs new ones while the old linger.
const AGENTS_AN_ADDRESS: usize = 4_000;
/// Handshakes under way at once, as a fleet's jitter would spread them.
const AT_ONCE: usize = 64;
/// One request in so many is a report with a transition.
const REPORT_EVERY: u64 = 20;

/// A member with its open connection.
#[derive(Debug)]
pub(crate) struct Link {
    member: Member,
    connection: Connection,
}

/// All members connected, and how long that took.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// Members with their connections.
    pub(crate) links: Vec<Link>,
    /// From the first handshake to the last heartbeat answered.
    pub(crate) elapsed: Duration,
}

fn source(number: usize) -> IpAddr {
    let last = u8::try_from(2 + number / AGENTS_AN_ADDRESS).unwrap_or(u8::MAX);
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

/// Runs `work` for every item, at most [`AT_ONCE`] together.
async fn all<I, T, F>(items: I, work: impl Fn(I::Item) -> F) -> anyhow::Result<Vec<T>>
where
    I: IntoIterator,
    T: Send + 'static,
    F: Future<Output = anyhow::Result<T>> + Send + 'static,
{
    let mut done = Vec::new();
    let mut tasks = JoinSet::new();
    for item in items {
        if tasks.len() >= AT_ONCE
            && let Some(finished) = tasks.join_next().await
        {
            done.push(finished??);
        }
        tasks.spawn(work(item));
    }
    while let Some(finished) = tasks.join_next().await {
        done.push(finished??);
    }
    Ok(done)
}

/// Enrols `count` members with one pool token.
pub(crate) async fn enrol(operator: &Operator, count: usize) -> anyhow::Result<(Vec<Member>, Duration)> {
    let token = operator.pool_token("swarm-*", 1_000_000).await?;
    let target = operator.target.clone();
    let open = target.tls(None)?;
    let start = Instant::now();
    let members = all(0..count, |number| {
        let (target, open, token) = (target.clone(), open.clone(), token.clone());
        async move {
            let from = source(number);
            let mut connection = target.connect(open, Some(from)).await?;
            let applicant = Applicant::new(&format!("swarm-{number:05}"), u32::try_from(number)?)?;
            let answer = applicant.apply(&mut connection, &token).await?;
            applicant.admitted(&target, &answer, from).with_context(|| format!("enrolling agent {number}"))
        }
    })
    .await?;
    Ok((members, start.elapsed()))
}

/// Connects every member and sends a first heartbeat.
pub(crate) async fn connect(target: &Target, members: Vec<Member>) -> anyhow::Result<Fleet> {
    let start = Instant::now();
    let links = all(members, |member| {
        let target = target.clone();
        async move {
            let mut connection = target.connect(member.tls.clone(), Some(member.source)).await?;
            member.heartbeat(&mut connection, 0).await?;
            Ok(Link { member, connection })
        }
    })
    .await?;
    Ok(Fleet { links, elapsed: start.elapsed() })
}

/// Every member reports its whole state once, so that the coordinator holds what it would hold of a real fleet.
pub(crate) async fn settle(links: &mut [Link]) -> anyhow::Result<()> {
    for link in links {
        link.member.report(&mut link.connection, true).await?;
    }
    Ok(())
}

/// What a steady load showed.
#[derive(Debug)]
pub(crate) struct Steady {
    /// From due to answered.
    pub(crate) latency: Arc<Histogram>,
    /// Requests that failed.
    pub(crate) failed: u64,
    /// How long it went.
    pub(crate) elapsed: Duration,
    /// The members, their connections closed.
    pub(crate) members: Vec<Member>,
}

/// `rate` requests a second over all links for `length`, each link at its own even pace.
pub(crate) async fn steady(links: Vec<Link>, rate: u32, length: Duration) -> anyhow::Result<Steady> {
    let latency = Arc::new(Histogram::new());
    let failed = Arc::new(AtomicU64::new(0));
    let count = u32::try_from(links.len())?;
    let pace = Duration::from_secs(1) * count / rate;
    let start = Instant::now() + Duration::from_millis(200);
    let mut tasks = JoinSet::new();
    for (number, mut link) in links.into_iter().enumerate() {
        let (latency, failed) = (latency.clone(), failed.clone());
        let mut due = start + pace * u32::try_from(number)? / count;
        tasks.spawn(async move {
            let mut round = number as u64;
            while due < start + length {
                tokio::time::sleep_until(due).await;
                round += 1;
                let sent = if round.is_multiple_of(REPORT_EVERY) {
                    link.member.report(&mut link.connection, true).await
                } else {
                    link.member.heartbeat(&mut link.connection, 0).await
                };
                if sent.is_ok() {
                    latency.add(due.elapsed());
                } else {
                    failed.fetch_add(1, Ordering::Relaxed);
                    break;
                }
                due += pace;
            }
            link.member
        });
    }
    let mut members = Vec::new();
    while let Some(member) = tasks.join_next().await {
        members.push(member?);
    }
    let elapsed = start.elapsed();
    Ok(Steady { latency, failed: failed.load(Ordering::Relaxed), elapsed, members })
}
