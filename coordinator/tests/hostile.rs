//! Callers that are slow, huge, cut short, many or simply wrong, while a good one goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail loudly

mod support;

use std::time::Duration;

use outrider_coordinator::Rate;
use outrider_protocol::Heartbeat;
use serde_json::json;
use support::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

async fn read_all(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut text = Vec::new();
    // A peer that resets after its answer has still answered.
    let _ =
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("the coordinator ends it");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_callers_are_ended_and_harm_nobody() {
    let bed = Bed::with(|o| {
        o.limits.handshake = Duration::from_millis(500);
        o.limits.body_time = Duration::from_millis(500);
    })
    .await;
    let agent = bed.enrol("good", "").await;
    let operator = bed.operator();

    let mut silent = TcpStream::connect(bed.address()).await.unwrap();
    let mut half_hello = TcpStream::connect(bed.address()).await.unwrap();
    half_hello.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.unwrap();
    let mut half_header = bed.stranger().connect().await.unwrap();
    half_header.write_all(b"GET /v1/nodes HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.unwrap();
    let mut half_body = agent.client.connect().await.unwrap();
    half_body
        .write_all(b"POST /v1/reports HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"kind\":")
        .await
        .unwrap();

    assert_eq!(agent.client.post("/v1/reports", &agent.report(vec![], None)).await.0, 200);
    assert_eq!(operator.get("/v1/nodes/good").await.0, 200);

    assert_eq!(read_all(&mut silent).await, "");
    assert_eq!(read_all(&mut half_hello).await.len(), 0);
    let _ = read_all(&mut half_header).await;
    let answer = read_all(&mut half_body).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("BodyTimedOut"), "{answer}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_is_answered_with_the_limit() {
    let bed = Bed::start().await;
    let agent = bed.enrol("good", "").await;

    // The caller is still sending when the answer is clear: it must hear it all the same.
    let mut connection = agent.client.open().await;
    let huge = bytes::Bytes::from(vec![b' '; 8 << 20]);
    let (status, body) = connection.call(http::Method::POST, "/v1/reports", Some(huge)).await;
    assert_eq!((status, &body["reason"]), (413, &json!("TooLarge")));
    assert!(body["message"].as_str().unwrap().contains(&(1 << 20).to_string()), "{body}");

    let mut chunked = agent.client.connect().await.unwrap();
    chunked
        .write_all(b"POST /v1/heartbeat HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    for _ in 0..10 {
        chunked.write_all(format!("400\r\n{}\r\n", " ".repeat(1024)).as_bytes()).await.unwrap();
    }
    chunked.write_all(b"0\r\n\r\n").await.unwrap();
    let answer = read_all(&mut chunked).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("4096"), "{answer}");

    let mut header = bed.stranger().connect().await.unwrap();
    let long = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "a".repeat(64 << 10));
    let _ = header.write_all(long.as_bytes()).await;
    let answer = read_all(&mut header).await;
    assert!(
        answer.starts_with("HTTP/1.1 431") && answer.contains("TooLarge") && answer.contains("16384"),
        "{answer}"
    );

    // All of it is sent, as most callers do, before the answer is looked for: no reset comes in its way.
    for query in ["a".repeat(70_000), "a=b&".repeat(5_000), "x".repeat(600_000)] {
        let mut line = bed.stranger().connect().await.unwrap();
        let long = format!("GET /healthz?{query} HTTP/1.1\r\nHost: x\r\n\r\n");
        line.write_all(long.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        line.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 414") && answer.contains("connection: close"), "{answer}");
        let body: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!((&body["code"], &body["reason"]), (&json!(414), &json!("TooLarge")), "{answer}");
        assert!(body["message"].as_str().unwrap().contains("16384"), "{answer}");
    }
    let mut garbage = bed.stranger().connect().await.unwrap();
    garbage.write_all(b"GET /a b c HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let answer = read_all(&mut garbage).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("InvalidRequest"), "{answer}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_only_announced_is_refused_at_once() {
    // Were the body waited for, nothing would come within the patience of this test.
    let bed = Bed::with(|o| o.limits.body_time = 10 * PATIENCE).await;
    let agent = bed.enrol("good", "").await;
    let (operator, stranger) = (bed.operator(), bed.stranger());
    let bearer = format!("Authorization: Bearer {}\r\n", bed.coordinator.operator_token());
    for (client, path, more, advice) in [
        (&stranger, "/v1/enroll", "", "certificate request"),
        (&agent.client, "/v1/reports", "", "fewer transitions"),
        (&agent.client, "/v1/heartbeat", "", "goes into a report"),
        (&operator, "/v1/tokens", bearer.as_str(), "one document"),
    ] {
        let mut stream = client.connect().await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: 50000000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("50000000 bytes"), "{path}: {answer}");
        assert!(answer.contains("connection: close") && answer.contains(advice), "{path}: {answer}");
        assert_eq!(answer.contains("transitions"), path == "/v1/reports", "{path}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{path}: {answer}");
    }
    // A body sent after the answer is no request of its own.
    let mut late = agent.client.connect().await.unwrap();
    late.write_all(b"POST /v1/heartbeat HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n").await.unwrap();
    let mut begun = [0; 12];
    late.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 413");
    let _ = late
        .write_all(format!("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n{}", " ".repeat(4990)).as_bytes())
        .await;
    let rest = read_all(&mut late).await;
    assert!(!rest.contains("HTTP/1.1") && rest.contains("TooLarge"), "{rest}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_cut_short_or_garbage_is_said() {
    let bed = Bed::start().await;
    let agent = bed.enrol("good", "").await;
    let report = serde_json::to_vec(&agent.report(vec![transition(1, ready())], None)).unwrap();
    let post = async |body: &[u8]| {
        let body = bytes::Bytes::copy_from_slice(body);
        agent.client.open().await.call(http::Method::POST, "/v1/reports", Some(body)).await
    };
    let (status, body) = post(&report[..report.len() / 2]).await;
    assert_eq!((status, &body["reason"]), (400, &json!("InvalidDocument")));
    assert!(body["message"].as_str().unwrap().contains("cut short"), "{body}");
    assert_eq!(post(b"").await.1["reason"], "BodyMissing");
    assert_eq!(post(&[0xff; 100]).await.1["reason"], "InvalidDocument");
    let deep = "[".repeat(100_000);
    assert_eq!(post(deep.as_bytes()).await.1["reason"], "InvalidDocument");
    // Nothing of them was stored, and the whole one is.
    assert_eq!(post(&report).await.1["acknowledged"], 1);
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_connections_leaves_the_agents_their_places() {
    let bed = Bed::with(|o| {
        o.limits.connections = 80; // 20 for strangers, 10 of them for one address
        o.limits.connections_per_node = 4;
    })
    .await;
    let agent = bed.enrol("good", "").await;
    let mut kept = agent.client.open().await;
    assert_eq!(kept.post("/v1/reports", &agent.report(vec![], None)).await.0, 200);

    let mut flood = Vec::new();
    for _ in 0..40 {
        flood.push(TcpStream::connect(bed.address()).await.unwrap());
    }
    // The tenth and later of one address are closed at once.
    let mut closed = 0;
    for stream in &mut flood {
        let mut byte = [0];
        if let Ok(Ok(0) | Err(_)) =
            tokio::time::timeout(Duration::from_millis(200), stream.read(&mut byte)).await
        {
            closed += 1;
        }
    }
    assert_eq!(closed, 30);
    assert_eq!(kept.post("/v1/reports", &agent.report(vec![], None)).await.0, 200);
    drop(flood);
    until("places are free again", async || agent.client.connect().await.is_ok(), |ok| *ok).await;

    // A node's own connections: the newest are kept, the oldest goes.
    let mut own = Vec::new();
    for _ in 0..4 {
        let mut connection = agent.client.open().await;
        assert_eq!(connection.post("/v1/reports", &agent.report(vec![], None)).await.0, 200);
        own.push(connection);
    }
    tokio::time::timeout(PATIENCE, &mut kept.task).await.expect("the oldest is closed").unwrap();
    assert_eq!(own[0].post("/v1/reports", &agent.report(vec![], None)).await.0, 200);
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_asks_too_often_is_told_when_to_come_back() {
    let bed = Bed::with(|o| o.limits.node_rate = Rate { per_second: 1, burst: 3 }).await;
    let (busy, good) = (bed.enrol("busy", "").await, bed.enrol("good", "").await);
    let mut connection = busy.client.open().await;
    let body = serde_json::to_vec(&busy.report(vec![], None)).unwrap();
    let mut refused = None;
    for _ in 0..50 {
        let (status, headers, _) =
            connection.raw(http::Method::POST, "/v1/reports", Some(body.clone().into())).await;
        if status == 429 {
            refused = Some(headers);
            break;
        }
    }
    let headers = refused.expect("refused in the end");
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(good.client.post("/v1/reports", &good.report(vec![], None)).await.0, 200);
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_ends_tls_in_front_is_recognised() {
    let bed = Bed::start().await;
    let agent = bed.enrol("good", "").await;

    let mut plain = TcpStream::connect(bed.address()).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let answer = read_all(&mut plain).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("TlsExpected"), "{answer}");

    let (status, body) = bed.stranger().post("/v1/reports", &agent.report(vec![], None)).await;
    assert_eq!((status, &body["reason"]), (401, &json!("ClientCertificateMissing")), "{body}");

    let mut forwarded = bed.stranger().connect().await.unwrap();
    forwarded
        .write_all(b"POST /v1/heartbeat HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.7\r\nContent-Length: 2\r\n\r\n{}")
        .await
        .unwrap();
    let answer = read_all(&mut forwarded).await;
    assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("TlsEndedInFront"), "{answer}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_coordinator_opens_nothing() {
    let (bed, other) = (Bed::start().await, Bed::start().await);
    let mut agent = other.enrol("n1", "").await;
    agent.client.address = bed.address();
    let mut trusting = bed.enrol("n1", "").await;
    // The client trusts this coordinator and shows the other one's certificate.
    let response = {
        let token = other.token(1).await;
        let request = enroll_request("n2", "", &token, &csr(&trusting.key));
        other.stranger().post("/v1/enroll", &request).await.1
    };
    trusting.client = Agent::client(&bed, &trusting.key, &serde_json::from_value(response).unwrap());
    let mut stream = trusting.client.connect().await.expect("TLS 1.3 tells the client late");
    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(!read_all(&mut stream).await.contains("200"), "it must not be served");
    assert_eq!(bed.operator().get("/v1/nodes/n1").await.0, 200);
    bed.coordinator.shutdown().await;
    other.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_start_says_why_and_leaves_nothing() {
    let bed = Bed::start().await;
    let folder = tempfile::tempdir().unwrap();
    let mut options = outrider_coordinator::Options::on_loopback(folder.path());
    options.listen = vec![bed.address()];
    let error = outrider_coordinator::start(options).await.err().unwrap().to_string();
    assert!(error.contains(&bed.address().to_string()) && error.contains("--listen"), "{error}");

    let options = outrider_coordinator::Options::on_loopback(bed.folder.path());
    let error = outrider_coordinator::start(options).await.err().unwrap().to_string();
    assert!(error.contains("another coordinator") && error.contains("--state-dir"), "{error}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_sent_ahead_are_answered_in_order() {
    let bed = Bed::start().await;
    let (agent, beat) = known(&bed).await;
    let request = |path: &str, body: String, more: &str| written(path, &body, more);
    let wrong = serde_json::to_string(&agent.report(vec![], None)).unwrap();

    // All at once behind a held one; and one by one while it is held.
    let mut together = agent.client.connect().await.unwrap();
    let ahead = request("/v1/heartbeat", beat(2), "")
        + &request("/v1/heartbeat", wrong.clone(), "")
        + &request("/v1/heartbeat", beat(0), "Connection: close\r\n");
    together.write_all(ahead.as_bytes()).await.unwrap();
    let mut apart = agent.client.connect().await.unwrap();
    apart.write_all(request("/v1/heartbeat", beat(2), "").as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    apart.write_all(request("/v1/heartbeat", wrong, "").as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    apart.write_all(request("/v1/heartbeat", beat(0), "Connection: close\r\n").as_bytes()).await.unwrap();

    for stream in [&mut together, &mut apart] {
        let answers = read_all(stream).await;
        assert_eq!(statuses(&answers), ["200", "400", "200"], "{answers}");
    }
    bed.coordinator.shutdown().await;
}

/// A request as its bytes, `more` being further header lines.
fn written(path: &str, body: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {}\r\n\r\n{body}", body.len())
}

fn statuses(answers: &str) -> Vec<&str> {
    answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect()
}

/// A node whose state is known, so that its heartbeats are held, and the text of one.
async fn known(bed: &Bed) -> (Agent, impl Fn(u32) -> String + use<>) {
    let (agent, state, _) = bed.reporting("good").await;
    let beat = agent.heartbeat(&state.digest, 0);
    let text =
        move |hold_seconds| serde_json::to_string(&Heartbeat { hold_seconds, ..beat.clone() }).unwrap();
    (agent, text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_sent_ahead_than_a_buffer_takes_is_not_lost() {
    let bed = Bed::start().await;
    let (agent, beat) = known(&bed).await;
    // What is read with the first one and lies ahead while it is held is more than hyper takes up at once afterwards.
    let pad = format!("X-Pad: {}\r\n", "a".repeat(700));
    let mut ahead = written("/v1/heartbeat", &beat(1), &pad) + &written("/v1/heartbeat", &beat(1), &pad);
    for _ in 0..60 {
        ahead += &written("/v1/heartbeat", &beat(0), &pad);
    }
    ahead += &written("/v1/heartbeat", &beat(0), "Connection: close\r\n");
    let mut stream = agent.client.connect().await.unwrap();
    stream.write_all(ahead.as_bytes()).await.unwrap();
    let answers = read_all(&mut stream).await;
    assert_eq!(statuses(&answers), vec!["200"; 63], "{answers}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_ends_as_it_was_agreed() {
    let bed = Bed::start().await;
    let (agent, beat) = known(&bed).await;
    // `close` among other options: the held answer is the last one, what follows is not heard.
    let mut listed = agent.client.connect().await.unwrap();
    let ahead = written("/v1/heartbeat", &beat(1), "Connection: keep-alive, Close\r\n")
        + &written("/v1/heartbeat", &beat(0), "");
    listed.write_all(ahead.as_bytes()).await.unwrap();
    assert_eq!(statuses(&read_all(&mut listed).await), ["200"]);

    // Whoever says goodbye is told goodbye: at rest, and while it is held.
    let mut rests = agent.client.connect().await.unwrap();
    rests.write_all(written("/v1/heartbeat", &beat(0), "").as_bytes()).await.unwrap();
    let mut start = [0; 15];
    rests.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    let held = hold(&bed, &agent, &written("/v1/heartbeat", &beat(600), "")).await;
    for mut stream in [rests, held] {
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it ends");
        assert!(read.is_ok(), "{read:?}");
    }
    bed.coordinator.shutdown().await;
}

/// A connection on which `text` was sent, and a heartbeat in it heard.
async fn hold(bed: &Bed, agent: &Agent, text: &str) -> TlsStream<TcpStream> {
    let heard = async || bed.operator().get("/v1/nodes/good").await.1["lastSeen"].clone();
    let before = heard().await;
    let mut stream = agent.client.connect().await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    until("it is heard", heard, |seen| *seen != before).await;
    stream
}

/// Heartbeats that are held, one a connection: with nothing behind it, half a request, and a whole one.
async fn held(bed: &Bed, agent: &Agent, beat: &impl Fn(u32) -> String) -> Vec<TlsStream<TcpStream>> {
    let whole = written("/v1/heartbeat", &beat(600), "");
    let mut streams = Vec::new();
    for ahead in ["", &whole[..whole.len() / 2], &whole] {
        streams.push(hold(bed, agent, &(whole.clone() + ahead)).await);
    }
    streams
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoking_answers_and_ends_what_is_held_whatever_lies_ahead() {
    let bed = Bed::start().await;
    let (agent, beat) = known(&bed).await;
    let streams = held(&bed, &agent, &beat).await;
    let (status, body) = bed.operator().post("/v1/nodes/good/revoke", &()).await;
    assert_eq!(status, 200, "{body}");
    for mut stream in streams {
        let answers = read_all(&mut stream).await;
        assert_eq!(statuses(&answers), ["403"], "{answers}");
        assert!(answers.to_ascii_lowercase().contains("connection: close"), "{answers}");
    }
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_answers_what_is_held_whatever_lies_ahead() {
    let bed = Bed::start().await;
    let (agent, beat) = known(&bed).await;
    let streams = held(&bed, &agent, &beat).await;
    let stopping = tokio::spawn(bed.coordinator.shutdown());
    for mut stream in streams {
        let answers = read_all(&mut stream).await;
        assert_eq!(statuses(&answers), ["200"], "{answers}");
    }
    tokio::time::timeout(PATIENCE, stopping).await.expect("it ends").unwrap();
}
