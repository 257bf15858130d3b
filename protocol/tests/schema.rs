//! The schemas on disk are the schemas of the types.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

#[test]
fn schemas_on_disk_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    let mut on_disk = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).expect("protocol/schema") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text file");
        let kind = path.file_stem().expect("a name").to_string_lossy().into_owned();
        on_disk.insert(kind, serde_json::from_str::<Value>(&text).expect("JSON"));
    }
    let wanted: BTreeMap<String, Value> = outrider_protocol::schema::documents()
        .into_iter()
        .map(|(kind, schema)| (kind.to_owned(), schema.to_value()))
        .collect();
    let names = |map: &BTreeMap<String, Value>| map.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&on_disk), names(&wanted), "refresh: cargo run -p outrider-protocol --example schema");
    for (kind, schema) in &wanted {
        assert!(
            on_disk.get(kind) == Some(schema),
            "protocol/schema/{kind}.json differs from its type; refresh: cargo run -p outrider-protocol --example schema"
        );
    }
}
