//! How long a connection lasts on which nothing is said (E9), measured by holding one.
//!
//! What ends a silent shell is the limit of connections that were upgraded: HAProxy `timeout tunnel`, nginx
//! `proxy_read_timeout`; in layer 4 that of any connection (HAProxy `timeout client` and `timeout server`, nginx stream
//! `proxy_timeout`). A kept-alive HTTP connection meets others in layer 7 (HAProxy `timeout http-keep-alive`, nginx
//! `keepalive_timeout`), which say nothing of a shell: there only a WebSocket tells.
//!
//! Rancher opens none for a caller without a token. The agents' tunnel (`/v3/connect`) is not for this: Rancher would send
//! a cluster's requests into it, and it says something every 5 s by itself (rancher/remotedialer, `PingWriteInterval`);
//! `/v1/subscribe` does so every 30 s (rancher/apiserver, `pkg/subscribe`). A watch of a config map that does not exist,
//! as a WebSocket, changes nothing and is silent. Its token is sent over verified TLS only.
//!
//! One connection at a time: through the balancer, and where that was cut early the same past it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use outrider_protocol::{
    BalancerMode, Fact, IdleEnd, IdleFacts, IdleHold, IdleManner, LoadBalancerFacts, ProbeTarget,
    UnknownCause,
};
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::{STEP, trusted_roots};
use crate::config::LoadBalancerSettings;
use crate::net::{BoxedStream, Failure, USER_AGENT, Url, connect, tls, within};
use crate::sense::{SenseContext, file};

/// Silence after which an answer counts as whole.
const SETTLED: Duration = Duration::from_millis(500);
/// Bytes of an answer that are read.
const MAX_ANSWER: usize = 64 * 1024;
/// Bytes of a token file that are read.
const MAX_TOKEN: u64 = 4096;

/// Holds a connection for as long as `idle_test` of `balancer` says; `last` are facts of a pass before.
pub async fn measure(
    cx: &SenseContext,
    balancer: &LoadBalancerSettings,
    last: &LoadBalancerFacts,
) -> Fact<IdleFacts> {
    let source = "idle_test of [[load_balancer]]";
    let Some(limit) = balancer.idle_test else {
        return Fact::not_applicable("idle_test is not set", cx.now());
    };
    let mode = &last.mode;
    if balancer.idle_test_token_file.is_none() && *mode != BalancerMode::L4 {
        let why = "without idle_test_token_file no WebSocket stands open, and in layer 7 no other connection meets its limit";
        return Fact::not_applicable(why, cx.now());
    }
    let reached = |target: ProbeTarget| {
        let good = last.probes.iter().filter(move |p| p.target == target && p.tls.value().is_some());
        good.filter_map(|p| p.peer.parse::<SocketAddr>().ok()).next()
    };
    let Some(through) = reached(ProbeTarget::Balancer) else {
        return Fact::unknown(UnknownCause::Unreachable, "no address of it was reached", source, cx.now());
    };
    let holder = match Holder::new(cx, balancer, limit).await {
        Ok(holder) => holder,
        Err(failure) => return failure.into_fact(source, cx.now()),
    };
    let first = match holder.hold(through, limit).await {
        Ok(hold) => hold,
        Err(failure) => return failure.into_fact(source, cx.now()),
    };
    let straight = match (&first.end, reached(ProbeTarget::Backend)) {
        (IdleEnd::Held, _) | (_, None) => None,
        // In layer 7 a backend speaks plain http, and a token is not sent in the clear.
        (_, Some(backend)) => {
            let longer = Duration::from_secs_f64(first.seconds * 1.25 + 5.0).min(limit);
            Some(match holder.hold(backend, longer).await {
                Ok(hold) => Fact::known(hold, backend.to_string(), cx.now()),
                Err(failure) => failure.into_fact(backend.to_string(), cx.now()),
            })
        }
    };
    let facts =
        IdleFacts { manner: holder.manner(), limit_seconds: limit.as_secs_f64(), through: first, straight };
    Fact::known(facts, source, cx.now())
}

/// What the connections have in common.
struct Holder {
    url: Url,
    config: Arc<ClientConfig>,
    /// With one a WebSocket is held.
    token: Option<String>,
    limit: Duration,
}

impl Holder {
    async fn new(
        cx: &SenseContext,
        balancer: &LoadBalancerSettings,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let trusted = trusted_roots(cx, balancer.ca.clone()).await;
        let token = match &balancer.idle_test_token_file {
            None => None,
            Some(path) => {
                if let Some(failure) = trusted.failure {
                    return Err(failure);
                }
                let (opener, place) = (cx.opener.clone(), path.clone());
                let read = tokio::task::spawn_blocking(move || {
                    file::read_bounded(opener.open(&place)?, MAX_TOKEN).and_then(file::text)
                });
                let read = read.await.map_err(|e| Failure::new(UnknownCause::Panicked, e.to_string()))?;
                let text = read.map_err(|e| Failure::from(e).during(path.display()))?;
                let token = text.trim().to_owned();
                if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
                    let why = format!("{} holds no token of one word", path.display());
                    return Err(Failure::new(UnknownCause::InvalidInput, why));
                }
                Some(token)
            }
        };
        let verifier = match token {
            Some(_) => tls::trusting(trusted.roots)?,
            // Nothing secret is said.
            None => tls::Observing::new(tls::Anchors::new(trusted.roots)),
        };
        let config = tls::client_config(verifier, None, &[b"http/1.1"])?;
        let url = Url { tls: true, host: balancer.host.clone(), port: balancer.port, path: "/".into() };
        Ok(Self { url, config, token, limit })
    }

    fn manner(&self) -> IdleManner {
        if self.token.is_some() { IdleManner::WebSocket } else { IdleManner::KeptAlive }
    }

    fn request(&self) -> String {
        let host = self.url.authority();
        let Some(token) = &self.token else {
            return format!("GET /ping HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {USER_AGENT}\r\n\r\n");
        };
        let key = BASE64.encode(rand::random::<[u8; 16]>());
        // The server must not be the one that tires first.
        let server_seconds = self.limit.as_secs() + 600;
        format!(
            "GET /k8s/clusters/local/api/v1/namespaces/default/configmaps?watch=true&fieldSelector=\
             metadata.name%3Doutrider-idle-test&timeoutSeconds={server_seconds} HTTP/1.1\r\nHost: {host}\r\n\
             User-Agent: {USER_AGENT}\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        )
    }

    /// Opens a connection to `address`, says what there is to say, and waits.
    async fn hold(&self, address: SocketAddr, limit: Duration) -> Result<IdleHold, Failure> {
        let stream = connect(address, STEP).await?;
        let shaken =
            within(STEP, "TLS handshake", tls::handshake(stream, self.config.clone(), &self.url.host));
        let mut stream: BoxedStream = Box::new(shaken.await?);
        let what = format!("asking {address}");
        within(STEP, &what, async {
            stream.write_all(self.request().as_bytes()).await?;
            Ok(stream.flush().await?)
        })
        .await?;
        let answer = within(STEP, &what, async { Ok(settled(&mut stream).await?) }).await?;
        self.refused(&answer)?;

        // The last word was said before it was clear that none follows.
        let began = Instant::now().checked_sub(SETTLED).unwrap_or_else(Instant::now);
        let mut said = [0; 512];
        let end = match timeout(limit.saturating_sub(SETTLED), stream.read(&mut said)).await {
            Err(_) => self.still_there(&mut stream).await,
            // Closed, or reset.
            Ok(Ok(0) | Err(_)) => IdleEnd::Cut,
            // Some close with a word: a close frame, or 408.
            Ok(Ok(n)) if said[..n].starts_with(b"HTTP/1.1 408") => IdleEnd::Cut,
            Ok(Ok(_)) if self.token.is_some() && said[0] & 0x0f == 8 => IdleEnd::Cut,
            Ok(Ok(_)) => {
                let seconds = began.elapsed().as_secs_f64();
                let why = format!(
                    "{address} said something after {seconds:.0} s where nothing was to be said, so it is not idle"
                );
                return Err(Failure::new(UnknownCause::InvalidAnswer, why));
            }
        };
        let seconds = began.elapsed().min(limit).as_secs_f64();
        Ok(IdleHold { peer: address.to_string(), seconds, end })
    }

    /// Why nothing can be held after this answer.
    fn refused(&self, answer: &[u8]) -> Result<(), Failure> {
        let head = String::from_utf8_lossy(answer.split(|b| *b == b'\r').next().unwrap_or_default());
        let status: Option<u16> = head
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.split(' ').nth(1))
            .and_then(|code| code.parse().ok());
        let of = |cause: UnknownCause, why: &str| Err(Failure::new(cause, why.to_owned()));
        let asked = match self.token {
            Some(_) => "a WebSocket with the token of idle_test_token_file",
            None => "GET /ping",
        };
        match (status, self.token.is_some()) {
            (None, _) => of(UnknownCause::InvalidAnswer, "the answer is not HTTP"),
            (Some(101), true) => Ok(()),
            (Some(401), _) => of(UnknownCause::Unauthenticated, &format!("{asked} is answered with 401")),
            (Some(403), _) => of(UnknownCause::Forbidden, &format!("{asked} is answered with 403")),
            (Some(code), true) => {
                of(UnknownCause::Unsupported, &format!("{asked} is answered with {code} in place of 101"))
            }
            (Some(200..=399), false) => Ok(()),
            (Some(code), false) => of(UnknownCause::Unavailable, &format!("{asked} is answered with {code}")),
        }
    }

    /// Whether something still comes back: a way that forgot the connection does not say so.
    async fn still_there(&self, stream: &mut BoxedStream) -> IdleEnd {
        // An empty ping of a WebSocket (RFC 6455, 5.5.2), masked as a client must.
        const PING: [u8; 6] = [0x89, 0x80, 1, 2, 3, 4];
        let question = if self.token.is_some() { PING.to_vec() } else { self.request().into_bytes() };
        let mut answer = [0; 512];
        let asked = within(STEP, "asking again", async {
            stream.write_all(&question).await?;
            stream.flush().await?;
            Ok(stream.read(&mut answer).await?)
        });
        match asked.await {
            Ok(n) if n > 0 => IdleEnd::Held,
            _ => IdleEnd::Lost,
        }
    }
}

/// All that comes until nothing comes for a moment.
async fn settled(stream: &mut BoxedStream) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        // The first bytes may take as long as the caller waits.
        let read = if answer.is_empty() {
            stream.read(&mut part).await?
        } else {
            match timeout(SETTLED, stream.read(&mut part)).await {
                Err(_) => return Ok(answer),
                Ok(read) => read?,
            }
        };
        if read == 0 {
            return Err(std::io::Error::new(
                std::io::ErrorKind::UnexpectedEof,
                "the connection is closed after its first answer",
            ));
        }
        answer.extend_from_slice(&part[..read]);
        if answer.len() > MAX_ANSWER {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "the answer does not end"));
        }
    }
}
