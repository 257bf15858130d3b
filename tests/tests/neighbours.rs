//! Three nodes of one cluster in network namespaces around a router, each with a real agent, a real VXLAN device as
//! flannel makes it, and nginx in the place of kubelet, API server and supervisor: what they say of each other when
//! ports, the overlay's UDP port and large packets are really lost, and what the coordinator makes of it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test may fail loudly"
)]

use std::time::{Duration, Instant};

use outrider_protocol::{ClusterView, Condition, NodeView, ReasonCode as R};
use outrider_tests::beds::namespaces::{Namespaces, ROUTER, missing};
use outrider_tests::coordinator::{Coordinator, Launch};
use outrider_tests::table::Table;

/// Two tries of seven seconds each, the pauses, the report, hysteresis, and a busy machine.
const LIMIT: Duration = Duration::from_secs(150);
const PORTS: &str = "NodePortsReachable";
const READY: &str = "KubernetesReady";
const CLUSTER: &str = "rancher";

struct Bed {
    nodes: Namespaces,
    coordinator: Coordinator,
    runtime: tokio::runtime::Runtime,
    _folder: tempfile::TempDir,
}

/// Where a condition is looked for.
#[derive(Clone, Copy)]
enum Of {
    Node(&'static str, &'static str, &'static str),
    Cluster,
}

impl Bed {
    fn start() -> Self {
        let mut nodes = Namespaces::start(3).unwrap_or_else(|e| panic!("{e:#}"));
        // From here on this thread is on the router, and so is all it starts.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut launch = Launch::new(&folder.path().join("coordinator")).unwrap();
        launch.address.set_ip(ROUTER.parse().unwrap());
        let coordinator = runtime.block_on(launch.start()).unwrap_or_else(|e| panic!("{e:#}"));
        for index in 0..3 {
            let token = runtime.block_on(coordinator.operator.once_token()).unwrap();
            let home = &nodes.nodes[index].home;
            let role = if index < 2 { "server" } else { "agent" };
            home.put(&format!("var/lib/rancher/rke2/{role}/mark"), "").unwrap();
            home.put("token", &token).unwrap();
            let token_file = home.root().join("token");
            let configuration = format!(
                "[node]\nname = \"n{}\"\ncluster = \"{CLUSTER}\"\n[coordinator]\nurls = [\"https://{}\"]\n\
                 token_file = {token_file:?}\n[report]\nheartbeat = \"2s\"\n\
                 [checks.kubernetes]\ninterval = \"1s\"\nneighbour_interval = \"1s\"\n",
                index + 1,
                launch.address,
            );
            nodes.start_agent(index, &configuration).unwrap_or_else(|e| panic!("{e:#}"));
        }
        Self { nodes, coordinator, runtime, _folder: folder }
    }

    fn conditions(&self, of: Of) -> Vec<Condition> {
        let operator = &self.coordinator.operator;
        match of {
            Of::Node(name, ..) => {
                let path = format!("/v1/nodes/{name}");
                self.runtime
                    .block_on(operator.get::<NodeView>(&path))
                    .map(|n| n.conditions)
                    .unwrap_or_default()
            }
            Of::Cluster => {
                let path = format!("/v1/clusters/{CLUSTER}");
                self.runtime
                    .block_on(operator.get::<ClusterView>(&path))
                    .map(|c| c.conditions)
                    .unwrap_or_default()
            }
        }
    }

    fn find(&self, of: Of) -> Option<Condition> {
        let (kind, subject) = match of {
            Of::Node(_, kind, subject) => (kind, subject),
            Of::Cluster => (PORTS, CLUSTER),
        };
        self.conditions(of).into_iter().find(|c| c.condition_type.as_str() == kind && c.subject == subject)
    }

    /// Waits until the condition has this reason and says all of `words`.
    fn see(&self, of: Of, reason: R, words: &[&str]) -> (Duration, Condition) {
        let start = Instant::now();
        loop {
            let found = self.find(of);
            if let Some(c) = found.clone().filter(|c| c.reason == reason)
                && words.iter().all(|w| c.message.contains(w))
            {
                return (start.elapsed(), c);
            }
            if start.elapsed() > LIMIT {
                let logs: Vec<String> = self.nodes.nodes.iter().map(|n| n.home.log()).collect();
                panic!(
                    "no {reason} with {words:?} within {LIMIT:?}; last seen: {found:#?}\n{}",
                    logs.join("\n---\n")
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Everything answers, seen from n1 and over the cluster.
    fn well(&self) -> Duration {
        let start = Instant::now();
        self.see(Of::Node("n1", PORTS, ""), R::NeighboursReached, &["2 of 2"]);
        self.see(Of::Node("n1", PORTS, "overlay"), R::OverlayWorks, &["2 of 2"]);
        self.see(Of::Cluster, R::NeighboursReached, &[]);
        start.elapsed()
    }
}

fn said(c: &Condition) -> String {
    format!("{} {} {}: {}", c.condition_type, c.status, c.reason, c.message)
}

#[test]
#[ignore = "run by tests/run --suite neighbours"]
fn nodes_that_do_not_reach_each_other_are_told_why() {
    if let Some(why) = missing() {
        panic!("this suite cannot run here: {why}");
    }
    let mut table =
        Table::new("three nodes over VXLAN (nginx as kubelet, API server and supervisor), one coordinator");
    let bed = Bed::start();
    bed.well();
    let (_, works) = bed.see(Of::Node("n1", PORTS, "overlay"), R::OverlayWorks, &["UDP 8472", "flannel.1"]);
    table.row("none", "kernel VXLAN on port 8472", said(&works));
    let (_, answers) = bed.see(Of::Node("n1", READY, ""), R::KubernetesAnswers, &["10248"]);
    table.row("none", "healthz 200, readyz 401", said(&answers));

    let node = |i: usize| &bed.nodes.nodes[i];
    let row =
        |table: &mut Table, fault: &str, made: &str, of: Of, reason: R, words: &[&str], cure: &dyn Fn()| {
            let (raised, seen) = bed.see(of, reason.clone(), words);
            let (_, cluster) = bed.see(Of::Cluster, reason, &[]);
            cure();
            let cleared = bed.well();
            table.timed(fault, made, said(&seen), raised, Some(cleared));
            table.row(format!("{fault}, over the cluster"), made, said(&cluster));
        };

    node(1).filter("tcp dport 9345 drop").unwrap();
    let ports = Of::Node("n1", PORTS, "");
    let overlay = Of::Node("n1", PORTS, "overlay");
    row(
        &mut table,
        "n2's supervisor port is closed",
        "nft: tcp dport 9345 drop on n2",
        ports,
        R::NeighbourPortsClosed,
        &["n2", "supervisor 10.99.2.2:9345 silent"],
        &|| node(1).unfilter().unwrap(),
    );

    node(1).filter("tcp dport 10250 reject with icmpx type admin-prohibited").unwrap();
    row(
        &mut table,
        "n2's kubelet port is rejected",
        "nft: tcp dport 10250 reject with icmpx admin-prohibited on n2",
        ports,
        R::NeighbourPortsClosed,
        &["n2", "kubelet 10.99.2.2:10250 prohibited"],
        &|| node(1).unfilter().unwrap(),
    );

    node(1).filter("udp dport 8472 drop").unwrap();
    row(
        &mut table,
        "the CNI's UDP port is closed",
        "nft: udp dport 8472 drop on n2",
        overlay,
        R::OverlayBlocked,
        &["n2 (10.42.2.0:10250 silent", "UDP 8472"],
        &|| node(1).unfilter().unwrap(),
    );

    bed.nodes.drop_large_overlay(1, 1400).unwrap();
    row(
        &mut table,
        "the overlay is a black hole",
        "packets of the overlay over 1400 bytes dropped on the way to n2 (nft on the router)",
        overlay,
        R::PathBlackHole,
        &["n2 (10.42.2.0:10250 stalled", "MTU 1450"],
        &|| bed.nodes.unfilter_router().unwrap(),
    );

    bed.nodes.silence_icmp().unwrap();
    bed.nodes.path_mtu(1, 1300).unwrap();
    row(
        &mut table,
        "the machines' own network is a black hole",
        "MTU 1300 on the way to n2, ICMP dropped on the router",
        ports,
        R::PathBlackHole,
        &["n2 (apiserver 10.99.2.2:6443 stalled"],
        &|| {
            bed.nodes.path_mtu(1, 1500).unwrap();
            bed.nodes.unfilter_router().unwrap();
        },
    );
}

#[test]
#[ignore = "run by tests/run --suite neighbours"]
fn mtu_an_rke1_and_a_node_that_is_gone_are_told() {
    if let Some(why) = missing() {
        panic!("this suite cannot run here: {why}");
    }
    let mut table = Table::new("the same three nodes: MTU, RKE1, a node that is gone");
    let mut bed = Bed::start();
    bed.well();
    let node = |i: usize| &bed.nodes.nodes[i];
    let ports = Of::Node("n1", PORTS, "");

    node(2).run("ip link set eth0 mtu 1400").unwrap();
    let too_large = Of::Node("n3", PORTS, "overlay");
    let (raised, seen) = bed.see(too_large, R::OverlayMtuTooLarge, &["1450", "1350"]);
    node(2).run("ip link set eth0 mtu 1500").unwrap();
    let cleared = bed.well();
    let made = "ip link set eth0 mtu 1400 below it";
    table.timed("n3's overlay MTU is too large", made, said(&seen), raised, Some(cleared));

    node(2).run("ip link set flannel.1 mtu 1400").unwrap();
    let (raised, seen) = bed.see(Of::Cluster, R::OverlayMtuDiffers, &["1400 on n3"]);
    node(2).run("ip link set flannel.1 mtu 1450").unwrap();
    let cleared = bed.well();
    let made = "ip link set flannel.1 mtu 1400";
    table.timed("n3's overlay MTU differs, over the cluster", made, said(&seen), raised, Some(cleared));

    let rke1 = Of::Node("n3", READY, "rke1");
    node(2).home.put("etc/kubernetes/ssl/kube-ca.pem", "x").unwrap();
    let (raised, seen) = bed.see(rke1, R::Rke1Remains, &["kube-ca.pem"]);
    table.timed(
        "an RKE1 was not cleaned away",
        "its certificates on an RKE2 node",
        said(&seen),
        raised,
        None,
    );
    node(2).home.put("proc/4711/comm", "kubelet\n").unwrap();
    let line = "kubelet\0--kubeconfig=/etc/kubernetes/ssl/kubecfg-kube-node.yaml\0";
    node(2).home.put("proc/4711/cmdline", line).unwrap();
    let (raised, seen) = bed.see(rke1, R::Rke1EndOfLife, &["2025-07-31", "pid 4711"]);
    table.timed("an RKE1 runs", "a process with its certificates", said(&seen), raised, None);

    bed.nodes.power_off(1).unwrap();
    let (raised, seen) = bed.see(ports, R::NeighbourAway, &["n2"]);
    // The coordinator calls a node that is not heard silent, and does not lay it to the network.
    let (_, cluster) = bed.see(Of::Cluster, R::NeighboursReached, &[]);
    table.timed("n2 lost its power", "processes killed, cable out", said(&seen), raised, None);
    table.row("n2 lost its power, over the cluster", "the same", said(&cluster));
}
