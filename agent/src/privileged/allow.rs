//! Which files the helper opens.
//!
//! The list is short and named file by file: what the checks need and nothing more. An entry is a *base* folder and a
//! pattern below it; `*` stands for any run of characters inside one name. More comes only from files that nobody but
//! root can have written: `/etc/outrider/helper.d/*.conf` (a path a line) and `[etcd]`, `[credentials]` and
//! `[topology]` of the agent's configuration.
//!
//! Bases of RKE2 and K3s are their data folders, which may be configured (`data-dir`) or be links to another disk
//! (`facts/rke2-k3s-on-disk.md`); their configuration itself, and etcd's, is passed as an excerpt only (see `excerpt`).
//! A folder's entries are named and described (size, time), and nothing in it is opened for that.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::excerpt::Document;
use super::trusted::Trust;
use crate::sense::rancher::{self, Files, K3S, RKE2, UNIT_FOLDERS, absent};

/// Files below the data folder of RKE2 and of K3s.
const RANCHER_FILES: [&str; 10] = [
    "server/tls/etcd/*.crt",
    "server/tls/etcd/client.key",
    "server/tls/*.crt",
    "server/tls/kube-scheduler/*.crt",
    "server/tls/kube-controller-manager/*.crt",
    "server/db/etcd/name",
    "agent/kubelet.kubeconfig",
    "agent/client-kubelet.crt",
    "agent/client-kubelet.key",
    "agent/*.crt",
];
/// Folders below it that may be listed.
const RANCHER_FOLDERS: [&str; 15] = [
    "",
    "server",
    "server/tls",
    "server/tls/etcd",
    "server/tls/kube-scheduler",
    "server/tls/kube-controller-manager",
    "server/db",
    "server/db/etcd",
    "server/db/etcd/member",
    "server/db/etcd/member/wal",
    "server/db/snapshots",
    "agent",
    "agent/pod-manifests",
    "agent/etc/kubelet.conf.d",
    // Named after the version in use.
    "data",
];
/// Files elsewhere: base, pattern.
const FILES: [(&str, &str); 20] = [
    ("/sys/devices/virtual/dmi/id", "product_uuid"),
    // RKE1: certificates are named by address.
    ("/etc/kubernetes/ssl", "kube-etcd-*.pem"),
    ("/etc/kubernetes/ssl", "kube-ca.pem"),
    ("/etc/kubernetes/ssl", "kube-node.pem"),
    // One by one: `kube-*.pem` would let out the keys beside them.
    ("/etc/kubernetes/ssl", "kube-apiserver.pem"),
    ("/etc/kubernetes/ssl", "kube-apiserver-proxy-client.pem"),
    ("/etc/kubernetes/ssl", "kube-apiserver-requestheader-ca.pem"),
    ("/etc/kubernetes/ssl", "kube-controller-manager.pem"),
    ("/etc/kubernetes/ssl", "kube-proxy.pem"),
    ("/etc/kubernetes/ssl", "kube-scheduler.pem"),
    ("/etc/kubernetes/ssl", "kube-node-key.pem"),
    ("/etc/kubernetes/ssl", "kubecfg-kube-node.yaml"),
    // kubeadm.
    ("/etc/kubernetes/pki", "*.crt"),
    ("/etc/kubernetes/pki", "apiserver-etcd-client.key"),
    ("/etc/kubernetes/pki/etcd", "*.crt"),
    ("/etc/kubernetes/pki/etcd", "healthcheck-client.key"),
    ("/etc/kubernetes", "kubelet.conf"),
    ("/var/lib/kubelet/pki", "kubelet-client-*.pem"),
    ("/var/lib/kubelet/pki", "kubelet.crt"),
    ("/var/lib/kubelet", "kubeconfig"),
];
/// Keys below the data folder of RKE2 and of K3s beside certificates that are looked at, of which no more than the
/// fingerprint of the public half is told. None of an authority.
const RANCHER_KEYS: [&str; 16] = [
    "server/tls/etcd/server-client.key",
    "server/tls/etcd/peer-server-client.key",
    "server/tls/client-admin.key",
    "server/tls/client-auth-proxy.key",
    "server/tls/client-controller.key",
    "server/tls/client-kube-apiserver.key",
    "server/tls/client-kube-proxy.key",
    "server/tls/client-scheduler.key",
    "server/tls/client-supervisor.key",
    "server/tls/client-*-controller.key",
    "server/tls/serving-kube-apiserver.key",
    "server/tls/kube-scheduler/kube-scheduler.key",
    "server/tls/kube-controller-manager/kube-controller-manager.key",
    "agent/serving-kubelet.key",
    "agent/client-kube-proxy.key",
    "agent/client-*-controller.key",
];
/// The same elsewhere: base, pattern.
const KEYS: [(&str, &str); 10] = [
    ("/etc/kubernetes/ssl", "kube-apiserver-key.pem"),
    ("/etc/kubernetes/ssl", "kube-apiserver-proxy-client-key.pem"),
    ("/etc/kubernetes/ssl", "kube-controller-manager-key.pem"),
    ("/etc/kubernetes/ssl", "kube-proxy-key.pem"),
    ("/etc/kubernetes/ssl", "kube-scheduler-key.pem"),
    ("/etc/kubernetes/pki", "apiserver*.key"),
    ("/etc/kubernetes/pki", "front-proxy-client.key"),
    ("/etc/kubernetes/pki/etcd", "server.key"),
    ("/etc/kubernetes/pki/etcd", "peer.key"),
    ("/var/lib/kubelet/pki", "kubelet.key"),
];
/// Kubeconfigs elsewhere, of which an excerpt is passed: base, pattern.
const KUBECONFIGS: [(&str, &str); 5] = [
    ("/etc/rancher/rke2", "rke2.yaml"),
    ("/etc/rancher/k3s", "k3s.yaml"),
    ("/etc/kubernetes", "admin.conf"),
    ("/etc/kubernetes", "super-admin.conf"),
    // Where Harvester's documents put it for K3s and RKE2 (`facts/harvester-topology.md`, 7).
    ("/etc/kubernetes", "cloud-config"),
];
/// The same below the data folder of RKE2 and of K3s (rancher/rancher, `pkg/capr/planner/config.go`).
const CLOUD_PROVIDER: &str = "etc/config-files/cloud-provider-config";
/// Folders elsewhere.
const FOLDERS: [&str; 14] = [
    "/etc/kubernetes/ssl",
    "/etc/kubernetes/pki",
    "/etc/kubernetes/pki/etcd",
    "/etc/kubernetes/manifests",
    "/var/lib/etcd",
    "/var/lib/etcd/member",
    "/var/lib/kubelet/pki",
    // rancher-system-agent: its files' modes and owners, and of its plans only names and times.
    "/etc/rancher/agent",
    "/var/lib/rancher/agent",
    "/var/lib/rancher/agent/applied",
    "/var/lib/rancher/agent/interlock",
    "/etc/rancher/agent/var",
    "/etc/rancher/agent/var/applied",
    "/etc/rancher/agent/var/interlock",
];
/// Environment files of units whose proxies are looked at.
const ENVIRONMENTS: [(&str, &str); 3] = [
    ("/etc/systemd/system", "rancher-system-agent.env"),
    ("/etc/systemd/system", "k3s.service.env"),
    ("/etc/systemd/system", "k3s-agent.service.env"),
];
/// The same below `/etc/default` and `/etc/sysconfig`.
const UNITS: [&str; 5] = ["rancher-system-agent", "rke2-server", "rke2-agent", "k3s", "k3s-agent"];

/// Largest configuration file that is read.
pub(super) const MAX_CONFIG: u64 = 1024 * 1024;
const DROP_INS: &str = "/etc/outrider/helper.d";
const AGENT_CONFIG: [&str; 2] = ["/etc/outrider/agent.toml", "/etc/outrider/agent.toml.d"];

/// What is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A descriptor of the file.
    File,
    /// A descriptor of what may be known of the file.
    Excerpt(Document),
    /// The names in the folder, with sizes and times if asked for.
    Folder,
}

/// One line of the list.
#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    /// An absolute path; links on the way are resolved when it is opened.
    base: PathBuf,
    /// The path below, names with `*`.
    pattern: String,
}

/// The files and folders that the helper opens.
#[derive(Clone, Debug, Default)]
pub struct AllowList {
    entries: Vec<Entry>,
}

impl AllowList {
    /// The list of this machine, read from below `root` (`/`), with the reasons why parts of root's own additions
    /// could not be used. A configuration file counts only if `owner` (0) owns it and nobody else may write it.
    pub fn load(root: &Path, owner: u32) -> (Self, Vec<String>) {
        let trust = Trust { root: root.to_owned(), owner };
        let mut list = Self::default();
        let mut problems = Vec::new();
        for (base, pattern) in FILES {
            list.add(Kind::File, base, pattern);
        }
        for folder in FOLDERS {
            list.add(Kind::Folder, folder, "");
        }
        for (base, name) in KUBECONFIGS {
            list.add(Kind::Excerpt(Document::Kubeconfig), base, name);
        }
        for (base, pattern) in KEYS {
            list.add(Kind::Excerpt(Document::PublicKey), base, pattern);
        }
        list.add(Kind::Excerpt(Document::EtcdPod), "/etc/kubernetes/manifests", "etcd.yaml");
        list.add(Kind::Excerpt(Document::Kubelet), "/var/lib/kubelet", "config.yaml");
        list.add(Kind::Excerpt(Document::SystemAgent), "/etc/rancher/agent", "config.yaml");
        list.add(Kind::Excerpt(Document::Denials), "/var/log/audit", "audit.log");
        for folder in ["/var/lib/rancher/agent", "/etc/rancher/agent/var"] {
            list.add(Kind::Excerpt(Document::RancherConnection), folder, "rancher2_connection_info.json");
        }
        for (folder, name) in ENVIRONMENTS {
            list.add(Kind::Excerpt(Document::Environment), folder, name);
        }
        for folder in ["/etc/default", "/etc/sysconfig"] {
            UNITS.iter().for_each(|name| list.add(Kind::Excerpt(Document::Environment), folder, name));
        }
        for program in [&RKE2, &K3S] {
            let configured = Configured::read(&trust, program, &mut problems);
            let default = Path::new(program.config);
            for config in std::iter::once(default).chain(configured.config.as_deref()) {
                list.add_configuration(config);
            }
            for base in std::iter::once(program.data_dir).chain(configured.data.as_deref()) {
                RANCHER_FILES.iter().for_each(|p| list.add(Kind::File, base, p));
                RANCHER_KEYS.iter().for_each(|p| list.add(Kind::Excerpt(Document::PublicKey), base, p));
                RANCHER_FOLDERS.iter().for_each(|p| list.add(Kind::Folder, base, p));
                list.add(Kind::Excerpt(Document::EtcdConfig), base, "server/db/etcd/config");
                list.add(Kind::Excerpt(Document::Kubelet), base, "agent/etc/kubelet.conf.d/*.conf");
                list.add(Kind::Excerpt(Document::Kubeconfig), base, CLOUD_PROVIDER);
            }
            if let Some(folder) = configured.snapshots {
                list.add(Kind::Folder, &folder, "");
            }
            for unit in program.units {
                for folder in UNIT_FOLDERS {
                    list.add(Kind::Excerpt(Document::Unit), folder, &format!("{unit}.service"));
                    list.add(Kind::Excerpt(Document::Unit), folder, &format!("{unit}.service.d/*.conf"));
                }
            }
            for path in configured.environment {
                if let Some((base, name)) =
                    path.to_str().and_then(split).filter(|(_, name)| !name.contains('*'))
                {
                    list.add(Kind::Excerpt(Document::Environment), base, name);
                }
            }
        }
        let own = drop_ins(&trust, &mut problems).into_iter().map(|path| (Kind::File, path));
        for (kind, path) in own.chain(agent_paths(&trust, &mut problems)) {
            match split(&path) {
                Some((base, pattern)) => list.add(kind, base, pattern),
                None => problems
                    .push(format!("{path:?} is no absolute path without `..` and without `*` in a folder")),
            }
        }
        (list, problems)
    }

    fn add(&mut self, kind: Kind, base: &str, pattern: &str) {
        self.entries.push(Entry { kind, base: base.into(), pattern: pattern.to_owned() });
    }

    /// A configuration of RKE2 or K3s, and the folder of further ones beside it.
    fn add_configuration(&mut self, path: &Path) {
        // A `*` would stand for the names of other files.
        let plain = path.to_str().and_then(split).filter(|(_, name)| !name.contains('*'));
        let Some((base, name)) = plain else { return };
        self.add(Kind::Excerpt(Document::Rancher), base, name);
        for end in ["yaml", "yml"] {
            self.add(Kind::Excerpt(Document::Rancher), base, &format!("{name}.d/*.{end}"));
        }
        self.add(Kind::Folder, base, &format!("{name}.d"));
    }

    /// Base and path below it for a path on the list; none for any other.
    pub(super) fn find(&self, kind: Kind, path: &str) -> Option<(&Path, PathBuf)> {
        if !is_plain(path) {
            return None;
        }
        self.entries.iter().filter(|e| e.kind == kind).find_map(|entry| {
            let below = Path::new(path).strip_prefix(&entry.base).ok()?;
            matches(&entry.pattern, below.to_str()?).then(|| (entry.base.as_path(), below.to_owned()))
        })
    }
}

/// Absolute, of plain names only, and no longer than the kernel takes.
fn is_plain(path: &str) -> bool {
    let Some(names) = path.strip_prefix('/') else { return false };
    path.len() < 4096 && !path.contains('\0') && names.split('/').all(|name| !matches!(name, "" | "." | ".."))
}

/// Name by name, so that `*` never crosses a slash.
fn matches(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut names) = (pattern.split('/'), path.split('/'));
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if name_matches(pattern, name) => {}
            _ => return false,
        }
    }
}

/// One name against a pattern with any number of `*`.
fn name_matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    false
}

/// A path of root's own list as base folder and pattern of the name.
fn split(path: &str) -> Option<(&str, &str)> {
    let (base, name) = path.rsplit_once('/')?;
    let plain = is_plain(path) && !base.is_empty() && !base.contains('*');
    plain.then_some((base, name))
}

/// What root configured for RKE2 or K3s.
#[derive(Default)]
struct Configured {
    data: Option<String>,
    snapshots: Option<String>,
    /// Another file than the usual one.
    config: Option<PathBuf>,
    /// Files of the environment of its unit.
    environment: Vec<PathBuf>,
}

impl Configured {
    fn read(trust: &Trust, program: &rancher::Program, problems: &mut Vec<String>) -> Self {
        let trusted = Trusted { trust, problems: RefCell::default() };
        let told = rancher::read(&trusted, program);
        problems.append(&mut trusted.problems.into_inner());
        problems.extend(told.problem.as_ref().map(ToString::to_string));
        let folder = Path::new(program.config).parent().unwrap_or(Path::new("/")).display();
        let mut usable = |key: &str, path: Option<&str>| {
            // The folder itself, and what lies below it, must be a path that can be asked for.
            let path = path?;
            if is_plain(path) && path.matches('/').count() > 1 {
                return Some(path.to_owned());
            }
            problems.push(format!("{key} {path:?} of {folder} is no plain absolute path below a folder"));
            None
        };
        Self {
            data: usable("data-dir", told.options.data_dir()),
            snapshots: usable("etcd-snapshot-dir", told.options.snapshot_dir()),
            config: told.config.filter(|path| path != Path::new(program.config)),
            environment: told.environment,
        }
    }
}

/// Files that nobody but root can have written; others are as if they were not there, and told.
struct Trusted<'a> {
    trust: &'a Trust,
    problems: RefCell<Vec<String>>,
}

impl Files for Trusted<'_> {
    fn read(&self, path: &Path) -> std::io::Result<Option<Vec<u8>>> {
        match self.trust.read(path, MAX_CONFIG) {
            // What is no file at all, such as a unit that is masked, is its reader's to understand.
            Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => Err(e),
            Err(e) => {
                self.note(path, &e);
                Ok(None)
            }
            Ok(text) => Ok(Some(text.into_bytes())),
        }
    }

    fn list(&self, path: &Path) -> std::io::Result<Option<Vec<String>>> {
        let listed = absent(list(self.trust, path));
        listed.or_else(|e| {
            self.note(path, &e);
            Ok(None)
        })
    }
}

impl Trusted<'_> {
    fn note(&self, path: &Path, error: &std::io::Error) {
        let (mut problems, mut found) = (self.problems.borrow_mut(), Vec::new());
        note(&mut found, &path.display().to_string(), error);
        // A file may be looked at twice.
        found.retain(|problem| !problems.contains(problem));
        problems.append(&mut found);
    }
}

/// Paths of `/etc/outrider/helper.d/*.conf`: one a line, `#` begins a comment.
fn drop_ins(trust: &Trust, problems: &mut Vec<String>) -> Vec<String> {
    let files = names(trust, DROP_INS, ".conf", problems);
    let texts: Vec<String> = files.iter().filter_map(|file| read(trust, file, problems)).collect();
    let lines = texts.iter().flat_map(|t| t.lines()).map(|l| l.split('#').next().unwrap_or("").trim());
    lines.filter(|l| !l.is_empty()).map(str::to_owned).collect()
}

/// What the agent's configuration names: `ca`, `cert` and `key` of `[etcd]`, `rancher_kubeconfig` of `[credentials]` and both
/// kubeconfigs of `[topology]` whole, `kubeconfigs` as excerpts.
fn agent_paths(trust: &Trust, problems: &mut Vec<String>) -> Vec<(Kind, String)> {
    let [file, folder] = AGENT_CONFIG;
    let mut files = vec![PathBuf::from(file)];
    files.extend(names(trust, folder, ".toml", problems));
    let mut paths = Vec::new();
    for file in files {
        let Some(text) = read(trust, &file, problems) else { continue };
        // What is wrong with the file is the daemon's to say.
        let Ok(table) = text.parse::<toml::Table>() else { continue };
        let etcd = table.get("etcd").and_then(toml::Value::as_table);
        let values = ["ca", "cert", "key"].map(|k| etcd.and_then(|t| t.get(k)?.as_str()));
        let credentials = table.get("credentials").and_then(toml::Value::as_table);
        let rancher = credentials.and_then(|t| t.get("rancher_kubeconfig")?.as_str());
        let topology = table.get("topology").and_then(toml::Value::as_table);
        let followed =
            ["kubeconfig", "harvester_kubeconfig"].map(|k| topology.and_then(|t| t.get(k)?.as_str()));
        let whole = values.into_iter().chain(followed).flatten().chain(rancher);
        paths.extend(whole.map(|path| (Kind::File, path.to_owned())));
        let named = credentials.and_then(|t| t.get("kubeconfigs")?.as_array()).into_iter().flatten();
        let named = named.filter_map(toml::Value::as_str);
        paths.extend(named.map(|path| (Kind::Excerpt(Document::Kubeconfig), path.to_owned())));
    }
    paths
}

/// Names in a trusted folder, by name.
fn list(trust: &Trust, folder: &Path) -> std::io::Result<Vec<String>> {
    let real = trust.resolve(folder)?;
    let below = real.strip_prefix("/").unwrap_or(&real).to_owned();
    let entries = std::fs::read_dir(trust.root.join(below))?;
    let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Files with this suffix in a trusted folder, ordered by name; none when the folder is not there.
fn names(trust: &Trust, folder: &str, suffix: &str, problems: &mut Vec<String>) -> Vec<PathBuf> {
    match list(trust, Path::new(folder)) {
        Ok(names) => {
            let names = names.into_iter().filter(|n| n.ends_with(suffix));
            names.map(|n| Path::new(folder).join(n)).collect()
        }
        Err(e) => {
            note(problems, folder, &e);
            Vec::new()
        }
    }
}

fn read(trust: &Trust, file: &Path, problems: &mut Vec<String>) -> Option<String> {
    trust.read(file, MAX_CONFIG).map_err(|e| note(problems, &file.display().to_string(), &e)).ok()
}

/// Nothing there is no problem.
fn note(problems: &mut Vec<String>, what: &str, error: &std::io::Error) {
    if error.kind() != std::io::ErrorKind::NotFound {
        problems.push(format!("{what} is not used: {error}"));
    }
}

#[cfg(test)]
#[path = "allow_tests.rs"]
mod tests;
