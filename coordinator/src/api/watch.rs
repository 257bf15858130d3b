//! `GET /v1/watch`: server-sent events for people and pages.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::error::{Answer, Failure};
use crate::app::App;
use crate::feed::{Frame, bookmark_frame, cluster_frame, event_frame, node_frame};
use crate::fleet::{Cluster, Node};
use crate::server::connections::Connection;
use crate::store::EventFilter;

/// Events replayed to a watcher that resumes; one that missed more lists again.
const MAX_REPLAY: usize = 1000;

/// Query of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct WatchQuery {
    after: Option<u64>,
}

/// A watch: live, or resumed from `Last-Event-ID` or `after`.
pub(super) async fn watch(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    Query(query): Query<WatchQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let watching = Watching::begin(&app)?;
    let after = match headers.get("last-event-id") {
        None => query.after,
        Some(id) => Some(id.to_str().ok().and_then(|id| id.parse().ok()).ok_or_else(|| {
            Failure::bad_request(
                "InvalidEventId",
                format!("Last-Event-ID {id:?} is no position"),
                "Give the id of the last event received, or leave it out and list first.",
            )
        })?),
    };
    // Subscribed before anything is read, so that nothing falls between.
    let live = app.feed.subscribe();
    let backlog = match after {
        None => Backlog::none(app.fleet.position(), false),
        Some(after) => Backlog::since(&app, after).await,
    };
    let body = Body::from_stream(frames(app, connection, watching, backlog, live));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, body).into_response())
}

/// One of the places for watchers; given back when dropped.
struct Watching(Arc<App>);

impl Watching {
    fn begin(app: &Arc<App>) -> Answer<Self> {
        let before = app.metrics.watchers.inc();
        let watching = Self(app.clone());
        if before < i64::try_from(app.limits.watchers).unwrap_or(i64::MAX) {
            return Ok(watching);
        }
        Err(Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "TooManyWatchers",
            format!("{} watchers are connected, and no more are served", app.limits.watchers),
            "Close some, or poll GET /v1/nodes.",
        )
        .retry_after(std::time::Duration::from_secs(30)))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.metrics.watchers.dec();
    }
}

/// What is sent before the live frames; objects are rendered when their turn comes.
struct Backlog {
    frames: VecDeque<Frame>,
    clusters: VecDeque<Arc<Cluster>>,
    nodes: VecDeque<Arc<Node>>,
    bookmark: Option<Frame>,
}

impl Backlog {
    fn none(position: u64, resync: bool) -> Self {
        Self {
            frames: VecDeque::new(),
            clusters: VecDeque::new(),
            nodes: VecDeque::new(),
            bookmark: Some(bookmark_frame(position, resync)),
        }
    }

    /// Events after `after`, and every object that changed since, as it is now.
    async fn since(app: &App, after: u64) -> Self {
        let position = app.fleet.position();
        if after > position {
            // An id of another coordinator, or of a store that was restored from a backup.
            return Self::none(position, true);
        }
        let Ok(events) = app.history.events(&EventFilter::default(), after, MAX_REPLAY + 1).await else {
            return Self::none(position, true);
        };
        if events.len() > MAX_REPLAY {
            return Self::none(position, true);
        }
        let reached = events.last().map_or(position, |e| e.id.max(position));
        Self {
            frames: events.iter().map(event_frame).collect(),
            clusters: app.fleet.clusters().into_iter().filter(|c| c.changed_at() >= after).collect(),
            nodes: app.fleet.nodes().into_iter().filter(|n| n.changed_at() >= after).collect(),
            bookmark: Some(bookmark_frame(reached, false)),
        }
    }

    fn next(&mut self, app: &App) -> Option<Frame> {
        let frame = self.frames.pop_front();
        let frame = frame.or_else(|| self.clusters.pop_front().map(|c| cluster_frame(&app.fleet, &c)));
        let frame = frame.or_else(|| self.nodes.pop_front().map(|n| node_frame(&app.fleet, &n)));
        frame.or_else(|| self.bookmark.take())
    }
}

struct Sending {
    app: Arc<App>,
    connection: Arc<Connection>,
    _place: Watching,
    backlog: Backlog,
    live: Receiver<Frame>,
}

fn frames(
    app: Arc<App>,
    connection: Arc<Connection>,
    place: Watching,
    backlog: Backlog,
    live: Receiver<Frame>,
) -> impl Stream<Item = Result<Frame, std::convert::Infallible>> {
    let sending = Sending { app, connection, _place: place, backlog, live };
    stream::unfold(sending, |mut sending| async move {
        let frame = match sending.backlog.next(&sending.app) {
            Some(frame) => frame,
            None => tokio::select! {
                received = sending.live.recv() => match received {
                    Ok(frame) => frame,
                    Err(RecvError::Lagged(_)) => bookmark_frame(sending.app.fleet.position(), true),
                    Err(RecvError::Closed) => return None,
                },
                () = sending.connection.ending() => return None,
            },
        };
        Some((Ok(frame), sending))
    })
}
