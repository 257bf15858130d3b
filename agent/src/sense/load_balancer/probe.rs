//! One connection and the tries made on it, each written down with what TCP, TLS and HTTP came to.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{CONNECTION, HOST, LOCATION, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, SERVER, UPGRADE};
use outrider_protocol::{
    Fact, Hop, HttpAnswer, MAX_REDIRECTS, Probe, ProbeKind, ProbeTarget, TlsFacts, UnknownCause,
};
use rustls::RootCertStore;
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use super::plan::Ask;
use super::redirect::next_path;
use crate::net::{BoxedStream, Connection, Failure, Url, certificate, connect, tls, within};
use crate::sense::SenseContext;

/// Bytes of a body that are read.
const MAX_BODY: usize = 1024 * 1024;
/// Bytes of a body that are kept.
const BODY_START: usize = 120;
/// Characters of a header that are kept.
const MAX_HEADER: usize = 512;
/// Characters of a Location in a chain that are kept.
const MAX_HOP: usize = 120;
/// Certificates of a chain that are kept.
const MAX_CHAIN: usize = 10;

/// What the tries of one balancer have in common.
pub(super) struct Prober<'a> {
    pub(super) cx: &'a SenseContext,
    /// The Rancher URL: its host is what TLS and HTTP ask for, wherever the connection leads.
    pub(super) url: Url,
    /// Roots to judge chains by.
    pub(super) roots: Arc<RootCertStore>,
    /// Why the configured CA is not among them.
    pub(super) ca_failure: Option<Failure>,
    /// End of the pass.
    pub(super) deadline: Instant,
    /// Limit of one step.
    pub(super) step: Duration,
}

/// Where a connection leads.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) target: ProbeTarget,
    pub(super) address: SocketAddr,
    pub(super) secure: bool,
}

/// What connecting came to.
struct Opened {
    tcp: Fact<f64>,
    tls: Fact<TlsFacts>,
    stream: Option<BoxedStream>,
}

impl Prober<'_> {
    /// The time one step may take now; none when the pass is over.
    fn left(&self) -> Option<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now()).min(self.step);
        (left > Duration::ZERO).then_some(left)
    }

    /// Waits between tries; false when the pass is over.
    pub(super) async fn pause(&self, time: Duration) -> bool {
        tokio::time::sleep_until((Instant::now() + time).min(self.deadline)).await;
        self.left().is_some()
    }

    /// Connects, shakes hands on a TLS port, and sends nothing.
    pub(super) async fn connect_only(&self, side: &Side) -> Option<Probe> {
        self.left()?;
        let opened = self.open(side).await;
        let http = Fact::not_applicable("nothing was asked", self.cx.now());
        Some(self.probe(side, ProbeKind::Connect, opened.tcp, opened.tls, http))
    }

    /// Makes the requests one after another, on one connection as long as the peer keeps it.
    pub(super) async fn converse(&self, side: &Side, asks: Vec<Ask>) -> Vec<Probe> {
        let mut probes = Vec::new();
        let mut kept: Option<Connection> = None;
        for ask in asks {
            if self.left().is_none() {
                break;
            }
            let now = self.cx.now();
            let (tcp, tls, connection) = match kept.take().filter(Connection::is_open) {
                Some(connection) => {
                    let same = "on the connection of the try before";
                    (Fact::not_applicable(same, now), Fact::not_applicable(same, now), Some(connection))
                }
                None => {
                    let opened = self.open(side).await;
                    let connection = match opened.stream {
                        Some(stream) => self.speak(stream, side).await.ok(),
                        None => None,
                    };
                    (opened.tcp, opened.tls, connection)
                }
            };
            let Some(mut connection) = connection else {
                let nothing = Fact::not_applicable("no connection to ask on", self.cx.now());
                probes.push(self.probe(side, ask.kind, tcp, tls, nothing));
                // The next question would meet the same closed door; the next try asks again.
                break;
            };
            let mut http = self.ask(&mut connection, side, &ask).await;
            if let (true, Fact::Known { value, .. }) = (is_root(&ask.kind), &mut http) {
                self.follow(&mut connection, side, &ask.kind, value).await;
            }
            kept = Some(connection);
            probes.push(self.probe(side, ask.kind, tcp, tls, http));
        }
        probes
    }

    fn probe(
        &self,
        side: &Side,
        kind: ProbeKind,
        tcp: Fact<f64>,
        tls: Fact<TlsFacts>,
        http: Fact<HttpAnswer>,
    ) -> Probe {
        let (target, peer) = (side.target.clone(), side.address.to_string());
        Probe { kind, target, peer, at: self.cx.now(), tcp, tls, http }
    }

    async fn open(&self, side: &Side) -> Opened {
        let now = || self.cx.now();
        let peer = side.address.to_string();
        let no_tls = |why: &str| Fact::not_applicable(why, now());
        let start = Instant::now();
        let stream = match connect(side.address, self.left().unwrap_or_default()).await {
            Ok(stream) => stream,
            Err(failure) => {
                let tls = no_tls("no connection");
                return Opened { tcp: failure.into_fact(peer, now()), tls, stream: None };
            }
        };
        let tcp = Fact::known(start.elapsed().as_secs_f64() * 1e3, peer.as_str(), now());
        if !side.secure {
            return Opened { tcp, tls: no_tls("plain http"), stream: Some(Box::new(stream)) };
        }
        match self.shake_hands(stream).await {
            Ok((stream, facts)) => {
                Opened { tcp, tls: Fact::known(facts, peer, now()), stream: Some(Box::new(stream)) }
            }
            Err(failure) => Opened { tcp, tls: failure.into_fact(peer, now()), stream: None },
        }
    }

    async fn shake_hands(&self, stream: TcpStream) -> Result<(TlsStream<TcpStream>, TlsFacts), Failure> {
        let observer = tls::Observing::new(self.roots.clone());
        let config = tls::client_config(observer.clone(), None, &[b"http/1.1"])?;
        let limit = self.left().unwrap_or_default();
        let shaken = within(limit, "TLS handshake", tls::handshake(stream, config, &self.url.host)).await?;
        let seen = observer.take().ok_or_else(|| {
            Failure::new(UnknownCause::TlsFailed, "the handshake ended without a certificate")
        })?;
        let chain = seen.chain.iter().take(MAX_CHAIN).map(|der| certificate::facts(der));
        let (_, session) = shaken.get_ref();
        let version = match session.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3".to_owned(),
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2".to_owned(),
            other => format!("{other:?}"),
        };
        let alpn = session.alpn_protocol().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
        let (now, source) = (self.cx.now(), "roots of this machine and the configured CA");
        let trust = match (seen.trust, &self.ca_failure) {
            (Ok(()), _) => Fact::known(String::new(), source, now),
            // Without the CA that should decide, "untrusted" is not known.
            (Err(_), Some(failure)) => failure.clone().into_fact(source, now),
            (Err(why), None) => Fact::known(why.detail, source, now),
        };
        let facts = TlsFacts {
            version,
            alpn,
            chain: chain.collect::<Result<_, _>>()?,
            trust,
            name_matches: seen.name_matches,
        };
        Ok((shaken, facts))
    }

    async fn speak(&self, stream: BoxedStream, side: &Side) -> Result<Connection, Failure> {
        Connection::new(stream, &self.url.authority(), side.address.to_string()).await
    }

    async fn ask(&self, connection: &mut Connection, side: &Side, ask: &Ask) -> Fact<HttpAnswer> {
        let scheme = if side.secure { "https" } else { "http" };
        let source = format!("GET {scheme}://{}{}", side.address, ask.path);
        match self.answer(connection, side, &ask.kind, ask.path).await {
            Ok(answer) => Fact::known(answer, source, self.cx.now()),
            Err(failure) => failure.into_fact(source, self.cx.now()),
        }
    }

    async fn answer(
        &self,
        connection: &mut Connection,
        side: &Side,
        kind: &ProbeKind,
        path: &str,
    ) -> Result<HttpAnswer, Failure> {
        let mut request = http::Request::get(path);
        if *kind == ProbeKind::Redirect {
            // As a browser that was given http:// asks.
            let plain = Url { tls: false, port: side.address.port(), ..self.url.clone() };
            request = request.header(HOST, plain.authority());
        }
        if *kind == ProbeKind::ForwardedRoot {
            request = request.header("x-forwarded-proto", "https");
        }
        if *kind == ProbeKind::WebSocket {
            // A whole handshake: proxies refuse one without a valid key (E8).
            request = request
                .header(CONNECTION, "Upgrade")
                .header(UPGRADE, "websocket")
                .header(SEC_WEBSOCKET_VERSION, "13")
                .header(SEC_WEBSOCKET_KEY, BASE64.encode(rand::random::<[u8; 16]>()));
        }
        let request = request
            .body(Bytes::new())
            .map_err(|e| Failure::new(UnknownCause::InvalidInput, e.to_string()))?;
        let (mut hash, mut bytes, mut beginning) = (Sha256::new(), 0, Vec::new());
        let start = Instant::now();
        let head = connection
            .exchange_into(request, self.left().unwrap_or_default(), |chunk| {
                let chunk = &chunk[..chunk.len().min(MAX_BODY - bytes)];
                bytes += chunk.len();
                hash.update(chunk);
                let wanted = BODY_START.saturating_sub(beginning.len()).min(chunk.len());
                beginning.extend_from_slice(&chunk[..wanted]);
                if bytes >= MAX_BODY { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .await?;
        let text = |name| head.text(name).map(printable_header).unwrap_or_default();
        Ok(HttpAnswer {
            status: head.status.as_u16(),
            location: text(LOCATION),
            server: text(SERVER),
            upgrade: text(UPGRADE),
            body_start: printable(&beginning),
            body_bytes: bytes as u64,
            body_sha256: certificate::hex(&hash.finalize()),
            ms: start.elapsed().as_secs_f64() * 1e3,
            followed: Vec::new(),
        })
    }

    /// Follows a redirect to other paths of the same host, at the same peer and with the same headers, until the chain
    /// ends or proves endless. What fails on the way ends it: the first answer stands.
    async fn follow(
        &self,
        connection: &mut Connection,
        side: &Side,
        kind: &ProbeKind,
        answer: &mut HttpAnswer,
    ) {
        let (mut status, mut location, mut asked) = (answer.status, answer.location.clone(), "/".to_owned());
        while (300..400).contains(&status) && answer.followed.len() < MAX_REDIRECTS && self.left().is_some() {
            let Some(path) = next_path(&location, &asked, &self.url.host) else { break };
            if !connection.is_open() {
                let Some(stream) = self.open(side).await.stream else { break };
                let Ok(anew) = self.speak(stream, side).await else { break };
                *connection = anew;
            }
            let Ok(next) = self.answer(connection, side, kind, &path).await else { break };
            (status, location, asked) = (next.status, next.location, path);
            let beginning = location.chars().take(MAX_HOP).collect();
            answer.followed.push(Hop { status, location: beginning });
        }
    }
}

/// Whether the try asks for what Rancher shows a browser.
fn is_root(kind: &ProbeKind) -> bool {
    matches!(kind, ProbeKind::Root | ProbeKind::ForwardedRoot | ProbeKind::PlainRoot)
}

/// A header's text, bounded.
fn printable_header(text: &str) -> String {
    text.chars().take(MAX_HEADER).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The beginning of a body as text, control characters (line ends too) and broken UTF-8 replaced.
fn printable(bytes: &[u8]) -> String {
    // A character cut in two by the limit is no broken text.
    let end = match std::str::from_utf8(bytes) {
        Err(e) if e.error_len().is_none() => e.valid_up_to(),
        _ => bytes.len(),
    };
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.trim_end_matches(['\r', '\n']).chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bodies_are_shown_without_tricks() {
        assert_eq!(printable(b"pong\n"), "pong");
        assert_eq!(printable(b"a\x1b[31mb\nc"), "a\u{fffd}[31mb\u{fffd}c");
        assert_eq!(printable("ä".repeat(61).as_bytes().get(..121).unwrap()), "ä".repeat(60));
    }

    proptest! {
        #[test]
        fn never_panics_and_shows_no_control(bytes in proptest::collection::vec(any::<u8>(), 0..150)) {
            prop_assert!(!printable(&bytes).chars().any(char::is_control));
        }
    }
}
