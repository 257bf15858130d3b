//! Rancher's cloud credentials.

use anyhow::{Context, Result, ensure};
use outrider_agent::config::CredentialSettings;
use outrider_protocol::*;
use outrider_tests::beds::api::{Api, Asked, status};
use outrider_tests::table::Table;
use serde_json::{Value, json};

use crate::bed::*;

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
