//! Who is told of whom: neighbours of one cluster, and nobody else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail loudly

mod support;

use outrider_protocol::*;
use support::*;

fn network(n: u32) -> NodeNetwork {
    NodeNetwork {
        distribution: Distribution::Rke2,
        role: KubernetesRole::Server,
        addresses: vec![format!("192.0.2.{n}")],
        mtu: Some(1500),
        overlays: Vec::new(),
        firewalls: Vec::new(),
        others: None,
        neighbours: Vec::new(),
    }
}

async fn report(agent: &Agent, network: Option<NodeNetwork>) {
    let state = NodeState { network, ..agent.state(vec![ready()]) };
    let (status, body) = agent.client.post("/v1/reports", &agent.report(vec![], Some(state))).await;
    assert_eq!(status, 200, "{body}");
}

async fn peers(agent: &Agent, query: &str) -> Vec<String> {
    let (status, body) = agent.client.get(&format!("/v1/peers{query}")).await;
    assert_eq!(status, 200, "{body}");
    let peers: Peers = serde_json::from_value(body).unwrap();
    assert!(peers.peers.len() <= 8);
    peers.peers.into_iter().map(|p| p.node.name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_hears_of_nodes_of_its_own_cluster_alone() {
    let bed = Bed::start().await;
    let one = bed.enrol_bound("n1", "rancher").await;
    report(&one, Some(network(1))).await;
    assert!(peers(&one, "").await.is_empty(), "a node alone has no neighbours");

    let two = bed.enrol_bound("n2", "rancher").await;
    report(&two, Some(network(2))).await;
    let other = bed.enrol_bound("o1", "other").await;
    report(&other, Some(network(3))).await;
    // It merely names the cluster: it hears of none that is bound, and none of them hears of it.
    let claims = bed.enrol("x1", "rancher").await;
    report(&claims, Some(network(4))).await;
    // A machine without Kubernetes has no ports to try.
    let bare = bed.enrol_bound("n3", "rancher").await;
    report(&bare, None).await;

    assert_eq!(peers(&one, "").await, ["n2"]);
    assert_eq!(peers(&two, "").await, ["n1"]);
    assert!(peers(&other, "?keep=n1,n2").await.is_empty());
    assert!(peers(&claims, "?keep=n1").await.is_empty());
    assert!(peers(&bare, "").await.is_empty());

    bed.operator().post("/v1/nodes/n2/revoke", &serde_json::json!({})).await;
    assert!(peers(&one, "?keep=n2").await.is_empty(), "a node that was shut out is no neighbour");
    let (status, _) = two.client.get("/v1/peers").await;
    assert_eq!(status, 403);
    let (status, _) = bed.stranger().get("/v1/peers").await;
    assert_eq!(status, 401);
    let (status, _) = bed.operator().get("/v1/peers").await;
    assert_eq!(status, 401, "an operator is no node");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_large_cluster_a_share_is_told_and_those_that_fail_stay() {
    let bed = Bed::start().await;
    let mut agents = Vec::new();
    for n in 1..=12 {
        let agent = bed.enrol_bound(&format!("n{n}"), "rancher").await;
        report(&agent, Some(network(n))).await;
        agents.push(agent);
    }
    let share = peers(&agents[0], "").await;
    assert_eq!(share.len(), 4, "{share:?}");
    let all: Vec<String> = (2..=12).map(|n| format!("n{n}")).collect();
    let absent = all.iter().find(|name| !share.contains(name)).unwrap();
    let kept = peers(&agents[0], &format!("?keep={absent},nobody")).await;
    assert!(kept.contains(absent) && kept.len() == 5, "{kept:?}");
    let most = peers(&agents[0], &format!("?keep={}", all.join(","))).await;
    assert!(most.len() <= 8, "{most:?}");
}
