//! Whether the agent grows with what changes around it, in minutes instead of days.
//!
//! `MALLOC_ARENA_MAX=1 cargo run -p outrider-agent --example growth -- [TURNS]` runs the whole daemon (loop, latches,
//! spool, local socket, delivery to a coordinator that refuses) in paused time: every second brings readings that differ
//! from those before, with interfaces and mounts of new names that come and go, a clock that wanders, an etcd and a
//! balancer that flap. Printed is the anonymous memory after every tenth of the turns; `docs/performance.md` holds the
//! results. The last column is the state folder: spool and latches, which have bounds of their own.

#![allow(clippy::print_stdout, reason = "a program that prints a table")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use outrider_agent::checks::{PassContext, PassFuture, Reading, Sensors, SlotGuard};
use outrider_agent::config::ConfigSource;
use outrider_agent::notify::Notifier;
use outrider_agent::privileged::DirectOpener;
use outrider_agent::report::Clock;
use outrider_agent::sense::SenseContext;
use outrider_agent::{RunOptions, run};
use outrider_protocol::{
    Check, CheckFacts, ClockOffset, CloudInitStatus, Fact, InterfaceFacts, NodeFacts, UnknownCause,
};
use tokio::time::Instant;

/// Facts of an etcd server with every check known.
const RECORDING: &str = include_str!("../../installer/src/simulate/recordings/rancher-server.json");
/// How long a flapping thing stays as it is: beyond every hysteresis, so that each flap is a transition.
const FLAP: u64 = 45;
const CHECKS: [&str; 6] = ["host", "clock", "cloud-init", "guest-agent", "etcd", "load-balancer"];

/// Sensors that never read the same twice.
struct Churn {
    recorded: CheckFacts,
    clock: Clock,
    passes: AtomicU64,
}

impl Churn {
    fn read(&self, check: &Check) -> Option<Reading> {
        let (n, now) = (self.passes.fetch_add(1, Ordering::Relaxed), (self.clock)());
        let bad = (now.as_millis() / 1000) as u64 / FLAP % 2 == 1;
        let lost = || Reading::unknown(check, UnknownCause::TimedOut, &format!("no answer to call {n}"), now);
        let recorded = self.recorded.clone();
        Some(match check {
            Check::Host => {
                let mut host = recorded.host?.value()?.clone();
                if let Fact::Known { value, .. } = &mut host.interfaces {
                    value.extend((0..n % 5).map(|i| interface(n, i)));
                }
                if let Fact::Known { value, .. } = &mut host.filesystems {
                    let full = value.first().cloned();
                    value.extend((0..n % 3).zip(full).map(|(i, mut full)| {
                        (full.mount, full.available_bytes) = (format!("/mnt/volume-{n}-{i}"), 1);
                        full
                    }));
                }
                Reading::Host(Fact::known(host, "churn", now))
            }
            Check::Clock => {
                let mut clock = recorded.clock?.value()?.clone();
                let offset_ms = if bad { 60_000 + n as i64 } else { (n % 90) as i64 };
                let offset =
                    ClockOffset { offset_ms, uncertainty_ms: 2, peer: format!("https://c{n}.example") };
                clock.coordinator = Fact::known(offset, "churn", now);
                Reading::Clock(Fact::known(clock, "churn", now))
            }
            Check::CloudInit => {
                let mut facts = recorded.cloud_init?.value()?.clone();
                if bad {
                    (facts.status, facts.errors) =
                        (CloudInitStatus::Error, vec![format!("module {n} failed")]);
                }
                Reading::CloudInit(Fact::known(facts, "churn", now))
            }
            Check::Etcd if bad => return lost(),
            Check::Etcd => Reading::Etcd(Fact::known(recorded.etcd?.value()?.clone(), "churn", now)),
            Check::GuestAgent if bad => return lost(),
            Check::GuestAgent => {
                Reading::GuestAgent(Fact::known(recorded.guest_agent?.value()?.clone(), "churn", now))
            }
            Check::LoadBalancer => {
                let mut balancers = recorded.load_balancer?.value()?.clone();
                for probe in balancers.iter_mut().flat_map(|balancer| &mut balancer.probes) {
                    probe.at = now;
                    match &mut probe.http {
                        Fact::Known { value, .. } if bad => {
                            (value.status, value.body_start) = (502, format!("error {n}"))
                        }
                        _ => {}
                    }
                }
                Reading::LoadBalancer(Fact::known(balancers, "churn", now))
            }
            _ => return None,
        })
    }
}

fn interface(n: u64, i: u64) -> InterfaceFacts {
    InterfaceFacts {
        name: format!("veth{n:x}{i}"),
        mac: format!("02:00:{:02x}:{:02x}:{:02x}:{i:02x}", n >> 16 & 255, n >> 8 & 255, n & 255),
        addresses: vec![format!("10.{}.{}.{}/24", n >> 8 & 255, n & 255, i)],
        up: n.is_multiple_of(2),
        is_virtual: !n.is_multiple_of(7),
    }
}

impl Sensors for Churn {
    fn pass(&self, check: &Check, _: PassContext, guard: SlotGuard) -> PassFuture {
        let reading = self.read(check);
        Box::pin(async move {
            let _guard = guard;
            reading
        })
    }
}

/// `RssAnon` of this process, in KiB.
fn anonymous_kib() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

/// What the state folder holds: spool, latches, identity.
fn spool_bytes(state: &Path) -> u64 {
    let files = std::fs::read_dir(state).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}

fn main() -> anyhow::Result<()> {
    let turns: u64 = std::env::args().nth(1).map_or(Ok(5000), |text| text.parse()).context("[TURNS]")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .max_blocking_threads(8)
        .build()?;
    runtime.block_on(play(turns))
}

async fn play(turns: u64) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let mut config = "[coordinator]\nurls = [\"https://127.0.0.1:1\"]\n".to_owned();
    for check in CHECKS {
        config.push_str(&format!("[checks.{check}]\ninterval = \"1s\"\n"));
    }
    std::fs::write(at("agent.toml"), config)?;
    let recorded: NodeFacts = serde_json::from_str(RECORDING)?;
    let (began, start) = (recorded.now, Instant::now());
    let clock: Clock = Arc::new(move || began.after(start.elapsed()));
    let churn = Churn { recorded: recorded.checks, clock: clock.clone(), passes: AtomicU64::default() };
    let churn = Arc::new(churn);
    let options = RunOptions {
        config: ConfigSource::File(at("agent.toml")),
        state_dir: at("state"),
        runtime_dir: at("run"),
        sense: SenseContext { root: at("root"), clock, opener: Arc::new(DirectOpener::below(at("root"))) },
        sensors: Some(churn.clone()),
        embedding: None,
        notifier: Notifier::silent(),
    };
    let state = at("state");
    let watch = async move {
        println!("{:>8} {:>8} {:>14} {:>12}", "turns", "passes", "anonymous KiB", "state bytes");
        for tenth in 1..=10 {
            tokio::time::sleep(Duration::from_secs(turns) / 10).await;
            let (passes, kib) = (churn.passes.load(Ordering::Relaxed), anonymous_kib().unwrap_or_default());
            println!("{:>8} {passes:>8} {kib:>14} {:>12}", turns * tenth / 10, spool_bytes(&state));
        }
    };
    run(options, watch).await?;
    Ok(())
}
