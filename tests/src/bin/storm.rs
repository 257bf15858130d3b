//! `storm FOLDER`: the real daemon with sensors that never rest. Once a second some of forty balancers are gone and
//! others back, so that transitions stream through rules, latches, spool and delivery while the process is killed.
//! A file `quiet` in the folder ends the storm: from then on the same twenty stay. While much waits in the spool nothing
//! changes: a full spool merges transitions, and then none could be told from a lost one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use outrider_agent::checks::{PassContext, PassFuture, Reading, Sensors, SlotGuard};
use outrider_agent::config::ConfigSource;
use outrider_agent::daemon::{RunOptions, run, termination};
use outrider_agent::local::{self, Ask};
use outrider_agent::notify::Notifier;
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::SenseContext;
use outrider_protocol::{
    BalancerMode, BalancerService, Check, Fact, LoadBalancerFacts, Probe, ProbeKind, ProbeTarget, Timestamp,
};

/// Transitions in the spool above which the storm rests; a pass makes about a hundred, the spool holds a thousand.
const MANY: u64 = 300;

struct Storm {
    folder: PathBuf,
    socket: PathBuf,
}

impl Storm {
    /// Which balancers are there now. What was there last is in a file, for the process is killed.
    async fn balancers(&self) -> Vec<u32> {
        if self.folder.join("quiet").exists() {
            return (0..40).filter(|n| n % 2 == 0).collect();
        }
        let file = self.folder.join("there");
        let last = std::fs::read(&file).ok().and_then(|json| serde_json::from_slice(&json).ok());
        if let Some(last) = last
            && !self.has_room().await
        {
            return last;
        }
        let there: Vec<u32> = (0..40).filter(|_| rand::random()).collect();
        let _ = serde_json::to_vec(&there).map(|json| std::fs::write(&file, json));
        there
    }

    async fn has_room(&self) -> bool {
        let status = local::ask(&self.socket, Ask::Status).await;
        status.is_ok_and(|status| status["agent"]["spooled"].as_u64().is_some_and(|waiting| waiting < MANY))
    }
}

struct Changing(Arc<Storm>);

impl Sensors for Changing {
    fn pass(&self, check: &Check, _: PassContext, guard: SlotGuard) -> PassFuture {
        let (check, storm) = (check.clone(), Arc::clone(&self.0));
        Box::pin(async move {
            let _guard = guard;
            let now = Timestamp::from(SystemTime::now());
            match check {
                Check::LoadBalancer => {
                    let there = storm.balancers().await;
                    Some(Reading::LoadBalancer(Fact::known(
                        there.into_iter().map(|n| balancer(n, now)).collect(),
                        "storm",
                        now,
                    )))
                }
                other => Reading::not_applicable(&other, "only the storm", now),
            }
        })
    }
}

fn balancer(number: u32, at: Timestamp) -> LoadBalancerFacts {
    let probe = Probe {
        kind: ProbeKind::Connect,
        target: ProbeTarget::Balancer,
        peer: "192.0.2.1:443".to_owned(),
        at,
        tcp: Fact::known(0.5, "storm", at),
        tls: Fact::not_applicable("storm", at),
        http: Fact::not_applicable("storm", at),
        raw: String::new(),
    };
    LoadBalancerFacts {
        name: format!("balancer-{number:02}"),
        url: "https://rancher.example.test".to_owned(),
        host: "rancher.example.test".to_owned(),
        port: 443,
        http_port: 80,
        service: BalancerService::Rancher,
        mode: BalancerMode::L4,
        found_mode: BalancerMode::L4,
        found_by: String::new(),
        addresses: Fact::known(vec!["192.0.2.1".to_owned()], "storm", at),
        probes: vec![probe],
        backends: None,
        connections: 1,
        ca_checksum: String::new(),
        agent_tls_mode: String::new(),
        ca: None,
        gaps: Vec::new(),
        neighbours: Vec::new(),
        moves: Vec::new(),
        idle: None,
    }
}

fn main() -> anyhow::Result<()> {
    let folder = std::env::args().nth(1).context("storm FOLDER")?;
    let folder = Path::new(&folder).to_owned();
    outrider_agent::journal::install(log::LevelFilter::Info);
    let (root, runtime) = (folder.join("root"), folder.join("run"));
    let options = RunOptions {
        config: ConfigSource::File(folder.join("agent.toml")),
        state_dir: folder.join("state"),
        runtime_dir: runtime.clone(),
        sense: SenseContext {
            opener: Arc::new(DirectOpener::below(root.clone())),
            clock: Arc::new(|| Timestamp::from(SystemTime::now())),
            root,
        },
        sensors: Some(Arc::new(Changing(Arc::new(Storm { socket: runtime.join("agent.sock"), folder })))),
        embedding: None,
        notifier: Notifier::silent(),
    };
    outrider_agent::cli::runtime()?.block_on(async { Ok(run(options, termination()).await?) })
}
