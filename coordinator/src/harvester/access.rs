//! The kubeconfig, and a client made of it. The file is read again before every request, so that a new one put in its place
//! is used without a restart; the client is made anew only when it differs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use outrider_protocol::UnknownCause;
use tokio::sync::Mutex;

use super::failure::Failure;

/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(10);
/// Larger files are no kubeconfig.
const MOST_BYTES: u64 = 1 << 20;
/// So many namespaces are named.
const NAMED: usize = 5;

/// Which server, whose objects.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) kube: kube::Client,
    /// `https://host:port`.
    pub(super) server: String,
    /// Namespaces to read; none means every one.
    pub(super) namespaces: Vec<String>,
}

impl Client {
    /// The server, and whose objects of it are read: who reads one namespace must not take it for all.
    pub(super) fn words(&self) -> String {
        format!("{} ({})", self.server, scope(&self.namespaces))
    }
}

fn scope(namespaces: &[String]) -> String {
    let named = namespaces.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match namespaces.len() {
        0 => "every namespace".to_owned(),
        1 => format!("namespace {named}"),
        n if n > NAMED => format!("namespaces {named} and {} more", n - NAMED),
        _ => format!("namespaces {named}"),
    }
}

/// A kubeconfig on disk.
pub(super) struct Access {
    path: PathBuf,
    namespaces: Vec<String>,
    made: Mutex<Option<(Vec<u8>, Client)>>,
}

impl Access {
    pub(super) fn new(path: PathBuf, namespaces: Vec<String>) -> Self {
        Self { path, namespaces, made: Mutex::new(None) }
    }

    /// A client of the file as it is now.
    pub(super) async fn client(&self) -> Result<Client, Failure> {
        let bytes = read(&self.path).await?;
        let mut made = self.made.lock().await;
        if let Some((of, client)) = &*made
            && *of == bytes
        {
            return Ok(client.clone());
        }
        let client = self.make(&bytes).await?;
        *made = Some((bytes, client.clone()));
        Ok(client)
    }

    fn invalid(&self, what: impl std::fmt::Display) -> Failure {
        Failure::new(UnknownCause::InvalidInput, format!("{}: {what}", self.path.display()))
    }

    async fn make(&self, bytes: &[u8]) -> Result<Client, Failure> {
        let text =
            std::str::from_utf8(bytes).map_err(|_| self.invalid("is no text; expected a kubeconfig"))?;
        // What it holds is secret, and a parser's words may quote it.
        let kubeconfig = Kubeconfig::from_yaml(text)
            .map_err(|_| self.invalid("is no kubeconfig (YAML of kind Config)"))?;
        let context = self.context(&kubeconfig)?;
        let namespaces = match (&self.namespaces, context.namespace) {
            (given, _) if !given.is_empty() => given.clone(),
            (_, Some(namespace)) if !namespace.is_empty() => vec![namespace],
            _ => Vec::new(),
        };
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .map_err(|e| self.invalid(format_args!("cannot be used: {e}")))?;
        config.connect_timeout = Some(CONNECT);
        config.write_timeout = Some(CONNECT);
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        if config.accept_invalid_certs {
            return Err(self.invalid(
                "switches the check of the server's certificate off; give certificate-authority-data",
            ));
        }
        let kube =
            kube::Client::try_from(config).map_err(|e| self.invalid(format_args!("cannot be used: {e}")))?;
        Ok(Client { kube, server, namespaces })
    }

    /// The current context; refused where its user is a program to be run.
    fn context(&self, kubeconfig: &Kubeconfig) -> Result<kube::config::Context, Failure> {
        let current = kubeconfig.current_context.as_deref().unwrap_or_default();
        let context = kubeconfig.contexts.iter().find(|c| c.name == current).and_then(|c| c.context.clone());
        let context = context
            .ok_or_else(|| self.invalid(format_args!("has no context {current:?} (current-context)")))?;
        let user = context.user.as_deref().unwrap_or_default();
        let user = kubeconfig.auth_infos.iter().find(|u| u.name == user).and_then(|u| u.auth_info.as_ref());
        match user.is_some_and(|user| user.exec.is_some() || user.auth_provider.is_some()) {
            true => Err(self
                .invalid("its user is a program to be run (exec); give one with a token or a certificate")),
            false => Ok(context),
        }
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| {
        let cause = match error.kind() {
            std::io::ErrorKind::PermissionDenied => UnknownCause::PermissionDenied,
            std::io::ErrorKind::NotFound => UnknownCause::InvalidInput,
            _ => UnknownCause::IoError,
        };
        Failure::new(cause, format!("{}: {error}", path.display()))
    };
    let metadata = tokio::fs::metadata(path).await.map_err(failed)?;
    if !metadata.is_file() || metadata.len() > MOST_BYTES {
        let what = format!("{}: is no file of at most 1 MiB; expected a kubeconfig", path.display());
        return Err(Failure::new(UnknownCause::InvalidInput, what));
    }
    tokio::fs::read(path).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_namespaces_are_read_is_said() {
        let of = |n: usize| scope(&(0..n).map(|i| format!("n{i}")).collect::<Vec<_>>());
        assert_eq!(of(0), "every namespace");
        assert_eq!(of(1), "namespace n0");
        assert_eq!(of(5), "namespaces n0, n1, n2, n3, n4");
        assert_eq!(of(7), "namespaces n0, n1, n2, n3, n4 and 2 more");
    }
}
