//! What a plain scalar means to PyYAML, which cloud-init uses: YAML 1.1, not 1.2 (`facts/cloud-init.md`, section 6).
//!
//! Rules: the implicit resolvers of PyYAML's `resolver.py`, as published at yaml.org/type for YAML 1.1.

use std::ops::RangeInclusive;

/// The type a plain scalar resolves to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning {
    /// Nothing, `~`, `null`.
    Null,
    /// `yes`, `off`, `True`, …
    Bool(bool),
    /// Decimal, octal (`0644`), hexadecimal, binary or base 60 (`22:22`).
    Int(i128),
    /// With a point, or base 60 with a point.
    Float,
    /// A date or a time.
    Timestamp,
    /// `<<` or `=`: merge and default keys.
    Special,
    /// Text.
    Text,
}

/// What `text`, written plain, means under YAML 1.1.
pub fn meaning(text: &str) -> Meaning {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Meaning::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Meaning::Bool(false),
        "<<" | "=" => Meaning::Special,
        _ => {
            number(text).or_else(|| is_timestamp(text).then_some(Meaning::Timestamp)).unwrap_or(Meaning::Text)
        }
    }
}

fn number(text: &str) -> Option<Meaning> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let int = integer(digits).map(|n| Meaning::Int(if negative { -n } else { n }));
    int.or_else(|| is_float(text, digits).then_some(Meaning::Float))
}

fn integer(digits: &str) -> Option<i128> {
    let parse = |body: &str, radix: u32| {
        let clean: String = body.chars().filter(|c| *c != '_').collect();
        let all = !body.is_empty() && body.chars().all(|c| c == '_' || c.is_digit(radix));
        // A number too long for any machine is still a number to PyYAML.
        all.then(|| {
            i128::from_str_radix(&clean, radix).unwrap_or(if clean.is_empty() { 0 } else { i128::MAX })
        })
    };
    if let Some(body) = digits.strip_prefix("0b") {
        return parse(body, 2);
    }
    if let Some(body) = digits.strip_prefix("0x") {
        return parse(body, 16);
    }
    if digits == "0" {
        return Some(0);
    }
    if let Some(body) = digits.strip_prefix('0') {
        return parse(body, 8);
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut parts = digits.split(':');
    let mut total = parse(parts.next()?, 10)?;
    for part in parts {
        if !(1..=2).contains(&part.len()) || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let value: i128 = part.parse().ok().filter(|n| *n < 60)?;
        total = total.saturating_mul(60).saturating_add(value);
    }
    Some(total)
}

fn is_float(text: &str, digits: &str) -> bool {
    if matches!(digits, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let Some((whole, rest)) = digits.split_once('.') else { return false };
    let digit = |c: char| c.is_ascii_digit();
    if whole.contains(':') {
        let sixty = |part: &str| {
            (1..=2).contains(&part.len())
                && part.chars().all(digit)
                && part.parse::<u8>().is_ok_and(|n| n < 60)
        };
        let mut parts = whole.split(':');
        let first = parts.next().unwrap_or_default();
        let head = first.starts_with(digit) && first.chars().all(|c| digit(c) || c == '_');
        return head && parts.all(sixty) && rest.chars().all(|c| digit(c) || c == '_');
    }
    let (fraction, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    // PyYAML's exponent needs its sign.
    let exponent = exponent
        .is_none_or(|e| e.strip_prefix(['+', '-']).is_some_and(|e| !e.is_empty() && e.chars().all(digit)));
    let fraction_ok = fraction.chars().all(|c| digit(c) || c == '_');
    let whole_ok = match whole {
        "" => fraction.starts_with(digit) && digits.len() == text.len(),
        _ => whole.starts_with(digit) && whole.chars().all(|c| digit(c) || c == '_'),
    };
    whole_ok && fraction_ok && exponent
}

fn is_timestamp(text: &str) -> bool {
    Timestamp::read(text).is_some_and(|time| time.clock.is_some() || text.len() == "2026-11-30".len())
}

/// A date or time taken apart, in range or not (PyYAML's constructor.py, `timestamp_regexp`).
pub(crate) struct Timestamp {
    date: [u32; 3],
    clock: Option<[u32; 3]>,
    /// Hours and minutes of the zone.
    zone: [u32; 2],
}

impl Timestamp {
    /// The parts of `text`; `None` where it is neither a date nor a time.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (year, rest) = digits(text, "", 4..=4)?;
        let (month, rest) = digits(rest, "-", 1..=2)?;
        let (day, rest) = digits(rest, "-", 1..=2)?;
        let mut out = Self { date: [year, month, day], clock: None, zone: [0, 0] };
        if rest.is_empty() {
            return Some(out);
        }
        let time = rest.strip_prefix(['T', 't']).unwrap_or_else(|| rest.trim_start_matches([' ', '\t']));
        if time.len() == rest.len() {
            return None;
        }
        let (hour, rest) = digits(time, "", 1..=2)?;
        let (minute, rest) = digits(rest, ":", 2..=2)?;
        let (second, rest) = digits(rest, ":", 2..=2)?;
        out.clock = Some([hour, minute, second]);
        let rest = rest
            .strip_prefix('.')
            .map_or(rest, |fraction| fraction.trim_start_matches(|c: char| c.is_ascii_digit()));
        let zone = rest.trim_start_matches([' ', '\t']);
        if rest.is_empty() || zone == "Z" {
            return Some(out);
        }
        let (hours, rest) = digits(zone.strip_prefix(['+', '-'])?, "", 1..=2)?;
        let (minutes, rest) = if rest.is_empty() { (0, rest) } else { digits(rest, ":", 2..=2)? };
        out.zone = [hours, minutes];
        rest.is_empty().then_some(out)
    }

    /// Whether there is such a day and such a time; Python refuses the others.
    pub(crate) fn exists(&self) -> bool {
        let [year, month, day] = self.date;
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let days = match month {
            2 => 28 + u32::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => 0,
        };
        let clock = self.clock.is_none_or(|[hour, minute, second]| hour < 24 && minute < 60 && second < 60);
        year > 0 && (1..=days).contains(&day) && clock && self.zone[0] * 60 + self.zone[1] < 24 * 60
    }
}

/// The number behind `mark`, and what stands behind it.
fn digits<'a>(text: &'a str, mark: &str, count: RangeInclusive<usize>) -> Option<(u32, &'a str)> {
    let text = text.strip_prefix(mark)?;
    let length = text.bytes().take(*count.end()).take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(length);
    if count.contains(&length) { Some((number.parse().ok()?, rest)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traps_of_yaml_1_1() {
        use Meaning::{Bool, Float, Int, Null, Special, Text, Timestamp};
        for (text, want) in [
            ("0644", Int(420)),
            ("010", Int(8)),
            ("644", Int(644)),
            ("08", Text),
            ("0o644", Text),
            ("yes", Bool(true)),
            ("no", Bool(false)),
            ("on", Bool(true)),
            ("Off", Bool(false)),
            ("y", Text),
            ("n", Text),
            ("yEs", Text),
            ("22:22", Int(1342)),
            ("22:22:22", Int(80542)),
            ("22:60", Text),
            ("1:2.5", Float),
            ("1.30", Float),
            ("1.30.1", Text),
            ("1e5", Text),
            ("1.0e5", Text),
            ("1.0e+5", Float),
            (".5", Float),
            ("-.5", Text),
            ("0x1F", Int(31)),
            ("0b101", Int(5)),
            ("1_000", Int(1000)),
            ("-17", Int(-17)),
            ("+3", Int(3)),
            ("-", Text),
            ("", Null),
            ("~", Null),
            ("null", Null),
            ("<<", Special),
            ("=", Special),
            (".inf", Float),
            (".nan", Float),
            ("2026-11-29", Timestamp),
            ("2026-11-29T10:00:00Z", Timestamp),
            ("2026-11-29 10:00:00", Timestamp),
            ("2026-1-2", Text),
            ("v1.30", Text),
            ("eth0", Text),
            ("10.0.0.1", Text),
            ("fe80::1", Text),
            ("echo: hi", Text),
            ("00:11:22:33:44:55", Text),
        ] {
            assert_eq!(meaning(text), want, "{text:?}");
        }
    }
}
