//! `POST /v1/heartbeat`, the one request that a large fleet makes all the time.
//!
//! It touches no store, allocates little, and while its answer is held keeps nothing of the request. The answer comes
//! when it is due, or at once when the node has something to hear: a new desired generation, the wish for its whole
//! state, the end of this coordinator or of its own right to speak.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::StatusCode;
use outrider_protocol::{ReportAck, TypeMeta};
use serde::Deserialize;
use tokio::time::Instant;
use uuid::Uuid;

use super::error::{Answer, Failure};
use crate::app::App;
use crate::enrol::Sighting;
use crate::fleet::Node;
use crate::server::connections::{Caller, Connection};
use crate::server::peer::Peer;

/// Bytes of a heartbeat.
pub(crate) const MAX_BYTES: usize = 4096;
/// Longest time an answer is held.
const MAX_HOLD: u32 = 3600;
/// A state older than this is asked for anew: numbers in messages move without a change of digest.
const STATE_AGE: Duration = Duration::from_secs(600);

/// `outrider_protocol::Heartbeat` without copies.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Beat<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    epoch: Uuid,
    #[serde(borrow)]
    digest: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) boot_id: Cow<'a, str>,
    #[serde(default)]
    generation: u64,
    hold_seconds: u32,
}

impl<'a> Beat<'a> {
    /// Reads a heartbeat.
    pub fn read(bytes: &'a [u8]) -> Answer<Self> {
        let advice = "Send a Heartbeat as JSON; its schema is in /v1/openapi.json.";
        let beat: Beat<'a> = serde_json::from_slice(bytes).map_err(|e| {
            Failure::bad_request("InvalidDocument", format!("the Heartbeat cannot be read: {e}"), advice)
        })?;
        if beat.kind != "Heartbeat" {
            let problem = format!("kind is {:?}; expected \"Heartbeat\"", beat.kind);
            return Err(Failure::bad_request("WrongKind", problem, advice));
        }
        if beat.hold_seconds > MAX_HOLD {
            let problem = format!("holdSeconds is {}; 0 to {MAX_HOLD} is allowed", beat.hold_seconds);
            return Err(Failure::bad_request("InvalidDocument", problem, advice));
        }
        if beat.digest.len() > 128 || beat.boot_id.len() > 128 {
            let problem = "digest or bootId is longer than 128 characters";
            return Err(Failure::bad_request("InvalidDocument", problem, advice));
        }
        Ok(beat)
    }
}

/// A heartbeat that was heard: what is left of it while its answer is held.
pub(crate) struct HeldAnswer {
    generation: u64,
    acknowledged: u64,
    wants_state: bool,
    due: Instant,
}

/// Takes a heartbeat in: the node is heard, and what it says of itself is compared with what is known.
pub(crate) fn hear(app: &App, peer: &Peer, connection: &Connection, beat: &Beat<'_>) -> Answer<HeldAnswer> {
    let node = &peer.node;
    let interval = Duration::from_secs(beat.hold_seconds.into());
    app.sight(
        peer,
        &Sighting {
            boot_id: &beat.boot_id,
            epoch: beat.epoch,
            identity: None,
            interval: (!interval.is_zero()).then_some(interval),
            at: app.clock().now(),
        },
    )?;
    node.announce_interval(beat.hold_seconds);
    app.fleet.hear(node);
    let (acknowledged, wants_state) = {
        let inner = node.inner();
        match inner.report.as_deref() {
            None => (0, true),
            Some(report) if report.epoch == beat.epoch => {
                // No sequence is compared: a report on another connection may have overtaken this heartbeat.
                let is_known = report.state.as_ref().is_some_and(|s| s.digest == beat.digest);
                let is_old = app.clock().now().since(report.last_state_at) >= STATE_AGE;
                (report.acknowledged, !is_known || is_old)
            }
            Some(report) => (0, report.state.as_ref().is_none_or(|s| s.digest != beat.digest)),
        }
    };
    // Asked once a connection until a state has come: an agent that cannot send one is not asked in a loop.
    let asks_now = wants_state && !connection.asked_resync.swap(true, Ordering::Relaxed);
    if !wants_state {
        connection.asked_resync.store(false, Ordering::Relaxed);
    }
    let hold = if asks_now { Duration::ZERO } else { interval };
    Ok(HeldAnswer { generation: beat.generation, acknowledged, wants_state, due: Instant::now() + hold })
}

/// The epoch at the node is not the one that is stored.
pub(crate) fn epoch_mismatch(sequence: u64, highest: u64) -> Failure {
    Failure::new(
        StatusCode::CONFLICT,
        "EpochMismatch",
        format!(
            "sequence {sequence} does not continue what is stored of this epoch (highest: {highest}); a disk or memory \
             snapshot was restored at the node"
        ),
        "Begin a new epoch and send what is not acknowledged in it. The agent does so by itself.",
    )
}

impl HeldAnswer {
    /// Whether there is anything to wait for.
    pub(crate) fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }

    /// Waits until the answer is due or wanted.
    pub(crate) async fn wait(self, app: &App, connection: &Connection) -> Answer<ReportAck> {
        let Caller::Node(peer) = &connection.caller else {
            return Err(super::internal("a heartbeat without a node"));
        };
        let node = &peer.node;
        let _holding = node.hold();
        let mut wants_state = self.wants_state;
        loop {
            let mut woken = std::pin::pin!(node.wake.notified());
            // Registered before the looks below, so that no change between look and wait is missed.
            woken.as_mut().enable();
            peer.check_standing(app)?;
            let desired = node.desired_generation();
            let is_news = desired != self.generation
                && connection.sent_generation.swap(desired, Ordering::Relaxed) != desired;
            // Somebody's quorum is in doubt: this node's word is wanted now, and its state with it.
            let is_asked = node.owes_word();
            wants_state |= is_asked;
            if is_news || is_asked || app.is_stopping() || connection.must_close() || self.is_due() {
                break;
            }
            tokio::select! {
                () = woken => {}
                () = tokio::time::sleep_until(self.due) => break,
            }
        }
        peer.check_standing(app)?;
        Ok(acknowledge(app, node, self.generation, self.acknowledged, wants_state))
    }
}

/// The answer to a report or heartbeat of a node at `generation`.
pub(crate) fn acknowledge(
    app: &App,
    node: &Node,
    generation: u64,
    acknowledged: u64,
    resync: bool,
) -> ReportAck {
    let desired = (node.desired_generation() != generation).then(|| node.desired());
    ReportAck {
        meta: TypeMeta::new("ReportAck"),
        acknowledged,
        resync,
        desired,
        server_time: app.clock().now(),
    }
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{Heartbeat, Timestamp};

    use super::*;

    fn heartbeat() -> Heartbeat {
        Heartbeat {
            meta: TypeMeta::new("Heartbeat"),
            epoch: Uuid::new_v4(),
            sequence: 7,
            digest: "0011223344556677".to_owned(),
            boot_id: "b".to_owned(),
            generation: 3,
            hold_seconds: 20,
            sent_at: Timestamp::from_seconds(1),
        }
    }

    #[test]
    fn reads_what_the_protocol_writes() {
        let sent = heartbeat();
        let bytes = serde_json::to_vec(&sent).unwrap();
        let beat = Beat::read(&bytes).unwrap();
        assert_eq!(
            (beat.epoch, &*beat.digest, &*beat.boot_id, beat.generation, beat.hold_seconds),
            (sent.epoch, "0011223344556677", "b", 3, 20)
        );
    }

    #[test]
    fn says_what_is_wrong() {
        let changed = |f: &dyn Fn(&mut serde_json::Value)| {
            let mut value = serde_json::to_value(heartbeat()).unwrap();
            f(&mut value);
            Beat::read(&serde_json::to_vec(&value).unwrap()).err().map(|f| f.error().reason.clone())
        };
        assert_eq!(changed(&|v| v["kind"] = "NodeReport".into()).as_deref(), Some("WrongKind"));
        assert_eq!(changed(&|v| v["holdSeconds"] = 3601.into()).as_deref(), Some("InvalidDocument"));
        assert_eq!(changed(&|v| v["digest"] = "d".repeat(129).into()).as_deref(), Some("InvalidDocument"));
        assert_eq!(changed(&|v| v["epoch"] = "x".into()).as_deref(), Some("InvalidDocument"));
        assert_eq!(changed(&|v| v["new"] = 1.into()), None);
    }
}
