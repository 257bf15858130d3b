//! One node's etcd: learners on their way, disk against network, snapshots (D8, D9, D12).

use outrider_diagnosis::{Finding, judge, latch};
use outrider_protocol::*;

use crate::etcd_verdict::{etcd_node, found, local, membership};
use crate::expect;
use crate::world::{self, Change, ago, etcd, histogram, known, list_mut, orphan, status_mut, unknown};

// ---- learners ----

/// Three voters and the learner n4, a learner for `age` seconds, whose lag went from `before` to `now` in a minute.
fn learner(age: u64, before: u64, now: u64) -> EtcdFacts {
    etcd(4).with(|e| {
        list_mut(e).members[3].is_learner = true;
        let s = status_mut(e, 4);
        s.is_learner = true;
        s.raft_index = 120_000 - now;
        let id = world::member(4).id;
        e.learners_since.insert(id.clone(), ago(age));
        let look = |seconds, lag| LearnerProgress { at: ago(seconds), index: 120_000 - lag, front: 120_000 };
        e.learner_progress.insert(id, vec![look(60, before), look(0, now)]);
    })
}

#[test]
fn d8_a_learner_that_comes_closer_is_waited_for_however_old() {
    for age in [40, 3600] {
        let f = membership(learner(age, 111_000, 55_500));
        expect(
            &f,
            Status::True,
            Severity::Info,
            ReasonCode::EtcdLearnerJoining,
            &[
                "55500 behind",
                "(53 %)",
                "shrank by 55500 in 60 s",
                "at this pace in 60 s",
                "Wait, it is not broken",
            ],
        );
    }
}

#[test]
fn d8_a_learner_that_does_not_come_closer_is_told_with_its_trend() {
    for (before, now, words) in
        [(60_000, 60_000, "has not changed in 60 s"), (60_000, 90_000, "grew by 30000 in 60 s")]
    {
        let f = membership(learner(600, before, now));
        expect(
            &f,
            Status::True,
            Severity::Warn,
            ReasonCode::EtcdLearnerLagging,
            &["n4", words, "port 2380", "Do not remove it while"],
        );
        // Young, it may just have begun.
        assert_eq!(membership(learner(60, before, now)).severity, Severity::Info);
    }
}

#[test]
fn d8_a_learner_that_is_there_and_not_promoted() {
    let f = membership(learner(900, 500, 400));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdLearnerLagging,
        &["caught up and is not promoted", "(99 %)", "from 90 % on"],
    );
}

#[test]
fn d8_the_own_connection_to_a_learner_is_told() {
    let with = |active| {
        learner(600, 60_000, 60_000).with(|e| {
            peers(e, |s| {
                s.peers.insert(world::member(4).id, PeerScrape { active, ..PeerScrape::default() });
            });
        })
    };
    assert!(membership(with(Some(false))).message.contains("connection to n4 is down"));
    assert!(membership(with(Some(true))).message.contains("connection to n4 stands"));
    let f = membership(with(None));
    assert!(!f.message.contains("2380") && f.advice.contains("neither was seen"), "{f:#?}");
}

/// Changes both scrapes.
pub(crate) fn peers(e: &mut EtcdFacts, mut f: impl FnMut(&mut EtcdScrape)) {
    if let Fact::Known { value, .. } = &mut e.metrics {
        value.earlier.iter_mut().chain([&mut value.latest]).for_each(&mut f);
    }
}

// ---- disk against network ----

/// fsync of 400 slow writes in 1000, and round trips to n2 of at most 4 ms, or of 128 to 256 ms.
fn slow_disk(trips: Option<bool>) -> EtcdFacts {
    etcd(3).with(|e| {
        let Fact::Known { value, .. } = &mut e.metrics else { panic!("metrics are known") };
        value.latest.wal_fsync = histogram(600, 400);
        let Some(slow) = trips else { return };
        let of = |n| PeerScrape {
            active: Some(true),
            round_trip: if slow { histogram(0, n) } else { histogram(n, 0) },
            ..PeerScrape::default()
        };
        value.latest.peers.insert(world::member(2).id, of(100));
        if let Some(earlier) = &mut value.earlier {
            earlier.peers.insert(world::member(2).id, of(0));
        }
    })
}

#[test]
fn d9_disk_is_told_from_network_by_the_round_trips() {
    let f = found(slow_disk(Some(false)), ConditionType::EtcdDisk);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdDiskSlow,
        &["peer round trip p99 at most 4.0 ms, to n2", "This is the disk, not the network"],
    );
    let f = found(slow_disk(Some(true)), ConditionType::EtcdDisk);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdDiskSlow,
        &["slow too: n2 (2", "slow by itself", "needs a look of its own"],
    );
    let f = found(slow_disk(None), ConditionType::EtcdDisk);
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdDiskSlow, &["round trips were not measured"]);
}

#[test]
fn d9_leader_changes_are_told_in_numbers_and_by_their_cause() {
    let changes = |mut e: EtcdFacts, n: f64| {
        if let Fact::Known { value, .. } = &mut e.metrics {
            value.latest.leader_changes = 2.0 + n;
        }
        local(e)
    };
    let unstable = |f: &Finding, words: &[&str]| {
        expect(f, Status::True, Severity::Warn, ReasonCode::EtcdLeaderUnstable, words);
        assert!(f.advice.contains("Do not restart"), "{f:#?}");
    };
    unstable(&changes(slow_disk(Some(false)), 5.0), &["5 times in 5 min", "disk, not the network"]);
    unstable(&changes(slow_disk(Some(true)), 3.0), &["both slow"]);
    let network = slow_disk(Some(true)).with(|e| {
        if let Fact::Known { value, .. } = &mut e.metrics {
            value.latest.wal_fsync = histogram(1000, 0);
        }
    });
    unstable(&changes(network, 4.0), &["network, not this disk", "n2"]);
    unstable(&changes(etcd(3), 3.0), &["way to the peers was not measured", "the member that leads"]);
    assert_eq!(changes(etcd(3), 2.0).reason, ReasonCode::EtcdMemberAnswers);
    // The counter began anew with the process.
    assert_eq!(changes(etcd(3), -2.0).reason, ReasonCode::EtcdMemberAnswers);
}

#[test]
fn d9_what_is_said_of_leader_changes_is_what_is_said_of_the_disk() {
    type Spoil = fn(&mut EtcdScrape);
    let commits = |s: &mut EtcdScrape| s.backend_commit = histogram(600, 400);
    // Slow whichever way, fast, and measured by nothing.
    let disks: [(ReasonCode, Spoil); 8] = [
        (ReasonCode::EtcdDiskFast, |_| {}),
        (ReasonCode::EtcdDiskSlow, |s| s.wal_fsync = histogram(600, 400)),
        (ReasonCode::EtcdDiskSlow, |s| s.wal_fsync = stalls(1000, 5)),
        (ReasonCode::EtcdDiskSlow, commits),
        (ReasonCode::EtcdDiskSlow, |s| s.backend_commit = stalls(1000, 5)),
        (ReasonCode::EtcdDiskUnmeasured, |s| (s.wal_fsync, s.proposals_pending) = (histogram(0, 0), 40.0)),
        (ReasonCode::EtcdDiskUnmeasured, |s| s.wal_fsync = histogram(3, 0)),
        (ReasonCode::EtcdDiskUnmeasured, |s| s.wal_fsync = stalls(3, 1)),
    ];
    for (reason, spoil) in disks {
        for trips in [None, Some(false), Some(true)] {
            let e = slow_disk(trips).with(|e| {
                let Fact::Known { value, .. } = &mut e.metrics else { panic!("metrics are known") };
                (value.latest.wal_fsync, value.latest.leader_changes) = (histogram(1000, 0), 12.0);
                spoil(&mut value.latest);
            });
            let disk = found(e.clone(), ConditionType::EtcdDisk);
            assert_eq!(disk.reason, reason, "{disk:#?}");
            let f = local(e);
            expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdLeaderUnstable, &["10 times"]);
            let fast = reason == ReasonCode::EtcdDiskFast;
            let says = |words: &str| f.advice.contains(words);
            assert_eq!(says("Neither this disk nor a peer is slow"), fast && trips == Some(false), "{f:#?}");
            assert_eq!(says("not this disk"), fast && trips == Some(true), "{f:#?}");
            assert_eq!(says("see EtcdDisk"), !fast, "{f:#?}");
            let unmeasured = |what: &str| f.message.contains(&format!("{what}: not measured"));
            let is_unmeasured = reason == ReasonCode::EtcdDiskUnmeasured;
            let is_doubted = is_unmeasured && disk.severity == Severity::Warn;
            assert_eq!(unmeasured("this disk"), is_unmeasured && !is_doubted, "{f:#?}");
            assert_eq!(says("This disk may be why: see EtcdDisk of n1 first"), is_doubted, "{f:#?}");
            assert_eq!(unmeasured("peer round trips"), trips.is_none(), "{f:#?}");
            assert!(!f.message.contains("fine or not measured"), "{f:#?}");
        }
    }
    // Counters of a process that began anew between the two looks say nothing of the disk.
    let e = etcd(3).with(|e| {
        let Fact::Known { value, .. } = &mut e.metrics else { panic!("metrics are known") };
        value.latest.leader_changes = 12.0;
        value.earlier.iter_mut().for_each(|s| s.wal_fsync = histogram(5000, 0));
    });
    assert!(local(e).advice.contains("Neither this disk nor the way to the peers was measured"));
}

/// `fast` observations of at most 4 ms and `slow` of 1 to 2 s.
fn stalls(fast: u64, slow: u64) -> Histogram {
    let mut h = histogram(fast, slow);
    h.buckets.iter_mut().filter(|(bound, _)| *bound < 2.0).for_each(|(_, n)| *n = (*n).min(fast));
    h.sum += slow as f64;
    h
}

#[test]
fn a_member_without_leader_names_the_connections_that_are_down() {
    let f = local(etcd(3).with(|e| {
        orphan(e, 1);
        peers(e, |s| {
            s.peers.insert(world::member(3).id, PeerScrape { active: Some(false), ..PeerScrape::default() });
        });
    }));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoLeader,
        &["2380 are down to n3", "Do not restart"],
    );
}

// ---- snapshots ----

pub(crate) fn snapshots(age: u64, change: impl FnOnce(&mut Snapshots)) -> Option<Fact<Snapshots>> {
    let mut snapshots = Snapshots {
        folder: "/snapshots".into(),
        count: 5,
        newest: Some(SnapshotFile { name: "etcd-snapshot-n1".into(), at: ago(age), size_bytes: 50_000_000 }),
        too_small: None,
        object_storage: false,
        schedule_disabled: false,
    };
    change(&mut snapshots);
    Some(known(snapshots))
}

#[test]
fn the_age_of_the_newest_snapshot() {
    let of = |snapshots| found(etcd(3).with(|e| e.snapshots = snapshots), ConditionType::EtcdSnapshots);
    let f = of(snapshots(11 * 3600, |_| {}));
    expect(
        &f,
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdSnapshotsFresh,
        &[" UTC, in ", "/snapshots", "5 snapshots"],
    );
    let f = of(snapshots(26 * 3600, |s| s.object_storage = true));
    let words = ["26 h old", "limit 25 h", "object storage"];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdSnapshotsStale, &words);
    let f = of(snapshots(0, |s| (s.newest, s.count) = (None, 0)));
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdSnapshotsMissing, &["/snapshots", "12 h"]);
    // Nothing here, and object storage where nobody looked: unknown, not missing, however little else is known.
    let f = of(snapshots(0, |s| (s.newest, s.count, s.object_storage) = (None, 0, true)));
    let words = ["Whether there is an etcd snapshot is not known", "/snapshots", "object storage", "25 h"];
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::EtcdSnapshotsUnseen, &words);
    assert!(!f.message.contains("There is no"), "{f:#?}");
    let f = of(snapshots(0, |s| (s.newest, s.schedule_disabled) = (None, true)));
    expect(&f, Status::True, Severity::Info, ReasonCode::EtcdSnapshotsDisabled, &["switched off"]);
    let f = of(Some(world::absent("/snapshots")));
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdSnapshotsMissing, &["/snapshots"]);
    let f = of(Some(unknown(UnknownCause::PermissionDenied)));
    expect(&f, Status::Unknown, Severity::Warn, ReasonCode::PermissionDenied, &[]);
    // Agents that do not look, and machines without the thing, have no such condition.
    for snapshots in [None, Some(Fact::not_applicable("external datastore", world::now()))] {
        let j = judge(&etcd_node(etcd(3).with(|e| e.snapshots = snapshots.clone())));
        assert!(j.findings.iter().all(|f| f.condition_type != ConditionType::EtcdSnapshots));
    }
}

#[test]
fn from_what_is_too_small_nothing_is_restored_and_the_one_before_it_is_named() {
    let file =
        |name: &str, age, size_bytes| Some(SnapshotFile { name: name.into(), at: ago(age), size_bytes });
    let old = || file("etcd-snapshot-n1-1", 12 * 3600, 50_000_000);
    let older_agent = |size| snapshots(0, |s| s.newest = file("etcd-snapshot-n1-2", 60, size));
    for (snapshots, words, offered) in [
        (
            snapshots(0, |s| (s.newest, s.too_small) = (old(), file("etcd-snapshot-n1-2", 60, 0))),
            [
                "etcd-snapshot-n1-2 is empty",
                "the newest that can be used is etcd-snapshot-n1-1 (50.0 MB) of ",
            ],
            "Which is the newest snapshot (etcd-snapshot-n1-1 (50.0 MB) of ",
        ),
        (
            snapshots(0, |s| (s.newest, s.too_small) = (old(), file("etcd-snapshot-n1-2.zip", 60, 22))),
            ["etcd-snapshot-n1-2.zip has only 22 bytes", "the newest that can be used is etcd-snapshot-n1-1"],
            "Which is the newest snapshot (etcd-snapshot-n1-1 (50.0 MB) of ",
        ),
        (
            snapshots(0, |s| {
                (s.newest, s.too_small, s.count) = (None, file("etcd-snapshot-n1-2", 60, 10), 0)
            }),
            ["etcd-snapshot-n1-2 has only 10 bytes", "no other was seen"],
            "(none that can be used is known in /snapshots: etcd-snapshot-n1-2 has only 10 bytes)",
        ),
        // As an agent tells it that counts such a file.
        (
            older_agent(0),
            ["etcd-snapshot-n1-2 is empty", "no other was seen"],
            "(none that can be used is known in /snapshots: etcd-snapshot-n1-2 is empty)",
        ),
    ] {
        let f = found(etcd(3).with(|e| e.snapshots = snapshots.clone()), ConditionType::EtcdSnapshots);
        expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdSnapshotsMissing, &words);
        let lost = etcd(3).with(|e| {
            orphan(e, 1);
            world::kill(e, 2, 60);
            world::kill(e, 3, 60);
            e.snapshots = snapshots;
        });
        let f = found(lost, ConditionType::EtcdQuorum);
        assert!(f.advice.contains(offered), "{f:#?}");
    }
}

#[test]
fn findings_of_one_condition_keep_their_advice() {
    let f = membership(learner(600, 60_000, 60_000).with(|e| {
        status_mut(e, 2).cluster_id = "c9".into();
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n4".into()]);
    }));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdClusterIdMismatch,
        &[
            "Also: Learner n4",
            "Also: Ghost member: n3",
            "port 2380 is open both ways between n4",
            "Do not remove n3 with id",
        ],
    );
}

#[test]
fn what_is_normal_for_an_hour_is_not_for_a_day() {
    let mut f = membership(etcd(3));
    f.severity = Severity::Info;
    f.reason = ReasonCode::EtcdVersionSkew;
    let f = f.waits(std::time::Duration::ZERO, std::time::Duration::ZERO);
    let f = f.escalates(std::time::Duration::from_secs(3600), Severity::Warn);
    let judgement = outrider_diagnosis::Judgement { findings: vec![f], ..Default::default() };
    let at = |seconds| world::ahead(seconds);
    let first = latch(&[], &judgement, at(0));
    let later = latch(&first.latches, &judgement, at(3599));
    assert_eq!((later.conditions[0].severity, later.transitions.len()), (Severity::Info, 0));
    let graver = latch(&later.latches, &judgement, at(3600));
    assert_eq!((graver.conditions[0].severity, graver.transitions.len()), (Severity::Warn, 1));
    let same = latch(&graver.latches, &judgement, at(9000));
    assert_eq!((same.conditions[0].severity, same.transitions.len()), (Severity::Warn, 0));
}
