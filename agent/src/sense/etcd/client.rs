//! A gRPC client for one etcd endpoint, on our own connection.
//!
//! It can ask for status, members, alarms, one key, and the names of keys. Defragmentation, alarm clearing, member changes and snapshots
//! have no code here (`facts/etcd.md`, section 2, trap).

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use outrider_protocol::UnknownCause;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;

use super::nodes::{MAX_KEYS, REGISTRY};
use super::wire::*;
use crate::net::{
    BoxedStream, Failure, Grpc, NoMessage, Refusal, Resolve, Silence, Url, open_watched, within,
};

/// Largest message we take; a member list or status is a thousandth of it.
const MAX_MESSAGE: usize = 1024 * 1024;

/// More members, URLs of one, errors or alarms than any sound cluster has.
const MAX_ITEMS: usize = 64;
/// Longest text in an answer; names and URLs are a fraction of it.
const MAX_TEXT: usize = 1024;

/// gRPC's code for what may work later.
const UNAVAILABLE: u16 = 14;

/// When the kernel takes a peer for lost: asked after three silent seconds, then once a second, given up at the third
/// question. It costs neither us nor etcd a call, and is not seen in etcd's log.
const SILENCE: Silence = Silence { idle: Duration::from_secs(3), every: Duration::from_secs(1), times: 3 };

/// The key we read to see whether a quorum answers. It need not exist.
const PROBE_KEY: &[u8] = b"outrider/health";

/// A linearizable read that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// How long it took, in milliseconds.
    pub(super) ms: f64,
    /// The raft term at the time; 0 when it was not told.
    pub(super) raft_term: u64,
}

/// A kept connection to one endpoint. Clones share it; it closes when the last one is dropped.
#[derive(Clone, Debug)]
pub(super) struct Client {
    grpc: Grpc,
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
            let (stream, _) =
                open_watched(url, tls, &Resolve::new(), limit, SILENCE).await.map_err(not_grpc)?;
            Self::speak(stream, url).await
        })
        .await
    }

    async fn speak(stream: BoxedStream, url: &Url) -> Result<Self, Failure> {
        let first_error = FirstError::default();
        let stream = Tapped { inner: stream, first_error: first_error.clone() };
        let (grpc, connection) = Grpc::new(stream, url, MAX_MESSAGE).await?;
        let task = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { grpc, driver: Arc::new(Driver { task, first_error }) })
    }

    /// Whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.driver.task.is_finished()
    }

    /// `Maintenance/Status`: this endpoint about itself.
    pub(super) async fn status(&mut self) -> Result<StatusResponse, Failure> {
        let mut status: StatusResponse =
            self.call("/etcdserverpb.Maintenance/Status", StatusRequest {}).await?;
        let header = status.header.clone().unwrap_or_default();
        if header.member_id == 0 || header.cluster_id == 0 {
            return Err(Failure::new(
                UnknownCause::InvalidAnswer,
                "it answers without the id of a member and a cluster: this is not etcd",
            ));
        }
        shorten(&mut status.version);
        status.errors.truncate(MAX_ITEMS);
        status.errors.iter_mut().for_each(shorten);
        Ok(status)
    }

    /// `Cluster/MemberList`. A list that no etcd would send is refused, not cut: half a list would be another cluster.
    pub(super) async fn member_list(&mut self, linearizable: bool) -> Result<MemberListResponse, Failure> {
        let list: MemberListResponse =
            self.call("/etcdserverpb.Cluster/MemberList", MemberListRequest { linearizable }).await?;
        let texts = |m: &Member| m.peer_urls.len() + m.client_urls.len();
        let unusable = if list.members.is_empty() {
            // `facts/etcd.md`, section 1: an empty list is no news of a healthy cluster.
            "the member list came empty".to_owned()
        } else if list.members.len() > MAX_ITEMS || list.members.iter().any(|m| texts(m) > MAX_ITEMS) {
            format!("a list of {} members: no etcd has that many, or as many URLs", list.members.len())
        } else if list.members.iter().any(|m| {
            [&m.name].into_iter().chain(&m.peer_urls).chain(&m.client_urls).any(|text| text.len() > MAX_TEXT)
        }) {
            format!("the member list has a name or URL of more than {MAX_TEXT} bytes")
        } else {
            return Ok(list);
        };
        Err(Failure::new(UnknownCause::InvalidAnswer, unusable))
    }

    /// `Maintenance/Alarm` with action GET. etcd answers it by consensus: without quorum it does not.
    pub(super) async fn alarms(&mut self) -> Result<AlarmResponse, Failure> {
        let mut answer: AlarmResponse =
            self.call("/etcdserverpb.Maintenance/Alarm", AlarmGetRequest {}).await?;
        answer.alarms.truncate(MAX_ITEMS);
        Ok(answer)
    }

    /// A linearizable `KV/Range` of one key: proves that a quorum answers this member.
    pub(super) async fn linearizable_read(&mut self) -> Result<Read, Failure> {
        let start = Instant::now();
        let request = ReadRequest { key: PROBE_KEY.to_vec(), count_only: true };
        let raft_term = match self.call::<_, ReadResponse>("/etcdserverpb.KV/Range", request).await {
            Ok(answer) => answer.header.map_or(0, |header| header.raft_term),
            // Permissions are looked up in what the quorum agreed on, so a refusal proves it as well as an answer.
            Err(Failure { cause: UnknownCause::Forbidden, .. }) => 0,
            Err(failure) => return Err(failure),
        };
        Ok(Read { ms: start.elapsed().as_secs_f64() * 1000.0, raft_term })
    }

    /// The names of the keys that Kubernetes keeps its Nodes under. Serializable: what this member holds.
    pub(super) async fn node_keys(&mut self) -> Result<KeysResponse, Failure> {
        let first = REGISTRY.as_bytes();
        // The first key that does not begin with the prefix: its last byte, a slash, one higher.
        let range_end = [&first[..first.len() - 1], b"0"].concat();
        let request = KeysRequest {
            key: first.to_vec(),
            range_end,
            limit: MAX_KEYS,
            serializable: true,
            keys_only: true,
        };
        self.call("/etcdserverpb.KV/Range", request).await
    }

    async fn call<Q, A>(&mut self, path: &'static str, request: Q) -> Result<A, Failure>
    where
        Q: prost::Message + 'static,
        A: prost::Message + Default + 'static,
    {
        let failure = match self.grpc.call(path, &request).await {
            Ok(answer) => match A::decode(answer) {
                Ok(answer) => return Ok(answer),
                Err(error) => Failure::new(UnknownCause::InvalidAnswer, format!("{path}: {error}")),
            },
            Err(NoMessage::Refused(refusal)) => failure_of(&refusal),
            Err(NoMessage::Failed(failure)) => failure,
        };
        Err(self.driver.first_error.get().unwrap_or(failure))
    }
}

/// Cuts a text that is only shown.
fn shorten(text: &mut String) {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
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

/// A status as a cause (the numbers of gRPC's `doc/statuscodes.md`): etcd's own words decide where its codes are vague.
fn failure_of(refusal: &Refusal) -> Failure {
    use UnknownCause as C;
    let (cause, name) = match refusal.code {
        UNAVAILABLE if refusal.words.contains("rpc not supported for learner") => (C::Unsupported, ""),
        UNAVAILABLE => (C::Unavailable, "UNAVAILABLE"),
        8 => (C::Unavailable, "RESOURCE_EXHAUSTED"),
        4 => (C::TimedOut, "DEADLINE_EXCEEDED"),
        16 => (C::Unauthenticated, "UNAUTHENTICATED"),
        7 => (C::Forbidden, "PERMISSION_DENIED"),
        12 => (C::Unsupported, "UNIMPLEMENTED"),
        1 => (C::Unreachable, "CANCELLED"),
        _ => (C::InvalidAnswer, ""),
    };
    match (refusal.words.as_str(), name) {
        ("", "") => Failure::new(cause, format!("the member answers with gRPC status {}", refusal.code)),
        ("", name) => Failure::new(cause, format!("the member answers {name}, without a word")),
        (words, _) => Failure::new(cause, words),
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
        for (code, words, cause) in [
            (14, "etcdserver: rpc not supported for learner", UnknownCause::Unsupported),
            (14, "etcdserver: no leader", UnknownCause::Unavailable),
            (14, "etcdserver: request timed out", UnknownCause::Unavailable),
            (8, "etcdserver: too many requests", UnknownCause::Unavailable),
            (16, "etcdserver: invalid auth token", UnknownCause::Unauthenticated),
            (7, "etcdserver: permission denied", UnknownCause::Forbidden),
            (12, "unknown service", UnknownCause::Unsupported),
            (13, "", UnknownCause::InvalidAnswer),
            (14, "", UnknownCause::Unavailable),
        ] {
            let failure = failure_of(&Refusal { code, words: words.into() });
            assert_eq!(failure.cause, cause, "{failure}");
            assert!(failure.detail.contains(words) && !failure.detail.is_empty(), "{failure}");
        }
    }
}
