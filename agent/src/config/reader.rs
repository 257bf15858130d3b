//! Reads typed values out of a merged table, collecting every problem instead of stopping at the first.
//!
//! The keys a section takes are the keys it was asked for: there is no second list that could differ.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::Problem;
use super::written::{Node, Place, Table, Value};
use crate::net::{Url, UrlError, without_query};

/// A table being read.
pub(super) struct Section<'a> {
    path: String,
    table: Option<&'a Table>,
    known: Vec<String>,
    problems: Vec<Problem>,
}

impl<'a> Section<'a> {
    /// The whole configuration.
    pub(super) fn root(table: &'a Table) -> Self {
        Self { path: String::new(), table: Some(table), known: Vec::new(), problems: Vec::new() }
    }

    /// Reports the keys nobody asked for, and hands back every problem found.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        for (key, (place, _)) in self.table.into_iter().flatten() {
            if self.known.iter().any(|k| k == key) {
                continue;
            }
            let instead = match closest(key, &self.known) {
                Some(near) => format!("unknown key; did you mean `{near}`?"),
                None if self.known.len() <= 16 => {
                    format!("unknown key; known here: {}", self.known.join(", "))
                }
                None => "unknown key".to_owned(),
            };
            self.problems.push(place.problem(&join(&self.path, key), instead));
        }
        self.problems
    }

    /// Takes over the problems of a section below this one.
    pub(super) fn absorb(&mut self, section: Section<'_>) {
        self.problems.extend(section.finish());
    }

    /// The place and path of `key`, when it is written.
    pub(super) fn place(&self, key: &str) -> Option<&'a Place> {
        self.table?.get(key).map(|(place, _)| place)
    }

    /// Reports `message` about `key`, at its place or the table's.
    pub(super) fn problem(&mut self, key: &str, message: impl Into<String>) {
        let place = self.place(key).or_else(|| self.table?.values().next().map(|(place, _)| place));
        if let Some(place) = place {
            self.problems.push(place.problem(&join(&self.path, key), message));
        }
    }

    fn take(&mut self, key: &str) -> Option<&'a Node> {
        self.known.push(key.to_owned());
        self.table?.get(key).map(|(_, node)| node)
    }

    fn wrong_type(&mut self, path: &str, node: &Node, expected: &str) {
        let message = format!("is {}; expected {expected}", node.value.type_name());
        self.problems.push(node.place.problem(path, message));
    }

    /// The table below `key`; an empty one when it is left out or no table.
    pub(super) fn section(&mut self, key: &str) -> Section<'a> {
        let node = self.take(key);
        self.below(&join(&self.path, key), node)
    }

    fn below(&mut self, path: &str, node: Option<&'a Node>) -> Section<'a> {
        let table = match node {
            Some(Node { value: Value::Table(table), .. }) => Some(table),
            Some(Node { value: Value::Array(items), place }) if !items.is_empty() && is_tables(items) => {
                self.problems.push(place.problem(path, format!("is headed [[{path}]]; write [{path}]")));
                None
            }
            Some(node) => {
                let expected =
                    if path.contains('[') { "a table" } else { &format!("a table, headed [{path}]") };
                self.wrong_type(path, node, expected);
                None
            }
            None => None,
        };
        Section { path: path.to_owned(), table, known: Vec::new(), problems: Vec::new() }
    }

    /// Sections below `key`, by name (`[checks.NAME]`).
    pub(super) fn names(&self) -> Vec<&'a str> {
        self.table.into_iter().flatten().map(|(key, _)| key.as_str()).collect()
    }

    /// The tables of the array of tables `key`.
    pub(super) fn sections(&mut self, key: &str) -> Vec<Section<'a>> {
        let path = join(&self.path, key);
        match self.take(key) {
            None => Vec::new(),
            Some(Node { value: Value::Array(nodes), .. }) => {
                let indexed = nodes.iter().enumerate();
                indexed.map(|(i, node)| self.below(&format!("{path}[{i}]"), Some(node))).collect()
            }
            Some(node) => {
                self.wrong_type(&path, node, &format!("tables, each headed [[{key}]]"));
                Vec::new()
            }
        }
    }

    /// A value parsed by `parse`, whose error says what to write instead.
    fn parsed<T>(
        &mut self,
        key: &str,
        expected: &str,
        parse: impl FnOnce(&Value) -> Option<Result<T, String>>,
    ) -> Option<T> {
        let node = self.take(key)?;
        let path = join(&self.path, key);
        match parse(&node.value) {
            Some(Ok(value)) => Some(value),
            Some(Err(message)) => {
                self.problems.push(node.place.problem(&path, message));
                None
            }
            None => {
                self.wrong_type(&path, node, expected);
                None
            }
        }
    }

    /// A string that `parse` accepts.
    pub(super) fn text<T>(&mut self, key: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        self.parsed(key, "a string", |value| match value {
            Value::String(s) => Some(parse(s)),
            _ => None,
        })
    }

    /// How many problems there are so far.
    pub(super) fn problems(&self) -> usize {
        self.problems.len()
    }

    /// An array of strings, each accepted by `parse`; a bad one is reported and left out.
    pub(super) fn texts<T>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let path = join(&self.path, key);
        let node = self.take(key)?;
        let Value::Array(items) = &node.value else {
            let one = matches!(node.value, Value::String(_));
            let hint = if one {
                "an array of strings; put it in brackets: [\"…\"]"
            } else {
                "an array of strings"
            };
            self.wrong_type(&path, node, hint);
            return None;
        };
        let mut values = Vec::new();
        for (i, item) in items.iter().enumerate() {
            let path = format!("{path}[{i}]");
            match &item.value {
                Value::String(s) => match parse(s) {
                    Ok(value) => values.push(value),
                    Err(message) => self.problems.push(item.place.problem(&path, message)),
                },
                _ => self.wrong_type(&path, item, "a string"),
            }
        }
        Some(values)
    }

    /// A boolean.
    pub(super) fn boolean(&mut self, key: &str) -> Option<bool> {
        self.parsed(key, "true or false", |value| match value {
            Value::Boolean(b) => Some(Ok(*b)),
            _ => None,
        })
    }

    /// An integer in a range.
    pub(super) fn integer(&mut self, key: &str, least: i64, most: i64) -> Option<i64> {
        self.parsed(key, "an integer", |value| match value {
            Value::Integer(i) if (least..=most).contains(i) => Some(Ok(*i)),
            Value::Integer(i) => Some(Err(format!("is {i}; expected {least} to {most}"))),
            _ => None,
        })
    }

    /// A share of 0 to 100.
    pub(super) fn percent(&mut self, key: &str) -> Option<f64> {
        self.parsed(key, "a number of percent such as 20, without quotes", |value| {
            let number = match value {
                Value::Integer(i) => *i as f64,
                Value::Float(f) => *f,
                _ => return None,
            };
            Some(if (0.0..=100.0).contains(&number) {
                Ok(number)
            } else {
                Err(format!("is {number}; expected 0 to 100 (percent)"))
            })
        })
    }

    /// A duration in a range.
    pub(super) fn duration(&mut self, key: &str, least: Duration, most: Duration) -> Option<Duration> {
        self.parsed(key, "a duration such as \"30s\"", |value| match value {
            Value::String(s) => Some(duration(s).and_then(|d| {
                if d < least || d > most {
                    Err(format!("is {s:?}; expected {} to {}", written(least), written(most)))
                } else {
                    Ok(d)
                }
            })),
            Value::Integer(i) => Some(Err(format!("has no unit; write \"{i}s\" for seconds"))),
            _ => None,
        })
    }

    /// Three integers.
    pub(super) fn three(&mut self, key: &str, what: &str) -> Option<[i64; 3]> {
        self.integers(key, &format!("three integers: {what}"))
    }

    /// Two integers.
    pub(super) fn two(&mut self, key: &str, what: &str) -> Option<[i64; 2]> {
        self.integers(key, &format!("two integers: {what}"))
    }

    fn integers<const N: usize>(&mut self, key: &str, expected: &str) -> Option<[i64; N]> {
        self.parsed(key, expected, |value| match value {
            Value::Array(items) => {
                let numbers: Vec<i64> = items
                    .iter()
                    .filter_map(|node| if let Value::Integer(i) = node.value { Some(i) } else { None })
                    .collect();
                Some(match <[i64; N]>::try_from(numbers) {
                    Ok(all) if items.len() == N => Ok(all),
                    _ => Err(format!("expected {expected}")),
                })
            }
            _ => None,
        })
    }

    /// `{ "name" = ["ip", …] }`.
    pub(super) fn addresses_by_name(&mut self, key: &str) -> BTreeMap<String, Vec<IpAddr>> {
        let mut section = self.section(key);
        let map = section
            .names()
            .into_iter()
            .filter_map(|name| Some((name.to_ascii_lowercase(), section.texts(name, ip)?)))
            .collect();
        self.absorb(section);
        map
    }
}

fn is_tables(items: &[Node]) -> bool {
    items.iter().all(|item| matches!(item.value, Value::Table(_)))
}

/// A key below a path, in quotes where TOML wants them.
fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// The known word a misspelled one most likely meant.
pub(super) fn closest<'k, S: AsRef<str>>(word: &str, known: &'k [S]) -> Option<&'k str> {
    let near = |candidate: &str| strsim::osa_distance(&word.to_lowercase().replace('-', "_"), candidate);
    let best = known.iter().map(AsRef::as_ref).min_by_key(|candidate| near(candidate))?;
    (near(best) <= 1 + best.len() / 4).then_some(best)
}

/// One of `words`.
pub(super) fn one_of(words: &[&str], text: &str) -> Result<String, String> {
    if words.contains(&text) {
        return Ok(text.to_owned());
    }
    let meant = closest(text, words).map(|near| format!(" (did you mean \"{near}\"?)")).unwrap_or_default();
    Err(format!("is {text:?}{meant}; expected {}", words.join(", ")))
}

/// `"30s"`, `"5m"`, `"1h30m"`, `"2d"`, `"250ms"`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "is {text:?}; expected whole numbers with their units, without blanks, such as \"250ms\", \"30s\", \"5m\", \
             \"1h30m\", \"2d\""
        )
    };
    let (mut rest, mut total) = (text.trim(), Duration::ZERO);
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit_ms = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        let part = number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)?;
        total = total.checked_add(part).ok_or_else(wrong)?;
    }
    Ok(total)
}

/// A duration as it is written in the configuration.
pub(super) fn written(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (unit_ms, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if ms >= unit_ms && ms.is_multiple_of(unit_ms) {
            return format!("{}{unit}", ms / unit_ms);
        }
    }
    format!("{ms}ms")
}

/// SHA-256 in hex, lower case; colons as fingerprints have them are taken out.
pub(super) fn checksum(text: &str) -> Result<String, String> {
    let bare = text.trim();
    if bare.starts_with("OR1") {
        return Err(
            "is a whole token; its checksum is what stands between OR1 and ::, 64 hex digits".to_owned()
        );
    }
    if let Some((i, wrong)) = bare.chars().enumerate().find(|(_, c)| *c != ':' && !c.is_ascii_hexdigit()) {
        let at = i + 1;
        return Err(format!(
            "is no SHA-256 checksum: character {at} is {wrong:?}; expected 64 hex digits (0-9, a-f)"
        ));
    }
    let hex: String = bare.chars().filter(|c| *c != ':').collect::<String>().to_ascii_lowercase();
    match hex.len() {
        64 => Ok(hex),
        n => Err(format!("is no SHA-256 checksum: it has {n} hex digits; expected 64")),
    }
}

/// An absolute path.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        return Ok(path);
    }
    // A token pasted where its file belongs is a secret: the text is not repeated.
    Err("is no absolute path; write the path of a file, such as \"/etc/outrider/token\"".to_owned())
}

/// An IP address, IPv6 with or without brackets.
pub(super) fn ip(text: &str) -> Result<IpAddr, String> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| format!("is {text:?}; expected an IP address such as \"192.0.2.10\""))
}

/// `ip` or `ip:port`; `port` when it is left out.
pub(super) fn address(text: &str, port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    ip(text).map(|ip| SocketAddr::new(ip, port)).map_err(|_| {
        let example = "\"192.0.2.10\", \"192.0.2.10:8443\" or \"[2001:db8::1]:443\"";
        format!("is {text:?}; expected an IP address with or without a port, such as {example}")
    })
}

/// Where something listens: `ip:port`.
pub(super) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("is {text:?}; expected address and port, such as \"127.0.0.1:9345\""))
}

/// A URL of a server, `scheme://host[:port]`, with nothing behind.
pub(super) fn url(text: &str, schemes: &[&str]) -> Result<Url, String> {
    let shown = without_query(text);
    let url = Url::parse(text).map_err(|error| match error {
        UrlError::Scheme(_) => {
            let with = format!("{}://{shown}", schemes.first().copied().unwrap_or("https"));
            let meant = Url::parse(&with).map(|_| format!("; write {with:?}")).unwrap_or_default();
            format!("{shown:?} does not start with {}://{meant}", schemes.join(":// or "))
        }
        other => other.to_string(),
    })?;
    let scheme = if url.tls { "https" } else { "http" };
    let wrong = |why: String| {
        let examples: Vec<_> = schemes.iter().map(|s| format!("\"{s}://host[:port]\"")).collect();
        format!("is {shown:?}: {why}; expected {}", examples.join(" or "))
    };
    if !schemes.contains(&scheme) {
        return Err(wrong(format!("its scheme is {scheme}")));
    }
    if url.path.contains('?') {
        return Err(wrong("it has a query, which is not repeated here, for it may hold a secret".to_owned()));
    }
    if url.path != "/" {
        return Err(wrong("it has a path".to_owned()));
    }
    Ok(url)
}
