//! Names with letters beyond ASCII, as DNS has them (RFC 3492).
//!
//! Go's HTTP client takes such a name in a `server:` and turns it into punycode by itself. Here only the encoding is
//! done, of lower-case letters: full IDNA would bring Unicode's tables, 200 KiB, for names that nearly nobody has. What
//! those tables would change (combining marks, marks of direction) is refused.

/// `host` in punycode; an error says what cannot be written so.
pub fn to_ascii(host: &str) -> Result<String, String> {
    let labels: Result<Vec<String>, String> = host.split('.').map(label).collect();
    labels.map(|labels| labels.join("."))
}

fn label(text: &str) -> Result<String, String> {
    if text.is_ascii() {
        return Ok(text.to_ascii_lowercase());
    }
    // Other full stops end a label, too (RFC 3490, 3.1); nobody would see why it is another name.
    let odd = |c: &char| !(c.is_alphanumeric() || *c == '-') || matches!(c, '\u{300}'..='\u{36f}');
    let lower: Vec<char> = text.to_lowercase().chars().collect();
    if let Some(bad) = lower.iter().find(|c| odd(c)) {
        return Err(format!("{bad:?} in it cannot be written in punycode without Unicode's tables"));
    }
    encode(&lower).map(|encoded| format!("xn--{encoded}")).ok_or_else(|| "it is too long".to_owned())
}

/// The encoding of section 6.3.
fn encode(input: &[char]) -> Option<String> {
    const BASE: u32 = 36;
    let mut output: String = input.iter().filter(|c| c.is_ascii()).collect();
    let basic = u32::try_from(output.len()).ok()?;
    let (mut n, mut delta, mut bias, mut handled) = (128, 0u32, 72, basic);
    if basic > 0 {
        output.push('-');
    }
    while usize::try_from(handled).ok()? < input.len() {
        let next = input.iter().map(|c| *c as u32).filter(|c| *c >= n).min()?;
        delta = delta.checked_add((next - n).checked_mul(handled + 1)?)?;
        n = next;
        for c in input.iter().map(|c| *c as u32) {
            if c < n {
                delta = delta.checked_add(1)?;
            } else if c == n {
                let (mut q, mut k) = (delta, BASE);
                loop {
                    let t = k.saturating_sub(bias).clamp(1, 26);
                    if q < t {
                        break;
                    }
                    output.push(digit(t + (q - t) % (BASE - t))?);
                    q = (q - t) / (BASE - t);
                    k += BASE;
                }
                output.push(digit(q)?);
                bias = adapt(delta, handled + 1, handled == basic);
                delta = 0;
                handled += 1;
            }
        }
        delta = delta.checked_add(1)?;
        n += 1;
    }
    (output.len() <= 59).then_some(output)
}

fn adapt(delta: u32, points: u32, first: bool) -> u32 {
    let mut delta = if first { delta / 700 } else { delta / 2 };
    delta += delta / points;
    let mut k = 0;
    while delta > 455 {
        delta /= 35;
        k += 36;
    }
    k + 36 * delta / (delta + 38)
}

fn digit(value: u32) -> Option<char> {
    char::from_digit(value, 36).map(|c| match value {
        // Letters come first there, digits first here.
        0..=25 => (b'a' + value as u8) as char,
        _ => char::from_digit(value - 26, 10).unwrap_or(c),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_names() {
        for (name, expected) in [
            ("Rancher.Example", "rancher.example"),
            ("münchen.example", "xn--mnchen-3ya.example"),
            ("BÜCHER.de", "xn--bcher-kva.de"),
            ("例え.テスト", "xn--r8jz45g.xn--zckzah"),
            ("пример.испытание", "xn--e1afmkfd.xn--80akhbyknj4f"),
            ("faß.de", "xn--fa-hia.de"),
        ] {
            assert_eq!(to_ascii(name).as_deref(), Ok(expected), "{name}");
        }
        assert!(to_ascii("mu\u{308}nchen").is_err());
        assert!(to_ascii("a。b").is_err());
        assert!(to_ascii(&"ü".repeat(100)).is_err());
    }

    proptest! {
        #[test]
        fn never_panics_and_gives_ascii(name in "\\PC{0,80}") {
            if let Ok(ascii) = to_ascii(&name) {
                prop_assert!(ascii.is_ascii());
            }
        }
    }
}
