//! The API of the coordinator that runs on a state folder, asked with the operator token that lies there.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use outrider_coordinator::{ENDPOINT_FILE, OPERATOR_TOKEN_FILE};
use outrider_protocol::ApiError;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Time for one exchange.
const LIMIT: Duration = Duration::from_secs(30);
/// Bytes of an answer.
const MAX_ANSWER: usize = 64 << 20;

/// Speaks to one coordinator.
pub(super) struct ApiClient {
    address: SocketAddr,
    token: String,
    tls: Arc<ClientConfig>,
}

impl ApiClient {
    /// The coordinator that runs on `state_dir`.
    pub(super) fn of(state_dir: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = state_dir.join(name);
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let address = read(ENDPOINT_FILE)?;
        let address = address.trim().parse().with_context(|| format!("{ENDPOINT_FILE} holds no address"))?;
        let token = read(OPERATOR_TOKEN_FILE)?.trim().to_owned();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(read("ca/ca.pem")?.as_bytes()) {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { address, token, tls: Arc::new(tls) })
    }

    /// `GET path`.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// `POST path` with a document.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<T> {
        self.ask(Method::POST, path, serde_json::to_vec(body)?.into()).await
    }

    /// `DELETE path`.
    pub(super) async fn delete<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(Method::DELETE, path, Bytes::new()).await
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<T> {
        let answer = tokio::time::timeout(LIMIT, self.exchange(method, path, body)).await;
        let (status, body) = answer.with_context(|| format!("{} did not answer", self.address))??;
        if status.is_success() {
            return serde_json::from_slice(&body).context("the answer makes no sense");
        }
        match serde_json::from_slice::<ApiError>(&body) {
            Ok(error) => bail!("{} ({}): {}", error.message, error.reason, error.advice),
            Err(_) => bail!("{} answered {status}", self.address),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<(http::StatusCode, Bytes)> {
        let tcp = TcpStream::connect(self.address)
            .await
            .with_context(|| format!("cannot reach {}", self.address))?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let tls = TlsConnector::from(self.tls.clone()).connect(name, tcp).await.context("TLS failed")?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await?;
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Full::new(body))?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body.map_err(|e| anyhow::anyhow!("the answer broke off: {e}"))?;
        drop(sender);
        // It has nothing more to do, and its end is no news.
        connection.abort();
        Ok((status, body.to_bytes()))
    }
}
