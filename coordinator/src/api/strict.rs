//! Documents that people write, against the schema of their type: every key that is not known, every value of another
//! type, every field that is missing, each with its path. serde alone ignores the first and stops at the second.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value};

/// Problems named at once; a document with more is of another kind.
const NAMED: usize = 20;
/// A word this many slips away from a known one was probably meant to be it.
const SLIPS: usize = 3;

/// Everything that is wrong with `value` as a `T`, in the order of the document.
pub(super) fn problems<T: JsonSchema>(value: &Value) -> Vec<String> {
    let schema = SchemaGenerator::default().into_root_schema_for::<T>().to_value();
    let mut look = Look { root: &schema, problems: Vec::new() };
    look.at("", value, &schema);
    let more = look.problems.len().saturating_sub(NAMED);
    look.problems.truncate(NAMED);
    if more > 0 {
        look.problems.push(format!("and {more} more"));
    }
    look.problems
}

/// ` (did you mean …?)` with the known words nearest to `word`; empty when none is near.
pub(super) fn meant(word: &str, known: &[&str]) -> String {
    let squeezed = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let wanted = squeezed(word);
    // Of a short word less is left after three slips than was right.
    let most = SLIPS.min(wanted.len() / 2);
    let far = |known: &str| strsim::levenshtein(&squeezed(known), &wanted);
    let nearest = known.iter().map(|k| far(k)).min().filter(|slips| *slips <= most);
    let near: Vec<&str> = known.iter().filter(|k| Some(far(k)) == nearest).copied().collect();
    if near.is_empty() { String::new() } else { format!(" (did you mean {}?)", near.join(" or ")) }
}

struct Look<'a> {
    root: &'a Value,
    problems: Vec<String>,
}

impl<'a> Look<'a> {
    fn say(&mut self, path: &str, what: impl std::fmt::Display) {
        let path = if path.is_empty() { "the document" } else { path };
        self.problems.push(format!("{path}: {what}"));
    }

    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#'));
        target.and_then(|pointer| self.root.pointer(pointer)).unwrap_or(schema)
    }

    fn at(&mut self, path: &str, value: &Value, schema: &'a Value) {
        let schema = self.resolve(schema);
        if let Some(alternatives) = ["anyOf", "oneOf"].iter().find_map(|k| schema.get(*k)?.as_array()) {
            return self.one_of(path, value, alternatives);
        }
        let types = types(schema);
        if !types.is_empty() && !types.iter().any(|t| is_of(value, t)) {
            let wanted: Vec<&str> = types.iter().map(|t| in_words(t)).collect();
            return self.say(path, format!("is {}; {} is expected", found(value), wanted.join(" or ")));
        }
        let words = schema.get("enum").and_then(Value::as_array);
        if let Some(words) = words.filter(|words| !words.contains(value)) {
            let words: Vec<String> = words.iter().map(Value::to_string).collect();
            return self.say(path, format!("is {}; one of {} is expected", found(value), words.join(", ")));
        }
        match value {
            Value::Number(number) => {
                let most = match schema.get("format").and_then(Value::as_str) {
                    Some("uint32") => u64::from(u32::MAX),
                    Some("uint16") => u64::from(u16::MAX),
                    _ => u64::MAX,
                };
                let least = schema.get("minimum").and_then(Value::as_f64);
                let fits = number.as_f64().is_none_or(|n| least.is_none_or(|least| n >= least))
                    && number.as_u64().is_none_or(|n| n <= most);
                if !fits {
                    self.say(path, format!("is {number}; 0 to {most} is allowed"));
                }
            }
            Value::Object(fields) => self.object(path, fields, schema),
            Value::Array(items) => {
                if let Some(of) = schema.get("items") {
                    for (i, item) in items.iter().enumerate() {
                        self.at(&format!("{path}[{i}]"), item, of);
                    }
                }
            }
            _ => {}
        }
    }

    /// Of alternatives, what is wrong by the one that was most likely meant: the one that is not null.
    fn one_of(&mut self, path: &str, value: &Value, alternatives: &'a [Value]) {
        let mut best: Option<Vec<String>> = None;
        for schema in alternatives {
            let mut look = Look { root: self.root, problems: Vec::new() };
            look.at(path, value, schema);
            if look.problems.is_empty() {
                return;
            }
            if types(self.resolve(schema)) != ["null"] && best.is_none() {
                best = Some(look.problems);
            }
        }
        self.problems.extend(best.unwrap_or_default());
    }

    fn object(&mut self, path: &str, fields: &Map<String, Value>, schema: &'a Value) {
        let inner = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        let properties = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties").filter(|s| s.is_object());
        for (key, value) in fields {
            match (properties.and_then(|p| p.get(key)).or(others), properties) {
                (Some(of), _) => self.at(&inner(key), value, of),
                (None, Some(properties)) => {
                    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                    let key: String = key.chars().take(64).collect();
                    let meant = meant(&key, &known);
                    let known = known.join(", ");
                    self.say(&inner(&key), format!("is not known{meant}; known here are {known}"));
                }
                (None, None) => {}
            }
        }
        let required = schema.get("required").and_then(Value::as_array);
        for key in required.into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(key) {
                let of = properties.and_then(|p| p.get(key)).map_or_else(String::new, |of| {
                    let wanted: Vec<&str> = types(self.resolve(of)).iter().map(|t| in_words(t)).collect();
                    if wanted.is_empty() {
                        String::new()
                    } else {
                        format!("; {} is expected", wanted.join(" or "))
                    }
                });
                self.say(&inner(key), format!("is missing{of}"));
            }
        }
    }
}

/// The types a schema allows; empty when it does not say.
fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn in_words(kind: &str) -> &str {
    match kind {
        "boolean" => "true or false",
        "integer" => "a whole number",
        "number" => "a number",
        "string" => "a text",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
}

fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => format!("the number {n}"),
        Value::String(text) => format!("the text {:?}", text.chars().take(40).collect::<String>()),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{NodeConfig, TokenRequest};
    use serde_json::json;

    use super::*;

    fn config(spec: Value) -> Value {
        json!({ "apiVersion": "outrider.internal/v1alpha1", "kind": "NodeConfig", "generation": 0, "spec": spec })
    }

    #[test]
    fn each_slip_is_named_with_its_path_and_what_was_meant() {
        for (spec, words) in [
            (
                json!({ "heartbeat_seconds": 5 }),
                &["spec.heartbeat_seconds: is not known", "mean heartbeatSeconds?"][..],
            ),
            (
                json!({ "colour": 5 }),
                &["spec.colour: is not known; known here are checks, cluster, heartbeatSeconds"],
            ),
            (
                json!({ "heartbeatSeconds": "5" }),
                &["spec.heartbeatSeconds: is the text \"5\"; a whole number or null"],
            ),
            (
                json!({ "heartbeatSeconds": 5.5 }),
                &["spec.heartbeatSeconds: is the number 5.5; a whole number"],
            ),
            (json!({ "heartbeatSeconds": -1 }), &["spec.heartbeatSeconds: is -1; 0 to 4294967295"]),
            (json!({ "heartbeatSeconds": 4_294_967_296_u64 }), &["0 to 4294967295 is allowed"]),
            (json!({ "cluster": ["a"] }), &["spec.cluster: is a list; a text or null"]),
            (json!({ "checks": [] }), &["spec.checks: is a list; an object or null"]),
            (
                json!({ "checks": { "etcd": { "intervall": 5 } } }),
                &["spec.checks.etcd.intervall", "intervalSeconds"],
            ),
            (json!({ "checks": { "etcd": true } }), &["spec.checks.etcd: is true; an object"]),
            (
                json!({ "checks": { "etcd": { "enabled": 1, "on": 1 } }, "x": 1 }),
                &[
                    "spec.checks.etcd.enabled: is the number 1; true or false",
                    "spec.checks.etcd.on",
                    "spec.x",
                ],
            ),
        ] {
            let found = problems::<NodeConfig>(&config(spec)).join("; ");
            for word in words {
                assert!(found.contains(word), "{word:?} is not in {found:?}");
            }
        }
        let mut bare = config(json!({}));
        bare.as_object_mut().unwrap().remove("generation");
        bare["sepc"] = json!({});
        let found = problems::<NodeConfig>(&bare);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("sepc: is not known (did you mean spec?)"), "{found:?}");
        assert_eq!(found[1], "generation: is missing; a whole number is expected");
        assert_eq!(problems::<NodeConfig>(&json!([])), ["the document: is a list; an object is expected"]);
    }

    #[test]
    fn what_the_protocol_writes_is_taken() {
        let good = config(
            json!({ "heartbeatSeconds": null, "checks": { "etcd": { "enabled": false } }, "cluster": "" }),
        );
        assert_eq!(problems::<NodeConfig>(&good), Vec::<String>::new());
        let token = json!({
            "apiVersion": "outrider.internal/v1alpha1", "kind": "TokenRequest", "tokenKind": "pool", "ttlSeconds": 5,
        });
        assert_eq!(problems::<TokenRequest>(&token), Vec::<String>::new());
        let wrong = json!({ "kind": "TokenRequest", "tokenKind": 5, "ttl": 5 });
        let found = problems::<TokenRequest>(&wrong).join("; ");
        for word in ["tokenKind: is the number 5; a text", "ttl: is not known", "apiVersion: is missing"] {
            assert!(found.contains(word), "{word:?} is not in {found:?}");
        }
    }

    #[test]
    fn a_flood_of_slips_is_cut() {
        let many: Map<String, Value> = (0..1000).map(|i| (format!("k{i}"), Value::Null)).collect();
        let found = problems::<NodeConfig>(&config(many.into()));
        assert_eq!(found.len(), NAMED + 1);
        assert_eq!(found[NAMED], "and 980 more");
    }
}
