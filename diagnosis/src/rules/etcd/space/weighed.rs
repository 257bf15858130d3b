//! What a cure takes from the quorum, and what it needs of it: a member does not answer while it is defragmented or
//! restarted for a larger quota, and deleting, compacting and clearing an alarm are agreed on by a quorum.

use outrider_protocol::{Status, Timestamp};

use super::super::quorum::{self, Health, Tally, quorum_of, tolerated};
use super::NAMED;
use super::figures::Space;
use crate::finding::Finding;
use crate::wording::{Count, Span, lower, names};

/// What a cure takes from the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// No member: only an alarm is cleared, or something is looked up.
    Nothing,
    /// A member in the end, and before that steps that take none: reading, deleting, compacting.
    AtLast,
    /// A member at once.
    AtOnce,
}

/// A finding whose advice is a cure.
pub(super) struct Cure {
    pub(super) finding: Finding,
    pub(super) takes: Takes,
}

impl Cure {
    /// The finding, with what has to be so before the step that takes a member away, and no other step held back for it.
    pub(super) fn weighed(self, tally: Option<&Tally<'_>>, spaces: &[Space<'_>], at: Timestamp) -> Finding {
        let Self { mut finding, takes } = self;
        let Some(tally) = tally else { return finding };
        let voters = tally.voters.len();
        let (healthy, unknown) = (tally.count(Health::Healthy), tally.count(Health::Unknown));
        let before = |first: String, then: &str| then_cure(&first, then, &finding.advice);
        let needs = "deleting, compacting and clearing an alarm need one";
        finding.advice = match quorum::judge(tally, at).status {
            Status::False => before(
                format!("First see EtcdQuorum: no quorum holds now, and {needs}."),
                "Only once one does:",
            ),
            Status::Unknown => before(
                format!("First see EtcdQuorum: whether a quorum holds is not known now, and {needs}."),
                "Only while one does:",
            ),
            Status::True if takes == Takes::Nothing || tolerated(voters, healthy) > 0 => return finding,
            Status::True if healthy == voters => {
                let long = spaces.iter().map(Space::duration).max();
                let long =
                    long.map_or_else(String::new, |long| format!(", for about {} each time", Span(long)));
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
                    _ if unknown > 0 => "see EtcdQuorum, for not all voters could be asked".to_owned(),
                    away if away.is_empty() => "win tolerance back as EtcdQuorum tells".to_owned(),
                    away => format!("bring {away} back (EtcdQuorum)"),
                };
                let least = if unknown > 0 { "known to be healthy" } else { "healthy" };
                let why = format!(
                    "{healthy} of {voters} voters are {least}, quorum {}, so the cluster would stop",
                    quorum_of(voters)
                );
                match takes {
                    Takes::AtOnce | Takes::Nothing => before(
                        format!(
                            "First {first}: a defragmentation takes a member away for a while, as a restart does, and {why}."
                        ),
                        "After that:",
                    ),
                    Takes::AtLast => format!(
                        "Reading, removing objects and compacting take no member away and need not wait. A defragmentation does, for a \
                         while, as a restart for a larger quota does, and {why}: before either, {first}. {}",
                        finding.advice
                    ),
                }
            }
        };
        finding
    }
}

/// `cure` behind what comes before it. What is not to be done at all is no step that comes later.
fn then_cure(first: &str, then: &str, cure: &str) -> String {
    let never = ["Do not restart etcd. ", "Do not restart etcd; ", "Restart no member for the alarm. "];
    match never.iter().find_map(|never| cure.strip_prefix(never)) {
        Some(cure) => format!("{first} Do not restart etcd. {then} {}", lower(cure)),
        None => format!("{first} {then} {}", lower(cure)),
    }
}
