//! Servers that mean no good: slow, endless, without sense, with certificates of every kind. Each costs its limit and no
//! more, and is named.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use outrider_agent::config::LoadBalancerSettings;
use outrider_protocol::{Fact, LoadBalancerFacts, ProbeKind, Timestamp, TlsFacts, UnknownCause};
use outrider_tests::beds::pki::{Authority, DAY, Issued};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::sign::CertifiedKey;

use crate::{Through, cause, pass, read_head, server, settings, tries};

fn read_request(stream: &mut TcpStream) {
    let mut request = [0; 2048];
    let _ = stream.read(&mut request);
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn hostile_servers_cost_their_limit_and_no_more() {
    fn drip(mut stream: TcpStream) {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    fn flood(mut stream: TcpStream) {
        read_request(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n");
        while stream.write_all(&[b'x'; 65536]).is_ok() {}
    }
    fn silence(stream: TcpStream) {
        std::thread::sleep(Duration::from_secs(600));
        drop(stream);
    }
    fn binary(mut stream: TcpStream) {
        read_request(&mut stream);
        let _ = stream.write_all(b"\x00\x01PROXY TCP4\xff\r\n\r\n");
        silence(stream);
    }
    let limit = Duration::from_secs(4);
    let plain = |address: SocketAddr| settings(([127, 0, 0, 1], 1).into(), address.port(), &[address.ip()]);
    let redirect = |facts: &LoadBalancerFacts| tries(facts, Through, ProbeKind::Redirect)[0].http.clone();

    let facts = pass(&plain(server(drip)), limit).await;
    assert_eq!(cause(&redirect(&facts)), Some(&UnknownCause::TimedOut));
    let facts = pass(&plain(server(flood)), limit).await;
    let answer = redirect(&facts);
    assert_eq!(
        (answer.value().unwrap().body_bytes, answer.value().unwrap().body_start.len()),
        (1024 * 1024, 120)
    );
    let facts = pass(&plain(server(binary)), limit).await;
    assert_eq!(cause(&redirect(&facts)), Some(&UnknownCause::InvalidAnswer));
    let facts = pass(&plain(server(silence)), limit).await;
    assert_eq!(cause(&redirect(&facts)), Some(&UnknownCause::TimedOut));

    // A TLS port that never answers the handshake, and one that speaks plain http.
    for (serve, expected) in [(silence as fn(_), UnknownCause::TimedOut), (binary, UnknownCause::TlsFailed)] {
        let address = server(serve);
        let facts = pass(&settings(address, 0, &[address.ip()]), limit).await;
        let tries = tries(&facts, Through, ProbeKind::Root);
        assert!(!tries.is_empty() && tries.iter().all(|p| cause(&p.tls) == Some(&expected)), "{tries:#?}");
        // What came in place of TLS is kept.
        let said = expected == UnknownCause::TlsFailed;
        assert!(tries.iter().all(|p| p.raw.contains("PROXY TCP4") == said), "{tries:#?}");
    }
}

/// A server of TLS with this chain, whatever it is worth, that answers nothing.
fn tls_server(chain: Vec<Vec<u8>>, key: &str) -> SocketAddr {
    #[derive(Debug)]
    struct Always(Arc<CertifiedKey>);
    impl rustls::server::ResolvesServerCert for Always {
        fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            Some(self.0.clone())
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = provider.key_provider.load_private_key(PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap());
    let chain = chain.into_iter().map(CertificateDer::from).collect();
    let resolver = Always(Arc::new(CertifiedKey::new(chain, key.unwrap())));
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let config = config.clone();
            std::thread::spawn(move || {
                let Ok(mut session) = rustls::ServerConnection::new(config) else { return };
                let mut tls = rustls::Stream::new(&mut session, &mut stream);
                let mut request = [0; 2048];
                while matches!(tls.read(&mut request), Ok(1..)) {}
            });
        }
    });
    address
}

fn issued(change: impl Fn(&Authority) -> Issued) -> (Vec<Vec<u8>>, String) {
    let authority = Authority::new("hostile tests", 3000 * DAY).unwrap();
    let leaf = change(&authority);
    (vec![leaf.der], leaf.key)
}

/// What a handshake with this chain came to.
async fn shown(chain: Vec<Vec<u8>>, key: &str) -> Fact<TlsFacts> {
    let address = tls_server(chain, key);
    let facts = pass(&settings(address, 0, &[address.ip()]), Duration::from_secs(8)).await;
    tries(&facts, Through, ProbeKind::Connect)[0].tls.clone()
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn certificates_of_every_kind_are_named_and_bounded() {
    use crate::HOST;
    // A thousand names: no fact grows with them.
    let names: Vec<String> = (0..1000).map(|i| format!("name-{i}.example.com")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain([HOST]).collect();
    let (chain, key) = issued(|ca| ca.issue(HOST, &names, -DAY, DAY).unwrap());
    let many = shown(chain, &key).await;
    let many = many.value().unwrap();
    assert!(many.name_matches, "the last of the names");
    assert!(many.chain[0].sans.len() <= 51, "{}", many.chain[0].sans.len());
    assert!(many.chain[0].sans.last().unwrap().contains("951 more"), "{:?}", many.chain[0].sans.last());

    // No name at all, an address in place of one, a name that is none, a name with an escape sequence in it.
    for (sans, matches) in
        [(vec![], false), (vec!["127.0.0.1"], false), (vec!["*"], false), (vec![HOST], true)]
    {
        let (chain, key) = issued(|ca| ca.issue("\u{1b}[31mred\n", &sans, -DAY, DAY).unwrap());
        let tls = shown(chain, &key).await;
        let tls = tls.value().unwrap();
        assert_eq!(tls.name_matches, matches, "{sans:?}");
        assert!(!tls.chain[0].subject.chars().any(char::is_control), "{:?}", tls.chain[0].subject);
    }
    // Ended, and not begun: that stands in the dates, and does not hide that nobody here knows who issued it.
    for (from, to) in [(-3 * DAY, -2 * DAY), (DAY, 2 * DAY)] {
        let (chain, key) = issued(|ca| ca.issue(HOST, &[HOST], from, to).unwrap());
        let tls = shown(chain, &key).await;
        let tls = tls.value().unwrap();
        let (now, leaf) = (Timestamp::from(SystemTime::now()), &tls.chain[0]);
        assert!(leaf.not_after <= now || leaf.not_before > now, "{leaf:?}");
        let why = tls.trust.value().unwrap();
        assert!(why.contains("no trusted authority"), "{why}");
    }
    // A chain of forty that belong to nobody, and one that is longer than any handshake may be.
    let (chain, key) = issued(|ca| ca.issue(HOST, &[HOST], -DAY, DAY).unwrap());
    let strangers = |n: usize| {
        let more =
            (0..n).map(|_| issued(|ca| ca.issue("stranger", &names[..40], -DAY, DAY).unwrap()).0.remove(0));
        [chain.clone(), more.collect()].concat()
    };
    let long = shown(strangers(20), &key).await;
    assert_eq!(long.value().unwrap().chain.len(), 10);
    let longer = shown(strangers(80), &key).await;
    assert_eq!(cause(&longer), Some(&UnknownCause::TlsFailed), "{longer:?}");
    // Bytes that are no certificate, and none at all.
    for chain in [vec![b"not a certificate".to_vec()], vec![vec![]], vec![]] {
        let tls = shown(chain.clone(), &key).await;
        assert!(
            matches!(cause(&tls), Some(UnknownCause::TlsFailed | UnknownCause::InvalidAnswer)),
            "{chain:?}: {tls:?}"
        );
    }
}

#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn headers_and_handshakes_without_end_cost_their_limit() {
    fn slow_header(mut stream: TcpStream) {
        read_head(&mut stream);
        for byte in b"HTTP/1.1 200 OK\r\nx-filler: ".iter().chain(std::iter::repeat(&b'x')) {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    fn endless_header(mut stream: TcpStream) {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"x-filler: 0123456789012345678901234567890123456789\r\n").is_ok() {}
    }
    fn long_location(mut stream: TcpStream) {
        read_head(&mut stream);
        let far = "a".repeat(20_000);
        let _ = write!(
            stream,
            "HTTP/1.1 302 Found\r\nlocation: https://x.test/{far}\r\ncontent-length: 0\r\n\r\n"
        );
    }
    let limit = Duration::from_secs(4);
    let plain = |address: SocketAddr| settings(([127, 0, 0, 1], 1).into(), address.port(), &[address.ip()]);
    let redirect = |facts: &LoadBalancerFacts| tries(facts, Through, ProbeKind::Redirect)[0].http.clone();
    let facts = pass(&plain(server(slow_header)), limit).await;
    assert_eq!(cause(&redirect(&facts)), Some(&UnknownCause::TimedOut));
    let facts = pass(&plain(server(endless_header)), limit).await;
    let answer = redirect(&facts);
    assert_eq!(cause(&answer), Some(&UnknownCause::InvalidAnswer), "{answer:?}");
    let facts = pass(&plain(server(long_location)), limit).await;
    assert!(redirect(&facts).value().unwrap().location.len() <= 512);

    // A TLS record that comes byte by byte, and one that is longer than it may be.
    fn slow_record(mut stream: TcpStream) {
        for byte in [22, 3, 3, 64, 0].iter().chain(std::iter::repeat(&2)) {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    fn long_record(mut stream: TcpStream) {
        let _ = stream.write_all(&[22, 3, 3, 255, 255]);
        while stream.write_all(&[2; 4096]).is_ok() {}
    }
    for (serve, expected) in
        [(slow_record as fn(_), UnknownCause::TimedOut), (long_record, UnknownCause::TlsFailed)]
    {
        let address = server(serve);
        let facts = pass(&settings(address, 0, &[address.ip()]), limit).await;
        let tries = tries(&facts, Through, ProbeKind::Connect);
        assert_eq!(cause(&tries[0].tls), Some(&expected), "{tries:#?}");
    }
}

/// A host that is an address, in brackets: what is sent has them, and the certificate has to name the address.
#[tokio::test]
#[ignore = "run by tests/run --suite sense-load-balancer"]
async fn an_address_in_place_of_a_name() {
    let (chain, key) = issued(|ca| ca.issue("by address", &["::1", "127.0.0.1"], -DAY, DAY).unwrap());
    let four = tls_server(chain, &key);
    let one = |host: &str| LoadBalancerSettings {
        host: host.into(),
        url: format!("https://{host}:{}", four.port()),
        ..settings(four, 0, &[])
    };
    let facts = pass(&one("127.0.0.1"), Duration::from_secs(8)).await;
    let connected = tries(&facts, Through, ProbeKind::Connect);
    assert!(connected[0].tls.value().unwrap().name_matches, "{connected:#?}");
    // Nobody listens at the other family; the address is tried all the same, and named as it is.
    let facts = pass(&one("::1"), Duration::from_secs(8)).await;
    let peers: Vec<&str> = facts.probes.iter().map(|p| p.peer.as_str()).collect();
    assert!(!peers.is_empty() && peers.iter().all(|p| *p == format!("[::1]:{}", four.port())), "{peers:?}");
}
