//! `outrider up`: the whole chain in one process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::Home;

fn end(mut child: Child) -> Option<i32> {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    child.wait().unwrap().code()
}

#[test]
fn a_second_run_picks_up_the_state_of_the_first() {
    let home = Home::new();
    let args = ["up", "--listen", "127.0.0.1:0", "--simulate", "3", "-o", "json", "--for"];
    let run = |seconds: &str| home.run(args.into_iter().chain([seconds])).with_code(0);
    let first = run("8s").json();
    assert_eq!(first["kind"], "Fleet");
    assert!(first["coordinator"]["url"].as_str().unwrap().starts_with("https://127.0.0.1:"));
    let nodes = first["nodes"].as_array().unwrap();
    let own: Vec<_> = nodes.iter().filter(|node| node["simulated"] == false).collect();
    assert_eq!((nodes.len(), own.len()), (4, 1), "{first:#}");
    assert_eq!(own[0]["ready"], "True");
    for field in ["type", "status", "severity", "reason", "message", "subject"] {
        assert!(own[0]["conditions"][0][field].is_string(), "{field}");
    }
    assert_eq!(first["clusters"][0]["name"], "sim-c1");

    let second = run("4s").json();
    assert_eq!(second["coordinator"]["caChecksum"], first["coordinator"]["caChecksum"]);
    let uids = |fleet: &serde_json::Value| -> Vec<_> {
        fleet["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| (node["name"].clone(), node["uid"].clone()))
            .collect()
    };
    assert_eq!(uids(&first), uids(&second));
    // What was found before is not found again: it has been so since then.
    let since = |fleet: &serde_json::Value| -> std::collections::BTreeMap<String, String> {
        let nodes = fleet["nodes"].as_array().unwrap().iter().filter(|node| node["simulated"] == true);
        let conditions =
            nodes.flat_map(|node| node["conditions"].as_array().unwrap().iter().map(move |c| (node, c)));
        conditions
            .map(|(node, c)| {
                let of = |field: &str| c[field].as_str().unwrap();
                let key = format!("{} {} {} {}", node["name"], of("type"), of("subject"), of("status"));
                (key, of("lastTransitionTime").to_owned())
            })
            .collect()
    };
    let (before, after) = (since(&first), since(&second));
    let both: Vec<_> = before.iter().filter_map(|(key, at)| Some((key, at, after.get(key)?))).collect();
    assert!(both.len() > 20, "{before:#?}\n{after:#?}");
    let moved: Vec<_> = both.iter().filter(|(_, before, after)| before != after).collect();
    assert!(moved.is_empty(), "{moved:#?}");
    // A smaller play leaves no silent nodes behind, nor revoked ones.
    let mut alone = home
        .command(["up", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(alone.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(lines.by_ref().any(|line| line.starts_with("NAME")));
    let listed = home.run(["get", "nodes", "-o", "name"]).with_code(0).out;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    assert_eq!(end(alone), Some(0));
}

#[test]
fn while_it_runs_others_find_it_and_a_second_is_refused() {
    let home = Home::new();
    let mut up = home
        .command(["up", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let address = lines.next().unwrap();
    let url = address.strip_prefix("Coordinator").unwrap_or_else(|| panic!("{address}")).trim().to_owned();
    // The table comes when the first node does.
    assert!(lines.by_ref().any(|line| line.starts_with("NAME")));
    let row = lines.next().unwrap();
    let node = row.split_whitespace().next().unwrap();

    let found = home.run(["get", "nodes", "-o", "name"]).with_code(0).out;
    assert_eq!(found, format!("node/{node}\n"));
    home.run(["--context", "up", "get", "nodes", node]).with_code(0);
    // A context that is in use goes before it, also when its coordinator has gone.
    std::fs::create_dir_all(home.contexts().parent().unwrap()).unwrap();
    let saved = "current = \"gone\"\n[contexts.gone]\nurl = \"https://127.0.0.1:1\"\ntoken = \"OR1::a:b\"\n";
    std::fs::write(home.contexts(), saved).unwrap();
    home.run(["get", "nodes"]).with_code(1).says(&["context \"gone\"", "use --context up"]);
    home.run(["--context", "up", "get", "nodes", node]).with_code(0);
    std::fs::remove_file(home.contexts()).unwrap();
    home.run(["up", "--listen", "127.0.0.1:0", "--for", "1s"])
        .with_code(1)
        .says(&[&format!("process {}", up.id()), "--state-dir"]);
    let other = home.path().join("other");
    home.run([
        "up",
        "--listen",
        url.strip_prefix("https://").unwrap(),
        "--for",
        "1s",
        "--state-dir",
        other.to_str().unwrap(),
    ])
    .with_code(1)
    .says(&["in use"]);

    assert_eq!(end(up), Some(0));
    home.run(["get", "nodes"]).with_code(1).says(&["outrider login"]);
}

#[test]
fn a_state_folder_that_cannot_be_made_is_named() {
    let home = Home::new();
    home.run(["up", "--state-dir", "/proc/nowhere", "--for", "1s"])
        .with_code(1)
        .says(&["/proc/nowhere", "--state-dir"]);
    home.run(["up", "--config", "/nonexistent.toml", "--for", "1s"])
        .with_code(64)
        .says(&["/nonexistent.toml"]);
}

#[test]
fn a_path_too_long_for_a_socket_is_no_obstacle() {
    let home = Home::new();
    let deep = home.path().join("d".repeat(100));
    let fleet = home
        .run([
            "up",
            "--listen",
            "127.0.0.1:0",
            "--state-dir",
            deep.to_str().unwrap(),
            "--for",
            "3s",
            "-o",
            "json",
        ])
        .with_code(0)
        .json();
    assert_eq!(fleet["nodes"].as_array().unwrap().len(), 1);
}
