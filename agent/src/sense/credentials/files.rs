//! Which kubeconfigs lie on this node, and what is in each.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use outrider_protocol::{
    CertificateFacts, CredentialKind, Fact, KubeconfigContent, KubeconfigFacts, KubeconfigPurpose as Purpose,
    TokenFacts, UnknownCause,
};

use super::access::Access;
use super::kubeconfig::{Chosen, Kubeconfig, NoKubeconfig, Secrets, User};
use super::token;
use crate::config::CredentialSettings;
use crate::net::certificate;
use crate::sense::certificates::{data_folders, key};
use crate::sense::{SenseContext, file};

/// Largest kubeconfig that is read.
const MAX_FILE: u64 = 1024 * 1024;

/// One kubeconfig and, where it may be read whole, the way to its server.
pub(crate) struct Found {
    pub(crate) facts: KubeconfigFacts,
    pub(crate) access: Result<Access, String>,
}

/// Where kubeconfigs lie (`facts/rke2-k3s-on-disk.md`, 1; `facts/harvester-topology.md`, 7;
/// `facts/rancher-system-agent.md`, 1), and those that are configured.
pub(super) fn wanted(cx: &SenseContext, settings: &CredentialSettings) -> Vec<(PathBuf, Purpose)> {
    let mut wanted: Vec<(PathBuf, Purpose)> = [
        ("/etc/kubernetes/cloud-config", Purpose::CloudProvider),
        ("/etc/rancher/rke2/rke2.yaml", Purpose::Admin),
        ("/etc/rancher/k3s/k3s.yaml", Purpose::Admin),
        ("/etc/kubernetes/admin.conf", Purpose::Admin),
        ("/etc/kubernetes/super-admin.conf", Purpose::Admin),
    ]
    .map(|(path, purpose)| (PathBuf::from(path), purpose))
    .into();
    let of_provider =
        |data: PathBuf| (data.join("etc/config-files/cloud-provider-config"), Purpose::CloudProvider);
    wanted.extend(data_folders(cx).into_iter().map(of_provider));
    for path in settings.kubeconfigs.iter().chain(&settings.rancher_kubeconfig) {
        if !wanted.iter().any(|(known, _)| known == path) {
            wanted.push((path.clone(), Purpose::Configured));
        }
    }
    wanted
}

/// Reads one kubeconfig; none where a place that is only looked at has no such file. Blocking.
pub(crate) fn read(cx: &SenseContext, path: &Path, purpose: Purpose) -> Option<Found> {
    let text_path = path.display().to_string();
    let no_call = |why: &str| Fact::not_applicable(why, cx.now());
    let found = |content, world_readable, access: Result<Access, String>| {
        let call = no_call(access.as_ref().err().map_or("", String::as_str));
        let facts = KubeconfigFacts {
            path: text_path.clone(),
            purpose: purpose.clone(),
            world_readable,
            content,
            call,
        };
        Some(Found { facts, access })
    };
    let failed = |content| found(content, false, Err("nothing was read".to_owned()));
    let (text, mode) = match open(cx, path) {
        Ok(opened) => opened,
        Err(e) if is_missing(&e) && purpose != Purpose::Configured => return None,
        Err(e) => return failed(Fact::from_io(&e, text_path.as_str(), cx.now())),
    };
    let kubeconfig = match Kubeconfig::read(&text) {
        Ok(kubeconfig) => kubeconfig,
        // Other cloud providers keep their configuration under this name.
        Err(NoKubeconfig::SomethingElse) if purpose == Purpose::CloudProvider => return None,
        Err(why) => {
            return failed(Fact::unknown(
                UnknownCause::InvalidInput,
                why.words(),
                text_path.as_str(),
                cx.now(),
            ));
        }
    };
    let content = Fact::known(content(cx, &kubeconfig), text_path.as_str(), cx.now());
    let access = match kubeconfig.written.chosen() {
        Err(_) => Err("no client can use it".to_owned()),
        Ok(_) if !kubeconfig.is_whole() => {
            Err("only root may read it, and the root helper passes no secret".to_owned())
        }
        Ok(chosen) => {
            let secrets = kubeconfig.secrets.get(chosen.place).cloned().unwrap_or_default();
            with_files(cx, chosen.user, secrets).and_then(|secrets| Access::new(cx, &chosen, secrets))
        }
    };
    found(content, mode.is_some_and(|mode| mode & 0o004 != 0), access)
}

/// The text, and the mode where it is the file itself and no excerpt.
fn open(cx: &SenseContext, path: &Path) -> io::Result<(String, Option<u32>)> {
    let open = cx.opener.open(path)?;
    // What the helper passes is a file in memory, which has no name.
    let mode = open.metadata().ok().filter(|meta| meta.nlink() > 0).map(|meta| meta.mode());
    Ok((file::text(file::read_bounded(open, MAX_FILE)?)?, mode))
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// What a client would take from it. Blocking where the user's credential lies in files beside.
pub(super) fn content(cx: &SenseContext, kubeconfig: &Kubeconfig) -> KubeconfigContent {
    let written = &kubeconfig.written;
    let mut content = KubeconfigContent {
        current_context: short(&written.current_context),
        contexts: u32::try_from(written.contexts.len()).unwrap_or(u32::MAX),
        ..KubeconfigContent::default()
    };
    let Chosen { context, cluster, user, .. } = match written.chosen() {
        Ok(chosen) => chosen,
        Err(fault) => {
            content.fault = fault.chars().take(600).collect();
            return content;
        }
    };
    (content.user, content.namespace) = (short(&user.name), short(&context.namespace));
    content.server = server(&cluster.server);
    content.kinds = user.kinds();
    content.exec = short(&user.exec);
    content.token = token_of(cx, user);
    match leaf(cx, user) {
        None => {}
        Some(Err(unread)) => content.certificate = Some(unread),
        Some(Ok((source, der))) => {
            content.fault = key_fault(cx, user, &der).unwrap_or_default();
            content.certificate = Some(certificate_of(cx, source, &der));
        }
    }
    content
}

/// A server's address without what may be a secret: names and passwords before an `@`.
fn server(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
    short(&format!("{scheme}{host}{path}"))
}

fn short(text: &str) -> String {
    text.chars().take(253).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn token_of(cx: &SenseContext, user: &User) -> Option<Fact<TokenFacts>> {
    if !user.kinds().iter().any(|kind| matches!(kind, CredentialKind::Token | CredentialKind::TokenFile)) {
        return None;
    }
    if user.token_file.is_empty() {
        return user.token.clone().map(|facts| Fact::known(facts, "kubeconfig", cx.now()));
    }
    Some(match beside(cx, &user.token_file) {
        Ok(bytes) => {
            Fact::known(token::facts(&String::from_utf8_lossy(&bytes)), user.token_file.as_str(), cx.now())
        }
        Err(e) => Fact::from_io(&e, user.token_file.as_str(), cx.now()),
    })
}

/// Where a certificate stands, and it, in DER; or why it cannot be judged.
type Leaf<'a> = Result<(&'a str, Vec<u8>), Fact<CertificateFacts>>;

/// The client certificate, where the user has one.
fn leaf<'a>(cx: &SenseContext, user: &'a User) -> Option<Leaf<'a>> {
    if !user.kinds().contains(&CredentialKind::ClientCertificate) {
        return None;
    }
    // client-go: data goes before a file.
    if !user.certificate_fault.is_empty() {
        return Some(Err(invalid(cx, user.certificate_fault.clone(), "kubeconfig")));
    }
    if let Some(leaf) = user.certificates.first() {
        return Some(Ok(("kubeconfig", BASE64.decode(leaf).unwrap_or_default())));
    }
    let path = user.certificate_file.as_str();
    Some(match beside(cx, path).map(|pem| certificate::certificates(&pem)) {
        Ok(Ok(chain)) => Ok((path, chain.first().map(|der| der.to_vec()).unwrap_or_default())),
        Ok(Err(failure)) => Err(invalid(cx, failure.detail, path)),
        Err(e) => Err(Fact::from_io(&e, path, cx.now())),
    })
}

fn certificate_of(cx: &SenseContext, source: &str, der: &[u8]) -> Fact<CertificateFacts> {
    match certificate::facts(der) {
        Ok(mut facts) => {
            // A client's names are of no use here.
            facts.sans.clear();
            Fact::known(facts, source, cx.now())
        }
        Err(failure) => invalid(cx, failure.detail, source),
    }
}

fn invalid(cx: &SenseContext, why: String, source: &str) -> Fact<CertificateFacts> {
    Fact::unknown(UnknownCause::InvalidInput, why, source, cx.now())
}

/// Why no client can use the key that goes with the client certificate `leaf`; none where it can, and where that cannot be
/// seen.
fn key_fault(cx: &SenseContext, user: &User, leaf: &[u8]) -> Option<String> {
    let different =
        |whose: &str| format!("the client certificate and the key {whose} are of different pairs");
    if !user.key_fault.is_empty() {
        return Some(user.key_fault.clone());
    }
    if user.has_key {
        let differs = !user.key_half.is_empty()
            && certificate::public_key(leaf).is_some_and(|public| public != user.key_half);
        return differs.then(|| different("beside it"));
    }
    let path = user.key_file.as_str();
    if path.is_empty() {
        return Some("its user has a client certificate and no key to it".to_owned());
    }
    if !path.starts_with('/') {
        return None;
    }
    match key::belongs(cx, Path::new(path), leaf) {
        Fact::Known { value: false, .. } => Some(different(&format!("in {path}"))),
        Fact::Absent { .. } => Some(format!("the key to its client certificate, {path}, is not there")),
        Fact::Unknown { cause: UnknownCause::InvalidInput, detail, .. } => {
            Some(format!("the key to its client certificate, {path}: {detail}"))
        }
        _ => None,
    }
}

/// The secrets with those that lie in files beside the kubeconfig.
fn with_files(cx: &SenseContext, user: &User, mut secrets: Secrets) -> Result<Secrets, String> {
    let read = |path: &str| beside(cx, path).map_err(|e| format!("{path} could not be read: {e}"));
    if !user.token_file.is_empty() {
        secrets.token = String::from_utf8_lossy(&read(&user.token_file)?).trim().to_owned();
    }
    if secrets.certificate.is_empty() && !user.certificate_file.is_empty() {
        secrets.certificate = read(&user.certificate_file)?;
    }
    if secrets.key.is_empty() && !user.key_file.is_empty() {
        secrets.key = read(&user.key_file)?;
    }
    Ok(secrets)
}

/// A file that a kubeconfig names. One that is named from its own folder is not looked for.
fn beside(cx: &SenseContext, path: &str) -> io::Result<Vec<u8>> {
    if !path.starts_with('/') {
        return Err(file::invalid(format!("{path:?} is no absolute path")));
    }
    let open = cx.opener.open(Path::new(path)).or_else(|e| newest(cx, Path::new(path)).ok_or(e));
    open.and_then(|open| file::read_bounded(open, file::SMALL))
}

/// The file behind a kubelet's `…-current.pem`: a link, which the root helper does not follow, to the newest of those beside it,
/// which are named by time (kubernetes/client-go, `util/certificate/certificate_store.go`).
fn newest(cx: &SenseContext, path: &Path) -> Option<File> {
    let start = path.file_name()?.to_str()?.strip_suffix("current.pem")?;
    let folder = path.parent()?;
    let names = cx.opener.list(folder).ok()?.into_iter();
    let of_time = |name: &String| {
        name.strip_prefix(start).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    cx.opener.open(&folder.join(names.filter(of_time).max()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_address_is_told_without_its_password() {
        for (text, told) in [
            ("https://rancher.example/k8s/clusters/c-m-abc", "https://rancher.example/k8s/clusters/c-m-abc"),
            ("https://u:s3cret@h:6443", "https://h:6443"),
            ("u:s3cret@h", "h"),
            ("https://h/?token=s3cret", "https://h/"),
            ("", ""),
        ] {
            assert_eq!(server(text), told);
        }
    }
}
