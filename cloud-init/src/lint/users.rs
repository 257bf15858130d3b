//! `users` and SSH keys: who can log in afterwards.

use crate::Finding;
use crate::yaml::Node;

pub(super) fn check(root: &Node, findings: &mut Vec<Finding>) {
    default_user(root, findings);
    for (path, list) in
        ["ssh_authorized_keys", "ssh-authorized-keys"].iter().filter_map(|key| Some((key, root.get(key)?)))
    {
        keys(path, list, findings);
    }
    for user in root.get("users").and_then(Node::items).unwrap_or_default() {
        for key in ["ssh_authorized_keys", "ssh-authorized-keys"] {
            if let Some(list) = user.get(key) {
                keys(&format!("users[].{key}"), list, findings);
            }
        }
    }
}

/// B26: `users` without `default` locked people out with cloud-init 25.
fn default_user(root: &Node, findings: &mut Vec<Finding>) {
    let Some(users) = root.get("users").and_then(Node::items) else { return };
    let default = |user: &Node| {
        user.text() == Some("default") || user.get("name").and_then(Node::text) == Some("default")
    };
    if !users.is_empty() && !users.iter().any(default) {
        let message =
            "users has no entry default: the image's own user is not set up (seen as a lock-out with 25.x)";
        let finding = Finding::warn("NoDefaultUser", 0, message, "add - default as the first entry");
        findings.push(finding.at(&users[0]));
    }
    for user in users {
        let shape = user.text().is_none() && user.pairs().is_some();
        if shape && user.get("name").is_none() && user.get("snapuser").is_none() {
            let message = "a user without a name is passed over";
            findings.push(Finding::error("UserWithoutName", 0, message, "name: …").at(user));
        }
    }
}

const ALGORITHMS: [&str; 12] = [
    "ssh-rsa",
    "ssh-dss",
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa-cert-v01@openssh.com",
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "cert-authority",
];
/// A key of which nothing is missing is at least this long, in characters of base64.
const SHORTEST_KEY: usize = 68;

/// A line that sshd passes over lets nobody in, and says so nowhere.
fn keys(path: &str, list: &Node, findings: &mut Vec<Finding>) {
    for key in list.items().unwrap_or_default() {
        let Some(text) = key.text() else { continue };
        if text.trim().is_empty() || text.trim_start().starts_with('#') || text.contains("PRIVATE KEY") {
            continue;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let Some(at) = words.iter().position(|w| ALGORITHMS.contains(w)) else {
            let message =
                format!("an entry of {path} names no kind of key that sshd knows; it lets nobody in");
            findings.push(Finding::warn("SshKeyBroken", 0, message, "ssh-ed25519 AAAA… comment").at(key));
            continue;
        };
        let body = words.get(at + 1).copied().unwrap_or_default();
        let base64 = body.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
        if body.starts_with("AAAA") && base64 && body.len() >= SHORTEST_KEY {
            continue;
        }
        if words[at] == "cert-authority" {
            continue;
        }
        let message = format!("an entry of {path} is cut or broken behind {}; it lets nobody in", words[at]);
        findings.push(
            Finding::warn("SshKeyBroken", 0, message, "paste the whole public key, on one line").at(key),
        );
    }
}
