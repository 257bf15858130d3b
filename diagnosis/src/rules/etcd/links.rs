//! A member's own connections to its peers on port 2380, from its metrics: whether they stand, and how long a round
//! trip takes. They tell the network from the disk (D9) and say what a learner waits for (D8).

use std::time::Duration;

use outrider_protocol::{EtcdFacts, EtcdMetrics, LINK_SETTLED, MemberList, PeerScrape, Status};

use super::histogram::{Difference, Quantile};
use super::view::name_of;
use crate::wording::{Span, names};

/// etcd's guide on tuning wants an election timeout of ten round trips at least.
const ROUND_TRIPS_AN_ELECTION: u32 = 10;
/// The round trip that etcd's own defaults (heartbeat 100 ms, election 1000 ms) are made for.
const FINE_AT_MOST: Duration = Duration::from_millis(100);
/// Fewer round trips give no 99th percentile worth a word.
const ENOUGH: u64 = 5;

/// Both looks at the connection to the member `id`, the earlier one first; `None` where there was one only.
fn looks<'a>(metrics: &'a EtcdMetrics, id: &str) -> Option<(&'a PeerScrape, &'a PeerScrape)> {
    metrics.earlier.as_ref()?.peers.get(id).zip(metrics.latest.peers.get(id))
}

/// Whether the connection to the member `id` stands, as the member behind `metrics` counts it.
pub(crate) fn link(metrics: &EtcdMetrics, id: &str) -> Status {
    let Some(latest) = metrics.latest.peers.get(id) else { return Status::Unknown };
    match latest.active {
        Some(true) => Status::True,
        Some(false) => Status::False,
        // Versions without the gauge count bytes and failures: what still comes in has a way in.
        None if brings_news(metrics, id) => Status::True,
        None => match looks(metrics, id) {
            Some((before, latest)) if latest.sent_failures > before.sent_failures => Status::False,
            _ => Status::Unknown,
        },
    }
}

/// What the member behind `metrics` has not heard of the member `id`, to follow a sentence: called down now, and nothing came
/// in between two looks. A gauge by itself may be left over from a restart, while another stream has long brought news.
pub(crate) fn cut_for(metrics: &EtcdMetrics, id: &str) -> Option<String> {
    let (before, latest) = looks(metrics, id)?;
    let span = metrics.latest.at.since(metrics.earlier.as_ref()?.at);
    // A counter that began anew proves nothing of the time between.
    let began_anew =
        latest.received_bytes < before.received_bytes || latest.sent_failures < before.sent_failures;
    let is_cut = latest.active == Some(false) && !brings_news(metrics, id) && span >= LINK_SETTLED;
    let failures = latest.sent_failures - before.sent_failures;
    (is_cut && !began_anew)
        .then(|| format!("0 bytes received and {failures:.0} sends failed in {}", Span(span)))
}

/// Whether anything came in from the member `id` between two looks.
pub(crate) fn brings_news(metrics: &EtcdMetrics, id: &str) -> bool {
    looks(metrics, id).is_some_and(|(before, latest)| latest.received_bytes > before.received_bytes)
}

/// Peers whose connection is counted as down, by name.
pub(super) fn broken<'a>(etcd: &'a EtcdFacts, metrics: &'a EtcdMetrics) -> Vec<&'a str> {
    let ids = metrics.latest.peers.keys().filter(|id| link(metrics, id) == Status::False);
    ids.map(|id| name_of(etcd.members.value(), id)).collect()
}

/// What the round trips of the last minutes say.
#[derive(Debug)]
pub(super) enum Network {
    /// Every peer answers fast enough; the slowest in words.
    Fine(String),
    /// The peers named in the text are slow.
    Slow(String),
    /// Nothing was measured.
    Unmeasured,
}

/// Judges the 99th percentile of each peer's round trip against the election timeout.
pub(super) fn network(
    metrics: &EtcdMetrics,
    list: Option<&MemberList>,
    election_timeout: Duration,
) -> Network {
    let Some(earlier) = &metrics.earlier else { return Network::Unmeasured };
    let limit = fine(election_timeout).as_secs_f64();
    let mut slow: Vec<String> = Vec::new();
    let mut slowest: Option<(&str, Quantile)> = None;
    for (id, latest) in &metrics.latest.peers {
        let before = earlier.peers.get(id).map(|p| &p.round_trip);
        let Some(difference) = before.and_then(|before| Difference::new(before, &latest.round_trip).ok())
        else {
            continue;
        };
        if difference.total < ENOUGH {
            continue;
        }
        let p99 = difference.quantile(0.99);
        if p99.seconds > limit {
            slow.push(format!("{} ({p99})", name_of(list, id)));
        }
        if slowest.is_none_or(|(_, s)| p99.seconds > s.seconds) {
            slowest = Some((id, p99));
        }
    }
    match slowest {
        None => Network::Unmeasured,
        Some(_) if !slow.is_empty() => Network::Slow(names(slow, 7)),
        Some((id, p99)) => Network::Fine(format!("at most {p99}, to {}", name_of(list, id))),
    }
}

/// The longest round trip that an election timeout bears.
pub(super) fn fine(election_timeout: Duration) -> Duration {
    (election_timeout / ROUND_TRIPS_AN_ELECTION).min(FINE_AT_MOST)
}
