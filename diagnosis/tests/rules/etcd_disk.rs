//! Case SP3: disk latency from histogram differences.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::etcd_quorum::etcd_node;
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
    unmeasured(disk(Some(scrape(300, 0, 0)), backwards), "one instant");
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
