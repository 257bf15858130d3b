//! What talks to a coordinator: a real one, on a free port, with nodes that report by the agent's own delivery.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use outrider_agent::net::{ProxySettings, Url};
use outrider_agent::report::disk::MemoryDisk;
use outrider_agent::report::{Network, Reporter, ReporterOptions, SpoolLimits, Target, Token, TokenSource};
use outrider_coordinator::{Coordinator, Options};
use outrider_protocol::{
    Condition, ConditionType, Identity, NodeRef, NodeState, Profile, ReasonCode, Severity, Status, Timestamp,
    TokenKind, TokenRequest, Transition, TypeMeta, hex,
};
use tokio::runtime::Runtime;

use crate::support::{Ended, Home};

fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}

fn healthy(status: Status) -> Condition {
    let (severity, reason) = match status {
        Status::True => (Severity::Ok, ReasonCode::HostHasRoom),
        _ => (Severity::Error, ReasonCode::DiskSpaceLow),
    };
    Condition {
        condition_type: ConditionType::HostHealthy,
        status,
        severity,
        reason,
        message: "3 GB of 100 GB (3 %) available on /var.".to_owned(),
        advice: "Free space.".to_owned(),
        subject: "/var".to_owned(),
        last_transition_time: now(),
        observed_at: now(),
    }
}

/// A coordinator and what a test needs of it. The program itself runs outside of its runtime.
struct Fleet {
    runtime: Runtime,
    coordinator: Option<Coordinator>,
    _state: tempfile::TempDir,
    url: String,
    token: String,
    checksum: String,
}

impl Fleet {
    fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let state = tempfile::tempdir().unwrap();
        let coordinator =
            runtime.block_on(outrider_coordinator::start(Options::on_loopback(state.path()))).unwrap();
        Self {
            url: coordinator.url(),
            token: coordinator.operator_token().to_owned(),
            checksum: coordinator.ca_checksum(),
            coordinator: Some(coordinator),
            _state: state,
            runtime,
        }
    }

    /// A home that is logged in.
    fn home(&self) -> Home {
        let home = Home::new();
        home.run_with_input(["login", &self.url, "--name", "test"], self.token.as_bytes()).with_code(0);
        home
    }

    fn enrolment_token(&self, kind: TokenKind) -> Token {
        let request = TokenRequest {
            meta: TypeMeta::new("TokenRequest"),
            token_kind: kind,
            ttl_seconds: None,
            uses: None,
            name_pattern: String::new(),
            rate_per_hour: 0,
            admit_seen_vm: false,
            cluster: String::new(),
        };
        let coordinator = self.coordinator.as_ref().unwrap();
        Token::parse(&self.runtime.block_on(coordinator.create_token(&request)).unwrap().token).unwrap()
    }

    /// A node that reports; returns when the coordinator has its conditions.
    fn node(&self, name: &str, cluster: &str) -> Node {
        let node = self.reporting(name, cluster, TokenKind::Once);
        node.say(Status::True, None);
        self.until(|| self.see(name).is_some_and(|seen| seen.conditions.len() > 1));
        node
    }

    fn reporting(&self, name: &str, cluster: &str, kind: TokenKind) -> Node {
        let target = Target {
            urls: vec![Url::parse(&self.url).unwrap()],
            ca_checksum: None,
            token: TokenSource::Given(self.enrolment_token(kind)),
            heartbeat: Duration::from_secs(30),
            refresh: Duration::from_secs(300),
            node: NodeRef {
                name: name.to_owned(),
                uid: String::new(),
                cluster: cluster.to_owned(),
                profile: Profile::Generic,
                simulated: false,
            },
        };
        let _inside = self.runtime.enter();
        let reporter = Reporter::start(ReporterOptions {
            disk: Ok(Arc::new(MemoryDisk::default())),
            limits: SpoolLimits::default(),
            clock: Arc::new(now),
            transport: Arc::new(Network { proxy: ProxySettings::none() }),
            target,
        });
        Node { reporter, name: name.to_owned() }
    }

    fn see(&self, name: &str) -> Option<outrider_protocol::NodeView> {
        self.coordinator.as_ref().unwrap().nodes().into_iter().find(|node| node.name == name)
    }

    /// Waits for what will be; a machine that is slow makes a test slow, not red.
    fn until(&self, mut holds: impl FnMut() -> bool) {
        let started = std::time::Instant::now();
        while !holds() {
            assert!(started.elapsed() < Duration::from_secs(60), "waited for a minute in vain");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(coordinator) = self.coordinator.take() {
            self.runtime.block_on(coordinator.shutdown());
        }
    }
}

struct Node {
    reporter: Reporter,
    name: String,
}

impl Node {
    fn say(&self, status: Status, before: Option<Status>) {
        let condition = healthy(status);
        // Two machines must not share a mark of identity.
        let identity = Identity {
            machine_id_hash: hex(self.name.as_bytes()),
            boot_id: self.name.clone(),
            addresses: vec!["192.0.2.1/24".to_owned()],
            ..Identity::default()
        };
        let ready = Condition {
            condition_type: ConditionType::Ready,
            subject: String::new(),
            reason: ReasonCode::AgentRunning,
            ..healthy(Status::True)
        };
        let conditions = vec![ready, condition.clone()];
        let state = NodeState {
            digest: NodeState::compute_digest(&identity, &conditions),
            identity,
            conditions,
            etcd: None,
            paths: Vec::new(),
            network: None,
            zone: "zone-a".to_owned(),
            region: "region-1".to_owned(),
        };
        let transition = Transition {
            at: now(),
            condition,
            previous_status: before,
            previous_reason: None,
            removed: false,
            merged: 0,
        };
        self.reporter.put(vec![transition], &[], Some(state));
    }
}

#[test]
fn login_verifies_pins_and_keeps_the_token_to_itself() {
    let fleet = Fleet::start();
    let home = Home::new();
    let secret = fleet.token.rsplit(':').next().unwrap();

    let ended = home.run_with_input(["login", &fleet.url], fleet.token.as_bytes()).with_code(0);
    assert!(!ended.out.contains(secret) && !ended.err.contains(secret), "{ended:#?}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&home.contexts().metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let list = home.run(["context", "list", "-o", "json"]).with_code(0);
    assert!(!list.out.contains(secret), "{list:#?}");
    assert_eq!(list.json()["items"][0]["caChecksum"], fleet.checksum.as_str());
    assert_eq!(list.json()["items"][0]["current"], true);

    // Another authority than the pinned one: both are shown, and nothing is remembered.
    let other = "ab".repeat(32);
    let forged = fleet.token.replace(&fleet.checksum, &other);
    home.run(["login", &fleet.url, "--name", "forged", "--token", &forged]).with_code(1).says(&[
        "does not match",
        &other,
        &fleet.checksum,
    ]);
    home.run(["login", &fleet.url, "--token", &fleet.token, "--ca-checksum", &other]).with_code(64).says(&[
        "--ca-checksum",
        &other,
        &fleet.checksum,
    ]);
    assert!(!std::fs::read_to_string(home.contexts()).unwrap().contains("forged"));

    // What is no token is said before anything is sent: nobody listens at this address.
    let bare = format!("OR1{}", fleet.token.split_once("::").unwrap().1);
    for (token, word) in [("garbage", "OR1"), (bare.as_str(), "::"), (&fleet.token[..80], "was it cut")] {
        let ended = home.run(["login", "https://127.0.0.1:1", "--token", token]).with_code(64);
        let ended = ended.says(&["--token holds no operator token", word, "operator.token"]);
        assert!(!ended.err.contains("TLS") && !ended.err.contains("refused"), "{ended:#?}");
    }
    home.run_with_input(["login", "https://127.0.0.1:1"], b"hunter2\n")
        .with_code(64)
        .says(&["standard input holds"]);

    let wrong = fleet.token.replace(secret, "0000000000000000000000000000000000000000000");
    home.run(["login", &fleet.url, "--token", &wrong]).with_code(1).says(&["Unauthenticated"]);
    home.run_with_input(["login", &fleet.url], b"\n").with_code(64).says(&["no token was given"]);
}

#[test]
fn which_coordinator_is_decided_in_order_and_said() {
    let fleet = Fleet::start();
    let _node = fleet.node("db1", "");
    let home = Home::new();
    home.run(["get", "nodes"]).with_code(1).says(&["outrider login", "OUTRIDER_URL"]);

    let with = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = home.command(args);
        command.envs(variables.iter().copied());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let both = [("OUTRIDER_URL", fleet.url.as_str()), ("OUTRIDER_TOKEN", fleet.token.as_str())];
    assert_eq!(with(&both, &["get", "nodes"]).0, Some(0));
    let (code, said) = with(&both[..1], &["get", "nodes"]);
    assert!(code == Some(1) && said.contains("OUTRIDER_TOKEN is not"), "{said}");
    let (code, said) = with(&[("OUTRIDER_URL", "nonsense"), both[1]], &["get", "nodes"]);
    assert!(code == Some(64) && said.contains("OUTRIDER_URL"), "{said}");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (code, said) = with(&[("OUTRIDER_URL", &format!("https://{closed}")), both[1]], &["get", "nodes"]);
    assert!(code == Some(1) && said.contains(&closed.to_string()) && said.contains("refused"), "{said}");

    home.run_with_input(["login", &fleet.url, "--name", "one"], fleet.token.as_bytes()).with_code(0);
    home.run(["get", "nodes", "db1"]).with_code(0);
    // The saved authority stays trusted with another token; the coordinator refuses that token, politely.
    let secret = fleet.token.rsplit(':').next().unwrap();
    let wrong = fleet.token.replace(secret, "0000000000000000000000000000000000000000000");
    let (code, said) = with(&[("OUTRIDER_TOKEN", &wrong)], &["get", "nodes"]);
    assert!(code == Some(1) && said.contains("Unauthenticated"), "{said}");
    let (code, said) = with(&[("OUTRIDER_TOKEN", "OR1::no:body")], &["get", "nodes"]);
    assert!(code == Some(64) && said.contains("OUTRIDER_TOKEN holds no operator token"), "{said}");
    // Tokens lie in that file: others who may read it are said, with what to do.
    std::fs::set_permissions(home.contexts(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let contexts = home.contexts().display().to_string();
    home.run(["get", "nodes"]).with_code(0).says(&["warning", &contexts, "chmod 600"]);
    std::fs::set_permissions(home.contexts(), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(home.run(["get", "nodes"]).with_code(0).err, "");
    home.run(["--context", "two", "get", "nodes"]).with_code(1).says(&["\"two\"", "known: one"]);
    home.run(["context", "use", "two"]).with_code(1).says(&["\"two\"", "known: one"]);
    home.run(["context", "remove", "one"]).with_code(0);
    home.run(["get", "nodes"]).with_code(1).says(&["outrider login"]);
}

#[test]
fn a_broken_context_file_is_named_with_its_line_and_not_repeated() {
    let home = Home::new();
    std::fs::create_dir_all(home.contexts().parent().unwrap()).unwrap();
    for (text, line) in [
        ("current = 3\n", 1),
        (
            "current = \"a\"\n\n[contexts.a]\nurl = \"https://c.example\"\ntoken = \"s3cret\"\nsurprise = 1\n",
            6,
        ),
        ("current = \"a\"\n[contexts\n", 2),
        ("\u{0}\u{1}", 1),
    ] {
        std::fs::write(home.contexts(), text).unwrap();
        let ended = home.run(["get", "nodes"]).with_code(1);
        assert!(ended.err.contains(&format!("contexts.toml:{line}: ")), "{ended:#?}");
        assert!(!ended.err.contains("s3cret"), "{ended:#?}");
    }
    std::fs::write(home.contexts(), b"\xff").unwrap();
    home.run(["get", "nodes"]).with_code(1).says(&["contexts.toml"]);
}

#[test]
fn get_prints_what_kubectl_would() {
    let fleet = Fleet::start();
    let home = fleet.home();
    home.run(["get", "nodes"]).with_code(0).says(&["No resources found."]);
    let _nodes = [fleet.node("db1", "rancher"), fleet.node("db2", "rancher"), fleet.node("web1", "")];

    let table = home.run(["get", "nodes"]).with_code(0).out;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("NAME   READY") && lines.len() == 4, "{table}");
    assert!(lines[1].starts_with("db1    True"), "{table}");
    assert!(!home.run(["get", "nodes", "--no-headers"]).with_code(0).out.contains("NAME"));
    assert!(home.run(["get", "nodes", "-o", "wide"]).with_code(0).out.contains("192.0.2.1/24"));
    assert_eq!(home.run(["get", "node", "-o", "name"]).with_code(0).out, "node/db1\nnode/db2\nnode/web1\n");
    let names = home.run(["get", "nodes", "-o", r#"jsonpath={range .items[*]}{.name}={.zone}{"\n"}{end}"#]);
    assert_eq!(names.with_code(0).out, "db1=zone-a\ndb2=zone-a\nweb1=zone-a\n");

    let list = home.run(["get", "nodes", "-o", "json"]).with_code(0).json();
    assert_eq!((list["kind"].as_str(), list["items"].as_array().map(Vec::len)), (Some("NodeList"), Some(3)));
    assert_eq!(list["apiVersion"], outrider_protocol::API_VERSION);
    let one = home.run(["get", "nodes", "db2", "-o", "json"]).with_code(0).json();
    assert_eq!((one["kind"].as_str(), one["name"].as_str()), (Some("Node"), Some("db2")));
    let clusters = home.run(["get", "clusters", "-o", "json"]).with_code(0).json();
    assert_eq!(clusters["kind"], "ClusterList");
    assert_eq!(clusters["items"][0]["name"], "rancher");
    let conditions = home.run(["get", "conditions", "db1", "-o", "json"]).with_code(0).json();
    assert_eq!(conditions["kind"], "ObjectConditionList");
    assert!(
        conditions["items"].as_array().unwrap().iter().all(|c| c["object"] == "node/db1"),
        "{conditions:#}"
    );
    assert!(home.run(["get", "conditions", "-o", "name"]).out.contains("node/db1/HostHealthy//var\n"));

    // Some are there and some are not: what is there is printed.
    let partly = home.run(["get", "nodes", "db1", "nope", "-o", "name"]).with_code(1);
    assert_eq!(partly.out, "node/db1\n");
    assert_eq!(partly.err, "Error from coordinator (NotFound): nodes \"nope\" not found\n");
    home.run(["get", "clusters", "nope"]).with_code(1).says(&["clusters \"nope\" not found"]);
    home.run(["get", "conditions", "nope"]).with_code(1).says(&["\"nope\" not found"]);
    home.run(["describe", "node", "nope"]).with_code(1).says(&["nodes \"nope\" not found"]);
    home.run(["get", "nodes", "-l", "a in ("]).with_code(1).says(&["InvalidSelector", "at character"]);
    home.run(["get", "nodes", "db1", "-l", "a"]).with_code(64).says(&["not both"]);
    home.run(["get", "nodes", "../tokens"]).with_code(1).says(&["not found"]);

    let described = home.run(["describe", "node", "db1"]).with_code(0).out;
    for part in ["Name:               db1\n", "HostHealthy=True", "Last transitions:\n", "new True"] {
        assert!(described.contains(part), "{part:?}: {described}");
    }
    let described = home.run(["describe", "cluster", "rancher"]).with_code(0).out;
    assert!(described.contains("Nodes:") && described.contains("db2"), "{described}");
}

#[test]
fn a_watch_prints_the_list_and_then_what_changes() {
    let fleet = Fleet::start();
    let home = fleet.home();
    let node = fleet.node("db1", "");
    let follow = |args: &[&str]| {
        let mut child = home.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines.map(|line| line.unwrap()))
    };
    let (mut table, mut rows) = follow(&["get", "nodes", "-w"]);
    let (mut documents, mut objects) = follow(&["get", "nodes", "-w", "-o", "json"]);
    assert!(rows.next().unwrap().starts_with("NAME"));
    assert!(rows.next().unwrap().contains(" ok "));
    let first: serde_json::Value = serde_json::from_str(&objects.next().unwrap()).unwrap();
    assert_eq!((first["kind"].as_str(), first["name"].as_str()), (Some("Node"), Some("db1")));

    node.say(Status::False, Some(Status::True));
    let row = rows.next().unwrap();
    assert!(row.starts_with("db1 ") && row.contains("HostHealthy=False (/var)"), "{row}");
    let second: serde_json::Value = serde_json::from_str(&objects.next().unwrap()).unwrap();
    let host = second["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "HostHealthy").unwrap();
    assert_eq!(host["status"], "False");

    // Ctrl-C is how following ends well.
    for child in [&mut table, &mut documents] {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn watch_prints_every_transition() {
    let fleet = Fleet::start();
    let home = fleet.home();
    let node = fleet.node("db1", "");
    let mut child = home.command(["watch", "-o", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The watch may begin after the first of these; it must then print the later ones.
    let seen = std::thread::spawn(move || lines.next().unwrap().unwrap());
    let mut status = Status::True;
    fleet.until(|| {
        let next = if status == Status::True { Status::False } else { Status::True };
        node.say(next, Some(status));
        status = next;
        seen.is_finished()
    });
    let event: serde_json::Value = serde_json::from_str(&seen.join().unwrap()).unwrap();
    assert_eq!((event["kind"].as_str(), event["node"].as_str()), (Some("Event"), Some("db1")));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn tokens_are_made_listed_and_revoked_and_nodes_approved() {
    let fleet = Fleet::start();
    let home = fleet.home();
    let made =
        home.run(["token", "create", "--pool", "--name-pattern", "pool1-*", "--ttl", "90d"]).with_code(0).out;
    let token = Token::parse(made.trim()).unwrap();
    assert_eq!(token.pin, fleet.checksum);
    let document = home.run(["token", "create", "--uses", "3", "-o", "json"]).with_code(0).json();
    assert_eq!((document["kind"].as_str(), document["usesLeft"].as_u64()), (Some("Token"), Some(3)));
    let list = home.run(["token", "list"]).with_code(0);
    assert!(list.out.contains(&token.id) && list.out.contains("pool1-*"), "{list:#?}");
    assert!(!list.out.contains(made.trim().rsplit(':').next().unwrap()), "a secret is listed: {list:#?}");
    assert_eq!(
        home.run(["token", "revoke", &token.id]).with_code(0).out,
        format!("token/{} revoked\n", token.id)
    );
    assert!(home.run(["token", "list"]).with_code(0).out.contains("revoked"));
    let unknown = home.run(["token", "revoke", "nope"]).with_code(1);
    let unknown = unknown.says(&["there is no token \"nope\"", "outrider token list"]);
    assert!(!unknown.err.contains("secret"), "{unknown:#?}");
    home.run(["token", "create", "--uses", "0"]).with_code(64).says(&["--uses", "1"]);
    home.run(["token", "create", "--ttl", "5"]).with_code(64).says(&["has no unit; write 5s, 5m or 5h"]);
    let told = home.run(["token", "create", "--ttl", "24h", "--uses", "2"]).with_code(0);
    assert_eq!(told.out.lines().count(), 1, "{told:#?}");
    told.says(&["of kind once", "ends in 24h", "for 2 nodes"]);
    home.run(["token", "create", "--pool", "--name-pattern", "***["]).with_code(1).says(&[
        "namePattern",
        "'['",
        "nothing would match",
    ]);

    let waiting = fleet.reporting("new1", "", TokenKind::Pool);
    waiting.say(Status::True, None);
    fleet.until(|| fleet.see("new1").is_some_and(|node| node.enrolment == "pending"));
    let table = home.run(["get", "nodes"]).with_code(0).out;
    assert!(table.contains("waits for approval: outrider approve new1"), "{table}");
    let Ended { out, .. } =
        home.run(["approve", "new1", "nope"]).with_code(1).says(&["no node \"nope\"", "outrider get nodes"]);
    assert_eq!(out, "node/new1 approved\n");
    fleet.until(|| fleet.see("new1").is_some_and(|node| node.enrolment == "approved"));
}

#[test]
fn labels_are_set_selected_and_removed() {
    let fleet = Fleet::start();
    let _nodes = [fleet.node("db1", ""), fleet.node("db2", "")];
    let home = fleet.home();
    assert_eq!(home.run(["label", "db1", "team=storage", "rack=7"]).with_code(0).out, "node/db1 labeled\n");
    assert_eq!(home.run(["get", "nodes", "-l", "team=storage", "-o", "name"]).with_code(0).out, "node/db1\n");
    // As with kubectl, a label that is there is not changed unasked; the same again is no change.
    home.run(["label", "db1", "team=web", "zone9=z"]).with_code(1).says(&[
        "LabelTaken",
        "team=storage",
        "--overwrite",
    ]);
    home.run(["label", "db1", "team=storage"]).with_code(0);
    let node =
        home.run(["label", "db1", "team=web", "rack-", "--overwrite", "-o", "json"]).with_code(0).json();
    assert_eq!(node["labels"], serde_json::json!({ "team": "web" }));
    assert!(home.run(["describe", "node", "db1"]).with_code(0).out.contains("team=web"));
    assert_eq!(home.run(["label", "db1", "team-"]).with_code(0).out, "node/db1 unlabeled\n");
    home.run(["label", "db1", "cluster=x"]).with_code(1).says(&["InvalidLabel", "spec.cluster"]);
    home.run(["label", "db1", "a b=x"]).with_code(1).says(&["InvalidLabel"]);
    home.run(["label", "nope", "a=x"]).with_code(1).says(&["no node \"nope\"", "outrider get nodes"]);
    home.run(["label", "db1", "db2"]).with_code(64).says(&["neither KEY=VALUE"]);
}

#[test]
fn a_revoked_node_is_out_and_the_operator_is_told_what_that_means() {
    let fleet = Fleet::start();
    let _nodes = [fleet.node("db1", ""), fleet.node("db2", ""), fleet.node("db3", "")];
    let home = fleet.home();
    let ended = home.run(["revoke", "db1", "nope"]).with_code(1);
    assert_eq!(ended.out, "node/db1 revoked\n");
    ended.says(&["no node \"nope\"", "outrider get nodes", "open nothing any more", "outrider token create"]);
    assert!(home.run(["get", "nodes", "db1"]).with_code(0).out.contains("revoked by an operator"));
    let node = home.run(["revoke", "db2", "-o", "json"]).with_code(0).json();
    assert_eq!((node["kind"].as_str(), node["enrolment"].as_str()), (Some("Node"), Some("revoked")));
    // Once more is no failure, and several are a list.
    let list = home.run(["revoke", "db2", "db3", "-o", "json"]).with_code(0).json();
    assert_eq!((list["kind"].as_str(), list["items"].as_array().unwrap().len()), (Some("NodeList"), 2));
    home.run(["revoke"]).with_code(64);
}
