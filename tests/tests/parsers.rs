//! The fuzz targets' functions on stable Rust: noise, and well-formed documents with something wrong in them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use outrider_tests::parsers;
use proptest::prelude::*;
use serde_json::Value;

const FACTS: &str = include_str!("../../protocol/golden/v1alpha1/NodeFacts.json");
const REPORT: &str = include_str!("../../protocol/golden/v1alpha1/NodeReport.json");
const HEARTBEAT: &str = include_str!("../../protocol/golden/v1alpha1/Heartbeat.json");

/// What a hostile or broken writer might put in a field's place.
fn odd_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(Value::from("")),
        Just(Value::from(0)),
        Just(Value::from(-1)),
        Just(Value::from(i64::MIN)),
        Just(Value::from(u64::MAX)),
        Just(Value::from(1e308)),
        Just(Value::from(-0.0)),
        Just(Value::from(5e-324)),
        Just(Value::from("9999-12-31T23:59:59.999Z")),
        Just(Value::from("-009999-01-02T00:00:00.000Z")),
        Just(Value::Array(Vec::new())),
        Just(Value::Object(serde_json::Map::new())),
        any::<String>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
    ]
}

fn places(value: &Value, at: String, out: &mut Vec<String>) {
    out.push(at.clone());
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                places(inner, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), out);
            }
        }
        Value::Array(items) => {
            for (i, inner) in items.iter().enumerate() {
                places(inner, format!("{at}/{i}"), out);
            }
        }
        _ => {}
    }
}

/// The document with up to four places changed, doubled or removed.
fn mutated(document: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<prop::sample::Index>(), 0..10, odd_value());
    prop::collection::vec(change, 1..=4).prop_map(move |changes| {
        let mut value: Value = serde_json::from_str(document).expect("a golden document");
        for (index, kind, odd) in changes {
            let mut all = Vec::new();
            places(&value, String::new(), &mut all);
            let place = value.pointer_mut(&all[index.index(all.len())]).expect("a place that was listed");
            match (kind, place) {
                (0, Value::Object(map)) => {
                    let key = map.keys().nth(index.index(map.len().max(1))).cloned();
                    key.and_then(|key| map.remove(&key));
                }
                (0 | 1, Value::Array(items)) => {
                    items.pop();
                }
                (2 | 3, Value::Array(items)) => {
                    let copies = items.clone();
                    items.extend(copies);
                }
                // A number moves by a little, so that the document still parses and a rule meets the edge.
                (1..=6, Value::Number(n)) => {
                    let next = n.as_i64().unwrap_or(0).wrapping_add(odd.as_i64().unwrap_or(1));
                    *n = next.into();
                }
                (_, place) => *place = odd,
            }
        }
        value.to_string().into_bytes()
    })
}

fn metrics_line() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        Just("etcd_disk_wal_fsync_duration_seconds_bucket"),
        Just("etcd_disk_wal_fsync_duration_seconds_count"),
        Just("etcd_disk_wal_fsync_duration_seconds_sum"),
        Just("etcd_disk_backend_commit_duration_seconds_bucket"),
        Just("etcd_server_leader_changes_seen_total"),
        Just("etcd_server_proposals_failed_total"),
        Just("etcd_server_proposals_pending"),
        Just("etcd_server_quota_backend_bytes"),
    ];
    let labels = prop_oneof![
        Just(String::new()),
        "\\{le=\"(0.00[0-9]|\\+Inf|-Inf|NaN|1e400|x)\"\\}",
        "\\{[a-z=\",]{0,10}\\}?"
    ];
    let value =
        prop_oneof!["[0-9]{1,5}", "-?[0-9.e+-]{1,8}", Just("NaN".to_owned()), Just("+Inf".to_owned())];
    (name, labels, value).prop_map(|(name, labels, value)| format!("{name}{labels} {value}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_token(text in "\\PC{0,80}", tail in "[a-z0-9:-]{0,60}") {
        parsers::token(text.as_bytes());
        parsers::token(format!("OR1{}::{tail}", "ab".repeat(32)).as_bytes());
        parsers::token(format!("OR1{}::{tail}:{}", "ab".repeat(32), "Z".repeat(32)).as_bytes());
    }

    #[test]
    fn any_facts(bytes in mutated(FACTS)) {
        parsers::facts(&bytes);
    }

    #[test]
    fn any_report(bytes in prop_oneof![mutated(REPORT), mutated(HEARTBEAT)]) {
        parsers::report(&bytes);
    }

    #[test]
    fn any_bytes_anywhere(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        parsers::token(&bytes);
        parsers::facts(&bytes);
        parsers::report(&bytes);
        parsers::certificate_request(&bytes);
        parsers::url(&bytes);
        parsers::metrics(&bytes);
        parsers::spool(&bytes);
        parsers::userdata(&bytes);
    }

    #[test]
    fn any_metrics(lines in prop::collection::vec(metrics_line(), 0..20), end in "\\PC{0,20}") {
        parsers::metrics(format!("{}\n{end}", lines.join("\n")).as_bytes());
    }

    #[test]
    fn any_userdata(
        lines in prop::collection::vec(
            prop_oneof![
                Just("#cloud-config".to_owned()),
                Just("packages:".to_owned()),
                Just("runcmd:".to_owned()),
                Just("write_files:".to_owned()),
                Just("  - [sh, -c, 'true']".to_owned()),
                Just("  - path: /etc/x".to_owned()),
                Just("    permissions: 0644".to_owned()),
                " {0,4}- ?[a-z0-9:'\"{\\[&*!|>-]{0,12}",
                " {0,4}[a-z_]{1,8}: ?[a-z0-9:'\"{\\[&*!|>-]{0,12}",
                "\\PC{0,24}",
            ],
            0..10,
        ),
    ) {
        parsers::userdata(lines.join("\n").as_bytes());
        parsers::userdata(format!("#cloud-config\n{}\n", lines.join("\n")).as_bytes());
    }

    #[test]
    fn any_url(text in "(https?://)?[a-z0-9.\\[\\]:@%-]{0,30}(:[0-9]{0,6})?(/[ -~]{0,10})?") {
        parsers::url(text.as_bytes());
    }
}

proptest! {
    // Each case writes and reads a file.
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_configuration(
        lines in prop::collection::vec(
            prop_oneof![
                Just("[node]".to_owned()),
                Just("[coordinator]".to_owned()),
                Just("[checks.etcd]".to_owned()),
                Just("[[load_balancer]]".to_owned()),
                Just("[etcd]".to_owned()),
                Just("[report]".to_owned()),
                "(name|cluster|urls|interval|timeout|enabled|url|mode|backends|heartbeat|profile|ca_checksum) = .{0,20}",
                "(interval|timeout|heartbeat) = \"[0-9]{1,20}(ms|s|m|h|d|w)?\"",
                "(urls|backends|endpoints) = \\[\"\\PC{0,12}\"\\]",
                "\\PC{0,40}",
            ],
            0..12,
        ),
    ) {
        parsers::configuration(lines.join("\n").as_bytes());
    }
}
