//! gRPC on one HTTP/2 connection: calls of one message that are answered with one (grpc/grpc,
//! `doc/PROTOCOL-HTTP2.md`).
//!
//! On h2 itself, for head and message of a call then wait for the connection's task together and leave as one TLS record
//! in one system call. A client that pipes bodies of unknown length sends three: the head, the message, the end.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::Reason;
use h2::client::{Connection, ResponseFuture, SendRequest};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, TE, USER_AGENT as USER_AGENT_HEADER};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Method, Request, StatusCode, Uri, Version};
use outrider_protocol::UnknownCause;
use tokio::io::{AsyncRead, AsyncWrite};

use super::http::{MAX_HEADER, USER_AGENT};
use super::{Failure, Url};

/// Most bytes that a peer may send before they are taken.
const WINDOW: u32 = 64 * 1024;
/// A flag and the length, in front of every message.
const PREFIX: usize = 5;
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Characters of a server's own words that are kept.
const MAX_WORDS: usize = 1024;

/// Why a call brought no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoMessage {
    /// The connection failed, or what came is not gRPC.
    Failed(Failure),
    /// The server answered with a status that is not OK.
    Refused(Refusal),
}

/// A status that is not OK: a code of the gRPC specification (`doc/statuscodes.md`) and the server's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code, 1 to 16 as specified; what was no number is 2 (UNKNOWN).
    pub code: u16,
    /// The server's words; may be empty.
    pub words: String,
}

impl From<Failure> for NoMessage {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A handle on an open connection. Clones share it.
#[derive(Clone, Debug)]
pub struct Grpc {
    sender: SendRequest<Bytes>,
    scheme: Scheme,
    authority: Authority,
    most: usize,
}

impl Grpc {
    /// Speaks HTTP/2 on `stream`, which leads to `url`; messages of more than `most` bytes are refused. The connection
    /// that comes with it does the work: it is to be polled until it ends.
    pub async fn new<S>(stream: S, url: &Url, most: usize) -> Result<(Self, Connection<S, Bytes>), Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let authority = Authority::try_from(url.host_and_port())
            .map_err(|e| Failure::new(UnknownCause::InvalidInput, format!("{url}: {e}")))?;
        let (sender, connection) = h2::client::Builder::new()
            // One small answer at a time: windows and buffers of a bulk transfer would be memory for nothing.
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_send_buffer_size(16 * 1024)
            .max_header_list_size(MAX_HEADER as u32)
            .enable_push(false)
            .handshake(stream)
            .await
            .map_err(failure)?;
        let scheme = if url.tls { Scheme::HTTPS } else { Scheme::HTTP };
        Ok((Self { sender, scheme, authority, most }, connection))
    }

    /// One call: the answer's message, still encoded.
    pub async fn call(
        &mut self,
        path: &'static str,
        message: &impl prost::Message,
    ) -> Result<Bytes, NoMessage> {
        std::future::poll_fn(|cx| self.sender.poll_ready(cx)).await.map_err(failure)?;
        // Nothing may wait between the two: what is there when the connection's task runs leaves together.
        let (answer, mut stream) = self.sender.send_request(self.request(path)?, false).map_err(failure)?;
        stream.send_data(framed(message), true).map_err(failure)?;
        self.answer(answer).await
    }

    fn request(&self, path: &'static str) -> Result<Request<()>, Failure> {
        let unusable =
            |e: http::Error| Failure::new(UnknownCause::InvalidInput, format!("no request to make: {e}"));
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = uri.path_and_query(path).build().map_err(unusable)?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(USER_AGENT_HEADER, HeaderValue::from_static(USER_AGENT));
        Ok(request)
    }

    async fn answer(&self, answer: ResponseFuture) -> Result<Bytes, NoMessage> {
        let (head, mut body) = answer.await.map_err(failure)?.into_parts();
        // An answer without a message has its status in its head.
        if let Some(refusal) = refusal(&head.headers) {
            return Err(NoMessage::Refused(refusal));
        }
        let ended = head.headers.contains_key(STATUS);
        if head.status != StatusCode::OK && !ended {
            let detail = format!("the peer answers HTTP but no gRPC: {}", head.status);
            return Err(Failure::new(UnknownCause::InvalidAnswer, detail).into());
        }
        let mut bytes = BytesMut::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk.map_err(failure)?;
            if bytes.len() + chunk.len() > PREFIX + self.most {
                return Err(too_large(self.most).into());
            }
            body.flow_control().release_capacity(chunk.len()).map_err(failure)?;
            bytes.extend_from_slice(&chunk);
        }
        let trailers = body.trailers().await.map_err(failure)?.unwrap_or_default();
        match refusal(&trailers) {
            Some(refusal) => Err(NoMessage::Refused(refusal)),
            None if ended || trailers.contains_key(STATUS) => Ok(unframed(bytes.freeze(), self.most)?),
            None => {
                let detail = "the peer answers HTTP but no gRPC: the answer ended without a grpc-status";
                Err(Failure::new(UnknownCause::InvalidAnswer, detail).into())
            }
        }
    }
}

/// The status among `headers`, unless it is OK or not there.
fn refusal(headers: &HeaderMap) -> Option<Refusal> {
    let status = headers.get(STATUS)?.as_bytes();
    if status == b"0" {
        return None;
    }
    let code = std::str::from_utf8(status).ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let words = headers.get(MESSAGE).map(|value| unescaped(value.as_bytes())).unwrap_or_default();
    Some(Refusal { code, words })
}

/// A server's words: bytes outside of printable ASCII come as `%` and two hex digits.
fn unescaped(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let escaped = escaped.and_then(|hex| std::str::from_utf8(hex).ok());
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    text.chars().take(MAX_WORDS).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The message with what goes in front: not compressed, so long.
fn framed(message: &impl prost::Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    bytes.put_slice(&message.encode_to_vec());
    bytes.into()
}

/// The one message of an answer.
fn unframed(mut bytes: Bytes, most: usize) -> Result<Bytes, Failure> {
    let invalid = |detail: String| Err(Failure::new(UnknownCause::InvalidAnswer, detail));
    if bytes.len() < PREFIX {
        return invalid(format!("the answer is not gRPC: {} bytes and no message", bytes.len()));
    }
    let (flag, length) = (bytes.get_u8(), bytes.get_u32() as usize);
    match flag {
        0 if length > most => Err(too_large(most)),
        0 if length == bytes.len() => Ok(bytes),
        0 => invalid(format!("the answer is not gRPC: {length} bytes announced, {} came", bytes.len())),
        1 => invalid("the answer is compressed, which was not asked for".to_owned()),
        _ => invalid(format!("the answer is not gRPC: a message begins with {flag}")),
    }
}

/// What went wrong below the call.
fn failure(error: h2::Error) -> Failure {
    if let Some(io) = error.get_io() {
        return Failure::from(io);
    }
    let parts = [Reason::NO_ERROR, Reason::CANCEL, Reason::REFUSED_STREAM, Reason::ENHANCE_YOUR_CALM];
    match error.reason() {
        // A server that ends, or wants to be left alone, says so in HTTP/2 itself.
        Some(reason) if error.is_remote() && parts.contains(&reason) => Failure::new(
            UnknownCause::Unreachable,
            format!("the peer ended the connection or the call: {reason}"),
        ),
        _ => Failure::new(UnknownCause::InvalidAnswer, format!("the answer is not gRPC: {error}")),
    }
}

fn too_large(most: usize) -> Failure {
    Failure::new(UnknownCause::InvalidAnswer, format!("the answer is larger than {most} bytes"))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use http::Response;
    use tokio::io::{DuplexStream, ReadBuf, duplex};

    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Text {
        #[prost(string, tag = "1")]
        text: String,
    }

    /// What a server answers.
    #[derive(Clone, Default)]
    struct Played {
        http: u16,
        head: Vec<(&'static str, &'static str)>,
        body: Vec<u8>,
        trailers: Vec<(&'static str, &'static str)>,
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    /// Counts writes.
    struct Counted(DuplexStream, Arc<AtomicUsize>);

    impl AsyncRead for Counted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_read(cx, to)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<std::io::Result<usize>> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.0).poll_write(cx, data)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    /// A client whose server answers every call as `played`; and how often the client has written.
    async fn pair(played: Played) -> (Grpc, Arc<AtomicUsize>) {
        let (client, server) = duplex(64 * 1024);
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(server).await.unwrap();
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                assert_eq!(request.headers()[CONTENT_TYPE], "application/grpc");
                let mut answer = Response::builder().status(played.http).body(()).unwrap();
                *answer.headers_mut() = headers(&played.head);
                let bare = played.body.is_empty() && played.trailers.is_empty();
                let mut stream = respond.send_response(answer, bare).unwrap();
                if !bare {
                    stream.send_data(played.body.clone().into(), played.trailers.is_empty()).unwrap();
                }
                if !played.trailers.is_empty() {
                    stream.send_trailers(headers(&played.trailers)).unwrap();
                }
            }
        });
        let writes = Arc::new(AtomicUsize::new(0));
        let url = Url::parse("http://etcd.example:2379").unwrap();
        let (grpc, connection) = Grpc::new(Counted(client, writes.clone()), &url, 100).await.unwrap();
        tokio::spawn(connection);
        (grpc, writes)
    }

    async fn call(played: Played) -> Result<String, NoMessage> {
        let (mut grpc, _) = pair(played).await;
        let answer = grpc.call("/a.B/C", &Text { text: "asked".into() }).await?;
        Ok(<Text as prost::Message>::decode(answer).unwrap().text)
    }

    fn answered(text: &str) -> Played {
        let body = framed(&Text { text: text.into() }).to_vec();
        Played { http: 200, body, trailers: vec![("grpc-status", "0")], ..Played::default() }
    }

    #[tokio::test]
    async fn a_call_is_answered_and_leaves_in_one_write() {
        let (mut grpc, writes) = pair(answered("yes")).await;
        for _ in 0..3 {
            // The settings of both sides have been exchanged by the end of the first.
            writes.store(0, Ordering::Relaxed);
            let answer = grpc.call("/a.B/C", &Text { text: "asked".into() }).await.unwrap();
            assert_eq!(<Text as prost::Message>::decode(answer).unwrap().text, "yes");
        }
        assert_eq!(writes.load(Ordering::Relaxed), 1, "head and message together");
    }

    #[tokio::test]
    async fn a_refusal_is_told_by_head_or_trailers_in_the_servers_words() {
        let said = vec![("grpc-status", "14"), ("grpc-message", "etcdserver: no leader %C3%A4%0a%zz")];
        let refusal = Refusal { code: 14, words: "etcdserver: no leader ä\u{fffd}%zz".into() };
        let head = Played { http: 200, head: said.clone(), ..Played::default() };
        assert_eq!(call(head).await, Err(NoMessage::Refused(refusal.clone())));
        let late = Played { trailers: said, ..answered("half") };
        assert_eq!(call(late).await, Err(NoMessage::Refused(refusal)));
    }

    #[tokio::test]
    async fn what_is_not_grpc_is_an_invalid_answer() {
        let broken = |body: &[u8]| Played { body: body.to_vec(), ..answered("") };
        let long = "x".repeat(99);
        for (played, words) in [
            (Played { http: 404, body: b"not found".to_vec(), ..Played::default() }, "404"),
            (Played { trailers: vec![("x-other", "1")], ..answered("yes") }, "without a grpc-status"),
            (Played { trailers: Vec::new(), ..answered("yes") }, "without a grpc-status"),
            (broken(b"\0\0"), "2 bytes and no message"),
            (broken(b"\0\0\0\0\x09abc"), "9 bytes announced, 3 came"),
            (broken(b"\x01\0\0\0\x03abc"), "compressed"),
            (broken(b"<html>"), "begins with 60"),
            (broken(b"\0\xff\xff\xff\xff"), "larger than 100 bytes"),
            (answered(&long), "larger than 100 bytes"),
        ] {
            let Err(NoMessage::Failed(failure)) = call(played).await else { panic!("{words}") };
            assert_eq!(failure.cause, UnknownCause::InvalidAnswer, "{failure}");
            assert!(failure.detail.contains(words), "{failure}");
        }
    }

    #[tokio::test]
    async fn a_server_that_ends_is_unreachable_and_nonsense_is_an_invalid_answer() {
        let (client, server) = duplex(64 * 1024);
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(server).await.unwrap();
            let (_, mut respond) = connection.accept().await.unwrap().unwrap();
            respond.send_reset(Reason::REFUSED_STREAM);
            let _ = connection.accept().await;
        });
        let url = Url::parse("http://etcd.example:2379").unwrap();
        let (mut grpc, connection) = Grpc::new(client, &url, 100).await.unwrap();
        tokio::spawn(connection);
        let Err(NoMessage::Failed(ended)) = grpc.call("/a.B/C", &Text::default()).await else { panic!() };
        assert_eq!(ended.cause, UnknownCause::Unreachable, "{ended}");

        let (client, mut server) = duplex(4096);
        tokio::io::AsyncWriteExt::write_all(&mut server, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let (mut grpc, connection) = Grpc::new(client, &url, 100).await.unwrap();
        tokio::spawn(connection);
        let Err(NoMessage::Failed(nonsense)) = grpc.call("/a.B/C", &Text::default()).await else { panic!() };
        assert_eq!(nonsense.cause, UnknownCause::InvalidAnswer, "{nonsense}");
    }
}
