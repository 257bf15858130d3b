//! Server-sent events of `/v1/watch`.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request};
use outrider_agent::net::{Connection, Failure, Head};
use outrider_protocol::{ClusterView, EventView, NodeView};
use tokio::sync::mpsc;

use super::refusal;

/// A stream may go on for this long before it is opened anew.
const AGE: Duration = Duration::from_secs(24 * 3600);
/// Without a line for this long (the coordinator sends one now and then) the stream is taken for dead.
const SILENCE: Duration = Duration::from_secs(90);
/// How long the first bytes of a stream may take before it is taken as accepted anyway.
const GREETING: Duration = Duration::from_secs(2);
/// Longest line and longest event; a node with all its conditions is some kilobytes.
const MAX_EVENT: usize = 4 << 20;
/// Events that may wait for a slow terminal before the stream is cut.
const WAITING: usize = 4096;

/// Something the coordinator tells.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant)] // lives for one turn of a loop
pub enum Happening {
    /// A node as it is now.
    Node(NodeView),
    /// A cluster as it is now.
    Cluster(ClusterView),
    /// A transition.
    Event(EventView),
    /// Something was left out: list again. The history has reached this position.
    Resync(u64),
}

/// A followed stream.
pub(crate) struct Watch {
    lines: mpsc::Receiver<Vec<u8>>,
    end: tokio::task::JoinHandle<Result<Head, Failure>>,
    parser: EventReader,
    parsed: Vec<Happening>,
}

impl Watch {
    /// Sends `request` on `connection` and follows the answer.
    pub(super) fn start(
        mut connection: Connection,
        mut request: Request<Bytes>,
        after: Option<u64>,
    ) -> anyhow::Result<Self> {
        if let Some(after) = after {
            request.headers_mut().insert("last-event-id", HeaderValue::from(after));
        }
        let (send, lines) = mpsc::channel(WAITING);
        let end = tokio::spawn(async move {
            let forward = |chunk: &[u8]| match send.try_send(chunk.to_vec()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            connection.exchange_into(request, AGE, forward).await
        });
        Ok(Self { lines, end, parser: EventReader::default(), parsed: Vec::new() })
    }

    /// Waits until the coordinator has taken the request, which its first bytes show; what changes from then on is
    /// told. A coordinator that sends none at first is waited for only a moment.
    pub(crate) async fn accepted(&mut self) -> anyhow::Result<()> {
        match tokio::time::timeout(GREETING, self.lines.recv()).await {
            Ok(Some(chunk)) => self.parsed.extend(self.parser.feed(&chunk)),
            Ok(None) => return self.ended().await.map(drop),
            Err(_) => {}
        }
        Ok(())
    }

    /// Forgets what has arrived and waits to be read: the caller looks at everything anyway.
    pub(crate) fn skip_waiting(&mut self) {
        while let Ok(chunk) = self.lines.try_recv() {
            self.parser.feed(&chunk);
        }
    }

    /// Position of the last event, to go on from with another stream.
    pub(crate) fn position(&self) -> Option<u64> {
        self.parser.position
    }

    /// The next happenings; `None` when the stream ended and may be opened anew. A refusal is an error.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Vec<Happening>>> {
        while self.parsed.is_empty() {
            match tokio::time::timeout(SILENCE, self.lines.recv()).await {
                Ok(Some(chunk)) => self.parsed.extend(self.parser.feed(&chunk)),
                Ok(None) => return self.ended().await,
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(std::mem::take(&mut self.parsed)))
    }

    /// How the stream ended: a refusal is an error and its text the only line that came.
    async fn ended(&mut self) -> anyhow::Result<Option<Vec<Happening>>> {
        match (&mut self.end).await {
            Ok(Ok(head)) if !head.status.is_success() => Err(refusal(head.status, &self.parser.line)),
            _ => Ok(None),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end.abort();
    }
}

/// Lines to events, by the rules of the HTML standard; comments and unknown events are skipped.
#[derive(Default)]
pub struct EventReader {
    line: Vec<u8>,
    kind: String,
    data: String,
    position: Option<u64>,
}

impl EventReader {
    /// Position of the last event.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Takes the next bytes; what they complete comes out.
    pub fn feed(&mut self, chunk: &[u8]) -> Vec<Happening> {
        let mut out = Vec::new();
        for byte in chunk {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    out.extend(self.line(String::from_utf8_lossy(&line).trim_end_matches('\r')));
                }
                byte if self.line.len() < MAX_EVENT => self.line.push(*byte),
                _ => {}
            }
        }
        out
    }

    fn line(&mut self, line: &str) -> Option<Happening> {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            _ if line.is_empty() => {
                let happening = happening(&self.kind, &self.data);
                self.kind.clear();
                self.data.clear();
                return happening;
            }
            "event" => self.kind = value.to_owned(),
            "id" => self.position = value.parse().ok().or(self.position),
            "data" if self.data.len() + value.len() < MAX_EVENT => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

/// A place to go on from.
#[derive(serde::Deserialize)]
struct Bookmark {
    position: u64,
    #[serde(default)]
    resync: bool,
}

fn happening(kind: &str, data: &str) -> Option<Happening> {
    match kind {
        "node" => serde_json::from_slice(data.as_bytes()).ok().map(Happening::Node),
        "cluster" => serde_json::from_slice(data.as_bytes()).ok().map(Happening::Cluster),
        "event" => serde_json::from_slice(data.as_bytes()).ok().map(Happening::Event),
        "bookmark" => {
            let bookmark: Bookmark = serde_json::from_slice(data.as_bytes()).ok()?;
            bookmark.resync.then_some(Happening::Resync(bookmark.position))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = r#"{"apiVersion":"outrider.internal/v1alpha1","kind":"Cluster","name":"c","nodes":["a"],"conditions":[]}"#;

    #[test]
    fn events_come_out_however_the_bytes_are_cut() {
        let text = format!(
            ": hello\n\nid: 7\r\nevent: cluster\r\ndata: {CLUSTER}\r\n\r\nevent: later\ndata: x\n\nid: 9\n\n"
        );
        for size in [1, 2, 7, 1000] {
            let mut parser = EventReader::default();
            let found: Vec<_> = text.as_bytes().chunks(size).flat_map(|chunk| parser.feed(chunk)).collect();
            assert_eq!(
                found,
                [Happening::Cluster(serde_json::from_str(CLUSTER).unwrap())],
                "chunks of {size}"
            );
            assert_eq!(parser.position, Some(9));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_alike_however_they_are_cut(
            bytes in proptest::collection::vec(proptest::sample::select(b"id: 1\n\r:evntdaclusr{}\"\xff".to_vec()), 0..400),
            cut in 0_usize..400,
        ) {
            let mut whole = EventReader::default();
            let found = whole.feed(&bytes);
            let mut parts = EventReader::default();
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            let mut again = parts.feed(head);
            again.extend(parts.feed(tail));
            proptest::prop_assert_eq!(found, again);
            proptest::prop_assert_eq!(whole.position, parts.position);
        }
    }

    #[test]
    fn garbage_is_no_event_and_no_panic() {
        let mut parser = EventReader::default();
        assert_eq!(parser.feed(b"event: node\ndata: {\"half\":\n\n\xff\xfe\nid: -3\n\n"), []);
        assert_eq!(parser.position, None);
    }
}
