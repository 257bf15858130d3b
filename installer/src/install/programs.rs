//! Programs of the system that are asked or told to do something; each has a limit of time.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::process::Command;

use super::Machine;

/// No question takes longer; `systemctl stop` waits for as long as the unit may take.
const LIMIT: Duration = Duration::from_secs(90);
/// What a shell without a login may lack.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// What a program said.
pub(crate) struct Said {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Its standard output, without the last line end.
    pub(crate) out: String,
    /// Its standard error.
    pub(crate) err: String,
}

/// Runs a program to its end. An error is that it could not be run, not that it failed.
pub(crate) async fn ask(program: &str, args: &[&str]) -> anyhow::Result<Said> {
    let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    command.env("PATH", PATH).env("LC_ALL", "C.UTF-8");
    let output = tokio::time::timeout(LIMIT, command.output())
        .await
        .with_context(|| format!("{program} did not end within {} s", LIMIT.as_secs()))?
        .with_context(|| format!("cannot run {program}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    Ok(Said { status: output.status, out: text(&output.stdout), err: text(&output.stderr) })
}

/// Runs a program that has to succeed.
pub(crate) async fn run(program: &str, args: &[&str]) -> anyhow::Result<()> {
    let said = ask(program, args).await?;
    if !said.status.success() {
        let words = if said.err.is_empty() { said.out } else { said.err };
        bail!("{program} {} failed ({}): {words}", args.join(" "), said.status);
    }
    Ok(())
}

/// Where a program of this system lies.
pub(crate) fn find(program: &str) -> Option<std::path::PathBuf> {
    PATH.split(':').map(|folder| Path::new(folder).join(program)).find(|path| path.is_file())
}

/// A package that laid out files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// The command that takes it away.
    pub(crate) removal: String,
    /// The command that brings another version.
    pub(crate) upgrade: String,
}

/// The package that `path` is of; `None` where it is of none, or the machine has no packages. An error where whoever knows
/// did not answer: no answer is not "of none".
pub(crate) async fn package_of(machine: &Machine, path: &str) -> anyhow::Result<Option<Package>> {
    let root = machine.root().to_string_lossy().into_owned();
    if machine.has("/var/lib/dpkg/status") && find("dpkg-query").is_some() {
        let admin = format!("--admindir={}", machine.at("/var/lib/dpkg").display());
        // `NAME[:ARCHITECTURE][, NAME…]: PATH`, and 1 where there is none, as dpkg-query(1) documents it.
        let said = ask("dpkg-query", &[&admin, "--search", path]).await?;
        match said.status.code() {
            Some(0) => {
                let name = said.out.split([':', ',']).next().unwrap_or_default().trim().to_owned();
                return Ok(Some(Package {
                    removal: format!("apt-get remove {name}"),
                    upgrade: format!("apt-get install {name}"),
                    name,
                }));
            }
            Some(1) => {}
            _ => bail!("whether a package laid out {path} cannot be told: dpkg-query: {}", said.err),
        }
    }
    let rpm = ["/usr/lib/sysimage/rpm", "/var/lib/rpm"].iter().any(|folder| machine.is_dir(folder));
    if rpm && find("rpm").is_some() {
        let said =
            ask("rpm", &["--root", &root, "--query", "--file", "--queryformat", "%{NAME}\\n", path]).await?;
        let words = format!("{} {}", said.out, said.err);
        if !said.status.success() && !words.contains("not owned by any package") {
            bail!("whether a package laid out {path} cannot be told: rpm: {}", words.trim());
        }
        if let Some(name) = said.out.lines().next().filter(|_| said.status.success()) {
            let name = name.trim().to_owned();
            let tool = if find("transactional-update").is_some() {
                ["transactional-update pkg remove", "transactional-update pkg install"]
            } else if find("zypper").is_some() {
                ["zypper remove", "zypper install"]
            } else {
                ["dnf remove", "dnf install"]
            };
            return Ok(Some(Package {
                removal: format!("{} {name}", tool[0]),
                upgrade: format!("{} {name}", tool[1]),
                name,
            }));
        }
    }
    Ok(None)
}

/// `ActiveState=` of a unit; empty where systemd cannot be asked.
pub(crate) async fn active_state(unit: &str) -> String {
    match ask("systemctl", &["show", "--property=ActiveState", "--value", unit]).await {
        Ok(said) if said.status.success() => said.out,
        _ => String::new(),
    }
}
