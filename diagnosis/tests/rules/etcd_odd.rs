//! Answers that no etcd gives: whatever they are worth, they are no verdict.

use outrider_diagnosis::judge;
use outrider_protocol::*;

use crate::etcd_verdict::{etcd_node, found, membership};
use crate::expect;
use crate::fleet_world::World;
use crate::world::{Change, etcd, kill, list_mut, status_mut};

#[test]
fn a_list_with_members_without_an_id_is_no_list() {
    for nameless in [vec![2], vec![1, 2, 3]] {
        let e = etcd(3).with(|e| nameless.iter().for_each(|n| list_mut(e).members[n - 1].id.clear()));
        let words = [format!("{} of its 3 members have no id", nameless.len())];
        let words = [words[0].as_str()];
        for of in [ConditionType::EtcdQuorum, ConditionType::EtcdMembership] {
            let f = found(e.clone(), of);
            expect(&f, Status::Unknown, Severity::Warn, ReasonCode::InvalidAnswer, &words);
        }
        for f in judge(&etcd_node(e.clone())).findings {
            assert!(!f.advice.contains("empties") && !f.message.contains("was removed"), "{f:#?}");
        }
        // Nor do all reports together make one of it.
        let world =
            World::of(3).every(|_, e| nameless.iter().for_each(|n| list_mut(e).members[n - 1].id.clear()));
        let f = world.quorum();
        expect(&f, Status::Unknown, Severity::Warn, ReasonCode::EtcdNoMembers, &words);
    }
}

#[test]
fn one_node_tells_versions_that_no_upgrade_brings_about() {
    let third = |version: &str| membership(etcd(3).with(|e| status_mut(e, 3).version = version.into()));
    let words = ["3.3.10 on n3", "more than one minor apart", "one minor version at a time"];
    expect(&third("3.3.10"), Status::False, Severity::Error, ReasonCode::EtcdVersionSkew, &words);
    // One apart is an upgrade under way, which the verdict over all members times.
    for version in ["3.5.16", "3.4.30", "3.6.1"] {
        assert_eq!(third(version).reason, ReasonCode::EtcdMembersExpected, "{version}");
    }
}

#[test]
fn a_client_url_of_two_members_tells_of_neither() {
    let shared = |url: &str| {
        membership(
            etcd(3)
                .with(|e| list_mut(e).members[1..].iter_mut().for_each(|m| m.client_urls = vec![url.into()])),
        )
    };
    let words = ["publish one client URL", "10.0.0.9:2379 of n2 with id 0000000000000002, n3 with id"];
    expect(
        &shared("https://10.0.0.9:2379"),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdUrlUnusable,
        &words,
    );
    assert!(!shared("https://127.0.0.1:2379").message.contains("publish one client URL"));
}

#[test]
fn who_told_no_version_is_named() {
    let world = World::of(3).every(|i, e| {
        if i != 3 {
            kill(e, 3, 600);
        }
    });
    let mut world = world;
    world.nodes[2].ready = Status::False;
    let f = world.found(ConditionType::EtcdVersions);
    let words = ["etcd 3.5.16 on 2 of 3 members", "not known of n3"];
    expect(&f, Status::True, Severity::Ok, ReasonCode::EtcdVersionsEqual, &words);
}

#[test]
fn a_member_that_one_node_does_not_reach_is_told_and_not_blamed() {
    let mut world = World::of(3);
    world.view(1, |e| kill(e, 3, 600));
    let f = world.membership();
    let words = ["n1 has not reached n3 for 10 min", "from n1 to n3", "Nothing is wrong with n3"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdClientPortClosed, &words);
    // Not before a restart would be over, and not of one that is away.
    let mut young = World::of(3);
    young.view(1, |e| kill(e, 3, 20));
    assert_eq!(young.membership().reason, ReasonCode::EtcdMembersExpected);
}
