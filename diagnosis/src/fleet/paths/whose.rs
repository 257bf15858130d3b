//! Whose fault it is that tries at a balancer fail.

use std::collections::BTreeMap;

use outrider_protocol::ReasonCode as R;

use super::{Balancer, FAILURES, NAMED, Row, Tally};
use crate::wording::{Count, names};

/// The answer.
pub(super) struct Whose {
    pub(super) reason: R,
    pub(super) message: String,
    pub(super) advice: &'static str,
}

/// Tries that tell with little doubt that a fault of one backend in `backends` does not reach a node.
fn enough(backends: usize) -> u32 {
    u32::try_from(backends.max(1)).unwrap_or(u32::MAX).saturating_mul(3)
}

/// Tries at `b` fail, more than one; whose fault that is.
pub(super) fn judge(b: &Balancer<'_>) -> Whose {
    let tried: Vec<&Row<'_>> = b.rows.iter().filter(|row| row.all().tries() > 0).collect();
    let (failing, fine): (Vec<&Row<'_>>, Vec<&Row<'_>>) =
        tried.iter().copied().partition(|row| row.all().failed > 0);
    nobody(b, &tried)
        .or_else(|| address(b, &tried))
        .or_else(|| network(b, &failing, &fine))
        .or_else(|| one_node(b, &failing, &fine))
        .or_else(|| dead_backend(b, &failing))
        .or_else(|| hairpin(b, &failing, &fine))
        .unwrap_or_else(|| unclear(b, &failing, &fine))
}

fn each(rows: &[&Row<'_>]) -> String {
    names(rows.iter().map(|row| format!("{} ({})", row.node, row.all())), NAMED)
}

/// No try of anybody comes through.
fn nobody(b: &Balancer<'_>, tried: &[&Row<'_>]) -> Option<Whose> {
    if !tried.iter().all(|row| row.is_cut_off()) || tried.len() < 2 {
        return None;
    }
    let backends: Vec<&str> = b.backends.iter().copied().filter(|x| b.at_backend(x).good > 0).collect();
    let (behind, advice) = if backends.is_empty() {
        (
            String::new(),
            "See whether the balancer runs and where its virtual address is, then the firewall in front of it.",
        )
    } else {
        (
            format!(" Backends answer past it: {}.", names(&backends, NAMED)),
            "Backends are well, so it is the balancer or what is let in: where it keeps the client's address, the backends' \
             security groups must let the clients in and not only the balancer.",
        )
    };
    let message = format!("No node reaches {}:{}: {}.{behind}", b.host, b.port, each(tried));
    Some(Whose { reason: R::BalancerDown, message, advice })
}

/// One of several addresses answers nobody.
fn address(b: &Balancer<'_>, tried: &[&Row<'_>]) -> Option<Whose> {
    let mut by_address: BTreeMap<&str, (Tally, usize)> = BTreeMap::new();
    for (address, tally) in tried.iter().flat_map(|row| &row.through) {
        let (sum, nodes) = by_address.entry(address).or_default();
        *sum = Tally::sum([&*sum, tally]);
        *nodes += 1;
    }
    let is_down = |(tally, nodes): &(Tally, usize)| tally.is_dead() && *nodes >= 2;
    let down: Vec<String> =
        by_address.iter().filter(|(_, t)| is_down(t)).map(|(a, (t, _))| format!("{a} ({t})")).collect();
    let others_fail = by_address.values().any(|t| !is_down(t) && t.0.failed > 0);
    if down.is_empty() || down.len() == by_address.len() || others_fail {
        return None;
    }
    let message = format!(
        "{} of {} addresses of {} answer no node: {}; the others do.",
        down.len(),
        by_address.len(),
        b.host,
        names(&down, NAMED)
    );
    let advice = "Clients meet the dead address by chance and wait: repair it or take it out of the name.";
    Some(Whose { reason: R::BalancerPartlyDown, message, advice })
}

/// All nodes of one network fail, none of another does.
fn network(b: &Balancer<'_>, failing: &[&Row<'_>], fine: &[&Row<'_>]) -> Option<Whose> {
    let first = failing.first()?;
    let of_it = !first.network.is_empty() && failing.iter().all(|row| row.network == first.network);
    let none_reaches = failing.iter().all(|row| row.is_cut_off());
    let outside = fine.iter().any(|row| !row.network.is_empty() && row.network != first.network);
    let inside = fine.iter().any(|row| row.network == first.network || row.network.is_empty());
    if !of_it || !none_reaches || failing.len() < 2 || !outside || inside {
        return None;
    }
    let message = format!(
        "No node of the network {} reaches {}:{} ({}), and every try from elsewhere comes through ({}).",
        first.network,
        b.host,
        b.port,
        each(failing),
        each(fine)
    );
    Some(Whose {
        reason: R::PathBlockedOutside,
        message,
        advice: "Something lets the one network in and not the other: look at the security groups and firewalls in front of \
                 the balancer and, where it keeps the client's address, of its backends, and at the route between the \
                 networks.",
    })
}

/// One node alone fails, always.
fn one_node(b: &Balancer<'_>, failing: &[&Row<'_>], fine: &[&Row<'_>]) -> Option<Whose> {
    let [row] = failing else { return None };
    let all = row.all();
    // A backend that is handed to itself fails now and then; always only where the balancer sends it nowhere else.
    let may_be_hairpin = row.is_target && (b.backends.len() < 2 || all.tries() < enough(b.backends.len()));
    if !row.is_cut_off() || fine.len() < 2 || may_be_hairpin {
        return None;
    }
    let message = format!(
        "{} alone does not reach {}:{} ({all}); {} do: {}.",
        row.node,
        b.host,
        b.port,
        Count(fine.len(), "other node"),
        each(fine)
    );
    let advice = if row.is_target {
        "Look at that node: route, host firewall, proxy, name. It is a backend too: a balancer that keeps the client's address \
         and sends each client always to one backend would show the same."
    } else {
        "Look at that node: its route to the balancer, its host firewall and security group, and an old entry in /etc/hosts."
    };
    Some(Whose { reason: R::PathOfOneNode, message, advice })
}

/// A backend answers nobody and tries through the balancer fail as well.
fn dead_backend(b: &Balancer<'_>, failing: &[&Row<'_>]) -> Option<Whose> {
    let dead = b.dead();
    if dead.is_empty() {
        return None;
    }
    let list = names(dead.iter().map(|backend| format!("{backend} ({})", b.at_backend(backend))), NAMED);
    let message = format!(
        "{} through {}: {}; and of {} these answer nobody: {list}. The balancer still uses what is dead.",
        b.all(),
        b.host,
        each(failing),
        Count(b.backends.len(), "backend")
    );
    Some(Whose {
        reason: R::DeadBackendInUse,
        message,
        advice: "Give the balancer a health check that takes a dead backend out (nginx stream: max_fails=3 fail_timeout=5s; \
                 HAProxy: check; AWS NLB: TCP on port 80), and repair the backend that is named.",
    })
}

/// Nodes that are backends fail about one try in as many as there are backends; no other node does.
fn hairpin(b: &Balancer<'_>, failing: &[&Row<'_>], fine: &[&Row<'_>]) -> Option<Whose> {
    let backends = b.backends.len();
    let enough = enough(backends);
    if backends < 2 || !failing.iter().all(|row| row.is_target && row.all().good > 0) {
        return None;
    }
    let failed: Vec<Tally> = failing.iter().map(|row| row.all()).collect();
    let sum = Tally::sum(&failed);
    let others: Vec<Tally> = fine.iter().filter(|row| !row.is_target).map(|row| row.all()).collect();
    let others = Tally::sum(&others);
    // A backend that tried often enough and never failed speaks against it.
    let spared = fine.iter().any(|row| row.is_target && row.all().good >= enough);
    let share = f64::from(sum.failed) / f64::from(sum.tries().max(1));
    let is_about = share <= 2.5 / backends as f64 && share >= 0.25 / backends as f64;
    let times_out = sum.timed_out.saturating_mul(2) >= sum.failed;
    if others.good < enough || spared || !is_about || !times_out || sum.failed < FAILURES {
        return None;
    }
    let message = format!(
        "Tries at {} fail only from nodes that are its backends: {}; that is 1 in {:.1}, with {backends} backends. From other \
         nodes all {} tries came through.",
        b.host,
        each(failing),
        1.0 / share,
        others.good
    );
    Some(Whose {
        reason: R::PathHairpin,
        message,
        advice: "A connection that the balancer hands back to the node it came from is lost when the client's address is kept: \
                 use IP targets, or switch off client IP preservation. The share of failures after the change tells whether \
                 that was it.",
    })
}

fn unclear(b: &Balancer<'_>, failing: &[&Row<'_>], fine: &[&Row<'_>]) -> Whose {
    let fine_words = match fine {
        [] => "no other node has tried".to_owned(),
        some => format!("none failed from {}", each(some)),
    };
    let backends = match b.backends.len() {
        0 => "; no backend is tried by itself (backends of [[load_balancer]])".to_owned(),
        n => {
            let well = b.backends.iter().filter(|x| b.at_backend(x).good > 0).count();
            format!("; past it {well} of {} answered", Count(n, "backend"))
        }
    };
    let message = format!(
        "{} at {}:{}: {}; {fine_words}{backends}. That is too few to say whose fault it is.",
        b.all(),
        b.host,
        b.port,
        each(failing)
    );
    Whose {
        reason: R::PathFaultUnclear,
        message,
        advice: "Wait for more tries, and let more nodes try: nodes that are backends and nodes that are not, with the backends \
                 named in [[load_balancer]]. Meanwhile look at the balancer's own log for the time of a failure.",
    }
}
