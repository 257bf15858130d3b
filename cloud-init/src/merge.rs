//! Adding to userdata without losing or changing what its owner wrote.
//!
//! The text is spliced, never printed anew: comments, order, quoting and every value stay as they are. Lists are
//! appended to, without duplicates; in `runcmd` our entries go before Rancher's own script, which stays last. Merging
//! its own output changes nothing. What cannot be done safely is refused with the place and the reason.

mod splice;

use std::collections::BTreeSet;

use crate::header::{self, Kind};
use crate::lint::{is_null, lint};
use crate::scalar::{Meaning, meaning};
use crate::yaml::{self, Node, Value};
use crate::{Finding, Severity};
use splice::Splice;

/// What is added: items of lists, by their top-level key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Additions {
    /// Packages to install.
    pub packages: Vec<String>,
    /// Files to write.
    pub write_files: Vec<File>,
    /// Commands to run, as argument lists.
    pub runcmd: Vec<Vec<String>>,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where.
    pub path: String,
    /// Octal, such as `0600`.
    pub permissions: String,
    /// Text.
    pub content: String,
}

/// The script that rancher-machine appends to `runcmd`, older and newer place (`facts/cloud-init.md`, section 4).
const RANCHER_SCRIPTS: [&str; 2] = ["/usr/local/custom_script/install.sh", "/var/run/install.sh"];

/// `files` merged into one cloud-config, with `ours` added: the text, or every reason why not.
pub fn merge(files: &[&str], ours: &Additions) -> Result<String, Vec<Finding>> {
    let Some((first, more)) = files.split_first() else {
        return merge(&["#cloud-config\n"], ours);
    };
    let mut text = plain_document(first)?;
    for file in more {
        text = add_file(&text, &plain_document(file)?)?;
    }
    for (key, items) in ours.lists() {
        text = add_items(&text, key, &items)?;
    }
    Ok(text)
}

impl Additions {
    fn lists(&self) -> Vec<(&'static str, Vec<Item>)> {
        let packages = self.packages.iter().map(|name| Item::new(vec![quoted_if_needed(name)])).collect();
        let files = self.write_files.iter().map(|f| Item::new(f.lines())).collect();
        let commands = self.runcmd.iter().map(|words| {
            let words: Vec<String> = words.iter().map(|w| quoted_if_needed(w)).collect();
            Item::new(vec![format!("[{}]", words.join(", "))])
        });
        vec![("packages", packages), ("write_files", files), ("runcmd", commands.collect())]
    }
}

impl File {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("path: {}", quoted_if_needed(&self.path))];
        lines.push(format!("permissions: '{}'", self.permissions));
        let body = self.content.strip_suffix('\n');
        let literal = |body: &str| {
            !body.is_empty()
                && !body.starts_with([' ', '\n'])
                && body.chars().all(|c| c == '\n' || (c >= ' ' && c != '\u{7f}'))
        };
        match body.filter(|body| literal(body) && !body.ends_with('\n')) {
            Some(body) => {
                lines.push("content: |".to_owned());
                lines.extend(
                    body.lines()
                        .map(|line| if line.is_empty() { String::new() } else { format!("  {line}") }),
                );
            }
            None => lines.push(format!("content: {}", double_quoted(&self.content))),
        }
        lines
    }
}

/// One list item as lines, the first to stand behind the dash, the rest below it.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    lines: Vec<String>,
}

impl Item {
    fn new(lines: Vec<String>) -> Self {
        Self { lines }
    }

    /// The item as block text with its dash at `indent`.
    pub(crate) fn block(&self, indent: usize, newline: &str) -> String {
        let pad = " ".repeat(indent);
        let mut out = String::new();
        for (n, line) in self.lines.iter().enumerate() {
            if !line.is_empty() {
                out.push_str(&pad);
                out.push_str(if n == 0 { "- " } else { "  " });
                out.push_str(line);
            }
            out.push_str(newline);
        }
        out
    }

    /// What the item means, to tell duplicates.
    fn meaning(&self) -> Option<String> {
        let text = format!("x:\n{}", self.block(0, "\n"));
        let root = yaml::parse(&text).ok()??;
        root.get("x")?.items()?.first().map(canonical)
    }
}

/// `word` as YAML 1.1 reads it back: plain where that is text and nothing else, quoted otherwise.
fn quoted_if_needed(word: &str) -> String {
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

/// The document without byte-order mark and blanks before its header, or why it cannot be merged into.
fn plain_document(userdata: &str) -> Result<String, Vec<Finding>> {
    let (kind, found) = header::recognise(userdata.as_bytes());
    let text = userdata.trim_start_matches('\u{feff}').trim_start();
    let refuse = |code, message: &str, cure: &str| Err(vec![Finding::error(code, 1, message, cure)]);
    match kind {
        Kind::Empty => return Ok("#cloud-config\n".to_owned()),
        Kind::Jinja => {
            return refuse(
                "JinjaTemplate",
                "the file is a template: it is no YAML before it is rendered, so nothing can be added safely",
                "add ours as a separate part, or render the template first",
            );
        }
        Kind::CloudConfig => {}
        // A mark alone does not make a good document bad: we write without it.
        Kind::Ignored if header::recognise(text.as_bytes()).0 == Kind::CloudConfig => {}
        Kind::Ignored => return Err(found),
        _ => {
            return refuse(
                "NotACloudConfig",
                "the file is no plain cloud-config",
                "give a #cloud-config mapping",
            );
        }
    }
    let mut text = format!("#cloud-config{}", &text["#cloud-config".len()..]);
    if !text.ends_with('\n') {
        text.push_str(newline_of(&text));
    }
    let errors: Vec<Finding> =
        lint(text.as_bytes()).into_iter().filter(|f| f.severity == Severity::Error).collect();
    if errors.is_empty() { Ok(text) } else { Err(errors) }
}

pub(crate) fn newline_of(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// The parsed document; an empty one has no pairs.
fn root_of(text: &str) -> Result<Option<Node>, Vec<Finding>> {
    match yaml::parse(text) {
        Ok(root) => Ok(root.filter(|root| !is_null(root))),
        Err(e) => Err(vec![Finding::error("NotYaml", e.line, e.message, "correct the line")]),
    }
}

fn add_items(text: &str, key: &str, items: &[Item]) -> Result<String, Vec<Finding>> {
    let root = root_of(text)?;
    let list = root.as_ref().and_then(|root| root.get(key));
    let present: BTreeSet<String> = list.and_then(Node::items).into_iter().flatten().map(canonical).collect();
    let mut seen = present.clone();
    let new: Vec<&Item> = items.iter().filter(|i| i.meaning().is_none_or(|m| seen.insert(m))).collect();
    if new.is_empty() {
        return Ok(text.to_owned());
    }
    let before = match (key, list.and_then(Node::items)) {
        ("runcmd", Some(items)) => items.iter().position(is_rancher_script),
        _ => None,
    };
    let spliced = Splice { text, root: root.as_ref() }.append(key, &new, before).map_err(|f| vec![f])?;
    unchanged_but_for(text, &spliced)?;
    Ok(spliced)
}

fn is_rancher_script(item: &Node) -> bool {
    let words: Vec<&str> = match &item.value {
        Value::Scalar { text, .. } => text.split_whitespace().collect(),
        Value::Sequence { items, .. } => items.iter().filter_map(Node::text).collect(),
        _ => return false,
    };
    words.iter().any(|word| RANCHER_SCRIPTS.contains(word))
}

/// Adds the keys and list items of another cloud-config; one value that two files set differently is refused.
fn add_file(text: &str, other: &str) -> Result<String, Vec<Finding>> {
    let Some(theirs) = root_of(other)? else { return Ok(text.to_owned()) };
    let mut text = text.to_owned();
    for (key, value) in theirs.pairs().unwrap_or_default() {
        let Some(name) = key.text() else { continue };
        let root = root_of(&text)?;
        let mine = root.as_ref().and_then(|root| root.get(name));
        match (mine, value.items()) {
            (Some(mine), _) if canonical(mine) == canonical(value) => {}
            (Some(mine), Some(items)) if mine.items().is_some() || is_null(mine) => {
                let items: Vec<Item> = items.iter().map(|item| Item::new(flow_lines(item))).collect();
                text = add_items(&text, name, &items)?;
            }
            (Some(mine), _) if !is_null(mine) => {
                let message =
                    format!("{name:?} is set on line {} and differently in another file", mine.line);
                return Err(vec![Finding::error(
                    "SetTwice",
                    mine.line,
                    message,
                    "decide for one of both values",
                )]);
            }
            (Some(mine), _) => {
                let message = format!("{name:?} is empty on line {} and set in another file", mine.line);
                return Err(vec![Finding::error("SetTwice", mine.line, message, "delete the empty key")]);
            }
            (None, _) => {
                let spliced = Splice { text: &text, root: root.as_ref() }
                    .add_key(name, &flow(value))
                    .map_err(|f| vec![f])?;
                unchanged_but_for(&text, &spliced)?;
                text = spliced;
            }
        }
    }
    Ok(text)
}

fn flow_lines(node: &Node) -> Vec<String> {
    vec![flow(node)]
}

/// A node of another file on one line, its meaning kept: plain scalars stay as they were written.
fn flow(node: &Node) -> String {
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
        Value::Alias => "null".to_owned(),
    }
}

/// What a node means under YAML 1.1, as text: equal texts mean the same.
pub(crate) fn canonical(node: &Node) -> String {
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
        Value::Alias => format!("*{}", node.span.start),
    }
}

/// The safety net under the splices: every value of `before` is in `after`, lists in their order.
fn unchanged_but_for(before: &str, after: &str) -> Result<(), Vec<Finding>> {
    let lost = |what: String| {
        let cure = "add ours by hand; please report the file's layout";
        Err(vec![Finding::error(
            "MergeUnsafe",
            0,
            format!("the merge would change {what}; nothing was written"),
            cure,
        )])
    };
    let (old, Some(new)) = (root_of(before)?, root_of(after)?) else {
        return lost("the whole document".to_owned());
    };
    for (key, value) in old.as_ref().and_then(Node::pairs).unwrap_or_default() {
        let Some(name) = key.text() else { continue };
        let same = match (value.items(), new.get(name).map(|n| (n, n.items()))) {
            (Some(old), Some((_, Some(new)))) => {
                let mut new = new.iter().map(canonical);
                old.iter().map(canonical).all(|item| new.any(|n| n == item))
            }
            (_, Some((node, _))) => canonical(node) == canonical(value) || is_null(value),
            (_, None) => false,
        };
        if !same {
            return lost(format!("{name:?}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
