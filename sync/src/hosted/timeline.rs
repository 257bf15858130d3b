//! Which writes were lost, or may be: verdicts over a timeline (`facts/hosted-sync.md`, "Lost-write detection").
//!
//! Times are seconds since any epoch. A field is a top-level key; a list of pools is one field for adoption.

/// Who changed a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// An edit of S through Rancher.
    Rancher,
    /// A change in the cloud, by console, API or another tool.
    Cloud,
}

/// One change of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Who.
    pub source: Source,
    /// Top-level field.
    pub field: String,
    /// When it began; for a form, when the form was opened.
    pub start: i64,
    /// When it was done.
    pub end: i64,
    /// The field was managed (S not null) at the start.
    pub managed: bool,
    /// It added a pool, a tag or a label, which an exact push removes.
    pub added_member: bool,
}

/// One refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// When the cloud was read.
    pub at: i64,
    /// S was applied and nothing was in flight.
    pub gate_open: bool,
}

/// Something that makes the operator push the whole of S: an edit of any field, a restart, a resync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// When.
    pub at: i64,
    /// Fields the edit set; none for a restart.
    pub sets: Vec<String>,
    /// When the values it sends were looked at: for a form, when it was opened. What changed after that was not
    /// overruled on purpose.
    pub seen_at: i64,
}

/// What becomes of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nobody else writes the field.
    Safe,
    /// A refresh took it over.
    Adopted,
    /// A push before the given time would undo it.
    AtRisk {
        /// When the next refresh adopts it, if one is known.
        until: Option<i64>,
    },
    /// Another change of the same field, made on purpose, came after.
    Superseded,
    /// Undone, likely; certain once a later read shows the old value.
    Lost {
        /// Members (pools, tags, labels) are removed with it.
        destructive: bool,
    },
}

/// Seconds a refresh takes to settle after its read.
pub const SETTLE_SECONDS: i64 = 10;

/// The first refresh that adopts `event`.
fn adoption(event: &Event, refreshes: &[Refresh]) -> Option<i64> {
    refreshes.iter().filter(|r| r.gate_open && r.at >= event.end).map(|r| r.at).min()
}

/// What Rancher's three loops make of `event`, a change in the cloud, given what happened up to `now`.
pub fn cloud_verdict(event: &Event, refreshes: &[Refresh], pushes: &[Push], now: i64) -> Verdict {
    if !event.managed {
        return Verdict::Safe;
    }
    let adopted = adoption(event, refreshes);
    let inside = |p: &&Push| p.at >= event.start && adopted.is_none_or(|g| p.at < g);
    let mut in_window = pushes.iter().filter(inside).peekable();
    if in_window.peek().is_some() {
        // One push that did not mean the field is enough to undo it before anyone set it on purpose.
        return match in_window.all(|p| p.seen_at >= event.end && p.sets.contains(&event.field)) {
            true => Verdict::Superseded,
            false => Verdict::Lost { destructive: event.added_member },
        };
    }
    match adopted {
        Some(g) if now < g + SETTLE_SECONDS => Verdict::AtRisk { until: Some(g) },
        Some(_) => Verdict::Adopted,
        None => Verdict::AtRisk { until: None },
    }
}

/// What Rancher's loops make of `event`, an edit in Rancher. `confirmed` is the first read that shows the new value.
pub fn rancher_verdict(
    event: &Event,
    later: &[Event],
    refreshes: &[Refresh],
    confirmed: Option<i64>,
) -> Verdict {
    let superseded =
        later.iter().any(|e| e.source == Source::Cloud && e.field == event.field && e.end > event.end);
    let reopened = |r: &Refresh| r.gate_open && r.at > event.start && confirmed.is_none_or(|c| r.at < c);
    if refreshes.iter().any(reopened) {
        Verdict::Lost { destructive: false }
    } else if superseded {
        Verdict::Superseded
    } else {
        Verdict::Safe
    }
}

/// What our own sync does about the same change in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OurAction {
    /// The field is not ours, or nothing is pushed.
    Nothing,
    /// The push meant the field: it is sent and the conflict is reported.
    PushedWithConflict,
    /// The push did not mean the field: it is held and reported before anything is sent.
    Held,
    /// A refresh took it over.
    Adopted,
}

/// What our own sync does about `event`, a change in the cloud.
pub fn our_action(event: &Event, refreshes: &[Refresh], pushes: &[Push], now: i64) -> OurAction {
    match cloud_verdict(event, refreshes, pushes, now) {
        Verdict::Safe | Verdict::AtRisk { .. } => OurAction::Nothing,
        Verdict::Adopted => OurAction::Adopted,
        Verdict::Superseded => OurAction::PushedWithConflict,
        Verdict::Lost { .. } => OurAction::Held,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(clock: &str) -> i64 {
        let parts: Vec<i64> = clock.split(':').map(|p| p.parse().unwrap()).collect();
        parts[0] * 3600 + parts[1] * 60 + parts.get(2).unwrap_or(&0)
    }

    fn console(start: &str, end: &str, managed: bool) -> Event {
        Event {
            source: Source::Cloud,
            field: "privateAccess".to_owned(),
            start: at(start),
            end: at(end),
            managed,
            added_member: false,
        }
    }

    fn refreshes() -> Vec<Refresh> {
        ["11:00", "11:05"].map(|t| Refresh { at: at(t), gate_open: true }).to_vec()
    }

    fn push(clock: &str, sets: &[&str]) -> Push {
        Push { at: at(clock), sets: sets.iter().map(|s| (*s).to_owned()).collect(), seen_at: at(clock) }
    }

    fn verdicts(event: &Event, pushes: &[Push], now: &str) -> (Verdict, OurAction) {
        let r = refreshes();
        (cloud_verdict(event, &r, pushes, at(now)), our_action(event, &r, pushes, at(now)))
    }

    const LOST: Verdict = Verdict::Lost { destructive: false };

    /// Rows R1 to R9 of `cases/hosted-sync-edges.md`.
    #[test]
    fn the_documented_timelines() {
        let base = console("11:01", "11:01", true);
        let tags = [push("11:03", &["tags"])];
        assert_eq!(verdicts(&base, &tags, "11:04"), (LOST, OurAction::Held), "R1");
        let unmanaged = console("11:01", "11:01", false);
        assert_eq!(verdicts(&unmanaged, &tags, "11:04"), (Verdict::Safe, OurAction::Nothing), "R2");
        let late = [push("11:06", &["tags"])];
        assert_eq!(verdicts(&base, &late, "11:07"), (Verdict::Adopted, OurAction::Adopted), "R3");
        let long = console("10:59", "11:01", true);
        assert_eq!(verdicts(&long, &[push("11:00:30", &["tags"])], "11:02").0, LOST, "R4");
        let until = Some(at("11:05"));
        assert_eq!(verdicts(&base, &[], "11:03"), (Verdict::AtRisk { until }, OurAction::Nothing), "R5");
        assert_eq!(verdicts(&base, &[], "11:05:09").0, Verdict::AtRisk { until }, "R6, settling");
        assert_eq!(verdicts(&base, &[], "11:05:10"), (Verdict::Adopted, OurAction::Adopted), "R6");
        let meant = [push("11:03", &["privateAccess"])];
        assert_eq!(
            verdicts(&base, &meant, "11:04"),
            (Verdict::Superseded, OurAction::PushedWithConflict),
            "R7"
        );
        assert_eq!(verdicts(&base, &[push("11:03", &[])], "11:04"), (LOST, OurAction::Held), "R8");
        let pool = Event { field: "nodeGroups".to_owned(), added_member: true, ..base };
        let form = [Push { seen_at: at("10:58"), ..push("11:03", &["nodeGroups"]) }];
        assert_eq!(verdicts(&pool, &form, "11:04").0, Verdict::Lost { destructive: true }, "R9");
    }

    #[test]
    fn a_closed_gate_adopts_nothing() {
        let base = console("11:01", "11:01", true);
        let closed = [Refresh { at: at("11:05"), gate_open: false }];
        assert_eq!(cloud_verdict(&base, &closed, &[], at("11:30")), Verdict::AtRisk { until: None });
        assert_eq!(cloud_verdict(&base, &closed, &[push("11:20", &[])], at("11:30")), LOST);
    }

    /// Rows R10 and R11: the race in the other direction.
    #[test]
    fn an_edit_that_was_read_back_too_early_is_lost() {
        let edit = Event { source: Source::Rancher, ..console("11:03", "11:03", true) };
        let early = [Refresh { at: at("11:03:10"), gate_open: true }];
        assert_eq!(rancher_verdict(&edit, &[], &early, Some(at("11:03:40"))), LOST, "R10");
        assert_eq!(rancher_verdict(&edit, &[], &early, Some(at("11:03:05"))), Verdict::Safe);
        let later = [console("11:04", "11:04", true)];
        assert_eq!(rancher_verdict(&edit, &later, &[], Some(at("11:03:05"))), Verdict::Superseded, "R11");
    }
}
