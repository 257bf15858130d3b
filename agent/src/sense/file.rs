//! Bounded reads of small files, the way sensors, configuration and delivery read them.
//!
//! Nobody may hang on a fifo put where a file was, nor fill memory with a file that grew: a file is opened without
//! blocking, must be a regular file and is read up to a limit.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use outrider_protocol::{Fact, UnknownCause};

use super::SenseContext;

/// Limit of files that hold one value or a few lines.
pub(crate) const SMALL: u64 = 64 * 1024;
/// Limit of documents and tables.
pub(crate) const LARGE: u64 = 4 * 1024 * 1024;

/// Room for what most files hold.
const ROOM: usize = 4096;

/// Opens a regular file read-only; anything else is `InvalidInput`.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(|e| {
        // What the kernel says of a socket reads as if there were no file.
        if e.raw_os_error() == Some(Errno::ENXIO as i32) {
            invalid("a socket, not a regular file")
        } else {
            e
        }
    })?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    Err(invalid(match kind {
        _ if kind.is_dir() => "a folder, not a regular file",
        _ if kind.is_fifo() => "a pipe, not a regular file",
        _ => "a device, not a regular file",
    }))
}

/// The bytes of an open file, at most `limit` of them; more is `InvalidInput`.
pub(crate) fn read_bounded(file: File, limit: u64) -> io::Result<Vec<u8>> {
    // Room from the start: files of /proc tell no size, and asking for a few bytes more each time has the kernel make the
    // text again each time.
    let mut bytes = Vec::with_capacity(ROOM.min(usize::try_from(limit).unwrap_or(ROOM)) + 1);
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    bytes.shrink_to_fit();
    if bytes.len() as u64 > limit {
        return Err(invalid(format!("larger than {limit} bytes")));
    }
    Ok(bytes)
}

/// The text of the file at `path` (as the file system has it, see [`SenseContext::path`]).
pub(crate) fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text(read_bounded(open_regular(path)?, limit)?)
}

/// `bytes` as UTF-8.
pub(crate) fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|e| invalid(format!("not UTF-8 at byte {}", e.utf8_error().valid_up_to())))
}

/// An error that says the file is there and of no use.
pub(crate) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.into())
}

/// Reads `path` (absolute on the machine) and makes a fact of it; what `parse` refuses is `Unknown (InvalidInput)`.
pub(crate) fn fact<T>(
    cx: &SenseContext,
    path: &str,
    limit: u64,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Fact<T> {
    match read_text(&cx.path(path), limit) {
        Ok(text) => parsed(cx, path, parse(&text)),
        Err(e) => Fact::from_io(&e, path, cx.now()),
    }
}

/// A fact of what was made of `source`.
pub(crate) fn parsed<T>(cx: &SenseContext, source: &str, value: Result<T, String>) -> Fact<T> {
    match value {
        Ok(value) => Fact::known(value, source, cx.now()),
        Err(detail) => Fact::unknown(UnknownCause::InvalidInput, detail, source, cx.now()),
    }
}

/// `text` cut for a message: file contents may be long, and may be binary junk.
pub(crate) fn excerpt(text: &str) -> String {
    let short: String =
        text.trim().chars().take(60).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if short.len() < text.trim().len() { format!("{short:?}…") } else { format!("{short:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_does_not_block_and_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        for (name, what) in
            [("fifo", "a pipe"), (".", "a folder"), ("socket", "a socket"), ("/dev/null", "a device")]
        {
            let error = read_text(&dir.path().join(name), SMALL).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
            assert_eq!(error.to_string(), format!("{what}, not a regular file"));
        }
    }

    #[test]
    fn a_file_beyond_the_limit_is_refused_not_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge");
        // Sparse: a size in the file system that must never become a size in memory.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let error = read_text(&path, SMALL).unwrap_err();
        assert!(error.to_string().contains("larger than"), "{error}");
        std::fs::write(&path, vec![b'a'; SMALL as usize]).unwrap();
        assert_eq!(read_text(&path, SMALL).unwrap().len() as u64, SMALL);
    }

    #[test]
    fn excerpts_are_short_and_printable() {
        assert_eq!(excerpt("a\0b\n"), "\"a\u{fffd}b\"");
        assert!(excerpt(&"x".repeat(500)).len() < 80);
    }
}
