//! One machine or two? A pure rule over sightings.
//!
//! Every request carries the kernel's boot id and the epoch of the agent's spool; together they name one *incarnation*
//! of an agent. What one machine can do with them, in the order of what the coordinator sees:
//!
//! | seen | what it was |
//! |---|---|
//! | `A A A` | one machine |
//! | `A B` | it rebooted, or lost its spool: neither value ever comes back |
//! | `A B A` | a snapshot with memory was restored: the old values come back, once |
//! | `A B A B` | two machines that live at the same time: the first pattern one machine cannot make |
//!
//! So a clone is `A B A B` within a window. Two open connections are no evidence: a machine that lost power leaves one
//! behind. Alternating addresses are none either (NAT, two stacks, several URLs).

use std::time::Duration;

use outrider_protocol::{Identity, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One life of an agent on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Incarnation {
    /// Kernel boot id.
    pub boot_id: Box<str>,
    /// Spool epoch.
    pub epoch: Uuid,
}

/// Sightings in a row of one incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Who was seen.
    pub incarnation: Incarnation,
    /// First sighting of this run.
    pub first: Timestamp,
    /// Last sighting of this run.
    pub last: Timestamp,
}

/// Runs that are kept of a node: what the rule looks at.
pub const RUNS_KEPT: usize = 4;

/// The rule: positions of the two that alternate (the one seen first, the other), if the last four runs are `A B A B`
/// and began within `window` before the last sighting.
pub fn alternation(runs: &[Run], window: Duration) -> Option<(usize, usize)> {
    let start = runs.len().checked_sub(RUNS_KEPT)?;
    let [a1, b1, a2, b2] = &runs[start..] else {
        return None;
    };
    let alternate = a1.incarnation == a2.incarnation && b1.incarnation == b2.incarnation;
    // `a1.last`, not `a1.first`: A may have lived alone for a year before its twin came.
    let together = b2.last.since(a1.last) <= window;
    (alternate && a1.incarnation != b1.incarnation && together).then_some((start, start + 1))
}

/// Adds a sighting to the runs; true when it began a new run.
pub fn record(runs: &mut Vec<Run>, boot_id: &str, epoch: Uuid, at: Timestamp) -> bool {
    if let Some(run) = runs.last_mut()
        && *run.incarnation.boot_id == *boot_id
        && run.incarnation.epoch == epoch
    {
        run.last = run.last.max(at);
        return false;
    }
    if runs.len() == RUNS_KEPT {
        runs.remove(0);
    }
    let incarnation = Incarnation { boot_id: boot_id.into(), epoch };
    runs.push(Run { incarnation, first: at, last: at });
    true
}

/// Whether two marks of machines are those of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sameness {
    /// They share a mark that only one machine has.
    Same,
    /// Both have such marks, and share none.
    Different,
    /// One of them has no marks to compare.
    Unknown,
}

/// Whether two identities are of one piece of hardware: a system UUID or a MAC address in common.
pub fn hardware(a: &Identity, b: &Identity) -> Sameness {
    let uuids = compare(&a.system_uuid, &b.system_uuid);
    let macs = match (a.macs.is_empty(), b.macs.is_empty()) {
        (false, false) if a.macs.iter().any(|mac| b.macs.contains(mac)) => Sameness::Same,
        (false, false) => Sameness::Different,
        _ => Sameness::Unknown,
    };
    match (uuids, macs) {
        (Sameness::Same, _) | (_, Sameness::Same) => Sameness::Same,
        (Sameness::Unknown, Sameness::Unknown) => Sameness::Unknown,
        _ => Sameness::Different,
    }
}

fn compare(a: &str, b: &str) -> Sameness {
    match (a, b) {
        ("", _) | (_, "") => Sameness::Unknown,
        (a, b) if a == b => Sameness::Same,
        _ => Sameness::Different,
    }
}

/// Which mark of identity two nodes share, so that not both may live: the machine-id, or the system UUID.
///
/// The UUID alone is no proof when the machine-ids are known and differ and no MAC is shared: containers see the UUID
/// of their host.
pub fn shared_mark(a: &Identity, b: &Identity) -> Option<&'static str> {
    let machine_ids = compare(&a.machine_id_hash, &b.machine_id_hash);
    if machine_ids == Sameness::Same {
        return Some("machine-id");
    }
    let same_uuid = compare(&a.system_uuid, &b.system_uuid) == Sameness::Same;
    let shares_mac = a.macs.iter().any(|mac| b.macs.contains(mac));
    (same_uuid && (machine_ids == Sameness::Unknown || shares_mac)).then_some("system UUID")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: u64 = 60;

    /// Sightings as `minute:incarnation`, one letter each.
    fn runs(sightings: &[(u64, char)]) -> Vec<Run> {
        let mut runs = Vec::new();
        for (minute, who) in sightings {
            let at = Timestamp::from_seconds((minute * MINUTE) as i64);
            record(&mut runs, &who.to_string(), Uuid::nil(), at);
        }
        runs
    }

    #[test]
    fn only_two_living_machines_alternate() {
        let ten = Duration::from_secs(10 * MINUTE);
        type Case<'a> = (&'a str, &'a [(u64, char)], bool);
        let table: &[Case<'_>] = &[
            ("one machine", &[(0, 'A'), (1, 'A'), (2, 'A')], false),
            ("a reboot", &[(0, 'A'), (1, 'B'), (2, 'B')], false),
            ("a reboot loop", &[(0, 'A'), (1, 'B'), (2, 'C'), (3, 'D'), (4, 'E')], false),
            ("a restored memory snapshot", &[(0, 'A'), (1, 'B'), (2, 'A'), (3, 'A')], false),
            (
                "a snapshot restored again and again",
                &[(0, 'A'), (1, 'B'), (2, 'A'), (3, 'C'), (4, 'A')],
                false,
            ),
            ("two machines", &[(0, 'A'), (1, 'B'), (2, 'A'), (3, 'B')], true),
            ("two machines, unevenly", &[(0, 'A'), (1, 'A'), (2, 'B'), (3, 'A'), (4, 'A'), (5, 'B')], true),
            (
                "a twin after a year alone",
                &[(0, 'A'), (525_600, 'A'), (525_601, 'B'), (525_602, 'A'), (525_603, 'B')],
                true,
            ),
            ("two snapshots restored over days", &[(0, 'A'), (1440, 'B'), (2880, 'A'), (4320, 'B')], false),
            (
                "three machines come down to two that alternate",
                &[(0, 'A'), (1, 'B'), (2, 'C'), (3, 'B'), (4, 'C')],
                true,
            ),
        ];
        for (what, sightings, clone) in table {
            assert_eq!(alternation(&runs(sightings), ten).is_some(), *clone, "{what}");
        }
    }

    #[test]
    fn one_boot_id_and_two_epochs_are_two_machines_too() {
        // A VM cloned with its memory keeps the boot id; the first mismatch gives one of them a new epoch.
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut runs = Vec::new();
        for (second, epoch) in [(0, one), (10, two), (20, one), (30, two)] {
            record(&mut runs, "boot", epoch, Timestamp::from_seconds(second));
        }
        assert_eq!(alternation(&runs, Duration::from_secs(600)), Some((0, 1)));
    }

    fn identity(machine: &str, uuid: &str, macs: &[&str]) -> Identity {
        Identity {
            machine_id_hash: machine.into(),
            system_uuid: uuid.into(),
            macs: macs.iter().map(|m| (*m).to_owned()).collect(),
            ..Identity::default()
        }
    }

    #[test]
    fn what_counts_as_one_identity() {
        let table = [
            (
                "a template with its machine-id left in",
                ("m", "u1", "a"),
                ("m", "u2", "b"),
                Some("machine-id"),
            ),
            ("containers of one host", ("m1", "u", "a"), ("m2", "u", "b"), None),
            ("machine-id made anew, same machine", ("m1", "u", "a"), ("m2", "u", "a"), Some("system UUID")),
            ("no machine-id known", ("", "u", "a"), ("m2", "u", "b"), Some("system UUID")),
            ("nothing known", ("", "", "a"), ("", "", "a"), None),
            ("two machines", ("m1", "u1", "a"), ("m2", "u2", "b"), None),
        ];
        for (what, a, b, mark) in table {
            let (a, b) = (identity(a.0, a.1, &[a.2]), identity(b.0, b.1, &[b.2]));
            assert_eq!(shared_mark(&a, &b), mark, "{what}");
            assert_eq!(shared_mark(&b, &a), mark, "{what}, the other way round");
        }
    }

    #[test]
    fn hardware_is_told_by_uuid_or_mac() {
        use Sameness::{Different, Same, Unknown};
        let table = [
            (("u", "a"), ("u", "b"), Same),
            (("u", "a"), ("v", "a"), Same),
            (("u", "a"), ("v", "b"), Different),
            (("", "a"), ("v", "b"), Different),
            (("u", "a"), ("", "a"), Same),
        ];
        for (a, b, expected) in table {
            let (a, b) = (identity("", a.0, &[a.1]), identity("", b.0, &[b.1]));
            assert_eq!(hardware(&a, &b), expected, "{a:?} {b:?}");
        }
        assert_eq!(hardware(&Identity::default(), &identity("", "u", &["a"])), Unknown);
    }

    proptest! {
        #[test]
        fn incarnations_that_never_come_back_are_never_clones(
            lengths in proptest::collection::vec(1usize..4, 0..20),
            window in 0u64..100_000,
        ) {
            let mut all = Vec::new();
            let mut second = 0;
            for (n, length) in lengths.iter().enumerate() {
                for _ in 0..*length {
                    record(&mut all, &n.to_string(), Uuid::nil(), Timestamp::from_seconds(second));
                    second += 30;
                    prop_assert_eq!(alternation(&all, Duration::from_secs(window)), None);
                }
            }
        }
    }
}
