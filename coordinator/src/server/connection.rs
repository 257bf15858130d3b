//! One connection: handshake, identity, requests, end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::socket::{setsockopt, sockopt};
use rustls::AlertDescription;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Server;
use super::connections::{Caller, Connection};
use super::gate::{Pass, Refused};
use super::hello::{Hello, plain_http_answer};
use super::peer::Peer;
use crate::api;
use crate::app::App;
use crate::pki::PeerCertificate;

/// How long a connection that was asked to end may take for the answer it is at.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);
/// Bytes that nobody acknowledges for so long end a connection: a peer that died, or reads nothing.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);
/// Rest after which a dead peer is looked for.
const KEEPALIVE_SECONDS: u32 = 60;

/// Serves a connection, if there is a place for it.
pub(super) fn spawn(server: Arc<Server>, stream: TcpStream, remote: SocketAddr) {
    let app = &server.app;
    match app.gate.admit(remote.ip()) {
        Ok(pass) => {
            tokio::spawn(async move { serve(server, stream, remote, pass).await });
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

async fn serve(server: Arc<Server>, stream: TcpStream, remote: SocketAddr, mut pass: Pass) {
    let app = &server.app;
    prepare(&stream);
    let handshake = tokio::time::timeout(app.limits.handshake, shake(app, stream, remote));
    let tls = match handshake.await {
        Ok(Some(tls)) => tls,
        Ok(None) => return,
        Err(_) => return app.metrics.handshake_failed("timeout"),
    };
    let caller = identify(app, &tls);
    let is_named = matches!(caller, Caller::Node(_));
    if is_named {
        pass.named();
    }
    let registered = app.connections.open(remote, caller, app.limits.connections_per_node);
    if app.is_stopping() {
        return;
    }
    requests(&server, tls, registered.connection.clone(), is_named).await;
}

/// Answers requests until either side has enough.
async fn requests(
    server: &Arc<Server>,
    tls: TlsStream<TcpStream>,
    connection: Arc<Connection>,
    is_named: bool,
) {
    let limits = &server.app.limits;
    let service = {
        let (server, connection) = (server.clone(), connection.clone());
        service_fn(move |request: Request<Incoming>| {
            let answer = api::answer(server.clone(), connection.clone(), request);
            async move { Ok::<_, Infallible>(answer.await) }
        })
    };
    // The time for a header counts from the end of the answer before, so it is also how long a connection may rest.
    let header_time = if is_named { limits.idle } else { limits.handshake };
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_time)
        .max_buf_size(limits.header_bytes.max(8192))
        .serve_connection(TokioIo::new(tls), service);
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = connection.closed() => {
            serving.as_mut().graceful_shutdown();
            match tokio::time::timeout(DRAIN, serving).await {
                Ok(ended) => ended,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = ended {
        log::debug!("a connection of {} ended: {error}", connection.remote);
    }
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
async fn shake(app: &Arc<App>, mut stream: TcpStream, remote: SocketAddr) -> Option<TlsStream<TcpStream>> {
    let kind = match Hello::of(&stream).await {
        Ok(Hello::Tls) => match TlsAcceptor::from(app.tls.clone()).accept(stream).await {
            Ok(tls) => return Some(tls),
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
fn identify(app: &App, tls: &TlsStream<TcpStream>) -> Caller {
    let Some(certificate) = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first()) else {
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
