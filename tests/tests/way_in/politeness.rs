//! How many connections a minute reach the balancer, by the balancer's own count; who asks the backends, and in whose name.

use std::time::Duration;

use outrider_protocol::{ProbeTarget, Status};
use outrider_tests::beds::network::Namespace;
use outrider_tests::beds::rancher::{Balancer, Bed, Layer, Setup, missing};
use outrider_tests::table::Table;

use crate::watchers::{Place, Watched};

const MINUTE: Duration = Duration::from_secs(60);
const PORTS: [u16; 2] = [80, 443];
const BEAT: &str = "[report]\nheartbeat = \"2s\"\n";

fn well() -> Setup {
    Setup::new(Layer::L4, Balancer::Haproxy)
}

/// The bed with all well, and nobody who asks.
fn bed() -> Bed {
    if let Some(why) = missing() {
        panic!("{why}");
    }
    let mut bed = Bed::new().expect("a bed");
    bed.arrange(&well()).unwrap_or_else(|e| panic!("{e:#}"));
    bed
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn one_agent_as_installed_asks_seldom() {
    let mut table =
        Table::new("connections of one agent that begin at the balancer, counted there by the kernel");
    let bed = bed();
    let node = bed.node(1).address(false);
    let mut watched = Watched::new(bed);
    watched.bed.balancer().count_from(&[node], &PORTS).unwrap();
    watched.add("s1", Place::Node(1), &well(), BEAT);
    watched.see("PathsWork", &[]);
    std::thread::sleep(2 * MINUTE);
    let alone = watched.bed.balancer().counted().unwrap();
    let a_minute = alone.values().sum::<u64>() as f64 / 2.0;
    table.row(
        "one agent, as installed",
        "two minutes",
        format!("{a_minute:.1} connections a minute at the balancer"),
    );
    assert!(a_minute > 0.0 && a_minute <= 20.0, "{alone:?}");
}

#[test]
#[ignore = "run by tests/run --suite way-in"]
fn twelve_agents_share_what_one_balancer_bears() {
    let mut table =
        Table::new("connections that begin at the balancer and its backends, counted there by the kernel");
    let bed = bed();
    let spaces: Vec<Namespace> = (31..42).map(|i| bed.machine(i).unwrap()).collect();
    let addresses: Vec<_> = spaces.iter().map(|space| space.address(false)).collect();
    let servers: Vec<_> = (1..=3).map(|i| bed.node(i).address(false)).collect();
    let everybody: Vec<_> = servers.iter().chain(&addresses).copied().collect();
    let mut watched = Watched::new(bed);
    watched.add("s1", Place::Node(1), &well(), BEAT);

    // Twelve that would each make 600 a minute.
    let greedy = format!("[checks.load-balancer]\ninterval = \"1s\"\nprobes_per_minute = 600\n{BEAT}");
    for (i, space) in spaces.into_iter().enumerate() {
        watched.add(&format!("w{}", i + 1), Place::Machine(space), &well(), &greedy);
    }
    watched.see("PathsWork", &["12 nodes"]);
    // Every agent has its share by then.
    std::thread::sleep(MINUTE);
    for number in 1..=3 {
        watched.bed.node(number).count_from(&everybody, &PORTS).unwrap();
    }
    watched.bed.balancer().count_from(&everybody, &PORTS).unwrap();
    std::thread::sleep(MINUTE);
    let shared = watched.bed.balancer().counted().unwrap();
    let (sum, most) = (shared.values().sum::<u64>(), shared.values().max().copied().unwrap_or(0));
    table.row(
        "twelve agents, each with probes_per_minute = 600",
        "one minute",
        format!("{sum} connections a minute at the balancer, {most} of the busiest"),
    );
    // The last pass may begin at the end of the minute and be counted whole.
    assert!(sum > 0 && sum <= 600 + 12 * 12, "{shared:?}");

    let mut straight = 0;
    for number in 1..=3 {
        let counted = watched.bed.node(number).counted().unwrap();
        for address in &addresses {
            assert_eq!(
                counted[&address.to_string()],
                0,
                "backend {number} was tried by an agent node: {counted:?}"
            );
        }
        straight += counted[&servers[0].to_string()];
    }
    table.row(
        "the same",
        "at the three backends",
        format!("{straight} of the one server, none of the agent nodes"),
    );
    assert!(straight > 0);

    // HAProxy's checks in L4 are connections without a request, so whoever asks is we.
    let asked = watched.bed.asked().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let named = asked.iter().filter(|agent| agent.contains(&format!("outrider/{version}"))).count();
    table.row("the same", "requests at Rancher", format!("{named} of {} by outrider/{version}", asked.len()));
    assert!(
        !asked.is_empty() && named == asked.len(),
        "{:?}",
        asked.iter().find(|a| !a.contains("outrider/"))
    );

    let matrix = watched.cluster().unwrap().paths.remove(0);
    let by_agents = matrix.rows.iter().filter(|row| row.node.starts_with('w')).flat_map(|row| {
        matrix.columns.iter().zip(&row.cells).filter(|(column, _)| column.target == ProbeTarget::Backend)
    });
    assert!(by_agents.into_iter().all(|(_, cell)| cell.reached == Status::Unknown), "{matrix:#?}");
}
