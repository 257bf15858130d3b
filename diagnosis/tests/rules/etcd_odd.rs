//! Answers that no etcd gives: whatever they are worth, they are no verdict.

use outrider_diagnosis::judge;
use outrider_protocol::*;

use crate::etcd_verdict::{etcd_node, found, local, membership};
use crate::expect;
use crate::fleet_world::World;
use crate::world::{Change, ago, etcd, kill, known, list_mut, orphan, status_mut, unknown};

#[test]
fn a_list_with_members_without_an_id_is_no_list() {
    for nameless in [vec![2], vec![1, 2, 3]] {
        let e = etcd(3).with(|e| nameless.iter().for_each(|n| list_mut(e).members[n - 1].id.clear()));
        let words = [format!("3 members, {} of them without an id", nameless.len())];
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

#[test]
fn a_read_that_took_no_time_that_there_is_proves_nothing() {
    let read = |ms: f64| etcd(3).with(|e| e.endpoints[0].linearizable_read = known(ms));
    for ms in [-5.0, 1e300, f64::NAN] {
        let f = local(read(ms));
        expect(&f, Status::Unknown, Severity::Warn, ReasonCode::InvalidAnswer, &["which is no time"]);
        assert!(f.message.len() < 200, "{f:#?}");
        let f = found(read(ms), ConditionType::EtcdQuorum);
        assert!(!f.message.contains("linearizable read took"), "{f:#?}");
    }
    let f = local(read(45_000.0));
    let words = ["only after 45.0 s", "(5000 ms)", "Do not restart"];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdReadFailed, &words);
    assert_eq!(local(read(4_900.0)).reason, ReasonCode::EtcdMemberAnswers);
    // Nor does it among all reports.
    let world = World::of(3).every(|i, e| e.endpoints[i - 1].linearizable_read = known(-5.0));
    assert!(!world.quorum().message.contains("linearizable read took"), "{:#?}", world.quorum());
}

#[test]
fn a_right_that_is_missing_is_no_certificate_that_is_refused() {
    let f = local(etcd(3).with(|e| e.endpoints[0].status = unknown(UnknownCause::Forbidden)));
    expect(
        &f,
        Status::Unknown,
        Severity::Warn,
        ReasonCode::Forbidden,
        &["refuses (403)", "right behind it is missing"],
    );
    assert!(!f.advice.contains("does not take"), "{f:#?}");
}

#[test]
fn a_node_that_reaches_nobody_may_be_the_one_that_is_cut_off() {
    let alone = |cause: UnknownCause, detail: &str| {
        found(
            etcd(3).with(|e| {
                orphan(e, 3);
                (0..3).for_each(|i| e.endpoints[i].local = i == 2);
                for n in 1..=2 {
                    kill(e, n, 60);
                    e.endpoints[n - 1].status = Fact::unknown(cause.clone(), detail, "test", ago(0));
                }
            }),
            ConditionType::EtcdQuorum,
        )
    };
    for (cause, detail) in [
        (UnknownCause::TimedOut, "connecting to 10.0.0.1:2379"),
        (UnknownCause::TimedOut, "connecting timed out"),
        (UnknownCause::Unreachable, "no route to host"),
    ] {
        let f = alone(cause, detail);
        let words =
            ["seen from this node alone", "First look from n1, n2", "it is this node that is cut off"];
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdQuorumLost, &words);
    }
    // Who refuses or hangs is there, and etcd is not.
    for (cause, detail) in [
        (UnknownCause::ConnectionRefused, "connection refused"),
        (UnknownCause::TimedOut, "no answer in 1 s"),
    ] {
        let f = alone(cause, detail);
        assert!(!f.message.contains("alone") && !f.advice.contains("First look"), "{f:#?}");
    }
}

#[test]
fn the_member_of_this_server_may_be_the_minority() {
    let f = membership(etcd(3).with(|e| status_mut(e, 1).cluster_id = "c2".into()));
    let words = ["The member of this server (cluster c2) is the minority", "join cluster c1 again"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdClusterIdMismatch, &words);
    assert!(!f.advice.contains("https://10.0.0.2:2379"), "{f:#?}");
    let f = membership(etcd(2).with(|e| status_mut(e, 1).cluster_id = "c2".into()));
    assert!(f.advice.contains("none is called the minority"), "{f:#?}");
}

#[test]
fn machines_of_one_name_are_told() {
    let mut world = World::of(3);
    let mut other = world.nodes[1].clone();
    other.name = "n1".into();
    world.nodes.push(other);
    let f = world.quorum();
    assert!(f.message.contains("several machines report under one name (2 as n1)"), "{f:#?}");
    // The same file given twice is one machine.
    let mut twice = World::of(3);
    twice.nodes.push(twice.nodes[0].clone());
    assert!(!twice.quorum().message.contains("several machines"), "{:#?}", twice.quorum());
}
