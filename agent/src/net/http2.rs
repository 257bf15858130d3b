//! HTTP/2 on one connection, with bounds on header, body and time: for probes, which must see what a peer does that
//! chose `h2` in the handshake.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::ext::Protocol;
use http::header::{HOST, HeaderValue, USER_AGENT as USER_AGENT_HEADER};
use http::{HeaderMap, Method, Request, Uri};
use outrider_protocol::UnknownCause;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use super::http::{Head, MAX_HEADER, USER_AGENT};
use super::{Failure, within};

/// Most bytes that a peer may send before they are taken: it bounds what one connection holds.
const WINDOW: u32 = 64 * 1024;

/// An open HTTP/2 connection over TLS. Dropping it closes it.
#[derive(Debug)]
pub struct Http2 {
    sender: SendRequest<Bytes>,
    driver: AbortHandle,
    authority: String,
    peer: String,
}

impl Http2 {
    /// Speaks HTTP/2 on `stream`. `authority` is the host that is asked for; `peer` names the other side in errors.
    pub async fn new<S>(stream: S, authority: &str, peer: impl Into<String>) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = h2::client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(MAX_HEADER as u32)
            .max_concurrent_streams(1)
            .max_concurrent_reset_streams(4)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(failure)?;
        // What goes wrong on the way shows in the exchange that waits for it.
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { sender, driver, authority: authority.to_owned(), peer: peer.into() })
    }

    /// Whether the peer offers WebSockets over HTTP/2 (RFC 8441). Known only after a first answer.
    pub fn offers_web_sockets(&self) -> bool {
        self.sender.is_extended_connect_protocol_enabled()
    }

    /// One exchange whose body goes to `sink` as it comes, until that has enough. A `Host` among the headers takes the
    /// place of the authority. With `web_socket` the request is the extended CONNECT of RFC 8441, and a good answer ends
    /// the exchange: what follows is another protocol's.
    pub async fn exchange_into(
        &mut self,
        path: &str,
        headers: HeaderMap,
        web_socket: bool,
        deadline: Duration,
        mut sink: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Head, Failure> {
        let request = self.request(path, headers, web_socket)?;
        let what = format!("{} {path} at {} over HTTP/2", request.method(), self.peer);
        within(deadline, &what, async {
            let mut sender = self.sender.clone().ready().await.map_err(failure)?;
            // The stream to write on is kept to the end: dropping it would end the request of a WebSocket.
            let (answer, _stream) = sender.send_request(request, !web_socket).map_err(failure)?;
            let (parts, mut body) = answer.await.map_err(failure)?.into_parts();
            let head = Head { status: parts.status, version: parts.version, headers: parts.headers };
            if web_socket && head.status.is_success() {
                return Ok(head);
            }
            while let Some(chunk) = body.data().await {
                let chunk = chunk.map_err(failure)?;
                let enough = sink(&chunk).is_break();
                if enough {
                    break;
                }
                body.flow_control().release_capacity(chunk.len()).map_err(failure)?;
            }
            Ok(head)
        })
        .await
        .map_err(|failure| {
            if failure.cause == UnknownCause::TimedOut { failure } else { failure.during(what) }
        })
    }

    fn request(&self, path: &str, mut headers: HeaderMap, web_socket: bool) -> Result<Request<()>, Failure> {
        let unusable =
            |e: http::Error| Failure::new(UnknownCause::InvalidInput, format!("no request to make: {e}"));
        let host = headers.remove(HOST);
        let host = host.as_ref().and_then(|host| host.to_str().ok());
        let uri = Uri::builder()
            .scheme("https")
            .authority(host.unwrap_or(&self.authority))
            .path_and_query(path)
            .build()
            .map_err(unusable)?;
        let mut request = Request::new(());
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request.headers_mut().entry(USER_AGENT_HEADER).or_insert(HeaderValue::from_static(USER_AGENT));
        if web_socket {
            *request.method_mut() = Method::CONNECT;
            request.extensions_mut().insert(Protocol::from_static("websocket"));
        }
        Ok(request)
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn failure(error: h2::Error) -> Failure {
    match error.get_io() {
        Some(io) => Failure::from(io),
        None => Failure::new(UnknownCause::InvalidAnswer, format!("HTTP/2: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A server that answers everything with `body`, and extended CONNECT with `upgrade`.
    async fn pair(extended: bool, body: usize, upgrade: u16) -> Http2 {
        let (client, server) = duplex(256 * 1024);
        tokio::spawn(async move {
            let mut builder = h2::server::Builder::new();
            if extended {
                builder.enable_connect_protocol();
            }
            let mut connection = builder.handshake::<_, Bytes>(server).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let status = if request.method() == Method::CONNECT { upgrade } else { 200 };
                let answer = http::Response::builder().status(status).body(()).unwrap();
                let mut stream = respond.send_response(answer, false).unwrap();
                stream.send_data(vec![b'x'; body].into(), true).unwrap();
            }
        });
        Http2::new(client, "r.example", "test").await.unwrap()
    }

    async fn ask(connection: &mut Http2, web_socket: bool, most: usize) -> Result<(u16, usize), Failure> {
        let mut read = 0;
        let head = connection
            .exchange_into("/ping", HeaderMap::new(), web_socket, LIMIT, |chunk| {
                read += chunk.len();
                if read >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .await?;
        Ok((head.status.as_u16(), read))
    }

    #[tokio::test]
    async fn asks_twice_and_learns_whether_web_sockets_are_offered() {
        for offered in [true, false] {
            let mut connection = pair(offered, 4, 200).await;
            assert_eq!(ask(&mut connection, false, 100).await.unwrap(), (200, 4));
            assert_eq!(ask(&mut connection, false, 100).await.unwrap(), (200, 4));
            assert_eq!(connection.offers_web_sockets(), offered);
        }
    }

    #[tokio::test]
    async fn a_web_socket_is_opened_or_refused() {
        for status in [200, 502] {
            let mut connection = pair(true, 4, status).await;
            ask(&mut connection, false, 100).await.unwrap();
            assert_eq!(ask(&mut connection, true, 100).await.unwrap().0, status);
        }
    }

    #[tokio::test]
    async fn a_body_is_cut_where_enough_was_read() {
        let mut connection = pair(false, 10_000_000, 200).await;
        let (_, read) = ask(&mut connection, false, 100_000).await.unwrap();
        assert!((100_000..200_000).contains(&read), "{read}");
    }

    #[tokio::test]
    async fn nonsense_is_an_invalid_answer() {
        let (client, mut server) = duplex(4096);
        tokio::io::AsyncWriteExt::write_all(&mut server, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let mut connection = Http2::new(client, "r.example", "test").await.unwrap();
        let failure = ask(&mut connection, false, 100).await.unwrap_err();
        assert!(
            matches!(failure.cause, UnknownCause::InvalidAnswer | UnknownCause::Unreachable),
            "{failure}"
        );
    }
}
