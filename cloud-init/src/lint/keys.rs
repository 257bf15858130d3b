//! Keys by the schema: unknown ones, misplaced ones, and values that YAML 1.1 reads as something else.

use super::{Context, is_not_text, is_null, misread, quoted_cure, said};
use crate::scalar::{Meaning, meaning};
use crate::schema::{self, Key, Types};
use crate::version::{Version, Versions};
use crate::yaml::{Node, Value};
use crate::{Finding, Severity};

/// Wrappers that other tools know and cloud-init does not look into (B23, B27).
const WRAPPERS: [&str; 6] =
    ["user-data", "userdata", "userData", "user_data", "cloud-config", "cloud_config"];
/// Lists whose entries have rules of their own.
const COMMANDS: [&str; 2] = ["runcmd", "bootcmd"];

pub(super) fn check(root: &Node, context: &Context, findings: &mut Vec<Finding>) {
    let Some(pairs) = root.pairs() else { return };
    let schema = schema::root();
    for (key, value) in pairs {
        if is_null(key) {
            let message = "a colon with nothing before it, or a key that means nothing; no release looks for it, and the schema check of some fails on it";
            findings.push(Finding::error("EmptyKey", 0, message, "name: value").at(key));
            continue;
        }
        let Some(name) = key.text() else {
            let message = "a key that is no text; cloud-init looks for none of that kind";
            findings.push(Finding::warn("UnknownTopLevelKey", 0, message, "name: value").at(key));
            continue;
        };
        if WRAPPERS.contains(&name) {
            let message =
                format!("{name:?} is no key of cloud-config; everything nested under it is ignored");
            let cure = "move the keys to the top level";
            findings.push(Finding::error("UnknownTopLevelKey", 0, message, cure).at(key));
        } else if name == "autoinstall" && value.get("runcmd").is_some() {
            let message = "runcmd under autoinstall is not found at run time";
            let cure = "move runcmd to the top level, or use late-commands";
            findings.push(Finding::error("NestedRuncmd", 0, message, cure).at(key));
        } else if name == "network" {
            let message = "network settings in user-data are ignored by design";
            let cure = "put them into the network data";
            findings.push(Finding::error("NetworkInUserData", 0, message, cure).at(key));
        } else if let Some(known) = schema.child(name) {
            age(name, known, None, key, context, findings);
            if COMMANDS.contains(&name) {
                continue;
            }
            if name == "write_files" && !matches!(value.value, Value::Sequence { .. }) && !is_null(value) {
                let message = "write_files is no list; no file is written";
                findings.push(Finding::error("NotAList", 0, message, "write_files:\n  - path: /a").at(value));
                continue;
            }
            walk(name, known, value, context, findings);
        } else if !name.starts_with("x-") && !name.starts_with("x_") {
            findings.push(unknown_top_level(name, key));
        }
    }
}

/// A slip of a known key is surely meant; another name may be another reader's.
fn unknown_top_level(name: &str, key: &Node) -> Finding {
    let message = format!("{name:?} is no key that cloud-init knows; it is ignored");
    match nearest(name, schema::root().names_like(name, MOST_CHANGES)) {
        Some(near) => Finding::error("UnknownTopLevelKey", 0, message, format!("{near}:")).at(key),
        None => Finding::warn("UnknownTopLevelKey", 0, message, "delete it, or correct its name").at(key),
    }
}

/// Changes of letters that are a slip; more are another name.
const MOST_CHANGES: u32 = 2;

/// The name that `name` is a slip of, if there is one within two changes.
fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let squeezed = |s: &str| s.to_ascii_lowercase().replace(['-', '_'], "");
    let wanted = squeezed(name);
    // Of short names everything is within two changes.
    let most = if name.len() < 5 { 1 } else { MOST_CHANGES as usize };
    // Dashes and underlines left out, names of one meaning differ in length by a few.
    let alike = |key: &&str| key.len().abs_diff(name.len()) <= most + 3;
    known
        .filter(alike)
        .filter_map(|key| {
            let distance = if squeezed(key) == wanted { 0 } else { strsim::levenshtein(key, name) };
            (distance <= most).then_some((distance, key))
        })
        .min()
        .map(|(_, key)| key)
}

fn age(
    path: &str,
    known: &Key,
    parent: Option<Version>,
    at: &Node,
    context: &Context,
    findings: &mut Vec<Finding>,
) {
    // Of what came with its parent, the parent tells.
    if let Some(since) = known.since.filter(|since| parent != Some(*since)) {
        let message = format!("{path} is known since {since}; older releases pass over it");
        let cure = "see which release the image has, or do without it";
        let finding = Finding::info("KeyIsNew", message, cure).of(Versions::Before(since)).at(at);
        let severity = if context.version.is_some() { Severity::Error } else { finding.severity };
        findings.push(Finding { severity, ..finding });
    }
    if let Some(until) =
        known.until.filter(|_| context.version.is_none_or(|version| Some(version) > known.until))
    {
        let message = format!("{path} is not known any more after {until}");
        let cure = match path.rsplit(['.', ']']).next().map(|name| name.replace('-', "_")) {
            Some(name) if path.contains('-') => format!("{name}: from then on"),
            _ => "delete it".to_owned(),
        };
        findings.push(Finding::info("KeyIsGone", message, cure).at(at));
    }
    if let Some(deprecated) = known.deprecated {
        let message =
            format!("{path} is deprecated since {deprecated}: it still works, and cloud-init ends degraded");
        let cure = match path.rsplit('.').next().map(|name| name.replace('-', "_")) {
            Some(name) if path.contains('-') => format!("{name}:"),
            _ => replacement(path).to_owned(),
        };
        findings.push(Finding::info("KeyIsDeprecated", message, cure).of(Versions::From(deprecated)).at(at));
    }
}

fn replacement(path: &str) -> &'static str {
    match path {
        "chpasswd.list" => "chpasswd: {users: [{name: …, password: …, type: text}]}, from 22.3 on",
        "apt_update" => "package_update:",
        "apt_upgrade" => "package_upgrade:",
        "apt_reboot_if_required" => "package_reboot_if_required:",
        "ubuntu_advantage" => "ubuntu_pro:, from 24.1 on",
        _ => "see the reference of your release",
    }
}

fn walk(path: &str, known: &Key, node: &Node, context: &Context, findings: &mut Vec<Finding>) {
    match &node.value {
        Value::Scalar { .. } => scalar(path, known, node, findings),
        Value::Sequence { items, .. } => {
            if !known.is_any() && !known.types.list {
                return wrong_type(path, known.types, "a list", node, findings);
            }
            let Some(of_items) = known.items() else { return };
            let path = format!("{path}[]");
            for item in items {
                if is_null(item) && !of_items.is_any() && !of_items.types.null {
                    let message = format!("an empty item in {}", path.trim_end_matches("[]"));
                    findings.push(Finding::warn("EmptyItem", 0, message, "delete it").at(item));
                } else {
                    walk(&path, of_items, item, context, findings);
                }
            }
        }
        Value::Mapping { pairs, .. } => {
            if !known.is_any() && !known.types.map && !known.types.open {
                return wrong_type(path, known.types, "a mapping", node, findings);
            }
            for (key, value) in pairs {
                let Some(name) = key.text() else { continue };
                let path = format!("{path}.{name}");
                match known.child(name) {
                    Some(child) => {
                        age(&path, child, known.since, key, context, findings);
                        if path != "write_files[].permissions" && path != "write_files[].encoding" {
                            walk(&path, child, value, context, findings);
                        }
                    }
                    None if known.types.map => findings.push(unknown(&path, name, known, key)),
                    None => {}
                }
            }
        }
        Value::Alias(_) => {}
    }
}

/// B23: a key that is ignored where it stands.
fn unknown(path: &str, name: &str, parent: &Key, key: &Node) -> Finding {
    let message = format!("{path} is no key that cloud-init knows; it is ignored");
    if let Some(near) = nearest(name, parent.names_like(name, MOST_CHANGES)) {
        return Finding::error("UnknownKey", 0, message, format!("{near}:")).at(key);
    }
    if schema::root().names().any(|known| known == name) {
        let cure = format!("move {name} to the top level, without blanks before it");
        return Finding::error("MisplacedKey", 0, message, cure).at(key);
    }
    Finding::warn("UnknownKey", 0, message, "delete it, or correct its name").at(key)
}

fn scalar(path: &str, known: &Key, node: &Node, findings: &mut Vec<Finding>) {
    let (Value::Scalar { text, plain }, types) = (&node.value, known.types) else { return };
    if known.is_any() || is_null(node) {
        return;
    }
    let means = if *plain { meaning(text) } else { Meaning::Text };
    let fits = match means {
        Meaning::Text | Meaning::Special => types.text,
        Meaning::Bool(_) => types.bool,
        Meaning::Int(_) => types.int || types.num,
        Meaning::Float => types.num,
        Meaning::Null => true,
        Meaning::Timestamp => false,
    };
    if fits {
        return value_of(path, known, text, node, findings);
    }
    if types.text && is_not_text(node) {
        // B28
        let shown = said(path, text);
        let finding = match misread(node) {
            _ if shown != *text => {
                let message =
                    format!("{path}: {shown} without quotes is no text to cloud-init, which reads YAML 1.1");
                Finding::error("Misread", 0, message, "put it into single quotes")
            }
            Some(read) => {
                let message =
                    format!("{path}: {text} without quotes is {read} to cloud-init, which reads YAML 1.1");
                Finding::error("Misread", 0, message, quoted_cure("", text))
            }
            None => {
                let message = format!("{path}: {text} without quotes is no text; cloud-init wants text here");
                Finding::warn("WrongType", 0, message, quoted_cure("", text))
            }
        };
        return findings.push(finding.at(node));
    }
    if types.bool && !types.list && matches!(means, Meaning::Text | Meaning::Int(_)) {
        // What cloud-init takes for true; everything else is false to it (cloudinit/util.py, is_true).
        let word = text.trim().to_ascii_lowercase();
        let truth = matches!(word.as_str(), "true" | "1" | "on" | "yes");
        if truth || matches!(word.as_str(), "false" | "0" | "off" | "no") {
            let message = format!(
                "{path} is true or false, and {text:?} is neither to the schema; it is taken for {truth}"
            );
            return findings.push(Finding::warn("WrongType", 0, message, format!("{truth}")).at(node));
        }
        let message = format!("{path} is true or false; {} is taken for false", said(path, text));
        return findings.push(Finding::error("Misread", 0, message, "true or false").at(node));
    }
    let kind = match means {
        Meaning::Text | Meaning::Special => "text",
        Meaning::Bool(_) => "true or false",
        Meaning::Int(_) | Meaning::Float => "a number",
        Meaning::Timestamp => "a date",
        Meaning::Null => "nothing",
    };
    wrong_type(path, types, kind, node, findings);
}

fn value_of(path: &str, known: &Key, text: &str, node: &Node, findings: &mut Vec<Finding>) {
    if known.values.is_empty() || known.values.contains(&text) {
        return;
    }
    let message =
        format!("{path} is one of {}; {} is none of them", known.values.join(", "), said(path, text));
    let cure = nearest(text, known.values.iter().copied()).unwrap_or("one of those");
    findings.push(Finding::warn("UnknownValue", 0, message, cure).at(node));
}

fn wrong_type(path: &str, types: Types, is: &str, node: &Node, findings: &mut Vec<Finding>) {
    let words = [
        (types.text, "text"),
        (types.bool, "true or false"),
        (types.int || types.num, "a number"),
        (types.list, "a list"),
        (types.map || types.open, "a mapping"),
    ];
    let wanted: Vec<&str> = words.iter().filter(|(wanted, _)| *wanted).map(|(_, word)| *word).collect();
    let wanted = wanted.join(" or ");
    let message = format!("{path} is {is}; cloud-init wants {wanted}");
    // A list or mapping where another shape is wanted breaks the module; a scalar is often taken all the same.
    let scalar = matches!(node.value, Value::Scalar { .. });
    let finding = Finding::error("WrongType", 0, message, format!("write {wanted}")).at(node);
    findings.push(if scalar { Finding { severity: Severity::Warn, ..finding } } else { finding });
}
