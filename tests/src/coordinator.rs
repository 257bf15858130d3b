//! `outrider-coordinator serve` as a process with a folder of its own.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::programs::{Process, program};
use crate::simulated::Operator;

/// What a process has used.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Resident memory.
    pub resident_kib: u64,
    /// Of it, anonymous: neither a file nor shared memory behind it.
    pub anonymous_kib: u64,
    /// Processor time, user and system.
    pub cpu: Duration,
    /// How often its main thread has gone to sleep, and so was woken.
    pub wakings: u64,
}

/// What the process `pid` has used so far. Programs that it has started are not counted.
pub fn usage(pid: u32) -> anyhow::Result<Usage> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let number = |name: &str| -> anyhow::Result<u64> {
        let line =
            status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
        Ok(line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse()?)
    };
    // The clock of the whole process: to the nanosecond, and with the threads that have ended.
    let process = nix::unistd::Pid::from_raw(i32::try_from(pid)?);
    let cpu = nix::time::clock_gettime(nix::time::clock_getcpuclockid(process)?)?.into();
    Ok(Usage {
        resident_kib: number("VmRSS")?,
        anonymous_kib: number("RssAnon")?,
        cpu,
        wakings: number("voluntary_ctxt_switches")?,
    })
}

/// How to start one.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program; found beside the test when not given.
    pub program: Option<PathBuf>,
    /// State folder.
    pub folder: PathBuf,
    /// Where it listens.
    pub address: SocketAddr,
    /// More of its environment.
    pub environment: Vec<(String, String)>,
    /// More arguments.
    pub arguments: Vec<String>,
}

impl Launch {
    /// At a free port of loopback, with its state below `folder`.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            program: None,
            folder: folder.to_owned(),
            address: free_address()?,
            environment: Vec::new(),
            arguments: Vec::new(),
        })
    }

    /// Starts it and waits until it answers as an operator would ask. Its log lies beside the state folder.
    pub async fn start(&self) -> anyhow::Result<Coordinator> {
        let path = self.program.clone().map_or_else(|| program("outrider-coordinator"), Ok)?;
        let log = self.folder.with_extension("log");
        let file = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(path);
        command
            .arg("serve")
            .arg("--listen")
            .arg(self.address.to_string())
            .arg("--state-dir")
            .arg(&self.folder);
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut process = Process::spawn(&mut command)?;
        let start = Instant::now();
        loop {
            if let Ok(operator) = Operator::from_state_folder(self.address, &self.folder)
                && operator.get::<serde_json::Value>("/v1/coordinator").await.is_ok()
            {
                return Ok(Coordinator { operator, process });
            }
            if !process.is_running() || start.elapsed() > Duration::from_secs(30) {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                let last: Vec<&str> = said.lines().rev().take(5).collect();
                bail!("the coordinator does not answer at {}; it said last: {last:#?}", self.address);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A running coordinator.
#[derive(Debug)]
pub struct Coordinator {
    /// Its operator.
    pub operator: Operator,
    /// Its process.
    pub process: Process,
}

impl Coordinator {
    /// Ends it as an operator would.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        tokio::task::spawn_blocking(move || self.process.terminate(Duration::from_secs(30))).await??;
        Ok(())
    }
}

/// A port of loopback that is free now, and stays so while who listened there is away for a while: it is none of those that
/// the kernel gives to connections on their way out.
pub fn free_address() -> std::io::Result<SocketAddr> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")?;
    let first = text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768);
    let any = || SocketAddr::from(([127, 0, 0, 1], rand::random_range(10_000..first.max(10_001))));
    let mut free = std::iter::repeat_with(any).take(1000);
    free.find(|address| std::net::TcpListener::bind(address).is_ok())
        .ok_or_else(|| std::io::Error::other(format!("no free port between 10000 and {first}")))
}
