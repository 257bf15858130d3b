//! `outrider up`: coordinator, agent and simulated nodes in one process.
//!
//! Everything it keeps lies in one folder, so that a packaged daemon on the same machine is not touched: `coordinator/`,
//! `agent/` (identity, spool), `run/` (the agent's socket), `simulated.json`, `up.lock` and `up.log`. A second run
//! with the same folder picks up what the first left.

mod live;
mod lock;
mod parts;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use outrider_coordinator::OPERATOR_TOKEN_FILE;

use crate::cli::UpArgs;
use crate::contexts::Secret;
use crate::exit::Exit;
use crate::output::Screen;
use crate::{folders, logging};
pub(crate) use lock::running;
use lock::{Lock, Running};
use parts::Parts;

/// The operator token of the coordinator that `up` runs with this state folder.
pub(crate) fn operator_token(state_dir: &Path) -> anyhow::Result<Secret> {
    let path = state_dir.join("coordinator").join(OPERATOR_TOKEN_FILE);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read the operator token {}", path.display()))?;
    Ok(Secret::new(&text))
}

/// Runs the command: until the time is over or somebody ends it, then in order to the end, whatever happened.
pub(crate) async fn run(args: UpArgs, verbose: u8, screen: &mut Screen) -> anyhow::Result<Exit> {
    let state_dir = match &args.state_dir {
        Some(folder) => std::path::absolute(folder)?,
        None => folders::state()?,
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&state_dir).with_context(|| {
        format!("cannot make the state folder {}; choose another with --state-dir", state_dir.display())
    })?;
    let mut lock = Lock::take(&state_dir)?;
    if verbose == 0 {
        logging::to_file(&state_dir.join("up.log"))?;
    }
    let ended = outrider_agent::daemon::termination();
    let parts = screen.busy("Starting", Parts::start(&args, &state_dir)).await?;
    let outcome = async {
        lock.say(&Running { pid: std::process::id(), url: parts.url() })?;
        let over = async {
            match args.limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        let watched = tokio::select! {
            watched = live::show(&parts, &args, &state_dir, screen) => watched,
            error = parts.agent_failed() => Err(error),
            () = over => Ok(()),
            () = ended => Ok(()),
        };
        watched?;
        live::last(&parts, &args, screen).await
    };
    let outcome = outcome.await;
    // What is printed is printed; the rest is to leave nothing half done. Who asks twice wants it now.
    tokio::select! {
        _ = tokio::time::timeout(LAST_CALL, screen.busy("Ending", parts.end())) => {}
        () = outrider_agent::daemon::termination() => {}
    }
    outcome.map(|()| Exit::Ok)
}

/// Agent, simulated nodes and coordinator may each take some seconds to end in order; a hung one is left.
const LAST_CALL: Duration = Duration::from_secs(20);
