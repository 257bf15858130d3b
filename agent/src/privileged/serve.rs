//! The helper: answers one question a connection, and ends when nobody asks.
//!
//! It runs as root, so it does as little as possible: one caller after the other, each with a deadline, no state, no
//! write, no process. Who may not ask is told so before a byte of the question is read.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::allow::{AllowList, Kind, MAX_CONFIG};
use super::excerpt::{self, Document};
use super::trusted::Trust;
use super::wire::{MAX_REPLY, MAX_REQUEST, Refusal, Reply, Request};
use crate::sense::guest_agent::denials_excerpt;
use crate::sense::{Folder, describe, file};

/// What the helper opens, and for whom.
#[derive(Debug)]
pub struct Helper {
    /// The list.
    pub allow: AllowList,
    /// Users that may ask.
    pub callers: Vec<u32>,
    /// Root of the file system that is opened: `/`, or a prepared folder in tests.
    pub root: PathBuf,
    /// The owner whose folders are trusted: 0, or the test's user.
    pub owner: u32,
}

/// How long the helper waits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a whole question to arrive, and for its answer to be taken.
    pub exchange: Duration,
    /// For the next caller, before the helper ends.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { exchange: Duration::from_secs(1), idle: Duration::from_secs(30) }
    }
}

/// Why the helper cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket that systemd should have passed is none.
    #[error("cannot wait for callers on the socket passed as standard input")]
    Listen(#[source] io::Error),
}

/// Answers callers on `listener` until none came for `limits.idle`. Each refusal is told to `log` in one line.
pub fn serve(
    listener: &UnixListener,
    helper: &Helper,
    limits: Limits,
    log: &mut dyn FnMut(&str),
) -> Result<(), ServeError> {
    // A caller that gave up between poll and accept must not make us wait for the next one.
    listener.set_nonblocking(true).map_err(ServeError::Listen)?;
    while wait(listener, limits.idle).map_err(ServeError::Listen)? {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(e) = answer(&stream, helper, limits.exchange, log) {
                    log(&format!("caller left or was too slow: {e}"));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            // Out of descriptors or memory: what was open is closed by now, so the next try has room.
            Err(e) => {
                log(&format!("cannot accept a caller: {e}"));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
    Ok(())
}

/// True when a caller waits, false when `limit` passed.
fn wait(listener: &UnixListener, limit: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(limit).map_err(|_| io::Error::other("idle limit out of range"))?;
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => Ok(false),
        Ok(_) if fds[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL) => {
            Err(io::Error::other("the socket is broken"))
        }
        Ok(_) => Ok(true),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

/// One exchange.
fn answer(
    stream: &UnixStream,
    helper: &Helper,
    limit: Duration,
    log: &mut dyn FnMut(&str),
) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(limit))?;
    let caller = rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw();
    if !helper.callers.contains(&caller) {
        log(&format!("refused uid {caller}: neither root nor the daemon's user"));
        let reply = Reply::refused(Refusal::NotYou, format!("uid {caller} may not ask"));
        return (&mut &*stream).write_all(&reply.to_line()?);
    }
    let reply = match read_request(stream, limit)? {
        Ok(request) => helper.answer(&request),
        Err(why) => Err((Refusal::BadRequest, why)),
    };
    match reply {
        Ok(Answer::File(file)) => send_file(stream, &Reply::Opened.to_line()?, &file),
        Ok(Answer::Names(names)) => send_line(stream, &Reply::Names(names)),
        Ok(Answer::Folder(folder)) => send_line(stream, &Reply::Folder(folder)),
        Err((refusal, detail)) => {
            // "Nothing there" is an answer like any other; the rest may be an attack.
            if refusal != Refusal::NotFound {
                log(&format!("refused uid {caller}: {detail}"));
            }
            (&mut &*stream).write_all(&Reply::refused(refusal, detail).to_line()?)
        }
    }
}

/// The question, or why it is none. An error when the caller left or `limit` passed.
fn read_request(stream: &UnixStream, limit: Duration) -> io::Result<Result<Request, String>> {
    let deadline = Instant::now() + limit;
    let mut line = Vec::new();
    let mut chunk = [0; 1024];
    loop {
        if let Some(end) = line.iter().position(|b| *b == b'\n') {
            return Ok(Request::from_line(&line[..end]));
        }
        if line.len() >= MAX_REQUEST {
            return Ok(Err(format!("no line end within {MAX_REQUEST} bytes")));
        }
        // A byte a second must not hold the line for hours.
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match (&mut &*stream).read(&mut chunk) {
            Ok(0) => return Ok(Err("no line end".to_owned())),
            Ok(n) => line.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Sends an answer that may have grown too long with its folder.
fn send_line(stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = reply.to_line()?;
    if line.len() > MAX_REPLY {
        line = Reply::refused(Refusal::Failed, "too many names for one answer").to_line()?;
    }
    (&mut &*stream).write_all(&line)
}

/// Sends the line with the descriptor.
fn send_file(stream: &UnixStream, line: &[u8], file: &OwnedFd) -> io::Result<()> {
    let fds = [file.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = sendmsg(stream, &[io::IoSlice::new(line)], &mut ancillary, SendFlags::NOSIGNAL)?;
    // The descriptor went with the first byte.
    (&mut &*stream).write_all(&line[sent..])
}

/// What is sent back when the answer is yes.
enum Answer {
    File(OwnedFd),
    Names(Vec<String>),
    Folder(Folder),
}

/// Kinds of entries that answer to "open".
const OPENED: [Kind; 12] = [
    Kind::File,
    Kind::Excerpt(Document::Rancher),
    Kind::Excerpt(Document::EtcdConfig),
    Kind::Excerpt(Document::EtcdPod),
    Kind::Excerpt(Document::Kubelet),
    Kind::Excerpt(Document::SystemAgent),
    Kind::Excerpt(Document::RancherConnection),
    Kind::Excerpt(Document::Unit),
    Kind::Excerpt(Document::Environment),
    Kind::Excerpt(Document::Kubeconfig),
    Kind::Excerpt(Document::PublicKey),
    Kind::Excerpt(Document::Denials),
];

impl Helper {
    fn answer(&self, request: &Request) -> Result<Answer, (Refusal, String)> {
        let trust = Trust { root: self.root.clone(), owner: self.owner };
        let (kinds, path) = match request {
            Request::Open(path) => (&OPENED[..], path),
            Request::List(path) | Request::Describe(path) => (&[Kind::Folder][..], path),
        };
        let entry = kinds.iter().find_map(|kind| Some((*kind, self.allow.find(*kind, path)?)));
        let Some((kind, (base, below))) = entry else {
            return Err((Refusal::NotAllowed, format!("{path:?} is not on the list")));
        };
        let found = match kind {
            Kind::File => {
                trust.resolve(base).and_then(|b| trust.open_file(&b, &below)).map(|f| Answer::File(f.into()))
            }
            Kind::Folder => {
                let folder = trust.resolve(base).and_then(|b| trust.open_folder(&b, &below));
                match request {
                    Request::Describe(_) => folder.and_then(describe).map(Answer::Folder),
                    _ => folder.and_then(list).map(Answer::Names),
                }
            }
            Kind::Excerpt(document) => {
                let text = match document {
                    // It may be a link to where a person keeps it, so every folder on the way must be root's.
                    Document::Rancher | Document::Unit | Document::Environment => {
                        trust.read(Path::new(path), MAX_CONFIG)
                    }
                    // Far longer than what is read of others, and of interest at its end.
                    Document::Denials => trust
                        .resolve(base)
                        .and_then(|b| trust.open_file(&b, &below))
                        .and_then(denials_excerpt),
                    // Its folder may belong to another user: no link is followed.
                    _ => trust
                        .resolve(base)
                        .and_then(|b| trust.open_file(&b, &below))
                        .and_then(|f| file::text(file::read_bounded(f, MAX_CONFIG)?)),
                };
                text.and_then(|text| {
                    let known = document.excerpt(&text).map_err(io::Error::other)?;
                    excerpt::to_file(&known).map(Answer::File)
                })
            }
        };
        found.map_err(|e| refusal(Path::new(path), &e))
    }
}

fn list(folder: OwnedFd) -> io::Result<Vec<String>> {
    let entries = rustix::fs::Dir::new(folder)?.filter_map(Result::ok);
    // Names that are no text are nothing a check looks for.
    let names = entries.filter_map(|e| e.file_name().to_str().ok().map(str::to_owned));
    let mut names: Vec<String> = names.filter(|n| n != "." && n != "..").collect();
    names.sort();
    Ok(names)
}

fn refusal(path: &Path, error: &io::Error) -> (Refusal, String) {
    let path = path.display();
    match (error.raw_os_error(), error.kind()) {
        (Some(libc::ELOOP), _) => (Refusal::Symlink, format!("{path}: a symbolic link lies on the way")),
        (_, io::ErrorKind::NotFound) => (Refusal::NotFound, format!("{path}: nothing there")),
        (_, io::ErrorKind::NotADirectory) => (Refusal::WrongType, format!("{path}: {error}")),
        (_, io::ErrorKind::InvalidInput) => (Refusal::WrongType, format!("{path}: {error}")),
        _ => (Refusal::Failed, format!("{path}: {error}")),
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
