//! One object at a time; times of day stand for themselves: 11:00 is 39,600 s.

use serde_json::json;

use super::*;
use crate::hosted::object::{LAST_REFRESH, read};

const ELEVEN: i64 = 11 * 3600;

struct Case {
    object: Value,
    live: Option<Value>,
    now: i64,
    rules: Rules,
}

/// A created EKS cluster whose S was applied and whose last refresh was at 11:00; it is 11:02.
fn eks(spec: Value, upstream: Value) -> Case {
    cluster("eks", spec, upstream)
}

fn cluster(provider: &str, spec: Value, upstream: Value) -> Case {
    Case {
        object: json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster",
            "metadata": {"name": "c-1", "annotations": {LAST_REFRESH: ELEVEN.to_string()}},
            "spec": {format!("{provider}Config"): spec},
            "status": {
                "appliedSpec": {format!("{provider}Config"): spec},
                format!("{provider}Status"): {"upstreamSpec": upstream},
                "conditions": [{"type": "Updated", "status": "True"}],
            },
        }),
        live: None,
        now: ELEVEN + 120,
        rules: Rules::Outrider,
    }
}

impl Case {
    fn rancher(mut self) -> Self {
        self.rules = Rules::Rancher;
        self
    }

    fn live(mut self, live: Value) -> Self {
        self.live = Some(live);
        self
    }

    fn applied(mut self, applied: Value) -> Self {
        let key = self.object["spec"].as_object().unwrap().keys().next().unwrap().clone();
        self.object["status"]["appliedSpec"][key] = applied;
        self
    }

    fn without_annotation(mut self) -> Self {
        self.object["metadata"] = json!({"name": "c-1"});
        self
    }

    fn updating(mut self) -> Self {
        self.object["status"]["conditions"][0] =
            json!({"type": "Updated", "status": "Unknown", "message": ""});
        self
    }

    fn explain(&self) -> Explanation {
        let hosted = read(&self.object).unwrap();
        explain(&Question {
            hosted: &hosted,
            live: self.live.as_ref().map(|l| l.as_object().unwrap()),
            now: self.now,
            interval: DEFAULT_INTERVAL_SECONDS,
            rules: self.rules,
        })
    }

    fn row(&self, path: &str) -> Row {
        let rows = self.explain().rows;
        let paths: Vec<String> = rows.iter().map(|r| r.path.clone()).collect();
        rows.into_iter().find(|r| r.path == path).unwrap_or_else(|| panic!("{path} is not among {paths:?}"))
    }

    /// Owner, refresh, push, risk.
    fn words(&self, path: &str) -> [&'static str; 4] {
        let row = self.row(path);
        assert!(!row.reason.is_empty(), "{row:?}");
        [row.owner.as_str(), row.refresh.as_str(), row.push.as_str(), row.risk.as_str()]
    }
}

/// TC09 and its variants.
#[test]
fn a_version_that_is_ahead_in_the_cloud_is_never_written_back() {
    let ahead = || eks(json!({"kubernetesVersion": "1.25"}), json!({"kubernetesVersion": "1.26"}));
    assert_eq!(ahead().words("kubernetesVersion"), ["cloud", "adopt", "hold", "ADOPTED"]);
    let reason = ahead().row("kubernetesVersion").reason;
    assert!(
        reason.contains("changed in the cloud") && reason.contains("cannot go back; adopt \"1.26\""),
        "{reason}"
    );
    assert_eq!(ahead().rancher().words("kubernetesVersion"), ["cloud", "adopt", "nothing", "ADOPTED"]);
    let aks =
        cluster("aks", json!({"kubernetesVersion": "1.25"}), json!({"kubernetesVersion": "1.26"})).rancher();
    assert_eq!(aks.words("kubernetesVersion"), ["cloud", "adopt", "update", "AT RISK"]);
    // a: edited by a user a minute ago, the update is running.
    let a = eks(json!({"kubernetesVersion": "1.26"}), json!({"kubernetesVersion": "1.25"}))
        .applied(json!({"kubernetesVersion": "1.25"}))
        .updating();
    assert_eq!(a.words("kubernetesVersion"), ["rancher", "wait", "update", "SAFE"]);
    // b: not managed.
    let b = eks(json!({"kubernetesVersion": null}), json!({"kubernetesVersion": "1.26"}));
    assert_eq!(b.words("kubernetesVersion"), ["cloud", "nothing", "nothing", "SAFE"]);
    assert_eq!(b.row("kubernetesVersion").effective, json!("1.26"));
    // c: compared as versions.
    let c = eks(json!({"kubernetesVersion": "1.30"}), json!({"kubernetesVersion": "1.9"}))
        .applied(json!({"kubernetesVersion": "1.9"}));
    assert_eq!(c.words("kubernetesVersion"), ["rancher", "wait", "update", "SAFE"]);
}

#[test]
fn a_console_edit_is_at_risk_until_the_next_refresh() {
    let case = eks(json!({"privateAccess": false}), json!({"privateAccess": false}))
        .live(json!({"privateAccess": true}));
    assert_eq!(case.words("privateAccess"), ["cloud", "adopt", "hold", "AT RISK"]);
    let reason = case.row("privateAccess").reason;
    assert!(reason.contains("due at 1970-01-01T11:05:00Z undoes it"), "{reason}");
    assert_eq!(case.explain().next_refresh, Some(ELEVEN + 300));
    let unmanaged = eks(json!({"privateAccess": null}), json!({"privateAccess": true}));
    assert_eq!(unmanaged.words("privateAccess"), ["cloud", "nothing", "nothing", "SAFE"]);
}

/// Edge 8: tags edited here, access changed there.
#[test]
fn a_push_that_is_due_would_lose_what_it_does_not_know_of() {
    let case = || {
        eks(
            json!({"tags": {"b": "2"}, "privateAccess": false}),
            json!({"tags": {"b": "1"}, "privateAccess": true}),
        )
        .applied(json!({"tags": {"b": "1"}, "privateAccess": false}))
    };
    assert_eq!(case().words("privateAccess"), ["cloud", "wait", "hold", "WOULD LOSE"]);
    assert_eq!(case().words("tags"), ["rancher", "wait", "update", "SAFE"]);
    assert_eq!(case().rancher().words("privateAccess"), ["cloud", "wait", "update", "LOST"]);
    assert_eq!(case().explain().gate.as_deref(), Some("the configuration was edited and is not yet applied"));
    let both = eks(json!({"privateAccess": true}), json!({"privateAccess": false}))
        .applied(json!({"privateAccess": null}));
    assert_eq!(both.words("privateAccess")[3], "SUPERSEDED");
}

#[test]
fn one_object_proves_no_more_than_it_holds() {
    let case = || {
        eks(json!({"privateAccess": false, "tags": {}}), json!({"privateAccess": true, "tags": {}}))
            .without_annotation()
    };
    for path in ["privateAccess", "tags"] {
        let [owner, _, _, risk] = case().words(path);
        assert_eq!((owner, risk), ("Unknown", "Unknown"), "{path}");
        assert!(case().row(path).reason.contains("ke-last-refresh"), "{path}");
    }
    let never = eks(json!({"privateAccess": false}), json!({"privateAccess": true})).applied(json!(null));
    assert_eq!(never.words("privateAccess"), ["Unknown", "wait", "hold", "Unknown"]);
    assert!(never.row("privateAccess").reason.contains("never applied"));
    let alone = Case {
        object: json!({"kind": "EKSClusterConfig", "metadata": {"name": "c-1"}, "spec": {"privateAccess": false}}),
        live: None,
        now: 0,
        rules: Rules::Outrider,
    };
    assert_eq!(alone.words("privateAccess"), ["Unknown", "Unknown", "Unknown", "Unknown"]);
    assert!(alone.row("privateAccess").reason.contains("--upstream FILE"));
}

/// rancher-docs `sync-clusters.md`: after an edit through Rancher, an imported cluster's configuration is what counts.
#[test]
fn an_imported_clusters_console_edit_is_rolled_back() {
    let case = || {
        eks(
            json!({"imported": true, "loggingTypes": ["api"], "tags": null}),
            json!({"imported": true, "loggingTypes": ["api", "audit"], "tags": {"a": "1"}}),
        )
    };
    assert_eq!(case().words("loggingTypes"), ["rancher", "adopt", "hold", "ROLLED BACK"]);
    assert_eq!(case().rancher().words("loggingTypes"), ["rancher", "nothing", "update", "ROLLED BACK"]);
    assert_eq!(case().words("tags"), ["cloud", "nothing", "nothing", "SAFE"]);
    assert_eq!(case().words("imported"), ["rancher", "nothing", "nothing", "SAFE"]);
}

#[test]
fn unreadable_is_not_null() {
    let case = || {
        cluster(
            "aks",
            json!({"virtualNetwork": "v", "nodeResourceGroup": "g"}),
            json!({"virtualNetwork": null}),
        )
    };
    assert_eq!(case().words("virtualNetwork"), ["rancher", "keep", "nothing", "Unknown"]);
    assert_eq!(case().rancher().words("virtualNetwork"), ["rancher", "unmanage", "nothing", "AT RISK"]);
    assert_eq!(case().rancher().words("nodeResourceGroup"), ["rancher", "keep", "nothing", "Unknown"]);
    let monitoring = cluster("aks", json!({"monitoring": false}), json!({"dnsPrefix": "x"}));
    assert_eq!(monitoring.words("monitoring"), ["rancher", "nothing", "nothing", "SAFE"]);
}

#[test]
fn a_reordered_list_is_rewritten_by_rancher_alone() {
    let case = || eks(json!({"loggingTypes": ["api", "audit"]}), json!({"loggingTypes": ["audit", "api"]}));
    assert_eq!(case().words("loggingTypes"), ["rancher", "nothing", "nothing", "SAFE"]);
    assert_eq!(case().rancher().words("loggingTypes"), ["rancher", "rewrite", "nothing", "SAFE"]);
}

#[test]
fn every_pool_has_a_row_of_its_own() {
    let pool = |name: &str, max: i64| json!({"nodegroupName": name, "maxSize": max});
    let case = || {
        eks(
            json!({"nodeGroups": [pool("n1", 3), pool("gone", 1)]}),
            json!({"nodeGroups": [pool("n1", 5), pool("n2", 1)]}),
        )
    };
    assert_eq!(case().words("nodeGroups/n1"), ["cloud", "adopt", "hold", "AT RISK"]);
    assert_eq!(case().words("nodeGroups/n2"), ["cloud", "adopt", "hold", "AT RISK"]);
    assert_eq!(case().words("nodeGroups/gone"), ["cloud", "adopt", "hold", "AT RISK"]);
    assert_eq!(case().words("nodeGroups"), ["cloud", "adopt", "hold", "AT RISK"]);
    let r = case().rancher();
    assert_eq!(
        ["n1", "n2", "gone"].map(|n| r.words(&format!("nodeGroups/{n}"))[2]),
        ["update", "delete", "create"]
    );
    let reason = case().row("nodeGroups").reason;
    assert!(reason.contains("only desired: gone; only in the cloud: n2; 1 differ"), "{reason}");
    let left = eks(json!({"nodeGroups": null}), json!({"nodeGroups": [pool("a", 1)]}));
    assert_eq!(left.words("nodeGroups/a"), ["cloud", "nothing", "nothing", "SAFE"]);
    let all = eks(json!({"nodeGroups": []}), json!({"nodeGroups": [pool("a", 1)]})).rancher();
    assert_eq!(all.words("nodeGroups/a"), ["cloud", "adopt", "delete", "AT RISK"]);
}

#[test]
fn what_cannot_be_used_is_held_and_named() {
    let two = json!([{"nodegroupName": "a"}, {"nodegroupName": "a"}]);
    let case = eks(
        json!({"nodeGroups": two, "privateAccess": "yes", "newIn2030": 1}),
        json!({"privateAccess": true}),
    );
    assert_eq!(case.words("nodeGroups"), ["Unknown", "nothing", "hold", "Unknown"]);
    assert!(case.row("nodeGroups").reason.contains("two pools are named \"a\""));
    assert!(case.row("privateAccess").reason.contains("the text \"yes\"; expected true or false"));
    assert_eq!(case.words("newIn2030"), ["Unknown", "nothing", "nothing", "Unknown"]);
}
