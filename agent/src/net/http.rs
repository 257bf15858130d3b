//! HTTP/1.1 on one connection, with bounds on header, body and time.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue, USER_AGENT as USER_AGENT_HEADER};
use http::{HeaderMap, Request, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use outrider_protocol::UnknownCause;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use super::{Failure, within};

/// What we call ourselves.
pub const USER_AGENT: &str = concat!("outrider/", env!("CARGO_PKG_VERSION"));

/// Largest header of an answer, in bytes.
pub(super) const MAX_HEADER: usize = 32 * 1024;

/// Bounds of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body in bytes.
    pub body: usize,
    /// From the first byte of the request to the last of the answer.
    pub deadline: Duration,
}

/// Status line and header of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Status code.
    pub status: StatusCode,
    /// Version of the answer.
    pub version: Version,
    /// Header fields.
    pub headers: HeaderMap,
}

impl Head {
    /// A header field as text; `None` when it is absent or not text.
    pub fn text(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Status and header.
    pub head: Head,
    /// The body.
    pub body: Bytes,
}

/// An open HTTP/1.1 connection, used again while the server keeps it.
///
/// Dropping it closes it. An exchange that failed or was cut leaves it closed: see [`Connection::is_open`].
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    authority: HeaderValue,
    peer: String,
}

impl Connection {
    /// Speaks HTTP/1.1 on `stream`. `authority` goes into `Host` where a request has none; `peer` names the other
    /// side in errors. Needs a tokio runtime: the connection is driven by a task of its own.
    pub async fn new<S>(stream: S, authority: &str, peer: impl Into<String>) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let authority = HeaderValue::from_str(authority).map_err(|_| {
            Failure::new(UnknownCause::InvalidInput, format!("{authority:?} cannot be a Host"))
        })?;
        let (sender, connection) =
            http1::Builder::new().max_buf_size(MAX_HEADER).handshake(TokioIo::new(stream)).await?;
        // What goes wrong on the way shows in the exchange that waits for it.
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { sender, driver, authority, peer: peer.into() })
    }

    /// Whom this connection leads to.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Whether another exchange may be tried on it.
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// One exchange; a body over the limit is an error.
    pub async fn exchange(
        &mut self,
        request: Request<impl Into<Bytes>>,
        limits: Limits,
    ) -> Result<Answer, Failure> {
        let mut body = Vec::new();
        let mut over = false;
        let head = self
            .exchange_into(request, limits.deadline, |chunk| {
                over = body.len() + chunk.len() > limits.body;
                if over {
                    return ControlFlow::Break(());
                }
                body.extend_from_slice(chunk);
                ControlFlow::Continue(())
            })
            .await?;
        if over {
            let detail = format!("the answer of {} is larger than {} bytes", self.peer, limits.body);
            return Err(Failure::new(UnknownCause::InvalidAnswer, detail));
        }
        Ok(Answer { head, body: body.into() })
    }

    /// One exchange whose body goes to `sink` as it comes, until that has enough (which closes the connection).
    ///
    /// `deadline` covers it all, so that a server that drips bytes is cut. Redirects are answers, not orders.
    pub async fn exchange_into(
        &mut self,
        request: Request<impl Into<Bytes>>,
        deadline: Duration,
        mut sink: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Head, Failure> {
        let mut request = request.map(|body| Full::new(body.into()));
        let headers = request.headers_mut();
        headers.entry(HOST).or_insert_with(|| self.authority.clone());
        headers.entry(USER_AGENT_HEADER).or_insert(HeaderValue::from_static(USER_AGENT));
        let what = format!("{} {} at {}", request.method(), request.uri().path(), self.peer);
        let outcome = within(deadline, &what, async {
            self.sender.ready().await?;
            let answer = self.sender.send_request(request).await?;
            let (parts, mut body) = answer.into_parts();
            let head = Head { status: parts.status, version: parts.version, headers: parts.headers };
            // After 101 the bytes are another protocol's.
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok((head, true));
            }
            while let Some(frame) = body.frame().await {
                if let Some(chunk) = frame?.data_ref()
                    && sink(chunk).is_break()
                {
                    return Ok((head, true));
                }
            }
            Ok((head, false))
        })
        .await;
        match outcome {
            Ok((head, cut)) => {
                if cut {
                    self.driver.abort();
                }
                Ok(head)
            }
            Err(failure) => {
                self.driver.abort();
                Err(if failure.cause == UnknownCause::TimedOut { failure } else { failure.during(what) })
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const LIMITS: Limits = Limits { body: 64, deadline: Duration::from_secs(5) };

    fn get(path: &str) -> Request<Bytes> {
        Request::get(path).body(Bytes::new()).unwrap()
    }

    async fn request_of(server: &mut DuplexStream) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            text.push(server.read_u8().await.unwrap());
        }
        String::from_utf8(text).unwrap()
    }

    async fn pair() -> (Connection, DuplexStream) {
        let (client, server) = duplex(4096);
        (Connection::new(client, "r.example:8443", "test").await.unwrap(), server)
    }

    #[tokio::test(start_paused = true)]
    async fn two_exchanges_share_a_connection_and_carry_host_and_agent() {
        let (mut connection, mut server) = pair().await;
        let peer = tokio::spawn(async move {
            let mut seen = Vec::new();
            for _ in 0..2 {
                seen.push(request_of(&mut server).await);
                server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npong").await.unwrap();
            }
            (seen, server)
        });
        for _ in 0..2 {
            let answer = connection.exchange(get("/ping"), LIMITS).await.unwrap();
            assert_eq!((answer.head.status.as_u16(), &answer.body[..]), (200, &b"pong"[..]));
        }
        let (seen, _server) = peer.await.unwrap();
        for request in seen {
            assert!(request.contains("host: r.example:8443\r\n"), "{request}");
            assert!(request.contains(&format!("user-agent: {USER_AGENT}\r\n")), "{request}");
        }
    }

    async fn answered_with(bytes: &'static [u8]) -> Result<Answer, Failure> {
        let (mut connection, mut server) = pair().await;
        let peer = tokio::spawn(async move {
            request_of(&mut server).await;
            let _ = server.write_all(bytes).await;
        });
        let answer = connection.exchange(get("/"), LIMITS).await;
        peer.abort();
        if answer.is_err() {
            // The driver is another task; it has its turn before the connection counts as closed.
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(!connection.is_open());
        }
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn nonsense_is_an_invalid_answer_and_half_an_answer_is_unreachable() {
        let nonsense = answered_with(b"\x16\x03\x01\x00\x05hello\r\n\r\n").await.unwrap_err();
        assert_eq!(nonsense.cause, UnknownCause::InvalidAnswer, "{nonsense}");
        let half = answered_with(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap_err();
        assert_eq!(half.cause, UnknownCause::Unreachable, "{half}");
        let closed = answered_with(b"").await.unwrap_err();
        assert_eq!(closed.cause, UnknownCause::Unreachable, "{closed}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_over_the_limit_is_refused() {
        const LONG: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n\
            0123456789012345678901234567890123456789012345678901234567890123456789";
        let failure = answered_with(LONG).await.unwrap_err();
        assert_eq!(failure.detail, "the answer of test is larger than 64 bytes");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_drips_is_cut_at_the_deadline() {
        let (mut connection, mut server) = pair().await;
        let peer = tokio::spawn(async move {
            request_of(&mut server).await;
            let _ = server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 60\r\n\r\n").await;
            while server.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let failure = connection.exchange(get("/"), LIMITS).await.unwrap_err();
        assert_eq!(failure.cause, UnknownCause::TimedOut);
        peer.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_huge_header_is_refused() {
        let (mut connection, mut server) = pair().await;
        let peer = tokio::spawn(async move {
            request_of(&mut server).await;
            let _ = server.write_all(b"HTTP/1.1 200 OK\r\n").await;
            while server.write_all(b"x-filler: 0123456789012345678901234567890123456789\r\n").await.is_ok() {}
        });
        let failure = connection.exchange(get("/"), LIMITS).await.unwrap_err();
        assert_eq!(failure.cause, UnknownCause::InvalidAnswer, "{failure}");
        peer.await.unwrap();
    }
}
