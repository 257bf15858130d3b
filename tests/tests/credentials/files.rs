//! Kubeconfigs that no client can use, and client certificates that end.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use outrider_agent::config::CredentialSettings;
use outrider_protocol::*;
use outrider_tests::table::Table;
use rcgen::string::Ia5String;

use crate::bed::*;

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
    let (key, other) = (rcgen::KeyPair::generate()?, rcgen::KeyPair::generate()?);
    for (fault, days, held, expected) in [
        ("client certificate ended", -1, &key, "False CredentialExpired error"),
        ("client certificate ends", 3, &key, "True CredentialEnding error"),
        ("a key of another pair", 300, &other, "False CredentialUnusable warn"),
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
            base64(held.serialize_pem().as_bytes())
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
