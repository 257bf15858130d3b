//! Secrets told by the name they stand under, or by what a command does with them; the rest is told by its form
//! ([`super::secrets`]).

use super::secrets::{self, CURE, WHERE};
use super::shell::{self, Simple};
use crate::Finding;
use crate::scalar::{Meaning, meaning};
use crate::yaml::{self, Node, Value};

/// Parts of names under which secrets stand, in small letters without `-` and `_`.
const NAMES: [&str; 15] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "privatekey",
    "presharedkey",
    "registrationkey",
    "activationkey",
    "apikey",
    "accesskey",
    "authkey",
    "certificatekey",
    "psk",
    "credential",
];
/// Ends of such names that name no secret, but where it lies or what it must be.
const HARMLESS_ENDS: [&str; 8] = ["file", "path", "ref", "hash", "checksum", "ttl", "name", "type"];

/// Whether the name of a key or an option says that its value opens something.
pub(crate) fn names_one(name: &str) -> bool {
    let name: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    NAMES.iter().any(|part| name.contains(part)) && !HARMLESS_ENDS.iter().any(|end| name.ends_with(end))
}

/// Whether a command or a text may hold a secret; asked before it is shown, and rather yes than no.
pub(crate) fn may_be_in(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let words = ["pass", "pwd", "secret", "token", "key", "cred", "auth", "login", "private", "bearer"];
    let short = |word: &str| {
        let option = ["-p", "-u", "-w", "-a", "-k", "-P"].iter().any(|option| word.starts_with(option));
        option && (word != "-p" || !lower.contains("mkdir"))
    };
    // Letters and digits mixed, as in what a generator makes.
    let random = |word: &str| {
        word.len() >= 12
            && word.bytes().any(|b| b.is_ascii_digit())
            && word.bytes().any(|b| b.is_ascii_alphabetic())
            && !word.contains(['/', '.'])
    };
    secrets::kind_of(text).is_some()
        || words.iter().any(|word| lower.contains(word))
        || text.split_whitespace().any(|word| short(word) || random(word) || in_url(word))
}

/// Keys of the configuration whose names say it; files, users and passwords have rules of their own.
pub(super) fn check(root: &Node, findings: &mut Vec<Finding>) {
    const ELSEWHERE: [&str; 9] = [
        "write_files",
        "users",
        "user",
        "chpasswd",
        "password",
        "runcmd",
        "bootcmd",
        "ssh_keys",
        "ssh_authorized_keys",
    ];
    for (key, value) in root.pairs().unwrap_or_default() {
        let name = key.text().unwrap_or_default();
        if !ELSEWHERE.contains(&name) {
            walk(name, names_one(name), value, findings);
        }
    }
}

/// `secret` says whether the key that it stands under names one.
fn walk(path: &str, secret: bool, node: &Node, findings: &mut Vec<Finding>) {
    match &node.value {
        Value::Scalar { text, .. } if secret && secrets::kind_of(text).is_none() && opens(node) => {
            let message = format!("{path} holds a secret: {WHERE}");
            findings.push(Finding::warn("SecretInUserdata", 0, message, CURE).at(node));
        }
        Value::Sequence { items, .. } => items.iter().for_each(|item| walk(path, secret, item, findings)),
        Value::Mapping { pairs, .. } => {
            for (key, value) in pairs {
                let name = key.text().unwrap_or_default();
                let secret = names_one(name);
                if secret || !matches!(value.value, Value::Scalar { .. }) {
                    walk(&format!("{path}.{name}"), secret, value, findings);
                }
            }
        }
        Value::Scalar { .. } | Value::Alias(_) => {}
    }
}

/// Whether a value under such a name can open anything: no truth, nothing, and nothing that a shell is to put there.
fn opens(node: &Node) -> bool {
    let Value::Scalar { text, plain } = &node.value else { return false };
    let truth = *plain && matches!(meaning(text), Meaning::Bool(_) | Meaning::Null);
    !truth && is_value(text)
}

fn is_value(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(['$', '-', '/', '{', '<'])
}

/// The kind of secret in a file that goes to `path`, told by what reads it there.
pub(super) fn in_file(path: &str, text: &str) -> Option<&'static str> {
    if path.starts_with("/etc/rancher/") {
        return in_rancher_config(text).then_some("a K3s or RKE2 cluster token");
    }
    text.starts_with("#!").then(|| on_command_line(&shell::of_text(text))).flatten()
}

/// `token:`, `agent-token:` and their like, in whatever form YAML gives them.
fn in_rancher_config(text: &str) -> bool {
    fn named(node: &Node) -> bool {
        node.pairs().is_some_and(|pairs| {
            pairs
                .iter()
                .any(|(key, value)| (key.text().is_some_and(names_one) && opens(value)) || named(value))
        })
    }
    match yaml::parse(text) {
        Ok(root) => root.as_ref().is_some_and(named),
        Err(_) => text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .any(|(key, value)| names_one(key.trim()) && is_value(value.trim())),
    }
}

/// The kind of secret that commands are given where every process sees it.
pub(super) fn on_command_line(commands: &[Simple]) -> Option<&'static str> {
    let piped = |at: usize| at.checked_sub(1).and_then(|before| commands.get(before));
    commands.iter().enumerate().find_map(|(at, command)| match command.program() {
        "chpasswd" | "passwd" => piped(at)
            .is_some_and(|c| matches!(c.program(), "echo" | "printf") && says_password(c))
            .then_some("a password"),
        "curl" | "wget" if with_user(command) => Some("a password"),
        "mysql" | "mysqladmin" | "mysqldump" | "mariadb" | "mariadb-admin" | "sshpass"
            if command.rest().iter().any(|w| w.len() > 2 && w.starts_with("-p") && is_value(&w[2..])) =>
        {
            Some("a password")
        }
        "pro" | "ua" if command.has("attach") => command
            .operands()
            .any(|word| word != "attach" && word.len() > 8 && is_value(word))
            .then_some("a token"),
        _ => option(command),
    })
}

fn says_password(echo: &Simple) -> bool {
    echo.operands().any(|word| match word.split_once(':') {
        Some((_, password)) => is_value(password),
        None => is_value(word),
    })
}

/// `-u name:password`, in one word or two.
fn with_user(command: &Simple) -> bool {
    let rest = command.rest();
    rest.iter().enumerate().any(|(at, word)| {
        let value = match word.as_str() {
            "-u" | "--user" | "--proxy-user" | "-U" => rest.get(at + 1).map(String::as_str),
            word => word.strip_prefix("--user=").or_else(|| word.strip_prefix("-u")),
        };
        value.and_then(|value| value.split_once(':')).is_some_and(|(_, password)| is_value(password))
    })
}

/// An option, an assignment or a URL that holds one.
fn option(command: &Simple) -> Option<&'static str> {
    let rest = command.rest();
    rest.iter().enumerate().find_map(|(at, word)| {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None if word.starts_with("--") => (word.as_str(), rest.get(at + 1).map(String::as_str)),
            None => (word.as_str(), None),
        };
        let option = name.starts_with("--") || command.program() == "export";
        if option && names_one(name) && value.is_some_and(is_value) {
            return Some("a secret");
        }
        in_url(word).then_some("a password")
    })
}

/// `scheme://name:password@host`.
fn in_url(word: &str) -> bool {
    let Some((_, rest)) = word.split_once("://") else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    host.rsplit_once('@')
        .and_then(|(user, _)| user.split_once(':'))
        .is_some_and(|(_, password)| is_value(password))
}
