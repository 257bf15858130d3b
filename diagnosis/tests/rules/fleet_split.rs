//! Clusters that fell apart: partitions, and nodes that belong to different clusters.

use outrider_protocol::*;

use crate::expect;
use crate::fleet::{Node, cluster, membership, quorum, view};
use crate::world::{kill, list_mut, orphan, status_mut, unknown};

#[test]
fn an_isolated_member_does_not_take_the_cluster_with_it() {
    let mut nodes = cluster(3);
    view(&mut nodes[0], |e| {
        orphan(e, 1);
        kill(e, 2, 600);
        kill(e, 3, 600);
    });
    for node in &mut nodes[1..] {
        view(node, |e| kill(e, 1, 600));
    }
    expect(
        &quorum(&nodes),
        Status::True,
        Severity::Error,
        ReasonCode::EtcdNoTolerance,
        &["n1 answers and sees no leader", "2 healthy"],
    );
    expect(
        &membership(&nodes),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdPartitioned,
        &["n1 | n2, n3", "2 groups", "Do not reset"],
    );
}

#[test]
fn partitions_need_silence_on_every_way() {
    let mut nodes = cluster(5);
    for node in &mut nodes[..2] {
        view(node, |e| (3..=5).for_each(|n| kill(e, n, 600)));
    }
    // The other side still reaches them: one way is a way, and the other one is told.
    let words = ["n1 has not reached n3 for 10 min, n1 has not reached n4"];
    expect(&membership(&nodes), Status::True, Severity::Warn, ReasonCode::EtcdClientPortClosed, &words);
    for node in &mut nodes[2..] {
        view(node, |e| (1..=2).for_each(|n| kill(e, n, 600)));
    }
    expect(
        &membership(&nodes),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdPartitioned,
        &["n1, n2 | n3, n4, n5"],
    );
    // A refused credential is no silence.
    view(&mut nodes[0], |e| e.endpoints[4].status = unknown(UnknownCause::Forbidden));
    assert_eq!(membership(&nodes).reason, ReasonCode::EtcdClientPortClosed);
}

pub(crate) fn other_cluster(node: &mut Node, id: &str) {
    view(node, |e| {
        let own = e.endpoints.iter().position(|x| x.local).unwrap() + 1;
        status_mut(e, own).cluster_id = id.into();
        list_mut(e).cluster_id = id.into();
    });
}

#[test]
fn the_minority_of_a_split_cluster_is_named() {
    let mut nodes = cluster(3);
    other_cluster(&mut nodes[2], "c9");
    let f = membership(&nodes);
    expect(
        &f,
        Status::False,
        Severity::Error,
        ReasonCode::EtcdClusterIdMismatch,
        &["1 of 3 are in the minority: n3 (c9)", "data folder empty"],
    );
    // Its report of itself does not count for the majority's member.
    assert!(quorum(&nodes).message.contains("n1, n2"), "{}", quorum(&nodes).message);
    let mut nodes = cluster(4);
    other_cluster(&mut nodes[2], "c9");
    other_cluster(&mut nodes[3], "c9");
    expect(
        &membership(&nodes),
        Status::False,
        Severity::Error,
        ReasonCode::EtcdClusterIdMismatch,
        &[
            "no cluster has more than half",
            "none is called the minority",
            "cluster c1 has n1, n2",
            "cluster c9 has n3, n4",
            "which of the clusters c1, c9 holds the data",
        ],
    );
}
