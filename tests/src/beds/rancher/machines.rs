//! What runs on one machine, by what it was started with: the same is left running.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Result, bail};

use super::tail;
use crate::beds::network::Namespace;
use crate::programs::Process;

/// A program with its arguments and its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) program: OsString,
    pub(super) arguments: Vec<String>,
    pub(super) files: Vec<(PathBuf, String)>,
    pub(super) log: PathBuf,
}

/// A namespace and its processes.
pub(super) struct Machine {
    running: Vec<(Service, Process)>,
    pub(super) space: Namespace,
}

impl Machine {
    pub(super) fn new(space: Namespace) -> Self {
        Self { space, running: Vec::new() }
    }

    /// Runs exactly these; none while it is dead. Says whether anything was started or ended.
    pub(super) fn run(&mut self, services: Vec<Service>, dead: bool) -> Result<bool> {
        let wanted = if dead { Vec::new() } else { services };
        let before = self.running.len();
        self.running.retain_mut(|(service, process)| wanted.contains(service) && process.is_running());
        let mut changed = self.running.len() != before;
        for service in wanted {
            if self.running.iter().any(|(running, _)| *running == service) {
                continue;
            }
            for (file, text) in &service.files {
                std::fs::write(file, text)?;
            }
            let log = File::create(&service.log)?;
            let mut command = self.space.command(&service.program);
            command.args(&service.arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            self.running.push((service, Process::spawn(&mut command)?));
            changed = true;
        }
        Ok(changed)
    }

    /// Ends everything.
    pub(super) fn stop(&mut self) {
        self.running.clear();
    }

    /// An error, with its log, when a process has ended by itself.
    pub(super) fn ended(&mut self) -> Result<()> {
        for (service, process) in &mut self.running {
            if !process.is_running() {
                bail!("{} ended: {}", service.program.display(), tail(&service.log));
            }
        }
        Ok(())
    }

    pub(super) fn logs(&self) -> String {
        let log = |service: &Service| format!("\n{}: {}", service.log.display(), tail(&service.log));
        self.running.iter().map(|(service, _)| log(service)).collect()
    }
}
