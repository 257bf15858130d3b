//! `outrider-agent`: the daemon of a node. Subcommands in [`cli`]; everything else is the library.

use std::process::ExitCode;

use clap::Parser;
use outrider_agent::cli::{self, Arguments};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    outrider_agent::journal::install(arguments.log_level());
    let runtime = match cli::runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            log::error!("the runtime cannot be made: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(cli::execute(arguments));
    // A read that hangs in the kernel must not hold back the end of the process.
    runtime.shutdown_background();
    match ended {
        Ok(code) => code,
        Err(error) => {
            // The whole chain, once.
            log::error!("{error:#}");
            cli::exit_code_of(&error)
        }
    }
}
