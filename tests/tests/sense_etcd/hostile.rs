//! Peers that speak gRPC and lie: half answers, endless ones, lists that no etcd would send.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::channel::Channel;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use outrider_agent::config::EtcdSettings;
use outrider_agent::sense::etcd::Memory;
use outrider_protocol::{EtcdFacts, UnknownCause};

use super::{at, cause, pass};

/// What a fake says to one call.
#[derive(Clone)]
enum Say {
    /// This message, whole.
    Message(Vec<u8>),
    /// This message, and a stop before its end, with the connection open.
    Half(Vec<u8>),
    /// Bytes without end.
    Endless,
    /// Nothing.
    Nothing,
    /// No gRPC at all.
    Http,
}

/// A server that answers every call by its path, and remembers which were made.
struct Fake {
    url: String,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    async fn start(address: &str, say: impl Fn(&str) -> Say + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (say, calls) = (Arc::new(say), Arc::new(Mutex::new(Vec::new())));
        let noted: Arc<Mutex<Vec<String>>> = calls.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (say, noted) = (say.clone(), noted.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let path = request.uri().path().to_owned();
                    let said = say(&path);
                    noted.lock().unwrap().push(path);
                    async move { Ok::<_, std::convert::Infallible>(answer(said).await) }
                });
                let connection = http2::Builder::new(TokioExecutor::new());
                tokio::spawn(async move { connection.serve_connection(TokioIo::new(stream), service).await });
            }
        });
        Self { url, calls }
    }

    /// A member that is well as long as it is only asked for status and a read, and has this list.
    async fn with_list(list: Vec<u8>) -> Self {
        Self::start("127.0.0.1:0", move |path| healthy(path, &list)).await
    }

    fn settings(&self) -> EtcdSettings {
        EtcdSettings { endpoints: vec![self.url.clone()], ..EtcdSettings::default() }
    }

    fn asked(&self, path: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| call.ends_with(path)).count()
    }
}

fn healthy(path: &str, list: &[u8]) -> Say {
    let header = field(1, &[number(1, 7), number(2, 1), number(4, 3)].concat());
    match path {
        "/etcdserverpb.Maintenance/Status" => {
            Say::Message([header, field(2, b"3.5.0"), number(3, 4096), number(4, 1), number(5, 10)].concat())
        }
        "/etcdserverpb.KV/Range" | "/etcdserverpb.Maintenance/Alarm" => Say::Message(header),
        "/etcdserverpb.Cluster/MemberList" => Say::Message([&header[..], list].concat()),
        path => panic!("the sensor asked for {path}"),
    }
}

async fn answer(say: Say) -> Response<Channel<Bytes>> {
    let (mut sender, body) = Channel::<Bytes>::new(4);
    let mut response = Response::new(body);
    if matches!(say, Say::Http) {
        *response.status_mut() = http::StatusCode::NOT_FOUND;
        return response;
    }
    if matches!(say, Say::Nothing) {
        std::future::pending::<()>().await;
    }
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    tokio::spawn(async move {
        match say {
            Say::Message(message) => {
                let _ = sender.send_data(framed(&message, message.len())).await;
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                let _ = sender.send_trailers(trailers).await;
            }
            Say::Half(message) => {
                let half = &message[..message.len() / 2];
                let _ = sender.send_data(framed(half, message.len())).await;
                std::future::pending::<()>().await;
            }
            _ => {
                let zeros = Bytes::from(vec![0; 16 * 1024]);
                let _ = sender.send_data(framed(&[], u32::MAX as usize)).await;
                while sender.send_data(zeros.clone()).await.is_ok() {}
            }
        }
    });
    response
}

fn framed(message: &[u8], length: usize) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(length as u32);
    frame.put_slice(message);
    frame.freeze()
}

fn varint(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 0x80 {
        bytes.push((n as u8 & 0x7f) | 0x80);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

fn number(tag: u64, n: u64) -> Vec<u8> {
    [varint(tag << 3), varint(n)].concat()
}

fn field(tag: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(tag << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// A member of a list response.
fn member(id: u64, name: &str, urls: &[&str]) -> Vec<u8> {
    let mut fields = [number(1, id), field(2, name.as_bytes())].concat();
    fields.extend(urls.iter().flat_map(|url| field(4, url.as_bytes())));
    field(2, &fields)
}

/// No member may ever look well in these facts but one whose status came.
fn nothing_but_status_is_known(facts: &EtcdFacts) {
    for endpoint in &facts.endpoints {
        assert!(
            endpoint.status.value().is_some() || cause(&endpoint.linearizable_read).is_some(),
            "{endpoint:?}"
        );
    }
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn half_and_endless_answers_are_unknown_within_the_limit() {
    let full = [field(1, &number(2, 1)), field(2, b"3.5.0")].concat();
    for (say, expected) in [
        (Say::Half(full.clone()), UnknownCause::TimedOut),
        (Say::Nothing, UnknownCause::TimedOut),
        (Say::Endless, UnknownCause::InvalidAnswer),
        (Say::Http, UnknownCause::InvalidAnswer),
        (Say::Message(vec![0xff; 40]), UnknownCause::InvalidAnswer),
        // Empty messages are whole ones, and no etcd sends them; nor one without the id of its cluster.
        (Say::Message(Vec::new()), UnknownCause::InvalidAnswer),
        (Say::Message(full.clone()), UnknownCause::InvalidAnswer),
    ] {
        let fake = Fake::start("127.0.0.1:0", move |_| say.clone()).await;
        let start = Instant::now();
        let facts = pass(&fake.settings(), &mut Memory::default()).await;
        assert_eq!(cause(&facts.endpoints[0].status), Some(&expected), "{:?}", facts.endpoints[0]);
        assert!(cause(&facts.members).is_some() && cause(&facts.alarms).is_some(), "{facts:#?}");
        assert_eq!(facts.endpoints[0].linearizable_read.value(), None, "{facts:#?}");
        nothing_but_status_is_known(&facts);
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    }
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn one_half_answer_does_not_make_the_others_known() {
    // Status and reads are well, the list and the alarms never end.
    let fake = Fake::start("127.0.0.1:0", |path| match path {
        "/etcdserverpb.Cluster/MemberList" => Say::Half(member(1, "m1", &[])),
        "/etcdserverpb.Maintenance/Alarm" => Say::Nothing,
        path => healthy(path, &[]),
    })
    .await;
    let facts = pass(&fake.settings(), &mut Memory::default()).await;
    assert!(facts.endpoints[0].status.value().is_some());
    assert_eq!(cause(&facts.members), Some(&UnknownCause::TimedOut), "{:?}", facts.members);
    assert_eq!(cause(&facts.alarms), Some(&UnknownCause::TimedOut), "{:?}", facts.alarms);
    // Linearizable first, then what the member itself holds.
    assert_eq!(fake.asked("MemberList"), 2);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn lists_that_no_etcd_would_send_are_refused_whole() {
    let long = "x".repeat(5000);
    let many: Vec<u8> = (1..=1000).flat_map(|id| member(id, "m", &["http://127.0.0.1:1"])).collect();
    let urls: Vec<String> = (0..500).map(|i| format!("http://127.0.0.1:{}", i + 1)).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let huge = member(1, &"y".repeat(3 * 1024 * 1024), &[]);
    for (list, says) in [
        (Vec::new(), "empty"),
        (many, "no etcd has that many"),
        (member(1, "m1", &urls), "as many URLs"),
        (member(1, &long, &[]), "more than"),
        (member(1, "m1", &[&long]), "more than"),
        (huge, ""),
    ] {
        let fake = Fake::with_list(list).await;
        let facts = pass(&fake.settings(), &mut Memory::default()).await;
        match &facts.members {
            outrider_protocol::Fact::Unknown { cause, detail, .. } => {
                assert_eq!(*cause, UnknownCause::InvalidAnswer, "{says}: {detail}");
                assert!(detail.contains(says), "{says}: {detail}");
            }
            other => panic!("{says}: {other:?}"),
        }
        assert!(facts.endpoints[0].status.value().is_some(), "what is well stays known");
        assert_eq!(facts.endpoints.len(), 1, "nobody of such a list is asked");
    }
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn names_and_urls_of_every_kind() {
    let Ok(free) = std::net::TcpListener::bind("[::1]:0") else {
        println!("skipped: no IPv6 loopback on this machine");
        return;
    };
    drop(free);
    // A second member on IPv6 with brackets: asked, and well.
    let other = Fake::start("[::1]:0", |path| healthy(path, &[])).await;
    let bracketed = other.url.clone();
    let bare = "http://fd00::1:2379";
    let list = [
        member(1, "m1", &[]),
        // Never started: no name, no URL.
        member(2, "", &[]),
        member(3, "m3", &["", bare, "ftp://127.0.0.1:2379", "http://user:s3cret@127.0.0.1:2379"]),
        // One URL twice, and at two members.
        member(4, "m4", &[&bracketed, &bracketed]),
        member(5, "m5", &[&bracketed]),
    ]
    .concat();
    let fake = Fake::with_list(list).await;
    let facts = pass(&fake.settings(), &mut Memory::default()).await;
    let members = &facts.members.value().unwrap().members;
    assert_eq!(members.len(), 5);
    assert!(members[1].name.is_empty() && members[1].client_urls.is_empty());

    assert!(at(&facts, &bracketed).status.value().is_some(), "{facts:#?}");
    assert_eq!(facts.endpoints.iter().filter(|e| e.endpoint == bracketed).count(), 1, "asked once");
    assert_eq!(other.asked("Status"), 1);
    for (url, says) in [
        ("", "does not start with"),
        (bare, "write \"http://[fd00::1]:2379\""),
        ("ftp://127.0.0.1:2379", "does not start with"),
    ] {
        match &at(&facts, url).status {
            outrider_protocol::Fact::Unknown { cause: UnknownCause::InvalidInput, detail, .. } => {
                assert!(detail.contains(says), "{url:?}: {detail}");
            }
            other => panic!("{url:?}: {other:?}"),
        }
        assert_eq!(at(&facts, url).member_id, "3", "{url:?}");
    }
    let text = serde_json::to_string(&facts.endpoints.iter().map(|e| &e.status).collect::<Vec<_>>()).unwrap();
    assert!(!text.contains("s3cret"), "{text}");
    nothing_but_status_is_known(&facts);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn what_a_member_says_without_end_is_cut() {
    let fake = Fake::start("127.0.0.1:0", |path| match path {
        "/etcdserverpb.Maintenance/Status" => {
            let errors: Vec<u8> = (0..200).flat_map(|_| field(8, "ä".repeat(700).as_bytes())).collect();
            let header = field(1, &[number(1, 7), number(2, 1)].concat());
            Say::Message([header, field(2, &[b'9'; 9000]), number(4, 1), errors].concat())
        }
        "/etcdserverpb.Maintenance/Alarm" => {
            let alarm = field(2, &[number(1, 1), number(2, 1)].concat());
            Say::Message(alarm.repeat(10_000))
        }
        path => healthy(path, &member(1, "m1", &[])),
    })
    .await;
    let facts = pass(&fake.settings(), &mut Memory::default()).await;
    let status = facts.endpoints[0].status.value().unwrap();
    assert!(status.errors.len() <= 64 && status.errors.iter().all(|e| e.len() <= 1024));
    assert!(status.version.len() <= 1024);
    assert!(facts.alarms.value().unwrap().len() <= 64);
    assert!(serde_json::to_vec(&facts).unwrap().len() < 256 * 1024);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn only_calls_that_read_are_ever_made() {
    let fake = Fake::with_list(member(1, "m1", &[])).await;
    pass(&fake.settings(), &mut Memory::default()).await;
    let calls = fake.calls.lock().unwrap().clone();
    let reading = ["Maintenance/Status", "KV/Range", "Cluster/MemberList", "Maintenance/Alarm"];
    assert!(calls.iter().all(|call| reading.iter().any(|known| call.ends_with(known))), "{calls:?}");
    assert!(calls.len() >= 4, "{calls:?}");
}

/// A TLS server whose certificate is right in everything but its time; counted from now, in days.
fn with_certificate(from: i64, until: i64, folder: &std::path::Path) -> EtcdSettings {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let now = std::time::SystemTime::now();
    let days = |n: i64| {
        let span = std::time::Duration::from_secs(n.unsigned_abs() * 86_400);
        if n < 0 { now - span } else { now + span }
    };
    (params.not_before, params.not_after) = (days(from).into(), days(until).into());
    let certificate = params.signed_by(&key, &ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = acceptor.accept(stream).await;
        }
    });
    let file = folder.join(format!("ca{from}.pem"));
    std::fs::write(&file, ca.pem()).unwrap();
    EtcdSettings { endpoints: vec![url], ca: Some(file), ..EtcdSettings::default() }
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-etcd"]
async fn a_wrong_clock_on_either_side_is_named() {
    let folder = tempfile::tempdir().unwrap();
    // Made by a member whose clock is ahead, or seen by a machine whose clock is; and the other way round.
    for (from, until, says) in [(3, 300, "becomes valid only in"), (-300, -3, "expired")] {
        let settings = with_certificate(from, until, folder.path());
        let facts = pass(&settings, &mut Memory::default()).await;
        match &facts.endpoints[0].status {
            outrider_protocol::Fact::Unknown { cause: UnknownCause::TlsFailed, detail, .. } => {
                assert!(detail.contains(says), "{detail}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(cause(&facts.members), Some(&UnknownCause::TlsFailed));
        nothing_but_status_is_known(&facts);
    }
}
