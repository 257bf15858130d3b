//! Simulated agents: the wire protocol of a real one over real mTLS, without its sensors.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use outrider_agent::net::tls::{self, Pinned};
use outrider_agent::net::{Answer, Connection, Limits};
use outrider_coordinator::OPERATOR_TOKEN_FILE;
use outrider_protocol::{
    ApiError, Condition, ConditionType, EnrollRequest, EnrollResponse, Heartbeat, Identity, NodeRef,
    NodeReport, NodeState, Profile, ReasonCode, RenewRequest, ReportAck, SequencedTransition, Severity,
    Status, Timestamp, Transition, TypeMeta,
};
use rcgen::{CertificateParams, KeyPair};
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpSocket;
use uuid::Uuid;

/// Bounds of an exchange; held heartbeats are given their hold on top.
pub const LIMITS: Limits = Limits { body: 4 << 20, deadline: Duration::from_secs(30) };

/// Where a coordinator is and by what its CA is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address and port.
    pub address: SocketAddr,
    /// SHA-256 of the root's DER.
    pub pin: [u8; 32],
}

impl Target {
    /// From the address and any token of the coordinator (`OR1<pin>::…`).
    pub fn new(address: SocketAddr, token: &str) -> anyhow::Result<Self> {
        let hex = token
            .strip_prefix("OR1")
            .and_then(|rest| rest.get(..64))
            .context("not a token: no OR1<sha256>")?;
        let mut pin = [0; 32];
        for (i, byte) in pin.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).context("not a token: no hex pin")?;
        }
        Ok(Self { address, pin })
    }

    /// TLS towards it, with or without a client certificate.
    pub fn tls(&self, identity: Option<&tls::Identity>) -> anyhow::Result<Arc<ClientConfig>> {
        Ok(tls::client_config(Pinned::new(self.pin, false), identity, &[b"http/1.1"])?)
    }

    /// One connection; `source` is the local address it comes from.
    pub async fn connect(
        &self,
        config: Arc<ClientConfig>,
        source: Option<IpAddr>,
    ) -> anyhow::Result<Connection> {
        let socket = if self.address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(source) = source {
            socket.bind(SocketAddr::new(source, 0))?;
        }
        let stream =
            socket.connect(self.address).await.with_context(|| format!("connecting to {}", self.address))?;
        stream.set_nodelay(true)?;
        let stream = tls::handshake(stream, config, &self.address.ip().to_string()).await?;
        Ok(Connection::new(stream, &self.address.to_string(), self.address.to_string()).await?)
    }
}

/// A request with a JSON body.
pub fn json(method: Method, path: &str, body: &impl Serialize) -> anyhow::Result<Request<Bytes>> {
    let request =
        Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, "application/json");
    Ok(request.body(serde_json::to_vec(body)?.into())?)
}

/// The document in an answer of the status wanted; otherwise an error with what the coordinator said.
pub fn document<T: DeserializeOwned>(answer: &Answer, wanted: StatusCode) -> anyhow::Result<T> {
    if answer.head.status != wanted {
        match serde_json::from_slice::<ApiError>(&answer.body) {
            Ok(error) => bail!("{} {}: {} {}", error.code, error.reason, error.message, error.advice),
            Err(_) => bail!("{}: {}", answer.head.status, String::from_utf8_lossy(&answer.body)),
        }
    }
    serde_json::from_slice(&answer.body).with_context(|| String::from_utf8_lossy(&answer.body).into_owned())
}

/// An operator at a coordinator's API.
#[derive(Clone, Debug)]
pub struct Operator {
    /// The coordinator.
    pub target: Target,
    token: String,
}

impl Operator {
    /// With the operator token that the coordinator wrote into its state folder.
    pub fn from_state_folder(address: SocketAddr, folder: &Path) -> anyhow::Result<Self> {
        let file = folder.join(OPERATOR_TOKEN_FILE);
        let token = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let token = token.trim().to_owned();
        Ok(Self { target: Target::new(address, &token)?, token })
    }

    /// Tells `command`, one of `outrider`, which coordinator to ask, with this token.
    pub fn told_to(&self, command: &mut std::process::Command) {
        command.env("OUTRIDER_URL", format!("https://{}", self.target.address));
        command.env("OUTRIDER_TOKEN", &self.token);
    }

    /// A new connection, to be kept.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        self.target.connect(self.target.tls(None)?, None).await
    }

    /// One request; `body` as JSON unless it is null.
    pub async fn ask(&self, method: Method, path: &str, body: serde_json::Value) -> anyhow::Result<Answer> {
        self.ask_over(&mut self.connect().await?, method, path, body).await
    }

    async fn ask_over(
        &self,
        connection: &mut Connection,
        method: Method,
        path: &str,
        body: serde_json::Value,
    ) -> anyhow::Result<Answer> {
        let mut request = json(method, path, &body)?;
        if body.is_null() {
            *request.body_mut() = Bytes::new();
        }
        let bearer = format!("Bearer {}", self.token).parse()?;
        request.headers_mut().insert(http::header::AUTHORIZATION, bearer);
        Ok(connection.exchange(request, LIMITS).await?)
    }

    /// A document by GET over a kept connection.
    pub async fn get_over<T: DeserializeOwned>(
        &self,
        connection: &mut Connection,
        path: &str,
    ) -> anyhow::Result<T> {
        let answer = self.ask_over(connection, Method::GET, path, serde_json::Value::Null).await?;
        document(&answer, StatusCode::OK)
    }

    /// A document by GET.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        document(&self.ask(Method::GET, path, serde_json::Value::Null).await?, StatusCode::OK)
    }

    /// A new pool token that admits names of this pattern without approval.
    pub async fn pool_token(&self, pattern: &str, rate_per_hour: u32) -> anyhow::Result<String> {
        let fields =
            serde_json::json!({ "tokenKind": "pool", "namePattern": pattern, "ratePerHour": rate_per_hour });
        self.token(fields).await
    }

    /// A new pool token of a cluster that admits machines which Harvester shows, and no others without approval.
    pub async fn seen_vm_token(&self, pattern: &str, cluster: &str) -> anyhow::Result<String> {
        let fields = serde_json::json!({ "tokenKind": "pool", "namePattern": pattern, "cluster": cluster, "admitSeenVm": true });
        self.token(fields).await
    }

    /// A new token that admits one machine.
    pub async fn once_token(&self) -> anyhow::Result<String> {
        self.token(serde_json::json!({ "tokenKind": "once" })).await
    }

    async fn token(&self, mut fields: serde_json::Value) -> anyhow::Result<String> {
        fields["apiVersion"] = outrider_protocol::API_VERSION.into();
        fields["kind"] = "TokenRequest".into();
        let answer = self.ask(Method::POST, "/v1/tokens", fields).await?;
        ensure!(answer.head.status.is_success(), "{}", String::from_utf8_lossy(&answer.body));
        let view: outrider_protocol::TokenView = serde_json::from_slice(&answer.body)?;
        Ok(view.token)
    }
}

/// A machine that asks to be a node.
#[derive(Debug)]
pub struct Applicant {
    /// Who it says it is.
    pub node: NodeRef,
    /// Marks of the machine.
    pub identity: Identity,
    key: KeyPair,
}

impl Applicant {
    /// Machine `number` with a key of its own, under `name`.
    pub fn new(name: &str, number: u32) -> anyhow::Result<Self> {
        let node = NodeRef {
            name: name.to_owned(),
            uid: String::new(),
            cluster: format!("swarm-{}", number % 64),
            profile: Profile::Generic,
            simulated: true,
        };
        Ok(Self { node, identity: identity_of(number), key: KeyPair::generate()? })
    }

    /// What it sends.
    pub fn request(&self, token: &str) -> anyhow::Result<EnrollRequest> {
        let csr =
            CertificateParams::new(vec![self.node.name.clone()])?.serialize_request(&self.key)?.pem()?;
        Ok(EnrollRequest {
            meta: TypeMeta::new("EnrollRequest"),
            token: token.to_owned(),
            csr,
            node: self.node.clone(),
            identity: self.identity.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            sent_at: now(),
        })
    }

    /// Sends it over `connection`, which must be without a client certificate.
    pub async fn apply(&self, connection: &mut Connection, token: &str) -> anyhow::Result<Answer> {
        Ok(connection.exchange(json(Method::POST, "/v1/enroll", &self.request(token)?)?, LIMITS).await?)
    }

    /// The member it becomes by the coordinator's answer.
    pub fn admitted(&self, target: &Target, answer: &Answer, source: IpAddr) -> anyhow::Result<Member> {
        let response: EnrollResponse = document(answer, StatusCode::OK)?;
        let key = self.key.serialize_pem();
        let certificate = tls::Identity::from_pem(response.certificate.as_bytes(), key.as_bytes())?;
        Ok(Member {
            node: NodeRef { uid: response.node_uid, ..self.node.clone() },
            tls: target.tls(Some(&certificate))?,
            source,
            identity: self.identity.clone(),
            epoch: Uuid::new_v4(),
            sequence: 0,
            flapping: false,
        })
    }

    /// Asks for a renewal over `connection`, which must show the certificate to be renewed.
    pub async fn renew(&self, connection: &mut Connection) -> anyhow::Result<Answer> {
        let csr =
            CertificateParams::new(vec![self.node.name.clone()])?.serialize_request(&self.key)?.pem()?;
        let request = RenewRequest { meta: TypeMeta::new("RenewRequest"), csr };
        Ok(connection.exchange(json(Method::POST, "/v1/renew", &request)?, LIMITS).await?)
    }
}

/// One simulated agent after its enrolment.
#[derive(Clone, Debug)]
pub struct Member {
    /// Who it is.
    pub node: NodeRef,
    /// TLS with its client certificate.
    pub tls: Arc<ClientConfig>,
    /// The address it comes from.
    pub source: IpAddr,
    /// Marks of the machine.
    pub identity: Identity,
    /// Epoch of its sequences.
    pub epoch: Uuid,
    /// The last sequence it gave.
    pub sequence: u64,
    flapping: bool,
}

impl Member {
    /// The heartbeat's exchange, held for `hold` seconds at most.
    pub async fn heartbeat(&self, connection: &mut Connection, hold: u32) -> anyhow::Result<ReportAck> {
        let heartbeat = Heartbeat {
            meta: TypeMeta::new("Heartbeat"),
            epoch: self.epoch,
            sequence: self.sequence,
            digest: NodeState::compute_digest(&self.identity, &self.conditions()),
            boot_id: self.identity.boot_id.clone(),
            generation: 0,
            hold_seconds: hold,
            sent_at: now(),
        };
        let limits = Limits { deadline: LIMITS.deadline + Duration::from_secs(hold.into()), ..LIMITS };
        let answer = connection.exchange(json(Method::POST, "/v1/heartbeat", &heartbeat)?, limits).await?;
        document(&answer, StatusCode::OK)
    }

    /// The next report, with one transition, and the whole state with it when `state`.
    pub fn next_report(&mut self, state: bool) -> NodeReport {
        self.flapping = !self.flapping;
        self.sequence += 1;
        let conditions = self.conditions();
        let transition = Transition {
            at: now(),
            condition: conditions[1].clone(),
            previous_status: None,
            previous_reason: None,
            removed: false,
            merged: 0,
        };
        NodeReport {
            meta: TypeMeta::new("NodeReport"),
            node: self.node.clone(),
            epoch: self.epoch,
            boot_id: self.identity.boot_id.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            sent_at: now(),
            generation: 0,
            transitions: vec![SequencedTransition { sequence: self.sequence, transition }],
            state: state.then(|| NodeState {
                digest: NodeState::compute_digest(&self.identity, &conditions),
                identity: self.identity.clone(),
                conditions,
                etcd: None,
                paths: Vec::new(),
                network: None,
                zone: format!("zone-{}", self.node.name.len() % 3),
                region: "region-1".to_owned(),
            }),
        }
    }

    /// Sends the next report and sees to it that it is acknowledged.
    pub async fn report(&mut self, connection: &mut Connection, state: bool) -> anyhow::Result<ReportAck> {
        let report = self.next_report(state);
        let answer = send_report(connection, &report).await?;
        let ack: ReportAck = document(&answer, StatusCode::OK)?;
        ensure!(ack.acknowledged == self.sequence, "acknowledged {} of {}", ack.acknowledged, self.sequence);
        Ok(ack)
    }

    /// What a quiet node of our first checks has in force: eight conditions.
    fn conditions(&self) -> Vec<Condition> {
        let condition = |condition_type, status, severity, reason: ReasonCode, message: &str| Condition {
            condition_type,
            status,
            severity,
            reason,
            message: message.to_owned(),
            advice: String::new(),
            subject: String::new(),
            last_transition_time: Timestamp::from_seconds(1_790_000_000),
            observed_at: Timestamp::from_seconds(1_790_000_000),
        };
        use ConditionType as T;
        use ReasonCode as R;
        let ok = |t, r, m| condition(t, Status::True, Severity::Ok, r, m);
        vec![
            ok(T::Ready, R::AgentRunning, "6 of 6 checks make progress"),
            if self.flapping {
                condition(
                    T::HostHealthy,
                    Status::False,
                    Severity::Warn,
                    R::DiskSpaceLow,
                    "/ has 12.0 % free (3.1 GiB)",
                )
            } else {
                ok(T::HostHealthy, R::HostHasRoom, "/ has 61.0 % free (24.4 GiB); memory 72.0 % available")
            },
            ok(T::ConfigValid, R::ConfigAccepted, "the configuration as written is in force"),
            ok(T::ClockSynchronized, R::ClockInSync, "synchronised; 3 ms behind the coordinator (+/- 2 ms)"),
            ok(T::CloudInitSucceeded, R::CloudInitDone, "done by DataSourceNoCloud"),
            ok(T::GuestAgentReady, R::GuestAgentRunning, "qemu-guest-agent.service is active, pid 812"),
            ok(T::ReportsDelivered, R::ReportsFlow, "0 transitions wait"),
            ok(T::LoadBalancerReachable, R::BalancerAnswers, "2 of 2 addresses accept connections"),
        ]
    }
}

/// Sends any report, right or wrong.
pub async fn send_report(connection: &mut Connection, report: &NodeReport) -> anyhow::Result<Answer> {
    Ok(connection.exchange(json(Method::POST, "/v1/reports", report)?, LIMITS).await?)
}

/// Marks of machine `number`, alike every time.
pub fn identity_of(number: u32) -> Identity {
    let [a, b, c, d] = number.to_be_bytes();
    Identity {
        machine_id_hash: format!("{number:064x}"),
        system_uuid: Uuid::from_u128(0x5a5a_0000_0000_4000_8000_0000_0000_0000 | u128::from(number))
            .to_string(),
        macs: vec![format!("52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}")],
        boot_id: Uuid::from_u128(0xb007_0000_0000_4000_8000_0000_0000_0000 | u128::from(number)).to_string(),
        instance_id: String::new(),
        addresses: vec![format!("10.{b}.{c}.{d}/16")],
    }
}

fn now() -> Timestamp {
    SystemTime::now().into()
}
