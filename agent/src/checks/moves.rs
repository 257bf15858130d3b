//! Whether another machine answers for a balancer's address than at the pass before.

use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{AddressMove, LoadBalancerFacts};

/// How long a move is remembered, and how many of one balancer.
const KEPT: Duration = Duration::from_secs(3600);
const MAX_MOVES: usize = 20;

/// By name of the balancer.
#[derive(Default)]
pub(super) struct Moves(BTreeMap<String, Seen>);

#[derive(Default)]
struct Seen {
    /// Hardware address by address.
    behind: BTreeMap<String, String>,
    moves: Vec<AddressMove>,
}

impl Moves {
    /// Compares a new pass with those before, and writes what moved into it.
    pub(super) fn take(&mut self, facts: &mut [LoadBalancerFacts]) {
        self.0.retain(|name, _| facts.iter().any(|b| b.name == *name));
        for balancer in facts {
            let at = balancer.probes.iter().map(|p| p.at).max().unwrap_or(balancer.addresses.at());
            let seen = self.0.entry(balancer.name.clone()).or_default();
            // An address that nobody answers for now has not moved.
            let named = |address: &String| balancer.addresses.value().is_none_or(|all| all.contains(address));
            seen.behind.retain(|address, _| named(address));
            for neighbour in &balancer.neighbours {
                let (address, to) = (neighbour.address.clone(), neighbour.mac.clone());
                match seen.behind.insert(address.clone(), to.clone()) {
                    Some(from) if from != to => seen.moves.push(AddressMove { address, from, to, at }),
                    _ => {}
                }
            }
            seen.moves.retain(|one| at.since(one.at) <= KEPT);
            let surplus = seen.moves.len().saturating_sub(MAX_MOVES);
            seen.moves.drain(..surplus);
            balancer.moves.clone_from(&seen.moves);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pass(minute: u32, mac: Option<&str>) -> LoadBalancerFacts {
        let at = format!("2026-11-29T{:02}:{:02}:00Z", minute / 60, minute % 60);
        let neighbours: Vec<_> = mac.iter().map(|mac| json!({ "address": "10.0.0.9", "mac": mac })).collect();
        serde_json::from_value(json!({
            "name": "rancher", "url": "", "host": "", "port": 443, "httpPort": 80, "mode": "l4", "probes": [],
            "addresses": { "state": "known", "value": ["10.0.0.9"], "source": "", "at": at },
            "neighbours": neighbours,
        }))
        .unwrap()
    }

    #[test]
    fn a_move_is_told_for_an_hour() {
        let mut moves = Moves::default();
        let mut moved = |minute, mac| {
            let mut facts = [pass(minute, mac)];
            moves.take(&mut facts);
            facts[0].moves.iter().map(|m| (m.from.clone(), m.to.clone())).collect::<Vec<_>>()
        };
        let (a, b) = (Some("a"), Some("b"));
        let (there, back) = (("a".to_owned(), "b".to_owned()), ("b".to_owned(), "a".to_owned()));
        assert_eq!(moved(0, a), []);
        assert_eq!(moved(1, a), []);
        assert_eq!(moved(2, None), []);
        assert_eq!(moved(3, b), std::slice::from_ref(&there));
        assert_eq!(moved(4, b), std::slice::from_ref(&there));
        assert_eq!(moved(5, a), [there, back.clone()]);
        assert_eq!(moved(64, a), [back]);
        assert_eq!(moved(70, a), []);
    }
}
