//! Rancher's cloud credentials: Secrets in `cattle-global-data`, the tokens in them, and the clusters that use them
//! (rancher/rancher, `pkg/api/norman/customization/cred/store.go`).
//!
//! [`credential`] is pure: a Secret in, what may be known of it out. The rest is a small client: pages of few Secrets, one
//! GET a token, one list of clusters.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use outrider_protocol::{
    CloudCredential, CloudCredentials, CloudKind, Fact, RancherToken, Timestamp, TokenForm, UnknownCause,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::access::{Access, object};
use super::kubeconfig::Kubeconfig;
use super::list::{self, List, WHOLE};
use super::{files, rancher_token};
use crate::net::{Failure, certificate};
use crate::sense::SenseContext;

const SECRETS: &str = "/api/v1/namespaces/cattle-global-data/secrets";
const TOKENS: &str = "/apis/management.cattle.io/v3/tokens";
const EXT_TOKENS: &str = "/apis/ext.cattle.io/v1/tokens";
const CLUSTERS: &str = "/apis/provisioning.cattle.io/v1/clusters";
/// Objects of one page: Secrets may be large.
const PAGE: usize = 40;
/// Most credentials that are told of, and clusters of one.
const MAX_CREDENTIALS: usize = 64;
const MAX_USERS: usize = 100;

const EXPIRATION: &str = "rancher.io/expiration-timestamp";
const MADE_TO_LAST: &str = "management.cattle.io/harvester-token-checksum";
const KUBECONFIG: &str = "harvestercredentialConfig-kubeconfigContent";
const ACCESS_KEY: &str = "amazonec2credentialConfig-accessKey";

/// A Secret, as much of it as is looked at.
#[derive(Deserialize)]
struct Secret {
    metadata: Metadata,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    creation_timestamp: Option<String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// What kind of Secret it is.
enum Told {
    Credential(Box<CloudCredential>),
    /// A credential of another cloud.
    Other,
    /// No credential at all.
    Nothing,
}

/// Everything that is there.
pub(super) async fn read(cx: &SenseContext, access: &Access, deadline: Instant) -> Fact<CloudCredentials> {
    let source = format!("{}{SECRETS}", access.server());
    match all(cx, access, deadline).await {
        Ok(Some(credentials)) => Fact::known(credentials, source, cx.now()),
        Ok(None) => Fact::absent(source, cx.now()),
        Err(failure) => failure.into_fact(source, cx.now()),
    }
}

async fn all(
    cx: &SenseContext,
    access: &Access,
    deadline: Instant,
) -> Result<Option<CloudCredentials>, Failure> {
    let mut found =
        CloudCredentials { server: access.server(), credentials: Vec::new(), others: 0, left_out: 0 };
    let is_there = list::each(access, whole(SECRETS), deadline, |item| {
        match told(cx, item) {
            Told::Credential(_) if found.credentials.len() >= MAX_CREDENTIALS => found.left_out += 1,
            Told::Credential(credential) => found.credentials.push(*credential),
            Told::Other => found.others += 1,
            Told::Nothing => {}
        }
        Ok(())
    })
    .await?;
    if !is_there {
        return Ok(None);
    }
    let clusters = clusters(access, deadline).await;
    let source = format!("{}{CLUSTERS}", access.server());
    for credential in &mut found.credentials {
        credential.used_by = match &clusters {
            Ok(all) => {
                let id = format!("cattle-global-data:{}", credential.id);
                let of =
                    |(_, used): &&(String, Vec<String>)| used.contains(&id) || used.contains(&credential.id);
                let names = all.iter().filter(of).map(|(name, _)| name.clone()).take(MAX_USERS).collect();
                Fact::known(names, source.as_str(), cx.now())
            }
            Err(failure) => failure.clone().into_fact(source.as_str(), cx.now()),
        };
        if let Some(name) = token_name(credential) {
            credential.token = token(cx, access, &name, deadline).await;
        }
    }
    Ok(Some(found))
}

fn whole(path: &str) -> List<'_> {
    List { path, accept: WHOLE, page: PAGE }
}

fn told(cx: &SenseContext, item: Value) -> Told {
    let Ok(secret) = serde_json::from_value::<Secret>(item) else { return Told::Nothing };
    let data = secret.data.as_ref();
    let has = |key: &str| data.is_some_and(|data| data.contains_key(key));
    if has(KUBECONFIG) || has(ACCESS_KEY) {
        return Told::Credential(Box::new(credential(cx, &secret)));
    }
    // `<cloud>credentialConfig-<field>`.
    let of_a_cloud =
        |key: &String| key.split_once('-').is_some_and(|(config, _)| config.ends_with("credentialConfig"));
    if data.is_some_and(|data| data.keys().any(of_a_cloud)) { Told::Other } else { Told::Nothing }
}

/// What may be known of a credential: names, times, the last four characters of an access key id.
fn credential(cx: &SenseContext, secret: &Secret) -> CloudCredential {
    let annotation = |key: &str| secret.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let value = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
    let decoded = |key: &str| BASE64.decode(value(key)?).ok();
    let is_harvester = value(KUBECONFIG).is_some();
    let content = decoded(KUBECONFIG).unwrap_or_default();
    let source = format!("{}/{KUBECONFIG}", secret.metadata.name);
    let kubeconfig = is_harvester.then(|| {
        let text = String::from_utf8_lossy(&content);
        match Kubeconfig::read(&text) {
            Ok(kubeconfig) => Fact::known(files::content(cx, &kubeconfig), source.as_str(), cx.now()),
            Err(why) => Fact::unknown(UnknownCause::InvalidInput, why.words(), source.as_str(), cx.now()),
        }
    });
    let access_key = decoded(ACCESS_KEY).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let access_key = access_key.trim();
    let checksum = certificate::hex(&certificate::sha256(&content));
    CloudCredential {
        id: short(&secret.metadata.name),
        name: annotation("field.cattle.io/name").map(|name| short(name)).unwrap_or_default(),
        kind: if is_harvester { CloudKind::Harvester } else { CloudKind::Amazon },
        created_at: secret
            .metadata
            .creation_timestamp
            .as_ref()
            .and_then(|text| text.parse::<Timestamp>().ok()),
        expiration: annotation(EXPIRATION)
            .map(|text| text.chars().take(40).filter(|c| !c.is_control()).collect()),
        made_to_last: is_harvester && annotation(MADE_TO_LAST).is_some_and(|sum| *sum == checksum),
        kubeconfig,
        token: Fact::not_applicable("no token of Rancher is in it", cx.now()),
        key_hint: last_four(access_key),
        temporary: access_key.starts_with("ASIA"),
        used_by: Fact::unknown(UnknownCause::NotYetRead, "not read", CLUSTERS, cx.now()),
    }
}

/// Too short a key has no four characters to tell.
fn last_four(key: &str) -> String {
    if key.len() < 16 || !key.bytes().all(|b| b.is_ascii_alphanumeric()) {
        String::new()
    } else {
        key[key.len() - 4..].to_owned()
    }
}

fn short(text: &str) -> String {
    text.chars().take(253).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn token_name(credential: &CloudCredential) -> Option<String> {
    let token = credential.kubeconfig.as_ref()?.value()?.token.as_ref()?.value()?;
    (token.form == TokenForm::Rancher).then(|| token.name.clone())
}

/// Rancher's object of a token: of the old kind, else of the new.
async fn token(cx: &SenseContext, access: &Access, name: &str, deadline: Instant) -> Fact<RancherToken> {
    type Parse = fn(&Value) -> Result<RancherToken, Failure>;
    let kinds: [(&str, Parse); 2] = [(TOKENS, rancher_token::management), (EXT_TOKENS, rancher_token::ext)];
    let mut failed = None;
    for (path, parse) in kinds {
        let source = format!("{}{path}/{name}", access.server());
        let read = access.get(&format!("{path}/{name}"), 256 * 1024, deadline).await;
        match read.and_then(|answer| object(&answer)?.as_ref().map(parse).transpose()) {
            Ok(Some(token)) => return Fact::known(token, source, cx.now()),
            Ok(None) => {}
            // A right that lacks for one kind does not make the other's answer less true.
            Err(failure) => {
                failed.get_or_insert(failure.into_fact(source, cx.now()));
            }
        }
    }
    failed.unwrap_or_else(|| Fact::absent(format!("{}{TOKENS}/{name}", access.server()), cx.now()))
}

/// Every cluster with the credentials that it and its machine pools name.
async fn clusters(access: &Access, deadline: Instant) -> Result<Vec<(String, Vec<String>)>, Failure> {
    let mut found = Vec::new();
    let is_there = list::each(access, whole(CLUSTERS), deadline, |item| {
        found.push(uses(&item));
        Ok(())
    })
    .await?;
    if is_there {
        Ok(found)
    } else {
        Err(Failure::new(UnknownCause::Unsupported, "this server knows no clusters of Rancher"))
    }
}

/// `namespace/name` of a cluster and the credentials it names; a machine pool may name its own.
fn uses(cluster: &Value) -> (String, Vec<String>) {
    let text = |pointer: &str| cluster.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let pools =
        cluster.pointer("/spec/rkeConfig/machinePools").and_then(Value::as_array).into_iter().flatten();
    let own = pools.filter_map(|pool| pool.get("cloudCredentialSecretName").and_then(Value::as_str));
    let all = [text("/spec/cloudCredentialSecretName")].into_iter().chain(own);
    let used = all.filter(|id| !id.is_empty()).map(short).collect();
    (short(&format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"))), used)
}

#[cfg(test)]
#[path = "cloud_tests.rs"]
mod tests;
