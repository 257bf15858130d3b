//! Two API servers with an etcd each (where one is shared, the other's writes leave a watch cache behind), a Node, its virtual
//! machine, and the agent of that Node.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outrider_protocol::Condition;
use outrider_tests::agent::AgentHome;
use outrider_tests::beds::etcd::{EtcdCluster, Options};
use outrider_tests::beds::kube_apiserver::{Etcd, Identity, KubeApiserver, Settings};
use outrider_tests::programs::Process;
use serde_json::{Value, json};

pub(crate) const LIMIT: Duration = Duration::from_secs(120);
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
pub(crate) const REGION: &str = "topology.kubernetes.io/region";
pub(crate) const BETA: &str = "failure-domain.beta.kubernetes.io/zone";
pub(crate) const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/guest/virtualmachineinstances";
/// Uid of the machine, which the cloud provider gives the Node as its provider ID.
pub(crate) const VM_UID: &str = "0c5b0f0e";
/// Where RKE2 keeps its kubelet's, and Harvester's documents the cloud provider's.
pub(crate) const KUBELET: &str = "var/lib/rancher/rke2/agent/kubelet.kubeconfig";
pub(crate) const CLOUD: &str = "etc/kubernetes/cloud-config";

/// Everything; it ends with it.
pub(crate) struct Bed {
    pub(crate) guest: KubeApiserver,
    pub(crate) host: KubeApiserver,
    _etcds: [EtcdCluster; 2],
    pub(crate) admin: Identity,
    pub(crate) host_admin: Identity,
    pub(crate) cloud: Identity,
    pub(crate) home: AgentHome,
    agent: Option<Process>,
    _folder: tempfile::TempDir,
}

impl Bed {
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let etcds = [EtcdCluster::start(1, Options::default())?, EtcdCluster::start(1, Options::default())?];
        let mut guest = serve(program, &etcds[0])?;
        let mut host = serve(program, &etcds[1])?;
        let (admin, host_admin) = (guest.admin()?, host.admin()?);
        for (server, who) in [(&mut guest, &admin), (&mut host, &host_admin)] {
            println!("kube-apiserver is ready after {:.1?}", server.wait_until_ready(who, LIMIT)?);
        }
        let folder = tempfile::tempdir()?;
        let home = AgentHome::new(folder.path(), "n1")?;
        let cloud = host.identity("guest-cloud", &[])?;
        let bed =
            Self { guest, host, _etcds: etcds, admin, host_admin, cloud, home, agent: None, _folder: folder };
        for name in ["n1", "n2"] {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
            bed.guest_send("POST", "/api/v1/nodes", "application/json", &node)?;
        }
        bed.define("virtualmachines", "VirtualMachine")?;
        bed.define("virtualmachineinstances", "VirtualMachineInstance")?;
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "guest"}});
        bed.host_send("POST", "/api/v1/namespaces", "application/json", &space)?;
        bed.allow(true)?;
        bed.machine("n1", json!({REGION: "r1", ZONE: "010"}))?;
        let kubelet = bed.guest.kubelet("n1")?;
        bed.home.put(KUBELET, &inline(&kubelet, "")?)?;
        bed.home.put(CLOUD, &inline(&bed.cloud, "guest")?)?;
        Ok(bed)
    }

    pub(crate) fn guest_send(&self, method: &str, path: &str, media: &str, body: &Value) -> Result<Value> {
        send(&self.guest, &self.admin, method, path, media, body)
    }

    pub(crate) fn host_send(&self, method: &str, path: &str, media: &str, body: &Value) -> Result<Value> {
        send(&self.host, &self.host_admin, method, path, media, body)
    }

    /// The rights of Harvester's `harvesterhci.io:cloudprovider` that are used, by a Role of the namespace; or none.
    pub(crate) fn allow(&self, allowed: bool) -> Result<()> {
        let base = "/apis/rbac.authorization.k8s.io/v1/namespaces/guest";
        if !allowed {
            let path = format!("{base}/rolebindings/cloud");
            let (status, answer) = self.host.request(&self.host_admin, "DELETE", &path, None)?;
            ensure!(status == 200, "{status} {answer}");
            return Ok(());
        }
        let kind = "rbac.authorization.k8s.io/v1";
        let role = json!({"apiVersion": kind, "kind": "Role", "metadata": {"name": "cloud"}, "rules": [{
            "apiGroups": ["kubevirt.io"], "resources": ["virtualmachines", "virtualmachineinstances"],
            "verbs": ["get", "list", "watch"]}]});
        self.host_send("PATCH", &format!("{base}/roles/cloud?fieldManager=admin"), APPLY, &role)?;
        let binding = json!({"apiVersion": kind, "kind": "RoleBinding", "metadata": {"name": "cloud"},
            "subjects": [{"kind": "User", "name": "guest-cloud", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "Role", "name": "cloud", "apiGroup": "rbac.authorization.k8s.io"}});
        self.host_send("PATCH", &format!("{base}/rolebindings/cloud?fieldManager=admin"), APPLY, &binding)?;
        Ok(())
    }

    /// KubeVirt's kind, of which the server checks nothing.
    fn define(&self, plural: &str, kind: &str) -> Result<()> {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.kubevirt.io"), "annotations": {
                "api-approved.kubernetes.io": "unapproved, for tests"}},
            "spec": {"group": "kubevirt.io", "scope": "Namespaced",
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        });
        self.host_send(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "application/json",
            &definition,
        )?;
        let path = format!("/apis/kubevirt.io/v1/{plural}");
        let start = Instant::now();
        while self.host.request(&self.host_admin, "GET", &path, None)?.0 != 200 {
            ensure!(start.elapsed() < LIMIT, "{path} is not served");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// A running machine of Rancher's node driver.
    pub(crate) fn machine(&self, name: &str, mut annotations: Value) -> Result<()> {
        // What Harvester copies with the labels of the host.
        annotations["kubernetes.io/hostname"] = "host1".into();
        let machine = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {
            "name": name, "annotations": annotations, "ownerReferences": owners(VM_UID),
            "labels": {"harvesterhci.io/creator": "docker-machine-driver-harvester"}},
            "spec": {"domain": {"devices": {"interfaces": [{"name": "nic-1", "macAddress": "52:54:00:00:00:01"}]}}},
            "status": {"phase": "Running", "nodeName": "host1"}});
        self.host_send("POST", MACHINES, "application/json", &machine)?;
        Ok(())
    }

    pub(crate) fn forget_machine(&self, name: &str) -> Result<()> {
        let (status, answer) =
            self.host.request(&self.host_admin, "DELETE", &format!("{MACHINES}/{name}"), None)?;
        ensure!(status == 200, "{status} {answer}");
        Ok(())
    }

    /// What Harvester does when the host's label is edited; null takes it away.
    pub(crate) fn annotate(&self, key: &str, value: Value) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {key: value}}});
        self.host_send("PATCH", &format!("{MACHINES}/n1"), MERGE, &patch).map(drop)
    }

    /// The uid of the machine whose instance it is.
    pub(crate) fn owned_by(&self, uid: &str) -> Result<()> {
        let patch = json!({"metadata": {"ownerReferences": owners(uid)}});
        self.host_send("PATCH", &format!("{MACHINES}/n1"), MERGE, &patch).map(drop)
    }

    /// A label of the Node, set by an administrator (null takes it away), or by server-side apply as another manager.
    pub(crate) fn label(&self, key: &str, value: Value) -> Result<()> {
        let patch = json!({"metadata": {"labels": {key: value}}});
        self.guest_send("PATCH", "/api/v1/nodes/n1?fieldManager=kubectl-label", MERGE, &patch).map(drop)
    }

    pub(crate) fn apply_as(&self, manager: &str, labels: Value) -> Result<()> {
        let object =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}});
        let path = format!("/api/v1/nodes/n1?fieldManager={manager}&force=true");
        self.guest_send("PATCH", &path, APPLY, &object).map(drop)
    }

    pub(crate) fn node(&self) -> Result<Value> {
        let (status, answer) = self.guest.request(&self.admin, "GET", "/api/v1/nodes/n1", None)?;
        ensure!(status == 200, "{status} {answer}");
        Ok(serde_json::from_str(&answer)?)
    }

    pub(crate) fn has(&self, key: &str) -> Result<Option<String>> {
        Ok(self.node()?["metadata"]["labels"][key].as_str().map(str::to_owned))
    }

    /// Waits until the label is this; how long that took.
    pub(crate) fn until_label(&self, key: &str, value: Option<&str>) -> Result<Duration> {
        let start = Instant::now();
        loop {
            let has = self.has(key)?;
            if has.as_deref() == value {
                return Ok(start.elapsed());
            }
            if start.elapsed() > LIMIT {
                bail!("{key} is {has:?} and not {value:?}; {}\n{}", self.conditions(), self.home.log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn condition(&self, kind: &str) -> Option<Condition> {
        let text = fs::read(self.home.root().with_file_name("run").join("status.json")).ok()?;
        let status: Value = serde_json::from_slice(&text).ok()?;
        let all: Vec<Condition> = serde_json::from_value(status["conditions"].clone()).ok()?;
        all.into_iter().find(|c| c.condition_type.as_str() == kind)
    }

    fn conditions(&self) -> String {
        ["TopologyInSync", "NodeInitialized"]
            .into_iter()
            .filter_map(|kind| self.condition(kind))
            .map(|c| format!("{} {} {}: {}; ", c.condition_type, c.status, c.reason, c.message))
            .collect()
    }

    /// Waits until the condition has this reason and its words; how long that took, and the condition.
    pub(crate) fn until(&self, kind: &str, reason: &str, words: &[&str]) -> Result<(Duration, Condition)> {
        let start = Instant::now();
        loop {
            if let Some(condition) = self.condition(kind)
                && condition.reason.as_str() == reason
                && words.iter().all(|word| condition.message.contains(word))
            {
                return Ok((start.elapsed(), condition));
            }
            if start.elapsed() > LIMIT {
                bail!(
                    "no {reason} with {words:?}; {}\n{}\n{}",
                    self.conditions(),
                    self.home.log(),
                    fs::read_to_string(self.guest.log())
                        .unwrap_or_default()
                        .lines()
                        .rev()
                        .take(15)
                        .collect::<Vec<_>>()
                        .join("\n")
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts the daemon anew with this `[topology]`.
    pub(crate) fn run(&mut self, topology: &str) -> Result<()> {
        self.agent = None;
        let off: String = [
            "host",
            "clock",
            "cloud-init",
            "guest-agent",
            "etcd",
            "load-balancer",
            "certificates",
            "credentials",
            "kubernetes",
            "dns",
            "rancher-agent",
        ]
        .map(|check| format!("[checks.{check}]\nenabled = false\n"))
        .concat();
        self.home.configure(&format!("[topology]\n{topology}\n{off}"))?;
        self.agent = Some(self.home.start()?);
        Ok(())
    }

    /// Writes that changed something, by the daemon's own count.
    pub(crate) fn writes(&self) -> Result<u64> {
        let ledger = fs::read(self.home.state().join("topology.json")).context("no ledger")?;
        let ledger: Value = serde_json::from_slice(&ledger)?;
        ledger["written"].as_u64().context("no count")
    }
}

fn owners(uid: &str) -> Value {
    json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "n1", "uid": uid}])
}

fn send(
    server: &KubeApiserver,
    who: &Identity,
    method: &str,
    path: &str,
    media: &str,
    body: &Value,
) -> Result<Value> {
    let (status, answer) = server.request(who, method, path, Some((media, &body.to_string())))?;
    ensure!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    Ok(serde_json::from_str(&answer)?)
}

fn serve(program: &Path, etcd: &EtcdCluster) -> Result<KubeApiserver> {
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let settings = Settings {
        etcd: Etcd {
            endpoints: etcd.endpoints(),
            ca: etcd.ca(),
            certificate: etcd.client_certificate(),
            key: etcd.client_key(),
        },
        listen: free,
        serving: None,
        flags: vec!["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned()],
    };
    KubeApiserver::start(program, settings)
}

/// The kubeconfig with everything in it, and a namespace.
pub(crate) fn inline(who: &Identity, namespace: &str) -> Result<String> {
    let mut config: Value = serde_json::from_slice(&fs::read(&who.kubeconfig)?)?;
    let data = |path: &Path| -> Result<Value> { Ok(STANDARD.encode(fs::read(path)?).into()) };
    let ca = config["clusters"][0]["cluster"]["certificate-authority"].take();
    let ca = ca.as_str().context("no authority")?;
    config["clusters"][0]["cluster"] = json!({
        "server": config["clusters"][0]["cluster"]["server"], "certificate-authority-data": data(Path::new(ca))?});
    config["users"][0]["user"] =
        json!({"client-certificate-data": data(&who.certificate)?, "client-key-data": data(&who.key)?});
    if !namespace.is_empty() {
        config["contexts"][0]["context"]["namespace"] = namespace.into();
    }
    Ok(config.to_string())
}
