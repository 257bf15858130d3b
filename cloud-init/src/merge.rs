//! Adding to userdata without losing or changing what its owner wrote.
//!
//! The text is spliced, never printed anew: comments, order, quoting and every value stay as they are. Lists are
//! appended to, without duplicates; in `runcmd` what is added goes before Rancher's own script, which stays last. Merging
//! its own output changes nothing. What cannot be done safely is refused with the place and the reason.

mod item;
mod mine;
mod parts;
mod splice;

use std::collections::{HashMap, HashSet};

use crate::Finding;
use crate::lint::{is_null, secrets, shell};
use crate::yaml::{self, Node, Value};
use item::{Item, Source, canonical, shown};
use mine::{ALIAS_BUDGET, Mine, unchanged_but_for};
use splice::Splice;

/// Findings with which nothing is merged: the document would not be read, or a list that is added to is dropped whole.
const REFUSED: [&str; 14] = [
    "AliasesRefused",
    "ControlCharacter",
    "DuplicateKey",
    "EmptyEntry",
    "EntryIsMapping",
    "EntryNotText",
    "KeyNotText",
    "NestedTooDeep",
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
    /// What stands in the way, by place in that file; without a place where it stands in what several became.
    pub findings: Vec<Finding>,
}

/// Faults of the document that is added to, or of the one that is added.
enum Fault {
    Mine(Vec<Finding>),
    Theirs(Vec<Finding>),
}

/// `files` merged into one cloud-config, each added to those before it: the text, or every reason why not.
///
/// Multiparts are taken apart first. A file may be empty; without any file the document is empty.
pub fn merge(files: &[&str]) -> Result<String, Refusal> {
    let mut merged: Option<String> = None;
    // The file that `merged` is, as long as nothing was added to it, and the lines cut off before it.
    let mut alone: Option<(usize, usize)> = None;
    for (file, userdata) in files.iter().enumerate() {
        let refuse = |findings| Refusal { file, findings };
        for document in parts::documents(userdata).map_err(refuse)? {
            let Some(text) = merged else {
                alone = parts::lines_before(userdata).map(|lines| (file, lines));
                merged = Some(document);
                continue;
            };
            let added = add_document(&text, &document).map_err(|fault| match (fault, alone) {
                (Fault::Theirs(findings), _) => refuse(findings),
                (Fault::Mine(findings), Some((file, lines))) => {
                    let moved =
                        |f: Finding| Finding { line: if f.line > 0 { f.line + lines } else { 0 }, ..f };
                    Refusal { file, findings: findings.into_iter().map(moved).collect() }
                }
                (Fault::Mine(findings), None) => refuse(findings.into_iter().map(before_it).collect()),
            })?;
            alone = alone.filter(|_| added == text);
            merged = Some(added);
        }
    }
    Ok(merged.unwrap_or_else(|| "#cloud-config\n".to_owned()))
}

/// A finding in what several files became, which has no place in any of them.
fn before_it(finding: Finding) -> Finding {
    let message = format!("in what was merged before it, {}", finding.message);
    Finding { line: 0, column: 0, message, ..finding }
}

/// The parsed document; an empty one has no pairs.
fn root_of(text: &str) -> Result<Option<Node>, Vec<Finding>> {
    match yaml::parse(text) {
        Ok(root) => Ok(root.filter(|root| !is_null(root))),
        Err(e) => Err(vec![Finding::error("NotYaml", e.line, e.message, "correct the line")]),
    }
}

/// Programs that run what they are given: shells, and what stands before a command.
const RUNNERS: [&str; 15] = [
    "sh",
    "bash",
    "dash",
    "ash",
    "ksh",
    "zsh",
    ".",
    "source",
    "timeout",
    "setsid",
    "nice",
    "ionice",
    "stdbuf",
    "systemd-run",
    "flock",
];

/// Whether an entry of `runcmd` runs the script that makes the machine a node of Rancher.
pub(crate) fn is_rancher_script(item: &Node) -> bool {
    let named = |text: &str| RANCHER_SCRIPTS.iter().any(|script| text.contains(script));
    let commands = match &item.value {
        Value::Scalar { text, .. } if named(text) => shell::of_text(text),
        Value::Sequence { items, .. } if items.iter().filter_map(Node::text).any(named) => {
            shell::of_words(&items.iter().filter_map(Node::text).collect::<Vec<_>>())
        }
        _ => return false,
    };
    let script = |word: &String| RANCHER_SCRIPTS.contains(&word.as_str());
    commands.iter().any(|command| {
        command.words.first().is_some_and(script)
            || (RUNNERS.contains(&command.program()) && command.rest().iter().any(script))
    })
}

/// Adds the keys and list items of another cloud-config; one value that two files set differently is refused.
fn add_document(text: &str, other: &str) -> Result<String, Fault> {
    let Some(theirs) = root_of(other).map_err(Fault::Theirs)? else { return Ok(text.to_owned()) };
    let mut source = Source { text: other, verbatim: true };
    let mut theirs = theirs;
    if theirs.has_aliases() {
        source.verbatim = false;
        theirs = yaml::expand(&theirs, other.len() + ALIAS_BUDGET).map_err(|e| {
            Fault::Theirs(vec![Finding::error("AliasesRefused", e.line, e.message, "write the values out")])
        })?;
    }
    add_mapping(text, &mut Vec::new(), &theirs, source).map_err(Fault::Mine)
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
    let mut mine = Mine::read(&text)?;
    for (key, value) in theirs.pairs().unwrap_or_default() {
        let Some(name) = key.text() else { continue };
        let mapping = at(mine.written.as_ref(), path);
        let splice = Splice { text: &text, mapping, is_root: path.is_empty() };
        path.push(name.to_owned());
        let meant = at(mine.meant(), path);
        let written = mapping.and_then(|mapping| mapping.get(name));
        let spliced = match (written, meant) {
            (_, Some(meant)) if canonical(meant) == canonical(value) => None,
            (Some(written), Some(meant)) if meant.pairs().is_some() && value.pairs().is_some() => {
                // What is missing in it is added key by key, each with its own look at who shares it.
                if matches!(written.value, Value::Alias(_)) {
                    mine.must_be_alone(path)?;
                }
                Some(add_mapping(&text, path, value, source)?)
            }
            (Some(written), Some(meant)) => {
                add_value(&splice, &mine, path, (written, meant), (value, source))?
            }
            (None, Some(_)) => return Err(vec![mine.inherited(path, mapping)]),
            _ => {
                mine.must_be_alone(path)?;
                Some(splice.add_key(name, &Item::of_key(source, key, value)).map_err(|f| vec![f])?)
            }
        };
        if let Some(spliced) = spliced.filter(|spliced| *spliced != text) {
            mine = unchanged_but_for(path, &mine, Mine::read(&spliced))?;
            text = spliced;
        }
        path.pop();
    }
    Ok(text)
}

/// Adds to a list that is there already; `None` where nothing is missing in it.
fn add_value(
    splice: &Splice<'_>,
    mine: &Mine,
    path: &[String],
    (written, meant): (&Node, &Node),
    (value, source): (&Node, Source<'_>),
) -> Result<Option<String>, Vec<Finding>> {
    let name = path.last().map_or("", String::as_str);
    match value.items() {
        Some(items) if meant.items().is_some() || is_null(meant) => {
            let new = missing(splice.is_root, name, meant, items).map_err(|f| vec![f])?;
            if new.is_empty() {
                return Ok(None);
            }
            mine.must_be_alone(path)?;
            add_items(splice, name, written, new, source).map(Some)
        }
        Some(_) if splice.is_root => {
            let message = format!("{name} is {}, and a list is to be added to it", shown(path, meant));
            Err(vec![Finding::error("NotAList", 0, message, format!("write {name} as a list")).at(written)])
        }
        _ => {
            let message = format!(
                "{} is {} here and {} in the file that is added",
                path.join("."),
                shown(path, meant),
                shown(path, value)
            );
            let cure = "decide for one of both, and delete the other";
            Err(vec![Finding::error("SetTwice", 0, message, cure).at(written)])
        }
    }
}

/// What two items of a list may not say differently, by the list's key.
const IDENTITIES: [(&str, &str); 3] = [("write_files", "path"), ("users", "name"), ("fs_setup", "device")];

/// The items that the list has not; refused where it has another of the same name.
fn missing<'a>(is_root: bool, key: &str, list: &Node, items: &'a [Node]) -> Result<Vec<&'a Node>, Finding> {
    let mine = list.items().unwrap_or_default();
    let present: HashSet<String> = mine.iter().map(canonical).collect();
    let new: Vec<&Node> = items.iter().filter(|item| !present.contains(&canonical(item))).collect();
    let Some((_, identity)) = IDENTITIES.iter().find(|(list, _)| is_root && *list == key) else {
        return Ok(new);
    };
    let name_of = |item: &'_ Node| item.get(identity).and_then(Node::text).map(str::to_owned);
    let named: HashMap<String, &Node> =
        mine.iter().rev().filter_map(|item| Some((name_of(item)?, item))).collect();
    for item in &new {
        if let Some((id, mine)) = name_of(item).and_then(|id| named.get_key_value(&id)) {
            let id = if secrets::kind_of(id).is_some() { "an entry" } else { id };
            let message = format!("{key} has {id}, and the file that is added has it with another content");
            let cure = "delete one of both; to renew what was added before, delete the old entry";
            return Err(Finding::error("SetTwice", 0, message, cure).at(mine));
        }
    }
    Ok(new)
}

fn add_items(
    splice: &Splice<'_>,
    key: &str,
    list: &Node,
    new: Vec<&Node>,
    source: Source<'_>,
) -> Result<String, Vec<Finding>> {
    let before = match list.items() {
        Some(items) if splice.is_root && key == "runcmd" => items.iter().position(is_rancher_script),
        _ => None,
    };
    let items: Vec<Item> = new.into_iter().map(|item| Item::of_list(source, item)).collect();
    splice.append(key, &items.iter().collect::<Vec<_>>(), before).map_err(|f| vec![f])
}

#[cfg(test)]
mod tests;
