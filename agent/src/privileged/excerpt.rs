//! What the daemon may know of configuration that only root may read.
//!
//! The `config.yaml` of RKE2 and K3s holds the join token and may hold a database password, so it is never passed. The
//! helper reads it and passes a document of the few keys that tell which datastore a node has and where
//! (`facts/rke2-k3s-on-disk.md`, section 5), in a sealed memory file: to the daemon it is the file with its secrets left
//! out. etcd's own configuration has no secret that we know of, and whoever wrote it may have put one in: of it only
//! the keys pass that say who the member means to be. rancher-system-agent's connection file holds a token: of its
//! kubeconfig pass the server and its authorities. Of environment files, which may hold anything, pass the proxies, without
//! their passwords. Of other kubeconfigs pass the names in them, their servers, their public certificates and what their
//! tokens say of themselves: when each ends, which is all that a check needs. Of private keys passes the fingerprint of the
//! public half, which tells whether the certificate beside it is theirs. Of the audit log pass the lines in which SELinux denied the
//! guest agent something.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;

use outrider_protocol::{BETA_REGION, BETA_ZONE, REGION, ZONE};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde_json::{Value, json};

use crate::sense::certificates::key_excerpt;
use crate::sense::credentials::kubeconfig_excerpt;
use crate::sense::environment_file::assignments;
use crate::sense::etcd::flags as etcd_flags;
use crate::sense::rancher::{
    DATASTORE, KUBELET_ARG, NODE_LABEL, SERVER, flag_of, flags, mapping, scheme, service_lines, split, words,
};
use crate::sense::rancher_agent;

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
    /// A unit that starts RKE2 or K3s, or a drop-in of one.
    Unit,
    /// An environment file of their units or of rancher-system-agent's.
    Environment,
    /// A kubeconfig: of its tokens what they say of themselves, of its keys that they are there.
    Kubeconfig,
    /// A private key: the fingerprint of its public half.
    PublicKey,
    /// The audit log: of its end what SELinux denied the guest agent.
    Denials,
}

impl Document {
    /// What may be known of the text of a configuration file, in the form of the whole. The error never quotes the
    /// text.
    pub fn excerpt(self, text: &str) -> Result<String, &'static str> {
        match self {
            Document::PublicKey => return Ok(key_excerpt(text)),
            Document::Unit => return Ok(unit(text)),
            Document::Environment => return Ok(environment(text)),
            // Kept line by line when it was read.
            Document::Denials => return Ok(text.to_owned()),
            Document::Kubeconfig => {
                let kept = kubeconfig_excerpt(text);
                return serde_json::to_string(&kept).map_err(|_| "what may be known of it cannot be written");
            }
            _ if text.trim().is_empty() => return Ok("{}".to_owned()),
            _ => {}
        }
        let mut all = mapping(text).map_err(|_| "not the YAML of a configuration")?;
        let kept = match self {
            Document::EtcdPod => pod(&Value::Object(all.into_iter().collect())),
            Document::EtcdConfig => {
                all.retain(|key, _| ETCD_KEYS.contains(&key.as_str()));
                all
            }
            Document::Kubelet => {
                all.retain(|key, _| KUBELET_KEYS.contains(&key.as_str()));
                all
            }
            Document::SystemAgent => rancher_agent::config_excerpt(all),
            Document::RancherConnection => rancher_agent::connection_excerpt(&all),
            // The others are no mappings: passed above, or told as the first.
            Document::Rancher
            | Document::Unit
            | Document::Environment
            | Document::Kubeconfig
            | Document::PublicKey
            | Document::Denials => rancher(all),
        };
        serde_json::to_string(&kept).map_err(|_| "what may be known of it cannot be written")
    }
}

fn rancher(all: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    // A key may end in `+`: its values are added to those of earlier files.
    let kept = all.into_iter().filter_map(|(key, value)| {
        let flag = flag_of(key.strip_suffix('+').unwrap_or(&key))?;
        Some((key, passed(flag, value)))
    });
    kept.collect()
}

/// What is passed of the value of a flag in a configuration.
fn passed(flag: &str, value: Value) -> Value {
    if !matches!(flag, DATASTORE | SERVER | KUBELET_ARG | NODE_LABEL) {
        return value;
    }
    let mut kept = words(&value).into_iter().filter_map(|word| Some(Value::from(kept_of(flag, &word)?)));
    // What is left out still replaces what an earlier file gave.
    if value.is_array() { kept.collect() } else { kept.next().unwrap_or_else(|| "".into()) }
}

/// What is kept of one value of a flag.
fn kept_of(flag: &str, value: &str) -> Option<String> {
    match flag {
        // The rest is a connection string with a password. Empty means unset; what has no scheme is a path of sqlite.
        DATASTORE if value.is_empty() => Some(String::new()),
        DATASTORE => Some(scheme(value).map_or_else(|| "sqlite".into(), |scheme| format!("{scheme}://"))),
        SERVER if value.is_empty() => Some(String::new()),
        // Everything but a user name and a password.
        SERVER => {
            let (scheme, rest) = value.split_once("://").unwrap_or(("https", value));
            let host = rest.rsplit('@').next().unwrap_or_default();
            Some(format!("{}://{host}", if scheme == "http" { "http" } else { "https" }))
        }
        // Only the argument that names the `resolv.conf` of pods.
        KUBELET_ARG => value.trim_start_matches('-').starts_with("resolv-conf=").then(|| value.to_owned()),
        // Only labels of topology: others may hold anything.
        NODE_LABEL => {
            let of_topology = |(key, _): &(&str, &str)| [REGION, ZONE, BETA_REGION, BETA_ZONE].contains(key);
            value.split_once('=').filter(of_topology).map(|_| value.to_owned())
        }
        _ => Some(value.to_owned()),
    }
}

/// The lines that say how the program is started, and of its flags those that may be known.
fn unit(text: &str) -> String {
    let mut kept = String::from("[Service]\n");
    for (key, value) in service_lines(text) {
        let words = split(&value);
        let words: Vec<String> = match key.as_str() {
            // A path with quotes or escapes is none that is read.
            "EnvironmentFile" if value.contains(['\\', '"', '\'']) => continue,
            "EnvironmentFile" => vec![value],
            "Environment" => {
                let pairs = words.iter().filter_map(|word| word.split_once('='));
                let kept: Vec<String> =
                    pairs.filter_map(|(name, value)| Some(quoted(&assignment(name, value)?))).collect();
                // Without a value it would begin the list anew.
                if kept.is_empty() && !words.is_empty() {
                    continue;
                }
                kept
            }
            "ExecStart" => {
                let command = words.iter().position(|word| word == "server" || word == "agent");
                let (before, after) = words.split_at(command.map_or(words.len().min(1), |at| at + 1));
                // A word that is a variable tells no more than that there is one.
                let is_variable = |word: &&String| {
                    word.strip_prefix('$')
                        .is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
                };
                let variables = after.iter().filter(is_variable);
                let flags = flags(after)
                    .into_iter()
                    .filter_map(|(key, value)| Some(quoted(&format!("--{key}={}", kept_of(key, &value)?))));
                let before = [before.first(), before.last().filter(|_| before.len() > 1)];
                let before = before.into_iter().flatten().map(|word| quoted(word));
                before.chain(variables.cloned()).chain(flags).collect()
            }
            _ => continue,
        };
        kept.push_str(&format!("{key}={}\n", words.join(" ")));
    }
    kept
}

/// A word as [`split`] reads it back. A `$` that is kept stands for the same variable.
fn quoted(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

/// The proxies, every one in its line, and then the variables that stand in for flags.
fn environment(text: &str) -> String {
    let mut kept = rancher_agent::environment::excerpt(text);
    for (name, value) in assignments(text) {
        let assignment = assignment(&name, &value);
        if let Some((name, value)) = assignment.as_deref().and_then(|kept| kept.split_once('=')) {
            kept.push_str(&format!("{}{name}={}", if kept.is_empty() { "" } else { "\n" }, quoted(value)));
        }
    }
    kept
}

/// What may be known of a variable that stands in for a flag.
fn assignment(name: &str, value: &str) -> Option<String> {
    if matches!(name, "K3S_CONFIG_FILE" | "RKE2_CONFIG_FILE") {
        return Some(format!("{name}={value}"));
    }
    Some(format!("{name}={}", kept_of(flag_of(name)?, value)?))
}

/// The container `etcd` with the flags that may be known.
fn pod(all: &Value) -> BTreeMap<String, Value> {
    let containers = all.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let kept: Vec<Value> = containers
        .filter(|container| container["name"] == "etcd")
        .map(|container| {
            let argument_lists =
                [&container["command"], &container["args"]].into_iter().filter_map(Value::as_array);
            let flags = etcd_flags(argument_lists.flatten().filter_map(Value::as_str)).into_iter();
            let known = flags.filter(|(key, _)| ETCD_KEYS.contains(key));
            let command: Vec<String> = known.map(|(key, value)| format!("--{key}={value}")).collect();
            json!({ "name": "etcd", "command": command })
        })
        .collect();
    BTreeMap::from([("spec".to_owned(), json!({ "containers": kept }))])
}

/// The excerpt as a file that nobody can change.
pub(super) fn to_file(excerpt: &str) -> io::Result<OwnedFd> {
    let descriptor = memfd_create("outrider-excerpt", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(descriptor);
    file.write_all(excerpt.as_bytes())?;
    file.rewind()?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn parsed(document: Document, text: &str) -> Result<BTreeMap<String, Value>, &'static str> {
        Ok(serde_json::from_str(&document.excerpt(text)?).unwrap())
    }

    fn excerpt(text: &str) -> Result<BTreeMap<String, Value>, &'static str> {
        parsed(Document::Rancher, text)
    }

    #[test]
    fn of_etcd_passes_who_the_member_means_to_be() {
        let text = "name: n1-1a2b3c4d\nelection-timeout: 5000\nauth-token: s3cret\ninitial-cluster-token: s3cret\n\
                    client-transport-security:\n  key-file: /s3cret\nlisten-peer-urls: https://10.0.0.1:2380\n";
        let kept = parsed(Document::EtcdConfig, text).unwrap();
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
        let kept = parsed(Document::EtcdPod, &text).unwrap();
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
        let kept = Document::Rancher.excerpt(text).unwrap();
        File::from(to_file(&kept).unwrap()).read_to_string(&mut out).unwrap();
        assert!(!out.contains("s3cret") && !out.contains("K10"), "{out}");
        let expected = r#"{"data-dir":"/data","datastore-endpoint":"postgres://","node-ip":["10.0.0.1"],"node-ip+":["10.0.0.2"]}"#;
        assert_eq!(out, expected);
    }

    #[test]
    fn of_a_server_its_address_and_of_arguments_one() {
        let text = "server: https://u:s3cret@r.example:9345\nkubelet-arg: [max-pods=9, resolv-conf=/x, token=s3cret]\n\
                    cluster-dns: 10.9.0.10\nagent-token: s3cret\n";
        let kept = Document::Rancher.excerpt(text).unwrap();
        let expected = r#"{"cluster-dns":"10.9.0.10","kubelet-arg":["resolv-conf=/x"],"server":"https://r.example:9345"}"#;
        assert_eq!(kept, expected);
    }

    #[test]
    fn of_rancher_system_agent_passes_where_rancher_is_and_no_token() {
        let kubeconfig = "clusters:\n- cluster:\n    server: https://r.example\n    certificate-authority-data: QUJD\n  name: agent\n\
                          users:\n- user:\n    token: s3cret\n  name: agent\n";
        let text = json!({"kubeConfig": kubeconfig, "namespace": "fleet-default", "secretName": "m-plan", "token": "s3cret"});
        let passed = Document::RancherConnection.excerpt(&text.to_string()).unwrap();
        assert!(
            !passed.contains("s3cret") && passed.contains("r.example") && passed.contains("QUJD"),
            "{passed}"
        );
        let config = "workDirectory: /x\nremoteEnabled: true\nsecret: s3cret\n";
        let passed = Document::SystemAgent.excerpt(config).unwrap();
        assert_eq!(passed, r#"{"remoteEnabled":true}"#);
        let environment = "CATTLE_TOKEN=s3cret\nHTTPS_PROXY=http://u:s3cret@p:1\n";
        let passed = Document::Environment.excerpt(environment).unwrap();
        assert_eq!(passed, "\nHTTPS_PROXY='http://***@p:1'");
    }

    #[test]
    fn unusual_datastores_keep_their_kind() {
        let kind = |text: &str| excerpt(text).unwrap()[DATASTORE].clone();
        assert_eq!(kind("datastore-endpoint: ''"), "");
        assert_eq!(kind("datastore-endpoint: /var/db"), "sqlite");
        assert_eq!(kind("datastore-endpoint: [a, b]"), json!(["sqlite", "sqlite"]));
        assert_eq!(kind("datastore-endpoint: [postgres://u:s3cret@db/k3s]"), json!(["postgres://"]));
        assert_eq!(kind("datastore-endpoint: u:s3cret@db://x"), "sqlite");
        // Nothing is unset, and never a datastore.
        assert_eq!(kind("datastore-endpoint:"), "");
        assert_eq!(kind("datastore-endpoint: []"), json!([]));
        let appended = excerpt("datastore-endpoint+: mysql://u:s3cret@db").unwrap();
        assert_eq!(appended["datastore-endpoint+"], "mysql://");
    }

    #[test]
    fn of_a_unit_passes_how_it_is_started_without_secrets() {
        let text = "[Unit]\nDescription=s3cret\n[Service]\nEnvironmentFile=-/etc/systemd/system/k3s.service.env\n\
                    Environment=K3S_TOKEN=s3cret \"K3S_DATASTORE_ENDPOINT=mysql://u:s3cret@db\" K3S_DATA_DIR=/d\n\
                    ExecStartPre=/bin/echo s3cret\nExecStart=\nExecStart=/usr/local/bin/k3s \\\n  server \\\n\
                    \t'--token' \\\n\t's3cret' '--cluster-init' --data-dir \"/a b\" $K3S_MORE \\\n\
                    --datastore-endpoint=postgres://u:s3cret@db/k3s --node-label=s3cret=1\n";
        let kept = Document::Unit.excerpt(text).unwrap();
        assert!(!kept.contains("s3cret"), "{kept}");
        let lines = service_lines(&kept);
        let of =
            |key: &str| lines.iter().filter(|(k, _)| k == key).map(|(_, v)| split(v)).collect::<Vec<_>>();
        assert_eq!(of("Environment"), [vec!["K3S_DATASTORE_ENDPOINT=mysql://", "K3S_DATA_DIR=/d"]]);
        let command = "/usr/local/bin/k3s server $K3S_MORE --cluster-init=true";
        let mut words: Vec<&str> = command.split(' ').collect();
        words.extend(["--data-dir=/a b", "--datastore-endpoint=postgres://"]);
        assert_eq!(of("ExecStart"), [Vec::<&str>::new(), words]);
        assert_eq!(Document::Unit.excerpt(&kept).unwrap(), kept, "what was left out once stays out");
    }

    #[test]
    fn of_an_environment_pass_the_variables_of_flags_that_may_be_known() {
        let text = "# s3cret\nK3S_TOKEN='s3cret'\nK3S_CONFIG_FILE=/etc/k3s.yaml\nAWS_SECRET_ACCESS_KEY=s3cret\n\
                    RKE2_DATASTORE_ENDPOINT=\"postgres://u:s3cret@db\"\nK3S_DATA_DIR='/a b'\nPATH=/s3cret\n";
        let kept = Document::Environment.excerpt(text).unwrap();
        let expected = [
            ("K3S_CONFIG_FILE", "/etc/k3s.yaml"),
            ("RKE2_DATASTORE_ENDPOINT", "postgres://"),
            ("K3S_DATA_DIR", "/a b"),
        ];
        assert_eq!(assignments(&kept), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn of_an_environment_pass_the_proxies_in_their_lines_and_the_flags_behind_them() {
        let text =
            "K3S_TOKEN=s3cret\nK3S_URL=https://u:s3cret@r.example:6443\nHTTPS_PROXY=http://u:s3cret@p:1\n";
        let kept = Document::Environment.excerpt(text).unwrap();
        assert_eq!(kept, "\n\nHTTPS_PROXY='http://***@p:1'\nK3S_URL=\"https://r.example:6443\"");
        assert_eq!(Document::Environment.excerpt(&kept).unwrap(), kept);
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
        let mut file = File::from(to_file("{}").unwrap());
        assert!(file.write_all(b"x").is_err());
        assert!(file.set_len(0).is_err());
    }
}
