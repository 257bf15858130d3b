//! A hosted cluster as Rancher keeps it: read from `clusters.management.cattle.io`, or from the operators' own
//! `EKSClusterConfig`, `AKSClusterConfig` and `GKEClusterConfig` (`facts/hosted-sync.md`, names S, A, U, CC).

use serde_json::Value;

use super::{Document, Provider, known};

/// Where the cluster came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Rancher created it.
    Created,
    /// It was there before, and was registered with Rancher.
    Imported,
}

impl Origin {
    /// The word in JSON and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Created => "created",
            Origin::Imported => "imported",
        }
    }
}

/// Which object it was read from: it decides what can be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `clusters.management.cattle.io`: holds S, A and U.
    Cluster,
    /// `EKSClusterConfig` and its likes: holds S and the operator's phase.
    ClusterConfig,
}

/// Whether an update is under way, as far as the object tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// None.
    Idle,
    /// One is, with the object's own words.
    Updating(String),
    /// The object does not tell.
    Unknown,
}

/// A hosted cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Hosted {
    /// Its name: the display name where there is one.
    pub name: String,
    /// Whose it is.
    pub provider: Provider,
    /// Where it came from.
    pub origin: Origin,
    /// Which object it was read from.
    pub source: Source,
    /// S.
    pub spec: Document,
    /// A; `None` when S was never applied, or the object does not hold it.
    pub applied: Option<Document>,
    /// U; `None` when the cloud was never read, or the object does not hold it.
    pub upstream: Option<Document>,
    /// Unix seconds of Rancher's last refresh.
    pub last_refresh: Option<i64>,
    /// Whether an update is under way.
    pub progress: Progress,
    /// What Rancher says went wrong while syncing.
    pub sync_error: Option<String>,
}

/// Rancher's annotation with the time of its last refresh, in Unix seconds.
pub const LAST_REFRESH: &str = "clusters.management.cattle.io/ke-last-refresh";

const SHOWN_BY: &str = "give what `kubectl get clusters.management.cattle.io NAME -o yaml` prints";

/// Reads one object. An error says what was found and what to give instead.
pub fn read(object: &Value) -> Result<Hosted, String> {
    let Some(kind) = object.get("kind").and_then(Value::as_str) else {
        return Err(format!("the document has no kind; {SHOWN_BY}"));
    };
    match kind {
        "Cluster" => match group(object) {
            "management.cattle.io" => cluster(object),
            "provisioning.cattle.io" => Err(named_by_provisioning(object)),
            other => Err(format!("a Cluster of the API group {other:?} is not Rancher's; {SHOWN_BY}")),
        },
        "EKSClusterConfig" => cluster_config(object, Provider::Eks),
        "AKSClusterConfig" => cluster_config(object, Provider::Aks),
        "GKEClusterConfig" => cluster_config(object, Provider::Gke),
        "List" | "ClusterList" | "EKSClusterConfigList" | "AKSClusterConfigList" | "GKEClusterConfigList" => {
            only_one(object)
        }
        other => Err(format!(
            "kind is {other:?}; {SHOWN_BY}, or an EKSClusterConfig, AKSClusterConfig or GKEClusterConfig"
        )),
    }
}

/// The cloud's view alone: a document of fields, or an object that holds one.
pub fn read_upstream(provider: Provider, value: &Value) -> Result<Document, String> {
    let upstream = match value.get("kind").and_then(Value::as_str) {
        Some(_) => {
            let hosted = read(value)?;
            if hosted.provider != provider {
                return Err(format!(
                    "it is of {}, the cluster is of {}",
                    hosted.provider.as_str(),
                    provider.as_str()
                ));
            }
            match hosted.source {
                Source::Cluster => hosted.upstream.ok_or("its status holds no upstreamSpec")?,
                Source::ClusterConfig => {
                    return Err(
                        "a ClusterConfig holds what is desired, not the cloud's view; give the upstreamSpec"
                            .to_owned(),
                    );
                }
            }
        }
        None => object_at(value, "the document")?.clone(),
    };
    if let Some(wrapped) = upstream.get("upstreamSpec").and_then(Value::as_object) {
        return Ok(wrapped.clone());
    }
    if !upstream.keys().any(|key| provider.field(key).is_some()) {
        let some: Vec<&str> = provider.fields().iter().map(|f| f.name).take(4).collect();
        return Err(format!(
            "none of its fields is one of {}'s, such as {}; give the fields of an upstreamSpec",
            provider.as_str(),
            some.join(", ")
        ));
    }
    Ok(upstream)
}

fn group(object: &Value) -> &str {
    let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    version.split_once('/').map_or("", |(group, _)| group)
}

fn only_one(list: &Value) -> Result<Hosted, String> {
    let items = list.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    match items {
        [] => Err("the list is empty".to_owned()),
        [one] => read(one),
        several => {
            let names: Vec<&str> = several.iter().take(20).map(metadata_name).collect();
            Err(format!("the list holds {} objects; give one of them: {}", several.len(), names.join(", ")))
        }
    }
}

fn named_by_provisioning(object: &Value) -> String {
    let name = object.pointer("/status/clusterName").and_then(Value::as_str).unwrap_or("NAME");
    format!(
        "this is the provisioning.cattle.io object, which holds no cloud configuration; give what \
         `kubectl get clusters.management.cattle.io {name} -o yaml` prints"
    )
}

fn metadata_name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// Where Rancher's cluster keeps the configuration and the status of each provider.
const KEYS: [(Provider, &str, &str); 3] = [
    (Provider::Eks, "eksConfig", "eksStatus"),
    (Provider::Aks, "aksConfig", "aksStatus"),
    (Provider::Gke, "gkeConfig", "gkeStatus"),
];

fn cluster(object: &Value) -> Result<Hosted, String> {
    let spec = object.get("spec").and_then(Value::as_object).ok_or("the cluster has no spec")?;
    let held: Vec<_> = KEYS.iter().filter(|(_, config, _)| known(spec, config).is_some()).collect();
    let (provider, config, status) = match held.as_slice() {
        [one] => **one,
        [] => return Err(not_hosted(object)),
        several => {
            let keys: Vec<&str> = several.iter().map(|(_, config, _)| *config).collect();
            return Err(format!("spec holds {} at once; a cluster is of one provider", keys.join(" and ")));
        }
    };
    let at = |pointer: String| object.pointer(&pointer).filter(|value| !value.is_null());
    let part = |pointer: String| at(pointer.clone()).map(|value| object_at(value, &pointer[1..])).transpose();
    let spec = object_at(&spec[config], &format!("spec.{config}"))?.clone();
    let display = at("/spec/displayName".to_owned()).and_then(Value::as_str).filter(|name| !name.is_empty());
    Ok(Hosted {
        name: display.unwrap_or_else(|| metadata_name(object)).to_owned(),
        provider,
        origin: origin(&spec)?,
        source: Source::Cluster,
        applied: part(format!("/status/appliedSpec/{config}"))?.cloned(),
        upstream: part(format!("/status/{status}/upstreamSpec"))?.cloned(),
        spec,
        last_refresh: last_refresh(object)?,
        progress: progress_of_cluster(object),
        sync_error: updated(object)
            .and_then(|(_, message)| message.contains("[Syncing error").then(|| message.to_owned())),
    })
}

fn not_hosted(object: &Value) -> String {
    let driver = object.pointer("/status/driver").and_then(Value::as_str).unwrap_or_default();
    let is = match driver {
        "" => "no eksConfig, aksConfig or gkeConfig is in its spec".to_owned(),
        driver => format!("its driver is {driver}"),
    };
    format!("the cluster {:?} is not hosted on EKS, AKS or GKE: {is}", metadata_name(object))
}

/// The condition `Updated`: status and message.
fn updated(object: &Value) -> Option<(&str, &str)> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    let updated = conditions.iter().find(|c| c.get("type").and_then(Value::as_str) == Some("Updated"))?;
    let text = |key: &str| updated.get(key).and_then(Value::as_str).unwrap_or_default();
    Some((text("status"), text("message")))
}

/// `Updated` is Unknown while the operator is at work, and False with its message after a failure that is tried again
/// (rancher/rancher: `pkg/controllers/management/*/`, the cluster handlers).
fn progress_of_cluster(object: &Value) -> Progress {
    match updated(object) {
        None => Progress::Unknown,
        Some(("True", _)) => Progress::Idle,
        Some((_, message)) if message.contains("[Syncing error") => Progress::Idle,
        Some((status, "")) => Progress::Updating(format!("its condition Updated is {status}")),
        Some((status, message)) => {
            Progress::Updating(format!("its condition Updated is {status}: {message}"))
        }
    }
}

fn cluster_config(object: &Value, provider: Provider) -> Result<Hosted, String> {
    let spec = object_at(object.get("spec").unwrap_or(&Value::Null), "spec")?.clone();
    let phase = object.pointer("/status/phase").and_then(Value::as_str);
    let failure = object.pointer("/status/failureMessage").and_then(Value::as_str).filter(|m| !m.is_empty());
    Ok(Hosted {
        name: metadata_name(object).to_owned(),
        provider,
        origin: origin(&spec)?,
        source: Source::ClusterConfig,
        spec,
        applied: None,
        upstream: None,
        last_refresh: None,
        progress: match phase {
            Some("active") => Progress::Idle,
            Some(phase) => Progress::Updating(format!("the operator's phase is {phase:?}")),
            None => Progress::Unknown,
        },
        sync_error: failure.map(str::to_owned),
    })
}

fn origin(spec: &Document) -> Result<Origin, String> {
    match spec.get("imported") {
        Some(Value::Bool(true)) => Ok(Origin::Imported),
        None | Some(Value::Null | Value::Bool(false)) => Ok(Origin::Created),
        Some(other) => Err(format!("imported is {other}; expected true or false")),
    }
}

fn last_refresh(object: &Value) -> Result<Option<i64>, String> {
    // The key holds slashes and dots, so it is no JSON pointer.
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    match annotations.and_then(|a| a.get(LAST_REFRESH)) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
        Some(Value::String(text)) => match text.trim().parse::<i64>() {
            Ok(seconds) if seconds > 0 => Ok(Some(seconds)),
            _ => Err(format!("the annotation {LAST_REFRESH} is {text:?}; expected Unix seconds")),
        },
        Some(other) => {
            Err(format!("the annotation {LAST_REFRESH} is {other}; expected Unix seconds as text"))
        }
    }
}

fn object_at<'a>(value: &'a Value, what: &str) -> Result<&'a Document, String> {
    let is = match value {
        Value::Object(object) => return Ok(object),
        Value::Null => "missing",
        Value::Array(_) => "a list",
        Value::String(_) => "a text",
        Value::Number(_) => "a number",
        Value::Bool(_) => "true or false",
    };
    Err(format!("{} is {is}; expected an object", what.replace('/', ".")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rancher(spec: Value) -> Value {
        json!({"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": "c-1"}, "spec": spec})
    }

    #[test]
    fn a_cluster_yields_all_that_it_holds() {
        let mut object =
            rancher(json!({"displayName": "shop", "eksConfig": {"imported": true, "tags": null}}));
        object["metadata"]["annotations"] = json!({LAST_REFRESH: "1764450000"});
        object["status"] = json!({
            "appliedSpec": {"eksConfig": {"imported": true}},
            "eksStatus": {"upstreamSpec": {"tags": {"a": "1"}}},
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Updated", "status": "Unknown", "message": "busy"}],
        });
        let hosted = read(&object).unwrap();
        assert_eq!(
            (hosted.name.as_str(), hosted.provider, hosted.origin),
            ("shop", Provider::Eks, Origin::Imported)
        );
        assert_eq!(hosted.last_refresh, Some(1_764_450_000));
        assert_eq!(hosted.progress, Progress::Updating("its condition Updated is Unknown: busy".to_owned()));
        assert!(hosted.applied.is_some() && hosted.upstream.is_some());
        assert_eq!(read(&json!({"kind": "List", "items": [object]})).unwrap().name, "shop");
    }

    #[test]
    fn a_syncing_error_is_no_update() {
        let mut object = rancher(json!({"aksConfig": {}}));
        object["status"] = json!({"conditions": [{"type": "Updated", "status": "False", "message": "[Syncing error: syncing failed] 403"}]});
        let hosted = read(&object).unwrap();
        assert_eq!(hosted.progress, Progress::Idle);
        assert_eq!(hosted.sync_error.as_deref(), Some("[Syncing error: syncing failed] 403"));
        assert_eq!((hosted.applied, hosted.upstream, hosted.last_refresh), (None, None, None));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let list = json!({"kind": "List", "items": [rancher(json!({})), rancher(json!({}))]});
        for (object, want) in [
            (json!({}), "has no kind"),
            (json!({"kind": "Node"}), "kind is \"Node\""),
            (rancher(json!({})), "not hosted on EKS, AKS or GKE"),
            (rancher(json!({"eksConfig": {}, "gkeConfig": {}})), "eksConfig and gkeConfig at once"),
            (rancher(json!({"eksConfig": 3})), "spec.eksConfig is a number; expected an object"),
            (rancher(json!({"eksConfig": {"imported": "yes"}})), "imported is \"yes\""),
            (
                json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "status": {"clusterName": "c-m-7"}}),
                "io c-m-7 -o",
            ),
            (json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster"}), "is not Rancher's"),
            (json!({"kind": "EKSClusterConfig"}), "spec is missing"),
            (list, "2 objects; give one of them: c-1, c-1"),
        ] {
            let error = read(&object).unwrap_err();
            assert!(error.contains(want), "{want:?} is not in {error:?}");
        }
        let mut bad = rancher(json!({"eksConfig": {}}));
        bad["metadata"]["annotations"] = json!({LAST_REFRESH: "yesterday"});
        assert!(read(&bad).unwrap_err().contains("\"yesterday\"; expected Unix seconds"));
    }

    #[test]
    fn the_clouds_view_comes_alone_or_inside_an_object() {
        let bare = json!({"kubernetesVersion": "1.31"});
        let wrapped = json!({"upstreamSpec": {"kubernetesVersion": "1.31"}});
        let mut object = rancher(json!({"eksConfig": {}}));
        object["status"] = json!({"eksStatus": wrapped.clone()});
        for value in [&bare, &wrapped, &object] {
            assert_eq!(read_upstream(Provider::Eks, value).unwrap()["kubernetesVersion"], "1.31");
        }
        assert!(read_upstream(Provider::Gke, &object).unwrap_err().contains("of EKS, the cluster is of GKE"));
        assert!(
            read_upstream(Provider::Eks, &json!({"a": 1}))
                .unwrap_err()
                .contains("such as amazonCredentialSecret")
        );
    }
}
