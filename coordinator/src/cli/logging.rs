//! The log: the journal with structured fields where stderr is connected to it, plain lines on stderr elsewhere.

use std::io::Write;

use log::{LevelFilter, Log, Metadata, Record};
use outrider_protocol::Timestamp;

/// Installs the logger, once a process.
pub(crate) fn install(level: LevelFilter) {
    let journal = systemd_journal_logger::connected_to_journal()
        .then(systemd_journal_logger::JournalLog::new)
        .and_then(Result::ok)
        .map(|log| log.with_syslog_identifier("outrider-coordinator".to_owned()));
    let installed = match journal {
        Some(journal) => journal.install(),
        None => log::set_boxed_logger(Box::new(Plain)),
    };
    if installed.is_ok() {
        log::set_max_level(level);
    }
}

/// Lines on stderr, with time and level.
struct Plain;

impl Log for Plain {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("outrider") || metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let now = Timestamp::from(std::time::SystemTime::now());
            // Nobody is left to be told of a closed stderr.
            let _ = writeln!(std::io::stderr().lock(), "{now} {:5} {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}
