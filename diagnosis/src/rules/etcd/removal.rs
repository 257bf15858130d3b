//! How a member joins anew under the data that the others have, and when nobody may try: removing a voter needs a quorum
//! before it, and the others have to be one after it.

use outrider_protocol::{Member, Status, Timestamp};

use super::ghosts::{removal_needs, standing};
use super::quorum::{Health, NAMED, Tally, quorum_of};
use super::spoilt::Spoilt;
use super::view::{display_name, with_id};
use crate::wording::{Count, names};

/// What a person does with `member` where its own configuration cannot be mended, or why nobody does: a sentence or two.
/// `running` is whether it answers.
pub(super) fn rejoin(tally: &Tally<'_>, member: &Member, running: bool, at: Timestamp) -> String {
    let (name, voters) = (display_name(member), tally.voters.len());
    let step = format!(
        "a person removes member {}, empties its data folder and lets it join again",
        with_id(member)
    );
    let quorum = standing(tally, at);
    if tally.voters.iter().any(|v| v.id == member.id && v.spoilt == Some(Spoilt::ByItsFolder)) {
        return format!(
            "Do not remove {name} and do not empty its data folder for that: EtcdMemberHealthy says what becomes of it."
        );
    }
    if member.is_learner {
        return format!("If that cannot be, {}.", removal_needs(quorum, &step));
    }
    let others = || tally.voters.iter().filter(|v| v.id != member.id);
    let healthy = others().filter(|v| v.health == Health::Healthy).count();
    if others().next().is_none() {
        let copy = if running { "takes an etcd snapshot" } else { "keeps a copy of its data folder" };
        return format!(
            "Do not remove {name} and do not empty its data folder: it is the only voter, and what it holds is the whole cluster. \
             Before anything else a person {copy}."
        );
    }
    let left = voters - 1;
    let needed = quorum_of(left);
    let why = match quorum {
        Status::True if healthy >= needed => {
            return format!(
                "If that cannot be, {step}, while {healthy} of {} {} healthy without it (quorum {needed}).",
                Count(left, "voter"),
                if healthy == 1 { "is" } else { "are" }
            );
        }
        Status::True => format!(
            "without it only {healthy} of {} {} known to be healthy, quorum {needed}, so the cluster would stop",
            Count(left, "voter"),
            if healthy == 1 { "is" } else { "are" }
        ),
        Status::False => "a removal needs a quorum, and none holds now".to_owned(),
        Status::Unknown => "a removal needs a quorum, and whether one holds is not known now".to_owned(),
    };
    let back = names(tally.missing().filter(|v| v.id != member.id).map(|v| &*v.name), NAMED);
    let first = match back.as_str() {
        "" => "See EtcdQuorum first.".to_owned(),
        back => format!("First bring {back} back (EtcdQuorum)."),
    };
    format!("Do not remove {name} and do not empty its data folder now: {why}. {first}")
}
