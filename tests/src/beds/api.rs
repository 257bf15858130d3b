//! A server over TLS that answers requests as Rancher and Kubernetes do where a credential is tried: a stand-in, whose every
//! answer is one that `facts/credentials.md` and `facts/kubernetes-api.md` give. It ends with its owner.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::pki::{Authority, DAY};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Path and query.
    pub path: String,
    /// The bearer token; empty when none was shown.
    pub token: String,
    /// How many requests came before this one.
    pub before: usize,
}

type Answerer = dyn Fn(&Asked) -> (u16, serde_json::Value) + Send + Sync;

/// The stand-in.
pub struct Api {
    /// Its address.
    pub url: String,
    /// Its authority, in PEM.
    pub ca: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Api {
    /// Begins to answer on a free port of loopback.
    pub async fn start(
        answer: impl Fn(&Asked) -> (u16, serde_json::Value) + Send + Sync + 'static,
    ) -> Result<Self> {
        let authority = Authority::new("api", 30 * DAY)?;
        let leaf = authority.issue("api", &["127.0.0.1"], -DAY, DAY)?;
        let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(leaf.der)], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}", listener.local_addr()?);
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (answer, seen): (Arc<Answerer>, _) = (Arc::new(answer), asked.clone());
        let task = tokio::spawn(async move {
            // Connections end with the task that made them.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer, seen) = (acceptor.clone(), answer.clone(), seen.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (answer, seen) = (answer.clone(), seen.clone());
                        async move { Ok::<_, std::convert::Infallible>(respond(&*answer, &seen, &request)) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Ok(Self { url, ca: authority.pem(), asked, task })
    }

    /// Everything that was asked.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn respond(
    answer: &Answerer,
    seen: &Mutex<Vec<Asked>>,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    let header =
        request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
    let token = header.strip_prefix("Bearer ").unwrap_or_default().to_owned();
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = Asked { path, token, before: seen.len() };
    seen.push(asked.clone());
    drop(seen);
    let (status, body) = answer(&asked);
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Kubernetes' `Status` for a refusal.
pub fn status(code: u16, message: &str) -> (u16, serde_json::Value) {
    (
        code,
        serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}),
    )
}
