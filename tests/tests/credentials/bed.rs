//! A machine's disk with kubeconfigs on it, and what the sensor and the rules make of them.

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
use outrider_tests::beds::api::Asked;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const DAY: i64 = 86_400;
pub(crate) const SECRET: &str = "S3CRETKEY";

pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// A ServiceAccount's token; its signature is none of ours to check.
pub(crate) fn jwt(claims: Value) -> String {
    let url = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{}", url("{\"alg\":\"RS256\"}"), url(&claims.to_string()), url(SECRET))
}

pub(crate) fn service_account(end: Option<i64>) -> String {
    let mut claims =
        json!({"iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:prod:csi"});
    if let Some(end) = end {
        claims["exp"] = json!(end);
    }
    jwt(claims)
}

pub(crate) fn rancher_token(name: &str) -> String {
    format!("{name}:{SECRET}")
}

pub(crate) fn kubeconfig(server: &str, ca: &str, user: &str) -> String {
    let ca = base64(ca.as_bytes());
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: default\n  cluster:\n    server: {server}\n    certificate-authority-data: {ca}\n\
         contexts:\n- name: default\n  context: {{cluster: default, user: default, namespace: prod}}\n\
         current-context: default\nusers:\n- name: default\n  user: {{{user}}}\n"
    )
}

/// A machine's disk.
pub(crate) struct Disk(TempDir);

impl Disk {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    pub(crate) fn write(&self, path: &str, text: &str) -> Result<()> {
        let file = self.0.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().context("no folder")?)?;
        Ok(std::fs::write(file, text)?)
    }

    pub(crate) fn cx(&self) -> SenseContext {
        let root: &Path = self.0.path();
        SenseContext {
            root: root.to_owned(),
            clock: Arc::new(|| std::time::SystemTime::now().into()),
            opener: Arc::new(DirectOpener::below(root)),
        }
    }

    /// What the rules say of the credentials that the sensor reads.
    pub(crate) async fn findings(&self, settings: &CredentialSettings) -> Result<(Vec<Finding>, String)> {
        let (found, told) = self.judged(settings, json!({})).await?;
        Ok((
            found.into_iter().filter(|f| f.condition_type == ConditionType::CredentialsValid).collect(),
            told,
        ))
    }

    /// What the sensor reads, and all that the rules say of it beside what other checks have read.
    pub(crate) async fn judged(
        &self,
        settings: &CredentialSettings,
        others: Value,
    ) -> Result<(Vec<Finding>, String)> {
        let limit = Duration::from_secs(30);
        let read = credentials::read(&self.cx(), settings, limit, &mut credentials::Memory::default()).await;
        let told = serde_json::to_string(&read)?;
        ensure!(!told.contains(SECRET), "a secret is in the facts: {told}");
        let at = read.at();
        let kernel = KernelClock { synchronized: true, estimated_error_us: 100, maximum_error_us: 1000 };
        let clock = ClockFacts {
            kernel: Fact::known(kernel, "suite", at),
            service: Fact::absent("suite", at),
            source: None,
            coordinator: Fact::not_applicable("none", at),
        };
        let mut checks = json!({"credentials": read, "clock": Fact::known(clock, "suite", at)});
        for (check, fact) in others.as_object().into_iter().flatten() {
            checks[check.as_str()] = fact.clone();
        }
        let facts: NodeFacts = serde_json::from_value(json!({
            "apiVersion": API_VERSION, "kind": "NodeFacts", "agentVersion": "0", "now": at, "checks": checks,
            "node": {"name": "n1", "profile": "generic"},
        }))?;
        Ok((judge(&facts).findings, told))
    }

    pub(crate) async fn finding(&self, settings: &CredentialSettings) -> Result<Finding> {
        let (mut found, told) = self.findings(settings).await?;
        ensure!(found.len() == 1, "{found:#?} {told}");
        Ok(found.remove(0))
    }
}

pub(crate) fn seen(f: &Finding) -> String {
    format!("CredentialsValid={} {} {}", f.status, f.reason, f.severity)
}

pub(crate) fn version(_: &Asked) -> (u16, Value) {
    (200, json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0"}))
}

pub(crate) const PROVIDER: &str = "/etc/kubernetes/cloud-config";
pub(crate) const GIVEN: &str = "/root/kubeconfig";

pub(crate) fn settings() -> CredentialSettings {
    CredentialSettings { kubeconfigs: vec![GIVEN.into()], ..CredentialSettings::default() }
}

pub(crate) fn only_given(findings: Vec<Finding>, path: &str) -> Result<Finding> {
    findings.into_iter().find(|f| f.subject == path).context("no finding")
}
