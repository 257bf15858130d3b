//! `outrider check -o json`, as a person or a monitoring system runs it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use outrider_protocol::{Condition, NodeConditions};

use crate::beds::network::Namespace;
use crate::programs::program;

/// The answer of one pass.
#[derive(Debug)]
pub struct Checked {
    /// What it printed.
    pub document: NodeConditions,
    /// Its exit code: 0 ok, 1 warn, 2 error, 3 unknown.
    pub code: i32,
}

impl Checked {
    /// The condition of this type; the first when there are several subjects.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.document.conditions.iter().find(|c| c.condition_type.as_str() == kind)
    }

    /// All conditions as lines, for a failure's message.
    pub fn lines(&self) -> String {
        let line = |c: &Condition| {
            format!(
                "{} {} {} {}: {} | {}\n",
                c.condition_type, c.subject, c.status, c.reason, c.message, c.advice
            )
        };
        self.document.conditions.iter().map(line).collect()
    }
}

/// One pass of these checks with the configuration `config`.
pub fn check(config: &Path, only: &str) -> anyhow::Result<Checked> {
    answer(command(config, only)?)
}

/// One pass of these checks on the machine `space`.
pub fn check_inside(space: &Namespace, config: &Path, only: &str) -> anyhow::Result<Checked> {
    answer(space.inside(&command(config, only)?))
}

fn command(config: &Path, only: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(program("outrider")?);
    command.args(["check", "-o", "json", "--only", only, "--config"]).arg(config);
    Ok(command)
}

fn answer(mut command: Command) -> anyhow::Result<Checked> {
    let output = command.output()?;
    let code = output.status.code().context("check was killed")?;
    let document = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    })?;
    Ok(Checked { document, code })
}

/// Checks again and again until `good`; how long that took, and the pass that was.
pub fn check_until(
    config: &Path,
    only: &str,
    what: &str,
    limit: Duration,
    good: impl Fn(&Checked) -> bool,
) -> anyhow::Result<(Duration, Checked)> {
    let start = Instant::now();
    loop {
        let checked = check(config, only)?;
        if good(&checked) {
            return Ok((start.elapsed(), checked));
        }
        if start.elapsed() > limit {
            bail!("{what}: not within {limit:?}; the last pass said\n{}", checked.lines());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
