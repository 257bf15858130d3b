//! The way of a node: enrolled, reporting, silent, heard again; what a restart keeps; what certificates open.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail loudly

mod support;

use std::time::Duration;

use http::Method;
use outrider_protocol::*;
use serde_json::json;
use support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_enrols_reports_falls_silent_and_is_heard_again() {
    let bed = Bed::start().await;
    let agent = bed.enrol("n1", "rancher").await;
    let operator = bed.operator();

    let (_, node) = operator.get("/v1/nodes/n1").await;
    assert_eq!(
        (&node["ready"], &node["conditions"][0]["reason"]),
        (&json!("Unknown"), &json!("NodeNeverReported"))
    );

    let state = agent.state(vec![ready()]);
    let mut connection = agent.client.open().await;
    let report = agent.report(vec![transition(1, ready())], Some(state.clone()));
    let (status, ack) = connection.post("/v1/reports", &report).await;
    assert_eq!((status, &ack["acknowledged"]), (200, &json!(1)), "{ack}");
    let (status, ack) = connection.post("/v1/heartbeat", &agent.heartbeat(&state.digest, 1)).await;
    assert_eq!((status, &ack["resync"], &ack["acknowledged"]), (200, &json!(false), &json!(1)), "{ack}");

    let (_, list) = operator.get("/v1/nodes?labelSelector=cluster%3Drancher%2Cready%3DTrue").await;
    assert_eq!(list["items"][0]["name"], "n1", "{list}");
    assert_eq!(list["items"][0]["zone"], "zone-1");
    let (_, clusters) = operator.get("/v1/clusters").await;
    assert_eq!(clusters["items"][0]["nodes"], json!(["n1"]));

    // It announced a heartbeat every second and says nothing more.
    let node =
        until("silent", async || operator.get("/v1/nodes/n1").await.1, |n| n["ready"] == "Unknown").await;
    let silent = &node["conditions"][0];
    assert_eq!((&silent["type"], &silent["reason"]), (&json!("Ready"), &json!("NodeSilent")), "{silent}");
    assert!(silent["message"].as_str().unwrap().contains("every 1 s"), "{silent}");

    let held = agent.heartbeat(&state.digest, 600);
    let held = tokio::spawn(async move { connection.post("/v1/heartbeat", &held).await });
    let node = until("heard", async || operator.get("/v1/nodes/n1").await.1, |n| n["ready"] == "True").await;
    assert_eq!(node["conditions"][0]["reason"], "AgentRunning", "{node}");

    let reasons = until(
        "three events",
        async || {
            let (_, events) = operator.get("/v1/nodes/n1/events").await;
            let of =
                |e: &serde_json::Value| e["transition"]["condition"]["reason"].as_str().unwrap().to_owned();
            events["items"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
        },
        |reasons| reasons.len() == 3,
    )
    .await;
    assert_eq!(reasons, ["AgentRunning", "NodeSilent", "AgentRunning"]);
    bed.coordinator.shutdown().await;
    assert_eq!(held.await.unwrap().0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_shows_the_last_known_state_with_its_age() {
    let bed = Bed::start().await;
    let agent = bed.enrol("n1", "rancher").await;
    let mut lost = ready();
    lost.message = "kept over a restart".to_owned();
    let report = agent.report(vec![transition(1, lost.clone())], Some(agent.state(vec![lost])));
    assert_eq!(agent.client.post("/v1/reports", &report).await.0, 200);
    let (_, before) = bed.operator().get("/v1/nodes/n1").await;

    let bed = bed.restart(|_| {}).await;
    let agent = agent.moved(&bed);
    let (_, after) = bed.operator().get("/v1/nodes/n1").await;
    assert_eq!(after["conditions"], before["conditions"]);
    assert_eq!(after["ready"], "True");
    assert!(after["lastSeen"].is_string(), "{after}");
    let (_, events) = bed.operator().get("/v1/events").await;
    assert_eq!(events["items"].as_array().unwrap().len(), 1, "{events}");

    // What was acknowledged before stays so: repeated, it is acknowledged again and stored once.
    let (status, ack) = agent.client.post("/v1/reports", &report).await;
    assert_eq!((status, &ack["acknowledged"]), (200, &json!(1)));
    let (_, events) = bed.operator().get("/v1/events").await;
    assert_eq!(events["items"].as_array().unwrap().len(), 1, "{events}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_are_refused_with_the_reason() {
    let bed = Bed::start().await;
    let (one, two) = (bed.enrol("one", "").await, bed.enrol("two", "").await);
    let post = async |report: &NodeReport| {
        let (status, body) = one.client.post("/v1/reports", report).await;
        (status, body["reason"].as_str().unwrap_or_default().to_owned(), body)
    };

    let (status, reason, body) = post(&two.report(vec![], None)).await;
    assert_eq!((status, &*reason), (403, "NotYourNode"));
    assert!(
        body["message"].as_str().unwrap().contains("one")
            && body["message"].as_str().unwrap().contains("two")
    );

    assert_eq!(post(&one.report(vec![transition(5, ready())], None)).await.0, 200);
    let mut other = ready();
    other.message = "another content under one sequence".to_owned();
    let (status, reason, _) = post(&one.report(vec![transition(5, other)], None)).await;
    assert_eq!((status, &*reason), (409, "EpochMismatch"));

    let unordered = vec![transition(9, ready()), transition(8, ready())];
    let (status, reason, _) = post(&one.report(unordered, None)).await;
    assert_eq!((status, &*reason), (400, "OutOfOrder"));

    let twice = one.state(vec![ready(), ready()]);
    let (status, reason, body) = post(&one.report(vec![], Some(twice))).await;
    assert_eq!((status, &*reason), (400, "InvalidReport"), "{body}");
    assert_eq!(body["permanent"], true, "an agent must not send it for ever: {body}");

    let mut wrong = one.report(vec![], None);
    wrong.meta.kind = "Heartbeat".to_owned();
    let (status, reason, _) = post(&wrong).await;
    assert_eq!((status, &*reason), (400, "WrongKind"));
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_node_is_cut_off_at_once() {
    let bed = Bed::start().await;
    let (agent, state, mut connection) = bed.reporting("n1").await;

    let operator = bed.operator();
    let held = async { connection.post("/v1/heartbeat", &agent.heartbeat(&state.digest, 3000)).await };
    let revoke = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        operator.post("/v1/nodes/n1/revoke", &()).await
    };
    let ((status, body), (revoked, node)) = tokio::join!(held, revoke);
    assert_eq!((status, &body["reason"]), (403, &json!("NodeRevoked")), "{body}");
    assert_eq!((revoked, &node["enrolment"]), (200, &json!("revoked")));
    tokio::time::timeout(PATIENCE, &mut connection.task).await.expect("the connection is closed").unwrap();

    let (status, body) = agent.client.post("/v1/reports", &agent.report(vec![], None)).await;
    assert_eq!((status, &body["reason"]), (403, &json!("NodeRevoked")), "{body}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_renews_and_does_nothing_else() {
    let bed = Bed::with(|o| o.certificate_lifetime = Duration::from_secs(2)).await;
    let mut agent = bed.enrol("n1", "").await;
    let report = agent.report(vec![], None);
    let refused = until(
        "expired",
        async || agent.client.post("/v1/reports", &report).await,
        |(status, _)| *status != 200,
    )
    .await;
    assert_eq!((refused.0, &refused.1["reason"]), (401, &json!("CertificateExpired")), "{refused:?}");

    let request = RenewRequest { meta: TypeMeta::new("RenewRequest"), csr: csr(&agent.key) };
    let (status, body) = agent.client.post("/v1/renew", &request).await;
    assert_eq!(status, 200, "{body}");
    let response: EnrollResponse = serde_json::from_value(body).unwrap();
    assert_eq!(response.node_uid, agent.uid);
    agent.client = Agent::client(&bed, &agent.key, &response);
    assert_eq!(agent.client.post("/v1/reports", &agent.report(vec![], None)).await.0, 200);
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_desired_generation_wakes_a_held_heartbeat() {
    let bed = Bed::start().await;
    let (agent, state, mut connection) = bed.reporting("n1").await;

    let operator = bed.operator();
    let (_, current) = operator.get("/v1/nodes/n1/config").await;
    assert_eq!(current["generation"], 0);
    let held = async { connection.post("/v1/heartbeat", &agent.heartbeat(&state.digest, 3000)).await };
    let change = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let wanted = json!({ "apiVersion": API_VERSION, "kind": "NodeConfig", "generation": 0,
            "spec": { "heartbeatSeconds": 5 } });
        operator.send(Method::PUT, "/v1/nodes/n1/config", &wanted).await
    };
    let ((status, ack), (changed, config)) = tokio::join!(held, change);
    assert_eq!((changed, &config["generation"]), (200, &json!(1)), "{config}");
    assert_eq!((status, &ack["desired"]["generation"]), (200, &json!(1)), "{ack}");
    assert_eq!(ack["desired"]["spec"]["heartbeatSeconds"], 5);

    // Based on a generation that is over: told, not lost.
    let stale = json!({ "apiVersion": API_VERSION, "kind": "NodeConfig", "generation": 0, "spec": {} });
    let (status, body) = operator.send(Method::PUT, "/v1/nodes/n1/config", &stale).await;
    assert_eq!((status, &body["reason"]), (409, &json!("ConfigChanged")));
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_answers_held_heartbeats() {
    let bed = Bed::start().await;
    let (agent, state, mut connection) = bed.reporting("n1").await;
    let held = async { connection.post("/v1/heartbeat", &agent.heartbeat(&state.digest, 3000)).await };
    let stop = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        bed.coordinator.shutdown().await;
    };
    let ((status, _), ()) = tokio::join!(held, stop);
    assert_eq!(status, 200);
}

/// The view of `node` on an etcd of three voters, of which `down` do not answer.
fn etcd(node: &str, down: &[&str]) -> Fact<EtcdFacts> {
    let at = now();
    let names = ["s1", "s2", "s3"];
    let member = |name: &&str| Member {
        id: format!("id-{name}"),
        name: (*name).to_owned(),
        peer_urls: vec![format!("https://{name}.example:2380")],
        client_urls: vec![format!("https://{name}.example:2379")],
        is_learner: false,
    };
    let gone = || Fact::unknown(UnknownCause::ConnectionRefused, "refused", "in a test", at);
    let lost = down.len() > 1;
    let endpoint = |name: &&str| EndpointFacts {
        endpoint: format!("https://{name}.example:2379"),
        member_id: format!("id-{name}"),
        local: *name == node,
        status: if down.contains(name) {
            gone()
        } else {
            let status = EndpointStatus {
                member_id: format!("id-{name}"),
                cluster_id: "c1".to_owned(),
                version: "3.5.16".to_owned(),
                db_size_bytes: 1 << 20,
                db_in_use_bytes: 1 << 19,
                quota_bytes: 2 << 30,
                leader: if lost { String::new() } else { "id-s1".to_owned() },
                raft_term: 2,
                raft_index: 100,
                applied_index: 100,
                is_learner: false,
                errors: vec![],
            };
            Fact::known(status, "in a test", at)
        },
        linearizable_read: match (down.contains(name), lost) {
            (false, false) => Fact::known(1.0, "in a test", at),
            _ => Fact::unknown(UnknownCause::TimedOut, "no leader", "in a test", at),
        },
        down_since: down.contains(name).then_some(at),
    };
    let facts = EtcdFacts {
        distribution: Distribution::Rke2,
        found_by: "in a test".to_owned(),
        election_timeout_ms: 1000,
        local_endpoint: format!("https://{node}.example:2379"),
        cluster_id: None,
        members: Fact::known(
            MemberList {
                cluster_id: "c1".to_owned(),
                linearizable: !lost,
                members: names.iter().map(member).collect(),
            },
            "in a test",
            at,
        ),
        endpoints: names.iter().map(endpoint).collect(),
        alarms: Fact::known(vec![], "in a test", at),
        metrics: Fact::unknown(UnknownCause::NotYetRead, "not read", "in a test", at),
        kubernetes_nodes: Fact::unknown(UnknownCause::NotYetRead, "not read", "in a test", at),
        learners_since: Default::default(),
        no_read_since: None,
        learner_progress: Default::default(),
        expected: None,
        data_folder: None,
        snapshots: None,
        paths: Vec::new(),
    };
    Fact::known(facts, "in a test", at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quorum_is_judged_from_all_members_reports() {
    let bed = Bed::start().await;
    let servers = [
        bed.enrol("s1", "rancher").await,
        bed.enrol("s2", "rancher").await,
        bed.enrol("s3", "rancher").await,
    ];
    let operator = bed.operator();
    let report = async |down: &[&str]| {
        for server in &servers {
            let mut state = server.state(vec![support::ready()]);
            state.etcd = Some(etcd(&server.name, down));
            // Readings move without a change of digest; the coordinator takes each state it is given.
            assert_eq!(server.client.post("/v1/reports", &server.report(vec![], Some(state))).await.0, 200);
        }
    };
    let quorum = async || {
        let (_, cluster) = operator.get("/v1/clusters/rancher").await;
        let conditions = cluster["conditions"].as_array().cloned().unwrap_or_default();
        let quorum = conditions.into_iter().find(|c| c["type"] == "EtcdQuorum").unwrap_or_default();
        (quorum["status"].clone(), quorum["reason"].clone(), quorum["message"].clone())
    };
    report(&[]).await;
    until("met", quorum, |q| q.1 == "EtcdQuorumMet").await;
    report(&["s2", "s3"]).await;
    let lost = until("lost", quorum, |q| q.0 == "False" && q.1 == "EtcdQuorumLost").await;
    assert!(lost.2.to_string().contains("s2") && lost.2.to_string().contains("s3"), "{lost:?}");

    // The verdict outlives a restart, and its history has each step once.
    let bed = bed.restart(|_| {}).await;
    let (_, cluster) = bed.operator().get("/v1/clusters/rancher").await;
    let kept = cluster["conditions"].as_array().unwrap().iter().any(|c| c["reason"] == "EtcdQuorumLost");
    assert!(kept, "{cluster}");
    let (_, events) = bed.operator().get("/v1/nodes/rancher/events").await;
    let steps: Vec<_> = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["transition"]["condition"])
        .filter(|c| c["type"] == "EtcdQuorum")
        .map(|c| c["reason"].as_str().unwrap())
        .collect();
    assert!(steps.starts_with(&["EtcdQuorumMet"]) && steps.ends_with(&["EtcdQuorumLost"]), "{steps:?}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_moves_a_node_to_another_cluster_and_the_node_does_not() {
    let bed = Bed::start().await;
    let mut agent = bed.enrol("n1", "one").await;
    let operator = bed.operator();
    let say = async |agent: &Agent| {
        let report = agent.report(vec![], Some(agent.state(vec![ready()])));
        assert_eq!(agent.client.post("/v1/reports", &report).await.0, 200);
        operator.get("/v1/nodes/n1").await.1
    };
    let clusters = async || {
        let (_, list) = operator.get("/v1/clusters").await;
        let of = |c: &serde_json::Value| format!("{}={}", c["name"].as_str().unwrap(), c["nodes"]);
        list["items"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let node = say(&agent).await;
    assert_eq!((&node["cluster"], node.get("reportedCluster")), (&json!("one"), None), "{node}");

    // A node that names another cluster is heard, shown, and counted where it was: it speaks only for itself.
    agent.cluster = "two".to_owned();
    let node = say(&agent).await;
    assert_eq!((&node["cluster"], &node["reportedCluster"]), (&json!("one"), &json!("two")), "{node}");
    assert_eq!(clusters().await, ["one=[\"n1\"]"]);
    let free = bed.enrol("n2", "").await;
    let mut report = free.report(vec![], None);
    report.node.cluster = "one".to_owned();
    assert_eq!(free.client.post("/v1/reports", &report).await.0, 200);
    assert_eq!(clusters().await, ["one=[\"n1\"]"], "a node without a cluster joins none by its own word");

    // What an operator desires counts at once, and over a restart.
    let desire = async |generation: u64, cluster: serde_json::Value| {
        let spec = json!({ "cluster": cluster });
        let meta = TypeMeta::new("NodeConfig");
        let config = json!({ "apiVersion": meta.api_version, "kind": meta.kind, "generation": generation, "spec": spec });
        let (status, body) = operator.send(Method::PUT, "/v1/nodes/n1/config", &config).await;
        assert_eq!(status, 200, "{body}");
    };
    desire(0, json!("two")).await;
    assert_eq!(clusters().await, ["two=[\"n1\"]"]);
    let node = say(&agent).await;
    assert_eq!((&node["cluster"], node.get("reportedCluster")), (&json!("two"), None), "{node}");
    desire(1, json!("")).await;
    assert_eq!(clusters().await, Vec::<String>::new(), "managed and empty: in none");
    desire(2, json!(null)).await;
    assert_eq!(clusters().await, ["one=[\"n1\"]"], "unmanaged: as it was admitted");
    desire(3, json!("two")).await;
    drop(operator);
    let bed = bed.restart(|_| {}).await;
    let (_, node) = bed.operator().get("/v1/nodes/n1").await;
    assert_eq!(node["cluster"], "two", "{node}");
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whom_a_database_begun_anew_does_not_know_is_told_why() {
    let bed = Bed::start().await;
    let agent = bed.enrol("n1", "").await;
    let Bed { coordinator, folder } = bed;
    coordinator.shutdown().await;
    // Whoever still has the old database open when it goes would write into the files of the new one.
    let database = folder.path().join("coordinator.db");
    let is_open = || {
        let files = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|file| file == database)
    };
    for _ in 0..400 {
        if !is_open() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    assert!(!is_open(), "the database is closed");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(folder.path().join(format!("coordinator.db{suffix}")));
    }
    let options = || outrider_coordinator::Options::on_loopback(folder.path());
    let refused = outrider_coordinator::start(options()).await.err();
    assert!(
        matches!(refused, Some(outrider_coordinator::StartError::DatabaseLost { is_empty: false, .. })),
        "{refused:?}"
    );
    let anew = outrider_coordinator::Options { begin_anew: true, ..options() };
    let bed = Bed { coordinator: outrider_coordinator::start(anew).await.unwrap(), folder };
    // Told again after a restart, for as long as that database lives.
    let bed = bed.restart(|_| {}).await;
    let agent = agent.moved(&bed);
    let (status, body) = agent.client.post("/v1/reports", &agent.report(vec![], None)).await;
    assert_eq!((status, &body["reason"]), (401, &json!("NodeUnknown")), "{body}");
    assert!(body["message"].as_str().unwrap().contains("lost its database"), "{body}");
    assert!(body["advice"].as_str().unwrap().contains("backup"), "{body}");
    // With a new token the machine is a node again, and the operator's token is the old one.
    assert_eq!(bed.operator().get("/v1/nodes").await.0, 200);
    bed.enrol("n1", "").await;
}

/// Three servers, of which the last two hold a heartbeat for ten minutes, and the first has just lost them.
async fn lost_by_one(
    bed: &Bed,
) -> (Vec<support::Agent>, Vec<tokio::task::JoinHandle<(u16, serde_json::Value)>>) {
    let mut servers = Vec::new();
    for name in ["s1", "s2", "s3"] {
        servers.push(bed.enrol(name, "rancher").await);
    }
    let mut held = Vec::new();
    for server in &servers {
        let mut state = server.state(vec![support::ready()]);
        state.etcd = Some(etcd(&server.name, &[]));
        let digest = state.digest.clone();
        let mut connection = server.client.open().await;
        assert_eq!(connection.post("/v1/reports", &server.report(vec![], Some(state))).await.0, 200);
        if server.name != "s1" {
            let beat = server.heartbeat(&digest, 600);
            held.push(tokio::spawn(async move { connection.post("/v1/heartbeat", &beat).await }));
        }
    }
    until("met", async || quorum_of(bed).await, |q| q.1 == "EtcdQuorumMet").await;
    until("held", async || bed.operator().get("/v1/nodes/s3").await.1, |n| n["ready"] == "True").await;
    let mut state = servers[0].state(vec![support::ready()]);
    state.etcd = Some(etcd("s1", &["s2", "s3"]));
    assert_eq!(servers[0].client.post("/v1/reports", &servers[0].report(vec![], Some(state))).await.0, 200);
    (servers, held)
}

async fn quorum_of(bed: &Bed) -> (serde_json::Value, serde_json::Value) {
    let (_, cluster) = bed.operator().get("/v1/clusters/rancher").await;
    let conditions = cluster["conditions"].as_array().cloned().unwrap_or_default();
    let quorum = conditions.into_iter().find(|c| c["type"] == "EtcdQuorum").unwrap_or_default();
    (quorum["status"].clone(), quorum["reason"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_that_are_off_are_told_long_before_their_silence() {
    let bed = Bed::start().await;
    let (_servers, held) = lost_by_one(&bed).await;
    // Their word is asked for at once; machines that are off never give it.
    for answer in held {
        let (status, ack) = answer.await.unwrap();
        assert_eq!((status, &ack["resync"]), (200, &json!(true)), "{ack}");
    }
    until("lost", async || quorum_of(&bed).await, |q| q.0 == "False" && q.1 == "EtcdQuorumLost").await;
    // Their silence would have been told after half an hour.
    assert_eq!(bed.operator().get("/v1/nodes/s3").await.1["ready"], "True");
    let (_, cluster) = bed.operator().get("/v1/clusters/rancher").await;
    let etcd = &cluster["etcd"];
    assert_eq!(
        (&etcd["voters"], &etcd["quorum"], &etcd["healthy"]),
        (&json!(3), &json!(2), &json!(0)),
        "{etcd}"
    );
    assert_eq!(etcd["matrix"][0]["node"], "s1");
    let cells = etcd["matrix"][0]["cells"].as_array().unwrap();
    let reached: Vec<_> = cells.iter().map(|c| c["reached"].as_str().unwrap()).collect();
    assert_eq!(reached, ["True", "False", "False"]);
    bed.coordinator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_cut_off_alone_takes_no_cluster_with_it() {
    let bed = Bed::start().await;
    let (servers, held) = lost_by_one(&bed).await;
    for (server, answer) in servers[1..].iter().zip(held) {
        assert_eq!(answer.await.unwrap().1["resync"], json!(true));
        let mut state = server.state(vec![support::ready()]);
        state.etcd = Some(etcd(&server.name, &["s1"]));
        assert_eq!(server.client.post("/v1/reports", &server.report(vec![], Some(state))).await.0, 200);
    }
    until("reduced", async || quorum_of(&bed).await, |q| q.1 == "EtcdNoTolerance" || q.1 == "EtcdQuorumMet")
        .await;
    let (_, events) = bed.operator().get("/v1/nodes/rancher/events").await;
    let told = |e: &serde_json::Value| e["transition"]["condition"]["reason"] == "EtcdQuorumLost";
    assert!(!events["items"].as_array().unwrap().iter().any(told), "{events}");
    bed.coordinator.shutdown().await;
}
