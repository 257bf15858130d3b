//! Adopting upstream into managed fields, by our rules (`facts/hosted-sync.md`, section 3).
//!
//! A refresh never makes a field managed or unmanaged, never takes an unreadable value for null, and changes nothing
//! while an update is in flight. What is adopted, unreadable or about to be lost is recorded by field.

use serde_json::Value;

use super::compare::{equal, pools_by_name, same, same_document, scales_itself};
use super::fields::{Equality, Field, Trait};
use super::{Document, Provider, effective, known};

/// What the cloud answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// Its view, and whether it says that an update is under way.
    Read {
        /// U'.
        upstream: Document,
        /// The provider's own "in progress".
        in_progress: bool,
    },
    /// The read failed: U stays what it was.
    Failed(String),
}

/// Why S was left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// The read failed.
    ReadFailed(String),
    /// S was never applied: there is nothing to tell an edit from.
    NeverApplied,
    /// S was edited and is not yet applied.
    NotYetApplied,
    /// The cloud says an update is under way.
    UpdateInProgress,
}

/// What happened to a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// S took the cloud's value.
    Adopted {
        /// The field.
        field: String,
        /// S before.
        old: Value,
        /// The cloud's value, S now.
        new: Value,
        /// Pools that are managed from now on.
        new_pools: Vec<String>,
    },
    /// The cloud did not tell; S keeps its value. `field` may name a pool's field, as `nodePools/a/vmSize`.
    Unreadable {
        /// The field.
        field: String,
    },
    /// The next push would undo what somebody changed in the cloud.
    WouldLose {
        /// The field.
        field: String,
        /// The cloud's value.
        cloud: Value,
        /// What S would put in its place.
        ours: Value,
    },
    /// The field cannot be used as it is, such as two pools of one name.
    Invalid {
        /// The field.
        field: String,
        /// What is wrong.
        reason: String,
    },
}

/// S, U and A after a refresh, and what happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Refreshed {
    /// S after.
    pub spec: Document,
    /// U after.
    pub upstream: Document,
    /// A after.
    pub applied: Option<Document>,
    /// Why S was left alone; `None` when the gate was open.
    pub skipped: Option<Skipped>,
    /// What happened, by field.
    pub records: Vec<Record>,
}

/// One refresh. The caller writes S and U back by compare-and-swap and drops the result on a conflict.
pub fn refresh(
    provider: Provider,
    spec: &Document,
    upstream: &Document,
    applied: Option<&Document>,
    reading: &Reading,
) -> Refreshed {
    let mut out = Refreshed {
        spec: spec.clone(),
        upstream: upstream.clone(),
        applied: applied.cloned(),
        skipped: None,
        records: Vec::new(),
    };
    let (read, in_progress) = match reading {
        Reading::Failed(error) => {
            out.skipped = Some(Skipped::ReadFailed(error.clone()));
            return out;
        }
        Reading::Read { upstream, in_progress } => (upstream, *in_progress),
    };
    out.upstream = read.clone();
    out.skipped = gate(provider, spec, applied, in_progress);
    if out.skipped.is_some() {
        out.records = would_lose(provider, spec, applied, read);
        return out;
    }
    for field in provider.fields().iter().filter(|f| f.special != Trait::Identity) {
        adopt(provider, field, read, &mut out);
    }
    out.applied = Some(out.spec.clone());
    out
}

fn gate(
    provider: Provider,
    spec: &Document,
    applied: Option<&Document>,
    in_progress: bool,
) -> Option<Skipped> {
    match applied {
        None => Some(Skipped::NeverApplied),
        Some(applied) if !same_document(provider, spec, applied) => Some(Skipped::NotYetApplied),
        Some(_) if in_progress => Some(Skipped::UpdateInProgress),
        Some(_) => None,
    }
}

/// Managed fields that nobody edited on our side and that differ in the cloud: the push now under way loses them.
fn would_lose(
    provider: Provider,
    spec: &Document,
    applied: Option<&Document>,
    read: &Document,
) -> Vec<Record> {
    let Some(applied) = applied else { return Vec::new() };
    let unedited = provider.fields().iter().filter(|f| f.special != Trait::Identity);
    unedited
        .filter(|f| same(provider, f, spec, applied))
        .filter_map(|f| {
            let (ours, cloud) = (known(spec, f.name)?, known(read, f.name)?);
            (!equal(provider, f, ours, cloud)).then(|| Record::WouldLose {
                field: f.name.to_owned(),
                cloud: cloud.clone(),
                ours: ours.clone(),
            })
        })
        .collect()
}

fn adopt(provider: Provider, field: &Field, read: &Document, out: &mut Refreshed) {
    let Some(ours) = known(&out.spec, field.name) else { return };
    let Some(theirs) = known(read, field.name) else {
        // Absent stands for false where the provider means that; everywhere else nobody told us.
        if field.special != Trait::AbsentIsFalse || ours != &Value::Bool(false) {
            out.records.push(Record::Unreadable { field: field.name.to_owned() });
        }
        return;
    };
    if field.equality == Equality::Pools {
        let (ours, theirs) = (ours.clone(), theirs.clone());
        return adopt_pools(provider, field.name, &ours, &theirs, out);
    }
    if !equal(provider, field, ours, theirs) {
        let (old, new) = (ours.clone(), theirs.clone());
        out.spec.insert(field.name.to_owned(), new.clone());
        out.records.push(Record::Adopted { field: field.name.to_owned(), old, new, new_pools: Vec::new() });
    }
}

/// Takes over the cloud's list of pools. A field of a pool that the cloud does not tell keeps its managed value; one
/// that is null in S stays null; a count stays ours while the pool scales by itself.
fn adopt_pools(provider: Provider, name: &str, ours: &Value, theirs: &Value, out: &mut Refreshed) {
    let field = name.to_owned();
    let (mine, cloud) = match (pools_by_name(provider, ours), pools_by_name(provider, theirs)) {
        (Ok(mine), Ok(cloud)) => (mine, cloud),
        (Err(reason), _) => return out.records.push(Record::Invalid { field, reason }),
        (_, Err(reason)) => {
            return out.records.push(Record::Invalid { field, reason: format!("in the cloud: {reason}") });
        }
    };
    let mut new_pools = Vec::new();
    let mut list = Vec::new();
    for item in theirs.as_array().into_iter().flatten() {
        let pool_name = item.get(provider.pool_name()).and_then(Value::as_str).unwrap_or_default();
        let (Some(pool), Some(known_pool)) = (cloud.get(pool_name), mine.get(pool_name)) else {
            new_pools.push(pool_name.to_owned());
            list.push(item.clone());
            continue;
        };
        list.push(Value::Object(adopt_pool(provider, (name, pool_name), known_pool, pool, &mut out.records)));
    }
    let adopted = Value::Array(list);
    let changed = match provider.field(name) {
        Some(field) => !equal(provider, field, ours, &adopted),
        None => true,
    };
    if changed {
        out.spec.insert(field.clone(), adopted.clone());
        out.records.push(Record::Adopted { field, old: ours.clone(), new: adopted, new_pools });
    }
}

fn adopt_pool(
    provider: Provider,
    (list, name): (&str, &str),
    mine: &Document,
    cloud: &Document,
    records: &mut Vec<Record>,
) -> Document {
    // What counts is whether the pool scales itself afterwards: the cloud's switch, where it tells one.
    let scaling =
        scales_itself(provider, &effective(mine, cloud)) && scales_itself(provider, &effective(cloud, mine));
    let mut pool = mine.clone();
    for (key, value) in mine {
        let field = provider.pool_fields().iter().find(|f| f.name == key);
        if value.is_null() || (scaling && field.is_some_and(|f| f.special == Trait::Count)) {
            continue;
        }
        match known(cloud, key) {
            None => records.push(Record::Unreadable { field: format!("{list}/{name}/{key}") }),
            Some(theirs) if field.is_some_and(|f| equal(provider, f, value, theirs)) => {}
            Some(theirs) => {
                pool.insert(key.clone(), theirs.clone());
            }
        }
    }
    pool
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn doc(value: Value) -> Document {
        value.as_object().unwrap().clone()
    }

    fn open(provider: Provider, spec: Value, upstream: Value) -> Refreshed {
        let spec = doc(spec);
        let reading = Reading::Read { upstream: doc(upstream), in_progress: false };
        refresh(provider, &spec, &Document::new(), Some(&spec), &reading)
    }

    fn adopted(r: &Refreshed) -> Vec<&str> {
        let names = r.records.iter().filter_map(|r| match r {
            Record::Adopted { field, .. } => Some(field.as_str()),
            _ => None,
        });
        names.collect()
    }

    use Provider::{Aks, Eks, Gke};

    #[test]
    fn edge_1_a_managed_field_adopts() {
        let r = open(Eks, json!({"privateAccess": false}), json!({"privateAccess": true}));
        assert_eq!((r.spec["privateAccess"].clone(), adopted(&r)), (json!(true), vec!["privateAccess"]));
    }

    #[test]
    fn edge_2_null_stays_null_and_is_in_force_from_upstream() {
        let r = open(Eks, json!({"privateAccess": null}), json!({"privateAccess": true}));
        assert_eq!((r.spec["privateAccess"].clone(), r.records.len()), (json!(null), 0));
        assert_eq!(effective(&r.spec, &r.upstream)["privateAccess"], json!(true));
    }

    #[test]
    fn edges_3_to_5_empty_is_managed() {
        let r = open(Eks, json!({"loggingTypes": []}), json!({"loggingTypes": ["api", "audit"]}));
        assert_eq!(r.spec["loggingTypes"], json!(["api", "audit"]));
        let r = open(Eks, json!({"loggingTypes": null}), json!({"loggingTypes": ["api"]}));
        assert_eq!(r.spec["loggingTypes"], json!(null));
        let r = open(Eks, json!({"tags": {}}), json!({"tags": {"x": "1"}}));
        assert_eq!(r.spec["tags"], json!({"x": "1"}));
    }

    #[test]
    fn edges_6_and_7_unreadable_is_not_null() {
        for upstream in [json!({"virtualNetwork": null}), json!({})] {
            let r = open(Aks, json!({"virtualNetwork": "v"}), upstream);
            assert_eq!(r.spec["virtualNetwork"], json!("v"));
            assert_eq!(r.records, [Record::Unreadable { field: "virtualNetwork".to_owned() }]);
        }
        let r = open(Aks, json!({"nodeResourceGroup": "g"}), json!({}));
        assert_eq!((r.spec["nodeResourceGroup"].clone(), r.records.len()), (json!("g"), 1));
    }

    #[test]
    fn edge_8_a_closed_gate_warns_of_what_a_push_would_lose() {
        let spec = doc(json!({"tags": {"b": "2"}, "privateAccess": false}));
        let applied = doc(json!({"tags": {"b": "1"}, "privateAccess": false}));
        let read = doc(json!({"privateAccess": true, "tags": {"b": "1"}}));
        let reading = Reading::Read { upstream: read.clone(), in_progress: false };
        let r = refresh(Eks, &spec, &Document::new(), Some(&applied), &reading);
        assert_eq!((&r.spec, &r.upstream, r.skipped), (&spec, &read, Some(Skipped::NotYetApplied)));
        let lost =
            Record::WouldLose { field: "privateAccess".into(), cloud: json!(true), ours: json!(false) };
        assert_eq!(r.records, [lost]);
    }

    #[test]
    fn edges_9_and_10_no_churn() {
        for (spec, upstream) in [
            (json!({"loggingTypes": ["api", "audit"]}), json!({"loggingTypes": ["audit", "api"]})),
            (json!({"publicAccessSources": []}), json!({"publicAccessSources": ["0.0.0.0/0"]})),
        ] {
            let r = open(Eks, spec.clone(), upstream);
            assert_eq!((Value::Object(r.spec), r.records.len()), (spec, 0));
        }
    }

    #[test]
    fn edge_11_a_new_pool_becomes_managed_and_is_said() {
        let r = open(
            Eks,
            json!({"nodeGroups": [{"nodegroupName": "n1"}]}),
            json!({"nodeGroups": [{"nodegroupName": "n1"}, {"nodegroupName": "n2"}]}),
        );
        assert_eq!(r.spec["nodeGroups"].as_array().unwrap().len(), 2);
        assert!(matches!(&r.records[..], [Record::Adopted { new_pools, .. }] if new_pools == &["n2"]));
    }

    #[test]
    fn edge_14_a_pools_unreadable_field_keeps_its_value_and_the_rest_is_adopted() {
        let r = open(
            Eks,
            json!({"nodeGroups": [{"nodegroupName": "a", "gpu": false, "maxSize": 3, "diskSize": null}]}),
            json!({"nodeGroups": [{"nodegroupName": "a", "gpu": null, "maxSize": 5, "diskSize": 20}]}),
        );
        let want = json!([{"nodegroupName": "a", "gpu": false, "maxSize": 5, "diskSize": null}]);
        assert_eq!(r.spec["nodeGroups"], want);
        assert!(r.records.contains(&Record::Unreadable { field: "nodeGroups/a/gpu".to_owned() }));
        assert_eq!(adopted(&r), ["nodeGroups"]);
    }

    #[test]
    fn edge_15_duplicate_names_are_refused() {
        let two = json!([{"name": "a"}, {"name": "a"}]);
        let r = open(Gke, json!({"nodePools": two.clone()}), json!({"nodePools": [{"name": "a"}]}));
        assert!(matches!(&r.records[..], [Record::Invalid { .. }]), "{:?}", r.records);
        assert_eq!(r.spec["nodePools"], two);
    }

    #[test]
    fn edge_16_no_count_while_a_pool_scales_itself() {
        let pool = |n: i64| json!({"nodePools": [{"name": "a", "count": n, "enableAutoScaling": true}]});
        let r = open(Aks, pool(3), pool(5));
        assert_eq!((Value::Object(r.spec), r.records.len()), (pool(3), 0));
    }

    #[test]
    fn edges_17_and_18_failed_reads_and_never_applied() {
        let spec = doc(json!({"privateAccess": true}));
        let before = doc(json!({"privateAccess": false}));
        let r = refresh(Eks, &spec, &before, Some(&spec), &Reading::Failed("throttled".to_owned()));
        assert_eq!((&r.upstream, r.skipped), (&before, Some(Skipped::ReadFailed("throttled".to_owned()))));
        let reading = Reading::Read { upstream: before.clone(), in_progress: false };
        let r = refresh(Eks, &spec, &before, None, &reading);
        assert_eq!((r.spec, r.skipped), (spec, Some(Skipped::NeverApplied)));
    }

    #[test]
    fn edges_19_and_20_versions_and_absent_addons() {
        let r = open(Gke, json!({"kubernetesVersion": "1.30"}), json!({"kubernetesVersion": "1.31"}));
        assert_eq!(r.spec["kubernetesVersion"], json!("1.31"));
        let r = open(Aks, json!({"monitoring": false}), json!({}));
        assert_eq!((r.spec["monitoring"].clone(), r.records.len()), (json!(false), 0));
    }

    #[test]
    fn identity_is_never_synced() {
        let r =
            open(Eks, json!({"region": "a", "displayName": "x"}), json!({"region": "b", "displayName": "y"}));
        assert_eq!((r.spec["region"].clone(), r.records.len()), (json!("a"), 0));
    }
}
