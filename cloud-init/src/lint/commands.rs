//! `runcmd` and `bootcmd`: one bad entry makes cloud-init skip the whole list, and one that waits holds up the boot.

use super::shell::{self, Simple};
use super::units::{self, Units, comes_after_runcmd, full_name};
use super::waiting::{self, Followed, Scripts};
use super::{Context, credentials, is_null, misread, quoted_cure, secrets};
use crate::version::{Version, Versions};
use crate::yaml::{Node, Value};
use crate::{Finding, Severity};

/// Where an entry stands.
struct Entry<'a> {
    list: &'a str,
    number: usize,
    item: &'a Node,
}

impl Entry<'_> {
    fn error(&self, code: &'static str, what: &str, cure: impl Into<String>) -> Finding {
        let message = format!("entry {} of {} {what}", self.number, self.list);
        Finding::error(code, 0, message, cure).at(self.item)
    }

    fn warn(&self, code: &'static str, what: &str, cure: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warn, ..self.error(code, what, cure) }
    }
}

/// What a command is judged by.
pub(super) struct World<'a> {
    pub(super) units: &'a Units,
    pub(super) scripts: &'a Scripts<'a>,
}

pub(super) fn check(root: &Node, world: &World<'_>, context: &Context, findings: &mut Vec<Finding>) {
    let mut followed = Followed::new();
    for list in ["bootcmd", "runcmd"] {
        let Some(node) = root.get(list) else { continue };
        match &node.value {
            Value::Sequence { items, .. } => {
                for (index, item) in items.iter().enumerate() {
                    let entry = Entry { list, number: index + 1, item };
                    shape(&entry, context, findings);
                    judge(&entry, &commands_of(item), world, &mut followed, findings);
                }
            }
            _ if is_null(node) => {
                let message = format!(
                    "{list} is empty, and no list: cloud-init's module fails on it, and it ends degraded"
                );
                findings.push(Finding::warn("NotAList", 0, message, format!("delete {list}:")).at(node));
            }
            _ => {
                let message = format!("{list} is no list; cloud-init skips it");
                findings
                    .push(Finding::error("NotAList", 0, message, format!("{list}:\n  - command")).at(node));
            }
        }
    }
}

/// The commands of an entry as a shell would run them.
pub(super) fn commands_of(item: &Node) -> Vec<Simple> {
    match &item.value {
        Value::Scalar { text, .. } => shell::of_text(text),
        Value::Sequence { items, .. } => {
            shell::of_words(&items.iter().filter_map(Node::text).collect::<Vec<_>>())
        }
        _ => Vec::new(),
    }
}

fn judge<'a>(
    entry: &Entry<'_>,
    commands: &[Simple],
    world: &World<'a>,
    followed: &mut Followed<'a>,
    findings: &mut Vec<Finding>,
) {
    for command in commands.iter().filter(|command| !command.background) {
        waits(entry, command, world.units, findings);
        harms(entry, command, findings);
    }
    if waiting::for_the_end(commands) {
        findings.push(entry.error("WaitsForItself", waiting::LOOP, waiting::CURE));
    } else {
        loops(entry, commands, findings);
    }
    for (path, waits) in waiting::in_scripts(commands, world, followed) {
        let what = format!("runs {path}, which {waits}");
        findings.push(entry.error("WaitsForItself", &what, waiting::CURE));
    }
    let texts: &[Node] = entry.item.items().unwrap_or(std::slice::from_ref(entry.item));
    let told = texts.iter().filter_map(Node::text).any(secrets::told_by_form);
    if let Some(kind) = credentials::on_command_line(commands).filter(|_| !told) {
        let what = format!("gives {kind} on a command line, where every process sees it; {}", secrets::WHERE);
        findings.push(entry.warn("SecretInUserdata", &what, secrets::CURE));
    }
}

/// First release that passes over an empty item (canonical/cloud-init#3498).
const PASSES_OVER_EMPTY: Version = Version::new(21, 4, 0);

/// Whether the entry is a command at all.
fn shape(entry: &Entry<'_>, context: &Context, findings: &mut Vec<Finding>) {
    let skip = format!("cloud-init skips the whole {} for it", entry.list);
    match &entry.item.value {
        // B10
        _ if is_null(entry.item) => {
            let finding = match context.version {
                Some(version) if version >= PASSES_OVER_EMPTY => {
                    entry.warn("EmptyEntry", "is empty; nothing is run for it", "delete the entry")
                }
                _ => entry
                    .error(
                        "EmptyEntry",
                        &format!("is empty; before 21.4 {skip}, and since then it passes over it"),
                        "delete the entry",
                    )
                    .of(Versions::Before(PASSES_OVER_EMPTY)),
            };
            findings.push(finding);
        }
        // B9
        Value::Mapping { pairs, .. } => {
            let what = format!("is a mapping, not a command: a colon and a blank stand unquoted; {skip}");
            let cure = match pairs.as_slice() {
                [(key, value)] => {
                    let said = if is_null(value) { "" } else { value.text().unwrap_or("…") };
                    let text = format!("{}: {said}", key.text().unwrap_or("…"));
                    quoted_cure("quote it: - ", text.trim_end())
                }
                _ => "quote the entry".to_owned(),
            };
            findings.push(entry.error("EntryIsMapping", &what, cure));
        }
        Value::Sequence { items, .. } => {
            if items.is_empty() {
                findings.push(entry.error("EmptyEntry", "is an empty list: no command", "delete the entry"));
            }
            let words: Vec<&str> = items.iter().filter_map(Node::text).collect();
            let secret = credentials::may_be_in(&words.join(" "));
            for word in items {
                arguments(entry, word, secret, findings);
            }
        }
        Value::Scalar { text, .. } => {
            if misread(entry.item).is_some() || super::is_not_text(entry.item) {
                let what = format!("is {text}, which is no text to YAML 1.1; {skip}");
                findings.push(entry.error("EntryNotText", &what, quoted_cure("quote it: - ", text)));
            }
        }
        Value::Alias(_) => {}
    }
}

/// What an argument of a list becomes: cloud-init prints each with Python's `str`.
fn arguments(entry: &Entry<'_>, word: &Node, secret: bool, findings: &mut Vec<Finding>) {
    let finding = match word.text() {
        _ if is_null(word) => {
            entry.error("ArgumentNotText", "has an empty argument; it becomes the word None", "write ''")
        }
        None => entry.error(
            "ArgumentNotText",
            "has an argument that is no text; it becomes what Python prints of it",
            "quote the argument",
        ),
        Some(text) => match misread(word) {
            None => return,
            Some(_) if secret => {
                let what = "has an argument without quotes that YAML 1.1 reads as something else";
                entry.error("ArgumentMisread", what, "quote the argument")
            }
            Some(read) => entry.error(
                "ArgumentMisread",
                &format!("has the argument {text} without quotes, which becomes {read}"),
                quoted_cure("", text),
            ),
        },
    };
    findings.push(finding.at(word));
}

const PACKAGE_MANAGERS: [&str; 8] = ["apt-get", "apt", "dnf", "yum", "zypper", "dpkg", "rpm", "microdnf"];
const INSTALLS: [&str; 9] =
    ["install", "in", "upgrade", "update", "dist-upgrade", "-i", "-U", "-Uvh", "-ivh"];
const STARTS: [&str; 7] =
    ["start", "restart", "try-restart", "reload-or-restart", "condrestart", "force-reload", "isolate"];
/// Units whose start is only over when a server has joined its cluster, which may take minutes or never come.
const SLOW: [&str; 5] = ["rke2-server", "rke2-agent", "k3s", "k3s-agent", "rancher-system-agent"];
/// A pause longer than this is worth a word, in seconds.
const LONG_PAUSE: f64 = 30.0;

/// What makes cloud-init's stage wait, for a while or for ever.
fn waits(entry: &Entry<'_>, command: &Simple, units: &Units, findings: &mut Vec<Finding>) {
    if let Some(what) = waiting::for_cloud_init(command) {
        findings.push(entry.error("WaitsForItself", what, waiting::CURE));
    }
    let program = command.program();
    if program == "sleep" {
        let seconds: f64 = command.operands().map(seconds).sum();
        if seconds > LONG_PAUSE {
            findings.push(entry.warn(
                "HoldsUpBoot",
                &format!("sleeps for {seconds} s; what comes behind it waits, Rancher's script too"),
                "wait in a service of your own, or in the background",
            ));
        }
    }
    for unit in started(command) {
        start(entry, unit, units, findings);
    }
}

/// Seconds that an argument of `sleep` means.
fn seconds(word: &str) -> f64 {
    let digits = word.trim_end_matches(['s', 'm', 'h', 'd']);
    let factor = match word.as_bytes().last() {
        Some(b'm') => 60.0,
        Some(b'h') => 3600.0,
        Some(b'd') => 86_400.0,
        _ if word == "infinity" => return f64::INFINITY,
        _ => 1.0,
    };
    digits.parse::<f64>().map_or(0.0, |n| n * factor)
}

/// Units that the command starts and waits for.
pub(super) fn started(command: &Simple) -> Vec<&str> {
    let operands: Vec<&str> = command.operands().collect();
    match (command.program(), operands.as_slice()) {
        ("systemctl", [verb, units @ ..]) => {
            let starts =
                STARTS.contains(verb) || (matches!(*verb, "enable" | "reenable") && command.has("--now"));
            if starts && !command.has("--no-block") { units.to_vec() } else { Vec::new() }
        }
        ("service", [unit, verb, ..]) if STARTS.contains(verb) => vec![unit],
        _ => Vec::new(),
    }
}

/// J1: a unit ordered after the stage that starts it waits for itself.
fn start(entry: &Entry<'_>, unit: &str, units: &Units, findings: &mut Vec<Finding>) {
    let name = full_name(unit);
    let cure = "add --no-block";
    if entry.list == "bootcmd" {
        findings.push(entry.warn(
            "BootcmdStartsUnit",
            &format!("starts {name} before the system is up: most units wait for what waits for cloud-init"),
            "start it in runcmd, with --no-block",
        ));
        return;
    }
    if let Some(what) = never_starts(&name, units) {
        let cure = "add --no-block, or delete what orders the unit so late";
        findings.push(entry.error("WaitsForItself", &what, cure));
    } else if SLOW.contains(&name.trim_end_matches(".service")) {
        let what = format!("starts {name} and waits until it has joined; what comes behind it waits too");
        findings.push(entry.warn("HoldsUpBoot", &what, cure));
    }
}

/// Why a start of `name` that is waited for never ends.
pub(super) fn never_starts(name: &str, units: &Units) -> Option<String> {
    if comes_after_runcmd(name) || name.starts_with("cloud-final") {
        return Some(format!(
            "starts {name}, which waits for cloud-init, and waits for it: it hangs for ever"
        ));
    }
    let why = units::find(units, name)?.never_starts()?;
    Some(format!("starts {name} and waits for it; {why}, and that waits for cloud-init: both hang for ever"))
}

/// A loop that ends only when something outside becomes true.
fn loops(entry: &Entry<'_>, commands: &[Simple], findings: &mut Vec<Finding>) {
    let reads = |c: &Simple| {
        matches!(c.program(), "read" | "test" | "[" | "[[") && (c.program() == "read" || counts(c))
    };
    let counts_down = commands.iter().any(|c| matches!(c.program(), "break" | "timeout" | "exit" | "return"));
    let endless = commands.iter().any(|c| c.loops && !c.background && !reads(c) && c.program() != "timeout");
    if endless && !counts_down && commands.iter().any(|c| matches!(c.program(), "sleep" | "true" | ":")) {
        findings.push(entry.warn(
            "HoldsUpBoot",
            "loops until something comes true, with no end of its own; what comes behind it waits, Rancher's script too",
            "give it a bound, or do it in a service of your own",
        ));
    }
}

/// A comparison of numbers, as bounded loops have.
fn counts(command: &Simple) -> bool {
    ["-lt", "-le", "-gt", "-ge", "-ne", "-eq"].iter().any(|operator| command.has(operator))
}

/// What works against the rest of the boot.
fn harms(entry: &Entry<'_>, command: &Simple, findings: &mut Vec<Finding>) {
    let program = command.program();
    // A4: the first boot's own package work holds the lock.
    if PACKAGE_MANAGERS.contains(&program) && INSTALLS.iter().any(|verb| command.has(verb)) {
        let what = format!(
            "runs {program}: on a first boot the package lock is often held, and it fails without a trace"
        );
        findings.push(entry.warn("PackageManagerInRuncmd", &what, "list the packages under packages:"));
    }
    let reboots = matches!(program, "reboot" | "shutdown" | "poweroff" | "halt")
        || (program == "systemctl" && ["reboot", "poweroff", "halt"].iter().any(|verb| command.has(verb)))
        || (program == "init" && (command.has("6") || command.has("0")));
    if reboots {
        findings.push(entry.warn(
            "RebootInRuncmd",
            "ends the boot while cloud-init runs: what stands behind it may never run",
            "power_state: {mode: reboot}, which waits for cloud-init's end",
        ));
    }
    let forgets = (program == "rm" && command.operands().any(|path| path.starts_with("/var/lib/cloud")))
        || (program == "cloud-init" && command.has("clean"));
    if forgets {
        findings.push(entry.warn(
            "RunsAtEveryBoot",
            "makes cloud-init forget that it ran: all of this runs again at the next boot",
            "delete the entry; do it by hand when it is wanted",
        ));
    }
}
