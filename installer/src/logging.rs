//! Log records of the libraries we embed: to standard error when asked for, to a file while `up` runs, else nowhere.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;

/// Bytes of a log file; what comes later is dropped, for the first trouble tells more than the last.
const MAX_BYTES: usize = 16 << 20;

/// One line a record. A record never carries a secret: that is the rule of whoever logs.
struct ToStandardError;

impl log::Log for ToStandardError {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level() && metadata.target().starts_with("outrider")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().as_str().to_lowercase();
            let _ = writeln!(std::io::stderr().lock(), "{level}: {}: {}", record.target(), record.args());
        }
    }

    fn flush(&self) {}
}

/// A file, and the room left in it.
struct ToFile(Mutex<(std::fs::File, usize)>);

impl log::Log for ToFile {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level() && metadata.target().starts_with("outrider")
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let level = record.level().as_str().to_lowercase();
        let at = outrider_protocol::Timestamp::from(std::time::SystemTime::now());
        let line = format!("{at} {level}: {}: {}\n", record.target(), record.args());
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = file.1.checked_sub(line.len()) {
            file.1 = room;
            let _ = file.0.write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// Sends records up to info to a new file at `path`, readable by its owner alone.
pub(crate) fn to_file(path: &Path) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let file = file.with_context(|| format!("cannot write the log {}", path.display()))?;
    if log::set_boxed_logger(Box::new(ToFile(Mutex::new((file, MAX_BYTES))))).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
    Ok(())
}

/// Sends records to standard error: none without `-v`, up to info with one, up to debug with two.
pub(crate) fn start(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => log::LevelFilter::Info,
        _ => log::LevelFilter::Debug,
    };
    if log::set_logger(&ToStandardError).is_ok() {
        log::set_max_level(level);
    }
}
