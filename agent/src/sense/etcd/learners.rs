//! Learners on their way: since when each is known, and how far it had come at the last looks.

use std::collections::BTreeMap;
use std::time::Duration;

use outrider_protocol::{LearnerProgress, Timestamp};

/// Time between two points that are kept. Twelve of them cover six minutes: K3s and RKE2 give up on a learner that has
/// not moved for five (k3s-io/k3s, `pkg/etcd/etcd.go`, `learnerMaxStallTime`).
const APART: Duration = Duration::from_secs(30);
const MAX_POINTS: usize = 12;
/// Learners that are followed; sound clusters have one at a time.
const MAX_LEARNERS: usize = 8;

/// The learners of the last list, by member id in hexadecimal.
#[derive(Debug, Default)]
pub(super) struct Learners {
    pub(super) since: BTreeMap<String, Timestamp>,
    pub(super) progress: BTreeMap<String, Vec<LearnerProgress>>,
}

impl Learners {
    /// Takes the learners of a new list; forgets those that are none any more.
    pub(super) fn listed(&mut self, ids: impl Iterator<Item = String>, now: Timestamp) {
        let ids: Vec<String> = ids.take(MAX_LEARNERS).collect();
        self.since.retain(|id, _| ids.contains(id));
        self.progress.retain(|id, _| ids.contains(id));
        for id in ids {
            self.since.entry(id).or_insert(now);
        }
    }

    /// Adds a point. The newest always shows the last look; those before it lie apart, so that they cover minutes.
    pub(super) fn seen(&mut self, id: &str, point: LearnerProgress) {
        if !self.since.contains_key(id) {
            return;
        }
        let points = self.progress.entry(id.to_owned()).or_default();
        // A clock that was set back makes the points before it meaningless.
        if points.last().is_some_and(|last| last.at > point.at) {
            points.clear();
        }
        if let [.., before, last] = &mut points[..]
            && last.at.since(before.at) < APART
        {
            *last = point;
            return;
        }
        if points.len() >= MAX_POINTS {
            points.remove(0);
        }
        points.push(point);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(seconds: i64) -> LearnerProgress {
        LearnerProgress { at: Timestamp::from_seconds(seconds), index: seconds as u64, front: 1000 }
    }

    fn followed(seconds: impl Iterator<Item = i64>) -> Vec<i64> {
        let mut learners = Learners::default();
        learners.listed(["a".to_owned()].into_iter(), Timestamp::from_seconds(0));
        seconds.for_each(|s| learners.seen("a", point(s)));
        learners.progress["a"].iter().map(|p| p.at.as_millis() / 1000).collect()
    }

    #[test]
    fn the_newest_is_always_the_last_look_and_the_others_lie_apart() {
        assert_eq!(followed([0].into_iter()), [0]);
        assert_eq!(followed([0, 5, 10].into_iter()), [0, 10]);
        assert_eq!(followed([0, 5, 30, 35, 40].into_iter()), [0, 30, 40]);
    }

    #[test]
    fn twelve_points_cover_more_than_five_minutes() {
        let kept = followed((0..2000).step_by(5));
        assert!(kept.len() <= MAX_POINTS);
        assert!(kept.last() == Some(&1995) && kept[kept.len() - 1] - kept[0] >= 300, "{kept:?}");
    }

    #[test]
    fn a_clock_set_back_starts_anew() {
        assert_eq!(followed([100, 140, 50].into_iter()), [50]);
    }

    #[test]
    fn who_is_no_learner_any_more_is_forgotten() {
        let mut learners = Learners::default();
        let now = Timestamp::from_seconds(1);
        learners.listed(["a".to_owned(), "b".to_owned()].into_iter(), now);
        learners.seen("a", point(1));
        learners.seen("stranger", point(1));
        learners.listed(["b".to_owned()].into_iter(), Timestamp::from_seconds(9));
        assert!(learners.progress.is_empty());
        assert_eq!(learners.since, BTreeMap::from([("b".to_owned(), now)]));
        learners.listed((0..100).map(|i| i.to_string()), now);
        assert_eq!(learners.since.len(), MAX_LEARNERS);
    }
}
