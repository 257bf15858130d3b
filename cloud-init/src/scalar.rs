//! What a plain scalar means to PyYAML, which cloud-init uses: YAML 1.1, not 1.2 (`facts/cloud-init.md`, section 6).
//!
//! Rules: the implicit resolvers of PyYAML's `resolver.py`, as published at yaml.org/type for YAML 1.1.

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
    let bytes = text.as_bytes();
    let shape = |pattern: &str, at: usize| {
        pattern.bytes().enumerate().all(|(i, p)| match bytes.get(at + i) {
            Some(b) if p == b'd' => b.is_ascii_digit(),
            Some(b) => *b == p,
            None => false,
        })
    };
    if shape("dddd-dd-dd", 0) && bytes.len() == 10 {
        return true;
    }
    let Some((date, time)) = text.split_once(['T', 't', ' ', '\t']) else { return false };
    let mut numbers = date.split('-');
    let (year, month, day) = (numbers.next(), numbers.next(), numbers.next());
    let short = |n: Option<&str>| {
        n.is_some_and(|n| (1..=2).contains(&n.len()) && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let dated = year.is_some_and(|y| y.len() == 4 && y.bytes().all(|b| b.is_ascii_digit()));
    let clock: Vec<&str> = time.trim_start().splitn(3, ':').collect();
    let two = |n: &str| n.len() >= 2 && n.as_bytes()[..2].iter().all(u8::is_ascii_digit);
    dated
        && short(month)
        && short(day)
        && numbers.next().is_none()
        && clock.len() == 3
        && short(Some(clock[0]))
        && clock[1].len() == 2
        && two(clock[1])
        && two(clock[2])
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
