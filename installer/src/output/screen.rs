//! The process's two output streams. Every byte a command prints passes here.

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crate::client::Refused;
use crate::exit::Exit;
use crate::output::text::readable;

/// How long work may take before a person is told that it goes on.
const PATIENCE: Duration = Duration::from_secs(1);

/// The reader of our output has gone (`| head`): not an error of ours, and nobody is left to be told.
#[derive(Debug, thiserror::Error)]
#[error("standard output was closed")]
struct Closed;

/// The command was called in a way it does not understand.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// Standard output and standard error, and what may be done to them.
pub(crate) struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// Standard output is a terminal: it may be redrawn.
    pub(crate) interactive: bool,
    /// Colour may be used.
    pub(crate) colour: bool,
    error_is_terminal: bool,
}

impl Screen {
    /// The streams of this process; colour only on a terminal, and not with `NO_COLOR` (any value but the empty one).
    pub(crate) fn of_process() -> Self {
        let interactive = io::stdout().is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Self {
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            interactive,
            colour: interactive && !refused,
            error_is_terminal: io::stderr().is_terminal(),
        }
    }

    /// Columns and lines of the terminal; `None` where there is none, and then nothing is cut.
    pub(crate) fn size(&self) -> Option<(usize, usize)> {
        let size = if self.interactive { terminal_size::terminal_size() } else { None };
        size.map(|(width, height)| (usize::from(width.0), usize::from(height.0)))
    }

    /// Columns of the terminal.
    pub(crate) fn width(&self) -> Option<usize> {
        self.size().map(|(width, _)| width)
    }

    /// Prints `text` as it is.
    pub(crate) fn write(&mut self, text: &str) -> anyhow::Result<()> {
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
            Err(e) => Err(anyhow::Error::new(e).context("cannot write to standard output")),
        }
    }

    /// Tells a person something that is no result: one line on standard error. Failing to is no failure.
    pub(crate) fn note(&mut self, text: &str) {
        let _ = writeln!(self.err, "{text}");
    }

    /// Waits for `work`; when it takes long, says on the terminal what is going on.
    pub(crate) async fn busy<T>(&mut self, what: &str, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        if !self.error_is_terminal {
            return work.await;
        }
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(PATIENCE) => {}
        }
        let _ = write!(self.err, "{what} …").and_then(|()| self.err.flush());
        let done = work.await;
        let _ = write!(self.err, "\r\x1b[K").and_then(|()| self.err.flush());
        done
    }

    /// Prints what the argument parser has to say: help and version are answers, the rest is a usage error.
    pub(crate) fn clap_answer(&mut self, error: &clap::Error, usage: Exit) -> Exit {
        let text = error.render();
        if error.use_stderr() {
            let text = if self.error_is_terminal && self.colour {
                text.ansi().to_string()
            } else {
                text.to_string()
            };
            let _ = self.err.write_all(text.as_bytes());
            return usage;
        }
        let text = if self.colour { text.ansi().to_string() } else { text.to_string() };
        match self.write(&text) {
            Ok(()) => Exit::Ok,
            Err(error) => self.failure(&error, usage),
        }
    }

    /// Prints why a command failed, the whole chain once, and picks the exit code. A closed pipe is quiet.
    pub(crate) fn failure(&mut self, error: &anyhow::Error, usage: Exit) -> Exit {
        if error.is::<Closed>() {
            return Exit::Ok;
        }
        // kubectl's users know these words; their scripts look for them.
        let who =
            if error.downcast_ref::<Refused>().is_some() { "Error from coordinator " } else { "error: " };
        // What it quotes may come from a file or a machine that means harm to the terminal.
        self.note(&format!("{who}{}", readable(&format!("{error:#}"))));
        match (error.is::<UsageError>(), usage) {
            (true, _) | (_, Exit::CheckUnknown) => usage,
            _ => Exit::Failed,
        }
    }
}
