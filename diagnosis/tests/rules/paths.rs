//! The path matrix: whose fault it is that tries at a load balancer fail (E11, E12, E14 of `facts/rancher-load-balancer.md`).

use outrider_diagnosis::{Finding, fleet};
use outrider_protocol::*;
use proptest::prelude::*;

use crate::world::{self, now};
use crate::{expect, rank};

use ReasonCode as R;
use Severity as S;
use Status as T;

const VIP: &str = "192.0.2.10:443";

/// One node: its address, and failures of tries through the balancer and at each backend.
#[derive(Clone, Debug)]
struct Node {
    ready: Status,
    address: String,
    untried: &'static str,
    /// Seconds between its looks, made long ago or not.
    every: Option<u32>,
    paths: Vec<PathTries>,
}

fn tries(target: ProbeTarget, peer: &str, failed: u32, tries: u32) -> PathTries {
    let cause = (failed > 0).then_some(UnknownCause::TimedOut);
    PathTries {
        target,
        peer: peer.into(),
        tries,
        failed,
        timed_out: failed,
        cause,
        down: false,
        mac: String::new(),
    }
}

/// A node at `address` with `failed` of `made` tries through the balancer.
fn node(address: &str, failed: u32, made: u32) -> Node {
    let paths = vec![tries(ProbeTarget::Balancer, VIP, failed, made)];
    Node { ready: T::True, address: address.into(), untried: "", every: None, paths }
}

impl Node {
    /// The same, which tried backends past the balancer too: (address, failed, made).
    fn behind(mut self, backends: &[(&str, u32, u32)]) -> Self {
        let tried = backends
            .iter()
            .map(|(ip, failed, made)| tries(ProbeTarget::Backend, &format!("{ip}:443"), *failed, *made));
        self.paths.extend(tried);
        self
    }
}

/// What a node tells of itself: name, addresses, tries.
type Told = (String, Vec<String>, Vec<BalancerPaths>);

fn told(nodes: &[Node]) -> Vec<Told> {
    let told = nodes.iter().enumerate().map(|(i, n)| {
        let paths = BalancerPaths {
            name: "rancher".into(),
            host: "rancher.example".into(),
            port: 443,
            at: now(),
            every_seconds: n.every,
            untried: n.untried.into(),
            paths: n.paths.clone(),
        };
        (format!("n{}", i + 1), vec![n.address.clone()], vec![paths])
    });
    told.collect()
}

fn members<'a>(nodes: &[Node], told: &'a [Told]) -> Vec<fleet::Member<'a>> {
    let members = nodes.iter().zip(told).map(|(n, (name, addresses, paths))| fleet::Member {
        name,
        ready: n.ready,
        zone: "",
        region: "",
        etcd: None,
        network: None,
        received: None,
        heard: None,
        retired: None,
        addresses,
        paths,
    });
    members.collect()
}

fn judged(nodes: &[Node]) -> Finding {
    let told = told(nodes);
    let members = members(nodes, &told);
    let judgement = fleet::judge_cluster("c", &members, now());
    // The same from the other end: the order of reports changes nothing.
    let mut reversed = members.clone();
    reversed.reverse();
    assert_eq!(judgement.findings, fleet::judge_cluster("c", &reversed, now()).findings);
    assert_eq!(fleet::matrices(&members), fleet::matrices(&reversed));
    let of = |f: &&Finding| f.condition_type == ConditionType::LoadBalancerReachable;
    let found: Vec<&Finding> = judgement.findings.iter().filter(of).collect();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].subject, "rancher");
    found[0].clone()
}

/// Three servers behind the balancer, and two workers.
const SERVERS: [&str; 3] = ["10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24"];
const ALL_WELL: [(&str, u32, u32); 3] = [("10.0.0.1", 0, 10), ("10.0.0.2", 0, 10), ("10.0.0.3", 0, 10)];

fn servers(failed: [u32; 3], behind: &[(&str, u32, u32)]) -> Vec<Node> {
    SERVERS.iter().zip(failed).map(|(address, failed)| node(address, failed, 30).behind(behind)).collect()
}

#[test]
fn all_is_well_when_every_try_comes_through() {
    let mut nodes = servers([0, 0, 0], &ALL_WELL);
    nodes.push(node("10.0.0.11/24", 0, 30));
    expect(&judged(&nodes), T::True, S::Ok, R::PathsWork, &["120 of 120", "4 nodes"]);
    nodes[0].paths[0] = tries(ProbeTarget::Balancer, VIP, 1, 30);
    expect(&judged(&nodes), T::True, S::Info, R::PathsWork, &["119 of 120", "one failure is no news"]);
}

#[test]
fn a_hairpin_fails_from_backends_alone_and_about_one_try_in_n() {
    let mut nodes = servers([9, 11, 10], &ALL_WELL);
    nodes.extend([node("10.0.0.11/24", 0, 30), node("10.0.0.12/24", 0, 30)]);
    let found = judged(&nodes);
    expect(
        &found,
        T::False,
        S::Error,
        R::PathHairpin,
        &["n1 (9 of 30", "1 in 3.0", "3 backends", "60 tries", "IP targets"],
    );
    // Without a node that is no backend, nobody can tell.
    expect(
        &judged(&nodes[..3]),
        T::False,
        S::Error,
        R::PathFaultUnclear,
        &["30 of 90", "3 backends answered"],
    );
    // With another that fails as well, it is none.
    nodes[3] = node("10.0.0.11/24", 9, 30);
    assert_eq!(judged(&nodes).reason, R::PathFaultUnclear);
    // A backend that tried just as often and never failed speaks against it.
    let mut spared = servers([9, 0, 10], &ALL_WELL);
    spared.push(node("10.0.0.11/24", 0, 30));
    assert_eq!(judged(&spared).reason, R::PathFaultUnclear);
}

#[test]
fn a_dead_backend_that_is_still_used_fails_from_everywhere() {
    let one_dead = [("10.0.0.1", 0, 10), ("10.0.0.2", 10, 10), ("10.0.0.3", 0, 10)];
    let mut nodes = servers([10, 9, 11], &one_dead);
    nodes.push(node("10.0.0.11/24", 10, 30));
    let found = judged(&nodes);
    expect(
        &found,
        T::False,
        S::Error,
        R::DeadBackendInUse,
        &["10.0.0.2:443 (30 of 30", "3 backends", "health check"],
    );
    // The balancer has taken it out.
    let mut out = servers([0, 0, 0], &one_dead);
    out.push(node("10.0.0.11/24", 0, 30));
    expect(&judged(&out), T::True, S::Warn, R::BackendDown, &["10.0.0.2", "leaves it out", "120 of 120"]);
}

#[test]
fn one_node_alone_is_its_own_fault() {
    let mut nodes = servers([0, 0, 0], &ALL_WELL);
    nodes.push(node("10.0.0.11/24", 5, 5));
    expect(&judged(&nodes), T::False, S::Error, R::PathOfOneNode, &["n4 alone", "5 of 5", "/etc/hosts"]);
    // Two nodes are too few to say it of one of them.
    let two = [node("10.0.0.11/24", 5, 5), node("10.0.0.12/24", 0, 5)];
    expect(
        &judged(&two),
        T::False,
        S::Error,
        R::PathFaultUnclear,
        &["n1", "too few", "backends of [[load_balancer]]"],
    );
    // The only backend always meets itself: that is a hairpin or its own route, and cannot be told.
    let only = [("10.0.0.1", 0, 10)];
    let nodes =
        [node("10.0.0.1/24", 9, 9).behind(&only), node("10.0.0.11/24", 0, 9), node("10.0.0.12/24", 0, 9)];
    assert_eq!(judged(&nodes).reason, R::PathFaultUnclear);
}

#[test]
fn a_network_that_is_not_let_in_is_named() {
    let mut nodes = vec![node("10.0.1.11/24", 6, 6), node("10.0.1.12/24", 6, 6)];
    nodes.extend(servers([0, 0, 0], &ALL_WELL));
    let found = judged(&nodes);
    expect(
        &found,
        T::False,
        S::Error,
        R::PathBlockedOutside,
        &["10.0.1.0/24", "n1", "n2", "security groups"],
    );
    nodes.push(node("10.0.1.13/24", 0, 6));
    assert_eq!(judged(&nodes).reason, R::PathFaultUnclear, "one of it comes through");
}

#[test]
fn a_balancer_that_answers_nobody_is_down_whoever_is_behind_it() {
    let nodes: Vec<Node> = SERVERS.iter().map(|a| node(a, 5, 5).behind(&ALL_WELL)).collect();
    expect(
        &judged(&nodes),
        T::False,
        S::Error,
        R::BalancerDown,
        &["No node reaches rancher.example:443", "Backends answer"],
    );
    let mut one_of_two = servers([0, 0, 0], &ALL_WELL);
    for n in &mut one_of_two {
        n.paths.push(tries(ProbeTarget::Balancer, "192.0.2.11:443", 5, 5));
    }
    expect(
        &judged(&one_of_two),
        T::False,
        S::Error,
        R::BalancerPartlyDown,
        &["192.0.2.11", "1 of 2 addresses"],
    );
}

#[test]
fn what_is_not_known_is_not_good() {
    let mut nodes = servers([0, 0, 0], &ALL_WELL);
    nodes[1].ready = T::Unknown;
    expect(&judged(&nodes), T::True, S::Info, R::PathsWork, &["n2 (silent)"]);
    (nodes[1].ready, nodes[1].untried) = (T::True, "NameNotResolved");
    nodes[1].paths.clear();
    expect(&judged(&nodes), T::True, S::Info, R::PathsWork, &["n2 (NameNotResolved)"]);
    for n in &mut nodes {
        (n.untried, n.paths) = ("TimedOut", Vec::new());
    }
    expect(&judged(&nodes), T::Unknown, S::Info, R::PathsUntried, &["n1 (TimedOut)"]);
    let lonely = [node("10.0.0.11/24", 1, 1)];
    expect(&judged(&lonely), T::Unknown, S::Info, R::PathsUntried, &["too few"]);
}

#[test]
fn tries_are_counted_by_connection_and_ours_are_not_held_against_the_path() {
    let at = now();
    let probe = |peer: &str, tcp: Fact<f64>, http: Fact<HttpAnswer>| Probe {
        kind: ProbeKind::Root,
        target: ProbeTarget::Balancer,
        peer: peer.into(),
        at,
        tcp,
        tls: Fact::not_applicable("", at),
        http,
        raw: String::new(),
    };
    let answer = |status: u16| {
        let json = serde_json::json!({"status": status, "bodyBytes": 0, "bodySha256": "", "ms": 1.0});
        Fact::known(serde_json::from_value::<HttpAnswer>(json).unwrap(), "", at)
    };
    let good = || Fact::known(1.0, "", at);
    let lost = |cause: UnknownCause| Fact::unknown(cause, "", "", at);
    let facts = world::balancer(vec![
        probe(VIP, good(), answer(200)),
        probe(VIP, Fact::not_applicable("on the connection of the try before", at), answer(200)),
        probe(VIP, good(), answer(404)),
        probe(VIP, good(), answer(503)),
        probe(VIP, lost(UnknownCause::TimedOut), Fact::not_applicable("", at)),
        probe(VIP, lost(UnknownCause::PermissionDenied), Fact::not_applicable("", at)),
        probe("192.0.2.10:80", lost(UnknownCause::ConnectionRefused), Fact::not_applicable("", at)),
    ]);
    let paths = fleet::paths_of(&facts).paths;
    assert_eq!(paths.len(), 1, "{paths:#?}");
    assert_eq!((paths[0].tries, paths[0].failed, paths[0].timed_out), (4, 2, 1));
}

#[test]
fn the_matrix_says_who_is_a_backend_and_where_it_stands() {
    let mut nodes = servers([0, 2, 0], &ALL_WELL);
    nodes.push(node("10.0.7.11/16", 0, 3));
    let told = told(&nodes);
    let members = members(&nodes, &told);
    let matrix = &fleet::matrices(&members)[0];
    assert_eq!(matrix.columns.len(), 4);
    assert_eq!((matrix.columns[1].peer.as_str(), matrix.columns[1].node.as_str()), ("10.0.0.1:443", "n1"));
    let (second, worker) = (&matrix.rows[1], &matrix.rows[3]);
    assert!(second.is_target && !worker.is_target);
    assert_eq!(second.cells[0], PathCell { reached: T::False, tries: 30, failed: 2 });
    assert_eq!((worker.network.as_str(), worker.cells[1].reached), ("10.0.0.0/16", T::Unknown));
}

fn any_node() -> impl Strategy<Value = Node> {
    let backend = (0u32..4, 0u32..6);
    (0u8..3, 1u8..6, (0u32..5, 0u32..12), prop::collection::vec(backend, 0..4), 0u8..6).prop_map(
        |(network, host, (failed, good), behind, state)| {
            let addresses: Vec<String> = (1..=behind.len()).map(|i| format!("10.0.0.{i}")).collect();
            let behind: Vec<(&str, u32, u32)> = addresses
                .iter()
                .zip(&behind)
                .map(|(a, (failed, good))| (a.as_str(), *failed, failed + good))
                .collect();
            let mut n = node(&format!("10.0.{network}.{host}/24"), failed, failed + good).behind(&behind);
            n.ready = if state == 0 { T::Unknown } else { T::True };
            n
        },
    )
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn one_more_success_never_makes_it_worse(nodes in prop::collection::vec(any_node(), 1..6), which in any::<prop::sample::Index>(), path in any::<prop::sample::Index>()) {
        let before = judged(&nodes);
        let mut more = nodes.clone();
        let n = which.index(more.len());
        let p = path.index(more[n].paths.len());
        more[n].paths[p].tries += 1;
        let after = judged(&more);
        prop_assert!(rank(&after) <= rank(&before), "{:#?}\n{:#?}", before, after);
    }

    #[test]
    fn one_more_failure_never_makes_it_better(nodes in prop::collection::vec(any_node(), 1..6), which in any::<prop::sample::Index>()) {
        let before = judged(&nodes);
        let mut more = nodes.clone();
        let n = which.index(more.len());
        (more[n].paths[0].tries, more[n].paths[0].failed) = (more[n].paths[0].tries + 1, more[n].paths[0].failed + 1);
        let after = judged(&more);
        // A first failed try of an untried path makes nothing known that was not.
        prop_assert!(rank(&after) >= rank(&before), "{:#?}\n{:#?}", before, after);
    }

    #[test]
    fn a_node_that_is_not_known_is_never_good(nodes in prop::collection::vec(any_node(), 1..6), which in any::<prop::sample::Index>()) {
        let mut unknown = nodes.clone();
        let n = which.index(unknown.len());
        unknown[n].paths.clear();
        unknown[n].untried = "TimedOut";
        prop_assert!(judged(&unknown).severity > Severity::Ok);
        for n in &mut unknown {
            n.paths.clear();
            n.untried = "TimedOut";
        }
        prop_assert_eq!(judged(&unknown).status, Status::Unknown);
    }

    #[test]
    fn every_verdict_has_words_and_advice(nodes in prop::collection::vec(any_node(), 1..6)) {
        let f = judged(&nodes);
        let (low, high) = f.reason.info().unwrap().severities;
        prop_assert!(f.severity >= low && f.severity <= high, "{:?}", f);
        prop_assert!(f.message.ends_with('.') && !f.message.contains("  "), "{}", f.message);
        prop_assert!(f.severity < Severity::Warn || !f.advice.is_empty());
    }
}

/// Two balancers hold one address, and each node hears one of them.
#[test]
fn nodes_beside_each_other_are_answered_by_one_machine() {
    let nodes = |macs: [&str; 3], address: &str| {
        let mut nodes = servers([0, 0, 0], &ALL_WELL);
        for (node, mac) in nodes.iter_mut().zip(macs) {
            node.paths[0].mac = mac.into();
        }
        nodes[2].address = address.into();
        judged(&nodes)
    };
    let here = "10.0.0.3/24";
    let words = ["at 192.0.2.10: aa (n1, n2), bb (n3)", "90 of 90 tries", "balance-alb"];
    let found = nodes(["aa", "aa", "bb"], here);
    expect(&found, T::True, S::Warn, R::BalancerContested, &words);
    // A move is seen by one node after another.
    assert!(found.raise_after >= std::time::Duration::from_secs(90));
    let waits = |every: [Option<u32>; 3]| {
        let mut nodes = servers([0, 0, 0], &ALL_WELL);
        for (i, (node, every)) in nodes.iter_mut().zip(every).enumerate() {
            node.paths[0].mac = format!("m{}", i / 2);
            node.every = every;
        }
        // What was told five minutes ago and has not changed since is not told again.
        let told: Vec<Told> = told(&nodes)
            .into_iter()
            .map(|(name, addresses, paths)| {
                let old = |paths: BalancerPaths| BalancerPaths { at: world::ago(300), ..paths };
                (name, addresses, paths.into_iter().map(old).collect())
            })
            .collect();
        let found = fleet::judge_cluster("c", &members(&nodes, &told), now()).findings;
        let found = found.into_iter().find(|f| f.reason == R::BalancerContested).unwrap();
        found.raise_after.as_secs()
    };
    assert_eq!(waits([Some(1), Some(60), Some(30)]), 120);
    assert_eq!(waits([Some(1); 3]), 90, "however long ago it was told");
    assert_eq!(waits([Some(1), None, Some(1)]), 600);
    // Another network's router answers there; and not every node knows.
    for (macs, address) in [(["aa", "aa", "bb"], "10.0.1.3/24"), (["aa", "aa", ""], here), (["aa"; 3], here)]
    {
        assert_eq!(nodes(macs, address).reason, R::PathsWork);
    }
}

/// Ten passes that went well before are no reason to say for ten passes more that nobody knows.
#[test]
fn what_is_cut_off_now_is_told_whatever_came_through_before() {
    let now_down = |mut node: Node| {
        node.paths[0].down = true;
        node
    };
    let others = || [node("10.0.0.11/24", 0, 30), node("10.0.0.12/24", 0, 30)];
    let one = [vec![now_down(node("10.0.0.13/24", 4, 40))], others().to_vec()].concat();
    expect(&judged(&one), T::False, S::Error, R::PathOfOneNode, &["n1 alone", "4 of 40 tries failed"]);
    let all: Vec<Node> = one.iter().map(|n| now_down(node(&n.address, 4, 40))).collect();
    expect(&judged(&all), T::False, S::Error, R::BalancerDown, &["No node reaches"]);
    let outside = ["10.0.1.1/24", "10.0.1.2/24"].map(|address| now_down(node(address, 4, 40)));
    let blocked = [outside.to_vec(), others().to_vec()].concat();
    expect(&judged(&blocked), T::False, S::Error, R::PathBlockedOutside, &["10.0.1.0/24"]);
    // Bad now and then is something else.
    let unclear = [vec![node("10.0.0.13/24", 4, 40)], others().to_vec()].concat();
    assert_eq!(judged(&unclear).reason, R::PathFaultUnclear);
}
