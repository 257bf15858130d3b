//! `outrider facts`: what this machine yields, to be judged here or elsewhere.

use crate::cli::FactsArgs;
use crate::exit::Exit;
use crate::output::{Format, Screen, document};

/// Runs the command.
pub(crate) async fn run(args: FactsArgs, screen: &mut Screen) -> anyhow::Result<Exit> {
    let facts = super::check::facts(&args.sensors, screen).await?;
    let text = match args.output {
        Format::Yaml => document::yaml(&facts)?,
        _ => document::json(&facts)?,
    };
    screen.write(&text)?;
    Ok(Exit::Ok)
}
