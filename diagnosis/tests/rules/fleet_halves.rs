//! Halves of a cluster: two leaders under one id, members of another cluster, two clusters under one name, nodes that are cut
//! off, and nobody there at all.

use outrider_protocol::*;

use crate::expect;
use crate::fleet_world::{World, id};
use crate::world::{self, ago, etcd_from, kill, known, list_mut, status_mut, unknown};

/// n3 was begun anew under the same cluster id and is alone in its own list; the others go on without it.
fn split_brain(term: u64) -> World {
    World::of(3).every(|i, e| {
        let s = status_mut(e, 3);
        (s.leader, s.raft_term) = (id(3), term);
        if i == 3 {
            let own = list_mut(e).members.split_off(2);
            list_mut(e).members = own;
            e.endpoints.retain(|endpoint| endpoint.local);
        }
    })
}

#[test]
fn two_halves_under_one_id_are_an_error_whoever_reports_last() {
    for (term, reversed) in [(7, false), (7, true), (9, false), (2, true)] {
        let mut w = split_brain(term);
        // The last one read is the newest.
        for (i, node) in w.nodes.iter_mut().enumerate() {
            if let Some(Fact::Known { at, .. }) = &mut node.etcd {
                *at = ago(if reversed { i as u64 } else { 3 - i as u64 });
            }
        }
        let found = w.membership();
        expect(
            &found,
            Status::False,
            Severity::Error,
            ReasonCode::EtcdSplitBrain,
            &[
                "n1 in term 7 (followed by n1, n2)",
                &format!("n3 in term {term} (followed by n3)"),
                "split brain",
            ],
        );
        assert!(found.advice.contains("etcdctl snapshot save at each of n1, n3"), "{}", found.advice);
        assert!(!found.advice.contains("settles"), "{}", found.advice);
        let quorum = w.quorum();
        let words =
            ["3 voters", "2 healthy", "tolerates 0", "n3 follows another leader", "n1 leads, by 2 of 3"];
        expect(&quorum, Status::True, Severity::Error, ReasonCode::EtcdNoTolerance, &words);
        assert!(!quorum.advice.contains("bring n3 back first"), "{}", quorum.advice);
    }
}

#[test]
fn halves_that_do_not_reach_each_other_are_told_by_their_own_words() {
    let w = split_brain(7).every(|i, e| {
        if i != 3 {
            kill(e, 3, 300);
        }
    });
    let found = w.membership();
    assert_eq!(found.reason, ReasonCode::EtcdSplitBrain);
    assert!(!found.advice.contains("catches up by itself"), "{}", found.advice);
    // A leader that is cut off and has not noticed yet serves nobody: that is no second half.
    let mut w = split_brain(6).every(|i, e| {
        if i != 3 {
            kill(e, 3, 3);
        }
    });
    w.view(3, |e| {
        e.no_read_since = Some(ago(2));
        e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
    });
    assert_ne!(w.membership().reason, ReasonCode::EtcdSplitBrain, "{}", w.membership().message);
}

#[test]
fn a_member_of_another_cluster_leads_nobody_of_this_one() {
    let mut w = World::of(3).every(|i, e| {
        let s = status_mut(e, 3);
        (s.leader, s.raft_term, s.cluster_id, s.version) = (id(3), 9, "c2".into(), "3.2.0".into());
        if i == 3 {
            let own = list_mut(e).members.split_off(2);
            let list = list_mut(e);
            (list.members, list.cluster_id) = (own, "c2".into());
            e.endpoints.retain(|endpoint| endpoint.local);
        }
    });
    for silent in [false, true] {
        if silent {
            // No agent on its node: what the others' endpoints show is enough.
            w.nodes.pop();
        }
        let membership = w.membership();
        let words = ["different", "n3", "c2"];
        expect(&membership, Status::False, Severity::Error, ReasonCode::EtcdClusterIdMismatch, &words);
        for wrong in ["can write", "settles", "follow different leaders"] {
            assert!(
                !membership.message.contains(wrong) && !membership.advice.contains(wrong),
                "{membership:?}"
            );
        }
        assert!(w.quorum().message.contains("n1 leads, by 2 of 2"), "{}", w.quorum().message);
        let versions = w.found(ConditionType::EtcdVersions);
        assert!(!versions.message.contains("3.2.0"), "{}", versions.message);
    }
}

#[test]
fn two_sound_clusters_under_one_name_are_told_to_be_that() {
    let mut w = World::of(3);
    for i in 1..=2 {
        let mut other = etcd_from(i, 2);
        let renamed = |text: &str| text.replace("10.0.0.", "10.9.0.");
        for m in &mut list_mut(&mut other).members {
            (m.id, m.name) = (format!("f{}", m.id), format!("m-{}", m.name));
            m.peer_urls.iter_mut().chain(&mut m.client_urls).for_each(|url| *url = renamed(url));
        }
        list_mut(&mut other).cluster_id = "c9".into();
        for e in &mut other.endpoints {
            e.member_id = format!("f{}", e.member_id);
            e.endpoint = renamed(&e.endpoint);
            if let Fact::Known { value: s, .. } = &mut e.status {
                (s.member_id, s.leader) = (format!("f{}", s.member_id), format!("f{}", s.leader));
                s.cluster_id = "c9".into();
            }
        }
        w.nodes.push(crate::fleet_world::node(&format!("m{i}"), other));
    }
    let found = w.membership();
    assert_eq!(found.reason, ReasonCode::EtcdClusterIdMismatch);
    assert!(found.advice.contains("give each its own in [node] cluster"), "{}", found.advice);
}

#[test]
fn when_nobody_answers_it_is_as_grave_as_when_few_do() {
    for cause in [UnknownCause::ConnectionRefused, UnknownCause::TimedOut, UnknownCause::Unreachable] {
        let w = World::of(3).every(|_, e| {
            (1..=3).for_each(|n| kill(e, n, 60));
            for endpoint in &mut e.endpoints {
                endpoint.status = unknown(cause.clone());
            }
            e.members = unknown(cause.clone());
        });
        for found in [w.quorum(), w.membership()] {
            let words = ["No member of etcd answers"];
            expect(&found, Status::Unknown, Severity::Error, ReasonCode::EtcdNoMembers, &words);
            assert!(found.advice.contains("Bring the members of n1, n2, n3 back"), "{}", found.advice);
            assert!(!found.advice.contains("empty answer"), "{}", found.advice);
        }
    }
}

#[test]
fn one_report_alone_may_be_of_the_one_that_is_cut_off() {
    let mut w = World::of(3).every(|i, e| {
        if i == 1 {
            let silent = |e: &mut EtcdFacts, n: usize| {
                kill(e, n, 300);
                let endpoint = e.endpoints.iter_mut().find(|e| e.member_id == id(n)).unwrap();
                let at = world::now();
                endpoint.status =
                    Fact::unknown(UnknownCause::TimedOut, "connecting took longer than 1 s", "test", at);
            };
            silent(e, 2);
            silent(e, 3);
            let s = status_mut(e, 1);
            s.leader = String::new();
            e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
            e.no_read_since = Some(ago(300));
        }
    });
    for node in &mut w.nodes[1..] {
        node.etcd = Some(unknown(UnknownCause::PermissionDenied));
    }
    let found = w.quorum();
    assert_eq!(found.reason, ReasonCode::EtcdQuorumLost);
    assert!(found.advice.starts_with("First look from n2, n3"), "{}", found.advice);
    assert!(found.advice.contains("it is the one node that reports that is cut off"), "{}", found.advice);
}

#[test]
fn a_node_that_is_reached_and_reaches_nobody_is_cut_off_one_way() {
    let mut w = World::of(3);
    w.view(3, |e| {
        kill(e, 1, 300);
        kill(e, 2, 300);
        status_mut(e, 3).leader = String::new();
        e.endpoints.iter_mut().for_each(|e| e.linearizable_read = unknown(UnknownCause::TimedOut));
        e.no_read_since = Some(ago(300));
    });
    let w = w.every(|i, e| {
        if i != 3 {
            status_mut(e, 3).leader = String::new();
        }
        e.metrics = unknown(UnknownCause::TimedOut);
    });
    let found = w.membership();
    assert_eq!(found.reason, ReasonCode::EtcdClientPortClosed, "{}", found.message);
    assert!(
        found.message.contains("n3 has not reached n1") && found.message.contains("n3 has not reached n2")
    );
}

#[test]
fn from_an_empty_snapshot_nothing_is_restored() {
    let snapshots = |size: u64, hours: u64| Snapshots {
        newest: Some(SnapshotFile { name: format!("s{hours}"), at: ago(hours * 3600), size_bytes: size }),
        count: 3,
        folder: "/snapshots".into(),
        too_small: None,
        object_storage: false,
        schedule_disabled: false,
    };
    let w = World::of(3).every(|i, e| {
        e.snapshots = Some(known(if i == 1 { snapshots(0, 1) } else { snapshots(9_000_000, 10 + i as u64) }));
    });
    let found = w.found(ConditionType::EtcdSnapshots);
    expect(
        &found,
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdSnapshotsFresh,
        &["s12 (9.0 MB)", "the newest of n1 is an empty file"],
    );
    let w = World::of(3).every(|i, e| e.snapshots = Some(known(snapshots(0, i as u64))));
    let found = w.found(ConditionType::EtcdSnapshots);
    expect(&found, Status::False, Severity::Warn, ReasonCode::EtcdSnapshotsMissing, &["an empty file"]);
}
