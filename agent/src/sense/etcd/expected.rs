//! What this node's own configuration says of its member: who it means to be, and how patient it is.
//!
//! RKE2 and K3s write a configuration file into etcd's data folder at every start (k3s-io/k3s,
//! `pkg/daemons/executor/executor.go`, `ETCDConfig.ToConfigFile`); kubeadm writes flags into a static pod; RKE1 and any
//! other etcd have their flags on the command line of the process. All speak of the same names, which are etcd's flags.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use outrider_protocol::{ExpectedMember, UnknownCause};
use serde_json::Value;

use super::discover::Disk;
use super::process::{self, Process};
use crate::net::{Failure, Url};
use crate::sense::SenseContext;

/// Longest list of URLs we take over.
const MAX_URLS: usize = 8;
/// Longest name or URL we take over.
const MAX_TEXT: usize = 512;

/// Where the configuration of the local member stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Configuration {
    /// A configuration file of etcd.
    File(PathBuf),
    /// A static pod.
    Pod(PathBuf),
    /// The command line of the process.
    Process,
    /// The member is on another machine.
    Elsewhere,
}

/// The flags of a command line that have a value, in whichever form.
pub(crate) fn flags<'a>(words: impl Iterator<Item = &'a str>) -> Vec<(&'a str, &'a str)> {
    let mut words = words.peekable();
    let mut flags = Vec::new();
    while let Some(word) = words.next() {
        // Go takes one dash or two.
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
        // A flag without a value is followed by another flag, if by anything.
        let with_next = || Some((flag, words.next_if(|next| !next.starts_with('-'))?));
        flags.extend(flag.split_once('=').or_else(with_next));
    }
    flags
}

/// The settings of a member that matter here, by the names of etcd's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberConfig {
    name: Option<String>,
    initial_advertise_peer_urls: Vec<String>,
    listen_peer_urls: Vec<String>,
    advertise_client_urls: Vec<String>,
    pub(super) listen_client_urls: Vec<String>,
    pub(super) election_timeout: Option<Duration>,
    heartbeat: Option<Duration>,
    /// Data folder.
    pub(super) data_dir: Option<String>,
    /// A file that holds all of this instead.
    pub(super) config_file: Option<String>,
}

impl MemberConfig {
    /// Of etcd's configuration file, a YAML mapping. An error quotes nothing of it.
    pub fn of_file(text: &str) -> Result<Self, &'static str> {
        if text.trim().is_empty() {
            return Err("the file is empty");
        }
        let values: BTreeMap<String, Value> =
            serde_saphyr::from_str(text).map_err(|_| "not the YAML of an etcd configuration")?;
        let mut config = Self::default();
        for (key, value) in &values {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                // K3s writes an argument in brackets as a list.
                Value::Array(list) => {
                    let list: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
                    list.join(",")
                }
                _ => continue,
            };
            config.set(key, &text);
        }
        Ok(config)
    }

    /// Of etcd's static pod.
    pub fn of_pod(text: &str) -> Result<Self, &'static str> {
        let pod: Value = serde_saphyr::from_str(text).map_err(|_| "not the YAML of a pod")?;
        let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
        let etcd = containers.into_iter().flatten().find(|container| container["name"] == "etcd");
        let etcd = etcd.ok_or("the pod has no container named etcd")?;
        let words = [&etcd["command"], &etcd["args"]].into_iter().filter_map(Value::as_array);
        Ok(Self::of_words(words.flatten().filter_map(Value::as_str)))
    }

    /// Of a command line.
    pub(super) fn of_words<'a>(words: impl Iterator<Item = &'a str>) -> Self {
        let mut config = Self::default();
        flags(words).into_iter().for_each(|(key, value)| config.set(key, value));
        config
    }

    fn set(&mut self, key: &str, value: &str) {
        let value = value.trim();
        let text = || Some(value.chars().take(MAX_TEXT).collect::<String>()).filter(|v| !v.is_empty());
        let urls = || -> Vec<String> {
            let urls = value.split(',').map(str::trim).filter(|url| !url.is_empty());
            urls.take(MAX_URLS).map(|url| url.chars().take(MAX_TEXT).collect()).collect()
        };
        // Milliseconds, in a range in which etcd would start.
        let time = || value.parse().ok().filter(|ms| (1..=100_000).contains(ms)).map(Duration::from_millis);
        match key {
            "name" => self.name = text(),
            "initial-advertise-peer-urls" => self.initial_advertise_peer_urls = urls(),
            "listen-peer-urls" => self.listen_peer_urls = urls(),
            "advertise-client-urls" => self.advertise_client_urls = urls(),
            "listen-client-urls" => self.listen_client_urls = urls(),
            "election-timeout" => self.election_timeout = time(),
            "heartbeat-interval" => self.heartbeat = time(),
            "data-dir" => self.data_dir = text(),
            "config-file" => self.config_file = text(),
            _ => {}
        }
    }

    /// Who the member means to be.
    ///
    /// After its first start etcd needs no `initial-advertise-peer-urls`, and K3s and RKE2 then leave them out: what it
    /// listens on stands for them, as far as others could reach it there.
    pub fn expected(&self) -> ExpectedMember {
        let reachable = |urls: &[String]| -> Vec<String> {
            urls.iter().filter(|text| !only_here(text)).cloned().collect()
        };
        let peer_urls = match &self.initial_advertise_peer_urls[..] {
            [] => reachable(&self.listen_peer_urls),
            urls => urls.to_vec(),
        };
        let client_urls = match &self.advertise_client_urls[..] {
            [] => reachable(&self.listen_client_urls),
            urls => urls.to_vec(),
        };
        let ms = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
        ExpectedMember {
            name: self.name.clone().unwrap_or_default(),
            peer_urls,
            client_urls,
            election_timeout_ms: self.election_timeout.map(ms),
            heartbeat_ms: self.heartbeat.map(ms),
        }
    }

    /// It says nothing of the member: everything is in the environment, or at its default.
    pub(super) fn is_silent(&self) -> bool {
        self.name.is_none()
            && self.initial_advertise_peer_urls.is_empty()
            && self.listen_peer_urls.is_empty()
            && self.advertise_client_urls.is_empty()
            && self.listen_client_urls.is_empty()
    }
}

/// An address that means nothing to another machine: loopback, or any address at all.
fn only_here(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    url.host == "localhost" || url.ip().is_some_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

/// What was found, and where.
pub(super) struct Configured {
    pub(super) config: MemberConfig,
    pub(super) source: String,
}

/// Reads the configuration of the local member, which listens at `local`. Blocking.
pub(super) fn read(
    cx: &SenseContext,
    configuration: &Configuration,
    local: &Url,
    last: Option<&Process>,
) -> (Result<Configured, Failure>, Option<Process>) {
    let disk = Disk(&*cx.opener);
    match configuration {
        Configuration::File(path) => (read_file(&disk, path, MemberConfig::of_file), None),
        Configuration::Pod(path) => (read_file(&disk, path, MemberConfig::of_pod), None),
        Configuration::Process => match process::find(cx, local, last) {
            Ok(found) => (of_process(&disk, &found), Some(found)),
            Err(failure) => (Err(failure), None),
        },
        Configuration::Elsewhere => {
            let detail = format!("{local} is on another machine, whose configuration is not seen from here");
            (Err(Failure::new(UnknownCause::Unsupported, detail)), None)
        }
    }
}

fn of_process(disk: &Disk<'_>, found: &Process) -> Result<Configured, Failure> {
    if let Some(file) = &found.config.config_file {
        let path = PathBuf::from(file);
        if !path.is_absolute() {
            let detail =
                format!("etcd (pid {}) has the configuration file {file:?}, a path of its own", found.pid);
            return Err(Failure::new(UnknownCause::Unsupported, detail));
        }
        return read_file(disk, &path, MemberConfig::of_file);
    }
    if found.config.is_silent() {
        let detail = format!(
            "the command line of etcd (pid {}) says nothing of the member; its environment is not read",
            found.pid
        );
        return Err(Failure::new(UnknownCause::Unsupported, detail));
    }
    Ok(Configured { config: found.config.clone(), source: format!("/proc/{}/cmdline", found.pid) })
}

fn read_file(
    disk: &Disk<'_>,
    path: &std::path::Path,
    parse: fn(&str) -> Result<MemberConfig, &'static str>,
) -> Result<Configured, Failure> {
    let source = path.display().to_string();
    let invalid = |why: &str| Failure::new(UnknownCause::InvalidInput, format!("{source}: {why}"));
    match disk.read(path) {
        Ok(None) => Err(invalid("the file is not there")),
        Ok(Some(bytes)) => {
            let text = String::from_utf8(bytes).map_err(|_| invalid("not UTF-8"))?;
            let config = parse(&text).map_err(invalid)?;
            Ok(Configured { config, source })
        }
        Err(e) => Err(Failure::from(&e).during(&source)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The file as K3s writes it: sigs.k8s.io/yaml, keys by name.
    const FILE: &str = "\
advertise-client-urls: https://10.0.0.1:2379
client-transport-security:
  cert-file: /var/lib/rancher/rke2/server/tls/etcd/server-client.crt
  client-cert-auth: true
data-dir: /var/lib/rancher/rke2/server/db/etcd
election-timeout: 5000
experimental-initial-corrupt-check: true
heartbeat-interval: 500
listen-client-http-urls: https://127.0.0.1:2382
listen-client-urls: https://127.0.0.1:2379,https://10.0.0.1:2379
listen-metrics-urls: http://127.0.0.1:2381
listen-peer-urls: https://127.0.0.1:2380,https://10.0.0.1:2380
log-outputs:
- stderr
logger: zap
name: n1-1a2b3c4d
";

    #[test]
    fn the_file_that_k3s_and_rke2_write() {
        let config = MemberConfig::of_file(FILE).unwrap();
        let expected = config.expected();
        assert_eq!(expected.name, "n1-1a2b3c4d");
        assert_eq!(expected.client_urls, ["https://10.0.0.1:2379"]);
        // After the first start nothing is advertised any more: what it listens on tells, loopback left out.
        assert_eq!(expected.peer_urls, ["https://10.0.0.1:2380"]);
        assert_eq!((expected.election_timeout_ms, expected.heartbeat_ms), (Some(5000), Some(500)));
        let first =
            MemberConfig::of_file(&format!("{FILE}initial-advertise-peer-urls: https://[fd00::1]:2380\n"));
        assert_eq!(first.unwrap().expected().peer_urls, ["https://[fd00::1]:2380"]);
        assert_eq!(config.election_timeout, Some(Duration::from_secs(5)));
    }

    #[test]
    fn an_argument_in_brackets_is_a_list() {
        let text = "name: a\nlisten-peer-urls: ['https://10.0.0.1:2380', 'https://10.0.0.2:2380']\n";
        let expected = MemberConfig::of_file(text).unwrap().expected();
        assert_eq!(expected.peer_urls, ["https://10.0.0.1:2380", "https://10.0.0.2:2380"]);
    }

    #[test]
    fn a_pod_of_kubeadm_and_the_excerpt_of_it() {
        let pod = "spec:\n  containers:\n  - command:\n    - etcd\n    - --name=cp1\n    - --data-dir=/var/lib/etcd\n    \
                   - --initial-advertise-peer-urls=https://10.0.0.1:2380\n    - --advertise-client-urls=https://10.0.0.1:2379\n    \
                   - --client-cert-auth=true\n    name: etcd\n";
        let excerpt = r#"{"spec":{"containers":[{"name":"etcd","command":["--name=cp1","--data-dir=/var/lib/etcd",
                      "--initial-advertise-peer-urls=https://10.0.0.1:2380","--advertise-client-urls=https://10.0.0.1:2379"]}]}}"#;
        let of_pod = MemberConfig::of_pod(pod).unwrap();
        assert_eq!(of_pod, MemberConfig::of_pod(excerpt).unwrap());
        assert_eq!(of_pod.data_dir.as_deref(), Some("/var/lib/etcd"));
        assert_eq!((of_pod.expected().name.as_str(), of_pod.election_timeout), ("cp1", None));
        for broken in ["", "- 1", "spec: {containers: [{name: other}]}", "spec: 7", "\u{0}"] {
            assert!(MemberConfig::of_pod(broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn flags_in_every_form_that_go_takes() {
        let words = [
            "etcd",
            "-name",
            "m1",
            "--client-cert-auth",
            "--listen-peer-urls=https://10.0.0.1:2380",
            "stray",
        ];
        let config = MemberConfig::of_words(words.into_iter());
        assert_eq!(config.expected().name, "m1");
        assert_eq!(config.expected().peer_urls, ["https://10.0.0.1:2380"]);
        assert!(MemberConfig::of_words(["etcd", "--name", "--x"].into_iter()).is_silent());
    }

    #[test]
    fn times_that_etcd_would_not_take_are_not_taken() {
        for text in ["0", "-1", "1e9", "5s", "999999999999", ""] {
            assert_eq!(
                MemberConfig::of_words([&*format!("--election-timeout={text}")].into_iter()).election_timeout,
                None
            );
        }
    }

    #[test]
    fn broken_files_are_told_without_their_text() {
        for text in ["", "s3cret", "- s3cret", "name: [s3cret"] {
            assert!(MemberConfig::of_file(text).is_err_and(|e| !e.contains("s3cret")), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,200}") {
            let _ = MemberConfig::of_file(&text).map(|c| c.expected());
            let _ = MemberConfig::of_pod(&text);
            let _ = MemberConfig::of_words(text.split(' ')).expected();
        }
    }
}
