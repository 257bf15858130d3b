//! What a coordinator costs as nodes grow: simulated agents over real mTLS against a coordinator in another process.
//!
//! `cargo run --release -p outrider-tests --bin swarm -- --agents 1000,5000,10000,19000 --rate 10000`
//!
//! For each number of agents: enrolment, memory a connected agent (state included), a steady rate of heartbeats with
//! one report in twenty, and all agents lost and back at once. Latency counts from the moment a request was due, so
//! that a stall is seen by every request it held up. Both processes share this machine's cores; the numbers are the
//! coordinator's with the generator beside it.

mod histogram;
mod load;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use outrider_tests::coordinator::{Launch, Usage, usage};

/// What was asked for.
#[derive(Clone, Debug)]
struct Options {
    agents: Vec<usize>,
    rate: u32,
    seconds: u64,
    program: Option<PathBuf>,
}

const USAGE: &str =
    "swarm [--agents N,N,…] [--rate REQUESTS_A_SECOND] [--seconds N] [--coordinator PROGRAM]\n";

fn options(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Options> {
    let mut options = Options { agents: vec![1_000], rate: 10_000, seconds: 20, program: None };
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a value\n{USAGE}"))?;
        match name.as_str() {
            "--agents" => options.agents = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--rate" => options.rate = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--coordinator" => options.program = Some(value.into()),
            _ => bail!("unknown argument {name}\n{USAGE}"),
        }
    }
    Ok(options)
}

/// A connection is an open file; the hard limit is what this machine grants, so the soft one is raised to it.
fn raise_open_files() -> anyhow::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = options(std::env::args().skip(1))?;
    let files = raise_open_files()?;
    let most = options.agents.iter().copied().max().unwrap_or(0);
    if most as u64 + 200 > files {
        bail!("{most} agents need {} open files; the hard limit is {files}", most + 200);
    }
    let mut out = std::io::stdout();
    let mut failed = 0;
    writeln!(out, "{}", Row::header())?;
    for &agents in &options.agents {
        let row = measure(agents, &options).await.with_context(|| format!("{agents} agents"))?;
        writeln!(out, "{}", row.line())?;
        out.flush()?;
        failed += row.failed;
    }
    if failed > 0 {
        bail!("{failed} requests failed");
    }
    Ok(())
}

/// One line of the table.
#[derive(Clone, Debug)]
struct Row {
    agents: usize,
    enrolled_a_second: f64,
    /// Resident memory an agent: enrolled, connected as well, its state held as well.
    kib_an_agent: [f64; 3],
    requests_a_second: f64,
    p50: Duration,
    p99: Duration,
    worst: Duration,
    cpu_a_request: Duration,
    reconnected: Duration,
    failed: u64,
}

impl Row {
    fn header() -> String {
        format!(
            "{:>7} {:>8} {:>23} {:>10} {:>8} {:>8} {:>8} {:>10} {:>11} {:>7}",
            "agents",
            "enrol/s",
            "KiB: known+line+state",
            "requests/s",
            "p50 ms",
            "p99 ms",
            "max ms",
            "CPU ms/req",
            "reconnect s",
            "failed"
        )
    }

    fn line(&self) -> String {
        let ms = |d: Duration| d.as_secs_f64() * 1000.0;
        format!(
            "{:>7} {:>8.0} {:>23} {:>10.0} {:>8.2} {:>8.2} {:>8.1} {:>10.4} {:>11.1} {:>7}",
            self.agents,
            self.enrolled_a_second,
            self.kib_an_agent.map(|kib| format!("{kib:.1}")).join(" / "),
            self.requests_a_second,
            ms(self.p50),
            ms(self.p99),
            ms(self.worst),
            ms(self.cpu_a_request),
            self.reconnected.as_secs_f64(),
            self.failed,
        )
    }
}

async fn measure(agents: usize, options: &Options) -> anyhow::Result<Row> {
    let folder = tempfile::tempdir()?;
    let launch = Launch { program: options.program.clone(), ..Launch::new(&folder.path().join("state"))? };
    let coordinator = launch.start().await?;
    let pid = coordinator.process.pid();
    let idle = usage(pid)?;
    let (members, enrolment) = load::enrol(&coordinator.operator, agents).await?;
    let known = usage(pid)?;
    let mut fleet = load::connect(&coordinator.operator.target, members).await?;
    let linked = usage(pid)?;
    load::settle(&mut fleet.links).await?;
    let connected = usage(pid)?;

    let steady = load::steady(fleet.links, options.rate, Duration::from_secs(options.seconds)).await?;
    let loaded = usage(pid)?;
    let members = steady.members;

    let again = load::connect(&coordinator.operator.target, members).await?;
    let requests = steady.latency.count().max(1);
    let kib = |now: Usage| now.resident_kib.saturating_sub(idle.resident_kib) as f64 / agents as f64;
    let row = Row {
        agents,
        enrolled_a_second: agents as f64 / enrolment.as_secs_f64(),
        kib_an_agent: [kib(known), kib(linked), kib(connected)],
        requests_a_second: steady.latency.count() as f64 / steady.elapsed.as_secs_f64(),
        p50: steady.latency.quantile(0.5),
        p99: steady.latency.quantile(0.99),
        worst: steady.latency.quantile(1.0),
        cpu_a_request: (loaded.cpu - connected.cpu) / u32::try_from(requests)?,
        reconnected: again.elapsed,
        failed: steady.failed,
    };
    drop(again);
    coordinator.stop().await?;
    Ok(row)
}
