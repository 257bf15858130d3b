//! One node's etcd: peer URLs, the data folder, learners on their way, disk against network, large databases, snapshots
//! (D8, D9, D11, D12, D13, D18, D19, D20).

use outrider_diagnosis::{Finding, judge, latch};
use outrider_protocol::*;

use crate::etcd_verdict::{etcd_node, found, local, membership};
use crate::expect;
use crate::world::{self, Change, ago, etcd, histogram, kill, known, list_mut, orphan, status_mut, unknown};

// ---- the data folder ----

fn folder(change: impl FnOnce(&mut DataFolder)) -> Option<Fact<DataFolder>> {
    let mut folder = DataFolder {
        path: "/var/lib/rancher/rke2/server/db/etcd".into(),
        tombstone: false,
        reset_flag: false,
        free_bytes: Some(40_000_000_000),
    };
    change(&mut folder);
    Some(known(folder))
}

#[test]
fn d18_a_removed_member_is_to_be_emptied() {
    let f = local(etcd(3).with(|e| {
        kill(e, 1, 300);
        e.data_folder = folder(|f| f.tombstone = true);
    }));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdMemberRemoved,
        &["server/db/etcd", "permanently removed", "wipe the data and rejoin", "same token"],
    );
    // Under a member that runs it is for the next start: K3s and RKE2 move the folder away then.
    for (n, price) in [(3, "counts as a ghost"), (1, "data of the whole cluster")] {
        let f = local(etcd(n).with(|e| e.data_folder = folder(|f| f.tombstone = true)));
        let words = ["n1 answers, and a tombstone lies in", "Do not restart this server", price];
        expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdMemberRemoved, &words);
    }
}

#[test]
fn d18_nothing_is_emptied_before_a_cluster_is_seen_to_live() {
    let removed = |n: usize, change: &dyn Fn(&mut EtcdFacts)| {
        local(etcd(n).with(|e| {
            kill(e, 1, 300);
            e.data_folder = folder(|f| f.tombstone = true);
            change(e);
        }))
    };
    let f = removed(4, &|_| {});
    assert!(f.advice.contains("answering with a leader: n2, n3, n4"), "{f:#?}");
    // Nobody answers, nobody is there, nobody sees a leader, or the one copy that was reset lies here.
    type Spoil<'a> = &'a dyn Fn(&mut EtcdFacts);
    let alone: [(usize, Spoil<'_>); 4] = [
        (4, &|e| (2..=4).for_each(|n| kill(e, n, 300))),
        (1, &|_| {}),
        (3, &|e| (2..=3).for_each(|n| orphan(e, n))),
        (3, &|e| {
            e.data_folder = folder(|f| {
                f.tombstone = true;
                f.reset_flag = true;
            })
        }),
    ];
    for (n, change) in alone {
        let f = removed(n, change);
        let words = ["Do not empty /var/lib", "keeps a copy"];
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdMemberRemoved, &words);
        assert!(!f.advice.contains("empties"), "{f:#?}");
    }
}

#[test]
fn a_member_on_a_full_disk_needs_room_and_no_restart() {
    let full = |free, down| {
        local(etcd(3).with(|e| {
            if down {
                kill(e, 1, 60);
            }
            e.data_folder = folder(|f| f.free_bytes = free);
        }))
    };
    expect(
        &full(Some(4096), true),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdMemberDown,
        &["4.1 kB (4096 bytes) left", "server/db/etcd", "Make room", "no alarm to clear"],
    );
    for free in [Some(64 * 1024 * 1024), None] {
        let f = full(free, true);
        assert_eq!(f.reason, ReasonCode::EtcdMemberDown);
        assert!(!f.advice.contains("Make room"), "{f:#?}");
    }
    assert_eq!(
        full(Some(0), false).reason,
        ReasonCode::EtcdMemberAnswers,
        "it runs on as long as it can write"
    );
}

#[test]
fn a_member_whose_peers_hear_it_is_not_dead_because_its_client_port_is_closed() {
    let closed = |active| {
        let e = etcd(3).with(|e| {
            (2..=3).for_each(|n| kill(e, n, 60));
            for n in 2..=3 {
                peers(e, |s| {
                    s.peers.insert(world::member(n).id, PeerScrape { active, ..PeerScrape::default() });
                });
            }
        });
        found(e, ConditionType::EtcdQuorum)
    };
    expect(
        &closed(Some(true)),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdVotersUnseen,
        &["its raft connection on port 2380 stands", "client port (2379) of n2, n3"],
    );
    assert_eq!(closed(Some(false)).severity, Severity::Error);
}

#[test]
fn d19_after_a_reset_the_others_come_back_empty() {
    let f = local(etcd(1).with(|e| e.data_folder = folder(|f| f.reset_flag = true)));
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdClusterReset,
        &["its only member now", "stopped", "data folder emptied", "same token"],
    );
    // Whoever is in the list belongs to the cluster as it is now.
    let f = local(etcd(3).with(|e| e.data_folder = folder(|f| f.reset_flag = true)));
    let words = ["3 members now: n1, n2, n3", "Empty nothing on the servers of n1, n2, n3", "left over"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdClusterReset, &words);
    assert!(!f.advice.contains("Before the others join"), "{f:#?}");
    let f = local(etcd(1).with(|e| {
        kill(e, 1, 60);
        e.data_folder = folder(|f| f.reset_flag = true);
    }));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdMemberDown,
        &["reset-flag", "do not reset again"],
    );
}

#[test]
fn d19_a_living_cluster_is_not_emptied_for_a_server_that_was_reset() {
    let f = local(etcd(4).with(|e| {
        kill(e, 4, 60);
        e.endpoints[0].local = false;
        e.endpoints[3].local = true;
        e.data_folder = folder(|f| f.reset_flag = true);
    }));
    let words = ["empty no data folder", "answering with a leader: n1, n2, n3", "holds the data that counts"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdMemberDown, &words);
    assert!(!f.advice.contains("only then the others"), "{f:#?}");
}

#[test]
fn d19_what_to_ask_before_a_reset_stands_below_a_lost_quorum() {
    let lost = |snapshots| {
        let e = etcd(3).with(|e| {
            kill(e, 2, 60);
            kill(e, 3, 60);
            orphan(e, 1);
            e.snapshots = snapshots;
        });
        found(e, ConditionType::EtcdQuorum)
    };
    let words = ["Bring 1 of n2, n3 back", "Do not restart n1", "other members stopped", "token the same"];
    let f = lost(None);
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdQuorumLost, &words);
    assert!(f.advice.contains("none is known here"), "{}", f.advice);
    let f = lost(snapshots(0, |s| (s.newest, s.object_storage) = (None, true)));
    assert!(f.advice.contains("object storage, where they go as well, was not looked at"), "{}", f.advice);
    let f = lost(snapshots(3 * 3600, |_| {}));
    assert!(f.advice.contains("etcd-snapshot-n1 (50.0 MB) of "), "{}", f.advice);
}

fn sized(size: i64, free: Option<u64>) -> EtcdFacts {
    etcd(3).with(|e| {
        let s = status_mut(e, 1);
        (s.db_size_bytes, s.db_in_use_bytes, s.quota_bytes) = (size, size / 2, 8_000_000_000);
        e.data_folder = folder(|f| f.free_bytes = free);
    })
}

#[test]
fn d20_a_large_database_says_how_long_and_how_much() {
    let f = found(sized(4_000_000_000, Some(40_000_000_000)), ConditionType::EtcdSpace);
    expect(
        &f,
        Status::True,
        Severity::Info,
        ReasonCode::EtcdDatabaseLarge,
        &["n1", "about 20 s", "about 4.0 GB of free disk", "40.0 GB free"],
    );
    let f = found(sized(7_000_000_000, Some(3_000_000_000)), ConditionType::EtcdSpace);
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdDatabaseLarge,
        &["about 35 s, more than the 30 s", "3.0 GB free", "Make room"],
    );
    let f = found(sized(4_000_000_000, None), ConditionType::EtcdSpace);
    assert_eq!((f.severity, &f.reason), (Severity::Info, &ReasonCode::EtcdDatabaseLarge), "{f:#?}");
    let f = found(sized(900_000_000, Some(100_000_000)), ConditionType::EtcdSpace);
    assert_eq!(f.reason, ReasonCode::EtcdSpaceFree, "{f:#?}");
}

#[test]
fn a_full_file_system_is_told_while_etcd_still_runs() {
    let words = [
        "has 0 bytes left",
        "67.1 MB",
        "ends at the first write that fails",
        "Make room on that file system",
    ];
    let f = found(sized(900_000_000, Some(0)), ConditionType::EtcdSpace);
    expect(&f, Status::True, Severity::Error, ReasonCode::EtcdSpaceLow, &words);
    // What is wrong besides keeps its say, and the cure of the disk comes first.
    let f = found(
        sized(8_000_000_000, Some(0)).with(|e| {
            e.alarms = known(vec![AlarmFacts { member_id: world::member(1).id, kind: "NOSPACE".into() }]);
        }),
        ConditionType::EtcdSpace,
    );
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoSpace, &words);
    assert!(f.advice.starts_with("Make room on that file system"), "{f:#?}");
    // Down, it is told as the cause of that.
    let f =
        found(sized(900_000_000, Some(0)).with(|e| world::kill(e, 1, 600)), ConditionType::EtcdMemberHealthy);
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdMemberDown, &["has 0 bytes left"]);
}

#[test]
fn d20_a_cure_says_whether_there_is_room_for_it() {
    let full = |free| {
        sized(8_000_000_000, Some(free)).with(|e| {
            status_mut(e, 1).db_in_use_bytes = 1_000_000_000;
            e.alarms = known(vec![AlarmFacts { member_id: world::member(1).id, kind: "NOSPACE".into() }]);
        })
    };
    let f = found(full(2_000_000_000), ConditionType::EtcdSpace);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoSpace,
        &["has only 2.0 GB free, so make room first", "about 40 s", "then clears the alarm"],
    );
    assert!(found(full(90_000_000_000), ConditionType::EtcdSpace).advice.contains("90.0 GB free"));
}

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
fn peers(e: &mut EtcdFacts, mut f: impl FnMut(&mut EtcdScrape)) {
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
        &["slow too: n2 2", "slow by itself", "needs a look of its own"],
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
    unstable(&changes(etcd(3), 3.0), &["Neither this disk nor a peer"]);
    assert_eq!(changes(etcd(3), 2.0).reason, ReasonCode::EtcdMemberAnswers);
    // The counter began anew with the process.
    assert_eq!(changes(etcd(3), -2.0).reason, ReasonCode::EtcdMemberAnswers);
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

fn snapshots(age: u64, change: impl FnOnce(&mut Snapshots)) -> Option<Fact<Snapshots>> {
    let mut snapshots = Snapshots {
        folder: "/snapshots".into(),
        count: 5,
        newest: Some(SnapshotFile { name: "etcd-snapshot-n1".into(), at: ago(age), size_bytes: 50_000_000 }),
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
