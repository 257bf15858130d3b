//! A real coordinator on a loopback port, and clients that speak to it over real TLS.

#![allow(dead_code, unreachable_pub, missing_docs)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use outrider_coordinator::{Coordinator, Options, start};
use outrider_protocol::*;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use uuid::Uuid;

/// Long enough for a busy machine, short enough to notice what hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Bed {
    pub coordinator: Coordinator,
    pub folder: TempDir,
}

impl Bed {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let coordinator = boot(&folder, change).await;
        Self { coordinator, folder }
    }

    /// The same state folder, another process of it.
    pub async fn restart(self, change: impl FnOnce(&mut Options)) -> Self {
        self.coordinator.shutdown().await;
        let coordinator = boot(&self.folder, change).await;
        Self { coordinator, folder: self.folder }
    }

    pub fn address(&self) -> SocketAddr {
        self.coordinator.addresses()[0]
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let pem = std::fs::read(self.folder.path().join("ca/ca.pem")).unwrap();
        for der in CertificateDer::pem_slice_iter(&pem) {
            roots.add(der.unwrap()).unwrap();
        }
        roots
    }

    /// A client without a certificate.
    pub fn stranger(&self) -> Client {
        Client::new(self.address(), self.roots(), None)
    }

    /// An operator.
    pub fn operator(&self) -> Client {
        let mut client = self.stranger();
        client.bearer = Some(self.coordinator.operator_token().to_owned());
        client
    }

    pub async fn token(&self, uses: u32) -> String {
        let request = TokenRequest {
            meta: TypeMeta::new("TokenRequest"),
            token_kind: TokenKind::Once,
            ttl_seconds: None,
            uses: Some(uses),
            name_pattern: String::new(),
            rate_per_hour: 0,
            admit_seen_vm: false,
            cluster: String::new(),
        };
        self.coordinator.create_token(&request).await.unwrap().token
    }

    /// Enrols a node named `name` into `cluster`.
    pub async fn enrol(&self, name: &str, cluster: &str) -> Agent {
        let token = self.token(1).await;
        self.enrol_by(&token, name, cluster).await
    }

    /// Enrols a node by a token that binds it to `cluster`.
    pub async fn enrol_bound(&self, name: &str, cluster: &str) -> Agent {
        let request = TokenRequest {
            meta: TypeMeta::new("TokenRequest"),
            token_kind: TokenKind::Once,
            ttl_seconds: None,
            uses: Some(1),
            name_pattern: String::new(),
            rate_per_hour: 0,
            admit_seen_vm: false,
            cluster: cluster.to_owned(),
        };
        let token = self.coordinator.create_token(&request).await.unwrap().token;
        self.enrol_by(&token, name, cluster).await
    }

    /// Enrols a node by a token that there is.
    pub async fn enrol_by(&self, token: &str, name: &str, cluster: &str) -> Agent {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let request = enroll_request(name, cluster, token, &csr(&key));
        let (status, body) = self.stranger().post("/v1/enroll", &request).await;
        assert_eq!(status, 200, "{body}");
        let response: EnrollResponse = serde_json::from_value(body).unwrap();
        Agent::new(self, name, cluster, key, &response)
    }

    /// Enrols a node named `name` and makes its state known, so that its heartbeats are held; with the connection it
    /// reported on.
    pub async fn reporting(&self, name: &str) -> (Agent, NodeState, Kept) {
        let agent = self.enrol(name, "").await;
        let state = agent.state(vec![ready()]);
        let mut connection = agent.client.open().await;
        let report = agent.report(vec![], Some(state.clone()));
        assert_eq!(connection.post("/v1/reports", &report).await.0, 200);
        (agent, state, connection)
    }
}

async fn boot(folder: &TempDir, change: impl FnOnce(&mut Options)) -> Coordinator {
    let mut options = Options::on_loopback(folder.path());
    change(&mut options);
    start(options).await.unwrap()
}

pub fn csr(key: &KeyPair) -> String {
    CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
}

pub fn identity(name: &str) -> Identity {
    Identity {
        machine_id_hash: format!("machine-of-{name}"),
        system_uuid: format!("uuid-of-{name}"),
        macs: vec![format!("mac-of-{name}")],
        boot_id: format!("boot-of-{name}"),
        ..Identity::default()
    }
}

pub fn node_ref(name: &str, cluster: &str) -> NodeRef {
    NodeRef {
        name: name.to_owned(),
        uid: String::new(),
        cluster: cluster.to_owned(),
        profile: Profile::Generic,
        simulated: false,
    }
}

pub fn enroll_request(name: &str, cluster: &str, token: &str, csr: &str) -> EnrollRequest {
    EnrollRequest {
        meta: TypeMeta::new("EnrollRequest"),
        token: token.to_owned(),
        csr: csr.to_owned(),
        node: node_ref(name, cluster),
        identity: identity(name),
        agent_version: "0.1.0".to_owned(),
        sent_at: now(),
    }
}

pub fn now() -> Timestamp {
    std::time::SystemTime::now().into()
}

/// One TLS client; a connection a request unless one is kept.
pub struct Client {
    pub address: SocketAddr,
    pub tls: Arc<ClientConfig>,
    pub bearer: Option<String>,
}

impl Client {
    fn new(
        address: SocketAddr,
        roots: RootCertStore,
        identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let tls = match identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        Self { address, tls: Arc::new(tls), bearer: None }
    }

    pub async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(self.tls.clone()).connect(name, tcp).await
    }

    pub async fn open(&self) -> Kept {
        let stream = self.connect().await.unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        let task = tokio::spawn(async move {
            let _ = connection.await;
        });
        Kept { sender, bearer: self.bearer.clone(), task }
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.open().await.call(Method::GET, path, None).await
    }

    pub async fn get_text(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.open().await.raw(Method::GET, path, None).await;
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    pub async fn post(&self, path: &str, body: &impl serde::Serialize) -> (u16, Value) {
        self.send(Method::POST, path, body).await
    }

    pub async fn send(&self, method: Method, path: &str, body: &impl serde::Serialize) -> (u16, Value) {
        let body = Bytes::from(serde_json::to_vec(body).unwrap());
        self.open().await.call(method, path, Some(body)).await
    }
}

/// A connection that is kept.
pub struct Kept {
    pub sender: SendRequest<Full<Bytes>>,
    bearer: Option<String>,
    pub task: tokio::task::JoinHandle<()>,
}

impl Kept {
    pub async fn raw(&mut self, method: Method, path: &str, body: Option<Bytes>) -> (u16, HeaderMap, Bytes) {
        tokio::time::timeout(PATIENCE, async {
            let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
            if let Some(token) = &self.bearer {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            let request = request.body(Full::new(body.unwrap_or_default())).unwrap();
            self.sender.ready().await.unwrap();
            let response = self.sender.send_request(request).await.unwrap();
            let (parts, body) = response.into_parts();
            (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes())
        })
        .await
        .expect("the coordinator answers")
    }

    pub async fn call(&mut self, method: Method, path: &str, body: Option<Bytes>) -> (u16, Value) {
        let (status, _, body) = self.raw(method, path, body).await;
        let text = String::from_utf8_lossy(&body).into_owned();
        let value = serde_json::from_slice(&body).unwrap_or(Value::String(text));
        (status, value)
    }

    pub async fn post(&mut self, path: &str, body: &impl serde::Serialize) -> (u16, Value) {
        let body = Bytes::from(serde_json::to_vec(body).unwrap());
        self.call(Method::POST, path, Some(body)).await
    }
}

/// A node with its certificate.
pub struct Agent {
    pub client: Client,
    pub key: KeyPair,
    pub name: String,
    pub cluster: String,
    pub uid: String,
    pub epoch: Uuid,
    pub boot_id: String,
}

impl Agent {
    pub fn new(bed: &Bed, name: &str, cluster: &str, key: KeyPair, response: &EnrollResponse) -> Self {
        let client = Self::client(bed, &key, response);
        Self {
            client,
            key,
            name: name.to_owned(),
            cluster: cluster.to_owned(),
            uid: response.node_uid.clone(),
            epoch: Uuid::new_v4(),
            boot_id: format!("boot-of-{name}"),
        }
    }

    pub fn client(bed: &Bed, key: &KeyPair, response: &EnrollResponse) -> Client {
        let chain =
            CertificateDer::pem_slice_iter(response.certificate.as_bytes()).map(|c| c.unwrap()).collect();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        Client::new(bed.address(), bed.roots(), Some((chain, key)))
    }

    /// The same node at a coordinator that was restarted on another port.
    pub fn moved(mut self, bed: &Bed) -> Self {
        self.client.address = bed.address();
        self
    }

    pub fn report(&self, transitions: Vec<SequencedTransition>, state: Option<NodeState>) -> NodeReport {
        let mut node = node_ref(&self.name, &self.cluster);
        node.uid.clone_from(&self.uid);
        NodeReport {
            meta: TypeMeta::new("NodeReport"),
            node,
            epoch: self.epoch,
            boot_id: self.boot_id.clone(),
            agent_version: "0.1.0".to_owned(),
            sent_at: now(),
            generation: 0,
            transitions,
            state,
        }
    }

    pub fn heartbeat(&self, digest: &str, hold_seconds: u32) -> Heartbeat {
        Heartbeat {
            meta: TypeMeta::new("Heartbeat"),
            epoch: self.epoch,
            sequence: 1_000_000,
            digest: digest.to_owned(),
            boot_id: self.boot_id.clone(),
            generation: 0,
            hold_seconds,
            sent_at: now(),
        }
    }

    pub fn state(&self, conditions: Vec<Condition>) -> NodeState {
        let identity = identity(&self.name);
        NodeState {
            digest: NodeState::compute_digest(&identity, &conditions),
            identity,
            conditions,
            etcd: None,
            paths: Vec::new(),
            network: None,
            zone: "zone-1".to_owned(),
            region: "region-1".to_owned(),
        }
    }
}

pub fn condition(condition_type: ConditionType, status: Status, reason: ReasonCode) -> Condition {
    let severity = if status == Status::True { Severity::Ok } else { Severity::Error };
    Condition {
        condition_type,
        status,
        severity,
        reason,
        message: "In a test.".to_owned(),
        advice: String::new(),
        subject: String::new(),
        last_transition_time: now(),
        observed_at: now(),
    }
}

pub fn ready() -> Condition {
    condition(ConditionType::Ready, Status::True, ReasonCode::AgentRunning)
}

pub fn transition(sequence: u64, condition: Condition) -> SequencedTransition {
    let transition = Transition {
        at: now(),
        condition,
        previous_status: None,
        previous_reason: None,
        removed: false,
        merged: 0,
    };
    SequencedTransition { sequence, transition }
}

/// Asks until `is_so`; what was last seen otherwise.
pub async fn until<T: std::fmt::Debug>(
    what: &str,
    mut ask: impl AsyncFnMut() -> T,
    is_so: impl Fn(&T) -> bool,
) -> T {
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let seen = ask().await;
        if is_so(&seen) {
            return seen;
        }
        assert!(tokio::time::Instant::now() < end, "{what}: last seen {seen:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
