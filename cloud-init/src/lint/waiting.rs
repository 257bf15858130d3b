//! Commands that wait for the end of cloud-init, and so for themselves: in `runcmd`, and in the scripts that it runs.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::commands::{World, never_starts, started};
use super::content;
use super::shell::{self, Simple};
use super::units::full_name;
use crate::yaml::Node;

pub(super) const LOOP: &str = "loops until cloud-init has ended, inside cloud-init: that never comes true";
pub(super) const CURE: &str = "delete it, or do it in a service that is started with --no-block";
const WAITS: &str = "waits for cloud-init inside cloud-init: it hangs for ever";

/// Files that `write_files` writes, by path.
pub(super) type Scripts<'a> = BTreeMap<&'a str, Cow<'a, str>>;

/// How deep a script is followed into another one.
const MAX_DEPTH: usize = 3;

pub(super) fn scripts(root: &Node) -> Scripts<'_> {
    let files = root.get("write_files").and_then(Node::items).unwrap_or_default();
    files.iter().filter_map(|file| Some((file.get("path")?.text()?, content::of(file)?))).collect()
}

/// Why the command waits for cloud-init's end.
pub(super) fn for_cloud_init(command: &Simple) -> Option<&'static str> {
    match command.program() {
        "cloud-init" if (command.has("--wait") || command.has("-w")) && command.has("status") => Some(WAITS),
        "systemctl" if command.has("is-system-running") && command.has("--wait") => {
            Some("waits until the system is up, which waits for cloud-init: it hangs for ever")
        }
        _ => None,
    }
}

/// What is there only when cloud-init's last stage has ended (canonical/cloud-init: cc_final_message.py, cmd/main.py).
const END_MARKS: [&str; 3] = [
    "/var/lib/cloud/instance/boot-finished",
    "/run/cloud-init/result.json",
    "/var/lib/cloud/data/result.json",
];

/// Whether one of the loops ends only with cloud-init, and has no bound of its own.
pub(super) fn for_the_end(commands: &[Simple]) -> bool {
    let bounded = commands.iter().any(|c| {
        matches!(c.program(), "break" | "timeout" | "exit" | "return")
            || (is_test(c) && ["-lt", "-le", "-gt", "-ge"].iter().any(|operator| c.has(operator)))
    });
    let endless = commands.iter().enumerate().any(|(at, command)| {
        command.loops && !command.background && until_the_end(command, commands.get(at + 1))
    });
    endless && !bounded
}

fn is_test(command: &Simple) -> bool {
    matches!(command.program(), "test" | "[" | "[[")
}

fn until_the_end(condition: &Simple, next: Option<&Simple>) -> bool {
    // `until` ends with success, `while` with failure, and `!` turns both round.
    let turned = condition.negated ^ (is_test(condition) && (condition.has("!") || condition.has("!=")));
    let waits_for_true = condition.until != turned;
    let mark = condition.words.iter().any(|word| END_MARKS.contains(&word.as_str()));
    if (is_test(condition) || matches!(condition.program(), "ls" | "stat")) && mark {
        return waits_for_true;
    }
    if condition.program() == "systemctl" && condition.has("is-system-running") {
        return waits_for_true;
    }
    let asks = |word: &str| word.contains("cloud-init status");
    if is_test(condition) && condition.words.iter().any(|word| asks(word)) {
        return condition.words.iter().any(|word| word.contains("done")) == waits_for_true;
    }
    let Some(grep) = next.filter(|next| next.program().ends_with("grep")) else { return false };
    let status = condition.program() == "cloud-init" && condition.has("status");
    let inverted = grep.rest().iter().any(|w| w.starts_with('-') && !w.starts_with("--") && w.contains('v'));
    let seeks = |what: &str| grep.operands().any(|word| word.contains(what));
    let sought = waits_for_true ^ inverted;
    status && ((seeks("done") && sought) || ((seeks("running") || seeks("not ")) && !sought))
}

/// What scripts do that wait, by path and by how deep they are followed: each is read once, however often it is run.
pub(super) type Followed<'a> = BTreeMap<(&'a str, usize), Vec<(&'a str, String)>>;

/// Scripts that the commands run and that wait, each with what it does.
pub(super) fn in_scripts<'a>(
    commands: &[Simple],
    world: &World<'a>,
    followed: &mut Followed<'a>,
) -> Vec<(&'a str, String)> {
    let mut found = Vec::new();
    follow(commands, world, MAX_DEPTH, followed, &mut found);
    found.dedup();
    found
}

fn follow<'a>(
    commands: &[Simple],
    world: &World<'a>,
    depth: usize,
    followed: &mut Followed<'a>,
    found: &mut Vec<(&'a str, String)>,
) {
    for command in commands.iter().filter(|command| !command.background && depth > 0) {
        let Some((path, text)) = run_by(command, world.scripts) else { continue };
        if let Some(known) = followed.get(&(path, depth)) {
            found.extend(known.iter().filter(|waits| !found.contains(waits)).cloned().collect::<Vec<_>>());
            continue;
        }
        let mut inner = Vec::new();
        script(path, text, world, depth, followed, &mut inner);
        found.extend(inner.iter().filter(|waits| !found.contains(waits)).cloned().collect::<Vec<_>>());
        followed.insert((path, depth), inner);
    }
}

fn script<'a>(
    path: &'a str,
    text: &str,
    world: &World<'a>,
    depth: usize,
    followed: &mut Followed<'a>,
    found: &mut Vec<(&'a str, String)>,
) {
    // Most scripts say none of the words.
    if !["cloud", "systemctl", "service", "/"].iter().any(|word| text.contains(word)) {
        return;
    }
    let inner = shell::of_text(text);
    let first = inner.iter().filter(|command| !command.background).find_map(|command| {
        let start = started(command).into_iter().find_map(|unit| never_starts(&full_name(unit), world.units));
        for_cloud_init(command).map(str::to_owned).or(start)
    });
    match first.or_else(|| for_the_end(&inner).then(|| LOOP.to_owned())) {
        Some(what) => found.push((path, what)),
        None => follow(&inner, world, depth - 1, followed, found),
    }
}

/// The file of ours that the command runs.
fn run_by<'a, 'b>(command: &Simple, scripts: &'b Scripts<'a>) -> Option<(&'a str, &'b str)> {
    let shells = ["sh", "bash", "dash", "ash", "ksh", "zsh", ".", "source"];
    let words = if shells.contains(&command.program()) { command.rest() } else { command.words.get(..1)? };
    let word = words.iter().find(|word| !word.starts_with('-'))?;
    scripts.get_key_value(word.as_str()).map(|(path, text)| (*path, text.as_ref()))
}
