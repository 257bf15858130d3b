//! What another cluster answers at a member's address (D10), and CORRUPT alarms that name nobody who could be replaced.

use outrider_diagnosis::judge;
use outrider_protocol::*;

use crate::etcd_verdict::etcd_node;
use crate::only;
use crate::world::{Change, etcd, kill, known, orphan, status_mut, unknown};

/// n1 is left without a leader, n2 is down, and n3 was begun anew alone: it answers reads, for its own cluster.
fn impostor() -> EtcdFacts {
    etcd(3).with(|e| {
        kill(e, 2, 60);
        orphan(e, 1);
        e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
        let s = status_mut(e, 3);
        s.cluster_id = "feed".into();
        s.errors = vec!["memberID:1 alarm:NOSPACE ".into()];
        s.raft_index = 10_000_000;
        e.endpoints[2].linearizable_read = known(5.2);
    })
}

#[test]
fn a_read_that_another_cluster_answered_proves_no_quorum() {
    let judged = judge(&etcd_node(impostor()));
    let f = only(&judged, ConditionType::EtcdQuorum);
    assert!(f.status != Status::True, "{f:?}");
    let f = only(&judged, ConditionType::EtcdMembership);
    assert_eq!(f.reason, ReasonCode::EtcdClusterIdMismatch, "{f:?}");
    assert!(f.message.contains("(cluster feed)"), "{f:?}");
    let space = only(&judged, ConditionType::EtcdSpace);
    assert!(!space.message.contains("NOSPACE alarm is set"), "{space:?}");
}

#[test]
fn the_cluster_is_that_of_this_nodes_member_even_if_the_list_came_from_elsewhere() {
    let listed = impostor().with(|e| crate::world::list_mut(e).cluster_id = "feed".into());
    let f = only(&judge(&etcd_node(listed)), ConditionType::EtcdMembership);
    assert_eq!(f.reason, ReasonCode::EtcdClusterIdMismatch, "{f:?}");
    assert!(f.advice.contains(&status_mut(&mut etcd(1), 1).cluster_id), "{f:?}");
}

fn corrupt(e: EtcdFacts, ids: &[String]) -> (String, String) {
    let alarm = |id: &String| AlarmFacts { member_id: id.clone(), kind: "CORRUPT".into() };
    let e = e.with(|e| e.alarms = known(ids.iter().map(alarm).collect()));
    let f = only(&judge(&etcd_node(e)), ConditionType::EtcdSpace);
    assert_eq!(f.reason, ReasonCode::EtcdCorrupt);
    (f.message, f.advice)
}

#[test]
fn a_corrupt_member_is_replaced_only_where_the_others_are_a_quorum() {
    let id = |n: usize| crate::world::member(n).id;
    let (message, advice) = corrupt(etcd(3), &[id(2)]);
    assert!(
        message.contains("Writes are refused")
            && advice.contains("2 other healthy voters hold the quorum of 2"),
        "{advice}"
    );
    // Replacing it clears nothing: the last step is told, and what has to be so before it.
    let (hashes, cleared) = (advice.find("shows one hash"), advice.find("a person clears it"));
    assert!(hashes.is_some() && hashes < cleared, "{advice}");
    let down = etcd(3).with(|e| kill(e, 3, 600));
    for (e, ids) in [(etcd(1), vec![id(1)]), (etcd(3), vec![id(1), id(2), id(3)]), (down, vec![id(2)])] {
        let (_, advice) = corrupt(e, &ids);
        assert!(advice.contains("remove no member"), "{advice}");
    }
    let (message, advice) = corrupt(etcd(3), &["0".to_owned()]);
    assert!(message.contains("which member differs from the others is not known"), "{message}");
    assert!(advice.contains("remove no member"), "{advice}");
}

#[test]
fn who_could_not_be_asked_is_not_promised_as_reserve() {
    let e = etcd(5).with(|e| {
        kill(e, 4, 600);
        e.endpoints[4].status = unknown(UnknownCause::Unauthenticated);
        e.endpoints[4].linearizable_read = unknown(UnknownCause::Unauthenticated);
    });
    let f = only(&judge(&etcd_node(e)), ConditionType::EtcdQuorum);
    assert!(f.advice.contains("0 to 1 more of 5 may fail"), "{f:?}");
}

#[test]
fn while_the_local_member_is_silent_its_cluster_is_the_one_it_last_told() {
    let silent = impostor().with(|e| {
        kill(e, 1, 60);
        e.members = unknown(UnknownCause::ConnectionRefused);
        e.cluster_id = Some("c1".into());
    });
    let judged = judge(&etcd_node(silent));
    let f = only(&judged, ConditionType::EtcdMembership);
    assert_eq!((f.status, &f.reason), (Status::False, &ReasonCode::EtcdClusterIdMismatch), "{f:?}");
    assert!(f.message.contains("(c1)") && f.message.contains("(cluster feed)"), "{f:?}");
    let f = only(&judged, ConditionType::EtcdQuorum);
    assert!(f.status == Status::Unknown && f.message.contains("0 of 3 endpoints answer"), "{f:?}");
}
