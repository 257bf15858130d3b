//! Log records of the libraries we embed: to standard error when asked for, else nowhere.

use std::io::Write;

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
