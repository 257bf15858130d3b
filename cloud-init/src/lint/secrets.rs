//! Secrets in userdata. Whoever may read the VM's spec, its Secret or the metadata service reads userdata, and the machine
//! keeps a copy in /var/lib/cloud. None of what is found is ever shown.

use super::{content, credentials};
use crate::Finding;
use crate::scalar::{Meaning, meaning};
use crate::yaml::{Node, Value};

/// What a text holds that opens something, told by its form.
pub(crate) fn kind_of(text: &str) -> Option<&'static str> {
    const MARKS: [(&str, &str); 9] = [
        ("PRIVATE KEY-----", "a private key"),
        ("client-key-data:", "a kubeconfig with its key"),
        ("aws_secret_access_key", "an AWS secret key"),
        ("Authorization: Bearer ", "a bearer token"),
        ("authorization: bearer ", "a bearer token"),
        ("CATTLE_TOKEN=", "a Rancher registration token"),
        ("K3S_TOKEN=", "a K3s cluster token"),
        ("RKE2_TOKEN=", "an RKE2 cluster token"),
        ("client_secret", "a client secret"),
    ];
    // Nothing that is looked for is shorter, and most texts are.
    if text.len() < SHORTEST_MARK {
        return None;
    }
    // What a shell is to put there is not there yet.
    let told = |mark: &str| text.split(mark).skip(1).any(|value| !value.starts_with('$'));
    if let Some((_, kind)) = MARKS.iter().find(|(mark, _)| told(mark)) {
        return Some(kind);
    }
    if text.len() < SHORTEST_TOKEN {
        return None;
    }
    if is_wireguard(text) {
        return Some("a WireGuard key");
    }
    text.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '=' | ',' | ';' | '(' | ')'))
        .find_map(token)
}

/// `PrivateKey = …` or `PresharedKey = …` of a tunnel's configuration.
fn is_wireguard(text: &str) -> bool {
    const KEYS: [&str; 2] = ["PrivateKey", "PresharedKey"];
    KEYS.iter().any(|key| text.contains(key))
        && text.lines().filter_map(|line| line.split_once('=')).any(|(key, value)| {
            KEYS.contains(&key.trim()) && !value.trim().is_empty() && !value.trim_start().starts_with('$')
        })
}

const SHORTEST_MARK: usize = "K3S_TOKEN=".len();
const SHORTEST_TOKEN: usize = 20;

fn token(word: &str) -> Option<&'static str> {
    if word.len() < SHORTEST_TOKEN {
        return None;
    }
    let hex = |text: &str, n: usize| text.len() >= n && text.bytes().take(n).all(|b| b.is_ascii_hexdigit());
    let rest = |prefix: &str| word.strip_prefix(prefix);
    if rest("K10").is_some_and(|rest| hex(rest, 64) && rest[64..].starts_with("::")) {
        return Some("a K3s or RKE2 cluster token");
    }
    if word.split_once(':').is_some_and(|(id, secret)| {
        (id.starts_with("token-") || id.starts_with("kubeconfig-")) && secret.len() >= 40
    }) {
        return Some("a Rancher API token");
    }
    if rest("AKIA")
        .or(rest("ASIA"))
        .is_some_and(|r| r.len() == 16 && r.bytes().all(|b| b.is_ascii_alphanumeric()))
    {
        return Some("an AWS access key");
    }
    if rest("eyJ").is_some() && word.matches('.').count() == 2 && word.len() > 100 {
        return Some("a signed token (JWT)");
    }
    let long = |prefix: &str| rest(prefix).is_some_and(|rest| rest.len() >= 20);
    ["ghp_", "gho_", "github_pat_", "glpat-", "hvs.", "xoxb-"]
        .iter()
        .any(|p| long(p))
        .then_some("an API token")
}

/// Our own token, which is meant to lie in userdata.
fn is_enrolment_token(text: &str) -> bool {
    text.contains("OR1") && text.split_whitespace().any(|word| word.starts_with("OR1") && word.contains("::"))
}

/// Whether the form of `text` tells a secret, so that nothing else needs to.
pub(super) fn told_by_form(text: &str) -> bool {
    is_enrolment_token(text) || kind_of(text).is_some()
}

pub(super) const WHERE: &str =
    "whoever may read the VM's spec, its Secret or the metadata reads it, and /var/lib/cloud keeps a copy";
pub(super) const CURE: &str =
    "fetch it on the machine with a token of short life, or leave it to what rolls it out";

pub(super) fn check(root: &Node, findings: &mut Vec<Finding>) {
    files(root, findings);
    passwords(root, findings);
    for (key, value) in root.pairs().unwrap_or_default() {
        let name = key.text().unwrap_or_default();
        if name != "write_files" {
            walk(name, value, findings);
        }
    }
}

fn walk(path: &str, node: &Node, findings: &mut Vec<Finding>) {
    match &node.value {
        Value::Scalar { text, .. } => {
            let enrolment = is_enrolment_token(text) && matches!(path, "runcmd" | "bootcmd");
            if enrolment {
                let message = format!(
                    "an enrolment token stands on a command line in {path}, where every process sees it"
                );
                let cure = "write it to a file of mode 0600 and name that";
                findings.push(Finding::warn("SecretOnCommandLine", 0, message, cure).at(node));
            } else if let Some(kind) = kind_of(text) {
                let message = format!("{path} holds {kind}: {WHERE}");
                findings.push(Finding::warn("SecretInUserdata", 0, message, CURE).at(node));
            }
        }
        Value::Sequence { items, .. } => items.iter().for_each(|item| walk(path, item, findings)),
        Value::Mapping { pairs, .. } => pairs.iter().for_each(|(_, value)| walk(path, value, findings)),
        Value::Alias(_) => {}
    }
}

/// A file is written 0644 unless it says otherwise (canonical/cloud-init: cc_write_files.py).
fn files(root: &Node, findings: &mut Vec<Finding>) {
    for (index, file) in root.get("write_files").and_then(Node::items).unwrap_or_default().iter().enumerate()
    {
        let Some(node) = file.get("content") else { continue };
        let Some(text) = content::of(file) else { continue };
        let path = file.get("path").and_then(Node::text).unwrap_or_default();
        let kind = if is_enrolment_token(&text) {
            Some("an enrolment token")
        } else {
            kind_of(&text).or_else(|| credentials::in_file(path, &text))
        };
        let Some(kind) = kind else { continue };
        let number = index + 1;
        if mode_of(file) & 0o077 != 0 {
            let message = format!(
                "entry {number} of write_files holds {kind} and gets mode {:04o}: others on the machine read it",
                mode_of(file)
            );
            findings.push(Finding::warn("SecretReadable", 0, message, "permissions: '0600'").at(file));
        }
        if kind != "an enrolment token" {
            let message = format!("entry {number} of write_files holds {kind}: {WHERE}");
            findings.push(Finding::warn("SecretInUserdata", 0, message, CURE).at(node));
        }
    }
}

/// The mode that a file of `write_files` gets.
fn mode_of(file: &Node) -> u32 {
    const DEFAULT: u32 = 0o644;
    let Some(Node { value: Value::Scalar { text, plain }, .. }) = file.get("permissions") else {
        return DEFAULT;
    };
    match (plain, meaning(text)) {
        (true, Meaning::Int(n)) => u32::try_from(n).unwrap_or(DEFAULT),
        _ => u32::from_str_radix(text.trim_start_matches("0o"), 8).unwrap_or(DEFAULT),
    }
}

fn passwords(root: &Node, findings: &mut Vec<Finding>) {
    let hash = |text: &str| {
        ["$1$", "$2a$", "$2b$", "$2y$", "$5$", "$6$", "$7$", "$y$"].iter().any(|p| text.starts_with(p))
    };
    let mut told = |path: &str, node: Option<&Node>| {
        let Some(node) = node else { return };
        let Some(text) =
            node.text().filter(|text| !text.is_empty() && !matches!(*text, "R" | "RANDOM" | "*" | "!"))
        else {
            return;
        };
        let finding = if hash(text) {
            let message =
                format!("{path} is a password's hash: {WHERE}, and a weak password is guessed from it");
            Finding::info("PasswordHash", message, "log in with SSH keys")
        } else {
            let message = format!("{path} is a password in clear: {WHERE}");
            Finding::warn(
                "SecretInUserdata",
                0,
                message,
                "ssh_authorized_keys, or hashed_passwd with what mkpasswd prints",
            )
        };
        findings.push(finding.at(node));
    };
    told("password", root.get("password"));
    let users = root.get("users").and_then(Node::items).unwrap_or_default();
    for user in users.iter().chain(root.get("user")) {
        for key in ["plain_text_passwd", "plain-text-passwd", "passwd", "hashed_passwd", "hashed-passwd"] {
            told(&format!("users[].{key}"), user.get(key));
        }
    }
    let chpasswd = root.get("chpasswd");
    for user in chpasswd.and_then(|c| c.get("users")).and_then(Node::items).unwrap_or_default() {
        told("chpasswd.users[].password", user.get("password"));
    }
    let Some(list) = chpasswd.and_then(|c| c.get("list")) else { return };
    let clear = |line: &str| {
        line.trim()
            .split_once(':')
            .is_some_and(|(_, word)| !word.is_empty() && !matches!(word, "R" | "RANDOM") && !hash(word))
    };
    let lines: Vec<&str> = match list.items() {
        Some(items) => items.iter().filter_map(Node::text).collect(),
        None => list.text().unwrap_or_default().lines().collect(),
    };
    if lines.iter().any(|line| clear(line)) {
        let message = format!("chpasswd.list holds a password in clear: {WHERE}");
        findings
            .push(Finding::warn("SecretInUserdata", 0, message, "ssh_authorized_keys, or hashes").at(list));
    }
}
