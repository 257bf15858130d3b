//! `EtcdDisk`: fsync latency over the last minutes (`facts/etcd.md`, section 5).
//!
//! Histograms count since the process started; only the difference of two scrapes shows what the disk does now.

use std::time::Duration;

use outrider_protocol::{
    ConditionType, EtcdFacts, EtcdMetrics, EtcdScrape, Fact, ReasonCode as R, Severity, Status, Thresholds,
    Timestamp,
};

use super::histogram::{Difference, Incomparable, LAST_MINUTES, Latency, Quantile};
use super::links::{self, Network};
use super::view::election_timeout;
use crate::finding::Finding;
use crate::rules::unread;
use crate::wording::{Count, Percent, Span, percent};

const TYPE: ConditionType = ConditionType::EtcdDisk;
const RAISE: Duration = Duration::from_secs(30);
const CLEAR: Duration = Duration::from_secs(120);

/// Fewer writes give no 99th percentile worth a word.
const ENOUGH_WRITES: u64 = 20;
/// So many times the limit for an error is a stall, which is told however rare: 1 s by default, as long as etcd's own
/// election timeout; peaks of 1 to 7 s below a lifetime p99 of 3.7 ms were reported (etcd-io/etcd#9544).
const STALL: f64 = 10.0;
/// etcd's guide wants a p99 of 10 ms for fsync and of 25 ms for a commit of the database (etcd.io, "Frequently Asked
/// Questions"): the limit of the one gives that of the other.
const COMMITS: f64 = 2.5;

pub(super) fn judge(etcd: &EtcdFacts, at: Timestamp, now: Timestamp, limits: &Thresholds) -> Finding {
    match &etcd.metrics {
        Fact::Known { value, at, .. } if now.since(value.latest.at) > LAST_MINUTES => {
            let age = now.since(value.latest.at);
            unmeasured(
                *at,
                &format!("the last scrape is {} old, more than {}", Span(age), Span(LAST_MINUTES)),
            )
        }
        Fact::Known { value, at, .. } => match &value.earlier {
            Some(earlier) => compare(etcd, earlier, value, limits, *at),
            None => unmeasured(*at, "only one scrape has been made; the next one shows a rate"),
        },
        Fact::NotApplicable { reason, .. } => unmeasured(at, reason),
        Fact::Absent { .. } => unmeasured(at, "this member serves no metrics"),
        unknown => match unread(TYPE, "etcd's metrics", unknown, Severity::Info) {
            Some(finding) => finding.advice(format!(
                "Only the disk goes unjudged by that. Outrider asks for metrics at port 2381 of the member's own address, where \
                 RKE2 and K3s serve them, and at its client port{}; see what --listen-metrics-urls of this etcd says.",
                match etcd.local_endpoint.as_str() {
                    "" => String::new(),
                    endpoint => format!(" ({endpoint})"),
                }
            )),
            None => unmeasured(at, "this member serves no metrics"),
        },
    }
}

fn unmeasured(at: Timestamp, why: &str) -> Finding {
    let message = format!("Disk latency is not measured: {why}.");
    Finding::new(TYPE, Status::Unknown, Severity::Info, R::EtcdDiskUnmeasured, at, message)
        .waits(RAISE, Duration::ZERO)
}

/// Writes of one kind between the two scrapes, and what of them is told however few they are.
struct Writes {
    name: &'static str,
    difference: Difference,
    /// Writes that surely took longer than a stall.
    stalls: u64,
}

impl Writes {
    fn of(name: &'static str, difference: Difference, stall: f64) -> Self {
        let stalls = difference.surely_over(stall);
        Self { name, difference, stalls }
    }

    /// Most of them stalled: that needs no percentile.
    fn mostly_stall(&self) -> bool {
        self.stalls * 2 > self.difference.total
    }

    /// "3 of 3 fsync writes took more than 1000 ms, the slowest 3 at least 8192 ms, beyond the last bucket".
    fn stalled_words(&self, stall: f64) -> Option<String> {
        let slowest = self.difference.slowest().filter(|_| self.stalls > 0)?;
        Some(format!(
            "{} of {} {} writes took more than {}, {slowest}",
            self.stalls,
            self.difference.total,
            self.name,
            Latency(stall)
        ))
    }
}

fn compare(
    etcd: &EtcdFacts,
    earlier: &EtcdScrape,
    metrics: &EtcdMetrics,
    limits: &Thresholds,
    at: Timestamp,
) -> Finding {
    let latest = &metrics.latest;
    let span = latest.at.since(earlier.at);
    if latest.at < earlier.at {
        return unmeasured(
            at,
            "the latest scrape is dated before the earlier one: the clock was set back, or they are reversed",
        );
    }
    if span.is_zero() {
        return unmeasured(at, "the two scrapes were made at one instant");
    }
    if span > LAST_MINUTES {
        let apart = format!(
            "the two scrapes are {} apart, more than {}, so a burst would hide between them",
            Span(span),
            Span(LAST_MINUTES)
        );
        return unmeasured(at, &apart);
    }
    let stall = limits.etcd_fsync_error_ms * STALL / 1000.0;
    let fsync = match Difference::new(&earlier.wal_fsync, &latest.wal_fsync) {
        Ok(difference) => Writes::of("fsync", difference, stall),
        Err(Incomparable::Restarted) => {
            return unmeasured(at, "etcd was restarted between the two scrapes");
        }
        Err(Incomparable::Contradictory(words)) => {
            return unmeasured(at, &format!("the fsync histogram contradicts itself: {words}"));
        }
    };
    // The database is committed to the same disk; what is odd about it alone costs its number, not the verdict on fsync.
    let commit = Difference::new(&earlier.backend_commit, &latest.backend_commit).ok();
    let commit = commit.map(|difference| Writes::of("commit", difference, stall));

    let both = || [Some(&fsync), commit.as_ref()].into_iter().flatten();
    let stalled: Vec<String> = both().filter_map(|w| w.stalled_words(stall)).collect();
    let verdict = Verdict { etcd, metrics, limits, span, at };
    if both().any(Writes::mostly_stall) {
        return verdict.slow(Severity::Error, &verdict.numbers(&fsync, commit.as_ref()), p99(&fsync));
    }
    if fsync.difference.total < ENOUGH_WRITES {
        return verdict.too_few(&fsync, &stalled);
    }
    let p99 = fsync.difference.quantile(0.99);
    let ms = p99.seconds * 1000.0;
    let (warn, error) = (limits.etcd_fsync_warn_ms, limits.etcd_fsync_error_ms);
    if p99.or_more && ms <= warn && stalled.is_empty() {
        return unmeasured(at, "its histogram has no bucket above the limits");
    }
    let numbers = verdict.numbers(&fsync, commit.as_ref());
    if ms > error {
        verdict.slow(Severity::Error, &numbers, Some(p99))
    } else if ms > warn {
        verdict.slow(Severity::Warn, &numbers, Some(p99))
    } else if !stalled.is_empty() {
        verdict.stalls(&numbers, p99)
    } else if let Some(commit) =
        commit.as_ref().and_then(self::p99).filter(|p| p.seconds * 1000.0 > warn * COMMITS)
    {
        verdict.commits(&numbers, commit)
    } else {
        let message = format!("The disk is fast enough: {numbers}.");
        Finding::new(TYPE, Status::True, Severity::Ok, R::EtcdDiskFast, at, message).waits(RAISE, CLEAR)
    }
}

/// The percentile where there are writes enough for one.
fn p99(writes: &Writes) -> Option<Quantile> {
    (writes.difference.total >= ENOUGH_WRITES).then(|| writes.difference.quantile(0.99))
}

/// What every verdict on two scrapes needs.
struct Verdict<'a> {
    etcd: &'a EtcdFacts,
    metrics: &'a EtcdMetrics,
    limits: &'a Thresholds,
    span: Duration,
    at: Timestamp,
}

impl Verdict<'_> {
    fn numbers(&self, fsync: &Writes, commit: Option<&Writes>) -> String {
        let latency = match p99(fsync) {
            Some(p99) => format!("fsync p99 is {p99}"),
            None => format!("only {} ended", Count(usize(fsync.difference.total), "fsync write")),
        };
        let committed = match commit.and_then(|c| Some((p99(c)?, c))) {
            Some((p99, _)) => format!(", commit p99 {p99}"),
            None => String::new(),
        };
        let stall = self.limits.etcd_fsync_error_ms * STALL / 1000.0;
        let commit_stalls =
            commit.and_then(|c| c.stalled_words(stall)).map(|words| format!("; {words}")).unwrap_or_default();
        let (over, bound) = fsync.difference.over(self.limits.etcd_fsync_error_ms / 1000.0);
        let slowest = match fsync.difference.slowest() {
            Some(slowest) if over > 0 => format!(", {slowest}"),
            _ => String::new(),
        };
        format!(
            "over the last {} {latency}{committed}; {over} of {} writes ({}) took more than {:.0} ms{slowest}{commit_stalls}; \
             {:.0} leader changes",
            Span(self.span),
            fsync.difference.total,
            Percent(percent(over, fsync.difference.total)),
            bound * 1000.0,
            self.elections()
        )
    }

    fn elections(&self) -> f64 {
        let before = self.metrics.earlier.as_ref().map_or(0.0, |e| e.leader_changes);
        (self.metrics.latest.leader_changes - before).max(0.0)
    }

    fn slow(&self, severity: Severity, numbers: &str, p99: Option<Quantile>) -> Finding {
        let (warn, error) = (self.limits.etcd_fsync_warn_ms, self.limits.etcd_fsync_error_ms);
        let (trips, cause) = self.network();
        let message = format!("The disk is slow now: {numbers}; limits {warn} ms and {error} ms{trips}.");
        let status = if severity == Severity::Error { Status::False } else { Status::True };
        let from = p99.map(|p99| format!(" from {p99}")).unwrap_or_default();
        Finding::new(TYPE, status, severity, R::EtcdDiskSlow, self.at, message).waits(RAISE, CLEAR).advice(format!(
            "{cause} Bring p99{from} below {warn} ms: give etcd's data folder{} a disk of its own (SSD, no shared or \
             thin-provisioned pool) and see what else writes there. Do not restart etcd because it is slow.",
            self.place()
        ))
    }

    /// The percentile is fine, and some writes took so long that nobody was answered meanwhile.
    fn stalls(&self, numbers: &str, p99: Quantile) -> Finding {
        let (trips, _) = self.network();
        let message = format!("The disk stalls now and then: {numbers}{trips}.");
        Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdDiskSlow, self.at, message).waits(RAISE, CLEAR).advice(
            format!(
                "p99 is {p99} and hides them: in such a stall this member answers nobody, and a leader that stalls longer than \
                 the election timeout ({} ms) is replaced. fsync waits for the disk alone, so see what happens to the disk of \
                 etcd's data folder{} then: backups, snapshots of the volume, its rebuild or migration, other writers. Do not \
                 restart etcd because of it.",
                election_timeout(self.etcd).as_millis(),
                self.place()
            ),
        )
    }

    /// fsync is fine, and the database file is written slowly.
    fn commits(&self, numbers: &str, p99: Quantile) -> Finding {
        let limit = self.limits.etcd_fsync_warn_ms * COMMITS;
        let message = format!(
            "fsync is fast enough, and commits of the database are slow: {numbers}; limit {limit} ms for commits."
        );
        Finding::new(TYPE, Status::True, Severity::Warn, R::EtcdDiskSlow, self.at, message).waits(RAISE, CLEAR).advice(
            format!(
                "A commit writes pages all over the database file, so it feels a disk that is slow at scattered writes, other writers, or \
                 very large transactions before fsync does. Bring the p99 of commits from {p99} below {limit} ms: see what else \
                 writes to the disk of etcd's data folder{}, and what writes so much to etcd. Do not restart etcd because it is \
                 slow.",
                self.place()
            ),
        )
    }

    /// Too few writes ended for a percentile: an etcd without load, or a disk on which none ends.
    fn too_few(&self, fsync: &Writes, stalled: &[String]) -> Finding {
        let total = fsync.difference.total;
        let span = Span(self.span);
        let pending = self.metrics.latest.proposals_pending;
        if total == 0 && pending > 0.0 {
            let mut finding = unmeasured(
                self.at,
                &format!("no write ended in {span} while {pending:.0} proposals wait for one"),
            );
            finding.severity = Severity::Warn;
            return finding.advice(format!(
                "Either the disk of etcd's data folder{} hangs (dmesg; processes in state D), or there is no leader to agree \
                 with: see EtcdQuorum first. Do not restart etcd because it waits.",
                self.place()
            ));
        }
        let mut why = format!("only {total} writes in {span}, {ENOUGH_WRITES} are needed");
        if let [_, ..] = stalled {
            why = format!("{why}; but {}", stalled.join("; "));
            let mut finding = unmeasured(self.at, &why);
            finding.severity = Severity::Warn;
            return finding.advice(format!(
                "So few say nothing of every write, but such stalls do not come from load: look at the disk of etcd's data \
                 folder{} (dmesg, the storage below it). Do not restart etcd because of it.",
                self.place()
            ));
        }
        if let Some(slowest) = fsync.difference.slowest() {
            why = format!("{why} ({slowest})");
        }
        unmeasured(self.at, &why)
    }

    /// What the round trips to the peers say beside it: words for the message, and the cause.
    fn network(&self) -> (String, &'static str) {
        match links::network(self.metrics, self.etcd.members.value(), election_timeout(self.etcd)) {
            Network::Fine(trips) => (
                format!("; peer round trip p99 {trips}"),
                "This is the disk, not the network: peers answer in time.",
            ),
            Network::Slow(slow) => (
                format!("; peer round trip p99 is slow too: {slow}"),
                "The disk is slow by itself, for fsync waits for no peer; the way to the named peers is slow as well and \
                 needs a look of its own.",
            ),
            Network::Unmeasured => (
                "; peer round trips were not measured".to_owned(),
                "fsync waits for the disk alone, so this is the disk, not the network, whatever the peers do.",
            ),
        }
    }

    /// The data folder where it is known, to follow the word.
    fn place(&self) -> String {
        let folder = self.etcd.data_folder.as_ref().and_then(Fact::value);
        folder.map(|folder| format!(" ({})", folder.path)).unwrap_or_default()
    }
}

fn usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
