//! Equality a field. Reordering a list is no change; a version is no number; an open list is an empty one.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::fields::{Equality, Field, Trait};
use super::{Document, Provider, known};

/// Whether two known values of `field` mean the same.
pub fn equal(provider: Provider, field: &Field, a: &Value, b: &Value) -> bool {
    match field.equality {
        Equality::Exact | Equality::Map => a == b,
        Equality::Version => a == b || versions(a, b) == Some(Ordering::Equal),
        Equality::Set => as_set(a) == as_set(b),
        Equality::CidrSet => networks(a) == networks(b),
        Equality::Pools => pools_equal(provider, a, b),
    }
}

/// Whether `field` is the same in both documents, null and absent alike; an absent add-on equals `false` where the
/// provider means that.
pub fn same(provider: Provider, field: &Field, a: &Document, b: &Document) -> bool {
    match (known(a, field.name), known(b, field.name)) {
        (Some(x), Some(y)) => equal(provider, field, x, y),
        (None, None) => true,
        (Some(x), None) | (None, Some(x)) => {
            field.special == Trait::AbsentIsFalse && x == &Value::Bool(false)
        }
    }
}

/// Whether two whole documents mean the same, field by field; fields we do not know compare as JSON.
pub fn same_document(provider: Provider, a: &Document, b: &Document) -> bool {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names.into_iter().all(|name| match provider.field(name) {
        Some(field) => same(provider, field, a, b),
        None => known(a, name) == known(b, name),
    })
}

/// How two version texts compare, number by number; `None` when one of them has no number at all.
/// `1.30` is later than `1.9`, a leading `v` counts for nothing, and a text without suffix equals itself only.
pub fn version_order(a: &str, b: &str) -> Option<Ordering> {
    let (x, y) = (version_key(a)?, version_key(b)?);
    // A version that names fewer parts (an alias such as 1.30) is compared by the parts it names.
    let parts = x.0.len().min(y.0.len());
    Some(x.0[..parts].cmp(&y.0[..parts]).then_with(|| match parts == x.0.len().max(y.0.len()) {
        true => x.1.cmp(&y.1),
        false => Ordering::Equal,
    }))
}

fn version_key(text: &str) -> Option<(Vec<u64>, Vec<SuffixPart>)> {
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (core, suffix) = text.split_at(end);
    let numbers: Option<Vec<u64>> =
        core.trim_end_matches('.').split('.').map(|part| part.parse().ok()).collect();
    let suffix = suffix.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    Some((numbers.filter(|n| !n.is_empty())?, suffix.map(SuffixPart::new).collect()))
}

/// Part of a suffix such as `gke.1200`: numbers by value, words by letter.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SuffixPart {
    Number(u64),
    Word(String),
}

impl SuffixPart {
    fn new(part: &str) -> Self {
        part.parse().map_or_else(|_| SuffixPart::Word(part.to_owned()), SuffixPart::Number)
    }
}

/// How two version values compare.
pub fn versions(a: &Value, b: &Value) -> Option<Ordering> {
    version_order(a.as_str()?, b.as_str()?)
}

fn as_set(value: &Value) -> Option<BTreeSet<String>> {
    Some(value.as_array()?.iter().map(Value::to_string).collect())
}

const OPEN_V4: &str = "0.0.0.0/0";
const OPEN_V6: &str = "::/0";

/// Networks as a set; `None` inside means "open to all".
pub fn networks(value: &Value) -> Option<Option<BTreeSet<String>>> {
    let set: BTreeSet<String> =
        value.as_array()?.iter().map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
    let open = set.contains(OPEN_V4) && set.iter().all(|n| n == OPEN_V4 || n == OPEN_V6);
    Some(if set.is_empty() || open { None } else { Some(set) })
}

/// Pools by name, or what is wrong with the list.
pub fn pools_by_name(provider: Provider, list: &Value) -> Result<BTreeMap<&str, &Document>, String> {
    let Some(items) = list.as_array() else { return Err("the pools are no list".to_owned()) };
    let mut out = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        let name_field = provider.pool_name();
        let pool = item.as_object().ok_or_else(|| format!("pool {} is no object", index + 1))?;
        let name = pool.get(name_field).and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| format!("pool {} has no {name_field}", index + 1))?;
        if out.insert(name, pool).is_some() {
            return Err(format!("two pools are named {name:?}"));
        }
    }
    Ok(out)
}

/// Whether a pool scales by itself, by either view: then its count is nobody's to set.
pub fn scales_itself(provider: Provider, pool: &Document) -> bool {
    let switch = provider.pool_fields().iter().find(|f| f.special == Trait::Autoscaling);
    match switch.and_then(|f| known(pool, f.name)) {
        Some(Value::Bool(on)) => *on,
        Some(Value::Object(settings)) => settings.get("enabled") == Some(&Value::Bool(true)),
        _ => false,
    }
}

/// Fields of the pool `ours` that differ from `theirs`; what is null in `ours` is left alone, and a count is not
/// compared while either side scales by itself.
pub fn pool_differences<'a>(provider: Provider, ours: &'a Document, theirs: &Document) -> Vec<&'a str> {
    let scaling = scales_itself(provider, ours) || scales_itself(provider, theirs);
    let differs = |name: &&String| {
        let (Some(a), field) = (known(ours, name), provider.pool_fields().iter().find(|f| f.name == **name))
        else {
            return false;
        };
        if scaling && field.is_some_and(|f| f.special == Trait::Count) {
            return false;
        }
        match (known(theirs, name), field) {
            (Some(b), Some(f)) => !equal(provider, f, a, b),
            (Some(b), None) => a != b,
            // Unreadable is not different: the cloud did not say.
            (None, _) => false,
        }
    };
    ours.keys().filter(differs).map(String::as_str).collect()
}

fn pools_equal(provider: Provider, a: &Value, b: &Value) -> bool {
    match (pools_by_name(provider, a), pools_by_name(provider, b)) {
        (Ok(a), Ok(b)) => {
            a.len() == b.len()
                && a.iter().all(|(name, pool)| {
                    b.get(name).is_some_and(|other| pool_differences(provider, pool, other).is_empty())
                })
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn eq(provider: Provider, field: &str, a: Value, b: Value) -> bool {
        equal(provider, provider.field(field).unwrap(), &a, &b)
    }

    #[test]
    fn versions_compare_as_versions() {
        use Ordering::{Equal, Greater, Less};
        for (a, b, want) in [
            ("1.30", "1.9", Greater),
            ("1.9", "1.10", Less),
            ("v1.30.2", "1.30.2", Equal),
            ("1.30", "1.30.2", Equal),
            ("1.30.2-gke.1200", "1.30.2-gke.900", Greater),
            ("1.30.10", "1.30.9", Greater),
        ] {
            assert_eq!(version_order(a, b), Some(want), "{a} {b}");
            assert_eq!(version_order(b, a), Some(want.reverse()), "{b} {a}");
        }
        assert_eq!(version_order("latest", "1.30"), None);
        assert_eq!(version_order("", "1.30"), None);
    }

    #[test]
    fn reordering_is_no_change_and_open_is_empty() {
        let open = || json!(["0.0.0.0/0"]);
        assert!(eq(Provider::Eks, "loggingTypes", json!(["api", "audit"]), json!(["audit", "api"])));
        assert!(!eq(Provider::Eks, "loggingTypes", json!([]), json!(["api"])));
        assert!(eq(Provider::Eks, "publicAccessSources", json!([]), open()));
        assert!(eq(Provider::Eks, "publicAccessSources", json!(["::/0", "0.0.0.0/0"]), open()));
        assert!(!eq(Provider::Eks, "publicAccessSources", json!(["::/0"]), open()));
        assert!(!eq(Provider::Eks, "publicAccessSources", json!(["198.51.100.0/24"]), open()));
    }

    #[test]
    fn pools_compare_by_name_and_null_is_left_alone() {
        let one = json!([{"name": "a", "count": 3, "vmSize": "s"}, {"name": "b", "vmSize": "s"}]);
        let two =
            json!([{"name": "b", "vmSize": "s", "maxPods": 30}, {"name": "a", "count": 3, "vmSize": "s"}]);
        assert!(eq(Provider::Aks, "nodePools", one.clone(), two));
        let bigger = json!([{"name": "a", "count": 4, "vmSize": "s"}, {"name": "b", "vmSize": "s"}]);
        assert!(!eq(Provider::Aks, "nodePools", one, bigger));
    }

    #[test]
    fn a_pool_that_scales_itself_has_no_count_of_ours() {
        let aks = |count: i64, on: bool| json!([{"name": "a", "count": count, "enableAutoScaling": on}]);
        assert!(eq(Provider::Aks, "nodePools", aks(3, true), aks(5, true)));
        assert!(!eq(Provider::Aks, "nodePools", aks(3, false), aks(5, false)));
        let gke = |n: i64| json!([{"name": "a", "initialNodeCount": n, "autoscaling": {"enabled": true}}]);
        assert!(eq(Provider::Gke, "nodePools", gke(3), gke(0)));
    }

    #[test]
    fn bad_pool_lists_are_named() {
        for (list, want) in [
            (json!([{"nodegroupName": "a"}, {"nodegroupName": "a"}]), "two pools are named \"a\""),
            (json!([{}]), "pool 1 has no nodegroupName"),
            (json!([3]), "pool 1 is no object"),
            (json!({}), "the pools are no list"),
        ] {
            assert_eq!(pools_by_name(Provider::Eks, &list).unwrap_err(), want);
        }
    }
}
