//! Connections and the tries made on them, each written down with what TCP, TLS and HTTP came to.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outrider_protocol::{
    Fact, Hop, HttpAnswer, MAX_REDIRECTS, Probe, ProbeKind, ProbeTarget, TlsFacts, UnknownCause,
};
use rustls::pki_types::CertificateDer;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use super::ca::Published;
use super::line::{Line, MAX_BODY, Talk, printable};
use super::plan::Ask;
use super::redirect::next_path;
use crate::net::{
    Connection, Failure, Heard, Http2, Listened, Url, certificate, connect, tls, within, without_query,
};
use crate::sense::SenseContext;

/// Why a try over plain http has no handshake.
pub(super) const PLAIN: &str = "plain http";
/// Bytes that are kept of what came in place of TLS or HTTP.
const RAW: usize = 400;
/// How long a word is waited for that comes before the question.
const EARLY: Duration = Duration::from_millis(300);
/// Characters of a Location in a chain that are kept.
const MAX_HOP: usize = 120;
/// Certificates of a chain that are kept.
const MAX_CHAIN: usize = 10;
/// Names of a certificate that are kept; whether one of all of them fits is judged before.
const MAX_NAMES: usize = 50;

/// What the tries of one balancer have in common.
pub(super) struct Prober<'a> {
    pub(super) cx: &'a SenseContext,
    /// The Rancher URL: its host is what TLS and HTTP ask for, wherever the connection leads.
    pub(super) url: Url,
    /// Roots to judge chains by.
    pub(super) anchors: Arc<tls::Anchors>,
    /// Why the configured CA is not among them.
    pub(super) ca_failure: Option<Failure>,
    /// The first `/cacerts` that came through the balancer.
    pub(super) published: Mutex<Option<Published>>,
    /// Connections that were tried.
    pub(super) connections: AtomicU32,
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

/// How a connection begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Manner {
    /// HTTP/2 is offered in the handshake.
    pub(super) http2: bool,
    /// A PROXY protocol header goes in front.
    pub(super) proxy_protocol: bool,
}

impl Manner {
    /// Both versions of HTTP are offered.
    pub(super) const BOTH: Self = Self { http2: true, proxy_protocol: false };
}

/// What connecting came to.
struct Opened {
    tcp: Fact<f64>,
    tls: Fact<TlsFacts>,
    raw: String,
    line: Option<Line>,
}

type Shaken = (TlsStream<Heard<TcpStream>>, TlsFacts, Arc<[CertificateDer<'static>]>);

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

    /// Connects, shakes hands on a TLS port, and sends nothing yet: the try, and the connection to go on with.
    pub(super) async fn connect(&self, side: &Side, manner: Manner) -> (Option<Probe>, Option<Line>) {
        if self.left().is_none() {
            return (None, None);
        }
        let opened = self.open(side, manner).await;
        let http = Fact::not_applicable("nothing was asked", self.cx.now());
        let probe = self.probe(side, ProbeKind::Connect, opened.tcp, opened.tls, http);
        (Some(Probe { raw: opened.raw, ..probe }), opened.line)
    }

    /// Makes the requests one after another, on one connection as long as the peer keeps it; `line` is one to begin on.
    pub(super) async fn converse(
        &self,
        side: &Side,
        manner: Manner,
        line: Option<Line>,
        asks: Vec<Ask>,
    ) -> Vec<Probe> {
        let mut probes = Vec::new();
        let mut kept = line;
        for ask in asks {
            if self.left().is_none() {
                break;
            }
            let now = self.cx.now();
            let opened = match kept.take().filter(Line::is_open) {
                Some(mut line) => {
                    let tcp = match line.fresh.take() {
                        Some(ms) => Fact::known(ms, side.address.to_string(), now),
                        None => Fact::not_applicable("on the connection of the try before", now),
                    };
                    let before = if side.secure { "the handshake of the try before" } else { PLAIN };
                    let tls = Fact::not_applicable(before, now);
                    Opened { tcp, tls, raw: String::new(), line: Some(line) }
                }
                None => self.open(side, manner).await,
            };
            let Some(mut line) = opened.line else {
                let nothing = Fact::not_applicable("no connection to ask on", self.cx.now());
                let probe = self.probe(side, ask.kind, opened.tcp, opened.tls, nothing);
                probes.push(Probe { raw: opened.raw, ..probe });
                // The next question would meet the same closed door; the next try asks again.
                break;
            };
            line.fresh = None;
            if ask.kind == ProbeKind::WebSocketHttp2 && !self.offers_web_sockets(&line) {
                continue;
            }
            let (mut http, raw) = self.ask(&mut line, side, &ask).await;
            if let (true, Fact::Known { value, .. }) = (is_root(&ask.kind), &mut http) {
                self.follow(&mut line, side, manner, &ask.kind, value).await;
            }
            // Only now: a chain is followed with its queries, which may hold a token or the code of a login.
            if let Fact::Known { value, .. } = &mut http {
                value.location = without_query(&value.location);
            }
            // What is left of a body that was cut, or of an answer that was not waited for, is still to come on this connection.
            let whole = http.value().is_some_and(|answer| answer.body_bytes < MAX_BODY as u64);
            kept = whole.then_some(line);
            let probe = self.probe(side, ask.kind, opened.tcp, opened.tls, http);
            probes.push(Probe { raw, ..probe });
        }
        probes
    }

    fn offers_web_sockets(&self, line: &Line) -> bool {
        matches!(&line.talk, Talk::Two(connection, _) if connection.offers_web_sockets())
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
        Probe { kind, target, peer, at: self.cx.now(), tcp, tls, http, raw: String::new() }
    }

    async fn open(&self, side: &Side, manner: Manner) -> Opened {
        let now = || self.cx.now();
        let peer = side.address.to_string();
        let failed = |tcp, tls, raw| Opened { tcp, tls, raw, line: None };
        self.connections.fetch_add(1, Ordering::Relaxed);
        let start = Instant::now();
        let mut early = Vec::new();
        let begun = async {
            let mut stream = connect(side.address, self.left().unwrap_or_default()).await?;
            if manner.proxy_protocol {
                let header = proxy_header(stream.local_addr()?, side.address);
                within(self.left().unwrap_or_default(), "a PROXY protocol header", async {
                    Ok(stream.write_all(header.as_bytes()).await?)
                })
                .await?;
                if !side.secure {
                    early = said_early(&stream).await;
                }
            }
            Ok::<_, Failure>(stream)
        };
        let stream = match begun.await {
            Ok(stream) => Heard::new(stream),
            Err(failure) => {
                let tls = Fact::not_applicable("no connection", now());
                return failed(failure.into_fact(peer, now()), tls, String::new());
            }
        };
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let tcp = Fact::known(ms, peer.as_str(), now());
        let listened = stream.listened();
        let authority = self.url.authority();
        if !side.secure {
            let tls = Fact::not_applicable(PLAIN, now());
            if !early.is_empty() {
                return failed(tcp, tls, printable(&early));
            }
            return match Connection::new(stream, &authority, peer).await {
                Ok(connection) => {
                    let (talk, chain) = (Talk::One(connection), Arc::default());
                    let line = Line { talk, fresh: Some(ms), chain, listened: Some(listened) };
                    Opened { tcp, tls, raw: String::new(), line: Some(line) }
                }
                Err(_) => failed(tcp, tls, String::new()),
            };
        }
        let (stream, facts, chain) = match self.shake_hands(stream, manner).await {
            Ok(shaken) => shaken,
            Err(failure) => {
                let tls = failure.into_fact(peer, now());
                return failed(tcp, tls, raw(&listened, true));
            }
        };
        let http2 = facts.alpn == "h2";
        let tls = Fact::known(facts, peer.as_str(), now());
        let talk = if http2 {
            let limit = self.left().unwrap_or_default();
            let begun = within(limit, "beginning HTTP/2", Http2::new(stream, &authority, peer)).await;
            begun.map(|connection| Talk::Two(connection, true))
        } else {
            Connection::new(stream, &authority, peer).await.map(Talk::One)
        };
        let line = talk.ok().map(|talk| Line { talk, fresh: Some(ms), chain, listened: None });
        Opened { tcp, tls, raw: String::new(), line }
    }

    async fn shake_hands(&self, stream: Heard<TcpStream>, manner: Manner) -> Result<Shaken, Failure> {
        let observer = tls::Observing::new(self.anchors.clone());
        let alpn: &[&[u8]] = if manner.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        let config = tls::client_config(observer.clone(), None, alpn)?;
        let limit = self.left().unwrap_or_default();
        let shaken = within(limit, "TLS handshake", tls::handshake(stream, config, &self.url.host)).await;
        let shaken = match shaken {
            Ok(shaken) => shaken,
            // TLS tells a signature that it cannot check from a wrong one as little as a name.
            Err(failure) => {
                let seen = observer.take().filter(|_| failure.cause == UnknownCause::TlsFailed);
                let why = seen.and_then(|seen| certificate::unusable(seen.chain.first()?));
                return Err(why.map_or(failure, |why| Failure::new(UnknownCause::TlsFailed, why)));
            }
        };
        let seen = observer.take().ok_or_else(|| {
            Failure::new(UnknownCause::TlsFailed, "the handshake ended without a certificate")
        })?;
        let chain = seen.chain.iter().take(MAX_CHAIN).map(|der| {
            let mut facts = certificate::facts(der)?;
            let more = facts.sans.len().saturating_sub(MAX_NAMES);
            if more > 0 {
                facts.sans.truncate(MAX_NAMES);
                facts.sans.push(format!("and {more} more"));
            }
            Ok::<_, Failure>(facts)
        });
        let (_, session) = shaken.get_ref();
        let version = match session.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3".to_owned(),
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2".to_owned(),
            other => format!("{other:?}"),
        };
        let cipher = session.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
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
            cipher: cipher.unwrap_or_default(),
            chain: chain.collect::<Result<_, _>>()?,
            trust,
            name_matches: seen.name_matches,
            issuer_at: seen.chain.last().map(|der| certificate::issuer_at(der)).unwrap_or_default(),
        };
        Ok((shaken, facts, seen.chain.into()))
    }

    async fn ask(&self, line: &mut Line, side: &Side, ask: &Ask) -> (Fact<HttpAnswer>, String) {
        let scheme = if side.secure { "https" } else { "http" };
        let source = format!("GET {scheme}://{}{}", side.address, ask.path);
        let publishes = ask.kind == ProbeKind::CaCerts && side.target == ProbeTarget::Balancer;
        let mut body = Vec::new();
        let wanted = publishes.then_some(&mut body);
        let limit = self.left().unwrap_or_default();
        match line.answer(self.cx, (side, &self.url), (&ask.kind, ask.path), limit, wanted).await {
            Ok(answer) => {
                if publishes {
                    self.publish(Published {
                        peer: side.address.to_string(),
                        answer: answer.clone(),
                        body,
                        chain: line.chain.clone(),
                    });
                }
                (Fact::known(answer, source, self.cx.now()), String::new())
            }
            Err(failure) => {
                let raw = match (&failure.cause, &line.listened) {
                    (UnknownCause::InvalidAnswer, Some(listened)) => raw(listened, false),
                    _ => String::new(),
                };
                (failure.into_fact(source, self.cx.now()), raw)
            }
        }
    }

    fn publish(&self, published: Published) {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(published);
    }

    /// Follows a redirect to other paths of the same host, at the same peer and with the same headers, until the chain
    /// ends or proves endless. What fails on the way ends it: the first answer stands.
    async fn follow(
        &self,
        line: &mut Line,
        side: &Side,
        manner: Manner,
        kind: &ProbeKind,
        answer: &mut HttpAnswer,
    ) {
        let (mut status, mut location, mut asked) = (answer.status, answer.location.clone(), "/".to_owned());
        while (300..400).contains(&status) && answer.followed.len() < MAX_REDIRECTS && self.left().is_some() {
            let Some(path) = next_path(&location, &asked, &self.url.host) else { break };
            if !line.is_open() {
                let Some(anew) = self.open(side, manner).await.line else { break };
                *line = Line { fresh: None, ..anew };
            }
            let limit = self.left().unwrap_or_default();
            let Ok(next) = line.answer(self.cx, (side, &self.url), (kind, &path), limit, None).await else {
                break;
            };
            (status, location, asked) = (next.status, next.location, path);
            let beginning = without_query(&location).chars().take(MAX_HOP).collect();
            answer.followed.push(Hop { status, location: beginning });
        }
    }
}

/// Whether the try asks for what Rancher shows a browser.
fn is_root(kind: &ProbeKind) -> bool {
    matches!(kind, ProbeKind::Root | ProbeKind::ForwardedRoot | ProbeKind::PlainRoot)
}

/// What came in place of what was expected; empty for the records of a TLS handshake.
fn raw(listened: &Listened, expected_tls: bool) -> String {
    let bytes = listened.bytes();
    // Content types 20 to 23 of a TLS record, then version 3.
    if expected_tls && matches!(bytes[..], [20..=23, 3, ..]) {
        return String::new();
    }
    printable(bytes.get(..RAW).unwrap_or(&bytes))
}

/// What a peer says to a PROXY protocol header before anything was asked: that it is a bad request. A request sent into
/// that would be answered by a reset, which takes those words away.
async fn said_early(stream: &TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; RAW];
    match tokio::time::timeout(EARLY, stream.peek(&mut bytes)).await {
        Ok(Ok(n)) => bytes.truncate(n),
        _ => bytes.clear(),
    }
    bytes
}

/// The header of the PROXY protocol, version 1, with the true addresses of the connection.
fn proxy_header(from: SocketAddr, to: SocketAddr) -> String {
    let family = if matches!((from.ip(), to.ip()), (IpAddr::V4(_), IpAddr::V4(_))) { "TCP4" } else { "TCP6" };
    format!("PROXY {family} {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_header_is_as_the_specification_has_it() {
        let header = |from: &str, to: &str| proxy_header(from.parse().unwrap(), to.parse().unwrap());
        assert_eq!(header("10.0.0.1:5000", "10.0.0.2:443"), "PROXY TCP4 10.0.0.1 10.0.0.2 5000 443\r\n");
        assert_eq!(header("[fd00::1]:5000", "[fd00::2]:80"), "PROXY TCP6 fd00::1 fd00::2 5000 80\r\n");
    }
}
