//! What lies in the data folder of this server's member and how much room it has: removals, resets, full disks, large databases
//! (D18, D19, D20).

use outrider_protocol::*;

use crate::etcd_node::{peers, snapshots};
use crate::etcd_verdict::{found, local};
use crate::expect;
use crate::fleet_world::{World, node};
use crate::world::{self, Change, etcd, kill, known, orphan, status_mut, unknown};

/// The data folder of this server's member, with room, as `change` has it.
pub(crate) fn folder(change: impl FnOnce(&mut DataFolder)) -> Option<Fact<DataFolder>> {
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

/// `n` members, the first down on a server where the cluster was reset, and the others as told: "down", "lost" (answering
/// without a leader), "unasked" or living.
fn reset(others: &[&str]) -> EtcdFacts {
    etcd(others.len() + 1).with(|e| {
        kill(e, 1, 600);
        e.data_folder = folder(|f| f.reset_flag = true);
        for (i, state) in others.iter().enumerate() {
            match *state {
                "down" => kill(e, i + 2, 600),
                "lost" => orphan(e, i + 2),
                "unasked" => e.endpoints[i + 1].status = unknown(UnknownCause::TlsFailed),
                _ => {}
            }
        }
    })
}

#[test]
fn d19_after_a_reset_one_condition_alone_says_what_comes_next() {
    let states: [&[&str]; 8] = [
        &[],
        &["lost"],
        &["down", "lost"],
        &["down", "down"],
        &["lost", "lost"],
        &["unasked", "down"],
        &["down", "down", "lost"],
        &["lost", "lost", "down", "down"],
    ];
    for others in states {
        let e = reset(others);
        let quorum = found(e.clone(), ConditionType::EtcdQuorum);
        assert_ne!(quorum.status, Status::True, "{others:?} {quorum:#?}");
        assert!(
            quorum.advice.starts_with("The cluster was reset on this server: EtcdMemberHealthy"),
            "{quorum:#?}"
        );
        for second in
            ["last resort", "Which is the newest snapshot", "Bring ", "Do not restart", "back; writes go on"]
        {
            assert!(!quorum.advice.contains(second), "{others:?} {second}: {quorum:#?}");
        }
        let member = local(e.clone());
        assert!(member.advice.contains("do not reset again"), "{member:#?}");
        // What lies here may be the only good data.
        assert!(!member.advice.contains("permanently removed"), "{member:#?}");
        // The same from all reports, by the node's name.
        let world = World { nodes: vec![node("n1", e)] };
        let quorum = world.quorum();
        assert!(
            quorum.advice.starts_with("The cluster was reset on n1: EtcdMemberHealthy of n1"),
            "{quorum:#?}"
        );
    }
    // While a cluster lives without it, nobody brings it back before it is known whose data counts.
    for others in [vec![""; 2], vec![""; 3], vec![""; 4]] {
        let f = found(reset(&others), ConditionType::EtcdQuorum);
        assert_eq!(f.status, Status::True, "{f:#?}");
        assert!(f.advice.contains("Do not simply bring n1 back: see EtcdMemberHealthy there"), "{f:#?}");
        assert!(!f.advice.contains("ring n1 back first") && !f.advice.contains("Bring n1"), "{f:#?}");
    }
    // A member that is down without such a flag is brought back as ever, and told how a removal shows.
    let e = etcd(3).with(|e| kill(e, 1, 600));
    assert!(found(e.clone(), ConditionType::EtcdQuorum).advice.contains("bring n1 back first"));
    assert!(local(e).advice.contains("permanently removed"));
    // From a cluster of its own nobody could have removed it.
    assert!(!local(etcd(1).with(|e| kill(e, 1, 600))).advice.contains("permanently removed"));
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
