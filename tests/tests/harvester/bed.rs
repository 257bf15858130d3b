//! A Harvester of which only the API is there: a real kube-apiserver with the two kinds of KubeVirt, whose objects are
//! written by hand with the fields that `facts/harvester-topology.md` and `facts/guest-agent.md` name. In front of it the
//! coordinator, with the rights of the file that is shipped.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use outrider_protocol::{Condition, CoordinatorView, List, MachineView};
use outrider_tests::beds::etcd::{EtcdCluster, Options};
use outrider_tests::beds::kube_apiserver::{Etcd, Identity, KubeApiserver, Settings};
use outrider_tests::coordinator::{Coordinator, Launch};
use outrider_tests::simulated::{Applicant, Member};
use serde_json::{Value, json};

pub(crate) const LIMIT: Duration = Duration::from_secs(90);
const READER: &str =
    include_str!("../../../packaging/usr/share/outrider/outrider-coordinator-harvester.yaml");
const RANCHER_READER: &str =
    include_str!("../../../packaging/usr/share/outrider/outrider-coordinator-rancher.yaml");
const MERGE: &str = "application/merge-patch+json";
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// Both sides; everything ends with it.
pub(crate) struct Bed {
    pub(crate) server: KubeApiserver,
    pub(crate) etcd: EtcdCluster,
    admin: Identity,
    pub(crate) coordinator: Coordinator,
    launch: Launch,
    kubeconfig: PathBuf,
    rancher_kubeconfig: PathBuf,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Bed {
    pub(crate) async fn start(program: &Path) -> Result<Self> {
        let etcd = EtcdCluster::start(1, Options::default())?;
        let settings = Settings {
            etcd: Etcd {
                endpoints: etcd.endpoints(),
                ca: etcd.ca(),
                certificate: etcd.client_certificate(),
                key: etcd.client_key(),
            },
            listen: outrider_tests::coordinator::free_address()?,
            serving: None,
            flags: Vec::new(),
        };
        let mut server = KubeApiserver::start(program, settings)?;
        let admin = server.admin()?;
        let took = server.wait_until_ready(&admin, LIMIT)?;
        println!("kube-apiserver is ready after {took:.1?}");
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("harvester.kubeconfig");
        let rancher_kubeconfig = folder.path().join("rancher.kubeconfig");
        let state = folder.path().join("coordinator");
        let mut launch = Launch::new(&state)?;
        // The kubeconfig is not there yet: that is a condition, no reason not to start.
        launch.arguments = vec![format!("--harvester-kubeconfig={}", kubeconfig.display())];
        let coordinator = launch.start().await?;
        let bed = Self {
            server,
            etcd,
            admin,
            coordinator,
            launch,
            kubeconfig,
            rancher_kubeconfig,
            log: state.with_extension("log"),
            _folder: folder,
        };
        bed.define("kubevirt.io", "virtualmachines", "VirtualMachine")?;
        bed.define("kubevirt.io", "virtualmachineinstances", "VirtualMachineInstance")?;
        // Rancher's own cluster is another one; here both are served by one API server, to two accounts.
        bed.define("provisioning.cattle.io", "clusters", "Cluster")?;
        for namespace in ["prod", "fleet-default"] {
            bed.post("/api/v1/namespaces", &json!({"metadata": {"name": namespace}}))?;
        }
        bed.apply(READER)?;
        bed.apply(RANCHER_READER)?;
        bed.post(
            "/api/v1/nodes",
            &json!({"metadata": {"name": "host1", "labels": {
            "topology.kubernetes.io/zone": "zone-1", "topology.harvesterhci.io/region": "region-1"}}}),
        )?;
        Ok(bed)
    }

    fn send(&self, method: &str, path: &str, media: &str, body: &str) -> Result<Value> {
        let (status, answer) = self.server.request(&self.admin, method, path, Some((media, body)))?;
        ensure!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        Ok(serde_json::from_str(&answer)?)
    }

    pub(crate) fn post(&self, path: &str, object: &Value) -> Result<Value> {
        self.send("POST", path, "application/json", &object.to_string())
    }

    pub(crate) fn patch(&self, path: &str, change: &Value) -> Result<Value> {
        self.send("PATCH", path, MERGE, &change.to_string())
    }

    pub(crate) fn delete(&self, path: &str) -> Result<()> {
        let (status, answer) = self.server.request(&self.admin, "DELETE", path, None)?;
        ensure!((200..300).contains(&status), "DELETE {path}: {status} {answer}");
        Ok(())
    }

    fn define(&self, group: &str, plural: &str, kind: &str) -> Result<()> {
        self.post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &json!({
                "metadata": {"name": format!("{plural}.{group}")},
                "spec": {"group": group, "scope": "Namespaced",
                    "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                        {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
            }),
        )?;
        let path = format!("/apis/{group}/v1/{plural}");
        let start = Instant::now();
        while self.server.request(&self.admin, "GET", &path, None)?.0 != 200 {
            ensure!(start.elapsed() < LIMIT, "{path} is not served");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn apply(&self, file: &str) -> Result<()> {
        for document in file.split("\n---\n") {
            let field =
                |name: &str| document.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
            let (kind, version) =
                (field("kind:").context("no kind")?, field("apiVersion:").context("no version")?);
            let namespace =
                field("namespace:").filter(|_| !kind.starts_with("Cluster") && kind != "Namespace");
            let group = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
            let namespace = namespace.map_or_else(String::new, |name| format!("/namespaces/{name}"));
            let path = format!("{group}{namespace}/{}s", kind.to_lowercase());
            let (status, answer) =
                self.server.request(&self.admin, "POST", &path, Some(("application/yaml", document)))?;
            // Both files make the namespace of their account.
            ensure!(
                (200..300).contains(&status) || (status == 409 && kind == "Namespace"),
                "{path}: {status} {answer}"
            );
        }
        Ok(())
    }

    /// A kubeconfig with a fresh token of Harvester's reader, in its place.
    pub(crate) fn let_in(&self) -> Result<()> {
        self.write_kubeconfig("harvester-reader", &self.kubeconfig, None)
    }

    /// The same, whose context names a namespace.
    pub(crate) fn let_in_to(&self, namespace: &str) -> Result<()> {
        self.write_kubeconfig("harvester-reader", &self.kubeconfig, Some(namespace))
    }

    /// The same of Rancher's reader.
    pub(crate) fn let_in_to_rancher(&self) -> Result<()> {
        self.write_kubeconfig("rancher-reader", &self.rancher_kubeconfig, None)
    }

    fn write_kubeconfig(&self, account: &str, to: &Path, namespace: Option<&str>) -> Result<()> {
        let path = format!("/api/v1/namespaces/outrider/serviceaccounts/{account}/token");
        let token = self.post(&path, &json!({"spec": {"expirationSeconds": 86400}}))?;
        let token = token.pointer("/status/token").and_then(Value::as_str).context("no token")?;
        let mut written: Value = serde_json::from_slice(&std::fs::read(&self.admin.kubeconfig)?)?;
        written["users"][0]["user"] = json!({"token": token});
        if let Some(namespace) = namespace {
            written["contexts"][0]["context"]["namespace"] = namespace.into();
        }
        let fresh = to.with_extension("new");
        std::fs::write(&fresh, written.to_string())?;
        Ok(std::fs::rename(fresh, to)?)
    }

    /// Ends the coordinator, and starts it anew on the same state with Rancher to be read as well.
    pub(crate) async fn read_rancher_too(&mut self) -> Result<()> {
        tokio::task::block_in_place(|| self.coordinator.process.terminate(LIMIT))?;
        self.launch.arguments.push(format!("--rancher-kubeconfig={}", self.rancher_kubeconfig.display()));
        self.coordinator = self.launch.start().await?;
        // Before it has read Harvester anew there are no pools to be shown.
        self.until_source("HarvesterRead").await.map(drop)
    }

    /// Takes the reader's account away, and every token of it with it, and makes it anew.
    pub(crate) fn revoke_tokens(&self) -> Result<()> {
        let accounts = "/api/v1/namespaces/outrider/serviceaccounts";
        self.delete(&format!("{accounts}/harvester-reader"))?;
        self.post(accounts, &json!({"metadata": {"name": "harvester-reader"}})).map(drop)
    }

    /// Takes the reader's rights of this name away; what gives them back.
    pub(crate) fn take_rights(&self, name: &str) -> Result<Value> {
        self.take_rights_at(ROLES, name)
    }

    pub(crate) fn take_rights_at(&self, bindings: &str, name: &str) -> Result<Value> {
        let path = format!("{bindings}/{name}");
        let (_, binding) = self.server.request(&self.admin, "GET", &path, None)?;
        self.delete(&path)?;
        let mut binding: Value = serde_json::from_str(&binding)?;
        binding["metadata"] = json!({"name": name});
        Ok(binding)
    }

    pub(crate) fn give_rights(&self, binding: &Value) -> Result<()> {
        self.post(ROLES, binding).map(drop)
    }

    pub(crate) fn restart(&mut self) -> Result<()> {
        self.server.restart()?;
        let admin = self.admin.clone();
        self.server.wait_until_ready(&admin, LIMIT).map(drop)
    }

    /// Forgets all versions of all objects but the newest.
    pub(crate) fn compact(&self) -> Result<()> {
        let endpoints = self.etcd.endpoints().join(",");
        let run = |arguments: &[&str]| -> Result<String> {
            let output = std::process::Command::new("etcdctl")
                .env("ETCDCTL_API", "3")
                .arg(format!("--endpoints={endpoints}"))
                .arg(format!("--cacert={}", self.etcd.ca().display()))
                .arg(format!("--cert={}", self.etcd.client_certificate().display()))
                .arg(format!("--key={}", self.etcd.client_key().display()))
                .args(arguments)
                .output()?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(String::from_utf8(output.stdout)?)
        };
        let status: Value = serde_json::from_str(&run(&["endpoint", "status", "-w", "json"])?)?;
        let revision =
            status.pointer("/0/Status/header/revision").and_then(Value::as_u64).context("no revision")?;
        run(&["compact", &revision.to_string()]).map(drop)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) async fn machines(&self) -> Result<Vec<MachineView>> {
        let list: List<MachineView> = self.coordinator.operator.get("/v1/machines").await?;
        Ok(list.items)
    }

    /// Waits until the machine's condition is as wanted; it, and how long that took.
    pub(crate) async fn until(&self, vm: &str, kind: &str, reason: &str) -> Result<(Condition, Duration)> {
        let start = Instant::now();
        loop {
            let machines = self.machines().await?;
            let of = machines.iter().find(|machine| machine.name == vm);
            let shown = of.and_then(|m| m.conditions.iter().find(|c| c.condition_type.as_str() == kind));
            if let Some(condition) = shown.filter(|c| c.reason.as_str() == reason) {
                return Ok((condition.clone(), start.elapsed()));
            }
            ensure!(
                start.elapsed() < LIMIT,
                "{vm}: {kind} is no {reason}, but {shown:?}; machines {machines:#?}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the condition over Harvester's API itself is as wanted.
    pub(crate) async fn until_source(&self, reason: &str) -> Result<(Condition, Duration)> {
        self.until_source_of("HarvesterReadable", reason).await
    }

    /// Waits until this condition over an API is as wanted.
    pub(crate) async fn until_source_of(&self, kind: &str, reason: &str) -> Result<(Condition, Duration)> {
        let start = Instant::now();
        loop {
            let view: CoordinatorView = self.coordinator.operator.get("/v1/coordinator").await?;
            match view.conditions.into_iter().find(|c| c.condition_type.as_str() == kind) {
                Some(condition) if condition.reason.as_str() == reason => {
                    return Ok((condition, start.elapsed()));
                }
                other if start.elapsed() > LIMIT => {
                    bail!("{kind} is no {reason}, but {other:?}; {}", self.log())
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// A machine of cluster `prod` enrols under `name` with these marks, and reports.
    pub(crate) async fn enrol(&self, name: &str, number: u32, mac: &str) -> Result<Member> {
        let mut applicant = Applicant::new(name, number)?;
        applicant.node.cluster = "prod".to_owned();
        applicant.identity.macs = vec![mac.to_owned()];
        let operator = &self.coordinator.operator;
        let mut stranger = operator.connect().await?;
        let answer = applicant.apply(&mut stranger, &operator.once_token().await?).await?;
        let mut member = applicant.admitted(&operator.target, &answer, HERE)?;
        self.report(&mut member).await?;
        Ok(member)
    }

    pub(crate) async fn report(&self, member: &mut Member) -> Result<()> {
        let mut connection = self.coordinator.operator.target.connect(member.tls.clone(), None).await?;
        member.report(&mut connection, true).await.map(drop)
    }
}

/// One VM as Rancher's node driver makes it.
#[derive(Clone, Debug)]
pub(crate) struct Made<'a> {
    pub(crate) name: &'a str,
    pub(crate) cluster: &'a str,
    pub(crate) mac: &'a str,
    pub(crate) uuid: &'a str,
    pub(crate) pool: &'a str,
}

impl Made<'_> {
    fn metadata(&self) -> Value {
        json!({"name": self.name, "namespace": "prod", "labels": {
            "harvesterhci.io/creator": "docker-machine-driver-harvester",
            "guestcluster.harvesterhci.io/name": self.cluster,
            "harvesterhci.io/machineSetName": format!("fleet-default-{}-{}", self.cluster, self.pool),
            "nodepool.harvesterhci.io/name": self.pool}})
    }

    fn spec(&self) -> Value {
        let firmware = if self.uuid.is_empty() { json!({}) } else { json!({"uuid": self.uuid}) };
        let interfaces = match self.mac {
            "" => json!([{"name": "nic-1", "bridge": {}}]),
            mac => json!([{"name": "nic-1", "macAddress": mac, "bridge": {}}]),
        };
        json!({"domain": {"firmware": firmware, "devices": {"interfaces": interfaces}}})
    }

    pub(crate) fn create(&self, bed: &Bed) -> Result<()> {
        let object = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": self.metadata(),
            "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": self.spec()}}});
        bed.post("/apis/kubevirt.io/v1/namespaces/prod/virtualmachines", &object).map(drop)
    }

    /// Runs it; it has been running for `seconds`.
    pub(crate) fn run(&self, bed: &Bed, seconds: u64) -> Result<()> {
        let since = jiff::Timestamp::now() - Duration::from_secs(seconds);
        let interfaces = if self.mac.is_empty() {
            json!([])
        } else {
            json!([{"name": "nic-1", "mac": self.mac, "infoSource": "domain"}])
        };
        let object = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": self.metadata(),
            "spec": self.spec(), "status": {"phase": "Running", "nodeName": "host1", "interfaces": interfaces,
                "phaseTransitionTimestamps": [{"phase": "Running", "phaseTransitionTimestamp": since.to_string()}]}});
        bed.post("/apis/kubevirt.io/v1/namespaces/prod/virtualmachineinstances", &object).map(drop)
    }

    pub(crate) fn instance(&self) -> String {
        format!("/apis/kubevirt.io/v1/namespaces/prod/virtualmachineinstances/{}", self.name)
    }

    pub(crate) fn remove(&self, bed: &Bed) -> Result<()> {
        bed.delete(&self.instance())?;
        bed.delete(&format!("/apis/kubevirt.io/v1/namespaces/prod/virtualmachines/{}", self.name))
    }

    /// Removes one that never ran.
    pub(crate) fn remove_stopped(&self, bed: &Bed) -> Result<()> {
        bed.delete(&format!("/apis/kubevirt.io/v1/namespaces/prod/virtualmachines/{}", self.name))
    }

    /// The guest agent connects and the host shows an address.
    pub(crate) fn connect_agent(&self, bed: &Bed, address: &str) -> Result<()> {
        let now = jiff::Timestamp::now().to_string();
        bed.patch(
            &self.instance(),
            &json!({"status": {
            "conditions": [{"type": "AgentConnected", "status": "True", "lastTransitionTime": now}],
            "interfaces": [{"name": "nic-1", "mac": self.mac, "ipAddress": address, "ipAddresses": [address],
                "infoSource": "domain, guest-agent"}]}}),
        )
        .map(drop)
    }
}
