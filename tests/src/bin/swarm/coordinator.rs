//! The coordinator under load: another process, in a folder of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use outrider_tests::programs::{Process, program};
use outrider_tests::simulated::Operator;

/// What a process has used.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Resident memory.
    pub resident_kib: u64,
    /// Processor time, user and system.
    pub cpu: Duration,
}

/// A running coordinator.
#[derive(Debug)]
pub struct Coordinator {
    /// Its operator.
    pub operator: Operator,
    process: Process,
    // Held for its drop, after the process is gone.
    _folder: tempfile::TempDir,
}

impl Coordinator {
    /// Starts it and waits until it answers.
    pub async fn start(given: Option<&Path>, listen: SocketAddr) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let address = match listen.port() {
            0 => std::net::TcpListener::bind(listen)?.local_addr()?,
            _ => listen,
        };
        let path = given.map_or_else(|| program("outrider-coordinator"), |path| Ok(path.to_owned()))?;
        let mut command = Command::new(path);
        command.arg("serve").arg("--listen").arg(address.to_string()).arg("--state-dir").arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = Process::spawn(&mut command)?;
        let start = Instant::now();
        loop {
            if let Ok(operator) = Operator::from_state_folder(address, folder.path())
                && operator.get::<serde_json::Value>("/v1/coordinator").await.is_ok()
            {
                return Ok(Self { operator, process, _folder: folder });
            }
            if !process.is_running() || start.elapsed() > Duration::from_secs(30) {
                bail!("the coordinator does not answer at {address}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What it has used so far, from /proc.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        let folder = format!("/proc/{}", self.process.pid());
        let status = std::fs::read_to_string(format!("{folder}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let resident_kib = resident.trim().trim_end_matches("kB").trim().parse()?;
        let stat = std::fs::read_to_string(format!("{folder}/stat"))?;
        // Fields after the command's name, which may hold blanks: utime and stime are the 12th and 13th.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).context("no times in stat");
        let hertz = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)?.context("no clock tick")?;
        let cpu = Duration::from_secs_f64((ticks(11)? + ticks(12)?) as f64 / hertz as f64);
        Ok(Usage { resident_kib, cpu })
    }

    /// Ends it as an operator would.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        tokio::task::spawn_blocking(move || self.process.terminate(Duration::from_secs(30))).await??;
        Ok(())
    }
}
