//! `outrider-agent`: the daemon of a node. Subcommands in [`cli`]; everything else is the library.

use std::process::ExitCode;

use clap::Parser;
use outrider_agent::cli::{self, Arguments};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    outrider_agent::journal::install(arguments.log_level());
    match cli::runtime().map_err(anyhow::Error::from).and_then(|rt| rt.block_on(cli::execute(arguments))) {
        Ok(code) => code,
        Err(error) => {
            // The whole chain, once.
            log::error!("{error:#}");
            cli::exit_code_of(&error)
        }
    }
}
