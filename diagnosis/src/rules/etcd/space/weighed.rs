//! What a cure takes from the quorum, and what it needs of it: a member does not answer while it is defragmented or
//! restarted for a larger quota, and deleting, compacting and clearing an alarm are agreed on by a quorum.

use outrider_protocol::{EtcdFacts, ReasonCode as R, Status, Timestamp};

use super::super::quorum::{self, Health, quorum_of, tolerated};
use super::super::view::{distinct, tally};
use super::NAMED;
use super::figures::Space;
use crate::finding::Finding;
use crate::wording::{Count, Span, lower, names};

/// `finding`, whose advice is a cure, with what has to be so before it.
pub(super) fn weighed(
    mut finding: Finding,
    etcd: &EtcdFacts,
    spaces: &[Space<'_>],
    (at, now): (Timestamp, Timestamp),
) -> Finding {
    let Some(list) = etcd.members.value() else { return finding };
    let (list, _) = distinct(list);
    let tally = tally(etcd, &list, now);
    let voters = tally.voters.len();
    let (healthy, unknown) = (tally.count(Health::Healthy), tally.count(Health::Unknown));
    let before = |first: String, then: &str| then_cure(&first, then, &finding.advice);
    let needs = "deleting, compacting and clearing an alarm need one";
    finding.advice = match quorum::judge(&tally, at).status {
        Status::False => {
            before(format!("First see EtcdQuorum: no quorum holds now, and {needs}."), "Only once one does:")
        }
        Status::Unknown => before(
            format!("First see EtcdQuorum: whether a quorum holds is not known now, and {needs}."),
            "Only while one does:",
        ),
        // To clear an alarm takes no member away.
        Status::True if finding.reason == R::EtcdAlarmLeftOver || tolerated(voters, healthy) > 0 => {
            return finding;
        }
        Status::True if healthy == voters => {
            let long = spaces.iter().map(Space::duration).max();
            let long = long.map_or_else(String::new, |long| format!(", for about {} each time", Span(long)));
            format!(
                "{} With {} etcd stands still while a member is defragmented or restarted{long}, longer on a slow disk: choose the \
                 minute, with a fresh snapshot.",
                finding.advice,
                Count(voters, "voter")
            )
        }
        Status::True => {
            let away = tally.voters.iter().filter(|v| v.may_return()).map(|v| &*v.name);
            let first = match names(away, NAMED) {
                _ if unknown > 0 => "First see EtcdQuorum, for not all voters could be asked".to_owned(),
                away if away.is_empty() => "First win tolerance back as EtcdMembership tells".to_owned(),
                away => format!("First bring {away} back (EtcdQuorum)"),
            };
            let least = if unknown > 0 { "known to be healthy" } else { "healthy" };
            let why = format!(
                "{first}: a defragmentation takes a member away for a while, as a restart does, and {healthy} of {voters} voters are \
                 {least}, quorum {}, so the cluster would stop.",
                quorum_of(voters)
            );
            before(why, "After that:")
        }
    };
    finding
}

/// `cure` behind what comes before it. What is not to be done at all is no step that comes later.
fn then_cure(first: &str, then: &str, cure: &str) -> String {
    let never = ["Do not restart etcd. ", "Do not restart etcd; ", "Restart no member for the alarm. "];
    match never.iter().find_map(|never| cure.strip_prefix(never)) {
        Some(cure) => format!("{first} Do not restart etcd. {then} {}", lower(cure)),
        None => format!("{first} {then} {}", lower(cure)),
    }
}
