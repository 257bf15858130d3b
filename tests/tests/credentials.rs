//! Credentials of every kind: kubeconfigs on a disk and a server over TLS that accepts, refuses or has forgotten them.
//!
//! The sensor is the agent's own, the verdict that of the real rules by a clock that is kept (this machine's may not be).
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use outrider_agent::config::CredentialSettings;
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::{SenseContext, credentials};
use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;
use outrider_tests::beds::api::{Api, Asked, status};
use outrider_tests::table::Table;
use rcgen::string::Ia5String;
use serde_json::{Value, json};
use tempfile::TempDir;

const DAY: i64 = 86_400;
const SECRET: &str = "S3CRETKEY";

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// A ServiceAccount's token; its signature is none of ours to check.
fn jwt(claims: Value) -> String {
    let url = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{}", url("{\"alg\":\"RS256\"}"), url(&claims.to_string()), url(SECRET))
}

fn service_account(end: Option<i64>) -> String {
    let mut claims =
        json!({"iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:prod:csi"});
    if let Some(end) = end {
        claims["exp"] = json!(end);
    }
    jwt(claims)
}

fn rancher_token(name: &str) -> String {
    format!("{name}:{SECRET}")
}

fn kubeconfig(server: &str, ca: &str, user: &str) -> String {
    let ca = base64(ca.as_bytes());
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: default\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n\
         contexts:\n- name: default\n  context: {{cluster: default, user: default, namespace: prod}}\n\
         current-context: default\nusers:\n- name: default\n  user: {{{user}}}\n"
    )
}

/// A machine's disk.
struct Disk(TempDir);

impl Disk {
    fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let file = self.0.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().context("no folder")?)?;
        Ok(std::fs::write(file, text)?)
    }

    fn cx(&self) -> SenseContext {
        let root: &Path = self.0.path();
        SenseContext {
            root: root.to_owned(),
            clock: Arc::new(|| std::time::SystemTime::now().into()),
            opener: Arc::new(DirectOpener::below(root)),
        }
    }

    /// What the sensor reads, and what the rules say of it.
    async fn findings(&self, settings: &CredentialSettings) -> Result<(Vec<Finding>, String)> {
        let limit = Duration::from_secs(30);
        let read = credentials::read(&self.cx(), settings, limit, &mut credentials::Memory::default()).await;
        let told = serde_json::to_string(&read)?;
        ensure!(!told.contains(SECRET), "a secret is in the facts: {told}");
        let at = read.at();
        let kernel = KernelClock { synchronized: true, estimated_error_us: 100, maximum_error_us: 1000 };
        let clock = ClockFacts {
            kernel: Fact::known(kernel, "suite", at),
            service: Fact::absent("suite", at),
            coordinator: Fact::not_applicable("none", at),
        };
        let checks = json!({"credentials": read, "clock": Fact::known(clock, "suite", at)});
        let facts: NodeFacts = serde_json::from_value(json!({
            "apiVersion": API_VERSION, "kind": "NodeFacts", "agentVersion": "0", "now": at, "checks": checks,
            "node": {"name": "n1", "profile": "generic"},
        }))?;
        let found = judge(&facts).findings;
        Ok((
            found.into_iter().filter(|f| f.condition_type == ConditionType::CredentialsValid).collect(),
            told,
        ))
    }

    async fn finding(&self, settings: &CredentialSettings) -> Result<Finding> {
        let (mut found, told) = self.findings(settings).await?;
        ensure!(found.len() == 1, "{found:#?} {told}");
        Ok(found.remove(0))
    }
}

fn seen(f: &Finding) -> String {
    format!("CredentialsValid={} {} {}", f.status, f.reason, f.severity)
}

fn version(_: &Asked) -> (u16, Value) {
    (200, json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}))
}

const PROVIDER: &str = "/etc/kubernetes/cloud-config";
const GIVEN: &str = "/root/kubeconfig";

struct Case {
    fault: &'static str,
    made: &'static str,
    path: &'static str,
    user: String,
    answer: fn(&Asked) -> (u16, Value),
    expected: &'static str,
    words: &'static str,
}

fn cases() -> Vec<Case> {
    let token = |token: &str| format!("token: '{token}'");
    let of = |fault, made, user: String, answer: fn(&Asked) -> (u16, Value), expected, words| Case {
        fault,
        made,
        path: GIVEN,
        user,
        answer,
        expected,
        words,
    };
    let ranchers = token(&rancher_token("kubeconfig-user-x"));
    let unauthorized: fn(&Asked) -> (u16, Value) = |_| status(401, "Unauthorized");
    vec![
        of(
            "none",
            "token without exp, 200",
            token(&service_account(None)),
            version,
            "True CredentialsGood ok",
            "no end",
        ),
        of(
            "ends in 10 days",
            "claim exp",
            token(&service_account(Some(now() + 10 * DAY))),
            version,
            "True CredentialEnding warn",
            "9 days",
        ),
        of(
            "ends in 5 days",
            "claim exp",
            token(&service_account(Some(now() + 5 * DAY))),
            version,
            "True CredentialEnding error",
            "4 days",
        ),
        of(
            "ended",
            "claim exp, server answers 401",
            token(&service_account(Some(now() - DAY))),
            unauthorized,
            "False CredentialExpired error",
            "ended",
        ),
        of(
            "signed by another key",
            "no exp, server answers 401",
            token(&service_account(None)),
            unauthorized,
            "False CredentialRefused error",
            "another key",
        ),
        of(
            "Rancher's token expired or purged",
            "401 must authenticate",
            ranchers.clone(),
            |_| status(401, "must authenticate"),
            "False CredentialRefused error",
            "purged",
        ),
        of(
            "19 of 20 calls refused",
            "401, 401, 200",
            ranchers.clone(),
            |asked| if asked.before < 2 { status(401, "Unauthorized") } else { version(asked) },
            "True CredentialRefused warn",
            "only 1 of 3",
        ),
        of(
            "a right is lacking",
            "403 with verb and resource",
            token(&service_account(None)),
            |_| {
                status(
                    403,
                    "nodes is forbidden: User \"system:serviceaccount:prod:csi\" cannot list resource \"nodes\"",
                )
            },
            "False CredentialForbidden warn",
            "cannot list resource",
        ),
        of(
            "cluster removed from Rancher",
            "404",
            ranchers.clone(),
            |_| status(404, "clusters.management.cattle.io \"c-m-x\" not found"),
            "False CredentialGone error",
            "not found",
        ),
        of(
            "token gone",
            "410",
            ranchers.clone(),
            |_| status(410, "gone"),
            "False CredentialGone error",
            "410",
        ),
        of(
            "server cannot answer",
            "503",
            token(&service_account(None)),
            |_| status(503, "no leader"),
            "Unknown Unavailable warn",
            "503",
        ),
        of(
            "exec plugin",
            "user.exec",
            "exec: {command: /usr/bin/aws, args: [S3CRETKEY]}".into(),
            version,
            "Unknown CredentialEndUnknown info",
            "never runs",
        ),
        of(
            "no credential",
            "empty user",
            String::new(),
            version,
            "False CredentialUnusable warn",
            "no credential",
        ),
        of(
            "broken token",
            "claims are no base64",
            token("eyJhbGciOiJSUzI1NiJ9.%%.x"),
            version,
            "False CredentialUnusable warn",
            "no base64",
        ),
        Case {
            fault: "kubeconfigs swapped",
            made: "Rancher's token where the cloud provider's belongs",
            path: PROVIDER,
            user: ranchers,
            answer: version,
            expected: "False CredentialWrongKind warn",
            words: "ServiceAccount",
        },
    ]
}

fn settings() -> CredentialSettings {
    CredentialSettings { kubeconfigs: vec![GIVEN.into()], ..CredentialSettings::default() }
}

fn only_given(findings: Vec<Finding>, path: &str) -> Result<Finding> {
    findings.into_iter().find(|f| f.subject == path).context("no finding")
}

#[tokio::test]
#[ignore = "suite: tests/run --suite credentials"]
async fn every_kind_of_credential_is_told_by_what_its_server_answers() -> Result<()> {
    let mut table = Table::new("credentials: kubeconfigs and a server over TLS");
    for case in cases() {
        let api = Api::start(case.answer).await?;
        let disk = Disk::new()?;
        disk.write(case.path, &kubeconfig(&api.url, &api.ca, &case.user))?;
        let (found, told) = disk.findings(&settings()).await?;
        let finding = only_given(found, case.path)?;
        table.row(case.fault, case.made, seen(&finding));
        let words = format!("{} {} {}", finding.status, finding.reason, finding.severity);
        ensure!(words == case.expected, "{}: {finding:#?}\n{told}", case.fault);
        ensure!(finding.message.contains(case.words) || finding.advice.contains(case.words), "{finding:#?}");
        ensure!(!finding.message.contains(SECRET), "{finding:#?}");
        // Polite: a few cheap requests, never more.
        ensure!(api.asked().len() <= 4, "{:#?}", api.asked());
    }
    Ok(())
}

#[tokio::test]
#[ignore = "suite: tests/run --suite credentials"]
async fn the_way_to_the_server_is_no_fault_of_the_credential() -> Result<()> {
    let mut table = Table::new("credentials: the way to the server");
    let api = Api::start(version).await?;
    let other = Api::start(version).await?;
    let user = format!("token: '{}'", service_account(None));
    let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    for (fault, made, server, ca, reason) in [
        (
            "another authority",
            "certificate-authority-data of another server",
            api.url.clone(),
            &other.ca,
            "TlsFailed",
        ),
        ("nothing listens", "a closed port", format!("https://{closed}"), &api.ca, "ConnectionRefused"),
        (
            "name unknown",
            "a name under .invalid",
            "https://rancher.invalid".to_owned(),
            &api.ca,
            "NameNotResolved",
        ),
    ] {
        let disk = Disk::new()?;
        disk.write(GIVEN, &kubeconfig(&server, ca, &user))?;
        let finding = disk.finding(&settings()).await?;
        table.row(fault, made, seen(&finding));
        ensure!(finding.status == Status::Unknown && finding.reason.as_str() == reason, "{finding:#?}");
    }
    let disk = Disk::new()?;
    disk.write(GIVEN, &kubeconfig(&api.url, &api.ca, &user))?;
    let off = CredentialSettings { verify: false, ..settings() };
    let finding = disk.finding(&off).await?;
    table.row("none", "verify = false", seen(&finding));
    ensure!(finding.status == Status::True && api.asked().is_empty(), "{finding:#?}");
    let insecure = kubeconfig(&api.url, &api.ca, &user)
        .replace("    certificate-authority-data:", "    insecure-skip-tls-verify: true\n    x:");
    disk.write(GIVEN, &insecure)?;
    let finding = disk.finding(&settings()).await?;
    table.row("server not verified", "insecure-skip-tls-verify: true", seen(&finding));
    ensure!(api.asked().is_empty(), "a token went to a server that is not verified");
    Ok(())
}

#[tokio::test]
#[ignore = "suite: tests/run --suite credentials"]
async fn files_that_no_client_can_use() -> Result<()> {
    let mut table = Table::new("credentials: files");
    let good = kubeconfig("https://127.0.0.1:1", "", &format!("token: '{}'", service_account(None)));
    for (fault, made, text, words) in [
        ("empty", "no bytes", String::new(), "empty"),
        (
            "cut short",
            "the first half of the file",
            good[..good.len() / 2].replace("contexts:", "contexts: ["),
            "YAML",
        ),
        (
            "no current context",
            "the line left out",
            good.replace("current-context: default\n", ""),
            "current-context",
        ),
        (
            "another context",
            "current-context: prod",
            good.replace("current-context: default", "current-context: prod"),
            "\"prod\"",
        ),
    ] {
        let disk = Disk::new()?;
        disk.write(PROVIDER, &text)?;
        let (found, told) = disk.findings(&CredentialSettings::default()).await?;
        let finding = only_given(found, PROVIDER).context(told)?;
        table.row(fault, made, seen(&finding));
        ensure!(
            finding.reason == ReasonCode::CredentialUnusable && finding.severity == Severity::Error,
            "{finding:#?}"
        );
        ensure!(finding.message.contains(words), "{finding:#?}");
    }
    let key = rcgen::KeyPair::generate()?;
    for (fault, days, expected) in [
        ("client certificate ended", -1, "False CredentialExpired error"),
        ("client certificate ends", 3, "True CredentialEnding error"),
    ] {
        let mut params = rcgen::CertificateParams::new(Vec::new())?;
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, rcgen::DnValue::Ia5String(Ia5String::try_from("system:admin")?));
        params.not_before = (std::time::SystemTime::now() - Duration::from_secs(40 * 86_400)).into();
        let end = std::time::UNIX_EPOCH + Duration::from_secs(u64::try_from(now() + days * DAY)?);
        params.not_after = end.into();
        let pem = params.self_signed(&key)?.pem();
        let user = format!(
            "client-certificate-data: {}, client-key-data: {}",
            base64(pem.as_bytes()),
            base64(key.serialize_pem().as_bytes())
        );
        let disk = Disk::new()?;
        disk.write("/etc/rancher/rke2/rke2.yaml", &kubeconfig("https://127.0.0.1:1", "", &user))?;
        let off = CredentialSettings { verify: false, ..CredentialSettings::default() };
        let finding = disk.finding(&off).await?;
        table.row(fault, format!("admin kubeconfig, {days} days"), seen(&finding));
        ensure!(
            format!("{} {} {}", finding.status, finding.reason, finding.severity) == expected,
            "{finding:#?}"
        );
    }
    Ok(())
}

/// Rancher's own cluster with one Harvester credential whose token is as `token` says.
fn rancher(asked: &Asked, annotations: &Value, token: Option<Value>) -> (u16, Value) {
    if asked.token != rancher_token("reader") {
        return status(401, "Unauthorized");
    }
    let content = kubeconfig(
        "https://rancher.example/k8s/clusters/c-m-x",
        "",
        &format!("token: '{}'", rancher_token("kubeconfig-user-x")),
    );
    let path = asked.path.split('?').next().unwrap_or_default();
    match path {
        "/version" => version(asked),
        "/api/v1/namespaces/cattle-global-data/secrets" => {
            let secret = |name: &str, data: Value| json!({
                "metadata": {"name": name, "namespace": "cattle-global-data", "annotations": annotations, "creationTimestamp": "2026-11-01T00:00:00Z"},
                "data": data,
            });
            let of_harvester = json!({"harvestercredentialConfig-kubeconfigContent": base64(content.as_bytes())});
            let of_azure = json!({"azurecredentialConfig-clientSecret": "eA=="});
            // Two pages.
            if asked.path.contains("continue=abc") {
                (200, json!({"kind": "SecretList", "metadata": {}, "items": [secret("cc-azure", of_azure)]}))
            } else {
                (200, json!({"kind": "SecretList", "metadata": {"continue": "abc"}, "items": [secret("cc-lab", of_harvester)]}))
            }
        }
        "/apis/provisioning.cattle.io/v1/clusters" => (200, json!({"kind": "ClusterList", "metadata": {}, "items": [
            {"metadata": {"namespace": "fleet-default", "name": "prod"}, "spec": {"cloudCredentialSecretName": "cattle-global-data:cc-lab"}},
            {"metadata": {"namespace": "fleet-default", "name": "other"}, "spec": {"rkeConfig": {"machinePools": [{"cloudCredentialSecretName": "cattle-global-data:cc-none"}]}}},
        ]})),
        "/apis/management.cattle.io/v3/tokens/kubeconfig-user-x" => token.map_or_else(|| status(404, "not found"), |token| {
            let mut object = json!({"metadata": {"name": "kubeconfig-user-x", "creationTimestamp": "2026-11-01T00:00:00Z"}, "enabled": true});
            for (key, value) in token.as_object().into_iter().flatten() {
                object[key.as_str()] = value.clone();
            }
            (200, object)
        }),
        path if path.starts_with("/v3/tokens/") => status(404, "not found"),
        _ => status(404, "not found"),
    }
}

#[tokio::test]
#[ignore = "suite: tests/run --suite credentials"]
async fn ranchers_cloud_credentials_are_told_with_the_clusters_that_use_them() -> Result<()> {
    let mut table = Table::new("credentials: Rancher's cloud credentials");
    let day = |n: i64| jiff::Timestamp::from_second(now() + n * DAY).unwrap().to_string();
    let ms = |n: i64| ((now() + n * DAY) * 1000).to_string();
    let annotated =
        |text: String| json!({"field.cattle.io/name": "lab", "rancher.io/expiration-timestamp": text});
    let plain = || json!({"field.cattle.io/name": "lab"});
    let lives = |made: i64, ttl_days: i64| {
        json!({
            "ttl": ttl_days * DAY * 1000, "expiresAt": day(made + ttl_days), "expired": false,
            "metadata": {"name": "kubeconfig-user-x", "creationTimestamp": day(made)},
        })
    };
    /// Fault, how it was made, annotations, the token object, what is expected, and a word of it.
    type Told = (&'static str, &'static str, Value, Option<Value>, &'static str, &'static str);
    let cases: Vec<Told> = vec![
        (
            "ends in 10 days",
            "token object, 30 days of life",
            plain(),
            Some(lives(-20, 30)),
            "True CredentialEnding warn",
            "fleet-default/prod",
        ),
        (
            "ended",
            "token object",
            plain(),
            Some(lives(-31, 30)),
            "False CredentialExpired error",
            "fleet-default/prod",
        ),
        (
            "never",
            "ttl 0, expired left over",
            annotated(ms(-10)),
            Some(json!({"ttl": 0, "expired": true, "expiresAt": day(-10)})),
            "True CredentialsGood ok",
            "stale",
        ),
        (
            "token purged",
            "404 for the token",
            plain(),
            None,
            "False CredentialGone error",
            "kubeconfig-user-x",
        ),
    ];
    for (fault, made, annotations, token, expected, words) in cases {
        let api = Api::start(move |asked| rancher(asked, &annotations, token.clone())).await?;
        let disk = Disk::new()?;
        disk.write(
            "/root/rancher.yaml",
            &kubeconfig(&api.url, &api.ca, &format!("token: '{}'", rancher_token("reader"))),
        )?;
        let settings = CredentialSettings {
            rancher_kubeconfig: Some("/root/rancher.yaml".into()),
            ..CredentialSettings::default()
        };
        let (found, told) = disk.findings(&settings).await?;
        let finding =
            found.into_iter().find(|f| f.subject.contains("cc-lab")).with_context(|| told.clone())?;
        table.row(fault, made, seen(&finding));
        ensure!(
            format!("{} {} {}", finding.status, finding.reason, finding.severity) == expected,
            "{finding:#?}\n{told}"
        );
        ensure!(finding.message.contains(words), "{finding:#?}");
        ensure!(told.contains("\"others\":1"), "the second page was not read: {told}");
    }
    // A reader that is not let in says so, and nothing is called expired.
    let api = Api::start(|asked| {
        if asked.path == "/version" {
            version(asked)
        } else {
            status(403, "secrets is forbidden: User \"u\" cannot list resource \"secrets\"")
        }
    })
    .await?;
    let disk = Disk::new()?;
    disk.write(
        "/root/rancher.yaml",
        &kubeconfig(&api.url, &api.ca, &format!("token: '{}'", rancher_token("reader"))),
    )?;
    let settings = CredentialSettings {
        rancher_kubeconfig: Some("/root/rancher.yaml".into()),
        ..CredentialSettings::default()
    };
    let (found, told) = disk.findings(&settings).await?;
    let finding = found.into_iter().find(|f| f.subject == "cloud credentials").context(told)?;
    table.row("a right is lacking", "403 for the list of secrets", seen(&finding));
    ensure!(finding.status == Status::Unknown && finding.reason == ReasonCode::Forbidden, "{finding:#?}");
    ensure!(finding.message.contains("cannot list resource"), "{finding:#?}");
    Ok(())
}
