//! Members whose place another took, the server whose own member is gone, and clusters of one size that fell apart.

use outrider_diagnosis::{Finding, judge};
use outrider_protocol::*;

use crate::etcd_verdict::etcd_node;
use crate::fleet_world::World;
use crate::world::{Change, ago, etcd, kill, known, list_mut, orphan, status_mut, unknown};
use crate::{expect, only};

const NEW_ID: &str = "00000000deadbeef";

/// A member of another id answers at n3's address.
fn rebuilt(e: &mut EtcdFacts, cluster: &str) {
    let s = status_mut(e, 3);
    (s.member_id, s.leader, s.cluster_id) = (NEW_ID.into(), NEW_ID.into(), cluster.into());
    e.endpoints[2].member_id = NEW_ID.into();
}

fn of(e: EtcdFacts, condition: ConditionType) -> Finding {
    only(&judge(&etcd_node(e)), condition)
}

#[test]
fn a_member_in_whose_place_another_answers_is_down_and_does_not_return() {
    for cluster in ["feed", "c1"] {
        let f = of(etcd(3).with(|e| rebuilt(e, cluster)), ConditionType::EtcdQuorum);
        let who = format!("another member, id {NEW_ID} of cluster {cluster}, answers at its address");
        expect(
            &f,
            Status::True,
            Severity::Error,
            ReasonCode::EtcdNoTolerance,
            &["2 healthy, tolerates 0", &who],
        );
        assert!(!f.advice.contains("client port"), "{f:#?}");
        let lost = etcd(3).with(|e| {
            rebuilt(e, cluster);
            kill(e, 2, 600);
            orphan(e, 1);
        });
        let f = of(lost, ConditionType::EtcdQuorum);
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdQuorumLost, &["0 healthy", &who]);
        assert!(!f.advice.contains("n2, n3 back"), "{f:#?}");
    }
}

#[test]
fn of_two_members_of_one_node_the_one_that_answers_lives() {
    let e = etcd(4).with(|e| {
        let members = &mut list_mut(e).members;
        members[2].name = "n3-1a2b3c43".into();
        members[3].name = "n3-99999999".into();
        members[3].client_urls = members[2].client_urls.clone();
        let living = e.endpoints.remove(3);
        let url = std::mem::replace(&mut e.endpoints[2], living).endpoint;
        e.endpoints[2].endpoint = url;
        e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n3".into()]);
    });
    let f = of(e, ConditionType::EtcdMembership);
    let words = ["n3-1a2b3c43", "n3-99999999"];
    expect(&f, Status::False, Severity::Warn, ReasonCode::EtcdGhostMember, &words);
}

#[test]
fn one_url_of_two_nodes_says_nothing_against_either() {
    let e = etcd(3).with(|e| {
        let members = &mut list_mut(e).members;
        members[1].client_urls = members[2].client_urls.clone();
        e.endpoints.remove(1);
    });
    let f = of(e, ConditionType::EtcdQuorum);
    assert!(f.message.contains("n2 was not asked"), "{f:#?}");
    // Everybody answers for himself on loopback.
    let e = etcd(3).with(|e| {
        list_mut(e).members[1].client_urls = vec!["https://127.0.0.1:2379".into()];
        e.endpoints.remove(1);
        let own = &mut e.endpoints[0];
        own.endpoint = "https://127.0.0.1:2379".into();
        own.member_id = NEW_ID.into();
        status_mut(e, 1).member_id = NEW_ID.into();
    });
    assert!(!of(e, ConditionType::EtcdQuorum).message.contains("another member"));
}

#[test]
fn all_reports_together_tell_whose_place_was_taken() {
    let mut w = World::of(3).every(|i, e| {
        if i != 3 {
            rebuilt(e, "feed");
        }
    });
    w.view(3, |e| {
        list_mut(e).members.retain(|m| m.name == "n3");
        list_mut(e).members[0].id = NEW_ID.into();
        list_mut(e).cluster_id = "feed".into();
        rebuilt(e, "feed");
        e.endpoints.retain(|x| x.local);
    });
    let f = w.quorum();
    let words = ["2 healthy, tolerates 0", "id 00000000deadbeef of cluster feed", "feed has n3"];
    expect(&f, Status::True, Severity::Error, ReasonCode::EtcdNoTolerance, &words);
    assert!(!f.message.contains("was not asked") && !f.advice.contains("client port"), "{f:#?}");
    let p = w.picture();
    let n3 = p.members.iter().find(|m| m.name == "n3").unwrap();
    assert_eq!((&n3.health, &n3.status), (&MemberHealth::Down, &None));
    assert!(p.matrix.iter().all(|row| row.cells[2].reached == Status::False), "{:#?}", p.matrix);

    // n2 is off as well: one report of each cluster, and what was lost is not hidden behind what was begun anew.
    w.nodes[1].ready = Status::Unknown;
    w.view(1, |e| {
        kill(e, 2, 600);
        orphan(e, 1);
    });
    let f = w.quorum();
    let words = ["Quorum is lost", "3 voters", "In cluster feed: Quorum holds", "1 voter"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdQuorumLost, &words);
    let mut turned = w.clone();
    turned.nodes.reverse();
    assert_eq!(turned.quorum(), f);
}

#[test]
fn of_clusters_of_one_size_the_worst_decides() {
    let mut w = World::of(4);
    for i in [3, 4] {
        w.view(i, |e| {
            list_mut(e).cluster_id = "c9".into();
            kill(e, 1, 600);
            kill(e, 2, 600);
            orphan(e, 3);
            orphan(e, 4);
            e.endpoints.iter_mut().for_each(|x| {
                if let Fact::Known { value, .. } = &mut x.status {
                    value.cluster_id = "c9".into();
                }
            });
        });
    }
    w.view(1, |e| e.endpoints.truncate(2));
    let f = w.quorum();
    assert!(f.status == Status::False && f.message.starts_with("In cluster c9: "), "{f:#?}");
    assert!(f.message.contains("Quorum holds") && f.message.contains("c1"), "{f:#?}");
}

fn without_n1(linearizable: bool, change: impl FnOnce(&mut EtcdFacts)) -> EtcdFacts {
    etcd(3).with(|e| {
        list_mut(e).members.remove(0);
        list_mut(e).linearizable = linearizable;
        e.cluster_id = Some("c1".into());
        change(e);
    })
}

#[test]
fn a_member_that_the_list_does_not_have_was_removed() {
    for (e, how) in [
        (without_n1(true, |e| kill(e, 1, 600)), "does not answer"),
        (without_n1(true, |_| {}), "still answers"),
        (without_n1(true, |e| e.endpoints[0].status = unknown(UnknownCause::TlsFailed)), "does not answer"),
    ] {
        let f = of(e.clone(), ConditionType::EtcdMemberHealthy);
        let words = [
            "id 0000000000000001",
            how,
            "linearizable member list",
            "n2, n3",
            "was removed",
            "joins as a new",
        ];
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdMemberRemoved, &words);
        let f = of(e, ConditionType::EtcdMembership);
        let words = ["n2, n3", "0000000000000001", "not among them"];
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdMemberRemoved, &words);
    }
    // What no quorum vouched for is a suspicion.
    let stale = without_n1(false, |e| kill(e, 1, 600));
    let f = of(stale.clone(), ConditionType::EtcdMemberHealthy);
    let words = ["may be stale", "may have been removed"];
    expect(&f, Status::False, Severity::Error, ReasonCode::EtcdMemberDown, &words);
    assert_ne!(of(stale, ConditionType::EtcdMembership).reason, ReasonCode::EtcdMemberRemoved);
    // A list of another cluster, and a member whose id nobody knows, tell nothing.
    let other = without_n1(true, |e| status_mut(e, 1).cluster_id = "feed".into());
    assert_eq!(of(other, ConditionType::EtcdMemberHealthy).reason, ReasonCode::EtcdClusterIdMismatch);
    let nameless = without_n1(true, |e| {
        kill(e, 1, 600);
        e.endpoints[0].member_id.clear();
    });
    assert_eq!(of(nameless, ConditionType::EtcdMemberHealthy).reason, ReasonCode::EtcdMemberDown);
}

/// Between `a` and `b` the gauge is down and nothing came in for 300 s, as `a` counts it; everybody else brings news.
fn pair(w: World, a: usize, b: usize) -> World {
    w.every(|i, e| {
        let Fact::Known { value, .. } = &mut e.metrics else { panic!("metrics are known") };
        for n in (1..=3).filter(|n| *n != i) {
            let peer = |active, received_bytes, sent_failures| PeerScrape {
                active: Some(active),
                received_bytes,
                sent_failures,
                ..PeerScrape::default()
            };
            let id = crate::fleet_world::id(n);
            let cut = (i, n) == (a, b) || (i, n) == (b, a);
            value.earlier.as_mut().unwrap().peers.insert(id.clone(), peer(true, 1000.0, 0.0));
            let now = if cut { peer(false, 1000.0, 500.0) } else { peer(true, 9000.0, 0.0) };
            value.latest.peers.insert(id, now);
        }
    })
}

#[test]
fn followers_that_do_not_reach_each_other_cannot_do_without_the_leader() {
    let w = pair(World::of(3), 2, 3);
    let f = w.membership();
    let words = [
        "n2 and n3",
        "0 bytes received",
        "500 sends failed in 5 min",
        "both ways",
        "While n1 leads",
        "tolerance is 0",
    ];
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdPartitioned, &words);
    assert!(
        f.advice.contains("2380 between n2 and n3") && f.advice.contains("do not restart or upgrade n1"),
        "{f:#?}"
    );
    let f = pair(World::of(3), 1, 2).membership();
    let words = ["n1 and n2", "another one can still be elected"];
    expect(&f, Status::True, Severity::Warn, ReasonCode::EtcdPartitioned, &words);
    // Who sees no leader follows nobody: what its loss would cost is not asked any more.
    let f = pair(World::of(3), 1, 3).every(|_, e| orphan(e, 3)).membership();
    expect(
        &f,
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdPartitioned,
        &["n1 and n3", "n3 sees no leader"],
    );
    assert!(!f.message.contains("elected"), "{f:#?}");
    // What still comes in outvotes a gauge that was left down, as does a counter that began anew; one look tells nothing.
    type Spoil = fn(&mut EtcdMetrics);
    let spoils: [Spoil; 3] = [
        |m| m.latest.peers.values_mut().for_each(|p| p.received_bytes = 9000.0),
        |m| m.latest.peers.values_mut().for_each(|p| p.received_bytes = 10.0),
        |m| m.earlier = None,
    ];
    for spoil in spoils {
        let w = pair(World::of(3), 2, 3).every(|_, e| {
            if let Fact::Known { value, .. } = &mut e.metrics {
                spoil(value);
            }
        });
        assert_eq!(w.membership().reason, ReasonCode::EtcdMembersExpected);
    }
}

#[test]
fn who_reports_and_could_not_read_is_not_called_away() {
    let denied = || Fact::Unknown {
        cause: UnknownCause::PermissionDenied,
        detail: "client.key: permission denied".into(),
        source: "test".into(),
        at: ago(1),
    };
    let mut w = World::of(3);
    w.nodes.iter_mut().for_each(|n| n.etcd = Some(denied()));
    for f in [w.quorum(), w.membership()] {
        let words = ["all 3 nodes with etcd report", "none could read etcd", "PermissionDenied: client.key"];
        expect(&f, Status::Unknown, Severity::Error, ReasonCode::EtcdVotersUnknown, &words);
        assert!(!f.message.contains("lately") && f.advice.contains("may not read"), "{f:#?}");
    }
    w.nodes[2].ready = Status::Unknown;
    let f = w.quorum();
    assert!(f.message.contains("2 of 3") && f.message.contains("1 more node: n3 (silent)"), "{f:#?}");
    // A silent node whose last word was that it could not read is silent.
    w.nodes.iter_mut().for_each(|n| n.ready = Status::Unknown);
    assert_eq!(w.quorum().reason, ReasonCode::EtcdViewsStale);
}

#[test]
fn what_was_read_of_etcd_hours_ago_says_nothing_of_now() {
    let read = |seconds: u64| {
        let mut facts = etcd_node(etcd(3));
        if let Some(Fact::Known { at, .. }) = &mut facts.checks.etcd {
            *at = ago(seconds);
        }
        outrider_diagnosis::diagnose(&facts).conditions
    };
    let of_quorum = |conditions: &[Condition]| {
        conditions.iter().find(|c| c.condition_type == ConditionType::EtcdQuorum).cloned().unwrap()
    };
    assert_eq!(of_quorum(&read(3600)).reason, ReasonCode::EtcdQuorumMet);
    let old = read(3 * 3600);
    assert!(old.iter().all(|c| c.status == Status::Unknown), "{old:#?}");
    assert!(of_quorum(&old).message.contains("what was read last is 3 h old"), "{old:#?}");
}

#[test]
fn what_is_dated_ahead_of_the_judgement_is_unknown_in_every_check() {
    let whole = crate::world::server(3);
    let at = |ahead: u64| {
        let mut facts = whole.clone();
        facts.now = Timestamp::from_millis(facts.now.as_millis() - (ahead * 1000) as i64);
        judge(&facts)
    };
    // Clocks that are set right move by so much; nobody turns a check off for that.
    for ahead in [0, 1, 60, 300] {
        assert_eq!(at(ahead).blind, Vec::new(), "{ahead}");
    }
    for ahead in [301, 3600, 10 * 86_400] {
        let j = at(ahead);
        assert!(j.blind.len() > 5, "{:#?}", j.blind);
        for blind in &j.blind {
            assert_eq!(blind.cause, UnknownCause::InvalidInput);
            assert!(blind.detail.contains("ahead of the clock it is judged by"), "{blind:?}");
        }
    }
}
