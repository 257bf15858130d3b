//! The fuzz targets' functions on stable Rust: noise, and well-formed documents with something wrong in them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::sync::LazyLock;

use outrider_tests::parsers;
use proptest::prelude::*;
use serde_json::Value;

/// A golden document of the protocol.
macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!("../../protocol/golden/v1alpha1/", $name, ".json"))
    };
}

const FACTS: &str = golden!("NodeFacts");
const REPORT: &str = golden!("NodeReport");
const HEARTBEAT: &str = golden!("Heartbeat");

/// The document on one line.
fn compact(document: &str) -> String {
    serde_json::from_str::<Value>(document).expect("a golden document").to_string()
}

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

/// What a fuzzer found: an id that holds the secret may be told.
#[test]
fn an_id_may_hold_the_secret() {
    let f = |n| "f".repeat(n);
    parsers::token(format!("OR1E{}F{}::fmlllll2ll{}l:l{}", f(61), f(1), f(27), f(22)).as_bytes());
    parsers::token(format!("OR1{}::al{}:l{}", f(64), f(22), f(22)).as_bytes());
}

/// What a fuzzer found: a host that holds the password may be told.
#[test]
fn a_host_may_hold_the_password() {
    parsers::proxy(b"JJJJ:\xc1\xc1\xc1\xc1\xc1@\xc1\xc1\xc1\xc1\xc1\xc1");
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
        parsers::document(&bytes);
        parsers::certificate_request(&bytes);
        parsers::certificate(&bytes);
        parsers::url(&bytes);
        parsers::proxy(&bytes);
        parsers::query(&bytes);
        parsers::dns_message(&bytes);
        parsers::resolver(&bytes);
        parsers::environment(&bytes);
        parsers::metrics(&bytes);
        parsers::events(&bytes);
        parsers::etcd_message(&bytes);
        parsers::spool(&bytes);
        parsers::userdata(&bytes);
        parsers::helper_request(&bytes);
        parsers::server_config(&bytes);
        parsers::launch(&bytes);
        parsers::etcd_config(&bytes);
    }

    #[test]
    fn any_document(
        bytes in prop_oneof![
            mutated(golden!("EnrollRequest")),
            mutated(golden!("EnrollResponse")),
            mutated(golden!("RenewRequest")),
            mutated(golden!("ReportAck")),
            mutated(golden!("NodeConfig")),
            mutated(golden!("TokenRequest")),
            mutated(golden!("Token")),
            mutated(golden!("Node")),
            mutated(golden!("Cluster")),
            mutated(golden!("Event")),
            mutated(golden!("Status")),
        ],
    ) {
        parsers::document(&bytes);
    }

    #[test]
    fn any_helper_request(path in "\\PC{0,40}", key in "open|list|describe|opened|names|refused|\\PC{1,4}") {
        let value = Value::from(path.clone());
        let list = Value::from(vec![path]);
        parsers::helper_request(serde_json::json!({ key.clone(): value }).to_string().as_bytes());
        parsers::helper_request(serde_json::json!({ key: list }).to_string().as_bytes());
    }

    #[test]
    fn any_server_config(
        lines in prop::collection::vec(
            prop_oneof![
                "(data-dir|datastore-endpoint|disable-etcd|node-ip|cluster-init|token)\\+{0,2}: .{0,16}",
                "(data-dir|datastore-endpoint|disable-etcd|node-ip)\\+?: \\[?(\"[ -~&&[^\"\\\\]]{0,12}\"|[a-z0-9.:/@]{0,12}|~|true|1e3|0x10)\\]?",
                "datastore-endpoint\\+?: (postgres|mysql|http|u:p@x|)://u:s3cret@h/d",
                " {0,2}- ?[a-z0-9:/]{0,8}",
                "#.{0,8}|---|\\.\\.\\.",
                "\\PC{0,16}",
            ],
            0..6,
        ),
    ) {
        parsers::server_config(lines.join("\n").as_bytes());
    }

    #[test]
    fn any_launch(
        lines in prop::collection::vec(
            prop_oneof![
                "\\[(Service|Unit)\\]|",
                "(ExecStart|Environment|EnvironmentFile)=[ -~]{0,40}\\\\?",
                "ExecStart=k3s server( (--data-dir|-d|--tls-san|--cluster-init|--token)(=| )[ -~]{0,8}){0,3}",
                "(K3S_|RKE2_)(DATA_DIR|TOKEN|DATASTORE_ENDPOINT)=[ -~]{0,12}",
                "\\PC{0,16}",
            ],
            0..6,
        ),
    ) {
        parsers::launch(lines.join("\n").as_bytes());
    }

    #[test]
    fn any_etcd_config(
        lines in prop::collection::vec(
            prop_oneof![
                "(name|data-dir|listen-peer-urls|advertise-client-urls|initial-advertise-peer-urls): \\[?[a-z0-9:/.,]{0,16}\\]?",
                "(election-timeout|heartbeat-interval): [0-9]{0,7}",
                "auth-token: s3cret|client-transport-security: \\{key-file: /x\\}",
                "\\PC{0,12}",
            ],
            0..6,
        ),
        words in prop::collection::vec(
            "-{0,2}(name|data-dir|listen-peer-urls|election-timeout|auth-token)=?[a-z0-9:/.]{0,9}|-{1,2}[a-z]{0,3}|[a-z0-9]{0,6}",
            0..6,
        ),
    ) {
        parsers::etcd_config(lines.join("\n").as_bytes());
        let pod = serde_json::json!({ "spec": { "containers": [{ "name": "etcd", "command": words }] } });
        parsers::etcd_config(pod.to_string().as_bytes());
    }

    #[test]
    fn any_events(
        lines in prop::collection::vec(
            prop_oneof![
                Just(String::new()),
                Just("\r".to_owned()),
                "event: ?(node|cluster|event|bookmark|other)",
                "id: ?[0-9]{0,20}",
                "data: ?\\{\"position\":[0-9]{1,20},\"resync\":(true|false)\\}",
                "data: ?\\PC{0,12}",
                Just(format!("event: node\ndata: {}\n", compact(golden!("Node")))),
                Just(format!("event: cluster\ndata: {}\n", compact(golden!("Cluster")))),
                Just(format!("event: event\ndata: {}\n", compact(golden!("Event")))),
                ":\\PC{0,8}",
            ],
            0..12,
        ),
    ) {
        parsers::events(lines.join("\n").as_bytes());
    }

    #[test]
    fn any_proxy(
        text in "([a-z0-9]{0,6}://)?([a-z]{0,4}:[a-z0-9:/?#@%+]{12,20}@)?[a-z0-9.\\[\\]:%-]{0,16}(:[0-9+]{0,6})?(/[ -~]{0,6})?",
        entries in prop::collection::vec(
            prop_oneof!["[*.]{0,2}[a-z.]{0,8}(:[0-9+]{0,6})?", "[0-9.]{3,9}(/\\+?[0-9]{0,3})?", "\\[?[0-9a-f:]{2,9}\\]?(/[0-9]{1,3})?", "\\PC{0,6}"],
            0..6,
        ),
    ) {
        parsers::proxy(text.as_bytes());
        parsers::proxy(entries.join(",").as_bytes());
    }

    #[test]
    fn any_environment_and_resolver(
        lines in prop::collection::vec(
            "(export )?(HTTPS?_PROXY|no_proxy|TOKEN|nameserver|search|options|10.0.0.1)[= ][ -~]{0,30}\\\\?",
            0..6,
        ),
    ) {
        parsers::environment(lines.join("\n").as_bytes());
        parsers::resolver(lines.join("\n").as_bytes());
    }

    #[test]
    fn any_query(
        selector in "[a-c!=,() in]{0,24}",
        more in "(limit=-?[0-9]{0,20})?(&continue=[A-Za-z0-9_=%-]{0,12})?(&[a-zA-Z=&%+]{0,12})?",
    ) {
        parsers::query(selector.as_bytes());
        let escaped: String = selector.bytes().map(|b| format!("%{b:02X}")).collect();
        parsers::query(format!("labelSelector={escaped}&{more}").as_bytes());
        parsers::query(more.as_bytes());
    }

    #[test]
    fn any_etcd_message(
        fields in prop::collection::vec(
            (1_u8..14, prop_oneof![
                any::<u64>().prop_map(|n| (0, varint(n))),
                prop::collection::vec(any::<u8>(), 0..12).prop_map(|b| (2, [varint(b.len() as u64), b].concat())),
                "https?://[a-z0-9.:\\[\\]]{0,12}".prop_map(|t| (2, [varint(t.len() as u64), t.into_bytes()].concat())),
            ]),
            0..8,
        ),
    ) {
        let message: Vec<u8> =
            fields.into_iter().flat_map(|(tag, (kind, bytes))| [vec![tag << 3 | kind], bytes].concat()).collect();
        parsers::etcd_message(&message);
        // The same as a member of a list.
        parsers::etcd_message(&[vec![2 << 3 | 2], varint(message.len() as u64), message].concat());
    }

    #[test]
    fn any_location(
        location in "(https?:)?(//)?[a-z.]{0,3}(rancher.example.test)?(:[0-9]{0,6})?/?\\PC{0,8}",
        status in 0_u16..1000,
    ) {
        parsers::location(format!("{location}\n\n\n\n{status}").as_bytes());
    }

    #[test]
    fn any_certificate(
        names in prop::collection::vec("[ -~]{1,12}", 0..3),
        subject in "\\PC{0,12}",
        years in (1951_i32..2200, 1951_i32..2200),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
    ) {
        let names: Vec<String> = names.into_iter().filter(|n| rcgen::string::Ia5String::try_from(n.as_str()).is_ok()).collect();
        let mut asked = rcgen::CertificateParams::new(names).unwrap();
        asked.distinguished_name.push(rcgen::DnType::CommonName, subject);
        asked.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        asked.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let made = asked.self_signed(&*KEY).unwrap();
        parsers::certificate(made.der());
        parsers::certificate(made.pem().as_bytes());
        let mut broken = made.der().to_vec();
        for (index, byte) in flips {
            let at = index.index(broken.len());
            broken[at] = byte;
        }
        parsers::certificate(&broken);
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

/// A key for all certificates: it is not what is tested.
static KEY: LazyLock<rcgen::KeyPair> = LazyLock::new(|| rcgen::KeyPair::generate().unwrap());

fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push(n as u8 | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

proptest! {
    // Each case writes and reads files, or has a conversation.
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn any_cloud_init(
        errors in prop::collection::vec("\\PC{0,700}", 0..30),
        level in "[A-Z]{0,6}",
        stage in "init(-local)?|modules-final|\\PC{0,8}",
        start in prop::num::f64::ANY,
        result in "(\n%\n(\\{\"v1\":\\{\\}\\}|\\{\"v1\":[0-9]?))?",
        odd in odd_value(),
    ) {
        let levels: serde_json::Map<String, Value> =
            errors.iter().enumerate().map(|(i, e)| (format!("{level}{i}{e}"), serde_json::json!([e]))).collect();
        let status = serde_json::json!({"v1": {"stage": stage, "init": {"start": start, "errors": errors,
            "recoverable_errors": levels}, "datasource": odd, "init-local": odd}});
        parsers::cloud_init(format!("{status}{result}").as_bytes());
        parsers::cloud_init(format!("{}{result}", serde_json::json!({"v1": odd})).as_bytes());
    }

    #[test]
    fn any_hosted(
        provider in prop::sample::select(vec!["eks", "aks", "gke"]),
        field in prop::sample::select(vec!["tags", "labels", "nodeGroups", "nodePools", "kubernetesVersion", "privateAccess"]),
        values in prop::collection::vec(odd_value(), 5),
        pools in prop::collection::vec("[a-c/]{0,2}", 0..4),
        times in prop::collection::vec("(0|1|11):[0-5]?[0-9](:[0-5][0-9])?", 2),
        source in "cloud|console|rancher|restart|refresh|[a-z]{0,4}",
    ) {
        let named = |n: &String| serde_json::json!({"name": n, "nodegroupName": n, "count": values[0].clone()});
        let list: Vec<Value> = pools.iter().map(named).collect();
        let spec = |v: &Value| serde_json::json!({field: v, "nodePools": list, "nodeGroups": list, "imported": values[4] == Value::Null});
        let cluster = serde_json::json!({"apiVersion": "management.cattle.io/v3", "kind": "Cluster",
            "spec": {format!("{provider}Config"): spec(&values[1])},
            "status": {"appliedSpec": {format!("{provider}Config"): spec(&values[2])},
                format!("{provider}Status"): {"upstreamSpec": spec(&values[3])}, "conditions": values[4]}});
        parsers::hosted(cluster.to_string().as_bytes());
        let event = serde_json::json!({"source": source, "start": times[0], "end": times[1], "field": field, "value": values[1]});
        let change = serde_json::json!({"source": "rancher", "start": times[1], "field": "tags", "value": {}});
        let timeline = serde_json::json!({"provider": provider, "desired": {field: values[2]}, "events": [event, change]});
        parsers::hosted(timeline.to_string().as_bytes());
    }

    #[test]
    fn any_host(
        lines in prop::collection::vec(
            prop_oneof![
                "(MemTotal|MemAvailable|SwapTotal|SwapFree): +-?[0-9]{0,21}( kB)?",
                "(some|full) avg10=[0-9.naif]{0,6} avg60=[0-9.]{0,6} avg300=[0-9.]{0,6} total=[0-9]{0,21}",
                "[0-9]{1,11} [0-9]{1,11} [0-9]{1,3}:[0-9]{1,3} / (/[a-z]{0,4}|/) rw,\\PC{0,5} - (ext4|xfs|tmpfs) /dev/[a-z]{1,4} rw",
                "[0-9.]{1,6} [0-9.]{1,6} [0-9.]{1,6} [0-9]{1,3}/[0-9]{1,12} [0-9]{1,12}",
                "[0-9]{1,10}(-[0-9]{1,10})?(,[0-9]{1,10}(-[0-9]{1,10})?){0,3}",
                "(ID|VERSION_ID|PRETTY_NAME)=[\"']?\\PC{0,8}[\"']?",
                "-?[0-9]{1,25}(\\.[0-9]{1,3})?( [0-9.]{1,4})?",
                "\\PC{0,30}",
            ],
            0..6,
        ),
    ) {
        parsers::host(lines.join("\n").as_bytes());
    }

    #[test]
    fn any_http_answer(
        head in "HTTP/1\\.[01] [0-9]{2,3}( \\PC{0,6})?",
        lines in prop::collection::vec(
            prop_oneof![
                "(content-length|Content-Length): ?-?[0-9]{0,4}",
                Just("transfer-encoding: chunked".to_owned()),
                Just("connection: close".to_owned()),
                Just("upgrade: websocket".to_owned()),
                "[a-z-]{0,8}: ?[ -~]{0,12}",
                "\\PC{0,8}",
            ],
            0..5,
        ),
        body in "([0-9a-f]{1,3}\r\n)?[ -~]{0,400}(\r\n0\r\n\r\n)?",
        cut in 0_usize..600,
    ) {
        let text = format!("{head}\r\n{}\r\n\r\n{body}", lines.join("\r\n"));
        parsers::http_answer(text.as_bytes());
        parsers::http_answer(&text.as_bytes()[..cut.min(text.len())]);
    }

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
