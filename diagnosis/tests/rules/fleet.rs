//! Verdicts over a whole cluster.

use std::time::Duration;

use outrider_diagnosis::fleet::{Member, judge_cluster};
use outrider_diagnosis::{Finding, Judgement, latch};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::fleet_split::other_cluster;
use crate::world::{self, ago, etcd_from, kill, known, list_mut, now, orphan, unknown};
use crate::{expect, only};

/// One node: its view, whether it is heard, its zone.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) ready: Status,
    pub(crate) zone: &'static str,
    pub(crate) etcd: Option<Fact<EtcdFacts>>,
}

pub(crate) fn judged(nodes: &[Node]) -> Judgement {
    let members: Vec<Member<'_>> = nodes
        .iter()
        .map(|n| Member {
            name: &n.name,
            ready: n.ready,
            zone: n.zone,
            region: "r",
            etcd: n.etcd.as_ref(),
            network: None,
            received: None,
            heard: None,
            retired: None,
            addresses: &[],
            paths: &[],
        })
        .collect();
    judge_cluster("prod", &members, now())
}

pub(crate) fn quorum(nodes: &[Node]) -> Finding {
    only(&judged(nodes), ConditionType::EtcdQuorum)
}

pub(crate) fn membership(nodes: &[Node]) -> Finding {
    only(&judged(nodes), ConditionType::EtcdMembership)
}

const ZONES: [&str; 7] = ["a", "b", "c", "a", "b", "c", "a"];

/// `n` healthy servers in three zones.
pub(crate) fn cluster(n: usize) -> Vec<Node> {
    let node = |i: usize| Node {
        name: format!("n{i}"),
        ready: Status::True,
        zone: ZONES[i - 1],
        etcd: Some(known(etcd_from(i, n))),
    };
    (1..=n).map(node).collect()
}

pub(crate) fn view(node: &mut Node, change: impl FnOnce(&mut EtcdFacts)) {
    match &mut node.etcd {
        Some(Fact::Known { value, .. }) => change(value),
        _ => panic!("the view is known"),
    }
}

pub(crate) fn read_at(node: &mut Node, at: Timestamp) {
    if let Some(Fact::Known { at: read, .. }) = &mut node.etcd {
        *read = at;
    }
}

/// The machine of member `victim` died `seconds` ago: the others have lost it, its own last report is older.
fn lose(nodes: &mut [Node], victim: usize, seconds: u64) {
    for (i, node) in nodes.iter_mut().enumerate() {
        if i + 1 == victim {
            read_at(node, ago(seconds + 20));
        } else {
            view(node, |e| kill(e, victim, seconds));
        }
    }
}

#[test]
fn a_healthy_cluster() {
    let nodes = cluster(3);
    expect(
        &quorum(&nodes),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdQuorumMet,
        &["3 voters", "quorum 2", "tolerates 1", "n1, n2, n3"],
    );
    expect(
        &membership(&nodes),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdMembersExpected,
        &["3 members", "c1"],
    );
    assert_eq!(quorum(&nodes).subject, "prod");
}

#[test]
fn old_reports_of_nodes_that_are_heard_still_hold() {
    let mut nodes = cluster(3);
    nodes.iter_mut().for_each(|n| read_at(n, ago(1800)));
    assert_eq!(quorum(&nodes).reason, ReasonCode::EtcdQuorumMet);
    nodes.iter_mut().for_each(|n| read_at(n, ago(7200)));
    expect(&quorum(&nodes), Status::Unknown, Severity::Error, ReasonCode::EtcdViewsStale, &["n1 (stale)"]);
    assert_eq!(membership(&nodes).status, Status::Unknown);
}

#[test]
fn a_silent_node_says_nothing_even_with_a_clock_ahead() {
    let mut nodes = cluster(3);
    lose(&mut nodes, 3, 300);
    nodes[2].ready = Status::Unknown;
    read_at(&mut nodes[2], now().after(Duration::from_secs(3600)));
    expect(
        &quorum(&nodes),
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &["n3 does not answer", "tolerates 0", "n3 (silent)"],
    );
    nodes.iter_mut().for_each(|n| n.ready = Status::Unknown);
    expect(&quorum(&nodes), Status::Unknown, Severity::Error, ReasonCode::EtcdViewsStale, &["n1 (silent)"]);
}

#[test]
fn a_fresh_loss_is_suspected_until_the_node_is_silent() {
    let mut nodes = cluster(3);
    lose(&mut nodes, 2, 3);
    lose(&mut nodes, 3, 3);
    view(&mut nodes[0], |e| orphan(e, 1));
    // Nodes 2 and 3 still count as heard, with reports from before.
    expect(
        &quorum(&nodes),
        Status::Unknown,
        Severity::Error,
        ReasonCode::EtcdQuorumSuspected,
        &["n2", "n3", "has not reached it for 3 s"],
    );
    nodes[1].ready = Status::Unknown;
    nodes[2].ready = Status::Unknown;
    let f = quorum(&nodes);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdQuorumLost,
        &["0 healthy", "n1 answers and sees no leader", "seen from n1"],
    );
    assert_eq!((f.suspect, f.raise_after), (Some(ReasonCode::EtcdQuorumSuspected), Duration::from_secs(5)));
}

#[test]
fn the_wait_begins_when_the_last_of_them_lost_its_reads() {
    let mut nodes = cluster(3);
    let since = [60, 2, 1].map(|seconds| Some(ago(seconds)));
    for (node, since) in nodes.iter_mut().zip(since) {
        view(node, |e| {
            kill(e, 2, 2);
            kill(e, 3, 2);
            orphan(e, 1);
            e.no_read_since = since;
        });
    }
    assert_eq!(quorum(&nodes).since, since[2], "one that was cut off for long says nothing of the others");
    view(&mut nodes[1], |e| e.no_read_since = Some(ago(500)));
    view(&mut nodes[2], |e| e.no_read_since = Some(ago(600)));
    view(&mut nodes[0], |e| e.no_read_since = Some(ago(500)));
    assert_eq!(quorum(&nodes).since, Some(ago(3)), "clocks that are behind make nothing certain at once");
    view(&mut nodes[0], |e| e.no_read_since = None);
    assert_eq!(quorum(&nodes).since, None, "one had an answer when it last spoke");
}

#[test]
fn members_that_believe_in_a_leader_and_serve_no_read_are_no_quorum() {
    // Every member is cut off from every other; a leader that is lost is given up only after its own timeout.
    let mut nodes = cluster(3);
    for (i, node) in nodes.iter_mut().enumerate() {
        view(node, |e| {
            (1..=3).filter(|other| *other != i + 1).for_each(|other| kill(e, other, 2));
            e.no_read_since = Some(ago(2));
            e.endpoints[i].linearizable_read = unknown(UnknownCause::TimedOut);
        });
    }
    expect(
        &quorum(&nodes),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdNoLeader,
        &["0 healthy", "no linearizable read"],
    );
    // One of them alone proves nothing of the others, who said before that they are well.
    let mut nodes = cluster(3);
    nodes[1..].iter_mut().for_each(|node| read_at(node, ago(10)));
    view(&mut nodes[0], |e| {
        (2..=3).for_each(|other| kill(e, other, 2));
        e.no_read_since = Some(ago(2));
        e.endpoints[0].linearizable_read = unknown(UnknownCause::TimedOut);
    });
    let f = quorum(&nodes);
    assert_eq!((f.status, &f.reason), (Status::Unknown, &ReasonCode::EtcdQuorumSuspected), "{f:?}");
    assert_eq!(f.suspect, Some(ReasonCode::EtcdQuorumSuspected), "shown at once, as a warning");
}

#[test]
fn dead_members_on_living_nodes_are_certain_at_once() {
    // etcd stopped on two of three machines whose agents go on.
    let mut nodes = cluster(3);
    for node in &mut nodes {
        view(node, |e| {
            kill(e, 2, 2);
            kill(e, 3, 2);
            orphan(e, 1);
        });
    }
    let j = judged(&nodes);
    assert_eq!(only(&j, ConditionType::EtcdQuorum).reason, ReasonCode::EtcdQuorumLost);
    let healthy = latch(&[], &judged(&cluster(3)), now());
    let suspected = latch(&healthy.latches, &j, now().after(Duration::from_secs(1)));
    assert_eq!(suspected.conditions[0].reason, ReasonCode::EtcdQuorumSuspected);
    let certain = latch(&suspected.latches, &j, now().after(Duration::from_secs(6)));
    assert_eq!(
        (certain.conditions[0].status, &certain.conditions[0].reason),
        (Status::False, &ReasonCode::EtcdQuorumLost)
    );
}

#[test]
fn a_member_that_one_node_cannot_reach_is_healthy_by_its_own_word() {
    let mut nodes = cluster(3);
    view(&mut nodes[0], |e| kill(e, 3, 600));
    assert_eq!(quorum(&nodes).reason, ReasonCode::EtcdQuorumMet);
    // Nor does it take more than another node's word when its own agent is not enrolled.
    nodes.remove(2);
    assert_eq!(quorum(&nodes).reason, ReasonCode::EtcdQuorumMet);
}

#[test]
fn a_clock_that_is_ahead_makes_no_loss_newer_than_every_answer() {
    let mut nodes = cluster(3);
    view(&mut nodes[2], |e| {
        orphan(e, 3);
        for n in [1, 2] {
            kill(e, n, 0);
            e.endpoints[n - 1].down_since = Some(world::ahead(590));
        }
        e.no_read_since = Some(world::ahead(590));
    });
    read_at(&mut nodes[2], world::ahead(600));
    for node in &mut nodes[..2] {
        view(node, |e| kill(e, 3, 600));
    }
    let f = quorum(&nodes);
    assert_eq!((f.status, &f.reason), (Status::True, &ReasonCode::EtcdNoTolerance), "{f:#?}");
    assert!(f.message.contains("2 healthy"), "{}", f.message);
}

#[test]
fn zones_that_hold_the_quorum() {
    let with = |zones: &[&'static str], n: usize| {
        let mut nodes = cluster(n);
        nodes.iter_mut().zip(zones).for_each(|(node, zone)| node.zone = zone);
        nodes
    };
    let f = membership(&with(&["a", "a", "a"], 3));
    expect(
        &f,
        Status::True,
        Severity::Info,
        ReasonCode::EtcdFailureDomain,
        &["Zone a holds 3 of 3 voters", "quorum is lost with the zone", "1 zone"],
    );
    let mut three = with(&["a", "a", "b"], 3);
    assert_eq!(membership(&three).severity, Severity::Info, "two zones cannot do better");
    three.push(Node { name: "worker".into(), ready: Status::True, zone: "c", etcd: None });
    expect(
        &membership(&three),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdFailureDomain,
        &["Zone a holds 2 of 3", "3 zones"],
    );
    expect(
        &membership(&with(&["a", "a", "a", "b", "c"], 5)),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdFailureDomain,
        &["3 of 5"],
    );
    assert_eq!(membership(&with(&["a", "a", "b", "b", "c"], 5)).reason, ReasonCode::EtcdMembersExpected);
    assert_eq!(
        membership(&with(&["a", "a", ""], 3)).reason,
        ReasonCode::EtcdMembersExpected,
        "an unknown zone is no zone"
    );
}

#[test]
fn ghosts_are_found_by_whoever_knows_the_nodes() {
    let mut nodes = cluster(4);
    nodes.pop();
    for node in &mut nodes {
        view(node, |e| kill(e, 4, 90_000));
    }
    view(&mut nodes[1], |e| e.kubernetes_nodes = known(vec!["n1".into(), "n2".into(), "n3".into()]));
    expect(
        &membership(&nodes),
        Status::False,
        Severity::Warn,
        ReasonCode::EtcdGhostMember,
        &["n4", "the cluster of 3 counts as 4"],
    );
    expect(
        &quorum(&nodes),
        Status::True,
        Severity::Warn,
        ReasonCode::EtcdNoTolerance,
        &["4 voters", "quorum 3"],
    );
}

#[test]
fn learners_do_not_count_here_either() {
    let mut nodes = cluster(4);
    for node in &mut nodes {
        view(node, |e| {
            list_mut(e).members[3].is_learner = true;
            kill(e, 4, 30);
        });
    }
    expect(
        &quorum(&nodes),
        Status::True,
        Severity::Ok,
        ReasonCode::EtcdQuorumMet,
        &["3 voters", "1 learner"],
    );
}

#[test]
fn nodes_without_etcd_are_no_evidence_and_clusters_without_it_are_not_judged() {
    let worker = |etcd| Node { name: "w".into(), ready: Status::True, zone: "", etcd };
    for etcd in [None, Some(world::absent("etcd")), Some(Fact::not_applicable("a worker", now()))] {
        let j = judged(&[worker(etcd)]);
        assert!(j.findings.is_empty());
        assert_eq!(j.not_applicable[0].check, Check::Etcd);
    }
    let f = quorum(&[worker(Some(unknown(UnknownCause::PermissionDenied)))]);
    expect(
        &f,
        Status::Unknown,
        Severity::Error,
        ReasonCode::EtcdVotersUnknown,
        &["w (PermissionDenied: it failed)"],
    );
    let mut nodes = cluster(3);
    nodes.push(worker(None));
    assert_eq!(quorum(&nodes).reason, ReasonCode::EtcdQuorumMet);
}

#[test]
fn no_list_in_any_report_is_unknown() {
    let mut nodes = cluster(3);
    nodes.iter_mut().for_each(|n| view(n, |e| e.members = unknown(UnknownCause::TimedOut)));
    expect(&quorum(&nodes), Status::Unknown, Severity::Warn, ReasonCode::EtcdNoMembers, &["3 reports"]);
    assert_eq!(membership(&nodes).status, Status::Unknown);
    let mut nodes = cluster(3);
    view(&mut nodes[0], |e| list_mut(e).members.clear());
    assert_eq!(quorum(&nodes).reason, ReasonCode::EtcdQuorumMet, "the others have a list");
}

#[test]
fn etcd_that_lets_no_client_in_is_an_error_with_names_and_cause() {
    let refused =
        || Fact::unknown(UnknownCause::TlsFailed, "the peer's certificate has expired", "test", now());
    let mut nodes = cluster(3);
    for n in &mut nodes {
        view(n, |e| {
            e.members = refused();
            e.endpoints
                .iter_mut()
                .for_each(|e| e.status = Fact::unknown(UnknownCause::TlsFailed, "x", "test", now()));
        });
    }
    let words = [
        "3 reports",
        "n1, n2, n3 (TlsFailed: the peer's certificate has expired)",
        "CertificatesValid of n1, n2, n3",
    ];
    expect(&quorum(&nodes), Status::Unknown, Severity::Error, ReasonCode::TlsFailed, &words);
    expect(&membership(&nodes), Status::Unknown, Severity::Error, ReasonCode::TlsFailed, &words);
    assert!(quorum(&nodes).advice.contains("one server after the other"));
    // A member that answers its own server: not all are shut.
    let healthy = cluster(3).remove(0);
    view(&mut nodes[0], |e| match healthy.etcd {
        Some(Fact::Known { value, .. }) => e.endpoints = value.endpoints,
        _ => panic!("known"),
    });
    expect(&quorum(&nodes), Status::Unknown, Severity::Warn, ReasonCode::EtcdNoMembers, &words[..2]);
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn the_arithmetic_holds_over_the_fleet(n in 1usize..8, dead in prop::collection::btree_set(1usize..8, 0..8)) {
        // Everybody agrees, dead nodes are silent.
        let mut nodes = cluster(n);
        let dead: Vec<usize> = dead.into_iter().filter(|d| *d <= n).collect();
        let alive = n - dead.len();
        for d in &dead {
            nodes[d - 1].ready = Status::Unknown;
            for (i, node) in nodes.iter_mut().enumerate() {
                view(node, |e| if i + 1 != *d { kill(e, *d, 600) });
            }
        }
        if alive < n / 2 + 1 {
            for i in 1..=n {
                nodes.iter_mut().for_each(|node| view(node, |e| if e.endpoints[i - 1].status.value().is_some() { orphan(e, i) }));
            }
        }
        let f = quorum(&nodes);
        let expected = if alive == 0 { Status::Unknown } else if alive > n / 2 { Status::True } else { Status::False };
        prop_assert_eq!(f.status, expected, "{:?}", f);
    }

    #[test]
    fn losing_a_node_for_good_never_improves_the_verdict(n in 1usize..6, first in prop::collection::btree_set(1usize..6, 0..5), victim in 1usize..6) {
        if victim > n || first.contains(&victim) {
            return Ok(());
        }
        let silent = |nodes: &mut Vec<Node>, d: usize| {
            nodes[d - 1].ready = Status::Unknown;
            for (i, node) in nodes.iter_mut().enumerate() {
                view(node, |e| if i + 1 != d { kill(e, d, 600) });
            }
        };
        let mut nodes = cluster(n);
        first.iter().filter(|d| **d <= n).for_each(|d| silent(&mut nodes, *d));
        let before = quorum(&nodes);
        silent(&mut nodes, victim);
        let after = quorum(&nodes);
        // The last witness takes certainty with it, never the alarm.
        let blind = nodes.iter().all(|n| n.ready != Status::True);
        prop_assert!(crate::rank(&before) <= crate::rank(&after) || blind && after.severity == Severity::Error, "{before:#?}\n{after:#?}");
    }

    #[test]
    fn unreadable_reports_never_make_a_cluster_healthy(n in 1usize..6, cause in prop::sample::select(UnknownCause::ALL)) {
        let mut nodes = cluster(n);
        nodes.iter_mut().for_each(|node| node.etcd = Some(unknown(cause.clone())));
        prop_assert_eq!(quorum(&nodes).status, Status::Unknown);
    }
}

#[test]
fn the_order_of_reports_does_not_matter() {
    let mut nodes = cluster(5);
    lose(&mut nodes, 4, 10);
    other_cluster(&mut nodes[1], "c9");
    let first = judged(&nodes);
    nodes.rotate_left(2);
    let mut turned = judged(&nodes);
    // Names are listed in the order given; the verdicts are the same.
    for (a, b) in first.findings.iter().zip(&mut turned.findings) {
        assert_eq!((a.status, a.severity, &a.reason), (b.status, b.severity, &b.reason));
    }
}
