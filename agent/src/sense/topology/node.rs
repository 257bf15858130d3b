//! The own Node, read and watched with the kubelet's own credential, which may read and write no other
//! (`facts/harvester-topology.md`, 9; kubernetes/kubernetes, `plugin/pkg/auth/authorizer/node`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use outrider_protocol::{
    BETA_REGION, BETA_ZONE, Fact, KubeconfigPurpose as Purpose, LabelOwner, NodeTopology, REGION, Timestamp,
    UnknownCause, ZONE,
};
use serde_json::Value;

use crate::config::TopologySettings;
use crate::sense::certificates::data_folders;
use crate::sense::credentials::{self, Access};
use crate::sense::{SenseContext, host};

pub(crate) const NODES: &str = "/api/v1/nodes";
const LABELS: [&str; 4] = [REGION, ZONE, BETA_REGION, BETA_ZONE];
const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Most owners of one label, and most versions, that are told of.
const MOST: usize = 16;

/// The way to the API server, and the name of the own Node there.
pub(crate) struct Way {
    pub(crate) access: Access,
    pub(crate) name: String,
}

/// The first kubeconfig of a kubelet that is here (`facts/rke2-k3s-on-disk.md`, 1 and 10), or the one that is configured;
/// what is in the way as a fact. Blocking.
pub(crate) fn way(cx: &SenseContext, settings: &TopologySettings) -> Result<Way, Box<Fact<NodeTopology>>> {
    let (paths, purpose) = match &settings.kubeconfig {
        Some(path) => (vec![path.clone()], Purpose::Configured),
        None => (kubelets(cx), Purpose::Admin),
    };
    for path in paths {
        let Some(found) = credentials::read_file(cx, &path, purpose.clone()) else { continue };
        let source = path.display().to_string();
        let content = match found.facts.content {
            Fact::Known { value, .. } => value,
            Fact::Unknown { cause, detail, source, at } => {
                return Err(Box::new(Fact::Unknown { cause, detail, source, at }));
            }
            // Named and not there, or one of another kind.
            _ => return Err(unusable(cx, "there is no such file", &source)),
        };
        if !content.fault.is_empty() {
            return Err(unusable(cx, &content.fault, &source));
        }
        let access = found.access.map_err(|why| unusable(cx, &why, &source))?;
        let subject = content.certificate.as_ref().and_then(Fact::value).map(|leaf| leaf.subject.as_str());
        let name = subject.and_then(of_kubelet).map(str::to_owned);
        let name = name.or_else(|| host::hostname(cx).value().map(|name| name.to_ascii_lowercase()));
        let name = name.ok_or_else(|| unusable(cx, "it does not say which Node this is", &source))?;
        return Ok(Way { access, name });
    }
    let why = "no kubelet's kubeconfig of RKE2, K3s, RKE1 or kubeadm is here";
    Err(Box::new(Fact::not_applicable(why, cx.now())))
}

fn unusable(cx: &SenseContext, why: &str, source: &str) -> Box<Fact<NodeTopology>> {
    let why = format!("{source} cannot be used: {why}");
    Box::new(Fact::unknown(UnknownCause::InvalidInput, why, source, cx.now()))
}

fn kubelets(cx: &SenseContext) -> Vec<PathBuf> {
    let of_rancher = data_folders(cx).into_iter().map(|data| data.join("agent/kubelet.kubeconfig"));
    let others = ["/etc/kubernetes/kubelet.conf", "/etc/kubernetes/ssl/kubecfg-kube-node.yaml"];
    of_rancher.chain(others.map(|path| Path::new(path).to_owned())).collect()
}

/// The node in the subject of a kubelet's certificate: `CN=system:node:<name>`.
fn of_kubelet(subject: &str) -> Option<&str> {
    let (_, rest) = subject.split_once("system:node:")?;
    let end = rest.find([',', '+', ' ']).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|name| !name.is_empty())
}

/// What is kept of a Node's object.
pub(super) fn parse(node: &Value) -> NodeTopology {
    let text = |pointer: &str| node.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let time = |pointer: &str| text(pointer).parse::<Timestamp>().ok();
    let all = node.pointer("/metadata/labels").and_then(Value::as_object);
    let label = |key: &str| Some((key.to_owned(), all?.get(key)?.as_str()?.to_owned()));
    let taints = list(node, "/spec/taints").iter();
    let uninitialized = taints.filter_map(|taint| taint.get("key")?.as_str()).any(|key| key == TAINT);
    let ready = list(node, "/status/conditions").iter().find(|c| field(c, "type") == "Ready");
    NodeTopology {
        name: short(text("/metadata/name")),
        uid: short(text("/metadata/uid")),
        resource_version: short(text("/metadata/resourceVersion")),
        created: time("/metadata/creationTimestamp"),
        labels: LABELS.into_iter().filter_map(label).map(|(key, value)| (key, short(&value))).collect(),
        owners: owners(node),
        provider_id: short(text("/spec/providerID")),
        system_uuid: short(text("/status/nodeInfo/systemUUID")),
        cloud_provider_versions: versions(node),
        uninitialized,
        uninitialized_since: None,
        ready_since: ready
            .filter(|condition| field(condition, "status") == "True")
            .and_then(|condition| field(condition, "lastTransitionTime").parse().ok()),
    }
}

fn owners(node: &Value) -> BTreeMap<String, Vec<LabelOwner>> {
    let mut owners: BTreeMap<String, Vec<LabelOwner>> = BTreeMap::new();
    for entry in list(node, "/metadata/managedFields") {
        let Some(labels) = entry.pointer("/fieldsV1/f:metadata/f:labels").and_then(Value::as_object) else {
            continue;
        };
        for key in LABELS.iter().filter(|key| labels.contains_key(&format!("f:{key}"))) {
            let of = owners.entry((*key).to_owned()).or_default();
            if of.len() < MOST {
                of.push(LabelOwner {
                    manager: short(field(entry, "manager")),
                    operation: short(field(entry, "operation")),
                    at: field(entry, "time").parse().ok(),
                });
            }
        }
    }
    owners
}

/// Tags of Harvester's cloud provider among the images that the kubelet reports (it names the fifty largest).
fn versions(node: &Value) -> Vec<String> {
    let names = list(node, "/status/images").iter().flat_map(|image| list(image, "/names"));
    let tags = names.filter_map(Value::as_str).filter_map(|name| {
        let (image, tag) = name.split('@').next()?.rsplit_once(':')?;
        image.ends_with("/harvester-cloud-provider").then(|| short(tag))
    });
    let mut versions: Vec<String> = tags.take(MOST).collect();
    versions.sort();
    versions.dedup();
    versions
}

pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn field<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn short(text: &str) -> String {
    text.chars().take(253).filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_their_owners_are_read_and_nothing_else() {
        let node = json!({
            "metadata": {"name": "n1", "uid": "u", "resourceVersion": "7", "labels": {
                "topology.kubernetes.io/zone": "010", "kubernetes.io/hostname": "n1"},
              "managedFields": [
                {"manager": "k3s", "operation": "Update", "time": "2026-11-30T00:00:00Z", "fieldsV1": {
                    "f:metadata": {"f:labels": {".": {}, "f:topology.kubernetes.io/zone": {}, "f:x": {}}}}},
                {"manager": "y", "operation": "Update", "fieldsV1": {"f:status": {}}}]},
            "spec": {"providerID": "harvester://1", "taints": [
                {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule", "value": "true"}]},
            "status": {"nodeInfo": {"systemUUID": "5D307CA9-B3EF-428C-8861-06E72D69F223"},
              "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-30T01:00:00Z"}],
              "images": [{"names": ["docker.io/rancher/harvester-cloud-provider@sha256:0",
                "docker.io/rancher/harvester-cloud-provider:v0.2.7"]}]}
        });
        let read = parse(&node);
        assert_eq!(read.labels, BTreeMap::from([(ZONE.to_owned(), "010".to_owned())]));
        assert_eq!((read.owners.len(), read.owners[ZONE][0].manager.as_str()), (1, "k3s"));
        assert!(read.uninitialized && read.ready_since.is_some());
        assert_eq!(read.system_uuid, "5D307CA9-B3EF-428C-8861-06E72D69F223");
        assert_eq!(
            (read.provider_id.as_str(), read.cloud_provider_versions),
            ("harvester://1", vec!["v0.2.7".to_owned()])
        );
    }

    #[test]
    fn any_other_shape_is_an_empty_reading() {
        for value in
            [json!(null), json!([]), json!({"metadata": {"labels": 1, "managedFields": {}}, "spec": []})]
        {
            assert_eq!(parse(&value), NodeTopology::default());
        }
    }

    #[test]
    fn a_kubelets_certificate_names_its_node() {
        assert_eq!(of_kubelet("O=system:nodes, CN=system:node:n1"), Some("n1"));
        assert_eq!(of_kubelet("CN=system:node:n1.example,O=system:nodes"), Some("n1.example"));
        assert_eq!(of_kubelet("CN=admin"), None);
    }
}
