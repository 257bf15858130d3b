//! On the wire: each refusal by its own reason, and nobody else affected.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use outrider_protocol::{ApiError, EnrollResponse, List, NodeView, ReportAck};
use outrider_tests::simulated::{Applicant, LIMITS, Target, document, identity_of, send_report};
use outrider_tests::table::Table;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use super::{Bed, refusal};

#[tokio::test]
#[ignore = "run by tests/run --suite enrolment"]
async fn each_wrong_token_is_refused_by_its_own_name() {
    let bed = Bed::start(&[]).await;
    let mut table = Table::new("enrolment refused");
    let mut stranger = bed.stranger().await;
    let good = bed.token(json!({})).await.token;
    let (head, secret) = good.rsplit_once(':').expect("a token");
    let (_, rest) = good.split_once("::").expect("a token");
    let gone = bed.token(json!({ "ttlSeconds": 1 })).await.token;
    let revoked = bed.token(json!({})).await;
    bed.coordinator
        .operator
        .ask(Method::DELETE, &format!("/v1/tokens/{}", revoked.id), json!(null))
        .await
        .expect("gone");
    let named = bed.token(json!({ "namePattern": "pool1-*" })).await.token;
    tokio::time::sleep(Duration::from_millis(1200)).await;

    let machine = Applicant::new("node-1", 1).expect("a machine");
    for (fault, token, code, reason) in [
        ("no token", String::new(), 400, "TokenMalformed"),
        ("not a token", "hello".to_owned(), 400, "TokenMalformed"),
        ("a token cut in copying", good[..good.len() - 12].to_owned(), 400, "TokenMalformed"),
        ("a token of 100 kB", "OR1".repeat(30_000), 413, "TooLarge"),
        ("another secret", format!("{head}:{}", "A".repeat(secret.len())), 401, "TokenUnknown"),
        ("a token of another coordinator", format!("OR1{}::{rest}", "ab".repeat(32)), 401, "CaMismatch"),
        ("a token whose time is over", gone, 401, "TokenExpired"),
        ("a revoked token", revoked.token.clone(), 401, "TokenRevoked"),
        ("a token for other names", named, 403, "NameNotAllowed"),
    ] {
        let answer = machine.apply(&mut bed.stranger().await, &token).await.expect("an answer");
        let (seen, error) = refusal(&answer);
        assert_eq!((seen, error.reason.as_str()), (code, reason), "{fault}: {error:?}");
        assert!(!error.message.contains(secret), "{fault}: the answer holds the secret");
        if reason == "CaMismatch" {
            let both = error.message.contains(&"ab".repeat(32)) && error.message.contains(&good[3..67]);
            assert!(both, "shows both checksums: {}", error.message);
        }
        table.row(fault, "POST /v1/enroll", format!("{code} {reason}"));
    }

    // The good one lets one machine in, however often that machine asks, and nobody else.
    for _ in 0..3 {
        let answer = machine.apply(&mut stranger, &good).await.expect("an answer");
        document::<EnrollResponse>(&answer, StatusCode::OK).expect("let in");
    }
    let second = Applicant::new("node-2", 2).expect("a machine");
    let (code, error) = refusal(&second.apply(&mut bed.stranger().await, &good).await.expect("an answer"));
    assert_eq!((code, error.reason.as_str()), (401, "TokenUsedUp"));
    table.row(
        "a token used before",
        "a second machine with a once-token",
        "401 TokenUsedUp; the first may repeat",
    );

    for (fault, name) in
        [("an empty name", ""), ("a name of blanks", "a b"), ("a name of 300", &*"x".repeat(300))]
    {
        let token = bed.token(json!({})).await.token;
        let machine = Applicant::new(name, 9).expect("a machine");
        let (code, error) =
            refusal(&machine.apply(&mut bed.stranger().await, &token).await.expect("an answer"));
        assert_eq!((code, error.reason.as_str()), (400, "NameInvalid"), "{fault}");
        table.row(fault, "POST /v1/enroll", "400 NameInvalid");
    }
    let token = bed.token(json!({})).await.token;
    for (fault, csr) in [
        ("no certificate request", ""),
        (
            "a damaged request",
            "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
        ),
    ] {
        let mut request = Applicant::new("node-3", 3).expect("a machine").request(&token).expect("a request");
        request.csr = csr.to_owned();
        let request =
            outrider_tests::simulated::json(Method::POST, "/v1/enroll", &request).expect("a request");
        let answer = bed.stranger().await.exchange(request, LIMITS).await.expect("an answer");
        let (code, error) = refusal(&answer);
        assert_eq!((code, error.reason.as_str()), (400, "RequestInvalid"), "{fault}");
        table.row(fault, "POST /v1/enroll", "400 RequestInvalid");
    }
    let nodes: List<NodeView> = bed.coordinator.operator.get("/v1/nodes").await.expect("nodes");
    assert_eq!(nodes.items.len(), 1, "only one machine is a node: {:?}", nodes.items);

    // The pin is checked before a token is sent at all.
    let wrong = Target { pin: [7; 32], ..bed.coordinator.operator.target.clone() };
    let error =
        wrong.connect(wrong.tls(None).expect("TLS"), None).await.expect_err("a pin that does not match");
    let text = format!("{error:#}");
    assert!(text.contains(&"07".repeat(32)) && text.contains(&good[3..67]), "shows both checksums: {text}");
    table.row(
        "a CA that is not the pinned one",
        "TLS with another pin",
        "refused before anything is sent, both shown",
    );
}

#[tokio::test]
#[ignore = "run by tests/run --suite enrolment"]
async fn a_node_speaks_only_for_itself() {
    let bed = Bed::start(&[]).await;
    let mut table = Table::new("reports refused");
    let mut one = bed.admit(&Applicant::new("node-1", 1).expect("a machine")).await;
    let mut two = bed.admit(&Applicant::new("node-2", 2).expect("a machine")).await;
    let mut line = bed.connect(&one).await.expect("a connection");
    one.report(&mut line, true).await.expect("acknowledged");

    let mut foreign = one.next_report(true);
    foreign.node = two.node.clone();
    let (code, error) = refusal(&send_report(&mut line, &foreign).await.expect("an answer"));
    assert_eq!((code, error.reason.as_str()), (403, "NotYourNode"));
    table.row("a report of another node", "node-1's certificate, node-2's name", "403 NotYourNode");
    one.sequence -= 1;

    let mut stranger = bed.stranger().await;
    let (code, error) = refusal(&send_report(&mut stranger, &foreign).await.expect("an answer"));
    assert_eq!(code, 401, "{error:?}");
    table.row("a report without a certificate", "no client certificate", format!("401 {}", error.reason));

    // Exactly once: the same again is acknowledged again; another content under its sequence is not.
    let report = one.next_report(false);
    for _ in 0..2 {
        let ack: ReportAck =
            document(&send_report(&mut line, &report).await.expect("an answer"), StatusCode::OK).expect("ok");
        assert_eq!(ack.acknowledged, one.sequence);
    }
    let mut other = report.clone();
    other.transitions[0].transition.condition.message.push('!');
    let (code, error) = refusal(&send_report(&mut line, &other).await.expect("an answer"));
    assert_eq!((code, error.reason.as_str()), (409, "EpochMismatch"));
    table.row(
        "a restored disk",
        "another content under a known sequence",
        "409 EpochMismatch: a new epoch begins",
    );
    let mut backwards = one.next_report(false);
    let mut earlier = backwards.transitions[0].clone();
    earlier.sequence = 1;
    backwards.transitions.push(earlier);
    let (code, error) = refusal(&send_report(&mut line, &backwards).await.expect("an answer"));
    assert_eq!((code, error.reason.as_str()), (400, "OutOfOrder"));
    table.row("transitions out of order", "sequence 1 after the next one", "400 OutOfOrder");
    one.sequence -= 1;

    for (fault, body, code, reason) in [
        (
            "half a document",
            Bytes::from_static(b"{\"apiVersion\":\"outrider.internal/v1alpha1\",\"kind\":\"NodeRep"),
            400,
            "InvalidDocument",
        ),
        (
            "another document",
            Bytes::from(serde_json::to_vec(&ApiError::new(1, "a", "b", "c")).expect("JSON")),
            400,
            "WrongKind",
        ),
        ("no document", Bytes::new(), 400, "BodyMissing"),
        ("a report of 20 MiB", Bytes::from(vec![b' '; 20 << 20]), 413, "TooLarge"),
    ] {
        let request = Request::post("/v1/reports")
            .header("content-type", "application/json")
            .body(body)
            .expect("a request");
        let mut line = bed.connect(&two).await.expect("a connection");
        match line.exchange(request, LIMITS).await {
            Ok(answer) => {
                let (seen, error) = refusal(&answer);
                assert_eq!((seen, error.reason.as_str()), (code, reason), "{fault}: {error:?}");
            }
            // A server may close before the rest of a huge body is sent.
            Err(failure) => assert_eq!(code, 413, "{fault}: {failure}"),
        }
        table.row(fault, "POST /v1/reports", format!("{code} {reason}"));
    }
    let mut again = bed.connect(&two).await.expect("a connection");
    two.report(&mut again, true).await.expect("the node itself goes on");
    one.report(&mut line, true).await.expect("and so does the other");

    // Revoked: the open connection ends, a new one is refused by name, and the other node notices nothing.
    assert_eq!(bed.post("/v1/nodes/node-1/revoke").await, 200);
    let start = Instant::now();
    while line.is_open() && start.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!line.is_open(), "revoking closes connections");
    let closed = start.elapsed();
    let refused = match bed.connect(&one).await {
        Ok(mut line) => match send_report(&mut line, &one.next_report(true)).await {
            Ok(answer) => {
                let (code, error) = refusal(&answer);
                assert_eq!((code, error.reason.as_str()), (403, "NodeRevoked"));
                format!("{code} {}", error.reason)
            }
            Err(error) => panic!("{error:#}"),
        },
        Err(error) => panic!("the refusal has no name: {error:#}"),
    };
    table.timed(
        "a revoked node",
        "POST /v1/nodes/node-1/revoke",
        format!("connection closed, then {refused}"),
        closed,
        None,
    );
    two.report(&mut again, true).await.expect("the other node goes on");
}

#[tokio::test]
#[ignore = "run by tests/run --suite enrolment"]
async fn a_rebuilt_machine_comes_back_and_a_living_twin_does_not() {
    let bed = Bed::start(&[]).await;
    let mut table = Table::new("identity");
    let mut one = bed.admit(&Applicant::new("node-1", 1).expect("a machine")).await;
    let mut line = bed.connect(&one).await.expect("a connection");
    one.report(&mut line, true).await.expect("acknowledged");

    // Another machine with the name of a living one.
    let token = bed.token(json!({})).await.token;
    let impostor = Applicant::new("node-1", 77).expect("a machine");
    let (code, error) = refusal(&impostor.apply(&mut bed.stranger().await, &token).await.expect("an answer"));
    assert_eq!((code, error.reason.as_str()), (409, "IdentityInUse"), "{error:?}");
    assert!(error.message.contains("node-1"), "names the node that has it: {}", error.message);
    table.row("the name of a living node", "another machine, a good token", "409 IdentityInUse");

    // A template with its machine-id left in: another name, the same marks but for the hardware.
    let mut clone = Applicant::new("node-9", 78).expect("a machine");
    clone.identity.machine_id_hash = identity_of(1).machine_id_hash;
    let token = bed.token(json!({})).await.token;
    let (code, error) = refusal(&clone.apply(&mut bed.stranger().await, &token).await.expect("an answer"));
    assert_eq!((code, error.reason.as_str()), (409, "IdentityInUse"), "{error:?}");
    table.row("a template's machine-id", "another machine with the same machine-id", "409 IdentityInUse");

    // The same hardware with a new disk: a new key, a new machine-id, a new boot.
    let mut rebuilt = Applicant::new("node-1", 1).expect("a machine");
    rebuilt.identity.machine_id_hash = "ef".repeat(32);
    rebuilt.identity.boot_id = Uuid::new_v4().to_string();
    let mut new = bed.admit(&rebuilt).await;
    let mut line = bed.connect(&new).await.expect("a connection");
    new.report(&mut line, true).await.expect("the rebuilt machine is the node");
    table.row(
        "a rebuilt machine",
        "same hardware, new key and machine-id",
        "let in; takes the old record's place",
    );
    let mut old = bed.connect(&one).await.expect("a connection");
    let (code, error) = refusal(&send_report(&mut old, &one.next_report(true)).await.expect("an answer"));
    assert_eq!((code, error.reason.as_str()), (403, "NodeSuperseded"), "{error:?}");
    table.row("the disk from before", "the old certificate", "403 NodeSuperseded");

    // A copy of a running machine: one certificate, two boot ids, both alive.
    let mut twin = new.clone();
    twin.identity.boot_id = Uuid::new_v4().to_string();
    twin.epoch = Uuid::new_v4();
    twin.sequence = 0;
    let mut stopped = None;
    for round in 0..6 {
        let member = if round % 2 == 0 { &mut twin } else { &mut new };
        let mut line = bed.connect(member).await.expect("a connection");
        let report = member.next_report(true);
        let answer = send_report(&mut line, &report).await.expect("an answer");
        if answer.head.status != StatusCode::OK {
            let (code, error) = refusal(&answer);
            assert_eq!((code, error.reason.as_str()), (409, "IdentityCloned"), "{error:?}");
            stopped = Some((round, round % 2 == 0));
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (round, it_was_the_twin) = stopped.expect("two machines that alternate are told");
    assert!(it_was_the_twin, "the one that was there first stays");
    let mut line = bed.connect(&new).await.expect("a connection");
    new.report(&mut line, true).await.expect("the original goes on");
    let view: NodeView = bed.coordinator.operator.get("/v1/nodes/node-1").await.expect("the node");
    let cloned = view.conditions.iter().find(|c| c.reason.as_str() == "IdentityCloned");
    assert!(cloned.is_some(), "people see it: {:?}", view.conditions);
    table.row(
        "a living twin",
        format!("one certificate, two boot ids, {round} reports in turn"),
        "409 IdentityCloned, twin stopped",
    );
}

/// Slow and hostile callers cost themselves, nobody else.
#[tokio::test]
#[ignore = "run by tests/run --suite enrolment"]
async fn a_hostile_client_harms_no_other() {
    let bed = Bed::start(&[]).await;
    let mut table = Table::new("hostile callers, beside a node that works");
    let mut one = bed.admit(&Applicant::new("node-1", 1).expect("a machine")).await;
    let mut line = bed.connect(&one).await.expect("a connection");
    one.report(&mut line, true).await.expect("acknowledged");
    let address = bed.launch.address;

    let mut idle = Vec::new();
    for _ in 0..300 {
        idle.push(tokio::net::TcpStream::connect(address).await.expect("TCP"));
    }
    let mut garbage = tokio::net::TcpStream::connect(address).await.expect("TCP");
    garbage.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(15), garbage.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "plain http on the TLS port is ended");
    table.row("plain http", "GET on the TLS port", format!("closed after {} bytes", answer.len()));

    let mut worst = Duration::ZERO;
    for _ in 0..20 {
        let start = Instant::now();
        one.heartbeat(&mut line, 0).await.expect("a heartbeat");
        worst = worst.max(start.elapsed());
    }
    table.timed(
        "300 idle connections",
        "TCP without a handshake",
        "the node's heartbeats go on",
        worst,
        None,
    );

    // Repeated fast, a node is slowed down by its own limit and told so.
    let mut limited = None;
    for i in 0..2000u32 {
        let start = Instant::now();
        if let Err(error) = one.heartbeat(&mut line, 0).await {
            limited = Some((i, format!("{error:#}"), start.elapsed()));
            break;
        }
    }
    if let Some((after, error, _)) = &limited {
        assert!(error.contains("429"), "{error}");
        table.row("a node gone wild", format!("{after} heartbeats at once"), "429, told when to come again");
    } else {
        table.row("a node gone wild", "2000 heartbeats at once", "slowed down");
    }
    let mut two = bed.admit(&Applicant::new("node-2", 2).expect("a machine")).await;
    let mut other = bed.connect(&two).await.expect("a connection");
    two.report(&mut other, true).await.expect("another node is not");
}
