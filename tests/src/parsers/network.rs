//! What comes over the network.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::Duration;

use http::{Request, Uri};
use outrider_agent::net::proxy::{NoProxy, Proxy};
use outrider_agent::net::{Answer, Connection, Limits, ProxySettings, Url, certificate as certificates};
use outrider_agent::sense::etcd::wire::{AlarmResponse, MemberListResponse, ReadResponse, StatusResponse};
use outrider_agent::sense::etcd::{MetricsReader, status_facts};
use outrider_cli::{EventReader, Happening};
use outrider_coordinator::{Listing, Selector};
use outrider_protocol::{CertificateFacts, EndpointStatus, Timestamp, UnknownCause};
use prost::Message;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;

/// An address from a configuration or a `Location` header.
pub fn url(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(url) = Url::parse(&text) {
        let written = url.to_string();
        assert_eq!(
            Url::parse(&written).map(|u| u.to_string()),
            Ok(written),
            "a URL is read as it is written"
        );
        assert!(!url.host.is_empty());
    }
}

/// etcd's `/metrics`: the same however the text is cut into pieces, and what comes of it can be written and read.
pub fn metrics(bytes: &[u8]) {
    let mut whole = MetricsReader::default();
    let _ = whole.push(bytes);
    let families = whole.finish();
    if families.quota_bytes.is_none() {
        let mut pieces = MetricsReader::default();
        for piece in bytes.chunks(7) {
            let _ = pieces.push(piece);
        }
        assert_eq!(pieces.finish(), families, "in pieces of seven bytes");
    }
    if let Ok(scrape) = families.into_scrape(Timestamp::from_seconds(0)) {
        let text = serde_json::to_string(&scrape).unwrap_or_default();
        assert_eq!(serde_json::from_str(&text).ok(), Some(scrape), "{text}");
    }
}

/// The server-sent events of a watch: the same however the bytes are cut, and what is told can be told again.
pub fn events(bytes: &[u8]) {
    let (mut whole, mut pieces) = (EventReader::default(), EventReader::default());
    let found = whole.feed(bytes);
    let mut again = Vec::new();
    for piece in bytes.chunks(3) {
        again.extend(pieces.feed(piece));
    }
    assert_eq!(found, again, "in pieces of three bytes");
    assert_eq!(whole.position(), pieces.position());
    for happening in found {
        let (kind, data) = match &happening {
            Happening::Node(view) => ("node", serde_json::to_string(view)),
            Happening::Cluster(view) => ("cluster", serde_json::to_string(view)),
            Happening::Event(view) => ("event", serde_json::to_string(view)),
            Happening::Resync(at) => ("bookmark", Ok(format!("{{\"position\":{at},\"resync\":true}}"))),
        };
        let text = format!("id: 7\nevent: {kind}\ndata: {}\n\n", data.unwrap_or_default());
        let mut reader = EventReader::default();
        assert_eq!(reader.feed(text.as_bytes()), [happening]);
        assert_eq!(reader.position(), Some(7));
    }
}

/// A proxy's URL and a `NO_PROXY`: no password is told, each entry counts by itself, and their order does not.
pub fn proxy(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let parts = text.rsplit_once('@').and_then(|(before, host)| Some((before.split_once(':')?.1, host)));
    // Of a short one any part stands in any sentence, and a host that holds it may be told.
    let open = |(password, host): &(&str, &str)| password.len() <= 11 || host.contains(password);
    let secret = parts.filter(|p| !open(p) && !p.0.contains("://")).map(|(password, _)| password);
    let told = match Proxy::parse(&text) {
        Ok(proxy) => {
            assert_eq!(Url::parse(&proxy.url.to_string()).as_ref(), Ok(&proxy.url));
            format!("{proxy:?}")
        }
        Err(why) => why,
    };
    assert!(secret.is_none_or(|secret| !told.contains(secret)), "{told}");
    let settings = ProxySettings::from_variables(|name| (name == "HTTPS_PROXY").then(|| text.to_string()));
    assert!(secret.is_none_or(|secret| !format!("{settings:?}").contains(secret)), "{settings:?}");

    let (all, bad) = NoProxy::parse(&text);
    let entries: Vec<&str> = text.split(',').filter(|entry| !entry.trim().is_empty()).collect();
    let single: Vec<(NoProxy, Vec<String>)> = entries.iter().map(|entry| NoProxy::parse(entry)).collect();
    assert_eq!(bad, single.iter().flat_map(|(_, bad)| bad.clone()).collect::<Vec<_>>());
    let turned: Vec<&str> = entries.iter().rev().copied().collect();
    let (turned, _) = NoProxy::parse(&turned.join(","));
    let named = entries.iter().map(|entry| entry.trim().trim_start_matches(['*', '.']));
    for host in named.chain(["rancher.example", "10.1.2.3", "fd00::1", ""]) {
        for port in [443, 6443] {
            let direct = all.matches(host, port);
            assert_eq!(direct, single.iter().any(|(rule, _)| rule.matches(host, port)), "{host}:{port}");
            assert_eq!(direct, turned.matches(host, port), "{host}:{port}");
        }
    }
}

/// A certificate that a server presented (DER), or certificates and a key out of a file (PEM).
pub fn certificate(bytes: &[u8]) {
    if let Ok(facts) = certificates::facts(bytes) {
        let texts = [&facts.subject, &facts.issuer].into_iter().chain(&facts.sans);
        for text in texts {
            assert!(!text.chars().any(char::is_control), "{text:?}");
        }
        assert_eq!(facts.sha256.len(), 64);
        let text = serde_json::to_string(&facts).unwrap_or_default();
        assert_eq!(serde_json::from_str::<CertificateFacts>(&text).ok(), Some(facts), "{text}");
    }
    match certificates::certificates(bytes) {
        Ok(found) => {
            assert!(!found.is_empty());
            assert!(found.iter().map(|der| der.len()).sum::<usize>() <= bytes.len());
        }
        Err(failure) => assert_eq!(failure.cause, UnknownCause::InvalidInput),
    }
    if let Err(failure) = certificates::private_key(bytes) {
        let other = certificates::private_key(b"");
        assert_eq!(Some(failure), other.err(), "the error depends on what may be a secret");
    }
}

/// The query of a list of nodes, and the label selector in it.
pub fn query(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Selector::parse(&text) {
        Ok(selector) => {
            let again = Selector::parse(&selector.to_string());
            assert_eq!(again.as_ref(), Ok(&selector), "{selector}");
            let labels = BTreeMap::from([("a", "b"), ("zone", "eu-1"), ("empty", "")]);
            // Nothing is selected by its labels twice over.
            let twice = Selector::parse(&format!("{selector},a"));
            if let (false, Ok(twice)) = (selector == Selector::default(), twice) {
                let find = |key: &str| labels.get(key).copied();
                assert_eq!(twice.selects(find), selector.selects(find), "{selector}");
            }
        }
        Err(error) => assert!((1..=text.len() + 1).contains(&error.at), "{error}"),
    }
    let Ok(uri) = format!("/v1/nodes?{text}").parse::<Uri>() else { return };
    match Listing::read(&uri) {
        Ok(listing) => assert!((1..=1000).contains(&listing.limit), "{listing:?}"),
        Err(failure) => {
            assert_eq!(failure.error().code, 400, "{failure:?}");
            assert!(!failure.error().advice.is_empty(), "{failure:?}");
        }
    }
}

/// etcd's messages as a hostile endpoint sends them: what is read can be written and read, as a message and as facts.
pub fn etcd_message(bytes: &[u8]) {
    if let Ok(status) = StatusResponse::decode(bytes) {
        same_again(&status);
        let facts = status_facts(status, None);
        let text = serde_json::to_string(&facts).unwrap_or_default();
        assert_eq!(serde_json::from_str::<EndpointStatus>(&text).ok(), Some(facts), "{text}");
    }
    if let Ok(list) = MemberListResponse::decode(bytes) {
        same_again(&list);
        list.members.iter().flat_map(|m| &m.client_urls).for_each(|text| url(text.as_bytes()));
    }
    AlarmResponse::decode(bytes).iter().for_each(same_again);
    ReadResponse::decode(bytes).iter().for_each(same_again);
}

fn same_again<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M) {
    let written = message.encode_to_vec();
    assert_eq!(M::decode(&written[..]).ok().as_ref(), Some(message));
    assert_eq!(written.len(), message.encoded_len());
}

/// Largest body that is taken in the exchange below.
const BODY: usize = 256;

/// An HTTP answer, be it a balancer's or a proxy's: it ends, its body is bounded, and it is the same however it is cut.
pub fn http_answer(bytes: &[u8]) {
    thread_local! {
        static RUNTIME: OnceCell<Option<Runtime>> = const { OnceCell::new() };
    }
    RUNTIME.with(|runtime| {
        let runtime =
            runtime.get_or_init(|| tokio::runtime::Builder::new_current_thread().enable_time().build().ok());
        let Some(runtime) = runtime else { return };
        let whole = runtime.block_on(exchange(bytes, bytes.len().max(1)));
        let pieces = runtime.block_on(exchange(bytes, 5));
        assert_eq!(whole, pieces, "in pieces of five bytes");
        if let Some(answer) = whole {
            assert!(answer.body.len() <= BODY, "{answer:?}");
        }
        runtime.block_on(tunnel(bytes));
    });
}

/// Time after which an exchange counts as one that never ends.
const PATIENCE: Duration = Duration::from_secs(20);

async fn exchange(answer: &[u8], piece: usize) -> Option<Answer> {
    let (client, server) = tokio::io::duplex(1 << 16);
    let mut connection = Connection::new(client, "r.example", "a test").await.ok()?;
    let limits = Limits { body: BODY, deadline: PATIENCE };
    let request = Request::get("/ping").body("").ok()?;
    let (outcome, ()) =
        tokio::join!(connection.exchange(request, limits), say_to_a_request(server, answer, piece));
    match outcome {
        Ok(answer) => Some(answer),
        Err(failure) => {
            assert_ne!(failure.cause, UnknownCause::TimedOut, "{failure}");
            assert!(!failure.detail.is_empty());
            None
        }
    }
}

async fn tunnel(answer: &[u8]) {
    let (client, server) = tokio::io::duplex(1 << 16);
    let Ok(proxy) = Proxy::parse("http://user:s3cret-password@proxy.example:3128") else { return };
    let (outcome, ()) = tokio::join!(
        proxy.tunnel(client, "r.example:443", PATIENCE),
        say_to_a_request(server, answer, answer.len().max(1))
    );
    if let Err(failure) = outcome {
        assert_ne!(failure.cause, UnknownCause::TimedOut, "{failure}");
        assert!(!failure.to_string().contains("s3cret"), "{failure}");
    }
}

async fn say_to_a_request(mut server: DuplexStream, answer: &[u8], piece: usize) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match server.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    for piece in answer.chunks(piece) {
        // It may have had enough.
        if server.write_all(piece).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// What a balancer answers (`Location` above all), judged as [`super::facts`] are.
pub fn location(bytes: &[u8]) {
    const FACTS: &str = include_str!("../../../protocol/golden/v1alpha1/NodeFacts.json");
    let Ok(mut facts) = serde_json::from_str::<Value>(FACTS) else { return };
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n');
    for field in ["location", "server", "upgrade", "bodyStart"] {
        let line = lines.next().unwrap_or_default();
        replace(&mut facts, field, &Value::from(line));
    }
    let status = lines.next().and_then(|line| line.parse().ok()).unwrap_or(302_u16);
    replace(&mut facts, "status", &Value::from(status));
    super::facts(facts.to_string().as_bytes());
}

/// Gives every field of this name in an HTTP answer another value.
fn replace(value: &mut Value, field: &str, with: &Value) {
    match value {
        Value::Object(map) => {
            if map.contains_key("bodyStart") && map.contains_key(field) {
                map.insert(field.to_owned(), with.clone());
            }
            map.values_mut().for_each(|inner| replace(inner, field, with));
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| replace(inner, field, with)),
        _ => {}
    }
}

/// An answer of a DNS server: bounded, to our question alone, and names of printable characters only.
pub fn dns_message(bytes: &[u8]) {
    use outrider_agent::sense::dns::{Family, Read, answer, question};
    let (id, name) = (7, "rancher.example");
    let asked = question(id, name, Family::V4).unwrap_or_default();
    // What an attacker controls stands behind our own header and question, and in their place.
    let mut behind = asked.clone();
    if let Some(flags) = behind.get_mut(2..8) {
        flags.copy_from_slice(&[0x81, 0x80, 0, 1, 0, 3]);
    }
    behind.extend_from_slice(bytes);
    for candidate in [bytes, behind.as_slice()] {
        let read = answer(candidate, id, name, Family::V4);
        assert_eq!(read, answer(candidate, id, "RANCHER.example.", Family::V4), "a name has no case");
        if let Read::Answer(found) = read {
            assert!(found.addresses.len() <= 32 && found.aliases.len() <= 16, "{found:?}");
            assert!(found.aliases.iter().all(|name| !name.chars().any(char::is_control)), "{found:?}");
            assert!(found.addresses.iter().all(|ip| ip.parse::<std::net::Ipv4Addr>().is_ok()), "{found:?}");
        }
    }
    assert_eq!(answer(&asked, id, name, Family::V4), Read::Foreign, "a question is no answer");
}
