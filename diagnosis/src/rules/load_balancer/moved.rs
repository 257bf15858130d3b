//! A virtual address that went to another machine, a moment's silence, and an address that two machines hold.
//!
//! Who answers for an address is seen by nodes of its own network only. Two machines that both hold it (VRRP without a way
//! between them) are seen by one node only when their answers take turns; that nodes beside each other are answered by
//! different machines is told over the cluster (`fleet::paths`).

use std::time::Duration;

use outrider_protocol::{
    AddressMove, GapFacts, LoadBalancerFacts, ReasonCode as R, Severity, Status, Timestamp,
};

use super::reachable::TYPE;
use crate::finding::Finding;
use crate::wording::names;

/// How long a move is news.
const NEWS: Duration = Duration::from_secs(900);
/// There and back again and away once more: nobody fails over so often.
const TURNS: usize = 3;

/// What is told of an address that answers now.
pub(super) fn judge(b: &LoadBalancerFacts, now: Timestamp) -> Option<Finding> {
    let finding =
        |severity, reason, message| Finding::new(TYPE, Status::True, severity, reason, now, message);
    let recent: Vec<&AddressMove> = b.moves.iter().filter(|one| now.since(one.at) <= NEWS).collect();
    if let Some(last) = recent.last() {
        let same: Vec<&AddressMove> = recent.iter().copied().filter(|m| m.address == last.address).collect();
        let silence = gap(b, &last.address);
        if same.len() >= TURNS {
            let mut machines: Vec<&str> =
                same.iter().flat_map(|m| [m.from.as_str(), m.to.as_str()]).collect();
            machines.sort_unstable();
            machines.dedup();
            let message = format!(
                "The address {} of {} went from machine to machine {} times within 15 min (hardware addresses {}){silence}: \
                 more than one machine answers for it.",
                last.address,
                b.host,
                same.len(),
                names(&machines, 4)
            );
            return Some(finding(Severity::Warn, R::BalancerContested, message).advice(
                "See whether the balancers hear each other's VRRP (protocol 112, or keepalived's unicast_peer) and have one \
                 virtual_router_id and different priorities; ip address on both shows who holds the address.",
            ));
        }
        let message = format!(
            "The address {} of {} has moved: {} answers for it since {}, {} before{silence}. All tries came through since.",
            last.address, b.host, last.to, last.at, last.from
        );
        return Some(finding(Severity::Info, R::BalancerMoved, message));
    }
    let first = b.gaps.first()?;
    let silence = gap(b, &first.address);
    let message = format!(
        "{} of {} was silent for a moment{silence}, and answers: {} of {} tries after that came through.",
        first.address, b.host, first.confirmed, first.confirmed
    );
    Some(finding(Severity::Info, R::BalancerGap, message))
}

/// How long it was silent, as far as the tries tell.
fn gap(b: &LoadBalancerFacts, address: &str) -> String {
    let of = |gap: &&GapFacts| gap.address == address;
    b.gaps.iter().find(of).map_or_else(String::new, |gap| {
        let seconds = gap.until.since(gap.from).as_secs_f64();
        let failed = match gap.failed {
            1 => "one try".to_owned(),
            n => format!("{n} tries"),
        };
        format!(", {failed} failed within {seconds:.1} s")
    })
}
