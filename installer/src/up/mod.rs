//! `outrider up`: coordinator, agent and simulated nodes in one process.

mod lock;

use std::path::Path;

use crate::cli::UpArgs;
use crate::contexts::Secret;
use crate::exit::Exit;
use crate::output::Screen;
pub(crate) use lock::running;

/// The operator token of the coordinator that `up` runs with this state folder.
pub(crate) fn operator_token(state_dir: &Path) -> anyhow::Result<Secret> {
    let path = state_dir.join("coordinator/operator-token");
    let text = std::fs::read_to_string(&path)
        .map_err(|e| anyhow::anyhow!("cannot read the operator token {}: {e}", path.display()))?;
    Ok(Secret::new(&text))
}

/// Runs the command.
pub(crate) async fn run(args: UpArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let _ = (args, screen);
    let _ = lock::Lock::take(Path::new("/nonexistent"));
    Ok(Exit::Failed)
}
