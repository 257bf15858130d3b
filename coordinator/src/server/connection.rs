//! The beginning of a connection: a place, the handshake, who it is. [`exchange`](super::exchange) serves it from then on.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use rustls::AlertDescription;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::connections::{Caller, Registered};
use super::gate::{Pass, Refused};
use super::hello::{Hello, plain_http_answer};
use super::peer::Peer;
use super::{Server, Stream, exchange};
use crate::app::App;
use crate::pki::PeerCertificate;

/// Bytes that nobody acknowledges for so long end a connection: a peer that died, or reads nothing.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);
/// Rest after which a dead peer is looked for.
const KEEPALIVE_SECONDS: u32 = 60;

/// Serves a connection, if there is a place for it.
pub(super) fn spawn(server: Arc<Server>, stream: TcpStream, remote: SocketAddr) {
    let app = &server.app;
    match app.gate.admit(remote.ip()) {
        Ok(pass) => {
            tokio::spawn(async move {
                // Boxed apart: what the handshake needs does not stay for as long as the connection lives.
                if let Some(open) = Box::pin(open(server, stream, remote, pass)).await {
                    exchange::serve(open).await;
                }
            });
        }
        Err(refused) => {
            let kind = match refused {
                Refused::Full(_) => "full",
                Refused::Strangers(_) => "strangers",
                Refused::Address(_) => "address",
            };
            app.metrics.refused(kind);
            app.said
                .warn(&app.clock(), "refused", || format!("a connection of {remote} is refused: {refused}"));
        }
    }
}

/// A connection whose other end is known.
pub(super) struct Open {
    pub(super) server: Arc<Server>,
    pub(super) stream: Stream,
    pub(super) registered: Registered,
    /// Its place; given back when the connection ends.
    pub(super) _pass: Pass,
}

async fn open(server: Arc<Server>, stream: TcpStream, remote: SocketAddr, mut pass: Pass) -> Option<Open> {
    let app = &server.app;
    prepare(&stream);
    let handshake = tokio::time::timeout(app.limits.handshake, shake(app, stream, remote));
    let Ok(shaken) = handshake.await else {
        app.metrics.handshake_failed("timeout");
        return None;
    };
    let stream = shaken?;
    let caller = identify(app, &stream);
    if let Caller::Node(_) = caller {
        pass.named();
    }
    let registered = app.connections.open(remote, caller, app.limits.connections_per_node);
    (!app.is_stopping()).then_some(Open { server, stream, registered, _pass: pass })
}

fn prepare(stream: &TcpStream) {
    // None of these is needed to serve; each only lets a dead peer's place be free sooner.
    let _ = stream.set_nodelay(true);
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
    let _ = setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_SECONDS);
    let unacknowledged = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    let _ = setsockopt(stream, sockopt::TcpUserTimeout, &unacknowledged);
}

/// TLS, or `None` after saying what came instead.
async fn shake(app: &Arc<App>, mut stream: TcpStream, remote: SocketAddr) -> Option<Stream> {
    let kind = match Hello::of(&stream).await {
        Ok(Hello::Tls) => match TlsAcceptor::from(app.tls.clone()).accept(stream).await {
            Ok(tls) => return Some(Box::new(tls)),
            Err(error) => {
                let (kind, what) = handshake_failure(&error);
                app.said.warn(&app.clock(), kind, || format!("TLS with {remote} failed: {what}"));
                kind
            }
        },
        Ok(Hello::Http) => {
            app.said.warn(&app.clock(), "plain-http", || {
                format!(
                    "{remote} sent plain HTTP: a URL with http://, or a balancer that ends TLS in front of this port \
                     (it needs TCP pass-through)"
                )
            });
            // It may have hung up; then there is nobody to tell.
            let _ = stream.write_all(&plain_http_answer()).await;
            let _ = stream.shutdown().await;
            "plain-http"
        }
        Ok(Hello::ProxyProtocol) => {
            app.said.warn(&app.clock(), "proxy-protocol", || {
                format!("{remote} sent the PROXY protocol: switch it off at the balancer for this port")
            });
            "proxy-protocol"
        }
        Ok(Hello::Foreign) => {
            app.said.warn(&app.clock(), "foreign", || format!("{remote} sent something that is not TLS"));
            "foreign"
        }
        Ok(Hello::Nothing) | Err(_) => "nothing",
    };
    app.metrics.handshake_failed(kind);
    None
}

/// The kind of a failed handshake, for metrics, and what it means, for people.
fn handshake_failure(error: &io::Error) -> (&'static str, String) {
    let tls = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    match tls {
        Some(rustls::Error::InvalidCertificate(problem)) => (
            "client-certificate",
            format!(
                "its client certificate is not one of this coordinator's CA ({problem:?}); another coordinator issued \
                 it, or its root was retired: enrol the node anew"
            ),
        ),
        Some(rustls::Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired),
        )) => (
            "not-trusted",
            format!(
                "it does not accept this coordinator's certificate ({alert:?}); its CA hash is another one, the name \
                 in its URL is not among --name, or its clock is wrong"
            ),
        ),
        Some(other) => ("tls", other.to_string()),
        None => ("io", error.to_string()),
    }
}

/// Who showed a certificate.
fn identify(app: &App, stream: &Stream) -> Caller {
    let Some(certificate) = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()) else {
        return Caller::Stranger;
    };
    match PeerCertificate::read(certificate) {
        Ok(certificate) => match app.fleet.by_uid(&certificate.uid) {
            Some(node) => Caller::Node(Peer { node, certificate: Arc::new(certificate) }),
            None => Caller::Unknown(certificate.uid.into()),
        },
        // The verifier has read it before; a certificate it let through and we cannot read names nobody.
        Err(_) => Caller::Stranger,
    }
}
