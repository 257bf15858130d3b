//! Records of the spool: length, CRC-32, JSON.

use std::ops::Range;

use outrider_protocol::{Latch, SequencedTransition};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Version of the format in [`Record::Head`].
pub(super) const VERSION: u32 = 1;
/// Length and checksum.
const PREFIX: usize = 8;
/// No record is larger; a length above this is damage.
const LIMIT: usize = 4 << 20;

/// One record of the segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Record {
    /// The first of every segment: what held when it was written.
    #[serde(rename_all = "camelCase")]
    Head {
        /// [`VERSION`].
        version: u32,
        /// Epoch of the sequences.
        epoch: Uuid,
        /// The next sequence to be given.
        next: u64,
        /// Transitions merged away since the last acknowledgement.
        #[serde(default)]
        merged: u64,
        /// Latches as of this segment; transitions below change them.
        latches: Vec<Latch>,
    },
    /// A transition to be delivered.
    Transition(Box<SequencedTransition>),
    /// Everything up to this sequence may have reached the coordinator.
    Sent(u64),
    /// Everything up to this sequence is stored at the coordinator.
    Acknowledged(u64),
}

/// Appends a record to `out`; gives its size.
pub(super) fn encode(record: &Record, out: &mut Vec<u8>) -> Result<usize, serde_json::Error> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    serde_json::to_writer(&mut *out, record)?;
    let payload = &out[start + PREFIX..];
    let (length, crc) = (payload.len() as u32, crc32fast::hash(payload));
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + PREFIX].copy_from_slice(&crc.to_le_bytes());
    Ok(out.len() - start)
}

/// Reads records from the start of `bytes` up to the first that is not whole; gives how many bytes were good.
pub(super) fn decode(bytes: &[u8]) -> (Vec<Record>, usize) {
    let (mut records, mut good) = (Vec::new(), 0);
    while let Some(payload) = payload(bytes, good) {
        let Ok(record) = serde_json::from_slice(&bytes[payload.clone()]) else { break };
        records.push(record);
        good = payload.end;
    }
    (records, good)
}

/// Where records go on after damage at `from`; `None` when nothing whole follows, as after a torn append.
pub(super) fn resume(bytes: &[u8], from: usize) -> Option<usize> {
    // Every payload is a JSON object: few places are worth a checksum.
    let begins = |at: &usize| bytes[at + PREFIX..].starts_with(b"{\"");
    let last = bytes.len().saturating_sub(PREFIX);
    (from + 1..last).filter(begins).find(|at| payload(bytes, *at).is_some())
}

/// Whether `hole` is what a write leaves that never reached the disk: zeros, perhaps behind the part that did. A write
/// that was lost was not synced, and so nothing behind it was; a damaged one has bytes of its own.
pub(super) fn never_written(hole: &[u8]) -> bool {
    let Some(kept) = hole.iter().rposition(|byte| *byte != 0) else { return true };
    // No payload holds a zero, so more of them than a prefix has are not its own.
    hole.len() - kept > PREFIX || (kept >= PREFIX && kept + 1 < hole.len())
}

/// Where the payload of the frame at `start` lies; `None` when the frame is not whole.
fn payload(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let length = usize::try_from(word(start)?).ok()?;
    // A file grown by a crash ends in zeros, and a record of no bytes has the checksum zero.
    if length == 0 || length > LIMIT {
        return None;
    }
    let range = start + PREFIX..start + PREFIX + length;
    (crc32fast::hash(bytes.get(range.clone())?) == word(start + 4)?).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        records.iter().for_each(|record| {
            encode(record, &mut out).unwrap();
        });
        out
    }

    #[test]
    fn a_torn_tail_and_zeros_end_the_records() {
        let records = [Record::Sent(1), Record::Acknowledged(2), Record::Sent(3)];
        let bytes = encoded(&records);
        assert_eq!(decode(&bytes), (records.to_vec(), bytes.len()));
        let two = encoded(&records[..2]).len();
        for cut in two..bytes.len() {
            assert_eq!(decode(&bytes[..cut]).1, two, "cut at {cut}");
        }
        let mut zeros = bytes.clone();
        zeros.extend_from_slice(&[0; 512]);
        assert_eq!(decode(&zeros), (records.to_vec(), bytes.len()));
    }

    #[test]
    fn one_flipped_bit_ends_the_records_before_it() {
        let records = [Record::Sent(1), Record::Sent(2)];
        let bytes = encoded(&records);
        let one = encoded(&records[..1]).len();
        for bit in one * 8..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged).1, one, "bit {bit}");
        }
    }

    #[test]
    fn records_behind_a_damaged_one_are_found() {
        let records = [Record::Sent(1), Record::Sent(2), Record::Sent(3)];
        let bytes = encoded(&records);
        let (one, two) = (encoded(&records[..1]).len(), encoded(&records[..2]).len());
        for at in one..two {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            assert_eq!(decode(&damaged).1, one, "byte {at}");
            assert_eq!(resume(&damaged, one), Some(two), "byte {at}");
        }
        assert_eq!(resume(&bytes[..bytes.len() - 1], two), None);
        assert_eq!(resume(&bytes, bytes.len()), None);
        assert_eq!(resume(&[], 0), None);
    }

    #[test]
    fn a_write_that_was_lost_is_told_from_damage() {
        let mut bytes = encoded(&[Record::Sent(1)]);
        assert!(!never_written(&bytes));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            assert!(!never_written(&damaged), "byte {at}");
        }
        for kept in (0..bytes.len()).rev() {
            bytes[kept] = 0;
            assert!(never_written(&bytes), "{kept} bytes kept");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_decoded_without_a_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let (_, good) = decode(&bytes);
            proptest::prop_assert!(good <= bytes.len());
        }
    }
}
