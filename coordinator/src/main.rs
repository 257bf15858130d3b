//! `outrider-coordinator`: the service of a fleet. Subcommands in [`cli`]; everything else is the library.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = match cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(answer) => return cli::usage(&answer),
    };
    cli::logging::install(arguments.log_level());
    match cli::execute(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The whole chain, once.
            log::error!("{error:#}");
            cli::exit_code_of(&error)
        }
    }
}
