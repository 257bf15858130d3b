//! YAML as a tree that remembers where everything stands, so that text can be judged and spliced, never rewritten.
//!
//! The parser is granit-parser, in the mode that is compatible with PyYAML. Aliases stay aliases: nothing is expanded,
//! so a bomb of them costs no more than its bytes.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

/// Deepest nesting we follow; cloud-config needs about ten.
const MAX_DEPTH: usize = 100;

/// A node and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it holds.
    pub value: Value,
    /// Bytes of the node in the text; empty for a value that is left out.
    pub span: Range<usize>,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// It carries an anchor or a tag.
    pub decorated: bool,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Text and whether it was written plain (then YAML 1.1 decides what it means).
    Scalar {
        /// After escapes and folding.
        text: String,
        /// Neither quoted nor a block.
        plain: bool,
    },
    /// A list.
    Sequence {
        /// Its items.
        items: Vec<Node>,
        /// Written as `[a, b]`.
        flow: bool,
    },
    /// Keys and values, in the order written; a key may stand twice.
    Mapping {
        /// Its pairs.
        pairs: Vec<(Node, Node)>,
        /// Written as `{a: b}`.
        flow: bool,
    },
    /// `*name`.
    Alias,
}

/// Why a text is no YAML document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
    pub column: usize,
    /// What the parser says.
    pub message: String,
}

impl Node {
    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn items(&self) -> Option<&[Node]> {
        match &self.value {
            Value::Sequence { items, .. } => Some(items),
            _ => None,
        }
    }

    /// The pairs of a mapping.
    pub fn pairs(&self) -> Option<&[(Node, Node)]> {
        match &self.value {
            Value::Mapping { pairs, .. } => Some(pairs),
            _ => None,
        }
    }

    /// The value under `key`, the last one if the key stands twice (as PyYAML reads it).
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.pairs()?.iter().rev().find(|(k, _)| k.text() == Some(key)).map(|(_, value)| value)
    }
}

/// The one document in `text`; `None` when there is none. A second document is an error: cloud-init reads one.
pub fn parse(text: &str) -> Result<Option<Node>, Error> {
    let mut builder = Builder { open: Vec::new(), root: None };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| Error {
            line: e.marker().line(),
            column: e.marker().col() + 1,
            message: e.info(),
        })?;
        builder.take(event, span)?;
    }
    Ok(builder.root)
}

enum Open {
    Sequence(Node, Vec<Node>),
    Mapping(Node, Vec<(Node, Node)>, Option<Node>),
}

struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Error> {
        let decorated = event.anchor_id().is_some() || event.tag().is_some();
        let node = |value| Node {
            value,
            span: span.byte_range().unwrap_or_default(),
            line: span.start.line(),
            column: span.start.col() + 1,
            decorated,
        };
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                let message = "a second document; cloud-init reads one".to_owned();
                return Err(Error { line: span.start.line(), column: 1, message });
            }
            Event::Scalar(text, style, ..) => {
                let plain = style == ScalarStyle::Plain;
                self.put(node(Value::Scalar { text: text.into_owned(), plain }));
            }
            Event::Alias(_) => self.put(node(Value::Alias)),
            Event::SequenceStart(style, ..) => {
                let flow = style == StructureStyle::Flow;
                let items = Vec::new();
                self.push(Open::Sequence(node(Value::Sequence { items: Vec::new(), flow }), items), &span)?;
            }
            Event::MappingStart(style, ..) => {
                let flow = style == StructureStyle::Flow;
                let open = node(Value::Mapping { pairs: Vec::new(), flow });
                self.push(Open::Mapping(open, Vec::new(), None), &span)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(&span),
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, open: Open, span: &Span) -> Result<(), Error> {
        if self.open.len() == MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(Error { line: span.start.line(), column: span.start.col() + 1, message });
        }
        self.open.push(open);
        Ok(())
    }

    fn close(&mut self, span: &Span) {
        let end = span.byte_range().map(|r| r.end);
        let closed = match self.open.pop() {
            Some(Open::Sequence(mut node, items)) => {
                if let Value::Sequence { items: slot, .. } = &mut node.value {
                    *slot = items;
                }
                node
            }
            Some(Open::Mapping(mut node, pairs, _)) => {
                if let Value::Mapping { pairs: slot, .. } = &mut node.value {
                    *slot = pairs;
                }
                node
            }
            None => return,
        };
        let start = closed.span.start;
        self.put(Node { span: start..end.unwrap_or(start).max(start), ..closed });
    }

    fn put(&mut self, node: Node) {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::Sequence(_, items)) => items.push(node),
            Some(Open::Mapping(_, pairs, key)) => match key.take() {
                None => *key = Some(node),
                Some(key) => pairs.push((key, node)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_point_at_the_text() {
        let text = "#cloud-config\nruncmd:\n  - 'a b' # c\n  -\n  - [x, y]\nempty:\n";
        let root = parse(text).unwrap().unwrap();
        let items = root.get("runcmd").unwrap().items().unwrap();
        assert_eq!(&text[items[0].span.clone()], "'a b'");
        assert_eq!((items[1].line, items[1].text()), (4, Some("~")));
        assert_eq!(&text[items[2].span.clone()], "[x, y]");
        assert_eq!(root.get("empty").unwrap().span.len(), 0);
    }

    #[test]
    fn bombs_and_depth_are_bounded() {
        let mut bomb = "a: &a [x]\n".to_owned();
        for n in 0..30 {
            bomb.push_str(&format!("b{n}: &b{n} [*a, *a, *a]\n"));
        }
        assert!(parse(&bomb).is_ok());
        let error = parse(&"[".repeat(5000)).unwrap_err();
        assert!(!error.message.is_empty());
        assert!(parse("").unwrap().is_none());
        assert_eq!(
            parse("a: 1\n---\nb: 2\n").unwrap_err().message,
            "a second document; cloud-init reads one"
        );
    }
}
