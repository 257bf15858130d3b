//! Which requests go where: data, so that it can be read and tested without a network.

use std::net::SocketAddr;

use outrider_protocol::{BalancerMode, ProbeKind};

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

/// What is asked on one connection to the balancer over https, by the number of the try. Every try begins with `/` on
/// a new connection, which is what a balancer spreads over its backends; the first asks everything once and ends
/// with `/` again: a proxy may set its headers on the first request of a connection only (E4).
pub(super) fn https_asks(number: u32) -> Vec<Ask> {
    use ProbeKind as K;
    let mut asks = vec![ask(K::Root, "/"), ask(K::Ping, "/ping")];
    if number == 0 {
        asks.extend([
            ask(K::Healthz, "/healthz"),
            ask(K::CaCerts, "/cacerts"),
            ask(K::Nonsense, NONSENSE),
            ask(K::Root, "/"),
        ]);
    }
    asks
}

/// The WebSocket handshake, which needs a connection of its own.
pub(super) fn web_socket() -> Vec<Ask> {
    vec![ask(ProbeKind::WebSocket, "/v3/connect")]
}

/// What is asked over plain http.
pub(super) fn plain_asks() -> Vec<Ask> {
    vec![ask(ProbeKind::Redirect, "/")]
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
pub(super) fn backend_tries(backend: SocketAddr, mode: &BalancerMode, http_port: u16) -> Vec<BackendTry> {
    use ProbeKind as K;
    let secure = |address| BackendTry { address, secure: true, asks: vec![ask(K::Ping, "/ping")] };
    let plain = |address| BackendTry {
        address,
        secure: false,
        asks: vec![ask(K::ForwardedRoot, "/"), ask(K::PlainRoot, "/")],
    };
    match mode {
        BalancerMode::L4 => vec![secure(backend)],
        BalancerMode::L7 => vec![plain(backend)],
        _ if backend.port() == http_port => vec![plain(backend)],
        _ => vec![secure(backend), plain(SocketAddr::new(backend.ip(), http_port))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_try_asks_for_the_root_first() {
        for number in 0..3 {
            assert_eq!(https_asks(number)[0].kind, ProbeKind::Root);
        }
        let first = https_asks(0);
        assert_eq!(first.iter().filter(|a| a.kind == ProbeKind::Root).count(), 2);
        assert!(https_asks(1).len() < first.len());
    }

    #[test]
    fn backends_are_tried_as_their_mode_says() {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let ports = |mode, port| -> Vec<(u16, bool)> {
            backend_tries(at(port), &mode, 80).iter().map(|t| (t.address.port(), t.secure)).collect()
        };
        assert_eq!(ports(BalancerMode::L4, 443), [(443, true)]);
        assert_eq!(ports(BalancerMode::L7, 80), [(80, false)]);
        assert_eq!(ports(BalancerMode::Auto, 443), [(443, true), (80, false)]);
        assert_eq!(ports(BalancerMode::Auto, 80), [(80, false)]);
    }
}
