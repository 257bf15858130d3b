//! What watchers of `/v1/watch` are sent: deltas once a second, each object once, rendered once for all.
//!
//! Every watcher reads from one bounded ring. One that is too slow for it loses frames, is told so with a `bookmark`
//! that says `resync`, and lists again: nobody makes the coordinator remember for him. Ids are positions of the history.
//! Each object knows the position at its last change, so that `Last-Event-ID` needs no memory of its own: what changed
//! since is sent whole, events since are read from the history.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outrider_protocol::{EventView, TypeMeta};
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::time::MissedTickBehavior;

use crate::fleet::{Cluster, Fleet, Node};
use crate::store::Event;

/// Frames a watcher may lie behind.
const RING: usize = 4096;
/// Objects sent with one delta; more than that is a wish to list again.
const MOST_AT_ONCE: usize = RING / 2;
/// Time between deltas.
const TURN: Duration = Duration::from_secs(1);
/// Turns between comments that keep a quiet stream from being taken for a dead one.
const TURNS_PER_COMMENT: u32 = 15;

/// A rendered piece of the stream.
pub(crate) type Frame = Bytes;

/// The ring.
pub(crate) struct Feed {
    ring: broadcast::Sender<Frame>,
}

impl Default for Feed {
    fn default() -> Self {
        Self { ring: broadcast::Sender::new(RING) }
    }
}

impl Feed {
    /// Frames from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Frame> {
        self.ring.subscribe()
    }

    fn send(&self, frame: impl FnOnce() -> Frame) {
        if self.ring.receiver_count() > 0 {
            // An error says that the last watcher left meanwhile.
            let _ = self.ring.send(frame());
        }
    }
}

/// The frame of a node as it is now.
pub(crate) fn node_frame(fleet: &Fleet, node: &Node) -> Frame {
    frame("node", fleet.position(), &fleet.view(node))
}

/// The frame of a cluster as it is now.
pub(crate) fn cluster_frame(fleet: &Fleet, cluster: &Cluster) -> Frame {
    frame("cluster", fleet.position(), &fleet.cluster_view(cluster))
}

/// The frame of a transition.
pub(crate) fn event_frame(event: &Event) -> Frame {
    frame("event", event.id, &event_view(event))
}

/// An event as it is shown.
pub(crate) fn event_view(event: &Event) -> EventView {
    EventView {
        meta: TypeMeta::new("Event"),
        id: event.id,
        node: event.origin.name.clone(),
        received_at: event.received_at,
        transition: event.transition.clone(),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bookmark {
    #[serde(flatten)]
    meta: TypeMeta,
    /// Everything up to this position was sent.
    position: u64,
    /// Something was left out: list again.
    resync: bool,
}

/// A place to resume from; with `resync`, something was left out and the watcher has to list again.
pub(crate) fn bookmark_frame(position: u64, resync: bool) -> Frame {
    frame("bookmark", position, &Bookmark { meta: TypeMeta::new("Bookmark"), position, resync })
}

fn frame(event: &str, id: u64, data: &impl Serialize) -> Frame {
    let mut text = String::with_capacity(512);
    // JSON has no line break outside of escapes, so one `data` line holds it.
    let _ = write!(text, "event: {event}\nid: {id}\ndata: ");
    text.push_str(&serde_json::to_string(data).unwrap_or_default());
    text.push_str("\n\n");
    text.into()
}

/// Publishes until it is dropped.
pub(crate) async fn publish(fleet: Arc<Fleet>, feed: Arc<Feed>, mut events: broadcast::Receiver<Arc<Event>>) {
    let mut turn = tokio::time::interval(TURN);
    turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut turns = 0_u32;
    loop {
        turn.tick().await;
        turns = turns.wrapping_add(1);
        drain_events(&fleet, &feed, &mut events);
        let clusters = fleet.changed_clusters.take();
        let nodes = fleet.changed_nodes.take();
        clusters.iter().for_each(|cluster| cluster.mark_changed(fleet.position()));
        nodes.iter().for_each(|node| node.mark_changed(fleet.position()));
        if clusters.len() + nodes.len() > MOST_AT_ONCE {
            // A whole fleet changed: to list it again is less than to be told of each.
            feed.send(|| bookmark_frame(fleet.position(), true));
        } else {
            clusters.iter().for_each(|cluster| feed.send(|| cluster_frame(&fleet, cluster)));
            nodes.iter().for_each(|node| feed.send(|| node_frame(&fleet, node)));
        }
        if turns.is_multiple_of(TURNS_PER_COMMENT) {
            feed.send(|| Bytes::from_static(b": still here\n\n"));
        }
    }
}

fn drain_events(fleet: &Fleet, feed: &Feed, events: &mut broadcast::Receiver<Arc<Event>>) {
    use broadcast::error::TryRecvError;
    loop {
        match events.try_recv() {
            Ok(event) => {
                fleet.advance(event.id);
                feed.send(|| event_frame(&event));
            }
            // More in a second than anyone reads: the watchers list the history for the rest.
            Err(TryRecvError::Lagged(_)) => feed.send(|| bookmark_frame(fleet.position(), true)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_one_event_of_the_stream() {
        let frame = bookmark_frame(17, true);
        let text = std::str::from_utf8(&frame).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "event: bookmark");
        assert_eq!(lines[1], "id: 17");
        assert!(lines[2].starts_with("data: {") && lines[2].contains("\"resync\":true"), "{text}");
        assert!(text.ends_with("\n\n") && lines.len() == 4, "{text:?}");
    }

    #[test]
    fn without_watchers_nothing_is_rendered() {
        Feed::default().send(|| panic!("rendered for nobody"));
    }
}
