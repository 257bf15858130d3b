//! Where new text goes: behind the last item of a list, before a given one, or at the end of a mapping or of the document.

use super::item::Item;
use crate::Finding;
use crate::lint::is_null;
use crate::yaml::{Node, Value};

/// The line end that a document uses.
pub(super) fn newline_of(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Byte at which the line of `at` begins.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |n| n + 1)
}

/// Start of the line after the one that `at` ends; `at` itself when it is the start of a line.
fn line_end(text: &str, at: usize) -> usize {
    if at > 0 && text.as_bytes()[at - 1] == b'\n' {
        return at;
    }
    text[at..].find('\n').map_or(text.len(), |n| at + n + 1)
}

/// Where the last thing inside `node` ends; a block's own span may reach over blank lines and comments behind it.
fn content_end(node: &Node) -> usize {
    match &node.value {
        Value::Sequence { items, flow: false } => items.last().map_or(node.span.end, content_end),
        Value::Mapping { pairs, flow: false } => pairs.last().map_or(node.span.end, |(key, value)| {
            // A value that is left out has no place of its own: the colon behind the key is the end.
            if value.span.is_empty() { key.span.end + 1 } else { content_end(value) }
        }),
        _ => node.span.end,
    }
}

/// Start of the line behind `node`. The span of a block scalar may reach to where the next thing begins on its line.
pub(super) fn line_behind(text: &str, node: &Node) -> usize {
    let end = content_end(node);
    let start = line_start(text, end);
    if start < end && text[start..end].trim().is_empty() { start } else { line_end(text, end) }
}

/// Byte of the dash before a block item.
pub(super) fn dash_of(text: &str, item: &Node) -> Result<usize, Finding> {
    let blanks = [' ', '\t', '\r', '\n'];
    let mut before = text[..item.span.start].trim_end_matches(blanks);
    // The span of a block scalar begins behind its indicator, such as `|` or `>-2`, and of a decorated node behind that.
    while let Some(word) =
        before.rsplit(blanks).next().filter(|w| item.decorated && w.starts_with(['&', '!']))
    {
        before = before[..before.len() - word.len()].trim_end_matches(blanks);
    }
    if matches!(item.value, Value::Scalar { plain: false, .. }) {
        let bare = before.trim_end_matches(|c: char| c.is_ascii_digit() || "+-".contains(c));
        before = bare.strip_suffix(['|', '>']).map_or(before, |rest| rest.trim_end_matches(blanks));
    }
    let dash = before.len().checked_sub(1).filter(|at| before.as_bytes()[*at] == b'-');
    let alone = |at: &usize| text[line_start(text, *at)..*at].bytes().all(|b| b == b' ');
    dash.filter(alone).ok_or_else(|| {
        let message = "the list is laid out in a way that cannot be added to safely";
        Finding::error("UnusualLayout", 0, message, "write each item behind its dash").at(item)
    })
}

/// A document and the mapping in it that is added to; `None` for an empty document.
pub(super) struct Splice<'a> {
    pub(super) text: &'a str,
    pub(super) mapping: Option<&'a Node>,
    /// The mapping is the whole document.
    pub(super) is_root: bool,
}

impl Splice<'_> {
    /// `items` appended to the list `key`, or put before its item number `before`.
    pub(super) fn append(
        &self,
        key: &str,
        items: &[&Item],
        before: Option<usize>,
    ) -> Result<String, Finding> {
        self.must_be_block(key)?;
        let newline = newline_of(self.text);
        let pairs = self.mapping.and_then(Node::pairs).unwrap_or_default();
        let Some((key_node, list)) = pairs.iter().rfind(|(k, _)| k.text() == Some(key)) else {
            let indent = self.indent();
            let mut body = format!("{}{key}:{newline}", " ".repeat(indent));
            items.iter().for_each(|item| body.push_str(&item.block(indent + 2, newline)));
            return self.at_end(&body);
        };
        let below = key_node.column + 1;
        match &list.value {
            Value::Sequence { items: present, flow: false } if !present.is_empty() => {
                self.add_lines(present, items, before)
            }
            Value::Sequence { items: present, flow: true } => {
                self.replace_flow(list, below, present, (items, before))
            }
            _ if is_null(list) => {
                // `key:` alone, or `key: null`: the value becomes a block list below the key.
                let from = key_node.span.end + 1;
                let until = if list.span.is_empty() { from } else { list.span.end };
                let rest = line_end(self.text, until);
                let mut out = self.text[..from].to_owned();
                out.push_str(&self.text[until..rest]);
                out.push_str(if self.text[..rest].ends_with('\n') { "" } else { newline });
                items.iter().for_each(|item| out.push_str(&item.block(below, newline)));
                out.push_str(&self.text[rest..]);
                Ok(out)
            }
            _ => {
                let message = format!("{key:?} is no list that can be added to");
                Err(Finding::error("NotAList", 0, message, format!("write {key} as a list")).at(list))
            }
        }
    }

    /// A key that is not there yet.
    pub(super) fn add_key(&self, name: &str, key: &Item) -> Result<String, Finding> {
        self.must_be_block(name)?;
        self.at_end(&key.key_block(self.indent(), newline_of(self.text)))
    }

    /// Blanks before the mapping's keys.
    fn indent(&self) -> usize {
        let first = self.mapping.and_then(Node::pairs).and_then(<[_]>::first);
        first.map_or(0, |(key, _)| key.column.saturating_sub(1))
    }

    fn must_be_block(&self, key: &str) -> Result<(), Finding> {
        match self.mapping {
            Some(node @ Node { value: Value::Mapping { flow: true, .. }, .. }) => {
                let what = if self.is_root { "the whole document" } else { "the mapping" };
                let message = format!("{what} is written in braces; {key} cannot be added line by line");
                Err(Finding::error("FlowDocument", 0, message, "write the keys as lines").at(node))
            }
            _ => Ok(()),
        }
    }

    fn at_end(&self, body: &str) -> Result<String, Finding> {
        if !self.is_root {
            let at = self.mapping.map_or(self.text.len(), |node| line_behind(self.text, node));
            let newline = if self.text[..at].ends_with('\n') { "" } else { newline_of(self.text) };
            return Ok(format!("{}{newline}{body}{}", &self.text[..at], &self.text[at..]));
        }
        if let Some(n) = self.text.lines().position(|line| line.trim_end() == "...") {
            let message = "the document ends before the end of the file";
            return Err(Finding::error("DocumentEnd", n + 1, message, "delete the line ..."));
        }
        // A literal block that keeps its line ends would take a blank line at the end into its value.
        let newline = if self.text.ends_with('\n') { "" } else { newline_of(self.text) };
        Ok(format!("{}{newline}{body}", self.text))
    }

    fn add_lines(&self, present: &[Node], items: &[&Item], before: Option<usize>) -> Result<String, Finding> {
        let dash = dash_of(self.text, &present[0])?;
        let indent = dash - line_start(self.text, dash);
        let at = match before {
            Some(0) => line_start(self.text, dash),
            Some(n) => line_behind(self.text, &present[n - 1]),
            None => present.last().map_or(dash, |last| line_behind(self.text, last)),
        };
        let newline = newline_of(self.text);
        let mut out = self.text[..at].to_owned();
        if !out.ends_with('\n') {
            out.push_str(newline);
        }
        items.iter().for_each(|item| out.push_str(&item.block(indent, newline)));
        out.push_str(&self.text[at..]);
        Ok(out)
    }

    /// `[a, b]` becomes lines, each old item with the text it had.
    fn replace_flow(
        &self,
        list: &Node,
        indent: usize,
        present: &[Node],
        (items, before): (&[&Item], Option<usize>),
    ) -> Result<String, Finding> {
        let newline = newline_of(self.text);
        let body = &self.text[list.span.clone()];
        if list.decorated || body.contains('#') {
            let message = "a list in brackets with comments or anchors cannot be added to";
            return Err(Finding::error("FlowList", 0, message, "write it as lines").at(list));
        }
        let old = |node: &Node| {
            let text = self.text[node.span.clone()].split_whitespace().collect::<Vec<_>>().join(" ");
            format!("{}- {text}{newline}", " ".repeat(indent))
        };
        let at = before.unwrap_or(present.len());
        let mut lines = String::new();
        present[..at].iter().for_each(|node| lines.push_str(&old(node)));
        items.iter().for_each(|item| lines.push_str(&item.block(indent, newline)));
        present[at..].iter().for_each(|node| lines.push_str(&old(node)));
        let end = line_end(self.text, list.span.end);
        let tail = self.text[list.span.end..end].trim_end();
        let head = self.text[..list.span.start].trim_end();
        let comment = if tail.is_empty() { String::new() } else { format!(" {}", tail.trim_start()) };
        Ok(format!("{head}{comment}{newline}{lines}{}", &self.text[end..]))
    }
}
