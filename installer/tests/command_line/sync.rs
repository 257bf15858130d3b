//! `outrider sync`: files in, answers out, nothing else.

use serde_json::Value;

use crate::support::{Ended, Home};

fn example(name: &str) -> String {
    format!("{}/../docs/hosted-clusters/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn explain(more: &[&str]) -> Ended {
    let (cluster, upstream) = (example("cluster.yaml"), example("upstream.yaml"));
    let mut args =
        vec!["sync", "explain", "-f", &cluster, "--upstream", &upstream, "--at", "2026-11-29T11:02:00Z"];
    args.extend(more);
    Home::new().run(args)
}

fn field<'a>(answer: &'a Value, path: &str) -> &'a Value {
    let fields = answer["fields"].as_array().unwrap();
    fields.iter().find(|f| f["path"] == path).unwrap_or_else(|| panic!("no {path} in {fields:?}"))
}

#[test]
fn a_cluster_is_explained_field_by_field() {
    let answer = explain(&["-o", "json"]).with_code(0).json();
    assert_eq!(
        (&answer["kind"], &answer["cluster"], &answer["provider"]),
        (&"SyncExplanation".into(), &"shop".into(), &"EKS".into())
    );
    let access = field(&answer, "privateAccess");
    for key in
        ["path", "desired", "upstream", "effective", "managed", "owner", "refresh", "push", "risk", "reason"]
    {
        assert!(access.get(key).is_some(), "{key} is not in {access}");
    }
    assert_eq!(
        (&access["risk"], &access["push"], &access["owner"]),
        (&"AT RISK".into(), &"hold".into(), &"cloud".into())
    );
    assert!(access["reason"].as_str().unwrap().contains(answer["nextRefresh"].as_str().unwrap()));
    assert_eq!(field(&answer, "kubernetesVersion")["risk"], "ADOPTED");
    assert_eq!(field(&answer, "loggingTypes")["managed"], false);
    assert_eq!(field(&answer, "nodeGroups/batch")["push"], "hold");
    let rancher = explain(&["-o", "json", "--as", "rancher"]).with_code(0).json();
    assert_eq!(field(&rancher, "nodeGroups/batch")["push"], "delete");
    assert_eq!(field(&rancher, "publicAccessSources")["refresh"], "rewrite");
}

#[test]
fn the_table_says_why_wherever_something_may_be_lost() {
    let table = explain(&[]).with_code(0).out;
    assert!(table.contains("the next is due at 2026-11-29T11:05:00Z, in 3m"), "{table}");
    assert!(table.contains("added in the cloud") && table.contains("RISK"), "{table}");
    assert!(table.contains("1 field that the configuration does not manage is not shown"), "{table}");
    assert!(explain(&["-o", "wide"]).with_code(0).out.contains("loggingTypes"));
    assert!(explain(&["-o", "name"]).with_code(0).out.contains("shop/nodeGroups/batch\n"));
}

#[test]
fn a_plan_tells_what_is_held_and_what_a_confirmation_would_do() {
    let home = Home::new();
    let (cluster, upstream) = (example("cluster.yaml"), example("upstream.yaml"));
    let base = ["sync", "plan", "-f", &cluster, "--upstream", &upstream];
    let plan = |more: &[&str]| home.run(base.iter().copied().chain(more.iter().copied()).collect::<Vec<_>>());
    let held = plan(&["-o", "json"]).with_code(0).json();
    assert_eq!(held["writes"].as_array().unwrap().len(), 0);
    let why: Vec<&str> =
        held["held"].as_array().unwrap().iter().map(|h| h["hold"].as_str().unwrap()).collect();
    assert_eq!(why, ["VersionLower", "WouldLose", "Destructive"]);
    let confirmed = plan(&["--confirm", "nodeGroups/batch", "-o", "name"]).with_code(0);
    assert_eq!(confirmed.out, "shop/nodeGroups/batch\n");
    plan(&["--confirm", "nodeGroups/other"])
        .with_code(64)
        .says(&["nodeGroups/other", "it writes kubernetesVersion"]);
    let rancher = plan(&["--as", "rancher"]).with_code(0).out;
    assert!(rancher.contains("delete  nodeGroups/batch"), "{rancher}");
}

#[test]
fn the_documented_race_is_played() {
    let home = Home::new();
    let played = home.run(["sync", "simulate", &example("timeline.yaml"), "-o", "json"]).with_code(0).json();
    let console = &played["events"][0];
    assert_eq!(
        (&console["rancher"]["verdict"], &console["outrider"]["verdict"]),
        (&"LOST".into(), &"WOULD LOSE".into())
    );
    assert_eq!(
        (&console["rancher"]["inCloudAtEnd"], &console["outrider"]["inCloudAtEnd"]),
        (&false.into(), &true.into())
    );
    let table = home.run(["sync", "simulate", &example("timeline.yaml")]).with_code(0).out;
    assert!(
        table.contains("the edit of tags at 11:03:00") && table.contains("1 of 2 writes lost"),
        "{table}"
    );
}

#[test]
fn what_cannot_be_used_is_refused_in_words_that_help() {
    let home = Home::new();
    let explain = |input: &str| home.run_with_input(["sync", "explain", "-f", "-"], input.as_bytes());
    for (input, words) in [
        ("", ["standard input is empty", ""]),
        ("kind: Node\n", ["kind is \"Node\"", "kubectl get clusters.management.cattle.io"]),
        ("a: [", ["is not one YAML document", "line 1"]),
        ("{\"kind\": ", ["is not JSON", "line 1"]),
        ("kind: EKSClusterConfig\nspec: 3\n", ["spec is a number", "expected an object"]),
        ("kind: A\n---\nkind: B\n", ["is not one YAML document", ""]),
    ] {
        explain(input).with_code(1).says(&words);
    }
    home.run(["sync", "explain", "-f", "/dev/null"]).with_code(1).says(&["it is a device"]);
    home.run(["sync", "explain", "-f", "-", "--upstream", "-"]).with_code(64).says(&["not both"]);
    home.run(["sync", "plan", "-f", "-"]).with_code(1);
    let config = "kind: EKSClusterConfig\nmetadata: {name: c-1}\nspec: {privateAccess: true}\n";
    home.run_with_input(["sync", "plan", "-f", "-"], config.as_bytes())
        .with_code(1)
        .says(&["--upstream FILE"]);
    home.run_with_input(["sync", "simulate", "-"], b"provider: EKS\n")
        .with_code(1)
        .says(&["desired is missing"]);
}
