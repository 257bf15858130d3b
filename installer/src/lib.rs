//! The tool for people: look at this machine, at captured facts, and at the fleet.
//!
//! Tour: [`cli`] is the command line as people type it; `commands/` holds one file a command; `show/` turns the
//! protocol's nouns into tables; `input` reads the documents that people hand over; `output/` knows terminals, formats and closed pipes; `client/` talks to a coordinator;
//! `contexts` remembers which; `install/` makes this machine a node and unmakes it; `up/` runs a coordinator and an agent in one process; `simulate/` plays further nodes.
//!
//! Exit codes: `check` is a monitoring plugin (0 ok, 1 warning, 2 error, 3 unknown or usage error); every other
//! command ends with 0 when it did its work, 1 when it could not, 64 (`EX_USAGE`) when it was called wrongly.

pub mod cli;
mod client;
mod clocks;
mod commands;
mod contexts;
mod exit;
mod folders;
mod input;
mod install;
#[cfg_attr(not(feature = "coordinator"), allow(dead_code, reason = "only `up` logs to a file"))]
mod logging;
mod looking;
mod output;
mod place;
mod show;
#[cfg(feature = "coordinator")]
mod simulate;
mod up;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command};
pub use crate::client::{EventReader, Happening};
use crate::exit::Exit;
use crate::output::Screen;

/// Runs the program with these arguments (the first is its own name) and says how the process should end.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let mut screen = Screen::of_process();
    let usage = if asks_for_check(&args) { Exit::CheckUnknown } else { Exit::Usage };
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return screen.clap_answer(&error, usage).into(),
    };
    let ended = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => {
            let ended = runtime.block_on(run(cli, &mut screen));
            // A sensor that hangs in a blocking call must not hold the process: its reading is reported as unknown.
            runtime.shutdown_background();
            ended
        }
        Err(error) => Err(anyhow::Error::new(error).context("cannot start the runtime")),
    };
    ended.unwrap_or_else(|error| screen.failure(&error, usage)).into()
}

async fn run(cli: Cli, screen: &mut Screen) -> anyhow::Result<Exit> {
    logging::start(cli.global.verbose);
    let global = &cli.global;
    match cli.command {
        Command::Up(args) => up::run(args, global.verbose, screen).await,
        Command::Check(args) => commands::check::run(args, screen).await,
        Command::Facts(args) => commands::facts::run(args, screen).await,
        Command::Diagnose(args) => commands::diagnose::run(args, screen).await,
        Command::Install(args) => commands::install::run(*args, screen).await,
        Command::Uninstall(args) => commands::uninstall::run(args, screen).await,
        Command::Token(args) => commands::token::run(args, global, screen).await,
        Command::Approve(args) => commands::approve::run(args, global, screen).await,
        Command::Revoke(args) => commands::revoke::run(args, global, screen).await,
        Command::Label(args) => commands::label::run(args, global, screen).await,
        Command::Get(args) => commands::get::run(args, global, screen).await,
        Command::Describe(args) => commands::describe::run(args, global, screen).await,
        Command::Explain(args) => commands::explain::run(&args, screen),
        Command::Sync(args) => commands::sync::run(args, screen),
        Command::Userdata(args) => commands::userdata::run(*args, screen).await,
        Command::Watch(args) => commands::watch::run(args, global, screen).await,
        Command::Login(args) => commands::login::run(args, global, screen).await,
        Command::Context(args) => commands::context::run(args, screen),
        Command::Completions(args) => commands::generate::completions(args, screen),
        Command::Man(args) => commands::generate::man(args, screen),
    }
}

/// Whether the command is `check`, also where the rest of the line cannot be parsed: a monitoring system must read a
/// usage error of a plugin as "unknown".
fn asks_for_check(args: &[OsString]) -> bool {
    let lenient = Cli::command().ignore_errors(true).try_get_matches_from(args);
    lenient.is_ok_and(|matches| matches.subcommand_name() == Some("check"))
}
