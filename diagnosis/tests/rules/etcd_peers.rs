//! Peer URLs as recorded and as expected (D11, D12, D13).

use outrider_protocol::*;

use crate::etcd_verdict::membership;
use crate::expect;
use crate::world::{Change, etcd, kill, known, list_mut, orphan, unknown};

/// Three members of which the local one is recorded with `recorded` and expects `expected`.
fn urls(recorded: &[&str], expected: &[&str]) -> EtcdFacts {
    etcd(3).with(|e| {
        list_mut(e).members[0].peer_urls = recorded.iter().map(|u| (*u).to_owned()).collect();
        e.expected = Some(known(ExpectedMember {
            name: "n1".into(),
            peer_urls: expected.iter().map(|u| (*u).to_owned()).collect(),
            ..ExpectedMember::default()
        }));
    })
}

#[test]
fn d11_each_kind_of_difference_is_named() {
    for (recorded, expected, kind) in [
        ("http://10.0.0.1:2380", "https://10.0.0.1:2380", "differs: scheme;"),
        ("https://10.0.0.1:2380", "https://10.0.0.9:2380", "differs: address;"),
        ("https://10.0.0.1:2380", "https://10.0.0.1:2390", "differs: port;"),
        ("https://10.0.0.1:2380", "https://[fd00::1]:2380", "differs: address family;"),
        ("https://[fd00::1]:2380", "https://10.0.0.1:2380", "differs: address family;"),
        ("http://10.0.0.1:2380", "https://10.0.0.9:2390", "differs: scheme, address, port;"),
        ("https://a.example:2380", "https://b.example:2380", "differs: address;"),
    ] {
        let f = membership(urls(&[recorded], &[expected]));
        let words = [recorded, expected, kind, "n1", "next start", "does not update members"];
        expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdPeerUrlMismatch, &words);
        // The member is down: this is why it does not come up.
        let f = membership(urls(&[recorded], &[expected]).with(|e| kill(e, 1, 60)));
        let words = [recorded, expected, kind, "refuses to start"];
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdPeerUrlMismatch, &words);
    }
}

#[test]
fn d12_a_family_flip_leads_to_the_order_of_node_ip() {
    let f = membership(urls(&["https://10.0.0.1:2380"], &["https://[2001:db8::1]:2380"]));
    expect(
        &f,
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdPeerUrlMismatch,
        &["address family", "never dual-stack", "https://10.0.0.1:2380 first in node-ip"],
    );
}

#[test]
fn d13_an_address_without_brackets_is_named() {
    for url in ["https://fd00::1:2380", "https://2001:db8:0:1::7", "https://fd00::1:2399"] {
        let f = membership(etcd(3).with(|e| list_mut(e).members[1].peer_urls = vec![url.into()]));
        let words = [url, "n2", "without brackets", "https://[fd00::1]:2380"];
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdPeerUrlMismatch, &words);
    }
    let f = membership(urls(&["https://[fd00::1]:2380"], &["https://fd00::1:2380"]));
    expect(
        &f,
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdPeerUrlMismatch,
        &["brackets", "fd00::1:2380 has none"],
    );
}

#[test]
fn a_peer_url_recorded_twice_is_a_duplicate() {
    let f = membership(etcd(4).with(|e| {
        list_mut(e).members[3].peer_urls = vec!["http://10.0.0.2:2380".into()];
        list_mut(e).members[3].name.clear();
        kill(e, 4, 60);
    }));
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdPeerUrlMismatch,
        &[
            "duplicate",
            "https://10.0.0.2:2380 of n2 with id 0000000000000002 and 0000000000000004",
            "Also: 1 voter added",
        ],
    );
    // Who goes is called by its name, and so is who stays.
    let gone = "removes 0000000000000004 (and not n2 with id 0000000000000002), while quorum holds";
    assert!(f.advice.contains(gone), "{f:#?}");
}

#[test]
fn what_etcd_takes_for_one_url_is_one() {
    for (recorded, expected) in [
        ("https://10.0.0.1:2380", "https://10.0.0.1:2380/"),
        ("https://10.0.0.1:2380", "HTTPS://10.0.0.1:2380"),
        ("https://[fd00::1]:2380", "https://[fd00:0:0::1]:2380"),
        ("https://N1.example:2380", "https://n1.example:2380"),
        ("https://10.0.0.1:2380", "https://[::ffff:10.0.0.1]:2380"),
    ] {
        let f = membership(urls(&[recorded], &[expected]));
        assert_eq!(f.reason, ReasonCode::EtcdMembersExpected, "{recorded} {expected}: {f:#?}");
        assert!(f.message.contains("peer URL is the configured one"), "{}", f.message);
    }
    let two = ["https://10.0.0.1:2380", "https://10.1.0.1:2380"];
    let f = membership(urls(&[two[1], two[0]], &two));
    assert_eq!(f.reason, ReasonCode::EtcdMembersExpected, "the order does not count: {f:#?}");
    let f = membership(urls(&two, &two[..1]));
    assert_eq!(f.reason, ReasonCode::EtcdPeerUrlMismatch, "one too many is a difference: {f:#?}");
}

#[test]
fn a_name_against_an_address_is_no_difference_and_no_sameness() {
    for (recorded, expected) in [
        ("https://n1.example:2380", "https://10.0.0.1:2380"),
        ("https://10.0.0.1:2380", "https://n1.example:2380"),
        ("https://n1.example:2380", "https://[fd00::1]:2380"),
    ] {
        let f = membership(urls(&[recorded], &[expected]));
        assert_eq!(f.reason, ReasonCode::EtcdMembersExpected, "{recorded} {expected}: {f:#?}");
        assert!(!f.message.contains("peer URL is the configured one;"), "{}", f.message);
        assert!(
            f.message.contains("cannot be told") && f.message.contains("a name against an address"),
            "{}",
            f.message
        );
        assert!(f.message.contains(recorded) && f.message.contains(expected), "{}", f.message);
    }
    // What differs beside the name is told all the same.
    let f = membership(urls(&["http://n1.example:2380"], &["https://10.0.0.1:2380"]));
    assert_eq!(f.reason, ReasonCode::EtcdPeerUrlMismatch, "{f:#?}");
}

#[test]
fn nothing_is_compared_with_what_was_not_read() {
    for expected in
        [None, Some(unknown(UnknownCause::PermissionDenied)), Some(known(ExpectedMember::default()))]
    {
        let f = membership(etcd(3).with(|e| e.expected = expected.clone()));
        assert_eq!(f.reason, ReasonCode::EtcdMembersExpected, "{f:#?}");
        assert!(!f.message.contains("peer URL"), "{}", f.message);
    }
}

#[test]
fn whoever_the_cluster_cannot_spare_is_not_to_be_removed_for_its_url() {
    let moved = |n: usize| {
        etcd(n).with(|e| {
            e.expected = Some(known(ExpectedMember {
                name: "n1".into(),
                peer_urls: vec!["https://10.0.0.9:2380".into()],
                ..ExpectedMember::default()
            }));
        })
    };
    let not_removed = |e: EtcdFacts, words: &[&str]| {
        let f = membership(e);
        assert_eq!(f.reason, ReasonCode::EtcdPeerUrlMismatch, "{f:#?}");
        assert!(!f.advice.contains("a person removes"), "{f:#?}");
        words.iter().for_each(|word| assert!(f.advice.contains(word), "{word:?}: {f:#?}"));
    };
    // The only voter is the cluster.
    let keep = "Do not remove n1 and do not empty its data folder";
    not_removed(moved(1), &[keep, "only voter", "takes an etcd snapshot"]);
    not_removed(moved(1).with(|e| kill(e, 1, 60)), &[keep, "only voter", "keeps a copy of its data folder"]);
    // The others are no quorum without it.
    not_removed(moved(3).with(|e| kill(e, 3, 60)), &[keep, "1 of 2 voters is known", "First bring n3 back"]);
    // None holds, and without one nothing is removed.
    not_removed(
        moved(3).with(|e| {
            kill(e, 1, 60);
            kill(e, 3, 60);
            orphan(e, 2);
        }),
        &[keep, "none holds now", "First bring n3 back"],
    );
    // They are one: that is the way when nothing else is.
    let f = membership(moved(3));
    let words =
        ["removes member n1 with id 0000000000000001", "2 of 2 voters are healthy without it (quorum 2)"];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdPeerUrlMismatch, &words);
    assert!(!f.advice.contains("Do not remove n1"), "{f:#?}");
}

#[test]
fn what_is_recorded_without_tls_is_what_changes() {
    let f = membership(urls(&["http://10.0.0.1:2380"], &["https://10.0.0.1:2380"]));
    assert!(f.advice.contains("changes the record to https"), "{f:#?}");
    assert!(!f.advice.contains("the scheme of http://"), "{f:#?}");
    let f = membership(urls(&["https://10.0.0.1:2380"], &["http://10.0.0.1:2380"]));
    assert!(f.advice.contains("use the scheme of https://10.0.0.1:2380 again"), "{f:#?}");
}

#[test]
fn every_difference_has_its_step() {
    let f = membership(urls(&["http://10.0.0.1:2380"], &["https://[fd00::1]:2390"]));
    for step in ["changes the record to https", "first in node-ip", "at the port of http://10.0.0.1:2380"] {
        assert!(f.advice.contains(step), "{step:?}: {f:#?}");
    }
    // Elsewhere than on RKE2 and K3s nobody knows a node-ip.
    let f = membership(
        urls(&["https://10.0.0.1:2380"], &["https://10.0.0.9:2380"])
            .with(|e| e.distribution = Distribution::Kubeadm),
    );
    assert!(f.advice.contains("--initial-advertise-peer-urls") && !f.advice.contains("node-ip"), "{f:#?}");
}

#[test]
fn one_url_too_many_is_a_matter_of_number() {
    let two = ["https://10.0.0.1:2380", "https://[fd00::1]:2380"];
    let f = membership(urls(&two, &two[..1]));
    let words = ["differs: how many there are;", "https://[fd00::1]:2380 of n1 is recorded and not expected"];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdPeerUrlMismatch, &words);
    assert!(!f.advice.contains("first in node-ip"), "{f:#?}");
    let f = membership(urls(&two[..1], &two));
    assert!(f.advice.contains("let it name https://10.0.0.1:2380 and no other"), "{f:#?}");
}
