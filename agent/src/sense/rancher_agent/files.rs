//! The configuration and the connection file of rancher-system-agent, and what its folders tell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use outrider_protocol::{
    CertificateFacts, Fact, GuardedFile, PlanFacts, RancherConnection, SystemAgentConfig, Timestamp,
    UnknownCause,
};
use serde_json::{Value, json};

use crate::net::{Url, certificate};
use crate::sense::{Entry, SenseContext, file};

/// Its configuration.
pub(super) const CONFIG: &str = "/etc/rancher/agent/config.yaml";
/// Folders it may live in: the usual one, and that of systems with a read-only `/var` of their own kind.
pub(super) const FOLDERS: [&str; 2] = ["/var/lib/rancher/agent", "/etc/rancher/agent/var"];
const CONNECTION: &str = "rancher2_connection_info.json";
const APPLIED: &str = "-applied.plan";
const MAX: u64 = 1024 * 1024;
/// Most authorities that are kept.
const MAX_AUTHORITIES: usize = 8;

/// What may be known of its configuration; the error quotes nothing.
pub fn config_excerpt(all: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    const KEYS: [&str; 5] =
        ["remoteEnabled", "localEnabled", "connectionInfoFile", "appliedPlanDirectory", "interlockDirectory"];
    all.into_iter().filter(|(key, _)| KEYS.contains(&key.as_str())).collect()
}

/// What may be known of the connection file, in its own form: the clusters of the kubeconfig, never its users.
pub fn connection_excerpt(all: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let mut kept: BTreeMap<String, Value> = all
        .iter()
        .filter(|(key, _)| matches!(key.as_str(), "namespace" | "secretName"))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    if let Some(text) = all.get("kubeConfig").and_then(Value::as_str) {
        let cluster = cluster_of(text).map(|(server, authority)| {
            json!({ "clusters": [{ "cluster": { "server": server, "certificate-authority-data": authority } }] }).to_string()
        });
        kept.insert("kubeConfig".to_owned(), cluster.unwrap_or_default().into());
    }
    kept
}

/// Server (without credentials) and authorities of the cluster that a kubeconfig's current context names. An excerpt has one
/// cluster and no context.
fn cluster_of(kubeconfig: &str) -> Option<(String, String)> {
    let all: Value = serde_saphyr::from_str(kubeconfig).ok()?;
    let named = |list: &str, name: &Value| {
        let entries = all.get(list)?.as_array()?;
        entries.iter().find(|entry| entry.get("name") == Some(name))
    };
    let cluster =
        match all.get("current-context").filter(|name| name.as_str().is_some_and(|name| !name.is_empty())) {
            Some(context) => {
                named("clusters", named("contexts", context)?.pointer("/context/cluster")?)?.get("cluster")?
            }
            None => all.pointer("/clusters/0/cluster")?,
        };
    let text = |key: &str| cluster.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let server = text("server");
    let server = Url::parse(&server).map(|url| url.to_string()).unwrap_or_else(|_| {
        // Something is wrong with it, and that is for the name's own rule to say.
        if server.contains('@') { String::new() } else { server.chars().take(300).collect() }
    });
    Some((server, text("certificate-authority-data")))
}

/// Reads the configuration. Blocking.
pub(super) fn config(cx: &SenseContext) -> Fact<SystemAgentConfig> {
    let (values, guarded) = match read(cx, Path::new(CONFIG)) {
        Ok(read) => read,
        Err(fact) => return fact.retyped(),
    };
    let flag = |key: &str, default: bool| values.get(key).and_then(Value::as_bool).unwrap_or(default);
    let text = |key: &str| values.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let config = SystemAgentConfig {
        file: guarded,
        remote: flag("remoteEnabled", false),
        local: flag("localEnabled", false),
        connection_file: text("connectionInfoFile"),
    };
    Fact::known(config, CONFIG, cx.now())
}

/// Reads the connection file that the configuration names, else the usual one. Blocking.
pub(super) fn connection(cx: &SenseContext, config: Option<&SystemAgentConfig>) -> Fact<RancherConnection> {
    let named = config.map(|c| c.connection_file.clone()).filter(|path| path.starts_with('/'));
    let usual = FOLDERS.iter().map(|folder| format!("{folder}/{CONNECTION}"));
    let paths: Vec<String> = match named {
        Some(path) => vec![path],
        None => usual.collect(),
    };
    let mut absent = Fact::absent(paths.join(", "), cx.now());
    for path in paths {
        match read(cx, Path::new(&path)) {
            Ok((values, guarded)) => return Fact::known(connected(cx, &values, guarded), path, cx.now()),
            Err(Failed(Fact::Absent { .. })) => {}
            Err(failed) => {
                absent = failed.retyped();
                break;
            }
        }
    }
    absent
}

fn connected(cx: &SenseContext, values: &BTreeMap<String, Value>, file: GuardedFile) -> RancherConnection {
    let text = |key: &str| values.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (server, authority) = cluster_of(&text("kubeConfig")).unwrap_or_default();
    RancherConnection {
        authorities: authorities(cx, &authority, &file.path),
        file,
        server,
        namespace: text("namespace"),
        secret_name: text("secretName"),
    }
}

/// Certificates of a kubeconfig's `certificate-authority-data`.
fn authorities(cx: &SenseContext, data: &str, path: &str) -> Fact<Vec<CertificateFacts>> {
    let source = format!("certificate-authority-data in {path}");
    if data.is_empty() {
        return Fact::absent(source, cx.now());
    }
    let bad = |detail: &str| Fact::unknown(UnknownCause::InvalidInput, detail, source.clone(), cx.now());
    let Ok(pem) = BASE64.decode(data) else { return bad("it is not base64") };
    let facts = certificate::certificates(&pem)
        .and_then(|chain| chain.iter().take(MAX_AUTHORITIES).map(|der| certificate::facts(der)).collect());
    match facts {
        Ok(found) => Fact::known(found, source, cx.now()),
        Err(why) => bad(&why.to_string()),
    }
}

/// Plans and interlocks. Blocking; no plan is opened.
pub(super) fn plans(cx: &SenseContext) -> Fact<PlanFacts> {
    let mut seen = None;
    for folder in FOLDERS {
        let describe = |name: &str| cx.opener.describe(&Path::new(folder).join(name));
        let mut facts = PlanFacts::default();
        let mut is_here = false;
        match describe("applied") {
            Ok(applied) => {
                is_here = true;
                let plans = applied.entries.iter().filter(|e| e.file && e.name.ends_with(APPLIED));
                facts.begun = u32::try_from(plans.clone().count()).unwrap_or(u32::MAX);
                facts.last_begun = plans.map(|e| Timestamp::from_millis(e.modified_ms)).max();
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Fact::from_io(&e, format!("{folder}/applied"), cx.now()),
        }
        match describe("interlock") {
            Ok(interlock) => {
                is_here = true;
                let since = |name: &str| interlock.file(name).map(|e| Timestamp::from_millis(e.modified_ms));
                facts.active_since = since("applyinator-active");
                facts.restart_pending_since = since("restart-pending");
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Fact::from_io(&e, format!("{folder}/interlock"), cx.now()),
        }
        if is_here {
            seen = Some(Fact::known(facts, folder, cx.now()));
            break;
        }
    }
    seen.unwrap_or_else(|| Fact::absent(FOLDERS.join(", "), cx.now()))
}

/// A read that came to no value.
#[derive(Debug)]
struct Failed(Fact<()>);

impl Failed {
    fn retyped<T>(self) -> Fact<T> {
        match self.0 {
            Fact::Known { source, at, .. } | Fact::Absent { source, at } => Fact::Absent { source, at },
            Fact::NotApplicable { reason, at } => Fact::NotApplicable { reason, at },
            Fact::Unknown { cause, detail, source, at } => Fact::Unknown { cause, detail, source, at },
        }
    }
}

/// A document and who owns its file. An error never quotes the text.
fn read(cx: &SenseContext, path: &Path) -> Result<(BTreeMap<String, Value>, GuardedFile), Failed> {
    let source = path.display().to_string();
    let io = |e: &std::io::Error| Failed(Fact::from_io(e, source.clone(), cx.now()));
    let guarded = guarded(cx, path).map_err(|e| io(&e))?;
    let bytes = cx.opener.open(path).and_then(|f| file::read_bounded(f, MAX)).map_err(|e| io(&e))?;
    let bad =
        |detail: &str| Failed(Fact::unknown(UnknownCause::InvalidInput, detail, source.clone(), cx.now()));
    let text = String::from_utf8(bytes).map_err(|_| bad("it is not UTF-8"))?;
    if text.trim().is_empty() {
        return Err(bad("it is empty"));
    }
    let values: BTreeMap<String, Value> =
        serde_saphyr::from_str(&text).map_err(|_| bad("it is neither a JSON nor a YAML mapping"))?;
    Ok((values, guarded))
}

/// Mode, owner and time of a file that may lie in a folder of root's.
fn guarded(cx: &SenseContext, path: &Path) -> std::io::Result<GuardedFile> {
    let folder = path.parent().map(Path::to_owned).unwrap_or_else(|| PathBuf::from("/"));
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let described = cx.opener.describe(&folder)?;
    let entry: &Entry = described.file(name).ok_or(std::io::ErrorKind::NotFound)?;
    Ok(GuardedFile {
        path: path.display().to_string(),
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        modified: Timestamp::from_millis(entry.modified_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_that_of_the_current_context() {
        let clusters = "clusters:\n- name: old\n  cluster: {server: 'https://old.example'}\n\
                        - name: new\n  cluster: {server: 'https://new.example', certificate-authority-data: QQ==}\n";
        let contexts =
            "contexts:\n- name: a\n  context: {cluster: old}\n- name: b\n  context: {cluster: new}\n";
        let of = |current: &str| cluster_of(&format!("{clusters}{contexts}current-context: {current}\n"));
        assert_eq!(of("b"), Some(("https://new.example".into(), "QQ==".into())));
        assert_eq!(of("a"), Some(("https://old.example".into(), String::new())));
        assert_eq!(of("gone"), None);
        // An excerpt has one cluster and no context, and says the same again.
        assert_eq!(cluster_of(clusters).unwrap().0, "https://old.example");
        let kubeconfig = format!("{clusters}{contexts}current-context: b\n");
        let whole = BTreeMap::from([("kubeConfig".to_owned(), Value::from(kubeconfig))]);
        let kept = connection_excerpt(&whole);
        let text = kept.get("kubeConfig").and_then(Value::as_str).unwrap();
        assert_eq!(cluster_of(text), of("b"));
    }
}
