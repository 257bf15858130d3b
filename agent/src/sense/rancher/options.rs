//! Flags and their values, as the two programs put them together.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

/// The one flag whose value is a secret, but for its scheme.
pub(crate) const DATASTORE: &str = "datastore-endpoint";
/// Where the server is that was joined; a user name and a password may stand in it.
pub(crate) const SERVER: &str = "server";
/// Arguments of the kubelet, of which some may be secret.
pub(crate) const KUBELET_ARG: &str = "kubelet-arg";
/// Labels that the kubelet gives its Node.
pub(crate) const NODE_LABEL: &str = "node-label";
/// Most values of one flag.
const MAX_VALUES: usize = 64;

/// What a flag takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// One value: the last that is given.
    Text,
    /// Nothing, or a truth value.
    Nothing,
    /// Several, given again and again or with commas.
    List,
}

/// The flags that matter here, none of them a secret but for those that have a name of their own above; what they take; the end of the name of the
/// environment variable that stands in for them.
const KEYS: [(&str, Takes, Option<&str>); 19] = [
    ("data-dir", Takes::Text, Some("DATA_DIR")),
    (DATASTORE, Takes::Text, Some("DATASTORE_ENDPOINT")),
    ("cluster-init", Takes::Nothing, Some("CLUSTER_INIT")),
    ("disable-etcd", Takes::Nothing, None),
    ("etcd-snapshot-dir", Takes::Text, None),
    ("etcd-s3", Takes::Nothing, None),
    ("etcd-disable-snapshots", Takes::Nothing, None),
    ("node-ip", Takes::List, None),
    ("node-external-ip", Takes::List, None),
    ("advertise-address", Takes::Text, None),
    ("tls-san", Takes::List, None),
    (SERVER, Takes::Text, Some("URL")),
    ("cluster-cidr", Takes::List, None),
    ("service-cidr", Takes::List, None),
    ("cluster-dns", Takes::List, None),
    ("cluster-domain", Takes::Text, None),
    ("resolv-conf", Takes::Text, Some("RESOLV_CONF")),
    (KUBELET_ARG, Takes::List, None),
    (NODE_LABEL, Takes::List, None),
];

/// The name of a flag that matters, by any of its names, and what it takes.
fn key(name: &str) -> Option<(&'static str, Takes)> {
    let name = match name {
        "d" => "data-dir",
        "s" => SERVER,
        name => name,
    };
    KEYS.iter().find(|(key, ..)| *key == name).map(|(key, takes, _)| (*key, *takes))
}

/// The flag that matters by this key of a configuration, or that this environment variable stands in for.
pub(crate) fn flag_of(name: &str) -> Option<&'static str> {
    let end = name.strip_prefix("K3S_").or_else(|| name.strip_prefix("RKE2_"));
    let variable = || KEYS.iter().find(|(_, _, e)| e.is_some() && *e == end).map(|(key, ..)| *key);
    key(name).map(|(key, _)| key).or_else(variable)
}

/// The scheme of a datastore's endpoint; none where what stands before `://` is no scheme and may be a secret.
pub fn scheme(endpoint: &str) -> Option<&str> {
    let (scheme, _) = endpoint.split_once("://")?;
    let is_scheme =
        |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    (!scheme.is_empty() && is_scheme(scheme)).then_some(scheme)
}

/// What a server or an agent was told, by flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    values: BTreeMap<&'static str, Vec<String>>,
}

impl Options {
    /// Takes what one configuration file sets: a later file replaces what an earlier one set, and `key+` adds to it. The
    /// error shows nothing of the file: it may hold a token.
    pub fn merge(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8")?;
        if text.trim().is_empty() {
            return Ok(());
        }
        for (name, value) in mapping(text)? {
            let (name, adds) = match name.strip_suffix('+') {
                Some(name) => (name, true),
                None => (name.as_str(), false),
            };
            let Some((key, _)) = key(name) else { continue };
            let mut given = words(&value);
            let earlier = self.values.entry(key).or_default();
            if adds {
                given.retain(|word| !word.is_empty());
                earlier.append(&mut given);
            } else {
                *earlier = given;
            }
            earlier.truncate(MAX_VALUES);
            // An empty list is no argument at all.
            if earlier.is_empty() {
                self.values.remove(key);
            }
        }
        Ok(())
    }

    /// Takes the arguments of a command line, which come after those of the configuration.
    pub(super) fn append(&mut self, arguments: &[String]) {
        for (key, value) in flags(arguments) {
            let values = self.values.entry(key).or_default();
            values.push(value);
            values.truncate(MAX_VALUES);
        }
    }

    /// Takes what the environment says of flags that are given nowhere.
    pub(super) fn fill_in(&mut self, prefix: &str, environment: &BTreeMap<String, String>) {
        for (key, _, end) in KEYS {
            let value = end.and_then(|end| environment.get(&format!("{prefix}{end}")));
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                self.values.entry(key).or_insert_with(|| vec![value.clone()]);
            }
        }
    }

    /// The value of a flag that takes one; an empty one unsets it.
    fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key)?.last().map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// A flag that takes a truth value, in the words that Go takes, and YAML 1.1.
    fn is_set(&self, key: &str) -> bool {
        self.text(key).is_some_and(|value| {
            matches!(value.to_ascii_lowercase().as_str(), "1" | "t" | "true" | "y" | "yes" | "on")
        })
    }

    fn list(&self, key: &str) -> impl Iterator<Item = &str> {
        let values = self.values.get(key).into_iter().flatten();
        values.flat_map(|value| value.split(',')).map(str::trim).filter(|word| !word.is_empty())
    }

    /// The data folder.
    pub fn data_dir(&self) -> Option<&str> {
        self.text("data-dir")
    }

    /// Where the datastore is; it may carry a password.
    pub fn datastore_endpoint(&self) -> Option<&str> {
        self.text(DATASTORE)
    }

    /// This server begins an etcd of its own.
    pub fn cluster_init(&self) -> bool {
        self.is_set("cluster-init")
    }

    /// This server runs without etcd.
    pub fn disable_etcd(&self) -> bool {
        self.is_set("disable-etcd")
    }

    /// Where snapshots go.
    pub fn snapshot_dir(&self) -> Option<&str> {
        self.text("etcd-snapshot-dir")
    }

    /// `node-label`, as written: `key=value` each.
    pub fn node_labels(&self) -> impl Iterator<Item = &str> {
        self.values.get(NODE_LABEL).into_iter().flatten().map(String::as_str)
    }

    /// They also go to S3.
    pub fn object_storage(&self) -> bool {
        self.is_set("etcd-s3")
    }

    /// None are taken.
    pub fn snapshots_disabled(&self) -> bool {
        self.is_set("etcd-disable-snapshots")
    }

    /// The node's addresses, the first first: its family is etcd's.
    pub fn node_ips(&self) -> Vec<IpAddr> {
        self.list("node-ip").filter_map(|word| word.parse().ok()).collect()
    }

    /// The server that was joined, as written.
    pub(crate) fn server(&self) -> Option<&str> {
        self.text(SERVER)
    }

    /// Networks of the pods.
    pub(crate) fn pod_networks(&self) -> impl Iterator<Item = &str> {
        self.list("cluster-cidr")
    }

    /// Networks of the services.
    pub(crate) fn service_networks(&self) -> impl Iterator<Item = &str> {
        self.list("service-cidr")
    }

    /// Addresses of the cluster DNS.
    pub(crate) fn cluster_dns(&self) -> impl Iterator<Item = &str> {
        self.list("cluster-dns")
    }

    /// The domain of the cluster's names.
    pub(crate) fn cluster_domain(&self) -> Option<&str> {
        self.text("cluster-domain")
    }

    /// The `resolv.conf` that the kubelet is given for pods.
    pub(crate) fn resolv_conf(&self) -> Option<&str> {
        let argument = || {
            let arguments = self.list(KUBELET_ARG).map(|argument| argument.trim_start_matches('-'));
            arguments.filter_map(|argument| argument.strip_prefix("resolv-conf=")).last()
        };
        self.text("resolv-conf").or_else(argument).filter(|path| !path.is_empty())
    }

    /// Nothing that matters here was told.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Names and addresses that the serving certificates have to cover besides the node's own.
    pub fn wanted_names(&self) -> Vec<&str> {
        ["tls-san", "node-external-ip", "advertise-address"].iter().flat_map(|key| self.list(key)).collect()
    }
}

/// The mapping of a configuration file. Of a key that is there twice the last counts, as there.
pub(crate) fn mapping(text: &str) -> Result<BTreeMap<String, Value>, &'static str> {
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    // A file of comments alone is a document without a value.
    let values: Option<BTreeMap<String, Value>> =
        serde_saphyr::from_str_with_options(text, options).map_err(|_| "not a YAML mapping")?;
    Ok(values.unwrap_or_default())
}

/// The words of a value: one for each entry of a list. Nothing is the empty word, which unsets.
pub(crate) fn words(value: &Value) -> Vec<String> {
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        _ => String::new(),
    };
    match value {
        Value::Array(list) => list.iter().map(word).collect(),
        value => vec![word(value)],
    }
}

/// The flags that matter among the arguments after `server` or `agent`.
pub(crate) fn flags(arguments: &[String]) -> Vec<(&'static str, String)> {
    let mut arguments = arguments.iter();
    let mut found = Vec::new();
    while let Some(word) = arguments.next() {
        // Go's flag package and the one used here take one dash or two.
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        let Some((key, takes)) = key(name) else { continue };
        let value = match (value, takes) {
            (Some(value), _) => value,
            (None, Takes::Nothing) => "true".to_owned(),
            (None, _) => arguments.next().cloned().unwrap_or_default(),
        };
        found.push((key, value));
    }
    found
}
