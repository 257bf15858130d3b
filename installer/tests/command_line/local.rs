//! What needs no coordinator: `check`, `facts`, `diagnose`, and how the program is called.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use crate::support::Home;
use serde_json::Value;

fn recording(name: &str) -> String {
    let path = format!("{}/src/simulate/recordings/{name}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_check_and_the_judgement_of_its_facts_are_the_same_bytes() {
    let home = Home::new();
    let facts = home.path().join("facts.json");
    let check = home.run(["check", "-o", "json", "--facts-out", facts.to_str().unwrap()]);
    assert!(matches!(check.code, Some(0..=3)), "{check:#?}");
    assert_eq!(check.json()["kind"], "NodeConditions");
    assert!(!check.json()["conditions"].as_array().unwrap().is_empty());
    let again = home.run(["diagnose", "-o", "json", facts.to_str().unwrap()]).with_code(0);
    assert_eq!(again.out, check.out);
    let through_a_pipe =
        home.run_with_input(["diagnose", "-o", "json", "-"], &std::fs::read(&facts).unwrap()).with_code(0);
    assert_eq!(through_a_pipe.out, check.out);
}

#[test]
fn facts_are_a_document_that_can_be_judged_and_only_leaves_the_rest_out() {
    let home = Home::new();
    let facts = home.run(["facts", "--only", "host"]).with_code(0);
    let document = facts.json();
    assert_eq!(document["kind"], "NodeFacts");
    assert!(document["now"].is_string() && document["latches"].is_array());
    let checks: Vec<_> = document["checks"].as_object().unwrap().keys().collect();
    assert_eq!(checks, ["host"]);
    home.run_with_input(["diagnose", "-"], facts.out.as_bytes()).with_code(0);
}

#[test]
fn every_format_of_a_check_is_what_it_says() {
    let home = Home::new();
    let line = home.run(["check", "-o", "nagios", "--only", "host"]);
    assert!(line.out.starts_with("OUTRIDER ") && line.out.lines().count() == 1, "{line:#?}");
    assert!(line.out.contains(" | ") && line.out.contains("errors="), "{line:#?}");
    let yaml = home.run(["check", "-o", "yaml", "--only", "host"]);
    assert!(yaml.out.contains("kind: NodeConditions"), "{yaml:#?}");
    let name = home.run(["check", "-o", "name", "--only", "host"]);
    let of_host = |line: &str| line.starts_with("node/") && line.contains("/HostHealthy");
    assert!(name.out.lines().count() > 0 && name.out.lines().all(of_host), "{name:#?}");
    let table = home.run(["check", "--only", "host"]);
    assert!(table.out.contains("SEVERITY  CONDITION"), "{table:#?}");
    assert!(!table.out.contains('\x1b'), "colour in a pipe: {table:#?}");
}

#[test]
fn a_check_that_was_named_and_cannot_be_judged_is_unknown() {
    let home = Home::new();
    // Without a configuration there is no load balancer, on whatever machine this runs.
    let file = home.path().join("agent.toml");
    std::fs::write(&file, "").unwrap();
    let config = file.to_str().unwrap();
    let only = |format: &str, checks: &str| {
        home.run(["check", "--config", config, "-o", format, "--only", checks]).with_code(3)
    };
    let why = "load-balancer: not applicable here: no load balancer is configured";
    let line = only("nagios", "load-balancer").out;
    assert!(line.starts_with(&format!("OUTRIDER UNKNOWN - {why} | ")), "{line}");
    let table = only("table", "load-balancer").says(&[&format!("unknown: {why}")]);
    assert!(table.out.contains("nothing was judged") && !table.out.contains("all is well"), "{table:#?}");
    let json = only("json", "load-balancer").json();
    assert_eq!(json["notApplicable"][0]["check"], "load-balancer", "{json:#}");
    // Beside one that was judged it is missing as well; unasked, it is in order.
    let both = home.run(["check", "--config", config, "-o", "nagios", "--only", "host,load-balancer"]);
    assert!(matches!(both.code, Some(2 | 3)) && both.out.contains(why), "{both:#?}");
    assert!(!home.run(["check", "--config", config, "-o", "nagios"]).out.contains("not applicable"));
}

#[test]
fn the_dates_of_certificates_are_judged_with_the_clock_read_and_unshown() {
    let home = Home::new();
    let facts = home.path().join("facts.json");
    let read = |checks: &str, config: &str| -> (Value, Value) {
        let file = home.path().join("agent.toml");
        std::fs::write(&file, config).unwrap();
        let args =
            ["check", "--config", file.to_str().unwrap(), "-o", "json", "--only", checks, "--facts-out"];
        let check = home.run(args.into_iter().chain([facts.to_str().unwrap()]));
        (serde_json::from_slice(&std::fs::read(&facts).unwrap()).unwrap(), check.json())
    };
    let (with, verdict) = read("certificates", "");
    assert!(with["checks"]["clock"].is_object(), "{with:#}");
    assert!(!verdict.to_string().contains("ClockSynchronized"), "{verdict:#}");
    let (switched_off, _) = read("certificates", "[checks.clock]\nenabled = false\n");
    assert!(switched_off["checks"]["clock"].is_null(), "{switched_off:#}");
    let (_, both) = read("certificates,clock", "");
    assert!(both.to_string().contains("ClockSynchronized"), "{both:#}");
    let (host, _) = read("host", "");
    assert!(host["checks"]["clock"].is_null(), "{host:#}");
}

#[test]
fn a_configuration_with_errors_is_told_and_judged() {
    let home = Home::new();
    let file = home.path().join("agent.toml");
    std::fs::write(&file, "[node]\nname = \"n1\"\nnam = 1\n").unwrap();
    let check = home.run(["check", "--config", file.to_str().unwrap(), "--only", "clock", "-o", "json"]);
    assert!(check.err.contains("agent.toml:3") && check.err.contains("nam"), "{check:#?}");
    let document = check.json();
    assert_eq!(document["node"]["name"], "n1");
    let valid =
        document["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "ConfigValid").unwrap();
    assert_eq!(valid["status"], "False");
}

#[test]
fn several_nodes_of_a_cluster_are_judged_together() {
    let home = Home::new();
    let members: String = (1..=3)
        .map(|i| {
            let mut facts: Value = serde_json::from_str(&recording("rancher-server")).unwrap();
            facts["node"]["name"] = format!("server-{i}").into();
            facts["node"]["cluster"] = "rancher".into();
            facts.to_string()
        })
        .collect();
    let document =
        home.run_with_input(["diagnose", "-", "-o", "json"], members.as_bytes()).with_code(0).json();
    assert_eq!(document["kind"], "Diagnosis");
    assert_eq!(document["nodes"].as_array().unwrap().len(), 3);
    let cluster = &document["clusters"][0];
    assert_eq!((cluster["kind"].as_str(), cluster["name"].as_str()), (Some("Cluster"), Some("rancher")));
    assert!(
        cluster["conditions"].as_array().unwrap().iter().any(|c| c["type"] == "EtcdQuorum"),
        "{cluster:#}"
    );
    let table = home.run_with_input(["diagnose", "-"], members.as_bytes()).with_code(0);
    assert!(
        table.out.starts_with("cluster rancher: ") && table.out.contains("server-3 (simulated)"),
        "{table:#?}"
    );
}

/// Every time in the document this many hours later.
fn shift(value: &mut Value, hours: i64) {
    match value {
        Value::String(text) => {
            if let Ok(at) = text.parse::<outrider_protocol::Timestamp>() {
                let moved = at.as_millis() + hours * 3_600_000;
                *text = outrider_protocol::Timestamp::from_millis(moved).to_string();
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|value| shift(value, hours)),
        Value::Object(all) => all.values_mut().for_each(|value| shift(value, hours)),
        _ => {}
    }
}

/// Three servers, whose clocks are so many hours ahead; each says so itself, or tells nothing of it and keeps no time.
fn servers(hours: [i64; 3], tells: bool) -> Vec<Value> {
    let of = |i: usize, hours: i64| {
        let mut facts: Value = serde_json::from_str(&recording("rancher-server")).unwrap();
        facts["node"]["name"] = format!("server-{i}").into();
        facts["node"]["cluster"] = "rancher".into();
        let endpoints = facts["checks"]["etcd"]["value"]["endpoints"].as_array_mut().unwrap();
        for (place, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint["local"] = (place + 1 == i).into();
        }
        let coordinator = &mut facts["checks"]["clock"]["value"]["coordinator"];
        if tells {
            coordinator["value"]["offsetMs"] = (hours * 3_600_000).into();
        } else {
            *coordinator =
                serde_json::json!({"state": "notApplicable", "reason": "none", "at": "2026-11-02T09:30:00Z"});
            facts["checks"]["clock"]["value"]["kernel"]["value"]["synchronized"] = false.into();
        }
        facts["checks"].as_object_mut().unwrap().remove("loadBalancer");
        shift(&mut facts, hours);
        facts
    };
    hours.iter().enumerate().map(|(i, hours)| of(i + 1, *hours)).collect()
}

fn diagnosed(home: &Home, nodes: &[Value], format: &str) -> crate::support::Ended {
    let input: String = nodes.iter().map(Value::to_string).collect();
    home.run_with_input(["diagnose", "-", "-o", format], input.as_bytes()).with_code(0)
}

#[test]
fn no_files_clock_makes_the_others_stale() {
    let home = Home::new();
    for hours in [[0, 0, 5], [0, -5, 0], [30_000, 0, 0], [0, 3, 6]] {
        for tells in [true, false] {
            let nodes = servers(hours, tells);
            let json = diagnosed(&home, &nodes, "json").json();
            let cluster = json["clusters"][0].to_string();
            assert!(!cluster.contains("stale"), "{hours:?} {tells}: {cluster}");
            let conditions = json["clusters"][0]["conditions"].as_array().unwrap();
            let quorum = conditions.iter().find(|c| c["type"] == "EtcdQuorum").unwrap();
            assert_eq!(
                (&quorum["status"], &quorum["reason"]),
                (&"True".into(), &"EtcdQuorumMet".into()),
                "{quorum:#}"
            );
            let table = diagnosed(&home, &nodes, "table").out;
            let told = if tells { "The clock of server-" } else { "Clocks differ by " };
            assert!(table.lines().take(4).any(|line| line.starts_with(told)), "{table}");
        }
    }
    let same = diagnosed(&home, &servers([0; 3], true), "table").out;
    assert!(!same.contains("Clocks differ") && !same.contains("The clock of"), "{same}");
    // What was captured hours before by a clock that is right is stale.
    let mut nodes = servers([0; 3], true);
    shift(&mut nodes[2], -5);
    let old = diagnosed(&home, &nodes, "json").json();
    assert!(old["clusters"][0].to_string().contains("server-3 (stale)"), "{old:#}");
    // So it is where the kernel says that the clocks are kept, and nobody measured them.
    let mut nodes = servers([0, 0, -5], false);
    for node in &mut nodes {
        node["checks"]["clock"]["value"]["kernel"]["value"]["synchronized"] = true.into();
    }
    let old = diagnosed(&home, &nodes, "json").json();
    assert!(old["clusters"][0].to_string().contains("server-3 (stale)"), "{old:#}");
    let table = diagnosed(&home, &nodes, "table").out;
    assert!(table.contains("The files were captured up to"), "{table}");
}

#[test]
fn a_headline_is_no_better_than_what_stands_below_it() {
    let home = Home::new();
    let well = diagnosed(&home, &servers([0; 3], true), "table").out;
    let mut nodes = servers([0; 3], true);
    nodes[1]["thresholds"] = serde_json::json!({"diskErrorPercent": 100.0});
    let broken = diagnosed(&home, &nodes, "table").out;
    let headline = |out: &str| out.lines().next().unwrap().to_owned();
    let line = headline(&broken);
    assert!(
        line.contains("on the nodes: ") && line.contains("error") && line.contains("server-2"),
        "{line}\n{broken}"
    );
    assert!(!line.contains("all is well"), "{line}");
    // Who needs the look comes first.
    let first = broken.lines().find(|line| line.contains(" (simulated): ")).unwrap();
    assert!(first.starts_with("server-2"), "{broken}");
    assert!(headline(&well).ends_with("all is well"), "{well}");
}

#[test]
fn garbage_is_answered_with_what_where_and_what_instead() {
    let home = Home::new();
    let whole = recording("harvester-vm");
    let wrong_type = whole.replacen("\"agentVersion\": \"0.1.0\"", "\"agentVersion\": 3", 1);
    assert_ne!(whole, wrong_type);
    let second_is_wrong = format!("{whole}{wrong_type}");
    let lines = whole.lines().count();
    let line_of_second =
        wrong_type.lines().position(|line| line.contains("agentVersion")).unwrap() + 1 + lines;
    let newer = whole.replacen("outrider.internal/v1alpha1", "outrider.internal/v9", 1);
    let nameless = with(&whole, |facts| facts["node"]["name"] = "".into());
    // Misspelt, or of an agent that is newer than this tool: what would not be judged is no reason to call all well.
    let misspelt = with(&whole, |facts| facts["checks"]["etcdd"] = facts["checks"]["clock"].clone());
    for (input, words) in [
        (&b""[..], vec!["standard input is empty", "outrider facts"]),
        (b"\n \n", vec!["is empty"]),
        (b"not json", vec!["standard input: not JSON", "line 1 column", "outrider facts"]),
        (b"\xff\xfe", vec!["standard input is UTF-16", "PowerShell", "UTF-8"]),
        (b"\xfe\xff\0{", vec!["is UTF-16"]),
        (b"{\0}\0", vec!["is UTF-16"]),
        (b"\x1f\x8b\x08\0", vec!["compressed with gzip", "gzip -d"]),
        (b"PK\x03\x04", vec!["a zip archive"]),
        (b"[1,2]", vec!["no apiVersion and kind"]),
        (b"{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}", vec!["kind is \"Pod\"", "expected \"NodeFacts\""]),
        (b"{\"apiVersion\":\"v1\",\"kind\":\"NodeFacts\"}", vec!["apiVersion is \"v1\""]),
        (&whole.as_bytes()[..400], vec!["not JSON: EOF"]),
        (wrong_type.as_bytes(), vec!["invalid type: integer `3`", "line "]),
        (second_is_wrong.as_bytes(), vec![&format!("line {line_of_second}, column"), "agentVersion: "]),
        (nameless.as_bytes(), vec!["node.name is empty"]),
        (misspelt.as_bytes(), vec!["checks.etcdd is no check that outrider", "agent 0.1.0"]),
        (
            b"apiVersion: outrider.internal/v1alpha1\nkind: NodeFacts\n",
            vec!["not JSON", "outrider facts -o json"],
        ),
        (
            newer.as_bytes(),
            vec!["apiVersion is \"outrider.internal/v9\"", "reads only \"outrider.internal/v1alpha1\""],
        ),
    ] {
        let ended = home.run_with_input(["diagnose", "-", "-o", "json"], input).with_code(1).says(&words);
        assert_eq!(ended.out, "", "half an answer: {ended:#?}");
    }
    home.run(["diagnose", "/nonexistent/facts.json"])
        .with_code(1)
        .says(&["/nonexistent/facts.json", "No such file"]);
    home.run(["diagnose", "/"]).with_code(1).says(&["cannot read /"]);
}

/// `document` changed so.
fn with(document: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut facts: Value = serde_json::from_str(document).unwrap();
    change(&mut facts);
    facts.to_string()
}

#[test]
fn a_field_that_is_not_known_is_told_and_the_rest_is_judged() {
    let home = Home::new();
    let whole = recording("rancher-server");
    let newer = with(&whole, |facts| {
        facts["checks"]["etcd"]["value"]["endpoints"][0]["raftTerms"] = 7.into();
        facts["checks"]["etcd"]["value"]["absentEither"] = Value::Null;
    });
    let ended = home.run_with_input(["diagnose", "-", "-o", "json"], newer.as_bytes()).with_code(0);
    assert!(
        ended.err.contains("does not know checks.etcd.value.endpoints[0].raftTerms, so that"),
        "{ended:#?}"
    );
    assert!(ended.out.contains("EtcdQuorum"), "{ended:#?}");
    let known = home.run_with_input(["diagnose", "-", "-o", "json"], whole.as_bytes()).with_code(0);
    assert_eq!(known.err, "", "of what every agent writes nothing is passed over");
}

#[test]
fn what_is_wrong_deep_inside_is_named_by_line_column_and_field() {
    let home = Home::new();
    let whole = recording("rancher-server");
    let wrong = whole.replacen("\"isLearner\": false", "\"isLearner\": \"yes\"", 1);
    assert_ne!(whole, wrong);
    let place = |text: &str| {
        let (line, told) = text.lines().enumerate().find(|(_, l)| l.contains("\"yes\"")).unwrap();
        (line + 1, told.find("\"yes\"").unwrap() + "\"yes\"".len())
    };
    let (line, column) = place(&wrong);
    let field = "checks.etcd.value.";
    let what = "isLearner: invalid type: string \"yes\", expected a boolean";
    let at = |line: usize, column: usize| format!("line {line}, column {column}: no NodeFacts: ");
    let run = |text: &str| home.run_with_input(["diagnose", "-"], text.as_bytes()).with_code(1);
    run(&wrong).says(&[&at(line, column), field, what]);
    // The second of two, on lines of its own and on the line of the first.
    run(&format!("{}\n{wrong}", whole.trim_end()))
        .says(&[&at(line + whole.trim_end().lines().count(), column)]);
    let flat = |text: &str| with(text, |_| {});
    let (one, two) = (flat(&whole), flat(&wrong));
    run(&format!("{one}{two}")).says(&[&at(1, one.len() + place(&two).1), field, what]);

    for (key, value, words) in [
        (
            "etcdFsyncWarnMs",
            serde_json::json!(-1.0),
            "thresholds.etcdFsyncWarnMs is -1; expected 0 ms or more",
        ),
        ("diskWarnPercent", serde_json::json!(101), "thresholds.diskWarnPercent is 101; expected a share"),
        ("clockErrorMs", serde_json::json!(-5), "thresholds.clockErrorMs is -5"),
        (
            "certificateDays",
            serde_json::json!([7, 30, 120]),
            "certificateDays is [7, 30, 120]; expected falling",
        ),
        ("credentialDays", serde_json::json!([3, -1]), "credentialDays is [3, -1]"),
    ] {
        let odd = with(&whole, |facts| facts["thresholds"][key] = value);
        run(&odd).says(&[words]);
    }
    // A mark before the text says nothing.
    home.run_with_input(["diagnose", "-"], format!("\u{feff}{whole}").as_bytes()).with_code(0);
}

#[test]
fn a_configuration_is_a_regular_file_and_captured_facts_may_come_through_a_pipe() {
    let home = Home::new();
    let fifo = home.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for command in ["check", "facts"] {
        for (file, what) in
            [(fifo.as_path(), "a pipe"), (home.path(), "a folder"), ("/dev/zero".as_ref(), "a device")]
        {
            let ended = home.run([command.as_ref(), "--config".as_ref(), file.as_os_str()]);
            let code = if command == "check" { 3 } else { 64 };
            let ended = ended.with_code(code).says(&["--config: ", &file.display().to_string(), what]);
            assert_eq!(ended.out, "", "{ended:#?}");
        }
    }

    home.run(["diagnose", "/dev/zero"]).with_code(1).says(&["/dev/zero", "it is a device", "standard input"]);
    home.run(["diagnose", "/tmp"]).with_code(1).says(&["/tmp", "it is a folder"]);
    let huge = home.path().join("huge");
    std::fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    home.run(["diagnose".as_ref(), huge.as_os_str()]).with_code(1).says(&["more than 1 GiB"]);
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::write(fifo, recording("harvester-vm")).unwrap()
    });
    home.run(["diagnose".as_ref(), fifo.as_os_str()]).with_code(0);
    writer.join().unwrap();
}

#[test]
fn called_wrongly_a_check_is_unknown_and_the_rest_a_usage_error() {
    let home = Home::new();
    for args in [
        &["check", "--nonsense"][..],
        &["check", "-o", "jsonpath={.x}"],
        &["check", "--only", "nonsense"],
        &["check", "--config", "/nonexistent"],
        &["-v", "--context", "x", "check", "--nonsense"],
    ] {
        let ended = home.run(args).with_code(3);
        assert!(!ended.err.is_empty() && ended.out.is_empty(), "{args:?}: {ended:#?}");
    }
    for args in [
        &[][..],
        &["nonsense"],
        &["get"],
        &["get", "pods"],
        &["get", "nodes", "-o", "jsonpath={.items"],
        &["up", "--for", "never"],
        &["up", "--simulate", "1000000"],
        &["login", "http://plain.example"],
        &["login", "https://c.example/path"],
        &["login", "https://c.example", "--ca-checksum", "abc"],
        &["token", "create", "--rate-per-hour", "3"],
        &["diagnose"],
    ] {
        let ended = home.run(args).with_code(64);
        assert!(!ended.err.is_empty(), "{args:?}: {ended:#?}");
    }
    home.run(["check", "--only", "nonsense"]).says(&["there is no check \"nonsense\"", "host, clock"]);
    home.run(["check", "--help"]).with_code(0);
    home.run(["up", "--for", "20"]).with_code(64).says(&["\"20\" has no unit; write 20s, 20m or 20h"]);
    let told = home.run(["explain", "etcdquorumlost"]).with_code(0).out;
    assert!(told.starts_with("EtcdQuorumLost: ") && told.contains("\n## What to do\n"), "{told}");
    for condition in ["EtcdQuorum", "OutriderEtcdQuorum"] {
        let told = home.run(["explain", condition]).with_code(0).out;
        assert!(told.contains("EtcdQuorumLost") && told.contains("error"), "{told}");
    }
    home.run(["explain", "Nonsense"]).with_code(64).says(&["no reason and no condition \"Nonsense\""]);
    assert!(home.run(["--version"]).with_code(0).out.starts_with("outrider "));
}

#[test]
fn arguments_need_not_be_text() {
    let home = Home::new();
    let odd = OsStr::from_bytes(b"\xff\xfe.json");
    home.run([OsStr::new("check"), OsStr::new("--only"), odd]).with_code(3);
    home.run([OsStr::new("get"), OsStr::new("nodes"), odd]).with_code(64);
    home.run([odd]).with_code(64);
    // A file may have any name.
    std::fs::write(home.path().join(odd), recording("harvester-vm")).unwrap();
    home.run([OsStr::new("diagnose"), home.path().join(odd).as_os_str()]).with_code(0);
}

#[test]
fn a_reader_that_goes_is_no_error() {
    let home = Home::new();
    let mut child =
        home.command(["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Nobody reads: the pipe is closed before it was written to, or soon after.
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[test]
fn a_full_disk_is_an_error() {
    let home = Home::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = home.command(["completions", "bash"]);
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to standard output"));
}

/// Runs the program on a terminal and gives what it drew.
fn on_a_terminal(home: &Home, no_color: Option<&str>) -> String {
    let facts = home.path().join("facts.json");
    std::fs::write(&facts, recording("harvester-vm")).unwrap();
    let pty = nix::pty::openpty(None, None).unwrap();
    let mut command = home.command([OsStr::new("diagnose"), facts.as_os_str()]);
    command.env("TERM", "xterm").stdout(pty.slave);
    if let Some(value) = no_color {
        command.env("NO_COLOR", value);
    }
    let mut child = command.spawn().unwrap();
    // The command holds our copy of the terminal's end: without it, reading ends when the program does.
    drop(command);
    let mut drawn = Vec::new();
    let mut master = std::fs::File::from(pty.master);
    // A terminal whose other end is gone answers with an error; what was read before counts.
    let _ = master.read_to_end(&mut drawn);
    assert!(child.wait().unwrap().success());
    String::from_utf8(drawn).unwrap()
}

#[test]
fn colour_is_for_terminals_and_not_for_those_who_refuse_it() {
    let home = Home::new();
    let coloured = on_a_terminal(&home, None);
    assert!(coloured.contains("\x1b[32m"), "{coloured:?}");
    let empty_means_unset = on_a_terminal(&home, Some(""));
    assert!(empty_means_unset.contains("\x1b[32m"), "{empty_means_unset:?}");
    let plain = on_a_terminal(&home, Some("1"));
    assert!(!plain.contains('\x1b') && plain.contains("HostHealthy"), "{plain:?}");
}

#[test]
fn without_a_home_only_what_needs_one_fails() {
    let home = Home::new();
    let facts = home.path().join("facts.json");
    std::fs::write(&facts, recording("harvester-vm")).unwrap();
    let mut command = home.command([OsStr::new("diagnose"), facts.as_os_str()]);
    command.env_remove("HOME").env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    assert!(command.output().unwrap().status.success());
}

#[test]
fn of_one_node_one_capture_is_judged() {
    let home = Home::new();
    let of = |name: &str, cluster: &str, uid: &str| {
        let mut facts: Value = serde_json::from_str(&recording("rancher-server")).unwrap();
        (facts["node"]["name"], facts["node"]["cluster"]) = (name.into(), cluster.into());
        facts["node"]["uid"] = uid.into();
        facts.to_string()
    };
    let run = |input: String| home.run_with_input(["diagnose", "-"], input.as_bytes());
    for cluster in ["c", ""] {
        let twice = of("n1", cluster, "") + &of("n2", cluster, "") + &of("n1", cluster, "");
        run(twice).with_code(1).says(&["node n1", "is given twice; give one capture of each node"]);
    }
    // Two machines of one name are two.
    run(of("n1", "c", "u1") + &of("n1", "c", "u2")).with_code(0);
}
