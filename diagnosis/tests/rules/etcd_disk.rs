//! Case SP3: disk latency from histogram differences.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::etcd_verdict::etcd_node;
use crate::world::{self, Change, ago, etcd, histogram, known, scrape, unknown};
use crate::{expect, only};

fn disk(earlier: Option<EtcdScrape>, latest: EtcdScrape) -> Finding {
    judged(known(EtcdMetrics { earlier, latest }))
}

fn judged(metrics: Fact<EtcdMetrics>) -> Finding {
    only(&judge(&etcd_node(etcd(3).with(|e| e.metrics = metrics))), ConditionType::EtcdDisk)
}

#[test]
fn sp3_a_burst_hidden_by_the_lifetime() {
    // Ten million fast writes over its life; 400 of the last 1000 took more than 128 ms.
    let f = disk(Some(scrape(300, 10_000_000, 0)), scrape(0, 10_000_600, 400));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdDiskSlow,
        &[
            "400 of 1000 writes",
            "40 %",
            "128 ms",
            "5 min",
            "fsync p99 is 25",
            "not the network",
            "Do not restart",
        ],
    );
}

#[test]
fn a_burst_that_is_over_is_over() {
    let f = disk(Some(scrape(300, 1_000, 5_000)), scrape(0, 3_000, 5_000));
    expect(&f, Status::True, Severity::Ok, ReasonCode::EtcdDiskFast, &["0 of 2000 writes"]);
}

#[test]
fn each_limit_has_its_severity() {
    let at = |bound_ms: f64| {
        let buckets = [0.001, 0.008, 0.016, 0.128, 0.256];
        let count = |b: f64| if b * 1000.0 >= bound_ms { 1000 } else { 0 };
        let mut all: Vec<(f64, u64)> = buckets.iter().map(|b| (*b, count(*b))).collect();
        all.push((f64::INFINITY, 1000));
        let zero = Histogram { buckets: all.iter().map(|(b, _)| (*b, 0)).collect(), count: 0, sum: 0.0 };
        let mut earlier = scrape(60, 0, 0);
        earlier.wal_fsync = zero;
        let mut latest = scrape(0, 0, 0);
        latest.wal_fsync = Histogram { buckets: all, count: 1000, sum: 1.0 };
        disk(Some(earlier), latest)
    };
    assert_eq!((at(8.0).status, at(8.0).severity), (Status::True, Severity::Ok));
    assert_eq!((at(16.0).status, at(16.0).severity), (Status::True, Severity::Warn));
    assert_eq!((at(128.0).status, at(128.0).severity), (Status::False, Severity::Error));
    // Beyond every finite bucket.
    expect(&at(1000.0), Status::False, Severity::Error, ReasonCode::EtcdDiskSlow, &["more than 256 ms"]);
}

#[test]
fn what_cannot_be_compared_is_unmeasured() {
    let unmeasured = |f: Finding, word: &str| {
        expect(&f, Status::Unknown, Severity::Info, ReasonCode::EtcdDiskUnmeasured, &[word]);
    };
    unmeasured(disk(None, scrape(0, 1000, 400)), "only one scrape");
    unmeasured(disk(Some(scrape(300, 1000, 0)), scrape(0, 500, 400)), "restarted");
    unmeasured(disk(Some(scrape(300, 1000, 0)), scrape(0, 1005, 5)), "only 10 writes");
    unmeasured(disk(Some(scrape(0, 0, 0)), scrape(0, 1000, 0)), "one instant");
    let mut backwards = scrape(0, 1000, 0);
    backwards.at = ago(900);
    unmeasured(disk(Some(scrape(300, 0, 0)), backwards), "dated before the earlier one");
    let mut empty = scrape(0, 1000, 0);
    empty.wal_fsync.buckets.clear();
    unmeasured(disk(Some(scrape(300, 0, 0)), empty), "no bucket");
    unmeasured(judged(Fact::not_applicable("metrics are off", world::now())), "metrics are off");
    unmeasured(judged(world::absent("http://127.0.0.1:2381/metrics")), "serves no metrics");
    let f = judged(unknown(UnknownCause::ConnectionRefused));
    expect(&f, Status::Unknown, Severity::Info, ReasonCode::ConnectionRefused, &[]);
}

#[test]
fn scrapes_hours_apart_or_old_say_nothing_of_now() {
    for (earlier, latest, word) in [
        (3 * 3600, 0, "3 h apart, more than 30 min"),
        (1801, 0, "30 min apart"),
        (3 * 3600 + 300, 3 * 3600, "the last scrape is 3 h old"),
    ] {
        let f = disk(Some(scrape(earlier, 0, 0)), scrape(latest, 1000, 400));
        expect(&f, Status::Unknown, Severity::Info, ReasonCode::EtcdDiskUnmeasured, &[word]);
    }
    // Within half an hour the span is said as it is.
    let f = disk(Some(scrape(1740, 0, 0)), scrape(0, 1000, 400));
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdDiskSlow, &["over the last 29 min"]);
    // Nor are leader changes of half a day a trouble of now.
    let mut latest = scrape(0, 1000, 0);
    latest.leader_changes = 9.0;
    let metrics = known(EtcdMetrics { earlier: Some(scrape(7200, 0, 0)), latest });
    let j = judge(&etcd_node(etcd(3).with(|e| e.metrics = metrics)));
    assert_eq!(only(&j, ConditionType::EtcdMemberHealthy).reason, ReasonCode::EtcdMemberAnswers);
}

#[test]
fn buckets_that_only_one_scrape_has_are_left_out() {
    let mut earlier = scrape(300, 0, 0);
    earlier.wal_fsync.buckets.retain(|(b, _)| *b != 0.004 && *b != 0.008);
    let f = disk(Some(earlier), scrape(0, 1000, 0));
    assert_eq!(f.reason, ReasonCode::EtcdDiskSlow, "read as at most 16 ms, not as nothing: {f:#?}");
    assert_eq!(histogram(1, 1).buckets.len(), 15);
}

/// `of` writes: (upper bound in seconds, how many); beyond 8.192 s with a bound of infinity.
fn writes(of: &[(f64, u64)]) -> Histogram {
    let total = of.iter().map(|(_, n)| n).sum();
    let mut buckets: Vec<(f64, u64)> = (0..14)
        .map(|i| 0.001 * f64::from(1 << i))
        .map(|bound| (bound, of.iter().filter(|(b, _)| *b <= bound).map(|(_, n)| n).sum()))
        .collect();
    buckets.push((f64::MAX, total));
    Histogram { buckets, count: total, sum: 0.0 }
}

fn since(fsync: Histogram, commit: Histogram) -> (EtcdScrape, EtcdScrape) {
    let (mut earlier, mut latest) = (scrape(300, 0, 0), scrape(0, 0, 0));
    (earlier.wal_fsync, earlier.backend_commit) = (writes(&[]), writes(&[]));
    (latest.wal_fsync, latest.backend_commit) = (fsync, commit);
    (earlier, latest)
}

fn of_writes(fsync: &[(f64, u64)], commit: &[(f64, u64)]) -> Finding {
    let (earlier, latest) = since(writes(fsync), writes(commit));
    disk(Some(earlier), latest)
}

const FAST: f64 = 0.004;
const BEYOND: f64 = f64::INFINITY;

#[test]
fn few_writes_that_all_hang_are_a_slow_disk_and_not_unmeasured() {
    for (n, bound, words) in [
        (1, BEYOND, "at least 8192 ms, beyond the last bucket"),
        (3, BEYOND, "at least 8192 ms, beyond the last bucket"),
        (19, BEYOND, "at least 8192 ms"),
        (5, 8.192, "between 4096 ms and 8192 ms"),
        (5, 2.048, "between 1024 ms and 2048 ms"),
    ] {
        let f = of_writes(&[(bound, n)], &[]);
        let counted = format!("{n} of {n} writes");
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdDiskSlow, &[words, &counted]);
        // The same of the database's commits, with fsync as ever.
        let f = of_writes(&[(FAST, 1000)], &[(bound, n)]);
        let counted = format!("{n} of {n} commit writes");
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdDiskSlow, &[words, &counted]);
    }
    // One of few: told, and no verdict on the disk.
    let f = of_writes(&[(FAST, 9), (BEYOND, 1)], &[]);
    let words = ["only 10 writes", "1 of 10 fsync writes", "at least 8192 ms"];
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::EtcdDiskUnmeasured, &words);
    // Few and slow below a stall: unmeasured as before, with the numbers.
    let f = of_writes(&[(0.256, 10)], &[]);
    expect(
        &f,
        Status::Unknown,
        Severity::Info,
        ReasonCode::EtcdDiskUnmeasured,
        &["only 10 writes", "between 128 ms and 256 ms"],
    );
}

#[test]
fn stalls_below_the_percentile_are_told() {
    for (slow, bound, words) in [
        (9, BEYOND, "the slowest 9 at least 8192 ms, beyond the last bucket"),
        (1, BEYOND, "the slowest 1 at least 8192 ms"),
        (9, 2.048, "the slowest 9 between 1024 ms and 2048 ms"),
    ] {
        let f = of_writes(&[(FAST, 1000 - slow), (bound, slow)], &[]);
        expect(
            &f,
            Status::True,
            Severity::Warn,
            ReasonCode::EtcdDiskSlow,
            &["stalls now and then", words, "5000 ms"],
        );
        let f = of_writes(&[(FAST, 1000)], &[(FAST, 1000 - slow), (bound, slow)]);
        let commit = format!("{slow} of 1000 commit writes");
        expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdDiskSlow, &[words, &commit]);
    }
    // Slower than the limit, under the percentile and no stall: the numbers, and fine.
    let f = of_writes(&[(FAST, 991), (0.512, 9)], &[]);
    expect(
        &f,
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdDiskFast,
        &["9 of 1000 writes", "between 256 ms and 512 ms"],
    );
}

#[test]
fn a_disk_on_which_no_write_ends_is_told_while_somebody_waits() {
    let waiting = |pending| {
        let (earlier, mut latest) = since(writes(&[]), writes(&[]));
        latest.proposals_pending = pending;
        disk(Some(earlier), latest)
    };
    let words = ["no write ended in 5 min while 12 proposals wait", "EtcdQuorum first"];
    expect(&waiting(12.0), Status::Unknown, Severity::Warn, ReasonCode::EtcdDiskUnmeasured, &words);
    expect(
        &waiting(0.0),
        Status::Unknown,
        Severity::Info,
        ReasonCode::EtcdDiskUnmeasured,
        &["only 0 writes"],
    );
}

#[test]
fn histograms_that_cannot_be_are_no_measurement() {
    let broken = |change: fn(&mut Histogram)| {
        let (earlier, mut latest) = since(writes(&[(FAST, 1000)]), writes(&[]));
        change(&mut latest.wal_fsync);
        disk(Some(earlier), latest)
    };
    for (change, word) in [
        (
            (|h| h.buckets[5].1 = 10) as fn(&mut Histogram),
            "1000 writes of at most 16.0 ms, but 10 of at most 32.0 ms",
        ),
        (|h| h.buckets[13].1 = 5000, "but 1000 in all"),
        (|h| h.count = 900, "its last bucket counts 1000 writes and its total 900"),
        (|h| h.buckets.push((0.004, 7)), "of at most 4.0 ms, but"),
    ] {
        let f = broken(change);
        expect(&f, Status::Unknown, Severity::Info, ReasonCode::EtcdDiskUnmeasured, &[word]);
    }
    // Only the order is odd, the last bucket is missing or written otherwise, or the total is: still the same numbers.
    for change in [
        (|h| h.buckets.reverse()) as fn(&mut Histogram),
        |h| h.buckets.truncate(14),
        |h| h.buckets[14].0 = f64::INFINITY,
        |h| h.buckets[14].0 = 1e300,
        |h| h.count = 0,
    ] {
        let f = broken(change);
        expect(
            &f,
            Status::True,
            Severity::Ok,
            ReasonCode::EtcdDiskFast,
            &["0 of 1000 writes", "fsync p99 is 4.0 ms"],
        );
    }
    // Without the last bucket the highest finite one still counts what it counts.
    let (earlier, mut latest) = since(writes(&[(8.192, 1000)]), writes(&[]));
    latest.wal_fsync.buckets.truncate(14);
    let f = disk(Some(earlier), latest);
    assert!(f.message.contains("fsync p99 is 8151 ms") && !f.message.contains("more than 8192"), "{f:#?}");
}

#[test]
fn a_counter_that_went_back_anywhere_is_a_restart() {
    let restarted = |change: fn(&mut EtcdScrape)| {
        let mut earlier = scrape(300, 1000, 100);
        change(&mut earlier);
        disk(Some(earlier), scrape(0, 2000, 200))
    };
    for change in [
        (|s| s.wal_fsync = histogram(9000, 0)) as fn(&mut EtcdScrape),
        // The total has outgrown the old one, and one bucket has not.
        |s| s.wal_fsync = histogram(2100, 0),
        |s| s.wal_fsync.sum = 1e6,
    ] {
        let f = restarted(change);
        expect(&f, Status::Unknown, Severity::Info, ReasonCode::EtcdDiskUnmeasured, &["restarted"]);
    }
}

#[test]
fn a_percentile_beyond_a_last_bucket_between_the_limits_is_a_warning() {
    let coarse = |mut h: Histogram| {
        h.buckets.retain(|(bound, _)| *bound < 0.1 || *bound > 1e6);
        h
    };
    let (earlier, latest) = since(coarse(writes(&[(FAST, 900), (0.256, 100)])), writes(&[]));
    let f = disk(Some(earlier), latest);
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdDiskSlow, &["fsync p99 is more than 64.0 ms"]);
}

#[test]
fn slow_commits_are_told_though_fsync_is_fine() {
    let commits = |slow: u64| {
        let latest = scrape(0, 1000, 0);
        disk(Some(scrape(300, 0, 0)), EtcdScrape { backend_commit: histogram(1000 - slow, slow), ..latest })
    };
    let words = ["fsync is fast enough, and commits", "commit p99", "limit 25 ms"];
    expect(&commits(50), Status::True, Severity::Warn, ReasonCode::EtcdDiskSlow, &words);
    assert_eq!(commits(0).reason, ReasonCode::EtcdDiskFast);
}
