//! `outrider-helper`: the root helper that systemd starts when the daemon asks for a root-only file.
//!
//! The listening socket is its standard input (`StandardInput=socket`). It takes no arguments, reads its list anew at
//! every start, and ends when nobody asks; systemd keeps the socket.

use std::io::{Write, stderr, stdin};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use outrider_agent::privileged::{AllowList, Helper, Limits, USER, serve};

/// Refusals told a life: who asks in a loop shall not fill the journal.
const TOLD: usize = 50;

/// sysexits.h: used wrongly.
const EX_USAGE: u8 = 64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(&format!("{e:#}"));
            ExitCode::from(EX_USAGE)
        }
    }
}

fn run() -> anyhow::Result<()> {
    if std::env::args_os().len() > 1 {
        bail!("takes no arguments: systemd starts it through outrider-helper.socket");
    }
    let input = stdin().as_fd().try_clone_to_owned().context("no standard input")?;
    if !rustix::net::sockopt::socket_acceptconn(&input).unwrap_or(false) {
        bail!("standard input is no listening socket: systemd starts it through outrider-helper.socket");
    }
    let user =
        nix::unistd::User::from_name(USER).with_context(|| format!("cannot look up the user {USER}"))?;
    if user.is_none() {
        say(&format!("there is no user {USER}: only root may ask"));
    }
    let (allow, problems) = AllowList::load("/".as_ref(), 0);
    problems.iter().for_each(|p| say(p));
    let callers = std::iter::once(0).chain(user.map(|u| u.uid.as_raw())).collect();
    let helper = Helper { allow, callers, root: PathBuf::from("/"), owner: 0 };
    let mut told = 0;
    let mut log = |line: &str| {
        told += 1;
        match told {
            ..TOLD => say(line),
            TOLD => say("more such lines are left out"),
            _ => {}
        }
    };
    Ok(serve(&UnixListener::from(input), &helper, Limits::default(), &mut log)?)
}

/// One line for the journal.
fn say(line: &str) {
    // Without a journal there is nobody to tell.
    let _ = writeln!(stderr(), "{line}");
}
