//! Documents of one version, as files: what we write is what stands there, and what stands there can be read by a
//! program one version older or newer.
//!
//! A golden file is frozen with the release that first wrote it. A field added later has a default and is added to the
//! files of its version by `UPDATE=1 cargo test -p outrider-protocol --test golden`; a file that changes in any other
//! way breaks machines in the field.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::path::{Path, PathBuf};

use outrider_protocol as p;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Reads a document as its type and writes it again.
type RoundTrip = fn(&str) -> Result<String, String>;

fn round_trip<T: DeserializeOwned + Serialize>(text: &str) -> Result<String, String> {
    let document: T = serde_json::from_str(text).map_err(|e| e.to_string())?;
    serde_json::to_string_pretty(&document).map(|t| t + "\n").map_err(|e| e.to_string())
}

/// One line a document kind; a test holds it against the list of schemas.
const KINDS: &[(&str, RoundTrip)] = &[
    ("NodeFacts", round_trip::<p::NodeFacts>),
    ("NodeConditions", round_trip::<p::NodeConditions>),
    ("Plan", round_trip::<p::Plan>),
    ("Outcome", round_trip::<p::Outcome>),
    ("NodeConfig", round_trip::<p::NodeConfig>),
    ("EnrollRequest", round_trip::<p::EnrollRequest>),
    ("EnrollResponse", round_trip::<p::EnrollResponse>),
    ("RenewRequest", round_trip::<p::RenewRequest>),
    ("NodeReport", round_trip::<p::NodeReport>),
    ("ReportAck", round_trip::<p::ReportAck>),
    ("Heartbeat", round_trip::<p::Heartbeat>),
    ("Peers", round_trip::<p::Peers>),
    ("InstallIndex", round_trip::<p::InstallIndex>),
    ("Status", round_trip::<p::ApiError>),
    ("Node", round_trip::<p::NodeView>),
    ("NodeList", round_trip::<p::List<p::NodeView>>),
    ("Cluster", round_trip::<p::ClusterView>),
    ("Machine", round_trip::<p::MachineView>),
    ("Pool", round_trip::<p::PoolView>),
    ("Coordinator", round_trip::<p::CoordinatorView>),
    ("Fleet", round_trip::<p::Fleet>),
    ("Token", round_trip::<p::TokenView>),
    ("TokenRequest", round_trip::<p::TokenRequest>),
    ("NodeLabels", round_trip::<p::NodeLabels>),
    ("Event", round_trip::<p::EventView>),
    ("Root", round_trip::<p::RootView>),
];

fn golden(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v1alpha1/{kind}.json"))
}

fn read(kind: &str) -> String {
    std::fs::read_to_string(golden(kind)).unwrap_or_else(|e| panic!("{}: {e}", golden(kind).display()))
}

fn read_value(kind: &str) -> Value {
    serde_json::from_str(&read(kind)).unwrap_or_else(|e| panic!("{kind}: {e}"))
}

fn through(trip: RoundTrip, document: &Value) -> Result<Value, String> {
    trip(&document.to_string()).map(|text| serde_json::from_str(&text).expect("we write JSON"))
}

#[test]
fn every_document_has_a_golden_file_and_no_file_lacks_a_document() {
    let mut schemas: Vec<&str> = p::schema::documents().into_iter().map(|(kind, _)| kind).collect();
    let mut kinds: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
    let folder = golden("x");
    let mut files: Vec<String> = std::fs::read_dir(folder.parent().expect("a folder"))
        .expect("golden/v1alpha1")
        .filter_map(|e| e.ok()?.file_name().into_string().ok()?.strip_suffix(".json").map(str::to_owned))
        .collect();
    schemas.sort_unstable();
    kinds.sort_unstable();
    files.sort_unstable();
    assert_eq!(kinds, schemas, "left: KINDS of this test, right: schema::documents()");
    assert_eq!(files, schemas, "left: golden files, right: schema::documents()");
}

/// N: we write byte for byte what the file holds, having read it.
#[test]
fn this_version_reads_and_writes_its_golden_files() {
    for (kind, trip) in KINDS {
        let text = read(kind);
        let written = trip(&text).unwrap_or_else(|e| panic!("{kind}: {e}"));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(golden(kind), &written).expect("a writable golden file");
        } else {
            assert_eq!(
                text, written,
                "{kind}; refresh: UPDATE=1 cargo test -p outrider-protocol --test golden"
            );
        }
    }
}

/// N reads N-1: a field that the schema does not require may be missing, each by itself and all at once.
#[test]
fn an_older_version_may_leave_out_what_is_not_required() {
    for (kind, trip) in KINDS {
        let document = read_value(kind);
        let schema = schema_of(kind);
        let mut optional = Vec::new();
        walk(&schema, &schema, &document, &mut Vec::new(), &mut |path, at, place| {
            if let (Value::Object(map), Some(required)) = (place, required(&schema, at, place)) {
                optional.extend(map.keys().filter(|k| !required.contains(&k.as_str())).map(|k| {
                    let mut path = path.to_vec();
                    path.push(k.clone());
                    path
                }));
            }
        });
        for path in &optional {
            let mut older = document.clone();
            remove(&mut older, path);
            through(*trip, &older).unwrap_or_else(|e| panic!("{kind} without {}: {e}", path.join(".")));
        }
        let mut oldest = document.clone();
        // Deepest first, so that a parent is not gone before its child.
        optional.sort_by_key(|path| std::cmp::Reverse(path.len()));
        for path in &optional {
            remove(&mut oldest, path);
        }
        through(*trip, &oldest).unwrap_or_else(|e| panic!("{kind} with required fields only: {e}"));
    }
}

/// N reads N+1: unknown fields in every object change nothing of what is known.
#[test]
fn a_newer_version_may_add_fields_anywhere() {
    for (kind, trip) in KINDS {
        let document = read_value(kind);
        let schema = schema_of(kind);
        let mut newer = document.clone();
        let mut objects = 0;
        walk(&schema, &schema, &document, &mut Vec::new(), &mut |path, at, place| {
            // Maps keyed by data (labels, learners) have no fields to add.
            if place.is_object() && required(&schema, at, place).is_some() {
                let map = object_at(&mut newer, path);
                map.insert("addedLater".to_owned(), serde_json::json!({ "deep": [1, "two", null] }));
                objects += 1;
            }
        });
        assert!(objects > 0, "{kind}: the walk met no object");
        let read = through(*trip, &newer).unwrap_or_else(|e| panic!("{kind} with added fields: {e}"));
        assert_eq!(read, document, "{kind}");
    }
}

/// N keeps the words of N+1: an unknown reason or condition type is stored and passed on as it was written.
#[test]
fn a_word_of_a_newer_version_survives() {
    let mut met = 0;
    for (kind, trip) in KINDS {
        let document = read_value(kind);
        let schema = schema_of(kind);
        walk(&schema, &schema, &document, &mut Vec::new(), &mut |path, at, place| {
            if !(place.is_string() && at.get("examples").is_some()) {
                return;
            }
            met += 1;
            let mut newer = document.clone();
            *newer.pointer_mut(&pointer(path)).expect("the walk came by here") = "WordOfALaterVersion".into();
            let read = through(*trip, &newer).unwrap_or_else(|e| panic!("{kind}.{}: {e}", path.join(".")));
            assert_eq!(read, newer, "{kind}.{}", path.join("."));
        });
    }
    assert!(met > 50, "the walk met only {met} words");
}

/// The two closed words of Kubernetes: what a later version might say is read as the most careful answer.
#[test]
fn unknown_status_is_unknown_and_unknown_severity_is_an_error() {
    let mut event = read_value("Event");
    event["transition"]["condition"]["status"] = "Degraded".into();
    event["transition"]["condition"]["severity"] = "fatal".into();
    let read: p::EventView = serde_json::from_value(event).expect("an event");
    assert_eq!(read.transition.condition.status, p::Status::Unknown);
    assert_eq!(read.transition.condition.severity, p::Severity::Error);
}

#[test]
fn the_header_says_which_document_was_expected() {
    let meta = p::TypeMeta::new("NodeFacts");
    assert_eq!(meta.expect("NodeFacts"), Ok(()));
    let error = meta.expect("Plan").expect_err("another kind");
    assert!(error.contains("NodeFacts") && error.contains("Plan"), "{error}");
    // What another version of the vocabulary means by the same fields nobody here knows.
    let later = p::TypeMeta { api_version: "outrider.internal/v1beta9".into(), ..meta };
    let error = later.expect("NodeFacts").expect_err("another version");
    assert!(error.contains("outrider.internal/v1beta9") && error.contains(p::API_VERSION), "{error}");
    let foreign = p::TypeMeta { api_version: "v1".into(), kind: "NodeFacts".into() };
    assert!(foreign.expect("NodeFacts").is_err());
}

// --- walking a document along its schema -----------------------------------------------------------------------------

fn schema_of(kind: &str) -> Value {
    let found = p::schema::documents().into_iter().find(|(k, _)| *k == kind);
    found.map(|(_, schema)| schema.to_value()).unwrap_or_else(|| panic!("{kind} has no schema"))
}

/// The schema behind `$ref`, `anyOf` with null, and the alternative of a `oneOf` whose constants fit `place`.
fn resolve<'a>(root: &'a Value, mut schema: &'a Value, place: &Value) -> &'a Value {
    loop {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            schema = root.pointer(name.trim_start_matches('#')).unwrap_or_else(|| panic!("{name} dangles"));
        } else if let Some(first) = schema.get("anyOf").and_then(|any| any.get(0)) {
            schema = first;
        } else if let Some(Value::Array(alternatives)) = schema.get("oneOf") {
            let fits = |s: &&Value| {
                let state = s.pointer("/properties/state/const");
                state.is_some_and(|state| place.get("state") == Some(state))
            };
            match alternatives.iter().find(fits) {
                Some(alternative) => schema = alternative,
                None => return schema,
            }
        } else {
            return schema;
        }
    }
}

fn required<'a>(root: &'a Value, schema: &'a Value, place: &Value) -> Option<Vec<&'a str>> {
    let schema = resolve(root, schema, place);
    schema.get("properties")?;
    let names = schema.get("required").and_then(Value::as_array);
    Some(names.map(|names| names.iter().filter_map(Value::as_str).collect()).unwrap_or_default())
}

/// Calls `visit` with path, resolved schema and value of every place; a field the schema does not know is a failure.
fn walk(
    root: &Value,
    schema: &Value,
    place: &Value,
    path: &mut Vec<String>,
    visit: &mut dyn FnMut(&[String], &Value, &Value),
) {
    let schema = resolve(root, schema, place);
    visit(path, schema, place);
    match place {
        Value::Object(map) => {
            for (key, value) in map {
                let field = schema.get("properties").and_then(|p| p.get(key));
                let entry = schema.get("additionalProperties").filter(|s| s.is_object());
                path.push(key.clone());
                match field.or(entry) {
                    Some(inner) => walk(root, inner, value, path, visit),
                    None => panic!("the schema does not know {}", path.join(".")),
                }
                path.pop();
            }
        }
        Value::Array(items) => {
            for (i, value) in items.iter().enumerate() {
                let nth = schema.get("prefixItems").and_then(|p| p.get(i));
                path.push(i.to_string());
                match nth.or(schema.get("items")) {
                    Some(inner) => walk(root, inner, value, path, visit),
                    None => panic!("the schema does not know the items of {}", path.join(".")),
                }
                path.pop();
            }
        }
        _ => {}
    }
}

fn pointer(path: &[String]) -> String {
    path.iter().map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect()
}

fn object_at<'a>(document: &'a mut Value, path: &[String]) -> &'a mut Map<String, Value> {
    let place = document.pointer_mut(&pointer(path)).expect("the walk came by here");
    place.as_object_mut().expect("an object")
}

fn remove(document: &mut Value, path: &[String]) {
    if let Some((last, parent)) = path.split_last()
        && let Some(Value::Object(map)) = document.pointer_mut(&pointer(parent))
    {
        map.remove(last);
    }
}
