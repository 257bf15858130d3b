//! What people see, byte for byte, at a fixed time. `OUTRIDER_BLESS=1 cargo test -p outrider-cli --lib show` writes the
//! files anew; read the difference before you commit it.

use std::collections::BTreeMap;
use std::path::Path;

use outrider_protocol::{
    Check, ClusterEtcd, ClusterMember, ClusterView, Condition, ConditionType, EventView, Identity,
    MatrixCell, MatrixRow, MemberHealth, MemberRole, MemberStatus, NewestSnapshot, NodeConditions, NodeRef,
    NodeView, NotApplicable, Profile, ReasonCode, Severity, Status, Timestamp, TokenKind, TokenView,
    Transition, TypeMeta, UnheardNode,
};

use super::report::Layout;
use super::{clusters, conditions, describe, events, nagios, nodes, report, tokens};
use crate::output::{Column, Table};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2027-03-01T12:00:00.000Z")
}

fn condition(
    condition_type: ConditionType,
    subject: &str,
    status: Status,
    severity: Severity,
    reason: ReasonCode,
    words: (&str, &str),
) -> Condition {
    Condition {
        condition_type,
        status,
        severity,
        reason,
        message: words.0.to_owned(),
        advice: words.1.to_owned(),
        subject: subject.to_owned(),
        last_transition_time: at("2027-03-01T11:55:20.000Z"),
        observed_at: at("2027-03-01T11:59:58.000Z"),
    }
}

fn some_conditions() -> Vec<Condition> {
    vec![
        condition(
            ConditionType::Ready,
            "",
            Status::True,
            Severity::Ok,
            ReasonCode::AgentRunning,
            ("Agent 0.1.0 runs; 6 checks have been read.", ""),
        ),
        condition(
            ConditionType::EtcdQuorum,
            "",
            Status::False,
            Severity::Error,
            ReasonCode::EtcdQuorumLost,
            (
                "Quorum is lost: 3 voters, quorum 2, 1 healthy, tolerates 0 more; m2 does not answer for 31 s and m3 does \
                 not answer for 12 s.",
                "Bring the named members back, one is enough if it makes the quorum. Do not restart the ones that answer.",
            ),
        ),
        condition(
            ConditionType::HostHealthy,
            "/var/lib/rancher",
            Status::True,
            Severity::Warn,
            ReasonCode::DiskSpaceLow,
            ("12.1 GB of 107.4 GB (11 %) available on /var/lib/rancher.", "Free space before 5 % are left."),
        ),
        condition(
            ConditionType::GuestAgentReady,
            "",
            Status::Unknown,
            Severity::Warn,
            ReasonCode::PermissionDenied,
            (
                "The process list could not be read: permission denied.\nA second line\u{1b}[31m.",
                "Ask as root.",
            ),
        ),
    ]
}

fn verdict() -> NodeConditions {
    NodeConditions {
        meta: TypeMeta::new("NodeConditions"),
        node: NodeRef {
            name: "db1".to_owned(),
            uid: String::new(),
            cluster: "rancher".to_owned(),
            profile: Profile::RancherHaServer,
            simulated: false,
        },
        conditions: some_conditions(),
        not_applicable: vec![
            NotApplicable { check: Check::LoadBalancer, reason: "no load balancer is configured".to_owned() },
            NotApplicable { check: Check::CloudInit, reason: "cloud-init is not installed".to_owned() },
        ],
    }
}

fn some_nodes() -> Vec<NodeView> {
    let node = |name: &str, cluster: &str, ready, enrolment: &str, conditions| NodeView {
        meta: TypeMeta::new("Node"),
        name: name.to_owned(),
        uid: format!("uid-of-{name}"),
        cluster: cluster.to_owned(),
        reported_cluster: String::new(),
        profile: Profile::RancherHaServer,
        simulated: name.starts_with("sim"),
        ready,
        last_seen: (enrolment != "pending").then(|| at("2027-03-01T11:59:57.000Z")),
        enrolled_at: at("2027-02-20T08:00:00.000Z"),
        agent_version: "0.1.0".to_owned(),
        zone: "zone-a".to_owned(),
        region: String::new(),
        labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        identity: Identity {
            machine_id_hash: "ab".repeat(32),
            macs: vec!["52:54:00:12:34:56".to_owned()],
            addresses: vec!["192.0.2.11/24".to_owned(), "2001:db8::11/64".to_owned()],
            ..Identity::default()
        },
        enrolment: enrolment.to_owned(),
        conditions,
    };
    vec![
        node("db1", "rancher", Status::True, "approved", some_conditions()),
        node("grün-日本", "", Status::True, "approved", some_conditions()[..1].to_vec()),
        node("new", "", Status::Unknown, "pending", Vec::new()),
        node("old", "rancher", Status::Unknown, "revoked", Vec::new()),
        node("sim-vm-1", "", Status::Unknown, "approved", some_conditions()[3..].to_vec()),
    ]
}

fn some_clusters() -> Vec<ClusterView> {
    let mut quorum = some_conditions().remove(1);
    quorum.subject = "rancher".to_owned();
    let cluster = |name: &str, nodes: &[&str], conditions| ClusterView {
        meta: TypeMeta::new("Cluster"),
        name: name.to_owned(),
        nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
        conditions,
        etcd: None,
        paths: Vec::new(),
    };
    let mut rancher = cluster("rancher", &["db1", "db2", "db3"], vec![quorum]);
    rancher.etcd = Some(some_etcd());
    vec![cluster("empty", &[], Vec::new()), rancher]
}

/// Two of three servers are gone, one of them a ghost, and a learner is on its way.
fn some_etcd() -> ClusterEtcd {
    let gone = at("2027-03-01T11:59:29.000Z");
    let member = |n: u64, health: MemberHealth, role: MemberRole, lag: u64| ClusterMember {
        id: format!("{n:x}a"),
        name: format!("db{n}-1a2b3c4d"),
        node: format!("db{n}"),
        zone: "zone-a".to_owned(),
        region: String::new(),
        role,
        why: if health == MemberHealth::Down {
            "does not answer at https://192.0.2.12:2379".to_owned()
        } else {
            String::new()
        },
        down_since: (health == MemberHealth::Down).then_some(gone),
        kubernetes_node: if n == 3 { Status::False } else { Status::True },
        peer_urls: vec![format!("https://192.0.2.1{n}:2380")],
        alarms: if n == 1 { vec!["NOSPACE".to_owned()] } else { Vec::new() },
        status: (health != MemberHealth::Down).then(|| MemberStatus {
            at: now(),
            version: "3.5.16".to_owned(),
            db_size_bytes: 2_147_483_648,
            db_in_use_bytes: 310_000_000,
            raft_term: 7,
            raft_index: 120_000 - lag,
            raft_lag: lag,
            leader: if n == 1 { String::new() } else { "db1-1a2b3c4d".to_owned() },
        }),
        health,
    };
    let cell = |n: u64, reached, own| MatrixCell {
        member_id: format!("{n:x}a"),
        reached,
        peer: if reached == Status::False { Status::False } else { Status::Unknown },
        own,
        since: (reached == Status::False).then_some(gone),
        cause: String::new(),
    };
    ClusterEtcd {
        cluster_id: "c1".to_owned(),
        observed_at: at("2027-03-01T11:59:58.000Z"),
        voters: 3,
        quorum: 2,
        healthy: 0,
        unknown: 0,
        tolerated: 0,
        tolerated_without_ghosts: Some(0),
        learners: 1,
        members: vec![
            member(1, MemberHealth::NoLeader, MemberRole::Voter, 0),
            member(2, MemberHealth::Down, MemberRole::Voter, 0),
            member(3, MemberHealth::Down, MemberRole::Voter, 0),
            member(4, MemberHealth::Healthy, MemberRole::Learner, 111_000),
        ],
        matrix: [1, 4]
            .into_iter()
            .map(|n| MatrixRow {
                node: format!("db{n}"),
                at: at("2027-03-01T11:59:57.000Z"),
                cells: vec![
                    cell(1, if n == 4 { Status::Unknown } else { Status::True }, n == 1),
                    cell(2, Status::False, false),
                    cell(3, Status::False, false),
                    cell(4, Status::True, n == 4),
                ],
            })
            .collect(),
        unheard: vec![UnheardNode { node: "db2".to_owned(), why: "silent".to_owned() }],
        newest_snapshot: Some(NewestSnapshot {
            node: "db1".to_owned(),
            folder: "/var/lib/rancher/rke2/server/db/snapshots".to_owned(),
            name: "etcd-snapshot-db1-1772366400".to_owned(),
            at: at("2027-03-01T00:00:02.000Z"),
            size_bytes: 52_000_000,
            nodes: 1,
            object_storage: false,
        }),
    }
}

fn some_events() -> Vec<EventView> {
    let event = |id, index: usize, previous_status, removed, merged| EventView {
        meta: TypeMeta::new("Event"),
        id,
        node: "db1".to_owned(),
        received_at: now(),
        transition: Transition {
            at: at("2027-03-01T11:55:20.000Z"),
            condition: some_conditions().remove(index),
            previous_status,
            previous_reason: None,
            removed,
            merged,
        },
    };
    vec![
        event(1, 0, None, false, 0),
        event(2, 1, Some(Status::True), false, 3),
        event(3, 2, Some(Status::True), false, 0),
        event(4, 3, Some(Status::True), true, 0),
    ]
}

fn some_tokens() -> Vec<TokenView> {
    let token = |id: &str, kind, expires: Option<&str>, uses_left, revoked| TokenView {
        meta: TypeMeta::new("Token"),
        id: id.to_owned(),
        token_kind: kind,
        created_at: at("2027-03-01T10:00:00.000Z"),
        expires_at: expires.map(at),
        uses_left,
        name_pattern: "pool1-*".to_owned(),
        rate_per_hour: 10,
        admit_seen_vm: false,
        cluster: String::new(),
        revoked,
        token: String::new(),
    };
    vec![
        token("aaaaaaaaaa", TokenKind::Once, Some("2027-03-02T10:00:00.000Z"), Some(1), false),
        token("bbbbbbbbbb", TokenKind::Once, Some("2027-03-01T11:00:00.000Z"), Some(1), false),
        token("cccccccccc", TokenKind::Pool, None, None, false),
        token("dddddddddd", TokenKind::Pool, None, None, true),
        token("eeeeeeeeee", TokenKind::Once, Some("2027-03-02T10:00:00.000Z"), Some(0), false),
    ]
}

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/show/golden").join(name);
    if std::env::var_os("OUTRIDER_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == wanted,
        "{name} has changed; if that is meant: OUTRIDER_BLESS=1 cargo test -p outrider-cli --lib show\n\
         --- is\n{text}\n--- was\n{wanted}"
    );
}

fn table<T>(columns: Vec<Column<T>>, items: &[T], wide: bool, width: Option<usize>, colour: bool) -> String {
    let mut table = Table::new(columns, wide);
    table.limit = width;
    table.colour = colour;
    table.render(items)
}

const PLAIN: Layout = Layout { width: None, colour: false, wide: false };

#[test]
fn the_verdict_over_one_node() {
    golden("report.txt", &report::node(&verdict(), PLAIN));
    golden("report-wide.txt", &report::node(&verdict(), Layout { wide: true, ..PLAIN }));
    golden("report-100.txt", &report::node(&verdict(), Layout { width: Some(100), ..PLAIN }));
    golden("report-60.txt", &report::node(&verdict(), Layout { width: Some(60), ..PLAIN }));
    golden("report-colour.txt", &report::node(&verdict(), Layout { colour: true, ..PLAIN }));
}

#[test]
fn one_line_for_a_monitoring_system() {
    let facts = serde_json::from_str(include_str!("../simulate/recordings/rancher-server.json")).unwrap();
    let line = nagios::line(&verdict(), &facts, &[]);
    assert_eq!(line.matches('\n').count(), 1);
    assert_eq!(line.matches('|').count(), 1);
    golden("nagios.txt", &line);
    let nothing = NodeConditions { conditions: Vec::new(), ..verdict() };
    assert!(nagios::line(&nothing, &facts, &[]).starts_with("OUTRIDER UNKNOWN - nothing was judged |"));
    let asked = ["etcd: not applicable here: no etcd".to_owned()];
    assert!(
        nagios::line(&nothing, &facts, &asked)
            .starts_with("OUTRIDER UNKNOWN - etcd: not applicable here: no etcd |")
    );
}

#[test]
fn lists_of_the_fleet() {
    golden("nodes.txt", &table(nodes::columns(now()), &some_nodes(), false, None, false));
    let ordinary: Vec<_> =
        some_nodes().into_iter().take(4).map(|node| NodeView { zone: String::new(), ..node }).collect();
    let mut compact = Table::new(nodes::columns(now()), false).compact(&ordinary);
    compact.limit = Some(80);
    golden("nodes-80.txt", &compact.render(&ordinary));
    golden("nodes-wide.txt", &table(nodes::columns(now()), &some_nodes(), true, None, false));
    golden("nodes-100.txt", &table(nodes::columns(now()), &some_nodes(), false, Some(100), false));
    golden("nodes-colour.txt", &table(nodes::columns(now()), &some_nodes(), false, None, true));
    golden(
        "clusters.txt",
        &table(clusters::columns(&clusters::members(&some_nodes())), &some_clusters(), true, None, false),
    );
    golden("events.txt", &table(events::columns(), &some_events(), false, None, false));
    golden("tokens.txt", &table(tokens::columns(now()), &some_tokens(), true, None, false));
    let mut owned: Vec<_> = some_nodes()
        .iter()
        .flat_map(|node| {
            node.conditions.iter().map(|c| conditions::Owned::new(node.name.clone(), node.simulated, c))
        })
        .collect();
    conditions::sort(&mut owned);
    golden("conditions.txt", &table(conditions::columns(now()), &owned, false, None, false));
}

#[test]
fn all_that_is_known_of_one() {
    golden("describe-node.txt", &describe::node(&some_nodes()[0], &some_events(), now(), PLAIN));
    golden("describe-cluster.txt", &describe::cluster(&some_clusters()[1], &some_nodes()[..1], now(), PLAIN));
    let narrow = Layout { width: Some(100), ..PLAIN };
    golden(
        "describe-cluster-100.txt",
        &describe::cluster(&some_clusters()[1], &some_nodes()[..1], now(), narrow),
    );
}

/// A cluster is no better than its nodes, and one of which nothing was judged is not ok.
#[test]
fn a_cluster_is_no_better_than_its_nodes() {
    let mut nodes = some_nodes();
    let bare = |name: &str| ClusterView {
        name: name.to_owned(),
        conditions: Vec::new(),
        ..some_clusters().remove(0)
    };
    let members = clusters::members(&nodes);
    let rows = table(clusters::columns(&members), &[bare("rancher"), bare("empty")], false, None, false);
    let rows: Vec<Vec<&str>> = rows.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows[1][3], rows[2][3]), ("error", "-"), "{rows:?}");
    assert_eq!(rows[1][4..].join(" "), "1 node needs a look: db1");

    let quorum = Condition { severity: Severity::Ok, status: Status::True, ..some_conditions().remove(1) };
    let well = ClusterView { conditions: vec![quorum], ..bare("rancher") };
    let text = describe::cluster(&well, &nodes[..1], now(), PLAIN);
    assert!(text.contains("Conditions: 1 ok; 1 node needs a look, below\n"), "{text}");
    let text = describe::cluster(&bare("rancher"), &nodes[..1], now(), PLAIN);
    assert!(!text.contains("SEVERITY") && text.contains("Conditions: nothing was judged; 1 node"), "{text}");
    nodes[0].enrolment = "revoked".to_owned();
    assert!(describe::cluster(&well, &nodes[..1], now(), PLAIN).contains("all is well"));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    use unicode_width::UnicodeWidthStr;
    for width in [60, 80, 100, 140] {
        let layout = Layout { width: Some(width), ..PLAIN };
        for line in report::rows(&some_conditions(), layout).lines().skip(1) {
            assert!(line.width() <= width, "{width}: {line}");
        }
    }
    let text = table(nodes::columns(now()), &some_nodes(), false, Some(120), false);
    assert!(text.lines().all(|line| line.width() <= 120), "{text}");
}
