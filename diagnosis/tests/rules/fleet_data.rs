//! Snapshots of a cluster, the verdict as data, and what is kept of a report.

use outrider_diagnosis::fleet::{picture, trim};
use outrider_diagnosis::latch;
use outrider_protocol::*;

use crate::fleet_world::{Node, World, id};
use crate::world::{self, ago, etcd_from, histogram, kill, known, now, orphan, unknown};
use crate::{expect, only};

// ---- snapshots ----

fn snapshots(age: Option<u64>, change: impl FnOnce(&mut Snapshots)) -> Option<Fact<Snapshots>> {
    let newest = age.map(|a| SnapshotFile { name: format!("snap-{a}"), at: ago(a), size_bytes: 50_000_000 });
    let mut snapshots = Snapshots {
        folder: "/snapshots".into(),
        count: u32::from(newest.is_some()),
        newest,
        too_small: None,
        object_storage: false,
        schedule_disabled: false,
    };
    change(&mut snapshots);
    Some(known(snapshots))
}

#[test]
fn a_snapshot_dated_in_the_future_is_not_fresh() {
    let future = || snapshots(Some(0), |s| s.newest.iter_mut().for_each(|n| n.at = world::ahead(86_400)));
    let w = World::of(3).every(|_, e| e.snapshots = future());
    let own = etcd_from(1, 3);
    let node = crate::etcd_verdict::etcd_node(EtcdFacts { snapshots: future(), ..own });
    for f in [
        w.found(ConditionType::EtcdSnapshots),
        only(&outrider_diagnosis::judge(&node), ConditionType::EtcdSnapshots),
    ] {
        assert_eq!((f.status, f.severity), (Status::Unknown, Severity::Warn), "{f:#?}");
        assert!(f.message.contains("ahead of the clock"), "{}", f.message);
    }
}

#[test]
fn one_recent_snapshot_anywhere_will_do() {
    let with = |each: [Option<Fact<Snapshots>>; 3]| {
        let mut each = each.into_iter();
        World::of(3).every(|_, e| e.snapshots = each.next().flatten())
    };
    let of = |each| with(each).found(ConditionType::EtcdSnapshots);
    let hours = |h: u64| snapshots(Some(h * 3600), |_| {});
    let none = || snapshots(None, |_| {});
    let off = || snapshots(None, |s| s.schedule_disabled = true);
    let unread = || Some(unknown(UnknownCause::PermissionDenied));

    expect(
        &of([hours(30), hours(3), hours(9)]),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdSnapshotsFresh,
        &["snap-10800 (50.0 MB) of ", " UTC, in /snapshots of n2", "3 nodes hold any"],
    );
    expect(
        &of([off(), hours(3), off()]),
        Status::True,
        Severity::Info,
        ReasonCode::EtcdSnapshotsOnOneNode,
        &["1 node holds any: n2", "lost with the disk of n2"],
    );
    let stored = snapshots(Some(3600), |s| s.object_storage = true);
    assert_eq!(of([off(), stored, off()]).reason, ReasonCode::EtcdSnapshotsFresh);
    expect(
        &of([hours(30), hours(50), none()]),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdSnapshotsStale,
        &["30 h old", "of n1", "limit 25 h"],
    );
    expect(
        &of([none(), none(), off()]),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdSnapshotsMissing,
        &["n1, n2, n3"],
    );
    expect(
        &of([off(), off(), off()]),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdSnapshotsDisabled,
        &["switched off"],
    );
    expect(
        &of([none(), unread(), off()]),
        Status::Unknown,
        Severity::Warn,
        ReasonCode::PermissionDenied,
        &["n2 (PermissionDenied)"],
    );
    expect(
        &of([hours(1), unread(), hours(2)]),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdSnapshotsFresh,
        &["not read on n2"],
    );
    // None on the nodes, and one of them sends them where nobody looked: unknown, however the others are set up.
    let sent = || snapshots(None, |s| s.object_storage = true);
    for each in [[sent(), sent(), sent()], [none(), sent(), off()]] {
        let words =
            ["Whether there is an etcd snapshot is not known", "n1, n2, n3", "object storage", "25 h"];
        expect(&of(each), Status::Unknown, Severity::Warn, ReasonCode::EtcdSnapshotsUnseen, &words);
    }
    let sent_off = || snapshots(None, |s| (s.object_storage, s.schedule_disabled) = (true, true));
    let f = of([sent_off(), off(), off()]);
    let words =
        ["No etcd snapshot lies on any of n1, n2, n3", "the configuration of n1 names, was not looked at"];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdSnapshotsDisabled, &words);
    let j = with([None, None, None]).judged();
    assert!(j.findings.iter().all(|f| f.condition_type != ConditionType::EtcdSnapshots));
    let p = with([hours(30), hours(3), hours(9)]).picture();
    let newest = p.newest_snapshot.unwrap_or_else(|| panic!("there is one"));
    assert_eq!((newest.node.as_str(), newest.nodes, newest.at), ("n2", 3, ago(10_800)));
}

#[test]
fn d19_the_newest_snapshot_of_the_cluster_stands_below_a_lost_quorum() {
    let mut w = World::of(3).every(|i, e| {
        e.snapshots = snapshots(Some(3600 * i as u64), |_| {});
        if i == 1 {
            orphan(e, 1);
            kill(e, 2, 300);
            kill(e, 3, 300);
        }
    });
    w.nodes[1].ready = Status::Unknown;
    w.nodes[2].ready = Status::Unknown;
    expect(
        &w.quorum(),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdQuorumLost,
        &["Bring 1 of n2, n3 back", "snap-3600 (50.0 MB) of ", " UTC, in /snapshots of n1"],
    );
}

// ---- who sees whom, and what is kept ----

#[test]
fn who_sees_whom_is_data() {
    let mut w = World::of(3);
    w.view(1, |e| {
        kill(e, 3, 120);
        e.endpoints[1].status = unknown(UnknownCause::Forbidden);
        if let Fact::Known { value, .. } = &mut e.metrics {
            value.latest.peers.insert(id(3), PeerScrape { active: Some(false), ..PeerScrape::default() });
        }
    });
    w.nodes[2].ready = Status::Unknown;
    let p = w.picture();
    assert_eq!(p.matrix.iter().map(|r| r.node.as_str()).collect::<Vec<_>>(), ["n1", "n2"]);
    let row: Vec<_> = p.matrix[0].cells.iter().map(|c| (c.reached, c.own, c.peer, c.since)).collect();
    assert_eq!(
        row,
        [
            (Status::True, true, Status::Unknown, None),
            (Status::Unknown, false, Status::Unknown, None),
            (Status::False, false, Status::False, Some(ago(120))),
        ]
    );
    assert!(p.matrix[0].cells[1].cause.contains("Forbidden"));
    assert_eq!((p.unheard[0].node.as_str(), p.unheard[0].why.as_str()), ("n3", "silent"));
}

#[test]
fn what_is_dropped_before_it_is_kept_changes_no_verdict() {
    let names: Vec<String> = (1..=5000).map(|i| format!("n{i}")).collect();
    let w = World::of(5).every(|i, e| {
        e.kubernetes_nodes = known(names.clone());
        if i < 4 {
            kill(e, 5, 600);
        }
        if let Fact::Known { value, .. } = &mut e.metrics {
            for scrape in value.earlier.iter_mut().chain([&mut value.latest]) {
                let peer =
                    PeerScrape { active: Some(i != 2), round_trip: histogram(9, 1), ..PeerScrape::default() };
                scrape.peers.insert(id(i % 5 + 1), peer);
            }
        }
    });
    let mut trimmed = w.clone();
    let size = |w: &World| serde_json::to_vec(&w.nodes[0].etcd).map_or(0, |v| v.len());
    for node in &mut trimmed.nodes {
        if let Some(Fact::Known { value, .. }) = &mut node.etcd {
            trim(value);
        }
    }
    assert_eq!(w.judged(), trimmed.judged());
    assert_eq!(w.picture(), trimmed.picture());
    assert!(size(&trimmed) < 10_000 && size(&w) > 40_000, "{} of {}", size(&trimmed), size(&w));
    // Names that tell nothing still tell nothing.
    let strangers: Vec<String> = (1..=500).map(|i| format!("x{i}")).collect();
    let mut w = World::of(3).every(|_, e| e.kubernetes_nodes = known(strangers.clone()));
    w.view(1, trim);
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember);
}

#[test]
fn no_etcd_no_picture() {
    let node = |etcd| Node {
        name: "w".into(),
        ready: Status::True,
        zone: String::new(),
        region: String::new(),
        etcd,
        network: None,
        received: None,
        heard: None,
        retired: None,
    };
    assert!(picture(&World { nodes: vec![node(None)] }.members(), now()).is_none());
    // Silent nodes are shown as such, and no number is made up.
    let mut w = World::of(3);
    w.nodes.iter_mut().for_each(|n| n.ready = Status::Unknown);
    let p = w.picture();
    assert_eq!(
        (p.voters, p.quorum, p.healthy, p.tolerated, p.members.len(), p.unheard.len()),
        (0, 0, 0, 0, 0, 3)
    );
}

#[test]
fn machines_that_are_off_are_suspected_at_once_and_certain_an_election_later() {
    let healthy = latch(&[], &World::of(3).judged(), now());
    let mut off = World::of(3);
    off.view(1, |e| {
        kill(e, 2, 1);
        kill(e, 3, 1);
        e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
    });
    for node in &mut off.nodes[1..] {
        if let Some(Fact::Known { at, .. }) = &mut node.etcd {
            *at = ago(20);
        }
    }
    let shown = |latched: &outrider_diagnosis::Latched| {
        let quorum = latched.conditions.iter().find(|c| c.condition_type == ConditionType::EtcdQuorum);
        quorum.map(|c| (c.status, c.severity, c.reason.clone()))
    };
    // Nobody but n1 has spoken since: a suspicion, which pages nobody.
    let doubt = latch(&healthy.latches, &off.judged(), world::ahead(1));
    let suspected = (Status::Unknown, Severity::Warn, ReasonCode::EtcdQuorumSuspected);
    assert_eq!(shown(&doubt), Some(suspected.clone()));
    // n2 and n3 owe their word: certain, once it has held for an election since the suspicion.
    off.nodes[1..].iter_mut().for_each(|n| n.ready = Status::Unknown);
    let later = latch(&doubt.latches, &off.judged(), world::ahead(4));
    assert_eq!(shown(&later), Some(suspected));
    let certain = latch(&later.latches, &off.judged(), world::ahead(6));
    assert_eq!(shown(&certain), Some((Status::False, Severity::Error, ReasonCode::EtcdQuorumLost)));
    // Had they spoken, nothing would have been lost.
    let back = latch(&doubt.latches, &World::of(3).judged(), world::ahead(2));
    let back = latch(&back.latches, &World::of(3).judged(), world::ahead(8));
    assert_eq!(shown(&back).map(|s| s.2), Some(ReasonCode::EtcdQuorumMet));
}
