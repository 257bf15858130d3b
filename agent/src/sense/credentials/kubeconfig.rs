//! A kubeconfig, with its secrets set apart.
//!
//! [`Written`] is the file without secrets: it is what the root helper passes, and all that facts are made of. [`Secrets`]
//! is the rest, for the one request that may be made, and is dropped with it. Which cluster and user a client takes is
//! client-go's rule (kubernetes/client-go, `tools/clientcmd`): the current context's, names are unique, a token in a
//! file goes before the one beside it.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use outrider_protocol::{CredentialKind, TokenFacts, UnknownCause};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::token;
use crate::net::certificate;

/// The key under which the root helper passes an excerpt.
const EXCERPT: &str = "outriderExcerpt";
/// Most entries of a kind, and certificates of a user.
const MAX_ENTRIES: usize = 64;
const MAX_CHAIN: usize = 8;

/// A kubeconfig without secrets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Written {
    pub(crate) current_context: String,
    pub(crate) contexts: Vec<Context>,
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) users: Vec<User>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Context {
    pub(crate) name: String,
    pub(crate) cluster: String,
    pub(crate) user: String,
    pub(crate) namespace: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) server: String,
    pub(crate) insecure: bool,
    /// PEM, base64, as written.
    pub(crate) ca_data: String,
    pub(crate) ca_file: String,
    pub(crate) tls_server_name: String,
    /// Whether it has a proxy of its own; its address may hold a password.
    pub(crate) has_proxy: bool,
}

/// A user without secrets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) token: Option<TokenFacts>,
    pub(crate) token_file: String,
    /// Certificates in `client-certificate-data`, DER in base64.
    pub(crate) certificates: Vec<String>,
    /// Why that held none.
    pub(crate) certificate_fault: String,
    pub(crate) certificate_file: String,
    pub(crate) has_key: bool,
    /// SHA-256 of the public half of the key in `client-key-data`, which its certificate shows to everybody.
    pub(crate) key_half: String,
    /// Why that held none.
    pub(crate) key_fault: String,
    pub(crate) key_file: String,
    pub(crate) exec: String,
    pub(crate) auth_provider: String,
    pub(crate) has_password: bool,
}

/// The secrets of one user.
#[derive(Clone, Default)]
pub(super) struct Secrets {
    pub(super) token: String,
    /// PEM.
    pub(super) certificate: Vec<u8>,
    /// PEM.
    pub(super) key: Vec<u8>,
}

/// A whole kubeconfig, or the excerpt of one.
pub(super) struct Kubeconfig {
    pub(super) written: Written,
    /// Beside each user; empty for an excerpt.
    pub(super) secrets: Vec<Secrets>,
}

/// Why a text is no kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum NoKubeconfig {
    /// Nothing in it.
    Empty,
    /// Not YAML, or of another shape.
    Malformed,
    /// YAML of something else: other cloud providers keep their configuration under the same names.
    SomethingElse,
}

impl NoKubeconfig {
    /// In words that never quote the text.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Empty => "the file is empty",
            Self::Malformed => "not the YAML of a kubeconfig",
            Self::SomethingElse => "no kubeconfig: it has neither clusters, users nor contexts",
        }
    }
}

impl Kubeconfig {
    /// Reads the text of a kubeconfig, or the helper's excerpt of one.
    pub(super) fn read(text: &str) -> Result<Self, NoKubeconfig> {
        match excerpted(text) {
            Some(excerpt) => excerpt.map(|written| Self { written, secrets: Vec::new() }),
            None => parse(text),
        }
    }

    /// Whether it can be used, and not only looked at.
    pub(super) fn is_whole(&self) -> bool {
        !self.secrets.is_empty() || self.written.users.is_empty()
    }
}

/// What the root helper passes of a kubeconfig, or of a text that is none: no secret is in it.
pub(crate) fn excerpt(text: &str) -> BTreeMap<String, Value> {
    let read = parse(text).map(|kubeconfig| kubeconfig.written);
    BTreeMap::from([(EXCERPT.to_owned(), serde_json::to_value(read).unwrap_or_default())])
}

fn excerpted(text: &str) -> Option<Result<Written, NoKubeconfig>> {
    // A kubeconfig in JSON has other keys.
    if !text.starts_with('{') || !text.contains(EXCERPT) {
        return None;
    }
    let mut all: serde_json::Map<String, Value> = serde_json::from_str(text).ok()?;
    serde_json::from_value(all.remove(EXCERPT)?).ok()
}

fn parse(text: &str) -> Result<Kubeconfig, NoKubeconfig> {
    if text.trim().is_empty() {
        return Err(NoKubeconfig::Empty);
    }
    let of_kubeconfigs = ["clusters", "users", "contexts", "current-context"];
    // The parser's own words would quote the text, which holds secrets.
    let all: Value = serde_saphyr::from_str(text).map_err(|_| {
        let begun = of_kubeconfigs
            .iter()
            .any(|key| text.contains(&format!("{key}:")) || text.contains(&format!("\"{key}\"")));
        if begun { NoKubeconfig::Malformed } else { NoKubeconfig::SomethingElse }
    })?;
    let Some(all) = all.as_object() else {
        return Err(if all.is_null() { NoKubeconfig::Empty } else { NoKubeconfig::Malformed });
    };
    if !of_kubeconfigs.iter().any(|key| all.contains_key(*key)) {
        return Err(NoKubeconfig::SomethingElse);
    }
    let contexts = entries(all, "contexts", "context")?.into_iter().map(|(name, v)| Context {
        name,
        cluster: word(v, "cluster"),
        user: word(v, "user"),
        namespace: word(v, "namespace"),
    });
    let clusters = entries(all, "clusters", "cluster")?.into_iter().map(|(name, v)| Cluster {
        name,
        server: word(v, "server"),
        insecure: v.get("insecure-skip-tls-verify").and_then(Value::as_bool).unwrap_or(false),
        ca_data: word(v, "certificate-authority-data"),
        ca_file: word(v, "certificate-authority"),
        tls_server_name: word(v, "tls-server-name"),
        has_proxy: !word(v, "proxy-url").is_empty(),
    });
    let (users, secrets) = entries(all, "users", "user")?.into_iter().map(|(name, v)| user(name, v)).unzip();
    let current_context = all.get("current-context").and_then(Value::as_str).unwrap_or_default().to_owned();
    let written =
        Written { current_context, contexts: contexts.collect(), clusters: clusters.collect(), users };
    Ok(Kubeconfig { written, secrets })
}

/// A list of `{name, <kind>: {…}}`; a list that is not there is empty.
fn entries<'a>(
    all: &'a serde_json::Map<String, Value>,
    list: &str,
    kind: &str,
) -> Result<Vec<(String, &'a Value)>, NoKubeconfig> {
    let items = match all.get(list) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() <= MAX_ENTRIES => items,
        Some(_) => return Err(NoKubeconfig::Malformed),
    };
    let entry = |item: &'a Value| {
        let name = item.get("name").and_then(Value::as_str).ok_or(NoKubeconfig::Malformed)?;
        Ok((name.to_owned(), item.get(kind).unwrap_or(&Value::Null)))
    };
    items.iter().map(entry).collect()
}

fn word(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().trim().to_owned()
}

fn user(name: String, v: &Value) -> (User, Secrets) {
    let decoded = |key: &str| {
        let text: String = word(v, key).split_ascii_whitespace().collect();
        (!text.is_empty()).then(|| BASE64.decode(text))
    };
    let (mut certificate, mut certificates, mut certificate_fault) = (Vec::new(), Vec::new(), String::new());
    match decoded("client-certificate-data") {
        None => {}
        Some(Err(_)) => "client-certificate-data is no base64".clone_into(&mut certificate_fault),
        Some(Ok(pem)) => {
            let found: Vec<_> =
                CertificateDer::pem_slice_iter(&pem).take(MAX_CHAIN).filter_map(Result::ok).collect();
            certificates = found.iter().map(|der| BASE64.encode(der)).collect();
            if certificates.is_empty() {
                "client-certificate-data holds no PEM certificate".clone_into(&mut certificate_fault);
            }
            certificate = pem;
        }
    }
    let (key, key_half, key_fault) = match decoded("client-key-data") {
        None => (Vec::new(), String::new(), String::new()),
        Some(Err(_)) => (Vec::new(), String::new(), "client-key-data is no base64".to_owned()),
        Some(Ok(pem)) => match certificate::public_half(&pem) {
            Ok(half) => (pem, half, String::new()),
            // One of a kind that cannot be judged here is one all the same.
            Err(failure) if failure.cause == UnknownCause::Unsupported => (pem, String::new(), String::new()),
            Err(failure) => (pem, String::new(), format!("client-key-data: {}", failure.detail)),
        },
    };
    let secret = word(v, "token");
    let exec = v.get("exec").map(|exec| word(exec, "command")).unwrap_or_default();
    let provider = v.get("auth-provider").map(|provider| word(provider, "name")).unwrap_or_default();
    let user = User {
        name,
        token: (!secret.is_empty()).then(|| token::facts(&secret)),
        token_file: word(v, "tokenFile"),
        certificates,
        certificate_fault,
        certificate_file: word(v, "client-certificate"),
        has_key: !key.is_empty(),
        key_half,
        key_fault,
        key_file: word(v, "client-key"),
        exec: exec.rsplit('/').next().unwrap_or_default().chars().take(100).collect(),
        auth_provider: provider,
        has_password: !word(v, "password").is_empty(),
    };
    (user, Secrets { token: secret, certificate, key })
}

impl User {
    /// By what it is known, in the order a client uses it.
    pub(super) fn kinds(&self) -> Vec<CredentialKind> {
        let has_certificate = !self.certificates.is_empty()
            || !self.certificate_file.is_empty()
            || !self.certificate_fault.is_empty();
        [
            (!self.token_file.is_empty(), CredentialKind::TokenFile),
            (self.token.is_some() && self.token_file.is_empty(), CredentialKind::Token),
            (has_certificate, CredentialKind::ClientCertificate),
            (self.has_password, CredentialKind::Basic),
            (!self.exec.is_empty(), CredentialKind::Exec),
            (!self.auth_provider.is_empty(), CredentialKind::AuthProvider),
        ]
        .into_iter()
        .filter_map(|(has, kind)| has.then_some(kind))
        .collect()
    }
}

/// What a client takes from a kubeconfig.
pub(super) struct Chosen<'a> {
    pub(super) context: &'a Context,
    pub(super) cluster: &'a Cluster,
    pub(super) user: &'a User,
    /// Place of the user among the users.
    pub(super) place: usize,
}

impl Written {
    /// The current context with its cluster and user; or why no client can use this file.
    pub(super) fn chosen(&self) -> Result<Chosen<'_>, String> {
        for (what, names) in [
            ("context", self.contexts.iter().map(|c| &c.name).collect::<Vec<_>>()),
            ("cluster", self.clusters.iter().map(|c| &c.name).collect()),
            ("user", self.users.iter().map(|u| &u.name).collect()),
        ] {
            let twice = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name));
            if let Some((_, name)) = twice {
                return Err(format!("it has two entries for the {what} {name:?}, which clients refuse"));
            }
        }
        let known = |names: Vec<&str>| {
            if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) }
        };
        let contexts = || known(self.contexts.iter().take(8).map(|c| c.name.as_str()).collect());
        if self.current_context.is_empty() {
            return Err(format!("current-context is not set, so no context is chosen ({})", contexts()));
        }
        let context = self.contexts.iter().find(|c| c.name == self.current_context);
        let context = context.ok_or_else(|| {
            format!(
                "current-context names {:?}, which is no context of it ({})",
                self.current_context,
                contexts()
            )
        })?;
        let cluster = self.clusters.iter().find(|c| c.name == context.cluster);
        let cluster = cluster.ok_or_else(|| {
            format!(
                "the context {:?} names the cluster {:?}, which is not in it",
                context.name, context.cluster
            )
        })?;
        if cluster.server.is_empty() {
            return Err(format!("the cluster {:?} has no server", cluster.name));
        }
        let place = self.users.iter().position(|u| u.name == context.user);
        let place = place.ok_or_else(|| {
            format!("the context {:?} names the user {:?}, which is not in it", context.name, context.user)
        })?;
        Ok(Chosen { context, cluster, user: &self.users[place], place })
    }
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
