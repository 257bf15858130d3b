//! What the daemon may know of configuration that only root may read.
//!
//! The `config.yaml` of RKE2 and K3s holds the join token and may hold a database password, so it is never passed. The
//! helper reads it and passes a document of the few keys that tell which datastore a node has and where
//! (`facts/rke2-k3s-on-disk.md`, section 5), in a sealed memory file: to the daemon it is the file with its secrets left
//! out. etcd's own configuration has no secret that we know of, and whoever wrote it may have put one in: of it only
//! the keys pass that say who the member means to be. rancher-system-agent's connection file holds a token: of its
//! kubeconfig pass the server and its authorities. Of environment files, which may hold anything, pass the proxies, without
//! their passwords.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde_json::{Value, json};

use crate::sense::etcd::flags;
use crate::sense::rancher_agent;

/// Keys of RKE2 and K3s without a secret in them.
const RANCHER_KEYS: [&str; 12] = [
    "data-dir",
    "disable-etcd",
    "node-ip",
    "cluster-init",
    "etcd-snapshot-dir",
    "etcd-s3",
    "etcd-disable-snapshots",
    "cluster-cidr",
    "service-cidr",
    "cluster-dns",
    "cluster-domain",
    "resolv-conf",
];
/// Keys of a kubelet's configuration that say how pods resolve names.
const KUBELET_KEYS: [&str; 3] = ["clusterDNS", "clusterDomain", "resolvConf"];
/// Keys and flags of etcd that say who the member means to be.
const ETCD_KEYS: [&str; 9] = [
    "name",
    "data-dir",
    "initial-advertise-peer-urls",
    "listen-peer-urls",
    "advertise-client-urls",
    "listen-client-urls",
    "listen-metrics-urls",
    "election-timeout",
    "heartbeat-interval",
];
/// Of this one only the scheme is kept: the rest is a connection string with a password.
const DATASTORE: &str = "datastore-endpoint";
/// Of this one everything but a user name and a password.
const SERVER: &str = "server";
/// Of this one only the argument that names the `resolv.conf` of pods.
const KUBELET_ARG: &str = "kubelet-arg";

/// Which document it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// `config.yaml` of RKE2 or K3s.
    Rancher,
    /// The configuration file that they write for etcd.
    EtcdConfig,
    /// etcd's static pod, with its flags.
    EtcdPod,
    /// A KubeletConfiguration.
    Kubelet,
    /// `config.yaml` of rancher-system-agent.
    SystemAgent,
    /// Its connection file.
    RancherConnection,
    /// An environment file of systemd, as lines and not as YAML.
    Environment,
}

impl Document {
    /// The bytes that are passed for `text`.
    pub(super) fn passed(self, text: &str) -> Result<Vec<u8>, &'static str> {
        if self == Document::Environment {
            return Ok(rancher_agent::environment::excerpt(text).into_bytes());
        }
        serde_json::to_vec(&self.excerpt(text)?).map_err(|_| "not to be written again")
    }

    /// What may be known of the text of a configuration file, in the form of the whole. The error never quotes the
    /// text.
    pub fn excerpt(self, text: &str) -> Result<BTreeMap<String, Value>, &'static str> {
        if text.trim().is_empty() {
            return Ok(BTreeMap::new());
        }
        let all: Option<BTreeMap<String, Value>> =
            serde_saphyr::from_str(text).map_err(|_| "not the YAML of a configuration")?;
        let mut all = all.unwrap_or_default();
        Ok(match self {
            Document::Rancher => rancher(all),
            Document::EtcdConfig => {
                all.retain(|key, _| ETCD_KEYS.contains(&key.as_str()));
                all
            }
            Document::EtcdPod => pod(&Value::Object(all.into_iter().collect())),
            Document::Kubelet => {
                all.retain(|key, _| KUBELET_KEYS.contains(&key.as_str()));
                all
            }
            Document::SystemAgent => rancher_agent::config_excerpt(all),
            Document::RancherConnection => rancher_agent::connection_excerpt(&all),
            // It is no mapping.
            Document::Environment => BTreeMap::new(),
        })
    }
}

fn rancher(all: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    // A key may end in `+`: its values are added to those of earlier files.
    let kept = all.into_iter().filter_map(|(key, value)| {
        let known = key.strip_suffix('+').unwrap_or(&key);
        if known == DATASTORE {
            // Empty means unset; what has no scheme is a path of sqlite.
            let kind = match first(&value) {
                None => String::new(),
                Some(text) if text.is_empty() => text,
                Some(text) => scheme(&text).map_or_else(|| "sqlite".into(), |scheme| format!("{scheme}://")),
            };
            return Some((key, kind.into()));
        }
        if known == SERVER {
            let text = first(&value).unwrap_or_default();
            let (scheme, rest) = text.split_once("://").unwrap_or(("https", text.as_str()));
            let host = rest.rsplit('@').next().unwrap_or_default();
            return Some((
                key,
                format!("{}://{host}", if scheme == "http" { "http" } else { "https" }).into(),
            ));
        }
        if known == KUBELET_ARG {
            let all = value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
            let is_it =
                |v: &Value| v.as_str().is_some_and(|s| s.trim_start_matches('-').starts_with("resolv-conf="));
            let kept: Vec<Value> = all.into_iter().filter(is_it).collect();
            return (!kept.is_empty()).then(|| (key, kept.into()));
        }
        RANCHER_KEYS.contains(&known).then_some((key, value))
    });
    kept.collect()
}

/// The container `etcd` with the flags that may be known.
fn pod(all: &Value) -> BTreeMap<String, Value> {
    let containers = all.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let kept: Vec<Value> = containers
        .filter(|container| container["name"] == "etcd")
        .map(|container| {
            let words = [&container["command"], &container["args"]].into_iter().filter_map(Value::as_array);
            let flags = flags(words.flatten().filter_map(Value::as_str)).into_iter();
            let known = flags.filter(|(key, _)| ETCD_KEYS.contains(key));
            let command: Vec<String> = known.map(|(key, value)| format!("--{key}={value}")).collect();
            json!({ "name": "etcd", "command": command })
        })
        .collect();
    BTreeMap::from([("spec".to_owned(), json!({ "containers": kept }))])
}

/// The single value of `key` in a configuration, as RKE2 and K3s take it: also under the key with a `+`, which appends
/// to a list and sets a single value, and the first where a list is given.
pub fn word(values: &BTreeMap<String, Value>, key: &str) -> Option<String> {
    first(values.get(key).or_else(|| values.get(&format!("{key}+")))?)
}

fn first(value: &Value) -> Option<String> {
    match value.as_array().map_or(Some(value), |list| list.first())? {
        Value::String(text) => Some(text.clone()),
        value @ (Value::Bool(_) | Value::Number(_)) => Some(value.to_string()),
        _ => None,
    }
}

/// The scheme of a datastore's endpoint; none where what stands before `://` is no scheme and may be a secret.
pub fn scheme(endpoint: &str) -> Option<&str> {
    let (scheme, _) = endpoint.split_once("://")?;
    let is_scheme =
        |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    (!scheme.is_empty() && is_scheme(scheme)).then_some(scheme)
}

/// The excerpt as a file that nobody can change.
pub(super) fn to_file(excerpt: &[u8]) -> io::Result<OwnedFd> {
    let descriptor = memfd_create("outrider-excerpt", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(descriptor);
    file.write_all(excerpt)?;
    file.rewind()?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn excerpt(text: &str) -> Result<BTreeMap<String, Value>, &'static str> {
        Document::Rancher.excerpt(text)
    }

    #[test]
    fn of_etcd_passes_who_the_member_means_to_be() {
        let text = "name: n1-1a2b3c4d\nelection-timeout: 5000\nauth-token: s3cret\ninitial-cluster-token: s3cret\n\
                    client-transport-security:\n  key-file: /s3cret\nlisten-peer-urls: https://10.0.0.1:2380\n";
        let kept = Document::EtcdConfig.excerpt(text).unwrap();
        let keys: Vec<&String> = kept.keys().collect();
        assert_eq!(keys, ["election-timeout", "listen-peer-urls", "name"]);
        assert_eq!((&kept["name"], &kept["election-timeout"]), (&json!("n1-1a2b3c4d"), &json!(5000)));
        assert!(Document::EtcdConfig.excerpt("- s3cret").is_err_and(|e| !e.contains("s3cret")));
    }

    #[test]
    fn of_a_pod_pass_the_same_flags_of_the_one_container() {
        let text = "metadata: {annotations: {x: s3cret}}\nspec:\n  containers:\n  - name: other\n    command: [s3cret]\n\
                    - name: etcd\n    env: [{name: X, value: s3cret}]\n    command: [etcd, --name, cp1, --auth-token=s3cret,\n\
                    --peer-key-file=/s3cret, s3cret, --data-dir]\n    args: [--election-timeout=2000]\n";
        let text = text.replace("\n- name", "\n  - name").replace("\n--peer", "\n     --peer");
        let kept = Document::EtcdPod.excerpt(&text).unwrap();
        let expected =
            json!({"containers": [{"name": "etcd", "command": ["--name=cp1", "--election-timeout=2000"]}]});
        assert_eq!(kept, BTreeMap::from([("spec".to_owned(), expected)]));
        for text in ["spec: 1", "spec: {containers: [1, {name: etcd}]}", "kind: Pod"] {
            assert!(Document::EtcdPod.excerpt(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn secrets_are_left_out() {
        let text = "token: K10abc::server:s3cret\ndata-dir: /data\nnode-ip: [10.0.0.1]\nagent-token: s3cret\n\
                    datastore-endpoint: postgres://rancher:s3cret@db:5432/k3s\nnode-ip+: [10.0.0.2]\n";
        let mut out = String::new();
        File::from(to_file(&Document::Rancher.passed(text).unwrap()).unwrap())
            .read_to_string(&mut out)
            .unwrap();
        assert!(!out.contains("s3cret") && !out.contains("K10"), "{out}");
        let expected = r#"{"data-dir":"/data","datastore-endpoint":"postgres://","node-ip":["10.0.0.1"],"node-ip+":["10.0.0.2"]}"#;
        assert_eq!(out, expected);
    }

    #[test]
    fn of_a_server_its_address_and_of_arguments_one() {
        let text = "server: https://u:s3cret@r.example:9345\nkubelet-arg: [max-pods=9, resolv-conf=/x, token=s3cret]\n\
                    cluster-dns: 10.9.0.10\nagent-token: s3cret\n";
        let kept = String::from_utf8(Document::Rancher.passed(text).unwrap()).unwrap();
        let expected = r#"{"cluster-dns":"10.9.0.10","kubelet-arg":["resolv-conf=/x"],"server":"https://r.example:9345"}"#;
        assert_eq!(kept, expected);
    }

    #[test]
    fn of_rancher_system_agent_passes_where_rancher_is_and_no_token() {
        let kubeconfig = "clusters:\n- cluster:\n    server: https://r.example\n    certificate-authority-data: QUJD\n  name: agent\n\
                          users:\n- user:\n    token: s3cret\n  name: agent\n";
        let text = json!({"kubeConfig": kubeconfig, "namespace": "fleet-default", "secretName": "m-plan", "token": "s3cret"});
        let passed = Document::RancherConnection.passed(&text.to_string()).unwrap();
        let passed = String::from_utf8(passed).unwrap();
        assert!(
            !passed.contains("s3cret") && passed.contains("r.example") && passed.contains("QUJD"),
            "{passed}"
        );
        let config = "workDirectory: /x\nremoteEnabled: true\nsecret: s3cret\n";
        let passed = String::from_utf8(Document::SystemAgent.passed(config).unwrap()).unwrap();
        assert_eq!(passed, r#"{"remoteEnabled":true}"#);
        let environment = "CATTLE_TOKEN=s3cret\nHTTPS_PROXY=http://u:s3cret@p:1\n";
        let passed = String::from_utf8(Document::Environment.passed(environment).unwrap()).unwrap();
        assert_eq!(passed, "\nHTTPS_PROXY='http://***@p:1'");
    }

    #[test]
    fn unusual_datastores_keep_their_kind() {
        let kind = |text: &str| excerpt(text).unwrap()[DATASTORE].clone();
        assert_eq!(kind("datastore-endpoint: ''"), "");
        assert_eq!(kind("datastore-endpoint: /var/db"), "sqlite");
        assert_eq!(kind("datastore-endpoint: [a, b]"), "sqlite");
        assert_eq!(kind("datastore-endpoint: [postgres://u:s3cret@db/k3s]"), "postgres://");
        assert_eq!(kind("datastore-endpoint: u:s3cret@db://x"), "sqlite");
        // Nothing is unset, and never a datastore.
        assert_eq!(kind("datastore-endpoint:"), "");
        assert_eq!(kind("datastore-endpoint: []"), "");
        let appended = excerpt("datastore-endpoint+: mysql://u:s3cret@db").unwrap();
        assert_eq!(appended["datastore-endpoint+"], "mysql://");
    }

    #[test]
    fn nothing_and_broken_are_told_apart() {
        assert_eq!(excerpt("# only a comment\n").map(|e| e.len()), Ok(0));
        assert_eq!(excerpt("").map(|e| e.len()), Ok(0));
        assert!(excerpt("token: [s3cret\n").is_err_and(|e| !e.contains("s3cret")));
        assert!(excerpt("- a\n- b\n").is_err());
    }

    #[test]
    fn the_file_is_sealed() {
        let mut file = File::from(to_file(b"{}").unwrap());
        assert!(file.write_all(b"x").is_err());
        assert!(file.set_len(0).is_err());
    }
}
