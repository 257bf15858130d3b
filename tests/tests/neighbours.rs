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

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use outrider_protocol::{ClusterView, Condition, NodeView, ReasonCode as R};
use outrider_tests::beds::overlay::{Overlay, ROUTER};
use outrider_tests::coordinator::{Coordinator, Launch};
use outrider_tests::table::Table;

/// Two tries of seven seconds each, the pauses, the report, hysteresis, and a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
const PORTS: &str = "NodePortsReachable";
const READY: &str = "KubernetesReady";
const CLUSTER: &str = "rancher";

struct Bed {
    nodes: Overlay,
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
        let mut nodes = Overlay::start(3).unwrap_or_else(|e| panic!("{e:#}"));
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

/// Rows of all beds; each fault has a bed of its own and is made while the others are waited for.
type Shared = Mutex<Table>;
type Step = fn(&Bed) -> anyhow::Result<()>;

/// What keeps nodes from each other, and what n1 and the coordinator have to say of it.
struct Fault {
    fault: &'static str,
    made: &'static str,
    of: Of,
    reason: R,
    words: &'static [&'static str],
    make: Step,
    cure: Step,
}

impl Fault {
    fn show(&self, table: &Shared) {
        let bed = Bed::start();
        bed.well();
        (self.make)(&bed).unwrap_or_else(|e| panic!("{}: {e:#}", self.fault));
        let (raised, seen) = bed.see(self.of, self.reason.clone(), self.words);
        let (_, cluster) = bed.see(Of::Cluster, self.reason.clone(), &[]);
        (self.cure)(&bed).unwrap_or_else(|e| panic!("{}, cured: {e:#}", self.fault));
        let cleared = bed.well();
        let mut table = table.lock().unwrap();
        table.timed(self.fault, self.made, said(&seen), raised, Some(cleared));
        table.row(format!("{}, over the cluster", self.fault), self.made, said(&cluster));
    }
}

const OF_PORTS: Of = Of::Node("n1", PORTS, "");
const OF_OVERLAY: Of = Of::Node("n1", PORTS, "overlay");

fn faults() -> [Fault; 5] {
    let uncover: Step = |bed| bed.nodes.nodes[1].unfilter();
    [
        Fault {
            fault: "n2's supervisor port is closed",
            made: "nft: tcp dport 9345 drop on n2",
            of: OF_PORTS,
            reason: R::NeighbourPortsClosed,
            words: &["n2", "supervisor 10.99.2.2:9345 silent"],
            make: |bed| bed.nodes.nodes[1].filter("tcp dport 9345 drop"),
            cure: uncover,
        },
        Fault {
            fault: "n2's kubelet port is rejected",
            made: "nft: tcp dport 10250 reject with icmpx admin-prohibited on n2",
            of: OF_PORTS,
            reason: R::NeighbourPortsClosed,
            words: &["n2", "kubelet 10.99.2.2:10250 prohibited"],
            make: |bed| bed.nodes.nodes[1].filter("tcp dport 10250 reject with icmpx type admin-prohibited"),
            cure: uncover,
        },
        Fault {
            fault: "the CNI's UDP port is closed",
            made: "nft: udp dport 8472 drop on n2",
            of: OF_OVERLAY,
            reason: R::OverlayBlocked,
            words: &["n2 (10.42.2.0:10250 silent", "UDP 8472"],
            make: |bed| bed.nodes.nodes[1].filter("udp dport 8472 drop"),
            cure: uncover,
        },
        Fault {
            fault: "the overlay is a black hole",
            made: "packets of the overlay over 1400 bytes dropped on the way to n2 (nft on the router)",
            of: OF_OVERLAY,
            reason: R::PathBlackHole,
            words: &["n2 (10.42.2.0:10250 stalled", "MTU 1450"],
            make: |bed| bed.nodes.drop_large_overlay(1, 1400),
            cure: |bed| bed.nodes.unfilter_router(),
        },
        Fault {
            fault: "the machines' own network is a black hole",
            made: "MTU 1300 on the way to n2, ICMP dropped on the router",
            of: OF_PORTS,
            reason: R::PathBlackHole,
            words: &["n2 (apiserver 10.99.2.2:6443 stalled"],
            make: |bed| {
                bed.nodes.silence_icmp()?;
                bed.nodes.path_mtu(1, 1300)
            },
            cure: |bed| {
                bed.nodes.path_mtu(1, 1500)?;
                bed.nodes.unfilter_router()
            },
        },
    ]
}

#[test]
#[ignore = "run by tests/run --suite neighbours"]
fn nodes_that_do_not_reach_each_other_are_told_why() {
    let title = "three nodes over VXLAN (nginx as kubelet, API server and supervisor), one coordinator";
    let table: Shared = Mutex::new(Table::new(title));
    thread::scope(|scope| {
        for fault in faults() {
            let table = &table;
            scope.spawn(move || fault.show(table));
        }
        for work in [mtu, rke1_and_a_node_that_is_gone] {
            let table = &table;
            scope.spawn(move || work(table));
        }
    });
}

fn mtu(table: &Shared) {
    let bed = Bed::start();
    bed.well();
    let third = &bed.nodes.nodes[2];
    third.ip("link set eth0 mtu 1400").unwrap();
    let too_large = Of::Node("n3", PORTS, "overlay");
    let (raised, seen) = bed.see(too_large, R::OverlayMtuTooLarge, &["1450", "1350"]);
    let (fault, made) = ("n3's overlay MTU is too large", "ip link set eth0 mtu 1400 below it");

    // The one's cure is the other's fault.
    third.ip("link set flannel.1 mtu 1350").unwrap();
    let cured = Instant::now();
    let (differs, over_the_cluster) = bed.see(Of::Cluster, R::OverlayMtuDiffers, &["1350 on n3"]);
    bed.see(too_large, R::OverlayWorks, &[]);
    table.lock().unwrap().timed(fault, made, said(&seen), raised, Some(cured.elapsed()));
    third.ip("link set eth0 mtu 1500").unwrap();
    third.ip("link set flannel.1 mtu 1450").unwrap();
    let cleared = bed.well();
    let made = "ip link set flannel.1 mtu 1350";
    let fault = "n3's overlay MTU differs, over the cluster";
    table.lock().unwrap().timed(fault, made, said(&over_the_cluster), differs, Some(cleared));
}

fn rke1_and_a_node_that_is_gone(table: &Shared) {
    let mut bed = Bed::start();
    bed.well();
    let (_, works) = bed.see(OF_OVERLAY, R::OverlayWorks, &["UDP 8472", "flannel.1"]);
    let (_, answers) = bed.see(Of::Node("n1", READY, ""), R::KubernetesAnswers, &["10248"]);
    {
        let mut table = table.lock().unwrap();
        table.row("none", "kernel VXLAN on port 8472", said(&works));
        table.row("none", "healthz 200, readyz 401", said(&answers));
    }

    let third = &bed.nodes.nodes[2].home;
    let rke1 = Of::Node("n3", READY, "rke1");
    third.put("etc/kubernetes/ssl/kube-ca.pem", "x").unwrap();
    let (raised, seen) = bed.see(rke1, R::Rke1Remains, &["kube-ca.pem"]);
    let (fault, made) = ("an RKE1 was not cleaned away", "its certificates on an RKE2 node");
    table.lock().unwrap().timed(fault, made, said(&seen), raised, None);
    third.put("proc/4711/comm", "kubelet\n").unwrap();
    let line = "kubelet\0--kubeconfig=/etc/kubernetes/ssl/kubecfg-kube-node.yaml\0";
    third.put("proc/4711/cmdline", line).unwrap();
    let (raised, seen) = bed.see(rke1, R::Rke1EndOfLife, &["2025-07-31", "pid 4711"]);
    let (fault, made) = ("an RKE1 runs", "a process with its certificates");
    table.lock().unwrap().timed(fault, made, said(&seen), raised, None);

    bed.nodes.power_off(1).unwrap();
    let (raised, seen) = bed.see(OF_PORTS, R::NeighbourAway, &["n2"]);
    // The coordinator calls a node that is not heard silent, and does not lay it to the network.
    let (_, cluster) = bed.see(Of::Cluster, R::NeighboursReached, &[]);
    let mut table = table.lock().unwrap();
    table.timed("n2 lost its power", "processes killed, cable out", said(&seen), raised, None);
    table.row("n2 lost its power, over the cluster", "the same", said(&cluster));
}
