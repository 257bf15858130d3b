//! Nodes whose clock is wrong: how old a reading is, is told by when its report came in.

use outrider_diagnosis::fleet::Received;
use outrider_protocol::*;
use proptest::prelude::*;

use crate::expect;
use crate::fleet_world::World;
use crate::world::{self, ago, kill, list_mut, now, status_mut, unknown};

const HOUR: i64 = 3_600_000;

fn moved(at: Timestamp, by: i64) -> Timestamp {
    Timestamp::from_millis(at.as_millis() + by)
}

fn shift<T>(fact: &mut Fact<T>, by: i64) {
    match fact {
        Fact::Known { at, .. }
        | Fact::Unknown { at, .. }
        | Fact::Absent { at, .. }
        | Fact::NotApplicable { at, .. } => *at = moved(*at, by),
    }
}

/// Everything that the node's clock dated.
fn shift_all(fact: &mut Fact<EtcdFacts>, by: i64) {
    shift(fact, by);
    let Fact::Known { value: e, .. } = fact else { return };
    shift(&mut e.members, by);
    for endpoint in &mut e.endpoints {
        shift(&mut endpoint.status, by);
        shift(&mut endpoint.linearizable_read, by);
        endpoint.down_since = endpoint.down_since.map(|at| moved(at, by));
    }
    e.no_read_since = e.no_read_since.map(|at| moved(at, by));
    e.learners_since.values_mut().for_each(|at| *at = moved(*at, by));
}

/// The clock of node `n` is `ahead` milliseconds ahead of ours (behind, when negative); its report came in `seconds` ago.
fn skew(w: &mut World, n: usize, ahead: i64, seconds: u64) {
    let node = &mut w.nodes[n - 1];
    node.etcd.iter_mut().for_each(|etcd| shift_all(etcd, ahead));
    node.received = Some(Received { at: ago(seconds), sent_at: moved(ago(seconds), ahead) });
}

#[test]
fn a_wrong_clock_makes_no_fresh_report_stale() {
    for ahead in [-2 * HOUR, -24 * HOUR, -87_600 * HOUR, 2 * HOUR, 87_600 * HOUR] {
        let mut w = World::of(3);
        (1..=3).for_each(|n| skew(&mut w, n, ahead, 0));
        assert_eq!(w.quorum().reason, ReasonCode::EtcdQuorumMet, "{ahead}");
        assert!(w.picture().unheard.is_empty(), "{ahead}");
        // One of three alone, whose own word is what is known of it.
        let mut w = World::of(3);
        skew(&mut w, 3, ahead, 0);
        w.view(1, |e| kill(e, 3, 600));
        assert_eq!(w.quorum().reason, ReasonCode::EtcdQuorumMet, "{ahead}");
    }
}

#[test]
fn a_wrong_clock_makes_no_stale_report_fresh() {
    let stale = |w: &World| {
        let unheard = w.picture().unheard;
        unheard.iter().any(|u| (u.node.as_str(), u.why.as_str()) == ("n3", "stale"))
    };
    for ahead in [0, 2 * HOUR, -2 * HOUR, 48 * HOUR] {
        let mut w = World::of(3);
        // It came in two hours ago, and was read just then.
        w.nodes[2].etcd.iter_mut().for_each(|etcd| shift(etcd, -2 * HOUR));
        skew(&mut w, 3, ahead, 7200);
        assert!(stale(&w), "{ahead}");
        let mut w = World::of(3);
        // It came in just now, and was read two hours before it was sent.
        w.nodes[2].etcd.iter_mut().for_each(|etcd| shift(etcd, -2 * HOUR));
        skew(&mut w, 3, ahead, 0);
        assert!(stale(&w), "{ahead}");
    }
}

#[test]
fn a_loss_is_as_old_as_it_is() {
    for ahead in [-3 * HOUR, 0, 3 * HOUR] {
        let mut w = World::of(3).every(|i, e| {
            (1..=3).filter(|other| *other != i).for_each(|other| kill(e, other, 2));
            world::orphan(e, i);
            e.no_read_since = Some(ago(2));
        });
        (1..=3).for_each(|n| skew(&mut w, n, ahead, 0));
        let f = w.quorum();
        expect(&f, Status::False, Severity::Error, ReasonCode::EtcdNoLeader, &["0 healthy"]);
        assert_eq!(f.since, Some(ago(2)), "{ahead}");
    }
}

#[test]
fn what_a_clock_dates_later_than_its_report_came_in_happened_no_later_than_that() {
    let mut w = World::of(3);
    skew(&mut w, 3, 0, 30);
    // Its clock was set back between the reading and the report.
    w.nodes[2].etcd.iter_mut().for_each(|etcd| shift(etcd, 5 * HOUR));
    let p = w.picture();
    assert_eq!(p.matrix[2].at, ago(30));
    assert_eq!(w.quorum().reason, ReasonCode::EtcdQuorumMet);
}

proptest! {
    #![proptest_config(crate::properties())]

    #[test]
    fn no_clock_changes_a_verdict(
        n in 1usize..6,
        dead in prop::collection::btree_map(1usize..6, 1u64..100_000, 0..4),
        clocks in prop::collection::vec(-1_000_000_000_000i64..1_000_000_000_000, 6),
        learner in prop::option::of(0u64..10_000),
    ) {
        let mut w = World::of(n + usize::from(learner.is_some())).every(|_, e| {
            for (d, seconds) in dead.iter().filter(|(d, _)| **d <= n) {
                kill(e, *d, *seconds);
            }
            if let Some(age) = learner {
                list_mut(e).members[n].is_learner = true;
                let s = status_mut(e, n + 1);
                (s.is_learner, s.raft_index) = (true, 9_000);
                e.endpoints[n].linearizable_read = unknown(UnknownCause::Unsupported);
                e.learners_since.insert(world::member(n + 1).id, ago(age));
            }
        });
        (1..=w.nodes.len()).for_each(|i| skew(&mut w, i, 0, 0));
        let mut off = w.clone();
        for (i, clock) in clocks.iter().take(off.nodes.len()).enumerate() {
            let node = &mut off.nodes[i];
            node.etcd.iter_mut().for_each(|etcd| shift_all(etcd, *clock));
            node.received = Some(Received { at: now(), sent_at: moved(now(), *clock) });
        }
        prop_assert_eq!(w.judged(), off.judged());
        let (a, b) = (w.picture(), off.picture());
        prop_assert_eq!((a.healthy, a.tolerated, a.unheard), (b.healthy, b.tolerated, b.unheard));
    }
}
