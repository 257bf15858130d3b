//! Looking at this machine: by the sensors in this program, or, in the node's package, by those of `outrider-agent` beside it. They
//! are most of that program; two copies of them would be half of what is installed.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, bail};
use outrider_agent::capture::{Look, Looked};
use outrider_agent::cli::EX_USAGE;
use tokio::process::Command;

use crate::output::UsageError;

/// Names another program than the `outrider-agent` beside this one.
const PROGRAM: &str = "OUTRIDER_AGENT";

/// Takes the look.
pub(crate) async fn look(look: &Look) -> anyhow::Result<Looked> {
    let given = std::env::var_os(PROGRAM).filter(|path| !path.is_empty()).map(PathBuf::from);
    #[cfg(feature = "sensors")]
    if given.is_none() {
        let looked = outrider_agent::capture::look(look, &machine()).await;
        return looked.map_err(|misuse| UsageError(misuse).into());
    }
    by_program(given.unwrap_or_else(beside), look).await
}

/// The agent of the same package.
fn beside() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/outrider".into());
    own.with_file_name("outrider-agent")
}

async fn by_program(program: PathBuf, look: &Look) -> anyhow::Result<Looked> {
    let name = program.display();
    let mut command = Command::new(&program);
    command.arg("facts").stdin(Stdio::null()).kill_on_drop(true);
    if look.to_judge {
        command.arg("--to-judge");
    }
    if !look.only.is_empty() {
        let only: Vec<&str> = look.only.iter().map(|check| check.as_str()).collect();
        command.args(["--only", &only.join(",")]);
    }
    if let Some(file) = &look.config {
        command.arg("--config").arg(file);
    }
    let ended = command.output().await.with_context(|| {
        format!(
            "this machine is looked at by {name}, which cannot be run; it comes with the package outrider-agent, and {PROGRAM} \
             names another"
        )
    })?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.code() == Some(i32::from(EX_USAGE)) {
        return Err(UsageError(said.trim().to_owned()).into());
    }
    if !ended.status.success() {
        bail!("{name} could not look at this machine ({}): {}", ended.status, said.trim());
    }
    let facts = serde_json::from_slice(&ended.stdout).with_context(|| {
        format!("what {name} says makes no sense to this version of outrider; install both of one version")
    })?;
    Ok(Looked { facts, notes: said.lines().map(str::to_owned).collect() })
}

/// This machine; root-only files come through the root helper where the caller is none.
#[cfg(feature = "sensors")]
pub(crate) fn machine() -> outrider_agent::sense::SenseContext {
    outrider_agent::sense::SenseContext {
        root: "/".into(),
        clock: std::sync::Arc::new(crate::commands::check::now),
        opener: outrider_agent::privileged::opener(std::path::Path::new("/")),
    }
}
