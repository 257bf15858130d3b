//! From a URL to an open HTTP connection: proxy or not, every address in turn, TLS.

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::UnknownCause;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::alert::AlertFirst;
use super::{Connection, Failure, ProxySettings, Resolve, Silence, Url, connect, resolve, tls, within};

/// A byte stream to a server, whatever it is made of.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// An open stream of any kind.
pub type BoxedStream = Box<dyn Stream>;

/// A stream to the server of `url`, past any proxy, with TLS where the URL says so: the first address that takes a
/// connection. Each address and the handshake have `limit`.
pub async fn open(
    url: &Url,
    config: Option<Arc<ClientConfig>>,
    fixed: &Resolve,
    limit: Duration,
) -> Result<(BoxedStream, String), Failure> {
    let (stream, peer) = tcp(url, fixed, limit).await?;
    with_tls(stream, peer, url, config, limit).await
}

/// The same for a stream that is kept: the kernel watches over the peer while nothing is said.
pub async fn open_watched(
    url: &Url,
    config: Option<Arc<ClientConfig>>,
    fixed: &Resolve,
    limit: Duration,
    silence: Silence,
) -> Result<(BoxedStream, String), Failure> {
    let (stream, peer) = tcp(url, fixed, limit).await?;
    silence.watch(&stream)?;
    with_tls(stream, peer, url, config, limit).await
}

async fn with_tls(
    stream: TcpStream,
    peer: String,
    url: &Url,
    config: Option<Arc<ClientConfig>>,
    limit: Duration,
) -> Result<(BoxedStream, String), Failure> {
    if !url.tls {
        return Ok((Box::new(stream), peer));
    }
    let config = config.ok_or_else(|| {
        Failure::new(UnknownCause::InvalidInput, format!("{url} needs TLS and no CA is configured for it"))
    })?;
    Ok((secured(Box::new(stream), config, url, limit).await?, peer))
}

async fn tcp(url: &Url, fixed: &Resolve, limit: Duration) -> Result<(TcpStream, String), Failure> {
    let mut failures: Vec<Failure> = Vec::new();
    for address in resolve(&url.host, url.port, fixed, limit).await? {
        match connect(address, limit).await {
            Ok(stream) => return Ok((stream, address.to_string())),
            Err(failure) => failures.push(failure),
        }
    }
    let detail: Vec<String> = failures.iter().map(|f| f.detail.clone()).collect();
    let cause = failures.pop().map_or(UnknownCause::NameNotResolved, |f| f.cause);
    Err(Failure::new(cause, detail.join("; ")))
}

async fn secured(
    stream: BoxedStream,
    config: Arc<ClientConfig>,
    url: &Url,
    limit: Duration,
) -> Result<BoxedStream, Failure> {
    let what = format!("TLS with {}", url.host_and_port());
    let stream = within(limit, &what, async {
        tls::handshake(stream, config, &url.host).await.map_err(|e| e.during(&what))
    })
    .await?;
    Ok(Box::new(AlertFirst::new(stream)))
}

/// How to reach servers over HTTP/1.1.
#[derive(Clone)]
pub struct Dialer {
    /// Trust and identity towards the server; see [`tls::client_config`].
    pub tls: Arc<ClientConfig>,
    /// Proxies.
    pub proxy: ProxySettings,
    /// Fixed addresses.
    pub resolve: Resolve,
    /// Limit for one address: TCP, and as much again for a tunnel and for TLS.
    pub limit: Duration,
}

impl Dialer {
    /// An open connection to the server of `url`: the first address that takes one; if none does, the failure names
    /// every address that was tried.
    pub async fn open(&self, url: &Url) -> Result<Connection, Failure> {
        let Some(proxy) = self.proxy.for_url(url) else {
            let (stream, peer) = open(url, Some(self.tls.clone()), &self.resolve, self.limit).await?;
            return Connection::new(stream, &url.authority(), peer).await;
        };
        let proxy_tls = if proxy.url.tls { Some(system_trust().await?) } else { None };
        let (stream, _) = open(&proxy.url, proxy_tls, &self.resolve, self.limit)
            .await
            .map_err(|e| e.during(format_args!("proxy {}", proxy.url)))?;
        let tunnel = proxy.tunnel(stream, &url.host_and_port(), self.limit).await?;
        let mut stream: BoxedStream = Box::new(tunnel);
        if url.tls {
            stream = secured(stream, self.tls.clone(), url, self.limit).await?;
        }
        let peer = format!("{} (through {})", url.host_and_port(), proxy.url);
        Connection::new(stream, &url.authority(), peer).await
    }
}

async fn system_trust() -> Result<Arc<ClientConfig>, Failure> {
    let roots = tokio::task::spawn_blocking(tls::system_roots)
        .await
        .map_err(|e| Failure::new(UnknownCause::IoError, e.to_string()))?;
    tls::client_config(tls::trusting(roots)?, None, &[])
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::net::Limits;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A proxy that wants `CONNECT r.example:80` and then plays the server behind the tunnel itself.
    async fn proxy(answer: &'static str) -> (SocketAddr, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                seen.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            let mut request = [0; 1024];
            if stream.read(&mut request).await.unwrap_or(0) > 0 {
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            }
            String::from_utf8(seen).unwrap()
        });
        (address, task)
    }

    fn dialer(proxy: SocketAddr) -> Dialer {
        let proxy = ProxySettings::from_variables(|name| {
            (name == "HTTP_PROXY").then(|| format!("http://user:secret@{proxy}"))
        });
        let tls = tls::client_config(tls::Pinned::new([0; 32], false), None, &[]).unwrap();
        Dialer { tls, proxy, resolve: Resolve::new(), limit: LIMIT }
    }

    #[tokio::test]
    async fn goes_through_the_proxy_with_credentials() {
        let (address, proxy) = proxy("HTTP/1.1 200 OK\r\n\r\n").await;
        let url = Url::parse("http://r.example").unwrap();
        let mut connection = dialer(address).open(&url).await.unwrap();
        let request = http::Request::get("/").body(Bytes::new()).unwrap();
        let answer = connection.exchange(request, Limits { body: 0, deadline: LIMIT }).await.unwrap();
        assert_eq!(answer.head.status, 204);
        let seen = proxy.await.unwrap();
        assert!(seen.starts_with("CONNECT r.example:80 HTTP/1.1\r\n"), "{seen}");
        assert!(seen.contains("proxy-authorization: Basic dXNlcjpzZWNyZXQ=\r\n"), "{seen}");
        assert!(connection.peer().contains("through"), "{}", connection.peer());
    }

    #[tokio::test]
    async fn a_proxy_that_refuses_is_named_without_its_password() {
        for (answer, cause) in [
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n",
                UnknownCause::Unauthenticated,
            ),
            ("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", UnknownCause::Forbidden),
            ("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", UnknownCause::Unreachable),
        ] {
            let (address, _proxy) = proxy(answer).await;
            let url = Url::parse("http://r.example").unwrap();
            let failure = dialer(address).open(&url).await.unwrap_err();
            assert_eq!(failure.cause, cause, "{failure}");
            assert!(
                failure.detail.contains(&address.to_string()) && !failure.detail.contains("secret"),
                "{failure}"
            );
        }
    }

    #[tokio::test]
    async fn every_address_is_tried_and_named() {
        let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let fixed = Resolve::from([(
            "r.example".to_owned(),
            vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()],
        )]);
        let url = Url::parse(&format!("http://r.example:{dead}")).unwrap();
        let failure = open(&url, None, &fixed, LIMIT).await.err().unwrap();
        assert_eq!(failure.cause, UnknownCause::ConnectionRefused);
        for address in ["127.0.0.1", "127.0.0.2"] {
            assert!(failure.detail.contains(address), "{failure}");
        }
    }
}
