//! `storm FOLDER`: the real daemon with sensors that never rest. Once a second some of forty balancers are gone and
//! others back, so that transitions stream through rules, latches, spool and delivery while the process is killed.
//! A file `quiet` in the folder ends the storm: from then on the same twenty stay.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use outrider_agent::checks::{PassContext, PassFuture, Reading, Sensors, SlotGuard};
use outrider_agent::config::ConfigSource;
use outrider_agent::daemon::{RunOptions, run, termination};
use outrider_agent::notify::Notifier;
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::SenseContext;
use outrider_protocol::{
    BalancerMode, BalancerService, Check, Fact, LoadBalancerFacts, Probe, ProbeKind, ProbeTarget, Timestamp,
};

struct Storm {
    folder: PathBuf,
}

impl Sensors for Storm {
    fn pass(&self, check: &Check, _: PassContext, guard: SlotGuard) -> PassFuture {
        let (check, quiet) = (check.clone(), self.folder.join("quiet"));
        Box::pin(async move {
            let _guard = guard;
            let now = Timestamp::from(SystemTime::now());
            match check {
                Check::LoadBalancer => {
                    let quiet = quiet.exists();
                    let there = (0..40u32).filter(|n| if quiet { n % 2 == 0 } else { rand::random() });
                    Some(Reading::LoadBalancer(Fact::known(
                        there.map(|n| balancer(n, now)).collect(),
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
    let root = folder.join("root");
    let options = RunOptions {
        config: ConfigSource::File(folder.join("agent.toml")),
        state_dir: folder.join("state"),
        runtime_dir: folder.join("run"),
        sense: SenseContext {
            opener: Arc::new(DirectOpener::below(root.clone())),
            clock: Arc::new(|| Timestamp::from(SystemTime::now())),
            root,
        },
        sensors: Some(Arc::new(Storm { folder })),
        embedding: None,
        notifier: Notifier::silent(),
    };
    outrider_agent::cli::runtime()?.block_on(async { Ok(run(options, termination()).await?) })
}
