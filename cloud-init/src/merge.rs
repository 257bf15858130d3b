//! Adding to userdata without losing or changing what its owner wrote.
//!
//! The text is spliced, never printed anew: comments, order, quoting and every value stay as they are. Lists are
//! appended to, without duplicates; in `runcmd` what is added goes before Rancher's own script, which stays last. Merging
//! its own output changes nothing. What cannot be done safely is refused with the place and the reason.

mod item;
mod parts;
mod splice;

use std::collections::BTreeSet;

use crate::Finding;
use crate::lint::is_null;
use crate::yaml::{self, Node, Value};
use item::{Item, Source, canonical, shown};
use splice::Splice;

/// Findings with which nothing is merged: the document would not be read, or a list that is added to is dropped whole.
const REFUSED: [&str; 13] = [
    "AliasesRefused",
    "ControlCharacter",
    "DuplicateKey",
    "EmptyEntry",
    "EntryIsMapping",
    "EntryNotText",
    "KeyNotText",
    "NotAList",
    "NotAMapping",
    "NotUtf8",
    "NotYaml",
    "NulByte",
    "TabOutsideText",
];

/// The script that rancher-machine appends to `runcmd`, older and newer place (`facts/cloud-init.md`, section 4).
const RANCHER_SCRIPTS: [&str; 2] = ["/usr/local/custom_script/install.sh", "/var/run/install.sh"];

/// Why files cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the files, from 0.
    pub file: usize,
    /// What stands in the way, by place in that file or, for a value set twice, in what was merged before it.
    pub findings: Vec<Finding>,
}

/// `files` merged into one cloud-config, each added to those before it: the text, or every reason why not.
///
/// Multiparts are taken apart first. A file may be empty; without any file the document is empty.
pub fn merge(files: &[&str]) -> Result<String, Refusal> {
    let mut merged: Option<String> = None;
    for (file, userdata) in files.iter().enumerate() {
        let refuse = |findings| Refusal { file, findings };
        for document in parts::documents(userdata).map_err(refuse)? {
            merged = Some(match merged {
                None => document,
                Some(text) => add_document(&text, &document).map_err(refuse)?,
            });
        }
    }
    Ok(merged.unwrap_or_else(|| "#cloud-config\n".to_owned()))
}

/// The parsed document; an empty one has no pairs.
fn root_of(text: &str) -> Result<Option<Node>, Vec<Finding>> {
    match yaml::parse(text) {
        Ok(root) => Ok(root.filter(|root| !is_null(root))),
        Err(e) => Err(vec![Finding::error("NotYaml", e.line, e.message, "correct the line")]),
    }
}

/// Whether an entry of `runcmd` runs the script that makes the machine a node of Rancher.
pub(crate) fn is_rancher_script(item: &Node) -> bool {
    let words: Vec<&str> = match &item.value {
        Value::Scalar { text, .. } => text.split_whitespace().collect(),
        Value::Sequence { items, .. } => items.iter().filter_map(Node::text).collect(),
        _ => return false,
    };
    words.iter().any(|word| RANCHER_SCRIPTS.contains(&word.trim_matches(['\'', '"', ';'])))
}

/// Adds the keys and list items of another cloud-config; one value that two files set differently is refused.
fn add_document(text: &str, other: &str) -> Result<String, Vec<Finding>> {
    let Some(theirs) = root_of(other)? else { return Ok(text.to_owned()) };
    let mut source = Source { text: other, verbatim: true };
    let mut theirs = theirs;
    if theirs.has_aliases() {
        source.verbatim = false;
        theirs = yaml::expand(&theirs, other.len() + 20_000)
            .map_err(|e| vec![Finding::error("AliasesRefused", e.line, e.message, "write the values out")])?;
    }
    add_mapping(text, &mut Vec::new(), &theirs, source)
}

/// The node at a path of keys.
fn at<'a>(root: Option<&'a Node>, path: &[String]) -> Option<&'a Node> {
    path.iter().try_fold(root?, |node, key| node.get(key))
}

fn add_mapping(
    text: &str,
    path: &mut Vec<String>,
    theirs: &Node,
    source: Source<'_>,
) -> Result<String, Vec<Finding>> {
    let mut text = text.to_owned();
    for (key, value) in theirs.pairs().unwrap_or_default() {
        let Some(name) = key.text() else { continue };
        let root = root_of(&text)?;
        let mapping = at(root.as_ref(), path);
        let splice = Splice { text: &text, mapping, is_root: path.is_empty() };
        let spliced = match (mapping.and_then(|mapping| mapping.get(name)), value.items()) {
            (Some(mine), _) if canonical(mine) == canonical(value) => continue,
            (Some(mine), Some(items)) if mine.items().is_some() || is_null(mine) => {
                add_items(&splice, name, mine, items, source)?
            }
            (Some(mine), None) if mine.pairs().is_some() && value.pairs().is_some() => {
                path.push(name.to_owned());
                text = add_mapping(&text, path, value, source)?;
                path.pop();
                continue;
            }
            (Some(mine), Some(_)) if path.is_empty() => {
                let message =
                    format!("{name} is {} on line {}, and a list is to be added to", shown(mine), mine.line);
                let finding = Finding::error("NotAList", 0, message, format!("write {name} as a list"));
                return Err(vec![finding.at(mine)]);
            }
            (Some(mine), _) => return Err(vec![set_twice(name, path, mine, value)]),
            (None, _) => splice.add_key(name, &Item::of_key(source, key, value)).map_err(|f| vec![f])?,
        };
        unchanged_but_for(&text, &spliced)?;
        text = spliced;
    }
    Ok(text)
}

fn set_twice(name: &str, path: &[String], mine: &Node, theirs: &Node) -> Finding {
    let name = path.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join(".");
    let mine_is = if is_null(mine) { "empty".to_owned() } else { shown(mine) };
    let message =
        format!("{name} is {mine_is} on line {} and {} in the file that is added", mine.line, shown(theirs));
    Finding::error("SetTwice", mine.line, message, "decide for one of both, and delete the other")
}

/// What two items of a list may not say differently, by the list's key.
const IDENTITIES: [(&str, &str); 3] = [("write_files", "path"), ("users", "name"), ("fs_setup", "device")];

fn add_items(
    splice: &Splice<'_>,
    key: &str,
    list: &Node,
    items: &[Node],
    source: Source<'_>,
) -> Result<String, Vec<Finding>> {
    let present: BTreeSet<String> = list.items().into_iter().flatten().map(canonical).collect();
    let new: Vec<&Node> = items.iter().filter(|item| !present.contains(&canonical(item))).collect();
    if let Some((_, identity)) = IDENTITIES.iter().find(|(list, _)| splice.is_root && *list == key) {
        for item in &new {
            let id = item.get(identity).and_then(Node::text);
            let same = |mine: &&Node| id.is_some() && mine.get(identity).and_then(Node::text) == id;
            if let Some(mine) = list.items().into_iter().flatten().find(same) {
                let message = format!(
                    "{key} has {} on line {}, and the file that is added has it with another content",
                    id.unwrap_or_default(),
                    mine.line
                );
                let cure = "delete one of both; to renew what was added before, delete the old entry";
                return Err(vec![Finding::error("SetTwice", mine.line, message, cure)]);
            }
        }
    }
    if new.is_empty() {
        return Ok(splice.text.to_owned());
    }
    let before = match list.items() {
        Some(items) if splice.is_root && key == "runcmd" => items.iter().position(is_rancher_script),
        _ => None,
    };
    let items: Vec<Item> = new.into_iter().map(|item| Item::of_list(source, item)).collect();
    splice.append(key, &items.iter().collect::<Vec<_>>(), before).map_err(|f| vec![f])
}

/// The safety net under the splices: every value of `before` is in `after`, lists in their order.
fn unchanged_but_for(before: &str, after: &str) -> Result<(), Vec<Finding>> {
    let lost = |what: String| {
        let message = format!("the merge would change {what}; nothing was written");
        let cure = "add it by hand; please report the file's layout";
        Err(vec![Finding::error("MergeUnsafe", 0, message, cure)])
    };
    match (root_of(before)?, root_of(after)?) {
        (None, Some(_)) => Ok(()),
        (Some(old), Some(new)) => match lost_in(&old, &new) {
            Some(path) => lost(format!("{path:?}")),
            None => Ok(()),
        },
        (_, None) => lost("the whole document".to_owned()),
    }
}

/// Path of a value of `old` that `new` has not.
fn lost_in(old: &Node, new: &Node) -> Option<String> {
    match (&old.value, &new.value) {
        (Value::Mapping { pairs, .. }, Value::Mapping { .. }) => pairs.iter().find_map(|(key, value)| {
            let name = key.text()?;
            match new.get(name) {
                None => Some(name.to_owned()),
                Some(_) if is_null(value) => None,
                Some(now) => lost_in(value, now).map(|below| format!("{name}.{below}")),
            }
        }),
        (Value::Sequence { items, .. }, Value::Sequence { items: now, .. }) => {
            let mut now = now.iter().map(canonical);
            let kept = items.iter().map(canonical).all(|item| now.any(|n| n == item));
            (!kept).then(|| "an item".to_owned())
        }
        _ => (canonical(old) != canonical(new)).then(|| "its value".to_owned()),
    }
}

#[cfg(test)]
mod tests;
