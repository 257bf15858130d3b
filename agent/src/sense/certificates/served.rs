//! What a port shows: one TLS handshake that ends cleanly, with nothing sent after it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{CertificateFacts, Fact, ServedCertificate, UnknownCause};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::files;
use super::issuer::{Authority, signer};
use super::node::Port;
use crate::net::{Failure, connect, tls, within};
use crate::sense::SenseContext;

/// Limit for TCP, and again for the handshake.
const STEP: Duration = Duration::from_secs(3);

/// Asks one port, at the first of `addresses` where somebody listens.
pub(super) async fn look(
    cx: &SenseContext,
    port: &Port,
    addresses: &[IpAddr],
    authorities: &[Authority],
    names: &[String],
    deadline: Instant,
) -> ServedCertificate {
    let (peer, shown) = show(port.port, addresses, deadline).await;
    let chain = match &shown {
        Ok(Some(chain)) => match files::facts(chain, names) {
            Ok(facts) => Fact::known(facts, peer.as_str(), cx.now()),
            Err(failure) => failure.into_fact(peer.as_str(), cx.now()),
        },
        Ok(None) => Fact::not_applicable(format!("nobody listens at {peer}"), cx.now()),
        Err(failure) => failure.clone().into_fact(peer.as_str(), cx.now()),
    };
    let issuer = issuer(cx, port, shown.ok().flatten().as_deref(), &chain, authorities);
    ServedCertificate {
        name: port.name.to_owned(),
        port: port.port,
        peer,
        file: port.file_text(),
        authority: port.authority_text(),
        chain,
        issuer,
    }
}

fn issuer(
    cx: &SenseContext,
    port: &Port,
    shown: Option<&[CertificateDer<'static>]>,
    chain: &Fact<Vec<CertificateFacts>>,
    authorities: &[Authority],
) -> Fact<String> {
    let wanted = port.authority_text();
    let (Some(shown), Some(_)) = (shown, chain.value()) else {
        return Fact::not_applicable("no certificate was seen", cx.now());
    };
    if wanted.is_empty() {
        return Fact::not_applicable("made by the process for itself", cx.now());
    }
    let Some(at) = authorities.iter().position(|authority| authority.path() == wanted) else {
        let detail = format!("the authority's file {wanted} could not be read");
        return Fact::unknown(UnknownCause::InvalidInput, detail, wanted, cx.now());
    };
    match signer(shown, &authorities[at..=at]) {
        Ok(Some(path)) => Fact::known(path.to_owned(), wanted, cx.now()),
        Ok(None) => Fact::absent(wanted, cx.now()),
        Err(failure) => failure.into_fact(wanted, cx.now()),
    }
}

type Shown = Result<Option<Vec<CertificateDer<'static>>>, Failure>;

/// The chain that was sent; `None` when nobody listens.
async fn show(port: u16, addresses: &[IpAddr], deadline: Instant) -> (String, Shown) {
    let mut asked = Vec::new();
    for ip in addresses {
        let address = SocketAddr::new(*ip, port);
        asked.push(address.to_string());
        let left = || deadline.saturating_duration_since(Instant::now()).min(STEP);
        match connect(address, left()).await {
            Ok(stream) => return (address.to_string(), handshake(stream, *ip, left()).await.map(Some)),
            // An address family this machine lacks, or one that is not its own, has nobody either.
            Err(failure) if is_nobody(&failure) => {}
            Err(failure) => return (address.to_string(), Err(failure)),
        }
    }
    (asked.join(", "), Ok(None))
}

fn is_nobody(failure: &Failure) -> bool {
    matches!(failure.cause, UnknownCause::ConnectionRefused | UnknownCause::Unreachable)
        || failure.detail.contains("Cannot assign requested address")
        || failure.detail.contains("Address family not supported")
}

async fn handshake(
    stream: tokio::net::TcpStream,
    ip: IpAddr,
    limit: Duration,
) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let observer = tls::Observing::new(Arc::new(RootCertStore::empty()));
    let config = tls::client_config(observer.clone(), None, &[])?;
    // By address: no server name is sent, see the module above.
    let name = ip.to_string();
    let shaken = within(limit, "TLS handshake", tls::handshake(stream, config, &name)).await;
    let seen = observer.take().map(|seen| seen.chain);
    match (shaken, seen) {
        (Ok(mut stream), Some(chain)) => {
            // The certificate is what we came for; a peer that does not wait for the goodbye has shown it all the same.
            let _ = tokio::time::timeout(Duration::from_millis(200), stream.shutdown()).await;
            Ok(chain)
        }
        // A port that wants a certificate of ours says so only after it has shown its own.
        (Err(failure), Some(chain)) if failure.detail.starts_with("the peer") => Ok(chain),
        (Err(failure), _) => Err(failure),
        (Ok(_), None) => {
            Err(Failure::new(UnknownCause::TlsFailed, "the handshake ended without a certificate"))
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    const HERE: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

    #[tokio::test]
    async fn a_closed_port_has_nobody() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (peer, shown) = show(port, &HERE, soon()).await;
        assert_eq!((peer, shown), (format!("127.0.0.1:{port}"), Ok(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_hangs_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (_, shown) = show(port, &HERE, soon()).await;
        assert_eq!(shown.unwrap_err().cause, UnknownCause::TimedOut);
    }

    #[tokio::test]
    async fn a_port_that_speaks_no_tls_says_so() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
            stream
        };
        let ((_, shown), _) = tokio::join!(show(port, &HERE, soon()), server);
        assert_eq!(shown.unwrap_err().cause, UnknownCause::TlsFailed);
    }
}
