//! Which of etcd's two ports is closed between living members, and nodes that nobody reaches any more.

use outrider_diagnosis::fleet::unreached;
use outrider_protocol::*;

use crate::expect;
use crate::fleet_world::{World, id};
use crate::world::{ago, kill, now, orphan, unknown};

/// What the member behind the view counts of its raft connections to `of`, as of `seconds` ago.
fn links(e: &mut EtcdFacts, of: impl Iterator<Item = usize>, active: bool, seconds: u64) {
    let Fact::Known { value, .. } = &mut e.metrics else { panic!("metrics are known") };
    value.latest.at = ago(seconds);
    for n in of {
        value.latest.peers.insert(id(n), PeerScrape { active: Some(active), ..PeerScrape::default() });
    }
}

fn others(i: usize) -> impl Iterator<Item = usize> {
    (1..=3).filter(move |n| *n != i)
}

/// Nobody answers anybody else at its client port for a minute; the connections of raft are as `active`, read `seconds` ago.
fn silent_to_each_other(active: bool, seconds: u64) -> World {
    World::of(3).every(|i, e| {
        others(i).for_each(|n| kill(e, n, 60));
        links(e, others(i), active, seconds);
    })
}

#[test]
fn a_closed_client_port_is_no_partition() {
    let world = silent_to_each_other(true, 0);
    expect(
        &world.membership(),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdClientPortClosed,
        &[
            "that of n1 to n2, n3",
            "port 2380 stand",
            "no partition",
            "Nothing stops now",
            "2379 to n1, n2, n3",
        ],
    );
    expect(
        &world.quorum(),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdQuorumMet,
        &["3 healthy", "tolerates 1"],
    );
}

#[test]
fn one_server_that_closes_its_client_port_is_named_alone() {
    let world = World::of(3).every(|i, e| {
        links(e, others(i), true, 0);
        if i != 3 {
            kill(e, 3, 60);
        }
    });
    let f = world.membership();
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdClientPortClosed, &["that of n3 to n1, n2"]);
    assert!(!f.message.contains("that of n1"), "{f:?}");
}

#[test]
fn without_port_2380_either_it_is_a_partition() {
    let world = silent_to_each_other(false, 0);
    expect(
        &world.membership(),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdPartitioned,
        &["n1 | n2 | n3", "ports 2379 and 2380"],
    );
    // What was counted before the silence, or just after it, proves nothing of now: neither is told yet.
    for read in [55, 300] {
        let f = silent_to_each_other(true, read).membership();
        assert_eq!(f.reason, ReasonCode::EtcdMembersExpected, "{read} s: {f:?}");
    }
}

#[test]
fn a_member_without_its_raft_connections_is_apart_though_it_answers_everybody() {
    let world = World::of(3).every(|i, e| {
        match i {
            3 => links(e, [1, 2].into_iter(), false, 0),
            _ => {
                links(e, [3].into_iter(), false, 0);
                links(e, [3 - i].into_iter(), true, 0);
            }
        }
        orphan(e, 3);
    });
    let f = world.membership();
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdPartitioned,
        &["n1, n2 | n3", "on port 2380", "check port 2380 between", "n1, n2 go on with a quorum of 2 of 3"],
    );
    assert!(!f.advice.contains("2379"), "{}", f.advice);
    // With a leader it is one that has just been started and not been counted anew.
    let started = World::of(3).every(|i, e| links(e, if i == 3 { 1..3 } else { 3..4 }, false, 0));
    assert_eq!(started.membership().reason, ReasonCode::EtcdMembersExpected);
}

#[test]
fn a_node_is_asked_for_when_two_others_lost_its_member_after_its_last_word() {
    let lost = |by: &[usize], since: u64| {
        let mut world = World::of(3);
        for i in by {
            world.view(*i, |e| kill(e, 2, since));
        }
        world.nodes[1].received = Some(outrider_diagnosis::fleet::Received { at: ago(10), sent_at: ago(10) });
        if let Some(Fact::Known { at, .. }) = &mut world.nodes[1].etcd {
            *at = ago(10);
        }
        world
    };
    let asked = |world: &World| unreached(&world.members(), now()).join(",");
    assert_eq!(asked(&lost(&[1, 3], 5)), "n2");
    assert_eq!(asked(&lost(&[1], 5)), "", "one witness is none");
    assert_eq!(asked(&lost(&[1, 3], 15)), "", "it has spoken since");
    let mut told = lost(&[1, 3], 60);
    for i in [1, 3] {
        told.view(i, |e| links(e, [2].into_iter(), true, 0));
    }
    if let Some(Fact::Known { at, .. }) = &mut told.nodes[1].etcd {
        *at = ago(100);
    }
    assert_eq!(asked(&told), "", "its peers hear it");
}

#[test]
fn a_silent_node_and_its_member_are_one_cause() {
    let mut world = World::of(3);
    for i in [1, 3] {
        world.view(i, |e| {
            kill(e, 2, 20);
            e.endpoints[1].status = unknown(UnknownCause::TimedOut);
        });
    }
    world.nodes[1].ready = Status::Unknown;
    world.nodes[1].heard = Some(ago(30));
    let f = world.quorum();
    expect(
        &f,
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &[
            "n2 does not answer",
            &format!("its node n2 is silent since {}", ago(30)),
            "the machine or its network",
        ],
    );
}

/// The member behind the view has counted its raft connection to `to` as down at both scrapes.
fn cut(e: &mut EtcdFacts, to: usize) {
    let Fact::Known { value, .. } = &mut e.metrics else { panic!("metrics are known") };
    let peer = || PeerScrape { active: Some(false), ..PeerScrape::default() };
    value.latest.peers.insert(id(to), peer());
    value.earlier.as_mut().unwrap().peers.insert(id(to), peer());
}

#[test]
fn a_closed_pair_of_followers_is_a_word_on_quorum_too() {
    let world = World::of(3).every(|i, e| match i {
        2 => cut(e, 3),
        3 => cut(e, 2),
        _ => {}
    });
    let words = ["Port 2380 is closed between living voters: n2 and n3", "the real tolerance is 0"];
    expect(&world.membership(), Status::True, Severity::Warn, ReasonCode::EtcdPartitioned, &words);
    let words = [
        "3 healthy",
        "But port 2380 is closed between n2 and n3: without n1, which leads, nobody could be elected",
        "do not restart n1 before",
    ];
    expect(&world.quorum(), Status::True, Severity::Warn, ReasonCode::EtcdNoTolerance, &words);
    // Between the leader and a follower it costs no majority.
    let world = World::of(3).every(|i, e| match i {
        1 => cut(e, 3),
        3 => cut(e, 1),
        _ => {}
    });
    assert_eq!(world.quorum().reason, ReasonCode::EtcdQuorumMet);
}

#[test]
fn a_member_apart_from_its_leader_is_looked_at_from_all_sides() {
    // The way between n2 and n3 is closed as well, and neither of two followers counts that.
    let world = World::of(3).every(|i, e| match i {
        1 => cut(e, 3),
        3 => {
            cut(e, 1);
            orphan(e, 3);
        }
        _ => {}
    });
    let membership = world.membership();
    let words =
        ["Port 2380 is closed between living voters: n1 and n3", "n3 sees no leader, so it takes no part"];
    expect(&membership, Status::True, Severity::Warn, ReasonCode::EtcdPartitioned, &words);
    let advice = ["Open TCP 2380 between n1 and n3", "the ways between n3 and the other members too"];
    for words in advice {
        assert!(membership.advice.contains(words), "{membership:#?}");
    }
}
