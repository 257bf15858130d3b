//! Kubeconfigs of every kind, and every answer of their server.

use anyhow::{Result, ensure};
use outrider_agent::config::CredentialSettings;
use outrider_protocol::*;
use outrider_tests::beds::api::{Api, Asked, status};
use outrider_tests::table::Table;
use serde_json::Value;

use crate::bed::*;

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
            "broken token, refused",
            "claims are no base64, 401",
            token("eyJhbGciOiJSUzI1NiJ9.%%.x"),
            |_| status(401, "Unauthorized"),
            "False CredentialRefused error",
            "no base64",
        ),
        // What a server takes is no fault, whatever it looks like; only its end cannot be told.
        of(
            "broken token, accepted",
            "claims are no base64, 200",
            token("eyJhbGciOiJSUzI1NiJ9.%%.x"),
            version,
            "True CredentialsGood info",
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
