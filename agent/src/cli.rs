//! The command line of `outrider-agent`: `run`, `validate`, `once`, `status`.
//!
//! Exit codes follow sysexits: 78 configuration errors, 75 try again later (another daemon runs, or none answers), 70
//! inside Outrider, 74 input or output.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use clap::{Parser, Subcommand};
use log::LevelFilter;
use outrider_protocol::{Check, Timestamp};
use serde::Serialize;

use crate::capture::{self, Look, check_of};
use crate::config::{self, ConfigSource};
use crate::daemon::{self, RunError, RunOptions, run, termination};
use crate::local::{self, Ask, AskError, SocketError};
use crate::notify::Notifier;
use crate::sense::SenseContext;

/// Ends `facts` that was asked for in a way that makes no sense; the reason is its one line.
pub const EX_USAGE: u8 = 64;
const EX_SOFTWARE: u8 = 70;
const EX_IOERR: u8 = 74;
const EX_TEMPFAIL: u8 = 75;
const EX_CONFIG: u8 = 78;

/// The node agent of Outrider.
#[derive(Debug, Parser)]
#[command(name = "outrider-agent", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Read this one file instead of agent.toml and agent.toml.d in /usr/lib, /run and /etc/outrider.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of identity, spool and latches [default: $STATE_DIRECTORY or /var/lib/outrider].
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Folder of the socket and the status file [default: $RUNTIME_DIRECTORY or /run/outrider].
    #[arg(long, global = true, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// Read the machine below this folder instead of /.
    #[arg(long, global = true, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
    /// How much is logged.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "info",
        value_parser = ["error", "warn", "info", "debug", "trace"])]
    log_level: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon.
    Run,
    /// Check the configuration: every problem with file and line; exit code 78 when there are any.
    Validate,
    /// One turn: read everything, judge, act, print what was done.
    Once {
        /// Print the plan and stop.
        #[arg(long)]
        dry_run: bool,
    },
    /// What the running daemon says of itself, as JSON.
    Status,
    /// One pass over this machine: the facts, as JSON, judged by nobody; `outrider check` and `outrider facts` ask for it.
    Facts {
        /// Only these checks.
        #[arg(long, value_name = "CHECK,…", value_delimiter = ',', value_parser = check_of)]
        only: Vec<Check>,
        /// Read also what the judgement of these checks needs.
        #[arg(long)]
        to_judge: bool,
    },
}

impl Arguments {
    /// How much is logged.
    pub fn log_level(&self) -> LevelFilter {
        self.log_level.parse().unwrap_or(LevelFilter::Info)
    }

    fn source(&self) -> ConfigSource {
        self.config.clone().map_or_else(|| ConfigSource::below(&self.root), ConfigSource::File)
    }

    fn state_dir(&self) -> PathBuf {
        folder(&self.state_dir, "STATE_DIRECTORY", "/var/lib/outrider")
    }

    fn runtime_dir(&self) -> PathBuf {
        folder(&self.runtime_dir, "RUNTIME_DIRECTORY", "/run/outrider")
    }
}

/// The folder of the command line, of the service manager (the first, where it gives several), or the standard one.
fn folder(given: &Option<PathBuf>, variable: &str, standard: &str) -> PathBuf {
    let of_manager = || {
        let value = std::env::var(variable).ok()?;
        value.split(':').next().filter(|first| !first.is_empty()).map(PathBuf::from)
    };
    given.clone().or_else(of_manager).unwrap_or_else(|| PathBuf::from(standard))
}

/// One thread for the loop and its tasks, few and small ones for calls that block, gone soon after use: the budget is
/// 10 MiB resident.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_io_events_per_tick(64)
        .max_blocking_threads(8)
        .thread_stack_size(256 * 1024)
        .thread_keep_alive(Duration::from_secs(1))
        .thread_name("outrider-read")
        .build()
}

/// Runs the subcommand.
pub async fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        Command::Run => daemon(&arguments).await,
        Command::Validate => validate(&arguments),
        Command::Once { dry_run } => once(&arguments, *dry_run).await,
        Command::Status => status(&arguments).await,
        Command::Facts { only, to_judge } => {
            let look = Look { config: arguments.config.clone(), only: only.clone(), to_judge: *to_judge };
            facts(&look, &sense(&arguments)).await
        }
    }
}

/// The exit code of a failure.
pub fn exit_code_of(error: &anyhow::Error) -> ExitCode {
    let code = if let Some(RunError::Socket(SocketError::InUse(_)) | RunError::StateInUse(_)) =
        error.downcast_ref()
    {
        EX_TEMPFAIL
    } else if let Some(AskError::NotRunning(_)) = error.downcast_ref() {
        EX_TEMPFAIL
    } else if error.chain().any(|cause| cause.is::<io::Error>()) {
        EX_IOERR
    } else {
        EX_SOFTWARE
    };
    ExitCode::from(code)
}

fn sense(arguments: &Arguments) -> SenseContext {
    SenseContext {
        root: arguments.root.clone(),
        clock: Arc::new(|| Timestamp::from(SystemTime::now())),
        opener: crate::privileged::opener(&arguments.root),
    }
}

async fn daemon(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let options = RunOptions {
        config: arguments.source(),
        state_dir: arguments.state_dir(),
        runtime_dir: arguments.runtime_dir(),
        sense: sense(arguments),
        sensors: None,
        embedding: None,
        notifier: Notifier::from_environment(),
    };
    // A task like the others: whatever wakes the future that the runtime blocks on costs a system call, or three.
    match tokio::spawn(run(options, termination())).await {
        Ok(ended) => ended?,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => return Err(error).context("the daemon was stopped"),
        },
    }
    Ok(ExitCode::SUCCESS)
}

fn validate(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let loaded = config::load(&arguments.source());
    let mut out = io::stdout().lock();
    for problem in &loaded.problems {
        writeln!(out, "error: {problem}")?;
    }
    for note in &loaded.notes {
        writeln!(out, "note: {note}")?;
    }
    let files = loaded.files.len();
    if loaded.problems.is_empty() {
        writeln!(out, "the configuration is valid ({} read)", counted(files, "file"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let errors = counted(loaded.problems.len(), "error");
    match files {
        0 => writeln!(out, "{errors}; no file could be read")?,
        _ => writeln!(out, "{errors}; {} read", counted(files, "file"))?,
    }
    Ok(ExitCode::from(EX_CONFIG))
}

fn counted(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

async fn once(arguments: &Arguments, dry_run: bool) -> anyhow::Result<ExitCode> {
    let loaded = config::load(&arguments.source());
    loaded.problems.iter().for_each(|problem| log::error!("configuration: {problem}"));
    let turn = daemon::once(&loaded, sense(arguments), &arguments.state_dir(), dry_run).await?;
    print(&turn)?;
    Ok(ExitCode::SUCCESS)
}

async fn status(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let socket = arguments.runtime_dir().join("agent.sock");
    print(&local::ask(&socket, Ask::Status).await?)?;
    Ok(ExitCode::SUCCESS)
}

async fn facts(look: &Look, cx: &SenseContext) -> anyhow::Result<ExitCode> {
    match capture::look(look, cx).await {
        Ok(looked) => {
            let mut err = io::stderr().lock();
            looked.notes.iter().try_for_each(|note| writeln!(err, "{note}"))?;
            print(&looked.facts)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(misuse) => {
            writeln!(io::stderr().lock(), "{misuse}")?;
            Ok(ExitCode::from(EX_USAGE))
        }
    }
}

fn print(document: &impl Serialize) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document)
        .map_err(io::Error::from)
        .context("the output cannot be written")?;
    writeln!(out).context("the output cannot be written")
}
