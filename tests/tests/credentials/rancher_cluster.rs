//! Rancher's own cluster behind a real kube-apiserver: its settings as custom resources, real Ingresses and pods, and a
//! ServiceAccount with the rights of `docs/rancher-access/reader.yaml`, taken from it one by one.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use outrider_agent::config::CredentialSettings;
use outrider_diagnosis::Finding;
use outrider_protocol::*;
use outrider_tests::beds::etcd::{EtcdCluster, Options};
use outrider_tests::beds::kube_apiserver::{Etcd, Identity, KubeApiserver, Settings, program};
use outrider_tests::table::Table;
use serde_json::{Value, json};

use crate::bed::*;

const LIMIT: Duration = Duration::from_secs(90);
const FILE: &str = "/etc/outrider/rancher.kubeconfig";
const READER: &str = include_str!("../../../docs/rancher-access/reader.yaml");
const MERGE: &str = "application/merge-patch+json";

/// The cluster; everything ends with it.
struct Local {
    server: KubeApiserver,
    _etcd: EtcdCluster,
    admin: Identity,
    disk: Disk,
}

impl Local {
    fn start(program: &Path) -> Result<Self> {
        let etcd = EtcdCluster::start(1, Options::default())?;
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
            // Pods are made by hand: no controller gives their namespaces a ServiceAccount.
            flags: vec!["--disable-admission-plugins=ServiceAccount".to_owned()],
        };
        let mut server = KubeApiserver::start(program, settings)?;
        let admin = server.admin()?;
        let took = server.wait_until_ready(&admin, LIMIT)?;
        println!("kube-apiserver is ready after {took:.1?}");
        let local = Self { server, _etcd: etcd, admin, disk: Disk::new()? };
        local.define("management.cattle.io", "v3", "settings", "Setting", "Cluster")?;
        local.define("management.cattle.io", "v3", "tokens", "Token", "Cluster")?;
        local.define("provisioning.cattle.io", "v1", "clusters", "Cluster", "Namespaced")?;
        for namespace in ["cattle-system", "cattle-global-data", "prod"] {
            let of = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            local.post("/api/v1/namespaces", &of)?;
        }
        let systems = "kube-system,kube-public,cattle-system,cattle-global-data,outrider";
        for (name, value, default) in
            [("server-url", "https://rancher.example", ""), ("system-namespaces", "", systems)]
        {
            local.post(
                "/apis/management.cattle.io/v3/settings",
                &json!({
                    "apiVersion": "management.cattle.io/v3", "kind": "Setting", "metadata": {"name": name},
                    "value": value, "default": default, "customized": false,
                }),
            )?;
        }
        local.route("cattle-system", "rancher", "rancher.example", "rancher")?;
        local.pod("cattle-system", "rancher-0")?;
        local.apply(READER)?;
        local.let_in()?;
        Ok(local)
    }

    fn send(&self, method: &str, path: &str, media: &str, body: &str) -> Result<Value> {
        let (status, answer) = self.server.request(&self.admin, method, path, Some((media, body)))?;
        ensure!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        Ok(serde_json::from_str(&answer)?)
    }

    fn post(&self, path: &str, object: &Value) -> Result<Value> {
        self.send("POST", path, "application/json", &object.to_string())
    }

    fn delete(&self, path: &str) -> Result<()> {
        let (status, answer) = self.server.request(&self.admin, "DELETE", path, None)?;
        ensure!((200..300).contains(&status), "DELETE {path}: {status} {answer}");
        Ok(())
    }

    /// A kind of Rancher's, of which the server checks nothing; waits until it is served.
    fn define(&self, group: &str, version: &str, plural: &str, kind: &str, scope: &str) -> Result<()> {
        self.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": scope,
                "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        }))?;
        let path = format!("/apis/{group}/{version}/{plural}");
        let start = Instant::now();
        while self.server.request(&self.admin, "GET", &path, None)?.0 != 200 {
            ensure!(start.elapsed() < LIMIT, "{path} is not served");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// What `kubectl apply` would make of a file, document by document.
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
            self.send("POST", &path, "application/yaml", document)?;
        }
        Ok(())
    }

    /// A kubeconfig with a token of the reader. A controller would fill the Secret; there is none here, so one is asked for.
    fn let_in(&self) -> Result<()> {
        let path = "/api/v1/namespaces/outrider/serviceaccounts/reader/token";
        let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400 * 30}});
        let token = self.post(path, &asked)?;
        let token = token.pointer("/status/token").and_then(Value::as_str).context("no token")?;
        let written: Value = serde_json::from_slice(&std::fs::read(&self.admin.kubeconfig)?)?;
        let ca = written
            .pointer("/clusters/0/cluster/certificate-authority")
            .and_then(Value::as_str)
            .context("no CA")?;
        let ca = std::fs::read_to_string(ca)?;
        self.disk.write(FILE, &kubeconfig(&self.server.url(), &ca, &format!("token: '{token}'")))
    }

    fn route(&self, namespace: &str, name: &str, host: &str, service: &str) -> Result<()> {
        let backend = json!({"service": {"name": service, "port": {"number": 80}}});
        let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
        let rule = if host.is_empty() {
            json!({"http": {"paths": paths}})
        } else {
            json!({"host": host, "http": {"paths": paths}})
        };
        self.post(
            &format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses"),
            &json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name},
                "spec": {"ingressClassName": "nginx", "rules": [rule]},
            }),
        )?;
        Ok(())
    }

    fn pod(&self, namespace: &str, name: &str) -> Result<()> {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f", "controller": true, "uid": "1"});
        self.post(&format!("/api/v1/namespaces/{namespace}/pods"), &json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"pod-template-hash": "5d8f"}, "ownerReferences": [owner]},
            "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "none", "env": [{"name": "PASSWORD", "value": SECRET}]}]},
        }))?;
        Ok(())
    }

    fn server_url(&self, value: &str) -> Result<()> {
        let change = json!({"value": value}).to_string();
        self.send("PATCH", "/apis/management.cattle.io/v3/settings/server-url", MERGE, &change).map(drop)
    }

    /// What a pass of the sensor and the rules say, with a balancer that is configured for `balancer`.
    async fn said(&self, balancer: &str) -> Result<Said> {
        let settings =
            CredentialSettings { rancher_kubeconfig: Some(FILE.into()), ..CredentialSettings::default() };
        let begun = Instant::now();
        let (found, told) =
            self.disk.judged(&settings, json!({"loadBalancer": seen_balancer(balancer)})).await?;
        Ok(Said { found, told, took: begun.elapsed() })
    }
}

struct Said {
    found: Vec<Finding>,
    told: String,
    took: Duration,
}

impl Said {
    fn of(&self, condition_type: &ConditionType) -> Result<&Finding> {
        let found = self.found.iter().find(|f| f.condition_type == *condition_type);
        found.with_context(|| format!("no {condition_type}: {}", self.told))
    }
}

/// A balancer as the load-balancer check left it: `HOST` and the names of its certificate, `host=san,san`.
fn seen_balancer(of: &str) -> Value {
    let (host, sans) = of.split_once('=').unwrap_or((of, of));
    let at = Timestamp::from_seconds(now());
    let leaf = json!({"subject": "CN=rancher", "issuer": "CN=ca", "sans": sans.split(',').collect::<Vec<_>>(),
        "notBefore": at, "notAfter": at, "sha256": "", "isCa": false});
    let tls = json!({"version": "TLSv1.3", "chain": [leaf], "trust": Fact::known(String::new(), "t", at), "nameMatches": true});
    let probe = json!({"kind": "connect", "target": "balancer", "peer": "192.0.2.10:443", "at": at,
        "tcp": Fact::known(1.0, "t", at), "tls": {"state": "known", "value": tls, "source": "t", "at": at},
        "http": Fact::<HttpAnswer>::not_applicable("not asked", at)});
    let balancer = json!({"name": "rancher", "url": format!("https://{host}"), "host": host, "port": 443, "httpPort": 80,
        "mode": "l4", "addresses": Fact::known(vec!["192.0.2.10".to_owned()], "t", at), "probes": [probe]});
    json!({"state": "known", "value": [balancer], "source": "t", "at": at})
}

fn words(f: &Finding) -> String {
    format!("{} {} {}", f.status, f.reason, f.severity)
}

#[tokio::test]
#[ignore = "suite: tests/run --suite credentials"]
async fn rancher_and_everybody_before_it_have_to_go_by_one_name() -> Result<()> {
    let program = match program() {
        Ok(program) => program,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    let mut local = Local::start(&program)?;
    let mut table = Table::new("credentials: Rancher's own cluster behind a real kube-apiserver");
    let (name, alone) = (ConditionType::RancherName, ConditionType::RancherClusterDedicated);

    let said = local.said("rancher.example").await?;
    for (condition_type, expected) in
        [(&name, "True RancherNameAgreed ok"), (&alone, "True RancherClusterAlone ok")]
    {
        let finding = said.of(condition_type)?;
        table.timed(
            "none",
            "the rights of reader.yaml",
            format!("{condition_type}={}", words(finding)),
            said.took,
            None,
        );
        ensure!(words(finding) == expected, "{finding:#?}\n{}", said.told);
    }
    // The reader's own kubeconfig is good, and so are credentials that are not there.
    let own = said.found.iter().filter(|f| f.condition_type == ConditionType::CredentialsValid);
    ensure!(
        own.clone().count() > 0 && own.clone().all(|f| f.severity <= Severity::Info),
        "{:#?}",
        said.found
    );

    // Each of the names by turns.
    for (fault, url, balancer, expected, word) in [
        (
            "certificate of another name",
            "https://rancher.example",
            "rancher.example=other.example",
            "False RancherNameDiffers error",
            "other.example",
        ),
        (
            "balancer by another name",
            "https://rancher.example",
            "rancher-internal.example",
            "True RancherNameDiffers warn",
            "rancher-internal.example",
        ),
        (
            "server-url is not the Ingress' host",
            "https://rancher.other",
            "rancher.other",
            "False RancherNameDiffers error",
            "rancher.example only",
        ),
        (
            "server-url by another port",
            "https://rancher.example:8443",
            "rancher.example",
            "True RancherNameDiffers warn",
            "8443",
        ),
        ("server-url not set", "", "rancher.example", "True RancherServerUrlUnusable warn", "not set"),
        (
            "server-url in the open",
            "http://rancher.example",
            "rancher.example",
            "True RancherServerUrlUnusable warn",
            "http://",
        ),
    ] {
        local.server_url(url)?;
        let said = local.said(balancer).await?;
        let finding = said.of(&name)?;
        table.timed(
            fault,
            format!("server-url {url:?}, balancer {balancer}"),
            format!("{name}={}", words(finding)),
            said.took,
            None,
        );
        ensure!(words(finding) == expected && finding.message.contains(word), "{fault}: {finding:#?}");
        // Nobody is told to rename.
        ensure!(
            url.is_empty()
                || finding.advice.contains("cannot be changed")
                || finding.advice.contains("before anything is changed"),
            "{finding:#?}"
        );
    }
    local.server_url("https://rancher.example")?;

    // Others in the cluster.
    local.pod("prod", "web-5d8f-1")?;
    local.pod("prod", "web-5d8f-2")?;
    let said = local.said("rancher.example").await?;
    let finding = said.of(&alone)?;
    table.timed(
        "a workload of others",
        "two pods in namespace prod",
        format!("{alone}={}", words(finding)),
        said.took,
        None,
    );
    ensure!(words(finding) == "True RancherClusterShared info", "{finding:#?}");
    ensure!(finding.message.contains("Deployment prod/web (2 pods)"), "{finding:#?}");
    ensure!(!said.told.contains(SECRET), "more than metadata was read: {}", said.told);

    local.route("prod", "shop", "shop.example", "web")?;
    let said = local.said("rancher.example").await?;
    let finding = said.of(&alone)?;
    table.timed(
        "an Ingress of others",
        "prod/shop for shop.example",
        format!("{alone}={}", words(finding)),
        said.took,
        None,
    );
    ensure!(
        words(finding) == "True RancherClusterShared warn" && finding.message.contains("prod/shop"),
        "{finding:#?}"
    );

    local.route("prod", "steal", "rancher.example", "web")?;
    let said = local.said("rancher.example").await?;
    let finding = said.of(&alone)?;
    table.timed(
        "Rancher's host taken twice",
        "prod/steal for rancher.example",
        format!("{alone}={}", words(finding)),
        said.took,
        None,
    );
    ensure!(
        words(finding) == "True RancherHostContested warn" && finding.message.contains("prod/steal"),
        "{finding:#?}"
    );
    for ingress in ["shop", "steal"] {
        local.delete(&format!("/apis/networking.k8s.io/v1/namespaces/prod/ingresses/{ingress}"))?;
    }
    for pod in ["web-5d8f-1", "web-5d8f-2"] {
        local.delete(&format!("/api/v1/namespaces/prod/pods/{pod}?gracePeriodSeconds=0"))?;
    }
    let said = local.said("rancher.example").await?;
    ensure!(words(said.of(&alone)?) == "True RancherClusterAlone ok", "{:#?}", said.of(&alone)?);
    refusals(&mut local, &mut table).await
}

/// Rights taken one by one, the reader taken away, the server taken away.
async fn refusals(local: &mut Local, table: &mut Table) -> Result<()> {
    let (name, alone) = (ConditionType::RancherName, ConditionType::RancherClusterDedicated);
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/outrider-reader";
    let (_, whole) = local.server.request(&local.admin, "GET", role, None)?;
    let whole: Value = serde_json::from_str(&whole)?;
    for (resource, of, stays) in
        [("settings", &name, &alone), ("ingresses", &name, &alone), ("pods", &alone, &name)]
    {
        let rules = whole.pointer("/rules").and_then(Value::as_array).context("no rules")?;
        let without = rules
            .iter()
            .filter(|rule| rule.pointer("/resources/0").and_then(Value::as_str) != Some(resource));
        let change = json!({"rules": without.collect::<Vec<_>>()}).to_string();
        local.send("PATCH", role, MERGE, &change)?;
        // The authorizer reads roles from a watch.
        let said = until(local, |said| said.of(of).is_ok_and(|f| f.reason == ReasonCode::Forbidden)).await?;
        let finding = said.of(of)?;
        table.timed(
            "a right is missing",
            format!("no rule for {resource}"),
            format!("{of}={}", words(finding)),
            said.took,
            None,
        );
        ensure!(
            finding.status == Status::Unknown
                && finding.message.contains(&format!("resource \"{resource}\"")),
            "{finding:#?}"
        );
        ensure!(resource == "ingresses" || said.of(stays)?.status == Status::True, "{:#?}", said.of(stays)?);
    }
    local.send("PATCH", role, MERGE, &json!({"rules": whole["rules"]}).to_string())?;
    until(local, |said| said.of(&name).is_ok_and(|f| f.reason == ReasonCode::RancherNameAgreed)).await?;

    // Its ServiceAccount is deleted: the token is one of nobody.
    local.delete("/api/v1/namespaces/outrider/serviceaccounts/reader")?;
    let said =
        until(local, |said| said.of(&name).is_ok_and(|f| f.reason == ReasonCode::Unauthenticated)).await?;
    for of in [&name, &alone] {
        let finding = said.of(of)?;
        table.timed(
            "the reader is gone",
            "its ServiceAccount deleted",
            format!("{of}={}", words(finding)),
            said.took,
            None,
        );
        ensure!(
            finding.status == Status::Unknown && finding.reason == ReasonCode::Unauthenticated,
            "{finding:#?}"
        );
    }

    // Another cluster than Rancher's own.
    local.apply(
        &READER[READER.find("apiVersion: v1\nkind: ServiceAccount").context("no account")?
            ..READER.find("---\n# The name").context("no end")?],
    )?;
    local.let_in()?;
    local.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/settings.management.cattle.io")?;
    let said =
        until(local, |said| said.of(&name).is_ok_and(|f| f.reason == ReasonCode::InvalidInput)).await?;
    table.timed(
        "not Rancher's own cluster",
        "no settings.management.cattle.io",
        format!("{name}={}", words(said.of(&name)?)),
        said.took,
        None,
    );

    local.server.kill();
    let said = local.said("rancher.example").await?;
    let finding = said.of(&name)?;
    table.timed(
        "the server is away",
        "kube-apiserver killed",
        format!("{name}={}", words(finding)),
        said.took,
        None,
    );
    ensure!(
        finding.status == Status::Unknown && finding.reason == ReasonCode::ConnectionRefused,
        "{finding:#?}"
    );
    Ok(())
}

async fn until(local: &Local, wanted: impl Fn(&Said) -> bool) -> Result<Said> {
    let start = Instant::now();
    loop {
        let said = local.said("rancher.example").await?;
        if wanted(&said) {
            return Ok(said);
        }
        ensure!(start.elapsed() < LIMIT, "{:#?}\n{}", said.found, said.told);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
