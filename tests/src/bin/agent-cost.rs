//! What the agent costs, measured from outside, with every check at work: `tests/measure-agent` builds and calls it.
//!
//! Beside the agent run a real three-member TLS etcd, a real HAProxy in front of two real nginx, the files and ports of an
//! RKE2 server ([`rke2`]) and a coordinator. Measured are: size of the binary, start to the first report stored at the
//! coordinator (enrolment included), processor time at the default cadence, and memory after an hour of turns (played at
//! thirty times the cadence), with every check and with one switched off.
//!
//! `--beside PROGRAM` measures another build at the same time on the same beds: on a busy machine the ratio of two that
//! shared a minute says more than either of them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use outrider_protocol::{EventView, List, Timestamp};
use outrider_tests::beds::balancer::{self, Balancer};
use outrider_tests::beds::etcd::{self, EtcdCluster};
use outrider_tests::beds::rke2::{self, Rke2};
use outrider_tests::coordinator::{Coordinator, Launch, usage};
use outrider_tests::programs::{Process, program};

/// The environment of the packaged unit.
const UNIT: &str = include_str!("../../../packaging/usr/lib/systemd/system/outrider-agent.service");
const USAGE: &str =
    "agent-cost [--agent PROGRAM] [--beside PROGRAM] [--coordinator PROGRAM] [--minutes N] [--starts N]";
/// Turns of an hour are played in this fraction of it.
const FASTER: u64 = 30;
/// Cadences of the checks in seconds, as the agent has them.
const CADENCES: [(&str, u64); 11] = [
    ("host", 60),
    ("clock", 60),
    ("cloud-init", 30),
    ("guest-agent", 60),
    ("etcd", 120),
    ("load-balancer", 60),
    ("certificates", 600),
    ("kubernetes", 60),
    ("dns", 60),
    ("rancher-agent", 60),
    ("credentials", 600),
];
/// Checks whose share of the memory is measured: by an agent without them.
const APART: [&[&str]; 3] = [&["etcd"], &["certificates"], &["etcd", "certificates"]];

struct Options {
    agent: PathBuf,
    beside: Option<PathBuf>,
    coordinator: PathBuf,
    minutes: u64,
    starts: usize,
}

fn options() -> anyhow::Result<Options> {
    let (mut agent, mut beside, mut coordinator, mut minutes, mut starts) = (None, None, None, 5, 7);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a value\n{USAGE}"))?;
        match name.as_str() {
            "--agent" => agent = Some(PathBuf::from(value)),
            "--beside" => beside = Some(PathBuf::from(value)),
            "--coordinator" => coordinator = Some(PathBuf::from(value)),
            "--minutes" => minutes = value.parse()?,
            "--starts" => starts = value.parse()?,
            _ => bail!("unknown argument {name}\n{USAGE}"),
        }
    }
    let or_found = |given: Option<PathBuf>, name| given.map_or_else(|| program(name), Ok);
    Ok(Options {
        agent: or_found(agent, "outrider-agent")?,
        beside,
        coordinator: or_found(coordinator, "outrider-coordinator")?,
        minutes,
        starts,
    })
}

struct Beds {
    etcd: EtcdCluster,
    balancer: Balancer,
    rke2: Rke2,
    coordinator: Coordinator,
    launch: Launch,
    _names: Process,
    folder: tempfile::TempDir,
}

impl Beds {
    async fn start(options: &Options) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut launch = Launch::new(&folder.path().join("coordinator"))?;
        launch.program = Some(options.coordinator.clone());
        let coordinator = launch.start().await?;
        let etcd = EtcdCluster::start(3, etcd::Options::default())?;
        let balancer = Balancer::start(&balancer::Options::default())?;
        let rke2 = Rke2::start(&folder.path().join("rke2"))?;
        let names = rke2::name_server(balancer::HOST, balancer.l4().ip())?;
        Ok(Self { etcd, balancer, rke2, coordinator, launch, _names: names, folder })
    }

    /// A folder with a configuration in which every check has something to look at, and a token of its own: to the
    /// coordinator each start of one node is this one machine, rebuilt.
    async fn home(&self, folder: &str, node: &str, checks: &str) -> anyhow::Result<PathBuf> {
        let home = self.folder.path().join(folder);
        std::fs::create_dir_all(&home)?;
        let rancher = format!("https://{}:{}", balancer::HOST, self.balancer.l4().port());
        self.rke2.machine(&home.join("root"), &rancher)?;
        std::fs::write(home.join("token"), self.coordinator.operator.once_token().await?)?;
        let (etcd, balancer) = (&self.etcd, &self.balancer);
        let mut text = format!(
            "[node]\nname = \"{node}\"\ncluster = \"local\"\n[coordinator]\nurls = [\"https://{}\"]\ntoken_file = {:?}\n\
             [etcd]\nendpoints = {:?}\nca = {:?}\ncert = {:?}\nkey = {:?}\nelection_timeout = \"1s\"\n{checks}",
            self.launch.address,
            home.join("token"),
            etcd.endpoints(),
            etcd.ca(),
            etcd.client_certificate(),
            etcd.client_key(),
        );
        write!(
            text,
            "[[load_balancer]]\nname = \"rancher\"\nurl = {rancher:?}\nhttp_port = {}\nca = {:?}\n\
             backends = [\"{}\", \"{}\"]\n",
            balancer.l4_http().port(),
            balancer.ca(),
            balancer.backend(0),
            balancer.backend(1),
        )?;
        std::fs::write(home.join("agent.toml"), text)?;
        Ok(home)
    }

    /// When the coordinator stored the first transition of the start at `began`.
    async fn first_report(&self, node: &str, began: Timestamp) -> anyhow::Result<Timestamp> {
        let start = Instant::now();
        let path = format!("/v1/nodes/{node}/events?limit=1000");
        loop {
            let events = self.coordinator.operator.get::<List<EventView>>(&path).await.map(|list| list.items);
            let mut stored = events.unwrap_or_default().into_iter().map(|event| event.received_at);
            if let Some(first) = stored.find(|at| *at >= began) {
                return Ok(first);
            }
            ensure!(start.elapsed() < Duration::from_secs(30), "no report arrived");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts an agent on this machine, as its unit does.
    fn agent(&self, agent: &Path, home: &Path) -> anyhow::Result<Process> {
        let log = std::fs::File::create(home.join("log"))?;
        let mut command = Command::new(agent);
        command.arg("run").arg("--config").arg(home.join("agent.toml")).arg("--root").arg(home.join("root"));
        command.arg("--state-dir").arg(home.join("state")).arg("--runtime-dir").arg(home.join("run"));
        let settings = UNIT.lines().filter_map(|line| line.strip_prefix("Environment="));
        let settings = settings.flat_map(str::split_whitespace).filter_map(|setting| setting.split_once('='));
        command.envs(settings).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Process::spawn(&mut command)?)
    }
}

/// The builds that are measured side by side, the one in question first.
fn builds(options: &Options) -> Vec<(&'static str, &Path)> {
    let mut builds = vec![("agent", options.agent.as_path())];
    builds.extend(options.beside.as_deref().map(|beside| ("beside", beside)));
    builds
}

async fn starts(options: &Options, beds: &Beds, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    for (name, program) in builds(options) {
        let mut times = Vec::new();
        for i in 0..options.starts {
            let home = beds.home(&format!("start-{name}-{i}"), name, "").await?;
            let before = Timestamp::from(SystemTime::now());
            let mut agent = beds.agent(program, &home)?;
            times.push(beds.first_report(name, before).await?.since(before).as_millis());
            agent.terminate(Duration::from_secs(10))?;
        }
        times.sort_unstable();
        if let (Some(middle), Some(worst)) = (times.get(times.len() / 2), times.last()) {
            writeln!(out, "{name:<8} first report stored after {middle} ms (median), {worst} ms (worst)")?;
        }
    }
    Ok(())
}

async fn cadence(options: &Options, beds: &Beds, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    let mut agents = Vec::new();
    for (name, program) in builds(options) {
        let home = beds.home(&format!("cadence-{name}"), name, "").await?;
        agents.push((name, beds.agent(program, &home)?));
    }
    // The first minute holds enrolment and every check's first pass; it is not the cadence.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let used = |agents: &[(&str, Process)]| -> anyhow::Result<Vec<_>> {
        agents.iter().map(|(_, agent)| usage(agent.pid())).collect()
    };
    let (before, watched) = (used(&agents)?, Instant::now());
    tokio::time::sleep(Duration::from_secs(60 * options.minutes)).await;
    let (after, seconds) = (used(&agents)?, watched.elapsed().as_secs_f64());
    for (i, (name, agent)) in agents.iter_mut().enumerate() {
        let cpu = (after[i].cpu - before[i].cpu).as_secs_f64();
        writeln!(
            out,
            "{name:<8} {:.4} % of a core over {:.0} s ({:.2} ms a minute, {:.0} wakings of the main thread); {} KiB \
             resident, {} KiB anonymous",
            100.0 * cpu / seconds,
            seconds,
            60_000.0 * cpu / seconds,
            60.0 * (after[i].wakings - before[i].wakings) as f64 / seconds,
            after[i].resident_kib,
            after[i].anonymous_kib,
        )?;
        agent.terminate(Duration::from_secs(10))?;
    }
    Ok(())
}

async fn hour(options: &Options, beds: &Beds, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    let mut faster = String::new();
    for (check, seconds) in CADENCES {
        writeln!(faster, "[checks.{check}]\ninterval = \"{}s\"", (seconds / FASTER).max(1))?;
    }
    let mut agents = Vec::new();
    for (name, program) in builds(options) {
        let home = beds.home(&format!("hour-{name}"), name, &faster).await?;
        agents.push((name.to_owned(), beds.agent(program, &home)?));
    }
    for without in APART {
        let name = format!("without-{}", without.join("-"));
        let mut checks = faster.clone();
        for check in without {
            let on = format!("[checks.{check}]\n");
            checks = checks.replace(&on, &format!("{on}enabled = false\n"));
        }
        let home = beds.home(&format!("hour-{name}"), &name, &checks).await?;
        agents.push((name, beds.agent(&options.agent, &home)?));
    }
    let mut anonymous = vec![Vec::new(); agents.len()];
    let mut resident = vec![0; agents.len()];
    for _ in 1..=4 {
        tokio::time::sleep(Duration::from_secs(3600 / FASTER / 4)).await;
        for (i, (_, agent)) in agents.iter().enumerate() {
            let now = usage(agent.pid())?;
            anonymous[i].push(now.anonymous_kib.to_string());
            resident[i] = now.resident_kib;
        }
    }
    for (i, (name, agent)) in agents.iter_mut().enumerate() {
        let quarters = anonymous[i].join(", ");
        writeln!(
            out,
            "{name:<26} after 15, 30, 45, 60 min of turns: {quarters} KiB anonymous; {} KiB resident",
            resident[i]
        )?;
        agent.terminate(Duration::from_secs(10))?;
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    // Before any thread: a network belongs to a thread.
    let _resolv_conf = rke2::own_network()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(&options()?))
}

async fn measure(options: &Options) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    for (name, program) in builds(options) {
        writeln!(out, "{name:<8} {:.2} MiB", std::fs::metadata(program)?.len() as f64 / 1048576.0)?;
    }
    let beds = Beds::start(options).await?;
    starts(options, &beds, &mut out).await?;
    cadence(options, &beds, &mut out).await?;
    hour(options, &beds, &mut out).await?;
    beds.coordinator.stop().await
}
