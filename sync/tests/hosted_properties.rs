//! The invariants P1 to P12 of `facts/hosted-sync.md`, section 3, over random documents of all three providers.

use std::collections::{BTreeMap, BTreeSet};

use outrider_sync::hosted::compare::{same, same_document};
use outrider_sync::hosted::fields::{Equality, Trait};
use outrider_sync::hosted::plan::{Input, plan};
use outrider_sync::hosted::refresh::{Reading, Refreshed, refresh};
use outrider_sync::hosted::{Document, Provider, effective, known};
use proptest::prelude::*;
use serde_json::{Value, json};

const PROVIDERS: [Provider; 3] = [Provider::Eks, Provider::Aks, Provider::Gke];

/// A small world of values, so that equal, reordered, empty, null and absent ones all turn up often.
fn value(provider: Provider, equality: Equality) -> BoxedStrategy<Value> {
    let word = prop::sample::select(vec!["a", "b", "c"]);
    match equality {
        Equality::Exact => {
            prop_oneof![Just(json!(true)), Just(json!(false)), Just(json!("")), Just(json!("x"))].boxed()
        }
        Equality::Version => {
            prop::sample::select(vec!["1.9", "1.30", "1.30.1", "1.31"]).prop_map(|v| json!(v)).boxed()
        }
        Equality::Set => prop::collection::vec(word, 0..3).prop_map(|v| json!(v)).boxed(),
        Equality::CidrSet => {
            prop::collection::vec(prop::sample::select(vec!["0.0.0.0/0", "192.0.2.0/24"]), 0..3)
                .prop_map(|v| json!(v))
                .boxed()
        }
        Equality::Map => prop::collection::btree_map(word, word_value(), 0..3).prop_map(|m| json!(m)).boxed(),
        Equality::Pools => pools(provider),
    }
}

fn word_value() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["1", "2"])
}

/// Count, whether the pool scales itself, and one plain number; each may be null.
type Pool = (Option<i64>, Option<bool>, Option<i64>);

fn pools(provider: Provider) -> BoxedStrategy<Value> {
    let pool = (prop::option::of(1..4i64), prop::option::of(any::<bool>()), prop::option::of(1..4i64));
    prop::collection::btree_map(prop::sample::select(vec!["n1", "n2", "n3"]), pool, 0..4)
        .prop_map(move |pools| {
            let entry = |(name, (count, scaling, size)): (&str, Pool)| match provider {
                Provider::Eks => json!({"nodegroupName": name, "desiredSize": count, "maxSize": size}),
                Provider::Aks => {
                    json!({"name": name, "count": count, "enableAutoScaling": scaling, "maxPods": size})
                }
                Provider::Gke => json!({"name": name, "initialNodeCount": count,
                    "autoscaling": scaling.map(|on| json!({"enabled": on})), "maxPodsConstraint": size}),
            };
            Value::Array(pools.into_iter().map(entry).collect())
        })
        .boxed()
}

fn document(provider: Provider) -> BoxedStrategy<Document> {
    let fields: Vec<_> = provider
        .fields()
        .iter()
        .filter(|f| f.special != Trait::Identity)
        .map(|f| {
            let name = f.name.to_owned();
            let known = value(provider, f.equality).prop_map(Some);
            prop_oneof![4 => known, 1 => Just(Some(Value::Null)), 1 => Just(None)]
                .prop_map(move |v| v.map(|v| (name.clone(), v)))
        })
        .collect();
    fields.prop_map(|fields| fields.into_iter().flatten().collect()).boxed()
}

fn pair() -> impl Strategy<Value = (Provider, Document, Document)> {
    prop::sample::select(PROVIDERS.to_vec()).prop_flat_map(|p| (Just(p), document(p), document(p)))
}

fn open(p: Provider, spec: &Document, cloud: &Document) -> Refreshed {
    let reading = Reading::Read { upstream: cloud.clone(), in_progress: false };
    refresh(p, spec, &Document::new(), Some(spec), &reading)
}

fn managed(document: &Document) -> BTreeSet<&String> {
    document.keys().filter(|k| known(document, k).is_some()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn p1_refresh_is_idempotent((p, spec, cloud) in pair()) {
        let once = open(p, &spec, &cloud);
        let twice = open(p, &once.spec, &cloud);
        prop_assert_eq!(&twice.spec, &once.spec);
    }

    #[test]
    fn p2_p5_what_is_managed_stays_what_it_was((p, spec, cloud) in pair()) {
        let after = open(p, &spec, &cloud);
        prop_assert_eq!(managed(&after.spec), managed(&spec));
    }

    #[test]
    fn p3_p4_after_an_open_refresh_both_agree((p, spec, cloud) in pair()) {
        let after = open(p, &spec, &cloud);
        let in_force = effective(&after.spec, &after.upstream);
        for field in p.fields().iter().filter(|f| known(&cloud, f.name).is_some()) {
            if known(&after.spec, field.name).is_some() {
                prop_assert!(same(p, field, &after.spec, &cloud), "{}", field.name);
            }
            prop_assert!(same(p, field, &in_force, &cloud), "{}", field.name);
        }
    }

    #[test]
    fn p6_a_closed_gate_changes_only_upstream((p, spec, cloud) in pair(), progress in any::<bool>()) {
        let reading = Reading::Read { upstream: cloud.clone(), in_progress: progress };
        let applied = if progress { Some(&spec) } else { None };
        let after = refresh(p, &spec, &Document::new(), applied, &reading);
        prop_assert!(after.skipped.is_some());
        prop_assert_eq!(&after.spec, &spec);
        prop_assert_eq!(&after.upstream, &cloud);
    }

    #[test]
    fn p7_p9_nothing_is_written_when_nothing_changed((p, spec, _) in pair()) {
        let mut reordered = spec.clone();
        for value in reordered.values_mut() {
            if let Value::Array(items) = value {
                items.reverse();
            }
        }
        let sets_only: Document = reordered
            .into_iter()
            .filter(|(name, _)| p.field(name).is_some_and(|f| f.equality != Equality::Exact))
            .collect();
        let after = open(p, &spec, &sets_only);
        prop_assert_eq!(after.spec, spec);
    }

    #[test]
    fn p8_p12_effective((p, spec, cloud) in pair()) {
        let nulls: Document = spec.keys().map(|k| (k.clone(), Value::Null)).collect();
        prop_assert!(same_document(p, &effective(&nulls, &cloud), &cloud));
        let once = effective(&spec, &cloud);
        prop_assert_eq!(effective(&spec, &once), once);
    }

    #[test]
    fn p10_a_push_after_a_refresh_sends_nothing((p, spec, cloud) in pair()) {
        let after = open(p, &spec, &cloud);
        let (edited, confirmed) = (BTreeMap::new(), BTreeSet::new());
        let plan = plan(&Input {
            provider: p, spec: &after.spec, live: &cloud, in_progress: false,
            edited: &edited, base: Some(&cloud), confirmed: &confirmed, last_push: None,
        });
        prop_assert!(plan.writes.is_empty() && plan.held.is_empty(), "{:?}", plan);
    }

    #[test]
    fn p11_null_is_never_sent((p, spec, cloud) in pair()) {
        let edited: BTreeMap<String, Value> = spec.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let confirmed = BTreeSet::new();
        let plan = plan(&Input {
            provider: p, spec: &spec, live: &cloud, in_progress: false,
            edited: &edited, base: None, confirmed: &confirmed, last_push: None,
        });
        for write in plan.writes.iter().chain(plan.held.iter().map(|h| &h.write)) {
            let top = write.path.split('/').next().unwrap_or_default();
            prop_assert!(known(&spec, top).is_some(), "{}", write.path);
        }
    }

    #[test]
    fn nothing_destructive_or_widening_is_sent_unconfirmed((p, spec, cloud) in pair()) {
        let edited: BTreeMap<String, Value> = cloud.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let confirmed = BTreeSet::new();
        let plan = plan(&Input {
            provider: p, spec: &spec, live: &cloud, in_progress: false,
            edited: &edited, base: None, confirmed: &confirmed, last_push: None,
        });
        for write in &plan.writes {
            prop_assert!(!write.to.is_null(), "{} would be deleted", write.path);
            if let (Some(from), Some(to)) = (write.from.as_object(), write.to.as_object())
                && p.field(&write.path).is_some_and(|f| f.special == Trait::RemovesKeys)
            {
                prop_assert!(from.keys().all(|k| to.contains_key(k)), "{} loses a key", write.path);
            }
        }
    }
}
