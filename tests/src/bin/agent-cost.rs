//! What the agent costs, measured from outside, with every check at work: `tests/measure-agent` builds and calls it.
//!
//! Beside the agent run a real three-member TLS etcd, a real HAProxy in front of two real nginx, and a coordinator.
//! Measured are: size of the binary, start to the first report stored at the coordinator (enrolment included), processor
//! time at the default cadence, and resident memory after an hour of turns (played at thirty times the cadence).

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use outrider_protocol::{EventView, List, Timestamp};
use outrider_tests::beds::balancer::{self, Balancer};
use outrider_tests::beds::etcd::{self, EtcdCluster};
use outrider_tests::coordinator::{Coordinator, Launch, usage};
use outrider_tests::programs::{Process, program};

const USAGE: &str = "agent-cost [--agent PROGRAM] [--coordinator PROGRAM] [--minutes N]";
const NODE: &str = "cost";
/// Starts that are timed.
const STARTS: usize = 7;
/// Turns of an hour are played in this fraction of it.
const FASTER: u64 = 30;

struct Options {
    agent: PathBuf,
    coordinator: PathBuf,
    minutes: u64,
}

fn options() -> anyhow::Result<Options> {
    let (mut agent, mut coordinator, mut minutes) = (None, None, 5);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a value\n{USAGE}"))?;
        match name.as_str() {
            "--agent" => agent = Some(PathBuf::from(value)),
            "--coordinator" => coordinator = Some(PathBuf::from(value)),
            "--minutes" => minutes = value.parse()?,
            _ => bail!("unknown argument {name}\n{USAGE}"),
        }
    }
    let or_found = |given: Option<PathBuf>, name| given.map_or_else(|| program(name), Ok);
    Ok(Options {
        agent: or_found(agent, "outrider-agent")?,
        coordinator: or_found(coordinator, "outrider-coordinator")?,
        minutes,
    })
}

struct Beds {
    etcd: EtcdCluster,
    balancer: Balancer,
    coordinator: Coordinator,
    launch: Launch,
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
        Ok(Self { etcd, balancer, coordinator, launch, folder })
    }

    /// A folder with a configuration in which every check has something to look at, and a token of its own: to the
    /// coordinator each start is this one machine, rebuilt.
    async fn home(&self, folder: &str, intervals: &str) -> anyhow::Result<PathBuf> {
        let home = self.folder.path().join(folder);
        std::fs::create_dir_all(&home)?;
        std::fs::write(home.join("token"), self.coordinator.operator.once_token().await?)?;
        let (etcd, balancer) = (&self.etcd, &self.balancer);
        let mut text = format!(
            "[node]\nname = \"{NODE}\"\ncluster = \"local\"\n[coordinator]\nurls = [\"https://{}\"]\ntoken_file = {:?}\n\
             [etcd]\nendpoints = {:?}\nca = {:?}\ncert = {:?}\nkey = {:?}\nelection_timeout = \"1s\"\n{intervals}",
            self.launch.address,
            home.join("token"),
            etcd.endpoints(),
            etcd.ca(),
            etcd.client_certificate(),
            etcd.client_key(),
        );
        write!(
            text,
            "[[load_balancer]]\nname = \"rancher\"\nurl = \"https://{}:{}\"\nhttp_port = {}\nca = {:?}\n\
             backends = [\"{}\", \"{}\"]\n[load_balancer.resolve]\n\"{}\" = [\"{}\"]\n",
            balancer::HOST,
            balancer.l4().port(),
            balancer.l4_http().port(),
            balancer.ca(),
            balancer.backend(0),
            balancer.backend(1),
            balancer::HOST,
            balancer.l4().ip(),
        )?;
        std::fs::write(home.join("agent.toml"), text)?;
        Ok(home)
    }

    /// When the coordinator stored the first transition of the start at `began`.
    async fn first_report(&self, began: Timestamp) -> anyhow::Result<Timestamp> {
        let start = Instant::now();
        let path = format!("/v1/nodes/{NODE}/events?limit=1000");
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
}

fn start(agent: &Path, home: &Path) -> anyhow::Result<Process> {
    let log = std::fs::File::create(home.join("log"))?;
    let mut command = Command::new(agent);
    command.arg("run").arg("--config").arg(home.join("agent.toml"));
    command.arg("--state-dir").arg(home.join("state")).arg("--runtime-dir").arg(home.join("run"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Process::spawn(&mut command)?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let options = options()?;
    let mut out = std::io::stdout();
    writeln!(out, "binary {:>39.2} MiB", std::fs::metadata(&options.agent)?.len() as f64 / 1048576.0)?;
    let beds = Beds::start(&options).await?;

    let mut times = Vec::new();
    for i in 0..STARTS {
        let home = beds.home(&format!("start-{i}"), "").await?;
        let before = Timestamp::from(SystemTime::now());
        let mut agent = start(&options.agent, &home)?;
        times.push(beds.first_report(before).await?.since(before));
        agent.terminate(Duration::from_secs(10))?;
    }
    times.sort();
    writeln!(
        out,
        "start to first report stored (median, worst) {:>4} ms {:>4} ms",
        times[STARTS / 2].as_millis(),
        times[STARTS - 1].as_millis()
    )?;

    let home = beds.home("cadence", "").await?;
    let mut agent = start(&options.agent, &home)?;
    // The first minute holds enrolment and every check's first pass; it is not the cadence.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = usage(agent.pid())?;
    let watched = Instant::now();
    tokio::time::sleep(Duration::from_secs(60 * options.minutes)).await;
    let after = usage(agent.pid())?;
    let cpu = (after.cpu - before.cpu).as_secs_f64();
    writeln!(
        out,
        "processor at the default cadence, {} min {:>9.1} ms a minute = {:.3} % of a core",
        options.minutes,
        cpu * 1000.0 / options.minutes as f64,
        100.0 * cpu / watched.elapsed().as_secs_f64()
    )?;
    writeln!(out, "resident then {:>27} KiB, anonymous {} KiB", after.resident_kib, after.anonymous_kib)?;
    agent.terminate(Duration::from_secs(10))?;

    let mut intervals = String::new();
    for (check, seconds) in [
        ("host", 60),
        ("clock", 60),
        ("cloud-init", 30),
        ("guest-agent", 60),
        ("etcd", 120),
        ("load-balancer", 60),
    ] {
        writeln!(intervals, "[checks.{check}]\ninterval = \"{}s\"", (seconds / FASTER).max(1))?;
    }
    let home = beds.home("hour", &intervals).await?;
    let mut agent = start(&options.agent, &home)?;
    for quarter in 1..=4 {
        tokio::time::sleep(Duration::from_secs(3600 / FASTER / 4)).await;
        let now = usage(agent.pid())?;
        writeln!(
            out,
            "resident after {:>2} min of turns {:>11} KiB, anonymous {} KiB",
            quarter * 15,
            now.resident_kib,
            now.anonymous_kib
        )?;
    }
    agent.terminate(Duration::from_secs(10))?;
    beds.coordinator.stop().await
}
