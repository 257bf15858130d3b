//! Nodes whose machines are deleted: nobody waits for them, and the etcd member they leave behind is named.

use outrider_protocol::*;

use crate::expect;
use crate::fleet_world::World;
use crate::world::{kill, unknown};

/// Three servers; the machine of n3 was deleted, its member does not answer, and n3 itself is `ready`.
fn deleted(ready: Status) -> World {
    let mut w = World::of(3).every(|_, e| kill(e, 3, 900));
    w.nodes[2].ready = ready;
    w.nodes[2].retired = Some("prod/n3");
    w
}

#[test]
fn the_member_of_a_deleted_machine_is_named_with_what_removes_it() {
    let w = deleted(Status::Unknown);
    expect(
        &w.membership(),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdGhostMember,
        &[
            "n3 with id 0000000000000003 (does not answer), at https://10.0.0.3:2380, whose machine prod/n3 was deleted",
            "cluster of 2 counts as 3, quorum 2 of 3",
            "etcdctl member remove 0000000000000003",
            "while quorum holds (2 of 3",
            "Outrider does not remove members",
        ],
    );
    assert!(!w.membership().advice.contains("kubelet"), "whether a machine is there is known");
    // Its counts wait for nobody: the one that is gone is not among those that are quiet.
    let quiet = |w: &World| serde_json::to_string(&w.picture()).unwrap().contains("\"silent\"");
    assert!(!quiet(&w), "{:#?}", w.picture());
    let mut silent = w.clone();
    silent.nodes[2].retired = None;
    assert!(quiet(&silent), "{:#?}", silent.picture());
    assert_ne!(silent.membership().reason, ReasonCode::EtcdGhostMember);
}

#[test]
fn one_that_is_heard_or_whose_member_answers_is_no_ghost() {
    assert_ne!(deleted(Status::True).membership().reason, ReasonCode::EtcdGhostMember);
    let mut answers = World::of(3);
    answers.nodes[2].ready = Status::Unknown;
    answers.nodes[2].retired = Some("prod/n3");
    assert_eq!(answers.membership().reason, ReasonCode::EtcdMembersExpected);
}

#[test]
fn it_is_told_by_its_name_where_it_never_told_its_member() {
    let mut w = deleted(Status::Unknown);
    w.nodes[2].etcd = Some(unknown(UnknownCause::TimedOut));
    assert_eq!(w.membership().reason, ReasonCode::EtcdGhostMember);
    w.nodes[2].name = "another".to_owned();
    assert_ne!(w.membership().reason, ReasonCode::EtcdGhostMember);
    // Of a cluster none of whose machines is left nothing is to be said.
    let mut gone = World::of(1);
    gone.nodes[0].ready = Status::Unknown;
    gone.nodes[0].retired = Some("prod/n1");
    assert!(gone.judged().findings.is_empty(), "{:#?}", gone.judged());
}
