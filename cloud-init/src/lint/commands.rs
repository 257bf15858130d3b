//! `runcmd` and `bootcmd`: one bad entry makes cloud-init skip the whole list.

use super::{is_null, single_quoted};
use crate::Finding;
use crate::yaml::{Node, Value};

pub(super) fn check(root: &Node, findings: &mut Vec<Finding>) {
    for list in ["runcmd", "bootcmd"] {
        let Some(node) = root.get(list) else { continue };
        match &node.value {
            Value::Sequence { items, .. } => {
                for (index, item) in items.iter().enumerate() {
                    entry(list, index + 1, item, findings);
                }
            }
            Value::Alias => {}
            _ if is_null(node) => {}
            _ => {
                let message = format!("{list} is no list; cloud-init skips it");
                findings
                    .push(Finding::error("NotAList", 0, message, format!("{list}:\n  - command")).at(node));
            }
        }
    }
}

fn entry(list: &str, number: usize, item: &Node, findings: &mut Vec<Finding>) {
    let skip = format!("cloud-init skips the whole {list} for it");
    match &item.value {
        // B10
        _ if is_null(item) => {
            let message = format!("entry {number} of {list} is empty; {skip}");
            findings.push(Finding::error("EmptyEntry", 0, message, "delete the entry").at(item));
        }
        // B9
        Value::Mapping { pairs, .. } => {
            let message = format!(
                "entry {number} of {list} is a mapping, not a command: a colon and a blank stand unquoted; {skip}"
            );
            let cure = match pairs.as_slice() {
                [(key, value)] => {
                    let said = if is_null(value) { "" } else { value.text().unwrap_or("…") };
                    let text = format!("{}: {said}", key.text().unwrap_or("…"));
                    format!("quote it: - {}", single_quoted(text.trim_end()))
                }
                _ => "quote the entry".to_owned(),
            };
            findings.push(Finding::error("EntryIsMapping", 0, message, cure).at(item));
        }
        Value::Sequence { items, .. } => {
            if items.is_empty() {
                let message = format!("entry {number} of {list} is an empty list: no command");
                findings.push(Finding::error("EmptyEntry", 0, message, "delete the entry").at(item));
            }
            for word in items.iter().filter(|word| word.text().is_none() || is_null(word)) {
                let message = format!("entry {number} of {list} has an argument that is no text; {skip}");
                findings.push(Finding::error("ArgumentNotText", 0, message, "quote the argument").at(word));
            }
            let words: Vec<&str> = items.iter().filter_map(Node::text).collect();
            command(list, number, item, &words, findings);
        }
        Value::Scalar { text, .. } => {
            let words: Vec<&str> = text.split_whitespace().collect();
            command(list, number, item, &words, findings);
        }
        Value::Alias => {}
    }
}

const PACKAGE_MANAGERS: [&str; 7] = ["apt-get", "apt", "dnf", "yum", "zypper", "dpkg", "rpm"];
const LATE_UNITS: [&str; 3] = ["cloud-final", "cloud-init.target", "multi-user.target"];

fn command(list: &str, number: usize, item: &Node, words: &[&str], findings: &mut Vec<Finding>) {
    let mut words =
        words.iter().skip_while(|w| matches!(**w, "sudo" | "env") || w.contains('=')).copied().peekable();
    let program = words.peek().map(|w| w.rsplit('/').next().unwrap_or(w)).unwrap_or_default();
    let rest: Vec<&str> = words.skip(1).collect();
    // A4: the first boot's own package work holds the lock.
    if PACKAGE_MANAGERS.contains(&program) && rest.contains(&"install") {
        let message = format!(
            "entry {number} of {list} runs {program}: on a first boot the package lock is often held, and it fails without a trace"
        );
        findings.push(
            Finding::warn("PackageManagerInRuncmd", 0, message, "list the packages under packages:").at(item),
        );
    }
    // J1: a unit ordered after the stage that starts it waits for itself.
    let waits = program == "systemctl"
        && rest.iter().any(|w| matches!(*w, "start" | "restart"))
        && !rest.contains(&"--no-block");
    if waits && rest.iter().any(|w| LATE_UNITS.iter().any(|unit| w.starts_with(unit))) {
        let message =
            format!("entry {number} of {list} waits for a unit that waits for cloud-init: it hangs for ever");
        findings.push(Finding::error("WaitsForItself", 0, message, "add --no-block").at(item));
    }
    if program == "cloud-init" && rest.contains(&"--wait") {
        let message =
            format!("entry {number} of {list} waits for cloud-init inside cloud-init: it hangs for ever");
        findings.push(Finding::error("WaitsForItself", 0, message, "delete the entry").at(item));
    }
}
