//! What operators and tools see: errors in one shape, watches, clusters, tokens, roots, health.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail loudly

mod support;

use http::Method;
use http_body_util::BodyExt;
use outrider_protocol::*;
use serde_json::{Value, json};
use support::*;

/// A stream of `/v1/watch`, frame by frame.
struct Watch {
    body: hyper::body::Incoming,
    text: String,
    _connection: Kept,
}

impl Watch {
    async fn open(bed: &Bed, after: Option<u64>) -> Self {
        let mut connection = bed.operator().open().await;
        let mut request = http::Request::builder()
            .uri("/v1/watch")
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", bed.coordinator.operator_token()));
        if let Some(after) = after {
            request = request.header("last-event-id", after.to_string());
        }
        let request = request.body(Default::default()).unwrap();
        let response = connection.sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new(), _connection: connection }
    }

    /// The next frame: its event, id and data.
    async fn next(&mut self) -> Option<(String, u64, Value)> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let fields: std::collections::BTreeMap<_, _> =
                    frame.lines().filter_map(|line| line.split_once(": ")).collect();
                let parsed = (
                    fields.get("event").unwrap_or(&"").to_string(),
                    fields.get("id").map_or(0, |id| id.parse().unwrap()),
                    fields.get("data").map_or(Value::Null, |data| serde_json::from_str(data).unwrap()),
                );
                self.text = rest.to_owned();
                return Some(parsed);
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("a frame")?.ok()?;
            self.text.push_str(std::str::from_utf8(frame.data_ref()?).unwrap());
        }
    }

    /// Frames up to and with the first that `is_last`.
    async fn until(&mut self, is_last: impl Fn(&str, &Value) -> bool) -> Vec<(String, u64, Value)> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            let last = is_last(&frame.0, &frame.2);
            frames.push(frame);
            if last {
                return frames;
            }
        }
        panic!("the stream ended after {frames:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_tells_deltas_and_resumes_without_a_gap() {
    let bed = Bed::start().await;
    let agent = bed.enrol("n1", "").await;
    let (_, list) = bed.operator().get("/v1/nodes").await;
    let start = list["revision"].as_u64().unwrap();

    let mut watch = Watch::open(&bed, None).await;
    assert_eq!(watch.next().await.unwrap().0, "bookmark");
    let report = agent.report(vec![transition(1, ready())], Some(agent.state(vec![ready()])));
    assert_eq!(agent.client.post("/v1/reports", &report).await.0, 200);
    let seen = watch.until(|event, data| event == "node" && data["ready"] == "True").await;
    let event = seen.iter().find(|(event, _, _)| event == "event").expect("the transition");
    assert_eq!((&event.2["node"], event.2["id"].as_u64()), (&json!("n1"), Some(event.1)));
    drop(watch);

    // While nobody watches, another transition comes.
    let second = condition(ConditionType::HostHealthy, Status::False, ReasonCode::DiskSpaceLow);
    let report = agent.report(vec![transition(2, second.clone())], Some(agent.state(vec![ready(), second])));
    assert_eq!(agent.client.post("/v1/reports", &report).await.0, 200);

    let mut resumed = Watch::open(&bed, Some(event.1)).await;
    let seen = resumed.until(|event, _| event == "bookmark").await;
    let of = |kind: &str| seen.iter().filter(|(event, _, _)| event == kind).collect::<Vec<_>>();
    assert_eq!(of("event").len(), 1, "{seen:?}");
    assert_eq!(of("event")[0].2["transition"]["condition"]["reason"], "DiskSpaceLow");
    assert_eq!(of("node")[0].2["conditions"].as_array().unwrap().len(), 2, "{seen:?}");
    assert_eq!(of("bookmark")[0].2["resync"], false);

    // From the list on: everything since, and a position of another life is told to list again.
    let mut all = Watch::open(&bed, Some(start)).await;
    let seen = all.until(|event, _| event == "bookmark").await;
    assert_eq!(seen.iter().filter(|(event, _, _)| event == "event").count(), 2, "{seen:?}");
    let mut foreign = Watch::open(&bed, Some(999_999)).await;
    assert_eq!(foreign.next().await.unwrap().2["resync"], true);

    // Shutdown ends every stream; it does not wait for them.
    let ended = tokio::spawn(async move { while resumed.next().await.is_some() {} });
    bed.coordinator.shutdown().await;
    tokio::time::timeout(PATIENCE, ended).await.expect("the stream ends").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_have_one_shape() {
    let bed = Bed::start().await;
    let (stranger, operator) = (bed.stranger(), bed.operator());
    let mut wrong = bed.stranger();
    wrong.bearer = Some(format!("OR1{}::abc:{}", "0".repeat(64), "s".repeat(32)));
    for (client, method, path, status, reason) in [
        (&stranger, Method::GET, "/v1/nodes", 401, "Unauthenticated"),
        (&wrong, Method::GET, "/v1/nodes", 401, "Unauthenticated"),
        (&operator, Method::GET, "/v1/nodes/none", 404, "NotFound"),
        (&operator, Method::GET, "/v1/clusters/none", 404, "NotFound"),
        (&operator, Method::POST, "/v1/nodes/none/revoke", 404, "NodeUnknown"),
        (&operator, Method::GET, "/v1/nothing", 404, "NoSuchPath"),
        (&operator, Method::DELETE, "/v1/nodes", 405, "NoSuchMethod"),
        (&operator, Method::GET, "/v1/nodes?limit=0", 400, "InvalidLimit"),
        (&operator, Method::GET, "/v1/nodes?limit=x", 400, "InvalidParameter"),
        (&operator, Method::GET, "/v1/nodes?selector=a", 400, "UnknownParameter"),
        (&operator, Method::GET, "/v1/tokens?limit=1", 400, "UnknownParameter"),
        (&stranger, Method::GET, "/v1/nodes?selector=a", 401, "Unauthenticated"),
        (&operator, Method::DELETE, "/v1/ca/roots/1?force=yes", 400, "InvalidParameter"),
        (&operator, Method::GET, "/v1/nodes?labelSelector=a%20b", 400, "InvalidSelector"),
        (&operator, Method::GET, "/v1/nodes?continue=%21", 400, "InvalidContinue"),
        (&operator, Method::DELETE, "/v1/tokens/none", 401, "TokenUnknown"),
        (&operator, Method::DELETE, "/v1/ca/roots/1", 409, "NotNow"),
    ] {
        let (found, body) = client.open().await.call(method, path, None).await;
        assert_eq!((found, &body["reason"]), (status, &json!(reason)), "{path}: {body}");
        assert_eq!((&body["kind"], body["code"].as_u64()), (&json!("Status"), Some(status.into())), "{path}");
        assert!(
            !body["message"].as_str().unwrap().is_empty() && !body["advice"].as_str().unwrap().is_empty()
        );
    }
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slip_in_what_an_operator_writes_is_named_and_changes_nothing() {
    let bed = Bed::start().await;
    let agent = bed.enrol("n1", "").await;
    let operator = bed.operator();
    let head = |kind: &str| json!({ "apiVersion": API_VERSION, "kind": kind });
    let config = |spec: Value| {
        let mut config = head("NodeConfig");
        (config["generation"], config["spec"]) = (json!(0), spec);
        config
    };
    let slips =
        config(json!({ "heartbeatSecond": 5, "cluster": 7, "checks": { "etcd": { "interval": 60 } } }));
    let (status, body) = operator.send(Method::PUT, "/v1/nodes/n1/config", &slips).await;
    assert_eq!((status, &body["reason"]), (400, &json!("InvalidDocument")), "{body}");
    for word in [
        "spec.heartbeatSecond: is not known (did you mean heartbeatSeconds?)",
        "spec.cluster: is the number 7; a text or null is expected",
        "spec.checks.etcd.interval: is not known",
        "enabled, intervalSeconds",
    ] {
        assert!(body["message"].as_str().unwrap().contains(word), "{word:?} is not in {body}");
    }
    let (_, kept) = operator.get("/v1/nodes/n1/config").await;
    assert_eq!(kept["generation"], 0, "{kept}");
    let good = config(json!({ "heartbeatSeconds": 5 }));
    assert_eq!(operator.send(Method::PUT, "/v1/nodes/n1/config", &good).await.0, 200);

    let mut token = head("TokenRequest");
    (token["tokenKind"], token["expires"]) = (json!("once"), json!("24h"));
    let (status, body) = operator.post("/v1/tokens", &token).await;
    assert_eq!(status, 400, "{body}");
    assert!(body["message"].as_str().unwrap().contains("expires: is not known"), "{body}");

    // A newer agent may say more than this coordinator knows.
    let mut report = serde_json::to_value(agent.report(vec![], None)).unwrap();
    report["newerField"] = json!({ "a": 1 });
    assert_eq!(agent.client.post("/v1/reports", &report).await.0, 200);
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_paged_and_selected() {
    let bed = Bed::start().await;
    for i in 0..5 {
        bed.enrol(&format!("n{i}"), if i % 2 == 0 { "even" } else { "odd" }).await;
    }
    let operator = bed.operator();
    let (mut names, mut next) = (Vec::new(), String::new());
    loop {
        let (status, page) = operator.get(&format!("/v1/nodes?limit=2&continue={next}")).await;
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        names.extend(items.iter().map(|n| n["name"].as_str().unwrap().to_owned()));
        match page["continue"].as_str() {
            Some(token) => next = token.to_owned(),
            None => break,
        }
    }
    assert_eq!(names, ["n0", "n1", "n2", "n3", "n4"]);
    let (_, odd) = operator.get("/v1/nodes?labelSelector=cluster%20in%20(odd)&limit=1").await;
    assert_eq!(odd["items"][0]["name"], "n1");
    let (_, rest) = operator
        .get(&format!("/v1/nodes?labelSelector=cluster%3Dodd&continue={}", odd["continue"].as_str().unwrap()))
        .await;
    assert_eq!(rest["items"][0]["name"], "n3", "{rest}");
    assert!(rest.get("continue").is_none());
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_approval() {
    let bed = Bed::start().await;
    let operator = bed.operator();
    let request = TokenRequest {
        meta: TypeMeta::new("TokenRequest"),
        token_kind: TokenKind::Pool,
        ttl_seconds: None,
        uses: None,
        name_pattern: String::new(),
        rate_per_hour: 0,
        admit_seen_vm: false,
        cluster: "pool".to_owned(),
    };
    let (status, token) = operator.post("/v1/tokens", &request).await;
    assert_eq!(status, 201, "{token}");
    let text = token["token"].as_str().unwrap();
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let request = enroll_request("waits", "", text, &csr(&key));
    let (status, waiting) = bed.stranger().post("/v1/enroll", &request).await;
    assert_eq!((status, &waiting["certificate"]), (202, &json!("")), "{waiting}");
    let (_, node) = operator.get("/v1/nodes/waits").await;
    assert_eq!((&node["enrolment"], &node["cluster"]), (&json!("pending"), &json!("pool")));
    let (status, node) = operator.post("/v1/nodes/waits/approve", &()).await;
    assert_eq!((status, &node["enrolment"]), (200, &json!("approved")), "{node}");
    let (status, enrolled) = bed.stranger().post("/v1/enroll", &request).await;
    assert_eq!(status, 200, "{enrolled}");

    let id = token["id"].as_str().unwrap();
    let (status, revoked) =
        operator.open().await.call(Method::DELETE, &format!("/v1/tokens/{id}"), None).await;
    assert_eq!((status, &revoked["revoked"]), (200, &json!(true)));
    let (_, tokens) = operator.get("/v1/tokens").await;
    assert!(!tokens.to_string().contains(text), "no secret is ever listed");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_vouches_where_no_harvester_is_read() {
    let bed = Bed::start().await;
    let operator = bed.operator();
    let mut request = serde_json::to_value(TypeMeta::new("TokenRequest")).unwrap();
    request["tokenKind"] = "once".into();
    request["admitSeenVm"] = true.into();
    let (status, refused) = operator.post("/v1/tokens", &request).await;
    assert_eq!((status, &refused["reason"]), (400, &json!("BadTokenRequest")), "{refused}");
    request["tokenKind"] = "pool".into();
    let (status, refused) = operator.post("/v1/tokens", &request).await;
    assert!(status == 400 && refused["message"].as_str().unwrap().contains("namePattern"), "{refused}");
    request["namePattern"] = "pool1-*".into();
    let (status, token) = operator.post("/v1/tokens", &request).await;
    assert_eq!((status, &token["admitSeenVm"]), (201, &json!(true)), "{token}");
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let request = enroll_request("pool1-a", "", token["token"].as_str().unwrap(), &csr(&key));
    let (status, waiting) = bed.stranger().post("/v1/enroll", &request).await;
    assert_eq!((status, &waiting["certificate"]), (202, &json!("")), "{waiting}");
    assert!(waiting["pending"].as_str().unwrap().contains("--harvester-kubeconfig"), "{waiting}");
    let (status, none) = operator.get("/v1/pools").await;
    assert_eq!((status, &none["reason"]), (404, &json!("HarvesterNotConfigured")), "{none}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roots_rotate_with_an_overlap() {
    let bed = Bed::start().await;
    let agent = bed.enrol("n1", "").await;
    let operator = bed.operator();
    let (status, root) = operator.post("/v1/ca/roots", &()).await;
    assert_eq!((status, &root["generation"]), (201, &json!(2)), "{root}");
    // A tool that reads the operator token's file pins the new root from now on.
    let file = std::fs::read_to_string(bed.folder.path().join("operator.token")).unwrap();
    assert!(file.contains(root["checksum"].as_str().unwrap()), "the token's file still has the old pin");

    // Who knows the old root only still gets in; to retire it now would leave it out.
    assert_eq!(agent.client.post("/v1/reports", &agent.report(vec![], None)).await.0, 200);
    let retire = async |query: &str| {
        operator.open().await.call(Method::DELETE, &format!("/v1/ca/roots/1{query}"), None).await
    };
    let (status, body) = retire("").await;
    assert_eq!((status, &body["reason"]), (409, &json!("RootInUse")), "{body}");
    assert!(body["message"].as_str().unwrap().contains("n1"), "{body}");

    let request = RenewRequest { meta: TypeMeta::new("RenewRequest"), csr: csr(&agent.key) };
    assert_eq!(agent.client.post("/v1/renew", &request).await.0, 200);
    let (status, roots) = retire("").await;
    assert_eq!((status, roots["items"].as_array().unwrap().len()), (200, 1), "{roots}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_metrics_and_the_document() {
    let bed = Bed::start().await;
    let agent = bed.enrol("n1", "").await;
    let report = agent.report(vec![transition(1, ready())], Some(agent.state(vec![ready()])));
    assert_eq!(agent.client.post("/v1/reports", &report).await.0, 200);

    let stranger = bed.stranger();
    assert_eq!(stranger.get_text("/healthz").await, (200, "ok\n".to_owned()));
    let (status, ready) = stranger.get_text("/readyz?verbose").await;
    assert_eq!(status, 200, "{ready}");
    for latch in ["store", "listeners", "open-files", "fleet"] {
        assert!(ready.contains(&format!("[+]{latch} ok")), "{ready}");
    }
    let (_, metrics) = stranger.get_text("/metrics").await;
    for line in [
        "outrider_coordinator_nodes{ready=\"True\",enrolment=\"approved\",simulated=\"false\"} 1",
        "outrider_coordinator_conditions{scope=\"node\",type=\"Ready\",status=\"True\",severity=\"ok\",reason=\"AgentRunning\"} 1",
        "outrider_coordinator_requests_total{route=\"Report\",class=\"2xx\"} 1",
        "outrider_coordinator_transitions_stored_total 1",
        "outrider_coordinator_latch_held{latch=\"store\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));

    let (status, pem) = stranger.get_text("/v1/ca").await;
    assert!(status == 200 && pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
    let (_, view) = bed.operator().get("/v1/coordinator").await;
    assert_eq!(view["caChecksum"], bed.coordinator.ca_checksum());

    // Every path of the document is served, with its methods: none is "no such path".
    let (_, document) = bed.operator().get("/v1/openapi.json").await;
    let operator = bed.operator();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys().filter(|_| path != "/v1/watch") {
            let path = path.replace("{name}", "none").replace("{id}", "none").replace("{generation}", "7");
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let (_, body) = operator.open().await.call(method.clone(), &path, None).await;
            let reason = body["reason"].as_str().unwrap_or_default();
            assert!(!["NoSuchPath", "NoSuchMethod"].contains(&reason), "{method} {path}: {body}");
        }
    }
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_is_stopped_and_shown() {
    let bed = Bed::start().await;
    let agent = bed.enrol("n1", "").await;
    let state = agent.state(vec![ready()]);
    let beat = async |boot: &str| {
        let mut heartbeat = agent.heartbeat(&state.digest, 0);
        heartbeat.boot_id = boot.to_owned();
        agent.client.post("/v1/heartbeat", &heartbeat).await
    };
    assert_eq!(agent.client.post("/v1/reports", &agent.report(vec![], Some(state.clone()))).await.0, 200);
    let mut last = (0, Value::Null);
    for _ in 0..4 {
        beat("boot-of-n1").await;
        last = beat("boot-of-the-twin").await;
    }
    assert_eq!((last.0, &last.1["reason"]), (409, &json!("IdentityCloned")), "{last:?}");
    assert_eq!(beat("boot-of-n1").await.0, 200);
    let (_, node) = bed.operator().get("/v1/nodes/n1").await;
    let identity =
        node["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "IdentityUnique").cloned();
    assert_eq!(identity.map(|c| c["reason"].clone()), Some(json!("IdentityCloned")), "{node}");
    bed.coordinator.shutdown().await;
}
