//! YAML as a tree that remembers where everything stands, so that text can be judged and spliced, never rewritten.
//!
//! The parser is granit-parser, in the mode that is compatible with PyYAML. Aliases stay aliases: nothing is expanded,
//! so a bomb of them costs no more than its bytes.

use std::collections::{BTreeMap, HashMap};
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
    /// Number of its anchor, 0 for none.
    pub anchor: usize,
    /// Name of its tag where it has one of YAML's own, such as `int`.
    pub tag: Option<&'static str>,
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
    /// `*name`, with the number of the anchor it names.
    Alias(usize),
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
    /// It is a limit of ours: PyYAML may read the text.
    pub limit: bool,
}

impl Error {
    pub(crate) fn at(node: &Node, message: impl Into<String>) -> Self {
        Self { line: node.line, column: node.column, message: message.into(), limit: false }
    }
}

impl Node {
    /// A quoted scalar that stands nowhere.
    pub(crate) fn quoted(text: &str) -> Self {
        let value = Value::Scalar { text: text.to_owned(), plain: false };
        Self { value, span: 0..0, line: 0, column: 0, decorated: false, anchor: 0, tag: None }
    }

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

    fn into_pairs(self) -> Option<Vec<(Node, Node)>> {
        match self.value {
            Value::Mapping { pairs, .. } => Some(pairs),
            _ => None,
        }
    }

    fn clone_without_value(&self) -> Self {
        Self { value: Value::Alias(0), span: self.span.clone(), ..*self }
    }

    /// The key `<<`, whose value's pairs a mapping takes in.
    pub fn is_merge_key(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if text == "<<" && self.tag.is_none())
    }

    /// An alias or a merge key stands somewhere in it.
    pub fn has_aliases(&self) -> bool {
        match &self.value {
            Value::Scalar { .. } => false,
            Value::Alias(_) => true,
            Value::Sequence { items, .. } => items.iter().any(Node::has_aliases),
            Value::Mapping { pairs, .. } => pairs
                .iter()
                .any(|(key, value)| key.is_merge_key() || key.has_aliases() || value.has_aliases()),
        }
    }

    /// The value under `key`, the last one if the key stands twice (as PyYAML reads it).
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.pairs()?.iter().rev().find(|(k, _)| k.text() == Some(key)).map(|(_, value)| value)
    }
}

/// What `root` says with every alias and merge key (`<<`) replaced by what it stands for, as PyYAML builds it; refused
/// where an anchor holds itself, or where it would become more than `budget` nodes.
pub fn expand(root: &Node, budget: usize) -> Result<Node, Error> {
    let mut anchors = BTreeMap::new();
    collect(root, &mut anchors);
    Expander { anchors, open: Vec::new(), left: budget }.node(root)
}

pub(crate) fn collect<'a>(node: &'a Node, anchors: &mut BTreeMap<usize, &'a Node>) {
    if node.anchor != 0 {
        anchors.insert(node.anchor, node);
    }
    match &node.value {
        Value::Sequence { items, .. } => items.iter().for_each(|item| collect(item, anchors)),
        Value::Mapping { pairs, .. } => pairs.iter().for_each(|(key, value)| {
            collect(key, anchors);
            collect(value, anchors);
        }),
        Value::Scalar { .. } | Value::Alias(_) => {}
    }
}

struct Expander<'a> {
    anchors: BTreeMap<usize, &'a Node>,
    /// Anchors whose contents are being written out.
    open: Vec<usize>,
    left: usize,
}

impl Expander<'_> {
    fn node(&mut self, node: &Node) -> Result<Node, Error> {
        let refuse = |message: &str| Err(Error::at(node, message));
        self.left = match self.left.checked_sub(1) {
            Some(left) if self.open.len() <= MAX_DEPTH => left,
            _ => return refuse("aliases stand for more than can be meant"),
        };
        let value = match &node.value {
            Value::Scalar { .. } => return Ok(node.clone()),
            Value::Alias(anchor) => {
                let Some(target) = self.anchors.get(anchor).copied() else {
                    return refuse("an alias without an anchor before it");
                };
                if self.open.contains(anchor) {
                    return refuse("an anchor that holds itself");
                }
                return self.inside(*anchor, target);
            }
            Value::Sequence { items, flow } => {
                let items = items.iter().map(|item| self.child(item)).collect::<Result<_, _>>()?;
                Value::Sequence { items, flow: *flow }
            }
            Value::Mapping { pairs, flow } => Value::Mapping { pairs: self.pairs(pairs)?, flow: *flow },
        };
        Ok(Node { value, ..node.clone_without_value() })
    }

    /// What an anchor names, which may hold aliases but not to itself.
    fn inside(&mut self, anchor: usize, target: &Node) -> Result<Node, Error> {
        self.open.push(anchor);
        let expanded = self.node(target);
        self.open.pop();
        expanded
    }

    fn child(&mut self, node: &Node) -> Result<Node, Error> {
        if node.anchor == 0 { self.node(node) } else { self.inside(node.anchor, node) }
    }

    /// Merged keys come first and give way to the mapping's own; of the sources of one `<<` the first wins, of several `<<`
    /// the last (PyYAML: `flatten_mapping` in constructor.py).
    fn pairs(&mut self, pairs: &[(Node, Node)]) -> Result<Vec<(Node, Node)>, Error> {
        let mut own = Vec::with_capacity(pairs.len());
        let mut merged: Vec<Option<(Node, Node)>> = Vec::new();
        let mut place: HashMap<String, usize> = HashMap::new();
        for (key, value) in pairs {
            let value = self.child(value)?;
            if !key.is_merge_key() {
                own.push((self.child(key)?, value));
                continue;
            }
            let sources = match value.value {
                Value::Mapping { pairs, .. } => vec![pairs],
                Value::Sequence { items, .. } => items.into_iter().filter_map(Node::into_pairs).collect(),
                _ => Vec::new(),
            };
            for (key, value) in sources.into_iter().rev().flatten() {
                if let Some(name) = key.text()
                    && let Some(old) = place.insert(name.to_owned(), merged.len())
                {
                    merged[old] = None;
                }
                merged.push(Some((key, value)));
            }
        }
        for name in own.iter().filter_map(|(key, _)| key.text()) {
            if let Some(at) = place.get(name) {
                merged[*at] = None;
            }
        }
        Ok(merged.into_iter().flatten().chain(own).collect())
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
            limit: false,
        })?;
        builder.take(event, span)?;
    }
    Ok(builder.root)
}

/// The tag's name, where cloud-init's loader, PyYAML's safe one with `python/unicode` added, makes values of it.
fn constructed(tag: &str) -> Option<&'static str> {
    const KNOWN: [&str; 13] = [
        "null",
        "bool",
        "int",
        "float",
        "binary",
        "timestamp",
        "omap",
        "pairs",
        "set",
        "str",
        "seq",
        "map",
        "python/unicode",
    ];
    let name = tag.strip_prefix("tag:yaml.org,2002:").or_else(|| tag.strip_prefix("!!"))?;
    KNOWN.into_iter().find(|known| *known == name)
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
        let anchor = event.anchor_id().unwrap_or(0);
        let refuse = |message: String| {
            Err(Error { line: span.start.line(), column: span.start.col() + 1, message, limit: false })
        };
        let written = event.tag().map(ToString::to_string);
        // A lone `!` leaves the meaning to the text.
        let tag = written.as_deref().filter(|tag| *tag != "!").map(|tag| constructed(tag).ok_or(tag));
        if let Some(Err(tag)) = tag {
            return refuse(format!("the tag {tag} is none that cloud-init's reader knows"));
        }
        let tag = tag.and_then(Result::ok);
        // `!!str 010` is text as if it were quoted.
        let text_by_tag = matches!(tag, Some("str" | "python/unicode"));
        let node = |value| Node {
            value,
            span: span.byte_range().unwrap_or_default(),
            line: span.start.line(),
            column: span.start.col() + 1,
            decorated,
            anchor,
            tag,
        };
        match event {
            Event::DocumentStart(..) if self.root.is_some() => {
                return refuse("a second document; cloud-init reads one".to_owned());
            }
            Event::Scalar(text, style, ..) => {
                let plain = style == ScalarStyle::Plain;
                if plain && self.in_flow() && (text.contains('?') || text.starts_with(':')) {
                    return refuse(
                        "unquoted text in brackets that holds a ? or begins with a colon".to_owned(),
                    );
                }
                let plain = plain && !text_by_tag;
                self.put(node(Value::Scalar { text: text.into_owned(), plain }));
            }
            Event::Alias(anchor) => self.put(Node { anchor: 0, ..node(Value::Alias(anchor)) }),
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

    /// Inside brackets, where PyYAML reads `?` and a colon at the start as marks of a mapping.
    fn in_flow(&self) -> bool {
        self.open.last().is_some_and(|open| {
            let (Open::Sequence(node, _) | Open::Mapping(node, ..)) = open;
            matches!(node.value, Value::Sequence { flow: true, .. } | Value::Mapping { flow: true, .. })
        })
    }

    fn push(&mut self, open: Open, span: &Span) -> Result<(), Error> {
        if self.open.len() == MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH} levels");
            let (line, column) = (span.start.line(), span.start.col() + 1);
            return Err(Error { line, column, message, limit: true });
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
