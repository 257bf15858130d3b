//! Tries the ports of neighbours: a connection, a TLS handshake, and the end of it. Nothing is asked and nothing sent
//! beyond the handshake; etcd's ports are not touched.
//!
//! The kubelet at a node's overlay address is reached through the CNI's encapsulation, so that one handshake there
//! shows its UDP port and its MTU. The handshake begins with more bytes than a packet holds: with a path that drops
//! full packets, the connection stands and the handshake stalls.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures_util::future::join_all;
use outrider_protocol::{
    Distribution, KubernetesRole, NeighbourFacts, NodeNetwork, Peer, Peers, PortTry, Reach, TriedPort,
    UnknownCause,
};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::network::is_usable;
use crate::net::{Failure, connect, tls, within};
use crate::sense::{SenseContext, systemd};

/// Limit of a connection: time for a lost packet to be sent again, twice.
const CONNECT_LIMIT: Duration = Duration::from_millis(3500);
/// Limit of a handshake after it.
const TLS_LIMIT: Duration = Duration::from_millis(3500);
/// Neighbours that are tried, whatever was named.
const MOST: usize = 8;

/// What one look leaves for the next.
#[derive(Debug, Default)]
pub struct Memory {
    /// What systemd said of units.
    pub(super) units: systemd::Memory,
    last: Option<(Instant, Vec<NeighbourFacts>)>,
}

/// What each neighbour was last seen to be: tried anew when that is due, when a neighbour is new, and sooner than that
/// while one does not answer.
pub(super) async fn look(
    cx: &SenseContext,
    own: &NodeNetwork,
    peers: &Peers,
    every: Duration,
    memory: &mut Memory,
) -> Vec<NeighbourFacts> {
    let wanted: Vec<&Peer> = peers.peers.iter().take(MOST).collect();
    if let Some((at, last)) = &memory.last {
        let is_same = last.iter().map(|n| &n.name).eq(wanted.iter().map(|p| &p.node.name));
        let is_well = last.iter().flat_map(|n| &n.tries).all(|t| t.failures == 0);
        if is_same && is_well && at.elapsed() < every {
            return last.clone();
        }
    }
    let before = memory.last.take().map(|(_, last)| last).unwrap_or_default();
    let found = join_all(wanted.iter().map(|peer| neighbour(cx, own, peer, &before))).await;
    memory.last = Some((Instant::now(), found.clone()));
    found
}

async fn neighbour(
    cx: &SenseContext,
    own: &NodeNetwork,
    peer: &Peer,
    before: &[NeighbourFacts],
) -> NeighbourFacts {
    let earlier = before.iter().find(|n| n.name == peer.node.name).map_or(&[][..], |n| n.tries.as_slice());
    let tries = targets(own, peer).into_iter().map(|target| async move {
        let started = Instant::now();
        let reach = match target.address {
            Some(address) => reach(address).await,
            None => Reach::Untried,
        };
        let mut done = PortTry { reach, at: cx.now(), ..target.facts };
        let failed =
            earlier.iter().find(|t| (&t.port, &t.peer) == (&done.port, &done.peer)).map_or(0, |t| t.failures);
        match done.reach {
            Reach::Answered => done.ms = u32::try_from(started.elapsed().as_millis()).unwrap_or(u32::MAX),
            Reach::Untried => {}
            _ => done.failures = failed.saturating_add(1),
        }
        done
    });
    NeighbourFacts { name: peer.node.name.clone(), role: peer.role.clone(), tries: join_all(tries).await }
}

/// One port to try.
struct Target {
    facts: PortTry,
    /// None where it cannot be tried from here.
    address: Option<SocketAddr>,
}

/// The ports of a neighbour, by what it runs (RKE2's and K3s' `requirements.md`, inbound rules): API server and RKE2's
/// supervisor on servers, the kubelet everywhere, and the kubelet again at each overlay address of an interface that we
/// have as well.
fn targets(own: &NodeNetwork, peer: &Peer) -> Vec<Target> {
    let target = |port: TriedPort, address: &str, number: u16, interface: &str| {
        let ip = address.parse::<IpAddr>().ok().filter(is_usable).filter(|ip| !is_own(own, ip));
        let address = ip.map(|ip| SocketAddr::new(ip, number));
        let facts = PortTry {
            port,
            peer: address.map_or_else(|| "an address of this node".to_owned(), |a| a.to_string()),
            interface: interface.to_owned(),
            reach: Reach::Untried,
            ms: 0,
            failures: 0,
            at: outrider_protocol::Timestamp::default(),
        };
        Target { facts, address }
    };
    let mut all = Vec::new();
    if let Some(address) = same_family(own, &peer.addresses) {
        if peer.role == KubernetesRole::Server {
            all.push(target(TriedPort::Apiserver, address, 6443, ""));
            if peer.distribution == Distribution::Rke2 {
                all.push(target(TriedPort::Supervisor, address, 9345, ""));
            }
        }
        all.push(target(TriedPort::Kubelet, address, 10250, ""));
    }
    for overlay in peer.overlays.iter().take(2) {
        if own.overlays.iter().any(|o| o.interface == overlay.interface) {
            all.extend(
                overlay
                    .addresses
                    .iter()
                    .take(1)
                    .map(|a| target(TriedPort::Overlay, a, 10250, &overlay.interface)),
            );
        }
    }
    all
}

/// The first of a neighbour's addresses of a family we have: one way to a node is enough to know its ports.
fn same_family<'a>(own: &NodeNetwork, addresses: &'a [String]) -> Option<&'a str> {
    let families: Vec<bool> = own.addresses.iter().map(|a| a.contains(':')).collect();
    addresses.iter().map(String::as_str).find(|a| families.contains(&a.contains(':')))
}

fn is_own(own: &NodeNetwork, ip: &IpAddr) -> bool {
    let overlay = own.overlays.iter().flat_map(|o| &o.addresses);
    own.addresses.iter().chain(overlay).any(|a| a.parse::<IpAddr>().is_ok_and(|a| a == *ip))
}

/// A connection and a handshake.
async fn reach(address: SocketAddr) -> Reach {
    match connect(address, CONNECT_LIMIT).await {
        Ok(stream) => shake_hands(stream, address).await,
        Err(failure) => match failure.cause {
            UnknownCause::ConnectionRefused => Reach::Refused,
            UnknownCause::TimedOut => Reach::Silent,
            UnknownCause::Unreachable => Reach::Prohibited,
            // EACCES and EPERM: a filter of this machine refuses the packet on its way out.
            UnknownCause::PermissionDenied => Reach::Prohibited,
            _ => Reach::Silent,
        },
    }
}

async fn shake_hands(stream: TcpStream, address: SocketAddr) -> Reach {
    let Ok(config) = config() else { return Reach::Untried };
    let host = address.ip().to_string();
    let shaken = within(TLS_LIMIT, "TLS handshake", tls::handshake(stream, config, &host)).await;
    match shaken {
        Ok(mut stream) => {
            // Said goodbye, so that the other side logs nothing; should it be away by now, that is its affair.
            let _ = tokio::time::timeout(
                Duration::from_millis(200),
                tokio::io::AsyncWriteExt::shutdown(&mut stream),
            )
            .await;
            Reach::Answered
        }
        Err(failure) => of_failed_handshake(&failure),
    }
}

/// Whatever TLS or another protocol said, something answered; silence and an end without a word are told apart.
fn of_failed_handshake(failure: &Failure) -> Reach {
    match failure.cause {
        UnknownCause::TimedOut => Reach::Stalled,
        UnknownCause::TlsFailed if !failure.detail.contains("closed") => Reach::Answered,
        UnknownCause::Unauthenticated => Reach::Answered,
        _ => Reach::Closed,
    }
}

/// Accepts any certificate, for nothing is entrusted to it, and begins with more bytes than a packet holds: the names
/// of protocols nobody speaks fill the first message. Servers pass over names they do not know (RFC 7301, section 3.2).
fn config() -> Result<Arc<ClientConfig>, Failure> {
    static CONFIG: LazyLock<Result<Arc<ClientConfig>, Failure>> = LazyLock::new(|| {
        let padding: Vec<Vec<u8>> = (b'a'..=b'g').map(|letter| vec![letter; 240]).collect();
        let mut alpn: Vec<&[u8]> = vec![b"http/1.1", b"h2"];
        alpn.extend(padding.iter().map(Vec::as_slice));
        let observing = tls::Observing::without_roots();
        tls::client_config(observing, None, &alpn)
    });
    CONFIG.clone()
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{Encapsulation, NodeRef, OverlayFacts, Profile, TypeMeta};
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    fn overlay(interface: &str, address: &str) -> OverlayFacts {
        OverlayFacts {
            interface: interface.into(),
            cni: "canal or flannel".into(),
            encapsulation: Encapsulation::Vxlan,
            port: 8472,
            mtu: Some(1450),
            addresses: vec![address.into()],
        }
    }

    fn own() -> NodeNetwork {
        NodeNetwork {
            distribution: Distribution::Rke2,
            role: KubernetesRole::Server,
            addresses: vec!["192.0.2.1".into()],
            mtu: Some(1500),
            overlays: vec![overlay("flannel.1", "10.42.0.0")],
            firewalls: vec![],
            others: None,
            neighbours: vec![],
        }
    }

    fn peer(distribution: Distribution, role: KubernetesRole) -> Peer {
        Peer {
            node: NodeRef {
                name: "n2".into(),
                uid: "u2".into(),
                cluster: "c".into(),
                profile: Profile::Generic,
                simulated: false,
            },
            distribution,
            role,
            addresses: vec!["2001:db8::2".into(), "192.0.2.2".into()],
            overlays: vec![overlay("flannel.1", "10.42.1.0"), overlay("tunl0", "10.42.9.0")],
        }
    }

    fn tried(own: &NodeNetwork, peer: &Peer) -> Vec<String> {
        targets(own, peer).iter().map(|t| format!("{} {}", t.facts.port, t.facts.peer)).collect()
    }

    #[test]
    fn ports_follow_from_what_the_neighbour_runs_and_never_include_etcd() {
        let all = tried(&own(), &peer(Distribution::Rke2, KubernetesRole::Server));
        assert_eq!(
            all,
            [
                "apiserver 192.0.2.2:6443",
                "supervisor 192.0.2.2:9345",
                "kubelet 192.0.2.2:10250",
                "overlay 10.42.1.0:10250"
            ]
        );
        let all = tried(&own(), &peer(Distribution::K3s, KubernetesRole::Server));
        assert_eq!(all, ["apiserver 192.0.2.2:6443", "kubelet 192.0.2.2:10250", "overlay 10.42.1.0:10250"]);
        let all = tried(&own(), &peer(Distribution::K3s, KubernetesRole::Agent));
        assert_eq!(all, ["kubelet 192.0.2.2:10250", "overlay 10.42.1.0:10250"]);
    }

    #[test]
    fn our_own_address_and_addresses_that_are_nobodys_are_not_tried() {
        let mut other = peer(Distribution::K3s, KubernetesRole::Agent);
        other.overlays.clear();
        for address in ["192.0.2.1", "127.0.0.1", "0.0.0.0", "224.0.0.1", "169.254.1.1", "rubbish"] {
            other.addresses = vec![address.into()];
            assert!(targets(&own(), &other).iter().all(|t| t.address.is_none()), "{address}");
        }
    }

    #[tokio::test]
    async fn the_first_message_is_larger_than_a_packet() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut all = vec![0; 4096];
            let mut n = 0;
            while n < 1600 {
                match stream.read(&mut all[n..]).await.unwrap() {
                    0 => break,
                    more => n += more,
                }
            }
            n
        });
        assert_eq!(reach(address).await, Reach::Closed);
        assert!(server.await.unwrap() >= 1600);
    }

    #[tokio::test]
    async fn refused_and_other_protocols_are_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut some = [0; 2048];
            let _ = stream.read(&mut some).await;
            let _ =
                tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.0 400 Bad Request\r\n\r\n").await;
            let _ = stream.read(&mut some).await;
        });
        assert_eq!(reach(address).await, Reach::Answered, "something answers there");
        server.await.unwrap();
        assert_eq!(reach(address).await, Reach::Refused);
    }

    #[tokio::test]
    async fn failures_are_counted_in_a_row_and_one_that_answers_is_left_alone() {
        let cx = super::super::super::prepared::Machine::new().cx();
        let mut other = peer(Distribution::K3s, KubernetesRole::Agent);
        (other.addresses, other.overlays) = (vec!["192.0.2.1".into()], vec![]);
        let peers =
            Peers { meta: TypeMeta::new("Peers"), cluster: "c".into(), others: 1, peers: vec![other] };
        let mut memory = Memory::default();
        let every = Duration::from_secs(300);
        let first = look(&cx, &own(), &peers, every, &mut memory).await;
        assert_eq!(first[0].tries[0].reach, Reach::Untried);
        let at = memory.last.as_ref().map(|(at, _)| *at);
        look(&cx, &own(), &peers, every, &mut memory).await;
        assert_eq!(memory.last.as_ref().map(|(at, _)| *at), at, "not tried again before it is due");
        let mut last = memory.last.take().unwrap();
        last.1[0].tries[0].failures = 1;
        memory.last = Some(last);
        look(&cx, &own(), &peers, every, &mut memory).await;
        assert_ne!(memory.last.as_ref().map(|(at, _)| *at), at, "tried again while one fails");
    }
}
