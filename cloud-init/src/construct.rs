//! What parses and PyYAML's constructor still refuses: values that are none of their type, `=` and `<<` out of place.
//!
//! Rules: `SafeConstructor` in PyYAML's constructor.py. One such value, and cloud-init has nothing of the file.

use std::collections::BTreeMap;

use crate::scalar::{Meaning, Timestamp, meaning};
use crate::yaml::{self, Error, Node, Value};

/// Digits of a decimal number that Python takes (`sys.get_int_max_str_digits`, from 3.11 on and in repaired older ones).
const MAX_DIGITS: usize = 4300;

/// The first value that cannot be made, with its place.
pub fn check(root: &Node) -> Result<(), Error> {
    let mut anchors = BTreeMap::new();
    yaml::collect(root, &mut anchors);
    Constructor { anchors }.node(root)
}

struct Constructor<'a> {
    anchors: BTreeMap<usize, &'a Node>,
}

impl<'a> Constructor<'a> {
    fn node(&self, node: &Node) -> Result<(), Error> {
        match &node.value {
            Value::Scalar { text, plain } => scalar(node, text, *plain),
            Value::Sequence { items, .. } => {
                if !matches!(node.tag, None | Some("seq" | "omap" | "pairs")) {
                    return Err(no(node, "a list"));
                }
                items.iter().try_for_each(|item| self.node(item))
            }
            Value::Mapping { pairs, .. } => {
                if !matches!(node.tag, None | Some("map" | "set")) {
                    return Err(no(node, "a mapping"));
                }
                pairs.iter().try_for_each(|(key, value)| self.pair(key, value))
            }
            Value::Alias(_) => Ok(()),
        }
    }

    fn pair(&self, key: &Node, value: &Node) -> Result<(), Error> {
        if key.is_merge_key() {
            self.merged(value)?;
        } else if !is_default_key(key) {
            // Lint tells those that stand there themselves by a rule of their own.
            let alias = matches!(key.value, Value::Alias(_));
            if alias && matches!(self.target(key).value, Value::Sequence { .. } | Value::Mapping { .. }) {
                return Err(Error::at(key, "a list or a mapping as a key"));
            }
            self.node(key)?;
        }
        self.node(value)
    }

    /// What `<<` takes: a mapping, or a list of mappings.
    fn merged(&self, value: &Node) -> Result<(), Error> {
        let value = self.target(value);
        let is_mapping = |node: &Node| self.target(node).pairs().is_some();
        let fine = is_mapping(value) || value.items().is_some_and(|items| items.iter().all(is_mapping));
        let message = "the merge key << takes a mapping or a list of mappings";
        if fine { Ok(()) } else { Err(Error::at(value, message)) }
    }

    fn target<'n>(&'n self, node: &'n Node) -> &'n Node
    where
        'a: 'n,
    {
        match &node.value {
            Value::Alias(anchor) => self.anchors.get(anchor).copied().unwrap_or(node),
            _ => node,
        }
    }
}

/// `=` as a key is text; anywhere else it is a type that nothing is made of.
fn is_default_key(key: &Node) -> bool {
    matches!(&key.value, Value::Scalar { text, plain: true } if text == "=" && key.tag.is_none())
}

fn no(node: &Node, what: &str) -> Error {
    Error::at(node, format!("{what} cannot be !!{}", node.tag.unwrap_or_default()))
}

fn scalar(node: &Node, text: &str, plain: bool) -> Result<(), Error> {
    let why = match node.tag {
        None if plain => implicit(text),
        None | Some("null" | "str" | "python/unicode") => None,
        Some("bool") => {
            let words = ["yes", "no", "true", "false", "on", "off"];
            (!words.contains(&text.to_lowercase().as_str())).then_some("no yes or no, as its tag !!bool says")
        }
        Some("int") => (!is_int(text)).then_some("no whole number, as its tag !!int says"),
        Some("float") => (!is_float(text)).then_some("no number, as its tag !!float says"),
        Some("timestamp") => (!Timestamp::read(text).is_some_and(|time| time.exists()))
            .then_some("no date or time, as its tag !!timestamp says"),
        Some("binary") => (!is_base64(text)).then_some("no base64, as its tag !!binary says"),
        Some(_) => return Err(no(node, "text")),
    };
    why.map_or(Ok(()), |why| Err(Error::at(node, why)))
}

/// Why a plain scalar's own form cannot be made into what it means.
fn implicit(text: &str) -> Option<&'static str> {
    match meaning(text) {
        Meaning::Special if text == "=" => Some("a lone = without quotes, of which nothing is made"),
        Meaning::Special => Some("<< where it is no key, of which nothing is made"),
        Meaning::Timestamp => (!Timestamp::read(text).is_some_and(|time| time.exists()))
            .then_some("a date or a time that does not exist; quote it where it is text"),
        Meaning::Int(_) => {
            (!is_int(text)).then_some("a number without digits, or with more than Python takes")
        }
        _ => None,
    }
}

fn unsigned(text: &str) -> String {
    let text: String = text.chars().filter(|c| *c != '_').collect();
    text.strip_prefix(['-', '+']).map(str::to_owned).unwrap_or(text)
}

/// Python's `int` in the ways that PyYAML calls it: by prefix, and by parts in base 60.
fn is_int(text: &str) -> bool {
    let text = unsigned(text);
    let all = |digits: &str, radix: u32| {
        let digits = digits.trim().trim_start_matches(['-', '+']);
        !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix))
    };
    let decimal = |digits: &str| all(digits, 10) && digits.trim().len() <= MAX_DIGITS;
    if let Some(digits) = text.strip_prefix("0b") {
        return all(digits, 2);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return all(digits, 16);
    }
    if text.starts_with('0') {
        return all(&text, 8);
    }
    !text.is_empty() && text.split(':').all(decimal)
}

fn is_float(text: &str) -> bool {
    let text = unsigned(text).to_ascii_lowercase();
    matches!(text.as_str(), ".inf" | ".nan")
        || (!text.is_empty() && text.split(':').all(|part| part.trim().parse::<f64>().is_ok()))
}

/// Python's lenient decoder: other characters are passed over, and the last group must be whole.
fn is_base64(text: &str) -> bool {
    let data = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/');
    let (before, padding) = text.split_once('=').unwrap_or((text, ""));
    let digits = before.chars().filter(data).count();
    let padded = usize::from(text.contains('=')) + padding.matches('=').count();
    text.is_ascii()
        && match digits % 4 {
            0 => true,
            2 => padded >= 2,
            3 => padded >= 1,
            _ => false,
        }
}
