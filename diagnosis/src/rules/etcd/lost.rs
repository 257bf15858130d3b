//! What to do where quorum is lost: who has to come back, and whether that is enough.

use super::quorum::{Health, NAMED, Tally, quorum_of};
use crate::wording::{lower, names};

/// How a quorum that is lost comes back, and what it needs apart from that.
pub(super) fn advice(tally: &Tally<'_>) -> String {
    let voters = tally.voters.len();
    let answering = tally.count(Health::Healthy) + tally.count(Health::NoLeader);
    let missing = quorum_of(voters).saturating_sub(answering).max(1);
    let even = if voters.is_multiple_of(2) {
        format!(
            " ({voters} voters need {} and tolerate no more than {} would)",
            quorum_of(voters),
            voters - 1
        )
    } else {
        String::new()
    };
    let rest = match tally.named(&[Health::Healthy, Health::NoLeader]) {
        names if names.is_empty() => String::new(),
        names => format!(" Do not restart {names}."),
    };
    let snapshot = tally.snapshot.as_deref().unwrap_or("none is known here");
    let back: Vec<&str> = tally.missing().map(|v| &*v.name).collect();
    let who = names(&back, NAMED);
    let goes_on = if tally.alarmed {
        "quorum is back then, and writes stay refused until the alarm is dealt with as EtcdSpace tells"
    } else {
        "writes go on by themselves then"
    };
    let (in_reach, quorum) = (tally.in_reach(), quorum_of(voters));
    let bring = match back.len() {
        n if n > 0 && in_reach < quorum => format!(
            "No quorum is to be had by bringing members back alone{even}: with {who} back {in_reach} of the {quorum} that are \
             needed answer."
        ),
        0 => format!("No voter is known that could come back as it is{even}."),
        n if n < missing => format!("Bring {who} back{even}; {} of {missing} that are needed.", n),
        n if n == missing => format!("Bring {who} back{even}; {goes_on}."),
        _ => format!("Bring {missing} of {who} back{even}; {goes_on}."),
    };
    let elsewhere = match tally.may_be_cut_off() && !back.is_empty() {
        true => format!(
            "First look from {who} (outrider check --only etcd there): if they serve, it is {} that is cut off, and only the \
             way to them is to be mended. If not: ",
            if tally.seen_from.is_empty() { "this node" } else { "the one node that reports" }
        ),
        false => String::new(),
    };
    let membership = tally.of_others();
    let bring = if elsewhere.is_empty() { bring } else { lower(&bring) };
    format!(
        "{elsewhere}{bring}{membership}{rest} A cluster reset is a person's last resort. \
         Before it: are the other members stopped? Which is the newest snapshot ({snapshot})? Is the token the same?"
    )
}
