//! A virtual address that real keepalived moves between two real balancers while agents watch.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use outrider_protocol::{Condition, Status};
use outrider_tests::beds::network::Namespace;
use outrider_tests::beds::rancher::{Address, Balancer, Bed, KEEPALIVED, Layer, Setup, missing};
use outrider_tests::programs::{has_command, until};
use outrider_tests::table::Table;

use crate::watchers::{Place, Watched};

const REACHABLE: &str = "LoadBalancerReachable";
const FORWARDING: &str = "LoadBalancerForwarding";
const OFTEN: &str =
    "[checks.load-balancer]\ninterval = \"1s\"\nprobes_per_minute = 600\n[report]\nheartbeat = \"2s\"\n";
const NODES: [&str; 3] = ["s1", "w1", "w2"];

fn start() -> Watched {
    let mut bed = Bed::new().expect("a bed");
    let setup = Setup::new(Layer::L4, Balancer::Haproxy);
    bed.arrange(&setup).unwrap_or_else(|e| panic!("{e:#}"));
    bed.pair(&setup).unwrap_or_else(|e| panic!("{e:#}"));
    let address = bed.virtual_address();
    let door = SocketAddr::new(address, 443);
    until("the virtual address answers", Duration::from_secs(30), || {
        TcpStream::connect_timeout(&door, Duration::from_secs(1)).ok()
    })
    .unwrap_or_else(|e| panic!("{e}\n{}", bed.keepers_said()));
    // The name has this address alone.
    let first: &'static str = format!("[\"{}\"]", bed.address(Address::First)).leak();
    let instead: &'static str = format!("[\"{address}\"]").leak();
    let told = Setup { agent_edits: vec![(first, instead)], ..setup };
    let machines = [bed.machine(31).unwrap(), bed.machine(32).unwrap()];
    let mut watched = Watched::new(bed);
    watched.add(NODES[0], Place::Node(1), &told, OFTEN);
    for (name, space) in NODES[1..].iter().zip(machines) {
        watched.add(name, Place::Machine(space), &told, OFTEN);
    }
    watched
}

/// Every condition about the balancer that is `False` at the moment, of nodes and cluster.
fn alarms(watched: &Watched) -> Vec<String> {
    let of_nodes = NODES.iter().flat_map(|name| {
        let of = |kind| watched.of_node(name, kind).map(|c| (name.to_string(), c));
        [of(REACHABLE), of(FORWARDING)].into_iter().flatten()
    });
    let all = of_nodes.chain(watched.condition().map(|c| ("the cluster".to_owned(), c)));
    all.filter(|(_, c)| c.status == Status::False)
        .map(|(who, c)| format!("{who}: {}: {}", c.reason, c.message))
        .collect()
}

fn link(watched: &Watched, second: bool, state: &str) {
    let bed = &watched.bed;
    let space = if second { bed.second_balancer().unwrap() } else { bed.balancer() };
    space.ip(&format!("link set eth0 {state}\n")).unwrap();
}

/// Waits for `reason` at every node, while nobody may raise an alarm.
fn moved_calmly(watched: &Watched, reason: &str, words: &[&str]) -> (Duration, Condition) {
    let start = Instant::now();
    let mut told = None;
    loop {
        let alarms = alarms(watched);
        assert!(alarms.is_empty(), "a short gap is no outage: {alarms:#?}\n{}", watched.bed.keepers_said());
        let of = |name: &&str| {
            let c = watched.of_node(name, REACHABLE)?;
            (c.reason.as_str() == reason && words.iter().all(|w| c.message.contains(w))).then_some(c)
        };
        let seen: Vec<Condition> = NODES.iter().filter_map(of).collect();
        if let (Some(first), None) = (seen.first(), &told) {
            told = Some((start.elapsed(), first.clone()));
        }
        if let (true, Some(told)) = (seen.len() == NODES.len(), &told) {
            return told.clone();
        }
        assert!(
            start.elapsed() < Duration::from_secs(180),
            "{reason} {words:?} is told by {} of {} nodes only; w1 says {:#?}",
            seen.len(),
            NODES.len(),
            watched.of_node("w1", REACHABLE)
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn mac(space: &Namespace) -> String {
    let output = space.command("cat").arg("/sys/class/net/eth0/address").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn holds(space: &Namespace, address: IpAddr) -> bool {
    let output = space.command("ip").args(["-o", "address", "show", "dev", "eth0"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains(&format!(" {address}/24 "))
}

/// The bed with three agents who say that all is well; none where keepalived is missing.
fn calm(table: &mut Table) -> Option<Watched> {
    if let Some(why) = missing() {
        panic!("{why}");
    }
    if !has_command(KEEPALIVED) {
        table.row("an address moves", "keepalived", "left out: the program is missing here");
        return None;
    }
    let watched = start();
    for name in NODES {
        watched.see_in(|| watched.of_node(name, REACHABLE), "BalancerAnswers", &[]);
    }
    let (took, good, _) = watched.see("PathsWork", &["3 nodes"]);
    table.timed("none", "the first balancer holds the address", said(&good), took, None);
    Some(watched)
}

fn said(c: &Condition) -> String {
    format!("{} {} {}: {}", c.condition_type, c.status, c.reason, c.message)
}

/// Hardware addresses of the two balancers.
fn macs(watched: &Watched) -> [String; 2] {
    [mac(watched.bed.balancer()), mac(watched.bed.second_balancer().unwrap())]
}

fn first_dies(watched: &Watched, table: &mut Table) {
    let now = format!("{} answers for it since", macs(watched)[1]);
    link(watched, false, "down");
    let (raised, seen) = moved_calmly(watched, "BalancerMoved", &[&now]);
    let made = "its link is down; VRRP moves the address";
    table.timed("the first balancer dies", made, said(&seen), raised, None);
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn an_address_that_moves_is_no_outage() {
    let mut table =
        Table::new("two HAProxy with one virtual address of keepalived, three agents, one coordinator");
    let Some(mut watched) = calm(&mut table) else { return };
    let macs = macs(&watched);
    first_dies(&watched, &mut table);

    link(&watched, false, "up");
    let now = format!("{} answers for it since", macs[0]);
    let (raised, seen) = moved_calmly(&watched, "BalancerMoved", &[&now]);
    let made = "its link is up: it takes the address back";
    table.timed("the first balancer returns", made, said(&seen), raised, None);

    let setup = Setup::new(Layer::L4, Balancer::Haproxy);
    watched.bed.first_balances(&setup, false).unwrap();
    let (raised, seen) = moved_calmly(&watched, "BalancerContested", &[&macs[1]]);
    let made = "its process ends; the script of keepalived finds out";
    table.timed("HAProxy dies on the first", made, said(&seen), raised, None);
}

/// Where nobody takes the address over, it is an outage.
#[test]
#[ignore = "run by tests/run --suite way-in"]
fn an_address_that_nobody_takes_over_is_an_outage() {
    let mut table = Table::new("two HAProxy with one virtual address, both dead");
    let Some(watched) = calm(&mut table) else { return };
    first_dies(&watched, &mut table);
    link(&watched, true, "down");
    let down = Instant::now();
    let (_, seen, _) = watched.see("BalancerDown", &[]);
    let raised = down.elapsed();
    link(&watched, true, "up");
    let up = Instant::now();
    watched.see("PathsWork", &["3 nodes"]);
    table.timed("both are dead", "both links are down", said(&seen), raised, Some(up.elapsed()));
    for name in NODES {
        watched.see_in(
            || watched.of_node(name, REACHABLE).filter(|c| c.status == Status::True),
            "BalancerMoved",
            &[],
        );
    }
}

/// Neither hears the other, and w2 goes on with the answer it had from the other one.
#[test]
#[ignore = "run by tests/run --suite way-in"]
fn an_address_that_both_hold_is_contested() {
    let mut table = Table::new("two HAProxy with one virtual address, and both hold it");
    let Some(watched) = calm(&mut table) else { return };
    let macs = macs(&watched);
    for space in [watched.bed.balancer(), watched.bed.second_balancer().unwrap()] {
        space.drop_in("ip protocol 112").unwrap();
    }
    let address = watched.bed.virtual_address();
    until("both hold the address", Duration::from_secs(30), || {
        let holders = [watched.bed.balancer(), watched.bed.second_balancer().unwrap()];
        holders.iter().all(|space| holds(space, address)).then_some(())
    })
    .unwrap_or_else(|e| panic!("{e}\n{}", watched.bed.keepers_said()));
    let split = Instant::now();
    for (name, holder) in NODES.into_iter().zip([0, 0, 1]) {
        let mac = &macs[holder];
        watched
            .space(name)
            .ip(&format!("neigh replace {address} lladdr {mac} dev eth0 nud permanent\n"))
            .unwrap();
    }
    let (_, seen, _) = watched.see("BalancerContested", &["(s1, w1)", "(w2)"]);
    let raised = split.elapsed();
    for name in NODES {
        watched.space(name).ip(&format!("neigh del {address} dev eth0\n")).unwrap();
    }
    for space in [watched.bed.balancer(), watched.bed.second_balancer().unwrap()] {
        space.heal().unwrap();
    }
    let healed = Instant::now();
    watched.see("PathsWork", &["3 nodes"]);
    let made = "nft on both: VRRP dropped; ip neigh: two nodes have heard the one, one the other";
    table.timed("both hold the address", made, said(&seen), raised, Some(healed.elapsed()));
}
