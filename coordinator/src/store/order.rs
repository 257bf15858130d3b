//! The rule of exactly once, apart from where the rows live.

use outrider_protocol::SequencedTransition;

use super::HistoryError;

/// Refuses sequences that do not grow by at least one.
pub(super) fn check(transitions: &[SequencedTransition]) -> Result<(), HistoryError> {
    let mut previous = 0;
    for t in transitions {
        // Bounded by what a signed 64-bit column holds.
        if t.sequence <= previous || i64::try_from(t.sequence).is_err() {
            return Err(HistoryError::OutOfOrder { previous, sequence: t.sequence });
        }
        previous = t.sequence;
    }
    Ok(())
}

/// Whether a transition is to be stored (true), is stored already (false), or contradicts what is stored.
///
/// `stored`: hash under its sequence; `highest` and `pruned`: highest sequence ever stored, and highest removed by age.
pub(super) fn is_new(
    sequence: u64,
    hash: &str,
    stored: Option<&str>,
    highest: u64,
    pruned: u64,
) -> Result<bool, HistoryError> {
    match stored {
        Some(stored) if stored == hash => Ok(false),
        // Its hash went with its age; it was acknowledged once and stays so.
        None if sequence <= pruned => Ok(false),
        None if sequence > highest => Ok(true),
        _ => Err(HistoryError::Mismatch { sequence, highest }),
    }
}
