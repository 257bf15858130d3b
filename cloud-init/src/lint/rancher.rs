//! What Rancher and Harvester make of userdata: the guest agent, the script that joins the node, names in pools
//! (`facts/guest-agent.md`, sections 1, 2 and 7; `facts/cloud-init.md`, section 4).

use super::commands::commands_of;
use super::shell;
use super::{Context, is_null};
use crate::Finding;
use crate::merge::is_rancher_script;
use crate::platform::Platform;
use crate::yaml::{Node, Value};

const AGENT: &str = "qemu-guest-agent";
/// Its unit: the second is openSUSE's before 15.3.
const AGENT_UNITS: [&str; 2] = [AGENT, "qemu-ga"];

pub(super) fn check(root: &Node, context: &Context, findings: &mut Vec<Finding>) {
    script_last(root, findings);
    let Some(platform) = context.platform.filter(|platform| platform.is_kubevirt()) else { return };
    guest_agent(root, findings);
    if platform == Platform::RancherMachine {
        for key in ["hostname", "fqdn"] {
            if let Some(node) = root.get(key).filter(|node| !is_null(node)) {
                let message =
                    format!("{key} is the same for every machine of the pool; the second one cannot join");
                let cure = format!("delete {key}: Rancher gives each machine its name");
                findings.push(Finding::error("SameNameForAll", 0, message, cure).at(node));
            }
        }
    }
}

/// B13: what stands behind Rancher's script runs when the node joins already.
fn script_last(root: &Node, findings: &mut Vec<Finding>) {
    let items = root.get("runcmd").and_then(Node::items).unwrap_or_default();
    let Some(at) = items.iter().position(is_rancher_script) else { return };
    if at + 1 < items.len() {
        let message = format!(
            "Rancher's script is entry {} of {} of runcmd: what stands behind it runs while the node joins already",
            at + 1,
            items.len()
        );
        let cure = "move it to the end of runcmd";
        findings.push(Finding::warn("RancherScriptNotLast", 0, message, cure).at(&items[at]));
    }
}

/// Whether an entry has the agent's name in it at all: only those are taken apart.
fn names_agent(item: &Node) -> bool {
    match &item.value {
        Value::Scalar { text, .. } => AGENT_UNITS.iter().any(|unit| text.contains(unit)),
        Value::Sequence { items, .. } => items.iter().any(names_agent),
        _ => false,
    }
}

/// A1, A2: without it the host sees no address, and Rancher makes the machine anew every ten minutes.
fn guest_agent(root: &Node, findings: &mut Vec<Finding>) {
    let named = |node: &Node| {
        node.text() == Some(AGENT)
            || node.items().is_some_and(|i| i.first().and_then(Node::text) == Some(AGENT))
    };
    let packages = root.get("packages").and_then(Node::items).unwrap_or_default();
    let package = packages.iter().find(|node| named(node));
    let commands: Vec<shell::Simple> = ["bootcmd", "runcmd"]
        .iter()
        .filter_map(|key| root.get(key)?.items())
        .flatten()
        .filter(|item| names_agent(item))
        .flat_map(commands_of)
        .collect();
    let mentions = |command: &shell::Simple| {
        command.words.iter().any(|word| AGENT_UNITS.iter().any(|unit| word.contains(unit)))
    };
    if package.is_none() && !commands.iter().any(mentions) {
        let message = "nothing installs or starts the QEMU guest agent; where the image has none, the host never sees \
                       the VM's address, and Rancher waits ten minutes for it and begins anew";
        let cure = "packages: [qemu-guest-agent], and start it in runcmd";
        findings.push(Finding::warn("GuestAgentMissing", 0, message, cure));
    } else if let Some(package) =
        package.filter(|_| !commands.iter().any(|c| mentions(c) && c.program() == "systemctl"))
    {
        let message =
            "the QEMU guest agent is installed and not started; some distributions leave that to you";
        let cure = "runcmd: [[systemctl, enable, --now, --no-block, qemu-guest-agent]]";
        findings.push(Finding::info("GuestAgentNotStarted", message, cure).at(package));
    }
}
