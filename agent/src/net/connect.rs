//! Names to addresses, addresses to TCP streams.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use outrider_protocol::UnknownCause;
use tokio::net::TcpStream;

use super::{Failure, within};

/// Fixed addresses a name, instead of the system's resolver.
pub type Resolve = BTreeMap<String, Vec<IpAddr>>;

/// Every address of `host` (a name, or an IP address without brackets), in the resolver's order, each once.
///
/// Uses the system's resolver, `/etc/hosts` included, unless `fixed` has the name. Bounded by `limit`.
pub async fn resolve(
    host: &str,
    port: u16,
    fixed: &Resolve,
    limit: Duration,
) -> Result<Vec<SocketAddr>, Failure> {
    let mut found: Vec<SocketAddr> = if let Ok(ip) = host.parse::<IpAddr>() {
        vec![SocketAddr::new(ip, port)]
    } else if let Some(addresses) = fixed.get(host) {
        addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect()
    } else {
        within(limit, format!("resolving {host}"), async {
            let answer = tokio::net::lookup_host((host, port)).await.map_err(|e| {
                Failure::new(UnknownCause::NameNotResolved, format!("{host} does not resolve: {e}"))
            })?;
            Ok(answer.collect())
        })
        .await?
    };
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|address| seen.insert(*address));
    if found.is_empty() {
        return Err(Failure::new(UnknownCause::NameNotResolved, format!("{host} has no address")));
    }
    Ok(found)
}

/// A TCP stream to `address` within `limit`, without Nagle's delay (which costs a gRPC call over 40 ms).
pub async fn connect(address: SocketAddr, limit: Duration) -> Result<TcpStream, Failure> {
    within(limit, format!("connecting to {address}"), async {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|e| unreached(e).during(format_args!("connecting to {address}")))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    })
    .await
}

/// A route of the type blackhole answers EINVAL where the others say unreachable (ip-route(8)).
fn unreached(error: std::io::Error) -> Failure {
    if error.raw_os_error() == Some(libc::EINVAL) {
        return Failure::new(UnknownCause::Unreachable, "the route to it is a black hole of this machine");
    }
    Failure::from(error)
}

/// How much silence of a peer ends a connection (TCP keep-alive: the kernel's, not a protocol's).
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// Before the first question.
    pub idle: Duration,
    /// Between questions.
    pub every: Duration,
    /// Questions without an answer.
    pub times: u32,
}

impl Silence {
    /// Makes the kernel end `stream` when the peer has been silent for that long, whether something was on its way to it
    /// or not.
    pub(super) fn watch(&self, stream: &TcpStream) -> std::io::Result<()> {
        use rustix::net::sockopt::{
            set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_user_timeout,
        };
        let all = self.idle + self.every * self.times;
        set_socket_keepalive(stream, true)?;
        set_tcp_keepidle(stream, self.idle)?;
        set_tcp_keepintvl(stream, self.every)?;
        set_tcp_keepcnt(stream, self.times)?;
        set_tcp_user_timeout(stream, u32::try_from(all.as_millis()).unwrap_or(u32::MAX))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn literals_and_fixed_names_ask_nobody() {
        let fixed =
            Resolve::from([("r.example".to_owned(), vec!["::1".parse().unwrap(), "::1".parse().unwrap()])]);
        assert_eq!(resolve("fd00::1", 1, &fixed, LIMIT).await.unwrap(), ["[fd00::1]:1".parse().unwrap()]);
        assert_eq!(resolve("r.example", 2, &fixed, LIMIT).await.unwrap(), ["[::1]:2".parse().unwrap()]);
    }

    #[tokio::test]
    async fn a_name_with_an_empty_list_of_addresses_is_unresolved() {
        let fixed = Resolve::from([("r.example".to_owned(), vec![])]);
        let failure = resolve("r.example", 1, &fixed, LIMIT).await.unwrap_err();
        assert_eq!(failure.cause, UnknownCause::NameNotResolved);
    }

    #[tokio::test]
    async fn a_kept_stream_is_watched_by_the_kernel() {
        use rustix::net::sockopt;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = connect(listener.local_addr().unwrap(), LIMIT).await.unwrap();
        let silence = Silence { idle: Duration::from_secs(3), every: Duration::from_secs(1), times: 4 };
        silence.watch(&stream).unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), silence.idle);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), silence.every);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), 4);
        // What is on its way counts as well: else a lost packet would be sent again for a quarter of an hour.
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 7000);
    }

    #[tokio::test]
    async fn a_closed_port_is_refused() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(connect(free, LIMIT).await.unwrap_err().cause, UnknownCause::ConnectionRefused);
    }
}
