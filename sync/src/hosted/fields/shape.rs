//! Where a document does not hold the types its fields have. A number given as text is named, never guessed at.

use serde_json::Value;

use super::{Field, Provider, Type};
use crate::hosted::Document;

/// A value of the wrong kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Its path, such as `nodeGroups[1].desiredSize`.
    pub path: String,
    /// What is there, and what belongs there.
    pub reason: String,
}

impl Misfit {
    /// The top-level field it lies in.
    pub fn field(&self) -> &str {
        self.path.split(['.', '[']).next().unwrap_or_default()
    }
}

/// Everything in `document` that is of the wrong kind. Null is right everywhere: it means unmanaged. Fields that this
/// version does not know are not looked into.
pub fn misfits(provider: Provider, document: &Document) -> Vec<Misfit> {
    let mut found = Vec::new();
    object("", provider.fields(), document, &mut found);
    found
}

fn object(path: &str, fields: &[Field], document: &Document, found: &mut Vec<Misfit>) {
    for field in fields {
        if let Some(value) = document.get(field.name) {
            let path = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
            check(&path, field.holds, value, found);
        }
    }
}

fn check(path: &str, holds: Type, value: &Value, found: &mut Vec<Misfit>) {
    let expected = match (holds, value) {
        (_, Value::Null) | (Type::Text, Value::String(_)) | (Type::Bool, Value::Bool(_)) => return,
        (Type::Integer, Value::Number(n)) if n.is_i64() || n.is_u64() => return,
        (Type::TextList, Value::Array(items)) => return texts(path, items, found),
        (Type::TextMap, Value::Object(map)) => {
            for (key, value) in map.iter().filter(|(_, v)| !v.is_string() && !v.is_null()) {
                found.push(misfit(&format!("{path}.{key}"), value, "text"));
            }
            return;
        }
        (Type::Object(fields), Value::Object(map)) => return object(path, fields, map, found),
        (Type::Objects(fields), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                check(&format!("{path}[{index}]"), Type::Object(fields), item, found);
            }
            return;
        }
        (Type::Text, _) => "text",
        (Type::Bool, _) => "true or false",
        (Type::Integer, _) => "a whole number",
        (Type::TextList, _) => "a list of texts",
        (Type::TextMap, _) => "a map of texts",
        (Type::Object(_), _) => "an object",
        (Type::Objects(_), _) => "a list of objects",
    };
    found.push(misfit(path, value, expected));
}

fn texts(path: &str, items: &[Value], found: &mut Vec<Misfit>) {
    for (index, item) in items.iter().enumerate().filter(|(_, item)| !item.is_string()) {
        found.push(misfit(&format!("{path}[{index}]"), item, "text"));
    }
}

fn misfit(path: &str, value: &Value, expected: &str) -> Misfit {
    let is = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => format!("{b}"),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) => format!("the text {s:?}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    Misfit { path: path.to_owned(), reason: format!("is {is}; expected {expected}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(provider: Provider, document: Value) -> Vec<String> {
        let found = misfits(provider, document.as_object().unwrap());
        found.iter().map(|m| format!("{} {}", m.path, m.reason)).collect()
    }

    #[test]
    fn what_is_of_the_wrong_kind_is_named_with_its_path() {
        assert_eq!(
            named(
                Provider::Eks,
                json!({"privateAccess": "true", "tags": ["a"], "loggingTypes": ["api", 3],
                    "nodeGroups": [{"nodegroupName": "n1"}, {"nodegroupName": "n2", "desiredSize": "3"}, 4]})
            ),
            [
                "privateAccess is the text \"true\"; expected true or false",
                "tags is a list; expected a map of texts",
                "loggingTypes[1] is the number 3; expected text",
                "nodeGroups[1].desiredSize is the text \"3\"; expected a whole number",
                "nodeGroups[2] is the number 4; expected an object",
            ]
        );
        assert_eq!(
            named(
                Provider::Gke,
                json!({"nodePools": [{"autoscaling": {"enabled": 1}, "config": {"taints": {}}}]})
            ),
            [
                "nodePools[0].autoscaling.enabled is the number 1; expected true or false",
                "nodePools[0].config.taints is an object; expected a list of objects",
            ]
        );
    }

    #[test]
    fn null_is_right_everywhere_and_what_is_not_known_is_left_alone() {
        for provider in [Provider::Eks, Provider::Aks, Provider::Gke] {
            let nulls = provider.fields().iter().map(|f| (f.name.to_owned(), Value::Null)).collect();
            assert_eq!(misfits(provider, &nulls), []);
            assert_eq!(named(provider, json!({"fromTheFuture": [1, {"a": 2}]})), [""; 0]);
        }
    }
}
