//! A fake coordinator for the tests of delivery: real TLS and HTTP over streams in memory, so that paused time cannot
//! overtake the kernel; a scripted mind. It is no model of the real one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use outrider_protocol::{
    ApiError, EnrollRequest, EnrollResponse, Heartbeat, NodeConfig, NodeReport, RenewRequest, ReportAck,
    Timestamp, TypeMeta, UnknownCause, hex,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256,
};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::io::DuplexStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{Opening, Token, TokenSource, Transport};
use crate::net::{Connection, Failure, Url, tls};

/// What the fake has seen and what it shall do.
#[derive(Default)]
pub(crate) struct Mind {
    pub(crate) enrolments: Vec<EnrollRequest>,
    pub(crate) renewals: usize,
    pub(crate) reports: Vec<NodeReport>,
    pub(crate) heartbeats: Vec<Heartbeat>,
    /// Content by epoch and sequence, as an exactly-once store keeps it.
    pub(crate) stored: BTreeMap<(uuid::Uuid, u64), String>,
    /// In the order of arrival, each once.
    pub(crate) history: Vec<outrider_protocol::Transition>,
    pub(crate) desired: Option<NodeConfig>,
    /// Enrolments that are told to wait.
    pub(crate) pending: usize,
    /// The answer to every request instead of the right one.
    pub(crate) refuse: Option<ApiError>,
    /// The same for reports alone.
    pub(crate) refuse_reports: Option<ApiError>,
    /// A transition that is never taken, by its instant.
    pub(crate) never: Option<i64>,
    /// Most transitions a report may have; the rest is too large.
    pub(crate) most: Option<usize>,
    /// Takes reports in and closes the connection without an answer.
    pub(crate) lose_answers: bool,
    /// Seconds until renewal, in the answer to an enrolment.
    pub(crate) renew_in: Option<u64>,
}

/// A coordinator, and the way to it.
#[derive(Clone)]
pub(crate) struct Fake(Arc<Inside>);

struct Inside {
    host: String,
    mind: Arc<Mutex<Mind>>,
    pki: Arc<Pki>,
    acceptor: TlsAcceptor,
    /// Connections while it is there; `None` while it is away.
    connections: Mutex<Option<JoinSet<()>>>,
}

struct Pki {
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
    root_pem: String,
    server: (CertificateDer<'static>, Vec<u8>),
}

impl Fake {
    /// A coordinator with a certificate that is good now.
    pub(crate) fn new(host: &str) -> Self {
        Self::with_certificate_in(host, 0)
    }

    /// One with a server certificate that is good from `days` from now on.
    pub(crate) fn with_certificate_in(host: &str, days: u32) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let root = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let mut server = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let from =
            std::time::SystemTime::now() - Duration::from_secs(3600) + Duration::from_secs(86_400) * days;
        server.not_before = from.into();
        server.not_after = (from + Duration::from_secs(86_400 * 365)).into();
        let server_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let server = server.signed_by(&server_key, &issuer).unwrap();
        let pki = Pki {
            issuer,
            root: root.der().clone(),
            root_pem: root.pem(),
            server: (server.der().clone(), server_key.serialize_der()),
        };
        Self(Arc::new(Inside {
            host: host.to_owned(),
            mind: Arc::default(),
            acceptor: pki.acceptor(),
            pki: Arc::new(pki),
            connections: Mutex::new(Some(JoinSet::new())),
        }))
    }

    /// The URL.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.0.host)
    }

    /// SHA-256 of the root.
    pub(crate) fn pin(&self) -> String {
        hex(&Sha256::digest(&self.0.pki.root))
    }

    /// A token that pins the root.
    pub(crate) fn token(&self) -> TokenSource {
        TokenSource::Given(Token::parse(&format!("OR1{}::tok:s3cret", self.pin())).unwrap())
    }

    /// What it has seen and shall do.
    pub(crate) fn mind(&self) -> MutexGuard<'_, Mind> {
        self.0.mind.lock().unwrap()
    }

    /// Goes away: connections are closed, new ones refused.
    pub(crate) fn go_away(&self) {
        *self.0.connections.lock().unwrap() = None;
    }

    /// Comes back.
    pub(crate) fn come_back(&self) {
        *self.0.connections.lock().unwrap() = Some(JoinSet::new());
    }

    fn accept(&self) -> Option<DuplexStream> {
        let mut connections = self.0.connections.lock().unwrap();
        let connections = connections.as_mut()?;
        let (client, server) = tokio::io::duplex(64 << 10);
        let inside = self.0.clone();
        connections.spawn(async move {
            let Ok(stream) = inside.acceptor.accept(server).await else { return };
            let is_known = stream.get_ref().1.peer_certificates().is_some();
            let (mind, pki) = (inside.mind.clone(), inside.pki.clone());
            let service = service_fn(move |request| answer(mind.clone(), pki.clone(), is_known, request));
            let http = hyper::server::conn::http1::Builder::new();
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
        Some(client)
    }
}

/// The way to several fakes, by host. One named `silent` neither takes a connection nor refuses it.
pub(crate) struct Lines(pub(crate) Vec<Fake>);

impl Transport for Lines {
    fn open<'a>(&'a self, url: &'a Url, tls: Arc<ClientConfig>) -> Opening<'a> {
        Box::pin(async move {
            if url.host == "silent" {
                return std::future::pending().await;
            }
            let fake = self.0.iter().find(|fake| fake.0.host == url.host);
            let refused = || Failure::new(UnknownCause::ConnectionRefused, "connection refused");
            let stream = fake.and_then(Fake::accept).ok_or_else(refused)?;
            let stream = tls::handshake(stream, tls, &url.host).await?;
            Connection::new(stream, &url.authority(), url.host_and_port()).await
        })
    }
}

impl Pki {
    fn acceptor(&self) -> TlsAcceptor {
        let roots = tls::roots_of(std::slice::from_ref(&self.root)).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, tls::provider())
            .allow_unauthenticated()
            .build()
            .unwrap();
        let key = PrivateKeyDer::try_from(self.server.1.clone()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.server.0.clone(), self.root.clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    fn sign(&self, csr: &str, renew_in: Option<u64>) -> EnrollResponse {
        let mut csr = CertificateSigningRequestParams::from_pem(csr).unwrap();
        let now = std::time::SystemTime::now();
        csr.params.not_before = (now - Duration::from_secs(3600)).into();
        csr.params.not_after = (now + Duration::from_secs(86_400)).into();
        EnrollResponse {
            meta: TypeMeta::new("EnrollResponse"),
            node_uid: "uid-1".to_owned(),
            certificate: csr.signed_by(&self.issuer).unwrap().pem(),
            ca_bundle: self.root_pem.clone(),
            renew_at: renew_in.map(|seconds| Timestamp::from(now).after(Duration::from_secs(seconds))),
            retry_after_seconds: None,
            pending: String::new(),
            server_time: Timestamp::from(now),
        }
    }
}

fn json(status: StatusCode, document: &impl Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_vec(document).unwrap();
    Response::builder().status(status).body(Full::new(body.into())).unwrap()
}

fn error(error: &ApiError) -> Response<Full<Bytes>> {
    json(StatusCode::from_u16(error.code).unwrap(), error)
}

#[derive(Debug, thiserror::Error)]
#[error("the answer is lost")]
struct Lost;

async fn answer(
    mind: Arc<Mutex<Mind>>,
    pki: Arc<Pki>,
    is_known: bool,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    if let Some(refusal) = &mind.lock().unwrap().refuse {
        return Ok(error(refusal));
    }
    if path != "/v1/enroll" && !is_known {
        return Ok(error(&ApiError::new(401, "Unauthenticated", "no client certificate", "")));
    }
    let response = match path.as_str() {
        "/v1/enroll" => {
            let request: EnrollRequest = serde_json::from_slice(&body)?;
            let mut mind = mind.lock().unwrap();
            let mut response = pki.sign(&request.csr, mind.renew_in);
            mind.enrolments.push(request);
            if mind.pending > 0 {
                mind.pending -= 1;
                response.certificate.clear();
                response.retry_after_seconds = Some(2);
                response.pending = "outrider approve n1".to_owned();
                return Ok(json(StatusCode::ACCEPTED, &response));
            }
            json(StatusCode::OK, &response)
        }
        "/v1/renew" => {
            let request: RenewRequest = serde_json::from_slice(&body)?;
            mind.lock().unwrap().renewals += 1;
            json(StatusCode::OK, &pki.sign(&request.csr, None))
        }
        "/v1/reports" => {
            let report: NodeReport = serde_json::from_slice(&body)?;
            let mut mind = mind.lock().unwrap();
            if let Some(refusal) = &mind.refuse_reports {
                return Ok(error(refusal));
            }
            if mind.most.is_some_and(|most| report.transitions.len() > most) {
                return Ok(error(&ApiError::new(413, "TooLarge", "the body is too large", "")));
            }
            if report.transitions.iter().any(|t| Some(t.transition.at.as_millis()) == mind.never) {
                let refusal = ApiError::new(400, "InvalidReport", "transitions[1]: no", "");
                return Ok(error(&ApiError { permanent: true, ..refusal }));
            }
            let ack = match mind.store(report) {
                Ok(ack) => ack,
                Err(mismatch) => return Ok(error(&mismatch)),
            };
            if mind.lose_answers {
                return Err(Box::new(Lost));
            }
            json(StatusCode::OK, &ack)
        }
        "/v1/heartbeat" => {
            let beat: Heartbeat = serde_json::from_slice(&body)?;
            let hold = Duration::from_secs(beat.hold_seconds.into());
            let ack = {
                let mut mind = mind.lock().unwrap();
                let ack = mind.ack(beat.epoch, beat.generation);
                mind.heartbeats.push(beat);
                ack
            };
            if ack.desired.is_none() {
                tokio::time::sleep(hold).await;
            }
            json(StatusCode::OK, &ack)
        }
        _ => error(&ApiError::new(404, "NotFound", path, "")),
    };
    Ok::<_, Infallible>(response).map_err(Into::into)
}

impl Mind {
    fn store(&mut self, report: NodeReport) -> Result<ReportAck, Box<ApiError>> {
        for entry in &report.transitions {
            let hash = entry.content_hash();
            match self.stored.get(&(report.epoch, entry.sequence)) {
                Some(known) if *known != hash => {
                    return Err(Box::new(ApiError::new(
                        409,
                        "EpochMismatch",
                        "another content is stored",
                        "",
                    )));
                }
                Some(_) => {}
                None => {
                    self.stored.insert((report.epoch, entry.sequence), hash);
                    self.history.push(entry.transition.clone());
                }
            }
        }
        let ack = self.ack(report.epoch, report.generation);
        self.reports.push(report);
        Ok(ack)
    }

    fn ack(&self, epoch: uuid::Uuid, generation: u64) -> ReportAck {
        let acknowledged =
            self.stored.keys().filter(|(e, _)| *e == epoch).map(|(_, s)| *s).max().unwrap_or(0);
        ReportAck {
            meta: TypeMeta::new("ReportAck"),
            acknowledged,
            resync: false,
            desired: self.desired.clone().filter(|desired| desired.generation != generation),
            server_time: Timestamp::from(std::time::SystemTime::now()),
        }
    }
}
