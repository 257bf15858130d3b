//! Values as YAML and TOML take them, whichever version reads them.

/// Words that are no text to some YAML reader, in small letters.
const WORDS: [&str; 11] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"];

/// `text` as YAML 1.1 and 1.2 read it back: plain where nothing else can be meant, in single quotes otherwise.
pub(super) fn yaml(text: &str) -> String {
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic()) && super::plain(text, "-._+");
    if word && !WORDS.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "''"))
}

/// `text` for between the double quotes of a TOML string.
pub(super) fn toml(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}
