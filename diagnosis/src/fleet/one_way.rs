//! A living member that one node does not reach, while nobody counts how port 2380 is between the two: neither a partition nor
//! a port that is known to be the client's alone, and nothing that the member itself can be blamed for.

use std::time::Duration;

use outrider_protocol::{ConditionType, MemberList, ReasonCode as R, Severity, Status, Timestamp};

use super::{Joined, NAMED, View, join};
use crate::finding::Finding;
use crate::wording::{Span, names};

/// A restart or an election is over by then, and every node has looked again.
const SETTLED: Duration = Duration::from_secs(60);

/// Whether the node sees no leader because it is cut off from the others both ways, or as they do: a partition or a lost quorum
/// tells more of it. One that the others reach, and that reaches none of them, is cut off one way.
fn is_apart(joined: &Joined<'_>, list: &MemberList, by: &View<'_>) -> bool {
    let own = list.members.iter().find(|m| m.id == by.local_id);
    by.sees_no_leader() && !own.is_some_and(|member| join::losses(joined, member).is_empty())
}

pub(super) fn judge(joined: &Joined<'_>, list: &MemberList, at: Timestamp) -> Option<Finding> {
    let mut ways: Vec<(&str, &str, Duration)> = Vec::new();
    for member in &list.members {
        let Some(own) = joined.own_view(&member.id).filter(|v| v.lives() && !v.sees_no_leader()) else {
            continue;
        };
        for (place, since) in join::losses(joined, member) {
            let by = &joined.group[place];
            let silence = joined.now.since(since);
            // Its own node spoke of it after it was lost, or it is simply away.
            let told = own.at >= since && by.node != own.node && by.lives() && !is_apart(joined, list, by);
            let counted = by.etcd.metrics.value().is_some_and(|m| m.latest.peers.contains_key(&member.id));
            if told && silence >= SETTLED && !counted {
                ways.push((by.node, own.node, silence));
            }
        }
    }
    if ways.is_empty() {
        return None;
    }
    ways.sort_unstable();
    let all =
        ways.iter().map(|(by, to, silence)| format!("{by} has not reached {to} for {}", Span(*silence)));
    let message = format!(
        "Living members are not reached from everywhere: {}, though each of them answers on its own node. How port 2380 is on \
         those ways nobody has counted.",
        names(all, NAMED)
    );
    let pairs = names(ways.iter().map(|(by, to, _)| format!("from {by} to {to}")), NAMED);
    let mut to: Vec<&str> = ways.iter().map(|(_, to, _)| *to).collect();
    to.sort_unstable();
    to.dedup();
    let them = if to.len() > 1 { "them" } else { "it" };
    let to = names(to, NAMED);
    let finding = Finding::new(
        ConditionType::EtcdMembership,
        Status::True,
        Severity::Warn,
        R::EtcdClientPortClosed,
        at,
        message,
    );
    Some(finding.advice(format!(
        "Check TCP 2379 and 2380 {pairs} (host firewall, security group, routes). Nothing is wrong with {to}: do not restart or \
         remove {them} for that."
    )))
}
