//! One open connection, whichever HTTP is spoken on it, and one request on it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::header::{
    CONTENT_TYPE, DATE, LOCATION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_VERSION, SERVER, UPGRADE,
    WWW_AUTHENTICATE,
};
use outrider_protocol::{HttpAnswer, ProbeKind, Timestamp, UnknownCause};
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::plan;
use super::probe::Side;
use crate::net::{Connection, Failure, Head, Http2, Listened, Url, certificate};
use crate::sense::SenseContext;

/// Bytes of a body that are read.
pub(super) const MAX_BODY: usize = 1024 * 1024;
/// Bytes of a body that are kept in facts.
pub(super) const BODY_START: usize = 120;
/// Bytes of a body that are looked through for the link to itself.
const LOOKED_THROUGH: usize = 2048;
/// Characters of a header that are kept.
const MAX_HEADER: usize = 512;
/// Characters of a name of itself that are kept.
const MAX_LINK: usize = 300;

/// What speaks on a connection.
#[derive(Debug)]
pub(super) enum Talk {
    /// HTTP/1.1.
    One(Connection),
    /// HTTP/2, while nothing has failed on it.
    Two(Http2, bool),
}

/// An open connection.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) talk: Talk,
    /// Milliseconds that connecting took, until the first request has been made.
    pub(super) fresh: Option<f64>,
    /// Certificates that the peer sent.
    pub(super) chain: Arc<[CertificateDer<'static>]>,
    /// What came first, where no TLS hides it.
    pub(super) listened: Option<Listened>,
}

impl Line {
    /// Whether another request may be tried on it.
    pub(super) fn is_open(&self) -> bool {
        match &self.talk {
            Talk::One(connection) => connection.is_open(),
            Talk::Two(_, whole) => *whole,
        }
    }

    /// Whether HTTP/2 is spoken.
    pub(super) fn is_http2(&self) -> bool {
        matches!(self.talk, Talk::Two(..))
    }

    /// One request and its answer; with `body` the whole body is kept there, as far as it is read.
    pub(super) async fn answer(
        &mut self,
        cx: &SenseContext,
        (side, url): (&Side, &Url),
        (kind, path): (&ProbeKind, &str),
        limit: Duration,
        mut body: Option<&mut Vec<u8>>,
    ) -> Result<HttpAnswer, Failure> {
        let key = BASE64.encode(rand::random::<[u8; 16]>());
        let headers = plan::headers(kind, side, url, &key);
        let (mut hash, mut bytes, mut beginning) = (Sha256::new(), 0, Vec::new());
        let mut is_cut = false;
        let (start, asked_at) = (Instant::now(), cx.now());
        let sink = |chunk: &[u8]| {
            is_cut |= chunk.len() > MAX_BODY - bytes;
            let chunk = &chunk[..chunk.len().min(MAX_BODY - bytes)];
            bytes += chunk.len();
            hash.update(chunk);
            let wanted = LOOKED_THROUGH.saturating_sub(beginning.len()).min(chunk.len());
            beginning.extend_from_slice(&chunk[..wanted]);
            if let Some(body) = &mut body {
                body.extend_from_slice(chunk);
            }
            if is_cut { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let head = match &mut self.talk {
            Talk::One(connection) => {
                let mut request = http::Request::get(path)
                    .body(Bytes::new())
                    .map_err(|e| Failure::new(UnknownCause::InvalidInput, e.to_string()))?;
                *request.headers_mut() = headers;
                connection.exchange_into(request, limit, sink).await?
            }
            Talk::Two(connection, whole) => {
                let web_socket = *kind == ProbeKind::WebSocketHttp2;
                let head = connection.exchange_into(path, headers, web_socket, limit, sink).await;
                *whole = head.is_ok();
                head?
            }
        };
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let text = |name| head.text(name).map(printable_header).unwrap_or_default();
        Ok(HttpAnswer {
            status: head.status.as_u16(),
            version: format!("{:?}", head.version),
            location: text(LOCATION),
            server: text(SERVER),
            upgrade: text(UPGRADE),
            content_type: text(CONTENT_TYPE),
            challenge: text(WWW_AUTHENTICATE),
            web_socket_version: text(SEC_WEBSOCKET_VERSION),
            accept_fits: (head.status == 101)
                .then(|| head.text(SEC_WEBSOCKET_ACCEPT).is_some_and(|accept| accept == accept_for(&key))),
            self_link: self_link(&head, &beginning),
            body_start: printable(beginning.get(..BODY_START).unwrap_or(&beginning)),
            body_bytes: bytes as u64,
            // The sum of a part would pass for that of the whole.
            body_sha256: if is_cut { String::new() } else { certificate::hex(&hash.finalize()) },
            ms,
            date_offset_ms: head.text(DATE).and_then(|date| date_offset(date, asked_at, cx.now())),
            followed: Vec::new(),
        })
    }
}

/// What a server answers to a WebSocket key (RFC 6455, 4.2.2).
fn accept_for(key: &str) -> String {
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let sum =
        ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    BASE64.encode(sum)
}

/// Scheme, host and port by which an API of Rancher's calls itself: from its header `X-Api-Schemas`, or the first link
/// `self` of its JSON.
fn self_link(head: &Head, beginning: &[u8]) -> String {
    let schemas = head.text("x-api-schemas").map(str::to_owned);
    let from_body = || {
        const SELF: &str = "\"self\":\"";
        let text = String::from_utf8_lossy(beginning);
        let text = text.trim_start().strip_prefix('{')?;
        let rest = &text[text.find(SELF)? + SELF.len()..];
        Some(rest[..rest.find('"')?].to_owned())
    };
    let Some(link) = schemas.or_else(from_body) else { return String::new() };
    let Some((scheme, rest)) = link.split_once("://") else { return String::new() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    printable_header(&format!("{scheme}://{authority}")).chars().take(MAX_LINK).collect()
}

/// Our clock minus a server's, by its `Date` (RFC 9110, 5.6.7), which is cut to whole seconds.
fn date_offset(date: &str, asked_at: Timestamp, answered_at: Timestamp) -> Option<i64> {
    let theirs = jiff::fmt::rfc2822::parse(date).ok()?.timestamp().as_millisecond();
    let ours = asked_at.as_millis() + (answered_at.as_millis() - asked_at.as_millis()) / 2;
    Some(ours.saturating_sub(theirs.saturating_add(500)))
}

/// A header's text, bounded.
fn printable_header(text: &str) -> String {
    text.chars().take(MAX_HEADER).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The beginning of a body as text, control characters (line ends too) and broken UTF-8 replaced.
pub(super) fn printable(bytes: &[u8]) -> String {
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
    use http::{HeaderMap, HeaderValue, StatusCode, Version};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bodies_are_shown_without_tricks() {
        assert_eq!(printable(b"pong\n"), "pong");
        assert_eq!(printable(b"a\x1b[31mb\nc"), "a\u{fffd}[31mb\u{fffd}c");
        assert_eq!(printable("ä".repeat(61).as_bytes().get(..121).unwrap()), "ä".repeat(60));
    }

    #[test]
    fn the_example_of_the_standard() {
        assert_eq!(accept_for("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn what_rancher_calls_itself() {
        let head = |schemas: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = schemas {
                headers.insert("x-api-schemas", HeaderValue::from_static(value));
            }
            Head { status: StatusCode::OK, version: Version::HTTP_11, headers }
        };
        let body = br#"{"type":"collection","links":{"self":"https://rancher.x:8443/"},"data":[]}"#;
        assert_eq!(self_link(&head(None), body), "https://rancher.x:8443");
        assert_eq!(self_link(&head(Some("http://10.0.0.1/meta/schemas")), body), "http://10.0.0.1");
        for body in
            [&b"pong"[..], b"<html>\"self\":\"https://x/\"", b"{\"self\":\"https", b"{\"self\":\"/v3\"}", b""]
        {
            assert_eq!(self_link(&head(None), body), "");
        }
    }

    #[test]
    fn a_date_header_tells_how_far_the_clocks_are_apart() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (asked, answered) = (at("2026-11-29T20:00:10.000Z"), at("2026-11-29T20:00:10.200Z"));
        assert_eq!(date_offset("Sun, 29 Nov 2026 20:00:10 GMT", asked, answered), Some(-400));
        assert_eq!(date_offset("Sun, 29 Nov 2026 19:00:10 GMT", asked, answered), Some(3_599_600));
        assert_eq!(date_offset("today", asked, answered), None);
    }

    proptest! {
        #[test]
        fn never_panics_and_shows_no_control(bytes in proptest::collection::vec(any::<u8>(), 0..150)) {
            prop_assert!(!printable(&bytes).chars().any(char::is_control));
            let head = Head { status: StatusCode::OK, version: Version::HTTP_11, headers: HeaderMap::new() };
            prop_assert!(!self_link(&head, &bytes).chars().any(char::is_control));
        }
    }
}
