//! `outrider uninstall`: the receipt backwards.

use anyhow::bail;

use super::install::{machine, read_receipt, tell};
use crate::cli::UninstallArgs;
use crate::exit::Exit;
use crate::install::undo;
use crate::output::Screen;
use crate::show::install::Report;

/// Runs the command.
pub(crate) async fn run(args: UninstallArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let machine = machine(&args.working)?;
    if machine.is_ours() && !machine.is_root && !args.working.dry_run {
        bail!(
            "not root: units, users and files of the system cannot be taken away; run it with sudo, or as root"
        );
    }
    let undo = match read_receipt(&machine)? {
        Some(receipt) => {
            let lies = undo::look(&machine, &receipt).await?;
            undo::undo(&receipt, &lies, args.purge)
        }
        None => undo::nothing(&machine).await?,
    };
    let mut report = Report::uninstall(&undo, args.working.dry_run);
    if report.may_go_on() {
        match screen.busy("Uninstalling", undo::act(&machine, undo)).await {
            Ok(stayed) => {
                report.stayed(stayed);
                report.done();
            }
            Err(error) => report.failed(&error),
        }
    }
    tell(&report, &args.working, screen)
}
