//! etcd's `/metrics`, read as a stream: the few families a rule needs out of some hundred kilobytes of text.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outrider_protocol::{EtcdMetrics, EtcdScrape, Histogram, PeerScrape, Timestamp, UnknownCause};
use rustls::ClientConfig;

use crate::net::{Connection, Failure, Resolve, Url, open, within};

/// Longest line we look at; etcd's are below 200 bytes.
const MAX_LINE: usize = 4096;
/// More text than any etcd serves.
const MAX_TEXT: usize = 4 * 1024 * 1024;
/// The rates of a rule want at least this much time between two scrapes.
const APART: Duration = Duration::from_secs(60);
/// Scrapes kept while none is old enough; enough for a pass every few seconds.
const MAX_KEPT: usize = 32;
/// More peers than any sound cluster has.
const MAX_PEERS: usize = 16;

/// What one scrape holds beside the facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Families {
    /// `etcd_disk_wal_fsync_duration_seconds`.
    pub wal_fsync: Option<Histogram>,
    /// `etcd_disk_backend_commit_duration_seconds`.
    pub backend_commit: Option<Histogram>,
    /// `etcd_server_leader_changes_seen_total`.
    pub leader_changes: Option<f64>,
    /// `etcd_server_proposals_failed_total`.
    pub proposals_failed: Option<f64>,
    /// `etcd_server_proposals_pending`.
    pub proposals_pending: Option<f64>,
    /// `etcd_server_quota_backend_bytes`: the quota, where `Status` does not say it.
    pub quota_bytes: Option<f64>,
    /// `etcd_network_*` by the id of the peer.
    pub peers: BTreeMap<String, PeerScrape>,
}

/// Reads the Prometheus text format piece by piece.
#[derive(Debug, Default)]
pub struct MetricsReader {
    line: Vec<u8>,
    /// The rest of an overlong line is being skipped.
    skipping: bool,
    read: usize,
    families: Families,
}

impl MetricsReader {
    /// Takes the next piece; breaks when everything of interest has been read or the text is too long to be etcd's.
    pub fn push(&mut self, piece: &[u8]) -> ControlFlow<()> {
        self.read = self.read.saturating_add(piece.len());
        let mut lines = piece.split(|b| *b == b'\n');
        // What follows the last line end is the start of a line that goes on in the next piece.
        let rest = lines.next_back().unwrap_or_default();
        for end in lines {
            self.append(end);
            self.finish_line();
        }
        self.append(rest);
        // The families come in the order of their names, so the quota's is the last of ours.
        if self.families.quota_bytes.is_some() || self.read > MAX_TEXT {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// What was read.
    pub fn finish(mut self) -> Families {
        self.finish_line();
        self.families
    }

    fn append(&mut self, piece: &[u8]) {
        if self.line.len() + piece.len() > MAX_LINE {
            self.skipping = true;
            self.line.clear();
        }
        if !self.skipping {
            self.line.extend_from_slice(piece);
        }
    }

    fn finish_line(&mut self) {
        if !std::mem::take(&mut self.skipping)
            && self.line.starts_with(b"etcd_")
            && let Ok(line) = std::str::from_utf8(&self.line)
        {
            self.families.take(line);
        }
        self.line.clear();
    }
}

impl Families {
    /// Takes one sample line: `name[{labels}] value [time]`.
    fn take(&mut self, line: &str) {
        let Some((name, labels, value)) = sample(line) else { return };
        match name {
            "etcd_server_leader_changes_seen_total" => self.leader_changes = Some(value),
            "etcd_server_proposals_failed_total" => self.proposals_failed = Some(value),
            "etcd_server_proposals_pending" => self.proposals_pending = Some(value),
            "etcd_server_quota_backend_bytes" => self.quota_bytes = Some(value),
            _ => {
                if let Some(part) = name.strip_prefix("etcd_network_") {
                    self.take_peer(part, labels, value);
                } else if let Some(part) = name.strip_prefix("etcd_disk_wal_fsync_duration_seconds") {
                    take_histogram(&mut self.wal_fsync, part, labels, value);
                } else if let Some(part) = name.strip_prefix("etcd_disk_backend_commit_duration_seconds") {
                    take_histogram(&mut self.backend_commit, part, labels, value);
                }
            }
        }
    }

    /// One sample of a family about a peer, which a label names: `To`, `From` or `Remote`.
    fn take_peer(&mut self, part: &str, labels: &str, value: f64) {
        let (key, part) = if let Some(part) = part.strip_prefix("peer_round_trip_time_seconds") {
            ("To", part)
        } else {
            match part {
                "active_peers" => ("Remote", part),
                "peer_sent_failures_total" => ("To", part),
                "peer_received_bytes_total" => ("From", part),
                _ => return,
            }
        };
        // 0 stands for a sender whose id is not known yet.
        let Some(id) = label(labels, key).filter(|id| is_id(id)) else { return };
        if !self.peers.contains_key(id) && self.peers.len() >= MAX_PEERS {
            return;
        }
        let peer = self.peers.entry(id.to_owned()).or_default();
        match part {
            "active_peers" => peer.active = Some(value > 0.0),
            "peer_sent_failures_total" => peer.sent_failures = value.max(0.0),
            "peer_received_bytes_total" => peer.received_bytes = value.max(0.0),
            part => take_bucket(&mut peer.round_trip, part, labels, value),
        }
    }

    /// The quota in bytes; below 0 it is switched off, which is not the default (etcd-io/etcd:server/storage/quota.go).
    pub fn quota(&self) -> Option<i64> {
        self.quota_bytes.filter(|q| q.abs() < i64::MAX as f64).map(|q| q as i64)
    }

    /// The scrape of these families at `at`; a failure names what etcd would have had.
    pub fn into_scrape(self, at: Timestamp) -> Result<EtcdScrape, Failure> {
        let missing = |name: &str| {
            let detail = format!("the text has no {name}: this is not an etcd server's /metrics");
            Failure::new(UnknownCause::InvalidAnswer, detail)
        };
        Ok(EtcdScrape {
            at,
            wal_fsync: self
                .wal_fsync
                .filter(|h| !h.buckets.is_empty())
                .ok_or_else(|| missing("etcd_disk_wal_fsync_duration_seconds"))?,
            backend_commit: self
                .backend_commit
                .filter(|h| !h.buckets.is_empty())
                .ok_or_else(|| missing("etcd_disk_backend_commit_duration_seconds"))?,
            leader_changes: self
                .leader_changes
                .ok_or_else(|| missing("etcd_server_leader_changes_seen_total"))?,
            proposals_failed: self
                .proposals_failed
                .ok_or_else(|| missing("etcd_server_proposals_failed_total"))?,
            proposals_pending: self
                .proposals_pending
                .ok_or_else(|| missing("etcd_server_proposals_pending"))?,
            peers: self.peers,
        })
    }
}

fn sample(line: &str) -> Option<(&str, &str, f64)> {
    let name_end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_end);
    let (labels, rest) = match rest.strip_prefix('{') {
        // Our families have no label value with a brace in it.
        Some(rest) => rest.split_once('}')?,
        None => ("", rest),
    };
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    // JSON has neither NaN nor infinity, and no count or gauge of ours may be one.
    value.is_finite().then_some((name, labels, value))
}

/// The value of one label of `a="1",b="2"`; the values of our families have neither commas nor quotes in them.
fn label<'a>(labels: &'a str, key: &str) -> Option<&'a str> {
    labels.split(',').find_map(|label| label.trim().strip_prefix(key)?.strip_prefix("=\"")?.strip_suffix('"'))
}

/// A member id as etcd prints it, and not 0.
fn is_id(text: &str) -> bool {
    text != "0" && (1..=16).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn take_histogram(histogram: &mut Option<Histogram>, part: &str, labels: &str, value: f64) {
    take_bucket(histogram.get_or_insert_default(), part, labels, value);
}

fn take_bucket(histogram: &mut Histogram, part: &str, labels: &str, value: f64) {
    // Negative, fractional or not a number: no count of anything.
    let count = || (value >= 0.0 && value <= u64::MAX as f64).then_some(value as u64);
    match part {
        "_bucket" => {
            let bound: Option<f64> = label(labels, "le").and_then(|text| text.parse().ok());
            if let (Some(bound), Some(count)) = (bound.filter(|b| *b > f64::NEG_INFINITY), count()) {
                // JSON has no infinity: the largest number stands for it.
                histogram.buckets.push((bound.min(f64::MAX), count));
                histogram.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                histogram.buckets.dedup_by_key(|bucket| bucket.0);
                histogram.buckets.truncate(64);
            }
        }
        "_count" => histogram.count = count().unwrap_or_default(),
        "_sum" if value.is_finite() => histogram.sum = value,
        _ => {}
    }
}

/// One scrape of the member whose metrics are at `url`, with the quota it states.
pub(super) async fn scrape(
    url: &Url,
    tls: Option<Arc<ClientConfig>>,
    limit: Duration,
) -> Result<Families, Failure> {
    within(limit, format!("GET {url}"), async {
        let (stream, peer) = open(url, tls, &Resolve::new(), limit).await?;
        let mut connection = Connection::new(stream, &url.authority(), peer).await?;
        let request = http::Request::get(url.path.as_str())
            .body(Bytes::new())
            .map_err(|e| Failure::new(UnknownCause::InvalidInput, e.to_string()))?;
        let mut reader = MetricsReader::default();
        let head = connection.exchange_into(request, limit, |piece| reader.push(piece)).await?;
        if head.status != http::StatusCode::OK {
            let cause = match head.status.as_u16() {
                401 => UnknownCause::Unauthenticated,
                403 => UnknownCause::Forbidden,
                404 => UnknownCause::Unsupported,
                _ => UnknownCause::InvalidAnswer,
            };
            return Err(Failure::new(cause, format!("GET {url} answered {}", head.status)));
        }
        Ok(reader.finish())
    })
    .await
}

/// The scrapes of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Scrapes {
    kept: VecDeque<EtcdScrape>,
}

impl Scrapes {
    /// Adds the latest scrape and pairs it with an earlier one, at least a minute older where there is one.
    pub(super) fn add(&mut self, latest: EtcdScrape) -> EtcdMetrics {
        // Counters that run backwards belong to a process that has restarted: nothing before it compares.
        let restarted = self.kept.back().is_some_and(|before| {
            before.at >= latest.at
                || before.wal_fsync.count > latest.wal_fsync.count
                || before.backend_commit.count > latest.backend_commit.count
                || before.leader_changes > latest.leader_changes
        });
        if restarted {
            self.kept.clear();
        }
        // Of those old enough only the newest is of use from now on.
        while self.kept.get(1).is_some_and(|second| latest.at.since(second.at) >= APART) {
            self.kept.pop_front();
        }
        // Full: drop from the middle, so that the oldest can still grow old enough.
        if self.kept.len() >= MAX_KEPT {
            self.kept.remove(1);
        }
        let earlier = self.kept.front().cloned();
        self.kept.push_back(latest.clone());
        EtcdMetrics { earlier, latest }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quota_that_is_switched_off_is_neither_unknown_nor_the_default() {
        for (text, quota) in [
            ("etcd_server_quota_backend_bytes -1\n", Some(-1)),
            ("etcd_server_quota_backend_bytes 8.589934592e+09\n", Some(8_589_934_592)),
            ("etcd_server_quota_backend_bytes 9.3e+18\n", None),
            ("etcd_server_quota_backend_bytes NaN\n", None),
            ("", None),
        ] {
            let mut reader = MetricsReader::default();
            let _ = reader.push(text.as_bytes());
            assert_eq!(reader.finish().quota(), quota, "{text}");
        }
        let told = |db_size_quota, metrics| {
            let status = crate::sense::etcd::wire::StatusResponse { db_size_quota, ..Default::default() };
            super::super::status_facts(status, metrics).quota_bytes
        };
        // What the status says comes first; what it leaves open the metrics say.
        assert_eq!([told(-1, None), told(-1, Some(5)), told(7, Some(5))], [-1, -1, 7]);
        assert_eq!([told(0, Some(-1)), told(0, Some(5)), told(0, None)], [-1, 5, 0]);
    }

    const TEXT: &str = "\
# HELP etcd_disk_backend_commit_duration_seconds The latency.
# TYPE etcd_disk_backend_commit_duration_seconds histogram
etcd_disk_backend_commit_duration_seconds_bucket{le=\"0.001\"} 3
etcd_disk_backend_commit_duration_seconds_bucket{le=\"+Inf\"} 4
etcd_disk_backend_commit_duration_seconds_sum 0.5
etcd_disk_backend_commit_duration_seconds_count 4
etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.001\"} 100
etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.002\"} 200
etcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"} 1.234e+03
etcd_disk_wal_fsync_duration_seconds_sum 12.25
etcd_disk_wal_fsync_duration_seconds_count 1234
etcd_network_active_peers{Local=\"8e9e05c52164694d\",Remote=\"fd422379fda50e48\"} 1
etcd_network_client_grpc_received_bytes_total 5
etcd_network_peer_received_bytes_total{From=\"0\"} 9
etcd_network_peer_received_bytes_total{From=\"fd422379fda50e48\"} 1.5e+06
etcd_network_peer_round_trip_time_seconds_bucket{To=\"fd422379fda50e48\",le=\"0.0001\"} 3
etcd_network_peer_round_trip_time_seconds_bucket{To=\"fd422379fda50e48\",le=\"+Inf\"} 4
etcd_network_peer_round_trip_time_seconds_sum{To=\"fd422379fda50e48\"} 0.25
etcd_network_peer_round_trip_time_seconds_count{To=\"fd422379fda50e48\"} 4
etcd_network_peer_sent_failures_total{To=\"fd422379fda50e48\"} 7
etcd_server_leader_changes_seen_total 2
etcd_server_proposals_failed_total 1
etcd_server_proposals_pending 0
etcd_server_quota_backend_bytes 2.147483648e+09
go_goroutines 99
";

    fn read(text: &[u8], piece: usize) -> Families {
        let mut reader = MetricsReader::default();
        for piece in text.chunks(piece.max(1)) {
            if reader.push(piece).is_break() {
                break;
            }
        }
        reader.finish()
    }

    #[test]
    fn reads_the_families_of_a_rule() {
        let families = read(TEXT.as_bytes(), 4096);
        assert_eq!(families.quota_bytes, Some(2_147_483_648.0));
        let scrape = families.into_scrape(Timestamp::from_seconds(1)).unwrap();
        assert_eq!(scrape.wal_fsync.buckets, [(0.001, 100), (0.002, 200), (f64::MAX, 1234)]);
        assert_eq!((scrape.wal_fsync.count, scrape.wal_fsync.sum), (1234, 12.25));
        assert_eq!(scrape.backend_commit.count, 4);
        assert_eq!(
            (scrape.leader_changes, scrape.proposals_failed, scrape.proposals_pending),
            (2.0, 1.0, 0.0)
        );
    }

    #[test]
    fn reads_what_a_member_says_of_its_peers() {
        let peers = read(TEXT.as_bytes(), 64).peers;
        assert_eq!(peers.keys().collect::<Vec<_>>(), ["fd422379fda50e48"], "an unknown sender is no peer");
        let peer = &peers["fd422379fda50e48"];
        assert_eq!((peer.active, peer.sent_failures, peer.received_bytes), (Some(true), 7.0, 1.5e6));
        assert_eq!(peer.round_trip.buckets, [(0.0001, 3), (f64::MAX, 4)]);
        assert_eq!((peer.round_trip.count, peer.round_trip.sum), (4, 0.25));
    }

    #[test]
    fn peers_without_end_or_of_no_id_are_not_kept() {
        let mut reader = MetricsReader::default();
        for i in 1..1000 {
            let line = format!("etcd_network_peer_sent_failures_total{{To=\"{i:x}\"}} 1\n");
            let _ = reader.push(line.as_bytes());
        }
        for id in ["", "0", "xyz", "12345678901234567"] {
            let line = format!("etcd_network_active_peers{{Local=\"1\",Remote=\"{id}\"}} 1\n");
            let _ = reader.push(line.as_bytes());
        }
        let peers = reader.finish().peers;
        assert_eq!(peers.len(), MAX_PEERS);
        assert!(peers.keys().all(|id| is_id(id)));
    }

    #[test]
    fn another_programs_metrics_are_refused_by_name() {
        let failure = read(b"go_goroutines 1\n", 9).into_scrape(Timestamp::default()).unwrap_err();
        assert!(failure.detail.contains("etcd_disk_wal_fsync_duration_seconds"), "{failure}");
    }

    #[test]
    fn an_endless_line_costs_no_memory() {
        let mut reader = MetricsReader::default();
        for _ in 0..100 {
            let _ = reader.push(&[b'x'; 1000]);
        }
        assert!(reader.line.capacity() <= 2 * MAX_LINE);
        let _ = reader.push(b"\netcd_server_proposals_pending 7\n");
        assert_eq!(reader.finish().proposals_pending, Some(7.0));
    }

    fn scrape_at(seconds: i64, count: u64) -> EtcdScrape {
        let fsync = Histogram { buckets: vec![(f64::MAX, count)], count, sum: 0.0 };
        EtcdScrape {
            at: Timestamp::from_seconds(seconds),
            wal_fsync: fsync.clone(),
            backend_commit: fsync,
            leader_changes: 0.0,
            proposals_failed: 0.0,
            proposals_pending: 0.0,
            peers: Default::default(),
        }
    }

    #[test]
    fn the_earlier_scrape_is_the_newest_that_is_a_minute_old() {
        let mut scrapes = Scrapes::default();
        assert_eq!(scrapes.add(scrape_at(0, 1)).earlier, None);
        for (now, earlier) in [(30, 0), (60, 0), (90, 30), (100, 30), (300, 100), (310, 100), (361, 300)] {
            let pair = scrapes.add(scrape_at(now, 1));
            assert_eq!(pair.earlier.map(|s| s.at), Some(Timestamp::from_seconds(earlier)), "at {now}");
        }
    }

    #[test]
    fn a_restarted_process_starts_anew() {
        let mut scrapes = Scrapes::default();
        scrapes.add(scrape_at(0, 500));
        assert_eq!(scrapes.add(scrape_at(60, 5)).earlier, None);
        assert!(scrapes.add(scrape_at(120, 6)).earlier.is_some());
    }

    #[test]
    fn many_scrapes_within_a_minute_stay_bounded_and_keep_the_oldest() {
        let mut scrapes = Scrapes::default();
        for ms in 0..1000 {
            let mut scrape = scrape_at(0, 1);
            scrape.at = Timestamp::from_millis(ms);
            scrapes.add(scrape);
        }
        assert!(scrapes.kept.len() <= MAX_KEPT);
        assert_eq!(scrapes.kept.front().unwrap().at, Timestamp::from_millis(0));
    }

    proptest! {
        #[test]
        fn never_panics(text in proptest::collection::vec(any::<u8>(), 0..300), piece in 1usize..40) {
            let _ = read(&text, piece).into_scrape(Timestamp::default());
        }

        #[test]
        fn pieces_do_not_matter(piece in 1usize..500) {
            prop_assert_eq!(read(TEXT.as_bytes(), piece), read(TEXT.as_bytes(), TEXT.len()));
        }
    }
}
