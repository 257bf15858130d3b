//! From a URL to an open HTTP connection: proxy or not, every address in turn, TLS.

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::UnknownCause;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{Connection, Failure, ProxySettings, Resolve, Url, connect, resolve, tls, within};

/// How to reach servers.
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

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Dialer {
    /// An open connection to the server of `url`: the first address that takes one; if none does, the failure names
    /// every address that was tried.
    pub async fn open(&self, url: &Url) -> Result<Connection, Failure> {
        let Some(proxy) = self.proxy.for_url(url) else {
            let (stream, peer) = self.tcp(url).await?;
            return self.speak(Box::new(stream), url, peer).await;
        };
        let (stream, _) = self.tcp(&proxy.url).await.map_err(|e| e.during("proxy"))?;
        let mut stream: Box<dyn Stream> = Box::new(stream);
        if proxy.url.tls {
            let roots = tokio::task::spawn_blocking(tls::system_roots)
                .await
                .map_err(|e| Failure::new(UnknownCause::IoError, e.to_string()))?;
            let config = tls::client_config(tls::trusting(roots)?, None, &[])?;
            let secured = self.handshake(stream, config, &proxy.url).await.map_err(|e| e.during("proxy"))?;
            stream = Box::new(secured);
        }
        let tunnel = proxy.tunnel(stream, &url.host_and_port(), self.limit).await?;
        self.speak(Box::new(tunnel), url, format!("{} (through {})", url.host_and_port(), proxy.url)).await
    }

    async fn tcp(&self, url: &Url) -> Result<(TcpStream, String), Failure> {
        let mut failures: Vec<Failure> = Vec::new();
        for address in resolve(&url.host, url.port, &self.resolve, self.limit).await? {
            match connect(address, self.limit).await {
                Ok(stream) => return Ok((stream, address.to_string())),
                Err(failure) => failures.push(failure),
            }
        }
        let detail: Vec<String> = failures.iter().map(|f| f.detail.clone()).collect();
        let cause = failures.pop().map_or(UnknownCause::NameNotResolved, |f| f.cause);
        Err(Failure::new(cause, detail.join("; ")))
    }

    async fn handshake(
        &self,
        stream: Box<dyn Stream>,
        config: Arc<ClientConfig>,
        url: &Url,
    ) -> Result<impl Stream + use<>, Failure> {
        let what = format!("TLS with {}", url.host_and_port());
        within(self.limit, &what, async {
            tls::handshake(stream, config, &url.host).await.map_err(|e| e.during(&what))
        })
        .await
    }

    async fn speak(&self, stream: Box<dyn Stream>, url: &Url, peer: String) -> Result<Connection, Failure> {
        if url.tls {
            let stream = self.handshake(stream, self.tls.clone(), url).await?;
            Connection::new(stream, &url.authority(), peer).await
        } else {
            Connection::new(stream, &url.authority(), peer).await
        }
    }
}
