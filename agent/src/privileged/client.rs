//! The daemon's side: openers of root-only files.

use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recvmsg, socket_with, sockopt,
};

use super::wire::{MAX_REPLY, Refusal, Reply, Request};
use crate::sense::{Folder, OpenFile, describe, file};

/// Opens with the caller's own rights: enough for root and for tests.
#[derive(Clone, Debug)]
pub struct DirectOpener {
    root: PathBuf,
}

impl DirectOpener {
    /// Files of this machine.
    pub fn new() -> Self {
        Self::below("/")
    }

    /// Files below `root`, which stands for `/`.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }
}

impl Default for DirectOpener {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenFile for DirectOpener {
    fn open(&self, path: &Path) -> io::Result<File> {
        file::open_regular(&self.path(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.path(path))?;
        let mut names: Vec<String> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    fn describe(&self, path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        describe(rustix::fs::open(self.path(path), flags, Mode::empty())?)
    }
}

/// Opens with the caller's own rights, and asks the root helper where they do not reach.
///
/// Every question has a time limit. Where the helper is not there, the answer stays `PermissionDenied` and says so:
/// never "not found", which would read as "this machine has no etcd".
#[derive(Clone, Debug)]
pub struct HelperOpener {
    direct: DirectOpener,
    socket: PathBuf,
    limit: Duration,
}

impl HelperOpener {
    /// The helper of this machine.
    pub fn new() -> Self {
        Self::at(super::SOCKET, DirectOpener::new(), Duration::from_secs(3))
    }

    /// The helper behind `socket`, with a time limit a question.
    pub fn at(socket: impl Into<PathBuf>, direct: DirectOpener, limit: Duration) -> Self {
        Self { direct, socket: socket.into(), limit }
    }

    /// A descriptor from the helper.
    pub(super) fn ask_open(&self, path: &Path) -> io::Result<File> {
        match self.ask(&Request::Open(text(path)?))? {
            (Reply::Opened, Some(descriptor)) => Ok(descriptor.into()),
            (reply, _) => Err(refused(path, reply)),
        }
    }

    /// Names from the helper.
    pub(super) fn ask_list(&self, path: &Path) -> io::Result<Vec<String>> {
        match self.ask(&Request::List(text(path)?))?.0 {
            Reply::Names(names) => Ok(names),
            reply => Err(refused(path, reply)),
        }
    }

    /// A description from the helper.
    pub(super) fn ask_describe(&self, path: &Path) -> io::Result<Folder> {
        match self.ask(&Request::Describe(text(path)?))?.0 {
            Reply::Folder(folder) => Ok(folder),
            reply => Err(refused(path, reply)),
        }
    }

    fn ask(&self, request: &Request) -> io::Result<(Reply, Option<OwnedFd>)> {
        let deadline = Instant::now() + self.limit;
        let mut stream = self.connect()?;
        match stream.write_all(&request.to_line()?) {
            // It may refuse before it reads; then the refusal lies there to be read.
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(e),
            _ => {}
        }
        let mut line = Vec::new();
        let mut descriptor = None;
        let mut chunk = [0; 4096];
        while !line.ends_with(b"\n") {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the root helper did not answer in time",
                ));
            }
            stream.set_read_timeout(Some(left))?;
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let read = match recvmsg(
                &stream,
                &mut [IoSliceMut::new(&mut chunk)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                Ok(read) => read,
                Err(rustix::io::Errno::INTR) => continue,
                // The time limit of a socket reads as "would block".
                Err(rustix::io::Errno::AGAIN) => continue,
                Err(rustix::io::Errno::CONNRESET) => return Err(half()),
                Err(e) => return Err(e.into()),
            };
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    descriptor = fds.into_iter().next().or(descriptor);
                }
            }
            if read.bytes == 0 {
                return Err(half());
            }
            line.extend_from_slice(&chunk[..read.bytes]);
            if line.len() > MAX_REPLY {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the root helper's answer is too long",
                ));
            }
        }
        Ok((Reply::from_line(line.trim_ascii_end())?, descriptor))
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let stream = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Covers connecting as well: a full queue must not hold us.
        sockopt::set_socket_timeout(&stream, sockopt::Timeout::Send, Some(self.limit))?;
        match connect(&stream, &SocketAddrUnix::new(&self.socket)?) {
            Ok(()) => Ok(stream.into()),
            Err(rustix::io::Errno::AGAIN) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the root helper's queue is full"))
            }
            Err(e) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "only root may read it, and the root helper cannot be asked at {} ({}); see \
                     `systemctl status outrider-helper.socket`",
                    self.socket.display(),
                    io::Error::from(e),
                ),
            )),
        }
    }
}

impl Default for HelperOpener {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenFile for HelperOpener {
    fn open(&self, path: &Path) -> io::Result<File> {
        match self.direct.open(path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => self.ask_open(path),
            direct => direct,
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        match self.direct.list(path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => self.ask_list(path),
            direct => direct,
        }
    }

    fn describe(&self, path: &Path) -> io::Result<Folder> {
        match self.direct.describe(path) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => self.ask_describe(path),
            direct => direct,
        }
    }
}

fn half() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the root helper gave half an answer")
}

fn text(path: &Path) -> io::Result<String> {
    path.to_str().map(str::to_owned).ok_or_else(|| file::invalid("the path is not UTF-8"))
}

/// A refusal as the operating system would have worded it, where it has a word for it.
fn refused(path: &Path, reply: Reply) -> io::Error {
    let Reply::Refused { refusal, detail } = reply else {
        return io::Error::new(io::ErrorKind::InvalidData, "the root helper answered another question");
    };
    let kind = match refusal {
        Refusal::NotFound => io::ErrorKind::NotFound,
        Refusal::NotYou => io::ErrorKind::PermissionDenied,
        Refusal::NotAllowed => {
            let advice = format!(
                "the root helper may not open {}: only root may read it and it is not on the helper's list; \
                 root can add it in /etc/outrider/helper.d/*.conf",
                path.display()
            );
            return io::Error::new(io::ErrorKind::PermissionDenied, advice);
        }
        Refusal::Symlink | Refusal::WrongType => io::ErrorKind::InvalidInput,
        Refusal::BadRequest => io::ErrorKind::InvalidData,
        Refusal::Failed => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("the root helper: {detail}"))
}
