use serde_json::json;

use super::*;

struct Case {
    provider: Provider,
    spec: Document,
    live: Document,
    in_progress: bool,
    edited: BTreeMap<String, Value>,
    base: Option<Document>,
    confirmed: BTreeSet<String>,
    last_push: Option<Document>,
}

fn doc(value: Value) -> Document {
    value.as_object().unwrap().clone()
}

fn case(provider: Provider, spec: Value, live: Value) -> Case {
    Case {
        provider,
        spec: doc(spec),
        live: doc(live),
        in_progress: false,
        edited: BTreeMap::new(),
        base: None,
        confirmed: BTreeSet::new(),
        last_push: None,
    }
}

impl Case {
    fn edited(mut self, field: &str, seen: Value) -> Self {
        self.edited.insert(field.to_owned(), seen);
        self
    }

    fn confirm(mut self, path: &str) -> Self {
        self.confirmed.insert(path.to_owned());
        self
    }

    fn plan(&self) -> Plan {
        plan(&Input {
            provider: self.provider,
            spec: &self.spec,
            live: &self.live,
            in_progress: self.in_progress,
            edited: &self.edited,
            base: self.base.as_ref(),
            confirmed: &self.confirmed,
            last_push: self.last_push.as_ref(),
        })
    }

    /// Paths that are sent, and paths that are held with the reason's kind.
    fn outcome(&self) -> (Vec<String>, Vec<(String, Hold)>) {
        let plan = self.plan();
        let held = plan.held.into_iter().map(|h| (h.write.path, h.hold)).collect();
        (plan.writes.into_iter().map(|w| w.path).collect(), held)
    }
}

fn sent(paths: &[&str]) -> (Vec<String>, Vec<(String, Hold)>) {
    (paths.iter().map(|p| (*p).to_owned()).collect(), Vec::new())
}

fn held(path: &str, hold: Hold) -> (Vec<String>, Vec<(String, Hold)>) {
    (Vec::new(), vec![(path.to_owned(), hold)])
}

use Provider::{Aks, Eks, Gke};

#[test]
fn what_differs_and_was_edited_is_sent() {
    let c = case(Eks, json!({"loggingTypes": ["api"]}), json!({"loggingTypes": []}));
    assert_eq!(c.edited("loggingTypes", json!([])).outcome(), sent(&["loggingTypes"]));
}

#[test]
fn null_is_never_sent_and_unreadable_is_no_difference() {
    let c = case(
        Aks,
        json!({"authorizedIpRanges": null, "dnsPrefix": "a"}),
        json!({"authorizedIpRanges": ["192.0.2.0/24"], "dnsPrefix": null}),
    );
    assert_eq!(c.outcome(), sent(&[]));
}

/// Case TC09 and its variants.
#[test]
fn versions_never_go_back() {
    let drift = case(Eks, json!({"kubernetesVersion": "1.25"}), json!({"kubernetesVersion": "1.26"}));
    assert_eq!(drift.outcome(), held("kubernetesVersion", Hold::VersionLower));
    assert!(drift.plan().held[0].reason.contains("adopt \"1.26\""));
    assert_eq!(drift.confirm("kubernetesVersion").outcome(), held("kubernetesVersion", Hold::VersionLower));
    let mut running = case(Eks, json!({"kubernetesVersion": "1.26"}), json!({"kubernetesVersion": "1.25"}))
        .edited("kubernetesVersion", json!("1.25"));
    assert_eq!(running.outcome(), sent(&["kubernetesVersion"]));
    running.in_progress = true;
    assert!(running.plan().requeue && running.outcome() == sent(&[]));
    let unmanaged = case(Eks, json!({"kubernetesVersion": null}), json!({"kubernetesVersion": "1.26"}));
    assert_eq!(unmanaged.outcome(), sent(&[]));
    let ahead = case(Gke, json!({"kubernetesVersion": "1.30"}), json!({"kubernetesVersion": "1.9"}));
    assert_eq!(ahead.edited("kubernetesVersion", json!("1.9")).outcome(), sent(&["kubernetesVersion"]));
}

/// Rows R1, R2, R7 and R8 of `cases/hosted-sync-edges.md`, as our push sees them.
#[test]
fn a_second_writers_change_is_held() {
    let live = json!({"privateAccess": true, "publicAccess": true, "tags": {"a": "1"}});
    let spec = json!({"privateAccess": false, "publicAccess": false, "tags": {"a": "1", "b": "2"}});
    let mut r1 = case(Eks, spec, live).edited("tags", json!({"a": "1"})).edited("publicAccess", json!(true));
    r1.base = Some(doc(json!({"privateAccess": false, "publicAccess": true, "tags": {"a": "1"}})));
    let (sent_paths, held_paths) = r1.outcome();
    assert_eq!(sent_paths, ["tags"], "tags are not affected");
    let want = [("privateAccess", Hold::WouldLose), ("publicAccess", Hold::SentTogether)];
    assert_eq!(held_paths, want.map(|(p, h)| (p.to_owned(), h)), "one call sends both kinds of access");

    let live = || json!({"privateAccess": true});
    let r2 = case(Eks, json!({"privateAccess": null}), live());
    assert_eq!(r2.outcome(), sent(&[]));
    let r7 = case(Eks, json!({"privateAccess": false}), live()).edited("privateAccess", json!(false));
    assert_eq!(r7.outcome(), sent(&["privateAccess"]));
    assert_eq!(r7.plan().conflicts, [("privateAccess".to_owned(), json!(false), json!(true))]);
    let r8 = case(Eks, json!({"privateAccess": false}), live());
    assert_eq!(r8.outcome(), held("privateAccess", Hold::WouldLose));
}

#[test]
fn what_we_failed_to_write_before_is_written_and_a_loop_stops() {
    let mut c = case(Eks, json!({"ebsCSIDriver": true}), json!({"ebsCSIDriver": false}));
    c.base = Some(doc(json!({"ebsCSIDriver": false})));
    assert_eq!(c.outcome(), sent(&["ebsCSIDriver"]));
    c.last_push = Some(doc(json!({"ebsCSIDriver": true})));
    assert_eq!(c.outcome(), held("ebsCSIDriver", Hold::Loop));
}

/// Rows 12 and 13: absence from a list never means delete.
#[test]
fn deleting_a_pool_waits_for_its_name() {
    let live = json!({"nodeGroups": [{"nodegroupName": "n1"}, {"nodegroupName": "n2"}]});
    let c = case(Eks, json!({"nodeGroups": [{"nodegroupName": "n1"}]}), live.clone());
    assert_eq!(c.outcome(), held("nodeGroups/n2", Hold::Destructive));
    assert!(c.plan().held[0].reason.contains("nobody edited the list here"));
    assert_eq!(c.confirm("nodeGroups/n2").outcome(), sent(&["nodeGroups/n2"]));
    let all = case(Eks, json!({"nodeGroups": []}), live.clone()).confirm("nodeGroups/n1");
    assert_eq!(all.outcome().0, ["nodeGroups/n1"]);
    assert_eq!(all.outcome().1, [("nodeGroups/n2".to_owned(), Hold::Destructive)]);
    assert_eq!(case(Eks, json!({"nodeGroups": null}), live).outcome(), sent(&[]));
}

#[test]
fn the_last_system_pool_stays() {
    let live = json!({"nodePools": [{"name": "sys", "mode": "System"}, {"name": "u", "mode": "User"}]});
    let c = case(Aks, json!({"nodePools": [{"name": "u", "mode": "User"}]}), live).confirm("nodePools/sys");
    assert_eq!(c.outcome(), held("nodePools/sys", Hold::LastSystemPool));
}

#[test]
fn duplicate_pools_are_not_pushed() {
    let c = case(
        Gke,
        json!({"nodePools": [{"name": "a"}, {"name": "a"}]}),
        json!({"nodePools": [{"name": "a"}]}),
    );
    assert_eq!(c.outcome(), held("nodePools", Hold::Invalid));
}

#[test]
fn pools_follow_the_control_plane() {
    let live = json!({"kubernetesVersion": "1.29", "nodePools": [{"name": "a", "version": "1.29"}]});
    let c = case(Gke, json!({"kubernetesVersion": "1.30", "nodePools": [{"name": "a", "version": "1.30"}, {"name": "b", "version": "1.30"}]}), live)
        .edited("kubernetesVersion", json!("1.29"))
        .edited("nodePools", json!([{"name": "a", "version": "1.29"}]));
    let (writes, waiting) = c.outcome();
    assert_eq!(writes, ["kubernetesVersion"]);
    let want = [("nodePools/a", Hold::AfterControlPlane), ("nodePools/b", Hold::AfterControlPlane)];
    assert_eq!(waiting, want.map(|(p, h)| (p.to_owned(), h)));
}

#[test]
fn counts_of_pools_that_scale_themselves_are_never_sent() {
    let pool = |n: i64| json!({"nodePools": [{"name": "a", "count": n, "enableAutoScaling": true}]});
    assert_eq!(case(Aks, pool(3), pool(5)).edited("nodePools", json!([])).outcome(), sent(&[]));
}

#[test]
fn widening_waits_and_narrowing_goes() {
    for (provider, field, wide, narrow) in [
        (Eks, "publicAccess", json!(true), json!(false)),
        (Eks, "publicAccessSources", json!([]), json!(["192.0.2.0/24"])),
        (Eks, "publicAccessSources", json!(["192.0.2.0/24", "198.51.100.0/24"]), json!(["192.0.2.0/24"])),
        (Aks, "privateCluster", json!(false), json!(true)),
        (Aks, "authorizedIpRanges", json!(["0.0.0.0/0"]), json!(["192.0.2.7/32"])),
        (
            Gke,
            "masterAuthorizedNetworks",
            json!({"enabled": false}),
            json!({"enabled": true, "cidrBlocks": []}),
        ),
    ] {
        let go = |from: &Value, to: &Value| {
            case(provider, json!({field: to}), json!({field: from})).edited(field, from.clone())
        };
        assert_eq!(
            go(&narrow, &wide).outcome(),
            held(field, Hold::WidensAccess),
            "{field} {narrow} -> {wide}"
        );
        assert_eq!(go(&narrow, &wide).confirm(field).outcome(), sent(&[field]));
        assert_eq!(go(&wide, &narrow).outcome(), sent(&[field]), "{field} {wide} -> {narrow}");
    }
}

#[test]
fn removing_a_tag_waits() {
    let c =
        case(Aks, json!({"tags": {}}), json!({"tags": {"owner": "x"}})).edited("tags", json!({"owner": "x"}));
    assert_eq!(c.outcome(), held("tags", Hold::Destructive));
    assert_eq!(c.plan().held[0].reason, "removes owner from tags");
}

#[test]
fn what_cannot_be_changed_is_said() {
    let c = case(Eks, json!({"kmsKey": "b"}), json!({"kmsKey": "a"})).edited("kmsKey", json!("a"));
    assert_eq!(c.confirm("kmsKey").outcome(), held("kmsKey", Hold::Immutable));
}

/// rancher/rancher#28967: a pool deleted in the console must not come back by itself.
#[test]
fn a_pool_deleted_in_the_cloud_is_not_made_again_unasked() {
    let pool = |name: &str| json!({"nodegroupName": name});
    let list = |names: &[&str]| json!({"nodeGroups": names.iter().map(|n| pool(n)).collect::<Vec<_>>()});
    let deleted = || case(Provider::Eks, list(&["a", "b"]), list(&["a"]));
    let held = (vec![], vec![("nodeGroups/b".to_owned(), Hold::WouldLose)]);
    assert_eq!(deleted().outcome(), held);
    let was_there = deleted().edited("nodeGroups", list(&["b"])["nodeGroups"].clone());
    assert_eq!(was_there.outcome().1, [("nodeGroups/b".to_owned(), Hold::WouldLose)]);
    let created = deleted().edited("nodeGroups", list(&["a"])["nodeGroups"].clone());
    assert_eq!(created.outcome(), (vec!["nodeGroups/b".to_owned()], vec![]));
    assert_eq!(deleted().confirm("nodeGroups/b").outcome().0, ["nodeGroups/b"]);
}

#[test]
fn a_narrower_network_widens_nothing_and_a_switch_inside_an_object_counts() {
    let ranges = |list: &[&str]| json!({"authorizedIpRanges": list});
    let outcome = |provider, spec: Value, live: Value, field: &str| {
        case(provider, spec, live.clone()).edited(field, live[field].clone()).outcome().1
    };
    let held = |from: &[&str], to: &[&str]| {
        !outcome(Provider::Aks, ranges(to), ranges(from), "authorizedIpRanges").is_empty()
    };
    assert!(!held(&["192.0.2.0/24"], &["192.0.2.128/25"]));
    assert!(held(&["192.0.2.128/25"], &["192.0.2.0/24"]));
    assert!(held(&["192.0.2.0/24"], &["198.51.100.0/24"]));
    assert!(held(&["2001:db8::/64"], &["2001:db8::/48"]));
    assert!(!held(&["2001:db8::/48"], &["2001:db8::/64"]));
    assert!(held(&["192.0.2.0/24"], &["no network"]));
    let endpoint =
        |on: bool| json!({"privateClusterConfig": {"enablePrivateEndpoint": on, "enablePrivateNodes": true}});
    let opened = outcome(Provider::Gke, endpoint(false), endpoint(true), "privateClusterConfig");
    assert_eq!(opened, [("privateClusterConfig".to_owned(), Hold::WidensAccess)]);
    assert!(outcome(Provider::Gke, endpoint(true), endpoint(false), "privateClusterConfig").is_empty());
}
