//! The path matrix over real balancers: agents on the nodes behind it, on machines beside them and in another network,
//! and what the coordinator makes of their tries together.

use std::time::Instant;

use outrider_tests::beds::network::Namespace;
use outrider_tests::beds::rancher::{Address, Balancer, Bed, Edit, Layer, Setup, missing};
use outrider_tests::table::Table;

use crate::watchers::{Place, Watched};

const NO_HEALTH_CHECK: Edit = (" check inter 10s fastinter 2s fall 3 rise 2", "");
const SERVERS: [&str; 3] = ["s1", "s2", "s3"];
const BESIDE: [&str; 2] = ["w1", "w2"];
const ELSEWHERE: [&str; 2] = ["o1", "o2"];
/// Often enough that ten passes are over soon.
const OFTEN: &str = "[checks.load-balancer]\ninterval = \"1s\"\ntimeout = \"10s\"\nprobes_per_minute = 600\n\
                     [report]\nheartbeat = \"2s\"\n";

fn well() -> Setup {
    Setup::new(Layer::L4, Balancer::Haproxy)
}

fn start() -> Watched {
    let mut bed = Bed::new().expect("a bed");
    bed.arrange(&well()).unwrap_or_else(|e| panic!("{e:#}"));
    let beside: Vec<Namespace> = (31..).take(BESIDE.len()).map(|i| bed.machine(i).unwrap()).collect();
    let elsewhere: Vec<Namespace> =
        (41..).take(ELSEWHERE.len()).map(|i| bed.machine_elsewhere(i).unwrap()).collect();
    let mut watched = Watched::new(bed);
    for (i, name) in SERVERS.into_iter().enumerate() {
        watched.add(name, Place::Node(i + 1), &well(), OFTEN);
    }
    for (name, space) in BESIDE.into_iter().chain(ELSEWHERE).zip(beside.into_iter().chain(elsewhere)) {
        watched.add(name, Place::Machine(space), &well(), OFTEN);
    }
    watched
}

/// What is broken, who is to blame, and the words that no neighbour's message has.
struct Fault {
    name: &'static str,
    made: &'static str,
    reason: &'static str,
    words: &'static [&'static str],
    make: fn(&mut Watched),
    cure: fn(&mut Watched),
}

fn arrange(watched: &mut Watched, setup: &Setup) {
    watched.bed.arrange(setup).unwrap_or_else(|e| panic!("{e:#}"));
}

/// Nothing runs on one node, and the balancer does not look.
fn dead_backend_in_use() -> Vec<Fault> {
    vec![Fault {
        name: "a dead backend is still used",
        made: "nothing runs on node 2, HAProxy without checks",
        reason: "DeadBackendInUse",
        words: &["The balancer still uses what is dead", ".2:443 ("],
        make: |w| arrange(w, &Setup { dead: vec![2], balancer_edits: vec![NO_HEALTH_CHECK], ..well() }),
        cure: |w| arrange(w, &well()),
    }]
}

/// Nothing runs on one node, and the balancer has seen it.
fn dead_backend_left_out() -> Vec<Fault> {
    vec![Fault {
        name: "a dead backend is taken out",
        made: "nothing runs on node 2, HAProxy with checks",
        reason: "BackendDown",
        words: &["leaves it out"],
        make: |w| arrange(w, &Setup { dead: vec![2], ..well() }),
        cure: |w| arrange(w, &well()),
    }]
}

/// One node does not reach the balancer.
fn single_nodes() -> Vec<Fault> {
    vec![
        Fault {
            name: "one node's firewall",
            made: "nft on w1: what comes from the balancer is dropped",
            reason: "PathOfOneNode",
            words: &["w1 alone does not reach"],
            make: |w| w.space("w1").lose_from(&[w.bed.address(Address::First)]).unwrap(),
            cure: |w| w.space("w1").heal().unwrap(),
        },
        Fault {
            name: "one node's route",
            made: "ip route add unreachable of the balancer's address on w2",
            reason: "PathOfOneNode",
            words: &["w2 alone does not reach"],
            make: |w| {
                let balancer = w.bed.address(Address::First);
                w.space("w2").ip(&format!("route add unreachable {balancer}/32\n")).unwrap();
            },
            cure: |w| {
                let balancer = w.bed.address(Address::First);
                w.space("w2").ip(&format!("route del unreachable {balancer}/32\n")).unwrap();
            },
        },
    ]
}

/// Packet filters, at a node that is a backend and at the balancer.
fn filters() -> Vec<Fault> {
    vec![
        Fault {
            name: "one node's firewall, of a node that is a backend",
            made: "nft on s3: what comes from the balancer's port 443 is dropped",
            reason: "PathOfOneNode",
            words: &["s3 alone does not reach"],
            make: |w| w.space("s3").drop_in("tcp sport 443 tcp dport != 443").unwrap(),
            cure: |w| w.space("s3").heal().unwrap(),
        },
        Fault {
            name: "a network is not let in",
            made: "nft on the balancer: what comes from o1 and o2 is dropped",
            reason: "PathBlockedOutside",
            words: &["No node of the network 10.88."],
            make: |w| {
                let theirs = ELSEWHERE.map(|name| w.space(name).address(false));
                w.bed.balancer().lose_from(&theirs).unwrap();
            },
            cure: |w| w.bed.balancer().heal().unwrap(),
        },
    ]
}

/// The balancer is gone, or keeps the client's address.
fn balancers() -> Vec<Fault> {
    vec![
        Fault {
            name: "the balancer is gone",
            made: "HAProxy stopped",
            reason: "BalancerDown",
            words: &["No node reaches", "Backends answer past it"],
            make: |w| arrange(w, &Setup::new(Layer::L4, Balancer::Nothing)),
            cure: |w| arrange(w, &well()),
        },
        Fault {
            name: "too few to say: the nodes behind the balancer fail now and then, and nobody else tries",
            made: "the kernel balances and keeps the client's address; the agents of w1, w2, o1, o2 are stopped",
            reason: "PathFaultUnclear",
            words: &["too few to say whose fault it is"],
            make: |w| {
                for name in BESIDE.into_iter().chain(ELSEWHERE) {
                    w.stop(name);
                }
                arrange(w, &Setup::new(Layer::L4, Balancer::Preserving));
            },
            // What is added tells the rest of it: the next fault.
            cure: |_| {},
        },
        Fault {
            name: "hairpin with the client's address kept",
            made: "the same, and the four agents run again",
            reason: "PathHairpin",
            words: &["fail only from nodes that are its backends"],
            make: |w| {
                for name in BESIDE.into_iter().chain(ELSEWHERE) {
                    w.start(name);
                }
            },
            cure: |w| arrange(w, &well()),
        },
    ]
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn whose_fault_it_is_with_a_dead_backend_in_use() {
    blame("a dead backend in use", dead_backend_in_use());
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn whose_fault_it_is_with_a_dead_backend_left_out() {
    blame("a dead backend left out", dead_backend_left_out());
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn whose_fault_it_is_with_a_single_node() {
    blame("a single node", single_nodes());
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn whose_fault_it_is_with_a_filter() {
    blame("a filter", filters());
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn whose_fault_it_is_with_the_balancer() {
    blame("the balancer", balancers());
}

/// Makes the faults one after another before the same agents: each must be told, and clear without anybody else being blamed.
fn blame(of: &str, faults: Vec<Fault>) {
    if let Some(why) = missing() {
        panic!("{why}");
    }
    let title =
        format!("seven agents at one balancer, one coordinator: LoadBalancerReachable of the cluster ({of})");
    let mut table = Table::new(&title);
    let mut watched = start();
    let all = "7 nodes";
    let (took, good, _) = watched.see("PathsWork", &[all]);
    table.timed("none", "l4-haproxy.cfg", good.message, took, None);
    let matrix = watched.cluster().unwrap().paths.remove(0);
    let targets: Vec<&str> = matrix.rows.iter().filter(|r| r.is_target).map(|r| r.node.as_str()).collect();
    assert_eq!(targets, SERVERS, "{matrix:#?}");
    let networks: std::collections::BTreeSet<&str> = matrix.rows.iter().map(|r| r.network.as_str()).collect();
    assert_eq!(networks.len(), 2, "{matrix:#?}");

    for fault in faults.into_iter().filter(|f| crate::chosen(f.name)) {
        (fault.make)(&mut watched);
        let (raised, seen, before) = watched.see(fault.reason, fault.words);
        assert!(!seen.advice.is_empty(), "{seen:#?}");
        let cured = Instant::now();
        (fault.cure)(&mut watched);
        if fault.reason == "PathFaultUnclear" {
            table.timed(fault.name, fault.made, said(&seen.message, &before), raised, None);
            continue;
        }
        let (_, _, after) = watched.see("PathsWork", &[all]);
        let cleared = cured.elapsed();
        table.timed(fault.name, fault.made, said(&seen.message, &before), raised, Some(cleared));
        // While it clears nobody else is blamed for certain.
        let blamed: Vec<&String> = after.iter().filter(|r| *r != fault.reason && is_certain(r)).collect();
        assert!(blamed.is_empty(), "{}: while it cleared {after:?} were said", fault.name);
    }
}

/// A verdict that sends somebody to mend something.
fn is_certain(reason: &str) -> bool {
    !["PathFaultUnclear", "PathsWork", "PathsUntried", "BackendDown", "DeadBackendInUse"].contains(&reason)
}

fn said(message: &str, before: &[String]) -> String {
    match before.iter().filter(|r| *r != "PathsWork").cloned().collect::<Vec<_>>() {
        none if none.is_empty() => message.to_owned(),
        others => format!("{message} (before that: {})", others.join(", ")),
    }
}
