//! `outrider check` and `outrider facts` look by themselves, or by `outrider-agent`, as in the node's package: what people see is
//! the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::process::{Command, Output};

use outrider_tests::programs::program;
use serde_json::Value;

fn outrider(arguments: &[&str], by: Option<&str>) -> Output {
    let mut command = Command::new(program("outrider").expect("outrider"));
    command.args(arguments).env_remove("OUTRIDER_AGENT");
    match by {
        Some("beside") => command.env("OUTRIDER_AGENT", program("outrider-agent").expect("outrider-agent")),
        Some(other) => command.env("OUTRIDER_AGENT", other),
        None => &mut command,
    };
    command.output().expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What was judged, without what differs between two moments.
fn judged(output: &Output) -> BTreeSet<(String, String, String)> {
    let verdict: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let conditions = verdict["conditions"].as_array().expect("conditions");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions.iter().map(|c| (text(&c["type"]), text(&c["subject"]), text(&c["reason"]))).collect()
}

#[test]
fn both_ways_judge_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, "[node]\nname = \"here\"\nnmae = 1\n").expect("a file");
    let file = file.to_str().expect("a path");
    let arguments = ["check", "--config", file, "--only", "host,clock,certificates", "-o", "json"];
    let (own, other) = (outrider(&arguments, None), outrider(&arguments, Some("beside")));
    assert_eq!(own.status.code(), other.status.code());
    assert_eq!(judged(&own), judged(&other));
    assert!(!judged(&own).is_empty());
    assert!(said(&own).contains("nmae"), "{}", said(&own));
    assert_eq!(said(&own), said(&other), "problems of the configuration are told");
}

#[test]
fn facts_are_those_that_were_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("agent.toml");
    std::fs::write(&file, "").expect("a file");
    let arguments = ["facts", "--config", file.to_str().expect("a path"), "--only", "host"];
    for by in [None, Some("beside")] {
        let output = outrider(&arguments, by);
        let facts: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let checks: Vec<&String> = facts["checks"].as_object().expect("checks").keys().collect();
        assert_eq!(checks, ["host"], "{by:?}: {}", said(&output));
    }
}

#[test]
fn a_wrong_use_is_one_both_ways() {
    for by in [None, Some("beside")] {
        let output = outrider(&["check", "--config", "/nowhere/agent.toml"], by);
        assert_eq!(output.status.code(), Some(3), "{by:?}");
        assert!(said(&output).contains("there is no file /nowhere/agent.toml"), "{by:?}: {}", said(&output));
    }
}

#[test]
fn what_cannot_look_is_named() {
    let gone = outrider(&["check", "--config", "/dev/null"], Some("/nowhere/outrider-agent"));
    assert_eq!(gone.status.code(), Some(3));
    assert!(said(&gone).contains("/nowhere/outrider-agent") && said(&gone).contains("OUTRIDER_AGENT"));
    let ended = outrider(&["check", "--config", "/dev/null"], Some("/bin/false"));
    assert!(
        said(&ended).contains("/bin/false could not look at this machine (exit status: 1)"),
        "{}",
        said(&ended)
    );
    let silent = outrider(&["check", "--config", "/dev/null"], Some("/bin/true"));
    assert!(said(&silent).contains("makes no sense to this version"), "{}", said(&silent));
    assert_eq!(silent.status.code(), Some(3));
}
