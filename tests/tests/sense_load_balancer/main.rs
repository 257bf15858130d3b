//! The check `load-balancer` against a real HAProxy and real nginx, and against servers that mean no good.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

mod client_certificate;
mod hostile;
mod layers;
mod silence;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use outrider_agent::config::LoadBalancerSettings;
use outrider_agent::privileged::DirectOpener;
use outrider_agent::sense::SenseContext;
use outrider_agent::sense::load_balancer::read;
use outrider_protocol::{
    BalancerMode, Fact, HttpAnswer, LoadBalancerFacts, Probe, ProbeKind, ProbeTarget, Timestamp, UnknownCause,
};
use outrider_tests::beds::balancer::{Balancer, HOST, Options, missing};

const LIMIT: Duration = Duration::from_secs(20);

fn context() -> SenseContext {
    SenseContext {
        root: PathBuf::from("/"),
        clock: Arc::new(|| Timestamp::from(SystemTime::now())),
        opener: Arc::new(DirectOpener::new()),
    }
}

fn settings(https: SocketAddr, http: u16, addresses: &[IpAddr]) -> LoadBalancerSettings {
    LoadBalancerSettings {
        name: "rancher".into(),
        url: format!("https://{HOST}:{}", https.port()),
        host: HOST.into(),
        port: https.port(),
        http_port: http,
        mode: BalancerMode::Auto,
        backends: Vec::new(),
        backend_http_port: 8080,
        tries: 4,
        resolve: BTreeMap::from([(HOST.to_owned(), addresses.to_vec())]),
        ..LoadBalancerSettings::default()
    }
}

/// The bed with the settings of its layer-4 and layer-7 sides; `None`, said in one line, where it cannot run.
fn bed(options: &Options) -> Option<(Balancer, LoadBalancerSettings, LoadBalancerSettings)> {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return None;
    }
    let bed = Balancer::start(options).unwrap();
    let side = |https: SocketAddr, http: SocketAddr| LoadBalancerSettings {
        backends: vec![bed.backend(0), bed.backend(1)],
        ca: Some(bed.ca()),
        ..settings(https, http.port(), &[https.ip()])
    };
    let (l4, l7) = (side(bed.l4(), bed.l4_http()), side(bed.l7(), bed.l7_http()));
    Some((bed, l4, l7))
}

async fn pass(settings: &LoadBalancerSettings, limit: Duration) -> LoadBalancerFacts {
    let (cx, one) = (context(), [settings.clone()]);
    let reading = read(&cx, &one, limit);
    // The sensor keeps to its own limit; ten times that is for a machine that is busy.
    let fact = tokio::time::timeout(limit * 10, reading).await.expect("a pass ends");
    match fact {
        Fact::Known { value, .. } => value.into_iter().next().unwrap(),
        other => panic!("{other:?}"),
    }
}

fn tries(facts: &LoadBalancerFacts, target: ProbeTarget, kind: ProbeKind) -> Vec<&Probe> {
    facts.probes.iter().filter(|p| p.target == target && p.kind == kind).collect()
}

fn answers(facts: &LoadBalancerFacts, target: ProbeTarget, kind: ProbeKind) -> Vec<&HttpAnswer> {
    tries(facts, target, kind).into_iter().filter_map(|p| p.http.value()).collect()
}

fn statuses(facts: &LoadBalancerFacts, target: ProbeTarget, kind: ProbeKind) -> Vec<u16> {
    answers(facts, target, kind).iter().map(|a| a.status).collect()
}

fn cause<T>(fact: &Fact<T>) -> Option<&UnknownCause> {
    match fact {
        Fact::Unknown { cause, .. } => Some(cause),
        _ => None,
    }
}

use ProbeTarget::{Backend, Balancer as Through};

/// A server of plain http whose every path redirects to another one, but for `end`; closes after every other answer.
fn redirecting(end: Option<usize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            for keeps in [true, false] {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    match stream.read(&mut byte) {
                        Ok(1) => request.push(byte[0]),
                        _ => break,
                    }
                }
                let text = String::from_utf8(request).unwrap();
                let Some(path) = text.split(' ').nth(1) else { break };
                let step = path.trim_start_matches("/step/").split('?').next().unwrap_or_default();
                let step: usize = step.parse().unwrap_or(0);
                let connection = if keeps { "keep-alive" } else { "close" };
                let answer = if Some(step) == end {
                    format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: {connection}\r\n\r\n")
                } else {
                    format!(
                        "HTTP/1.1 302 Found\r\nlocation: https://{HOST}:80/step/{}?token=S3CRET\r\ncontent-length: 0\r\n\
                         connection: {connection}\r\n\r\n",
                        step + 1
                    )
                };
                if stream.write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    address
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn a_chain_of_redirects_is_followed_to_its_end_and_not_beyond_a_bound() {
    for (end, hops, last) in [(None, 10, 302), (Some(3), 3, 200)] {
        let server = redirecting(end);
        let dead = SocketAddr::from(([127, 0, 0, 1], 1));
        let one = LoadBalancerSettings {
            mode: BalancerMode::L7,
            backends: vec![server],
            backend_http_port: server.port(),
            ..settings(dead, 0, &[dead.ip()])
        };
        let facts = pass(&one, LIMIT).await;
        assert!(!format!("{facts:?}").contains("S3CRET"), "{facts:#?}");
        for kind in [ProbeKind::ForwardedRoot, ProbeKind::PlainRoot] {
            let [answer] = answers(&facts, Backend, kind.clone())[..] else { panic!("{facts:#?}") };
            assert_eq!((answer.status, answer.followed.len()), (302, hops), "{answer:#?}");
            assert!(answer.location.ends_with("/step/1?…"), "{answer:#?}");
            let end = answer.followed.last().unwrap();
            assert_eq!((end.status, answer.redirects_without_end()), (last, last == 302), "{answer:#?}");
        }
    }
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn layer_4_done_right() {
    let Some((_bed, l4, _)) = bed(&Options::default()) else { return };
    let facts = pass(&l4, LIMIT).await;
    assert_eq!(facts.mode, BalancerMode::L4, "the backend shows the same certificate");
    assert_eq!(facts.addresses.value().unwrap().len(), 1);
    // Four connections, and once more on the first of them.
    assert_eq!(statuses(&facts, Through, ProbeKind::Root), [200; 5]);
    let bodies: std::collections::BTreeSet<&str> =
        answers(&facts, Through, ProbeKind::Root).iter().map(|a| a.body_start.as_str()).collect();
    assert_eq!(bodies.len(), 2, "both backends had their turn: {bodies:?}");
    assert!(answers(&facts, Through, ProbeKind::Ping).iter().all(|a| a.body_start == "pong"));
    assert_eq!(statuses(&facts, Through, ProbeKind::Healthz), [200]);
    assert_eq!(statuses(&facts, Through, ProbeKind::Nonsense), [404]);
    assert_eq!(statuses(&facts, Through, ProbeKind::WebSocket), [401]);
    let redirect = answers(&facts, Through, ProbeKind::Redirect)[0];
    assert_eq!((redirect.status, redirect.location.as_str()), (302, "https://rancher.test/"));
    let connected = tries(&facts, Through, ProbeKind::Connect);
    let tls = connected[0].tls.value().unwrap();
    assert_eq!(tls.trust.value().map(String::as_str), Some(""));
    assert!(tls.name_matches && tls.version.starts_with("TLSv1."), "{tls:?}");
    assert_eq!(tls.chain[0].sans, [HOST]);
    assert!(matches!(connected[1].tls, Fact::NotApplicable { .. }), "the plain port");
    // Over TLS and, while the mode is being found out, over plain http.
    assert_eq!(statuses(&facts, Backend, ProbeKind::Ping), [200; 4]);
    assert_eq!(
        (&facts.found_mode, facts.found_by.contains("the very certificate")),
        (&BalancerMode::L4, true)
    );
    // The bed's words for an agent are not Rancher's, so the same is asked straight at the backends.
    let origins = statuses(&facts, Backend, ProbeKind::WebSocketOrigin);
    assert!(origins.len() >= 2 && origins.iter().all(|status| *status == 401), "{origins:?}");
    let ca = facts.ca.as_ref().unwrap().value().unwrap();
    assert_eq!((ca.status, ca.certificates.value().map(Vec::len)), (200, Some(1)), "{ca:#?}");
    assert!(facts.connections > 8 && facts.connections < 24, "{}", facts.connections);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn layer_7_done_right() {
    let Some((_bed, _, l7)) = bed(&Options::default()) else { return };
    let facts = pass(&l7, LIMIT).await;
    assert_eq!(facts.mode, BalancerMode::L7, "the balancer shows a certificate of its own");
    assert_eq!(statuses(&facts, Through, ProbeKind::Root), [200; 5]);
    assert_eq!(statuses(&facts, Backend, ProbeKind::ForwardedRoot), [200; 2]);
    assert_eq!(statuses(&facts, Backend, ProbeKind::PlainRoot), [302; 2]);
    assert_eq!(statuses(&facts, Through, ProbeKind::Redirect), [301]);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn redirect_loops_show_whose_they_are() {
    let missing = Options { forwarded_proto: false, ..Options::default() };
    let Some((_bed, _, l7)) = bed(&missing) else { return };
    let facts = pass(&l7, LIMIT).await;
    assert_eq!(statuses(&facts, Through, ProbeKind::Root), [302; 5]);
    assert_eq!(answers(&facts, Through, ProbeKind::Root)[0].location, "https://rancher.test/");
    assert_eq!(statuses(&facts, Backend, ProbeKind::ForwardedRoot), [200; 2]);
    // The trap: these paths never show it.
    assert!(statuses(&facts, Through, ProbeKind::Ping).iter().all(|s| *s == 200));

    let ignored = Options { ingress_trusts: false, ..Options::default() };
    let Some((_bed, _, l7)) = bed(&ignored) else { return };
    let facts = pass(&l7, LIMIT).await;
    assert_eq!(statuses(&facts, Through, ProbeKind::Root), [302; 5]);
    assert_eq!(statuses(&facts, Backend, ProbeKind::ForwardedRoot), [302; 2]);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn a_host_that_no_ingress_knows_meets_the_default_backend() {
    let Some((_bed, _, l7)) = bed(&Options { ingress_host: "other.test".into(), ..Options::default() })
    else {
        return;
    };
    let facts = pass(&l7, LIMIT).await;
    assert_eq!(statuses(&facts, Through, ProbeKind::Root), [404; 5]);
    assert_eq!(statuses(&facts, Backend, ProbeKind::ForwardedRoot), [404; 2]);
    assert!(answers(&facts, Through, ProbeKind::Root)[0].body_start.contains("default backend"));
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn a_dead_backend_is_seen_and_so_is_a_balancer_that_still_uses_it() {
    let Some((mut bed, l4, l7)) = bed(&Options { health_checks: false, ..Options::default() }) else {
        return;
    };
    bed.kill_backend(1);
    let facts = pass(&l7, LIMIT).await;
    let root = statuses(&facts, Through, ProbeKind::Root);
    assert!(root.contains(&200) && root.contains(&503), "{root:?}");
    let refused: Vec<&str> = tries(&facts, Backend, ProbeKind::Connect)
        .iter()
        .filter(|p| cause(&p.tcp) == Some(&UnknownCause::ConnectionRefused))
        .map(|p| p.peer.as_str())
        .collect();
    let [https, http] = [bed.backend(1).to_string(), bed.backend_http(1).to_string()];
    assert_eq!(refused, [https, http]);
    // In layer 4 the balancer closes without a word.
    let facts = pass(&l4, LIMIT).await;
    let root = tries(&facts, Through, ProbeKind::Root);
    assert!(root.iter().any(|p| p.http.value().is_some()), "{root:#?}");
    assert!(root.iter().any(|p| cause(&p.tls) == Some(&UnknownCause::TlsFailed)), "{root:#?}");

    bed.start_backend(1).unwrap();
    let facts = pass(&l7, LIMIT).await;
    assert_eq!(statuses(&facts, Through, ProbeKind::Root), [200; 5]);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn certificates_are_judged_by_name_and_root_and_accepted_all_the_same() {
    let Some((_bed, l4, _)) = bed(&Options { certificate_name: "other.test".into(), ..Options::default() })
    else {
        return;
    };
    let facts = pass(&l4, LIMIT).await;
    let tls = tries(&facts, Through, ProbeKind::Connect)[0].tls.value().unwrap();
    assert!(!tls.name_matches && tls.trust.value().unwrap().is_empty());
    let without_ca = LoadBalancerSettings { ca: None, ..l4.clone() };
    let facts = pass(&without_ca, LIMIT).await;
    let tls = tries(&facts, Through, ProbeKind::Connect)[0].tls.value().unwrap();
    assert!(tls.trust.value().unwrap().contains("trusted authority"), "{:?}", tls.trust);
    let bad_ca = LoadBalancerSettings { ca: Some("/nowhere/ca.pem".into()), ..l4 };
    let facts = pass(&bad_ca, LIMIT).await;
    let tls = tries(&facts, Through, ProbeKind::Connect)[0].tls.value().unwrap();
    assert!(cause(&tls.trust).is_some(), "not untrusted: the CA could not be read. {:?}", tls.trust);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn every_address_is_tried_by_itself() {
    let Some((bed, l4, _)) = bed(&Options::default()) else { return };
    let both = vec![bed.nobody().ip(), bed.l4().ip()];
    let facts =
        pass(&LoadBalancerSettings { resolve: BTreeMap::from([(HOST.into(), both)]), ..l4 }, LIMIT).await;
    let root = tries(&facts, Through, ProbeKind::Root);
    let (dead, alive): (Vec<&Probe>, Vec<&Probe>) =
        root.into_iter().partition(|p| p.peer == bed.nobody().to_string());
    assert!(dead.iter().all(|p| cause(&p.tcp) == Some(&UnknownCause::ConnectionRefused)));
    assert_eq!((dead.len(), alive.len()), (4, 5), "a dead address is tried as often as a live one");
    assert!(alive.iter().all(|p| p.http.value().is_some()));
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn a_name_without_addresses_is_absent() {
    let facts = pass(&settings(([127, 0, 0, 1], 443).into(), 80, &[]), LIMIT).await;
    assert!(matches!(facts.addresses, Fact::Absent { .. }), "{:?}", facts.addresses);
    assert!(facts.probes.is_empty());
}

/// A server that treats every connection the same way; it ends with the test process.
fn server(serve: fn(std::net::TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads up to the end of a header.
fn read_head(stream: &mut std::net::TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn a_peer_that_cuts_is_asked_once_more_with_a_proxy_header() {
    fn wants_it(mut stream: std::net::TcpStream) {
        if read_head(&mut stream).starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 ") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npong");
        }
    }
    fn calls_it_bad(mut stream: std::net::TcpStream) {
        let bad = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let good = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let answer = if read_head(&mut stream).starts_with("GET ") { &good[..] } else { bad };
        let _ = stream.write_all(answer);
    }
    let dead = SocketAddr::from(([127, 0, 0, 1], 1));
    for (serve, statuses_with, cut) in
        [(wants_it as fn(_), vec![200], true), (calls_it_bad as fn(_), vec![], false)]
    {
        let backend = server(serve);
        let one = LoadBalancerSettings {
            mode: BalancerMode::L7,
            backends: vec![backend],
            backend_http_port: backend.port(),
            ..settings(dead, 0, &[dead.ip()])
        };
        let facts = pass(&one, LIMIT).await;
        let plain = tries(&facts, Backend, ProbeKind::ForwardedRoot);
        assert_eq!(cause(&plain[0].http) == Some(&UnknownCause::Unreachable), cut, "{plain:#?}");
        assert_eq!(statuses(&facts, Backend, ProbeKind::ProxyPing), statuses_with);
    }
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn an_agent_leaves_the_backends_alone() {
    let backend = server(|_| {});
    let dead = SocketAddr::from(([127, 0, 0, 1], 1));
    let one = LoadBalancerSettings {
        backends: vec![backend],
        try_backends: false,
        ..settings(dead, 0, &[dead.ip()])
    };
    let facts = pass(&one, LIMIT).await;
    assert!(facts.probes.iter().all(|p| p.target == Through));
    assert!(matches!(facts.backends, Some(Fact::NotApplicable { .. })), "{:?}", facts.backends);
}
