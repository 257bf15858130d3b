//! Whether a history is whole: each transition says what was before it, so a lost, doubled or misplaced one shows as a
//! break between it and its neighbour.

use std::collections::BTreeMap;

use anyhow::ensure;
use outrider_protocol::{Condition, ConditionType, EventView, ReasonCode, Status};

/// Walks one node's events in the order of their ids; gives the conditions in force at the end, by type and subject.
pub fn unbroken(events: &[EventView]) -> anyhow::Result<BTreeMap<(ConditionType, String), Condition>> {
    ensure!(events.is_sorted_by(|a, b| a.id < b.id), "ids do not grow");
    let mut now: BTreeMap<(ConditionType, String), Condition> = BTreeMap::new();
    for event in events {
        let transition = &event.transition;
        let condition = &transition.condition;
        let key = (condition.condition_type.clone(), condition.subject.clone());
        let before: (Option<Status>, Option<ReasonCode>) =
            now.get(&key).map(|c| (Some(c.status), Some(c.reason.clone()))).unwrap_or_default();
        let said = (transition.previous_status, transition.previous_reason.clone());
        ensure!(
            before == said,
            "event {}: {} {:?} came from {said:?}, but the event before left {before:?}",
            event.id,
            key.0,
            key.1
        );
        if transition.removed {
            // What came and went while the spool was full is one transition: gone, from nothing.
            let came_and_went = transition.merged > 0 && before == (None, None);
            let gone = now.remove(&key);
            ensure!(
                gone.is_some() || came_and_went,
                "event {}: {key:?} was not there to be removed",
                event.id
            );
        } else {
            now.insert(key, condition.clone());
        }
    }
    Ok(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u64, before: Option<&str>, reason: &str) -> EventView {
        let mut event: EventView =
            serde_json::from_str(include_str!("../../protocol/golden/v1alpha1/Event.json"))
                .expect("an event");
        event.id = id;
        let transition = &mut event.transition;
        transition.removed = false;
        transition.condition.status = Status::False;
        transition.condition.reason = reason.into();
        transition.previous_status = before.map(|_| Status::False);
        transition.previous_reason = before.map(ReasonCode::from);
        event
    }

    #[test]
    fn a_lost_doubled_or_misplaced_transition_breaks_the_chain() {
        let whole = [
            event(1, None, "A"),
            event(2, Some("A"), "B"),
            event(3, Some("B"), "C"),
            event(4, Some("C"), "A"),
        ];
        assert!(unbroken(&whole).is_ok());
        for lost in 0..3 {
            let mut events = whole.to_vec();
            events.remove(lost);
            assert!(unbroken(&events).is_err(), "lost {lost}");
        }
        let mut gone = event(1, None, "A");
        gone.transition.removed = true;
        assert!(unbroken(&[gone.clone()]).is_err(), "what was not there cannot go");
        gone.transition.merged = 1;
        assert!(unbroken(&[gone]).is_ok(), "it came and went");
        let again = |id, n: usize| EventView { id, ..whole[n].clone() };
        assert!(unbroken(&[again(1, 0), again(2, 1), again(3, 1), again(4, 2)]).is_err(), "doubled");
        assert!(unbroken(&[again(1, 0), again(2, 2), again(3, 1)]).is_err(), "misplaced");
    }
}
