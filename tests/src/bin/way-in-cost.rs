//! What a full pass of the check `load-balancer` costs a node: two addresses of a balancer, three backends, all well.
//!
//! `tests/suites/way-in.sh cost`, which builds it with `--release` and gives it network namespaces of its own.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use outrider_agent::config::LoadBalancerSettings;
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::{SenseContext, load_balancer};
use outrider_protocol::{BalancerMode, Timestamp};
use outrider_tests::beds::rancher::{Address, Balancer, Bed, HOST, Layer, Setup};

const PASSES: usize = 20;
/// Time limit of a pass, as the agent gives it.
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let cx = SenseContext {
        root: PathBuf::from("/"),
        clock: Arc::new(|| Timestamp::from(SystemTime::now())),
        opener: Arc::new(DirectOpener::new()),
    };
    let mut bed = Bed::new()?;
    for layer in [Layer::L4, Layer::L7] {
        bed.arrange(&Setup::new(layer, Balancer::Haproxy))?;
        let (mode, port) = match layer {
            Layer::L4 => (BalancerMode::L4, 443),
            Layer::L7 => (BalancerMode::L7, 80),
        };
        let addresses = vec![bed.address(Address::First), bed.address(Address::Second)];
        let settings = [LoadBalancerSettings {
            name: "rancher".into(),
            url: format!("https://{HOST}"),
            host: HOST.into(),
            mode,
            backends: (1..=3).map(|i| (bed.node(i).address(false), port).into()).collect(),
            ca: Some(bed.ca()),
            ca_checksum: Some(bed.ca_checksum()),
            resolve: BTreeMap::from([(HOST.to_owned(), addresses)]),
            ..LoadBalancerSettings::default()
        }];
        let first = load_balancer::read(&cx, &settings, LIMIT).await;
        let before = resident()?;
        let (mut walls, mut probes, start) = (Vec::new(), 0, used()?);
        for _ in 0..PASSES {
            let began = Instant::now();
            let facts = load_balancer::read(&cx, &settings, LIMIT).await;
            walls.push(began.elapsed());
            let facts = facts.value().and_then(|all| all.first()).context("no facts")?;
            let answered = facts.probes.iter().all(|p| p.tcp.value().is_some() || p.http.value().is_some());
            ensure!(answered, "everybody answers: {facts:?}");
            probes = facts.probes.len();
        }
        let cpu = (used()? - start) / PASSES as f64;
        walls.sort();
        writeln!(
            std::io::stdout(),
            "{layer:?}, 2 addresses, 3 backends, {probes} tries: wall {:.0} ms in the middle, {:.0} ms at worst; {cpu:.1} ms of \
             processor time; resident {:+} KiB over {PASSES} passes",
            walls[PASSES / 2].as_secs_f64() * 1e3,
            walls[PASSES - 1].as_secs_f64() * 1e3,
            resident()? - before,
        )?;
        drop(first);
    }
    Ok(())
}

/// CPU used by this process, in milliseconds.
fn used() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let ms = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 * 1e3 + t.tv_usec() as f64 / 1e3;
    Ok(ms(usage.user_time()) + ms(usage.system_time()))
}

/// Resident memory, in KiB.
fn resident() -> Result<i64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
