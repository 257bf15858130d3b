//! Rows R1 to R11 of `cases/hosted-sync-edges.md`, played.

use serde_json::json;

use super::*;

fn play(timeline: Value) -> Simulation {
    simulate(&scenario::read(&timeline, None).unwrap())
}

/// The documented cluster: access is private = false, refreshes at 11:00, 11:05 and so on; `events` happen.
fn documented(events: Value) -> Value {
    json!({
        "provider": "EKS", "firstRefresh": "11:00", "until": "11:20",
        "desired": {"privateAccess": false, "publicAccess": true, "tags": {"a": "1"}},
        "events": events,
    })
}

fn console(start: &str, end: &str) -> Value {
    json!({"source": "console", "start": start, "end": end, "field": "privateAccess", "value": true})
}

fn tags(at: &str) -> Value {
    json!({"source": "rancher", "start": at, "field": "tags", "value": {"a": "2"}})
}

/// Verdicts of Rancher and ours on the write of `field` by `source`.
fn fates(simulation: &Simulation, source: &str, field: &str) -> [(&'static str, bool); 2] {
    let found =
        |o: &&Outcome| o.event.source == source && o.event.change.as_ref().is_some_and(|(f, _)| f == field);
    let outcome = simulation.writes.iter().find(found).unwrap();
    [&outcome.rancher, &outcome.outrider].map(|fate| {
        assert!(!fate.reason.is_empty(), "{outcome:?}");
        (fate.risk.as_str(), fate.in_cloud)
    })
}

#[test]
fn r1_the_documented_example() {
    let s = play(documented(json!([console("11:01", "11:01"), tags("11:03")])));
    assert_eq!(fates(&s, "console", "privateAccess"), [("LOST", false), ("WOULD LOSE", true)]);
    assert_eq!(fates(&s, "rancher", "tags"), [("SAFE", true), ("SAFE", true)]);
    let reason = &s.writes[0].rancher.reason;
    assert!(
        reason.contains(
            "the edit of tags at 11:03:00 pushed the whole configuration, before the refresh at 11:05:00"
        ),
        "{reason}"
    );
}

#[test]
fn r2_not_managed_is_safe() {
    let mut timeline = documented(json!([console("11:01", "11:01"), tags("11:03")]));
    timeline["desired"]["privateAccess"] = json!(null);
    timeline["desired"]["publicAccess"] = json!(null);
    let s = play(timeline);
    assert_eq!(fates(&s, "console", "privateAccess"), [("SAFE", true), ("SAFE", true)]);
}

#[test]
fn r3_after_the_refresh_it_is_adopted() {
    let s = play(documented(json!([console("11:01", "11:01"), tags("11:06")])));
    assert_eq!(fates(&s, "console", "privateAccess"), [("ADOPTED", true), ("ADOPTED", true)]);
    assert!(s.writes[0].rancher.reason.contains("11:05:00"));
}

#[test]
fn r4_an_edit_while_the_cloud_is_at_work() {
    let s = play(documented(json!([console("10:59", "11:01"), tags("11:00:30")])));
    assert_eq!(fates(&s, "console", "privateAccess"), [("LOST", false), ("WOULD LOSE", true)]);
    assert_eq!(fates(&s, "rancher", "tags"), [("SAFE", true), ("SAFE", true)]);
}

#[test]
fn r5_r6_without_an_edit() {
    let mut early = documented(json!([console("11:01", "11:01")]));
    early["until"] = json!("11:03");
    let s = play(early);
    assert_eq!(fates(&s, "console", "privateAccess")[0], ("AT RISK", true));
    let s = play(documented(json!([console("11:01", "11:01")])));
    assert_eq!(fates(&s, "console", "privateAccess"), [("ADOPTED", true), ("ADOPTED", true)]);
}

#[test]
fn r7_an_edit_on_purpose() {
    let edit = json!({"source": "rancher", "start": "11:03", "field": "privateAccess", "value": false});
    let s = play(documented(json!([console("11:01", "11:01"), edit])));
    assert_eq!(fates(&s, "console", "privateAccess")[0], ("SUPERSEDED", false));
}

#[test]
fn r8_a_restart_is_a_push() {
    let s = play(documented(json!([console("11:01", "11:01"), {"source": "restart", "start": "11:03"}])));
    assert_eq!(fates(&s, "console", "privateAccess"), [("LOST", false), ("WOULD LOSE", true)]);
    assert!(s.writes[0].rancher.reason.contains("the restart at 11:03:00"));
}

#[test]
fn r9_a_form_that_never_saw_the_new_pool() {
    let pools = |names: &[&str]| json!(names.iter().map(|n| json!({"nodegroupName": n})).collect::<Vec<_>>());
    let s = play(json!({
        "provider": "EKS", "firstRefresh": "11:00", "until": "11:20", "desired": {"nodeGroups": pools(&["n1"])},
        "events": [
            {"source": "console", "start": "11:01", "field": "nodeGroups", "value": pools(&["n1", "n2"])},
            {"source": "rancher", "start": "10:58", "end": "11:03", "field": "nodeGroups", "value": pools(&["n1"])},
        ],
    }));
    assert_eq!(fates(&s, "console", "nodeGroups"), [("LOST", false), ("WOULD LOSE", true)]);
    let reason = &s.writes[0].rancher.reason;
    assert!(reason.contains("opened at 10:58:00") && reason.contains("what it added is removed"), "{reason}");
}

#[test]
fn r10_an_edit_that_is_read_back_too_early() {
    let edit = json!({"source": "rancher", "start": "11:04:45", "visible": "11:05:30", "field": "privateAccess", "value": true});
    let s = play(documented(json!([edit])));
    assert_eq!(fates(&s, "rancher", "privateAccess"), [("LOST", false), ("SAFE", true)]);
    assert!(s.refreshes.contains(&(39_900, true, false)), "{:?}", s.refreshes);
}

#[test]
fn r11_the_cloud_comes_after() {
    let edit = json!({"source": "rancher", "start": "11:01", "field": "privateAccess", "value": true});
    let back = json!({"source": "console", "start": "11:03", "field": "privateAccess", "value": false});
    let s = play(documented(json!([edit, back])));
    assert_eq!(fates(&s, "rancher", "privateAccess")[0], ("SUPERSEDED", false));
    assert_eq!(fates(&s, "console", "privateAccess"), [("ADOPTED", true), ("ADOPTED", true)]);
}

#[test]
fn an_imported_cluster_rolls_back_once_it_was_edited_through_rancher() {
    let timeline = |events| {
        json!({
            "provider": "EKS", "origin": "imported", "firstRefresh": "11:00", "until": "11:30",
            "desired": {"imported": true, "loggingTypes": null}, "upstream": {"imported": true, "loggingTypes": []},
            "events": events,
        })
    };
    let edit = json!({"source": "rancher", "start": "11:01", "field": "loggingTypes", "value": ["api"]});
    let console =
        json!({"source": "console", "start": "11:12", "field": "loggingTypes", "value": ["api", "audit"]});
    let s = play(timeline(json!([edit, console])));
    assert_eq!(fates(&s, "console", "loggingTypes")[0], ("ROLLED BACK", false));
    assert!(s.writes[1].rancher.reason.contains("edited through Rancher at 11:01:00"));
    let s = play(timeline(json!([console])));
    assert_eq!(fates(&s, "console", "loggingTypes")[0], ("SAFE", true));
}

/// H1: nobody sends a lower version to EKS, so the window does not lose it.
#[test]
fn a_version_raised_in_the_console_survives_an_edit() {
    let s = play(json!({
        "provider": "EKS", "firstRefresh": "11:00", "until": "11:20",
        "desired": {"kubernetesVersion": "1.30", "tags": {}},
        "events": [
            {"source": "console", "start": "11:01", "end": "11:02", "field": "kubernetesVersion", "value": "1.31"},
            {"source": "rancher", "start": "11:03", "field": "tags", "value": {"a": "1"}},
        ],
    }));
    let [rancher, ours] = fates(&s, "console", "kubernetesVersion");
    assert_eq!(rancher, ("ADOPTED", true));
    assert!(ours.1);
}
