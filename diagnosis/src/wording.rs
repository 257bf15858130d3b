//! Numbers as people read them in messages.

use std::fmt;
use std::time::Duration;

use outrider_protocol::Timestamp;

/// A number of bytes: decimal units above 1 kB, the exact number always ("2.1 GB (2147483648 bytes)").
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Short(self.0) {
            Short(n) if n < 1000 => write!(f, "{n} bytes"),
            short => write!(f, "{short} ({} bytes)", self.0),
        }
    }
}

/// A number of bytes in decimal units only ("2.1 GB").
pub(crate) struct Short(pub(crate) u64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
        if self.0 < 1000 {
            return write!(f, "{} bytes", self.0);
        }
        let mut value = self.0 as f64 / 1000.0;
        let mut unit = 0;
        // 999.95 would print as 1000.0 of the smaller unit.
        while value >= 999.95 && unit + 1 < UNITS.len() {
            value /= 1000.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

/// A duration in its largest fitting unit ("40 s", "12 min", "3 h", "5 days").
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0 if !self.0.is_zero() => write!(f, "{} ms", self.0.as_millis()),
            s if s < 120 => write!(f, "{s} s"),
            s if s < 2 * 3600 => write!(f, "{} min", s / 60),
            s if s < 48 * 3600 => write!(f, "{} h", s / 3600),
            s => write!(f, "{} days", s / 86_400),
        }
    }
}

/// How far two clocks are apart, in milliseconds, either way: in seconds as soon as these tell it ("3000 ms", "31 s",
/// "259200 s (3 days)").
pub(crate) struct Skew(pub(crate) i64);

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let apart = Duration::from_millis(self.0.unsigned_abs());
        match apart.as_secs() {
            ..10 => write!(f, "{} ms", apart.as_millis()),
            s @ ..120 => write!(f, "{s} s"),
            s => write!(f, "{s} s ({})", Span(apart)),
        }
    }
}

/// An instant to the minute ("2026-11-29 18:05 UTC"): unlike an age it reads the same at the next look.
pub(crate) struct Moment(pub(crate) Timestamp);

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        match (text.get(..10), text.get(11..16)) {
            (Some(day), Some(minute)) if text.as_bytes().get(10) == Some(&b'T') => {
                write!(f, "{day} {minute} UTC")
            }
            _ => f.write_str(&text),
        }
    }
}

/// A sentence's beginning, inside a sentence. Names keep their capitals.
pub(crate) fn lower(text: &str) -> String {
    let is_name =
        ["Rancher", "Harvester", "Kubernetes", "Outrider"].iter().any(|name| text.starts_with(name));
    if is_name || text.chars().nth(1).is_some_and(char::is_uppercase) {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// The inside of a sentence, as its beginning.
pub(crate) fn upper(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// "1 voter", "3 voters".
pub(crate) struct Count(pub(crate) usize, pub(crate) &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}{}", self.0, self.1, if self.0 == 1 { "" } else { "s" })
    }
}

/// Names joined by commas; after `most` only how many more there are, so that no message grows without bound.
pub(crate) fn names<I>(items: I, most: usize) -> String
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let mut out = String::new();
    let mut more = 0;
    for (i, item) in items.into_iter().enumerate() {
        if i >= most {
            more += 1;
            continue;
        }
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(item.as_ref());
    }
    if more > 0 {
        out.push_str(&format!(" and {more} more"));
    }
    out
}

/// `part` of `whole` in percent; 0 when there is no whole.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// A percentage for people: rounded down, for 4.96 % free must not read as the 5 % that would still be fine.
pub(crate) struct Percent(pub(crate) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 10.0 {
            write!(f, "{:.1} %", (self.0 * 10.0).floor() / 10.0)
        } else {
            write!(f, "{:.0} %", self.0.floor())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well_at_every_size() {
        assert_eq!(Bytes(999).to_string(), "999 bytes");
        assert_eq!(Bytes(8192).to_string(), "8.2 kB (8192 bytes)");
        assert_eq!(Short(1_837_483_648).to_string(), "1.8 GB");
        assert_eq!(Short(999_999).to_string(), "1.0 MB");
        assert_eq!(Short(u64::MAX).to_string(), "18.4 EB");
    }

    #[test]
    fn spans_keep_their_largest_unit() {
        let text = |s| Span(Duration::from_secs(s)).to_string();
        assert_eq!(
            [text(0), text(40), text(600), text(7200), text(200_000)],
            ["0 s", "40 s", "10 min", "2 h", "2 days"]
        );
        assert_eq!(Span(Duration::from_millis(250)).to_string(), "250 ms");
    }

    #[test]
    fn names_keep_their_capitals_inside_a_sentence() {
        assert_eq!(
            ["Its token", "Rancher's token", "AWS keys", ""].map(lower),
            ["its token", "Rancher's token", "AWS keys", ""]
        );
    }

    #[test]
    fn long_lists_are_cut_and_counted() {
        assert_eq!(names(["a", "b", "c"], 2), "a, b and 1 more");
        assert_eq!(names(Vec::<String>::new(), 2), "");
    }
}
