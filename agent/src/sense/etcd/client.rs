//! A gRPC client for one etcd endpoint: tonic's codec and framing over hyper's HTTP/2, on our own connection.
//!
//! It can ask for status, members, alarms and one key. Defragmentation, alarm clearing, member changes and snapshots
//! have no code here (`facts/etcd.md`, section 2, trap).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Uri;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use outrider_protocol::UnknownCause;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::wire::*;
use crate::net::{BoxedStream, Failure, Resolve, Url, open, within};

/// Largest message we take; a member list or status is a thousandth of it.
const MAX_MESSAGE: usize = 1024 * 1024;

/// The key we read to see whether a quorum answers. It need not exist.
const PROBE_KEY: &[u8] = b"outrider/health";

/// A kept connection to one endpoint. Clones share it; it closes when the last one is dropped.
#[derive(Clone, Debug)]
pub(super) struct Client {
    grpc: tonic::client::Grpc<Http2>,
    driver: Arc<Driver>,
}

#[derive(Debug)]
struct Driver {
    task: AbortHandle,
    first_error: FirstError,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Client {
    /// Connects within `limit`: the first address of the host that takes a connection.
    pub(super) async fn connect(
        url: &Url,
        tls: Option<Arc<ClientConfig>>,
        limit: Duration,
    ) -> Result<Self, Failure> {
        within(limit, format!("connecting to {url}"), async {
            let (stream, _) = open(url, tls, &Resolve::new(), limit).await.map_err(not_grpc)?;
            Self::speak(stream, url).await
        })
        .await
    }

    async fn speak(stream: BoxedStream, url: &Url) -> Result<Self, Failure> {
        let first_error = FirstError::default();
        let stream = Tapped { inner: stream, first_error: first_error.clone() };
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            // One small answer at a time: windows and buffers of a bulk transfer would be memory for nothing.
            .initial_stream_window_size(64 * 1024)
            .initial_connection_window_size(64 * 1024)
            .max_send_buf_size(16 * 1024)
            .handshake(TokioIo::new(stream))
            .await?;
        let task = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        let origin = Uri::builder()
            .scheme(if url.tls { "https" } else { "http" })
            .authority(url.host_and_port())
            .path_and_query("/")
            .build()
            .map_err(|e| Failure::new(UnknownCause::InvalidInput, format!("{url}: {e}")))?;
        let grpc = tonic::client::Grpc::with_origin(Http2(sender), origin)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        Ok(Self { grpc, driver: Arc::new(Driver { task, first_error }) })
    }

    /// Whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.task.is_finished()
    }

    /// `Maintenance/Status`: this endpoint about itself.
    pub(super) async fn status(&mut self) -> Result<StatusResponse, Failure> {
        self.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await
    }

    /// `Cluster/MemberList`.
    pub(super) async fn member_list(&mut self, linearizable: bool) -> Result<MemberListResponse, Failure> {
        self.call("/etcdserverpb.Cluster/MemberList", MemberListRequest { linearizable }).await
    }

    /// `Maintenance/Alarm` with action GET. etcd answers it by consensus: without quorum it does not.
    pub(super) async fn alarms(&mut self) -> Result<AlarmResponse, Failure> {
        self.call("/etcdserverpb.Maintenance/Alarm", AlarmGetRequest {}).await
    }

    /// A linearizable `KV/Range` of one key, in milliseconds: proves that a quorum answers this member.
    pub(super) async fn linearizable_read(&mut self) -> Result<f64, Failure> {
        let start = Instant::now();
        let request = ReadRequest { key: PROBE_KEY.to_vec(), count_only: true };
        match self.call::<_, ReadResponse>("/etcdserverpb.KV/Range", request).await {
            // Permissions are looked up in what the quorum agreed on, so a refusal proves it as well as an answer.
            Ok(_) | Err(Failure { cause: UnknownCause::Forbidden, .. }) => {
                Ok(start.elapsed().as_secs_f64() * 1000.0)
            }
            Err(failure) => Err(failure),
        }
    }

    async fn call<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let outcome = match self.grpc.ready().await {
            Ok(()) => {
                let path = PathAndQuery::from_static(path);
                self.grpc.unary(tonic::Request::new(request), path, ProstCodec::<Q, A>::default()).await
            }
            Err(error) => Err(Status::from_error(Box::new(error))),
        };
        match outcome {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(self.driver.first_error.get().unwrap_or_else(|| failure_of(&status))),
        }
    }
}

/// TLS worked and the peer offers no HTTP/2: some other server has the port.
fn not_grpc(failure: Failure) -> Failure {
    if failure.detail.contains("NoApplicationProtocol") {
        return Failure::new(
            UnknownCause::InvalidAnswer,
            "the peer speaks TLS but no HTTP/2: this is not etcd",
        );
    }
    failure
}

/// A gRPC status as a cause: etcd's own words decide where its codes are vague.
fn failure_of(status: &Status) -> Failure {
    use UnknownCause as C;
    let message = status.message();
    if let Some(source) = std::error::Error::source(status) {
        let failure = Failure::from_error(source);
        // HTTP/2 that cannot be parsed comes from a server that speaks something else.
        return match failure.cause {
            C::InvalidAnswer => failure.during("the answer is not gRPC"),
            _ => failure,
        };
    }
    if message.contains("grpc-status header missing") {
        return Failure::new(C::InvalidAnswer, format!("the peer answers HTTP but no gRPC: {message}"));
    }
    let cause = match status.code() {
        Code::Unavailable if message.contains("rpc not supported for learner") => C::Unsupported,
        Code::Unavailable | Code::ResourceExhausted => C::Unavailable,
        Code::DeadlineExceeded => C::TimedOut,
        Code::Unauthenticated => C::Unauthenticated,
        Code::PermissionDenied => C::Forbidden,
        Code::Unimplemented => C::Unsupported,
        Code::Cancelled => C::Unreachable,
        _ => C::InvalidAnswer,
    };
    Failure::new(cause, if message.is_empty() { status.code().description() } else { message })
}

/// hyper's HTTP/2 sender as the service that tonic calls.
#[derive(Clone, Debug)]
struct Http2(SendRequest<Body>);

impl GrpcService<Body> for Http2 {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// The first error of a stream, kept where the protocol above it would tell only "connection closed": a client
/// certificate that the server refuses, for one, shows in TLS 1.3 at the first read after the handshake.
#[derive(Clone, Debug, Default)]
struct FirstError(Arc<Mutex<Option<Failure>>>);

impl FirstError {
    fn get(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result {
            let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| Failure::from(error));
        }
        result
    }
}

struct Tapped<S> {
    inner: S,
    first_error: FirstError,
}

impl<S: AsyncRead + Unpin> AsyncRead for Tapped<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.first_error.note(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tapped<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, buffer);
        self.first_error.note(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.first_error.note(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcds_words_decide_where_its_codes_are_vague() {
        for (status, cause) in [
            (Status::unavailable("etcdserver: rpc not supported for learner"), UnknownCause::Unsupported),
            (Status::unavailable("etcdserver: no leader"), UnknownCause::Unavailable),
            (Status::unavailable("etcdserver: request timed out"), UnknownCause::Unavailable),
            (Status::resource_exhausted("etcdserver: too many requests"), UnknownCause::Unavailable),
            (Status::unauthenticated("etcdserver: invalid auth token"), UnknownCause::Unauthenticated),
            (Status::permission_denied("etcdserver: permission denied"), UnknownCause::Forbidden),
            (Status::unimplemented("unknown service"), UnknownCause::Unsupported),
            (
                Status::unimplemented("grpc-status header missing, mapped from HTTP status code 404"),
                UnknownCause::InvalidAnswer,
            ),
        ] {
            assert_eq!(failure_of(&status).cause, cause, "{status:?}");
        }
    }
}
