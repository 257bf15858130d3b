//! Text of list items and keys as it goes into a document, and what a node means.

use super::splice::{line_behind, line_start};
use crate::lint::is_null;
use crate::scalar::{Meaning, meaning};
use crate::schema;
use crate::yaml::{self, Node, Value};

/// A document that is read from: its text and tree.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    /// The text stands for itself: no alias in the tree was written out.
    pub(super) verbatim: bool,
}

/// One list item or key as lines without indentation, with the comments above it.
#[derive(Clone, Debug)]
pub(super) struct Item {
    comments: Vec<String>,
    lines: Vec<String>,
    meaning: String,
}

impl Item {
    /// An item of a list: as it was written where that can be moved, else on one line.
    pub(super) fn of_list(source: Source<'_>, node: &Node) -> Self {
        let meaning = canonical(node);
        let written = source.verbatim.then(|| written_item(source.text, node)).flatten();
        if let Some((comments, lines)) = written {
            let item = Self { comments, lines, meaning };
            if item.read_back("x:\n", |root| root.get("x")?.items()?.first()) {
                return item;
            }
            return Self { comments: Vec::new(), lines: vec![flow(node)], ..item };
        }
        Self { comments: Vec::new(), lines: vec![flow(node)], meaning }
    }

    /// A key with its value, likewise.
    pub(super) fn of_key(source: Source<'_>, key: &Node, value: &Node) -> Self {
        let meaning = canonical(value);
        let written = source.verbatim.then(|| written_key(source.text, key, value)).flatten();
        let plain = |meaning| Self {
            comments: Vec::new(),
            lines: vec![format!("{}: {}", flow(key), flow(value))],
            meaning,
        };
        let Some((comments, lines)) = written else { return plain(meaning) };
        let item = Self { comments, lines, meaning };
        let name = key.text().unwrap_or_default();
        let text = item.key_block(0, "\n");
        let same = yaml::parse(&text).ok().flatten().and_then(|root| root.get(name).map(canonical));
        if same.as_ref() == Some(&item.meaning) { item } else { plain(item.meaning) }
    }

    fn read_back(&self, before: &str, pick: impl Fn(&Node) -> Option<&Node>) -> bool {
        let text = format!("{before}{}", self.block(0, "\n"));
        let root = yaml::parse(&text).ok().flatten();
        root.as_ref().and_then(pick).map(canonical).as_ref() == Some(&self.meaning)
    }

    /// The item as block text with its dash at `indent`.
    pub(super) fn block(&self, indent: usize, newline: &str) -> String {
        self.text(indent, newline, "- ", "  ")
    }

    /// The key as block text.
    pub(super) fn key_block(&self, indent: usize, newline: &str) -> String {
        self.text(indent, newline, "", "")
    }

    fn text(&self, indent: usize, newline: &str, first: &str, rest: &str) -> String {
        let pad = " ".repeat(indent);
        let mut out = String::new();
        for comment in &self.comments {
            out.push_str(&format!("{pad}{comment}{newline}"));
        }
        for (n, line) in self.lines.iter().enumerate() {
            if !line.is_empty() {
                out.push_str(&pad);
                out.push_str(if n == 0 { first } else { rest });
                out.push_str(line);
            }
            out.push_str(newline);
        }
        out
    }
}

/// Comments above the line that begins at `start`, nearest last; the header is none.
fn comments_above(text: &str, start: usize) -> Vec<String> {
    let mut comments: Vec<String> = Vec::new();
    for line in text[..start].lines().rev() {
        let trimmed = line.trim();
        if !trimmed.starts_with('#') || trimmed.to_ascii_lowercase().starts_with("#cloud-config") {
            break;
        }
        comments.push(trimmed.to_owned());
    }
    comments.reverse();
    comments
}

/// From `start` to the end of the last line of `node`, each line without the `column` blanks before it.
fn lines_from(text: &str, start: usize, column: usize, node: &Node) -> Option<Vec<String>> {
    let end = line_behind(text, node).max(start);
    let mut lines = Vec::new();
    for (n, line) in text[start..end].lines().enumerate() {
        let line = line.trim_end_matches('\r');
        let line = match n {
            0 => line,
            _ if line.trim().is_empty() => "",
            _ => line.strip_prefix(&" ".repeat(column))?,
        };
        lines.push(line.to_owned());
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    (!lines.is_empty()).then_some(lines)
}

fn written_item(text: &str, node: &Node) -> Option<(Vec<String>, Vec<String>)> {
    let dash = super::splice::dash_of(text, node).ok()?;
    let begin = dash + 1 + text[dash + 1..].chars().take_while(|c| *c == ' ').count();
    // The dash alone, with its item on the next line.
    if text[begin..].starts_with(['\r', '\n', '#']) {
        return None;
    }
    let start = line_start(text, dash);
    let lines = lines_from(text, begin, text[start..begin].chars().count(), node)?;
    Some((comments_above(text, start), lines))
}

fn written_key(text: &str, key: &Node, value: &Node) -> Option<(Vec<String>, Vec<String>)> {
    let start = line_start(text, key.span.start);
    if !text[start..key.span.start].chars().all(|c| c == ' ') {
        return None;
    }
    let at = if value.span.is_empty() { key } else { value };
    let lines = lines_from(text, key.span.start, key.column - 1, at)?;
    Some((comments_above(text, start), lines))
}

/// `word` as YAML 1.1 reads it back: plain where that is text and nothing else, quoted otherwise.
pub(super) fn quoted_if_needed(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./+=@%".contains(c);
    let plain = !word.is_empty()
        && word.chars().all(safe)
        && !word.starts_with(['-', '.', '=', '%', '@'])
        && meaning(word) == Meaning::Text;
    if plain { word.to_owned() } else { double_quoted(word) }
}

/// `text` in double quotes; all that is not printable ASCII or a letter of another script is escaped.
fn double_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A node on one line, its meaning kept: plain scalars stay as they were written.
pub(super) fn flow(node: &Node) -> String {
    match node.tag {
        None | Some("str" | "python/unicode") => untagged(node),
        Some(tag) => format!("!!{tag} {}", untagged(node)),
    }
}

fn untagged(node: &Node) -> String {
    match &node.value {
        Value::Scalar { text, plain: true } if meaning(text) != Meaning::Text => text.clone(),
        Value::Scalar { text, .. } => quoted_if_needed(text),
        Value::Sequence { items, .. } => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::Mapping { pairs, .. } => {
            let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{}: {}", flow(k), flow(v))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        // Written out before; one that is left names nothing.
        Value::Alias(_) => "null".to_owned(),
    }
}

/// What a node means under YAML 1.1, as text: equal texts mean the same.
pub(super) fn canonical(node: &Node) -> String {
    match node.tag {
        None | Some("str" | "python/unicode") => meant(node),
        Some(tag) => format!("<{tag} {}>", meant(node)),
    }
}

fn meant(node: &Node) -> String {
    match &node.value {
        Value::Scalar { text, plain: true } => match meaning(text) {
            Meaning::Text => format!("{text:?}"),
            Meaning::Null => "null".to_owned(),
            Meaning::Bool(b) => b.to_string(),
            Meaning::Int(n) => n.to_string(),
            Meaning::Float | Meaning::Timestamp | Meaning::Special => format!("<{text}>"),
        },
        Value::Scalar { text, .. } => format!("{text:?}"),
        Value::Sequence { items, .. } => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        Value::Mapping { pairs, .. } => {
            let mut pairs: Vec<String> =
                pairs.iter().map(|(k, v)| format!("{}:{}", canonical(k), canonical(v))).collect();
            pairs.sort();
            format!("{{{}}}", pairs.join(","))
        }
        Value::Alias(anchor) => format!("*{anchor}"),
    }
}

/// A value for a sentence: its kind, and itself only where it is a truth or a whole number by the schema. What else stands
/// there may be a secret, whatever its key.
pub(super) fn shown(path: &[String], node: &Node) -> String {
    let mut known = Some(schema::root());
    for key in path {
        known = known.and_then(|known| known.child(key));
    }
    let harmless = known.is_some_and(|known| !known.is_any() && !known.types.text);
    match &node.value {
        _ if is_null(node) => "empty".to_owned(),
        Value::Scalar { text, plain: true }
            if harmless
                && matches!(meaning(text), Meaning::Bool(_) | Meaning::Int(_))
                && text.len() <= 20 =>
        {
            text.clone()
        }
        Value::Scalar { .. } => "a value".to_owned(),
        Value::Sequence { .. } => "a list".to_owned(),
        Value::Mapping { .. } => "a mapping".to_owned(),
        Value::Alias(_) => "an alias".to_owned(),
    }
}
