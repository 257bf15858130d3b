//! The run itself.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::time::Duration;

use anyhow::Context;

use super::live;
use super::lock::{Lock, Running};
use super::parts::Parts;
use crate::cli::UpArgs;
use crate::exit::Exit;
use crate::output::Screen;
use crate::{folders, logging};

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
