//! By whose clock captured files are judged together: each was dated by its own machine, and one wrong clock among them must
//! not make the others stale.
//!
//! A file that tells how far its clock is off is corrected by that, and one whose clock a time service keeps is taken as it is
//! dated: what is old then is old. Of any other only this is known: how old its readings
//! were when it was captured, by its own clock. That holds whatever the clock, so such files count as captured at one time,
//! and how far apart they are dated is said.

use std::time::Duration;

use outrider_diagnosis::fleet::Received;
use outrider_protocol::{NodeFacts, Timestamp};

use crate::output::text;

/// Files that are dated this far apart were captured at different times, or by clocks that differ.
const APART: Duration = Duration::from_secs(600);
/// A clock that is off by less changes no verdict here.
const OFF: Duration = Duration::from_secs(60);

/// The clocks of files that are judged together.
pub(crate) struct Clocks {
    /// The time of the judgement.
    pub(crate) now: Timestamp,
    /// When each file was captured, by that clock and by its own, in the order of the files.
    pub(crate) captured: Vec<Received>,
    /// What a reader has to know of them.
    pub(crate) notes: Vec<String>,
}

impl Clocks {
    /// Of these files.
    pub(crate) fn of(nodes: &[&NodeFacts]) -> Self {
        let told: Vec<Option<Timestamp>> = nodes
            .iter()
            .map(|facts| match outrider_diagnosis::clock_offset(facts) {
                Some(offset) => Some(moved(facts.now, -offset.offset_ms)),
                None => outrider_diagnosis::keeps_time(facts).then_some(facts.now),
            })
            .collect();
        let mut untold: Vec<Timestamp> =
            nodes.iter().zip(&told).filter(|(_, told)| told.is_none()).map(|(facts, _)| facts.now).collect();
        untold.sort_unstable();
        // One that is far ahead or behind does not decide.
        let middle = untold.get(untold.len().saturating_sub(1) / 2).copied();
        let now = told.iter().flatten().max().copied().or(middle).unwrap_or_default();
        let captured = nodes.iter().zip(&told);
        let captured = captured.map(|(facts, told)| Received { at: told.unwrap_or(now), sent_at: facts.now });
        Self { now, captured: captured.collect(), notes: notes(nodes, &told, now) }
    }

    /// A time that the file at this place tells, by the clock of the judgement.
    pub(crate) fn corrected(&self, place: usize, at: Timestamp) -> Timestamp {
        self.captured.get(place).map_or(at, |c| moved(at, apart(c.at, c.sent_at)))
    }
}

fn moved(at: Timestamp, by_ms: i64) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_add(by_ms))
}

fn apart(a: Timestamp, b: Timestamp) -> i64 {
    a.as_millis().saturating_sub(b.as_millis())
}

fn notes(nodes: &[&NodeFacts], told: &[Option<Timestamp>], now: Timestamp) -> Vec<String> {
    let words = |ms: i64| text::age(Duration::from_millis(ms.unsigned_abs()));
    let mut out: Vec<String> = nodes
        .iter()
        .filter_map(|facts| Some((facts, outrider_diagnosis::clock_offset(facts)?)))
        .filter(|(_, offset)| Duration::from_millis(offset.offset_ms.unsigned_abs()) > OFF)
        .map(|(facts, offset)| {
            let way = if offset.offset_ms > 0 { "ahead of" } else { "behind" };
            format!(
                "The clock of {} is {} {way} {}: its times are corrected by that.",
                facts.node.name,
                words(offset.offset_ms),
                offset.peer
            )
        })
        .collect();
    let kept = || nodes.iter().zip(told).filter_map(|(facts, told)| Some(((*told)?, facts)));
    if let (Some((first, older)), Some((last, newer))) =
        (kept().min_by_key(|k| k.0), kept().max_by_key(|k| k.0))
        && Duration::from_millis(apart(last, first).unsigned_abs()) > APART
    {
        out.push(format!(
            "The files were captured up to {} apart, that of {} first and that of {} last: readings older than 1 h are stale.",
            words(apart(last, first)),
            older.node.name,
            newer.node.name
        ));
    }
    let of_own = || nodes.iter().zip(told).filter(|(_, told)| told.is_none()).map(|(facts, _)| facts);
    // Where any file's time is known, the others are held against that.
    let reference = told.iter().any(Option::is_some).then_some(now);
    let all = || of_own().map(|facts| facts.now).chain(reference);
    let (Some(first), Some(last)) = (all().min(), all().max()) else { return out };
    let (Some(earliest), Some(latest)) = (of_own().min_by_key(|f| f.now), of_own().max_by_key(|f| f.now))
    else {
        return out;
    };
    let spread = apart(last, first);
    if Duration::from_millis(spread.unsigned_abs()) > APART {
        let who = match earliest.node.name == latest.node.name {
            true => format!("{} is dated {} from the others", latest.node.name, words(spread)),
            false => format!(
                "the files are dated up to {} apart, that of {} first and that of {} last",
                words(spread),
                earliest.node.name,
                latest.node.name
            ),
        };
        out.push(format!(
            "Clocks differ by {}, or the files were captured so long after each other: {who}. Readings are as old as by their own \
             file's clock, and none is called stale by another's.",
            words(spread)
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use outrider_protocol::{ClockFacts, ClockOffset, Fact, UnknownCause};

    use super::*;

    const HOUR: i64 = 3_600_000;

    /// Captured at this hour by its own clock, which is so many hours ahead of the coordinator's where that is known.
    fn file(name: &str, hour: i64, offset: Option<i64>) -> NodeFacts {
        let recording = include_str!("simulate/recordings/rancher-server.json");
        let mut facts: NodeFacts = serde_json::from_str(recording).unwrap();
        facts.node.name = name.to_owned();
        facts.now = Timestamp::from_millis(hour * HOUR);
        facts.checks.load_balancer = None;
        let at = facts.now;
        let coordinator = match offset {
            Some(hours) => Fact::known(
                ClockOffset { offset_ms: hours * HOUR, uncertainty_ms: 5, peer: "c.example".to_owned() },
                "",
                at,
            ),
            None => Fact::not_applicable("no coordinator", at),
        };
        let clock = ClockFacts {
            kernel: Fact::unknown(UnknownCause::Unsupported, "", "", at),
            service: Fact::absent("", at),
            source: None,
            coordinator,
        };
        facts.checks.clock = Some(Fact::known(clock, "", at));
        facts
    }

    fn of(files: &[NodeFacts]) -> Clocks {
        Clocks::of(&files.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_clock_that_is_known_to_be_off_is_corrected() {
        for ahead in [-50, -3, 3, 50] {
            let clocks = of(&[
                file("n1", 100, Some(0)),
                file("n2", 100 + ahead, Some(ahead)),
                file("n3", 98, Some(0)),
            ]);
            let captured: Vec<i64> = clocks.captured.iter().map(|c| c.at.as_millis() / HOUR).collect();
            assert_eq!(captured, [100, 100, 98], "{ahead}: what is really older stays older");
            assert_eq!(clocks.now.as_millis(), 100 * HOUR);
            let [off, old] = clocks.notes.as_slice() else { panic!("{:?}", clocks.notes) };
            assert!(off.starts_with("The clock of n2 is "), "{off}");
            assert!(old.contains(" apart, that of n3 first"), "{old}");
            assert_eq!(
                clocks.corrected(1, Timestamp::from_millis((99 + ahead) * HOUR)).as_millis(),
                99 * HOUR
            );
        }
    }

    #[test]
    fn clocks_of_which_nothing_is_known_age_nobody_and_are_told() {
        for (hours, words) in
            [([100, 103, 100], "n2 last"), ([100, 97, 100], "n2 first"), ([0, 100, 5000], "n3 last")]
        {
            let names = ["n1", "n2", "n3"];
            let files: Vec<NodeFacts> =
                names.iter().zip(hours).map(|(name, hour)| file(name, hour, None)).collect();
            let clocks = of(&files);
            assert!(clocks.captured.iter().all(|c| c.at == clocks.now), "{:?}", clocks.captured);
            let sent: Vec<i64> = clocks.captured.iter().map(|c| c.sent_at.as_millis() / HOUR).collect();
            assert_eq!(sent, hours);
            assert!(clocks.notes.len() == 1 && clocks.notes[0].contains(words), "{:?}", clocks.notes);
        }
        assert!(of(&[file("n1", 100, None), file("n2", 100, None)]).notes.is_empty());
    }

    #[test]
    fn one_that_tells_its_offset_is_the_measure_of_one_that_does_not() {
        let clocks = of(&[file("n1", 100, Some(0)), file("n2", 4000, None)]);
        assert_eq!(clocks.now.as_millis(), 100 * HOUR);
        assert_eq!(clocks.captured[1].at, clocks.now);
        assert!(clocks.notes[0].contains("n2 is dated"), "{:?}", clocks.notes);
    }
}
