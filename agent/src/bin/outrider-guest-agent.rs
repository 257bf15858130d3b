//! `outrider-guest-agent`: sets up the QEMU guest agent as far as root's configuration allows, once, and ends.
//!
//! systemd starts it after boot (`outrider-guest-agent.timer`) and when the daemon asks (`outrider-guest-agent.path`). By hand:
//! `--dry-run` prints what would be done, `--now` does not wait for what an earlier failure asked to wait for. It ends with 0
//! also where nothing could be done: the condition `GuestAgentReady` tells, not a failed unit.

use std::io::{Write, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::SenseContext;
use outrider_agent::setup::{Limits, Setup};
use tokio::signal::unix::{SignalKind, signal};

/// How long a run that had nothing to do rests: being asked in a loop must not start it in a loop.
const REST: Duration = Duration::from_secs(5);
/// sysexits.h: used wrongly.
const EX_USAGE: u8 = 64;

const HELP: &str = "\
outrider-guest-agent [--dry-run] [--now]

Sets up the QEMU guest agent as far as root's configuration allows ([guest_agent] manage), once, and ends.

  --dry-run  print what would be done, as JSON, and do nothing
  --now      do not wait for what an earlier failure asked to wait for";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(&format!("{e:#}"));
            ExitCode::from(EX_USAGE)
        }
    }
}

fn run() -> anyhow::Result<()> {
    let (mut dry_run, mut hurry) = (false, false);
    for argument in std::env::args_os().skip(1) {
        match argument.to_str() {
            Some("--dry-run") => dry_run = true,
            Some("--now") => hurry = true,
            Some("--help" | "-h") => return writeln!(stdout(), "{HELP}").context("standard output"),
            _ => bail!("unknown argument {argument:?}; --dry-run and --now are known"),
        }
    }
    if !nix::unistd::geteuid().is_root() {
        bail!("only root can set up the guest agent");
    }
    let stopped = watch_for_sigterm()?;
    let setup = Setup {
        cx: SenseContext {
            root: PathBuf::from("/"),
            clock: Arc::new(|| std::time::SystemTime::now().into()),
            opener: Arc::new(DirectOpener::new()),
        },
        owner: 0,
        limits: Limits::default(),
        stopping: Box::new(move || stopped.load(Ordering::Relaxed)),
        say: Box::new(say),
    };
    if dry_run {
        let plan = serde_json::to_string_pretty(&setup.plan()).context("the plan cannot be written")?;
        return writeln!(stdout(), "{plan}").context("standard output");
    }
    let ran = setup.run(hurry);
    let resting = std::time::Instant::now();
    while !ran.worked && !hurry && resting.elapsed() < REST && !(setup.stopping)() {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Set once systemd asks us to end. That is seen between two steps, never in the middle of one.
fn watch_for_sigterm() -> anyhow::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut term =
        runtime.block_on(async { signal(SignalKind::terminate()) }).context("SIGTERM cannot be watched")?;
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = stopped.clone();
    std::thread::spawn(move || {
        runtime.block_on(term.recv());
        flag.store(true, Ordering::Relaxed);
    });
    Ok(stopped)
}

/// One line for the journal.
fn say(line: &str) {
    // Without a journal there is nobody to tell.
    let _ = writeln!(stderr(), "{line}");
}
