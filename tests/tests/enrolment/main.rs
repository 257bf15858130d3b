//! Who gets in, who stays in, and what everybody else is told. Against a real coordinator process: on the wire, where
//! every refusal can be made exactly, and with real agents and the people's tool.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

mod agents;
mod refused;
mod starts;

use std::net::{IpAddr, Ipv4Addr};

use http::Method;
use outrider_agent::net::{Answer, Connection};
use outrider_protocol::{ApiError, TokenView};
use outrider_tests::coordinator::{Coordinator, Launch};
use outrider_tests::simulated::{Applicant, Member};
use serde_json::{Value, json};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A coordinator with a folder that ends with it.
struct Bed {
    coordinator: Coordinator,
    launch: Launch,
    folder: tempfile::TempDir,
}

impl Bed {
    async fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut launch = Launch::new(&folder.path().join("coordinator")).expect("a port");
        launch.arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        Self { coordinator: launch.start().await.expect("a coordinator"), launch, folder }
    }

    /// A connection without a certificate.
    async fn stranger(&self) -> Connection {
        let target = &self.coordinator.operator.target;
        target.connect(target.tls(None).expect("TLS"), None).await.expect("a connection")
    }

    /// A connection of `member`.
    async fn connect(&self, member: &Member) -> anyhow::Result<Connection> {
        self.coordinator.operator.target.connect(member.tls.clone(), None).await
    }

    async fn token(&self, request: Value) -> TokenView {
        let mut document = json!({ "apiVersion": outrider_protocol::API_VERSION, "kind": "TokenRequest", "tokenKind": "once" });
        let fields = document.as_object_mut().expect("an object");
        fields.extend(request.as_object().expect("an object").clone());
        let answer =
            self.coordinator.operator.ask(Method::POST, "/v1/tokens", document).await.expect("an answer");
        serde_json::from_slice(&answer.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&answer.body)))
    }

    /// Enrols with a fresh token good for one.
    async fn admit(&self, applicant: &Applicant) -> Member {
        let token = self.token(json!({})).await.token;
        let answer = applicant.apply(&mut self.stranger().await, &token).await.expect("an answer");
        applicant.admitted(&self.coordinator.operator.target, &answer, HERE).expect("a certificate")
    }

    /// POST by the operator; the status of the answer.
    async fn post(&self, path: &str) -> u16 {
        let answer = self.coordinator.operator.ask(Method::POST, path, json!({})).await.expect("an answer");
        answer.head.status.as_u16()
    }
}

/// The error in an answer: its code and reason; whatever it is, it says what is wrong and what to do.
fn refusal(answer: &Answer) -> (u16, ApiError) {
    let text = String::from_utf8_lossy(&answer.body);
    let error: ApiError =
        serde_json::from_slice(&answer.body).unwrap_or_else(|e| panic!("{e}: no ApiError: {text}"));
    assert_eq!(error.code, answer.head.status.as_u16(), "{text}");
    assert!(
        !error.message.is_empty() && !error.advice.is_empty(),
        "says what is wrong and what to do: {text}"
    );
    (error.code, error)
}
