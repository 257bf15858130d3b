//! Words for people: ages, sizes, lines that fit.

use std::time::Duration;

use outrider_protocol::Timestamp;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Time passed, in the two largest units that tell something (`12s`, `3m5s`, `4h`, `9d`), as kubectl shows ages.
pub(crate) fn age(passed: Duration) -> String {
    let seconds = passed.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |big: u64, big_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit}{small}{small_unit}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ => two(days / 365, "y", days % 365, "d"),
    }
}

/// Time from `then` until `now`; `-` when it never was.
pub(crate) fn since(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "-".to_owned(), |then| age(now.since(then)))
}

/// `text`, or `-` for nothing: an empty cell would shift what `awk` and people read.
pub(crate) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// `text` on one line and free of what steers a terminal: names and messages come from other machines.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if steers(c) { ' ' } else { c }).collect()
}

/// Control characters, and those that turn the direction of the text around them.
fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// An error's `text` as [`printable`] makes it, but for line ends, and of a length that a person reads.
pub(crate) fn readable(text: &str) -> String {
    const LONGEST: usize = 4_000;
    let mut out: String =
        text.chars().take(LONGEST).map(|c| if c != '\n' && steers(c) { ' ' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        out.push('…');
    }
    out
}

/// `text` cut to `width` columns, with an ellipsis where something was cut.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(c);
    }
    out + "…"
}

/// `text` broken at blanks into lines of at most `width` columns (at least 20); a longer word stands alone, whole.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(20);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `1 error`, `2 errors`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_quoted_steers_the_terminal() {
        assert_eq!(printable("a\u{1b}[31m\nb\u{202e}c"), "a [31m b c");
        assert_eq!(readable("a\u{1b}]0;x\u{7}\nb"), "a ]0;x \nb");
        assert_eq!(readable(&"x".repeat(100_000)).chars().count(), 4_001);
    }

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let shown: Vec<String> =
            [0, 119, 120, 125, 599, 600, 10_799, 10_800, 14_460, 30_000, 200_000, 700_000, 63_072_000]
                .map(|s| age(Duration::from_secs(s)))
                .to_vec();
        let expected =
            ["0s", "119s", "2m", "2m5s", "9m59s", "10m", "179m", "3h", "4h1m", "8h", "2d7h", "8d", "2y"];
        assert_eq!(shown, expected);
    }

    #[test]
    fn cut_counts_columns_not_bytes() {
        assert_eq!(cut("münchen", 7), "münchen");
        assert_eq!(cut("münchen", 4), "mün…");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
    }

    #[test]
    fn a_long_word_stays_whole() {
        assert_eq!(
            wrap("see https://example.invalid/a/very/long/path now", 20),
            ["see", "https://example.invalid/a/very/long/path", "now"]
        );
        assert_eq!(wrap("", 80), [""]);
    }
}
