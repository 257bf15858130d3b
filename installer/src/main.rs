//! `outrider`, the tool for people. Everything is in the library, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    outrider_cli::main(std::env::args_os())
}
