//! What the checks `etcd` and `load-balancer` cost a node: CPU of a pass and of a poll against real peers on loopback.
//!
//! `cargo run --release -p outrider-tests --bin cost`; needs etcd, haproxy and nginx.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use outrider_agent::config::{EtcdSettings, LoadBalancerSettings, Settings};
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::etcd::Watched;
use outrider_agent::sense::{SenseContext, etcd, load_balancer};
use outrider_protocol::{BalancerMode, Timestamp};
use outrider_tests::beds::balancer::{self, Balancer};
use outrider_tests::beds::etcd::{EtcdCluster, Options};

/// Polls of quiet watching that are measured: the round comes to each of three members several times.
const WATCHED: u32 = 60;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let cx = SenseContext {
        root: PathBuf::from("/"),
        clock: Arc::new(|| Timestamp::from(SystemTime::now())),
        opener: Arc::new(DirectOpener::new()),
    };
    // A task, as the agent's loop is: waking what the runtime blocks on costs a system call each time.
    tokio::spawn(async move {
        let mut out = std::io::stdout();
        etcd_cost(&cx, &mut out).await?;
        balancer_cost(&cx, &mut out).await
    })
    .await?
}

async fn etcd_cost(cx: &SenseContext, out: &mut (impl Write + Send)) -> Result<()> {
    let cluster = EtcdCluster::start(3, Options::default())?;
    let settings = EtcdSettings {
        endpoints_refused: false,
        endpoints: vec![cluster.endpoint(0)],
        ca: Some(cluster.ca()),
        cert: Some(cluster.client_certificate()),
        key: Some(cluster.client_key()),
        election_timeout: None,
    };
    let mut memory = etcd::Memory::default();
    let start = used()?;
    let first = etcd::read(cx, &settings, &mut memory).await;
    writeln!(
        out,
        "etcd, the first pass         {:6.3} ms of CPU, three TLS handshakes among it",
        used()? - start
    )?;
    ensure!(first.value().is_some_and(|facts| facts.endpoints.len() == 3), "three members answer: {first:?}");
    let start = used()?;
    for _ in 0..200 {
        etcd::read(cx, &settings, &mut memory).await;
    }
    let passes = used()?;
    for _ in 0..2000 {
        etcd::poll_local(cx, &settings, &mut memory).await;
    }
    let polls = used()?;
    writeln!(out, "etcd, three members, a pass  {:6.3} ms of CPU", (passes - start) / 200.0)?;
    writeln!(out, "etcd, a poll                 {:6.3} ms of CPU", (polls - passes) / 2000.0)?;
    let mut facts = first.value().cloned().context("facts")?;
    let (start, began) = (used()?, Instant::now());
    let poll = Settings::default().etcd_poll;
    for n in 1..=WATCHED {
        let watched = etcd::watch(cx, &settings, &mut memory, &mut facts).await;
        ensure!(matches!(watched, Watched::Same(_)), "nothing happens to the cluster: {watched:?}");
        memory.timer.until(tokio::time::Instant::from_std(began) + poll * n).await;
    }
    let share = (used()? - start) / 1000.0 / began.elapsed().as_secs_f64() * 100.0;
    writeln!(
        out,
        "etcd, watched between passes {share:6.4} % of a core, {WATCHED} polls, one every {poll:?}"
    )?;
    Ok(())
}

async fn balancer_cost(cx: &SenseContext, out: &mut (impl Write + Send)) -> Result<()> {
    let bed = Balancer::start(&balancer::Options::default())?;
    let settings = [LoadBalancerSettings {
        name: "rancher".into(),
        url: format!("https://{}:{}", balancer::HOST, bed.l4().port()),
        host: balancer::HOST.into(),
        port: bed.l4().port(),
        http_port: bed.l4_http().port(),
        mode: BalancerMode::Auto,
        backends: vec![bed.backend(0), bed.backend(1)],
        backend_http_port: bed.backend_http(0).port(),
        ca: Some(bed.ca()),
        resolve: BTreeMap::from([(balancer::HOST.to_owned(), vec![bed.l4().ip()])]),
        ..LoadBalancerSettings::default()
    }];
    load_balancer::read(cx, &settings, Duration::from_secs(20)).await;
    let start = used()?;
    for _ in 0..20 {
        load_balancer::read(cx, &settings, Duration::from_secs(20)).await;
    }
    writeln!(out, "load balancer, a pass        {:6.3} ms of CPU", (used()? - start) / 20.0)?;
    Ok(())
}

/// CPU used by this process, in milliseconds.
fn used() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let ms = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 * 1e3 + t.tv_usec() as f64 / 1e3;
    Ok(ms(usage.user_time()) + ms(usage.system_time()))
}
