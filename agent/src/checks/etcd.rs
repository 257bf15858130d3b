//! Between two full passes over the cluster, one cheap question to the local member: is quorum there? And does anything
//! else look different from the last pass?

use std::sync::Arc;
use std::time::Duration;

use outrider_protocol::{EtcdFacts, Fact, Timestamp};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::config::EtcdSettings;
use crate::sense::etcd::{Watched, is_refusal, poll_local, read, watch};
use crate::sense::{SenseContext, etcd};

/// A change that is seen between two passes makes the next one due at once, but not more often than this.
const APART: Duration = Duration::from_secs(5);

/// While everything stays as it was, this is how old what is known may get before it is told anew.
const TELL: Duration = Duration::from_secs(5);
/// For so long one look goes on asking the local member while nothing is new: polls are to cost a poll, and not a
/// pass of its own each time, with its tasks, limits and turns of the loop.
pub(super) const WATCHES: Duration = Duration::from_secs(6);

/// While quorum is lost every look reads the whole cluster; after so long
const LONG: Duration = Duration::from_secs(60);
/// only one in so many seconds does, unless the local member answers again.
const REST: Duration = Duration::from_secs(5);
/// A member that does not take us for who we are is left alone for so long: each attempt is a line in its log.
const TURNED_AWAY: Duration = Duration::from_secs(30);

/// What one look leaves for the next. Shared by the looks, which follow one another.
#[derive(Clone, Default)]
pub(super) struct EtcdWatch(Arc<Mutex<Remembered>>);

#[derive(Default)]
struct Remembered {
    memory: etcd::Memory,
    last: Option<Full>,
    /// When a reading was last told. `None` while a look is under way: one that is cut short may be told as unknown.
    told: Option<Instant>,
    early: Early,
    /// Since when no look has confirmed quorum.
    lost: Option<Instant>,
    /// Passes made again because the last one was not settled, with a patience of their own: an outage that lasts must not
    /// delay the word of its end.
    again: Early,
}

struct Full {
    at: Instant,
    read: Timestamp,
    settings: EtcdSettings,
    facts: EtcdFacts,
    source: String,
}

impl Full {
    /// How long after this pass the next one is due, while quorum has been lost for so long.
    fn rest(&self, lost: Duration) -> Duration {
        let local = self.facts.endpoints.iter().find(|endpoint| endpoint.local);
        match local.map(|endpoint| &endpoint.status) {
            Some(Fact::Unknown { cause, .. }) if is_refusal(cause) => TURNED_AWAY,
            _ if lost >= LONG => REST,
            _ => Duration::ZERO,
        }
    }

    fn fact(&self, at: Timestamp) -> Fact<EtcdFacts> {
        Fact::known(self.facts.clone(), self.source.clone(), at)
    }
}

/// Passes that a change made due before their time.
#[derive(Debug, Default)]
struct Early {
    last: Option<Instant>,
    /// Grows with every pass that found everything as it was: something that seems to change all the time, such as a
    /// proxy that ends idle connections, must not cost a pass every few seconds for ever.
    wait: Duration,
}

impl Early {
    fn allowed(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= self.wait)
    }

    fn made(&mut self, found_a_change: bool, full_every: Duration) {
        self.last = Some(Instant::now());
        self.wait = if found_a_change { APART } else { (self.wait * 2).max(APART).min(full_every) };
    }
}

impl EtcdWatch {
    /// Reads the cluster. While the last full pass is younger than `full_every` and quorum held in it, only cheap
    /// questions are asked, one every `poll`; as soon as the local member does not confirm quorum, or something else is not
    /// as it was, the whole cluster is read. `None` when everything stayed as was told a moment ago.
    pub(super) async fn look(
        &self,
        cx: &SenseContext,
        settings: &EtcdSettings,
        full_every: Duration,
        poll: Duration,
    ) -> Option<Fact<EtcdFacts>> {
        let remembered = &mut *self.0.lock().await;
        let (told, began) = (remembered.told.take(), Instant::now());
        let mut next = began;
        let due = loop {
            match cheap(cx, settings, full_every, remembered).await {
                Due::Not { news: false, .. } if told.is_some_and(|told| told.elapsed() < TELL) => {
                    if began.elapsed() + poll > WATCHES {
                        remembered.told = told;
                        return None;
                    }
                    next = (next + poll).max(Instant::now());
                    remembered.memory.timer.until(next).await;
                }
                Due::Not { at, .. } => {
                    remembered.told = Some(Instant::now());
                    return remembered.last.as_ref().map(|last| last.fact(at));
                }
                due => break due,
            }
        };
        // Should this look be cut short, the next one is a full one.
        let before = remembered.last.take();
        let fact = read(cx, settings, &mut remembered.memory).await;
        let change = match (&before, fact.value()) {
            (Some(before), Some(now)) => shape(&before.facts) != shape(now),
            _ => true,
        };
        match due {
            Due::Early => remembered.early.made(change, full_every),
            Due::Again => remembered.again.made(change, full_every),
            Due::Now | Due::Not { .. } => {}
        }
        if let Fact::Known { value, source, at } = &fact {
            remembered.last = Some(Full {
                at: Instant::now(),
                read: *at,
                settings: settings.clone(),
                facts: value.clone(),
                source: source.clone(),
            });
        }
        remembered.told = Some(Instant::now());
        Some(fact)
    }
}

/// Whether a full pass is due.
enum Due {
    /// The last one with what was heard since stands, as of then; `news` when that is to be told at once.
    Not {
        at: Timestamp,
        news: bool,
    },
    Now,
    Early,
    Again,
}

/// A cheap look, unless a full pass is due; what it heard goes into what the last one left.
async fn cheap(
    cx: &SenseContext,
    settings: &EtcdSettings,
    full_every: Duration,
    remembered: &mut Remembered,
) -> Due {
    let Some(last) = remembered.last.as_mut() else { return Due::Now };
    if last.at.elapsed() >= full_every || last.settings != *settings {
        return Due::Now;
    }
    let watched = watch(cx, settings, &mut remembered.memory, &mut last.facts).await;
    if watched == Watched::Lost {
        let lost = remembered.lost.get_or_insert_with(Instant::now).elapsed();
        let rest = last.rest(lost);
        if last.at.elapsed() >= rest {
            return Due::Now;
        }
        // Back at once when it is back, unless asking is the trouble.
        let back = rest < TURNED_AWAY
            && poll_local(cx, settings, &mut remembered.memory)
                .await
                .is_some_and(|read| read.value().is_some());
        return if back { Due::Now } else { Due::Not { at: last.read, news: true } };
    }
    remembered.lost = None;
    match watched {
        Watched::Lost => Due::Now,
        // What a pass met in the middle of an outage is not left to stand until the next one is due by the clock.
        Watched::Same(at) if !is_settled(&last.facts) && remembered.again.allowed() => {
            log::debug!(
                "etcd: the last pass found some member away or without a leader ({at}): it is made again"
            );
            Due::Again
        }
        Watched::Same(at) => Due::Not { at, news: false },
        Watched::Changed(at, why) if remembered.early.allowed() => {
            log::debug!("etcd: {why} ({at}): the whole cluster is read again");
            Due::Early
        }
        Watched::Changed(at, _) => Due::Not { at, news: true },
    }
}

/// Whether every endpoint answered and saw a leader.
fn is_settled(facts: &EtcdFacts) -> bool {
    facts.endpoints.iter().all(|e| e.status.value().is_some_and(|status| !status.leader.is_empty()))
}

/// What a pass has to find different for a change to have been one: members, who answers, who leads, who hears whom.
fn shape(facts: &EtcdFacts) -> impl PartialEq {
    let endpoints: Vec<_> = facts
        .endpoints
        .iter()
        .map(|e| {
            (e.endpoint.clone(), e.status.value().map(|s| (s.leader.clone(), s.raft_term, s.errors.clone())))
        })
        .collect();
    let links = facts
        .metrics
        .value()
        .map(|m| m.latest.peers.iter().map(|(id, peer)| (id.clone(), peer.active)).collect::<Vec<_>>());
    (endpoints, facts.members.value().map(|list| list.members.clone()), links)
}

#[cfg(test)]
mod tests {
    use outrider_protocol::UnknownCause;

    use super::*;

    /// A pass in which the local member could not be asked.
    fn failed(cause: UnknownCause) -> Full {
        let at = Timestamp::from_seconds(1_800_000_000);
        let unknown = |cause: &UnknownCause| serde_json::json!({ "state": "unknown", "cause": cause, "detail": "", "source": "", "at": at });
        let (unread, failed) = (unknown(&UnknownCause::NotYetRead), unknown(&cause));
        let facts = serde_json::json!({
            "distribution": "rke2", "foundBy": "", "electionTimeoutMs": 5000, "localEndpoint": "", "members": unread,
            "alarms": unread, "metrics": unread, "kubernetesNodes": unread,
            "endpoints": [{ "endpoint": "", "local": true, "status": failed, "linearizableRead": failed }],
        });
        let facts = serde_json::from_value(facts).unwrap();
        Full { at: Instant::now(), read: at, settings: EtcdSettings::default(), facts, source: String::new() }
    }

    #[tokio::test]
    async fn a_loss_is_read_at_every_look_and_after_a_while_more_rarely() {
        let full = failed(UnknownCause::ConnectionRefused);
        assert_eq!(full.rest(Duration::ZERO), Duration::ZERO);
        assert_eq!(full.rest(LONG / 2), Duration::ZERO);
        assert_eq!(full.rest(LONG), REST);
    }

    #[tokio::test]
    async fn a_member_that_turns_us_away_is_not_asked_every_second() {
        for cause in [UnknownCause::TlsFailed, UnknownCause::Unauthenticated, UnknownCause::InvalidAnswer] {
            assert_eq!(failed(cause).rest(Duration::ZERO), TURNED_AWAY);
        }
        assert_eq!(failed(UnknownCause::TimedOut).rest(Duration::ZERO), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_seems_to_change_all_the_time_costs_ever_fewer_passes() {
        let full = Duration::from_secs(120);
        let mut early = Early::default();
        let mut passes = 0;
        for _ in 0..600 {
            if early.allowed() {
                passes += 1;
                early.made(false, full);
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!((5..=10).contains(&passes), "{passes}");
    }

    #[tokio::test(start_paused = true)]
    async fn true_changes_are_followed_every_few_seconds() {
        let full = Duration::from_secs(120);
        let mut early = Early { last: None, wait: Duration::from_secs(80) };
        assert!(early.allowed(), "the first one at once");
        early.made(true, full);
        assert!(!early.allowed());
        tokio::time::advance(APART).await;
        assert!(early.allowed());
    }
}
