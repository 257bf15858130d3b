//! Transitions that the coordinator will never take, set aside for people: `refused.jsonl` beside the spool, one a line
//! with the coordinator's words, the newest at the end, bounded. The journal says each, with its count.
//!
//! It is a fault of Outrider or a damaged disk when that happens. What counts is that one record that cannot be delivered
//! does not hold back all behind it; what it said is in the state, which is sent whole.

use outrider_protocol::SequencedTransition;
use serde::Serialize;

use super::disk;
use super::spool::Spool;

/// The file.
pub(super) const FILE: &str = "refused.jsonl";
/// Bytes it may have; the oldest lines go first.
const BYTES: usize = 128 << 10;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    epoch: uuid::Uuid,
    why: &'a str,
    #[serde(flatten)]
    entry: &'a SequencedTransition,
}

/// Sets the oldest transition of the spool aside, if it is the one with this sequence.
pub(super) fn set_aside(spool: &mut Spool, sequence: u64, why: &str) {
    let Some(entry) = spool.give_up(sequence) else { return };
    let condition = &entry.transition.condition;
    log::error!(
        "transition {sequence} ({} of {:?}, {}) will never be taken by the coordinator and is set aside in {FILE}, number \
         {} since the start: {why}",
        condition.condition_type,
        condition.subject,
        condition.reason,
        spool.refused()
    );
    if let Err(error) = append(spool, &entry, why) {
        log::error!("{FILE} cannot be written, its content was: {:?}: {error}", entry.transition);
    }
}

fn append(spool: &Spool, entry: &SequencedTransition, why: &str) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(&Line { epoch: spool.epoch(), why, entry })?;
    line.push(b'\n');
    let before = spool.disk().read(FILE).unwrap_or_default();
    let mut kept = before.as_slice();
    while !kept.is_empty() && kept.len() + line.len() > BYTES {
        let end = kept.iter().position(|b| *b == b'\n').map_or(kept.len(), |at| at + 1);
        kept = kept.get(end..).unwrap_or_default();
    }
    disk::replace(spool.disk(), FILE, &[kept, &line].concat())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outrider_protocol::{Condition, ConditionType, ReasonCode, Severity, Status, Timestamp, Transition};

    use super::super::disk::{Disk, MemoryDisk};
    use super::super::spool::SpoolLimits;
    use super::*;

    #[test]
    fn the_side_file_is_bounded_and_keeps_the_newest() {
        let disk = MemoryDisk::default();
        let mut spool = Spool::open(Arc::new(disk.clone()), SpoolLimits::default(), Timestamp::default());
        let at = Timestamp::from_seconds(1);
        let transition = Transition {
            at,
            condition: Condition {
                condition_type: ConditionType::HostHealthy,
                status: Status::False,
                severity: Severity::Warn,
                reason: ReasonCode::DiskSpaceLow,
                message: "m".repeat(4000),
                advice: String::new(),
                subject: String::new(),
                last_transition_time: at,
                observed_at: at,
            },
            previous_status: None,
            previous_reason: None,
            removed: false,
            merged: 0,
        };
        spool.append(vec![transition; 100], Vec::new()).unwrap();
        set_aside(&mut spool, 2, "not the oldest: it stays");
        assert_eq!((spool.len(), spool.refused()), (100, 0));
        for sequence in 1..=100 {
            set_aside(&mut spool, sequence, "because");
        }
        assert_eq!((spool.len(), spool.refused()), (0, 100));
        let bytes = disk.read(FILE).unwrap();
        assert!(bytes.len() <= BYTES, "{}", bytes.len());
        let lines: Vec<serde_json::Value> = bytes
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice(l).unwrap())
            .collect();
        assert!(lines.len() > 20, "{}", lines.len());
        let last = lines.last().unwrap();
        assert_eq!((last["sequence"].as_u64(), last["why"].as_str()), (Some(100), Some("because")));
        assert_eq!(last["transition"]["condition"]["reason"], "DiskSpaceLow");
        // A restart has nothing of it.
        let again = Spool::open(Arc::new(disk), SpoolLimits::default(), Timestamp::default());
        assert!(again.is_empty());
    }
}
