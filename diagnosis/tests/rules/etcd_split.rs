//! Members of different clusters (D10): every group by its id and members, a minority where there is one, and no advice
//! that supposes a way between them to be closed.

use outrider_diagnosis::judge;
use outrider_protocol::*;

use crate::etcd_verdict::etcd_node;
use crate::fleet::{Node, cluster, membership, quorum, view};
use crate::only;
use crate::world::{Change, etcd, kill, list_mut, status_mut};

/// n1's view of members that answer for these clusters.
fn seen(clusters: &[&str]) -> EtcdFacts {
    etcd(clusters.len()).with(|e| {
        for (i, id) in clusters.iter().enumerate() {
            status_mut(e, i + 1).cluster_id = (*id).to_owned();
        }
    })
}

fn told(advice: &str, words: &[&str]) {
    for word in words {
        assert!(advice.contains(word), "{word:?} in {advice}");
    }
    assert!(!advice.contains("Let this node reach") && !advice.contains("Add one"), "{advice}");
    assert!(advice.contains("nothing is added, taken away or reset until then"), "{advice}");
}

#[test]
fn a_node_tells_every_group_and_the_minority_where_there_is_one() {
    for (clusters, words) in [
        (&["c1", "c1", "c9"][..], &["c1 has n1, n2", "c9 has n3", "the minority is n3 (1 of 3)"][..]),
        (&["c1", "c9", "c9"], &["c9 has n2, n3", "c1 has n1", "the minority is n1 (1 of 3)"]),
        (&["c1", "c8", "c9"], &["c1 has n1", "c8 has n2", "c9 has n3", "none has more than half of the 3"]),
        (&["c1", "c1", "c9", "c9"], &["c1 has n1, n2", "c9 has n3, n4", "none has more than half of the 4"]),
        (&["c1", "c1", "c9", "c8", "c1"], &["c1 has n1, n2, n5", "the minority is n4, n3 (2 of 5)"]),
        (&["c1", "c9"], &["none has more than half of the 2"]),
    ] {
        let f = only(&judge(&etcd_node(seen(clusters))), ConditionType::EtcdQuorum);
        told(&format!("{} {}", f.message, f.advice), words);
        // What was answered by a quorum cannot have been one of this list.
        let ours = clusters.iter().filter(|id| **id == "c1").count();
        let possible = ours > clusters.len() / 2;
        assert_eq!(f.status == Status::True, possible, "{f:?}");
    }
}

#[test]
fn who_is_silent_is_in_no_group() {
    let e = seen(&["c1", "c1", "c9", "c1", "c1"]).with(|e| kill(e, 5, 600));
    let f = only(&judge(&etcd_node(e)), ConditionType::EtcdQuorum);
    told(&f.advice, &["c1 has n1, n2, n4", "the minority is n3 (1 of 4)"]);
}

/// Every node's report, each of the cluster that stands in its place, and what it saw of the others.
fn reports(clusters: &[&str]) -> Vec<Node> {
    let mut nodes = cluster(clusters.len());
    for (node, own) in nodes.iter_mut().zip(clusters) {
        view(node, |e| {
            list_mut(e).cluster_id = (*own).to_owned();
            for (i, id) in clusters.iter().enumerate() {
                status_mut(e, i + 1).cluster_id = (*id).to_owned();
            }
        });
    }
    nodes
}

#[test]
fn the_fleets_verdict_on_the_quorum_agrees_with_that_on_the_members() {
    for (clusters, words, minority) in [
        (
            &["c1", "c1", "c9"][..],
            &["c1 has n1, n2", "c9 has n3", "the minority is n3 (1 of 3)"][..],
            "1 of 3 are in the minority: n3",
        ),
        (
            &["c1", "c8", "c9"],
            &["c1 has n1", "c8 has n2", "c9 has n3", "there is no minority"],
            "none is called the minority",
        ),
        (
            &["c1", "c1", "c9", "c9"],
            &["c1 has n1, n2", "c9 has n3, n4", "there is no minority"],
            "none is called the minority",
        ),
        (
            &["c9", "c1", "c9", "c9", "c8"],
            &["c9 has n1, n3, n4", "the minority is n2, n5 (2 of 5)"],
            "2 of 5 are in the minority: n2",
        ),
    ] {
        let nodes = reports(clusters);
        let f = quorum(&nodes);
        told(&format!("{} {}", f.message, f.advice), words);
        let of_members = membership(&nodes).message;
        assert!(of_members.contains(minority), "{of_members}");
    }
}

#[test]
fn who_was_bootstrapped_alone_is_not_told_to_add_those_that_are_elsewhere() {
    let mut nodes = reports(&["c1", "c8", "c9"]);
    for (i, node) in nodes.iter_mut().enumerate() {
        view(node, |e| {
            list_mut(e).members = vec![crate::world::member(i + 1)];
            e.endpoints.swap(0, i);
            e.endpoints.truncate(1);
        });
    }
    let f = quorum(&nodes);
    assert_eq!(f.reason, ReasonCode::EtcdSingleVoter, "{f:?}");
    assert!(f.message.contains("c1 has n1") && f.message.contains("c8 has n2"), "{f:?}");
    assert!(
        f.advice.contains("nothing is added, taken away or reset until then")
            && !f.advice.contains("add two"),
        "{f:?}"
    );
}
