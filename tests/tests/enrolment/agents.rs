//! Real agents and the people's tool against a real coordinator.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use outrider_protocol::NodeView;
use outrider_tests::agent::AgentHome;
use outrider_tests::programs::{program, until};
use outrider_tests::table::Table;
use serde_json::{Value, json};

use super::Bed;

const LIMIT: Duration = Duration::from_secs(60);

fn home(bed: &Bed, name: &str, token: &str) -> AgentHome {
    let place = bed.folder.path().join(name);
    let home = AgentHome::new(&place, name).expect("a home");
    fs::write(place.join("token"), token).expect("a token file");
    let address = bed.launch.address;
    let token_file = place.join("token");
    home.configure(&format!(
        "[node]\nname = \"{name}\"\n[coordinator]\nurls = [\"https://{address}\"]\ntoken_file = \"{}\"\n\
         [report]\nheartbeat = \"1s\"\n",
        token_file.display()
    ))
    .expect("a configuration");
    home
}

/// The condition of this type that the running agent shows over its socket.
fn condition(home: &AgentHome, kind: &str) -> Option<Value> {
    let output = home.command("status").ok()?.output().ok()?;
    let status: Value = serde_json::from_slice(&output.stdout).ok()?;
    let find = |list: &Value| list.as_array()?.iter().find(|c| c["type"] == kind).cloned();
    find(&status["conditions"])
}

fn reason(home: &AgentHome, kind: &str) -> String {
    condition(home, kind).map(|c| c["reason"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

async fn view(bed: &Bed, name: &str) -> Option<NodeView> {
    bed.coordinator.operator.get(&format!("/v1/nodes/{name}")).await.ok()
}

async fn until_view(bed: &Bed, name: &str, what: &str, good: impl Fn(&NodeView) -> bool) -> NodeView {
    let start = Instant::now();
    loop {
        let seen = view(bed, name).await;
        if let Some(view) = seen.as_ref().filter(|view| good(view)) {
            return view.clone();
        }
        assert!(start.elapsed() < LIMIT, "{name}: {what}: not within {LIMIT:?}; last seen: {seen:#?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by tests/run --suite enrolment"]
async fn an_agent_enrols_waits_for_approval_and_heals_a_wrong_token() {
    let bed = Bed::start(&[]).await;
    let mut table = Table::new("agents enrol");

    // A token file that holds nonsense is said, and mended without a restart.
    let good = bed.token(json!({})).await.token;
    let agent = home(&bed, "mended", "hello");
    let process = agent.start().expect("an agent");
    let start = Instant::now();
    let delivered = until("an unusable token is shown", LIMIT, || {
        condition(&agent, "ReportsDelivered").filter(|c| c["status"] == "False")
    })
    .unwrap_or_else(|e| panic!("{e}; log: {}", agent.log()));
    let raised = start.elapsed();
    let message = delivered["message"].to_string();
    assert!(
        message.contains("mended/token") && message.contains("OR1"),
        "says which file and what is wrong: {message}"
    );
    fs::write(bed.folder.path().join("mended/token"), &good).expect("a token file");
    let start = Instant::now();
    process.signal(nix::sys::signal::Signal::SIGHUP).expect("a reload");
    until_view(&bed, "mended", "enrols after a reload", |v| {
        v.enrolment == "approved" && v.last_seen.is_some()
    })
    .await;
    table.timed(
        "nonsense in the token file",
        "echo hello > token",
        "ReportsDelivered False, naming the file",
        raised,
        Some(start.elapsed()),
    );
    drop(process);

    // A pool token by itself opens nothing but a request.
    let pool = bed.token(json!({ "tokenKind": "pool" })).await.token;
    let agent = home(&bed, "waiting", &pool);
    let _process = agent.start().expect("an agent");
    let start = Instant::now();
    until("waits", LIMIT, || (reason(&agent, "ReportsDelivered") == "EnrolmentPending").then_some(()))
        .unwrap_or_else(|e| panic!("{e}; log: {}", agent.log()));
    let raised = start.elapsed();
    let pending = until_view(&bed, "waiting", "is shown as pending", |v| v.enrolment == "pending").await;
    assert!(
        pending.conditions.is_empty(),
        "nothing is taken from a node that waits: {:?}",
        pending.conditions
    );
    let operator = tool(&bed, &["approve", "waiting"]);
    assert!(operator.status.success(), "{operator:?}");
    let start = Instant::now();
    let _ = agent;
    until_view(&bed, "waiting", "is let in once approved", |v| {
        v.enrolment == "approved" && !v.conditions.is_empty()
    })
    .await;
    table.timed(
        "a pool token alone",
        "enrol with it, then outrider approve",
        "ReportsDelivered EnrolmentPending",
        raised,
        Some(start.elapsed()),
    );

    // What lies on disk is readable by its owner alone, and the log holds no secret.
    use std::os::unix::fs::PermissionsExt;
    for entry in fs::read_dir(agent.state()).expect("a state folder") {
        let path = entry.expect("an entry").path();
        let meta = fs::metadata(&path).expect("a file");
        let open = meta.permissions().mode() & 0o077 != 0;
        assert!(meta.len() == 0 || !open, "{} is open to others", path.display());
    }
    let secret = pool.rsplit(':').next().expect("a secret");
    assert!(!agent.log().contains(secret), "the log holds the token's secret");
    let server = fs::read_to_string(bed.launch.folder.with_extension("log")).expect("a log");
    assert!(!server.contains(secret), "the coordinator's log holds the token's secret");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by tests/run --suite enrolment"]
async fn certificates_renew_in_time_and_after_their_end() {
    let bed = Bed::start(&["--certificate-lifetime", "6s", "--renewal-grace", "10m"]).await;
    let mut table = Table::new("certificates of six seconds");
    let token = bed.token(json!({})).await.token;
    let agent = home(&bed, "short", &token);
    let mut process = agent.start().expect("an agent");
    until_view(&bed, "short", "enrols", |v| v.last_seen.is_some()).await;
    let first = fs::read(agent.state().join("identity.json")).expect("a certificate");
    let start = Instant::now();
    until("renews by itself", LIMIT, || {
        (fs::read(agent.state().join("identity.json")).ok()? != first).then_some(())
    })
    .unwrap_or_else(|e| panic!("{e}; log: {}", agent.log()));
    table.timed("a certificate near its end", "a life of 6 s", "renewed by the agent", start.elapsed(), None);
    tokio::time::sleep(Duration::from_secs(8)).await;
    let before = view(&bed, "short").await.and_then(|v| v.last_seen).expect("heard");
    until_view(&bed, "short", "goes on past its first certificate", |v| v.last_seen > Some(before)).await;

    // Switched off until its certificate has ended.
    process.terminate(LIMIT).expect("an end");
    tokio::time::sleep(Duration::from_secs(8)).await;
    let before = view(&bed, "short").await.and_then(|v| v.last_seen).expect("heard");
    let start = Instant::now();
    let _process = agent.start().expect("an agent");
    until_view(&bed, "short", "comes back by its key", |v| v.last_seen > Some(before)).await;
    table.timed(
        "switched off past the end",
        "stopped for 8 s",
        "renewed by its key, within the grace",
        start.elapsed(),
        None,
    );
    let uids: Vec<_> = view(&bed, "short").await.into_iter().map(|v| v.uid).collect();
    assert_eq!(uids.len(), 1, "it is the node it was");
}

/// `outrider` with a home of its own, logged in by environment.
fn tool(bed: &Bed, arguments: &[&str]) -> std::process::Output {
    let home = bed.folder.path().join("person");
    fs::create_dir_all(&home).expect("a home");
    let token = fs::read_to_string(bed.launch.folder.join(outrider_coordinator::OPERATOR_TOKEN_FILE))
        .expect("a token");
    let mut command = Command::new(program("outrider").expect("the tool"));
    command.args(arguments).env("HOME", &home).env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    command
        .env("OUTRIDER_URL", format!("https://{}", bed.launch.address))
        .env("OUTRIDER_TOKEN", token.trim());
    command.output().expect("an end")
}

/// `outrider login` at a coordinator on another address, with its CA pinned by the token; then what kubectl's users know.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by tests/run --suite enrolment"]
async fn a_person_logs_in_by_the_pin_and_lists_nodes() {
    let mut bed = Bed::start(&[]).await;
    bed.coordinator.process.kill().expect("an end");
    // Another address than the one everything else uses; nothing but the pin vouches for it.
    bed.launch.address.set_ip("127.0.0.9".parse().expect("an address"));
    bed.coordinator = bed.launch.start().await.expect("a coordinator");
    let machine = outrider_tests::simulated::Applicant::new("node-1", 1).expect("a machine");
    let mut member = bed.admit(&machine).await;
    let mut line = bed.connect(&member).await.expect("a connection");
    member.report(&mut line, true).await.expect("acknowledged");

    let home = bed.folder.path().join("person");
    fs::create_dir_all(&home).expect("a home");
    let token = fs::read_to_string(bed.launch.folder.join(outrider_coordinator::OPERATOR_TOKEN_FILE))
        .expect("a token");
    let url = format!("https://{}", bed.launch.address);
    let person = |arguments: &[&str]| {
        let mut command = Command::new(program("outrider").expect("the tool"));
        command.args(arguments).env("HOME", &home).env_remove("OUTRIDER_URL").env_remove("OUTRIDER_TOKEN");
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME").output().expect("an end")
    };
    let text = |output: &std::process::Output| {
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let mut wrong = token.trim().to_owned();
    wrong.replace_range(3..67, &"ab".repeat(32));
    let refused = person(&["login", &url, "--token", &wrong]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains(&"ab".repeat(32)) && said.contains(&token[3..67]),
        "{said}"
    );
    text(&person(&["login", &url, "--token", token.trim()]));

    let wide = text(&person(&["get", "nodes", "-o", "wide"]));
    let table = text(&person(&["get", "nodes"]));
    assert!(
        table.lines().next().is_some_and(|head| head.contains("NAME") && head.contains("READY")),
        "{table}"
    );
    assert!(wide.lines().next().map(str::len) > table.lines().next().map(str::len), "{wide}");
    assert!(table.lines().any(|line| line.starts_with("node-1")), "{table}");
    let list: Value = serde_json::from_str(&text(&person(&["get", "nodes", "-o", "json"]))).expect("JSON");
    assert_eq!(
        (list["kind"].as_str(), list["items"][0]["name"].as_str()),
        (Some("NodeList"), Some("node-1"))
    );
    assert_eq!(text(&person(&["get", "nodes", "-o", "name"])).trim(), "node/node-1");
    let one: Value =
        serde_json::from_str(&text(&person(&["get", "nodes", "node-1", "-o", "json"]))).expect("JSON");
    assert_eq!(one["kind"], "Node", "one name gives the object itself");
    let missing = person(&["get", "nodes", "nobody"]);
    assert!(
        !missing.status.success() && String::from_utf8_lossy(&missing.stderr).contains("nobody"),
        "{missing:?}"
    );
    Table::new("outrider login at 127.0.0.9").row(
        "a wrong pin",
        "the token with another CA hash",
        "refused, both hashes shown",
    );
}
