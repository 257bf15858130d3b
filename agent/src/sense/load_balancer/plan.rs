//! Which requests go where: data, so that it can be read and tested without a network.

use std::net::SocketAddr;

use http::header::{
    CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE, USER_AGENT,
};
use outrider_protocol::{
    BalancerMode, BalancerService, Fact, Probe, ProbeKind, ProbeTarget, STRANGE_HOST, STRANGE_PORT,
    UnknownCause,
};

use super::probe::Side;
use crate::net::Url;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// What it is for.
    pub(super) kind: ProbeKind,
    /// Path.
    pub(super) path: &'static str,
}

fn ask(kind: ProbeKind, path: &'static str) -> Ask {
    Ask { kind, path }
}

/// A path nobody serves, with a name that tells an administrator who asks.
const NONSENSE: &str = "/outrider-asks-for-a-path-nobody-serves";

/// `/` by a name of its own: no cache may keep for others what is answered to a client that lies.
const STRANGE: &str = "/?outrider-asks-who-is-believed";

/// Where a Rancher's agents open their WebSocket.
const CONNECT: &str = "/v3/connect";

/// What is asked on one connection to the balancer over https, by the number of the try. Every try begins with `/` on
/// a new connection, which is what a balancer spreads over its backends; the first asks everything once, and for `/`
/// again: a proxy may set its headers on the first request of a connection only (E4). Then the client lies (E5).
pub(super) fn https_asks(number: u32, service: &BalancerService) -> Vec<Ask> {
    use ProbeKind as K;
    match service {
        BalancerService::Kubernetes => return vec![ask(K::Healthz, "/readyz")],
        BalancerService::Supervisor => return vec![ask(K::Ping, "/ping")],
        _ => {}
    }
    let mut asks = vec![ask(K::Root, "/"), ask(K::Ping, "/ping")];
    if number == 0 {
        asks.extend([
            ask(K::Healthz, "/healthz"),
            ask(K::CaCerts, "/cacerts"),
            ask(K::Nonsense, NONSENSE),
            ask(K::Root, "/"),
            ask(K::ForgedAddress, STRANGE),
            ask(K::ForgedProto, STRANGE),
        ]);
    }
    asks
}

/// What is asked on a connection whose peer chose HTTP/2.
pub(super) fn http2_asks() -> Vec<Ask> {
    // The first answer tells whether WebSockets are offered.
    vec![ask(ProbeKind::Ping, "/ping"), ask(ProbeKind::WebSocketHttp2, CONNECT)]
}

/// The WebSocket handshakes, which need a connection of their own: an answer of 101 is its last.
pub(super) fn web_socket() -> Vec<Ask> {
    vec![ask(ProbeKind::WebSocketOrigin, CONNECT), ask(ProbeKind::WebSocket, CONNECT)]
}

/// What is asked over plain http.
pub(super) fn plain_asks() -> Vec<Ask> {
    vec![ask(ProbeKind::Redirect, "/"), ask(ProbeKind::ForgedRoot, "/")]
}

/// What is asked after a PROXY protocol header.
pub(super) fn proxy_asks() -> Vec<Ask> {
    vec![ask(ProbeKind::ProxyPing, "/ping")]
}

/// A connection to a backend and what is asked on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BackendTry {
    /// Where.
    pub(super) address: SocketAddr,
    /// Over TLS.
    pub(super) secure: bool,
    /// What.
    pub(super) asks: Vec<Ask>,
}

/// The tries at one backend. L4: the balancer passes TLS through, so the backend is asked over TLS. L7: TLS has ended,
/// so the plain port is asked with the header a balancer must set and without it. While the mode is being found
/// out, both.
pub(super) fn backend_tries(
    backend: SocketAddr,
    mode: &BalancerMode,
    http_port: u16,
    service: &BalancerService,
) -> Vec<BackendTry> {
    if *service != BalancerService::Rancher {
        return vec![BackendTry { address: backend, secure: true, asks: https_asks(1, service) }];
    }
    match mode {
        BalancerMode::L4 => vec![secure(backend)],
        BalancerMode::L7 => vec![plain(backend)],
        _ if backend.port() == http_port => vec![plain(backend)],
        _ => vec![secure(backend), plain(SocketAddr::new(backend.ip(), http_port))],
    }
}

fn secure(address: SocketAddr) -> BackendTry {
    use ProbeKind as K;
    let asks = vec![ask(K::Ping, "/ping"), ask(K::CaCerts, "/cacerts"), ask(K::HealthzByAddress, "/healthz")];
    BackendTry { address, secure: true, asks }
}

fn plain(address: SocketAddr) -> BackendTry {
    use ProbeKind as K;
    let asks = vec![
        ask(K::ForwardedRoot, "/"),
        ask(K::PlainRoot, "/"),
        ask(K::ForwardedAddress, STRANGE),
        ask(K::Ping, "/ping"),
        ask(K::HealthzByAddress, "/healthz"),
    ];
    BackendTry { address, secure: false, asks }
}

/// The same backend in the other of TLS and plain http, where `seen`, its answers to `one`, say that it speaks that: the
/// balancer then works at another layer than it was taken for.
pub(super) fn other_layer(one: &BackendTry, seen: &[Probe]) -> Option<BackendTry> {
    if one.secure {
        let in_place_of_tls =
            |p: &Probe| !p.raw.is_empty() && cause_of(&p.tls) == Some(&UnknownCause::TlsFailed);
        return seen.iter().any(in_place_of_tls).then(|| plain(one.address));
    }
    let wants_tls = |p: &Probe| {
        p.http.value().is_some_and(|a| {
            // nginx, Go's servers (Traefik among them), Apache.
            let words =
                ["sent to HTTPS port", "HTTP request to an HTTPS server", "plain HTTP to an SSL-enabled"];
            a.status == 400 && words.iter().any(|words| a.body_start.contains(words))
        })
    };
    seen.iter().any(wants_tls).then(|| secure(one.address))
}

/// Whether the answers of [`other_layer`] bear it out: a handshake, or an answer over plain http that is no complaint.
pub(super) fn bears_out(probes: &[Probe]) -> bool {
    probes.iter().any(|p| p.tls.value().is_some() || p.http.value().is_some_and(|a| a.status != 400))
}

/// What a browser of another site calls itself and comes from. Rancher refuses the WebSocket of such a one with words of
/// its own, and does so only where the upgrade arrived; the name still says who asks.
const BROWSER: &str = concat!("Mozilla/5.0 (compatible; outrider/", env!("CARGO_PKG_VERSION"), ")");
const ELSEWHERE: &str = "https://outrider.invalid";

/// The headers of a request beside those that every request has. `key` is the WebSocket's, base64.
pub(super) fn headers(kind: &ProbeKind, side: &Side, url: &Url, key: &str) -> HeaderMap {
    const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
    let https = HeaderValue::from_static("https");
    let mut headers = HeaderMap::new();
    let host = |name: &str, headers: &mut HeaderMap| {
        if let Ok(value) = HeaderValue::from_str(name) {
            headers.insert(HOST, value);
        }
    };
    match kind {
        // As a browser that was given http:// asks.
        ProbeKind::Redirect | ProbeKind::ForgedRoot => {
            let plain = Url { tls: false, port: side.address.port(), ..url.clone() };
            host(&plain.authority(), &mut headers);
        }
        ProbeKind::HealthzByAddress => {
            let ip = Url { tls: false, port: 80, host: side.address.ip().to_string(), path: String::new() };
            host(&ip.authority(), &mut headers);
        }
        _ => {}
    }
    if matches!(kind, ProbeKind::ForwardedRoot | ProbeKind::ForwardedAddress | ProbeKind::ForgedRoot) {
        headers.insert(PROTO, https.clone());
    }
    if matches!(kind, ProbeKind::ForwardedAddress | ProbeKind::ForgedAddress) {
        headers.insert("x-forwarded-host", HeaderValue::from_static(STRANGE_HOST));
        headers.insert("x-forwarded-port", HeaderValue::from(STRANGE_PORT));
    }
    if *kind == ProbeKind::ForgedProto {
        headers.insert(PROTO, HeaderValue::from_static("http"));
    }
    if matches!(kind, ProbeKind::WebSocket | ProbeKind::WebSocketOrigin) {
        // A whole handshake: proxies refuse one without a valid key (E8).
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(key) = HeaderValue::from_str(key) {
            headers.insert(SEC_WEBSOCKET_KEY, key);
        }
        // Straight at the plain port of a backend we stand where the balancer stands.
        if side.target == ProbeTarget::Backend && !side.secure {
            headers.insert(PROTO, https);
        }
    }
    if matches!(kind, ProbeKind::WebSocket | ProbeKind::WebSocketOrigin | ProbeKind::WebSocketHttp2) {
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    }
    if matches!(kind, ProbeKind::WebSocketOrigin | ProbeKind::WebSocketHttp2) {
        headers.insert(USER_AGENT, HeaderValue::from_static(BROWSER));
        headers.insert(ORIGIN, HeaderValue::from_static(ELSEWHERE));
    }
    headers
}

/// Whether a WebSocket handshake through the balancer got another answer than Rancher's to one that arrived whole: then
/// the same is asked straight at the backends.
pub(super) fn wants_second_point(probe: &Probe) -> bool {
    let arrived =
        |status: u16, body: &str| status == 101 || (status == 403 && body.contains("origin not allowed"));
    probe.kind == ProbeKind::WebSocketOrigin
        && probe.target == ProbeTarget::Balancer
        && cause_of(&probe.tcp).is_none()
        && probe.http.value().is_none_or(|a| !arrived(a.status, &a.body_start))
}

/// Whether a peer took the connection and then closed it, or spoke something else, or called the first request bad: what
/// PROXY protocol on one side only looks like (E13).
pub(super) fn looks_like_proxy_protocol(probe: &Probe) -> bool {
    let cut = |cause: &UnknownCause| {
        matches!(cause, UnknownCause::TlsFailed | UnknownCause::InvalidAnswer | UnknownCause::Unreachable)
    };
    let fails = |cause: Option<&UnknownCause>| cause.is_some_and(cut);
    probe.tcp.value().is_some()
        && (fails(cause_of(&probe.tls))
            || fails(cause_of(&probe.http))
            || probe.http.value().is_some_and(|a| a.status == 400))
}

fn cause_of<T>(fact: &Fact<T>) -> Option<&UnknownCause> {
    match fact {
        Fact::Unknown { cause, .. } => Some(cause),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_try_asks_for_the_root_first() {
        for number in 0..3 {
            assert_eq!(https_asks(number, &BalancerService::Rancher)[0].kind, ProbeKind::Root);
            assert_eq!(https_asks(number, &BalancerService::Kubernetes)[0].path, "/readyz");
            assert_eq!(https_asks(number, &BalancerService::Supervisor)[0].path, "/ping");
        }
        let first = https_asks(0, &BalancerService::Rancher);
        assert_eq!(first.iter().filter(|a| a.kind == ProbeKind::Root).count(), 2);
        assert!(https_asks(1, &BalancerService::Rancher).len() < first.len());
    }

    #[test]
    fn backends_are_tried_as_their_mode_says() {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let ports = |mode, port| -> Vec<(u16, bool)> {
            backend_tries(at(port), &mode, 80, &BalancerService::Rancher)
                .iter()
                .map(|t| (t.address.port(), t.secure))
                .collect()
        };
        assert_eq!(ports(BalancerMode::L4, 443), [(443, true)]);
        assert_eq!(ports(BalancerMode::L7, 80), [(80, false)]);
        assert_eq!(ports(BalancerMode::Auto, 443), [(443, true), (80, false)]);
        assert_eq!(ports(BalancerMode::Auto, 80), [(80, false)]);
    }

    #[test]
    fn a_backend_that_says_what_it_speaks_is_asked_in_that() {
        use outrider_protocol::{HttpAnswer, Timestamp};
        let at = SocketAddr::from(([10, 0, 0, 1], 8443));
        let now = Timestamp::default();
        let probe = |tls: Fact<outrider_protocol::TlsFacts>, http: Fact<HttpAnswer>, raw: &str| Probe {
            kind: ProbeKind::Ping,
            target: ProbeTarget::Backend,
            peer: at.to_string(),
            at: now,
            tcp: Fact::known(1.0, "", now),
            tls,
            http,
            raw: raw.into(),
        };
        let no_tls =
            |cause, raw| probe(Fact::unknown(cause, "", "", now), Fact::not_applicable("", now), raw);
        let answered = |status, body: &str| {
            let answer = HttpAnswer { status, body_start: body.into(), ..HttpAnswer::default() };
            probe(Fact::not_applicable("", now), Fact::known(answer, "", now), "")
        };
        let spoken = |one: BackendTry, seen: Probe| {
            other_layer(&one, &[seen]).map(|other| (other.secure, other.address))
        };
        let words = "HTTP/1.1 400 Bad Request";
        assert_eq!(spoken(secure(at), no_tls(UnknownCause::TlsFailed, words)), Some((false, at)));
        // An alert, silence: nothing tells.
        assert_eq!(spoken(secure(at), no_tls(UnknownCause::TlsFailed, "")), None);
        assert_eq!(spoken(secure(at), no_tls(UnknownCause::TimedOut, "")), None);
        for words in [
            "<html> <head><title>400 The plain HTTP request was sent to HTTPS port</title></head>",
            "Client sent an HTTP request to an HTTPS server.",
            "Reason: You're speaking plain HTTP to an SSL-enabled server port.",
        ] {
            assert_eq!(spoken(plain(at), answered(400, words)), Some((true, at)), "{words}");
        }
        assert_eq!(spoken(plain(at), answered(400, "Bad Request")), None);
        assert_eq!(spoken(plain(at), answered(200, "HTTP request to an HTTPS server")), None);
        assert!(bears_out(&[answered(200, "")]) && bears_out(&[answered(404, "")]));
        assert!(
            !bears_out(&[answered(400, "")])
                && !bears_out(&[no_tls(UnknownCause::TlsFailed, "")])
                && !bears_out(&[])
        );
    }

    #[test]
    fn whoever_asks_says_so_and_where_it_matters_from_elsewhere() {
        let url = Url { tls: true, host: "rancher.x".into(), port: 8443, path: "/".into() };
        let side = |target, secure, address: &str| Side { target, secure, address: address.parse().unwrap() };
        let through = side(ProbeTarget::Balancer, true, "192.0.2.1:8443");
        let origin = headers(&ProbeKind::WebSocketOrigin, &through, &url, "a2V5");
        let agent = origin[USER_AGENT].to_str().unwrap();
        assert!(
            agent.contains(crate::net::USER_AGENT) && agent.to_lowercase().contains("mozilla"),
            "{agent}"
        );
        assert!(origin[ORIGIN] == ELSEWHERE && origin[SEC_WEBSOCKET_KEY] == "a2V5", "{origin:?}");
        let web_socket = headers(&ProbeKind::WebSocket, &through, &url, "a2V5");
        assert!(web_socket.get(ORIGIN).is_none() && web_socket.get("x-forwarded-proto").is_none());
        let straight = side(ProbeTarget::Backend, false, "[2001:db8::1]:80");
        assert_eq!(headers(&ProbeKind::WebSocketOrigin, &straight, &url, "")["x-forwarded-proto"], "https");
        assert_eq!(headers(&ProbeKind::HealthzByAddress, &straight, &url, "")[HOST], "[2001:db8::1]");
        let plain = side(ProbeTarget::Balancer, false, "192.0.2.1:8080");
        assert_eq!(headers(&ProbeKind::Redirect, &plain, &url, "")[HOST], "rancher.x:8080");
        let lie = headers(&ProbeKind::ForgedAddress, &through, &url, "");
        assert!(
            lie["x-forwarded-host"] == "outrider.invalid" && lie["x-forwarded-port"] == "61443",
            "{lie:?}"
        );
        assert!(lie.get("x-forwarded-proto").is_none() && lie.get(HOST).is_none(), "{lie:?}");
        let forged = headers(&ProbeKind::ForgedRoot, &plain, &url, "");
        assert!(forged[HOST] == "rancher.x:8080" && forged["x-forwarded-proto"] == "https", "{forged:?}");
    }
}
