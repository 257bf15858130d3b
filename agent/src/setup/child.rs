//! A program that is run and waited for, however long it takes: a package manager that is ended in the middle leaves half a
//! package.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::packages::program;
use crate::sense::SenseContext;

/// Last lines that are kept of what it said.
const KEPT: usize = 3;
/// Longest line.
const LINE: usize = 300;
/// Variables of our own environment that it is given: proxies an operator set for the unit.
const PASSED: [&str; 6] = ["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Its exit code; none when a signal ended it.
    pub(super) code: Option<i32>,
    /// Its last words, without passwords in URLs.
    pub(super) words: String,
}

impl Ended {
    /// How it ended, for a message.
    pub(super) fn told(&self, what: &str) -> String {
        let how =
            self.code.map_or("was ended by a signal".to_owned(), |code| format!("ended with code {code}"));
        if self.words.is_empty() { format!("{what} {how}") } else { format!("{what} {how}: {}", self.words) }
    }
}

/// Runs `words` and calls `tick` every now and then until it has ended. What it says goes to `say`, line by line.
pub(super) fn run(
    cx: &SenseContext,
    words: &[impl AsRef<str>],
    every: Duration,
    say: &dyn Fn(&str),
    tick: &mut dyn FnMut(),
) -> std::io::Result<Ended> {
    let mut words = words.iter().map(AsRef::as_ref);
    let name = words.next().unwrap_or("");
    let program = program(cx, name).ok_or_else(|| {
        std::io::Error::new(std::io::ErrorKind::NotFound, format!("there is no {name} here"))
    })?;
    let mut command = Command::new(program);
    command.env_clear().envs(PASSED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command
        .args(words)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root")
        .env("LC_ALL", "C")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("APT_LISTCHANGES_FRONTEND", "none")
        // It would restart services that have nothing to do with the guest agent.
        .env("NEEDRESTART_SUSPEND", "1")
        .env("ZYPP_LOCK_TIMEOUT", "60")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (lines, rest) = (reader(child.stderr.take()), reader(child.stdout.take()));
    let (mut last, mut aside) = (VecDeque::new(), VecDeque::new());
    let keep = |kept: &mut VecDeque<String>, line: &str| {
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(line.to_owned());
    };
    let status = loop {
        take(&lines, every / 10, &mut |line| {
            say(line);
            keep(&mut last, line);
        });
        take(&rest, Duration::ZERO, &mut |line| {
            say(line);
            keep(&mut aside, line);
        });
        tick();
        if let Some(status) = wait(&mut child, every)? {
            break status;
        }
    };
    // What a service that it started keeps open never ends.
    take(&rest, every / 10, &mut |line| {
        say(line);
        keep(&mut aside, line);
    });
    take(&lines, every / 10, &mut |line| {
        say(line);
        keep(&mut last, line);
    });
    // Some put their errors among the rest.
    let words = Vec::from(if last.is_empty() && !status.success() { aside } else { last });
    Ok(Ended { code: status.code(), words: words.join("; ") })
}

/// Its end, waited for at most for `limit`.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
    for _ in 0..10 {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(limit / 20);
    }
    Ok(None)
}

/// A thread that reads lines. It ends with the last one who may write.
fn reader(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (send, receive) = channel();
    if let Some(pipe) = pipe {
        std::thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            while pipe.by_ref().take(64 * 1024).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                if send.send(clean(&String::from_utf8_lossy(&line))).is_err() {
                    break;
                }
                line.clear();
            }
        });
    }
    receive
}

/// Takes the lines that are there, and those of the next `limit`.
fn take(lines: &Receiver<String>, limit: Duration, each: &mut dyn FnMut(&str)) {
    let mut limit = limit;
    loop {
        match lines.recv_timeout(limit) {
            Ok(line) if line.is_empty() => {}
            Ok(line) => each(&line),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
        limit = Duration::ZERO;
    }
}

/// One line as it may be shown: printable, short, blanks single, no user and password in a URL.
pub(super) fn clean(line: &str) -> String {
    let words = line.split_whitespace().map(|word| match word.split_once("://") {
        Some((scheme, rest)) => match rest.split_once('@') {
            // A `@` behind the host is part of a path.
            Some((user, host)) if !user.contains('/') => format!("{scheme}://***@{host}"),
            _ => word.to_owned(),
        },
        None => word.to_owned(),
    });
    let text = words.collect::<Vec<_>>().join(" ");
    text.chars().take(LINE).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
