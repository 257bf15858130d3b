//! `outrider userdata render`.

use super::form::Form;
use super::{deliver, ours};
use crate::cli::{RenderFormat, UserdataRenderArgs};
use crate::exit::Exit;
use crate::output::{Screen, UsageError};

/// Runs the command.
pub(super) async fn run(args: &UserdataRenderArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let form = Form::new(&args.form)?;
    let text = match (args.form.format, args.profile) {
        (RenderFormat::Network, _) => form.network.ok_or_else(|| {
            UsageError("--format network: name the interface with --mac or --interface".to_owned())
        })?,
        (_, None) => return Err(UsageError("--profile: say what the machine is".to_owned()).into()),
        (_, Some(profile)) => form.of(ours::rendered(profile, &args.ours).await?),
    };
    deliver(&text, args.form.out.as_deref(), screen)?;
    Ok(Exit::Ok)
}
