//! How long silence is borne, measured at real balancers whose limits are seconds in place of half an hour.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use outrider_agent::config::LoadBalancerSettings;
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::{SenseContext, load_balancer};
use outrider_protocol::*;
use outrider_tests::beds::rancher::{API_TOKEN, Address, Balancer, Bed, Edit, HOST, Layer, Setup, missing};
use outrider_tests::table::Table;

use crate::said;

const WEB_SOCKET: &str = "LoadBalancerWebSocket";
/// How long a silent connection is held at most.
const TEST: Duration = Duration::from_secs(16);
/// The limits that are cut to, and how much later an end may be seen.
const CUT: f64 = 6.0;
const LATE: f64 = 4.0;

#[derive(Clone, Copy)]
enum With {
    Token,
    WrongToken,
    Nothing,
}

struct Case {
    name: &'static str,
    made: &'static str,
    setup: Setup,
    with: With,
    /// What the WebSocket's condition must say.
    reason: &'static str,
    words: &'static [&'static str],
    /// When the connection through the balancer must end; none: it is not held, or to the end.
    cut: Option<f64>,
}

fn case(
    name: &'static str,
    made: &'static str,
    setup: Setup,
    with: With,
    (reason, words): (&'static str, &'static [&'static str]),
    cut: Option<f64>,
) -> Case {
    Case { name, made, setup, with, reason, words, cut }
}

fn in_layer_4() -> Vec<Case> {
    let l4 =
        |edits: &[Edit]| Setup { balancer_edits: edits.to_vec(), ..Setup::new(Layer::L4, Balancer::Haproxy) };
    let impatient: [Edit; 2] =
        [("timeout client 1800s", "timeout client 6s"), ("timeout server 1800s", "timeout server 6s")];
    let ingress = |edit: Edit| Setup { ingress_edits: vec![edit], ..l4(&[]) };
    vec![
        case(
            "HAProxy tires, L4",
            "timeout client and server 6s",
            l4(&impatient),
            With::Token,
            ("WebSocketCutIdle", &["A silent WebSocket", "the balancer ends it"]),
            Some(CUT),
        ),
        case(
            "the ingress tires, L4",
            "nginx as ingress: proxy_read_timeout 6s",
            ingress(("proxy_read_timeout 1800s", "proxy_read_timeout 6s")),
            With::Token,
            ("WebSocketCutIdle", &["A silent WebSocket", "the ingress ends it"]),
            Some(CUT),
        ),
        case(
            "HAProxy tires, L4, seen without a token",
            "timeout client and server 6s",
            l4(&impatient),
            With::Nothing,
            ("WebSocketCutIdle", &["A silent connection, which to a balancer in L4", "the balancer ends it"]),
            Some(CUT),
        ),
        case(
            "the ingress ends what is kept alive, L4, seen without a token",
            "nginx as ingress: keepalive_timeout 6s",
            ingress(("access_log off;", "access_log off; keepalive_timeout 6s;")),
            With::Nothing,
            ("WebSocketPasses", &["tells nothing of WebSockets beyond that"]),
            Some(CUT),
        ),
    ]
}

fn in_layer_7() -> Vec<Case> {
    let l7 = |balancer, edits: &[Edit]| Setup {
        balancer_edits: edits.to_vec(),
        ..Setup::new(Layer::L7, balancer)
    };
    let (haproxy, nginx) = (Balancer::Haproxy, Balancer::Nginx);
    vec![
        case(
            "none, L7",
            "l7-haproxy.cfg",
            l7(haproxy, &[]),
            With::Token,
            ("WebSocketPasses", &["one without a word was held for 16 s"]),
            None,
        ),
        case(
            "HAProxy tires of a WebSocket, L7",
            "timeout tunnel 6s",
            l7(haproxy, &[("timeout tunnel 1800s", "timeout tunnel 6s")]),
            With::Token,
            ("WebSocketCutIdle", &["A silent WebSocket", "Rancher wants 1800 s"]),
            Some(CUT),
        ),
        case(
            "HAProxy tires of a kept connection only, L7",
            "timeout http-keep-alive 6s",
            l7(haproxy, &[("timeout tunnel 1800s", "timeout tunnel 1800s\n    timeout http-keep-alive 6s")]),
            With::Token,
            ("WebSocketPasses", &["was held for 16 s"]),
            None,
        ),
        case(
            "nginx tires of a WebSocket, L7",
            "proxy_read_timeout 6s",
            l7(nginx, &[("proxy_read_timeout 1800s", "proxy_read_timeout 6s")]),
            With::Token,
            ("WebSocketCutIdle", &["A silent WebSocket"]),
            Some(CUT),
        ),
        case(
            "L7 without a token",
            "idle_test alone",
            l7(haproxy, &[]),
            With::Nothing,
            ("WebSocketPasses", &["is not measured: without idle_test_token_file"]),
            None,
        ),
        case(
            "a token that Rancher does not know",
            "another user's secret",
            l7(haproxy, &[]),
            With::WrongToken,
            ("WebSocketPasses", &["answered with 401"]),
            None,
        ),
    ]
}

struct Agent {
    cx: SenseContext,
    folder: tempfile::TempDir,
}

impl Agent {
    fn new() -> Self {
        let cx = SenseContext {
            root: PathBuf::from("/"),
            clock: Arc::new(|| Timestamp::from(SystemTime::now())),
            opener: Arc::new(DirectOpener::new()),
        };
        Self { cx, folder: tempfile::tempdir().unwrap() }
    }

    fn settings(&self, bed: &Bed, setup: &Setup, with: With) -> LoadBalancerSettings {
        let token = self.folder.path().join("token");
        std::fs::write(
            &token,
            format!("{}\n", if matches!(with, With::Token) { API_TOKEN } else { "token-x:y" }),
        )
        .unwrap();
        let (mode, port) = match setup.layer {
            Layer::L4 => (BalancerMode::L4, 443),
            Layer::L7 => (BalancerMode::L7, 80),
        };
        LoadBalancerSettings {
            name: "rancher".into(),
            url: format!("https://{HOST}"),
            host: HOST.into(),
            mode,
            backends: (1..=3).map(|i| (bed.node(i).address(false), port).into()).collect(),
            ca: Some(bed.ca()),
            ca_checksum: Some(bed.ca_checksum()),
            resolve: BTreeMap::from([(HOST.to_owned(), vec![bed.address(Address::First)])]),
            idle_test: Some(TEST),
            idle_test_token_file: (!matches!(with, With::Nothing)).then_some(token),
            ..LoadBalancerSettings::default()
        }
    }

    /// A pass, and with its facts the test; what is judged of both.
    async fn test(&self, settings: &LoadBalancerSettings) -> (Fact<IdleFacts>, Condition) {
        let read =
            load_balancer::read(&self.cx, std::slice::from_ref(settings), Duration::from_secs(20)).await;
        let mut facts = read.value().unwrap()[0].clone();
        let idle = load_balancer::measure_idle(&self.cx, settings, &facts).await;
        facts.idle = Some(idle.clone());
        let now = self.cx.now();
        let node = NodeFacts {
            meta: TypeMeta::new("NodeFacts"),
            node: NodeRef {
                name: "n1".into(),
                uid: String::new(),
                cluster: String::new(),
                profile: Profile::Generic,
                simulated: false,
            },
            agent_version: String::new(),
            now,
            thresholds: Thresholds::default(),
            latches: Vec::new(),
            checks: CheckFacts {
                load_balancer: Some(Fact::known(vec![facts], "", now)),
                ..CheckFacts::default()
            },
        };
        let conditions = outrider_diagnosis::diagnose(&node).conditions;
        let condition = conditions.into_iter().find(|c| c.condition_type.as_str() == WEB_SOCKET);
        (idle, condition.unwrap())
    }
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn how_long_silence_is_borne_in_layer_4() {
    measured("layer 4", in_layer_4());
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn how_long_silence_is_borne_in_layer_7() {
    measured("layer 7", in_layer_7());
}

fn bed() -> Bed {
    if let Some(why) = missing() {
        panic!("{why}");
    }
    Bed::new().expect("a bed")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn measured(of: &str, cases: Vec<Case>) {
    let mut table = Table::new(&format!("one connection held without a word, for 16 s at most ({of})"));
    let (runtime, mut bed, agent) = (runtime(), bed(), Agent::new());
    let mut wrong = Vec::new();
    for case in cases {
        bed.arrange(&case.setup).unwrap_or_else(|e| panic!("{}: {e:#}", case.name));
        let settings = agent.settings(&bed, &case.setup, case.with);
        let start = Instant::now();
        let (idle, condition) = runtime.block_on(agent.test(&settings));
        table.timed(case.name, case.made, said(&condition), start.elapsed(), None);
        let ended = idle.value().map(|idle| (idle.through.end.clone(), idle.through.seconds));
        let as_cut = match (case.cut, &ended) {
            (Some(wanted), Some((IdleEnd::Cut, seconds))) => (wanted - 1.0..wanted + LATE).contains(seconds),
            (None, Some((IdleEnd::Held, _)) | None) => true,
            _ => false,
        };
        let told = condition.reason.as_str() == case.reason
            && case.words.iter().all(|word| condition.message.contains(word))
            && condition.advice.is_empty() == (case.reason == "WebSocketPasses");
        if !as_cut || !told {
            wrong.push(format!("{}: {idle:#?}\n{condition:#?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A way that forgets a connection says nothing: what is sent into it is lost.
#[test]
#[ignore = "run by tests/run --suite way-in"]
fn a_connection_that_the_way_forgets_is_told() {
    let mut table = Table::new("one connection held without a word, for 16 s at most (the way)");
    let (runtime, mut bed, agent) = (runtime(), bed(), Agent::new());
    let setup = Setup::new(Layer::L7, Balancer::Haproxy);
    bed.arrange(&setup).unwrap();
    let settings = agent.settings(&bed, &setup, With::Token);
    let start = Instant::now();
    let (idle, condition) = std::thread::scope(|scope| {
        let (bed, begun) = (&bed, start);
        scope.spawn(move || {
            std::thread::sleep((TEST / 2).saturating_sub(begun.elapsed()));
            bed.forget().unwrap();
        });
        runtime.block_on(agent.test(&settings))
    });
    bed.remember().unwrap();
    table.timed(
        "the way forgets the connection",
        "nft: all packets dropped",
        said(&condition),
        start.elapsed(),
        None,
    );
    let lost = idle.value().is_some_and(|idle| idle.through.end == IdleEnd::Lost);
    let told = condition.reason.as_str() == "WebSocketCutIdle" && condition.message.contains("forgotten");
    assert!(lost && told, "{idle:#?}\n{condition:#?}");
}
