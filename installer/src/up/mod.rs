//! `outrider up`: coordinator, agent and simulated nodes in one process.
//!
//! Everything it keeps lies in one folder, so that a packaged daemon on the same machine is not touched: `coordinator/`,
//! `agent/` (identity, spool), `run/` (the agent's socket), `simulated.json`, `up.lock` and `up.log`. A second run
//! with the same folder picks up what the first left.
//!
//! The program of the node's package is built without the feature `coordinator`: it finds an `up` that runs, and says
//! where to get a program that is one.

#[cfg(feature = "coordinator")]
mod live;
#[cfg_attr(not(feature = "coordinator"), allow(dead_code, reason = "only `up` takes the lock"))]
mod lock;
#[cfg(feature = "coordinator")]
mod parts;
#[cfg(feature = "coordinator")]
mod run;

use std::path::Path;

use anyhow::Context;

use crate::contexts::Secret;
pub(crate) use lock::running;
#[cfg(feature = "coordinator")]
pub(crate) use run::run;

/// Where a coordinator keeps its first operator token, below its state folder.
const OPERATOR_TOKEN_FILE: &str = "operator.token";

/// The operator token of the coordinator that `up` runs with this state folder.
pub(crate) fn operator_token(state_dir: &Path) -> anyhow::Result<Secret> {
    let path = state_dir.join("coordinator").join(OPERATOR_TOKEN_FILE);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read the operator token {}", path.display()))?;
    Ok(Secret::new(&text))
}

/// Says that this program has no coordinator in it.
#[cfg(not(feature = "coordinator"))]
pub(crate) async fn run(
    _: crate::cli::UpArgs,
    _: u8,
    _: &mut crate::output::Screen,
) -> anyhow::Result<crate::exit::Exit> {
    anyhow::bail!(
        "this program is a node's: it has no coordinator in it, and `outrider up` needs one. Build the whole program from \
         the source (`cargo run --release -p outrider-cli -- up`), or install the package outrider-coordinator and start its \
         service"
    )
}

#[cfg(all(test, feature = "coordinator"))]
mod tests {
    #[test]
    fn the_operator_token_lies_where_the_coordinator_puts_it() {
        assert_eq!(super::OPERATOR_TOKEN_FILE, outrider_coordinator::OPERATOR_TOKEN_FILE);
    }
}
