//! What cloud-init would ignore, drop or misread, with its place and the cure.
//!
//! One rule a function, each a fault that people met: the number in its comment is that of `facts/cloud-init.md`,
//! section 11. Nothing is executed and nothing is rewritten.

mod commands;
mod files;

use crate::header::{self, Kind};
use crate::scalar::{Meaning, meaning};
use crate::yaml::{self, Node, Value};
use crate::{Finding, Severity};

/// Findings by place; empty when all of the document would be read as it was meant.
pub fn lint(userdata: &[u8]) -> Vec<Finding> {
    let (kind, mut findings) = header::recognise(userdata);
    if kind == Kind::CloudConfig {
        match std::str::from_utf8(userdata) {
            Ok(text) => cloud_config(text, &mut findings),
            Err(e) => {
                let line = 1 + userdata[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count();
                let message = "bytes that are not UTF-8; cloud-init cannot decode the document";
                findings.push(Finding::error("NotUtf8", line, message, "save the file as UTF-8"));
            }
        }
    }
    findings.sort_by_key(|f| (f.line, f.column));
    findings
}

fn cloud_config(text: &str, findings: &mut Vec<Finding>) {
    if let Some(at) = text.find('\0') {
        let line = 1 + text[..at].matches('\n').count();
        let message = "a NUL byte; no YAML reader takes it, so nothing in the file is applied";
        return findings.push(Finding::error("NulByte", line, message, "delete it, or encode the content"));
    }
    let root = match yaml::parse(text) {
        Ok(root) => root,
        Err(error) => return findings.push(unparsable(text, &error)),
    };
    let Some(root) = root.filter(|root| !is_null(root)) else { return };
    let Some(pairs) = root.pairs() else {
        let message = "the document is no mapping of keys; all of it is ignored";
        return findings
            .push(Finding::error("NotAMapping", root.line, message, "key: value lines").at(&root));
    };
    duplicates(&root, findings);
    top_level(pairs, findings);
    commands::check(&root, findings);
    files::check(&root, findings);
    users(&root, findings);
}

/// B9: nothing of a file that does not parse is applied. Two colons in one entry are the usual cause.
fn unparsable(text: &str, error: &yaml::Error) -> Finding {
    let line = text.lines().nth(error.line.saturating_sub(1)).unwrap_or_default();
    let entry =
        line.trim_start().strip_prefix("- ").map(str::trim_end).filter(|e| e.matches(": ").count() > 1);
    let cure = match entry {
        Some(entry) => format!("quote the entry: - {}", single_quoted(entry)),
        None => "correct the line; quote text that holds a colon and a blank".to_owned(),
    };
    let message = format!("the file does not parse ({}); nothing in it would be applied", error.message);
    Finding { column: error.column, ..Finding::error("NotYaml", error.line, message, cure) }
}

/// `text` in single quotes, as YAML writes them.
pub(crate) fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Nothing there, or a plain null.
pub(crate) fn is_null(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar { text, plain: true } if meaning(text) == Meaning::Null)
}

/// B11: PyYAML keeps the last of two equal keys and says nothing.
fn duplicates(node: &Node, findings: &mut Vec<Finding>) {
    match &node.value {
        Value::Mapping { pairs, .. } => {
            let mut seen = std::collections::BTreeMap::new();
            for (key, value) in pairs {
                if let Some(name) = key.text().filter(|name| *name != "<<")
                    && let Some(first) = seen.insert(name.to_owned(), key.line)
                {
                    let message = format!(
                        "{name:?} stands on line {first} and on line {}; the last one wins, the first is lost without a word",
                        key.line
                    );
                    findings
                        .push(Finding::error("DuplicateKey", key.line, message, "make one of both").at(key));
                }
                duplicates(value, findings);
            }
        }
        Value::Sequence { items, .. } => items.iter().for_each(|item| duplicates(item, findings)),
        Value::Scalar { .. } | Value::Alias => {}
    }
}

/// Wrappers that other tools know and cloud-init does not look into (B23, B27).
const WRAPPERS: [&str; 5] = ["user-data", "userdata", "userData", "user_data", "cloud-config"];

fn top_level(pairs: &[(Node, Node)], findings: &mut Vec<Finding>) {
    for (key, value) in pairs {
        let Some(name) = key.text() else { continue };
        if WRAPPERS.contains(&name) {
            let message =
                format!("{name:?} is no key of cloud-config; everything nested under it is ignored");
            findings.push(
                Finding::error("UnknownTopLevelKey", 0, message, "move the keys to the top level").at(key),
            );
        } else if name == "autoinstall" && value.get("runcmd").is_some() {
            let message = "runcmd under autoinstall is not found at run time";
            findings.push(
                Finding::error(
                    "NestedRuncmd",
                    0,
                    message,
                    "move runcmd to the top level, or use late-commands",
                )
                .at(key),
            );
        } else if name == "network" {
            let message = "network settings in user-data are ignored by design (B16)";
            findings.push(
                Finding::error("NetworkInUserData", 0, message, "put them into the network data").at(key),
            );
        } else if !known(name) {
            let near = nearest(name);
            let message = format!("{name:?} is no key that cloud-init knows; it is ignored");
            let cure = near.map_or_else(|| "delete it, or correct its name".to_owned(), |n| format!("{n}:"));
            findings.push(Finding::warn("UnknownTopLevelKey", 0, message, cure).at(key));
        }
    }
}

/// Top-level keys of cloud-config, from the schemas of cloud-init 22.4 and 25 (cloudinit/config/schemas/).
const KEYS: &[&str] = &[
    "allow_public_ssh_keys",
    "ansible",
    "apk_repos",
    "apt",
    "apt_pipelining",
    "apt_reboot_if_required",
    "apt_update",
    "apt_upgrade",
    "authkey_hash",
    "autoinstall",
    "bootcmd",
    "byobu_by_default",
    "ca-certs",
    "ca_certs",
    "chef",
    "chpasswd",
    "cloud_config_modules",
    "cloud_final_modules",
    "cloud_init_modules",
    "create_hostname_file",
    "datasource",
    "datasource_list",
    "def_log_file",
    "device_aliases",
    "disable_ec2_metadata",
    "disable_root",
    "disable_root_opts",
    "disk_setup",
    "drivers",
    "fan",
    "final_message",
    "fqdn",
    "fs_setup",
    "groups",
    "growpart",
    "grub-dpkg",
    "grub_dpkg",
    "hostname",
    "keyboard",
    "landscape",
    "launch-index",
    "locale",
    "locale_configfile",
    "log_cfgs",
    "lxd",
    "manage_etc_hosts",
    "manage_resolv_conf",
    "mcollective",
    "merge_how",
    "merge_type",
    "migrate",
    "mount_default_fields",
    "mounts",
    "no_ssh_fingerprints",
    "ntp",
    "output",
    "package_reboot_if_required",
    "package_update",
    "package_upgrade",
    "packages",
    "password",
    "phone_home",
    "power_state",
    "prefer_fqdn_over_hostname",
    "preserve_hostname",
    "puppet",
    "random_seed",
    "reporting",
    "resize_rootfs",
    "resolv_conf",
    "rh_subscription",
    "rsyslog",
    "runcmd",
    "salt_minion",
    "snap",
    "spacewalk",
    "ssh",
    "ssh_authorized_keys",
    "ssh_deletekeys",
    "ssh_fp_console_blacklist",
    "ssh_genkeytypes",
    "ssh_import_id",
    "ssh_key_console_blacklist",
    "ssh_keys",
    "ssh_publish_hostkeys",
    "ssh_pwauth",
    "ssh_quiet_keygen",
    "swap",
    "syslog_fix_perms",
    "system_info",
    "timezone",
    "ubuntu_advantage",
    "ubuntu_pro",
    "updates",
    "user",
    "users",
    "vendor_data",
    "version",
    "wireguard",
    "write_files",
    "yum_repo_dir",
    "yum_repos",
    "zypper",
];

fn known(name: &str) -> bool {
    KEYS.contains(&name) || name == "<<" || name.starts_with("x-")
}

/// The known key that `name` is a slip of, if there is one within two changes.
fn nearest(name: &str) -> Option<&'static str> {
    let squeezed = |s: &str| s.to_ascii_lowercase().replace(['-', '_'], "");
    let slip = |key: &&&str| squeezed(key) == squeezed(name) || strsim::levenshtein(key, name) <= 2;
    KEYS.iter().filter(slip).min_by_key(|key| strsim::levenshtein(key, name)).copied()
}

/// B26: `users` without `default` locked people out with cloud-init 25.
fn users(root: &Node, findings: &mut Vec<Finding>) {
    let Some(users) = root.get("users").and_then(Node::items) else { return };
    let default = |user: &Node| {
        user.text() == Some("default") || user.get("name").and_then(Node::text) == Some("default")
    };
    if !users.is_empty() && !users.iter().any(default) {
        let message =
            "users has no entry default: the image's own user is not set up (seen as a lock-out with 25.x)";
        findings.push(Finding::warn(
            "NoDefaultUser",
            users[0].line,
            message,
            "add - default as the first entry",
        ));
    }
}

/// The worst severity among `findings`.
pub fn worst(findings: &[Finding]) -> Severity {
    findings.iter().map(|f| f.severity).max().unwrap_or(Severity::Ok)
}

#[cfg(test)]
mod tests;
